"""Whether a target is the one that the run was made on (rule 9).

Only on the run's own target may missing data be called lost. A superblock of the run is proof. Without one,
the drives, the offset on the drive and, for a file, the file system's UUID must all be the same. Paths and
device names are never accepted as identity, because they prove nothing after a reboot.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from durability.errors import FormatError
from durability.evidence.drive_identity import (
    Matched,
    machine_ids,
    matched,
    own_serial,
    own_serials,
    same_kernel,
    told_apart,
)
from durability.formats.case import Case
from durability.formats.facts import Drive, Facts, FileSystem
from durability.formats.plan import Plan

# Many systems remove the contents of these directories at boot, or old files in them (tmpfiles.d).
_EMPTIED = ("/tmp", "/var/tmp")
_ELSEWHERE = "its superblock is of another drive, place on the drive, file system or path"
_ALONE = "the target alone is mounted, without its directory"
_PATHS_MAX = 32  # paths to one drive, in target tags of earlier releases
LOG_UNKNOWN = "log-unknown"  # a warning: the file system has a log on a device that was not found


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Whether the target is the run's target, and how that is known. Text fields are "" if they do not
    apply."""

    # How the target was identified; None: it is not the run's target, and findings mean nothing.
    by: Literal["superblock", "hardware"] | None
    reasons: tuple[str, ...]  # why it is not the run's target, for the message that ends with exit code 5
    superseded_by: str  # another run that was made on the target since, or may have been
    # The superblock is the run's, but lies on other drives than those that were cut, as after a copy.
    drive_changed: bool
    # A sentence for each drive, and for the device under test, that has fewer bytes than at arming.
    smaller: tuple[str, ...] = ()
    # The same sentences if it may be another device, to which the target was copied.
    perhaps_smaller: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()  # drives of arming that are no longer below the target
    copied: str = ""  # why the target is a copy, or may be one, although no other drives are known below it
    # Why the files that belong to the target need not lie beside it, as after it alone was moved.
    moved: str = ""
    # Directory of the target, which is gone: the machine may have emptied that directory at a boot since.
    emptied: str = ""
    # A later run that was registered on the target but never armed; both superblocks are this run's.
    attempted_by: str = ""
    # Another run, which no log shows to be older, whose superblocks lie where something of this run is wrong,
    # with nothing wrong elsewhere: it may have been cut during its first sync.
    begun_by: str = ""

    @property
    def is_copy(self) -> bool:
        """Whether the target may be a copy on another drive, which shows nothing about the drive that was
        cut. A target identified by its hardware is on the drive that was cut, whatever file is in its
        place."""
        return self.by == "superblock" and (self.drive_changed or bool(self.copied))


def identify(
    case: Case, now: Facts | None, superblocks: Sequence[Plan | None], among: Collection[int] = ()
) -> Identity:
    """Compare the target with the run of `case`. `now`: the facts of the target as found, None if the target
    cannot be reached. `superblocks`: the plans in the copies that could be read, None for a copy that holds
    no plan. `among`: runs whose superblocks lie where a scan found something wrong, if the scan found nothing
    else wrong."""
    if case.armed is not None and now is not None:
        now = told_apart(case.armed, now)
    found = {f"{plan.run:016x}" for plan in superblocks if plan is not None}
    others = sorted(found - {case.run})
    differences = hardware_differences(case.armed, now)
    if case.run in found:
        by: Literal["superblock", "hardware"] | None = "superblock"
    else:
        by = None if differences else "hardware"
    smaller = tuple(_smaller(case.armed, now)) if by else ()
    drive_changed = by == "superblock" and _drives_differ(case.armed, now)
    copied = (_copied if by == "superblock" else _replaced)(case.armed, now)
    untouched = _untouched(case, superblocks)
    superseded_by = "" if untouched else _superseded_by(case, others, bool(by))
    return Identity(
        by=by,
        reasons=() if by else tuple(differences),
        superseded_by=superseded_by,
        drive_changed=drive_changed,
        smaller=tuple(text for text, certain in smaller if certain),
        perhaps_smaller=tuple(text for text, certain in smaller if not certain),
        missing=_missing(case.armed, now) if case.armed is not None and now is not None else (),
        copied="" if drive_changed else copied,
        moved=moved(case.armed, now) if case.armed is not None and now is not None else "",
        emptied="" if superblocks else _emptied(case.armed, now),
        attempted_by=case.superseded_by if untouched else "",
        begun_by="" if superseded_by else _begun_by(among, (case.run, *case.predecessors)),
    )


