"""The kinds of criteria: what each looks at, in which unit its limit is, and what it answers.

One kind is one function here, under `@_kind`. It answers pass or refuse only from evidence, names that
evidence, and otherwise says "not shown" and what is missing. Of several results or campaigns the worst
counts, so that nobody can choose the best. Refuses to call silence a pass: a drive that says nothing of its
spare blocks has not shown them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias, TypeVar

from durability.acceptance.evidence import CampaignEvidence, DriveEvidence, Measured, is_of_class
from durability.acceptance.profile import Criterion, Word
from durability.bench.catalogue import HELD_COMMIT, HELD_FILL, HELD_UNSYNCED, HELD_WRITERS
from durability.bench.cells import Cell
from durability.bench.decision.bottom_line import bottom_line
from durability.bench.filled import filled
from durability.bench.measurement import Round
from durability.bench.result import Result
from durability.bench.summary import percentiles
from durability.campaign.health import HealthRow, health_warnings
from durability.units import counted, format_size, percent

T = TypeVar("T")
Sense: TypeAlias = Literal["at least", "at most"]

_NO_CAMPAIGN = "no campaign of this drive is known"
_NO_CUT = "no campaign has cut its power"
_NO_ACCEPT = "no result of bench --accept has this load"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What the limit of a kind is: `unit` in which it is written, and where it may lie."""

    sense: Sense
    unit: str
    low: float = 0.0
    high: float = 1e12
    whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a kind answers: the word, the `figure` that it rests on, and the `source` of that."""

    word: Word
    figure: str
    source: str = ""


Look: TypeAlias = Callable[[DriveEvidence, Criterion], Found]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of criterion. `asks`: what it asks, for people; `limit`: None if it has none; `counts_cuts`:
    whether the criterion names a class of cut."""

    name: str
    asks: str
    limit: Limit | None
    counts_cuts: bool
    look: Look


_KINDS: dict[str, Kind] = {}
KINDS: Mapping[str, Kind] = MappingProxyType(_KINDS)


def _kind(
    name: str, asks: str, limit: Limit | None = None, *, counts_cuts: bool = False
) -> Callable[[Look], Look]:
    def register(look: Look) -> Look:
        _KINDS[name] = Kind(name=name, asks=asks, limit=limit, counts_cuts=counts_cuts, look=look)
        return look

    return register


def limit_text(criterion: Criterion) -> str:
    """The limit for people, "" if there is none."""
    limit = KINDS[criterion.kind].limit
    if limit is None or criterion.limit is None:
        return ""
    of_class = f" of class {criterion.cut_class}" if KINDS[criterion.kind].counts_cuts else ""
    return f"{limit.sense} {criterion.limit:,g} {limit.unit}{of_class}"


# Cuts.


@_kind(
    "clean-cuts",
    "cuts without a loss",
    Limit(sense="at least", unit="cuts", low=1, high=100_000, whole=True),
    counts_cuts=True,
)
def _clean_cuts(evidence: DriveEvidence, criterion: Criterion) -> Found:
    lost = next((one for one in evidence.proofs if one.losses), None)
    if lost is not None:
        return Found(
            word="refuse",
            figure=f"{counted(lost.losses, 'loss', 'losses')} in {counted(lost.cuts, 'cut')}, first in"
            f" {lost.lost_in or lost.source}",
            source=lost.source,
        )
    counting = [one for one in evidence.proofs if is_of_class(one, criterion.cut_class)]
    void = evidence.unanswered(criterion.cut_class)
    if void is not None:
        most = max(one.cuts for one in counting)
        clean = f"{counted(most, 'cut')} without a loss, but " if most else ""
        return Found(word="not shown", figure=f"{clean}{void[0]}, so nothing is bounded", source=void[1])
    if not evidence.proofs:
        return Found(word="not shown", figure=_no_cut(evidence))
    if not counting:
        best = max(evidence.proofs, key=lambda one: one.cuts)
        figure = f"{counted(best.cuts, 'cut')} of class {best.cut_class} only, without a loss"
        return Found(word="not shown", figure=figure, source=best.source)
    best = max(counting, key=lambda one: one.cuts)
    assert best.bound is not None and criterion.limit is not None
    figure = f"{counted(best.cuts, 'cut')} without a loss: at most {percent(best.bound)} of cuts may lose"
    word: Word = "pass" if best.cuts >= criterion.limit else "not shown"
    return Found(word=word, figure=f"{figure} data (95 % confidence)", source=best.source)


