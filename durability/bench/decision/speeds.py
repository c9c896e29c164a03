"""Speeds: how fast one result of a comparison commits compared with another, and in which load.

Short rounds show the speed of a burst. A sustained load shows the speed once a fast cache is full. If the two
disagree, neither decides. A lead does not decide if it is smaller than the difference between two runs of one
drive. Nor does a lead that may not last: one whose rate fell in a load that the other result did not hold.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from durability.bench.intervals import Ratio
from durability.units import few_digits, multiple, ratio_text

# A lead decides only from this ratio of rates on. Two runs of one drive have differed by 14 % and by 34 % on
# a machine that shares its host (docs/explanation/bench-on-drives.md). No result says how much its machine
# changes between two runs. So a smaller lead may be reversed in the next two runs.
TIMES_MIN = 1.35

_NOT_IN_BOTH = "no cell that commits was measured in both"
_IN_SHORT_ROUNDS = "in short rounds"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLoad:
    """A sustained load that two results held."""

    text: str  # duration and writers of the load
    # Commits per second of both results at the end of the load. For the longer load: when the shorter ended.
    rates: tuple[float, float]
    commit_bytes: int  # bytes that a commit of this load writes
    is_alike: bool = True  # whether writers and block size are those of the short rounds that decide

    @property
    def has_lead(self) -> bool:
        """Whether one rate is at least `TIMES_MIN` times the other and not 0."""
        slow, fast = sorted(self.rates)
        return fast > 0 and fast >= TIMES_MIN * slow

    @property
    def figures(self) -> str:
        """Both rates with MB/s, the higher one first, in brackets."""
        slow, fast = map(few_digits, sorted(self.rates))
        less, more = (few_digits(rate * self.commit_bytes / 1e6) for rate in sorted(self.rates))
        return f"({fast} against {slow} commits/s, {more} against {less} MB/s)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """One result commits faster than the other by so much that it decides."""

    is_of_second: bool  # whether the second result is the faster one
    times: float  # ratio of the rates, infinity if the slower one did not commit
    is_short: bool  # whether the lead is in short rounds, not in a sustained load
    where: str  # the load, in words


@dataclass(frozen=True, slots=True, kw_only=True)
class Speeds:
    """How fast a second result commits compared with a first. A pair has the first result's value first."""

    short: Ratio | None  # rate of the second divided by that of the first in short rounds, None if unknown
    held: tuple[HeldLoad, ...] = ()  # sustained loads that both results held
    has_held: bool = False  # whether either result held a sustained load
    # How its rate fell in a load that the other did not hold, as the end of a sentence; "" if steady.
    fell: tuple[str, str] = ("", "")
    silent: tuple[bool, bool] = (False, False)  # whether a short round of the deciding cell had no commit
    stopped: tuple[str, str] = ("", "")  # the sustained load at whose end it had no commit, "" for none

    @property
    def leads(self) -> tuple[Lead, ...]:
        """The leads that count, the lead in short rounds first."""
        return tuple(self._leads())

    def _leads(self) -> Iterator[Lead]:
        short = self.short
        if short is not None and short.is_shown and _times(short) >= TIMES_MIN:
            second, times = short.value > 1, _times(short)
            yield Lead(is_of_second=second, times=times, is_short=True, where=_IN_SHORT_ROUNDS)
        for load in self.held:
            if load.has_lead:
                slow, fast = sorted(load.rates)
                times = fast / slow if slow else math.inf
                second, where = load.rates[1] == fast, f"at the end of {load.text} {load.figures}"
                yield Lead(is_of_second=second, times=times, is_short=False, where=where)

    @property
    def is_known(self) -> bool:
        """Whether any cell that commits was measured in both."""
        return self.short is not None or bool(self.held)

    @property
    def depends_on_load(self) -> bool:
        """Whether the first result leads in one load and the second in another."""
        return len({lead.is_of_second for lead in self.leads}) > 1

    @property
    def doubt(self) -> str:
        """How the rate of the faster one fell in a load that the other did not hold, "" if it did not."""
        leads = self.leads
        return self.fell[leads[0].is_of_second] if leads and not self.depends_on_load else ""

    @property
    def decides(self) -> bool:
        """Whether speed decides between the two."""
        return bool(self.leads) and not self.depends_on_load and not self.doubt

    @property
    def is_for_second(self) -> bool:
        """Whether speed decides for the second."""
        return self.decides and self.leads[0].is_of_second

    @property
    def is_open(self) -> bool:
        """Whether there were too few rounds to see a difference."""
        short = self.short
        return short is not None and not (short.has_interval or short.apart or self.leads)

    @property
    def has_few_rounds(self) -> bool:
        """Whether there were too few rounds for an interval."""
        return self.short is not None and not self.short.has_interval


