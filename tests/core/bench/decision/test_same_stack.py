"""Cuts count beside a result only if firmware, file system and the options that guard a commit agree."""

from __future__ import annotations

from typing import Any

import pytest

from durability.bench.decision.same_stack import guarding, unlike
from durability.formats.facts import Facts
from tests import sample_facts
from tests.core.bench.results import drive, facts


def on(options: str = "rw,relatime", *, kind: str = "ext4", **changes: Any) -> Facts:
    """Facts of a directory on this file system, or of a device if `kind` is ""."""
    mounted = sample_facts.file_system(type=kind, options=options) if kind else None
    return facts(file_system=mounted, drives=(drive(**changes),))


@pytest.mark.parametrize(
    ("cut", "measured", "words"),
    [
        (on(), on("rw,noatime,noinit_itable,errors=remount-ro"), ""),
        (on("rw,data=ordered,logbufs=8,logbsize=32k"), on(), ""),
        (on(), on("rw,nobarrier"), "not with nobarrier"),
        (on("rw,barrier=0"), on("rw,data=writeback"), "with barrier=0 and not with data=writeback"),
        (on(), on(kind="xfs"), "on ext4, not on xfs"),
        (on(kind=""), on(), "on the device, not on ext4"),
        (on(), on(kind=""), ""),
        (on(firmware="1.0"), on(firmware="2.0"), "of firmware 1.0, not 2.0"),
    ],
)
def test_what_differs_is_said(cut: Facts, measured: Facts, words: str) -> None:
    """Options of access and names, and defaults that are said, make no other stack."""
    assert unlike(cut, measured) == words


def test_options_that_guard_a_commit() -> None:
    """Those of several file systems."""
    options = (
        "rw,journal_async_commit,noauto_da_alloc,nodatacow,notreelog,wsync,norecovery,fsync_mode=nobarrier"
    )
    assert guarding(options) == frozenset(options.split(",")) - {"rw"}
