"""A drive's own count of power losses without warning: the one thing on a machine that proves a power cut.

Read with smartctl where it is installed and permitted. Only counters that mean exactly this are taken:
attributes such as Power-Off_Retract_Count also rise when a machine shuts down in good order, and would prove
cuts that never were. Anything doubtful is None.
"""

from __future__ import annotations

import json
from typing import Any

from durability_client.tools import output_of

_ATA_NAMES = frozenset(
    {
        "Unexpect_Power_Loss_Ct",
        "Unexpected_Power_Loss",
        "Unsafe_Shutdown_Count",
        "Unsafe_Shutdowns",
        "Sudden_Power_Loss_Ct",
        "POR_Recovery_Count",
    }
)


def unsafe_shutdowns(name: str) -> int | None:
    """The counter of the drive with the kernel's name `name`, None where it cannot be read."""
    try:
        return counter_in(json.loads(output_of("smartctl", "--json", "-A", f"/dev/{name}")))
    except ValueError:
        return None


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
        if isinstance(row, dict) and row.get("name") in _ATA_NAMES:
            raw = row.get("raw")
            if isinstance(raw, dict) and isinstance(raw.get("value"), int):
                return int(raw["value"])
    return None
