"""Facts of a measurement as names and values: target, drives, machine and run.

The page shows them in sections, the terminal in brief above its tables. If a fact is unknown, the page says
"unknown" and the terminal leaves it out; neither guesses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from durability.bench import figures
from durability.bench.result import Medium, Result
from durability.bench.summary import written_bytes
from durability.formats.facts import Drive, MachineLoad
from durability.units import counted, format_size

UNKNOWN = "unknown"
_SHARE_MIN = 0.01  # share of the drives' size; smaller amounts cause no noticeable wear
Row: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading, and names with their values."""

    title: str
    rows: tuple[Row, ...]


def sections(result: Result) -> tuple[Section, ...]:
    """All facts of a result, without its figures."""
    media = {medium.name: medium for medium in result.media}
    return (
        Section(title="Target", rows=tuple(_target(result))),
        *(
            Section(title=f"Drive {drive.name}", rows=tuple(_drive(drive, media.get(drive.name))))
            for drive in result.facts.drives
        ),
        Section(title="Machine", rows=tuple(_machine(result))),
        Section(title="Run", rows=tuple(_run(result))),
    )


def in_brief(result: Result) -> Iterator[Row]:
    """The facts that a reader of the figures needs, a line each: target, drives, machine, load and run."""
    facts, media = result.facts, {medium.name: medium for medium in result.media}
    target, machine, run = dict(_target(result)), dict(_machine(result)), dict(_run(result))
    target["mounted"] = target.get("mounted", UNKNOWN).replace(",", ", ")  # so that lines can end there
    yield "target", _known(target, {"path": "{}", "file system": "{}", "mounted": "mounted {}"})
    for drive in facts.drives:
        told = _known(dict(_drive(drive, media.get(drive.name))), _OF_A_DRIVE)
        yield "drive", f"{drive.name}: {told}"
    yield "processor", _known(machine, _OF_A_PROCESSOR)
    yield "system", _known(machine, {"kernel": "{}", "virtualisation": "virtualisation {}"})
    moments = (_changed(*moment) for moment in before_and_after(result))
    yield "before/after", "; ".join(filter(None, moments)) or UNKNOWN
    yield "run", f"{run['mode']}, {format_size(result.size_bytes)}, seed {run['seed']}, {run['begun']}"
    yield "written", run["written"]


_OF_A_PROCESSOR: Mapping[str, str] = MappingProxyType(
    {"processor": "{}", "governor": "governor {}", "memory": "{} of memory"}
)
_OF_A_DRIVE: Mapping[str, str] = MappingProxyType(
    {
        "model": "{}",
        "firmware": "firmware {}",
        "size": "{}",
        "media": "{}",
        "write cache": "write cache {}",
        "FUA": "FUA {}",
    }
)


def _known(rows: Mapping[str, str], texts: Mapping[str, str]) -> str:
    """The known values of `rows`, formatted by `texts`."""
    return ", ".join(
        text.format(rows[name]) for name, text in texts.items() if rows.get(name, UNKNOWN) != UNKNOWN
    )


def _changed(name: str, before: str, after: str) -> str:
    if UNKNOWN not in (before, after):
        return f"{name} {before}, then {after}" if before != after else f"{name} {before}"
    known = {before: "before", after: "after"}
    return next((f"{name} {value} {when}" for value, when in known.items() if value != UNKNOWN), "")


def _target(result: Result) -> Iterator[Row]:
    facts = result.facts
    yield "path", f"{facts.path} ({facts.kind})"
    if facts.file_system is not None:
        found = facts.file_system
        yield "file system", f"{found.type} on {found.mount_point}, blocks of {found.block_bytes:,} bytes"
        yield "mounted", found.options
    yield "layers", " > ".join(facts.layers) or UNKNOWN
    yield "size measured", f"{format_size(result.size_bytes)}, shared by the jobs of a cell"


def _drive(drive: Drive, medium: Medium | None) -> Iterator[Row]:
    yield "model", drive.model or UNKNOWN
    yield "serial", drive.serial or UNKNOWN
    yield "firmware", drive.firmware or UNKNOWN
    yield "size", format_size(drive.size_bytes)
    rpm = f", {medium.rpm:,} turns per minute" if medium is not None and medium.rpm else ""
    yield "media", {True: "rotating", False: "not rotating", None: UNKNOWN}[drive.rotational] + rpm
    yield "write cache", drive.write_cache or UNKNOWN
    yield "FUA", {True: "yes", False: "no", None: UNKNOWN}[drive.fua]
    yield "blocks", f"{drive.logical_block_bytes:,} logical, {drive.physical_block_bytes:,} physical"
    yield "link", _link(medium)
    if drive.emulated:
        yield "emulated", "yes: its counters and caches say nothing about hardware"


def _link(medium: Medium | None) -> str:
    if medium is None or medium.link_bytes_per_s is None:
        return UNKNOWN
    return f"{medium.link}, {medium.link_bytes_per_s / 1e9:.3g} GB/s"


def _machine(result: Result) -> Iterator[Row]:
    host, machine = result.facts.host, result.machine
    yield "name", host.hostname or UNKNOWN
    yield "kernel", host.kernel
    yield "virtualisation", host.virtualisation
    yield "processor", f"{machine.cpus} x {machine.cpu_model or UNKNOWN}"
    yield "governor", machine.governor or "none"
    yield "memory", format_size(machine.memory_bytes)


def _run(result: Result) -> Iterator[Row]:
    planned = sum(one.cell.rounds for one in result.cells)
    yield "mode", result.mode + (f", profile {result.profile}" if result.profile else "")
    yield "begun", result.created
    yield "took", f"{result.duration_s:.0f} s"
    yield "written", _written(result)
    yield "rounds", f"{len(result.order)} of {planned} in {counted(len(result.cells), 'cell')}"
    if not result.complete:
        yield "stopped", result.stopped or "the reason is unknown"
    yield "seed", f"{result.seed}"
    yield "software", result.software
    yield "serials", result.serials


def _written(result: Result) -> str:
    written, sizes = written_bytes(result), [drive.size_bytes for drive in result.facts.drives]
    told = f"{format_size(written)} in the rounds"
    if not sizes or 0 in sizes or written < _SHARE_MIN * sum(sizes):
        return told
    drives = "its drive" if len(sizes) == 1 else "its drives together"
    return f"{told}, {figures.count(written / sum(sizes))} times the size of {drives}"


def before_and_after(result: Result) -> tuple[tuple[str, str, str], ...]:
    """The machine's load before and after the run: names and both values."""
    before, after = (_machine_load(moment) for moment in (result.before, result.after))
    return tuple((name, before[name], after[name]) for name in before)


def _machine_load(moment: MachineLoad | None) -> dict[str, str]:
    if moment is None:
        return dict.fromkeys(_machine_load(_NOTHING), UNKNOWN)
    fill = UNKNOWN
    if moment.used_bytes is not None and moment.size_bytes:
        fill = f"{format_size(moment.used_bytes)} of {format_size(moment.size_bytes)}"
    return {
        "load average": UNKNOWN if moment.load is None else f"{moment.load:.2f}",
        "processors busy": _percent(moment.busy_percent),
        "taken by the host": _percent(moment.steal_percent),
        "file system used": fill,
    }


_NOTHING = MachineLoad(
    load=None, busy_percent=None, steal_percent=None, used_bytes=None, size_bytes=None, reserved_bytes=None
)


def _percent(percent: float | None) -> str:
    return UNKNOWN if percent is None else f"{percent:.1f} %"
