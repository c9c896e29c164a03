"""The lab's cases on the cut: whether there was one, of which class, what it met, and what a series of cuts
proves. The drive kept everything, or nearly."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from durability.formats.case import RESET, DriveState, Event, HeldUp, PowerOff, TargetFailure
from durability_lab.simulated_rig.virtual_time import MS
from tests.core.evidence.memory_target import (
    LAST_NS,
    apart,
    make_case,
    make_look,
    make_statistics,
)
from tests.lab.mutants.drive_cases import (
    ACKED,
    case_of,
    kept,
    server_of,
    wait,
)
from tests.lab.mutants.lab_case import (
    Tell,
    at_risk,
    bound,
    disk_of,
    judged,
    lab_case,
    loss_window,
    past,
    plan_of,
    simulated,
    warnings,
)
from tests.sample_facts import drive, facts


def failed(drive: DriveState, *, after_ms: int = 0) -> TargetFailure:
    """An I/O error so long after the last acknowledgement, and what was seen of the drive then."""
    return TargetFailure(at_ns=LAST_NS + after_ms * MS, drive=drive, text="")


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


@lab_case("inconclusive: cut-class")
def power_cut_after_a_reset_that_a_verify_had_seen() -> str:
    """The operating system died, and a verify found its drive with power; the plug was pulled after that."""
    disk, case = kept()
    seen = make_look(facts(boot="boot-2", uptime_s=30))
    counted = facts(boot="boot-3", uptime_s=30, drives=(drive(diskseq=1, unsafe_shutdowns=4),))
    return judged(disk, dataclasses.replace(case, looks=(seen,)), now=counted)


@lab_case("inconclusive: session-closed")
def power_cut_after_a_client_that_a_verify_had_outlived() -> str:
    """The client fell silent, and a verify found its system alive; the plug was pulled after that."""
    disk, case = kept()
    seen = make_look(facts(uptime_s=2000))
    return judged(disk, dataclasses.replace(case, looks=(seen,)))


@lab_case("inconclusive: attestation-contradicted, cut-not-shown")
def client_that_was_killed_and_a_cut_attested() -> str:
    """The client was killed, and the operator says that the plug was pulled."""
    disk, case = kept()
    return judged(disk, case, now=facts(uptime_s=2000), attested="pulled the plug")


@lab_case("inconclusive: attestation-contradicted, cut-class")
def reset_and_a_cut_attested() -> str:
    """The machine was reset, no drive counted a power loss, and somebody says that the plug was pulled."""
    disk, case = kept()
    return judged(disk, case, now=facts(boot="boot-2", uptime_s=30), attested="pulled the plug")


@lab_case("inconclusive: cut-not-shown")
def restart_after_an_error() -> str:
    """One write failed; somebody restarts the machine in order, and attests nothing."""
    disk, case = kept(session_end="target-error", target_error=failed("dead"))
    return judged(disk, case, now=facts(boot="boot-2", uptime_s=30), require_cut="os")


@lab_case("inconclusive: cut-class")
def machine_that_was_reset_after_its_drive_had_flickered() -> str:
    """The drive lost its power for a moment in the run and kept everything. The run went on for hours, then
    the machine was reset."""
    told = dataclasses.replace(
        make_statistics(operations=(ACKED,), flushes={"sda": ACKED}), unsafe_shutdowns=(4,)
    )
    disk, case = kept(statistics=told)
    return judged(disk, case, now=facts(boot="boot-2", uptime_s=30, drives=(drive(unsafe_shutdowns=4),)))


@lab_case("inconclusive: cut-class")
def mirror_of_which_one_drive_was_cut() -> str:
    """Of two drives only one counted a power loss; the machine was started anew."""
    pair = (drive(), drive(name="sdb", serial="S2"))
    cut_one = (drive(unsafe_shutdowns=4), drive(name="sdb", serial="S2"))
    disk, case = kept(armed=facts(drives=pair))
    return judged(disk, case, now=facts(boot="boot-2", uptime_s=30, drives=cut_one))


@lab_case("inconclusive: cut-class")
def two_disks_in_a_dock_of_which_one_was_cut() -> str:
    """They show one serial and nothing else that tells them apart but their counts. One counted a power loss,
    and the system of the machine was reset."""
    sdb = drive(name="sdb", diskseq=2, unsafe_shutdowns=5)
    pair, cut_one = ((drive(diskseq=1, unsafe_shutdowns=count), sdb) for count in (10, 11))
    disk, case = kept(armed=facts(drives=pair))
    return judged(disk, case, now=facts(boot="boot-2", uptime_s=30, drives=cut_one))


@lab_case("durable")
def counter_that_went_back_at_an_attested_cut() -> str:
    """The plug was pulled, and the drive counts anew from 0."""
    disk, case = kept()
    now = facts(boot="boot-2", uptime_s=30, drives=(drive(unsafe_shutdowns=1),))
    return judged(disk, case, now=now, attested="pulled the plug")


@lab_case("inconclusive: cut-class")
def guest_with_a_counter_of_its_own() -> str:
    """The counter of a virtual machine's drive rose when the guest was started anew."""
    disk, case = kept(armed=facts(virtualisation="kvm", drives=(drive(emulated=True),)))
    now = facts(
        boot="boot-2", uptime_s=30, virtualisation="kvm", drives=(drive(emulated=True, unsafe_shutdowns=4),)
    )
    return judged(disk, case, now=now)


