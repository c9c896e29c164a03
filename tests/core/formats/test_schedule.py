"""The schedule visits every slot once a pass, and its two directions agree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from durability.formats.mixing import U64
from durability.formats.schedule import Schedule

seeds = st.integers(1, 2**64 - 1)
slot_counts = st.integers(1, 700)


@pytest.mark.slow
@given(seed=seeds, slots=slot_counts, shuffled=st.booleans(), first_pass=st.integers(0, 2**40))
def test_a_pass_visits_every_slot_exactly_once(
    seed: int, slots: int, shuffled: bool, first_pass: int
) -> None:
    """For any number of slots S, the S seqs of a pass go to S different slots."""
    schedule = Schedule(seed=seed, writer=3, slots=slots, shuffled=shuffled)
    seqs = np.arange(1, slots + 1, dtype=U64) + U64(first_pass * slots)
    assert sorted(schedule.slot_of(seqs).tolist()) == list(range(slots))


@pytest.mark.slow
@given(seed=seeds, slots=slot_counts, shuffled=st.booleans(), start=st.integers(1, 2**50))
def test_the_inverse_finds_the_seq_of_a_slot(seed: int, slots: int, shuffled: bool, start: int) -> None:
    """`seq_in_pass` undoes `slot_of`, also across the border of two passes."""
    schedule = Schedule(seed=seed, writer=0, slots=slots, shuffled=shuffled)
    seqs = np.arange(start, start + 100, dtype=U64)
    passes = (seqs - U64(1)) // U64(slots)
    assert (schedule.seq_in_pass(schedule.slot_of(seqs), passes) == seqs).all()


@pytest.mark.slow
@given(seed=seeds, slots=st.integers(1, 200), shuffled=st.booleans(), frontier=st.integers(0, 1000))
def test_newest_at_agrees_with_replaying_every_write(
    seed: int, slots: int, shuffled: bool, frontier: int
) -> None:
    """The newest version of a slot at a frontier is what replaying all writes leaves there."""
    schedule = Schedule(seed=seed, writer=1, slots=slots, shuffled=shuffled)
    replayed = [0] * slots
    seqs = np.arange(1, frontier + 1, dtype=U64)
    for seq, slot in zip(seqs.tolist(), schedule.slot_of(seqs).tolist(), strict=True):
        replayed[slot] = seq
    assert schedule.newest_at(np.arange(slots, dtype=U64), frontier).tolist() == replayed


def test_passes_and_writers_have_orders_of_their_own() -> None:
    """Two passes of one writer, and one pass of two writers, differ in order."""
    seqs = np.arange(1, 513, dtype=U64)
    first = Schedule(seed=5, writer=0, slots=512, shuffled=True)
    other = Schedule(seed=5, writer=1, slots=512, shuffled=True)
    orders = [
        first.slot_of(seqs).tolist(),
        first.slot_of(seqs + U64(512)).tolist(),
        other.slot_of(seqs).tolist(),
    ]
    assert len({tuple(order) for order in orders}) == 3


def test_a_shuffled_pass_is_spread_over_the_whole_range() -> None:
    """Neighbouring operations are far apart, and no eighth of the slots is visited much more than another."""
    schedule = Schedule(seed=11, writer=0, slots=1 << 16, shuffled=True)
    slots = schedule.slot_of(np.arange(1, 4097, dtype=U64)).astype(np.int64)
    assert np.median(np.abs(np.diff(slots))) > (1 << 16) / 8
    counts = np.bincount(slots >> 13, minlength=8)
    assert counts.min() > 400, counts


@pytest.mark.parametrize("slots", [1, 2, 3, 1 << 20, (1 << 40) + 7])
def test_memory_does_not_grow_with_the_slots(slots: int) -> None:
    """A schedule of a trillion slots answers as directly as one of a single slot."""
    schedule = Schedule(seed=1, writer=0, slots=slots, shuffled=True)
    seqs = np.asarray([1, slots, slots + 1], dtype=U64)
    found = schedule.slot_of(seqs)
    assert (found < U64(slots)).all()
    assert (schedule.seq_in_pass(found, np.asarray([0, 0, 1], dtype=U64)) == seqs).all()