@_kind("counted-cuts", "cuts seen by the drive's own counter of unsafe shutdowns")
def _counted_cuts(evidence: DriveEvidence, _: Criterion) -> Found:
    found = None
    for campaign in evidence.campaigns:
        if any(one.word != "nothing" for one in campaign.cuts):
            found = _worse(found, _counter_of(campaign))
    return found or Found(word="not shown", figure="no counted cut of a campaign is known")


def _counter_of(campaign: CampaignEvidence) -> Found:
    """Whether the counter rose at each counted cut: row by row, since it may rise twice at one of them."""
    source, read = f"campaign {campaign.name}", campaign.after_cuts(lambda row: row.unsafe_shutdowns)
    cuts = [one.cycle for one in campaign.cuts]
    whole = [row for row in campaign.rows if row.cycle not in cuts]
    values = dict(_known(whole, lambda row: row.unsafe_shutdowns)) | read
    counting = [one.cycle for one in campaign.cuts if one.word != "nothing"]
    unread = [cycle for cycle in counting if cycle not in read or not any(at < cycle for at in values)]
    if unread:
        figure = f"the counter was not read before and after {len(unread)} of {counted(len(counting), 'cut')}"
        return Found(word="not shown", figure=figure, source=source)
    seen = 0
    for cycle in counting:
        before = max(at for at in values if at < cycle)
        seen += values[cycle] - values[before] >= sum(before < at <= cycle for at in cuts)
    figure = f"the counter rose at {seen:,} of {counted(len(counting), 'cut')}"
    word: Word = "pass" if seen == len(counting) else "not shown" if seen else "refuse"
    return Found(word=word, figure=figure, source=source)


# The drive after its cuts.


@_kind("always-there", "the drive came back after every cut, ready to be used")
def _always_there(evidence: DriveEvidence, _: Criterion) -> Found:
    troubled = [(one, each) for one in evidence.campaigns for each in one.cycles if each.trouble]
    if troubled:
        campaign, first = troubled[0]
        where = f"cycle {first.cycle} of campaign {campaign.name}"
        count = "" if len(troubled) == 1 else f"; {len(troubled)} such cycles"
        return Found(word="refuse", figure=f"{first.trouble} ({where}){count}", source=where)
    cuts = [(one, each) for one in evidence.campaigns for each in one.cuts]
    if not cuts:
        return Found(word="not shown", figure=_NO_CUT if evidence.campaigns else _no_campaign(evidence))
    unseen = [(one, each) for one, each in cuts if not each.was_seen]
    if unseen:
        campaign, first = unseen[0]
        where = f"cycle {first.cycle} of campaign {campaign.name}"
        figure = f"nobody saw it after {len(unseen)} of {counted(len(cuts), 'cut')}, first in {where}"
        return Found(word="not shown", figure=figure, source=where)
    return Found(word="pass", figure=f"there after each of {counted(len(cuts), 'cut')}", source=_names(cuts))


@_kind("capacity-kept", "the drive's capacity stayed as it was")
def _capacity_kept(evidence: DriveEvidence, _: Criterion) -> Found:
    shrank = _warned(evidence, "smaller")
    if shrank is not None:
        return shrank
    measured = [
        (one.result.facts.drives[0].size_bytes, one.name)
        for one in evidence.results
        if len(one.result.facts.drives) == 1
    ]
    # Of a device on several drives a campaign knows the size of the device alone.
    single = all(len(one.drives) == 1 for one in evidence.facts)
    said = [
        (int(size), f"campaign {one.name}")
        for one in evidence.campaigns
        for _, size in _known(one.rows, lambda row: row.size_bytes or None)
    ]
    sizes = dict(reversed([*said, *(measured if single else ())]))  # each with the first that says it
    if len(sizes) > 1:
        each = ", ".join(f"{_exact(size, sizes)} in {where}" for size, where in reversed(sizes.items()))
        return Found(word="refuse", figure=f"its capacity is {each}", source="all evidence")
    unsaid = _unsaid(evidence, lambda row: row.size_bytes or None)
    if unsaid is not None:
        return unsaid
    (size,) = sizes
    return Found(
        word="pass",
        figure=f"{format_size(size)} {_after(evidence, lambda row: row.size_bytes or None)}",
        source=_names((one, 0) for one in evidence.campaigns if one.cuts),
    )