def target_tag(facts: Facts) -> int:
    """A 32-bit tag of the target's identity: its drives and its place on them. It does not depend on the
    order or the number of paths in which a boot found the drives. It depends on kernel names only for drives
    without a serial."""
    return _tag(facts, sorted(set(_serials_or_names(facts))))


def _is_tagged(plan: Plan, now: Facts) -> bool:
    """Whether the plan has the target's tag. Earlier releases made the tag with one serial per path, sorted
    or in the kernel's order. For those, every equal number of paths per drive up to `_PATHS_MAX` is tried."""
    if plan.target == target_tag(now):
        return True
    found = _serials_or_names(now)
    known = [found]
    for each in (list(dict.fromkeys(found)), sorted(set(found))):
        for paths in range(1, _PATHS_MAX + 1):
            known += [each * paths, [drive for drive in each for _ in range(paths)]]
    return any(plan.target == _tag(now, drives) for drives in known)


def _serials_or_names(facts: Facts) -> list[str]:
    return [drive.serial or drive.name for drive in facts.main_drives]


def _tag(facts: Facts, drives: Sequence[str]) -> int:
    parts = [*drives, str(facts.offset_bytes), facts.path_in_file_system]
    parts.append(facts.file_system.uuid if facts.file_system is not None else "")
    return int.from_bytes(hashlib.sha256("\0".join(parts).encode()).digest()[:4], "big")


def identify_without_log(
    plan: Plan, now: Facts, superblocks: Sequence[Plan | None], among: Collection[int] = ()
) -> Identity:
    """The identity of a target that a superblock of `plan` names, without a log. So it is unknown which runs
    are older, and the run's drive is known only by the tag in the superblock.

    Another run in a superblock may be a later one that was cut while it began. Its first sync was in
    progress, and an honest drive kept one superblock copy of each run. `among` as in `identify`."""
    copied = "" if _is_tagged(plan, now) else _ELSEWHERE
    others = sorted({one.run for one in superblocks if one is not None} - {plan.run})
    superseded_by = f"{others[0]:016x}" if others else ""
    return Identity(
        by="superblock",
        reasons=(),
        superseded_by=superseded_by,
        drive_changed=False,
        copied=copied,
        moved=_ALONE if _is_mounted_alone(now) else "",
        begun_by="" if superseded_by else _begun_by(among, (f"{plan.run:016x}",)),
    )


def newer_run_here(older: Case, newest: Case, now: Facts, superblocks: Sequence[Plan | None]) -> bool:
    """Whether `newest`, an armed run, is the one to judge on a target that shows a superblock of `older`.

    It is if a superblock names it. It also is if serials, offset and file system are those of `newest`, and
    were those of `older` at its arming. A file other than that of `newest` is not its target, whoever put it
    there."""
    if older.run == newest.run:
        return False
    if any(plan is not None and f"{plan.run:016x}" == newest.run for plan in superblocks):
        return True
    one_target = older.run in newest.predecessors and (
        older.armed is None or not hardware_differences(older.armed, newest.armed)
    )
    is_here = not (hardware_differences(newest.armed, now) or _is_another_file(newest.armed, now))
    return one_target and is_here


def moved(armed: Facts, now: Facts) -> str:
    """Why the files that belong to a target need not lie beside it at its present place; "" if they must."""
    if armed.kind != "file":
        return ""
    if not now.path_in_file_system or armed.path_in_file_system != now.path_in_file_system:
        return (
            f"its path within the file system is {now.path_in_file_system or 'not known'}, expected"
            f" {armed.path_in_file_system or 'one that is not known'}"
        )
    return _ALONE if _is_mounted_alone(armed) or _is_mounted_alone(now) else ""


