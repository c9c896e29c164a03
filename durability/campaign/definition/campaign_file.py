"""The campaign file: reads settings from TOML.

Every key is checked. The error for an unknown key names the nearest known key, and the error for a wrong type
names the expected type. This module takes text and reads no files.
"""

from __future__ import annotations

import re
from typing import Any, get_args

from durability.campaign.definition.settings import (
    Arm,
    CutMoment,
    CutSubject,
    DriveUnderTest,
    FileSystem,
    Power,
    PowerKind,
    Settings,
    StopAt,
    check,
    default_arms,
)
from durability.errors import UsageError
from durability.formats.case import PROVABLE_CUT_CLASSES
from durability.formats.plan import Pattern, SyncMethod
from durability.formats.toml_tables import Table, read_tables
from durability.formats.workloads.registry import DEFAULT
from durability.limits import GROUP_MAX, WRITERS_MAX

CUTS = 59  # 59 cuts without a loss bound the probability of a loss per cut at 5 %
CUT_AFTER_S = (5.0, 90.0)
OFF_S = (10.0, 40.0)
BOOT_WITHIN_S = 900.0
READY_WITHIN_S = 120.0
REQUEST_TIMEOUT_S = 60.0
IDLE_S = 10.0
_SEED_MAX = (1 << 62) - 1
_SWITCHES: tuple[PowerKind, ...] = ("fence", "tasmota", "shelly")


def read_campaign(text: str, *, name: str, seed: int) -> Settings:
    """The settings in a campaign file. `name`, `seed`: used if the file has none. Raises UsageError."""
    top = read_tables(text, "the campaign file")
    campaign, power, drives, arms = (
        top.table("campaign"),
        top.tables("power"),
        top.tables("drive"),
        top.tables("arm"),
    )
    top.end()
    machines = campaign.texts("machines") or (campaign.text("machine", ""),)
    cut_after_s = campaign.interval("cut_after_s", CUT_AFTER_S)
    off_s = campaign.interval("off_s", OFF_S)
    tested = tuple(_drive(table, machines, number) for number, table in enumerate(drives, 1))
    defaults = _arm(Table("[[arm]]", {}), 0, cut_after_s, off_s)
    settings = Settings(
        name=campaign.text("name", name),
        machines=machines,
        cuts=campaign.whole("cuts", CUTS, most=1 << 31),
        stop_at=campaign.choice("stop_at", get_args(StopAt), "loss"),
        seed=campaign.whole("seed", seed, most=_SEED_MAX),
        cut_after_s=cut_after_s,
        off_s=off_s,
        boot_within_s=campaign.number("boot_within_s", BOOT_WITHIN_S),
        ready_within_s=campaign.number("ready_within_s", READY_WITHIN_S),
        subject=_agreed(power, "cuts", get_args(CutSubject), "machine"),
        cut_class=_agreed(power, "cut_class", PROVABLE_CUT_CLASSES, ""),
        notify=campaign.text("notify", ""),
        power=tuple(_power(table) for table in power),
        drives=tested,
        arms=tuple(_arm(table, number, cut_after_s, off_s) for number, table in enumerate(arms, 1))
        or default_arms(defaults, names_too=not any(drive.is_raw for drive in tested)),
    )
    campaign.end()
    return check(settings)


def _agreed(tables: tuple[Table, ...], key: str, choices: tuple[str, ...], default: str) -> Any:
    """The value of a key that must be the same for all switches. Raises UsageError."""
    said = {table.choice(key, choices, "") for table in tables} - {""}
    if len(said) > 1:
        raise UsageError(f"[[power]] {key} differs: {', '.join(sorted(said))}; all switches cut together")
    if not said and not default and tables:
        raise UsageError(
            f'[power] {key} is missing: "power" if the drives lose their power, "vm" for a guest or a rented'
            ' machine, "os" if the drives keep their power'
        )
    return next(iter(said), default)


def _power(table: Table) -> Power:
    kinds = [kind for kind in _SWITCHES if kind in table]
    commands = [key for key in ("on", "off", "status") if key in table]
    if len(kinds) + bool(commands) != 1:
        raise UsageError(
            f"{table.name} needs one of: fence, tasmota, shelly, or the three commands on, off and status"
        )
    kind: PowerKind = kinds[0] if kinds else "commands"
    agent = table.text(kind, "") if kinds else ""
    timeout_s, machine, machines = (
        table.number("timeout_s", REQUEST_TIMEOUT_S),
        table.text("machine", ""),
        table.texts("machines"),
    )
    if machine and machines:
        raise UsageError(f"{table.name} has machine and machines: remove one")
    return Power(
        kind=kind,
        agent=agent,
        options=table.rest(),
        timeout_s=timeout_s,
        machine=machine or " ".join(machines),
    )


def _drive(table: Table, machines: tuple[str, ...], number: int) -> DriveUnderTest:
    device, target = table.text("device", ""), table.text("target", "")
    # Names in /dev/disk/by-path have colons, but the name of a drive must not have any.
    last = (device or target).rstrip("/").rpartition("/")[2]
    known = re.sub(r"[^A-Za-z0-9._-]", "-", last).lstrip("._-") or f"drive-{number}"
    drive = DriveUnderTest(
        name=table.text("name", known[:63]),
        machine=table.text("machine", machines[0] if len(machines) == 1 else ""),
        device=device,
        file_system=table.choice("file_system", get_args(FileSystem), ""),
        mount_options=table.text("mount_options", ""),
        target=target,
        size=table.text("size", ""),
    )
    table.end()
    return drive


def _arm(table: Table, number: int, cut_after_s: tuple[float, float], off_s: tuple[float, float]) -> Arm:
    again = table.interval("again_after_s", (0.0, 0.0))
    sync = table.choice("sync", get_args(SyncMethod), "")
    arm = Arm(
        name=table.text("name", f"arm-{number}"),
        workload=table.text("workload", DEFAULT),
        writers=table.whole("writers", 1, most=WRITERS_MAX),
        sync=sync or None,
        direct=table.flag("direct"),
        group=table.whole("group", 1, most=GROUP_MAX),
        record_size=table.text("record_size", ""),
        pattern=table.choice("pattern", get_args(Pattern), "random"),
        moment=table.choice("moment", get_args(CutMoment), "load"),
        cut_after_s=table.interval("cut_after_s", cut_after_s),
        off_s=table.interval("off_s", off_s),
        again_after_s=again if "again_after_s" in table else None,
        idle_s=table.number("idle_s", IDLE_S),
    )
    table.end()
    return arm
