"""The lab's cases of acknowledging: the product's writers on the smallest honest file system, which is cut in
their midst, or fails them.

It keeps whatever it acknowledged, so none of these deserves a loss.
"""

from __future__ import annotations

import errno
import os

from durability_client.run.shared_state import SharedState
from tests.lab.mutants.lab_case import Before, lab_case, plan_of, written
from tests.lab.mutants.synced_files import Files, OpenFile

FATAL = 20  # the step at which something happens
LAST = 40  # the step at which the power goes at the latest


def cut_at(fatal: str) -> Before:
    """The power goes before step `FATAL` of that kind is done."""

    def before(files: Files, shared: SharedState, kind: str, number: int, file: OpenFile | None) -> None:
        if (kind, number) == (fatal, FATAL):
            files.cut()

    return before


@lab_case("durable")
def cut_inside_a_sync() -> str:
    """The power goes while the writer waits for its 20th sync."""
    return written(plan_of(slots=256, credit=64), cut_at("sync"))


@lab_case("durable")
def cut_inside_the_sync_of_a_group() -> str:
    """The power goes while the writer waits for the sync of its 20th group of four."""
    return written(plan_of(slots=512, credit=128, group=4), cut_at("sync"))


@lab_case("durable")
def cut_inside_the_sync_of_a_directory() -> str:
    """The power goes while a writer of names waits for its 20th sync of the directory."""
    return written(plan_of(workload="create", slots=256, credit=64), cut_at("sync directory"))


@lab_case("durable")
def cut_between_renames() -> str:
    """The power goes while a writer that renames waits for its 20th temporary."""
    return written(plan_of(workload="rename", slots=256, credit=64), cut_at("sync"))


@lab_case("durable")
def cut_behind_a_rotation() -> str:
    """The power goes when an appending writer has begun its second file of 16 records."""
    return written(plan_of(workload="append", slots=16, credit=4), cut_at("sync"), grants=True)


@lab_case("durable")
def sync_that_fails_once() -> str:
    """The 20th sync fails and its data are dropped, as kernels do; the syncs after it return success."""

    def before(files: Files, shared: SharedState, kind: str, number: int, file: OpenFile | None) -> None:
        if kind == "sync" and number == FATAL and file is not None:
            file.undo()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if number == LAST:
            files.cut()

    return written(plan_of(slots=256, credit=64), before)


@lab_case("durable")
def error_that_another_writer_was_told() -> str:
    """The data of the 20th sync are dropped; another writer was told so, and this sync returns success."""

    def before(files: Files, shared: SharedState, kind: str, number: int, file: OpenFile | None) -> None:
        if kind == "sync" and number == FATAL and file is not None:
            file.undo()
            shared.halt()
        if number == LAST:
            files.cut()

    return written(plan_of(slots=256, credit=64), before)


@lab_case("inconclusive: nothing-at-risk")
def server_that_grants_nothing() -> str:
    """The server is silent from the start: the writer uses up its credit of 8 and waits."""

    def before(files: Files, shared: SharedState, kind: str, number: int, file: OpenFile | None) -> None:
        if number == LAST:
            files.cut()

    return written(plan_of(), before)
