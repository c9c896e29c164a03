"""Inflation: flagged where figures separate, attributed to what the counters show, and else not claimed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from durability.bench.catalogue import PROBE, PROFILES
from durability.bench.inflation import Inflation, inflations
from durability.bench.measurement import Round
from durability.bench.result import Result
from tests.core.bench.results import Device, simulate

BTRFS_ZSTD = Device(
    written={"zeros": 0.03, "half": 0.55, "repeated": 1.0}, speed={"zeros": 4.0, "half": 1.6, "repeated": 1.0}
)


def judged(device: Device, **changes: int) -> dict[str, Inflation]:
    return {one.cell.data: one for one in inflations(simulate(device, cells=PROBE, **changes).cells)}


def without_counters(result: Result) -> Result:
    def bare(one: Round) -> Round:
        return replace(one, work=None)

    return replace(
        result, cells=tuple(replace(one, rounds=tuple(map(bare, one.rounds))) for one in result.cells)
    )


@pytest.mark.parametrize("seed", range(1, 31))
def test_a_drive_that_writes_what_it_is_given_is_not_flagged(seed: int) -> None:
    """Noise of rounds makes no inflation."""
    found = judged(Device(noise=0.1), seed=seed)
    assert set(found) == {"half", "repeated", "zeros"}
    assert not any(one.inflated for one in found.values()), f"seed {seed}"
    assert all("no inflation shown" in one.text for one in found.values())


def test_a_compressing_file_system_is_flagged_for_what_compresses() -> None:
    """Bytes that never reach the drive are the file system's saving; a block that only repeats is not."""
    found = judged(BTRFS_ZSTD)
    assert found["zeros"].inflated and found["half"].inflated and not found["repeated"].inflated
    assert "file system or a layer above the drives" in found["zeros"].text
    written = found["half"].written
    assert written is not None and written.value == pytest.approx(0.55)
    assert "0.55 times the bytes reach the drives" in found["half"].text


def test_bytes_that_vanish_are_inflation_even_at_the_same_rate() -> None:
    """A drive that is slow with flushes hides the saving from the rate, not from its counters."""
    found = judged(Device(written={"zeros": 0.0}))
    assert found["zeros"].inflated and found["zeros"].written is not None


def test_a_drive_that_deduplicates_is_flagged_by_its_rate() -> None:
    """All bytes arrive and yet it is faster: the drive, or something below it."""
    found = judged(Device(speed={"repeated": 1.5, "zeros": 1.5}))
    assert found["repeated"].inflated and "the drive, or a layer inside it," in found["repeated"].text
    assert not found["half"].inflated


def test_without_counters_the_rate_decides_and_names_nobody() -> None:
    """Without write counters, the rate alone shows that data is compressed or skipped, and the text blames an
    unnamed layer below."""
    result = without_counters(simulate(BTRFS_ZSTD, cells=PROBE))
    found = {one.cell.data: one for one in inflations(result.cells)}
    assert found["zeros"].inflated and "a layer below" in found["zeros"].text
    assert found["zeros"].written is None


def test_a_little_faster_is_no_inflation() -> None:
    """Zeros are quicker to copy by some per cent, in which intervals may well separate."""
    found = judged(Device(noise=0.001, speed={"zeros": 1.05}))
    assert not found["zeros"].inflated


def test_too_few_rounds_show_nothing() -> None:
    """Three rounds have no intervals that could separate."""
    assert not any(one.inflated for one in judged(BTRFS_ZSTD, rounds=3).values())


def test_each_is_held_against_the_same_cell_with_unique_data() -> None:
    """A server test with zeros is compared with that test, not with the probe; without a twin it is left."""
    profile = PROFILES["dedicated-server"]
    names = [one.cell.name for one in inflations(simulate(BTRFS_ZSTD, cells=profile).cells)]
    assert "64k-random-fsync-16jobs-zeros-overwritten" in names and len(names) == 4
    assert inflations(simulate(BTRFS_ZSTD, cells=PROBE[1:]).cells) == ()
