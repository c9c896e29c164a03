"""The identities of targets and series: pure functions of facts.

The server sees no superblock, so it uses the client's facts. These are the drives' own serials and the place
on them, and the file system's UUID and the path in it. If a system reports neither, they are the machine and
the path. Two targets are compared by the strongest identity that both have (`run_rows.is_on`). So a
replacement drive is another target although its path is the same. The only rule for what counts as a serial
is `own_serial`, also for verdicts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product

from durability import limits, plain_text
from durability.evidence.drive_identity import are_two, own_serial, own_serials
from durability.evidence.strength import has_series
from durability.formats.drive_serials import is_shared
from durability.formats.facts import Drive, Facts
from durability.formats.packing import Value, pack
from durability.formats.plan import Plan

KEY_BYTES_MAX = 1000  # a longer key is stored as a hash, because databases cannot index much longer ones


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetKeys:
    """The identities of one target, strongest first; "" for an identity that the facts do not give. Long
    parts are hashed."""

    drive: str
    file_system: str
    path: str


def target_keys(facts: Facts) -> TargetKeys:
    """The identities of the target of `facts`."""
    uuid = facts.file_system.uuid if facts.file_system else ""
    file = _short(facts.path_in_file_system)
    in_file_system = f"fs={uuid} file={file}" if facts.kind == "file" else "device"
    serials = own_serials(facts.main_drives, facts.host.machine_id)
    volume = facts.volume if facts.kind == "device" else ""
    placed = facts.kind == "file" or facts.offset_bytes is not None or bool(volume)
    place = f"offset={volume or facts.offset_bytes} {in_file_system}"
    return TargetKeys(
        drive=_short(f"drives={','.join(sorted(serials))} {place}") if serials and placed else "",
        file_system=in_file_system if facts.kind == "file" and uuid else "",
        # A volume is named in the order of discovery, so another volume may have its name later.
        path=f"machine={facts.host.machine_id} path={_short(volume or facts.path)}",
    )


def _short(key: str) -> str:
    return key if len(key.encode(errors="surrogatepass")) <= KEY_BYTES_MAX else f"sha256={identity_of(key)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDrive:
    """A drive below a run's target, with its names for people."""

    # Hash of its own serial. Without one, hash of machine, model and serial, which other drives may share.
    # For a run without drives, hash of the target's path.
    identity: str
    model: str
    serial: str


def run_drives(facts: Facts) -> tuple[RunDrive, ...]:
    """The drives below the target, each once. If the facts have none, one drive without a name."""
    machine = facts.host.machine_id
    drives = {
        RunDrive(
            identity=identity_of(own_serial(drive, machine) or _looks(drive, machine)),
            model=plain_text.as_line(drive.model)[: limits.DRIVE_NAME_MAX],
            serial=plain_text.as_line(drive.serial)[: limits.DRIVE_NAME_MAX],
        )
        for drive in facts.drives
    }
    nameless = RunDrive(identity=identity_of(target_keys(facts).path), model="", serial="")
    return tuple(sorted(drives, key=lambda one: (one.identity, one.model, one.serial))) or (nameless,)


def _looks(drive: Drive, machine: str) -> str:
    return f"machine={machine} model={drive.model} serial={drive.serial}"


def machine_of_path(path_key: str) -> str:
    """The machine in a target's path key."""
    return path_key.removeprefix("machine=").partition(" path=")[0]


def identity_of(text: str) -> str:
    """The store's name of a drive: a hash of its serial, or of what else distinguishes it."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def overlap(one: Facts, other: Facts) -> bool:
    """Whether data written to one target may overwrite the other, although the two targets differ. Such
    targets are a whole drive, a partition of it, and a file on a file system of either. Two files of one file
    system do not overlap, but one file under two names does. If layers hide where the targets are, only the
    names of their volumes are compared. A drive without its own serial may be another drive that had its
    place on the machine. A readable file system was not overwritten by a later one, so between two file
    systems only an own serial counts."""
    pairs = ((one, other), (other, one))
    # A target that takes a whole drive also overwrites a log device there. Other places are compared without
    # log devices.
    anywhere = any(_is_whole_drive(this) and _share_drive(_without_log(this), that) for this, that in pairs)
    # Layers such as LVM, LUKS or md leave offsets unknown, but one volume is one place.
    anywhere = anywhere or ("" != one.volume == other.volume)
    starts = (one.offset_bytes, other.offset_bytes)
    placed = None not in starts and _share_drive(_without_log(one), _without_log(other))
    if one.file_system is not None and other.file_system is not None:
        uuids = {one.file_system.uuid, other.file_system.uuid}
        if len(uuids) == 1 and "" not in uuids and one.kind == other.kind == "file":
            return one.file_id == other.file_id != "" and starts[0] == starts[1]
        return len(uuids) == 2 and "" not in uuids and (anywhere or (placed and starts[0] == starts[1]))
    return anywhere or (placed and all(_reaches(this, that) for this, that in pairs))


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSystemPlace:
    """Where a target's file system is, as beginnings of drive keys."""

    any: str  # any file system at this place of these drives
    this: str  # a file system there with the same UUID
    nameless: str  # a file system there without a UUID


