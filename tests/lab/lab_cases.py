"""The lab's cases on targets as a cut left them, and on what is said of the cut: what each deserves.

Cuts in virtual time where a drive model has the fault; else a target is laid down byte by byte. The name of a
case is its function's, and docs/evidence.md names each that notices a rule's absence.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from durability.case import Case, PastVerdict
from durability.facts import Facts
from durability.oracle import Oracle
from durability.plan import CONTROL, MAIN, Plan
from durability_lab.virtual import MS, NO_RELATIONS, Agenda, Chance, Pace, VirtualServer
from tests.core.evidence import (
    LAST_NS,
    SECTOR,
    Disk,
    after_power_loss,
    drive,
    facts,
    make_case,
    make_statistics,
)
from tests.lab.bench_of_cases import (
    at_risk,
    bound,
    control_lost,
    disk_of,
    judged,
    lab_case,
    loss_window,
    plan_of,
    simulated,
    warnings,
)
from tests.lab.files import Files

ACKED = 200  # operations: three passes over 64 slots, and 8 more
GARBAGE = b"\xa5" * SECTOR


def past(verdict: str, **changes: Any) -> PastVerdict:
    """An earlier verdict on a cut of class power with records at risk."""
    fields: dict[str, Any] = {"run": "1", "cut_class": "power", "at_risk_ms1000": 5, "wall": "", **changes}
    return PastVerdict(verdict=verdict, **fields)


def idle_slot(plan: Plan) -> int:
    """A slot without a write in flight."""
    busy = Oracle(plan, (ACKED,)).in_flight_slots(0).tolist()
    return next(slot for slot in range(plan.slots) if slot not in busy)


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


@lab_case("loss; unreadable, damaged in flight")
def drive_that_cannot_read_its_pages() -> str:
    """A drive of which a part answers with EIO."""
    return simulated("seed=1 model=unreadable:share=0.1")


@lab_case("loss; truncated")
def drive_that_comes_back_smaller() -> str:
    """A drive that comes back with half of its sectors."""
    return simulated("seed=1 model=smaller:share=0.5")


@lab_case("inconclusive: nothing-at-risk")
def liar_that_had_time_to_drain() -> str:
    """A drive that acknowledges 10 ms early is cut a second and a half after the last write."""
    return simulated("seed=1 model=early-ack:delay_ms=10.0 idle_ms=1500")


# -- acknowledging -------------------------------------------------------------------------------------------


def _server(plan: Plan) -> tuple[Agenda, VirtualServer]:
    """The product's server side of a run that is armed and live."""
    agenda = Agenda()
    pace = Pace(write_ns=1, sync_ns=1, interval_ns=0, lag_p50_ns=1, lag_p99_ns=1)
    server = VirtualServer(agenda, plan, Chance("1", pace), lambda _: None)
    server.arm(facts())
    return agenda, server


def _pass(agenda: Agenda, milliseconds: int) -> None:
    agenda.run(until_ns=agenda.now_ns + milliseconds * MS)


def _case_of(agenda: Agenda, server: VirtualServer) -> Case:
    """The case two minutes later."""
    _pass(agenda, 120_000)
    return server.run.case(now_ns=agenda.now_ns, relations=NO_RELATIONS)


@lab_case("loss; 1 lost")
def acknowledgements_merged_into_one() -> str:
    """The frames for operations 4, 5 and 6 came as one, which said 6; the drive lost 6."""
    plan = plan_of()
    agenda, server = _server(plan)
    for frontier in (1, 2, 3, 6):
        server.acknowledge((frontier,), 0)
        _pass(agenda, 1)
    server.run.silent(agenda.now_ns)
    return judged(disk_of(plan, 5), _case_of(agenda, server))


@lab_case("inconclusive: tainted")
def client_that_claims_beyond_its_credit() -> str:
    """A broken client claims operations that it was never granted and that are not on the drive."""
    plan = plan_of()
    agenda, server = _server(plan)
    for frontier in (5, 19):
        server.acknowledge((frontier,), 0)
        _pass(agenda, 1)
    server.run.silent(agenda.now_ns)
    return judged(disk_of(plan, 5), _case_of(agenda, server))


