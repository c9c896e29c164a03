"""Which targets are one and the same, by what the facts tell."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, insert, select

from durability.formats.facts import Facts
from durability_server.store import tables
from durability_server.store.run_rows import is_on, key_columns
from durability_server.store.target_keys import overlap, series_key, target_keys
from tests import sample_facts
from tests.sample_facts import facts

if TYPE_CHECKING:
    from tests.server.conftest import Lab

GIVEN_TO_ANY = ("", "000000000000", "QM00001", "drive-scsi0", "VMware NVMe_0000")


def _same(one: Facts, other: Facts) -> bool:
    forth = _is_on(one, other)
    assert forth == _is_on(other, one)
    return forth


def _is_on(run: Facts, target: Facts) -> bool:
    """Whether the database finds a run with these facts on the target."""
    with create_engine("sqlite://").begin() as db:
        tables.runs.create(db)
        keys = key_columns(target_keys(run))
        db.execute(insert(tables.runs).values(run="1", number=1, plan=b"", secret=b"", **keys))
        return db.execute(select(tables.runs.c.run).where(is_on(target_keys(target)))).first() is not None


def test_a_drive_is_itself_on_another_machine_and_mount_point(lab: Lab) -> None:
    """Serial, place on the drive, file system and path in it make the target, wherever it is mounted."""
    facts = lab.facts()
    moved = replace(facts, path="/elsewhere/target", host=replace(facts.host, machine_id="machine-2"))
    assert _same(facts, moved)


def test_what_makes_another_target(lab: Lab) -> None:
    """Another drive, partition, file system or path within it is another target, at the same path or not."""
    facts = lab.facts()
    assert not _same(facts, lab.facts(serial="S2"))
    assert not _same(facts, lab.facts(uuid="uuid-2"))
    assert not _same(facts, replace(facts, offset_bytes=0))
    assert not _same(facts, replace(facts, path_in_file_system="/other"))


def test_the_drive_of_an_external_log_makes_no_other_target(lab: Lab) -> None:
    """The drive of an external log, listed after the others, does not change the target. The first release
    did not find that drive."""
    facts = lab.facts()
    log = replace(facts.drives[0], name="sdb", serial="LOG")
    assert _same(facts, replace(facts, drives=(*facts.drives, log)))
    assert not _same(facts, replace(facts, drives=(log, *facts.drives)))


def test_a_file_system_without_known_drives_is_known_by_its_uuid(lab: Lab) -> None:
    """If one collection of facts has no drives, because of layers or missing rights, the file system's UUID
    identifies the target."""
    facts = lab.facts()
    blind = replace(facts, drives=(), offset_bytes=None)
    assert _same(facts, blind)
    assert not _same(blind, replace(lab.facts(uuid="uuid-2"), drives=()))


def test_a_target_without_any_identity_is_known_by_machine_and_path(lab: Lab) -> None:
    """On tmpfs there is only the machine and the path."""
    bare = replace(lab.facts(), drives=(), offset_bytes=None, file_system=None)
    assert _same(bare, bare)
    assert not _same(bare, replace(bare, path="/other"))
    assert not _same(bare, replace(bare, host=replace(bare.host, machine_id="machine-2")))


def test_a_serial_that_every_machine_has_is_its_machines_alone(lab: Lab) -> None:
    """Loop devices and emulated drives have the same serial on many machines."""
    for drive in (
        replace(lab.facts().drives[0], serial="loop:/tmp/disk.img"),
        replace(lab.facts().drives[0], serial="disk-1", emulated=True),
    ):
        facts = replace(lab.facts(), kind="device", file_system=None, drives=(drive,))
        twin = replace(facts, host=replace(facts.host, machine_id="machine-2"))
        assert _same(facts, facts)
        assert not _same(facts, twin)


@pytest.mark.parametrize("serial", GIVEN_TO_ANY)
def test_a_serial_that_any_drive_may_have_is_none(lab: Lab, serial: str) -> None:
    """Two drives with it are known apart where one without a serial is: by file system, or machine and path.
    Their cuts are in no series."""
    drives = (replace(lab.facts().drives[0], serial=serial),)
    device = replace(lab.facts(), kind="device", file_system=None, path="/dev/sdb", drives=drives)
    file = replace(lab.facts(), drives=drives)
    for one in (device, file):
        assert target_keys(one).drive == series_key(lab.plan(), one) == ""
    assert _same(device, device) and not _same(device, replace(device, path="/dev/sdc"))
    assert _same(file, replace(file, path="/moved"))
    assert not _same(file, replace(lab.facts(uuid="uuid-2"), drives=drives))


def test_two_paths_to_a_drive_are_one_drive(lab: Lab) -> None:
    """A drive with two paths has the same target and series keys while one path is down."""
    one = lab.facts()
    two = replace(one, drives=(*one.drives, replace(one.drives[0], name="sdz")))
    assert target_keys(one) == target_keys(two)
    assert series_key(lab.plan(), one) == series_key(lab.plan(), two)


def test_a_device_is_known_by_serial_and_offset(lab: Lab) -> None:
    """Two partitions of one drive are two targets; the device's name does not matter."""
    device = replace(lab.facts(), kind="device", file_system=None, path="/dev/sda1", path_in_file_system="")
    assert _same(device, replace(device, path="/dev/sdb1"))
    assert not _same(device, replace(device, offset_bytes=1 << 30))
    assert not _same(device, lab.facts())


