"""The report page: one sheet for each drive, and a summary before them if there are several.

It is one HTML file that needs nothing else, as the pages of the benchmark. Each sheet prints on one A4 page.
All text is escaped by the templates. Adds nothing to the decision.
"""

from __future__ import annotations

from functools import cache

from jinja2 import Environment

from durability.acceptance.acceptance_document import Report
from durability.acceptance.decision import Decision, decided_of_all
from durability.acceptance.profile import Word
from durability.units import counted, format_size
from durability_client.acceptance.sheet_pictures import pictures
from durability_client.page_templates import page_templates

CLASSES: dict[Word, str] = {"pass": "yes", "not shown": "open", "refuse": "no"}
LINES_THAT_FIT = 38  # of criteria at full size, by estimate
_ASKS, _REASON, _FIGURE, _LIMIT, _SOURCE = 52, 62, 30, 15, 16  # characters in a line of each column
_SCALE_MIN = 0.6


def scale_of(decision: Decision) -> float:
    """How far a sheet is scaled down in print, so that it fits its page."""
    lines = 0
    for line in decision.lines:
        asked = _rows(f"{line.criterion.kind}: {line.asks}", _ASKS) + _rows(line.criterion.reason, _REASON)
        found = (_rows(line.figure, _FIGURE), _rows(line.limit, _LIMIT), _rows(line.source, _SOURCE))
        lines += max(asked, *found)
    lines += len(decision.evidence.campaigns) + len(decision.evidence.results)
    return float(max(_SCALE_MIN, min(1.0, (LINES_THAT_FIT / max(1, lines)) ** 0.6)))


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
                (number, decision, pictures(decision.evidence), f"{scale_of(decision):.2f}")
                for number, decision in enumerate(report.decisions, 1)
            ],
            counts=", ".join(f"{words.count(word)} {word}" for word in CLASSES if word in words),
            drives=counted(len(words), "drive"),
        )
    )


@cache
def _templates() -> Environment:
    return page_templates("durability_client.acceptance", "durability_client.bench.report")