def speed_text(first: str, other: str, speeds: Speeds, subject: str = "") -> str:
    """How fast the result `first` commits compared with the result `other`, as a sentence without a full
    stop. `subject`: replaces the label of the faster one."""
    if hung := without_a_commit(first, other, speeds):
        return silence_text(hung)
    if not speeds.is_known:
        return _NOT_IN_BOTH
    if speeds.is_open:
        return f"{first} and {other} had too few rounds to tell their speeds apart"
    if not speeds.leads:
        return _without_a_lead(first, other, speeds)
    lead, *others = speeds.leads
    if speeds.depends_on_load:
        side = [one for one in others if one.is_of_second == lead.is_of_second]
        against = [one for one in others if one.is_of_second != lead.is_of_second]
        return f"{_led(first, other, lead, *side)}, but {_led(first, other, *against)}"
    if not lead.is_short or speeds.has_held:
        said = _led(first, other, lead, subject=subject)
    else:
        said = _led(first, other, lead, subject=subject).removesuffix(f" {_IN_SHORT_ROUNDS}")
    if lead.is_short and speeds.has_few_rounds:
        said += " (in too few rounds to be sure)"
    return f"{said}, but {speeds.doubt}" if speeds.doubt else said


def without_a_commit(first: str, other: str, speeds: Speeds) -> dict[str, str]:
    """The results that had no commit somewhere: by label, the sustained load at whose end it had none, or ""
    for a short round."""
    each = zip((first, other), speeds.silent, speeds.stopped, strict=True)
    return {label: "" if silent else stopped for label, silent, stopped in each if silent or stopped}


def silence_text(found: Mapping[str, str]) -> str:
    """The result of `without_a_commit` in words."""
    parts = []
    for load in dict.fromkeys(found.values()):
        labels = [label for label, where in found.items() if where == load]
        if load:
            parts.append(f"{' and '.join(labels)} had no commit at the end of {load}")
        else:
            parts.append(" and ".join(f"a round of {label}" for label in labels) + " had no commit")
    return ", and ".join(parts)


def _led(first: str, other: str, lead: Lead, *more: Lead, subject: str = "") -> str:
    """Which result leads, by how much and in which load. `more`: further leads of the same result."""
    fast, slow = (other, first) if lead.is_of_second else (first, other)
    also = (f"{_by(one, slow)} {one.where}" for one in more)
    return " and ".join((f"{subject or fast} {_by(lead, slow, 'commits')} {lead.where}", *also))


def _by(lead: Lead, slow: str, verb: str = "") -> str:
    """By how much the faster one leads. `verb`: the verb, if the sentence has none yet."""
    if math.isinf(lead.times):
        return f"{verb} and {slow} does not" if verb else "alone"
    of = f" as {slow}" if verb else ""
    return f"{verb} {multiple(lead.times)} times as fast{of}".strip()


def _without_a_lead(first: str, other: str, speeds: Speeds) -> str:
    pair, ratio = f"between {first} and {other}", speeds.short
    if ratio is None:
        load = speeds.held[0]
        return f"no large difference in speed is shown {pair} at the end of {load.text} {load.figures}"
    where = f" {_IN_SHORT_ROUNDS}" if speeds.has_held else ""
    if not ratio.is_shown:
        return f"no difference in speed is shown {pair}{where}"
    fast, slow = (other, first) if ratio.value > 1 else (first, other)
    share = _times(ratio) - 1
    words = f"{share:.0%}" if share >= 0.01 else "under 1%"
    as_much = "and two runs of one drive have differed by as much"
    return f"{fast} commits {words} faster than {slow}{where}, {as_much}"


def fading(first: str, other: str, speeds: Speeds) -> str:
    """A sentence if one result leads in short rounds, but not at the end of the same load when both held it,
    and not in any other sustained load. "" otherwise."""
    leads = speeds.leads
    if not leads or not leads[0].is_short:
        return ""
    second = leads[0].is_of_second
    load = next((one for one in speeds.held if one.is_alike and all(one.rates) and not one.has_lead), None)
    if load is None or any(one.is_of_second == second for one in leads[1:]):
        return ""
    slow, fast = load.rates if second else load.rates[::-1]
    leader, rival = (other, first) if second else (first, other)
    times = f"{ratio_text(fast / slow)} times as fast as {rival}"
    return f"at the end of {load.text}, {leader} commits only {times} {load.figures}"


def _times(ratio: Ratio) -> float:
    """The higher rate divided by the lower one."""
    return max(ratio.value, 1 / ratio.value)