def _is_mounted_alone(facts: Facts) -> bool:
    """Whether the target, a single file, is itself a mount point. Then its directory is not the one that its
    path within the file system names."""
    return facts.file_system is not None and facts.file_system.mount_point == facts.path


def _superseded_by(case: Case, others: Sequence[str], is_target: bool) -> str:
    """A run that was made on the target after this one, or that cannot be shown to be older; "" if there is
    none."""
    if case.superseded_by:
        return case.superseded_by
    unknown = [run for run in others if run not in case.predecessors]
    return unknown[0] if unknown and is_target else ""


def _begun_by(among: Collection[int], known: Collection[str]) -> str:
    """The first run in `among` that is not in `known`, the judged run and older ones; "" if there is none."""
    return next((run for run in (f"{one:016x}" for one in sorted(among)) if run not in known), "")


def _untouched(case: Case, superblocks: Sequence[Plan | None]) -> bool:
    """Whether later runs were only registered and did not write. A run syncs its superblocks before anything
    else. So if both superblocks at this run's offsets are this run's, no later run with the same offsets has
    written."""
    if not case.attempts or len(superblocks) != 2:
        return False
    try:
        plans = [Plan.decode(bytes.fromhex(plan)) for plan in (case.plan, *case.attempts)]
    except (FormatError, ValueError):
        return False  # a plan of a release whose plans this release cannot read
    one_place = len({plan.superblock_offsets for plan in plans}) == 1
    return one_place and all(plan is not None and plan.run == plans[0].run for plan in superblocks)


def hardware_differences(armed: Facts | None, now: Facts | None) -> list[str]:
    """Why serials, offset and file system do not show that this is the target; empty if they do."""
    if armed is None:
        return ["the server has no facts of the target: the run was never armed"]
    if now is None:
        return ["the target cannot be reached, so its drive cannot be recognised"]
    now = told_apart(armed, now)
    differences = [*_serial_differences(armed, now), *_place_differences(armed, now)]
    if armed.kind == "file":
        expected = armed.file_system.uuid if armed.file_system else ""
        uuid = now.file_system.uuid if now.file_system else ""
        if not expected:
            differences.append("the file system had no UUID at arming, so it cannot be recognised")
        elif uuid != expected:
            differences.append(
                f"the file system here has UUID {uuid or '(none)'}, expected {expected}: "
                "the right one may not be mounted"
            )
        elif armed.path_in_file_system != now.path_in_file_system:
            differences.append(
                f"the path within the file system is {now.path_in_file_system}, "
                f"expected {armed.path_in_file_system}"
            )
    return differences


def _place_differences(armed: Facts, now: Facts) -> Iterator[str]:
    """Why the target does not lie at the same place on its drives, or may not. The place of a file need not
    be known if its file system has a UUID."""
    known = (armed.volume and now.volume) or None not in (armed.offset_bytes, now.offset_bytes)
    if armed.kind == now.kind == "device" and not known:
        yield (
            "layers between the target and its drives have no UUID, so only a superblock can identify the"
            " volume"
        )
    yield from _elsewhere(armed, now)


def _elsewhere(armed: Facts, now: Facts) -> Iterator[str]:
    """Known differences between the target's place on its drives then and now."""
    if armed.kind != now.kind:
        yield f"the target is a {now.kind}, expected a {armed.kind}"
    elif armed.volume and now.volume:
        if armed.volume != now.volume:
            yield f"the target is on the volume {now.volume}, expected {armed.volume}"
    elif None not in (armed.offset_bytes, now.offset_bytes) and armed.offset_bytes != now.offset_bytes:
        yield f"the target starts at byte {now.offset_bytes} of its drive, expected {armed.offset_bytes}"


def _copied(armed: Facts | None, now: Facts | None) -> str:
    """Why a target with a superblock of the run is a copy on the run's own drives, or may be one; "" if it is
    not."""
    if armed is None or now is None:
        return ""
    uuids = [facts.file_system.uuid if facts.file_system else "" for facts in (armed, now)]
    if elsewhere := next(_elsewhere(armed, now), ""):
        return elsewhere
    if all(uuids) and uuids[0] != uuids[1]:
        return f"the file system here has UUID {uuids[1]}, expected {uuids[0]}"
    if now.file_id:
        # Runs of earlier releases have no file id. For them, a changed path does not show a copy.
        other = f"the file system has it as file {now.file_id}, expected {armed.file_id}"
        return other if _is_another_file(armed, now) else ""
    if armed.path_in_file_system != now.path_in_file_system:
        return (
            f"its path within the file system is {now.path_in_file_system}, expected"
            f" {armed.path_in_file_system}, and nothing shows whether it was renamed or copied"
        )
    return ""


