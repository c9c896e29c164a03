"""The shared state: memory that the writers and the sender share, without a lock or a system call.

A writer should add no cost to its commits. It therefore stores one word after a sync has returned, and reads
two words to decide whether it may continue. The sender runs in another process and polls. No word is ever
updated by read-modify-write:

    word                  written by         meaning
    order                 the sender         order to all writers (`Order`)
    halt                  any process, once  1: a failure occurred; later syncs are not acknowledged
    frontier, per writer  the writer         newest seq whose sync returned; control arm: writes completed
    grant, per writer     the sender         frontier that the server made durable
    state, per writer     the writer         `WriterState`
    failure, per writer   the writer         time, errno, seq and text of the error that ended the writer
    ring, per writer      the writer         the last `RING` commit latencies in ns; commit n at n modulo RING

Every machine that CPython supports stores and loads aligned 64-bit words atomically. No two words need to be
consistent with each other. The memory is anonymous, so it cannot be left behind. It can be pickled only to a
child process.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np

from durability.formats.mixing import Words
from durability_client.system.processes import CONTEXT

RING = 16384
TEXT_BYTES = 240

_WORD = 8
_FAILURE_WORDS = 4 + TEXT_BYTES // _WORD  # at_ns, errno, seq, length of the text, text


class Order(IntEnum):
    """Order to the writers. `STOP`: finish the group and acknowledge it."""

    WAIT = 0
    GO = 1
    STOP = 2


class WriterState(IntEnum):
    """State of a writer."""

    STARTING = 0
    READY = 1  # holds its descriptor and waits for the order `GO`
    RUNNING = 2
    OUT_OF_CREDIT = 3
    DONE = 4
    FAILED = 5  # the target returned an error
    CRASHED = 6  # this tool has a defect
    KILLED = 7  # another process killed the writer's process


FAILURES: Final = (WriterState.FAILED, WriterState.CRASHED, WriterState.KILLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterFailure:
    """Why a writer ended."""

    at_ns: int  # CLOCK_MONOTONIC
    writer: int
    errno: int  # 0: a defect of this tool, unless the writer was `killed`
    seq: int
    text: str
    killed: bool = False

    @property
    def state(self) -> WriterState:
        """State of the writer after this failure."""
        if self.killed:
            return WriterState.KILLED
        return WriterState.FAILED if self.errno else WriterState.CRASHED


class SharedState:
    """Words for `writers` writers; the control arm counts as a writer.

    `words` is the raw memory as 64-bit words, for the writers' loops. All other code uses the methods.
    """

    ORDER, HALT = 0, 1  # indices into `words`

    def __init__(self, writers: int) -> None:
        self.writers = writers
        # Order and halt have a cache line of their own: all writers read it constantly; it is rarely written.
        self._frontier_at = 8
        self._grant_at = self._frontier_at + -(-writers // 8) * 8
        self._state_at = self._grant_at + -(-writers // 8) * 8
        self._failure_at = self._state_at + -(-writers // 8) * 8
        self._ring_at = self._failure_at + writers * _FAILURE_WORDS
        self._memory = CONTEXT.RawArray("Q", self._ring_at + writers * RING)
        self._map()

    def _map(self) -> None:
        self.words = memoryview(self._memory).cast("B").cast("Q")
        self._frontiers = self.words[self._frontier_at : self._frontier_at + self.writers]
        self._array: Words = np.frombuffer(self._memory, dtype=np.uint64)

    def __getstate__(self) -> dict[str, object]:
        hidden = {"words", "_frontiers", "_array"}
        return {name: value for name, value in self.__dict__.items() if name not in hidden}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._map()

    def frontier_index(self, writer: int) -> int:
        """Index into `words` of the writer's frontier."""
        return self._frontier_at + writer

    def grant_index(self, writer: int) -> int:
        """Index into `words` of the writer's grant."""
        return self._grant_at + writer

    def ring_index(self, writer: int) -> int:
        """Index into `words` of the first of the writer's `RING` latencies."""
        return self._ring_at + writer * RING

    @property
    def order(self) -> Order:
        """The last order to all writers."""
        return Order(self.words[self.ORDER])

    def give_order(self, order: Order) -> None:
        """Tell all writers what to do."""
        self.words[self.ORDER] = order

    @property
    def halted(self) -> bool:
        """Whether `halt` was called. If so, syncs that return from now on must not be acknowledged."""
        return bool(self.words[self.HALT])

    def halt(self) -> None:
        """Stop all writers. Syncs that return from now on are not acknowledged."""
        self.words[self.HALT] = 1

    def frontiers(self) -> list[int]:
        """The frontier of each writer, the control arm last."""
        return self._frontiers.tolist()

    def grant(self, grants: tuple[int, ...]) -> None:
        """Allow each writer to issue up to its grant plus the plan's credit. A grant never decreases."""
        for index, grant in enumerate(grants, self._grant_at):
            self.words[index] = max(grant, self.words[index])

    def grants(self) -> list[int]:
        """The grant of each writer; the control arm has none."""
        return self.words[self._grant_at : self._grant_at + self.writers].tolist()

    def state(self, writer: int) -> WriterState:
        """The state that the writer stored last."""
        return WriterState(self.words[self._state_at + writer])

    def set_state(self, writer: int, state: WriterState) -> None:
        """Store the writer's state. Only the writer calls this, and `fail` for a writer that ended."""
        self.words[self._state_at + writer] = state

    def fail(self, failure: WriterFailure) -> None:
        """Record why a writer ended, and stop all other writers."""
        self.halt()
        at = self._failure_at + failure.writer * _FAILURE_WORDS
        text = failure.text.encode("utf-8", "replace")[:TEXT_BYTES]
        self.words[at + 4 : at + _FAILURE_WORDS] = memoryview(text.ljust(TEXT_BYTES, b"\0")).cast("Q")
        for number, word in enumerate((failure.at_ns, failure.errno, failure.seq, len(text))):
            self.words[at + number] = word
        self.set_state(failure.writer, failure.state)

    def first_failure(self) -> WriterFailure | None:
        """The earliest failure of any writer."""
        failures = []
        for writer in range(self.writers):
            if (state := self.state(writer)) in FAILURES:
                at = self._failure_at + writer * _FAILURE_WORDS
                at_ns, errno, seq, length = self.words[at : at + 4].tolist()
                text = self.words[at + 4 : at + _FAILURE_WORDS].tobytes()[:length].decode("utf-8", "replace")
                killed = state == WriterState.KILLED
                failures.append(
                    WriterFailure(at_ns=at_ns, writer=writer, errno=errno, seq=seq, text=text, killed=killed)
                )
        return min(failures, key=lambda failure: failure.at_ns, default=None)

    def latencies(self, writer: int, first: int, end: int) -> Words:
        """Latencies in ns of the writer's commits `first` to `end` - 1, without those that the ring has
        dropped."""
        index = np.arange(max(first, end - RING), end, dtype=np.intp) % RING
        return self._array[self.ring_index(writer) + index]
