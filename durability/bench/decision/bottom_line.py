"""The bottom line: a result in four lines, for readers who read nothing else.

    speed    commits per second, MB/s and p99 of one writer and of many
    steady   whether these rates lasted, and why not
    honest   whether flushes look honest, suspicious or not shown, and the command to type next
    place    the kinds of published drives that commit at this rate

A benchmark proves nothing about a loss of power, so no line says that a drive is honest: at best it looks
honest until a power cut proves it. A line says so if a value was not measured.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

from durability.bench.catalogue import HEADLINE
from durability.bench.cells import Cell
from durability.bench.decision import published_drives
from durability.bench.plausibility import Code, Controls, Plausibility, controls_of, plausibility
from durability.bench.result import Result
from durability.bench.result_warnings import result_warnings
from durability.bench.steady_state import RANGE_MAX, THIRD_MIN, Steadiness, beyond
from durability.bench.summary import CellSummary, summarise
from durability.formats.facts import TargetWarning
from durability.units import counted, duration, few_digits, format_size

Honesty: TypeAlias = Literal["looks honest", "suspicious", "not shown"]

MANY_WRITERS = 16
_WORST_FIRST: tuple[Steadiness, ...] = ("NOT STEADY", "too short to say", "not judged", "steady")
# Warnings that explain why a rate varies: those that name a user of the drive, and others.
_NAMED = frozenset({"new-file-system", "resync", "busy-drive"})
_UNNAMED = frozenset({"busy", "steal", "other-io", "governor"})
_DIFFER, _OF_MEAN = ": rounds differ by ", " of their mean"
_LAZY_TABLES = "ext4lazyinit writes a new ext4 (wait, or lazy_itable_init=0)"
_OTHERS = re.compile(
    r"(?P<drive>\S+) got (?P<rate>[\d.,]+) requests per second from other programs[^;]*"
    r"(?:; (?P<who>.*) wrote the most\b.*)?"
)
_DISTURBANCES_MAX = 2  # kinds of disturbance that the line names; the others are only in the warnings
_SHORT_CHARACTERS_MAX = 72  # longest text of a disturbance whose wording is from another release


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """The speed of `summary.cell.jobs` writers in a cell that commits."""

    summary: CellSummary
    rate: float  # commits per second, median of the rounds
    bytes_per_s: float  # median of the rounds
    p99_ns: int | None  # 99th percentile of a commit, None if the sample is too small

    @property
    def writers(self) -> str:
        """The number of writers in words."""
        return counted(self.summary.cell.jobs, "writer")

    @property
    def other_cell(self) -> str:
        """The cell's name. "" if the cell differs from the headline only in the number of writers."""
        name = self.summary.cell.name
        return "" if _apart_from_jobs(name) == HEADLINE.name else name

    @property
    def text(self) -> str:
        """The figures as a sentence without a verb."""
        p99 = "p99 unknown" if self.p99_ns is None else f"p99 {duration(self.p99_ns)}"
        figures = f"{self.writers}: {few_digits(self.rate)} commits/s, {megabytes(self.bytes_per_s)}, {p99}"
        return f"{figures} ({self.other_cell})" if self.other_cell else figures


@dataclass(frozen=True, slots=True, kw_only=True)
class BottomLine:
    """The four lines and their parts."""

    one: Speed | None  # speed of one writer, None if no such cell was measured
    # Speed of `MANY_WRITERS` writers, else of the most writers measured. None if no such cell was measured.
    many: Speed | None
    steady: Steadiness
    steady_reason: str
    disturbances: tuple[str, ...]
    honesty: Honesty
    honesty_reason: str
    command: str  # command to type next
    rate: float | None  # rate that is compared with published drives, None if the headline was not measured
    kinds: tuple[str, ...]  # names of the kinds of published drives with this rate
    standing: str

    @property
    def steady_word(self) -> str:
        """The word beside the label "steady", which does not repeat the label."""
        return "yes" if self.steady == "steady" else self.steady

    def lines(self) -> tuple[str, str, str, str]:
        """The four lines. Their length is not limited: the caller wraps them."""
        speeds = [one.text for one in (self.one, self.many) if one is not None]
        return (
            f"speed: {'; '.join(speeds) or 'no cell that commits was measured'}",
            f"steady: {self.steady_word}: {self.steady_reason}",
            f"honest: {self.honesty}: {self.honesty_reason}. Next: {self.command}",
            f"place: {self.standing}",
        )


