"""Plays one history from its first step to its last verdict, and reports what was wrong."""

from __future__ import annotations

import asyncio
import atexit
import io
import logging
import shutil
import tempfile
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Protocol

from durability.units import parse_run
from durability_lab.histories.cuts_and_answers import VerifyAnswer
from durability_lab.histories.deserved import Grade, Grader
from durability_lab.histories.known_truth import KnownTruth
from durability_lab.histories.simulated.virtual_loop import VirtualLoop, virtual_time
from durability_lab.histories.simulated.virtual_network import VirtualNetwork
from durability_lab.histories.simulated.world import World
from durability_lab.histories.steps import History, Step
from durability_lab.histories.store_copies import StoreCopies
from durability_lab.histories.stored_verdicts import StoredVerdict, listing
from durability_lab.support.cleanup import in_memory

_DELAY_S = 0.0002


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """The result of playing a history."""

    grades: tuple[Grade, ...]  # grades of its answers
    told: tuple[str, ...]  # one line per step, with its time, and per answer of `verify`
    wrong: tuple[str, ...]  # a sentence for each error; empty if all was right


def play(history: History, within: Path | None = None) -> Played:
    """Play a history, with its files in a directory below `within` (by default in memory); remove the files.

    If the history ends, a defect of a process of the product counts as wrong. A defect of `verify` is raised.
    """
    directory = _directory(within or in_memory())
    loop = VirtualLoop(VirtualNetwork(delay_s=_DELAY_S, seed=history.seed))
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    logging.root.addHandler(loop.defects)
    try:
        asyncio.set_event_loop(loop)
        with virtual_time(loop, seed=history.seed), redirect_stderr(io.StringIO()):
            world = World(history=history, directory=directory, loop=loop)
            try:
                played = loop.run_until_complete(play_through(world))
                return replace(played, wrong=(*played.wrong, *loop.end_of_play()))
            finally:
                loop.run_until_complete(world.end())
    finally:
        logging.root.removeHandler(loop.defects)
        logging.disable(before)
        asyncio.set_event_loop(None)
        loop.close()
        for entry in directory.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()


@cache
def _directory(within: Path | None) -> Path:
    """The directory for all histories of this process. The server caches compiled queries by its store's
    path. The directory is removed at the end of the process."""
    directory = tempfile.TemporaryDirectory(prefix="durability-history-", dir=within)
    atexit.register(directory.cleanup)
    return Path(directory.name)


class Playable(Protocol):
    """A world in which a history can be played."""

    @property
    def truth(self) -> KnownTruth:
        """The truth about the history."""

    @property
    def store(self) -> StoreCopies:
        """The content of the server's store; this module records the verdicts and reports in it."""

    async def start(self) -> None:
        """Prepare the world for the first step."""

    async def take(self, step: Step) -> VerifyAnswer | None:
        """Take one step; returns the answer if the step is a `verify`."""

    async def finish(self) -> VerifyAnswer | None:
        """Take the steps that end every history; returns the last answer."""

    async def listed(self) -> dict[int, str]:
        """The verdict that `runs` shows for each run."""


async def play_through(world: Playable) -> Played:
    """Play the history of a world from its start to its last answer."""
    await world.start()
    clock = asyncio.get_running_loop().time
    grader = Grader(world.truth)
    grades: list[Grade] = []
    told: list[str] = []
    wrong: list[str] = []

    def take(answer: VerifyAnswer | None) -> None:
        if answer is not None:
            grades.append(grader.grade(answer))
            _keep(world, answer)
            told.append(f"{'':12}{_said(answer)}")
            if grades[-1].wrong:
                wrong.append(grades[-1].wrong)
            take(answer.beside)

    began_s = clock()
    for step in world.truth.history.steps:
        told.append(f"{clock() - began_s:8.3f} s  {step}")
        take(await world.take(step))
    told.append(f"{clock() - began_s:8.3f} s  (the plug is pulled, all is put right, verify)")
    take(await world.finish())
    wrong += listing(world.store.stored, world.store.unanswered, await world.listed())
    return Played(grades=tuple(grades), told=tuple(told), wrong=tuple(wrong))


def _keep(world: Playable, answer: VerifyAnswer) -> None:
    """Record what the server's store has received from the answer."""
    store = world.store
    if answer.exported:
        return
    if answer.document is None:
        store.unanswered.update(world.truth.plans)
        for run in world.truth.plans:
            store.looks.setdefault(run, []).append(answer.look(run))
        return
    run, given = parse_run(answer.document["run"]), StoredVerdict.of_document(answer.document)
    for seen in (run, *answer.others):
        store.looks.setdefault(seen, []).append(answer.look(seen))
    if answer.interrupted:
        store.unanswered.add(run)  # the verdict may or may not have been stored
    elif answer.case is not None:  # otherwise the server does not know the run
        store.stored.setdefault(run, []).append(given)
        if given.by_reads:
            store.unanswered.discard(run)  # no unseen verdict had withdrawn this loss


def _said(answer: VerifyAnswer) -> str:
    document = answer.document
    if document is None:
        return f"no verdict: {answer.why}"
    codes = ", ".join(reason["code"] for reason in document["reasons"])
    return f"run {document['run']}: {document['verdict']}" + (f" ({codes})" if codes else "")
