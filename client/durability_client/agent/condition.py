"""Identity and SMART report of a drive, for a status. May take as long as smartctl's deadline."""

from __future__ import annotations

from dataclasses import fields, replace

from durability.campaign.tasks import Condition
from durability.formats.documents import escaped
from durability_client.agent.drives import FoundDrive
from durability_client.system import block_devices, smart
from durability_client.system.smart import SmartReport


def condition_of(found: FoundDrive, *, ready_s: float | None, holds: str = "") -> Condition:
    """The drive's current condition; for `ready_s` and `holds` see `Condition`."""
    drives = [block_devices.drive(leaf) for leaf in found.leaves]
    one = drives[0] if len(drives) == 1 else None
    asked = one is not None and not one.name.startswith("loop")
    report = smart.report_of(block_devices.node_of(one.name)) if one is not None and asked else SmartReport()
    if one is not None and block_devices.is_on_usb(one.name):  # see `block_devices.unsafe_shutdowns_of`
        report = replace(report, unsafe_shutdowns=None)
    return escaped(
        Condition(
            model=" + ".join(drive.model for drive in drives),
            serial=found.serial,
            firmware=" + ".join(drive.firmware for drive in drives),
            size_bytes=found.size_bytes,
            diskseq=found.diskseq,
            emulated=any(drive.emulated for drive in drives),
            ready_s=ready_s,
            holds=holds,
            wwid=" + ".join(filter(None, map(block_devices.wwid_of, found.leaves))),
            **{field.name: getattr(report, field.name) for field in fields(report)},
        )
    )