def _exact(size: int, of: Iterable[int]) -> str:
    """The size for people, to the byte where another looks the same."""
    alike = sum(format_size(one) == format_size(size) for one in of) > 1
    return f"{size:,} bytes" if alike else format_size(size)


@_kind("firmware-kept", "all evidence is of one firmware")
def _firmware_kept(evidence: DriveEvidence, _: Criterion) -> Found:
    changed = _warned(evidence, "firmware")
    if changed is not None:
        return changed
    facts = [" + ".join(drive.firmware for drive in one.drives) for one in evidence.facts]
    rows = [row.firmware for one in evidence.campaigns for row in one.rows]
    known = list(dict.fromkeys(filter(None, (*facts, *rows))))
    if not known:
        return Found(word="not shown", figure="the drive names no firmware")
    if len(known) > 1:
        return Found(
            word="refuse", figure=f"evidence is of firmware {', '.join(known)}", source="all evidence"
        )
    return Found(word="pass", figure=f"only {known[0]}", source="all evidence")


@_kind(
    "ready-within",
    "longest time until the drive was ready",
    Limit(sense="at most", unit="s", low=0.001, high=86_400),
)
def _ready_within(evidence: DriveEvidence, criterion: Criterion) -> Found:
    return _of_rows(evidence, criterion, lambda row: row.ready_s, lambda value: f"{value:.3g} s")


@_kind(
    "repairs",
    "cycles after which the file system had to be repaired",
    Limit(sense="at most", unit="cycles", high=100_000, whole=True),
)
def _repairs(evidence: DriveEvidence, criterion: Criterion) -> Found:
    known = [(one, sum(row.repaired for row in one.rows)) for one in evidence.campaigns]
    campaign, worst = max(known, key=lambda pair: pair[1], default=(None, 0))
    source = "" if campaign is None else f"campaign {campaign.name}"
    found = _held(criterion, worst, counted(worst, "cycle"), source)
    return _worse(found, _unsaid(evidence, lambda row: row.repaired) or found)


# What the drive says of itself.


@_kind("protection-works", "the drive's own word on its power-loss protection")
def _protection_works(evidence: DriveEvidence, _: Criterion) -> Found:
    broken = _warned(evidence, "backup-failed")
    if broken is not None:
        return broken
    for campaign in evidence.campaigns:
        for row in campaign.rows:
            if row.capacitor_percent == 0:
                where = _place(campaign, row.cycle)
                return Found(
                    word="refuse", figure="the drive says that it has no working capacitors", source=where
                )
    unsaid = _unsaid(evidence, lambda row: row.backup_failed)
    if unsaid is not None:
        return unsaid
    said = _after(evidence, lambda row: row.backup_failed)
    return Found(
        word="pass",
        figure=f"the drive reports no failure of it {said}",
        source=_names((one, 0) for one in evidence.campaigns if one.cuts),
    )


@_kind(
    "capacitors",
    "health of the capacitors (OCP log page C0h)",
    Limit(sense="at least", unit="%", high=100),
)
def _capacitors(evidence: DriveEvidence, criterion: Criterion) -> Found:
    return _of_rows(evidence, criterion, lambda row: row.capacitor_percent, _percent)


@_kind(
    "media-errors",
    "media errors that were added since the first check",
    Limit(sense="at most", unit="errors", whole=True),
)
def _media_errors(evidence: DriveEvidence, criterion: Criterion) -> Found:
    known = [
        (int(value), _place(one, cycle))
        for one in sorted(evidence.campaigns, key=lambda one: one.began)
        for cycle, value in _known(one.rows, lambda row: row.media_errors)
    ]
    if not known:
        silent = (
            "no campaign could read the drive's media errors"
            if evidence.campaigns
            else _no_campaign(evidence)
        )
        return Found(word="not shown", figure=silent)
    # Against the most, since a counter may be set back.
    most, where = max(known, key=lambda pair: pair[0])
    found = _held(criterion, most - known[0][0], f"{most - known[0][0]} added, {most} in all", where)
    unsaid = _unsaid(evidence, lambda row: row.media_errors) or _first_unsaid(evidence)
    return found if unsaid is None else _worse(found, unsaid)


