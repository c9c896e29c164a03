"""One job of each workload: which calls it makes, on what, and what it says of them."""

from __future__ import annotations

import errno
import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from durability.bench.cells import KIB, MIB, Cell
from durability.bench.intervals import percentile
from durability_client.bench.measure import timed_loops
from durability_client.bench.measure.job import Job, JobTask, Stretch
from tests.client.bench.quick_cells import tiny

SPAN_BYTES = 2 * MIB


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of `SPAN_BYTES` zeros."""
    path = tmp_path / "file"
    path.write_bytes(bytes(SPAN_BYTES))
    return path


def _task(cell: Cell, path: Path, *, span_bytes: int = SPAN_BYTES, offset_bytes: int = 0) -> JobTask:
    return JobTask(cell=cell, path=str(path), offset_bytes=offset_bytes, span_bytes=span_bytes, seed=42)


def _run(task: JobTask, *, seconds: float = 0.02) -> tuple[int, Stretch]:
    """When one stretch of a job of its own began, and the stretch."""
    job = Job(task, lambda: None)
    try:
        start_ns = time.monotonic_ns() + 1_000_000
        return start_ns, job.run(start_ns, start_ns + int(seconds * 1e9))
    finally:
        job.close()


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on by 0.1 ms with each look at it: how much is done in a round depends on no load."""
    monkeypatch.setattr(time, "monotonic_ns", itertools.count(step=100_000).__next__)


class Calls:
    """What a job calls: ("write", offset), ("read", offset) and ("sync",). Writes and reads are carried out;
    syncs are only noted, so that no test waits for a drive."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[object, ...]] = []
        for name in ("fdatasync", "fsync"):
            monkeypatch.setattr(os, name, self._noting(lambda _: None, lambda *_: ("sync",)))
        monkeypatch.setattr(os, "pwrite", self._noting(os.pwrite, lambda _, __, offset: ("write", offset)))
        monkeypatch.setattr(os, "preadv", self._noting(os.preadv, lambda _, __, offset: ("read", offset)))

    def _noting(
        self, call: Callable[..., object], note: Callable[..., tuple[object, ...]]
    ) -> Callable[..., object]:
        def noting(*arguments: object) -> object:
            self.made.append(note(*arguments))
            return call(*arguments)

        return noting

    def names(self) -> list[object]:
        return [call[0] for call in self.made]


@pytest.mark.parametrize("sync", ["fdatasync", "fsync"])
def test_each_write_is_followed_by_its_sync(file: Path, monkeypatch: pytest.MonkeyPatch, sync: str) -> None:
    """The headline is a write, a sync, a write, a sync; what is recorded is what was called."""
    calls = Calls(monkeypatch)
    _, stretch = _run(_task(tiny(sync=sync), file))
    commits = len(stretch.recorded.commits)
    assert calls.names() == ["write", "sync"] * commits
    assert len(stretch.recorded.syncs) == commits > 0


@pytest.mark.slow
@pytest.mark.parametrize("writes", [2, 8, 700])
def test_a_group_is_synced_once(file: Path, monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    """A group commit is so many writes and one sync, also where it is longer than the pool of blocks."""
    calls = Calls(monkeypatch)
    cell = tiny(writes_per_sync=writes, block_bytes=2 * KIB)
    _, stretch = _run(_task(cell, file))
    assert calls.names() == [*["write"] * writes, "sync"] * len(stretch.recorded.commits)
    blocks = [file.read_bytes()[at : at + 512] for at in range(0, SPAN_BYTES, 512)]
    written = [block for block in blocks if any(block)]
    assert len(set(written)) == len(written)


@pytest.mark.usefixtures("ticking")
@pytest.mark.parametrize("pattern", ["random", "sequential"])
def test_a_pass_visits_every_block_once(file: Path, monkeypatch: pytest.MonkeyPatch, pattern: str) -> None:
    """An overwriting job goes over its whole span, and nowhere else, before it comes to a block again."""
    calls = Calls(monkeypatch)
    span, offset, block = MIB, 64 * KIB, 32 * KIB
    cell = tiny(pattern=pattern, block_bytes=block, sync="none")
    _run(_task(cell, file, span_bytes=span, offset_bytes=offset), seconds=0.3)
    offsets = [call[1] for call in calls.made]
    whole = list(range(offset, offset + span, block))
    for at in range(0, len(offsets) - len(whole) + 1, len(whole)):
        part = offsets[at : at + len(whole)]
        assert sorted(part) == whole  # type: ignore[type-var]  # offsets are numbers
        assert (part == whole) is (pattern == "sequential")
    assert len(offsets) > len(whole)


@pytest.mark.usefixtures("ticking")
def test_an_append_grows_the_file_and_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log is written block after block from its start; at the end of its span it is emptied."""
    calls = Calls(monkeypatch)
    path = tmp_path / "log"
    path.touch()
    cell = tiny(workload="append", pattern="sequential", block_bytes=2300, file_state="fresh")
    _, stretch = _run(_task(cell, path, span_bytes=23_000), seconds=0.05)
    offsets = [call[1] for call in calls.made if call[0] == "write"]
    assert offsets == [number % 10 * 2300 for number in range(len(offsets))]
    assert len(offsets) == len(stretch.recorded.commits) > 10
    assert path.stat().st_size == (len(offsets) - 1) % 10 * 2300 + 2300