def file_system_place(keys: TargetKeys) -> FileSystemPlace | None:
    """Where the file system of these keys is; None if they do not say."""
    if not keys.drive.endswith(keys.file_system) or not keys.file_system:
        return None
    place = keys.drive.removesuffix(keys.file_system) + "fs="
    uuid = keys.file_system.removeprefix("fs=").partition(" file=")[0]
    return FileSystemPlace(any=place, this=f"{place}{uuid} file=", nameless=f"{place} file=")


def by_own_serial(facts: Facts) -> dict[str, list[Drive]]:
    """The drives that have a serial of their own, by serial."""
    known: dict[str, list[Drive]] = {}
    for drive in facts.drives:
        if serial := own_serial(drive, facts.host.machine_id):
            known.setdefault(serial, []).append(drive)
    return known


def may_share_drives(one: Facts, later: Mapping[str, Sequence[Drive]]) -> bool:
    """Whether a drive of `one` may be one of `later`, compared by own serial. If an adapter gives two drives
    the same serial, other facts may distinguish them."""
    return any(
        not are_two(before, after)
        for serial, drives in by_own_serial(one).items()
        for before, after in product(drives, later.get(serial, ()))
    )


def place_of(facts: Facts) -> Facts:
    """The part of the facts that `overlap` needs, without long fields."""
    mounted = facts.file_system
    if mounted is not None:
        mounted = replace(mounted, source="", mount_point="", options="")
    unnamed = replace(facts, path="", path_in_file_system="", named="", file_id="")
    return replace(unnamed, file_system=mounted, layers=(), warnings=())


def _without_log(facts: Facts) -> Facts:
    return replace(facts, drives=facts.main_drives)


def _share_drive(one: Facts, other: Facts) -> bool:
    """Whether a drive of one target may be a drive of the other."""
    if _own(one) & _own(other):
        return True
    in_file_systems = one.file_system is not None and other.file_system is not None
    return not in_file_systems and bool(_machine_places(one) & _machine_places(other))


def _own(facts: Facts) -> set[str]:
    return {own_serial(drive, facts.host.machine_id) for drive in facts.drives} - {""}


def _machine_places(facts: Facts) -> set[tuple[str, str]]:
    """The places on their machine of drives without their own serial: model and serial, and also the name
    unless the serial is a hypervisor's number."""
    machine = facts.host.machine_id
    return {
        (_looks(drive, machine), "" if is_shared(drive) else drive.name)
        for drive in facts.drives
        if not own_serial(drive, machine)
    }


def _is_whole_drive(facts: Facts) -> bool:
    """Whether the target, or the target's file system, takes all of one drive."""
    if not facts.drives or facts.offset_bytes != 0:
        return False
    return facts.file_system is not None or facts.size_bytes >= facts.drives[0].size_bytes


def _reaches(this: Facts, that: Facts) -> bool:
    """Whether `this` ends after the beginning of `that`. For a file system only its beginning is known."""
    assert this.offset_bytes is not None and that.offset_bytes is not None
    size_bytes = 1 if this.file_system is not None else this.size_bytes
    return that.offset_bytes < this.offset_bytes + size_bytes


def series_key(plan: Plan, facts: Facts) -> str:
    """The common properties of the cuts of one series (rule 16), hashed: drives with firmware and write
    cache, layers, file system and options, hypervisor, plan. "" for no series."""
    machine = facts.host.machine_id
    if not has_series(facts):
        return ""
    drives = sorted(
        {
            (
                drive.model,
                own_serial(drive, machine),
                drive.wwid,
                str(drive.size_bytes),
                drive.firmware,
                str(drive.write_cache),
                str(drive.fua),
            )
            for drive in facts.drives
        }
    )
    own = ("run", "seed", "target")  # different in each run
    essentials = {name: value for name, value in asdict(plan).items() if name not in own}
    mounted = facts.file_system
    file_system = [mounted.type, mounted.lasting_options] if mounted else None
    stack: list[Value] = [*drives, list(facts.layer_kinds), file_system, facts.host.virtualisation]
    return hashlib.sha256(pack([essentials, stack])).hexdigest()
