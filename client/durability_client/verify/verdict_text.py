"""The page that `verify` prints: the verdict in the first line, then the reasons and the next steps.

The last line repeats the verdict, with the state of the series, because a terminal may have scrolled the
first line away. The page contains only information of the `--json` document. It lists what the verdict does
not prove, because readers may assume too much. Without a terminal, the page is plain text of 80 columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import TextWrapper
from typing import TextIO, get_args

from rich.text import Text

from durability import plain_text
from durability.evidence.at_risk import LossWindow
from durability.evidence.flushes import leaf_flushes
from durability.evidence.judgement import FindingClass
from durability.evidence.outcome import Outcome
from durability.evidence.scan_report import ScanReport
from durability.evidence.strength import CONFIDENCE
from durability.evidence.verdict import REASONS, VerdictWord
from durability.formats.facts import Facts
from durability.formats.plan import Plan
from durability.units import counted, percent, percent_at_most
from durability_client.descriptions import describe_commits, describe_flushes, describe_operations
from durability_client.system.encrypted_directories import is_encrypted
from durability_client.system.terminal import Terminal
from durability_client.verify.advice import next_steps

_STYLES: Mapping[VerdictWord, str] = {
    "durable": "bold green",
    "loss": "bold red",
    "inconclusive": "bold yellow",
}
_IN_PLACE = frozenset({"ext4", "xfs"})  # file systems that pass an O_DIRECT write to the drive
_POOLED = frozenset({"bcachefs", "btrfs", "zfs"})  # file systems that may themselves keep several copies
_JOURNALED = ("dm integrity", "(bcache)")  # layers that may hold the last writes, or their places, in memory
_OF_ONE_COPY = ("md raid0", "md linear", "dm mpath", "dm part", "dm crypt", "dm integrity")
_EXAMPLES = 4
_WRITERS = 4  # writers whose lost operations are listed
_WIDTH = 80  # a first line that would be longer omits the details of the reason
_WIDTH_MAX = 100  # longer lines are harder to read
_FEW_CUTS = 5  # fewer clean cuts are said to prove little
_COMMAND = re.compile("`[^`]*`")
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


@dataclass(frozen=True, slots=True)
class VerdictSection:
    """A heading and its rows, each with a name or a bullet."""

    title: str
    rows: tuple[tuple[str, str], ...]


def write(outcome: Outcome, out: TextIO) -> None:
    """Print the page of `outcome` on `out`."""
    console = Terminal(file=out, highlight=False, markup=False, emoji=False, soft_wrap=True)
    width = min(console.width, _WIDTH_MAX)
    verdict_lines = TextWrapper(
        width=width, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False
    )
    style = _STYLES[outcome.verdict.word]
    for line in verdict_lines.wrap(plain_text.as_line(first_line(outcome))):
        console.print(Text(line, style=style))
    for section in sections(outcome):
        if section.rows:
            console.print()
            console.print(Text(section.title, style="bold"))
            for line in _lines(section.rows, width):
                console.print(Text(line))
    console.print()
    for line in verdict_lines.wrap(plain_text.as_line(last_line(outcome))):
        console.print(Text(line, style=style))


def first_line(outcome: Outcome) -> str:
    """The verdict in one line, with the details of its first reason if they fit in 80 columns."""
    verdict = outcome.verdict
    if verdict.word == "durable":
        return f"DURABLE{verdict.headline.removeprefix('durable')}"
    first, *others = verdict.reasons
    more = f" (and {counted(len(others), 'more reason')})" if others else ""
    if first.code == "findings":
        return f"LOSS: {_how_much(outcome)}{more}"
    whole = f"{verdict.word.upper()}: {first.text}{more}"
    return whole if len(whole) <= _WIDTH else f"{verdict.word.upper()}: {REASONS[first.code]}{more}"


def last_line(outcome: Outcome) -> str:
    """The verdict again, and the state of the series."""
    verdict = outcome.verdict
    word = verdict.headline if verdict.word == "durable" else verdict.word
    series = _series(outcome) if outcome.case is not None else "unknown without the server's log"
    return f"verdict: {word}; series: {series}"


def sections(outcome: Outcome) -> tuple[VerdictSection, ...]:
    """The page below its first line."""
    return (
        VerdictSection("Why", tuple((_BULLET, text) for text in _why(outcome))),
        VerdictSection("What was checked", tuple(_checked(outcome))),
        VerdictSection(
            "What was lost" if outcome.verdict.by_findings else "Other observations",
            tuple(_lost(outcome)),
        ),
        VerdictSection("What this does not prove", tuple((_BULLET, text) for text in _not_proved(outcome))),
        VerdictSection("Warnings", tuple((_BULLET, warning.text) for warning in outcome.facts.warnings)),
        VerdictSection("What to do next", tuple((_BULLET, text) for text in next_steps(outcome))),
    )


def _how_much(outcome: Outcome) -> str:
    """The number of lost operations, or else of other lost items: prefill, superblocks, removals."""
    report = outcome.report
    if report.operations_lost:
        lost = counted(report.operations_lost, "acknowledged operation")
        return f"{lost} {'is' if report.operations_lost == 1 else 'are'} lost"
    before = []
    if report.prefill_lost:
        before.append(f"the prefill of {counted(report.prefill_lost, outcome.plan.contract.noun)}")
    if report.superblocks_lost:
        before.append(counted(report.superblocks_lost, "superblock copy", "superblock copies"))
    if report.files_back:
        before.append(f"the removal of {counted(report.files_back, 'file')}")
    if report.earlier_names_back:
        before.append(f"the removal of {counted(report.earlier_names_back, 'earlier name')}")
    return f"no acknowledged operation is lost, but {' and '.join(before)}"


def _series(outcome: Outcome) -> str:
    """The state of a series in a few words."""
    series = outcome.verdict.strength
    if not series.is_series and not outcome.armed.drives:
        return "none, since no drive is known below the target"
    if not series.is_series:
        return "none, since a drive reports no serial of its own"
    if not series.cuts:
        state = "no verified cut"
    elif series.losses:
        state = f"{series.losses:,} of {counted(series.cuts, 'cut')} lost data"
    else:
        state = f"{counted(series.cuts, 'cut')}, none lost data"
    return state + (f", {counted(series.left_out, 'run')} may hide a loss" if series.left_out else "")


def _lines(rows: Sequence[tuple[str, str]], width: int) -> Iterator[str]:
    """The rows in two columns, `width` characters wide. Text in backticks is not broken."""
    column = max(len(name) for name, _ in rows)
    indent = " " * (column + 4)
    wrapper = TextWrapper(
        width=width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )
    for name, text in rows:
        wrapper.initial_indent = f"  {name:<{column}}  "
        whole = _COMMAND.sub(
            lambda match: match[0].replace(" ", "\N{NO-BREAK SPACE}"), plain_text.as_line(text)
        )
        yield from (line.replace("\N{NO-BREAK SPACE}", " ") for line in wrapper.wrap(whole))


def _why(outcome: Outcome) -> Iterator[str]:
    verdict = outcome.verdict
    if verdict.word == "durable":
        if outcome.plan.contract.by_name:
            kept = "every name is present or absent as acknowledged, or newer"
        else:
            kept = "every slot holds acknowledged data, or newer data"
        yield kept + _but_damaged(outcome)
    said = first_line(outcome)
    for reason in verdict.reasons:
        if reason.code != "findings" and f": {reason.text}" not in said:
            yield reason.text
    yield from outcome.cut.proof


def _but_damaged(outcome: Outcome) -> str:
    """The exception for damaged slots or names in flight, "" if there are none."""
    damaged, noun = outcome.report.in_flight_damaged, outcome.plan.contract.noun
    if not damaged:
        return ""
    return f", except {counted(damaged, noun)} in flight, which {'is' if damaged == 1 else 'are'} damaged"


def _checked(outcome: Outcome) -> Iterator[tuple[str, str]]:
    plan, report, facts = outcome.plan, outcome.report, outcome.facts
    label = f" ({outcome.case.label})" if outcome.case is not None and outcome.case.label else ""
    yield "run", f"{plan.run:016x}{label}"
    yield "target", facts.path
    if facts.file_system is not None:
        mounts = "" if facts.file_system.mount_point else ", which does not mount"
        yield "file system", f"{facts.file_system.type} on {facts.file_system.source}{mounts}"
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
            f"{counted(sum(outcome.case.frontiers), 'operation')} of {counted(plan.writers, 'writer')}",
        )
    part = "" if report.finished else "; the scan did not finish"
    yield "read", f"{counted(report.checked, plan.contract.noun)} in {outcome.duration_s:.1f} s{part}"
    risk = outcome.at_risk
    if outcome.case is not None:
        yield (
            "at risk",
            f"{counted(risk.ms1, 'record')} within 1 ms of the last moment with power,"
            f" {risk.ms10:,} within 10, {risk.ms100:,} within 100, {risk.ms1000:,} within 1000",
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
    if cut.attested and not any(cut.attested in sentence for sentence in cut.proof):
        return f"{shown}; attested: {cut.attested}"
    return shown


def _in_flight(outcome: Outcome) -> str:
    report = outcome.report
    if not (report.finished or report.in_flight):
        return "unknown, the scan did not come so far"
    slots = counted(report.in_flight, outcome.plan.contract.noun)
    text = f"{slots} may hold operations that were never acknowledged"
    if not report.in_flight_damaged:
        return text
    atomic = min(
        (drive.atomic_write_bytes for drive in outcome.facts.drives if drive.atomic_write_bytes is not None),
        default=None,
    )
    damaged = _of(report.in_flight_damaged, "is damaged", "are damaged", of="them")
    text += f"; {damaged}, which is not a loss"
    in_place = outcome.plan.contract.layout == "region"  # else files may be short: data were never written
    if in_place and atomic is not None and outcome.plan.record_bytes <= atomic:
        text += f", although the drive claims to write {atomic:,} bytes atomically at power failure (AWUPF)"
    return text


def _control(outcome: Outcome) -> str:
    assert outcome.case is not None
    completed, lost = outcome.case.control, outcome.report.control_lost
    never = f"{counted(completed, 'write')} that {'was' if completed == 1 else 'were'} never synced"
    if outcome.identity.moved:
        return f"{never}: not looked for, {outcome.identity.moved}"
    if not outcome.report.finished:  # writes may be missing because the drive went away
        return f"{never}: unknown, the scan did not finish"
    if lost and outcome.verdict.explained:
        what = "this proves nothing, something else than the drive may be why"
    elif lost and outcome.facts.file_system is not None and not outcome.facts.file_system.mount_point:
        what = "their file system does not mount"
    elif lost and (holder := _may_have_held_back(outcome)):
        what = f"{holder} may not have passed them to the drive, so this proves nothing about a cache"
    elif lost:
        what = "a volatile cache below the kernel lost them; nothing was promised for them"
    else:
        what = "this proves nothing, other flushes or power-loss protection may have kept them"
    return f"{lost:,} of {never} {'is' if lost == 1 else 'are'} lost: {what}"


def _may_have_held_back(outcome: Outcome) -> str:
    """Name of the layer that may have kept an O_DIRECT write, or its new place, in memory; "" for none.

    Such layers are the page cache below a loop device, and layers with their own journal. So are file systems
    that do not write in place, or that use the page cache despite O_DIRECT, as ext4 does in two cases.
    """
    loop = next((drive.name for drive in outcome.armed.drives if drive.name.startswith("loop")), "")
    if loop:
        return f"the page cache of the backing file of {loop}"
    layer = next((one for one in outcome.armed.layers if any(map(one.__contains__, _JOURNALED))), "")
    if layer:
        return layer
    file_system = outcome.armed.file_system
    if file_system is None:
        return ""
    buffered = "data=journal" in file_system.options.split(",") or is_encrypted(Path(outcome.facts.path))
    return file_system.type if buffered or file_system.type not in _IN_PLACE else ""


def _lost(outcome: Outcome) -> Iterator[tuple[str, str]]:
    report, window, slot = outcome.report, outcome.window, outcome.plan.contract.noun
    yield from _classes(outcome)
    if report.prefill_lost:
        yield (
            "prefill",
            f"{report.prefill_lost:,} of these held no operation yet, only what `run` had prepared",
        )
    if report.superblocks_lost:
        kinds = ("is a copy of the superblock", "are copies of the superblock")
        yield "superblock", _of(report.superblocks_lost, *kinds)
    if report.files_back:
        kinds = ("is a removed file that is back", "are removed files that are back")
        yield "file", _of(report.files_back, *kinds)
    if report.earlier_names_back:
        kinds = ("is a name of an earlier run that is back", "are names of an earlier run that are back")
        yield "name", _of(report.earlier_names_back, *kinds)
    if outcome.verdict.by_findings:
        yield from _lost_by_writer(report)
    if outcome.verdict.by_findings and window is not None:
        yield "when", f"the oldest of them was acknowledged {_before_the_cut(window)} before the cut"
    if report.order_violations:
        yield (
            "order",
            f"{counted(report.order_violations, slot)} missing a write acknowledged before newer ones found",
        )
    if report.collateral:
        yield "collateral", f"{counted(report.collateral, slot)} in a block shared with a write in flight"
    if report.unstable:
        yield "unstable", f"{counted(report.unstable, slot)} wrong when first read, right when reread"
    for judgement in outcome.findings[:_EXAMPLES]:
        yield "example", judgement.text


def _of(count: int, one: str, several: str, *, of: str = "these") -> str:
    return f"{count:,} of {of} {one if count == 1 else several}"


def _before_the_cut(window: LossWindow) -> str:
    operations = counted(window.operations, "operation")
    if window.ms_max is None:
        return f"at least {window.ms_min:,.1f} ms and at most {operations}"
    return f"{window.ms_min:,.1f} to {window.ms_max:,.1f} ms and {operations}"


def _classes(outcome: Outcome) -> Iterator[tuple[str, str]]:
    """The findings by class, with their number unless the first line already shows it."""
    report = outcome.report
    found = [(name, count) for name in get_args(FindingClass) if (count := report.findings.get(name, 0))]
    said = outcome.verdict.by_findings and [count for _, count in found] == [report.operations_lost]
    place = "place" if report.superblocks_lost or report.files_back else outcome.plan.contract.noun
    for name, count in found:
        left_out = count - report.convicting.get(name, 0)
        which = "" if left_out == count else f"{left_out:,} "
        aside = f"; {which}set aside, since the scan did not finish" if left_out else ""
        meaning = f"{_meaning(name, outcome.plan)}{aside}"
        yield name, meaning if said else f"{counted(count, place)}: {meaning}"


def _lost_by_writer(report: ScanReport) -> Iterator[tuple[str, str]]:
    """The range of lost operations of each writer, for the first few writers."""
    ranges = [
        (
            f"writer {writer}",
            f"the lost operations lie in seq {oldest:,} to seq {newest:,}"
            if oldest != newest
            else f"the lost operation is seq {oldest:,}",
        )
        for writer, (oldest, newest) in enumerate(zip(report.oldest_lost, report.newest_lost, strict=True))
        if oldest is not None
    ]
    yield from ranges[:_WRITERS]
    if len(ranges) > _WRITERS:
        yield "others", f"{counted(len(ranges) - _WRITERS, 'more writer')} lost operations"


def _meaning(name: FindingClass, plan: Plan) -> str:
    torn = "present, but empty, short, or only partly right"
    return torn if plan.contract.by_name and name == "torn" else _MEANINGS[name]


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
    if _may_keep_copies(outcome.facts):
        yield "anything about further copies that the stack may keep, as a mirror does: one copy was read"
    for leaf in leaf_flushes(outcome.plan, outcome.armed, outcome.statistics):
        if leaf.none_sent:
            yield f"that {leaf.drive.name} honours a flush: {leaf.note}"


def _may_keep_copies(facts: Facts) -> bool:
    """Whether the stack may keep a record on several drives. Paths to the same drive count once, and layers
    that keep one copy do not count."""
    drives = {drive.wwid or drive.name for drive in facts.drives}
    pooled = facts.file_system is not None and facts.file_system.type in _POOLED
    layered = any(not kind.startswith(_OF_ONE_COPY) for kind in facts.layer_kinds)
    return len(drives) > 1 and (pooled or layered)


def _strength(outcome: Outcome) -> Iterator[str]:
    series = outcome.verdict.strength
    if not series.cuts:
        return
    if not series.is_series:
        without = (
            "drive without a serial of its own" if outcome.armed.drives else "target without known drives"
        )
        yield f"how rare a loss is: cuts of a {without} do not add up to a series"
    elif series.bound is None:
        yield f"how rare a loss is: {_series(outcome)}"
    elif series.losses == series.cuts:
        yield "that any cut keeps data: every cut of this series lost some"
    elif series.losses or series.cuts >= _FEW_CUTS:
        seen = _series(outcome) if series.losses else counted(series.cuts, "clean cut")
        sure = f"with {percent(CONFIDENCE)} confidence"
        yield f"{seen}: at most {percent_at_most(series.bound)} of cuts lose data, {sure}"
    else:
        little = f"{counted(series.cuts, 'clean cut')} {'proves' if series.cuts == 1 else 'prove'} little"
        yield f"{little}: up to {percent_at_most(series.bound)} of cuts could still lose data"
