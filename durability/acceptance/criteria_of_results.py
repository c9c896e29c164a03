"""Kinds of criteria about results of `bench`: the cost of a commit, whether it lasts, and its plausibility.

Only a complete result passes: a drive that failed during the benchmark ends the measurement too. A drive is
not refused because a measurement was too short: the word is then "not shown".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from durability.acceptance.drive_evidence import BenchEvidence, DriveEvidence
from durability.acceptance.kinds import (
    WORST_FIRST,
    Finding,
    Limit,
    compare_with_limit,
    kind,
    value_text,
    worse_finding,
    worst_value,
)
from durability.acceptance.profile import Criterion
from durability.bench.catalogue import (
    HELD_COMMIT,
    HELD_FILL,
    HELD_UNSYNCED,
    HELD_WRITERS,
    minutes_to_hold,
)
from durability.bench.cells import Cell
from durability.bench.decision.bottom_line import honesty, megabytes, suspected
from durability.bench.decision.proof import outweighs
from durability.bench.filled import filled
from durability.bench.measurement import Round
from durability.bench.plausibility import HEADLINES, plausibility
from durability.bench.summary import merged, percentiles
from durability.formats.histogram import SAMPLES_BEYOND_MIN, FineHistogram
from durability.units import counted, duration, percent

_BEYOND_MAX = 0.01  # largest share of the time that commits may spend beyond the limit of the 99th percentile


@kind("plausible", "a flush does what a flush must, as far as times can tell")
def _plausible(evidence: DriveEvidence, _: Criterion) -> Finding:
    if not evidence.results:
        return Finding(word="not shown", figure="no result of bench is known")
    proven = evidence.bounding("power")
    if proven is not None and proven.word != "proven":
        proven = None
    worst: Finding | None = None
    for one in evidence.results:
        verdict = plausibility(one.result)
        honest, reason = honesty(one.result, verdict)
        code = suspected(one.result, verdict)
        if honest == "looks honest":
            found = Finding(word="pass", figure=honest, source=one.name)
        # Disputed cuts still clear suspicious times (see `outweighs`), but settle nothing else.
        elif proven is not None and (outweighs(proven, code) if code else not evidence.disputed):
            times = f"suspicious by its times ({HEADLINES[code]})" if code else "times show nothing"
            figure = f"{times}; {counted(proven.cuts, 'clean cut')} settle it"
            found = Finding(word="pass", figure=figure, source=f"{one.name}, {proven.source}")
        elif code is not None:
            found = Finding(word="refuse", figure=f"suspicious: {reason}", source=one.name)
        else:
            found = Finding(word="not shown", figure=reason, source=one.name)
        worst = worse_finding(worst, found)
    assert worst is not None
    return _unless_broken_off(evidence, worst)


@kind(
    "commit-p99",
    "99th percentile of one writer's commits under a sustained load",
    Limit(sense="at most", unit="ms", low=0.0001, high=1e6),
)
def _commit_p99(evidence: DriveEvidence, criterion: Criterion) -> Finding:
    known = [
        _commits(one, rounds, criterion)
        for one in evidence.results
        if (rounds := one.result.rounds_of(HELD_COMMIT.name))
    ]
    if not known:
        return _no_load(evidence, HELD_COMMIT)
    found, _ = min(known, key=lambda pair: (WORST_FIRST.index(pair[0].word), -pair[1]))
    return _unless_broken_off(evidence, found)


def _commits(one: BenchEvidence, rounds: Sequence[Round], criterion: Criterion) -> tuple[Finding, float]:
    """The finding on the commits of one result, and their 99th percentile in ms, infinite if unknown.

    A percentile hides long stalls: the only writer waits meanwhile, so a stall is one commit among many. So
    the time that commits took beyond the limit counts too. A commit of 1 s with a limit of 10 ms adds 990 ms.
    Any other commit due in these 990 ms would wait longer than the limit just for this one."""
    if not any(len(each.commit_ns) for each in rounds):
        lacking = Finding(word="not shown", figure=f"{one.name} has no times of its commits", source=one.name)
        return lacking, math.inf
    assert criterion.limit is not None
    taken = percentiles(each.commit_ns for each in rounds)
    stalls, beyond_ns = _beyond(merged(each.commit_ns for each in rounds), criterion.limit * 1e6)
    share = beyond_ns / 1e9 / sum(each.seconds for each in rounds)
    figure = f"longest {duration(taken.most or 0)}"
    if share:
        figure += f", {_share_text(share)} of the time beyond the limit"
    p99_ms = math.inf if taken.p99 is None else taken.p99 / 1e6
    if taken.p99 is None:
        figure = f"no 99th percentile of {counted(taken.samples, 'commit')}, {figure}"
        found = Finding(word="not shown", figure=figure, source=one.name)
    else:
        found = _percentile_held(criterion, taken.p99, figure, one.name)
    if share <= _BEYOND_MAX or found.word == "refuse":
        return found, p99_ms
    if stalls >= SAMPLES_BEYOND_MIN:
        return replace(found, word="refuse"), p99_ms
    # One or two stalls may be chance, so they do not refuse a drive.
    few = f"{found.figure}, by only {counted(stalls, 'commit')}"
    return replace(found, word="not shown", figure=few), p99_ms


def _percentile_held(criterion: Criterion, p99_ns: int, beside: str, source: str) -> Finding:
    """Compare the 99th percentile with the limit. The percentile is the highest value of its bucket, and the
    commits may have taken as little as the lowest value. So a drive is refused only if the lowest value is
    beyond the limit."""
    least_ms, p99_ms = _lowest(p99_ns) / 1e6, p99_ns / 1e6
    found = compare_with_limit(criterion, p99_ms, f"{value_text(criterion, p99_ms)} ms, {beside}", source)
    assert criterion.limit is not None
    if found.word == "pass" or least_ms > criterion.limit:
        return found
    between = f"between {value_text(criterion, least_ms)} and {value_text(criterion, p99_ms)} ms, {beside}"
    return Finding(word="not shown", figure=between, source=source)


def _lowest(value: int) -> int:
    """The lowest value in the histogram bucket of `value`."""
    shift = max(0, value.bit_length() - 1 - FineHistogram.sub_bits)
    return value >> shift << shift


def _beyond(commits: FineHistogram, limit_ns: float) -> tuple[int, float]:
    """The number of commits that surely took longer than the limit, and their total excess in nanoseconds."""
    count, total_ns, before = 0, 0.0, 0
    for highest, up_to in commits.steps():
        # Each commit counts with the lowest value of its bucket, so neither number is too high.
        least = _lowest(highest)
        if least > limit_ns:
            count += up_to - before
            total_ns += (up_to - before) * (least - limit_ns)
        before = up_to
    return count, total_ns


def _share_text(share: float) -> str:
    """The share of time as text, with enough digits to show whether it is too large."""
    fits = share <= _BEYOND_MAX or round(100 * share, 1) > 100 * _BEYOND_MAX
    return percent(share) if fits else f"{100 * share:.4f} %"


@kind(
    "commit-rate",
    "one writer's commits per second at the end of a sustained load",
    Limit(sense="at least", unit="commits/s"),
)
def _commit_rate(evidence: DriveEvidence, criterion: Criterion) -> Finding:
    return _of_load(evidence, criterion, HELD_COMMIT, _last_third, "commits/s", beside=_with_megabytes)


@kind(
    "held-share",
    "rate of the last third of a sustained load, as a share of its first third",
    Limit(sense="at least", unit="%", high=1000),
)
def _held_share(evidence: DriveEvidence, criterion: Criterion) -> Finding:
    def lowest(cell: Cell) -> float:
        every = (_share(each) for one in evidence.results for each in one.result.rounds_of(cell.name))
        return min((share for share in every if share is not None), default=math.inf)

    first, other = (
        _of_load(evidence, criterion, cell, _share, f"% ({counted(cell.jobs, 'writer')})")
        for cell in sorted((HELD_COMMIT, HELD_WRITERS), key=lowest)
    )
    return worse_finding(first, other)  # if both have the same word: the first, whose share is lower


@kind(
    "held-for",
    "seconds of each sustained commit load (one writer, 16 writers)",
    Limit(sense="at least", unit="s", low=1, high=86_400),
)
def _held_for(evidence: DriveEvidence, criterion: Criterion) -> Finding:
    known = [
        (one.result.complete, min(seconds), one)
        for one in evidence.results
        if all(
            seconds := [
                sum(each.seconds for each in one.result.rounds_of(cell.name))
                for cell in (HELD_COMMIT, HELD_WRITERS)
            ]
        )
    ]
    if not known:
        return _no_load(evidence, HELD_COMMIT)
    complete, longest, best = max(known, key=lambda each: each[:2])
    figure = f"each held for {value_text(criterion, longest)} s"
    if not complete:
        return _broken_off(best, figure)
    found = compare_with_limit(criterion, longest, figure, best.name)
    if found.word == "pass":
        return found
    assert criterion.limit is not None
    minutes = minutes_to_hold(HELD_COMMIT, criterion.limit)
    more = f"--minutes {minutes} hold long enough" if minutes else "no --minutes hold so long"
    return Finding(word="not shown", figure=f"{figure}: {more}", source=best.name)


@kind(
    "unsynced-rate",
    "MB/s of 16 writers without a sync at the end of a sustained load",
    Limit(sense="at least", unit="MB/s"),
)
def _unsynced_rate(evidence: DriveEvidence, criterion: Criterion) -> Finding:
    return _of_load(evidence, criterion, HELD_UNSYNCED, _bandwidth(HELD_UNSYNCED), "MB/s")


@kind(
    "filled-rate",
    "MB/s after most of the free space was written",
    Limit(sense="at least", unit="MB/s"),
)
def _filled_rate(evidence: DriveEvidence, criterion: Criterion) -> Finding:
    found = _of_load(evidence, criterion, HELD_FILL, _bandwidth(HELD_FILL), "MB/s")
    short = [(one, fill) for one in evidence.results if (fill := filled(one.result)) and not fill.is_most]
    if found.word == "pass" and short:
        one, fill = short[0]
        return Finding(word="not shown", figure=f"{found.figure}; {fill.text}", source=one.name)
    return found


@kind(
    "filled-share",
    "share of the free space that a load has written",
    Limit(sense="at least", unit="%", high=100),
)
def _filled_share(evidence: DriveEvidence, criterion: Criterion) -> Finding:
    fills = [(one, fill) for one in evidence.results if (fill := filled(one.result)) is not None]
    if not fills:
        return _no_load(evidence, HELD_FILL)
    best, fill = max(fills, key=lambda pair: (pair[0].result.complete, pair[1].share))
    if not best.result.complete:
        return _broken_off(best, fill.text)
    found = compare_with_limit(criterion, 100 * fill.share, fill.text, best.name)
    return found if found.word == "pass" else Finding(word="not shown", figure=fill.text, source=best.name)


def _last_third(one: Round) -> float | None:
    third = len(one.bins) // 3
    return None if not third else sum(one.bins[-third:]) / (third * one.bin_s)


def _share(one: Round) -> float | None:
    third = len(one.bins) // 3
    first = sum(one.bins[:third])
    return None if not third or not first else 100 * sum(one.bins[-third:]) / first


def _with_megabytes(commits_per_s: float) -> str:
    """The bytes that one writer's commits move per second."""
    return f", {megabytes(commits_per_s * HELD_COMMIT.block_bytes)}"