@lab_case("inconclusive: cut-class")
def other_enclosure_whose_serial_is_zeros_too() -> str:
    """The machine was reset, and another USB disk of the model has counted more power losses. It has the name
    of the first one, and the target was copied to it."""
    disk, case = kept(armed=facts(drives=(drive(serial="000000000000"),)))
    other = (drive(serial="000000000000", unsafe_shutdowns=9),)
    return judged(disk, case, now=facts(boot="boot-2", uptime_s=30, drives=other))


@lab_case("inconclusive: cut-class")
def guest_that_was_forced_off() -> str:
    """A guest was forced off while its host ran on; the operator attests that."""
    emulated = (drive(emulated=True, unsafe_shutdowns=None),)
    disk, case = kept(armed=facts(virtualisation="kvm", drives=emulated))
    now = facts(boot="boot-2", uptime_s=30, virtualisation="kvm", drives=emulated)
    return judged(disk, case, now=now, attested="forced the guest off")


@lab_case("inconclusive: cut-class")
def guest_that_does_not_say_that_it_is_one() -> str:
    """The same, and nothing in the guest tells of a hypervisor but the name of its disk."""
    disk_of_it = (drive(name="vda", emulated=True, unsafe_shutdowns=None),)
    disk, case = kept(armed=facts(drives=disk_of_it))
    now = facts(boot="boot-2", uptime_s=30, drives=disk_of_it)
    return judged(disk, case, now=now, attested="forced the guest off")


def _read_elsewhere(*, then: str, now: str) -> str:
    """The answer where a drive with a serial of its own was moved from a machine that the client ran on to
    another that has been up for weeks; each is virtualised as stated."""
    bare = (drive(unsafe_shutdowns=None),)
    disk, case = kept(armed=facts(virtualisation=then, drives=bare))
    there = facts(boot="boot-9", machine="another", uptime_s=4e6, virtualisation=now, drives=bare)
    return judged(disk, case, now=there, attested="forced the guest off")


@lab_case("inconclusive: cut-class")
def guest_whose_drive_is_read_on_its_host() -> str:
    """A guest with a passed-through drive was forced off; its host has been up all the time, and reads it."""
    return _read_elsewhere(then="kvm", now="none")


@lab_case("inconclusive: cut-class")
def drive_that_is_read_on_a_guest() -> str:
    """The machine of the run did not say that it is a guest; another guest of its host reads the drive."""
    return _read_elsewhere(then="none", now="kvm")


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
    agenda, server = server_of(plan)
    server.acknowledge((5,), 0)
    wait(agenda, 1500)
    server.watch()
    assert server.run.session_end == "silence"
    server.run.detached(agenda.now_ns, "fin", "the client's system closed the connection")
    return judged(disk_of(plan, 5), case_of(agenda, server))