def _replaced(armed: Facts | None, now: Facts | None) -> str:
    """Why the file at the target's place, without a superblock of the run, is another file; "" if that is not
    known. A drive that returned to a state before the run's file was made looks the same."""
    if not _is_another_file(armed, now):
        return ""
    assert armed is not None and now is not None
    return (
        f"at its path is file {now.file_id}, expected {armed.file_id}. If that lies elsewhere, move it back,"
        " and verify again"
    )


def _is_another_file(armed: Facts | None, now: Facts | None) -> bool:
    """Whether the file system has the target as another file than at arming, if both file ids are known."""
    if armed is None or now is None or not (armed.file_id and now.file_id):
        return False
    return armed.file_id != now.file_id


def _serial_differences(armed: Facts, now: Facts) -> list[str]:
    if not _have_serials(armed, now):
        return [
            "the drives reported no serial number of their own at arming, so only a superblock can identify"
            " them"
        ]
    if _same_drives(armed, now) or _missing(armed, now):
        return []
    found, expected = _names(now.drives), _names(armed.drives)
    if found == expected:
        return [f"the drives are {found}, as at arming, but drives of other machines have such numbers too"]
    return [f"the drives are {found}, expected {expected}"]


def _smaller(armed: Facts | None, now: Facts | None) -> Iterator[tuple[str, bool]]:
    """A sentence for each drive or device that has fewer bytes than at arming, and whether that is certain.
    It is uncertain if the target may have been copied to another drive or device. A size of 0 means
    unknown."""
    if armed is None or now is None:
        return
    untouched = _are_as_enumerated(armed, now)
    certain = untouched or _have_serials(armed, now)
    machines = machine_ids(armed.host, now.host)
    for before, after in matched(armed.drives, now.drives, machines).both:
        if own_serial(before, machines[0]) and 0 < after.size_bytes < before.size_bytes:
            sizes = f"{after.size_bytes:,} bytes, {before.size_bytes:,} at arming"
            yield f"drive {_names([before])} has {sizes}", certain
    nameless = [_nameless(armed, machines[0]), _nameless(now, machines[1])]
    yield from ((text, untouched) for text in _nameless_smaller(*nameless))
    if armed.kind == now.kind == "device" and 0 < now.size_bytes < armed.size_bytes:
        yield f"{now.path} has {now.size_bytes:,} bytes, {armed.size_bytes:,} at arming", certain


def _nameless(facts: Facts, machine_id: str) -> list[Drive]:
    """The drives without a serial of their own, smallest first."""
    return sorted(
        (drive for drive in facts.drives if not own_serial(drive, machine_id)),
        key=lambda drive: drive.size_bytes,
    )


def _nameless_smaller(before: Sequence[Drive], after: Sequence[Drive]) -> Iterator[str]:
    """A sentence for each drive that became smaller, of drives that only their size distinguishes. If no
    drive became smaller, the n-th smallest did not either."""
    if len(before) != len(after) or not all(drive.size_bytes for drive in (*before, *after)):
        return
    for then, found in zip(before, after, strict=True):
        if found.size_bytes < then.size_bytes:
            yield (
                f"drive {found.model or found.name} has {found.size_bytes:,} bytes,"
                f" {then.size_bytes:,} at arming"
            )


def _drives_differ(armed: Facts | None, now: Facts | None) -> bool:
    """True if the drives now are not those at arming, by their serials or by their number. False if the
    target still lies at its place at arming with drives missing."""
    if armed is None or now is None:
        return False
    known = _have_serials(armed, now) or (bool(now.drives) and bool(_drives_below(armed, now).gone))
    return known and not _same_drives(armed, now) and not _missing(armed, now)


