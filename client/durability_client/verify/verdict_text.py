"""The page that a person reads after a verify: the verdict in the first line, then why, and what follows
from it.

It says nothing that the document of `--json` does not hold, and it says what the verdict does not prove,
because that is where people are misled. Without a terminal it is plain text of 80 columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import TextWrapper
from typing import TextIO, get_args

from rich.text import Text

from durability.evidence.flushes import leaf_flushes
from durability.evidence.judgement import FindingClass
from durability.evidence.strength import CONFIDENCE
from durability.evidence.verdict import REASONS, Word
from durability.formats.plan import Plan
from durability.units import counted
from durability_client.descriptions import describe_commits, describe_flushes, describe_operations
from durability_client.system.terminal import Terminal
from durability_client.verify.outcome import Outcome

_STYLES: Mapping[Word, str] = {"durable": "bold green", "loss": "bold red", "inconclusive": "bold yellow"}
_EXAMPLES = 4
_WIDTH_MAX = 100  # longer lines are harder to read
_BULLET = "-"

_MEANINGS: Mapping[FindingClass, str] = {
    "lost": "an older version, the prefill or an earlier run's data",
    "torn": "part of it older, or missing",
    "corrupt": "nothing that was ever written there",
    "misdirected": "intact, but belongs elsewhere",
    "foreign": "a record of something else",
    "unreadable": "an I/O error, twice",
    "truncated": "the file or device ends before it",
    "absent": "the name is gone",
    "stale": "the name holds an older version",
    "resurrected": "a removed name is back",
}

# What to do about each reason why a verdict is not `durable`.
ADVICE: Mapping[str, str] = {
    "no-server-log": "verify with the server, or an export, that has the log of this run",
    "not-armed": "run again, and cut only once records are being acknowledged",
    "superseded": "verify the later run; this one can no longer be judged",
    "tainted": "run again with one client for the run",
    "log-behind": "check that the server's store was not restored from a copy; if it was not, report this",
    "drive-changed": "verify on the drives that were cut, not on a copy",
    "session-stopped": "run again and cut the power while it runs, without stopping it first",
    "session-closed": "cut the power of the machine, not the client or its connection",
    "session-client-error": "see `durability show` for what failed in the client, and run again",
    "session-server-down": "keep the server up until after the cut, and run again",
    "session-live": "run again; the server must see the client fall silent",
    "cut-not-shown": "if you cut the power, say how: --attest-cut TEXT",
    "cut-class": "cut the power of the drive itself, or ask for less: --require-cut",
    "attestation-contradicted": "check that the power of this very drive was cut, after the run began",
    "scan-unfinished": "verify again; a drive that never answers must be replaced before it can be judged",
    "nothing-checked": "run again for longer before the cut",
    "nothing-at-risk": "cut while records are being acknowledged, with the server within reach",
    "unstable": "test memory and cables of this machine, then make another run",
    "earlier-unstable": "test memory and cables of this machine, then make another run",
    "too-few-cuts": "run, cut and verify again, on the same target with the same options",
    "series-has-loss": "look at the loss: `durability runs` lists the series",
    "series-incomplete": "verify the other cuts of the series",
}


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and its rows, each with a name or a bullet."""

    title: str
    rows: tuple[tuple[str, str], ...]


def write(outcome: Outcome, out: TextIO) -> None:
    """Print the page of `outcome` on `out`."""
    console = Terminal(file=out, highlight=False, markup=False, emoji=False, soft_wrap=True)
    console.print(Text(first_line(outcome), style=_STYLES[outcome.verdict.word]))
    width = min(console.width, _WIDTH_MAX)
    for section in sections(outcome):
        if section.rows:
            console.print()
            console.print(Text(section.title, style="bold"))
            for line in _lines(section.rows, width):
                console.print(Text(line))


def first_line(outcome: Outcome) -> str:
    """The verdict in one line."""
    verdict, report = outcome.verdict, outcome.report
    if verdict.word == "durable":
        return f"DURABLE{verdict.headline.removeprefix('durable')}"
    first, *others = (reason.code for reason in verdict.reasons)
    if first == "findings":
        # The copies of the superblock may be among the findings; they are no slots.
        wrong = min(sum(report.findings.values()), report.checked)
        if outcome.plan.contract.layout == "names":
            return f"LOSS: {wrong:,} of {report.checked:,} names are not as was acknowledged"
        return f"LOSS: {wrong:,} of {report.checked:,} slots do not hold what was acknowledged"
    more = f" (and {counted(len(others), 'more reason')})" if others else ""
    return f"{verdict.word.upper()}: {REASONS[first]}{more}"


