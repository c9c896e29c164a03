"""The lab's cases on drives and on targets as a cut left them: what each deserves.

Cuts in virtual time where a drive model has the fault; else a target is laid down byte by byte. The name of a
case is its function's, and docs/reference/mutants.md names each that notices a rule's absence.
"""

from __future__ import annotations

from typing import Any

from durability.evidence.slot_oracle import SlotOracle
from durability.formats.case import Case
from durability.formats.plan import CONTROL, MAIN, Plan
from durability_lab.simulated_rig.virtual_time import (
    MS,
    Agenda,
    Chance,
    ServiceTimes,
    VirtualServer,
)
from durability_server.store.records import NO_RELATIONS
from tests.core.evidence.memory_target import SECTOR, Disk, after_power_loss, make_case
from tests.lab.mutants.lab_case import control_lost, disk_of, judged, lab_case, plan_of, simulated
from tests.lab.mutants.synced_files import Files
from tests.sample_facts import facts

ACKED = 200  # operations: three passes over 64 slots, and 8 more
GARBAGE = b"\xa5" * SECTOR


def idle_slots(plan: Plan) -> list[int]:
    """The slots without a write in flight."""
    busy = SlotOracle(plan, (ACKED,)).in_flight_slots(0).tolist()
    return [slot for slot in range(plan.slots) if slot not in busy]


def idle_slot(plan: Plan) -> int:
    """The first of them."""
    return idle_slots(plan)[0]


def fall_back(disk: Disk, seq: int) -> None:
    """Let the slot of `seq` hold the version before that one."""
    slot = disk.slot_of(0, seq)
    disk.put(0, slot, disk.record(0, slot, disk.newest(0, slot, seq - 1)))


def kept(**changes: Any) -> tuple[Disk, Case]:
    """An honest drive after 200 acknowledged operations, and the case of its run with `changes`."""
    plan = plan_of()
    return disk_of(plan, ACKED), make_case(plan, (ACKED,), **changes)


# -- honest drives in virtual time ---------------------------------------------------------------------------


@lab_case("durable")
def honest_drive() -> str:
    """An honest drive of which every unflushed write is lost."""
    return simulated("seed=1 model=honest:kept=0.0,torn=0.0 writers=2")


@lab_case("durable")
def honest_drive_that_tears() -> str:
    """An honest drive that tears what is in flight between sectors."""
    return simulated("seed=7 model=honest:kept=0.0,torn=1.0 writers=2 group=4")


@lab_case("durable")
def honest_drive_under_groups() -> str:
    """An honest drive that keeps some writes of a group and not the others."""
    return simulated("seed=1 model=honest:kept=0.5,torn=0.5 group=8 slots=1024 writers=2")


@lab_case("durable")
def honest_drive_that_gets_fua_only() -> str:
    """An honest drive that is never flushed after the prefill, which is mostly still there: each write forces
    itself."""
    return simulated("seed=1 model=honest:kept=0.0,torn=0.0 sync=dsync operations=20..40")


# -- liars in virtual time -----------------------------------------------------------------------------------


@lab_case("loss; lost, torn")
def drive_that_ignores_flushes() -> str:
    """A drive that acknowledges flushes and does nothing."""
    return simulated("seed=1 model=flush-ignored:cache_bytes=65536")


@lab_case("loss; lost, out of order")
def drive_that_lies_about_what_nobody_heard_of() -> str:
    """A drive loses, of what it acknowledged, only operations whose acknowledgements were still under way."""
    load = "operations=5..8 lag_p50_ms=3 lag_p99_ms=4"
    return simulated(f"seed=4 model=flush-ignored:kept=0.9,torn=0.0 {load}")


@lab_case("loss; torn")
def drive_that_shears_pages() -> str:
    """A drive that brings only a first part of an acknowledged page to media."""
    return simulated("seed=2 model=shorn")


@lab_case("loss; lost, torn, corrupt, misdirected")
def drive_that_misplaces_pages() -> str:
    """A drive that puts acknowledged pages over others."""
    return simulated("seed=1 model=misdirected:chance=0.05")


@lab_case("loss; corrupt")
def drive_that_flips_bits_of_neighbours() -> str:
    """A drive that damages pages which were durable long before."""
    return simulated("seed=1 model=neighbour-flip record_bytes=1024")


