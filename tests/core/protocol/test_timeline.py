"""A timeline is fine near its end and coarse far back, in bounded memory, and survives being stored."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durability.errors import DurabilityError, FormatError
from durability.formats.case import HeldUp, Receipt
from durability.formats.packing import pack
from durability.protocol.timeline import (
    FINEST_NS,
    LEVELS,
    PER_LEVEL,
    STRETCHES_MAX,
    TIMELINE_VERSION,
    Timeline,
)

S = 1_000_000_000
steps = st.lists(
    st.tuples(
        st.one_of(st.integers(1, 100), st.integers(1, FINEST_NS * 300), st.integers(1, 10**13)),
        st.integers(0, 50),
        st.integers(0, 3),
    ),
    max_size=400,
)


def filled(moves: list[tuple[int, int, int]]) -> tuple[Timeline, list[Receipt]]:
    """A timeline of two writers fed with every receipt of `moves`, and those that changed a frontier."""
    timeline = Timeline(2)
    added: list[Receipt] = []
    for at_ns, one, two in zip(*(accumulate(column) for column in zip(*moves, strict=True)), strict=True):
        timeline.add(at_ns, (one, two))
        if (one, two) != (added[-1].frontiers if added else (0, 0)):
            added.append(Receipt(at_ns=at_ns, frontiers=(one, two)))
    return timeline, added


@pytest.mark.slow
@given(steps)
def test_what_is_kept_was_received_and_ends_with_the_last_change(moves: list[tuple[int, int, int]]) -> None:
    """Nothing is invented or out of order; the last change of a frontier is always there."""
    timeline, added = filled(moves)
    kept = timeline.receipts()
    assert set(kept) <= set(added)
    assert list(kept) == sorted(kept, key=lambda receipt: receipt.at_ns)
    assert kept[-1:] == tuple(added[-1:])


@pytest.mark.slow
@given(steps)
def test_the_spacing_grows_with_the_age(moves: list[tuple[int, int, int]]) -> None:
    """For each dropped receipt, a kept one follows within 1/63 of its age or 0.1 ms, whichever is longer."""
    timeline, added = filled(moves)
    kept = [receipt.at_ns for receipt in timeline.receipts()]
    for receipt in added:
        age_ns = added[-1].at_ns - receipt.at_ns
        nearest = min(at_ns for at_ns in kept if at_ns >= receipt.at_ns)
        assert nearest - receipt.at_ns <= max(FINEST_NS, age_ns / 63)


@pytest.mark.slow
@given(steps)
def test_a_stored_timeline_goes_on_as_if_it_had_not_been(moves: list[tuple[int, int, int]]) -> None:
    """Packed, unpacked and continued, it keeps the same receipts as one that never left memory."""
    timeline, _ = filled(moves[: len(moves) // 2])
    stored = Timeline.unpack(timeline.pack())
    assert stored.receipts() == timeline.receipts()
    at_ns, one, two = (sum(column) for column in zip((0, 0, 0), *moves[: len(moves) // 2], strict=True))
    for step in moves[len(moves) // 2 :]:
        at_ns, one, two = at_ns + step[0], one + step[1], two + step[2]
        timeline.add(at_ns, (one, two))
        stored.add(at_ns, (one, two))
        assert stored.receipts() == timeline.receipts()


@pytest.mark.parametrize("writers", [1, 2, 255, 256])
def test_what_is_packed_in_parts_is_one_array(writers: int) -> None:
    """A timeline that is packed in steps gives the bytes of the one array in the reference. Later additions
    do not change a copy."""
    timeline = Timeline(writers)
    for number in range(1, 600):
        timeline.add(number * 10**9 + number % 7, tuple(number * (3 + writer) for writer in range(writers)))
        if number % 200 == 0:
            timeline.hold_up(number * 10**9 - 5, number * 10**9)
    copy = timeline.copy()
    rows = [(receipt.at_ns, *receipt.frontiers) for receipt in timeline.receipts()]
    deltas = [
        new - old
        for row, before in zip(rows, [(0,) * (1 + writers), *rows], strict=False)
        for new, old in zip(row, before, strict=True)
    ]
    late = [[held.from_ns, held.until_ns, *held.frontiers] for held in timeline.held_up]
    expected = pack([TIMELINE_VERSION, writers, deltas, late])
    assert timeline.pack() == expected
    timeline.add(10**12, (10**6,) * writers)
    assert timeline.pack() != copy.pack() == expected


@pytest.mark.slow
def test_a_long_run_stays_within_its_bounds() -> None:
    """Two million receipts leave less than 2,000, the newest 0.1 ms apart, and back to the first second."""
    timeline = Timeline(1)
    step_ns = 37_000
    count = 2_000_000
    for number in range(1, count + 1):
        timeline.add(number * step_ns, (number,))
    kept = timeline.receipts()
    end_ns = count * step_ns
    assert len(kept) < LEVELS * PER_LEVEL
    assert len(timeline.pack()) < 20_000
    assert kept[0].at_ns == step_ns
    newest = [receipt.at_ns for receipt in kept if receipt.at_ns > end_ns - 12_000_000]
    assert all(later - earlier <= FINEST_NS + step_ns for earlier, later in pairwise(newest))


def test_receipts_that_change_nothing_are_not_kept() -> None:
    """A heartbeat's ack says nothing of when a frontier rose."""
    timeline = Timeline(2)
    timeline.add(1_000_000, (0, 0))
    assert timeline.receipts() == ()
    timeline.add(2_000_000, (3, 0))
    timeline.add(9_000_000, (3, 0))
    assert timeline.receipts() == (Receipt(at_ns=2_000_000, frontiers=(3, 0)),)