def sections(outcome: Outcome) -> tuple[Section, ...]:
    """The page below its first line."""
    return (
        Section("Why", tuple((_BULLET, text) for text in _why(outcome))),
        Section("What was checked", tuple(_checked(outcome))),
        Section(
            "What was lost" if outcome.verdict.word == "loss" else "What was found, and does not count",
            tuple(_lost(outcome)),
        ),
        Section("What this does not prove", tuple((_BULLET, text) for text in _not_proved(outcome))),
        Section("Mind", tuple((_BULLET, warning.text) for warning in outcome.facts.warnings)),
        Section("What to do next", tuple((_BULLET, text) for text in _next(outcome))),
    )


def _lines(rows: Sequence[tuple[str, str]], width: int) -> Iterator[str]:
    """The rows in two columns, `width` characters wide."""
    column = max(len(name) for name, _ in rows)
    indent = " " * (column + 4)
    wrapper = TextWrapper(width=width, subsequent_indent=indent, break_on_hyphens=False)
    for name, text in rows:
        wrapper.initial_indent = f"  {name:<{column}}  "
        yield from wrapper.wrap(text)


def _why(outcome: Outcome) -> Iterator[str]:
    verdict = outcome.verdict
    if verdict.word == "durable":
        checked = f"all of {outcome.report.checked:,}"
        if outcome.plan.contract.layout == "names":
            yield f"{checked} names are as was acknowledged, there or gone, or newer"
        else:
            yield f"{checked} slots hold what was acknowledged, or something newer"
    yield from (reason.text for reason in verdict.reasons)
    yield from outcome.cut.proof


def _checked(outcome: Outcome) -> Iterator[tuple[str, str]]:
    plan, report, facts = outcome.plan, outcome.report, outcome.facts
    label = f" ({outcome.case.label})" if outcome.case is not None and outcome.case.label else ""
    yield "run", f"{plan.run:016x}{label}"
    yield "target", facts.path
    if facts.file_system is not None:
        yield "file system", f"{facts.file_system.type} on {facts.file_system.source}"
    for drive in outcome.armed.drives:
        name = f"{drive.model or drive.name}, serial {drive.serial or 'unknown'}"
        firmware = f", firmware {drive.firmware}" if drive.firmware else ""
        yield "drive", f"{name}{firmware}"
    yield "writes", describe_operations(plan)
    yield from _syncs(outcome)
    yield "cut", _cut(outcome)
    if outcome.case is not None:
        yield (
            "acknowledged",
            f"{sum(outcome.case.frontiers):,} operations of {counted(plan.writers, 'writer')}",
        )
    part = "" if report.finished else "; the scan was not finished"
    yield "read", f"{report.checked:,} {plan.contract.noun}s in {outcome.duration_s:.1f} s{part}"
    risk = outcome.at_risk
    yield (
        "at risk",
        f"{counted(risk.ms1, 'record')} within 1 ms of the last acknowledgement, {risk.ms10:,} within 10,"
        f" {risk.ms100:,} within 100, {risk.ms1000:,} within 1000",
    )
    yield "in flight", _in_flight(outcome)
    if plan.control_slots and outcome.case is not None:
        yield "control arm", _control(outcome)


def _syncs(outcome: Outcome) -> Iterator[tuple[str, str]]:
    """What the syncs cost and what of them reached each drive, as the client last said."""
    if outcome.statistics is not None:
        yield from describe_commits(outcome.plan, outcome.statistics)
    for leaf in leaf_flushes(outcome.plan, outcome.armed, outcome.statistics):
        yield "flushes", describe_flushes(leaf)


def _cut(outcome: Outcome) -> str:
    cut = outcome.cut
    words = {"none": "not shown", "os": "of the operating system", "vm": "of the virtual machine"}
    shown = words.get(cut.cut_class, "of the drive's power")
    return f"{shown}; attested: {cut.attested}" if cut.attested else shown


def _in_flight(outcome: Outcome) -> str:
    report = outcome.report
    slots = f"{report.in_flight:,} {outcome.plan.contract.noun}s"
    text = f"{slots} may show operations that were never acknowledged"
    if not report.in_flight_damaged:
        return text
    atomic = min(
        (drive.atomic_write_bytes for drive in outcome.facts.drives if drive.atomic_write_bytes is not None),
        default=None,
    )
    text += f"; {report.in_flight_damaged:,} of them are damaged, which is not loss"
    if atomic is not None and outcome.plan.record_bytes <= atomic:
        text += f", though the drive promises to write {atomic:,} bytes whole at power failure (AWUPF)"
    return text


