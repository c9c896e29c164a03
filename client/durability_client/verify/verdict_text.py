"""The page that `verify` prints: the verdict in the first line, then the reasons and what to do next.

It says nothing that the document of `--json` does not hold. It also says what the verdict does not prove,
because a reader may take it to prove more. Without a terminal it is plain text of 80 columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import TextWrapper
from typing import TextIO, get_args

from rich.text import Text

from durability.evidence.document import Outcome
from durability.evidence.flushes import leaf_flushes
from durability.evidence.judgement import FindingClass
from durability.evidence.strength import CONFIDENCE
from durability.evidence.verdict import REASONS, Word, convicting
from durability.formats.plan import Plan
from durability.units import counted
from durability_client.descriptions import describe_commits, describe_flushes, describe_operations
from durability_client.system.terminal import Terminal

_STYLES: Mapping[Word, str] = {"durable": "bold green", "loss": "bold red", "inconclusive": "bold yellow"}
_EXAMPLES = 4
_WIDTH_MAX = 100  # longer lines are harder to read
_BULLET = "-"

_MEANINGS: Mapping[FindingClass, str] = {
    "lost": "an older version, the prefill or an earlier run's data",
    "torn": "partly older, or partly missing",
    "corrupt": "data that were never written there",
    "misdirected": "intact data that belong elsewhere",
    "foreign": "a record of something else",
    "unreadable": "an I/O error on both reads",
    "truncated": "the file or device ends before this place",
    "absent": "the name is gone",
    "stale": "the name holds an older version",
    "resurrected": "a removed name is back",
}

# What to do about each reason of a verdict that is not a loss.
ADVICE: Mapping[str, str] = {
    "no-server-log": "verify with the server that has the log of this run, or with an export of it",
    "loss-withdrawn": "look in the kernel's log for I/O errors of this drive, and find out why they came",
    "not-armed": "run again, and cut only after records are acknowledged",
    "superseded": "verify the later run; this run can no longer be judged",
    "tainted": "run again, with only one client for the run",
    "log-behind": "check if the server's store was restored from a copy; if not, report a defect of the tool",
    "drive-changed": "verify on the drives that lost power, not on a copy",
    "session-stopped": "run again, and cut the power while the run writes; do not stop it first",
    "session-closed": "cut the power of the machine; do not end the client or its connection",
    "session-client-error": "look up the failure with `durability show`, and run again",
    "session-server-down": "run again, and keep the server up until after the cut",
    "session-live": "run again, and keep the server up until the client falls silent",
    "cut-not-shown": "if you cut the power, say so: --attest-cut TEXT",
    "cut-class": "cut the power of the drive itself, or require a weaker class: --require-cut",
    "attestation-contradicted": "check that this drive lost power, and that it did so after the run began",
    "scan-unfinished": "verify again; a drive that does not answer cannot be judged",
    "nothing-checked": "run again, and write for longer before the cut",
    "nothing-at-risk": "run again, and cut while records are acknowledged and the server is reachable",
    "unstable": "test the memory and cables of this machine, and run again",
    "earlier-unstable": "test the memory and cables of this machine, and run again",
    "too-few-cuts": "run, cut and verify again on the same target, with the same options",
    "series-has-loss": "look at the cut with the loss: `durability runs` lists the runs",
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
        # The copies of the superblock may be among the findings; they are not slots.
        wrong = min(sum(convicting(report).values()), report.checked)
        if outcome.plan.contract.layout == "names":
            return f"LOSS: {wrong:,} of {report.checked:,} names are not as acknowledged"
        return f"LOSS: {wrong:,} of {report.checked:,} slots do not hold acknowledged data"
    more = f" (and {counted(len(others), 'more reason')})" if others else ""
    return f"{verdict.word.upper()}: {REASONS[first]}{more}"


def sections(outcome: Outcome) -> tuple[Section, ...]:
    """The page below its first line."""
    return (
        Section("Why", tuple((_BULLET, text) for text in _why(outcome))),
        Section("What was checked", tuple(_checked(outcome))),
        Section(
            "What was lost" if outcome.verdict.word == "loss" else "Other observations",
            tuple(_lost(outcome)),
        ),
        Section("What this does not prove", tuple((_BULLET, text) for text in _not_proved(outcome))),
        Section("Warnings", tuple((_BULLET, warning.text) for warning in outcome.facts.warnings)),
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
            yield f"{checked} names are present or absent as acknowledged, or newer"
        else:
            yield f"{checked} slots hold acknowledged data, or newer data"
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
    part = "" if report.finished else "; the scan did not finish"
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
    """Latency of the syncs, and the flushes that reached each drive, as the client last reported."""
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
    text = f"{slots} may hold operations that were never acknowledged"
    if not report.in_flight_damaged:
        return text
    atomic = min(
        (drive.atomic_write_bytes for drive in outcome.facts.drives if drive.atomic_write_bytes is not None),
        default=None,
    )
    text += f"; {report.in_flight_damaged:,} of them are damaged, which is not a loss"
    if atomic is not None and outcome.plan.record_bytes <= atomic:
        text += f", although the drive claims to write {atomic:,} bytes atomically at power failure (AWUPF)"
    return text


def _control(outcome: Outcome) -> str:
    assert outcome.case is not None
    completed, lost = outcome.case.control, outcome.report.control_lost
    if lost:
        what = "a volatile cache below the kernel lost them; nothing was promised for them"
    else:
        what = "this proves nothing, since other flushes, write-through or power-loss protection keep them"
    return f"{lost:,} of {completed:,} writes that were never synced are lost: {what}"


def _lost(outcome: Outcome) -> Iterator[tuple[str, str]]:
    report, window, slot = outcome.report, outcome.window, outcome.plan.contract.noun
    for name in get_args(FindingClass):
        if count := report.findings.get(name, 0):
            aside = "" if name in convicting(report) else "; set aside, since the scan did not finish"
            yield name, f"{counted(count, slot)}: {_meaning(name, outcome.plan)}{aside}"
    for writer, (oldest, newest) in enumerate(zip(report.oldest_lost, report.newest_lost, strict=True)):
        if oldest is not None:
            yield f"writer {writer}", f"lost operations are between seq {oldest:,} and seq {newest:,}"
    if window is not None:
        yield (
            "when",
            f"the oldest lost write was acknowledged {window.ms_min:,.1f} to {window.ms_max:,.1f} ms before"
            f" the cut, {counted(window.operations, 'operation')} earlier",
        )
    if report.order_violations:
        yield (
            "order",
            f"{counted(report.order_violations, slot)} missing a write acknowledged before newer ones found",
        )
    if report.collateral:
        yield "collateral", f"{counted(report.collateral, slot)} in a block shared with a write in flight"
    if report.unstable:
        yield "unstable", f"{counted(report.unstable, slot)} wrong when first read, right when reread"
    for example in [one for one in outcome.examples if one.is_finding][:_EXAMPLES]:
        yield "example", example.judgement.text


def _meaning(name: FindingClass, plan: Plan) -> str:
    torn = "present, but empty, short, or only partly right"
    return torn if plan.contract.layout == "names" and name == "torn" else _MEANINGS[name]


def _not_proved(outcome: Outcome) -> Iterator[str]:
    verdict, cut = outcome.verdict, outcome.cut
    if verdict.word == "loss":
        below = ", ".join(outcome.facts.layers) or "the drive"
        yield f"which layer lost the data: the verdict covers {below} and the kernel above"
        if cut.cut_class == "none":
            yield "that a power cut caused the loss: the evidence does not show a cut"
        return
    if cut.cut_class in ("os", "vm"):
        yield "that data survive a loss of the drive's power: the drive may have had power throughout"
    yield from _strength(outcome)
    if verdict.word == "durable":
        yield "anything about another firmware, file system, mount option or sync call"
        if outcome.plan.writers > 1:
            yield (
                "that a single writer is as safe: several writers flush for each other, which can hide an"
                " ignored flush"
            )
    if len(outcome.facts.drives) > 1:
        yield "anything about the copies of a mirror that were not read: one copy was read"
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
            f"how rare a loss is: {seen} in {counted(series.cuts, 'cut')} of this series, but"
            f" {counted(series.left_out, 'run')} of the series not verified may hide one"
        )
    else:
        yield (
            f"that fewer than {series.bound:.1%} of cuts lose data: {seen} in"
            f" {counted(series.cuts, 'cut')} of this series ({CONFIDENCE:.0%} confidence, one-sided)"
        )


def _next(outcome: Outcome) -> Iterator[str]:
    verdict, run = outcome.verdict, f"{outcome.plan.run:016x}"
    if verdict.word == "loss":
        if outcome.case is not None:
            yield f"look at the run: `durability show {run}`; save it: `durability export {run} -o FILE`"
        yield "do not trust this stack with data that must survive power loss; verify wrote nothing to it"
        yield "to find the layer, test with fewer layers: the raw device, --direct, --sync dsync, one writer"
    elif verdict.word == "durable":
        yield from (ADVICE[reason.code] for reason in verdict.reasons)
        yield (
            "cut again: 10 cuts without loss bound the probability of a loss at 26 % per cut, 30 at 9.5 %, 59"
            " at 5 % (--min-cuts N requires that many)"
        )
        yield "also test a single writer, and --direct --sync dsync: flush and FUA are different paths"
    else:
        for code in dict.fromkeys(reason.code for reason in verdict.reasons):
            yield ADVICE[code]