def _first_unsaid(evidence: DriveEvidence) -> Found | None:
    """What is missing if nobody read the media errors before the first cut."""
    first = min((one for one in evidence.campaigns if one.cuts), key=lambda one: one.began)
    before = first.cuts[0].cycle
    if any(cycle < before for cycle, _ in _known(first.rows, lambda row: row.media_errors)):
        return None
    source = f"campaign {first.name}"
    return Found(word="not shown", figure=f"nobody read them before the first cut of {source}", source=source)


@_kind("spare", "spare blocks left, as the drive says", Limit(sense="at least", unit="%", high=100))
def _spare(evidence: DriveEvidence, criterion: Criterion) -> Found:
    return _of_rows(evidence, criterion, lambda row: row.spare_percent, _percent)


@_kind("used", "endurance used, as the drive says", Limit(sense="at most", unit="%", high=255))
def _used(evidence: DriveEvidence, criterion: Criterion) -> Found:
    return _of_rows(evidence, criterion, lambda row: row.used_percent, _percent)


# The benchmark.


@_kind("plausible", "a flush does what a flush must, as far as times can tell")
def _plausible(evidence: DriveEvidence, _: Criterion) -> Found:
    if not evidence.results:
        return Found(word="not shown", figure="no result of bench is known")
    proven = next((one for one in evidence.proofs if one.word == "proven"), None)
    if evidence.unanswered("power") is not None:
        proven = None
    worst: Found | None = None
    for one in evidence.results:
        line = bottom_line(one.result)
        if line.honesty == "suspicious":
            found = Found(word="refuse", figure=f"suspicious: {line.honesty_reason}", source=one.name)
        elif line.honesty == "looks honest":
            found = Found(word="pass", figure="looks honest", source=one.name)
        elif proven is not None:
            figure = f"times show nothing; {counted(proven.cuts, 'clean cut')} settle it"
            found = Found(word="pass", figure=figure, source=f"{one.name}, {proven.source}")
        else:
            found = Found(word="not shown", figure=line.honesty_reason, source=one.name)
        worst = _worse(worst, found)
    assert worst is not None
    return worst


@_kind(
    "commit-p99",
    "99th percentile of one writer's commits under a held load",
    Limit(sense="at most", unit="ms", low=0.0001, high=1e6),
)
def _commit_p99(evidence: DriveEvidence, criterion: Criterion) -> Found:
    def figure(result: Result, _: Round) -> float | None:
        p99 = percentiles(one.commit_ns for one in result.rounds_of(HELD_COMMIT.name)).p99
        return None if p99 is None else p99 / 1e6

    return _of_load(evidence, criterion, HELD_COMMIT, figure, lambda value: f"{value:.3g} ms")


@_kind(
    "commit-rate",
    "one writer's commits per second at the end of a held load",
    Limit(sense="at least", unit="commits/s"),
)
def _commit_rate(evidence: DriveEvidence, criterion: Criterion) -> Found:
    return _of_load(evidence, criterion, HELD_COMMIT, _last_third, lambda value: f"{value:,.0f} commits/s")


@_kind(
    "held-share",
    "rate of the last third of a held load, of its first third",
    Limit(sense="at least", unit="%", high=1000),
)
def _held_share(evidence: DriveEvidence, criterion: Criterion) -> Found:
    one = _of_load(evidence, criterion, HELD_COMMIT, _share, _percent)
    many = _of_load(evidence, criterion, HELD_WRITERS, _share, _percent)
    return _worse(one, many)