def test_a_created_file_is_synced_with_its_directory(tmp_path: Path) -> None:
    """Each operation of `create` leaves a whole file with a name of its own."""
    cell = tiny(workload="create", pattern="sequential", sync="fsync", file_state="fresh")
    _, stretch = _run(_task(cell, tmp_path))
    files = sorted(tmp_path.iterdir())
    assert len(files) == len(stretch.recorded.commits) == len(stretch.recorded.syncs) > 0
    assert {path.stat().st_size for path in files} == {cell.block_bytes}
    assert len({path.read_bytes() for path in files}) == len(files)


@pytest.mark.usefixtures("ticking")
@pytest.mark.parametrize("sync", ["fsync", "none"])
def test_a_mix_reads_its_share(file: Path, monkeypatch: pytest.MonkeyPatch, sync: str) -> None:
    """A mixed load reads the requested share of operations; syncs follow only writes, and only if the cell
    syncs."""
    calls = Calls(monkeypatch)
    cell = tiny(workload="mix", read_percent=60, sync=sync)
    _, stretch = _run(_task(cell, file), seconds=0.5)
    reads, writes = len(stretch.recorded.reads), len(stretch.recorded.commits)
    names = calls.names()
    assert (names.count("read"), names.count("write")) == (reads, writes)
    assert names.count("sync") == (writes if sync == "fsync" else 0)
    followers = {after for before, after in itertools.pairwise(names) if before == "write"}
    assert followers == {"sync"} if sync == "fsync" else followers <= {"read", "write"}
    assert reads + writes > 1000
    assert 0.5 < reads / (reads + writes) < 0.7


def test_an_empty_flush_writes_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control F0 is syncs and nothing else."""
    calls = Calls(monkeypatch)
    _, stretch = _run(_task(tiny(workload="flush", pattern="sequential"), file))
    assert set(calls.names()) == {"sync"}
    assert len(stretch.recorded.commits) == len(stretch.recorded.syncs) == len(calls.made)


@pytest.mark.parametrize(("sync", "flag"), [("dsync", os.O_DSYNC), ("osync", os.O_SYNC)])
def test_writes_that_sync_themselves_are_opened_so(
    file: Path, monkeypatch: pytest.MonkeyPatch, sync: str, flag: int
) -> None:
    """O_DSYNC and O_SYNC are flags of the descriptor, and no sync is called or recorded."""
    opened, plain_open = [], os.open

    def noting(path: str, flags: int, *rest: int) -> int:
        opened.append(flags)
        return plain_open(path, flags, *rest)

    monkeypatch.setattr(os, "open", noting)
    calls = Calls(monkeypatch)
    _, stretch = _run(_task(tiny(sync=sync), file))
    assert opened[0] & flag == flag
    assert set(calls.names()) == {"write"}
    assert len(stretch.recorded.syncs) == 0 < len(stretch.recorded.commits)


def test_a_due_operation_waits_for_nothing_but_its_time(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an open loop operations begin when they are due, and all that are due are done."""
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)
    pace_us = 2000
    cell = tiny(pace_us=pace_us)
    start_ns, stretch = _run(_task(cell, file), seconds=0.1)
    recorded = stretch.recorded
    _assert_all_due(stretch, start_ns, due=50)
    assert recorded.ended_ns >= start_ns + (len(recorded.commits) - 1) * pace_us * 1000


