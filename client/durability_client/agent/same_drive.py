"""Checks that a drive is the one that was examined, before the agent mounts, writes or removes anything.

A unique serial or a world-wide name identifies a drive wherever it is. Otherwise, or if a volume is on
several drives, place, model and size must be the same, and the contents must be as examined or made by this
campaign.
Before the signatures of such a raw drive are erased, a mark is written to it, because the agent stores
nothing across boots. The superblock of the first run later replaces the mark.

No drive may carry new contents: its owner may have put it to use since the check, or during a pause. Contents
that the campaign replaced by a file system must not be back either. Names that may mean another drive after a
boot are refused.
"""

from __future__ import annotations

import hashlib
import os
import re
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from durability import limits, plain_text
from durability.campaign.assignments import REPORTED_TEXT_BYTES_MAX
from durability.campaign.definition.settings import DriveUnderTest
from durability.campaign.tasks import Condition, DriveTask, Task, in_one_order
from durability.errors import DurabilityError, TargetError
from durability.formats.drive_serials import is_nobodys
from durability.formats.facts import Facts
from durability.formats.plan import MAIN
from durability.formats.record import read_superblock
from durability.units import format_run
from durability_client.agent import drives
from durability_client.agent.drives import DriveError, FoundDrive
from durability_client.system import block_devices
from durability_client.target import discovery, safety_checks
from durability_client.target.kernel_storage import KernelStorage
from durability_client.target.signatures import Signature, file_system_uuid

# Names that the kernel assigns in the order in which it finds drives.
_BY_ORDER = re.compile(
    r"/dev/((sd|hd|vd|xvd)[a-z]+\d*|(nvme\d+n\d+|mmcblk\d+|nbd\d+|zd\d+|pmem\d+)(p\d+)?|dm-\d+)"
)
_OF_PARTITIONS = re.compile(r"/dev/((sd|hd|vd|xvd)[a-z]+|(nvme|mmcblk|nbd|zd|pmem)\d.*p)\d+")
_OF_A_BOOT = re.compile(r"/dev/(dm-\d+|block/.*|disk/by-diskseq/.*)")
_OF_CONTENTS = re.compile(r"/dev/disk/by-(label|uuid)/.*")
_LINKS = ("/dev/disk/by-id", "/dev/disk/by-path", "/dev/mapper")
_PLACES = "/dev/disk/by-path/"
_MARK = b"durability erase"  # at the start of a device; a digest of campaign and drive follows
_SHORT_DIGITS = 6  # digits of a digest that replaces a word: 256 fit in a report, one per possible partition
_OWN_BYTES = 9  # bytes of a UUID that identify a file system of this campaign; the others are random
Contents: TypeAlias = Mapping[str, Sequence[Signature]]  # by partition; "" for the device itself


def check_name(drive: DriveUnderTest, found: FoundDrive) -> None:
    """Raises DriveError if the drive's name in the campaign file may mean another drive after a boot."""
    if found.device is None:
        return
    name = os.path.normpath(drive.device)
    if _OF_CONTENTS.fullmatch(name):
        why = "is a name of what lies on the drive, which the campaign overwrites"
    elif _OF_A_BOOT.fullmatch(name):
        why = "is a name of this boot"
    elif _BY_ORDER.fullmatch(name) and is_nobodys(found.serial):
        has = f"whose serial {found.serial} others have too" if found.serial else "that has no serial"
        why = f"is the kernel's name of a drive {has}, so after a boot it may be another one"
    elif _OF_PARTITIONS.fullmatch(name):  # tasks do not store the offset that could identify it
        why = "is the kernel's name of a partition, which after a boot may be another drive's"
    elif not name.startswith(_PLACES) and (twins := _twins(found)):
        why = f"has the serial {found.serial}, and so has {', '.join(twins)}"
        raise DriveError("wrong-drive", f"{drive.device} {why}: name the drive by its place, below {_PLACES}")
    else:
        return
    others = ", ".join(_other_names(found)) or "a link in /dev/disk/by-id or /dev/disk/by-path"
    raise DriveError("wrong-drive", f"{drive.device} {why}: name it {others}")


