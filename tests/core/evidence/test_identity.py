"""The target of a run is known by its superblock or its hardware, never by its name."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from durability.evidence.identity import identify, identify_without_log, newer_run_here, target_tag
from durability.formats.case import PastVerdict
from durability.formats.facts import Drive, Facts
from durability.formats.plan import Plan
from tests.core.evidence.memory_target import MakePlan, make_case, small
from tests.sample_facts import drive, facts, file_system


def test_a_superblock_of_the_run_is_enough(make_plan: MakePlan) -> None:
    """One superblock copy of the run identifies the target, on any path and machine."""
    plan = small(make_plan)
    elsewhere = facts(machine="other", path="/other/copy", uuid="")
    identity = identify(make_case(plan, (10,)), elsewhere, (None, plan))
    assert (identity.by, identity.drive_changed, identity.superseded_by) == ("superblock", False, "")


def test_without_a_superblock_the_hardware_must_match(make_plan: MakePlan) -> None:
    """Same serials, same file system, same path in it: what is missing there is missing from the target."""
    identity = identify(make_case(small(make_plan), (10,)), facts(boot="boot-2"), (None, None))
    assert (identity.by, identity.reasons) == ("hardware", ())


@pytest.mark.parametrize(
    ("now", "word"),
    [
        (None, "reached"),
        (facts(drives=(drive(serial="S2"),)), "S2"),
        (facts(drives=()), "none"),
        (facts(uuid="uuid-2"), "mounted"),
        (facts(path_in_file_system="other"), "other"),
    ],
)
def test_other_hardware_is_not_the_target(make_plan: MakePlan, now: Facts | None, word: str) -> None:
    """A wrong disk or a file system that is not mounted is told as such, for exit 5."""
    identity = identify(make_case(small(make_plan), (10,)), now, (None, None))
    assert identity.by is None
    assert word in " ".join(identity.reasons)


def test_a_partition_is_known_by_its_offset(make_plan: MakePlan) -> None:
    """The partition beside it lies on the same drive, and is another target."""
    armed = facts(kind="device", file_system=None)
    case = make_case(small(make_plan, target_kind="device"), (10,), armed=armed)
    assert identify(case, armed, (None, None)).by == "hardware"
    beside = dataclasses.replace(armed, offset_bytes=1 << 30)
    assert identify(case, beside, (None, None)).by is None


def volume(name: str, **changes: Any) -> Facts:
    """A device of layers on the drive, which device mapper or md calls `name`."""
    return facts(**{"kind": "device", "file_system": None, "offset_bytes": None, "volume": name, **changes})


@pytest.mark.parametrize(
    ("armed", "now", "word"),
    [
        (volume("LVM-a"), volume("LVM-a", path="/dev/dm-1"), ""),
        (volume("LVM-a"), volume("LVM-b"), "LVM-b, expected LVM-a"),
        (volume(""), volume(""), "only a superblock"),
        (volume(""), volume("LVM-a"), "only a superblock"),
        (volume(""), volume("", offset_bytes=0), "only a superblock"),
        (volume("", offset_bytes=0), volume(""), "only a superblock"),
        (volume("LVM-a"), facts(offset_bytes=None), "a file, expected a device"),
        (facts(offset_bytes=None, volume="LVM-a"), facts(offset_bytes=None, volume="LVM-a"), ""),
        (facts(offset_bytes=None), facts(offset_bytes=None), ""),
        (
            facts(offset_bytes=None, volume="LVM-a"),
            facts(offset_bytes=None, volume="LVM-b"),
            "expected LVM-a",
        ),
    ],
)
def test_a_volume_is_known_by_its_uuid(make_plan: MakePlan, armed: Facts, now: Facts, word: str) -> None:
    """Many volumes lie on the same drives, and where on them is not known; a file system has its UUID."""
    case = make_case(small(make_plan, target_kind=armed.kind), (10,), armed=armed)
    identity = identify(case, now, (None, None))
    assert (identity.by is None) == bool(word)
    assert word in " ".join(identity.reasons)


def test_a_newer_run_on_another_volume_is_not_judged(make_plan: MakePlan) -> None:
    """A store of an earlier release takes two volumes for one, since they had one name in turn."""
    plan = small(make_plan, target_kind="device")
    older = make_case(plan, (10,), armed=volume(""))
    newest = make_case(dataclasses.replace(plan, run=7), (10,), armed=volume(""), predecessors=(older.run,))
    assert not newer_run_here(older, newest, volume(""), (plan, plan))


def test_a_drive_without_a_serial_is_known_only_by_its_superblock(make_plan: MakePlan) -> None:
    """Two nameless drives cannot be told apart."""
    nameless = facts(drives=(drive(serial=""),))
    case = make_case(small(make_plan), (10,), armed=nameless)
    assert identify(case, nameless, (None, None)).by is None


def test_a_file_system_without_a_uuid_cannot_be_recognised(make_plan: MakePlan) -> None:
    """An empty UUID matches nothing, not even itself."""
    armed = facts(uuid="")
    assert identify(make_case(small(make_plan), (10,), armed=armed), armed, (None, None)).by is None


def test_a_superblock_of_a_later_run_supersedes(make_plan: MakePlan) -> None:
    """Another run's superblock on the right hardware is newer, unless the server knows it as older."""
    plan = small(make_plan)
    other = dataclasses.replace(plan, run=0xBEEF)
    case = make_case(plan, (10,))
    assert identify(case, facts(), (other, other)).superseded_by == f"{other.run:016x}"
    earlier = make_case(plan, (10,), predecessors=(f"{other.run:016x}",))
    assert identify(earlier, facts(), (other, other)).superseded_by == ""
    elsewhere = PastVerdict(
        run=f"{other.run:016x}", verdict="durable", cut_class="power", at_risk_ms1000=1, wall=""
    )
    of_the_series = make_case(plan, (10,), series=(elsewhere,))
    assert identify(of_the_series, facts(), (other, other)).superseded_by == elsewhere.run
    known = make_case(plan, (10,), superseded_by="00000000000000aa")
    assert identify(known, facts(), (plan, plan)).superseded_by == "00000000000000aa"