@_kind(
    "held-for",
    "seconds that one writer's and 16 writers' commits were held, each",
    Limit(sense="at least", unit="s", low=1, high=86_400),
)
def _held_for(evidence: DriveEvidence, criterion: Criterion) -> Found:
    known = [
        (min(seconds), one.name)
        for one in evidence.results
        if one.result.complete
        and all(
            seconds := [
                sum(each.seconds for each in one.result.rounds_of(cell.name))
                for cell in (HELD_COMMIT, HELD_WRITERS)
            ]
        )
    ]
    if not known:
        return Found(word="not shown", figure=_NO_ACCEPT)
    longest, name = max(known)
    figure = f"each held for {longest:,.0f} s"
    found = _held(criterion, longest, figure, name)
    if found.word == "pass":
        return found
    return Found(word="not shown", figure=f"{figure}: more --minutes hold longer", source=name)


@_kind(
    "unsynced-rate",
    "MB/s of 16 writers without a sync at the end of a held load",
    Limit(sense="at least", unit="MB/s"),
)
def _unsynced_rate(evidence: DriveEvidence, criterion: Criterion) -> Found:
    return _of_load(
        evidence, criterion, HELD_UNSYNCED, _bandwidth(HELD_UNSYNCED), lambda value: f"{value:,.0f} MB/s"
    )


@_kind(
    "filled-rate",
    "MB/s after most of the free space was written",
    Limit(sense="at least", unit="MB/s"),
)
def _filled_rate(evidence: DriveEvidence, criterion: Criterion) -> Found:
    found = _of_load(
        evidence, criterion, HELD_FILL, _bandwidth(HELD_FILL), lambda value: f"{value:,.0f} MB/s"
    )
    short = [(one, fill) for one in evidence.results if (fill := filled(one.result)) and not fill.is_most]
    if found.word == "pass" and short:
        one, fill = short[0]
        return Found(word="not shown", figure=f"{found.figure}; {fill.text}", source=one.name)
    return found


@_kind(
    "filled-share",
    "share of the free space that a load has written",
    Limit(sense="at least", unit="%", high=100),
)
def _filled_share(evidence: DriveEvidence, criterion: Criterion) -> Found:
    fills = [
        (one, fill)
        for one in evidence.results
        if one.result.complete and (fill := filled(one.result)) is not None
    ]
    if not fills:
        return Found(word="not shown", figure=_NO_ACCEPT)
    best, fill = max(fills, key=lambda pair: pair[1].share)
    found = _held(criterion, 100 * fill.share, fill.text, best.name)
    return found if found.word == "pass" else Found(word="not shown", figure=fill.text, source=best.name)


def _last_third(result: Result, one: Round) -> float | None:
    third = len(one.bins) // 3
    return None if not third else sum(one.bins[-third:]) / (third * one.bin_s)


def _share(_: Result, one: Round) -> float | None:
    third = len(one.bins) // 3
    first = sum(one.bins[:third])
    return None if not third or not first else 100 * sum(one.bins[-third:]) / first


def _bandwidth(cell: Cell) -> Callable[[Result, Round], float | None]:
    def figure(result: Result, one: Round) -> float | None:
        rate = _last_third(result, one)
        return None if rate is None else rate * cell.block_bytes * max(1, cell.writes_per_sync) / 1e6

    return figure


# What several kinds share.


def _no_campaign(evidence: DriveEvidence) -> str:
    return _NO_CAMPAIGN if not evidence.unfinished else f"{_NO_CAMPAIGN}, but {evidence.unfinished[0]}"


def _no_cut(evidence: DriveEvidence) -> str:
    known = "no cut of this drive is known"
    return known if not evidence.unfinished else f"{known}, but {evidence.unfinished[0]}"


def _of_load(
    evidence: DriveEvidence,
    criterion: Criterion,
    cell: Cell,
    figure: Callable[[Result, Round], float | None],
    text: Callable[[float], str],
) -> Found:
    """The worst figure of a held load over all results that have it."""
    values: list[tuple[float, str]] = []
    lacking: Measured | None = None
    for one in evidence.results:
        for each in one.result.rounds_of(cell.name):
            value = figure(one.result, each)
            if value is None:
                lacking = one
            else:
                values.append((value, one.name))
    if not values:
        why = f"the load of {lacking.name} was too short" if lacking is not None else _NO_ACCEPT
        return Found(word="not shown", figure=why, source="" if lacking is None else lacking.name)
    value, name = _worst(criterion, values)
    found = _held(criterion, value, text(value), name)
    broken_off = next((one for one in evidence.results if not one.result.complete), None)
    if broken_off is None:
        return found
    why = f"{found.figure}; {broken_off.name} was broken off before its end"
    return _worse(found, Found(word="not shown", figure=why, source=broken_off.name))


