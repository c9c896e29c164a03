"""The store, on SQLite and on PostgreSQL alike."""

from __future__ import annotations

import re
import sqlite3
import tracemalloc
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Engine, event, update

from durability import limits
from durability.errors import RefusedError, StoreError, UsageError
from durability.evidence.drive_identity import enumerations, own_serial
from durability.formats.case import DriveState, Event, TargetFailure
from durability.formats.documents import to_value
from durability.formats.facts import Drive, Facts
from durability.formats.packing import pack
from durability_server.store import database, run_rows, tables
from durability_server.store import store as store_module
from durability_server.store import target_keys as target_keys_module
from durability_server.store.records import EVENTS_MAX
from durability_server.store.store import Store
from durability_server.store.target_keys import target_keys
from tests.sample_facts import drive
from tests.server.store.test_gone_back import listening

if TYPE_CHECKING:
    from tests.server.store.conftest import StoreFixture


def _event(number: int) -> tuple[int, Event]:
    return number, Event(at_ns=number, wall="2026-01-01T00:00:00Z", kind="note", text=f"event {number}")


def test_a_run_comes_back_as_it_was_saved(store_fixture: StoreFixture, store_url: str) -> None:
    """After closing and opening the store, every field of a run is what was saved last."""
    store_fixture.register(1 << 63)
    store_fixture.arm(1 << 63)
    saved = store_fixture.save(
        1 << 63,
        session_end="silence",
        frontiers=(5, (1 << 63) - 1),
        control=9,
        last_receipt_ns=1 << 60,
        receipt_boot_id="boot",
        receipt_wall="wall",
        rtt_max_ns=3,
        gap_max_ns=4,
        tainted="a reason",
        timeline=b"\x00timeline",
        credits=b"\x00credits",
    )
    store_fixture.store.close()
    store = Store(store_url)
    store.open()
    stored = store.load(1 << 63)
    store.close()
    assert stored.snapshot == replace(saved, saves=saved.save, save=saved.save + 1)
    assert store.server_id == store_fixture.store.server_id
    assert stored.armed is not None


def test_saving_again_changes_nothing(store_fixture: StoreFixture) -> None:
    """The same snapshot may be saved twice, as after a commit whose outcome is unknown."""
    store_fixture.register(1)
    snapshot = replace(
        store_fixture.store.load(1).snapshot, frontiers=(1, 2), timeline=b"t", events=(_event(1), _event(2))
    )
    store_fixture.store.save([snapshot])
    store_fixture.store.save([snapshot])
    assert store_fixture.store.load(1).snapshot == replace(snapshot, saves=1, save=2)


def test_events_are_bounded(store_fixture: StoreFixture) -> None:
    """Only the newest events are kept."""
    store_fixture.register(1)
    for first in range(1, 2 * EVENTS_MAX, 100):
        events = tuple(map(_event, range(first, first + 100)))
        store_fixture.store.save([replace(store_fixture.store.load(1).snapshot, events=events)])
    kept = [number for number, _ in store_fixture.store.load(1).snapshot.events]
    assert kept == list(range(kept[-1] - EVENTS_MAX + 1, kept[-1] + 1))


def test_many_runs_are_saved_in_one_transaction(store_fixture: StoreFixture) -> None:
    """A commit that fails for one run changes none."""
    for run in (1, 2):
        store_fixture.register(run, facts=None)
    good = replace(store_fixture.store.load(1).snapshot, frontiers=(7, 7))
    bad = replace(store_fixture.store.load(2).snapshot, events=(_event(1), _event(1)))
    with pytest.raises(StoreError):
        store_fixture.store.save([good, bad])
    assert store_fixture.store.load(1).snapshot.frontiers == (0, 0)
    store_fixture.store.save([good])
    assert store_fixture.store.load(1).snapshot.frontiers == (7, 7)


def test_a_known_run_id_is_refused(store_fixture: StoreFixture) -> None:
    """A run id is used once."""
    store_fixture.register(1)
    with pytest.raises(RefusedError) as refused:
        store_fixture.register(1, force=True)
    assert refused.value.code == "run-exists"


def test_an_unverified_run_guards_its_target(store_fixture: StoreFixture) -> None:
    """A target whose armed run was neither stopped nor verified takes no other run, unless forced."""
    store_fixture.register(1)
    store_fixture.register(2)  # run 1 was never armed: nothing to lose
    store_fixture.arm(2)
    with pytest.raises(RefusedError, match=f"{2:016x}") as refused:
        store_fixture.register(3)
    assert refused.value.code == "unverified-run"
    store_fixture.register(3, force=True)


def test_an_unverified_run_guards_the_place_of_its_file_system(store_fixture: StoreFixture) -> None:
    """A drive that has lost the file system shows the one before it, and another run there would overwrite
    what tells of it. One that was made since on purpose takes a run by force, and then guards itself."""
    before, lost = store_fixture.lab.facts(uuid="uuid-before"), store_fixture.lab.facts()
    assert before.offset_bytes is not None
    store_fixture.register(1, facts=before)
    store_fixture.arm(1, facts=before)
    store_fixture.judge(1, "durable")
    store_fixture.register(2, facts=lost)
    store_fixture.arm(2, facts=lost)
    with pytest.raises(RefusedError, match=f"had replaced, that of run {2:016x}") as refused:
        store_fixture.register(3, facts=before)
    assert refused.value.code == "unverified-run" and "leave it as it is" in str(refused.value)
    elsewhere = (
        store_fixture.lab.facts(uuid="uuid-before", serial="S2"),
        replace(before, offset_bytes=before.offset_bytes + (1 << 30)),
    )
    for run, other in enumerate(elsewhere, start=4):
        store_fixture.register(run, facts=other)
    store_fixture.register(6, facts=before, client="another")
    store_fixture.register(7, facts=before, force=True)
    store_fixture.arm(7, facts=before)
    with pytest.raises(RefusedError, match=f"holds run {7:016x}"):
        store_fixture.register(8, facts=before)
    store_fixture.judge(7, "inconclusive")
    store_fixture.register(8, facts=before)


