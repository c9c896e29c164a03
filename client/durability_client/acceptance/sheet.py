"""The report page: one sheet for each drive, after a summary if there are several drives.

The page is one self-contained HTML file, like the pages of the benchmark. Each sheet prints on one A4 page.
The templates escape all text. This module adds nothing to the decision.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from jinja2 import Environment

from durability.acceptance.acceptance_document import Report
from durability.acceptance.decision import Decision, decided_of_all
from durability.acceptance.drive_evidence import BenchEvidence, CampaignEvidence, DriveEvidence, Subject
from durability.acceptance.profile import DecisionWord
from durability.bench.decision.proof import Proof
from durability.units import counted, format_size
from durability_client.acceptance.sheet_pictures import pictures
from durability_client.page_templates import page_templates

CLASSES: dict[DecisionWord, str] = {"pass": "yes", "not shown": "open", "refuse": "no"}
# Measured, with and without reasons: the lines of criteria that fit at full size, and the exponent that gives
# the room gained by smaller type.
_ROOM = {True: (38, 0.6), False: (29, 0.4)}
_ASKS, _REASON, _FIGURE, _LIMIT, _SOURCE = 52, 62, 30, 15, 16  # characters per line in each column
_BELOW = 62  # characters per line in the two columns below the pictures
_WHY = 90  # characters per line beside the stamp
_MODEL, _FACT = 50, 24  # characters per line of the heading, two lines high, and of a fact below it
_USUAL = 5  # lines that every sheet has: limits of the proof, and one line beside the stamp
_LISTED_MAX = 8  # most campaigns, series and results that a sheet lists of each; the JSON has all
_NOT_NAMED = "It was not named and counts only against the drive."
_SCALE_MIN = 0.6
_SCALE_LEGIBLE = 0.9  # a table of 6.8 points


@dataclass(frozen=True, slots=True)
class Print:
    """Layout of a sheet: its `scale`, and whether it shows the criteria's reasons."""

    scale: float
    has_reasons: bool


def print_of(decision: Decision) -> Print:
    """The layout of a sheet. Reasons are left out if the sheet with them would be too small to read."""
    scale = _scale(decision, has_reasons=True)
    if scale >= _SCALE_LEGIBLE:
        return Print(scale, has_reasons=True)
    return Print(_scale(decision, has_reasons=False), has_reasons=False)


def _scale(decision: Decision, *, has_reasons: bool) -> float:
    lines = 0
    for line in decision.lines:
        asked = _rows(f"{line.criterion.kind}: {line.asks}", _ASKS)
        asked += _rows(line.criterion.reason, _REASON) if has_reasons else 0
        found = (_rows(line.figure, _FIGURE), _rows(line.limit, _LIMIT), _rows(line.source, _SOURCE))
        lines += max(asked, *found)
    lines += _below(decision.not_proven) + _below(listed(decision.evidence))
    lines += _rows(decision.why, _WHY) + _of_subject(decision.evidence.subject) - _USUAL
    fitting, power = _ROOM[has_reasons]
    return float(max(_SCALE_MIN, min(1.0, (fitting / max(1, lines)) ** power)))


def _of_subject(subject: Subject) -> int:
    """Additional lines that long names of the drives need."""
    named = (subject.serial, subject.firmware, subject.machine)
    return 2 * (_rows(subject.model, _MODEL) - 1) + max(_rows(one, _FACT) for one in named) - 1


def _rows(text: str, width: int) -> int:
    return -(-len(text) // width)


def _below(texts: Sequence[str]) -> int:
    """Lines that these texts need in two columns, without a break between columns inside a text."""
    rows = [_rows(text, _BELOW) for text in texts]
    return max(-(-sum(rows) // 2), max(rows, default=0))


def listed(evidence: DriveEvidence) -> tuple[str, ...]:
    """The campaigns, series of runs and results, a sentence each; only the first if there are many. Campaigns
    that the user did not name come first: they count against the drive."""
    against = list(map(_campaign, evidence.against))
    runs = []
    for source, proofs in evidence.proofs_apart.items():
        cuts = "; ".join(map(_cuts, proofs))
        if source.startswith("campaign "):
            against.append(f"Campaign {source.removeprefix('campaign ')}: {cuts}.")
        else:
            runs.append(f"Series of {source}: {cuts}.")
    return (
        *_first(
            [*(f"{one} {_NOT_NAMED}" for one in against), *map(_campaign, evidence.campaigns)], "campaign"
        ),
        *_first(runs, "series", "series"),
        *_first(list(map(_result, evidence.results)), "result"),
    )


def _first(sentences: Sequence[str], what: str, plural: str = "") -> Iterator[str]:
    yield from sentences[:_LISTED_MAX]
    if len(sentences) > _LISTED_MAX:
        more = counted(len(sentences) - _LISTED_MAX, f"more {what}", plural and f"more {plural}")
        yield f"{more}: the JSON file beside this page has all."


def _campaign(one: CampaignEvidence) -> str:
    span = f", {one.began[:10]} to {one.ended[:10]}" if one.ended else ""
    return (
        f"Campaign {one.name} ({one.state}): {one.result.cuts} of {one.planned} cuts of class"
        f" {one.cut_class}, {one.result.losses} with a loss, {len(one.result.left_out)} left out{span}."
    )


def _cuts(one: Proof) -> str:
    unknown = f", {one.unknown} with unknown outcome" if one.unknown else ""
    stack = f", {one.but}" if one.but else ""
    return f"{counted(one.cuts, 'cut')} of class {one.cut_class}, {one.losses} with a loss{unknown}{stack}"


def _result(one: BenchEvidence) -> str:
    mode = "" if one.result.mode == "standard" else f" --{one.result.mode}"
    # The reason is in the section about what is not proven.
    stopped = ", broken off" if one.broken_off else ""
    return f"{one.name}: bench{mode} of {one.result.created[:10]}{stopped}, SHA-256 {one.sha256[:16]}…"


def report_page(report: Report, sha256: str) -> str:
    """The page. `sha256`: hash of the JSON document beside it."""
    words = [one.word for one in report.decisions]
    return (
        _templates()
        .get_template("report.html")
        .render(
            report=report,
            sha256=sha256,
            whole=decided_of_all(words),
            classes=CLASSES,
            size=format_size,
            listed=listed,
            sheets=[
                (number, decision, pictures(decision), print_of(decision))
                for number, decision in enumerate(report.decisions, 1)
            ],
            counts=", ".join(f"{words.count(word)} {word}" for word in CLASSES if word in words),
            drives=counted(len(words), "drive"),
        )
    )


@cache
def _templates() -> Environment:
    return page_templates("durability_client.acceptance", "durability_client.bench.report")
