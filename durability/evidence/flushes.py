"""Flushes: how many of them reached each leaf drive while syncs were acknowledged (rule 17).

If a sync sends no flush to the drive, the run tests something else: the power-loss protection that the drive
claims, FUA, or a stack that withholds flushes. This module says which of these it is, and judges nothing. The
counts are the kernel's and include flushes of other programs. The kernel does not count FUA writes.
"""

from __future__ import annotations

from dataclasses import dataclass

from durability.evidence.drive_identity import are_two, own_serial
from durability.formats.facts import Drive, Facts
from durability.formats.plan import WRITE_THROUGH_METHODS, Plan
from durability.formats.run_statistics import Statistics


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafFlushes:
    """Flushes of one leaf drive. Counts are since arming."""

    drive: Drive
    syncs: int | None  # acknowledged syncs, None if unknown
    flushes: int | None  # flushes completed on the drive, None if unknown
    note: str  # what the counts mean; "" if nothing needs explaining

    @property
    def per_sync(self) -> float | None:
        """Flushes per acknowledged sync; None if either count is unknown or nothing was synced."""
        return self.flushes / self.syncs if self.syncs and self.flushes is not None else None

    @property
    def none_sent(self) -> bool:
        """Whether syncs were acknowledged but no flush reached the drive."""
        return bool(self.syncs) and self.flushes == 0


def leaf_flushes(plan: Plan, armed: Facts, statistics: Statistics | None) -> tuple[LeafFlushes, ...]:
    """Flushes of each leaf drive in the facts at arming, in their order. `statistics` None: the run sent
    none. A flush is counted for every path to its drive."""
    syncs = None if statistics is None else statistics.syncs(plan.group)
    counted = {} if statistics is None else {one.name: one.flushes for one in statistics.drives}
    leaves = []
    for drive in armed.drives:
        by_path = [counted.get(path.name) for path in _paths(armed, drive)]
        known = [flushes for flushes in by_path if flushes is not None]
        flushes = sum(known) or None if len(known) < len(by_path) else sum(known)
        note = _note(plan, drive, syncs=syncs, flushes=flushes)
        leaves.append(LeafFlushes(drive=drive, syncs=syncs, flushes=flushes, note=note))
    return tuple(leaves)


def _paths(armed: Facts, drive: Drive) -> list[Drive]:
    """All entries in the facts that are paths to one drive. Two drives in an adapter may have one serial, so
    only the world-wide name distinguishes a path from another drive."""
    own = own_serial(drive, armed.host.machine_id)
    return [
        other
        for other in armed.drives
        if other is drive
        or (
            own
            and own == own_serial(other, armed.host.machine_id)
            and drive.wwid
            and drive.wwid == other.wwid
            and not are_two(drive, other)
            and not are_two(other, drive)
        )
    ]


def _note(plan: Plan, drive: Drive, *, syncs: int | None, flushes: int | None) -> str:
    if syncs is None:
        return "flushes unknown: no statistics of this run arrived"
    if flushes is None:
        return "flushes unknown: this system does not count them, or the drive was re-enumerated"
    if flushes or not syncs:
        return ""
    if drive.write_cache == "write through":
        return (
            "no flush was sent: the drive claims no volatile cache (write through), so the run tests its"
            " power-loss protection"
        )
    # On a device the kernel sends a flush after a write with FUA as well.
    in_place = plan.target_kind == "file" and not plan.contract.by_name
    by_fua = in_place and plan.direct and plan.sync in WRITE_THROUGH_METHODS
    if drive.fua and by_fua:
        return (
            "no flush was sent, as expected: with O_DIRECT and a sync of each write, the kernel uses FUA on"
            " this drive, and it does not count FUA writes"
        )
    return (
        f"no flush was sent, but {syncs:,} syncs were acknowledged: a layer above the drive withholds flushes"
    )
