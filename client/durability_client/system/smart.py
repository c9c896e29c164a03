"""What a drive says of itself: its count of power losses without warning, and its health.

That count is the one thing on a machine that proves a power cut. It is read with smartctl where that is
installed and permitted. Only counters that certainly mean this are taken, since any other would prove cuts
that never were: the NVMe log's Unsafe Shutdowns, and of ATA attributes those that are in the place and under
the name that makers of SSDs document so. Hard disks count retracts of the heads in 192
(Power-Off_Retract_Count), also when a machine shuts down in good order; POR_Recovery_Count counts whatever
its firmware calls a recovery. Anything doubtful is None: then the operator attests.

Health (`report_of`) is shown and compared between cuts; no verdict depends on it. Of the log page C0h of the
Open Compute Project, which `nvme ocp` reads, the health of the capacitors is taken.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from durability_client.system.programs import output_of

# Number and smartctl's name of the attribute: Crucial and Micron; Intel and Solidigm, by generation.
_ATA_ATTRIBUTES = frozenset(
    {(174, "Unexpect_Power_Loss_Ct"), (174, "Unsafe_Shutdown_Count"), (192, "Unsafe_Shutdown_Count")}
)
_BACKUP_FAILED = 0x10  # bit of the NVMe log's Critical Warning
_NO_CAPACITORS = 0xFFFF  # of the C0h log: the drive has no power-loss protection
_COUNT_MAX = 1 << 62
_MEDIA_ERRORS = ((187, "Reported_Uncorrect"), (198, "Offline_Uncorrectable"))
# Attributes whose normalised value falls from 100 as the drive is used up.
_LEFT = (
    (202, "Percent_Lifetime_Remain"),
    (231, "SSD_Life_Left"),
    (233, "Media_Wearout_Indicator"),
    (177, "Wear_Leveling_Count"),
)
_SPARE = (232, "Available_Reservd_Space")
_CAPACITOR_TEST = (175, "Power_Loss_Cap_Test")


@dataclass(frozen=True, slots=True, kw_only=True)
class SmartReport:
    """Counters and health of a drive, None where it does not say. `spare_percent` and `used_percent` are as
    NVMe has them: spare blocks left, and endurance used, which may exceed 100. `backup_failed`: whether
    the drive says that its power-loss protection is broken, None also where nothing shows that it has one.
    `capacitor_percent`: 100 is what left the factory, 0 that there are none."""

    power_cycles: int | None = None
    unsafe_shutdowns: int | None = None
    media_errors: int | None = None
    spare_percent: int | None = None
    used_percent: int | None = None
    backup_failed: bool | None = None
    capacitor_percent: int | None = None


def report_of(device: Path) -> SmartReport:
    """What the drive `device` says; each None where it cannot be asked. May take as long as a tool's
    deadline."""
    smart = _document("smartctl", "--json", "-a", str(device))
    ocp = (
        _document("nvme", "ocp", "smart-add-log", str(device), "-o", "json")
        if re.match(r"nvme\d", device.name)
        else None
    )
    return report_in(smart, ocp)


def report_in(smart: Any, ocp: Any) -> SmartReport:
    """The report in a document of `smartctl --json -a`, and in one of `nvme ocp smart-add-log -o json`; None
    for either that there is not."""
    smart = _mapping(smart)
    log = _mapping(smart.get("nvme_smart_health_information_log"))
    warning = _natural(log.get("critical_warning"))
    media_errors, used = _natural(log.get("media_errors")), _natural(log.get("percentage_used"))
    spare = _natural(log.get("available_spare"))
    capacitors = _capacitors(ocp)
    # A warning that is not raised says nothing on a drive that has nothing to warn of.
    failed = True if (warning or 0) & _BACKUP_FAILED else None
    if failed is None and warning is not None and capacitors:
        failed = False
    if not log:
        media_errors = _first(
            _natural(_mapping(row.get("raw")).get("value")) for row in _rows(smart, *_MEDIA_ERRORS)
        )
        used = _natural(_mapping(smart.get("endurance_used")).get("current_percent"))
        if used is None:
            left = _first(_natural(row.get("value")) for row in _rows(smart, *_LEFT))
            used = None if left is None else max(0, 100 - left)
        spare = _natural(_mapping(smart.get("spare_available")).get("current_percent"))
        if spare is None:
            spare = _first(_natural(row.get("value")) for row in _rows(smart, _SPARE))
        failed = _first(row.get("when_failed") == "now" for row in _rows(smart, _CAPACITOR_TEST))
    return SmartReport(
        power_cycles=_natural(smart.get("power_cycle_count")),
        unsafe_shutdowns=counter_in(smart),
        media_errors=media_errors,
        spare_percent=spare,
        used_percent=used,
        backup_failed=failed,
        capacitor_percent=capacitors,
    )


def unsafe_shutdowns(device: Path) -> int | None:
    """The counter of the drive `device`, None where it cannot be read."""
    return counter_in(_document("smartctl", "--json", "-A", str(device)))


def counter_in(document: Any) -> int | None:
    """The counter in a document of `smartctl --json -A`, of an NVMe or ATA drive; None where it has none."""
    if not isinstance(document, dict):
        return None
    log = document.get("nvme_smart_health_information_log")
    if isinstance(log, dict) and isinstance(log.get("unsafe_shutdowns"), int):
        return int(log["unsafe_shutdowns"])
    attributes = document.get("ata_smart_attributes")
    table = attributes.get("table") if isinstance(attributes, dict) else None
    for row in table if isinstance(table, list) else ():
        if isinstance(row, dict) and (row.get("id"), row.get("name")) in _ATA_ATTRIBUTES:
            raw = row.get("raw")
            if isinstance(raw, dict) and isinstance(raw.get("value"), int):
                return int(raw["value"])
    return None


def _capacitors(ocp: Any) -> int | None:
    """Releases of nvme-cli name the field "Capacitor health" or "capacitor_health"."""
    for key, value in _mapping(ocp).items():
        if re.sub(r"[^a-z]+", "_", key.lower()) == "capacitor_health":
            percent = _natural(value)
            return 0 if percent == _NO_CAPACITORS else percent
    return None


def _document(*command: str) -> Any:
    try:
        return json.loads(output_of(*command))
    except (ValueError, RecursionError):
        return None


def _rows(smart: dict[str, Any], *wanted: tuple[int, str]) -> Iterator[dict[str, Any]]:
    """The rows of the ATA attributes `wanted`, in their order."""
    table = _mapping(smart.get("ata_smart_attributes")).get("table")
    rows = [_mapping(row) for row in table] if isinstance(table, list) else []
    for one in wanted:
        yield from (row for row in rows if (row.get("id"), row.get("name")) == one)


def _first(values: Iterator[Any]) -> Any:
    return next(values, None)


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _natural(value: Any) -> int | None:
    known = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _COUNT_MAX
    return int(value) if known else None