def _control(outcome: Outcome) -> str:
    assert outcome.case is not None
    completed, lost = outcome.case.control, outcome.report.control_lost
    if lost:
        what = "a volatile cache below the kernel lost data that nobody had synced, as it may"
    else:
        what = "which shows nothing: others' flushes, write-through or power-loss protection keep it too"
    return f"{lost:,} lost of {completed:,} writes that were never synced; {what}"


def _lost(outcome: Outcome) -> Iterator[tuple[str, str]]:
    report, window, slot = outcome.report, outcome.window, outcome.plan.contract.noun
    for name in get_args(FindingClass):
        if count := report.findings.get(name, 0):
            yield name, f"{counted(count, slot)}: {_meaning(name, outcome.plan)}"
    for writer, (oldest, newest) in enumerate(zip(report.oldest_lost, report.newest_lost, strict=True)):
        if oldest is not None:
            yield f"writer {writer}", f"lost operations lie between seq {oldest:,} and seq {newest:,}"
    if window is not None:
        yield (
            "when",
            f"the oldest of it was acknowledged {window.ms_min:,.1f} to {window.ms_max:,.1f} ms before the"
            f" cut, {counted(window.operations, 'operation')} back",
        )
    if report.order_violations:
        yield (
            "order",
            f"{counted(report.order_violations, slot)} without what newer writes on the target rest on",
        )
    if report.collateral:
        yield "collateral", f"{counted(report.collateral, slot)} in a block with a write that was in flight"
    if report.unstable:
        yield "unstable", f"{counted(report.unstable, slot)} wrong once and right when read again"
    for example in [one for one in outcome.examples if one.is_finding][:_EXAMPLES]:
        yield "example", example.judgement.text


def _meaning(name: FindingClass, plan: Plan) -> str:
    torn = "there, but empty, short, or right only in part"
    return torn if plan.contract.layout == "names" and name == "torn" else _MEANINGS[name]


def _not_proved(outcome: Outcome) -> Iterator[str]:
    verdict, cut = outcome.verdict, outcome.cut
    if verdict.word == "loss":
        below = ", ".join(outcome.facts.layers) or "the drive"
        yield f"which layer lost the data: the verdict is on all of {below} and the kernel above it"
        if cut.cut_class == "none":
            yield "that a power cut did it: nothing shows a cut"
        return
    if cut.cut_class in ("os", "vm"):
        yield "that the data survive a loss of the drive's power: the drive may have kept it throughout"
    yield from _strength(outcome)
    if verdict.word == "durable":
        yield "anything about other firmware, file systems, mount options or sync calls than those above"
        if outcome.plan.writers > 1:
            yield (
                "that a single writer is as safe: many writers flush for each other and can mask a flush"
                " that does nothing"
            )
    if len(outcome.facts.drives) > 1:
        yield "anything about copies that were not read: of a mirror, one copy was"
    for leaf in leaf_flushes(outcome.plan, outcome.armed, outcome.statistics):
        if leaf.none_sent:
            yield f"that {leaf.drive.name} honours a flush: {leaf.note}"


def _strength(outcome: Outcome) -> Iterator[str]:
    series = outcome.verdict.strength
    if not series.cuts:
        return
    seen = "no loss" if not series.losses else counted(series.losses, "loss", "losses")
    if series.bound is None:
        yield (
            f"how rare a loss is: {seen} seen in {counted(series.cuts, 'cut')} of this series, but"
            f" {counted(series.left_out, 'run')} of it were never verified and may hide one"
        )
    else:
        yield (
            f"that a loss is rarer than {series.bound:.1%} of cuts: {seen} seen in"
            f" {counted(series.cuts, 'cut')} of this series ({CONFIDENCE:.0%} confidence, one-sided)"
        )


def _next(outcome: Outcome) -> Iterator[str]:
    verdict, run = outcome.verdict, f"{outcome.plan.run:016x}"
    if verdict.word == "loss":
        if outcome.case is not None:
            yield f"look at it whole: `durability show {run}`; keep it: `durability export {run}`"
        yield "do not trust this stack with data that must survive; verify has written nothing to the target"
        yield "to find the layer, repeat with less of it: the raw device, --direct, --sync dsync, one writer"
    elif verdict.word == "durable":
        yield (
            "cut again: 10 cuts without loss bound the loss of a cut at 26 %, 30 at 9.5 %, 59 at 5 %"
            " (--min-cuts N asks for them)"
        )
        yield "also try a single writer, and --direct --sync dsync: flush and FUA are different paths"
    else:
        for code in dict.fromkeys(reason.code for reason in verdict.reasons):
            yield ADVICE[code]