def _same_drives(armed: Facts, now: Facts) -> bool:
    """Whether the drives that hold the target are those at arming. If layers hide which drives these are,
    additional drives may hold the log that was not found at arming."""
    drives = _drives_below(armed, now)
    if drives.gone or not drives.added:
        return not drives.gone
    return bool(drives.both) and _lacks_log(armed) and _has_place(armed) and _in_place(armed, now)


def _missing(armed: Facts, now: Facts) -> tuple[str, ...]:
    """The drives that are gone from below a target that still lies in the same place on the other drives.
    Also drives that are gone and held the log of the target's file system. Half of a mirror alone counts as
    another place."""
    drives = _drives_below(armed, now)
    if _same_drives(armed, now):
        if _lacks_log(now):
            return ()
    elif drives.added or not drives.both or not _in_place(armed, now):
        return ()
    gone = matched(armed.drives, now.drives, machine_ids(armed.host, now.host)).gone
    return tuple(_names([drive]) for drive in gone)


def _lacks_log(facts: Facts) -> bool:
    """Whether the file system's external log may be on drives that `facts` do not list. The log was not
    found, or cannot be found because the file system is not mounted."""
    mounted = facts.file_system is None or bool(facts.file_system.mount_point)
    return not mounted or any(warning.code == LOG_UNKNOWN for warning in facts.warnings)


def _in_place(armed: Facts, now: Facts) -> bool:
    """Whether the target lies at the same place as at arming. The place of a file need not be known, because
    its file system identifies it."""
    same = (armed.kind, armed.volume, armed.offset_bytes) == (now.kind, now.volume, now.offset_bytes)
    return same and (armed.kind == "file" or _has_place(armed))


def _has_place(facts: Facts) -> bool:
    return bool(facts.volume) or facts.offset_bytes is not None


def _are_as_enumerated(armed: Facts, now: Facts) -> bool:
    """Whether the kernel has not enumerated any drive since arming, so that all drives are the same."""
    before = {drive.name: drive.diskseq for drive in armed.drives}
    after = {drive.name: drive.diskseq for drive in now.drives}
    numbered = bool(before) and None not in before.values()
    return same_kernel(armed.host, now.host) and numbered and before == after


def emptied_at_boot(path: str, file_system: FileSystem | None) -> str:
    """The directory above `path`, a file on `file_system`, that many systems empty at boot; "" if there is
    none. Systems do not empty file systems that are mounted below such a directory."""
    if file_system is None or not file_system.mount_point:
        return ""
    for directory in _EMPTIED:
        if _lies_in(path, directory) and _lies_in(directory, file_system.mount_point):
            return directory
    return ""


def _lies_in(path: str, directory: str) -> bool:
    """Whether an absolute path is `directory`, or lies in it at any depth."""
    return f"{path}/".startswith(directory.rstrip("/") + "/")


def _emptied(armed: Facts | None, now: Facts | None) -> str:
    """The directory that may have been emptied together with the target. If the file system does not mount,
    the target was lost in another way, and the result is ""."""
    if armed is None or now is None or same_kernel(armed.host, now.host):
        return ""
    mounted = now.file_system is not None and bool(now.file_system.mount_point)
    return emptied_at_boot(armed.path, armed.file_system) if mounted else ""


def _have_serials(armed: Facts, now: Facts) -> bool:
    """Whether each drive that held the target at arming had a serial of its own."""
    return own_serials(_holders(armed, now)[0], armed.host.machine_id) is not None


def _drives_below(armed: Facts, now: Facts) -> Matched:
    """The drives that hold the target, then and now."""
    return matched(*_holders(armed, now), machine_ids(armed.host, now.host))


def _holders(armed: Facts, now: Facts) -> tuple[tuple[Drive, ...], tuple[Drive, ...]]:
    """The drives that hold the target, at arming and now. Drives of a log are left out if it is known which
    they are."""
    if None in (armed.offset_bytes, now.offset_bytes):
        return armed.drives, now.drives
    return armed.main_drives, now.main_drives


def _names(drives: Sequence[Drive]) -> str:
    named = (f"{drive.model or drive.name} serial {drive.serial or '(none)'}" for drive in drives)
    return ", ".join(named) or "none"