def test_a_volume_is_known_by_its_uuid() -> None:
    """A volume is identified by its UUID, not by its dm number, whether or not its drives have serials."""
    for drives in ((sample_facts.drive(),), NAMELESS):
        volume = _device(None, MIB, path="/dev/dm-0", volume="LVM-a", drives=drives)
        assert _same(volume, replace(volume, path="/dev/dm-1"))
        assert not _same(volume, replace(volume, volume="LVM-b"))
    unnamed = replace(volume, volume="")
    assert _same(unnamed, unnamed) and not _same(unnamed, volume)


def test_drives_that_cannot_be_told_apart_have_no_series(lab: Lab) -> None:
    """Runs are not pooled across drives that cannot be told apart: drives without a serial, or emulated
    drives of different machines with the same serial."""
    facts = lab.facts()
    nameless = replace(facts, drives=(*facts.drives, replace(facts.drives[0], serial="")))
    assert series_key(lab.plan(), nameless) == series_key(lab.plan(), replace(facts, drives=())) == ""
    emulated = replace(facts, drives=(replace(facts.drives[0], emulated=True),))
    twin = replace(emulated, host=replace(facts.host, machine_id="machine-2"))
    assert series_key(lab.plan(), emulated) != series_key(lab.plan(), twin)


def test_a_series_is_the_same_test_of_the_same_drives(lab: Lab) -> None:
    """Within a series only run, seed and path differ, and the kernel's names; another model, world-wide name,
    size, firmware, write cache, layer, option, hypervisor or plan makes another one (rule 16)."""
    plan, facts = lab.plan(), lab.facts()
    series = series_key(plan, facts)
    assert series == series_key(lab.plan(run=9, seed=9, target=9), replace(facts, path="/moved"))
    assert facts.file_system is not None
    layered = replace(facts, layers=("dm-0 (dm crypt)", "sda1 (partition)", "sda (drive)"))
    assert series_key(plan, layered) == series_key(
        plan, replace(layered, layers=("dm-3 (dm crypt)", "sdb (drive)"))
    )
    for option in ("logdev=/dev/sdb1", "rtdev=/dev/sdb2", "journal_path=/dev/sdb1", "journal_dev=0x811"):
        mounted = replace(facts.file_system, options=f"{option},{facts.file_system.options}")
        assert series == series_key(plan, replace(facts, file_system=mounted))
    first = facts.drives[0]
    drives = (
        replace(first, model="Other"),
        replace(first, wwid="naa.1"),
        replace(first, size_bytes=first.size_bytes + 512),
        replace(first, firmware="G"),
        replace(first, write_cache="write through"),
        replace(first, fua=True),
        replace(first, fua=None),
    )
    others = (
        (lab.plan(group=2), facts),
        *((plan, replace(facts, drives=(drive,))) for drive in drives),
        (plan, layered),
        (plan, replace(facts, layers=("dm-0 (dm cache)", "sda1 (partition)", "sda (drive)"))),
        (plan, replace(facts, host=replace(facts.host, virtualisation="kvm"))),
        (plan, replace(facts, file_system=replace(facts.file_system, options="rw,nobarrier"))),
    )
    assert len({series, *(series_key(*other) for other in others)}) == 1 + len(others)


def _device(offset: int | None, size: int, **changes: Any) -> Facts:
    """A device of the disk: the whole, a partition, or with None a volume of layers on it."""
    return facts(kind="device", file_system=None, offset_bytes=offset, size_bytes=size, **changes)


