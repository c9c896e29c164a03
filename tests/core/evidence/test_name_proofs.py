"""What a directory tells of the log: names that testify, of earlier runs, beyond the log, and without one."""

from __future__ import annotations

import dataclasses

from durability.evidence.observation import EARLIER_RUN
from tests.core.evidence.memory_target import SECTOR, Disk, MakePlan, codes, judged, make_case, scan
from tests.core.evidence.name_disks import only, plan_of, written

DAMAGE = b"\xa5" * SECTOR


def test_the_disk_testifies(make_plan: MakePlan) -> None:
    """An intact sector of seq s, even of a name in flight, proves every operation before its group done."""
    disk = written(plan_of(make_plan, "create"), 60)
    disk.write(0, 61, 63)
    disk.files[".0.62"] = disk.files[".0.62"][:SECTOR]
    found = scan(disk, (60,))
    assert found.oracle.proven == (62,)
    assert [(one.finding, one.slot) for one in found.wrong] == [("resurrected", 29), ("absent", 61)]
    assert all(one.order_violation for one in found.wrong)
    assert found.oldest_lost == (62,)


def test_a_temporary_testifies(make_plan: MakePlan) -> None:
    """`rename` writes it after the sync of the group before; that it has no name yet does not matter."""
    disk = written(plan_of(make_plan, "rename"), 60)
    slot = disk.slot_of(0, 62)
    disk.files[f".0.{slot}.tmp"] = bytearray(disk.record(0, slot, 62)[:700])
    found = scan(disk, (60,))
    assert found.oracle.proven == (61,)
    assert only(found) == ("stale", disk.slot_of(0, 61))
    assert found.wrong[0].order_violation


def test_absence_never_testifies(make_plan: MakePlan) -> None:
    """A name may be absent for reasons that no operation has: three removals in flight prove nothing."""
    disk = written(plan_of(make_plan, "unlink"), 20)
    disk.write(0, 22, 24)
    found = scan(disk, (20,))
    assert (found.wrong, found.oracle.proven) == ([], (20,))


def test_testimony_is_per_writer(make_plan: MakePlan) -> None:
    """A record of another writer under a name testifies for that writer, and is misdirected."""
    plan = plan_of(make_plan, "create", writers=2)
    disk = written(plan, 60)
    disk.write(1, 61, 62)
    disk.files[".0.40"] = bytearray(disk.record(1, 62, 63))
    found = scan(disk, (60, 60))
    assert found.oracle.proven == (60, 62)
    assert only(found) == ("misdirected", 40)
    assert "seq 63 of writer 1 slot 62" in found.wrong[0].text


def test_a_name_above_the_ceiling_is_no_finding_but_is_told(make_plan: MakePlan) -> None:
    """It was never allowed to be made: the log is behind, and nothing is loss."""
    plan = plan_of(make_plan, "create")
    disk = written(plan, 70)
    found = scan(disk, (60,))
    assert found.above_ceiling == 2
    verdict = judged(make_case(plan, (60,)), plan, found).verdict
    assert (verdict.word, codes(verdict)[0]) == ("inconclusive", "log-behind")
    disk = written(plan, 60)
    for slot, content in ((80, b""), (90, DAMAGE)):
        disk.files[f".0.{slot}"] = bytearray(content)
    found = scan(disk, (60,))
    assert (found.wrong, found.above_ceiling) == ([], 2)
    disk = written(plan_of(make_plan, "rename"), 70)
    found = scan(disk, (60,))
    assert (found.wrong, found.above_ceiling) == ([], 2)
    disk = written(plan_of(make_plan, "rename"), 60)
    slot = disk.slot_of(0, 70)
    disk.files[f".0.{slot}.tmp"] = bytearray(disk.record(0, slot, 70))
    assert scan(disk, (60,)).above_ceiling == 2


def test_an_earlier_runs_name_is_resurrected_or_stale(make_plan: MakePlan) -> None:
    """Every name beside the target was removed, and the directory synced, before the run was armed."""
    plan = plan_of(make_plan, "create")
    earlier = Disk(dataclasses.replace(plan, run=99))
    disk = written(plan, 60)
    disk.files[".0.200"] = bytearray(earlier.record(0, 200, 201))
    disk.files[".0.40"] = bytearray(earlier.record(0, 40, 41))
    found = scan(disk, (60,))
    assert [(one.finding, one.slot, one.found_seq) for one in found.wrong] == [
        ("stale", 40, EARLIER_RUN),
        ("resurrected", 200, EARLIER_RUN),
    ]
    assert found.above_ceiling == 0
    assert found.oldest_lost == (41,)


def test_names_and_files_that_no_plan_makes_are_left_alone(make_plan: MakePlan) -> None:
    """Names that no plan makes are ignored."""
    disk = written(plan_of(make_plan, "rename"), 60)
    for suffix in (".0.32", ".7.1", ".0.007", ".0.1.bak", ".x"):
        disk.files[suffix] = bytearray(DAMAGE)
    found = scan(disk, (60,))
    assert (found.wrong, found.above_ceiling) == ([], 0)


def test_without_a_log_a_name_of_rename_is_whole_and_not_too_old(make_plan: MakePlan) -> None:
    """Its contract has no exception, so what the target itself proves acknowledged is enough."""
    disk = written(plan_of(make_plan, "rename"), 60)
    disk.remove(0, 3)
    disk.files[".0.5"] = bytearray(disk.record(0, 5, 6))
    del disk.files[".0.7"][SECTOR:]
    found = scan(disk, None)
    assert found.oracle.proven == (59,)
    assert [(one.finding, one.slot) for one in found.wrong] == [("absent", 3), ("stale", 5), ("torn", 7)]
    assert [one.order_violation for one in found.wrong] == [False, True, False]
    assert scan(Disk(plan_of(make_plan, "rename")), None).wrong == []


def test_without_a_log_a_name_of_create_may_be_gone_but_not_torn_or_back(make_plan: MakePlan) -> None:
    """Without a log the writer's progress is unknown, so any name of `create` may have been removed. A torn
    name or one that is back is still a finding."""
    disk = written(plan_of(make_plan, "create"), 60)
    disk.remove(0, 40)
    del disk.files[".0.41"][SECTOR:]
    disk.files[".0.5"] = bytearray(disk.record(0, 5, 6))
    found = scan(disk, None)
    assert [(one.finding, one.slot) for one in found.wrong] == [("resurrected", 5), ("torn", 41)]


def test_without_a_log_nothing_is_certain_of_unlink(make_plan: MakePlan) -> None:
    """Removals leave nothing that testifies: any name may have been removed and made again since."""
    disk = written(plan_of(make_plan, "unlink"), 60)
    disk.remove(0, 3)
    disk.files[".0.5"] = bytearray(DAMAGE)
    assert scan(disk, None).wrong == []


def test_a_prefill_that_nothing_proves_finished_is_not_judged(make_plan: MakePlan) -> None:
    """Without a log and without one record of the run, names may be missing as they were not made yet."""
    disk = Disk(plan_of(make_plan, "rename"))
    disk.remove(0, 3)
    disk.files[".0.4"] = bytearray(DAMAGE)
    assert scan(disk, None).wrong == []