@lab_case("loss: unreadable-only; unreadable")
def drive_that_cannot_read_its_pages() -> str:
    """A drive of which a part answers with EIO."""
    return simulated("seed=1 model=unreadable:share=0.1")


@lab_case("loss: device-smaller; truncated")
def drive_that_comes_back_smaller() -> str:
    """A drive that comes back with half of its sectors."""
    return simulated("seed=1 model=smaller:share=0.5")


@lab_case("inconclusive: nothing-at-risk")
def liar_that_had_time_to_drain() -> str:
    """A drive that acknowledges 10 ms early is cut a second and a half after the last write."""
    return simulated("seed=1 model=early-ack:delay_ms=10.0 idle_ms=1500")


# -- acknowledging -------------------------------------------------------------------------------------------


def server_of(plan: Plan) -> tuple[Agenda, VirtualServer]:
    """The product's server side of a run that is armed and live."""
    agenda = Agenda()
    pace = ServiceTimes(write_ns=1, sync_ns=1, interval_ns=0, lag_p50_ns=1, lag_p99_ns=1)
    server = VirtualServer(agenda, plan, Chance("1", pace), lambda _: None)
    server.arm(facts())
    return agenda, server


def wait(agenda: Agenda, milliseconds: int) -> None:
    agenda.run(until_ns=agenda.now_ns + milliseconds * MS)


def case_of(agenda: Agenda, server: VirtualServer) -> Case:
    """The case two minutes later."""
    wait(agenda, 120_000)
    return server.run.case(now_ns=agenda.now_ns, relations=NO_RELATIONS)


@lab_case("loss; 1 lost")
def acknowledgements_merged_into_one() -> str:
    """The frames for operations 4, 5 and 6 came as one, which said 6; the drive lost 6."""
    plan = plan_of()
    agenda, server = server_of(plan)
    for frontier in (1, 2, 3, 6):
        server.acknowledge((frontier,), 0)
        wait(agenda, 1)
    server.run.silent(agenda.now_ns)
    return judged(disk_of(plan, 5), case_of(agenda, server))


@lab_case("inconclusive: tainted")
def client_that_claims_beyond_its_credit() -> str:
    """A broken client claims operations that it was never granted and that are not on the drive."""
    plan = plan_of()
    agenda, server = server_of(plan)
    for frontier in (5, 19):
        server.acknowledge((frontier,), 0)
        wait(agenda, 1)
    server.run.silent(agenda.now_ns)
    return judged(disk_of(plan, 5), case_of(agenda, server))


@lab_case("inconclusive: log-behind")
def store_that_was_rolled_back() -> str:
    """The server's store is from before a writer's last 20 operations, which are whole on the drive."""
    plan = plan_of(pattern="sequential", writers=2)
    return judged(disk_of(plan, ACKED + 20, ACKED), make_case(plan, (ACKED, ACKED)))


@lab_case("inconclusive: log-behind; 72 truncated")
def store_that_was_rolled_back_by_files_of_a_log() -> str:
    """The server's store is from before an appending writer's last 400 operations: the files that it knows of
    were removed, and the files that are there are whole."""
    plan = plan_of(workload="append")
    return judged(disk_of(plan, 3 * ACKED), make_case(plan, (ACKED,)))


@lab_case("inconclusive: log-behind, nothing-at-risk; 25 absent")
def store_that_was_rolled_back_before_removals() -> str:
    """The server's store is from before the last 33 operations of `unlink`, which removed names in order."""
    plan = plan_of(workload="unlink")
    return judged(disk_of(plan, 50), make_case(plan, (17,)))


@lab_case("loss; 1 absent")
def name_that_no_removal_explains() -> str:
    """A name of `unlink` is gone. All that may have been in flight was done, and an operation beyond would
    remove that name; but the operations between have not been done."""
    plan = plan_of(workload="unlink", pattern="sequential")
    disk = disk_of(plan, 188)
    disk.remove(0, 62)
    return judged(disk, make_case(plan, (180,)))


@lab_case("inconclusive: not-armed, cut-not-shown, nothing-at-risk; 24 corrupt")
def cut_during_the_prefill() -> str:
    """The plug was pulled during the prefill: the last 24 slots are empty, and nothing was acknowledged."""
    plan = plan_of()
    disk = Disk(plan)
    for slot in range(40, plan.slots):
        disk.put(0, slot, bytes(plan.record_bytes))
    return judged(disk, make_case(plan, (0,), armed=None))


