"""A drive's own count of power losses without warning: the one thing on a machine that proves a power cut.

Read with smartctl where it is installed and permitted. Only counters that certainly mean this are taken,
since any other would prove cuts that never were: the NVMe log's Unsafe Shutdowns, and of ATA attributes those
that are in the place and under the name that makers of SSDs document so. Hard disks count retracts of the
heads in 192 (Power-Off_Retract_Count), also when a machine shuts down in good order; POR_Recovery_Count
counts whatever its firmware calls a recovery. Anything doubtful is None: then the operator attests.
"""

from __future__ import annotations

import json
from typing import Any

from durability_client.system.programs import output_of

# Number and smartctl's name of the attribute: Crucial and Micron; Intel and Solidigm, by generation.
_ATA_ATTRIBUTES = frozenset(
    {(174, "Unexpect_Power_Loss_Ct"), (174, "Unsafe_Shutdown_Count"), (192, "Unsafe_Shutdown_Count")}
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
        if isinstance(row, dict) and (row.get("id"), row.get("name")) in _ATA_ATTRIBUTES:
            raw = row.get("raw")
            if isinstance(raw, dict) and isinstance(raw.get("value"), int):
                return int(raw["value"])
    return None
