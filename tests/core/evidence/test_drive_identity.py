"""A serial is a drive's own, its machine's, or nobody's."""

from __future__ import annotations

from typing import Any

import pytest

from durability.evidence.cut import assess
from durability.evidence.drive_identity import enumerations, own_serial, own_serials
from durability.evidence.identity import identify
from durability.formats.facts import Drive, Facts
from tests.core.evidence.memory_target import MakePlan, make_case, small
from tests.sample_facts import drive, facts

LOOP = drive(serial="loop:/var/lib/img", model="", unsafe_shutdowns=None)
GUESTS = drive(serial="disk-1", model="QEMU HARDDISK", emulated=True, unsafe_shutdowns=None)
NUMBERED = drive(serial="QM00001", model="QEMU HARDDISK", emulated=True, unsafe_shutdowns=None)


@pytest.mark.parametrize(
    "serial",
    [
        "QM00001",
        "drive-scsi0",
        "0QEMU    QEMU HARDDISK   drive-scsi0-0-1",
        "t10.ATA     QEMU HARDDISK                           QM00003",
        "VMware NVMe_0000",
        "VB1234-56789",
        "00000000",
    ],
)
def test_what_a_hypervisor_gives_by_itself_is_no_serial(serial: str) -> None:
    """The first drive of every guest has it."""
    assert own_serial(drive(serial=serial, emulated=True), "machine") == ""


def test_a_serial_that_other_machines_have_is_one_machines() -> None:
    """With the model of the drive; on a machine without an id nothing tells it from others."""
    for shared in (LOOP, GUESTS):
        assert own_serial(shared, "a") != own_serial(shared, "b")
        assert own_serial(shared, "") == ""
    assert own_serial(GUESTS, "a") != own_serial(drive(serial="disk-1", emulated=True), "a")
    assert own_serial(drive(), "a") == own_serial(drive(), "b") == "S1"


def test_drives_are_known_only_together() -> None:
    """One without a serial of its own may be any; two paths to one drive have one serial."""
    assert own_serials((drive(), drive(name="sdb")), "") == frozenset({"S1"})
    assert own_serials((drive(), NUMBERED), "a") is None
    assert own_serials((), "a") is None


def on(one: Drive, *, machine: str = "machine", boot: str = "boot-2") -> Facts:
    """The target on this drive of a machine, after another boot unless one is given."""
    return facts(drives=(one,), machine=machine, boot=boot, uptime_s=30)


@pytest.mark.parametrize("one", [LOOP, GUESTS])
def test_such_a_drive_on_another_machine_is_another(make_plan: MakePlan, one: Drive) -> None:
    """A copied image is no drive that was moved, so it shows no cut; on its machine the drive is known."""
    plan = small(make_plan)
    case = make_case(plan, (10,), armed=on(one, boot="boot-1"))
    identity = identify(case, on(one, machine="clone"), ())
    assert identity.by is None and "other machines" in " ".join(identity.reasons)
    assert identify(case, on(one, machine="clone"), (plan, plan)).drive_changed
    cut = assess(case, on(one, machine="clone"), attested="pulled the plug", cut_class=None)
    assert (cut.cut_class, cut.proof) == ("none", ())
    assert identify(case, on(one), ()).by == "hardware"
    container = on(one, machine="container", boot="boot-1")
    assert identify(case, container, ()).by == "hardware"
    assert not identify(case, container, (plan, plan)).drive_changed


def test_a_drive_with_a_number_of_the_hypervisor_is_known_by_its_superblock(make_plan: MakePlan) -> None:
    """On whatever machine; and where it is smaller, it may be another one."""
    plan = small(make_plan, target_kind="device")
    device: dict[str, Any] = {"kind": "device", "file_system": None, "path": "/dev/sda", "offset_bytes": 0}
    small_drive = drive(serial="QM00001", emulated=True, size_bytes=1 << 29)
    case = make_case(plan, (10,), armed=facts(drives=(NUMBERED,), **device))
    now = facts(drives=(small_drive,), size_bytes=1 << 29, boot="boot-2", **device)
    assert identify(case, now, ()).by is None
    identity = identify(case, now, (plan, plan))
    assert (identity.smaller, len(identity.perhaps_smaller)) == ((), 1)
    assert not identity.drive_changed


def test_an_enumeration_is_a_drive_from_one_power_loss_to_the_next() -> None:
    """Files and partitions of one drive share it, and so do containers of one kernel; in another boot, or
    attached anew, a drive has another one."""
    armed = enumerations(facts())
    assert len(armed) == 1
    assert enumerations(facts(path="/mnt/other", offset_bytes=0, machine="container")) == armed
    others = (drive(diskseq=10),), (drive(serial="S2"),)
    for other in (facts(boot="boot-2"), *(facts(drives=drives) for drives in others)):
        assert not set(enumerations(other)) & set(armed)
    mirror = enumerations(facts(drives=(drive(), drive(serial="S2", diskseq=10))))
    assert len(mirror) == 2 and set(armed) < set(mirror)


def test_where_no_enumeration_is_numbered_a_boot_has_one() -> None:
    """An older kernel gives no diskseq; a system without a boot id has its machine, and a target without
    drives its boot."""
    unnumbered = facts(drives=(drive(diskseq=None),))
    assert enumerations(unnumbered) == enumerations(facts(drives=(drive(diskseq=None, unsafe_shutdowns=4),)))
    assert enumerations(unnumbered) != enumerations(facts(boot="boot-2", drives=(drive(diskseq=None),)))
    assert enumerations(facts(boot="")) != enumerations(facts(boot="", machine="other"))
    assert enumerations(facts(drives=())) == enumerations(facts(drives=(), path="/other"))
    assert enumerations(facts(drives=())) != enumerations(facts(drives=(), boot="boot-2"))