@lab_case("inconclusive: no-server-log, not-armed, cut-not-shown, nothing-at-risk; 24 foreign")
def prefill_that_no_server_knows_of() -> str:
    """The same over an earlier run, and the server was restored from a copy of before; an operation on the
    target would show that the run had been armed."""
    earlier, plan = disk_of(plan_of(run=7), 40), plan_of()
    disk = Disk(plan)
    for slot in range(40, plan.slots):
        disk.put(0, slot, earlier.get(0, slot))
    return judged(disk, None)


# -- judging -------------------------------------------------------------------------------------------------


@lab_case("loss; 1 lost, 1 out of order")
def write_missing_before_one_that_is_there() -> str:
    """Of two operations that nobody heard of, the later one is on the drive and the earlier one is not."""
    disk, case = kept()
    disk.write(0, ACKED + 2)
    return judged(disk, case)


@lab_case("durable; 1 damaged in flight")
def garbage_in_flight() -> str:
    """An honest drive leaves nothing recognisable where it was just writing."""
    disk, case = kept()
    disk.put(0, disk.slot_of(0, ACKED + 1), GARBAGE)
    return judged(disk, case)


@lab_case("loss; 1 corrupt")
def garbage_ahead_of_what_was_in_flight() -> str:
    """An idle record is destroyed. The credit lets the writer reach its slot, though it has not: the two
    operations before are not there."""
    disk, case = kept()
    disk.put(0, disk.slot_of(0, ACKED + 3), GARBAGE)
    return judged(disk, case)


def _with_writes_that_nobody_heard_of(count: int) -> tuple[Files, Case, list[tuple[str, int]]]:
    """An honest drive that kept so many operations which the server never heard of, and garbage of the one
    after them; suffix and offset of the sectors of all but that."""
    disk, case = kept()
    disk.write(0, *range(ACKED + 1, ACKED + 1 + count))
    disk.put(0, disk.slot_of(0, ACKED + 1 + count), GARBAGE)
    places = [disk.versions.place(0, disk.slot_of(0, ACKED + 1 + number)) for number in range(count)]
    sectors = [
        (suffix, offset + start) for suffix, offset, size in places for start in range(0, size, SECTOR)
    ]
    return Files.of(disk, after_power_loss()), case, sectors


@lab_case("durable; 2 damaged in flight")
def write_in_flight_behind_a_wrong_bit() -> str:
    """The newest record has wrong bits when it is read first. Nothing else shows that it was acknowledged,
    and that the next one may have been in flight."""
    files, case, sectors = _with_writes_that_nobody_heard_of(1)
    files.flips.update({(suffix, offset + 300): 1 for suffix, offset in sectors})
    return judged(files, case)


@lab_case("loss: unreadable-only; 3 unreadable, 1 damaged in flight")
def write_in_flight_behind_records_that_cannot_be_read() -> str:
    """The three newest records cannot be read. One may have been in flight; two were acknowledged or never
    begun. Behind them a fourth one is garbage: if they can be read once, it may have been in flight."""
    files, case, sectors = _with_writes_that_nobody_heard_of(3)
    files.bad.update(sectors)
    return judged(files, case)


@lab_case("durable")
def write_in_flight_torn() -> str:
    """An honest drive tears the write in flight between its sectors."""
    disk, case = kept()
    slot = disk.slot_of(0, ACKED + 1)
    disk.put(0, slot, disk.record(0, slot, ACKED + 1)[:SECTOR])
    return judged(disk, case)


@lab_case("durable")
def write_in_flight_whole() -> str:
    """An honest drive finished the write in flight, whose acknowledgement nobody heard of."""
    disk, case = kept()
    disk.write(0, ACKED + 1)
    return judged(disk, case)


@lab_case("loss; 1 corrupt")
def body_changed_below_an_intact_header() -> str:
    """One bit of an idle record's body has flipped; its header says what it should."""
    disk, case = kept()
    slot = idle_slot(disk.plan)
    data = bytearray(disk.get(0, slot))
    data[300] ^= 1
    disk.put(0, slot, bytes(data))
    return judged(disk, case)


@lab_case("loss; 1 corrupt, 1 collateral")
def neighbour_in_a_shared_block() -> str:
    """Records of 1 KiB share blocks of 4 KiB: an idle one is damaged beside one in flight."""
    plan = plan_of(block_bytes=4096, pattern="sequential")
    disk = disk_of(plan, ACKED + 2)
    disk.put(0, disk.slot_of(0, ACKED + 2), GARBAGE)  # the second of four in its block
    return judged(disk, make_case(plan, (ACKED + 2,)))


