"""The decision on one screen of 80 by 24: the decision first and last, and the deciding lines between them.

The report page has all lines with their reasons, and the evidence of each. The screen shows as many as fit,
the worst first. Figure and limit of a line are whole: they take as many rows as they need. This module only
renders.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from durability import plain_text
from durability.acceptance.acceptance_document import Report
from durability.acceptance.decision import CriterionLine, Decision, decided_of_all
from durability.acceptance.drive_evidence import DriveEvidence
from durability.acceptance.kinds import WORST_FIRST
from durability.acceptance.profile import DecisionWord
from durability.units import counted, format_size
from durability_client.bench.report.one_screen import wrapped
from durability_client.system.terminal import SCREEN_HEIGHT_MAX, SCREEN_WIDTH_MAX, cut_to

STYLES: dict[DecisionWord, str] = {"pass": "bold green", "refuse": "bold red", "not shown": "bold yellow"}
_WORD, _KIND = 10, 17  # widths of columns
_WHY_ROWS_MAX = 3  # rows of the decision's reason, which is whole beside its criterion
_NAMED_MAX = 3  # results, campaigns and runs in the title
_LEAST_ROWS = 3  # rows for lines of criteria if there is little room


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A line of the screen, in one row or several. `word`: of a criterion or a drive, None for a heading."""

    rows: tuple[Text, ...]
    word: DecisionWord | None


def show_report(report: Report, console: Console) -> None:
    """Print the decision, the titles, as many lines as fit, and the decision again."""
    width = min(console.width, SCREEN_WIDTH_MAX)
    whole = decided_of_all([one.word for one in report.decisions])
    lines = list(_one(report.decisions[0], width) if len(report.decisions) == 1 else _several(report, width))
    why = report.decisions[0].why if len(report.decisions) == 1 else _counts(report.decisions)
    decision, titles = _decision(whole, why, width), list(_titles(report))
    room = SCREEN_HEIGHT_MAX - 2 * len(decision) - len(titles) - 1  # 1: the last sentence
    _print(console, decision)
    for title in titles:
        console.print(_fitted(title, width), style="dim", soft_wrap=True)
    _print(console, _in_room(lines, max(_LEAST_ROWS, room)))
    console.print(_fitted("It shows what these tests saw of this drive, and no more.", width), style="dim")
    _print(console, decision)


def _print(console: Console, rows: Sequence[Text]) -> None:
    for row in rows:
        console.print(row, soft_wrap=True)


def _in_room(lines: Sequence[_Line], room: int) -> list[Text]:
    """The rows of as many lines as fit in `room` rows, each line whole, and a row that counts the others."""
    rows = [row for line in lines for row in line.rows]
    if len(rows) <= room:
        return rows
    shown, taken = 0, 0
    while taken + len(lines[shown].rows) <= room - 1:
        taken += len(lines[shown].rows)
        shown += 1
    if shown and lines[shown - 1].word is None:  # no heading without a line below it
        shown -= 1
    kept = [row for line in lines[:shown] for row in line.rows]
    left_out = [line.word for line in lines[shown:] if line.word is not None]
    counts = ", ".join(f"{left_out.count(word)} {word}" for word in WORST_FIRST if word in left_out)
    return [*kept, Text(f"{len(left_out)} more ({counts}): the report page (-o) has all", style="dim")]


def _titles(report: Report) -> Iterator[str]:
    """The drive and the evidence on it, if there is only one; then the profile, the time and the person."""
    if len(report.decisions) == 1:
        (evidence,) = (decision.evidence for decision in report.decisions)
        subject = evidence.subject
        yield f"{subject.model} · {format_size(subject.size_bytes)} · serial {subject.serial or 'unknown'}"
        yield f"evidence: {_names(evidence)}"
    yield f"profile {report.profile.name} · {report.created[:16].replace('T', ' ')} UTC · by {report.by}"


def _names(evidence: DriveEvidence) -> str:
    """What the lines rest on: results, campaigns and runs, the first of them if there are many."""
    campaigns = (f"campaign {one.name}" for one in (*evidence.campaigns, *evidence.against))
    results = (one.name for one in evidence.results)
    names = list(dict.fromkeys((*results, *campaigns, *(one.source for one in evidence.proofs))))
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return ", ".join(names[:_NAMED_MAX]) + more


def _one(decision: Decision, width: int) -> Iterator[_Line]:
    required = sorted(
        (line for line in decision.lines if line.criterion.required),
        key=lambda line: WORST_FIRST.index(line.word),
    )
    optional = sorted(
        (line for line in decision.lines if not line.criterion.required),
        key=lambda line: WORST_FIRST.index(line.word),
    )
    yield from (_line(line, width) for line in required)
    if optional:
        heading = Text("optional (does not affect the decision):", style="dim")
        yield _Line(rows=(heading,), word=None)
        yield from (_line(line, width) for line in optional)


def _line(line: CriterionLine, width: int) -> _Line:
    style = STYLES[line.word] if line.criterion.required else "dim"
    words = _beside(line.figure, f"({line.limit})" if line.limit else "", width - _WORD - _KIND)
    rows = []
    for number, row in enumerate(words):
        text = Text(f"{'' if number else line.word:<{_WORD}}", style=style)
        text.append(f"{'' if number else line.criterion.kind:<{_KIND}}{row}", style="not bold default")
        rows.append(text)
    return _Line(rows=tuple(rows), word=line.word)


def _beside(figure: str, limit: str, width: int) -> list[str]:
    """Figure and limit in rows of `width` columns. The limit is on a row of its own if it does not fit behind
    the figure."""
    rows = list(wrapped(plain_text.as_line(figure), width))
    if limit and rows and cell_len(f"{rows[-1]} {limit}") <= width:
        rows[-1] += f" {limit}"
    elif limit:
        rows += wrapped(limit, width)
    return rows or [""]


def _several(report: Report, width: int) -> Iterator[_Line]:
    for decision in sorted(report.decisions, key=lambda one: WORST_FIRST.index(one.word)):
        subject = decision.evidence.subject
        words = f"{subject.model} {subject.serial}: {decision.why}"
        rows = _beside_word(decision.word, decision.word, words, width)
        yield _Line(rows=tuple(rows), word=decision.word)


def _counts(decisions: Sequence[Decision]) -> str:
    words = [one.word for one in decisions]
    counts = [f"{words.count(word)} {word}" for word in reversed(WORST_FIRST) if word in words]
    return f"{counted(len(decisions), 'drive')}: {', '.join(counts)}"


def _decision(word: DecisionWord, why: str, width: int) -> list[Text]:
    rows = _beside_word(word.upper(), word, why, width)
    if len(rows) > _WHY_ROWS_MAX:
        del rows[_WHY_ROWS_MAX:]
        last = rows[-1].plain
        rows[-1] = Text(f"{last}…" if cell_len(last) < width else cut_to(f"{last}.", width))
    return rows


def _beside_word(shown: str, word: DecisionWord, why: str, width: int) -> list[Text]:
    """`why` in rows beside the word `shown`, which has the style of `word`."""
    rows = []
    for number, row in enumerate(wrapped(plain_text.as_line(why), width - _WORD)):
        text = Text(f"{'' if number else shown:<{_WORD}}", style=STYLES[word])
        rows.append(text.append(row, style="not bold default"))
    return rows


def _fitted(text: str, width: int) -> Text:
    return Text(cut_to(text, width))
