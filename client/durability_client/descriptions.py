"""Facts and figures as text: for `device`, for `run` before it writes, and for `show`.

Unknown values are shown as "unknown", never guessed.
"""

from __future__ import annotations

from collections.abc import Iterator

from durability import plain_text
from durability.evidence.flushes import LeafFlushes
from durability.formats.facts import Drive, Facts
from durability.formats.histogram import PERCENTS, supported
from durability.formats.plan import Plan
from durability.formats.run_statistics import Conditions, Statistics
from durability.units import counted, duration, format_size

DEVICE_SCHEMA = "durability.device/1"
VALUES_AT = 13  # the column in which the values of the facts begin


def describe(facts: Facts) -> Iterator[str]:
    """One line per fact, then one per warning."""
    yield _line("target", f"{facts.path} ({facts.kind}, {format_size(facts.size_bytes)})")
    host = facts.host
    yield _line("machine", f"{host.hostname}, {host.kernel}, virtualisation {host.virtualisation}")
    if facts.file_system is not None:
        file_system = facts.file_system
        yield _line(
            "file system", f"{file_system.type} on {file_system.mount_point}, UUID {file_system.uuid or '-'}"
        )
        yield _line("", f"{file_system.block_bytes} byte blocks, mounted {file_system.options}")
    yield _line("layers", " > ".join(facts.layers) or "unknown")
    for drive in facts.drives:
        yield from _drive_lines(drive)
    for warning in facts.warnings:
        yield plain_text.as_line(f"warning: {warning.text} [{warning.code}]")


def describe_commits(plan: Plan, statistics: Statistics) -> Iterator[tuple[str, str]]:
    """Latency and rate of a run's commits (one or more writes and their sync), and the machine's conditions,
    as names and values."""
    latencies = statistics.latencies()
    percentiles = (
        f"p{percent:g} {duration(latencies.percentile(percent))}"
        for percent in PERCENTS
        if supported(len(latencies), percent)
    )
    yield "commits", f"{', '.join((*percentiles, f'max {duration(latencies.max_value)}'))}"
    if statistics.elapsed_s > 0:
        rates = f"{statistics.syncs(plan.group) / statistics.elapsed_s:,.4g} per second"
        if plan.group > 1:
            rates += f", {sum(statistics.operations) / statistics.elapsed_s:,.4g} operations per second"
        yield "rate", f"{rates}, in {statistics.elapsed_s:.1f} s"
    if statistics.conditions is not None:
        yield "processor", _conditions(statistics.conditions)


def _conditions(conditions: Conditions) -> str:
    governor = f", governor {conditions.governor}" if conditions.governor else ""
    known = (
        (conditions.load, "load {:.2f}"),
        (conditions.busy_percent, "{:.0f} % busy"),
        (conditions.steal_percent, "{:.1f} % taken by the host"),
    )
    figures = "".join(f", {words.format(figure)}" for figure, words in known if figure is not None)
    return f"{conditions.cpus} x {conditions.cpu_model or 'unknown'}{governor}{figures}"


def describe_writers(plan: Plan) -> str:
    """Number of writers and slots."""
    slots = counted(plan.slots, plan.contract.noun)
    return f"{counted(plan.writers, 'writer')} of {slots}{' each' if plan.writers > 1 else ''}"


def describe_operations(plan: Plan) -> str:
    """Workload, pattern, record size and sync method."""
    by_name = plan.contract.by_name
    records = f"{'files of ' if by_name else ''}{plan.record_bytes:,} bytes{'' if by_name else ' each'}"
    sync = f"{plan.sync}{' and O_DIRECT' if plan.direct else ''}"
    directory = ", then fsync of the directory" if by_name else ""
    grouped = f", {plan.group} per sync" if plan.group > 1 else ""
    return f"{plan.workload} {plan.pattern}, {records}, {sync}{directory}{grouped}"


def describe_flushes(leaf: LeafFlushes) -> str:
    """The flushes that reached one drive."""
    if leaf.note:
        return f"{leaf.drive.name}: {leaf.note}"
    if leaf.per_sync is None:
        return f"{leaf.drive.name}: no syncs were acknowledged"
    return f"{leaf.drive.name}: {leaf.per_sync:.3g} per sync ({leaf.flushes:,} for {leaf.syncs:,} syncs)"


def _drive_lines(drive: Drive) -> Iterator[str]:
    model = drive.model or "model unknown"
    yield _line(
        "drive", f"{drive.name}: {model}, serial {drive.serial or '?'}, firmware {drive.firmware or '?'}"
    )
    media = {True: "rotating", False: "not rotating", None: "media unknown"}[drive.rotational]
    blocks = f"blocks of {drive.logical_block_bytes}/{drive.physical_block_bytes} bytes (logical/physical)"
    yield _line("", f"{format_size(drive.size_bytes)}, {media}, {blocks}")
    fua = {True: "FUA", False: "no FUA", None: "FUA unknown"}[drive.fua]
    cache = f"write cache: {drive.write_cache or 'unknown'}"
    yield _line("", f"{cache}, {fua}, unsafe shutdowns: {_number(drive.unsafe_shutdowns)}")


def _line(name: str, text: str) -> str:
    return plain_text.as_line(f"{name:<{VALUES_AT - 1}} {text}")


def _number(value: int | None) -> str:
    return "unknown" if value is None else str(value)
