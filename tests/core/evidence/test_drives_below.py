"""The drives below a target are compared one to one: by what tells them apart, and by their number."""

from __future__ import annotations

from typing import Any

import pytest

from durability.evidence.identity import identify
from durability.formats.facts import Drive, Facts, TargetWarning
from tests.core.evidence.memory_target import MakePlan, make_case, small
from tests.sample_facts import drive, facts, file_system

PAIR = (drive(), drive(name="sdb", serial="S2"))
# In a dock, which gives its own serial to both.
DOCKED = (drive(model="A", wwid="naa.1"), drive(name="sdb", model="B", wwid="naa.2"))
DEVICE: dict[str, Any] = {"kind": "device", "file_system": None, "path_in_file_system": ""}


def on_mirror(*drives: Drive, volume: str = "md-a", **changes: Any) -> Facts:
    """The target in a file system on a mirror of these drives."""
    return facts(**{"drives": drives, "volume": volume, "offset_bytes": None, **changes})


@pytest.mark.parametrize(
    ("armed", "now", "missing", "copy"),
    [
        (on_mirror(*PAIR), on_mirror(*PAIR), 0, False),
        (on_mirror(*PAIR), on_mirror(PAIR[0]), 1, False),
        (on_mirror(*PAIR, volume=""), on_mirror(PAIR[1], volume=""), 1, False),
        (on_mirror(*PAIR), on_mirror(PAIR[0], volume="", offset_bytes=0), 0, True),
        (on_mirror(*PAIR, **DEVICE), on_mirror(PAIR[0], **DEVICE), 1, False),
        (on_mirror(*PAIR, volume="", **DEVICE), on_mirror(PAIR[0], volume="", **DEVICE), 0, True),
        (on_mirror(*PAIR), on_mirror(), 0, True),
        (on_mirror(PAIR[0]), on_mirror(*PAIR), 0, True),
        (on_mirror(*PAIR), on_mirror(PAIR[0], drive(serial="S3")), 0, True),
        (on_mirror(drive(), drive(name="sdb")), on_mirror(drive()), 0, False),
        (on_mirror(drive()), on_mirror(drive(name="sdb"), drive()), 0, False),
        (on_mirror(*DOCKED), on_mirror(*DOCKED[::-1]), 0, False),
        (on_mirror(*DOCKED), on_mirror(DOCKED[0]), 1, False),
        (on_mirror(*DOCKED), on_mirror(DOCKED[1]), 1, False),
        (on_mirror(*DOCKED), on_mirror(DOCKED[0], volume="", offset_bytes=0), 0, True),
        (on_mirror(*DOCKED), on_mirror(DOCKED[0], drive(name="sdb", model="C", wwid="naa.3")), 0, True),
        (on_mirror(*DOCKED, drive(name="sdc", model="B", wwid="naa.2")), on_mirror(*DOCKED), 0, False),
        (on_mirror(drive(), drive(name="sdb", size_bytes=2 << 40)), on_mirror(drive()), 1, False),
    ],
)
def test_a_target_without_one_of_its_drives_is_itself(
    make_plan: MakePlan, armed: Facts, now: Facts, missing: int, *, copy: bool
) -> None:
    """If it still lies on the others. A half of a mirror alone, other drives, and a volume that nothing names
    may hold a copy."""
    plan = small(make_plan)
    case = make_case(plan, (10,), armed=armed)
    identity = identify(case, now, (plan, plan))
    assert (len(identity.missing), identity.drive_changed) == (missing, copy)
    assert (identify(case, now, ()).by is None) == copy


def nameless(name: str, **changes: Any) -> Drive:
    """A drive without a serial."""
    return drive(name=name, serial="", **changes)


