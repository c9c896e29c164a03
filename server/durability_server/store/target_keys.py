"""What tells targets apart, and which runs belong to one series: pure functions of facts.

The server sees no superblock, so it goes by what the client found: the drives' own serials and the place on
them, the file system's UUID and the path in it, or, where a system names neither, the machine and the path.
Two targets are compared by the strongest identity that both of them have (`run_rows.is_on`), so a drive put
in another's place is another target although its path is the same. Refuses a second rule of what a serial
is: that is `own_serial`, also for verdicts.
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

KEY_BYTES_MAX = 1000  # of what is kept as it is: databases have no index of much longer ones


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetKeys:
    """The identities of one target, strongest first; "" where the facts do not give that one. What is long in
    them is a hash."""

    drive: str
    file_system: str
    path: str


def target_keys(facts: Facts) -> TargetKeys:
    """The identities that `facts` give their target."""
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
        # A volume has its name by the order in which it was found, so another one may have it tomorrow.
        path=f"machine={facts.host.machine_id} path={_short(volume or facts.path)}",
    )


def _short(key: str) -> str:
    return key if len(key.encode(errors="surrogatepass")) <= KEY_BYTES_MAX else f"sha256={identity_of(key)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDrive:
    """A drive that a run was made on: who it is, and what people call it. `identity`: hash of its own serial;
    of machine, model and serial for a drive that has none of its own, which other drives may share; of the
    target's path for a run without drives."""

    identity: str
    model: str
    serial: str


def run_drives(facts: Facts) -> tuple[RunDrive, ...]:
    """The drives below the target, each once; one without a name if the facts have none."""
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
    """The machine in the `path` of a target's keys."""
    return path_key.removeprefix("machine=").partition(" path=")[0]


def identity_of(text: str) -> str:
    """What the store calls a drive: a hash of its serial, or of what else tells it from others."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def overlap(one: Facts, other: Facts) -> bool:
    """Whether what was written to the one target may lie where the other one does, though they are not the
    same: a whole drive, a partition of it, a file on a file system of either. Two files of one file system
    do not, and one file under two names does; of two places that layers between make unknown, it is not
    known. A drive without a serial of its own may be the one that had its place on the machine. A file system
    that can still be read does not lie where a later one was made, so of two of them only an own serial
    tells."""
    pairs = ((one, other), (other, one))
    # A whole drive has a log on it, too; other places compare on the drives of the targets themselves.
    anywhere = any(_is_whole_drive(this) and _share_drive(_without_log(this), that) for this, that in pairs)
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
    """Where a target's file system lies. `any`: how the key of each drive begins that has one at the same
    place of the same drives; `this`: of those, the beginning with the same UUID; `nameless`: that without."""

    any: str
    this: str
    nameless: str


def file_system_place(keys: TargetKeys) -> FileSystemPlace | None:
    """Where the file system of these keys lies; None where they do not tell it."""
    if not keys.drive.endswith(keys.file_system) or not keys.file_system:
        return None
    place = keys.drive.removesuffix(keys.file_system) + "fs="
    uuid = keys.file_system.removeprefix("fs=").partition(" file=")[0]
    return FileSystemPlace(any=place, this=f"{place}{uuid} file=", nameless=f"{place} file=")


def by_own_serial(facts: Facts) -> dict[str, list[Drive]]:
    """The drives that have a serial of their own, by that."""
    known: dict[str, list[Drive]] = {}
    for drive in facts.drives:
        if serial := own_serial(drive, facts.host.machine_id):
            known.setdefault(serial, []).append(drive)
    return known


def may_share_drives(one: Facts, later: Mapping[str, Sequence[Drive]]) -> bool:
    """Whether a drive of `one` may be one of `later`, by own serial. Of two that an adapter gives one serial,
    what else they tell may set them apart."""
    return any(
        not are_two(before, after)
        for serial, drives in by_own_serial(one).items()
        for before, after in product(drives, later.get(serial, ()))
    )


def place_of(facts: Facts) -> Facts:
    """What `overlap` needs of the facts, without what may be long."""
    mounted = facts.file_system
    if mounted is not None:
        mounted = replace(mounted, source="", mount_point="", options="")
    unnamed = replace(facts, path="", path_in_file_system="", volume="", named="", file_id="")
    return replace(unnamed, file_system=mounted, layers=(), warnings=())


def _without_log(facts: Facts) -> Facts:
    return replace(facts, drives=facts.main_drives)


def _share_drive(one: Facts, other: Facts) -> bool:
    """Whether a drive of the one may be a drive of the other."""
    if _own(one) & _own(other):
        return True
    in_file_systems = one.file_system is not None and other.file_system is not None
    return not in_file_systems and bool(_machine_places(one) & _machine_places(other))


def _own(facts: Facts) -> set[str]:
    return {own_serial(drive, facts.host.machine_id) for drive in facts.drives} - {""}


def _machine_places(facts: Facts) -> set[tuple[str, str]]:
    """Where the drives without a serial of their own are on their machine: by the hypervisor's number, else
    by name."""
    machine = facts.host.machine_id
    return {
        (_looks(drive, machine), "" if is_shared(drive) else drive.name)
        for drive in facts.drives
        if not own_serial(drive, machine)
    }


def _is_whole_drive(facts: Facts) -> bool:
    """Whether all of one drive is the target, or has the target's file system."""
    if not facts.drives or facts.offset_bytes != 0:
        return False
    return facts.file_system is not None or facts.size_bytes >= facts.drives[0].size_bytes


def _reaches(this: Facts, that: Facts) -> bool:
    """Whether `this` ends behind the beginning of `that`. Of a file system only its beginning is known."""
    assert this.offset_bytes is not None and that.offset_bytes is not None
    size_bytes = 1 if this.file_system is not None else this.size_bytes
    return that.offset_bytes < this.offset_bytes + size_bytes


def series_key(plan: Plan, facts: Facts) -> str:
    """What the cuts of one series share (rule 16): drives with their firmware and write cache, layers, file
    system and options, hypervisor, plan. "": no series."""
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
    own = ("run", "seed", "target")  # of each run, so not the series'
    essentials = {name: value for name, value in asdict(plan).items() if name not in own}
    mounted = facts.file_system
    file_system = [mounted.type, mounted.lasting_options] if mounted else None
    stack: list[Value] = [*drives, list(facts.layer_kinds), file_system, facts.host.virtualisation]
    return hashlib.sha256(pack([essentials, stack])).hexdigest()