def _reset_after_silence(*, uptime_s: int) -> str:
    """The answer where the connection of a silent client was reset five seconds after its last frame, and the
    power cut two minutes later at most; `uptime_s`: of the machine at verify."""
    plan = plan_of()
    agenda, server = server_of(plan)
    server.acknowledge((5,), 0)
    wait(agenda, 1500)
    server.watch()
    wait(agenda, 3500)
    server.run.detached(agenda.now_ns, "rst", f"{RESET}: by peer")
    now = facts(boot="boot-2", uptime_s=uptime_s, drives=(drive(unsafe_shutdowns=4),))
    return judged(disk_of(plan, 5), case_of(agenda, server), now=now)


@lab_case("inconclusive: session-closed")
def connection_that_was_reset_before_the_machine_started_again() -> str:
    """The network was away and the client was killed meanwhile; its kernel says that there is no client. A
    minute later the machine's power is cut."""
    return _reset_after_silence(uptime_s=30)


@lab_case("durable")
def connection_that_the_next_boot_reset() -> str:
    """The power was cut, and the machine started again at once: it does not know the connection."""
    return _reset_after_silence(uptime_s=121)


@lab_case("inconclusive: nothing-at-risk")
def process_that_was_frozen_before_the_cut() -> str:
    """The client was frozen; its kernel acknowledged heartbeats for ten seconds, then the power was cut."""
    plan = plan_of()
    agenda, server = server_of(plan)
    server.acknowledge((5,), 0)
    wait(agenda, 1500)
    server.watch()
    for _ in range(10):
        wait(agenda, 850)
        server.run.kernel_alive(agenda.now_ns)
    return judged(disk_of(plan, 5), case_of(agenda, server))


@lab_case("inconclusive: nothing-at-risk")
def switch_with_another_clock() -> str:
    """The server that switched the power is not the one that the client spoke to: nobody knows how long
    after the last frame it did."""
    off = PowerOff(
        asked_ns=LAST_NS,
        confirmed_ns=LAST_NS + MS,
        boot_id="another server's",
        subject="machine",
        cut_class="power",
        text="campaign: b7 switched off and confirmed it",
    )
    disk, case = kept(power_offs=(off,))
    return judged(disk, case)


def _switched(what: str, subject: Literal["machine", "drive"], *, confirmed_ms: int) -> tuple[PowerOff, ...]:
    """A controller's log of a switch that was confirmed to be off so long after the last acknowledgement."""
    return (
        PowerOff(
            asked_ns=LAST_NS + (confirmed_ms - 50) * MS,
            confirmed_ns=LAST_NS + confirmed_ms * MS,
            boot_id="server-boot",
            subject=subject,
            cut_class="power",
            text=f"campaign: {what} switched off and confirmed it",
        ),
    )


def _slot(*, confirmed_ms: int) -> tuple[PowerOff, ...]:
    return _switched("slot 3", "drive", confirmed_ms=confirmed_ms)


def _machine_off(*, confirmed_ms: int, tell: Tell | None = None, **changes: Any) -> str:
    """The answer on a machine whose drive counts nothing, and whose switch was confirmed to be off so long
    after the last acknowledgement."""
    bare = (drive(unsafe_shutdowns=None),)
    offs = _switched("outlet 3", "machine", confirmed_ms=confirmed_ms)
    disk, case = kept(armed=facts(drives=bare), power_offs=offs, **changes)
    return judged(disk, case, now=facts(boot="boot-2", uptime_s=30, drives=bare), tell=tell)


@lab_case("durable; at risk 2, 11, 56, 56")
def machine_that_its_power_supply_feeds_for_a_while() -> str:
    """The outlet's relay is fast, and the machine writes for half a second more."""
    return _machine_off(confirmed_ms=-500, tell=at_risk)


@lab_case("inconclusive: attestation-contradicted, cut-class")
def machine_that_writes_on_after_its_switch_said_off() -> str:
    """The outlet is another machine's. This one crashes half a minute later."""
    return _machine_off(confirmed_ms=-30_000)


@lab_case("inconclusive: nothing-at-risk")
def machine_that_idles_on_its_power_supply() -> str:
    """The last acknowledgement came with the confirmation; heartbeats show power for two seconds more."""
    return _machine_off(confirmed_ms=1, last_receipt_ns=LAST_NS + 2000 * MS)