def _assert_all_due(stretch: Stretch, start_ns: int, *, due: int) -> None:
    """All `due` operations of a round of 0.1 s were made, unless something held this test up for as long."""
    made = len(stretch.recorded.commits)
    assert made == due or (made < due and stretch.recorded.ended_ns >= start_ns + 200_000_000)


def test_a_stall_counts_for_those_behind_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When one sync takes 50 ms, the operations that were due meanwhile are late from when they were due."""
    calls: list[int] = []

    def stalling(fd: int) -> None:
        calls.append(fd)
        if len(calls) == 3:
            time.sleep(0.05)

    monkeypatch.setattr(os, "fdatasync", stalling)
    start_ns, stretch = _run(_task(tiny(pace_us=5000), file), seconds=0.1)
    latencies = stretch.recorded.commits.histogram()
    _assert_all_due(stretch, start_ns, due=20)
    late = sum(count for top, count in zip(*_steps(latencies.steps()), strict=True) if top >= 9_000_000)
    # 50, 45, 40 ... ms late; 10 and less may be any other's. A round that was held up may have fewer.
    assert late >= min(8, len(latencies) - 2)


def _steps(steps: tuple[tuple[int, int], ...]) -> tuple[list[int], list[int]]:
    """The values of a distribution, and how many there are of each."""
    values, below = zip(*steps, strict=True)
    return list(values), np.diff([0, *below]).tolist()


@pytest.mark.slow
def test_a_stall_once_a_second_shows_in_the_tail(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stall of 100 ms once a second shows in p99.9 of a paced round: a tenth of all commits is due
    meanwhile. The round has three times the needed samples, in case the machine is delayed."""
    stalled_at = [time.monotonic()]

    def stalling(fd: int) -> None:
        if time.monotonic() >= stalled_at[0] + 0.9:
            time.sleep(0.1)
            stalled_at[0] = time.monotonic()

    monkeypatch.setattr(os, "fdatasync", stalling)
    _, stretch = _run(_task(tiny(pace_us=200), file), seconds=6)
    latencies = stretch.recorded.commits.histogram()
    tail_ns = percentile(latencies, 99.9)
    assert tail_ns is not None, len(latencies)
    assert tail_ns >= 80_000_000


def test_a_hopeless_pace_ends(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the target cannot keep up at all, the round ends after twice its time."""
    monkeypatch.setattr(os, "fdatasync", lambda fd: time.sleep(0.02))
    start_ns, stretch = _run(_task(tiny(pace_us=100), file), seconds=0.05)
    assert start_ns + 100_000_000 <= stretch.recorded.ended_ns
    assert len(stretch.recorded.commits) < 50


def test_a_round_has_an_operation(file: Path) -> None:
    """However short a round is, one operation is made."""
    _, stretch = _run(_task(tiny(), file), seconds=0.0)
    assert len(stretch.recorded.commits) == 1


@pytest.mark.parametrize(
    "step",
    [timed_loops.commit, timed_loops.write_only, timed_loops.read_or_commit],
    ids=lambda step: step.__name__,
)
def test_a_short_write_is_an_error(file: Path, step: timed_loops.Step) -> None:
    """A call that does less than it was asked to ends the loop, and names the place."""
    fd = os.open(file, os.O_RDWR)
    handles = timed_loops.Handles(
        fd=fd, write=lambda *_: 7, sync=os.fdatasync, block_bytes=512, buffer=memoryview(bytearray(512))
    )
    words = memoryview(bytearray(24)).cast("q")
    try:
        with pytest.raises(OSError, match="short write at offset 1024: 7 of 512 bytes") as caught:
            step(handles, [(memoryview(bytes(512)), 1024)], words, 0, 0)
    finally:
        os.close(fd)
    assert caught.value.errno == errno.ENOSPC
    assert not any(words)


def test_a_short_read_is_an_error(file: Path) -> None:
    """A short read is an I/O error, so a truncated file is not measured as if it were complete."""
    os.truncate(file, 100)
    with pytest.raises(OSError, match="short read") as caught:
        _run(_task(tiny(workload="mix", read_percent=99, sync="none"), file), seconds=1.0)
    assert caught.value.errno == errno.EIO


def test_an_error_of_a_sync_ends_the_job(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is retried."""
    calls: list[int] = []

    def failing(fd: int) -> None:
        calls.append(fd)
        raise OSError(errno.EIO, "gone")

    monkeypatch.setattr(os, "fdatasync", failing)
    with pytest.raises(OSError, match="gone"):
        _run(_task(tiny(), file))
    assert len(calls) == 1
