"""Measurements of drives that behave in a known way: what reached them, and what is said of them."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from durability.bench.catalogue import (
    COMMIT_CONTROL,
    CONTROLS,
    FLUSH_CONTROL,
    HEADLINE,
    LADDER,
    PROBE,
    SEQUENTIAL,
    WRITE_CONTROL,
)
from durability.bench.cells import MIB, Cell
from durability.bench.inflation import inflations
from durability.bench.plausibility import plausibility
from durability.bench.result import Result
from durability.bench.summary import disks_per_operation
from durability_client.bench.runner import Options, measure
from durability_client.target.safety_checks import Consent
from durability_lab.kernel_rig.block_rig import without_loop_mounts
from tests.client.bench.conftest import declare


class Nobody:
    """A listener that does not listen."""

    def say(self, text: str) -> None:
        pass

    def preparing(self, done: int, total: int) -> None:
        pass

    def measuring(self, doing: str, done_s: float, left_s: float) -> None:
        pass


def _measured(path: Path, *cells: Cell, seconds: float = 0.02, **changes: Any) -> Result:
    """A result of `cells` made short."""
    short = tuple(replace(cell, seconds=seconds, warmup_s=0.0) for cell in cells)
    values: dict[str, Any] = {
        "target": path,
        "cells": short,
        "mode": "standard",
        "profile": "",
        "size_bytes": 64 * MIB,
        "seed": 1,
        "consent": Consent(destroy_data=True, force=True),
        "show_serials": False,
        "fio": False,
        "idle_s": 0.01,
    }
    outcome = measure(Options(**{**values, **changes}), Nobody())
    assert outcome.ending is None
    return outcome.result


def _flushes(result: Result, cell: Cell) -> float | None:
    (disk,) = disks_per_operation(result.rounds_of(cell.name))
    return disk.flushes


def test_every_commit_is_a_flush(memory_drive: Path) -> None:
    """With a volatile cache each commit sends one flush, also an empty one, and a write without a sync none;
    what is written arrives, no more and no less."""
    result = _measured(memory_drive, *CONTROLS)
    assert _flushes(result, HEADLINE) == pytest.approx(1, abs=0.02)
    assert _flushes(result, COMMIT_CONTROL) == pytest.approx(1, abs=0.02)
    assert _flushes(result, FLUSH_CONTROL) == pytest.approx(1, abs=0.02)
    assert _flushes(result, WRITE_CONTROL) == pytest.approx(0, abs=0.02)
    (disk,) = disks_per_operation(result.rounds_of(COMMIT_CONTROL.name))
    assert disk.write_kib == pytest.approx(4, abs=0.1)
    (disk,) = disks_per_operation(result.rounds_of(LADDER[-1].name))
    assert disk.write_kib == pytest.approx(65536, rel=0.01)
    assert plausibility(result).code != "no-flush-sent"


def test_a_drive_that_gets_no_flush_is_said_to(memory_drive: Path) -> None:
    """A drive that declares no volatile cache is sent none, and that is the verdict."""
    declare(memory_drive, write_cache="write through")
    result = _measured(memory_drive, *CONTROLS)
    assert _flushes(result, HEADLINE) == 0
    assert plausibility(result).code == "no-flush-sent"


def test_memory_that_says_it_rotates_is_too_fast(memory_drive: Path) -> None:
    """No platter comes round as often as memory answers; if it does not say how fast it turns, its flag is in
    doubt."""
    declare(memory_drive, rotational="1")
    for seconds in (0.4, 2.0, 10.0):  # a busy machine may stand still for most of the shorter ones
        result = _measured(memory_drive, HEADLINE, SEQUENTIAL, seconds=seconds)
        if plausibility(result).reasons:
            break
    assert "the flag is doubtful" in plausibility(result).reasons[0]
    turning = tuple(replace(one, rpm=7200) for one in result.media)
    assert plausibility(replace(result, media=turning)).code == "faster-than-media"


@pytest.mark.parametrize(("options", "flagged"), [("compress=zstd", {"half", "zeros"}), ("defaults", set())])
def test_a_compressing_file_system_is_flagged(
    memory_drive: Path, tmp_path: Path, options: str, flagged: set[str]
) -> None:
    """Data that never reach the drive are seen not to; unique data reach it whole."""
    subprocess.run((*without_loop_mounts(), "mkfs.btrfs", "-q", memory_drive), check=True)
    directory = tmp_path / "mount"
    directory.mkdir()
    subprocess.run(("mount", "-o", options, memory_drive, directory), check=True)
    try:
        result = _measured(directory, *PROBE, size_bytes=16 * MIB, idle_s=0.05)
    finally:
        subprocess.run(("umount", directory), check=True)
    probed = inflations(result.cells)
    saved = {one.cell.data for one in probed if one.written is not None and one.written.value < 0.9}
    assert saved == flagged
    assert {one.cell.data for one in probed if one.inflated} >= flagged