@lab_case("durable")
def reset_connection_of_a_drive_that_was_cut_alone() -> str:
    """A client that was killed as it waited for the drive: the system, which lives, resets its connection."""
    ended = Event(at_ns=LAST_NS + 3000 * MS, wall="", kind="rst", text=f"{RESET}: by peer")
    disk, case = kept(armed=facts(drives=(drive(unsafe_shutdowns=None),)), events=(ended,))
    now = facts(drives=(drive(unsafe_shutdowns=None, diskseq=10),))
    return judged(disk, case, now=now, attested="pulled the drive")


@lab_case("inconclusive: attestation-contradicted, cut-class")
def mirror_of_which_one_slot_was_switched() -> str:
    """Two drives that count nothing; the slot of one was switched off, and the system died of that."""
    pair = (drive(unsafe_shutdowns=None), drive(name="sdb", serial="S2", unsafe_shutdowns=None))
    disk, case = kept(armed=facts(drives=pair), power_offs=_slot(confirmed_ms=1))
    return judged(disk, case, now=facts(boot="boot-2", uptime_s=30, drives=pair))


@lab_case("inconclusive: attestation-contradicted, cut-not-shown")
def drive_that_acknowledges_after_its_slot_was_off() -> str:
    """The slot is another drive's. The run went on for half a minute, until somebody pulled out the drive."""
    disk, case = kept(
        armed=facts(drives=(drive(unsafe_shutdowns=None),)),
        power_offs=_slot(confirmed_ms=-30_000),
        session_end="target-error",
        target_error=failed("dead"),
    )
    return judged(disk, case, now=facts(drives=(drive(unsafe_shutdowns=None, diskseq=10),)))


@lab_case("inconclusive: attestation-contradicted, cut-not-shown, nothing-at-risk")
def drive_that_answers_after_its_slot_was_off() -> str:
    """Another drive was switched off, and a write through the backplane of both failed. Later somebody
    pulled out the drive."""
    disk, case = kept(
        armed=facts(drives=(drive(unsafe_shutdowns=None),)),
        power_offs=_slot(confirmed_ms=-300),
        session_end="target-error",
        target_error=failed("answered", after_ms=100),
    )
    return judged(disk, case, now=facts(drives=(drive(unsafe_shutdowns=None, diskseq=10),)))


@lab_case("inconclusive: nothing-at-risk")
def machine_that_crashed_before_its_drive_was_off() -> str:
    """The drive counted its power loss, seconds after the crash: until then it could drain its cache."""
    off = dataclasses.replace(_slot(confirmed_ms=8000)[0], asked_ns=LAST_NS - MS)
    disk, case = kept(power_offs=(off,))
    return judged(disk, case)


@lab_case("durable; at risk 2, 11, 56, 56")
def drive_that_its_power_supply_feeds_for_a_while() -> str:
    """Its slot is off, and it acknowledges for half a second more. Two seconds later its kernel says that it
    is gone."""
    disk, case = kept(
        armed=facts(drives=(drive(unsafe_shutdowns=None),)),
        power_offs=_slot(confirmed_ms=-500),
        session_end="target-error",
        target_error=failed("dead", after_ms=2000),
    )
    now = facts(drives=(drive(unsafe_shutdowns=None, diskseq=10),))
    return judged(disk, case, now=now, tell=at_risk)


@lab_case("inconclusive: nothing-at-risk")
def network_that_failed_before_the_power() -> str:
    """The only writer had used up its credit, so nobody knows how long it had been waiting."""
    disk, case = kept()
    disk.write(0, *range(ACKED + 1, ACKED + disk.plan.credit + 1))
    return judged(disk, case)


@lab_case("inconclusive: nothing-at-risk")
def network_that_failed_with_a_grant_under_way() -> str:
    """The last grant may not have arrived, and the writer has done all that the one before it allowed."""
    disk, case = kept(credits=((ACKED - 8,), (ACKED,)))
    assert disk.plan.credit == 8
    return judged(disk, case)