def _bandwidth(cell: Cell) -> Callable[[Round], float | None]:
    def figure(one: Round) -> float | None:
        rate = _last_third(one)
        return None if rate is None else rate * cell.block_bytes * max(1, cell.writes_per_sync) / 1e6

    return figure


def _of_load(
    evidence: DriveEvidence,
    criterion: Criterion,
    cell: Cell,
    figure: Callable[[Round], float | None],
    unit: str,
    *,
    beside: Callable[[float], str] = lambda _: "",
) -> Finding:
    """The worst figure of a sustained load over all results that have it. `beside`: the text that follows a
    figure."""
    values: list[tuple[float, str]] = []
    lacking: BenchEvidence | None = None
    for one in evidence.results:
        for each in one.result.rounds_of(cell.name):
            value = figure(each)
            if value is None:
                lacking = one
            else:
                values.append((value, one.name))
    short = None
    if lacking is not None:
        why = f"the load of {lacking.name} was too short"
        short = Finding(word="not shown", figure=why, source=lacking.name)
    if not values:
        return short or _no_load(evidence, cell)
    value, name = worst_value(criterion, values)
    text = f"{value_text(criterion, value)} {unit}{beside(value)}"
    found = compare_with_limit(criterion, value, text, name)
    # A result without the figure may be the worst one.
    found = worse_finding(found, short or found)
    return _unless_broken_off(evidence, found)


def _no_load(evidence: DriveEvidence, cell: Cell) -> Finding:
    """The finding if no result has this sustained load, with the reason why a result of `bench --accept`
    lacks it."""
    for one in evidence.results:
        for measured in one.result.cells:
            if measured.cell.name == cell.name and not measured.rounds and measured.note:
                figure = f"{one.name} does not have this load: {measured.note}"
                return Finding(word="not shown", figure=figure, source=one.name)
    return Finding(word="not shown", figure="no result of bench --accept has this load")


def _unless_broken_off(evidence: DriveEvidence, found: Finding) -> Finding:
    """The finding, which passes only if no result was broken off."""
    broken_off = next((one for one in evidence.results if not one.result.complete), None)
    return found if broken_off is None else worse_finding(found, _broken_off(broken_off, found.figure))


def _broken_off(one: BenchEvidence, figure: str) -> Finding:
    """The finding for a figure if a result was broken off."""
    why = f"{figure}; {one.name} was broken off before its end"
    return Finding(word="not shown", figure=why, source=one.name)
