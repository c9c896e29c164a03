"""Clock readings into histograms and bins: nothing lost, nothing invented."""

from __future__ import annotations

import random

from durability_client.bench.measure.clock_readings import COLUMNS, ROWS, Recorder

START_NS = 1_000_000_000_000
BIN_NS = 1_000_000


def _record(recorder: Recorder, rows: list[tuple[int, int, int]]) -> None:
    for row in rows:
        recorder.room_for(1)
        recorder.words[recorder.at : recorder.at + COLUMNS] = memoryview(
            b"".join(word.to_bytes(8, "little") for word in row)
        ).cast("q")
        recorder.at += COLUMNS


def test_every_operation_is_counted_once() -> None:
    """Commits, syncs and reads of many fills of the buffer are all there, in the bin in which each ended."""
    seed = random.randrange(1 << 32)
    choose = random.Random(seed)
    recorder = Recorder(start_ns=START_NS, bin_ns=BIN_NS, syncs=True)
    rows, now_ns, bins, commits = [], START_NS, [0] * 10_000, 0
    for _ in range(2 * ROWS + 17):
        began_ns = now_ns
        now_ns += choose.randrange(1, 4000)
        is_read = choose.random() < 0.3
        rows.append((began_ns, 0 if is_read else (began_ns + now_ns) // 2, now_ns))
        bins[(now_ns - START_NS) // BIN_NS] += 1
        commits += not is_read
    _record(recorder, rows)
    recorded = recorder.finish()
    assert len(recorded.commits) == len(recorded.syncs) == commits, seed
    assert len(recorded.reads) == len(rows) - commits, seed
    assert recorded.bins.tolist() == bins[: len(recorded.bins)], seed
    assert recorded.bins.sum() == len(rows), seed
    assert recorded.ended_ns == now_ns, seed


def test_latencies_are_those_of_their_row() -> None:
    """A commit lasts from the first reading to the last, its sync from the second; a read has no sync."""
    recorder = Recorder(start_ns=0, bin_ns=BIN_NS, syncs=True)
    _record(recorder, [(10, 17, 30), (100, 0, 105)])
    recorded = recorder.finish()
    assert (recorded.commits.max_ns, recorded.syncs.max_ns, recorded.reads.max_ns) == (20, 13, 5)


def test_no_sync_is_made_up() -> None:
    """No sync is recorded for writes that sync themselves."""
    recorder = Recorder(start_ns=0, bin_ns=BIN_NS, syncs=False)
    _record(recorder, [(10, 30, 30)])
    assert len(recorder.finish().syncs) == 0


def test_nothing_is_nothing() -> None:
    """A job that was never started has done nothing, and ended when it began."""
    recorded = Recorder(start_ns=START_NS, bin_ns=BIN_NS, syncs=True).finish()
    assert (len(recorded.commits), len(recorded.bins), recorded.ended_ns) == (0, 0, START_NS)