@lab_case("inconclusive: nothing-at-risk")
def network_that_came_back_before_the_cut() -> str:
    """It brought the last acknowledgements, which may be as old as the time for which it was away."""
    held_up = HeldUp(from_ns=LAST_NS - 5000 * MS, until_ns=LAST_NS, frontiers=(ACKED,))
    disk, case = kept(held_up=(held_up,))
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


@lab_case("durable; at risk 2, 11, 72, 72")
def log_whose_older_files_are_removed() -> str:
    """Of the last operations of `append` the oldest were in a file that is removed, as it must be."""
    plan = plan_of(workload="append")
    return judged(disk_of(plan, 200), make_case(plan, (200,)), tell=at_risk)


@lab_case("durable; at risk 2, 11, 56, 56")
def client_that_reports_the_targets_error() -> str:
    """The drive alone lost its power; the client said so, and its heartbeats came for five seconds more."""
    last_ns = LAST_NS + 5000 * MS
    disk, case = kept(session_end="target-error", last_receipt_ns=last_ns, target_error=failed("dead"))
    return judged(disk, case, tell=at_risk)


@lab_case("durable; at risk 0, 2, 56, 56")
def machine_that_died_while_it_looked_at_its_drive() -> str:
    """The drive lost its power; 10 ms later, when the client had reported the error, so did the machine."""
    plan = plan_of(slots=64, credit=8)
    agenda, server = server_of(plan)
    for frontier in range(1, ACKED + 1):
        server.acknowledge((frontier,), 0)
        server.run.saved(server.run.snapshot(timeline=False), agenda.now_ns)
        sent_ns = agenda.now_ns
        wait(agenda, 1)
        server.answered(sent_ns)
    wait(agenda, 8)
    server.target_failed("errno 5 at seq 201 of writer 0")
    wait(agenda, 2000)
    server.watch()
    return judged(disk_of(plan, ACKED), case_of(agenda, server), attested="pulled the plug", tell=at_risk)


@lab_case("inconclusive: nothing-at-risk")
def drive_that_answers_after_its_error() -> str:
    """One write failed; the drive answered reads after it, and lost its power some time later."""
    disk, case = kept(session_end="target-error", target_error=failed("answered"))
    return judged(disk, case)


@lab_case("inconclusive: nothing-at-risk")
def error_after_which_no_drive_was_seen() -> str:
    """One write failed; the client had no permission to read the drive, and its export says so."""
    disk, case = kept(session_end="target-error", target_error=failed("unseen"))
    return judged(disk, case)


@lab_case("inconclusive: nothing-at-risk")
def drive_that_hung_before_it_died() -> str:
    """A drive answered nothing for ten seconds, in which it drained its cache; then it lost its power."""
    disk, case = kept(session_end="target-error", target_error=failed("dead", after_ms=10_000))
    return judged(disk, case)


@lab_case("inconclusive: nothing-at-risk")
def drive_that_lives_on_after_its_error() -> str:
    """One request failed, on a drive that acknowledges 100 ms early; the power goes ten seconds later."""
    return simulated("seed=1 model=early-ack:delay_ms=100.0 error_ms=10000")


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


@lab_case("loss; 1 lost, 1 corrupt; 45.5 to 98 ms, 47")
def slot_that_is_garbage_beside_a_loss() -> str:
    """The newest operation is lost; the slot of operation 154 is garbage."""
    plan = plan_of(pattern="sequential")
    disk = disk_of(plan, ACKED)
    disk.put(0, 25, b"\x55" * plan.record_bytes)
    slot = disk.slot_of(0, ACKED)
    disk.put(0, slot, disk.record(0, slot, ACKED - plan.slots))
    return judged(disk, make_case(plan, (ACKED,)), tell=loss_window)


@lab_case("loss; 1 lost; 0 to 1530 ms, 1")
def loss_of_what_the_network_brought_late() -> str:
    """The network was away for 1.5 s and brought the last acknowledgements; then the drive was dead. The last
    of these operations is lost."""
    plan = plan_of(pattern="sequential")
    disk = disk_of(plan, ACKED)
    slot = disk.slot_of(0, ACKED)
    disk.put(0, slot, disk.record(0, slot, ACKED - plan.slots))
    held_up = HeldUp(from_ns=LAST_NS - 1500 * MS, until_ns=LAST_NS, frontiers=(ACKED,))
    error = failed("dead", after_ms=30)
    case = make_case(plan, (ACKED,), held_up=(held_up,), session_end="target-error", target_error=error)
    return judged(disk, case, tell=loss_window)


