"""Warnings about a measurement: facts that weaken its figures, each with a code and a sentence.

No warning changes a figure or a verdict; docs/reference/bench-results.md lists the codes. Warnings about the
target itself (mounts without barriers, memory file systems and so on) are part of the facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from durability.bench.measurement import Idle
from durability.bench.result import INTERRUPTED, SIGNALLED, Result
from durability.formats.facts import TargetWarning

BUSY_PERCENT_MAX = 20.0  # load of the processors before the run
STEAL_PERCENT_MAX = 2.0
IDLE_PER_S_MAX = 10.0  # requests per second from other programs while this tool is idle
FULL_PERCENT_MAX = 90.0
_SLOW_GOVERNORS = frozenset({"powersave", "ondemand", "conservative", "schedutil"})
_BY_A_PERSON: Mapping[str, str] = MappingProxyType({INTERRUPTED: "by Ctrl-C", SIGNALLED: "by a signal"})
_IO_ERRORS = ("I/O error of the target", "Input/output error")  # texts in `stopped` for an I/O error
_ERROR_CHARACTERS_MAX = 90  # characters of an error in a sentence: the end is kept, as it names the error


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenOff:
    """Why a measurement ended before its last round."""

    how: str  # the cause, as the end of a sentence
    is_io_error: bool  # whether the cause was an I/O error of the target


def broken_off(result: Result) -> BrokenOff | None:
    """Why the measurement of `result` ended early, None if it is complete."""
    if result.complete:
        return None
    why = result.stopped
    if not why or why in _BY_A_PERSON:
        return BrokenOff(how=_BY_A_PERSON.get(why, "for an unknown reason"), is_io_error=False)
    is_io_error = any(error in why for error in _IO_ERRORS)
    end = why if len(why) <= _ERROR_CHARACTERS_MAX else f"…{why[1 - _ERROR_CHARACTERS_MAX :]}"
    return BrokenOff(how=f"by an {'I/O error' if is_io_error else 'error'} ({end})", is_io_error=is_io_error)


def result_warnings(result: Result) -> tuple[TargetWarning, ...]:
    """All warnings about the run itself, without those about the target."""
    found = (*_of_run(result), *_of_machine(result), *_of_idle_drives(result))
    return tuple(TargetWarning(code=code, text=text) for code, text in found)


def _of_run(result: Result) -> Iterator[tuple[str, str]]:
    if not result.complete:
        yield "partial", f"some rounds are missing: {result.stopped or 'the reason is unknown'}"
    if result.mode == "quick":
        yield "quick", "a quick run: a first look, with few rounds"
    for one in result.cells:
        if one.note and one.rounds:
            yield "cell-ended", f"{one.cell.name} ended early: {one.note}"


def _of_machine(result: Result) -> Iterator[tuple[str, str]]:
    before, after = result.before, result.after
    if before.busy_percent is not None and before.busy_percent > BUSY_PERCENT_MAX:
        yield "busy", f"the processors were {before.busy_percent:.0f} % busy before the run"
    steal = max((moment.steal_percent or 0.0) for moment in (before, after or before))
    if steal > STEAL_PERCENT_MAX:
        yield "steal", f"the host took {steal:.1f} % of the processors' time for other guests"
    if result.machine.governor in _SLOW_GOVERNORS:
        yield (
            "governor",
            f"the processor's governor is {result.machine.governor!r}: latencies include its wake-up time",
        )
    if before.used_bytes is not None and before.size_bytes:
        full = 100 * before.used_bytes / before.size_bytes
        if full > FULL_PERCENT_MAX:
            yield "full", f"the file system is {full:.0f} % full, which slows allocation and drives"


def others_per_s(result: Result) -> dict[str, float]:
    """Busy drives: requests per second from other programs while this tool was idle, by drive."""
    return busy_drives(result.idle)


def busy_drives(intervals: Iterable[Idle]) -> dict[str, float]:
    """The drives with more than `IDLE_PER_S_MAX` requests per second in an interval, each with its highest
    rate."""
    per_s: dict[str, float] = {}
    for idle in intervals:
        requests = sum(count or 0 for count in (idle.flushes, idle.writes, idle.reads))
        if idle.seconds:
            per_s[idle.name] = max(per_s.get(idle.name, 0.0), requests / idle.seconds)
    return {name: rate for name, rate in per_s.items() if rate > IDLE_PER_S_MAX}


def _of_idle_drives(result: Result) -> Iterator[tuple[str, str]]:
    for name, rate in others_per_s(result).items():
        yield (
            "other-io",
            f"{name} got {rate:.0f} requests per second from other programs while this tool was idle",
        )