def test_a_file_system_that_is_back_is_refused_whatever_came_of_the_one_in_its_place(
    store_fixture: StoreFixture,
) -> None:
    """The drive shows the older one again, and so has lost the newer one with its verified run."""
    older, newer = store_fixture.lab.facts(uuid="uuid-older"), store_fixture.lab.facts()
    store_fixture.register(1, facts=older)
    store_fixture.arm(1, facts=older)
    store_fixture.register(2, facts=newer, force=True)
    store_fixture.arm(2, facts=newer)
    store_fixture.judge(2, "durable")
    with pytest.raises(RefusedError, match="if nobody put this one back, the drive has lost that one"):
        store_fixture.register(3, facts=older)
    store_fixture.register(3, facts=older, force=True)


def test_a_file_system_that_was_made_on_purpose_takes_runs_on_all_its_files(
    store_fixture: StoreFixture,
) -> None:
    """The first one there needs force, and with it the file system is known to be new."""
    store_fixture.register(1, facts=store_fixture.lab.facts(uuid="uuid-before"))
    store_fixture.arm(1, facts=store_fixture.lab.facts(uuid="uuid-before"))
    files = [replace(store_fixture.lab.facts(), path_in_file_system=f"/t{number}") for number in (2, 3, 4)]
    with pytest.raises(RefusedError, match="if nobody made this one since"):
        store_fixture.register(2, facts=files[0])
    for run, facts in enumerate(files, start=2):
        store_fixture.register(run, facts=facts, force=run == 2)
        if run > 2:  # the first one was cut in its prefill
            store_fixture.arm(run, facts=facts)


def test_two_drives_that_an_adapter_gives_one_serial_do_not_guard_each_other(
    store_fixture: StoreFixture,
) -> None:
    """A dock with two slots: the world-wide names tell the drives apart."""
    first = store_fixture.lab.facts(uuid="uuid-first")
    (drive,) = first.drives
    first, second = (
        replace(facts, drives=(replace(drive, wwid=wwid),))
        for facts, wwid in ((first, "naa.1"), (store_fixture.lab.facts(), "naa.2"))
    )
    store_fixture.register(1, facts=first)
    store_fixture.arm(1, facts=first)
    store_fixture.register(2, facts=second)
    with pytest.raises(RefusedError, match="neither stopped nor verified"):
        third = store_fixture.lab.facts(uuid="uuid-third")
        store_fixture.register(3, facts=replace(third, drives=(replace(drive, wwid="naa.1"),)))


def test_volumes_of_one_drive_do_not_guard_each_other(store_fixture: StoreFixture) -> None:
    """The place of a logical volume on its drive is unknown, so two volumes of one drive are never at the
    same place."""
    volumes = [
        replace(store_fixture.lab.facts(uuid=f"uuid-{name}"), offset_bytes=None, volume=name)
        for name in ("vg/one", "vg/two")
    ]
    for run in (1, 2, 3):
        store_fixture.register(run, facts=volumes[run % 2])
        store_fixture.arm(run, facts=volumes[run % 2])
        store_fixture.judge(run, "durable")
    store_fixture.register(4, facts=volumes[0])
    store_fixture.arm(4, facts=volumes[0])
    store_fixture.register(5, facts=volumes[1])


def test_a_run_behind_an_adapter_that_hides_the_serial_guards_its_target(store_fixture: StoreFixture) -> None:
    """A run behind an adapter that hides the serial is known by its file system. It guards its target, as it
    is newer than the previous file system there."""
    before, facts = store_fixture.lab.facts(uuid="uuid-before"), store_fixture.lab.facts()
    store_fixture.register(1, facts=before)
    store_fixture.arm(1, facts=before)
    store_fixture.judge(1, "durable")
    (drive,) = facts.drives
    hidden = replace(facts, drives=(replace(drive, serial="", wwid=""),))
    store_fixture.register(2, facts=hidden)
    store_fixture.arm(2, facts=hidden)
    with pytest.raises(RefusedError, match=f"holds run {2:016x}"):
        store_fixture.register(3, facts=facts)


def test_many_runs_on_another_drive_with_its_serial_hide_no_unverified_one(
    store_fixture: StoreFixture,
) -> None:
    """Another disk in the same dock, of another model."""
    older, newer = store_fixture.lab.facts(uuid="uuid-older"), store_fixture.lab.facts()
    (drive,) = older.drives
    other = replace(store_fixture.lab.facts(uuid="uuid-other"), drives=(replace(drive, model="Other"),))
    store_fixture.register(1, facts=older)
    store_fixture.arm(1, facts=older)
    store_fixture.judge(1, "durable")
    store_fixture.register(2, facts=newer)
    store_fixture.arm(2, facts=newer)
    for run in range(3, 9):
        store_fixture.register(run, facts=other)
        store_fixture.arm(run, facts=other)
        store_fixture.judge(run, "durable")
    with pytest.raises(RefusedError, match=f"had replaced, that of run {2:016x}"):
        store_fixture.register(9, facts=older)