# -- strength and subject ------------------------------------------------------------------------------------


@lab_case("inconclusive: series-incomplete; 29 cuts, no bound")
def series_with_a_cut_that_nobody_verified() -> str:
    """29 cuts without a loss, and one more that was never verified."""
    disk, case = kept(series=apart(*(past("durable"),) * 28, past("unverified")))
    return judged(disk, case, min_cuts=29, tell=bound)


@lab_case("inconclusive: series-incomplete; 29 cuts, no bound")
def series_with_a_cut_that_may_hide_a_loss() -> str:
    """29 cuts without a loss, and one more of which the scan did not come to its end."""
    unread = past("inconclusive", reasons=("scan-unfinished",))
    disk, case = kept(series=apart(*(past("durable"),) * 28, unread))
    return judged(disk, case, min_cuts=29, tell=bound)


@lab_case("durable; 1 cuts, no bound")
def drive_without_a_serial_that_has_no_series() -> str:
    """Nobody can say which other cuts were cuts of this drive, so its one cut bounds nothing."""
    nameless = drive(serial="", unsafe_shutdowns=None)
    disk, case = kept(armed=facts(drives=(nameless,)))
    now = facts(boot="boot-2", uptime_s=30, drives=(nameless,))
    return judged(disk, case, now=now, attested="pulled the plug", tell=bound)


@lab_case("durable; 29 cuts, below 0.098")
def series_of_which_each_cut_was_asked_for_more() -> str:
    """Each of 28 earlier cuts was durable and asked for 29 of its kind, which there were not yet."""
    asked = past("inconclusive", reasons=("too-few-cuts",))
    disk, case = kept(series=apart(*(asked,) * 28))
    return judged(disk, case, min_cuts=29, tell=bound)


@lab_case("inconclusive: superseded; 29 cuts, below 0.098")
def run_that_was_durable_before_a_later_one() -> str:
    """A later run was made on the target; before it, this one was durable, as 28 others were."""
    disk, case = kept(superseded_by="00000000000000aa", verdicts=(past("durable"),))
    return judged(disk, dataclasses.replace(case, series=apart(*(past("durable"),) * 28)), tell=bound)


@lab_case("inconclusive: session-stopped, cut-not-shown; 28 cuts, below 0.101")
def stopped_run_in_a_series() -> str:
    """28 earlier runs were cut and durable; this one was stopped."""
    disk, case = kept(session_end="stop", series=apart(*(past("durable"),) * 28))
    return judged(disk, case, now=facts(uptime_s=2000), tell=bound)


@lab_case("inconclusive: too-few-cuts; 1 cuts, below 0.950")
def series_of_idle_cuts() -> str:
    """28 earlier cuts met no load."""
    disk, case = kept(series=apart(*(past("durable", at_risk_ms1000=0),) * 28))
    return judged(disk, case, min_cuts=29, tell=bound)


@lab_case("inconclusive: too-few-cuts; 1 cuts, below 0.950")
def series_of_resets() -> str:
    """28 earlier cuts were resets of the operating system, this one is of class power."""
    disk, case = kept(series=apart(*(past("durable", cut_class="os"),) * 28))
    return judged(disk, case, min_cuts=29, tell=bound)


@lab_case("inconclusive: too-few-cuts; 2 cuts, below 0.776")
def series_of_runs_that_one_cut_ended() -> str:
    """28 earlier runs were made at the same time on 28 files of the drive."""
    beside = past("durable", enumerations=("a",))
    disk, case = kept(series=(beside,) * 28)
    return judged(disk, case, min_cuts=29, tell=bound)


@lab_case("durable; warnings no-flush")
def file_system_without_barriers() -> str:
    """200 syncs were acknowledged, and not one flush reached the drive."""
    disk, case = kept(statistics=make_statistics(operations=(ACKED,), flushes={"sda": 0}))
    return judged(disk, case, tell=warnings)