@pytest.mark.parametrize(
    ("armed", "now", "missing", "copy"),
    [
        ((nameless("vda"), nameless("vdb")), (nameless("vdb"), nameless("vda")), (), False),
        ((nameless("vda"), nameless("vdb")), (nameless("vda"),), ("Disk serial (none)",), False),
        ((nameless("vda", model="A"), nameless("vdb")), (nameless("vda"),), ("A serial (none)",), False),
        (
            (nameless("vda", size_bytes=8), nameless("vdb", model="")),
            (nameless("vda", size_bytes=8),),
            ("vdb serial (none)",),
            False,
        ),
        ((drive(), nameless("vdb")), (nameless("vda"),), ("Disk serial S1",), False),
        ((drive(), nameless("vdb", model="")), (drive(),), ("vdb serial (none)",), False),
        ((drive(), nameless("vdb")), (drive(), drive(serial="S2")), (), False),
        ((nameless("vda"),), (nameless("vda"), nameless("vdb")), (), False),
        ((drive(), nameless("vdb")), (drive(serial="S2"), nameless("vdb")), (), True),
        ((nameless("vda"),), (), (), False),  # nothing shows that it is on another one
        (
            (nameless("sda", wwid="naa.1"), nameless("sdb", wwid="naa.1")),
            (nameless("sda", wwid="naa.1"),),
            (),
            False,
        ),
    ],
)
def test_drives_without_serials_are_counted(
    make_plan: MakePlan,
    armed: tuple[Drive, ...],
    now: tuple[Drive, ...],
    missing: tuple[str, ...],
    *,
    copy: bool,
) -> None:
    """One of them is any of the others, but not two. Two paths to one drive have its world-wide name."""
    plan = small(make_plan)
    identity = identify(make_case(plan, (10,), armed=on_mirror(*armed)), on_mirror(*now), (plan, plan))
    assert (identity.missing, identity.drive_changed) == (missing, copy)


def test_half_of_a_mirror_of_drives_without_serials_is_no_target(make_plan: MakePlan) -> None:
    """It is mounted alone, without the mirror: the other half may hold what it lacks."""
    plan = small(make_plan)
    case = make_case(plan, (10,), armed=on_mirror(nameless("vda"), nameless("vdb")))
    half = on_mirror(nameless("vda"), volume="", offset_bytes=0)
    assert identify(case, half, (plan, plan)).drive_changed


TB = 10**12