MIB, DISK = 1 << 20, 1 << 40
NAMELESS = (sample_facts.drive(serial=""),)
ZEROS = (sample_facts.drive(serial="000000000000"),)
OTHER_ZEROS = (sample_facts.drive(serial="000000000000", name="sdb"),)
NUMBERED = (sample_facts.drive(serial="QM00001", emulated=True),)
PAIR = (sample_facts.drive(), sample_facts.drive(serial="S2"))
WHOLE, FIRST, SECOND = _device(0, DISK), _device(MIB, 100 * MIB), _device(101 * MIB, 100 * MIB)
VOLUME = _device(None, 100 * MIB)
NAMED = replace(VOLUME, volume="LVM-a")
FILE = facts()  # on a file system of the first partition
RENAMED = facts(path_in_file_system="other", file_id="7")
WITH_LOG = facts(drives=PAIR)  # the same, with its log on the other drive


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (WHOLE, FIRST, True),
        (WHOLE, FILE, True),
        (WHOLE, VOLUME, True),
        (FIRST, FILE, True),
        (FIRST, _device(50 * MIB, 100 * MIB), True),
        (FIRST, SECOND, False),
        (SECOND, FILE, False),
        (VOLUME, VOLUME, False),
        (VOLUME, FIRST, False),
        (NAMED, facts(offset_bytes=None, volume="LVM-a"), True),
        (NAMED, facts(offset_bytes=None, volume="LVM-b"), False),
        (facts(offset_bytes=None, volume="LVM-a"), facts(offset_bytes=None, volume="LVM-a", uuid="u2"), True),
        (FILE, facts(path_in_file_system="other"), False),
        (RENAMED, facts(file_id="7"), True),
        (RENAMED, facts(file_id="8"), False),
        (RENAMED, facts(file_id="7", uuid="", offset_bytes=101 * MIB), False),
        (RENAMED, facts(file_id="7", offset_bytes=101 * MIB), False),
        (FILE, facts(uuid="uuid-2"), True),
        (FILE, facts(uuid="uuid-2", offset_bytes=101 * MIB), False),
        (FILE, facts(uuid="uuid-2", offset_bytes=0), True),
        (FILE, facts(uuid="uuid-2", offset_bytes=None), False),
        (WHOLE, _device(MIB, MIB, drives=PAIR[1:]), False),
        (_device(0, DISK, drives=NAMELESS), _device(MIB, MIB, drives=NAMELESS), True),
        (_device(0, DISK, drives=ZEROS), facts(drives=ZEROS), True),
        (_device(0, DISK, drives=ZEROS), facts(drives=OTHER_ZEROS), False),
        (_device(0, DISK, drives=ZEROS), facts(drives=ZEROS, machine="machine-2"), False),
        (_device(0, DISK, drives=ZEROS), facts(drives=NAMELESS), False),
        (facts(drives=ZEROS), facts(drives=ZEROS, uuid="uuid-2"), False),
        (_device(0, DISK, drives=NUMBERED), facts(drives=(replace(NUMBERED[0], name="sdb"),)), True),
        (facts(drives=NUMBERED), facts(drives=NUMBERED, uuid="uuid-2"), False),
        (WHOLE, _device(None, DISK, drives=PAIR), True),
        (WITH_LOG, FIRST, True),
        (WITH_LOG, _device(MIB, MIB, drives=PAIR[1:]), False),
        (WITH_LOG, _device(0, DISK, drives=PAIR[1:]), True),
        (WITH_LOG, facts(uuid="uuid-2", drives=PAIR[1:]), False),
        (WITH_LOG, facts(uuid="uuid-2", drives=PAIR[1:], offset_bytes=0), True),
        (WITH_LOG, facts(uuid="uuid-2", drives=PAIR[::-1]), False),
        (facts(drives=PAIR, offset_bytes=0), FIRST, True),
        (facts(drives=PAIR, offset_bytes=0), _device(MIB, MIB, drives=PAIR[1:]), False),
    ],
)
def test_targets_overlap_where_they_share_a_place_on_a_drive(
    one: Facts, other: Facts, *, expected: bool
) -> None:
    """Two targets overlap if they may share a place on a drive. A place below layers is unknown. A drive
    without a serial is compared by its name on the machine or its number in the hypervisor."""
    assert overlap(one, other) is overlap(other, one) is expected
