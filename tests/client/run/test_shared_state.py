"""The shared state: words that another process sees, failures in order, and latencies of a ring."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

from durability_client.run.shared_state import (
    RING,
    TEXT_BYTES,
    Order,
    SharedState,
    WriterFailure,
    WriterState,
)
from durability_client.system.processes import CONTEXT


def failure(writer: int, at_ns: int, text: str = "Input/output error", errno: int = 5) -> WriterFailure:
    return WriterFailure(at_ns=at_ns, writer=writer, errno=errno, seq=17, text=text)


def publish_in_child(shared: SharedState) -> None:
    shared.words[shared.frontier_index(1)] = (1 << 63) - 1
    shared.set_state(1, WriterState.DONE)
    shared.fail(failure(2, at_ns=3))


def test_a_child_process_writes_into_the_same_memory() -> None:
    """The sender reads the frontiers, states and failures that a writer process publishes."""
    shared = SharedState(3)
    child = CONTEXT.Process(target=publish_in_child, args=(shared,))
    child.start()
    child.join()
    assert shared.frontiers() == [0, (1 << 63) - 1, 0]
    assert shared.state(1) == WriterState.DONE
    assert shared.first_failure() == failure(2, at_ns=3)
    assert shared.halted


def test_the_shared_state_is_pickled_for_children_only() -> None:
    """A shared that left the process would be a copy, so pickling it anywhere else is an error."""
    with pytest.raises((pickle.PicklingError, RuntimeError)):
        pickle.dumps(SharedState(1))


def test_words_of_different_writers_do_not_overlap() -> None:
    """With as many writers as a plan allows, each word and each ring is somewhere of its own."""
    shared = SharedState(257)
    for writer in range(257):
        shared.words[shared.frontier_index(writer)] = 10_000 + writer
        shared.words[shared.ring_index(writer) + RING - 1] = 30_000 + writer
        shared.set_state(writer, WriterState.RUNNING)
    shared.grant(tuple(range(20_000, 20_256)))
    shared.fail(failure(256, at_ns=1))
    assert shared.order == Order.WAIT
    assert shared.frontiers() == list(range(10_000, 10_257))
    assert shared.grants() == [*range(20_000, 20_256), 0]
    assert [shared.latencies(w, RING - 1, RING).tolist() for w in (0, 256)] == [[30_000], [30_256]]
    assert [shared.state(w) for w in (0, 255, 256)] == [
        WriterState.RUNNING,
        WriterState.RUNNING,
        WriterState.FAILED,
    ]


def test_a_grant_never_sinks() -> None:
    """A late, lower grant does not take back what a writer may have used."""
    shared = SharedState(2)
    shared.grant((5, 7))
    shared.grant((6, 3))
    assert shared.grants() == [6, 7]


def test_the_earliest_failure_is_the_one_that_counts() -> None:
    """Among the failures of several writers, the earliest in time is reported."""
    shared = SharedState(3)
    assert shared.first_failure() is None
    shared.fail(failure(2, at_ns=20))
    shared.fail(failure(0, at_ns=10, errno=0, text="a defect"))
    assert shared.first_failure() == failure(0, at_ns=10, errno=0, text="a defect")
    assert shared.state(0) == WriterState.CRASHED


def test_a_killed_writer_is_told_from_one_that_crashed() -> None:
    """A failure records whether the writer's process was killed."""
    shared = SharedState(1)
    killed = replace(failure(0, at_ns=10, errno=0, text="killed"), killed=True)
    shared.fail(killed)
    assert shared.first_failure() == killed
    assert shared.state(0) == WriterState.KILLED


@pytest.mark.parametrize("text", ["", "é" * TEXT_BYTES, "\udcff"])
def test_any_text_of_an_error_fits(text: str) -> None:
    """A text is cut to its place, in whole characters or with a mark, and nothing around it changes."""
    shared = SharedState(2)
    shared.fail(failure(0, at_ns=1, text=text))
    found = shared.first_failure()
    assert found is not None
    assert len(found.text.encode()) <= TEXT_BYTES + 2
    assert shared.latencies(0, 0, 8).tolist() == [0] * 8


def test_latencies_that_the_ring_lost_are_left_out() -> None:
    """Asking for more commits than the ring holds gives the newest ones."""
    shared = SharedState(1)
    at = shared.ring_index(0)
    for commit in range(RING + 5):
        shared.words[at + commit % RING] = commit
    assert shared.latencies(0, 0, RING + 5).tolist() == list(range(5, RING + 5))
    assert shared.latencies(0, RING + 2, RING + 5).tolist() == [RING + 2, RING + 3, RING + 4]
    assert shared.latencies(0, 3, 3).dtype == np.uint64
