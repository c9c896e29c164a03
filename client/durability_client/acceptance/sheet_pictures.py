"""The three pictures of a sheet: the cuts, the drive after each cut, and the rate under a sustained load.

Each picture has a text about what it shows, or why there is nothing to show. This module judges nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from durability.acceptance.decision import Decision
from durability.acceptance.drive_evidence import BenchEvidence, CampaignEvidence, DriveEvidence
from durability.bench import figures
from durability.bench.catalogue import HELD_COMMIT, HELD_FILL, HELD_UNSYNCED, HELD_WRITERS
from durability.bench.cells import Cell
from durability.bench.measurement import Round
from durability.campaign.health import HealthRow
from durability.units import counted, percent_at_most
from durability_client.bench.report.charts import Figure
from durability_client.bench.report.scales import Scale, linear_ticks
from durability_client.bench.report.svg import Drawing

_WIDTH, _HEIGHT = 300.0, 132.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 44.0, 6.0, 8.0, 22.0
_GAP = 2.0
_POINTS_MAX = 240


@dataclass(frozen=True, slots=True)
class _Value:
    """A value of a drive's health, with its name and unit."""

    name: str
    unit: str
    of: Callable[[HealthRow], float | None]


_VALUES = (
    _Value("Time until ready", "s", lambda row: row.ready_s),
    _Value("Time to mount", "s", lambda row: row.mount_s),
    _Value("Commit p99", "ms", lambda row: None if row.commit_p99_us is None else row.commit_p99_us / 1000),
)


def pictures(decision: Decision) -> tuple[Figure, Figure, Figure]:
    """The three pictures of one drive."""
    return _cuts(decision), _after_cuts(decision.evidence), _load(decision.evidence)


def _cuts(decision: Decision) -> Figure:
    evidence = decision.evidence
    cycles = [(campaign, one) for campaign in evidence.campaigns for one in campaign.cycles]
    drawing = Drawing(_WIDTH, _HEIGHT)
    if not cycles:
        why = _not_drawn(evidence) or "No campaign has cut this drive's power"
        return _empty(drawing, "Cuts", f"{why}.")
    size, per_row = _grid(len(cycles))
    for number, (_, one) in enumerate(cycles):
        row, column = divmod(number, per_row)
        place = (column * size, row * size)
        drawing.box(place, size - _GAP, size - _GAP, f"cut {one.word}")
        if one.word == "loss":  # recognisable without colours, too
            x, y = place
            end = size - _GAP
            drawing.line((x, y), (x + end, y + end), "cross")
            drawing.line((x + end, y), (x, y + end), "cross")
    words = [one.word for _, one in cycles]
    # The bound is only for cuts under load. The squares, and cuts without an outcome, are of all arms.
    whole = [one.moment for _, one in cycles if one.word in ("durable", "kept")]
    clean = whole.count("load")
    unknown = sum(arm.tally.unknown for one in evidence.campaigns for arm in one.result.arms)
    parts = [
        counted(clean, "clean cut"),
        f"{len(whole) - clean} kept",
        counted(words.count("loss"), "loss", "losses"),
        f"{unknown} with unknown outcome",
        f"{words.count('nothing') - unknown} left out",
    ]
    caption = ", ".join(part for part in parts if not part.startswith("0 ") or part.startswith("0 clean"))
    asked = next((line.criterion for line in decision.lines if line.criterion.kind == "clean-cuts"), None)
    best = None if asked is None else evidence.bounding(asked.cut_class)
    if best is not None and best.bound is not None:
        at_most = f"At most {percent_at_most(best.bound)} of cuts may lose data"
        caption += f". {at_most}" if not evidence.disputed else f". No bound is given: {evidence.disputed}"
    if not_drawn := _not_drawn(evidence):
        caption += f". {not_drawn}"
    return Figure(
        title="Cuts", caption=f"{caption}. A square is a cycle.", svg=drawing.finish("Cuts", caption, "chart")
    )


def _not_drawn(evidence: DriveEvidence) -> str:
    """A sentence without a full stop on evidence of cuts that is not in the picture. "" for none."""
    apart = list(evidence.proofs_apart)
    runs = sum(source.startswith("run ") for source in apart)
    campaigns = len(evidence.against) + len(apart) - runs
    numbers = (
        (campaigns, "campaign that was not named", "campaigns that were not named"),
        (runs, "series of single runs", "series of single runs"),
    )
    shown = " and ".join(counted(number, one, many) for number, one, many in numbers if number)
    return f"Not drawn: {shown}" if shown else ""


