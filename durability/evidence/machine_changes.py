"""Changes to a machine and its drives between two looks: restarts, power losses and drives attached
elsewhere.

`before` are the facts of an earlier look, for example at arming; `after` are those of a later look. A
function that returns text returns a sentence for people if all drives show the change. "" means that the
change is not shown, not that it did not happen. The counter of an emulated drive is never used as evidence.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from durability.evidence.drive_identity import are_two, machine_ids, own_serial, same_kernel, told_apart
from durability.formats.drive_serials import is_nobodys
from durability.formats.facts import Drive, Facts
from durability.formats.run_statistics import Statistics


def is_another_boot(before: Facts, after: Facts) -> bool:
    """Whether the same machine is in another boot than before."""
    if not before.host.machine_id or before.host.machine_id != after.host.machine_id:
        return False
    return bool(after.host.boot_id) and before.host.boot_id != after.host.boot_id


def counted_power_loss(before: Facts, after: Facts) -> str:
    """A sentence if every leaf drive counted a power loss, else ""."""
    drives = counted_pairs(before, after)
    if not drives or not all(has_risen(then, now) for then, now in drives):
        return ""
    counters = ", ".join(
        f"{then.serial} {then.unsafe_shutdowns} → {now.unsafe_shutdowns}"
        for then, now in drives
        if now is not None
    )
    return f"the unsafe-shutdown counter of every drive rose since the run read it last: {counters}"


def enumerated_anew(before: Facts, after: Facts) -> str:
    """A sentence if each leaf drive was attached anew within one boot, else "". The drives in `after` are
    those below the file system as it is mounted then, so newer drives mean a newer mount as well."""
    drives = _pairs(before, after)
    if not drives or before.host.boot_id != after.host.boot_id or _is_elsewhere(before, after):
        return ""  # another boot enumerates every drive anew; two machines number drives independently
    if not all(_is_reattached(then, now) for then, now in drives):
        return ""
    return "every drive was re-enumerated: " + ", ".join(
        f"{then.name} diskseq {then.diskseq} → {now.diskseq}" for then, now in drives if now is not None
    )


def attached_elsewhere(before: Facts, after: Facts) -> str:
    """A sentence if each leaf drive is attached to another machine than before, else ""."""
    drives = _pairs(before, after)
    if not drives or not _is_elsewhere(before, after):
        return ""
    for then, now in drives:
        if now is None or not own_serial(then, before.host.machine_id):
            return ""  # two machines may give one name to drives of one size
    return "every drive, recognised by its serial number, is attached to another machine than at arming"


def has_changed(before: Facts, after: Facts) -> bool:
    """Whether any of these changes is shown, even for one drive. A drive that is recognised in another boot
    was restarted or attached anew, on whichever machine."""
    if is_another_boot(before, after) or changed_drives(before, after):
        return True
    if not before.host.boot_id or not after.host.boot_id or same_kernel(before.host, after.host):
        return False
    on = machine_ids(before.host, after.host)[0]
    return any(now is not None and own_serial(then, on) for then, now in _pairs(before, after))


def changed_drives(before: Facts, after: Facts) -> list[Drive]:
    """The drives, with all their paths, as found in `after`, that were attached anew within one boot or
    counted a power loss."""
    in_one_boot = before.host.boot_id == after.host.boot_id and not _is_elsewhere(before, after)
    counted = [has_risen(then, now) for then, now in counted_pairs(before, after)]
    changed = [
        paths
        for (then, paths), lost in zip(_with_paths(before, after), counted, strict=True)
        if paths and (lost or (in_one_boot and _is_reattached(then, paths[0])))
    ]
    return [drive for drive in after.drives if any(drive in paths for paths in changed)]


def kept_power(before: Facts, after: Facts) -> bool:
    """Whether all drives are known to be as they were in the boot of `before`. Each has a path that was not
    attached anew, and no drive with a power-loss counter has counted one."""
    return same_kernel(before.host, after.host) and all(
        now is not None
        and now.diskseq is not None
        and then.diskseq is not None
        and now.diskseq <= then.diskseq
        and now.unsafe_shutdowns == then.unsafe_shutdowns
        for then, now in _pairs(before, after)
    )


def are_all_there(before: Facts, after: Facts) -> bool:
    """Whether there are drives in `before`, and all of them are recognised in `after`."""
    pairs = _pairs(before, after)
    return bool(pairs) and all(now is not None for _, now in pairs)


def with_counters_of(after: Facts, before: Facts) -> Facts:
    """`after`, with the counters of `before` for drives whose counters could not be read in `after`."""
    drives = (
        replace(drive, unsafe_shutdowns=then.unsafe_shutdowns)
        if drive.unsafe_shutdowns is None and then is not None
        else drive
        for drive, (_, then) in zip(after.drives, _pairs(after, before), strict=True)
    )
    return replace(after, drives=tuple(drives))


def as_last_counted(armed: Facts, statistics: Statistics | None) -> Facts:
    """The facts at arming, with the counters that the run read last. Power losses counted by then were not
    the cut at the run's end."""
    newest = () if statistics is None else statistics.unsafe_shutdowns
    if len(newest) != len(armed.drives):
        return armed
    drives = (
        drive if count is None else replace(drive, unsafe_shutdowns=count)
        for drive, count in zip(armed.drives, newest, strict=True)
    )
    return replace(armed, drives=tuple(drives))