def bottom_line(result: Result) -> BottomLine:
    """The bottom line of `result`."""
    commits = [
        summary
        for summary in map(summarise, result.cells)
        if summary.engine == "durability" and summary.rate is not None and _commits(summary)
    ]
    one = _best(commits, (HEADLINE.name,), lambda jobs: jobs == 1)
    many_names = (f"4k-random-fdatasync-{MANY_WRITERS}jobs-overwritten",)
    many = _best(commits, many_names, lambda jobs: jobs > 1)
    verdict = plausibility(result)
    word, reason = _steady(result, [each for each in (one, many) if each is not None])
    disturbing = _disturbing(result, scatters=word == "NOT STEADY")
    reason = "; ".join((reason, *map(_in_short, disturbing.values())))
    honest, why = honesty(result, verdict, named=False)
    rate = one.rate.median if one and one.rate and one.cell.name == HEADLINE.name else None
    return BottomLine(
        one=_speed(one),
        many=_speed(many),
        steady=word,
        steady_reason=reason,
        disturbances=tuple(one.text for kind in disturbing.values() for one in kind),
        honesty=honest,
        honesty_reason=why,
        command=verdict.commands[0],
        rate=rate,
        kinds=() if rate is None else tuple(kind.name for kind in published_drives.kinds_at(rate)),
        standing=_standing(result, rate),
    )


def megabytes(bytes_per_s: float) -> str:
    """A bandwidth as text, in MB/s (10^6 bytes per second)."""
    value = bytes_per_s / 1e6
    return f"{value:,.0f} MB/s" if value >= 99.95 else f"{value:.3g} MB/s"


def _apart_from_jobs(name: str) -> str:
    return "-".join(word for word in name.split("-") if not word.endswith("jobs"))


def has_rate_of_commits(cell: Cell) -> bool:
    """Whether the cell's rate counts only commits on the target, of data that no drive can compress. False
    for a mix with reads, and for a paced cell, whose rate is at most the pace."""
    return (
        cell.sync != "none"
        and not cell.pace_us
        and cell.workload in ("overwrite", "append", "create")
        and cell.place == "target"
        and cell.data == "unique"
    )


def _commits(summary: CellSummary) -> bool:
    """Whether the cell is a load of commits on the target."""
    cell = summary.cell
    return has_rate_of_commits(cell) and cell.group not in (
        "controls",
        "flush ladder",
        "sustained",
        "data probe",
    )


def _best(
    commits: Sequence[CellSummary], names: Sequence[str], fits: Callable[[int], bool]
) -> CellSummary | None:
    """The first cell in `commits` with one of `names`, else the cell with the most jobs. Only cells whose
    number of jobs `fits` are considered."""
    found = [one for one in commits if fits(one.cell.jobs)]
    named = [one for one in found if one.cell.name in names]
    return named[0] if named else max(found, key=lambda one: one.cell.jobs, default=None)


def _speed(summary: CellSummary | None) -> Speed | None:
    if summary is None or summary.rate is None or summary.bytes_per_s is None:
        return None
    return Speed(
        summary=summary,
        rate=summary.rate.median,
        bytes_per_s=summary.bytes_per_s.median,
        p99_ns=summary.commit.p99,
    )


def _steady(result: Result, measured: Sequence[CellSummary]) -> tuple[Steadiness, str]:
    """The worst word on the sustained loads of commits, with its reasons. Without such loads: on
    `measured`."""
    held = held_commits(result)
    judged = held or measured
    if not judged:
        return "not judged", "no cell that commits was measured"
    word = min((one.steady.word for one in judged), key=_WORST_FIRST.index)
    said: list[str] = []
    for one in judged:
        if one.steady.word == word:
            why = _why(one, held=bool(held))
            if any(_DIFFER in other for other in said):  # the words "rounds differ" are said once
                why = why.replace(_DIFFER, ": by ").removesuffix(_OF_MEAN)
            said.append(why)
    if word == "steady" and not held:
        said.append("for seconds only; --accept holds a load for longer")
    return word, "; ".join(said)


