"""Summaries: medians of rounds, percentiles of merged latencies, and None for what was not measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from durability.bench.catalogue import ETCD, HEADLINE, STANDARD, WRITE_CONTROL
from durability.bench.cells import Cell, make_cell
from durability.bench.measurement import NO_LATENCIES, DiskWork, Round, Work
from durability.bench.result import CellRounds
from durability.bench.summary import (
    disks_per_operation,
    percentiles,
    round_medians,
    summarise,
    written_bytes,
)
from tests.core.bench.results import SAMPLES, Device, latencies, make_round, simulate


def measured(cell: Cell, rounds: tuple[Round, ...], note: str = "") -> CellRounds:
    return CellRounds(cell=cell, engine="durability", engine_version="", rounds=rounds, note=note)


def rounds_of(cell: Cell, device: Device = Device(), count: int = 5) -> tuple[Round, ...]:  # noqa: B008  # frozen
    rng = np.random.default_rng(1)
    return tuple(make_round(cell, device, rng) for _ in range(count))


def with_work(work: Work | None) -> Round:
    return replace(rounds_of(HEADLINE, count=1)[0], work=work)


def test_a_cell_in_figures() -> None:
    """A drive of 35 us a commit and 15 us a sync shows as such, with what it took of processor and drive."""
    found = summarise(measured(HEADLINE, rounds_of(HEADLINE)))
    assert found.rate is not None and found.rate.median == pytest.approx(1e9 / 35_000, rel=0.05)
    assert found.operations == 5 * SAMPLES and found.writes_per_s is None
    assert found.commit.p50 == pytest.approx(35_000, rel=0.05)
    assert found.sync.p50 == pytest.approx(15_000, rel=0.05)
    assert found.commit.p99 is not None and found.commit.most is not None
    assert found.commit.p50 is not None and found.commit.p50 < found.commit.p99 <= found.commit.most
    assert found.cpu_us == 12.0
    (disk,) = found.disks
    assert (disk.name, disk.flushes, disk.writes, disk.write_kib, disk.reads) == ("sda", 1.0, 1.0, 4.0, 0.0)
    assert found.steady.word == "steady" and len(found.series) == 20


def test_percentiles_are_of_all_rounds_and_never_averaged() -> None:
    """A stall in one round of two is one sample of both, not half of a percentile."""
    calm, stalled = latencies([100] * 1000), latencies([100] * 900 + [10_000] * 100)
    found = percentiles([calm, stalled])
    assert (found.samples, found.p50, found.p99) == (2000, 100, 10_000)
    assert found.p95 == 100  # where the average of the two rounds says 5,050
    assert found.p99_9 is None and found.most == 10_000


def test_what_was_not_measured_is_none() -> None:
    """A cell without rounds, or without a sync, has no figures, and says why if it knows."""
    empty = summarise(measured(HEADLINE, (), note="needs a file system"))
    assert empty.rate is None and empty.commit.most is None and empty.cpu_us is None
    assert empty.disks == () and empty.series == () and empty.note == "needs a file system"
    assert empty.steady.word == "too short to say"
    unsynced = summarise(measured(WRITE_CONTROL, rounds_of(WRITE_CONTROL)))
    assert unsynced.sync.samples == 0 and unsynced.sync.p50 is None and unsynced.commit.p50 is not None


def test_writes_per_second_are_told_where_commits_have_several() -> None:
    """Group commit trades latency of a commit for writes."""
    cell = make_cell("group commit", "", writes_per_sync=8)
    found = summarise(measured(cell, rounds_of(cell)))
    assert found.rate is not None and found.writes_per_s is not None
    assert found.writes_per_s.median == pytest.approx(8 * found.rate.median)


@pytest.mark.parametrize(("sync_ms", "kept"), [(2.0, True), (12.0, False)])
def test_the_rule_of_etcd_is_on_the_p99_of_the_sync(sync_ms: float, kept: bool) -> None:
    """Kept or not, and neither where the sample has no p99."""
    rounds = rounds_of(ETCD, Device(flush_ns=sync_ms * 1e6, write_ns=20e6))
    found = summarise(measured(ETCD, rounds))
    assert found.rule is not None and (found.rule.limit_ms, found.rule.kept) == (10.0, kept)
    few = replace(rounds[0], commits=2, commit_ns=latencies([1, 2]), sync_ns=latencies([1, 2]))
    too_few = summarise(measured(ETCD, (few,)))
    assert too_few.rule is not None and too_few.rule.kept is None
    assert summarise(measured(HEADLINE, rounds_of(HEADLINE))).rule is None


def test_per_operation_counts_only_rounds_that_know() -> None:
    """Drives are told apart, and a counter that is missing in one round is taken from the others."""

    def disk(name: str, flushes: float | None) -> DiskWork:
        return DiskWork(name=name, flushes=flushes, writes=None, write_kib=8.0, reads=0.0)

    def work(operations: int, *disks: DiskWork) -> Work:
        return Work(operations=operations, user_us=None, system_us=None, kernel_us=None, disks=disks)

    rounds = [
        with_work(work(10, disk("sda", 10.0), disk("sdb", 5.0))),
        with_work(work(30, disk("sda", None), disk("sdb", 15.0))),
        with_work(work(0, disk("sda", 9.0))),
        with_work(None),
    ]
    first, second = disks_per_operation(rounds)
    assert (first.name, first.flushes, first.writes, first.write_kib) == ("sda", 1.0, None, 16 / 40)
    assert (second.name, second.flushes) == ("sdb", 0.5)


def test_a_whole_run_is_summed_up() -> None:
    """Every cell of a standard run has a rate, and fio's rounds without latencies too."""
    result = simulate(Device(), cells=STANDARD)
    assert all(summarise(one).rate is not None for one in result.cells)
    bare = tuple(replace(one, commit_ns=NO_LATENCIES, sync_ns=NO_LATENCIES) for one in result.cells[0].rounds)
    found = summarise(replace(result.cells[0], engine="fio", rounds=bare))
    assert found.rate is not None and found.commit.samples == 0


def test_what_the_rounds_wrote() -> None:
    """Writes of all rounds and engines times their block, without those in memory."""
    memory = make_cell("controls", "", place="memory")
    result = simulate(Device(), cells=(HEADLINE, memory, make_cell("group commit", "", writes_per_sync=8)))
    assert written_bytes(result) == 5 * SAMPLES * 4096 * (1 + 8)
    assert written_bytes(simulate(Device(), rounds=0)) == 0


def test_a_round_has_a_median_however_few_its_samples() -> None:
    """Each round with samples has one median, even with a single sample. A round without samples has none."""
    assert round_medians([latencies([100]), NO_LATENCIES, latencies([50, 60, 70])]) == (100.0, 60.0)