def _grid(count: int) -> tuple[float, int]:
    """The side of a square, and the squares per row, so that all squares fit."""
    size = 24.0
    while math.ceil(count / max(1, int(_WIDTH // size))) * size > _HEIGHT:
        size *= 0.94
    return size, max(1, int(_WIDTH // size))


def _after_cuts(evidence: DriveEvidence) -> Figure:
    drawing = Drawing(_WIDTH, _HEIGHT)
    for value in _VALUES:
        series = [(one, known) for one in evidence.campaigns if (known := _known(one, value))]
        if series:
            campaign, points = max(series, key=lambda pair: len(pair[1]))
            _draw(drawing, [number for _, number in points], "cycles", len(points))
            caption = (
                f"{value.name}, cycle by cycle of campaign {campaign.name}:"
                f" {min(n for _, n in points):.3g} to {max(n for _, n in points):.3g} {value.unit}."
            )
            return Figure(
                title=f"After each cut: {value.name.lower()}",
                caption=caption,
                svg=drawing.finish("After each cut", caption, "chart"),
            )
    return _empty(drawing, "After each cut", "No campaign measured how the drive came back.")


def _known(campaign: CampaignEvidence, value: _Value) -> list[tuple[int, float]]:
    return [
        (row.cycle, number) for row in campaign.rows if row.cycle and (number := value.of(row)) is not None
    ]


def _load(evidence: DriveEvidence) -> Figure:
    drawing = Drawing(_WIDTH, _HEIGHT)
    found = _held(evidence.results)
    if found is None:
        return _empty(drawing, "Rate under load", "No result of bench --accept: no load was held for long.")
    measured, cell, one = found
    factor, unit = _unit(cell)
    rates = [count / one.bin_s * factor for count in one.bins]
    seconds = len(rates) * one.bin_s
    _draw(drawing, rates, "seconds", seconds)
    what = "one writer's commits" if cell is HELD_COMMIT else _WHAT[cell.name]
    caption = f"{unit} of {what} over {figures.count(seconds)} s, {measured.name}."
    return Figure(
        title=f"Rate under load, {unit}",
        caption=caption,
        svg=drawing.finish("Rate under load", caption, "chart"),
    )


_WHAT = {
    HELD_COMMIT.name: "one writer's commits",
    HELD_WRITERS.name: "16 writers' commits of 64 KiB",
    HELD_UNSYNCED.name: "16 writers without a sync",
    HELD_FILL.name: "a load that fills the free space",
}


def _held(results: Sequence[BenchEvidence]) -> tuple[BenchEvidence, Cell, Round] | None:
    """The first long round of the newest result that has one: of the filling load, else of commits."""
    for cell in (HELD_FILL, HELD_COMMIT, HELD_WRITERS, HELD_UNSYNCED):
        for measured in results:
            for one in measured.result.rounds_of(cell.name):
                if len(one.bins) > 1 and any(one.bins):
                    return measured, cell, one
    return None


def _unit(cell: Cell) -> tuple[float, str]:
    if cell.name == HELD_COMMIT.name:
        return 1.0, "commits/s"
    return cell.block_bytes * max(1, cell.writes_per_sync) / 1e6, "MB/s"


def _draw(drawing: Drawing, values: Sequence[float], below: str, extent: float) -> None:
    """Draw values as steps from left to right, on a scale from 0 to their maximum."""
    values = _thinned(values)
    high = max(max(values) * 1.1, 1e-6)
    y = Scale(low=0, high=high, start=_HEIGHT - _BOTTOM, end=_TOP)
    for tick in linear_ticks(high, most=3):
        drawing.line((_LEFT, y.at(tick)), (_WIDTH - _RIGHT, y.at(tick)), "grid")
        drawing.text((_LEFT - 5, y.at(tick) + 4), figures.count(tick) if tick else "0", "tick", "end")
    step = (_WIDTH - _LEFT - _RIGHT) / len(values)
    places = []
    for number, value in enumerate(values):
        height = y.at(value)
        places += [(round(_LEFT + number * step, 1), height), (round(_LEFT + (number + 1) * step, 1), height)]
    drawing.path(places, "line s0")
    drawing.line((_LEFT, y.start), (_WIDTH - _RIGHT, y.start), "frame")
    drawing.text((_LEFT, _HEIGHT - 6), "0", "tick", "middle")
    drawing.text((_WIDTH - _RIGHT, _HEIGHT - 6), f"{figures.count(extent)} {below}", "tick", "end")


def _thinned(values: Sequence[float]) -> list[float]:
    """The values reduced to at most `_POINTS_MAX` means, so that the picture of a long load stays small."""
    per = math.ceil(len(values) / _POINTS_MAX)
    groups = [values[at : at + per] for at in range(0, len(values), per)]
    return [sum(group) / len(group) for group in groups]


def _empty(drawing: Drawing, title: str, why: str) -> Figure:
    drawing.box((0.5, 0.5), _WIDTH - 1, _HEIGHT - 1, "nothing-there")
    drawing.text((_WIDTH / 2, _HEIGHT / 2 + 4), "not shown", "axis", "middle")
    return Figure(title=title, caption=why, svg=drawing.finish(title, why, "chart"))
