"""The decision on one screen of 80 by 24: the decision first and last, and the deciding lines between them.

The report page has all lines with their reasons. The screen shows as many as fit, the worst first. This
module only renders.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from durability.acceptance.acceptance_document import Report
from durability.acceptance.decision import CriterionLine, Decision, decided_of_all
from durability.acceptance.kinds import WORST_FIRST
from durability.acceptance.profile import DecisionWord
from durability.units import counted, format_size
from durability_client.system.terminal import SCREEN_HEIGHT_MAX, SCREEN_WIDTH_MAX, cut_to

STYLES: dict[DecisionWord, str] = {"pass": "bold green", "refuse": "bold red", "not shown": "bold yellow"}
_WORD, _KIND = 10, 17  # widths of columns


def show_report(report: Report, console: Console) -> None:
    """Print the decision, the titles, as many lines as fit, and the decision again."""
    width = min(console.width, SCREEN_WIDTH_MAX)
    whole = decided_of_all([one.word for one in report.decisions])
    rows = _one(report.decisions[0], width) if len(report.decisions) == 1 else _several(report, width)
    lines = list(rows)
    room = SCREEN_HEIGHT_MAX - 5
    if len(lines) > room:
        hidden = len(lines) - room + 1
        lines = [*lines[: room - 1], Text(f"{hidden} more: the report has all lines", style="dim")]
    why = report.decisions[0].why if len(report.decisions) == 1 else _counts(report.decisions)
    console.print(_decision(whole, why, width), soft_wrap=True)
    for title in _titles(report):
        console.print(_fitted(title, width), style="dim", soft_wrap=True)
    for line in lines:
        console.print(line, soft_wrap=True)
    console.print(_fitted("It shows what these tests saw of this drive, and no more.", width), style="dim")
    console.print(_decision(whole, why, width), soft_wrap=True)


def _titles(report: Report) -> Iterator[str]:
    """The drive, if there is only one; then the profile, the time and the person."""
    if len(report.decisions) == 1:
        subject = report.decisions[0].evidence.subject
        yield f"{subject.model} · {format_size(subject.size_bytes)} · serial {subject.serial or 'unknown'}"
    yield f"profile {report.profile.name} · {report.created[:16].replace('T', ' ')} UTC · by {report.by}"


def _one(decision: Decision, width: int) -> Iterator[Text]:
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
        yield Text("optional (does not affect the decision):", style="dim")
        yield from (_line(line, width) for line in optional)


def _line(line: CriterionLine, width: int) -> Text:
    limit = f" ({line.limit})" if line.limit else ""
    figure = f"{line.figure}{limit}"
    text = Text(f"{line.word:<{_WORD}}", style=STYLES[line.word] if line.criterion.required else "dim")
    text.append(f"{line.criterion.kind:<{_KIND}}", style="not bold default")
    text.append(cut_to(figure, width - _WORD - _KIND), style="not bold default")
    return text


def _several(report: Report, width: int) -> Iterator[Text]:
    for decision in sorted(report.decisions, key=lambda one: WORST_FIRST.index(one.word)):
        subject = decision.evidence.subject
        text = Text(f"{decision.word:<{_WORD}}", style=STYLES[decision.word])
        drive = f"{subject.model} {subject.serial}"
        text.append(cut_to(f"{drive}: {decision.why}", width - _WORD), style="not bold default")
        yield text


def _counts(decisions: Sequence[Decision]) -> str:
    words = [one.word for one in decisions]
    counts = [f"{words.count(word)} {word}" for word in reversed(WORST_FIRST) if word in words]
    return f"{counted(len(decisions), 'drive')}: {', '.join(counts)}"


def _decision(word: DecisionWord, why: str, width: int) -> Text:
    text = Text(f"{word.upper():<{_WORD}}", style=STYLES[word])
    text.append(cut_to(why, width - _WORD), style="not bold default")
    return text


def _fitted(text: str, width: int) -> Text:
    return Text(cut_to(text, width))