@lab_case("inconclusive: log-behind")
def store_that_was_rolled_back() -> str:
    """The server's store is from before a writer's last 20 operations, which are whole on the drive."""
    plan = plan_of(pattern="sequential", writers=2)
    return judged(disk_of(plan, ACKED + 20, ACKED), make_case(plan, (ACKED, ACKED)))


@lab_case("inconclusive: not-armed, cut-not-shown, nothing-at-risk; 21 corrupt, 3 damaged in flight")
def cut_during_the_prefill() -> str:
    """The plug was pulled during the prefill: the last 24 slots are empty, and nothing was acknowledged."""
    plan = plan_of()
    disk = Disk(plan)
    for slot in range(40, plan.slots):
        disk.put(0, slot, bytes(plan.record_bytes))
    return judged(disk, make_case(plan, (0,), armed=None))


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
    """Records of 1 KiB share blocks of 4 KiB: one that is idle was damaged with one that was being written."""
    plan = plan_of(block_bytes=4096, pattern="sequential")
    disk = disk_of(plan, ACKED + 1)
    slot = disk.slot_of(0, ACKED)
    disk.put(0, slot, GARBAGE)
    return judged(disk, make_case(plan, (ACKED,)))


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


@lab_case("inconclusive: earlier-unstable")
def second_pass_after_a_flip() -> str:
    """Nothing is wrong now; the first pass read a slot wrong and then right."""
    disk, case = kept(verdicts=(past("inconclusive", reasons=("unstable",)),))
    return judged(disk, case)


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


# -- identity and the state of the log -----------------------------------------------------------------------


@lab_case("exit 5: another target")
def another_drive_in_its_place() -> str:
    """After the reboot another disk is mounted there, which holds nothing of the run."""
    plan = plan_of()
    files = Files(facts(uuid="another", drives=(drive(serial="S2"),), boot="boot-2", uptime_s=30))
    return judged(files, make_case(plan, (ACKED,)))


@lab_case("inconclusive: superseded; 66 lost")
def target_that_was_used_again() -> str:
    """A later run, of which the server knows nothing, was made on the target."""
    plan = plan_of()
    later = Disk(dataclasses.replace(plan, run=77))
    return judged(later, make_case(plan, (ACKED,)))


@lab_case("inconclusive: drive-changed; 20 lost")
def copy_of_an_earlier_moment() -> str:
    """The target is a copy on another drive, made before the last 20 operations."""
    plan = plan_of()
    copy = facts(drives=(drive(serial="S2"),), boot="boot-2", uptime_s=30)
    return judged(disk_of(plan, ACKED - 20), make_case(plan, (ACKED,)), now=copy, attested="pulled the plug")


@lab_case("loss: earlier-loss")
def second_pass_over_a_drive_that_healed() -> str:
    """The first pass found a loss; now everything is there."""
    disk, case = kept(verdicts=(past("loss"),))
    return judged(disk, case)


@lab_case("inconclusive: tainted")
def tainted_run() -> str:
    """The client broke the protocol at some time; what was accepted of its claims is there."""
    disk, case = kept(tainted="the reported frontier of writer 0 fell from 9 to 3")
    return judged(disk, case)


@lab_case("inconclusive: scan-unfinished")
def drive_that_goes_away_while_it_is_read() -> str:
    """The drive leaves the bus when the first writer's slots have been read."""
    plan = plan_of(writers=2)
    files = Files.of(disk_of(plan, ACKED, ACKED), after_power_loss())
    second = plan.extent(1)
    files.gone = (MAIN, range(second.offset_bytes, second.end_bytes))
    return judged(files, make_case(plan, (ACKED, ACKED)))


@lab_case("inconclusive: no-server-log, cut-not-shown, nothing-at-risk")
def target_without_a_log() -> str:
    """The server has lost the run; everything on the drive is in order."""
    return judged(kept()[0], None)


@lab_case("loss; 1 lost, 1 out of order")
def loss_that_the_target_proves_alone() -> str:
    """The server has lost the run; the drive holds operation 200 and, of 150 in another slot, the one before."""
    disk, _ = kept()
    fall_back(disk, ACKED - 50)
    return judged(disk, None)