def test_a_run_that_never_wrote_does_not_supersede(make_plan: MakePlan) -> None:
    """It begins with its superblocks, and where it would write them, all are the earlier run's."""
    plan = small(make_plan)
    attempt = dataclasses.replace(plan, run=7)
    larger = small(make_plan, slots=128, run=8)

    def found(attempts: tuple[Plan, ...], *superblocks: Plan | None) -> tuple[str, str]:
        encoded = tuple(one.encode().hex() for one in attempts)
        case = make_case(plan, (10,), superseded_by="0000000000000007", attempts=encoded)
        identity = identify(case, facts(), superblocks)
        return identity.superseded_by, identity.attempted_by

    later = "0000000000000007"
    assert found((attempt,), plan, plan) == ("", later)
    assert found((attempt, attempt), plan, plan) == ("", later)
    assert found((), plan, plan) == (later, "")
    assert found((attempt, larger), plan, plan) == (later, "")
    assert found((attempt,), plan, None) == (later, "")
    assert found((attempt,), attempt, plan) == (later, "")
    assert found((attempt,), plan) == (later, "")
    unknown = make_case(plan, (10,), superseded_by=later, attempts=("00",))
    assert identify(unknown, facts(), (plan, plan)).superseded_by == later


@pytest.mark.parametrize(
    ("first", "now", "predecessor", "judged"),
    [
        (facts(), facts(boot="boot-2"), True, True),
        (None, facts(boot="boot-2"), True, True),
        (facts(), facts(boot="boot-2"), False, False),
        (facts(path_in_file_system="other"), facts(boot="boot-2"), True, False),
        (facts(), facts(path_in_file_system="other"), True, False),
        (facts(), facts(drives=(drive(serial="S2"),)), True, False),
        (facts(drives=(drive(serial=""),)), facts(), True, False),
    ],
)
def test_a_newer_run_is_judged_on_its_own_hardware(
    make_plan: MakePlan, first: Facts | None, now: Facts, predecessor: bool, judged: bool
) -> None:
    """An older run's superblock hides the newer run only if it may have come there in another way."""
    plan = small(make_plan)
    older = make_case(plan, (10,), armed=first)
    newer = make_case(dataclasses.replace(plan, run=7), (10,), predecessors=(older.run,) * predecessor)
    assert newer_run_here(older, newer, now, (plan, None)) == judged
    assert not newer_run_here(older, older, now, (plan, None))