def check_condition(now: Condition, mine: DriveTask, *, certain: bool, writes: bool) -> None:
    """Raises DriveError if the drive is not as at its first examination.

    A drive that is `certain` to be the same may have another model or size. That is refused only before a
    task that `writes`; otherwise the verdict decides.
    """
    first = mine.examined
    if first is None:
        return
    place = mine.drive.device or mine.drive.target
    if now.wwid and first.wwid and in_one_order(now.wwid) != in_one_order(first.wwid):
        raise DriveError(
            "wrong-drive", f"the drive at {place} has the world-wide name {now.wwid}, expected {first.wwid}"
        )
    if in_one_order(now.serial) != in_one_order(first.serial):
        raise DriveError(
            "wrong-drive",
            f"the drive at {place} has the serial {now.serial or 'none'}, expected {first.serial or 'none'}",
        )
    if certain and not writes:
        return
    if in_one_order(now.model) != in_one_order(first.model):
        raise DriveError(
            "wrong-drive", f"the drive at {place} is the model {now.model!r}, expected {first.model!r}"
        )
    if now.size_bytes != first.size_bytes:
        raise DriveError(
            "wrong-drive",
            f"the drive at {place} has {now.size_bytes:,} bytes, and had {first.size_bytes:,} when it was"
            " examined",
        )


def check_before_writing(
    task: Task, mine: DriveTask, found: FoundDrive, now: Condition, contents: Contents
) -> None:
    """Raises DriveError if the drive is not the examined one, or if somebody else has put it to use.
    `contents`: signatures on the device."""
    check_condition(now, mine, certain=is_certain(found), writes=True)
    if found.device is not None:
        check_contents(task, mine, found, contents)
    else:
        drives.check_target(Path(mine.drive.target))


def is_certain(found: FoundDrive) -> bool:
    """Whether the drive's serial is unique, and the device is the whole drive or a partition of it."""
    return not is_nobodys(found.serial) and found.leaves == (block_devices.whole_of(found.name),)


def is_on(found: FoundDrive, facts: Facts) -> bool:
    """Whether a run with these facts was on this device: by the serial, if that is certain, else by the
    device's name on this machine."""
    assert found.device is not None
    if facts.kind != "device":
        return False
    if is_certain(found):
        return [plain_text.as_line(one.serial) for one in facts.drives] == [found.serial]
    place = Path(os.path.realpath(facts.named or facts.path))
    return place == found.device and facts.host.machine_id == discovery.host_now().machine_id


def may_lie_on(found: FoundDrive, contents: Contents, facts: Facts) -> bool:
    """Whether a run with these facts may be inside a device, beyond its start.

    A run on the device itself is identified by the superblock at its start. If the serial is certain, serial
    and offset decide; otherwise the UUID of the run's file system. `contents`: signatures on the device.
    """
    if not is_certain(found):
        known = facts.file_system.uuid if facts.file_system is not None else ""
        return bool(known) and any(one.uuid == known for each in contents.values() for one in each)
    serials = [plain_text.as_line(one.serial) for one in facts.drives]
    if found.serial not in serials:
        return False
    if facts.offset_bytes is None or serials[0] != found.serial:
        return True  # somewhere on the drive
    start = block_devices.start_of(found.name)
    if facts.kind == "device" and facts.offset_bytes == start:
        return False
    return start <= facts.offset_bytes < start + block_devices.size_of(found.name)


def contents_text(contents: Contents) -> str:
    """The signatures on a device as text for `Condition.holds`. If the text is too long for the server, each
    word is replaced by a digest."""
    words = _words(contents)
    text = " ".join(words)
    return text if len(text.encode()) <= REPORTED_TEXT_BYTES_MAX else " ".join(map(_short, words))


