"""The report page: one sheet for each drive, and a summary before them if there are several.

It is one HTML file that needs nothing else, as the pages of the benchmark. Each sheet prints on one A4 page.
All text is escaped by the templates. Adds nothing to the decision.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from jinja2 import Environment

from durability.acceptance.acceptance_document import Report
from durability.acceptance.decision import Decision, decided_of_all
from durability.acceptance.profile import DecisionWord
from durability.units import counted, format_size
from durability_client.acceptance.sheet_pictures import pictures
from durability_client.page_templates import page_templates

CLASSES: dict[DecisionWord, str] = {"pass": "yes", "not shown": "open", "refuse": "no"}
# By measurement, with and without reasons: how many lines of criteria fit at full size, and a power that says
# how fast smaller type makes room for more.
_ROOM = {True: (38, 0.6), False: (31, 0.4)}
_ASKS, _REASON, _FIGURE, _LIMIT, _SOURCE = 52, 62, 30, 15, 16  # characters in a line of each column
_SCALE_MIN = 0.6
_SCALE_LEGIBLE = 0.9  # a table of 6.8 points


@dataclass(frozen=True, slots=True)
class Print:
    """How a sheet fits its page: `scale`, and whether it has the criteria's reasons."""

    scale: float
    has_reasons: bool


def print_of(decision: Decision) -> Print:
    """The reasons are left out where a sheet that has them would be too small to read."""
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
    lines += len(decision.evidence.campaigns) + len(decision.evidence.results)
    fitting, power = _ROOM[has_reasons]
    return float(max(_SCALE_MIN, min(1.0, (fitting / max(1, lines)) ** power)))


def _rows(text: str, width: int) -> int:
    return -(-len(text) // width)


def report_page(report: Report, sha256: str) -> str:
    """The page; `sha256` is that of the document beside it."""
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
