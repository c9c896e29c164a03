"""A serial is a drive's own, its machine's, or nobody's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from durability.evidence.cut import assess
from durability.evidence.drive_identity import are_two, enumerations, own_serial, own_serials
from durability.evidence.identity import identify, newer_run_here
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
        "0x00000000",
        "nvme_card0",
        "nvme_card-pd/2",
        "152D00539000",
        "5000000000000001",
        "0123456789ABCDEF",
        "123456789012",
    ],
)
def test_what_any_drive_is_given_is_no_serial(serial: str) -> None:
    """A serial that a hypervisor or an adapter gives to every drive is not an own serial."""
    assert own_serial(drive(serial=serial, emulated=True), "machine") == ""


def test_a_text_longer_than_any_serial_is_not_searched() -> None:
    """A client could name hundreds of them; the server would search in each."""
    assert own_serial(drive(serial="0" * 256), "machine") == ""
    assert own_serial(drive(serial="0" * 257), "machine") == "0" * 257


def test_a_serial_that_other_machines_have_is_one_machines() -> None:
    """With the model of the drive; on a machine without an id nothing tells it from others."""
    for shared in (LOOP, GUESTS):
        assert own_serial(shared, "a") != own_serial(shared, "b")
        assert own_serial(shared, "") == ""
    assert own_serial(GUESTS, "a") != own_serial(drive(serial="disk-1", emulated=True), "a")
    named = drive(serial="data", model="DO Volume")
    assert own_serial(named, "a") != own_serial(named, "b")
    assert own_serial(drive(), "a") == own_serial(drive(), "b") == "S1"
    assert own_serial(drive(serial="12345678901234"), "a")


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
    """A drive with a number from the hypervisor is identified only by its superblock. If it is smaller now,
    it may be another drive."""
    plan = small(make_plan, target_kind="device")
    device: dict[str, Any] = {"kind": "device", "file_system": None, "path": "/dev/sda", "offset_bytes": 0}
    small_drive = drive(serial="QM00001", emulated=True, size_bytes=1 << 29)
    case = make_case(plan, (10,), armed=facts(drives=(NUMBERED,), **device))
    now = facts(drives=(small_drive,), size_bytes=1 << 29, boot="boot-2", **device)
    assert identify(case, now, ()).by is None
    identity = identify(case, now, (plan, plan))
    assert (identity.smaller, len(identity.perhaps_smaller)) == ((), 2)  # the drive and the device
    assert not identity.drive_changed


NAMED = {"wwid": "naa.1"}
LARGER = {"size_bytes": 2 << 40}


@pytest.mark.parametrize(
    ("before", "after", "two"),
    [
        ({}, {}, False),
        ({}, {"model": "Other"}, True),
        ({}, {"model": ""}, False),
        ({}, {"size_bytes": 1 << 39}, False),
        ({}, {"size_bytes": 0}, False),
        ({"size_bytes": 0}, {}, False),
        ({}, LARGER, True),
        (NAMED, NAMED, False),
        (NAMED, {"wwid": "naa.2"}, True),
        (NAMED, {}, False),
        (NAMED, NAMED | {"model": "Other"}, True),
        (NAMED, NAMED | LARGER, False),
        (NAMED, LARGER, True),
    ],
)
def test_a_serial_alone_makes_no_drive(
    make_plan: MakePlan, before: dict[str, Any], after: dict[str, Any], *, two: bool
) -> None:
    """Some adapters give one to all drives: model, world-wide name and size must agree, as far as they are
    known. A drive may lose capacity, and gains it only with its world-wide name."""
    first, second = drive(**before), drive(**after, diskseq=1, unsafe_shutdowns=80)
    assert are_two(first, second) == two
    plan = small(make_plan, target_kind="device")
    device: dict[str, Any] = {"kind": "device", "file_system": None, "offset_bytes": 0}
    case = make_case(plan, (10,), armed=facts(drives=(first,), **device))
    now = facts(drives=(second,), boot="boot-2", uptime_s=30, **device)
    assert (identify(case, now, ()).by is None) == two
    identity = identify(case, now, (plan, plan))
    assert identity.drive_changed == two
    assert not (two and identity.smaller)
    assert (assess(case, now, attested=None, cut_class=None).cut_class == "power") != two


def test_of_two_drives_in_one_dock_each_has_its_runs(make_plan: MakePlan) -> None:
    """The disk of the first run is back in the dock, after a run on another one of the same serial."""
    plan = small(make_plan, target_kind="device")
    device: dict[str, Any] = {"kind": "device", "file_system": None, "offset_bytes": 0}
    one, other = (facts(drives=(drive(model=model),), **device) for model in ("A", "B"))
    first = make_case(plan, (10,), armed=one)
    second = make_case(replace(plan, run=7), (10,), armed=other, predecessors=(first.run,))
    assert not newer_run_here(first, second, one, (plan, plan))
    assert newer_run_here(replace(first, armed=other), second, other, (plan, plan))
    why = " ".join(identify(second, one, ()).reasons)
    assert "A serial S1 (1,099,511,627,776 bytes: another drive), expected B serial S1" in why


def test_an_enumeration_is_a_drive_from_one_power_loss_to_the_next() -> None:
    """Files, partitions and containers on one drive in one boot share an enumeration. Another boot or another
    attachment of the drive is another enumeration."""
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


def test_a_drive_that_an_earlier_release_took_for_emulated_is_the_same(make_plan: MakePlan) -> None:
    """Its runs are recognised after an upgrade, on the same machine."""
    plan = small(make_plan)
    before, after = (drive(model="Dell VIRTUAL DISK", emulated=emulated) for emulated in (True, False))
    case = make_case(plan, (100,), armed=facts(drives=(before,)))

    for superblocks in ((plan, plan), (None, None)):
        identity = identify(case, facts(drives=(after,)), superblocks)
        assert (identity.by is not None, identity.drive_changed) == (True, False)
    moved = facts(machine="other", boot="boot-9", drives=(after,))
    assert identify(case, moved, (plan, plan)).drive_changed
