"""The timeline: when the server received which frontiers, in bounded memory for a run of any length.

The loss window and the records at risk (rules 13 and 14) need a fine resolution in the last milliseconds
before the cut, and a coarse one for yesterday. So there are 28 levels. Level k divides time into buckets of
0.1 ms * 2^k. It keeps the last receipt of a bucket, for its newest 128 buckets that have a receipt and are
over. Together the levels reach back 20 days, with a spacing of about 1/64 of the age. The last receipt of a
bucket is kept so that frontiers from just before a pause do not look as new as those after it. The very first
and last receipts are always kept. A receipt that ends no bucket of level k ends none above it, so the work
per receipt is constant on average.

Times are nanoseconds of CLOCK_BOOTTIME in one boot. After a reboot the server begins a new timeline.

Frames can come late: after an outage of the network or a pause of the server, old frames are delivered. So
the timeline also stores the newest stretches of receipts whose frontiers may be older than their receipt
times.

A packed timeline is the msgpack array [version, writers, deltas, held up]. Deltas: per receipt, the time and
one frontier per writer, each as the difference from the receipt before. Held up: per stretch of late frames,
an array of its beginning, its end and its frontiers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from operator import gt, sub
from typing import Any

from durability import limits
from durability.errors import DurabilityError, FormatError
from durability.formats.case import HeldUp, Receipt
from durability.formats.packing import list_head, pack, pack_members, unpack

TIMELINE_VERSION = 3
LEVELS = 28
PER_LEVEL = 128
FINEST_NS = 100_000
RECEIPTS_MAX = LEVELS * PER_LEVEL + 2
STRETCHES_MAX = 32
_NUMBERS_AT_ONCE = 512  # numbers packed in one step


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineCopy:
    """An immutable copy of a timeline, so that another thread may pack it."""

    writers: int
    receipts: tuple[Receipt, ...]
    held_up: tuple[HeldUp, ...]

    @property
    def numbers(self) -> int:
        """How many numbers the receipts have. Packing takes about 50 ns per number."""
        return len(self.receipts) * (1 + self.writers)

    def pack(self) -> bytes:
        """The copy as bytes for `Timeline.unpack`. No single step blocks other threads for more than some
        tens of microseconds."""
        parts = [list_head(4), pack(TIMELINE_VERSION), pack(self.writers), list_head(self.numbers)]
        step = 1 + self.writers
        at_once = max(1, _NUMBERS_AT_ONCE // step)
        before = [0] * step
        for first in range(0, len(self.receipts), at_once):
            values: list[int] = []
            for receipt in self.receipts[first : first + at_once]:
                values.append(receipt.at_ns)
                values += receipt.frontiers
            parts.append(pack_members([*map(sub, values, chain(before, values))]))
            before = values[-step:]
        late = [(held.from_ns, held.until_ns, *held.frontiers) for held in self.held_up]
        return b"".join((*parts, pack(late)))


class Timeline:
    """Receipts of a run with `writers` writers."""

    __slots__ = ("_first", "_held_up", "_last", "_levels", "_writers")

    def __init__(self, writers: int) -> None:
        self._writers = writers
        self._levels: tuple[deque[Receipt], ...] = tuple(deque(maxlen=PER_LEVEL) for _ in range(LEVELS))
        self._first = self._last = Receipt(at_ns=0, frontiers=(0,) * writers)
        self._held_up: list[HeldUp] = []

    @property
    def last_ns(self) -> int:
        """When the last change of a frontier came; 0 before the first change."""
        return self._last.at_ns

    @property
    def held_up(self) -> tuple[HeldUp, ...]:
        """Stretches of late frames, oldest first. Each begins and ends later than the one before."""
        return tuple(self._held_up)

    def hold_up(self, from_ns: int, until_ns: int) -> None:
        """Receipts added by `until_ns`, and not held up earlier, may have been sent at any time since
        `from_ns`. If there are too many stretches, the two oldest are merged, which makes them less
        precise."""
        while self._held_up and self._held_up[-1].from_ns >= from_ns:
            self._held_up.pop()
        self._held_up.append(HeldUp(from_ns=from_ns, until_ns=until_ns, frontiers=self._last.frontiers))
        if len(self._held_up) > STRETCHES_MAX:
            oldest, next_oldest = self._held_up[:2]
            self._held_up[:2] = [replace(next_oldest, from_ns=oldest.from_ns)]

    def add(self, at_ns: int, frontiers: Sequence[int]) -> None:
        """Add the frontiers received at `at_ns`; unchanged frontiers are ignored. Raises DurabilityError if
        time or a frontier goes back, or if the number of writers differs."""
        last = self._last
        problem = self._problem(at_ns, frontiers)
        if problem:
            raise DurabilityError(
                f"defect of this tool: a receipt at {at_ns} ns {problem}; the last was {last}"
            )
        receipt = Receipt(at_ns=at_ns, frontiers=tuple(frontiers))
        if receipt.frontiers == last.frontiers:
            return
        self._last = receipt
        if not any(last.frontiers):
            self._first = receipt
            return
        bucket = at_ns // FINEST_NS
        last_bucket = last.at_ns // FINEST_NS
        for number, level in enumerate(self._levels):
            if last_bucket >> number == bucket >> number:
                return
            level.append(last)

    def receipts(self) -> tuple[Receipt, ...]:
        """All receipts that are kept, oldest first."""
        if not any(self._last.frontiers):
            return ()
        kept = [self._last]
        for level in self._levels:
            # Receipts shared with the finer levels are in `kept` already: they reach back to kept[-1].
            reach_ns = kept[-1].at_ns
            kept += (receipt for receipt in reversed(level) if receipt.at_ns < reach_ns)
        if self._first.at_ns < kept[-1].at_ns:
            kept.append(self._first)
        return tuple(reversed(kept))

    def copy(self) -> TimelineCopy:
        """The timeline as it is now."""
        return TimelineCopy(writers=self._writers, receipts=self.receipts(), held_up=self.held_up)

    def pack(self) -> bytes:
        """The timeline as bytes for `unpack`."""
        return self.copy().pack()

    @classmethod
    def unpack(cls, data: bytes) -> Timeline:
        """The timeline that `pack` wrote. Raises FormatError."""
        match unpack(data):
            case [1, int(writers), list(deltas)]:
                late: list[Any] = []
            case [2, int(writers), list(deltas), list(stretch)]:
                late = [stretch] if stretch else []
            case [version, int(writers), list(deltas), list(late)] if version == TIMELINE_VERSION:
                pass
            case [version, *_]:
                raise FormatError(f"timeline version {version!r} is not {TIMELINE_VERSION}")
            case _:
                raise FormatError("a timeline is an array of version, writers, deltas and what was held up")
        step = 1 + writers
        if not 1 <= writers <= limits.WRITERS_MAX or len(deltas) % step or len(deltas) > RECEIPTS_MAX * step:
            raise FormatError(f"a timeline of {writers} writers has {len(deltas)} deltas")
        if len(late) > STRETCHES_MAX or any(type(part) is not list or len(part) != 1 + step for part in late):
            raise FormatError(
                f"what was held up is at most {STRETCHES_MAX} arrays of {1 + step} numbers in a timeline of"
                f" {writers} writers"
            )
        if any(type(number) is not int or number < 0 for number in chain(deltas, *late)):
            raise FormatError("a timeline's numbers are integers, none negative")
        timeline = cls(writers)
        if any(sum(deltas[column::step]) > limits.SEQ_MAX for column in range(step)):
            raise FormatError("a timeline's times and frontiers stay below 2^63")
        columns = [accumulate(deltas[column::step]) for column in range(step)]
        for at_ns, *frontiers in zip(*columns, strict=True):
            timeline.add(at_ns, frontiers)
        for from_ns, until_ns, *held in late:
            timeline._held_up.append(HeldUp(from_ns=from_ns, until_ns=until_ns, frontiers=tuple(held)))
        return timeline

    def _problem(self, at_ns: int, frontiers: Sequence[int]) -> str:
        if len(frontiers) != self._writers:
            return f"has {len(frontiers)} writers, not {self._writers}"
        if at_ns < self._last.at_ns:
            return "goes back in time"
        if any(map(gt, self._last.frontiers, frontiers)):
            return f"goes back to frontiers {tuple(frontiers)}"
        return ""