@lab_case("loss; 1 lost, 1 out of order")
def log_with_a_hole_that_nobody_heard_of() -> str:
    """The server has lost the run; the last record of a full file is zeros, and the next file has records."""
    plan = plan_of(workload="append")
    disk = disk_of(plan, ACKED)
    disk.put(0, 191, bytes(plan.record_bytes))
    return judged(disk, None)


# -- the cut -------------------------------------------------------------------------------------------------


@lab_case("inconclusive: cut-not-shown")
def client_that_was_killed() -> str:
    """The client was killed; nobody cut anything, and nobody says so."""
    disk, case = kept()
    return judged(disk, case, now=facts(uptime_s=2000))


@lab_case("inconclusive: cut-class")
def machine_that_was_reset() -> str:
    """The operating system died; the drive kept its power."""
    disk, case = kept()
    return judged(disk, case, now=facts(boot="boot-2", uptime_s=30))


@lab_case("inconclusive: attestation-contradicted, cut-not-shown")
def client_that_was_killed_and_a_cut_attested() -> str:
    """The client was killed, and the operator says that the plug was pulled."""
    disk, case = kept()
    return judged(disk, case, now=facts(uptime_s=2000), attested="pulled the plug")


@lab_case("inconclusive: attestation-contradicted, cut-class")
def reset_and_a_cut_attested() -> str:
    """The machine was reset, no drive counted a power loss, and the operator says that the plug was pulled."""
    disk, case = kept()
    return judged(disk, case, now=facts(boot="boot-2", uptime_s=30), attested="pulled the plug")


@lab_case("inconclusive: cut-class")
def mirror_of_which_one_drive_was_cut() -> str:
    """Of two drives only one counted a power loss; the machine was started anew."""
    pair = (drive(), drive(name="sdb", serial="S2"))
    cut_one = (drive(unsafe_shutdowns=4), drive(name="sdb", serial="S2"))
    disk, case = kept(armed=facts(drives=pair))
    return judged(disk, case, now=facts(boot="boot-2", uptime_s=30, drives=cut_one))


@lab_case("inconclusive: cut-class")
def guest_with_a_counter_of_its_own() -> str:
    """The counter of a virtual machine's drive rose when the guest was started anew."""
    disk, case = kept(armed=facts(virtualisation="kvm", drives=(drive(emulated=True),)))
    now = facts(
        boot="boot-2", uptime_s=30, virtualisation="kvm", drives=(drive(emulated=True, unsafe_shutdowns=4),)
    )
    return judged(disk, case, now=now)


@lab_case("inconclusive: cut-class")
def guest_that_was_forced_off() -> str:
    """A guest was forced off while its host ran on; the operator attests that."""
    emulated = (drive(emulated=True, unsafe_shutdowns=None),)
    disk, case = kept(armed=facts(virtualisation="kvm", drives=emulated))
    now = facts(boot="boot-2", uptime_s=30, virtualisation="kvm", drives=emulated)
    return judged(disk, case, now=now, attested="forced the guest off")


@lab_case("inconclusive: cut-not-shown")
def machine_that_was_up_all_the_time() -> str:
    """Another boot id, but an uptime that began before the last frame came: no operating system died."""
    disk, case = kept()
    return judged(disk, case, now=facts(boot="boot-2", uptime_s=500))


@lab_case("inconclusive: session-closed")
def connection_that_was_closed() -> str:
    """The server got a FIN; the cut came some time later."""
    disk, case = kept(session_end="fin")
    return judged(disk, case)


@lab_case("inconclusive: session-closed")
def connection_that_was_closed_after_silence() -> str:
    """More than a second of silence, then a FIN: the client's machine was alive, and cut some time later."""
    plan = plan_of()
    agenda, server = _server(plan)
    server.acknowledge((5,), 0)
    _pass(agenda, 1500)
    server.watch()
    assert server.run.session_end == "silence"
    server.run.detached(agenda.now_ns, "fin", "the client's system closed the connection")
    return judged(disk_of(plan, 5), _case_of(agenda, server))