def check_contents(task: Task, mine: DriveTask, found: FoundDrive, contents: Contents) -> None:
    """Raises DriveError if a device carries new signatures that this campaign did not make.

    New means: absent at the examination. Once the campaign has made a file system, all signatures that it did
    not make are new. A device that is certain to be the same may have lost signatures. Any other device must
    carry what this campaign left on it or, before the first run, the signatures of the examination.
    """
    assert found.device is not None
    is_made = mine.again and mine.drive.file_system
    first = set(mine.examined.holds.split()) if mine.examined is not None and not is_made else set()
    own = {one for one in contents.get("", ()) if _is_own(one.uuid, task, mine)}
    others = {part: [one for one in each if part or one not in own] for part, each in contents.items()}
    new = [word for word in _words(others) if not _forms(word) & first]
    if is_certain(found):
        if new and is_made:
            raise _not_ours(task, mine, found.device, holds=" ".join(new), left="not touched")
        if new:
            raise DriveError(
                "in-use",
                f"{found.device} holds {' '.join(new)}, which was not there when the campaign was checked; it"
                f" was not touched. If you do not need it, erase it (wipefs --all {found.device})",
            )
        return
    if not new and (own if mine.drive.file_system else _is_left(task, mine, found.device)):
        return
    now = [_forms(word) for word in _words(contents)]
    is_as_examined = all(forms & first for forms in now) and first <= set[str]().union(*now)
    if not mine.again and mine.examined is not None and is_as_examined:
        return
    nameless = f"{found.device} has no serial that tells it from others"
    if mine.drive.file_system and not now:
        raise DriveError(
            "wrong-drive",
            f"{nameless}, and nothing is recognised on it, so it may be another drive; it was not touched. If"
            " its file system was just being made when the machine or the agent stopped, begin another"
            " campaign",
        )
    raise DriveError(
        "wrong-drive",
        f"{nameless}, and does not carry what this campaign left on it; it was not touched",
    )


def needs_mark(found: FoundDrive) -> bool:
    """Whether a raw device could not be identified once its signatures are erased: its serial is not certain,
    and it has no superblock of a run, which would stay."""
    assert found.device is not None
    return not is_certain(found) and not safety_checks.holds_run(found.device)


def mark_of(task: Task, mine: DriveTask) -> bytes:
    """The mark of a raw device that is, or is about to be, erased for its first run in this campaign."""
    return _MARK + _digest(task, mine)


def erased(mine: DriveTask, contents: Contents) -> DriveTask:
    """The drive's part of the task after an erasure that left `contents`. Signatures of the examination that
    are gone are no longer expected."""
    first = mine.examined
    if first is None:
        return mine
    now = set[str]().union(*map(_forms, _words(contents)))
    left = [word for word in first.holds.split() if word in now]
    return replace(mine, examined=replace(first, holds=" ".join(left)))


def check_mountable(task: Task, mine: DriveTask, found: FoundDrive) -> None:
    """Raises DriveError if a device carries a file system that this campaign did not make. If none is
    recognised, the verdict decides."""
    assert found.device is not None
    known = file_system_uuid(found.device)
    if not known or _is_own(known, task, mine):
        return
    if is_certain(found):
        raise _not_ours(task, mine, found.device, holds=f"the file system {known}", left="not mounted")
    raise DriveError(
        "wrong-drive",
        f"{found.device} has no serial that tells it from others, and its file system {known} is not"
        " that which this campaign made; it was not mounted",
    )


def holds_own(task: Task, mine: DriveTask, device: Path) -> bool:
    """Whether a device carries a file system that this campaign made."""
    return _is_own(file_system_uuid(device), task, mine)


def _not_ours(task: Task, mine: DriveTask, device: Path, *, holds: str, left: str) -> DriveError:
    """The error for contents that this campaign did not make. People must decide: a drive that went back to
    an earlier state looks the same as a drive on which somebody put these contents."""
    if mine.run:
        lost, see = f"run {mine.run}, which has no verdict", f"durability show {mine.run}"
        remedy = "the evidence of that run is gone: begin another campaign"
    else:
        lost, see = "what the campaign wrote since", f"durability campaign show {task.campaign}"
        remedy = f"erase it if you do not need it (wipefs --all {device})"
    return DriveError(
        "in-use",
        f"{device} holds {holds}, which this campaign did not make; it was {left}. If nobody put it there,"
        f" the drive has lost {lost} (`{see}`): leave it as it is. If somebody did, {remedy}",
    )


def new_uuid(task: Task, mine: DriveTask) -> str:
    """A new UUID for a file system on the drive. Each is different, and identifies the campaign."""
    return str(uuid.UUID(bytes=_own(task, mine) + os.urandom(16 - _OWN_BYTES)))


def file_system_at(path: Path) -> str:
    """Type and UUID of the user's file system that holds `path`; "" if they are unknown."""
    found = discovery.file_system_of(path)
    return f"{found.type} {found.uuid}" if found is not None and found.uuid else ""


def check_file_system(drive: DriveUnderTest, mine: DriveTask) -> None:
    """Raises DriveError if the target is on another file system than at the examination. If the right one is
    not mounted, its empty mount point belongs to the system's file system."""
    if not drive.target or mine.examined is None or not mine.examined.holds:
        return
    now = plain_text.as_line(file_system_at(Path(drive.target).parent))
    if now and now != mine.examined.holds:
        raise DriveError(
            "wrong-drive",
            f"{drive.target} lies on the file system {now}, expected {mine.examined.holds}: is that mounted?",
        )