def held_commits(result: Result) -> list[CellSummary]:
    """The sustained loads of commits."""
    return [summarise(one) for one in result.held() if one.engine == "durability" and one.cell.sync != "none"]


def seconds_of(held: CellSummary) -> str:
    """The duration of a sustained load, in words."""
    return f"{len(held.series) * held.bin_s:,.0f} s"


def fall(held: Sequence[CellSummary]) -> tuple[str, str] | None:
    """The load whose rate fell most: its duration and writers, and how its rate fell, both as parts of a
    sentence. None if the rates of all loads lasted."""
    unsteady = [one for one in held if one.steady.word == "NOT STEADY"]
    if not unsteady:
        return None
    one = min(unsteady, key=lambda one: 1.0 if one.steady.last_third is None else one.steady.last_third)
    by = "" if (who := writers_of(one.cell)) == "1 writer" else f" by {who}"
    share = one.steady.last_third
    if share is not None and share < THIRD_MIN:
        fell = f"fell to {beyond(share, THIRD_MIN).replace('%', ' %')}"
    else:
        fell = f"was not steady: {one.steady.reason.partition(';')[0]}"
    return f"held for {seconds_of(one)}{by}", fell


def fallen(label: str, held: Sequence[CellSummary]) -> str:
    """A sentence on the load of the result `label` whose rate fell most. "" if the rates of all loads
    lasted."""
    found = fall(held)
    return "" if found is None else f"{found[0]}, {label}'s rate {found[1]}"


def writers_of(cell: Cell) -> str:
    """The writers of a cell, in words, with their block size if it is not that of the headline."""
    size = "" if cell.block_bytes == HEADLINE.block_bytes else f" of {format_size(cell.block_bytes)}"
    return f"{counted(cell.jobs, 'writer')}{size}"


def _why(one: CellSummary, *, held: bool) -> str:
    found, writers = one.steady, writers_of(one.cell)
    seconds = f" for {seconds_of(one)}" if held else ""
    if found.word == "steady":
        differ = ": windows differ by " if held else _DIFFER
        return f"{writers}{seconds}{differ}{found.range_share:.0%}{_OF_MEAN}"
    if found.word == "NOT STEADY" and not held and (apart := found.range_share or 0.0) > RANGE_MAX:
        return f"{writers}{_DIFFER}{beyond(apart, RANGE_MAX)}{_OF_MEAN}"
    return f"{writers}{seconds}: {found.reason}"


def _disturbing(result: Result, *, scatters: bool) -> dict[str, list[TargetWarning]]:
    """Warnings about other users of the drives, by code. If the rate `scatters`: also warnings about other
    possible causes. Warnings that name a user come first, and at most `_DISTURBANCES_MAX` kinds are kept."""
    named = [one for one in result.facts.warnings if one.code in _NAMED]
    others = [
        one
        for one in result_warnings(result)
        if scatters and one.code in _UNNAMED and not (named and one.code == "other-io")
    ]
    kinds: dict[str, list[TargetWarning]] = {}
    for one in (*named, *others):
        if one.code in kinds or len(kinds) < _DISTURBANCES_MAX:
            kinds.setdefault(one.code, []).append(one)
    return kinds


def _in_short(kind: Sequence[TargetWarning]) -> str:
    """A kind of disturbance in a few words: its first warning, and the number of others."""
    first, *more = kind
    also = f" (and {counted(len(more), 'other drive')})" if more else ""
    return f"{_shortened(first)}{also}"


def _shortened(warning: TargetWarning) -> str:
    if warning.code == "new-file-system":
        return _LAZY_TABLES
    match = _OTHERS.fullmatch(warning.text)
    if match is not None:
        who = f", and {match['who']} wrote the most" if match["who"] else ""
        return f"{match['drive']} had {match['rate']} requests/s of others{who}"
    text = warning.text.partition(": ")[0]
    return text if len(text) <= _SHORT_CHARACTERS_MAX else f"{text[: _SHORT_CHARACTERS_MAX - 1]}…"


