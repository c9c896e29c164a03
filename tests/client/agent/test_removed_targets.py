"""What a release removes: the files of the run that it names, and of no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from durability.errors import NotOursError
from durability.formats.plan import Plan
from durability.formats.record import superblock
from durability.units import format_run
from durability_client.agent.same_drive import remove_target
from tests.conftest import PLAN_FIELDS

RUN, OTHER_RUN = 0x1234, 0x5678


def begun(target: Path, run: int) -> None:
    """A run was begun on the target."""
    target.write_bytes(superblock(Plan(**{**PLAN_FIELDS, "run": run}), 0) + bytes(1 << 16))


def test_release_keeps_a_newer_run_that_was_begun_by_hand(tmp_path: Path) -> None:
    """A release keeps the target if a newer run was begun there by hand, because a missing file would count
    as a loss."""
    target = tmp_path / "t"
    begun(target, OTHER_RUN)
    remove_target(target, format_run(RUN))
    assert target.exists()
    begun(target, RUN)
    remove_target(target, format_run(RUN))
    assert not target.exists()
    remove_target(target, format_run(RUN))  # which is repeated after every boot


def test_release_refuses_files_of_others(tmp_path: Path) -> None:
    """A release raises NotOursError for a target that no run wrote, and does not remove it."""
    target = tmp_path / "t"
    target.write_bytes(b"somebody's")
    with pytest.raises(NotOursError):
        remove_target(target, format_run(RUN))
    assert target.read_bytes() == b"somebody's"