@lab_case("loss; 1 misdirected")
def newer_record_in_another_place() -> str:
    """An idle slot holds a whole record of the last operations, which belongs elsewhere as well."""
    disk, case = kept()
    other = disk.slot_of(0, ACKED)
    slot = idle_slot(disk.plan)
    assert slot != other
    disk.put(0, slot, disk.record(0, other, ACKED))
    return judged(disk, case)


@lab_case("loss; 1 lost")
def old_record_lost() -> str:
    """The newest records are fine; one of 60 operations ago is gone."""
    disk, case = kept()
    oldest = ACKED - 60
    while disk.newest(0, disk.slot_of(0, oldest), ACKED + disk.plan.credit) != oldest:
        oldest += 1
    fall_back(disk, oldest)
    return judged(disk, case)


@lab_case("loss; 1 corrupt")
def superblock_gone() -> str:
    """The second superblock is zeros."""
    disk, case = kept()
    offset = disk.plan.superblock_offsets[1]
    disk.files[MAIN][offset:] = bytes(len(disk.files[MAIN]) - offset)
    return judged(disk, case)


@lab_case("inconclusive: unstable")
def cable_that_flips_a_bit_once() -> str:
    """The first read of an idle record has a wrong bit, the second has not."""
    disk, case = kept()
    files = Files.of(disk, after_power_loss())
    _, offset, _ = disk.versions.place(0, idle_slot(disk.plan))
    files.flips[MAIN, offset + 300] = 1
    return judged(files, case)


@lab_case("loss; 12 truncated")
def log_that_is_short() -> str:
    """The file of an appending writer ends 12 acknowledged records early."""
    plan = plan_of(workload="append")
    disk = disk_of(plan, 60)
    del disk.files[".0.0"][48 * plan.record_bytes :]
    return judged(disk, make_case(plan, (60,)))


@lab_case("loss; 1 resurrected")
def file_of_a_log_that_is_back() -> str:
    """The first file of a log is there again, whose removal was synced before acknowledged records."""
    plan = plan_of(workload="append")
    first = disk_of(plan, 64).files[".0.0"]
    disk = disk_of(plan, ACKED)
    disk.files[".0.0"] = first
    return judged(disk, make_case(plan, (ACKED,)))


@lab_case("loss; 1 misdirected")
def control_record_in_a_slot() -> str:
    """A sector of the control arm's newest record lies in an idle slot."""
    plan = plan_of(control_slots=4)
    disk = disk_of(plan, ACKED)
    sector = disk.record(plan.control_writer, 3, ACKED + 4)[:SECTOR]
    disk.put(0, idle_slot(plan), sector)
    return judged(disk, make_case(plan, (ACKED,)))


@lab_case("durable; control arm 2 lost")
def control_arm_that_lost_writes() -> str:
    """Two of three writes that were never synced are gone, and nothing else is."""
    plan = plan_of(control_slots=4)
    disk = disk_of(plan, ACKED)
    disk.write(plan.control_writer, 1)
    assert CONTROL in disk.files
    return judged(disk, make_case(plan, (ACKED,), control=3), tell=control_lost)


@lab_case("durable; control arm 0 lost")
def control_arm_that_was_cut_in_a_write() -> str:
    """The control arm's write after those that completed damaged the slot that it was to cover."""
    plan = plan_of(control_slots=4)
    disk = disk_of(plan, ACKED)
    disk.write(plan.control_writer, *range(1, 9))
    disk.put(plan.control_writer, disk.slot_of(plan.control_writer, 9), b"\xa5" * SECTOR, sector=3)
    return judged(disk, make_case(plan, (ACKED,), control=8), tell=control_lost)


# -- logs that seem to be behind -----------------------------------------------------------------------------


def _short_of(slot: int) -> Disk:
    """A log of 150 acknowledged records, of which one is zeros."""
    plan = plan_of(workload="append")
    disk = disk_of(plan, 150)
    disk.put(0, slot, bytes(plan.record_bytes))
    return disk


@lab_case("loss; 1 lost")
def empty_file_of_a_log_that_is_back() -> str:
    """A record is lost, and an empty file with a higher number is there again."""
    disk = _short_of(140)
    disk.files[".0.9"] = bytearray()
    return judged(disk, make_case(disk.plan, (150,)))


