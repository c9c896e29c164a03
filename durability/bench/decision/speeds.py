"""Speeds: how fast one result of a comparison commits compared with another, and in which load.

Short rounds show what a burst gets, a load that was held what is left once a fast cache is full: neither
decides against the other. Refuses to take a drive for less than two runs of one drive have differed by, and
for a lead of which nobody knows whether it lasts: its rate did not, in a load that the other did not hold.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from durability.bench.intervals import Ratio
from durability.units import few_digits, multiple, ratio_text

# Of the one rate to the other, from which on a drive is taken for it. Two runs of one drive have differed by
# 14 and by 34 % on a machine that shares its host (docs/explanation/bench-on-drives.md), and no result says
# how much its machine changes between two runs. So less may be the other way round in the next two.
TIMES_MIN = 1.35

_NOT_IN_BOTH = "no cell that commits was measured in both"
_IN_SHORT_ROUNDS = "in short rounds"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLoad:
    """A load that two results held: `text` says whose and for how long, `rates` are their commits per second
    at its end, of the longer one when the shorter one ended. `is_alike`: whether its writers and their blocks
    are those of the short rounds that decide."""

    text: str
    rates: tuple[float, float]
    is_alike: bool = True

    @property
    def has_lead(self) -> bool:
        """Whether one rate is so much higher that it counts."""
        slow, fast = sorted(self.rates)
        return fast > 0 and fast >= TIMES_MIN * slow

    @property
    def figures(self) -> str:
        """Both rates, the higher one first, in brackets."""
        slow, fast = map(few_digits, sorted(self.rates))
        return f"({fast} against {slow} commits/s)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """Where one result commits so much faster that it is taken for it: whether that is the second, how many
    times as fast it is (infinity if the slower one did not commit), whether in short rounds, and in words in
    which load."""

    is_of_second: bool
    times: float
    is_short: bool
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Speeds:
    """How fast a second result commits compared with a first. `short`: its rate in short rounds as a share of
    the first's, None if there is none. `held`: loads that both held. `has_held`: whether any of them held
    one. `fell`: of each, what its rate did in a load that the other did not hold, as the end of a sentence,
    "" if it was steady. `silent`: of each, whether a short round that would decide had no commit; `stopped`:
    of each, the load that it held and at whose end it had none, in words, "" for none."""

    short: Ratio | None
    held: tuple[HeldLoad, ...] = ()
    has_held: bool = False
    fell: tuple[str, str] = ("", "")
    silent: tuple[bool, bool] = (False, False)
    stopped: tuple[str, str] = ("", "")

    @property
    def leads(self) -> tuple[Lead, ...]:
        """Where one is faster by so much that it counts: in short rounds first."""
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
        """Whether the first is the faster one in some load, and the second in another."""
        return len({lead.is_of_second for lead in self.leads}) > 1

    @property
    def doubt(self) -> str:
        """What the rate of the faster one did in a load that the other did not hold, "" for nothing."""
        leads = self.leads
        return self.fell[leads[0].is_of_second] if leads and not self.depends_on_load else ""

    @property
    def decides(self) -> bool:
        """Whether one of them is to be taken for its speed."""
        return bool(self.leads) and not self.depends_on_load and not self.doubt

    @property
    def is_for_second(self) -> bool:
        """Whether that one is the second."""
        return self.decides and self.leads[0].is_of_second

    @property
    def is_open(self) -> bool:
        """Whether there were too few rounds to say if there is a difference."""
        short = self.short
        return short is not None and not (short.has_interval or short.apart or self.leads)

    @property
    def has_few_rounds(self) -> bool:
        """Whether there were too few rounds for an interval."""
        return self.short is not None and not self.short.has_interval


def speed_text(first: str, other: str, speeds: Speeds, subject: str = "") -> str:
    """How fast the result of one label commits compared with that of the other; `subject`: in the place of
    the faster one's label."""
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
    """At the end of which held load each of the results of these labels had no commit, "" for in a short
    round; only of those that had none."""
    each = zip((first, other), speeds.silent, speeds.stopped, strict=True)
    return {label: "" if silent else stopped for label, silent, stopped in each if silent or stopped}


def silence_text(found: Mapping[str, str]) -> str:
    """Where these had no commit, as `without_a_commit` has it, in words."""
    parts = []
    for load in dict.fromkeys(found.values()):
        labels = [label for label, where in found.items() if where == load]
        if load:
            parts.append(f"{' and '.join(labels)} had no commit at the end of {load}")
        else:
            parts.append(" and ".join(f"a round of {label}" for label in labels) + " had no commit")
    return ", and ".join(parts)


def _led(first: str, other: str, lead: Lead, *more: Lead, subject: str = "") -> str:
    """Who leads, by how much and where; `more`: where else."""
    fast, slow = (other, first) if lead.is_of_second else (first, other)
    also = (f"{_by(one, slow)} {one.where}" for one in more)
    return " and ".join((f"{subject or fast} {_by(lead, slow, 'commits')} {lead.where}", *also))


def _by(lead: Lead, slow: str, verb: str = "") -> str:
    """By how much it leads; `verb` where the sentence has none yet."""
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
    """A sentence if the lead that one has in short rounds is none in the same load where both held it, and in
    no other held load; else ""."""
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
    """The faster one's rate to the slower one's."""
    return max(ratio.value, 1 / ratio.value)