def test_a_newer_run_is_judged_by_one_copy_of_its_superblock(make_plan: MakePlan) -> None:
    """The drive needs no serial, if one of the two copies is the newer run's."""
    plan = small(make_plan)
    newer, nameless = dataclasses.replace(plan, run=7), facts(drives=(drive(serial=""),))
    older = make_case(plan, (10,), armed=nameless)
    newest = make_case(newer, (10,), armed=nameless)
    assert newer_run_here(older, newest, nameless, (plan, newer))
    assert not newer_run_here(older, newest, nameless, (plan, plan))


@pytest.mark.parametrize(
    ("now", "count"),
    [
        (facts(), 0),
        (facts(drives=(drive(size_bytes=0),)), 0),
        (facts(drives=(drive(size_bytes=2 << 40),)), 0),
        (facts(drives=(drive(size_bytes=(1 << 40) - 512),)), 1),
        (facts(size_bytes=5), 0),
    ],
)
def test_a_smaller_drive_is_told_with_its_sizes(make_plan: MakePlan, now: Facts, count: int) -> None:
    """Drives are compared by serial; a file's length is for the scan; what is unknown is not smaller."""
    plan = small(make_plan)
    smaller = identify(make_case(plan, (10,)), now, (plan, plan)).smaller
    assert len(smaller) == count
    assert all("serial S1 has 1,099,511,627,264 bytes, 1,099,511,627,776 at arming" in one for one in smaller)