@lab_case("loss; 1 lost")
def file_of_a_log_that_is_back_over_reused_blocks() -> str:
    """A record is lost, and a file with a higher number is there again, whose blocks hold newer records of
    the run itself."""
    disk = _short_of(140)
    disk.files[".0.9"] = bytearray(disk.files[".0.2"])
    return judged(disk, make_case(disk.plan, (150,)))


@lab_case("loss; 22 misdirected, 8 damaged in flight")
def file_of_a_log_that_is_an_older_one() -> str:
    """The table of inodes is that of before: the newest file holds all that the first one did."""
    plan = plan_of(workload="append")
    disk = disk_of(plan, 150)
    disk.files[".0.2"] = disk_of(plan, 64).files[".0.0"]
    return judged(disk, make_case(plan, (150,)))


@lab_case("loss; 12 lost, 8 damaged in flight")
def log_over_a_longer_one_that_is_gone() -> str:
    """The drive lost all of a second run; the first run's log is there again, and is longer."""
    plan = plan_of(workload="append")
    first = disk_of(plan_of(workload="append", run=7), 64)
    return judged(first, make_case(plan, (10,), predecessors=(f"{first.plan.run:016x}",)))


@lab_case("loss; 12 lost")
def log_over_a_longer_one_that_was_trimmed() -> str:
    """The same, and the first run's blocks read as zeros, because its files had been trimmed."""
    plan = plan_of(workload="append")
    first = disk_of(plan_of(workload="append", run=7), 64)
    first.files[".0.0"] = bytearray(len(first.files[".0.0"]))
    return judged(first, make_case(plan, (10,), predecessors=(f"{first.plan.run:016x}",)))


def _begins_a_file(content: bytes, suffix: str = ".0.3", *, written: int) -> str:
    """The answer to a log of which file 1 is gone, and `suffix` holds `content`. The server's store is one
    credit behind; of the group of 197 to 200, which ends file 2 at 198, all up to `written` is there."""
    plan = plan_of(workload="append", slots=66, group=4)
    disk = disk_of(plan, written)
    disk.remove(0, 1)
    disk.files[suffix] = bytearray(content)
    return judged(disk, make_case(plan, (188,), predecessors=(f"{7:016x}",)))


@lab_case("inconclusive: log-behind, nothing-at-risk; 66 truncated")
def next_file_of_a_log() -> str:
    """The server's store is one credit behind. The next file was just made, so the last but one is gone, and
    the file between is full."""
    return _begins_a_file(b"", written=198)


@lab_case("inconclusive: log-behind, nothing-at-risk; 66 truncated")
def next_file_of_a_log_over_old_blocks() -> str:
    """The same, and the next file shows old blocks of an earlier run."""
    return _begins_a_file(disk_of(plan_of(workload="append", run=7), 64).get(0, 0), written=198)


@lab_case("loss; 66 truncated")
def next_file_of_a_log_that_is_not_full() -> str:
    """A file is gone. The next file is there and empty, but the one before it was never filled: the writer
    had no reason to make it."""
    return _begins_a_file(b"", written=196)


@lab_case("loss; 64 truncated")
def files_of_a_log_that_fell_back_by_halves() -> str:
    """The table of names lost its newer half: a file of an earlier run is there again, and one of this run,
    with acknowledged records, is gone."""
    plan = plan_of(workload="append")
    disk = disk_of(plan, 150)
    disk.remove(0, 1)
    disk.files[".0.3"] = disk_of(plan_of(workload="append", run=7), 10).files[".0.0"]
    return judged(disk, make_case(plan, (150,)))


@lab_case("loss; 66 truncated")
def file_of_a_log_that_no_other_follows() -> str:
    """A file is gone. An empty one that the writer cannot have made yet is there."""
    return _begins_a_file(b"", ".0.9", written=196)


@lab_case("inconclusive: log-behind")
def file_of_a_log_that_nobody_can_have_made() -> str:
    """Nothing is missing, and an empty file is there that the log has no room for."""
    disk = disk_of(plan_of(workload="append"), 150)
    disk.files[".0.9"] = bytearray()
    return judged(disk, make_case(disk.plan, (150,)))


# -- names ---------------------------------------------------------------------------------------------------


def _names(workload: str, acked: int = ACKED) -> tuple[Disk, Case]:
    plan = plan_of(workload=workload, pattern="sequential")
    return disk_of(plan, acked), make_case(plan, (acked,))


