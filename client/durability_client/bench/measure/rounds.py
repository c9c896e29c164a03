"""Combines the results of all jobs into one round: adds counts and bins, and merges histograms.

The round lasts until the last operation of the last job has ended. So no operation is left out, and the
round's duration includes all of them. This module judges nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from durability.bench.cells import Cell
from durability.bench.measurement import Latencies, Round, Work
from durability_client.bench.measure.cost_meter import Spent, disks_beyond, kernel_us_beyond
from durability_client.bench.measure.job import Stretch, bin_ns_of


def round_of(
    cell: Cell, stretches: Sequence[Stretch], *, start_ns: int, started_s: float, idle: Spent, busy: Spent
) -> Round:
    """The round of `cell` whose jobs started at `start_ns`. `busy`: the machine's activity during the round;
    `idle`: its activity when idle."""
    took_s = (max(one.recorded.ended_ns for one in stretches) - start_ns) / 1e9
    # In an open loop, the last operation may end before the next would have been due.
    seconds = max(took_s, cell.seconds if cell.pace_us else 1e-9)
    commits, reads = (
        _merged(one.recorded.commits for one in stretches),
        _merged(one.recorded.reads for one in stretches),
    )
    return Round(
        started_s=started_s,
        seconds=seconds,
        commits=len(commits),
        writes=0 if cell.workload == "flush" else len(commits) * max(1, cell.writes_per_sync),
        reads=len(reads),
        commit_ns=commits,
        sync_ns=_merged(one.recorded.syncs for one in stretches),
        read_ns=reads,
        bin_s=bin_ns_of(cell) / 1e9,
        bins=_bins(stretches, whole=int(seconds * 1e9) // bin_ns_of(cell)),
        work=work_of(
            len(commits) + len(reads),
            user_us=sum(one.user_us for one in stretches),
            system_us=sum(one.system_us for one in stretches),
            idle=idle,
            busy=busy,
        ),
    )


def work_of(operations: int, *, user_us: float, system_us: float, idle: Spent, busy: Spent) -> Work:
    """The machine's work for `operations` operations, whose jobs used `user_us` and `system_us`."""
    return Work(
        operations=operations,
        user_us=user_us,
        system_us=system_us,
        kernel_us=kernel_us_beyond(idle, busy),
        disks=disks_beyond(idle, busy, operations),
    )


def _merged(parts: Iterable[Latencies]) -> Latencies:
    whole, *others = parts
    if not others:
        return whole
    histogram = whole.histogram()
    for part in others:
        histogram.merge(part.histogram())
    return Latencies.of(histogram)


def _bins(stretches: Sequence[Stretch], *, whole: int) -> tuple[int, ...]:
    """Operations of all jobs per bin, for the `whole` bins that were complete when the last job ended."""
    total = np.zeros(whole, dtype=np.int64)
    for one in stretches:
        bins = one.recorded.bins[:whole]
        total[: len(bins)] += bins
    return tuple(total.tolist())