def test_a_smaller_device_is_told_without_a_serial(make_plan: MakePlan) -> None:
    """A superblock identifies it; another device that is smaller is not the target."""
    plan = small(make_plan, target_kind="device")
    armed = facts(kind="device", file_system=None, path="/dev/vdb", drives=(drive(serial=""),))
    case = make_case(plan, (10,), armed=armed)
    half = dataclasses.replace(armed, size_bytes=armed.size_bytes // 2)
    assert identify(case, half, (plan, plan)).smaller == (
        "/dev/vdb has 536,870,912 bytes, 1,073,741,824 at arming",
    )
    assert identify(case, dataclasses.replace(armed, size_bytes=0), (plan, plan)).smaller == ()
    assert identify(case, half, ()).smaller == ()


@pytest.mark.parametrize(
    ("boot", "changes"),
    [
        ("boot-2", {}),
        ("boot-1", {"diskseq": 10}),
        ("boot-1", {"diskseq": None}),
        ("boot-1", {"name": "vdc"}),
        ("boot-1", {"serial": "S1"}),
    ],
)
def test_a_smaller_device_without_a_serial_may_be_a_copy(
    make_plan: MakePlan, boot: str, changes: dict[str, object]
) -> None:
    """Only a drive that the kernel has not enumerated since arming is the same one for sure."""
    plan = small(make_plan, target_kind="device")
    nameless = {
        "serial": "",
        "name": "vdb",
        **({"diskseq": None} if changes.get("diskseq", 1) is None else {}),
    }
    armed = facts(kind="device", file_system=None, path="/dev/vdb", drives=(drive(**nameless),))
    now = facts(
        kind="device",
        file_system=None,
        path="/dev/vdb",
        boot=boot,
        size_bytes=armed.size_bytes // 2,
        drives=(drive(**{**nameless, **changes}),),
    )
    identity = identify(make_case(plan, (10,), armed=armed), now, (plan, plan))
    told = len(identity.smaller), len(identity.perhaps_smaller)
    same = changes == {"serial": "S1"}  # the diskseq says that it is the same
    assert told == ((1, 0) if same else (0, 1))


@pytest.mark.parametrize(
    ("sizes", "boot", "told"),
    [
        ((100, 50), "boot-2", (0, 0)),
        ((50, 100), "boot-2", (0, 0)),
        ((100, 60), "boot-2", (0, 0)),
        ((90, 50), "boot-2", (0, 1)),
        ((50, 50), "boot-2", (0, 1)),
        ((100, 0), "boot-2", (0, 0)),
        ((50,), "boot-2", (0, 0)),
        ((50, 50), "boot-1", (1, 0)),
    ],
)
def test_drives_without_serials_are_compared_by_size(
    make_plan: MakePlan, sizes: tuple[int, ...], boot: str, told: tuple[int, int]
) -> None:
    """Drives without serials are compared by size, in any order. A file's drives may be others that carry a
    copy, unless the kernel has not enumerated them since."""

    def nameless(*sizes: int) -> tuple[Drive, ...]:
        return tuple(
            drive(serial="", name=f"vd{'bc'[number]}", diskseq=number, size_bytes=size)
            for number, size in enumerate(sizes)
        )

    plan = small(make_plan)
    case = make_case(plan, (10,), armed=facts(drives=nameless(100, 50)))
    identity = identify(case, facts(drives=nameless(*sizes), boot=boot), (plan, plan))
    assert (len(identity.smaller), len(identity.perhaps_smaller)) == told


@pytest.mark.parametrize(
    ("armed", "now", "word"),
    [
        (facts(), facts(offset_bytes=1 << 34), "starts at byte 17179869184"),
        (facts(), facts(uuid="uuid-2"), "UUID uuid-2"),
        (facts(), facts(uuid=""), ""),
        (facts(offset_bytes=None, volume="LVM-a"), facts(offset_bytes=None, volume="LVM-b"), "LVM-b"),
        (facts(kind="device", file_system=None), facts(), "a file"),
        (
            facts(kind="device", file_system=None),
            facts(kind="device", file_system=None, offset_bytes=0),
            "byte 0",
        ),
        (facts(file_id="12.3"), facts(file_id="12.3", path_in_file_system="renamed"), ""),
        (facts(file_id="12.3"), facts(file_id="12.4"), "as file 12.4"),
        (facts(), facts(file_id="12.4"), ""),
        (facts(), facts(path_in_file_system="other"), "is other, expected target"),
        (facts(), facts(file_id="12.4", path_in_file_system="other"), ""),  # of an earlier release
        (facts(file_id="12.3"), facts(path_in_file_system="other"), "renamed or copied"),
    ],
)
def test_a_copy_on_the_same_drive_is_told(make_plan: MakePlan, armed: Facts, now: Facts, word: str) -> None:
    """A copy on the same drive is recognised by its place, file system or file. A renamed file that cannot be
    distinguished from a copy may be a copy."""
    plan = small(make_plan, target_kind=armed.kind)
    identity = identify(make_case(plan, (10,), armed=armed), now, (plan, plan))
    assert (identity.is_copy, identity.drive_changed) == (bool(word), False)
    assert word in identity.copied


@pytest.mark.parametrize(
    ("older", "newest", "now", "judged"),
    [
        ("7", "7", "7", True),
        ("7", "9", "9", True),
        ("7", "9", "7", False),
        ("", "9", "7", False),
        ("7", "7", "9", False),
        ("7", "", "7", True),
        ("7", "9", "", True),
    ],
)
def test_another_file_in_the_targets_place_is_not_the_newer_runs(
    make_plan: MakePlan, older: str, newest: str, now: str, *, judged: bool
) -> None:
    """It may have been put there; a drive that is back at a time before the run's file was made shows the
    same."""
    plan = small(make_plan)
    first = make_case(plan, (10,), armed=facts(file_id=older))
    second = make_case(
        dataclasses.replace(plan, run=7), (10,), armed=facts(file_id=newest), predecessors=(first.run,)
    )
    assert newer_run_here(first, second, facts(file_id=now), (plan, plan)) == judged
    identity = identify(second, facts(file_id=now), (plan, plan))
    assert (identity.by, bool(identity.copied)) == ("hardware", not judged)
    assert not identity.is_copy  # the drive is known, and may be found to be smaller
    assert judged or f"is file {now}, expected {newest}" in identity.copied


@pytest.mark.parametrize(
    ("armed", "now", "superblocks", "emptied"),
    [
        ({}, {}, 0, "/tmp"),
        ({}, {}, 2, ""),
        ({}, {"boot": "boot-1"}, 0, ""),
        ({"path": "/var/tmp/t"}, {"path": "/mnt/old/var/tmp/t"}, 0, "/var/tmp"),
        ({"path": "/home/t"}, {}, 0, ""),
        ({"file_system": file_system(mount_point="/tmp/disk")}, {}, 0, ""),
        ({}, {"file_system": file_system(mount_point="")}, 0, ""),
    ],
)
def test_a_target_may_be_gone_from_a_directory_that_is_emptied(
    make_plan: MakePlan, armed: dict[str, Any], now: dict[str, Any], superblocks: int, emptied: str
) -> None:
    """Where the machine was started since; a file system that is mounted there is left alone, and one that
    does not mount was not emptied."""
    plan = small(make_plan)
    place: dict[str, Any] = {"path": "/tmp/t", "file_system": file_system(mount_point="/")}
    case = make_case(plan, (10,), armed=facts(**{**place, **armed}))
    found = facts(**{**place, "boot": "boot-2", **now})
    assert identify(case, found, (plan,) * superblocks).emptied == emptied


@pytest.mark.parametrize(
    ("now", "copy"),
    [
        (facts(machine="other", path="/elsewhere", boot="boot-2"), False),
        (facts(drives=(drive(name="sdq", model="in an adapter"),)), False),
        (facts(drives=(drive(serial="S2"),)), True),
        (facts(offset_bytes=0), True),
        (facts(uuid="uuid-2"), True),
        (facts(path_in_file_system="other"), True),
    ],
)
def test_a_copy_is_told_without_a_log(make_plan: MakePlan, now: Facts, *, copy: bool) -> None:
    """The superblock has a tag of serials, offset, file system and path."""
    plan = small(make_plan, target=target_tag(facts()))
    identity = identify_without_log(plan, now, (plan, plan))
    assert (identity.by, identity.is_copy, identity.drive_changed) == ("superblock", copy, False)


def test_members_of_a_mirror_in_another_order_are_no_copy(make_plan: MakePlan) -> None:
    """A boot may find them in any order. Release 0.1 made its tag in the order of arming."""
    one, other = drive(name="sda", serial="S1"), drive(name="sdb", serial="S2")
    armed = facts(drives=(other, one), offset_bytes=None)
    swapped = facts(drives=(one, other), offset_bytes=None)
    assert target_tag(armed) == target_tag(swapped)
    of_0_1 = 0x3FC15A6D
    for tag, now in ((target_tag(armed), swapped), (of_0_1, armed)):
        plan = small(make_plan, target=tag)
        assert not identify_without_log(plan, now, (plan, plan)).is_copy
        assert identify_without_log(plan, facts(), (plan, plan)).is_copy


def test_a_path_that_is_down_makes_no_copy(make_plan: MakePlan) -> None:
    """Two paths to one drive are one drive. Earlier releases had a serial for each path in the tag."""
    paths = (drive(name="sda"), drive(name="sdb"))
    both, one = facts(drives=paths, offset_bytes=None), facts(drives=paths[:1], offset_bytes=None)
    of_both = 0x73015AAC
    for tag in (target_tag(both), target_tag(one), of_both):
        plan = small(make_plan, target=tag)
        for now in (both, one):
            assert not identify_without_log(plan, now, (plan, plan)).is_copy
        other = facts(drives=(drive(serial="S2"),), offset_bytes=None)
        assert identify_without_log(plan, other, (plan, plan)).is_copy


def test_paths_to_the_drives_of_a_mirror_make_no_copy(make_plan: MakePlan) -> None:
    """Release 0.1 made its tag in the order of arming, with a serial for each path."""
    drives = [drive(name=f"sd{letter}", serial=serial) for letter, serial in zip("abcd", "YXYX", strict=True)]
    armed = facts(drives=tuple(drives), offset_bytes=None)
    of_0_1, sorted_of_each_path = 0x11CA40CE, 0xA7A4219F
    for tag in (target_tag(armed), of_0_1, sorted_of_each_path):
        plan = small(make_plan, target=tag)
        for now in (armed, facts(drives=tuple(drives[:2]), offset_bytes=None)):
            assert not identify_without_log(plan, now, (plan, plan)).is_copy


def test_a_copy_on_another_drive_is_told(make_plan: MakePlan) -> None:
    """A superblock travels with a copy; the drive that was cut does not."""
    plan = small(make_plan)
    for drives in ((drive(serial="S2"),), (drive(serial=""),), ()):
        copy = facts(drives=drives)
        assert identify(make_case(plan, (10,)), copy, (plan, plan)).drive_changed
