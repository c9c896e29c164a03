"""Reads a drive's own counter of power losses, and its health.

Only this counter can prove a power cut on the machine itself. smartctl reads it, if installed and permitted.
Only counters with a certain meaning are used, since others would prove cuts that never happened: Unsafe
Shutdowns of the NVMe log, and ATA attributes with the number and name that makers of SSDs document for it.
Attribute 192 of hard disks (Power-Off_Retract_Count) also counts orderly shutdowns. POR_Recovery_Count counts
whatever the firmware calls a recovery. Doubtful counters are None; then the operator must attest the cut.

Health (`report_of`) is shown and compared between cuts, but no verdict depends on it. The health of the
capacitors is from log page C0h of the Open Compute Project, which `nvme ocp` reads.
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
_NO_CAPACITORS = 0xFFFF  # value in the C0h log: the drive has no power-loss protection
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
    """Counters and health of a drive. Unknown values are None."""

    power_cycles: int | None = None
    unsafe_shutdowns: int | None = None
    media_errors: int | None = None
    spare_percent: int | None = None  # spare blocks left, as in NVMe
    used_percent: int | None = None  # endurance used, as in NVMe; may exceed 100
    # Whether the drive reports broken power-loss protection; None also if it may have no protection.
    backup_failed: bool | None = None
    capacitor_percent: int | None = None  # 100: as when new; 0: no capacitors


def report_of(device: Path) -> SmartReport:
    """The report of the drive `device`. Unknown values are None. May take as long as the tools' deadlines."""
    smart = _document("smartctl", "--json", "-a", str(device))
    ocp = (
        _document("nvme", "ocp", "smart-add-log", str(device), "-o", "json")
        if re.match(r"nvme\d", device.name)
        else None
    )
    return report_in(smart, ocp)


def report_in(smart: Any, ocp: Any) -> SmartReport:
    """The report from the documents of `smartctl --json -a` and `nvme ocp smart-add-log -o json`. Either may
    be None."""
    smart = _mapping(smart)
    log = _mapping(smart.get("nvme_smart_health_information_log"))
    warning = _natural(log.get("critical_warning"))
    media_errors, used = _natural(log.get("media_errors")), _natural(log.get("percentage_used"))
    spare = _natural(log.get("available_spare"))
    capacitors = _capacitors(ocp)
    # On a drive without power-loss protection, a missing warning means nothing.
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
    """The power-loss counter of the drive `device`; None if it cannot be read."""
    return counter_in(_document("smartctl", "--json", "-A", str(device)))


def counter_in(document: Any) -> int | None:
    """The counter in a document of `smartctl --json -A` of an NVMe or ATA drive; None if it has none."""
    if not isinstance(document, dict):
        return None
    log = document.get("nvme_smart_health_information_log")
    if isinstance(log, dict) and log.get("power_cycles") == 0:
        return None  # a software target, such as Linux's nvmet, which counts nothing
    if isinstance(log, dict) and "unsafe_shutdowns" in log:
        return _natural(log["unsafe_shutdowns"])
    attributes = document.get("ata_smart_attributes")
    table = attributes.get("table") if isinstance(attributes, dict) else None
    for row in table if isinstance(table, list) else ():
        if isinstance(row, dict) and (row.get("id"), row.get("name")) in _ATA_ATTRIBUTES:
            return _natural(_mapping(row.get("raw")).get("value"))
    return None


def _capacitors(ocp: Any) -> int | None:
    """Health of the capacitors; releases of nvme-cli call it "Capacitor health" or "capacitor_health"."""
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