@pytest.mark.parametrize(("targets", "named"), [(1, 1), (66, 3)])
def test_more_targets_on_another_drive_with_its_serial_than_are_looked_at_open_no_place(
    store_fixture: StoreFixture, targets: int, named: int
) -> None:
    """Many cycles on one target of the other drive count once. What is not looked at may be on this one."""
    older = store_fixture.lab.facts(uuid="uuid-older")
    (drive,) = older.drives
    other = replace(drive, model="Other")
    store_fixture.register(1, facts=older)
    store_fixture.arm(1, facts=older)
    for run in range(2, 68):
        there = replace(store_fixture.lab.facts(uuid=f"uuid-{run % targets}"), drives=(other,))
        store_fixture.register(run, facts=there, force=True)
        store_fixture.arm(run, facts=there)
    with pytest.raises(RefusedError, match=f"run {named:016x}"):
        store_fixture.register(99, facts=store_fixture.lab.facts(uuid="uuid-newer"))


def test_the_guard_of_unverified_runs_does_not_compare_each_drive_with_each(
    store_fixture: StoreFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other clients wait for their commits meanwhile."""
    main = drive(serial="main")
    older, newer = (
        store_fixture.lab.facts(
            uuid=f"uuid-{model}",
            drives=(
                replace(main, model=model),
                *(drive(name=f"sd{n}", serial=f"{model}{n}") for n in range(1, limits.FACTS_DRIVES_MAX)),
            ),
        )
        for model in ("older", "newer")
    )
    store_fixture.register(1, facts=older)
    store_fixture.arm(1, facts=older)
    looks = 0

    def counted(one: Drive, machine_id: str) -> str:
        nonlocal looks
        looks += 1
        return own_serial(one, machine_id)

    monkeypatch.setattr(target_keys_module, "own_serial", counted)
    store_fixture.register(2, facts=newer)
    assert 0 < looks < 10 * limits.FACTS_DRIVES_MAX


def test_a_verified_run_does_not_guard_the_place_of_its_file_system(store_fixture: StoreFixture) -> None:
    """After a verdict, a new file system at the same place can be tested without force."""
    store_fixture.register(1)
    store_fixture.arm(1)
    store_fixture.judge(1, "loss")
    store_fixture.register(2, facts=store_fixture.lab.facts(uuid="uuid-new"))


@pytest.mark.parametrize("way_out", ["stop", "verdict"])
def test_a_settled_run_does_not_guard_its_target(store_fixture: StoreFixture, way_out: str) -> None:
    """After a clean stop, or a verdict of any kind, the target may be used again."""
    store_fixture.register(1)
    store_fixture.arm(1)
    if way_out == "stop":
        store_fixture.save(1, session_end="stop", finish="stopped")
    else:
        store_fixture.judge(1, "inconclusive")
    store_fixture.register(2)
    assert store_fixture.store.load(2).number == 2


@pytest.mark.parametrize("way_out", ["stop", "verdict"])
def test_a_run_that_was_overwritten_does_not_guard_its_target(
    store_fixture: StoreFixture, way_out: str
) -> None:
    """A later run was armed on the target by force: the evidence of the earlier one is gone. What a run has
    written that was never armed does not count."""
    store_fixture.register(1)
    store_fixture.arm(1)
    store_fixture.register(2, force=True)
    with pytest.raises(RefusedError, match=f"{1:016x}"):
        store_fixture.register(3)
    store_fixture.arm(2)
    with pytest.raises(RefusedError, match=f"{2:016x}"):
        store_fixture.register(3)
    if way_out == "stop":
        store_fixture.save(2, session_end="stop", finish="stopped")
    else:
        store_fixture.judge(2, "inconclusive")
    store_fixture.register(3)
    assert store_fixture.store.load(3).number == 3


def test_another_target_is_not_guarded(store_fixture: StoreFixture) -> None:
    """The same path on another drive is another target."""
    store_fixture.register(1)
    store_fixture.arm(1)
    store_fixture.register(2, facts=store_fixture.lab.facts(serial="S2"))
    assert store_fixture.store.load(2).number == 2


def test_the_newest_armed_run_is_found_by_its_target(store_fixture: StoreFixture) -> None:
    """Facts identify the newest armed run on their target, even if the target is mounted at another path."""
    for run in (1, 2):
        store_fixture.register(run, force=True)
        store_fixture.arm(run)
    store_fixture.register(3, force=True)
    moved = target_keys(store_fixture.lab.facts(path="/elsewhere/target"))
    assert store_fixture.store.newest_on_target(moved, client=None) == 2
    with pytest.raises(RefusedError) as refused:
        store_fixture.store.newest_on_target(target_keys(store_fixture.lab.facts(serial="S9")), client=None)
    assert refused.value.code == "run-unknown"


def test_a_later_run_supersedes(store_fixture: StoreFixture) -> None:
    """A run registered later on the same target may have prefilled it, so it supersedes; others do not."""
    store_fixture.register(1)
    store_fixture.register(2, facts=store_fixture.lab.facts(serial="S2"))
    assert store_fixture.store.relations(store_fixture.store.load(1)).superseded_by == ""
    store_fixture.register(3)
    assert store_fixture.store.relations(store_fixture.store.load(1)).superseded_by == f"{3:016x}"
    assert store_fixture.store.relations(store_fixture.store.load(3)).superseded_by == ""


def test_later_runs_that_were_never_armed_are_told_with_their_plans(store_fixture: StoreFixture) -> None:
    """The plans of later unarmed runs are given only if no later run was armed, and not if there are very
    many. An armed run takes precedence over a newer unarmed one."""
    store, plan = store_fixture.store, store_fixture.lab.plan
    for run in (1, 2, 3):
        store_fixture.register(run, force=True)
    relations = store.relations(store.load(1))
    assert relations.superseded_by == f"{3:016x}"
    assert relations.attempts == (plan(run=3).encode(), plan(run=2).encode())
    store_fixture.arm(2)
    relations = store.relations(store.load(1))
    assert (relations.superseded_by, relations.attempts) == (f"{2:016x}", ())
    relations = store.relations(store.load(2))
    assert (relations.superseded_by, relations.attempts) == (f"{3:016x}", (plan(run=3).encode(),))
    for run in range(4, 20):
        store_fixture.register(run, force=True)
    relations = store.relations(store.load(2))
    assert (relations.superseded_by, relations.attempts) == (f"{19:016x}", ())


def test_a_later_run_elsewhere_on_the_drive_supersedes(store_fixture: StoreFixture) -> None:
    """A run on a file system that was made on a drive has overwritten what an earlier one wrote to the whole
    drive, once it is armed; one of another client, on another drive or beside it has not."""
    file = store_fixture.lab.facts()
    device = replace(file, kind="device", file_system=None, path_in_file_system="")
    whole = replace(device, offset_bytes=0, size_bytes=file.drives[0].size_bytes)
    beside = replace(device, path="/dev/sda2", offset_bytes=1 << 39)
    for run, target, client in (
        (1, whole, ""),
        (2, beside, ""),
        (3, store_fixture.lab.facts(serial="S2"), ""),
        (4, file, "another"),
        (5, file, ""),
    ):
        store_fixture.register(run, facts=target, force=True, client=client)
        if run != 5:
            store_fixture.arm(run, facts=target)

    def superseded() -> list[str]:
        return [store_fixture.store.relations(store_fixture.store.load(run)).superseded_by for run in (1, 2)]

    assert superseded() == [f"{2:016x}", ""]
    store_fixture.arm(5, facts=file)
    assert superseded() == [f"{5:016x}", ""]


@pytest.mark.parametrize("serial", ["S1", "", "QM00001"])
def test_a_later_run_elsewhere_on_the_drive_supersedes_though_it_was_never_armed(
    store_fixture: StoreFixture, serial: str
) -> None:
    """A later run on the whole drive supersedes an earlier one even if it was never armed, since it may have
    written. Its plan is not told. Runs elsewhere on the drive, or of other clients, do not supersede it."""
    file = store_fixture.lab.facts(drives=(drive(serial=serial),))
    device = replace(file, kind="device", file_system=None, size_bytes=1 << 40)
    whole = replace(device, path="/dev/sda", offset_bytes=0)
    store = store_fixture.store
    store_fixture.register(1, facts=file)
    store_fixture.arm(1, facts=file)
    for run, target, client in (
        (2, replace(whole, path="/dev/sda2", offset_bytes=1 << 39), ""),
        (3, replace(whole, drives=(drive(serial="S2", name="sdb"),), path="/dev/sdb"), ""),
        (4, whole, "another"),
        (5, replace(file, path="/mnt/other", path_in_file_system="other"), ""),
        (6, replace(device, path="/dev/dm-0", volume="LVM", offset_bytes=None), ""),
    ):
        store_fixture.register(run, facts=target, force=True, client=client)
    store_fixture.register(7, facts=file, force=True)
    relations = store.relations(store.load(1))
    assert (relations.superseded_by, relations.attempts) == (f"{7:016x}", (store.load(7).plan,))
    store_fixture.register(8, facts=whole, force=True)
    store_fixture.register(9, facts=file, force=True)
    relations = store.relations(store.load(1), target_keys(file))
    assert (relations.superseded_by, relations.attempts) == (f"{8:016x}", ())
    store_fixture.arm(8, facts=whole)
    assert store.relations(store.load(1)).superseded_by == f"{8:016x}"


@pytest.mark.slow
@pytest.mark.parametrize("serial", ["", "QM00001", "drive-scsi0", "VMware NVMe_0000", "000000000000"])
@pytest.mark.parametrize("kind", ["file", "device"])
def test_a_drive_without_a_serial_of_its_own_has_targets(
    store_fixture: StoreFixture, serial: str, kind: str
) -> None:
    """Without a serial of its own, a drive's run is found by its target after a boot. A later run on that
    target or on a partition supersedes it; a run on another drive does not."""

    def on(name: str, **changes: Any) -> Facts:
        facts = store_fixture.lab.facts(drives=(drive(name=name, serial=serial),), **changes)
        if kind == "file":
            return facts
        return replace(facts, kind="device", file_system=None, path=f"/dev/{name}", offset_bytes=0)

    here, beside = on("vda"), on("vdb", uuid="uuid-2")
    for run, facts in ((1, here), (2, beside)):
        store_fixture.register(run, facts=facts)
        store_fixture.arm(run, facts=facts)
    rebooted = replace(here, host=replace(here.host, boot_id="boot-2"))
    store = store_fixture.store
    assert store.newest_on_target(target_keys(rebooted), client=None) == 1
    relations = store.relations(store.load(1), target_keys(rebooted))
    assert (relations.superseded_by, relations.series) == ("", ())
    partition = replace(here, kind="device", file_system=None, path="/dev/vda1", offset_bytes=1 << 20)
    for run, facts in ((3, partition), (4, rebooted)):
        store_fixture.register(run, facts=facts, force=True)
        store_fixture.arm(run, facts=facts)
        assert store.relations(store.load(1)).superseded_by == f"{run:016x}"
    assert store.relations(store.load(4)).predecessors == (f"{1:016x}",)
    assert store.relations(store.load(2)).superseded_by == ""
    assert sum(int(str(row["runs"])) for row in store.drive_listing(5, client=None)) == 4


@pytest.mark.slow
def test_a_later_run_on_a_renamed_target_counts_though_it_was_never_armed(
    store_fixture: StoreFixture,
) -> None:
    """A later unarmed run on a renamed target supersedes the earlier run, because it may have begun to
    overwrite that run's superblocks."""
    before = store_fixture.lab.facts(file_id="12")
    renamed = replace(before, path="/mnt/u", path_in_file_system="/u")
    store_fixture.register(1, facts=before)
    store_fixture.arm(1, facts=before)
    store_fixture.register(2, facts=renamed, force=True)
    store = store_fixture.store
    assert not store.relations(store.load(1), target_keys(before)).superseded_by
    relations = store.relations(store.load(1), target_keys(renamed))
    assert (relations.superseded_by, relations.attempts) == (f"{2:016x}", (store.load(2).plan,))


@pytest.mark.slow
def test_a_later_run_at_the_same_path_hides_none(store_fixture: StoreFixture) -> None:
    """On drives without serials, a run on another file system at the same path does not hide an earlier file
    system's run."""
    bare = (drive(serial=""), drive(serial="", name="sdb"))
    file = store_fixture.lab.facts(drives=bare[:1])
    whole = replace(file, kind="device", file_system=None, path="/dev/sda", offset_bytes=0)
    elsewhere = store_fixture.lab.facts(drives=bare[1:], uuid="uuid-2")
    for run, facts in ((1, whole), (2, file), (3, elsewhere)):
        store_fixture.register(run, facts=facts)
        store_fixture.arm(run, facts=facts)
    assert store_fixture.store.relations(store_fixture.store.load(1)).superseded_by == f"{2:016x}"


def test_earlier_runs_on_the_target_are_known(store_fixture: StoreFixture) -> None:
    """The predecessors of a run are all earlier runs on the same target, oldest first, armed or not. Runs on
    another target are not listed."""
    other = store_fixture.lab.facts(path_in_file_system="other")
    for run in (9, 3, 5):
        store_fixture.register(run, force=True)
        store_fixture.register(run + 100, facts=other, force=True)
        store_fixture.arm(run)
    predecessors = [
        store_fixture.store.relations(store_fixture.store.load(run)).predecessors for run in (9, 3, 5)
    ]
    assert predecessors == [(), (f"{9:016x}",), (f"{9:016x}", f"{3:016x}")]


def test_what_is_asked_of_other_runs_reads_no_facts(store_fixture: StoreFixture) -> None:
    """Facts may be long: other runs on a target, or of a series, are found without reading theirs, and runs
    and drives are listed without them."""
    store, asked = store_fixture.store, list[str]()
    for run in (1, 2):
        store_fixture.register(run, force=True)
        store_fixture.arm(run)
    stored = store.load(1)

    def note(*about: object) -> None:
        asked.append(str(about[2]))

    event.listen(Engine, "before_cursor_execute", note)
    assert store.relations(stored, stored.keys).superseded_by == f"{2:016x}"
    assert store.newest_on_target(stored.keys, client=None) == 2
    store.add_evidence(1, "e", b"")
    store_fixture.judge(1, "loss")
    store_fixture.register(3, force=True)
    assert len(store.listing(5, client=None)) == 3
    assert len(store.drive_listing(5, client=None)) == 1
    event.remove(Engine, "before_cursor_execute", note)
    assert asked
    assert not [one for one in asked if re.search(r"\bruns\.\"?(armed|plan)\b(?! IS )", one)]


def test_a_target_that_is_not_mounted_names_the_line(store_fixture: StoreFixture) -> None:
    """The newest run at the path is named, with the device that held its file system."""
    here = store_fixture.lab.facts()
    with pytest.raises(RefusedError, match=r"`durability verify --device DEVICE --run RUN`"):
        store_fixture.store.newest_on_target(target_keys(here), client=None)
    store_fixture.register(1)
    store_fixture.arm(1)
    below = store_fixture.lab.facts(uuid="root", serial="S9")
    line = r"`durability verify --device /dev/sda1 --run 0000000000000001`"
    with pytest.raises(RefusedError, match=line):
        store_fixture.store.newest_on_target(target_keys(below), client=None)
    device = replace(here, kind="device", file_system=None, path="/dev/sdb")
    store_fixture.register(2, facts=device)
    store_fixture.arm(2, facts=device)
    with pytest.raises(RefusedError, match=r"on other drives\. Attach those, or name the run with --run"):
        store_fixture.store.newest_on_target(
            target_keys(replace(device, drives=(drive(serial="S9"),))), client=None
        )


def test_a_loss_stands(store_fixture: StoreFixture) -> None:
    """Every verdict of a run is kept; in its series a loss is never cleared by a later pass."""
    for run in (1, 2):
        store_fixture.register(run, force=True)
        store_fixture.arm(run)
    for verdict in ("inconclusive", "loss", "durable"):
        store_fixture.judge(1, verdict)
    own = store_fixture.store.relations(store_fixture.store.load(1))
    assert [past.verdict for past in own.verdicts] == ["inconclusive", "loss", "durable"]
    assert own.series == ()
    assert [past.verdict for past in store_fixture.store.relations(store_fixture.store.load(2)).series] == [
        "loss"
    ]


def test_runs_of_one_cut_are_told(store_fixture: StoreFixture) -> None:
    """The series says on which enumerations of the drives its runs were made, as they were armed last."""
    ours = store_fixture.lab.facts()
    later = replace(ours, host=replace(ours.host, boot_id="boot-2"))
    for run, armed in ((1, ours), (2, ours), (3, later)):
        store_fixture.register(run, force=True)
        store_fixture.arm(run, facts=ours)
        store_fixture.arm(run, facts=armed)
        store_fixture.judge(run, "durable")
    told = store_fixture.store.relations(store_fixture.store.load(1))
    assert [past.enumerations for past in told.series] == [enumerations(ours), enumerations(later)]
    assert [past.enumerations for past in told.verdicts] == [enumerations(ours)]


def test_the_weightiest_verdict_is_listed(store_fixture: StoreFixture) -> None:
    """A verdict that says less, asked for later, changes nothing in listing and series."""
    for run in (1, 2):
        store_fixture.register(run, force=True)
        store_fixture.arm(run)
    for verdict in ("inconclusive", "durable", "inconclusive"):
        store_fixture.judge(1, verdict)
    assert [row["verdict"] for row in store_fixture.store.listing(5, client=None)] == ["", "durable"]
    series = store_fixture.store.relations(store_fixture.store.load(2)).series
    assert [past.verdict for past in series] == ["durable"]


@pytest.mark.slow
def test_what_stands_takes_little_memory(store_fixture: StoreFixture) -> None:
    """However often the runs of a series on many drives were verified, the drives are read once of each."""
    mirror = store_fixture.lab.facts(
        drives=tuple(drive(name=f"sd{number}", serial=f"T{number}", diskseq=number) for number in range(100))
    )
    for run in (1, 2, 3):
        store_fixture.register(run, facts=mirror, force=True)
        store_fixture.arm(run, facts=mirror)

    def taken_bytes() -> int:
        stored = store_fixture.store.load(3)
        tracemalloc.start()
        told = store_fixture.store.relations(stored)
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert [len(past.enumerations) for past in told.series] == [len(mirror.drives)] * 2
        return peak_bytes

    for run in (1, 2):
        store_fixture.judge(run, "durable")
    taken_bytes()  # what is made once is made now
    once_bytes = taken_bytes()
    for run in (1, 2):
        for _ in range(50):
            store_fixture.judge(run, "durable")
    assert taken_bytes() < once_bytes + (200 << 10)


def test_a_reason_that_was_stored_many_times_is_read_once(store_fixture: StoreFixture) -> None:
    """Earlier releases stored as many as a client gave: of one question about a series they made gigabytes.
    They count in what the client has given."""
    for run in (1, 2):
        store_fixture.register(run, force=True, client="c1")
        store_fixture.arm(run)
        store_fixture.judge(run, "inconclusive")
    before_bytes = store_fixture.store.bytes_of("c1")
    stored = " ".join(["cut-not-shown", "unstable"] * 4096)
    with store_fixture.store._database.transaction() as db:
        db.execute(update(tables.verdicts).values(reasons=stored))
    assert store_fixture.store.bytes_of("c1") == before_bytes + 2 * len(stored)
    told = store_fixture.store.relations(store_fixture.store.load(2))
    first, second = told.verdicts[0].reasons, told.series[0].reasons
    assert first == second == ("cut-not-shown", "unstable")
    assert [one is other for one, other in zip(first, second, strict=True)] == [True, True]


def test_a_cut_that_nobody_verified_shows_in_the_series(store_fixture: StoreFixture) -> None:
    """A run that met a cut and has no verdict is "unverified" in the series, also if the server was down at
    its end. A stopped run is not listed."""
    ends = ((1, "silence"), (2, "stop"), (3, "target-error"), (4, "server-down"), (5, "live"))
    for run, end in ends:
        store_fixture.register(run, force=True)
        store_fixture.arm(run)
        store_fixture.save(run, session_end=end)
    series = store_fixture.store.relations(store_fixture.store.load(5)).series
    assert [(past.run, past.verdict) for past in series] == [
        (f"{run:016x}", "unverified") for run in (1, 3, 4)
    ]


def test_a_server_that_died_leaves_no_run_live(store_fixture: StoreFixture, store_url: str) -> None:
    """Runs that were live when the server died are marked so at its next start; others keep their end."""
    for run, end in ((1, "live"), (2, "silence")):
        store_fixture.register(run, force=True)
        store_fixture.save(run, session_end=end)
    store_fixture.store.close()
    store = Store(store_url)
    store.open()
    ends = [store.load(run).snapshot.session_end for run in (1, 2)]
    store.close()
    assert ends == ["server-down", "silence"]


def test_evidence_is_never_replaced(store_fixture: StoreFixture) -> None:
    """Other evidence of a name is kept beside it, the same once, and all is listed with its size."""
    store_fixture.register(1)
    store_fixture.store.add_evidence(1, "lost-000", b"first")
    for data in (b"second", b"first", b"second"):
        store_fixture.store.add_evidence(1, "lost-000", data)
    store_fixture.judge(1, "loss")
    verdicts, evidence = store_fixture.store.documents(1)
    assert verdicts == ({"verdict": "loss"},)
    assert evidence == ({"name": "lost-000", "bytes": 5}, {"name": "lost-000.2", "bytes": 6})


@pytest.mark.slow
def test_much_evidence_of_one_name_takes_no_more_questions(store_fixture: StoreFixture) -> None:
    """However many pieces of a name there are, another one, and one that is kept already, are found to be so
    with as many statements."""
    store, asked = store_fixture.store, Counter[int]()
    store_fixture.register(1)

    def count(*_: object) -> None:
        asked[number] += 1

    for number in range(60):
        event.listen(Engine, "before_cursor_execute", count)
        others = store.other_evidence(1, "e", bytes([number]))
        assert others == number
        store.add_evidence(1, "e", bytes([number]), others=others)
        assert store.other_evidence(1, "e", bytes([number])) is None
        event.remove(Engine, "before_cursor_execute", count)
    assert asked[59] == asked[2]
    store.add_evidence(1, "e", b"\0", others=0)  # as from a client that sent it twice at once
    assert len(store.documents(1)[1]) == 60


def test_the_pieces_of_evidence_of_a_run_are_counted(
    store_fixture: StoreFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of evidence pieces of a run is limited, even if they are small. A piece that is stored
    already does not count again."""
    monkeypatch.setattr(limits, "EVIDENCE_PIECES_MAX", 3)
    store_fixture.register(1)
    for number in range(3):
        store_fixture.store.add_evidence(1, "e", bytes([number]))
    with pytest.raises(RefusedError, match="3 pieces of evidence, the maximum") as refused:
        store_fixture.store.add_evidence(1, "f", b"")
    assert refused.value.code == "bad-request"
    store_fixture.store.add_evidence(1, "e", b"\x02")


def test_a_loss_is_stored_however_many_verdicts_there_are(
    store_fixture: StoreFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Passes that found nothing leave room for a few that find a loss."""
    monkeypatch.setattr(store_module, "VERDICTS_MAX", 3)
    monkeypatch.setattr(store_module, "LOSSES_BEYOND_MAX", 2)
    store_fixture.register(1)
    for verdict in ("durable", "inconclusive", "durable"):
        store_fixture.judge(1, verdict)
    with pytest.raises(RefusedError, match="3 verdicts, the maximum"):
        store_fixture.judge(1, "durable")
    store_fixture.judge(1, "loss")
    assert [row["verdict"] for row in store_fixture.store.listing(1, client=None)] == ["loss"]
    store_fixture.judge(1, "loss")
    for verdict in ("loss", "durable"):
        with pytest.raises(RefusedError, match="5 verdicts, the maximum"):
            store_fixture.judge(1, verdict)


def test_a_piece_with_a_name_that_is_too_long_is_refused(store_fixture: StoreFixture) -> None:
    """A name that the table cannot hold with its number is refused by any database in the same words."""
    store_fixture.register(1)
    store_fixture.store.add_evidence(1, "n" * 255, b"1")
    for name in ("n" * 255, "n" * 256):
        with pytest.raises(RefusedError, match="the maximum is 255") as refused:
            store_fixture.store.add_evidence(1, name, b"2")
        assert refused.value.code == "bad-request"


def test_nothing_is_kept_of_an_unknown_run(store_fixture: StoreFixture) -> None:
    """Evidence and verdicts of a run that was never registered are refused."""
    with pytest.raises(RefusedError) as refused:
        store_fixture.store.add_evidence(1, "x", b"")
    assert refused.value.code == "run-unknown"
    with pytest.raises(RefusedError) as refused:
        store_fixture.judge(1, "loss")
    assert refused.value.code == "run-unknown"


def test_the_listing_is_newest_first_and_limited(store_fixture: StoreFixture) -> None:
    """The listing has the newest runs with their state, verdict and sum of acknowledged operations."""
    for run in (1, 2, 3):
        store_fixture.register(run)
    store_fixture.arm(3)
    store_fixture.save(3, frontiers=(5, 6))
    store_fixture.judge(3, "durable")
    rows = store_fixture.store.listing(2, client=None)
    assert [row["run"] for row in rows] == [f"{3:016x}", f"{2:016x}"]
    assert (rows[0]["state"], rows[0]["verdict"], rows[0]["acked"]) == ("armed", "durable", 11)
    assert (rows[1]["state"], rows[1]["verdict"], rows[1]["acked"]) == ("registered", "", 0)


def test_no_client_crowds_another_out_of_a_listing(
    store_fixture: StoreFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a limit on rows or bytes shortens a listing, each client gets a share of it."""
    for run in (1, 2, 3):
        store_fixture.register(run, facts=store_fixture.lab.facts(serial=f"S{run}"), client="one")
    for run in range(4, 20):
        long = store_fixture.lab.facts(serial=f"S{run}", path=f"/{'x' * 4000}/{run}")
        store_fixture.register(run, facts=long, client="other")
    rows = store_fixture.store.listing(6, client=None)
    assert [int(str(row["run"]), 16) for row in rows] == [19, 18, 17, 3, 2, 1]
    monkeypatch.setattr(run_rows, "LISTED_BYTES_MAX", 10_000)
    rows = store_fixture.store.listing(1000, client=None)
    assert [int(str(row["run"]), 16) for row in rows] == [19, 18, 3, 2]
    assert len(store_fixture.store.listing(1000, client="one")) == 3


@pytest.mark.slow
def test_a_listing_that_takes_too_long_is_refused(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing that takes too long is stopped with the code "busy", so that other requests are answered.
    Later queries work as before."""
    store = Store(store_url)
    store.open()
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT -x FROM n) SELECT count(*) FROM n"
    for _ in range(2):
        with (
            monkeypatch.context() as patches,
            pytest.raises(RefusedError, match=r"longer than 0\.2 s") as refused,
        ):
            patches.setattr(database, "LISTING_S_MAX", 0.2)
            with store._database.listing() as db:
                db.exec_driver_sql(endless)
        assert refused.value.code == "busy"
        assert store.listing(5, client=None) == ()
        with store._database.reading() as db:
            assert db.exec_driver_sql("SELECT count(*) FROM runs").scalar() == 0
    store.close()


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_second_server_is_refused(store_fixture: StoreFixture, store_url: str) -> None:
    """An SQLite file has one server."""
    store_fixture.register(1)
    second = Store(store_url)
    with pytest.raises(StoreError, match="another server"):
        second.open()
    second.close()


def test_a_store_of_another_format_is_refused(store_fixture: StoreFixture, store_url: str) -> None:
    """A database that a newer release wrote is named as such and left alone."""
    with store_fixture.store._database.transaction() as db:
        db.exec_driver_sql("UPDATE meta SET format = 99")
    store_fixture.store.close()
    store = Store(store_url)
    with pytest.raises(StoreError, match="format 99"):
        store.open()
    store.close()


@pytest.mark.parametrize("url", ["", "nonsense", "sqlite://", "sqlite:///:memory:", "mysql://x/y"])
def test_what_cannot_be_a_store_is_refused(url: str) -> None:
    """A URL that names no durable database is a usage error."""
    with pytest.raises(UsageError):
        Store(url)


@pytest.mark.parametrize(
    "url",
    [
        "postgresq//me:HUSH@h/db",
        "postgresql:/me:HUSH@h/db",
        "postgresql://me:HUSH@h:54x/db",
        "pg sql://me:HUSH@h/db",
        "mysql://me:HUSH@h/db",
        "sqlite://me:HUSH@h/x",
        "postgresql//h/db?password=HUSH",
    ],
)
def test_a_mistyped_url_does_not_show_its_password(url: str) -> None:
    """Terminals and logs of services are read by others."""
    with pytest.raises(UsageError) as refused:
        Store(url)
    assert "HUSH" not in str(refused.value)
    assert "HUSH" not in Store("postgresql://h/db?password=HUSH").name


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """A file of something else is not overwritten."""
    file = tmp_path / "store.sqlite"
    file.write_bytes(b"not a database, but long enough to be one" * 100)
    store = Store(f"sqlite:///{file}")
    with pytest.raises(StoreError, match=str(file)):
        store.open()
    store.close()
    assert file.read_bytes().startswith(b"not a database")


def test_the_store_is_its_owners_alone(tmp_path: Path) -> None:
    """The SQLite files are closed to others, as they hold the runs' secrets."""
    (tmp_path / "state").mkdir()
    store = Store(f"sqlite:///{tmp_path / 'state' / 'store.sqlite'}")
    store.open()
    modes = {path.stat().st_mode & 0o077 for path in (tmp_path / "state").iterdir()}
    store.close()
    assert modes == {0}


def test_a_mistyped_directory_of_the_store_is_refused(tmp_path: Path) -> None:
    """A store in a missing directory is refused, because a new empty store would not know the existing
    runs."""
    with pytest.raises(StoreError, match="No such file or directory"):
        Store(f"sqlite:///{tmp_path / 'mistyped' / 'store.sqlite'}").open()
    assert not (tmp_path / "mistyped").exists()


def test_an_error_of_the_target_is_kept(store_fixture: StoreFixture) -> None:
    """A newer target error replaces the stored one. A snapshot without an error leaves it stored."""
    store_fixture.register(1)
    assert store_fixture.store.load(1).snapshot.target_error is None
    seen: tuple[DriveState, ...] = ("unseen", "dead")
    for state in seen:
        error = pack(to_value(TargetFailure(at_ns=7, drive=state, text="no answer")))
        store_fixture.save(1, target_error=error)
        assert store_fixture.store.load(1).snapshot.target_error == error
    store_fixture.save(1, target_error=None)
    assert store_fixture.store.load(1).snapshot.target_error == error


def test_a_store_of_version_0_1_is_opened(tmp_path: Path) -> None:
    """A store of version 0.1 has no table for target errors. It is opened, and its runs have no known target
    error."""
    path = tmp_path / "store"
    store = Store(f"sqlite:///{path}")
    store.open()
    store.close()
    with sqlite3.connect(path) as database:
        database.execute("DROP TABLE errors")
    database.close()
    store = Store(f"sqlite:///{path}")
    store.open()
    assert store.listing(1, client=None) == ()
    store.close()


def test_live_runs_are_found_without_reading_all_runs(store_fixture: StoreFixture) -> None:
    """The live page asks for them each second, and the runs that are over may be many and long."""
    store = store_fixture.store
    asked: list[tuple[str, Any]] = []

    def note(_connection: object, _cursor: object, statement: str, given: Any, *_: object) -> None:
        asked.append((statement, given))

    with listening(note):
        store.live_runs(100)
        store.live_by_client()
    asked = [(statement, given) for statement, given in asked if "runs.session_end =" in statement]
    assert len(asked) == 2
    with store._database.reading() as db:
        explain = "EXPLAIN QUERY PLAN"
        if db.dialect.name == "postgresql":
            db.exec_driver_sql("SET LOCAL enable_seqscan = off")  # of a table that is so small
            explain = "EXPLAIN"
        for statement, given in asked:
            plan = [str(row) for row in db.exec_driver_sql(f"{explain} {statement}", given)]
            assert any("runs_by_session_end" in line for line in plan), plan