def _of_rows(
    evidence: DriveEvidence,
    criterion: Criterion,
    figure: Callable[[HealthRow], float | None],
    text: Callable[[float], str],
) -> Found:
    """The worst figure over all cycles of all campaigns."""
    values = [
        (float(value), _place(one, cycle))
        for one in evidence.campaigns
        for cycle, value in _known(one.rows, figure)
    ]
    if not values:
        silent = "the drive did not say in any campaign" if evidence.campaigns else _no_campaign(evidence)
        return Found(word="not shown", figure=silent)
    value, where = _worst(criterion, values)
    found = _held(criterion, value, text(value), where)
    return _worse(found, _unsaid(evidence, figure) or found)


def _unsaid(evidence: DriveEvidence, figure: Callable[[HealthRow], T | None]) -> Found | None:
    """What is missing if a campaign lacks this figure after its last cut, or if there was no cut."""
    cutting = [one for one in evidence.campaigns if one.cuts]
    if not cutting:
        return Found(word="not shown", figure=_NO_CUT if evidence.campaigns else _no_campaign(evidence))
    for campaign in cutting:
        last = campaign.cuts[-1].cycle
        if last not in campaign.after_cuts(figure):
            where = _place(campaign, last)
            silent = not _known(campaign.rows, figure)
            silence = (
                "the drive did not say" if silent else f"the drive did not say after its last cut, {where}"
            )
            return Found(word="not shown", figure=silence, source=where)
    return None


def _after(evidence: DriveEvidence, figure: Callable[[HealthRow], T | None]) -> str:
    """After how many cuts the figure was read, in words."""
    read = sum(len(one.after_cuts(figure)) for one in evidence.campaigns)
    every = sum(len(one.cuts) for one in evidence.campaigns)
    return f"after every cut ({every:,})" if read == every else f"after {read:,} of {counted(every, 'cut')}"


def _place(campaign: CampaignEvidence, cycle: int) -> str:
    return f"cycle {cycle} of campaign {campaign.name}" if cycle else f"check of campaign {campaign.name}"


def _worst(criterion: Criterion, values: Sequence[tuple[float, str]]) -> tuple[float, str]:
    """The value that is farthest on the wrong side of the limit, or nearest to it."""
    limit = KINDS[criterion.kind].limit
    return min(values) if limit is not None and limit.sense == "at least" else max(values)


def _held(criterion: Criterion, value: float, figure: str, source: str) -> Found:
    """The figure against the limit of its criterion."""
    limit = KINDS[criterion.kind].limit
    assert limit is not None and criterion.limit is not None
    kept = value >= criterion.limit if limit.sense == "at least" else value <= criterion.limit
    return Found(word="pass" if kept else "refuse", figure=figure, source=source)


def _warned(evidence: DriveEvidence, code: str) -> Found | None:
    """The refusal for a change that the health of a campaign warns of."""
    for campaign in evidence.campaigns:
        for warning in health_warnings(campaign.rows):
            if warning.code == code:
                where = f"cycle {warning.cycle} of campaign {campaign.name}"
                return Found(word="refuse", figure=warning.text, source=where)
    return None


def _known(rows: Sequence[HealthRow], figure: Callable[[HealthRow], T | None]) -> list[tuple[int, T]]:
    return [(row.cycle, value) for row in rows if (value := figure(row)) is not None]


def _names(campaigns: Iterable[tuple[CampaignEvidence, object]]) -> str:
    return ", ".join(dict.fromkeys(f"campaign {one.name}" for one, _ in campaigns))


def _percent(value: float) -> str:
    return f"{value:.3g} %"


_WORST_FIRST: tuple[Word, ...] = ("refuse", "not shown", "pass")


def _worse(first: Found | None, other: Found) -> Found:
    return other if first is None else min(first, other, key=lambda one: _WORST_FIRST.index(one.word))