def counted_pairs(before: Facts, after: Facts) -> list[tuple[Drive, Drive | None]]:
    """Each leaf drive of `before` with the same drive in `after`. None if there is no such drive, or if it
    may be a drive with another counter. All paths to one drive show one count, unless only some of them could
    be read later. So paths with other counts are other drives that nothing else distinguishes."""
    drives = _pairs(before, after)

    def is_one(one: Drive, other: Drive) -> bool:
        return one.unsafe_shutdowns == other.unsafe_shutdowns or (bool(one.wwid) and one.wwid == other.wwid)

    return [
        (then, now if all(is_one(then, other) for other, its in drives if its is now) else None)
        for then, now in drives
    ]


def has_risen(before: Drive, after: Drive | None) -> bool | None:
    """Whether the unsafe-shutdown counter rose. None if the counter proves nothing, for example because it
    went back."""
    if after is None or is_nobodys(before.serial) or before.emulated or after.emulated:
        return None
    then, now = before.unsafe_shutdowns, after.unsafe_shutdowns
    return None if then is None or now is None or now < then else now > then


def _is_reattached(before: Drive, after: Drive | None) -> bool:
    """Whether the drive has a higher enumeration number (diskseq) than before."""
    if after is None or before.diskseq is None or after.diskseq is None:
        return False
    return after.diskseq > before.diskseq


def _pairs(before: Facts, after: Facts) -> list[tuple[Drive, Drive | None]]:
    """Each leaf drive of `before` with the same drive in `after`, None if it is not there. Of several paths
    in `after`, the one that was attached first is used. Of several paths in `before`, the number of the path
    attached last is used. So a drive counts as attached anew only if all its paths were."""
    return [(then, paths[0] if paths else None) for then, paths in _with_paths(before, after)]


def _with_paths(before: Facts, after: Facts) -> list[tuple[Drive, list[Drive]]]:
    """As `_pairs`, with all paths in `after`, oldest first. Drives are matched by serial, else by name and
    size. Whether a drive is emulated is taken from `before` (rule 9)."""
    then_on, now_on = machine_ids(before.host, after.host)
    known = defaultdict[object, list[Drive]](list)
    found = defaultdict[object, list[tuple[Drive, Drive]]](list)
    for drive in before.drives:
        known[_recognised_by(drive, then_on)].append(drive)
    apart = zip(told_apart(before, after).drives, after.drives, strict=True)
    for taken, now in sorted(apart, key=lambda one: _age(one[1])):
        found[_recognised_by(taken, now_on)].append((taken, now))

    def with_paths(then: Drive) -> tuple[Drive, list[Drive]]:
        by = _recognised_by(then, then_on)
        alone = not own_serial(then, then_on)
        newest = max((one for one in known[by] if alone or not are_two(then, one)), key=_age)
        paths = [now for taken, now in found[by] if alone or not are_two(then, taken)]
        return then if then.diskseq is None else replace(then, diskseq=newest.diskseq), paths

    return [with_paths(then) for then in before.drives]


def _recognised_by(drive: Drive, machine_id: str) -> object:
    return own_serial(drive, machine_id) or (drive.name, drive.size_bytes)


def _age(drive: Drive) -> tuple[int, int]:
    return drive.diskseq or 0, drive.unsafe_shutdowns or 0


def _is_elsewhere(before: Facts, after: Facts) -> bool:
    """Whether the facts are of another machine. Containers have machine ids of their own, but the boot id of
    their kernel."""
    return not same_kernel(before.host, after.host) and before.host.machine_id != after.host.machine_id