@lab_case("inconclusive: nothing-at-risk")
def network_that_failed_before_the_power() -> str:
    """The only writer had used up its credit, so nobody knows how long it had been waiting."""
    disk, case = kept()
    disk.write(0, *range(ACKED + 1, ACKED + disk.plan.credit + 1))
    return judged(disk, case)


@lab_case("inconclusive: nothing-at-risk")
def removals_that_used_up_the_credit() -> str:
    """The only writer had used up its credit with removals, of which only absent names are left."""
    plan = plan_of(workload="unlink", pattern="sequential")
    disk = disk_of(plan, 140 + plan.credit)
    return judged(disk, make_case(plan, (140,)))


@lab_case("durable; at risk 2, 11, 48, 48")
def end_of_a_pass() -> str:
    """The next pass had begun to cover what the last operations wrote, so that not all of it would show."""
    plan = plan_of(slots=64, credit=16)
    return judged(disk_of(plan, 192), make_case(plan, (192,)), tell=at_risk)


@lab_case("durable; at risk 2, 11, 56, 56")
def client_that_reports_the_targets_error() -> str:
    """The drive alone lost its power; the client said so, and its heartbeats came for five seconds more."""
    disk, case = kept(session_end="target-error", last_receipt_ns=LAST_NS + 5000 * MS)
    return judged(disk, case, tell=at_risk)


@lab_case("inconclusive: nothing-at-risk")
def heartbeats_without_load() -> str:
    """For two seconds before the cut the client had nothing to write, and said that it was alive."""
    disk, case = kept(last_receipt_ns=LAST_NS + 2000 * MS)
    return judged(disk, case)


@lab_case("loss; 1 lost; 114.5 to 167 ms, 116")
def slot_that_fell_back_two_versions() -> str:
    """A slot of operations 21, 85 and 149 holds 21: the oldest that is lost is 85, 115 ms before the last."""
    plan = plan_of(pattern="sequential")
    disk = disk_of(plan, ACKED)
    disk.put(0, 20, disk.record(0, 20, 21))
    return judged(disk, make_case(plan, (ACKED,)), tell=loss_window)


# -- strength and subject ------------------------------------------------------------------------------------


@lab_case("inconclusive: series-incomplete; 29 cuts, no bound")
def series_with_a_cut_that_nobody_verified() -> str:
    """29 cuts without a loss, and one more that was never verified."""
    disk, case = kept(series=(past("durable"),) * 28 + (past("unverified"),))
    return judged(disk, case, min_cuts=29, tell=bound)


@lab_case("inconclusive: series-incomplete; 29 cuts, no bound")
def series_with_a_cut_that_may_hide_a_loss() -> str:
    """29 cuts without a loss, and one more of which the scan did not come to its end."""
    unread = past("inconclusive", reasons=("scan-unfinished",))
    disk, case = kept(series=(past("durable"),) * 28 + (unread,))
    return judged(disk, case, min_cuts=29, tell=bound)


@lab_case("inconclusive: too-few-cuts; 1 cuts, below 0.950")
def series_of_idle_cuts() -> str:
    """28 earlier cuts met no load."""
    disk, case = kept(series=(past("durable", at_risk_ms1000=0),) * 28)
    return judged(disk, case, min_cuts=29, tell=bound)


@lab_case("inconclusive: too-few-cuts; 1 cuts, below 0.950")
def series_of_resets() -> str:
    """28 earlier cuts were resets of the operating system, this one is of class power."""
    disk, case = kept(series=(past("durable", cut_class="os"),) * 28)
    return judged(disk, case, min_cuts=29, tell=bound)


@lab_case("durable; warnings no-flush")
def file_system_without_barriers() -> str:
    """200 syncs were acknowledged, and not one flush reached the drive."""
    disk, case = kept(statistics=make_statistics(operations=(ACKED,), flushes={"sda": 0}))
    return judged(disk, case, tell=warnings)


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


@lab_case("durable")
def removal_in_flight() -> str:
    """The name that was just being unlinked is gone, or is still there."""
    disk, case = _names("unlink", 180)
    disk.remove(0, 53)
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
