"""Warnings about a measurement: what weakens its figures, each with a code and a sentence.

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

BUSY_PERCENT_MAX = 20.0  # of the processors, before the run
STEAL_PERCENT_MAX = 2.0
IDLE_PER_S_MAX = 10.0  # requests, of a drive that this tool left alone
FULL_PERCENT_MAX = 90.0
_SLOW_GOVERNORS = frozenset({"powersave", "ondemand", "conservative", "schedutil"})
_BY_A_PERSON: Mapping[str, str] = MappingProxyType({INTERRUPTED: "by Ctrl-C", SIGNALLED: "by a signal"})
_IO_ERRORS = ("I/O error of the target", "Input/output error")  # in `stopped`
_ERROR_CHARACTERS_MAX = 90  # of an error within a sentence: its end says what it was


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenOff:
    """What ended a measurement before its last round: `how`, as the end of a sentence; `is_io_error`: an I/O
    error of the target did."""

    how: str
    is_io_error: bool


def broken_off(result: Result) -> BrokenOff | None:
    """What ended the measurement of `result` early, None if nothing did."""
    if result.complete:
        return None
    why = result.stopped
    if not why or why in _BY_A_PERSON:
        return BrokenOff(how=_BY_A_PERSON.get(why, "for an unknown reason"), is_io_error=False)
    is_io_error = any(error in why for error in _IO_ERRORS)
    end = why if len(why) <= _ERROR_CHARACTERS_MAX else f"…{why[1 - _ERROR_CHARACTERS_MAX :]}"
    return BrokenOff(how=f"by an {'I/O error' if is_io_error else 'error'} ({end})", is_io_error=is_io_error)


def result_warnings(result: Result) -> tuple[TargetWarning, ...]:
    """All warnings that the run itself gives rise to."""
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
    """Requests per second that other programs made of each drive while this tool was idle, if many."""
    return busy_drives(result.idle)


def busy_drives(intervals: Iterable[Idle]) -> dict[str, float]:
    """The drives that others used much in any of `intervals`, with the most requests per second of each."""
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