@pytest.mark.parametrize(
    ("armed", "now", "smaller", "missing"),
    [
        ((TB, 2 * TB), (TB, 2 * TB), 0, 0),
        ((TB, 2 * TB), (TB,), 0, 1),
        ((TB, 2 * TB), (2 * TB,), 0, 1),
        ((TB, 2 * TB), (TB * 9 // 10, 2 * TB), 1, 0),
        ((2 * TB, TB), (TB, TB * 9 // 10), 1, 0),
        ((TB, 2 * TB), (0, TB), 0, 0),
        ((TB, 2 * TB), (TB * 9 // 10,), 1, 1),
    ],
)
def test_each_of_two_drives_with_one_serial_has_its_size(
    make_plan: MakePlan, armed: tuple[int, ...], now: tuple[int, ...], smaller: int, missing: int
) -> None:
    """Where nothing else tells them apart, the most alike is the same."""
    plan = small(make_plan)
    before, after = (on_mirror(*(drive(size_bytes=size) for size in sizes)) for sizes in (armed, now))
    identity = identify(make_case(plan, (10,), armed=before), after, (plan, plan))
    assert (len(identity.smaller), len(identity.missing)) == (smaller, missing)


@pytest.mark.parametrize(
    ("boot", "told"),
    [("boot-1", (1, 0)), ("boot-2", (0, 1))],
)
def test_a_smaller_log_without_a_serial_may_be_another(
    make_plan: MakePlan, boot: str, told: tuple[int, int]
) -> None:
    """Only the file system's own drive has a serial. A smaller log is the same drive within one boot; after
    another boot it may be a different one."""
    plan = small(make_plan)
    armed, now = (
        facts(drives=(drive(), nameless("vdb", size_bytes=size)), boot=boot)
        for size, boot in ((8, "boot-1"), (4, boot))
    )
    identity = identify(make_case(plan, (10,), armed=armed), now, (plan, plan))
    assert (len(identity.smaller), len(identity.perhaps_smaller)) == told


@pytest.mark.parametrize("armed", [(), (1, 2)])
@pytest.mark.parametrize("now", [(), (1,), (1, 2)])
def test_a_world_wide_name_that_is_shown_at_times_makes_no_other_drives(
    make_plan: MakePlan, armed: tuple[int, ...], now: tuple[int, ...]
) -> None:
    """Two volumes of a controller have its serial and are of one size. The first release knows no world-wide
    names, and some connections hide them."""
    plan = small(make_plan)
    before, after = (
        on_mirror(
            *(drive(name=f"sd{one}", wwid=f"naa.{one}" if one in shown else "") for one in (1, 2)),
            volume="LVM-a",
        )
        for shown in (armed, now)
    )
    case = make_case(plan, (10,), armed=before)
    identity = identify(case, after, (plan, plan))
    assert (identity.missing, identity.drive_changed) == ((), False)
    assert identify(case, after, ()).by == "hardware"


LOG = drive(name="sdb", serial="LOG")
NO_LOG = (TargetWarning(code="log-unknown", text=""),)
UNMOUNTED = file_system(mount_point="")


@pytest.mark.parametrize(
    ("armed", "now", "missing", "copy"),
    [
        (facts(), facts(drives=(drive(), LOG)), 0, False),
        (facts(), facts(drives=(drive(), drive(name="vdb", serial=""))), 0, False),
        (facts(), facts(drives=(LOG, drive())), 0, True),
        (facts(), facts(drives=(drive(), LOG), offset_bytes=None), 0, True),
        (facts(drives=(drive(), LOG), offset_bytes=None), facts(drives=(drive(), LOG)), 0, False),
        (facts(drives=(drive(), LOG)), facts(), 1, False),
        (facts(drives=(drive(), LOG)), facts(drives=(drive(), drive(serial="S3"))), 1, False),
        (facts(drives=(drive(), nameless("vdb"))), facts(), 1, False),
        (facts(drives=(drive(), nameless("vdb"))), facts(drives=(drive(), LOG)), 0, False),
        (facts(drives=(drive(), LOG)), facts(warnings=NO_LOG), 0, False),
        (facts(drives=(drive(), LOG)), facts(file_system=UNMOUNTED), 0, False),
        (facts(drives=(drive(), LOG)), facts(drives=(LOG,), file_system=UNMOUNTED), 0, True),
        (on_mirror(*PAIR, warnings=NO_LOG), on_mirror(*PAIR, LOG), 0, False),
        (on_mirror(*PAIR, warnings=NO_LOG), on_mirror(PAIR[0], LOG), 0, True),
        (on_mirror(*PAIR, warnings=NO_LOG), on_mirror(*PAIR, LOG, volume="md-b"), 0, True),
        (on_mirror(*PAIR, warnings=NO_LOG, volume=""), on_mirror(*PAIR, LOG, volume=""), 0, True),
        (on_mirror(*PAIR), on_mirror(*PAIR, LOG), 0, True),
        (on_mirror(*PAIR), on_mirror(PAIR[0], file_system=UNMOUNTED), 1, False),
        (on_mirror(*PAIR), on_mirror(PAIR[0], warnings=NO_LOG), 1, False),
    ],
)
def test_the_drive_of_a_log_makes_no_other_target(
    make_plan: MakePlan, armed: Facts, now: Facts, missing: int, *, copy: bool
) -> None:
    """A look may not find an external log, and releases before did not look. But a log that is gone may have
    held the data."""
    plan = small(make_plan)
    case = make_case(plan, (10,), armed=armed)
    identity = identify(case, now, (plan, plan))
    assert (len(identity.missing), identity.drive_changed) == (missing, copy)
    assert (identify(case, now, ()).by is None) == copy