@pytest.mark.parametrize(
    ("at_ns", "frontiers", "problem"),
    [
        (99, (5, 5), "goes back in time"),
        (101, (5, 4), "goes back to frontiers"),
        (101, (6,), "has 1 writers, not 2"),
    ],
)
def test_a_receipt_that_cannot_follow_is_refused(
    at_ns: int, frontiers: tuple[int, ...], problem: str
) -> None:
    """Times of another boot, or of another run, cannot get into a timeline."""
    timeline = Timeline(2)
    timeline.add(100, (5, 5))
    with pytest.raises(DurabilityError, match=problem):
        timeline.add(at_ns, frontiers)
    assert timeline.receipts() == (Receipt(at_ns=100, frontiers=(5, 5)),)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        pack(1),
        pack([2, 1, []]),
        pack([1, 0, []]),
        pack([1, 257, []]),
        pack([1, 1, [1]]),
        pack([1, 1, [1, -1]]),
        pack([1, 1, [1, 1.0]]),
        pack([1, 1, [1 << 63, 1]]),
        pack([2, 1, [1, 1], [1, 1]]),
        pack([3, 1, [1, 1], [1, 1, 1]]),
        pack([3, 1, [1, 1], [[1, 1]]]),
        pack([3, 1, [1, 1], [[1, 1, -1]]]),
        pack([3, 1, [1, 1], [[1, 1, 1]] * (STRETCHES_MAX + 1)]),
        pack([1, 1, [1] * 2 * (LEVELS * PER_LEVEL + 3)]),
    ],
)
def test_what_is_no_timeline_is_refused(data: bytes) -> None:
    """A store that was damaged or is of another release is not read as evidence."""
    with pytest.raises(FormatError):
        Timeline.unpack(data)


def test_stretches_that_were_held_up_are_kept_apart() -> None:
    """Each has its own beginning and end; one that begins no later than others takes them in."""
    timeline = Timeline(1)
    timeline.add(2 * S, (1,))
    timeline.hold_up(S, 2 * S)
    timeline.add(4 * S, (2,))
    timeline.hold_up(3 * S, 4 * S)
    first = HeldUp(from_ns=S, until_ns=2 * S, frontiers=(1,))
    assert timeline.held_up == (first, HeldUp(from_ns=3 * S, until_ns=4 * S, frontiers=(2,)))
    assert Timeline.unpack(timeline.pack()).held_up == timeline.held_up
    timeline.add(5 * S, (3,))
    timeline.hold_up(3 * S, 5 * S)
    assert timeline.held_up == (first, HeldUp(from_ns=3 * S, until_ns=5 * S, frontiers=(3,)))
    timeline.hold_up(0, 5 * S)
    assert list(timeline.held_up) == [HeldUp(from_ns=0, until_ns=5 * S, frontiers=(3,))]


def test_the_oldest_stretches_become_one() -> None:
    """Memory is bounded, and what is said of the oldest covers all of them."""
    timeline = Timeline(1)
    for number in range(STRETCHES_MAX + 3):
        timeline.add(2 * number + 1, (number + 1,))
        timeline.hold_up(2 * number, 2 * number + 1)
    oldest, *others = timeline.held_up
    assert oldest == HeldUp(from_ns=0, until_ns=7, frontiers=(4,))
    assert [held.from_ns for held in others] == [2 * number for number in range(4, STRETCHES_MAX + 3)]


def test_timelines_of_the_release_before_are_read() -> None:
    """They know of nothing that was held up."""
    timeline = Timeline.unpack(pack((1, 1, [5, 1, 2, 3])))
    assert [(receipt.at_ns, receipt.frontiers) for receipt in timeline.receipts()] == [(5, (1,)), (7, (4,))]
    assert timeline.held_up == ()
    held = Timeline.unpack(pack((2, 1, [5, 1, 2, 3], [4, 7, 4]))).held_up
    assert held == (HeldUp(from_ns=4, until_ns=7, frontiers=(4,)),)