def run_on(path: Path) -> str:
    """The last run that was begun on a target, from the superblock at its start; "" if there is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        plan = read_superblock(os.pread(fd, limits.SUPERBLOCK_BYTES, 0))
    except (OSError, DurabilityError):
        return ""
    finally:
        os.close(fd)
    return format_run(plan.run) if plan is not None else ""


def remove_target(path: Path, run: str) -> None:
    """Remove the files of `run` at `path`. Does nothing if there are none, or if another run was begun there
    since, whose files are evidence. Raises TargetError for files of others."""
    storage = KernelStorage(path)
    if storage.kind == "device":
        raise TargetError(f"{path} is a device; expected the files of run {run}")
    storage.lock()
    try:
        safety_checks.check_contents(storage)
        if run_on(path) != run:
            return
        for suffix in (*storage.suffixes(), MAIN):  # MAIN names the run, so it goes last
            with suppress(FileNotFoundError):
                storage.unlink(suffix)
        storage.sync_directory()
    finally:
        storage.unlock()


def pin(found: FoundDrive) -> int:
    """A descriptor of the device. While it is open, the kernel does not give the device's name to another
    drive. Raises DriveError if the drive has already gone."""
    assert found.device is not None
    try:
        fd = os.open(found.device, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise DriveError("missing", f"{found.device} went away: {error.strerror}") from error
    number = os.fstat(fd).st_rdev
    if block_devices.name_of((os.major(number), os.minor(number))) == found.name and found.is_still_there:
        return fd
    os.close(fd)
    raise DriveError("missing", f"{found.device} went away")


def _words(contents: Contents) -> list[str]:
    return [_word(part, one) for part, each in contents.items() for one in each]


def _word(part: str, one: Signature) -> str:
    """A word such as "ext4=UUID", or "1:ext4=UUID" in the first partition. Without a UUID only the type."""
    place, known = f"{part}:" if part else "", f"={one.uuid}" if one.uuid else ""
    return plain_text.as_line(f"{place}{one.type}{known}")


def _forms(word: str) -> set[str]:
    """Both forms of `word` that an examination may have stored."""
    return {word, _short(word)}


def _short(word: str) -> str:
    return f"#{hashlib.sha256(word.encode()).hexdigest()[:_SHORT_DIGITS]}"


def _is_own(known: str, task: Task, mine: DriveTask) -> bool:
    try:
        return uuid.UUID(known).bytes.startswith(_own(task, mine))
    except ValueError:
        return False


def _is_left(task: Task, mine: DriveTask, device: Path) -> bool:
    """Whether a raw device carries a run, or this campaign's mark."""
    mark = mark_of(task, mine)
    with device.open("rb", buffering=0) as file:
        return file.read(len(mark)) == mark or safety_checks.holds_run(device)


def _own(task: Task, mine: DriveTask) -> bytes:
    """The first bytes of the UUIDs of the campaign's file systems on a drive. They are UUIDs of version 8,
    which is for custom use."""
    digest = bytearray(_digest(task, mine)[:_OWN_BYTES])
    digest[6] = digest[6] & 0x0F | 0x80
    digest[8] = digest[8] & 0x3F | 0x80
    return bytes(digest)


def _digest(task: Task, mine: DriveTask) -> bytes:
    return hashlib.sha256(f"{task.campaign}+{mine.drive.name}".encode()).digest()


def _twins(found: FoundDrive) -> list[str]:
    """Other drives that report the same serial, and that no different world-wide name distinguishes."""
    if not found.serial or len(found.leaves) != 1 or found.leaves[0].startswith("loop"):
        return []
    (leaf,) = found.leaves
    wwid = block_devices.wwid_of(leaf)
    return [
        name
        for name in block_devices.all_names()
        if name != leaf
        and block_devices.whole_of(name) == name
        and plain_text.as_line(block_devices.serial_of(name)) == found.serial
        and not (wwid and block_devices.wwid_of(name) not in ("", wwid))
    ]


def _other_names(found: FoundDrive) -> list[str]:
    """Links to the device that stay the same after a boot."""
    links = [link for directory in _LINKS for link in Path(directory).glob("*")]
    return [str(link) for link in sorted(links) if link.resolve() == found.device]