@lab_case("loss; 1 absent")
def created_name_that_is_gone() -> str:
    """A name whose creation was acknowledged is not there."""
    disk, case = _names("create")
    disk.remove(0, ACKED - 10)
    return judged(disk, case)


@lab_case("durable; 1 damaged in flight")
def name_in_the_making() -> str:
    """The file that was just being created is empty."""
    disk, case = _names("create")
    disk.files[f".0.{ACKED}"] = bytearray()
    return judged(disk, case)


@lab_case("loss; 1 resurrected")
def removed_name_that_is_back() -> str:
    """A name that `create` removed, 40 acknowledged operations ago, is there again."""
    disk, case = _names("create")
    slot = ACKED - 40 - 1 - disk.plan.slots
    disk.put(0, slot, disk.record(0, slot, slot + 1))
    return judged(disk, case)


@lab_case("loss; 1 resurrected")
def unlinked_name_that_is_back() -> str:
    """A name whose removal was acknowledged is there again, with its last content."""
    disk, case = _names("unlink", 180)
    disk.put(0, 20, disk.record(0, 20, 85))
    return judged(disk, case)


@lab_case("loss; 1 resurrected")
def name_of_a_larger_run_that_is_back() -> str:
    """A name of an earlier run with more names is there, which was removed before this one was armed."""
    disk, case = _names("rename")
    earlier = disk_of(plan_of(workload="rename", slots=128, run=disk.plan.run + 1), 0)
    disk.files[".0.100"] = earlier.files[".0.100"]
    return judged(disk, case)


@lab_case("durable")
def removal_in_flight() -> str:
    """The name that was just being unlinked is gone, or is still there."""
    disk, case = _names("unlink", 180)
    disk.remove(0, 53)
    return judged(disk, case)


@lab_case("loss; 1 absent")
def name_gone_ahead_of_what_was_in_flight() -> str:
    """A name of `create` is gone which the credit lets the writer remove, though it has not got so far."""
    disk, case = _names("create")
    disk.remove(0, ACKED + 2 - disk.plan.slots)
    return judged(disk, case)


@lab_case("loss; 1 stale")
def rename_that_came_undone() -> str:
    """A name holds the file that an acknowledged rename had replaced."""
    disk, case = _names("rename")
    disk.put(0, 20, disk.record(0, 20, 85))
    return judged(disk, case)


@lab_case("loss; 1 torn")
def rename_before_the_data() -> str:
    """The name of a rename in flight holds an empty file: the name came before the data."""
    disk, case = _names("rename")
    disk.files[f".0.{disk.slot_of(0, ACKED + 1)}"] = bytearray()
    return judged(disk, case)


@lab_case("loss; 1 stale, 1 out of order")
def temporary_that_testifies() -> str:
    """A temporary of operation 202 is there, so 201 was acknowledged; its name holds the one before."""
    disk, case = _names("rename")
    slot = disk.slot_of(0, ACKED + 2)
    disk.files[f".0.{slot}.tmp"] = bytearray(disk.record(0, slot, ACKED + 2))
    return judged(disk, case)


@lab_case("loss; 1 misdirected, 1 absent")
def name_that_nobody_made_with_an_older_record() -> str:
    """A created name is gone, and one that was never made holds an older record of the run."""
    disk, case = _names("create")
    disk.remove(0, 180)
    disk.files[".0.400"] = bytearray(disk.get(0, 190))
    return judged(disk, case)


@lab_case("loss; 1 absent")
def name_that_nobody_made_with_garbage() -> str:
    """A created name is gone, and one that was never made holds nothing recognisable."""
    disk, case = _names("create")
    disk.remove(0, 180)
    disk.files[".0.400"] = bytearray(GARBAGE)
    return judged(disk, case)


@lab_case("inconclusive: log-behind, nothing-at-risk; 1 absent")
def name_in_the_making_beyond_the_credit() -> str:
    """The server's store is one credit behind. The next name was just made and shows old blocks of an earlier
    run, and the name that goes with it is gone."""
    plan = plan_of(workload="create")
    disk = disk_of(plan, ACKED)
    disk.files[f".0.{ACKED}"] = bytearray(disk_of(plan_of(workload="create", run=7), 64).get(0, 0))
    disk.remove(0, ACKED - plan.slots)
    return judged(disk, make_case(plan, (ACKED - plan.credit,)))