_HONESTY: Mapping[Code, tuple[Honesty, str]] = MappingProxyType(
    {
        "no-flush-sent": (
            "suspicious",
            "commits were acknowledged and no flush reached a drive: something above it withholds the flush",
        ),
        "faster-than-media": (
            "suspicious",
            "commits came faster than the platter turns: a cache answers, and loses what it holds unless a"
            " battery or flash protects it",
        ),
        "flush-no-media-work": (
            "not shown",
            "the flush does no work: power-loss protection, a cache of the host, an ignored flush, or data"
            " written before; only a power cut tells",
        ),
        "volatile-cache": (
            "looks honest",
            "a flush took longer with more data, as if it moved them; only a power cut proves it",
        ),
        "inconclusive": ("not shown", "the times prove nothing"),
    }
)


_CONTROLLER_ANSWERS = (
    "commits came faster than the platter turns: a controller's cache may answer, which a battery or flash"
    " may protect"
)


def suspected(result: Result, verdict: Plausibility) -> Code | None:
    """The code that makes the commits of `result` suspicious, from its plausibility verdict. None if they are
    not suspicious. Datacenter drives rightly declare that they have no volatile cache, so a missing flush
    alone is not suspicious. Commits faster than a platter are, if the drive reports its speed of rotation and
    no controller may answer for it: a controller with a protected cache may report the disks' rotation for
    its volume."""
    if verdict.code != "no-flush-sent":
        return verdict.code if _HONESTY[verdict.code][0] == "suspicious" else None
    controls = controls_of(result)
    if not _gets_no_flush(controls):
        return "no-flush-sent"
    return "faster-than-media" if _overtakes(controls, verdict) and not controls.assumed else None


def _overtakes(controls: Controls, verdict: Plausibility) -> bool:
    """Whether commits without a flush came faster than the reported rotation of the drive allows."""
    # The only reasons of this verdict are rates above the limit of a platter.
    return controls.rpm is not None and bool(verdict.reasons)


def _gets_no_flush(controls: Controls) -> bool:
    """Whether the kernel sends no flush because no drive is known to have a volatile cache."""
    caches = set(controls.write_caches)
    return caches == {"write through"} or (controls.beneath and caches <= {"write through", None})


def honesty(result: Result, verdict: Plausibility, *, named: bool = True) -> tuple[Honesty, str]:
    """Whether flushes look honest, and why, from the plausibility verdict on `result`. `named`: also name
    other users of the drives if the times prove nothing."""
    if (code := suspected(result, verdict)) is not None:
        return _HONESTY[code]
    word, reason = _HONESTY[verdict.code]
    if verdict.code == "no-flush-sent":
        controls = controls_of(result)
        fast = f"; {_CONTROLLER_ANSWERS}" if _overtakes(controls, verdict) else ""
        return "not shown", f"{_why_no_flush(controls)}{fast}; only a power cut tells"
    if verdict.code == "inconclusive" and verdict.reasons:
        others = map(_in_short, _disturbing(result, scatters=False).values()) if named else ()
        return word, "; ".join((f"{reason}: {verdict.reasons[0]}", *others))
    return word, reason


def _why_no_flush(controls: Controls) -> str:
    if set(controls.write_caches) != {"write through"}:
        return "the disk under the loop device got no flush, and may declare no volatile cache"
    if controls.assumed:
        return (
            "the kernel takes the drive for one without a volatile cache (a USB bridge or a RAID controller"
            " may not mention one), so it got no flush"
        )
    return "the drive declares no volatile cache, so it got no flush"


def _standing(result: Result, rate: float | None) -> str:
    if rate is None:
        return f"unknown, since {HEADLINE.name} was not measured"
    where = published_drives.standing(rate)
    inside = result.facts.host.virtualisation not in ("none", "")
    return f"{where}, seen from a virtual machine" if inside else where
