"""Which task each machine has now, and what its status adds to the campaign's log.

Both are functions of the log, so a task is the same however often it is asked for. Refuses to act on a status
that is about another task.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TypeVar, cast

from durability.campaign.campaign_state import CampaignState
from durability.campaign.cycle_state import CycleState
from durability.campaign.cycles import arm_of
from durability.campaign.definition.settings import Arm, DriveUnderTest, Settings
from durability.campaign.delays import STARTS_MAX
from durability.campaign.log_entries import (
    DriveReported,
    Entry,
    Happening,
    Instant,
    MachineSeen,
    StillThere,
    StrangerHeard,
)
from durability.campaign.tasks import DriveStatus, DriveTask, Status, Task, TaskKind
from durability.formats.case import FILES_REMOVED, Event
from durability.formats.workloads.registry import WORKLOADS

# For what was said before the power went, as well as can be told.
LATE_S = 3.0
# A system begins to run only after its machine was asked to go on; for clocks that run unevenly.
EARLY_S = 10.0
KEPT_RUNNING = "kept running without a restart"
REPORTED_TEXT_BYTES_MAX = 2048  # of each text that an agent says: an entry keeps up to seven
_S = 1_000_000_000
T = TypeVar("T")
WAIT = Task(kind="wait", number=0, campaign="", cycle=0, drives=(), ready_within_s=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speaker:
    """Who speaks for a machine. `client`: the id with which it joined. `is_server`: it runs in the server's
    own boot, so a cut of its machine would end the server. `answered`: the number of the campaign's newest
    entry when it got its last answer, 0 before its first."""

    client: str = ""
    is_server: bool = False
    answered: int = 0


def label_of(plan: Settings, cycle: int) -> str:
    """The label of the runs of a cycle."""
    return f"{plan.name} {cycle}"


def bounded(status: Status) -> Status:
    """The status with every text of it cut to what a sentence, a serial or a name needs: entries of the log
    stay, and each keeps what it says."""
    return _cut(status)


def answer_to(state: CampaignState, machine: str, status: Status, speaker: Speaker) -> Task:
    """The task for who has just said `status`: none for an earlier boot of `machine`, or another machine."""
    return task_for(state, machine) if is_heard(state, machine, status, speaker) else WAIT


def is_heard(state: CampaignState, machine: str, status: Status, speaker: Speaker) -> bool:
    """Whether it is the newest boot of the machine itself that says `status`: whoever else does is no sign of
    its life."""
    outdated = _is_outdated(state, machine, status) or _may_be_late(state, machine, status, speaker)
    return not outdated and not stranger(state, machine, status, speaker)


def task_for(state: CampaignState, machine: str) -> Task:
    """What the agent of `machine` is to do now."""
    cycle = state.cycle
    if state.settings is None:
        return WAIT
    if cycle is None:
        left = state.state in ("paused", "ended")
        return _task(state, machine, "release" if left else "wait", state.number if left else 0)
    kind, number = _kind(state, cycle, machine)
    return _task(state, machine, kind, number)


def _kind(state: CampaignState, cycle: CycleState, machine: str) -> tuple[TaskKind, int]:
    back = cycle.back_task(machine)
    if back:
        return ("examine" if cycle.is_check else "verify"), back
    if cycle.is_check:
        return "examine", cycle.number
    is_out = machine not in cycle.machines  # nothing would switch it on again after a shutdown
    anew = cycle.started_anew(machine, (drive.name for drive in state.plan.drives_of(machine)))
    if is_out or anew or _no_cut_comes(state, cycle):
        return "wait", 0
    if cycle.shutdown:
        return "shutdown", cycle.shutdown
    return "run", cycle.number


def _no_cut_comes(state: CampaignState, cycle: CycleState) -> bool:
    """Whether a run would write without end: no cut comes before somebody lets the campaign go on, or none at
    all in this cycle, and a switch that does not answer may take days."""
    if cycle.phase == "run":
        return state.state == "paused" or state.check_due or bool(cycle.spent)
    return cycle.phase == "on" and cycle.kept_power


def _task(state: CampaignState, machine: str, kind: TaskKind, number: int) -> Task:
    cycle = state.cycle
    drives = [
        one
        for one in _taking_part(state, machine, kind)
        if not (kind == "run" and cycle is not None and _is_too_late(cycle, one))
    ]
    return Task(
        kind=kind,
        number=number,
        campaign=state.plan.name,
        cycle=cycle.began.cycle if cycle is not None else 0,
        drives=tuple(
            DriveTask(
                drive=drive,
                arm=_arm(state, drive, kind),
                run=_run_of(state, drive.name, kind),
                serial=known.serial if (known := state.conditions.get(drive.name)) is not None else "",
                fresh=kind == "run" and state.begins_afresh(drive),
                cut_class=state.plan.cut_class,
                label=label_of(state.plan, cycle.began.cycle) if cycle is not None else state.plan.name,
                examined=known,
                again=state.has_run_on(drive),
            )
            for drive in drives
        )
        if kind != "wait"
        else (),
        ready_within_s=state.plan.ready_within_s,
        boot_id=known_machine.boot_id if (known_machine := state.machines.get(machine)) is not None else "",
    )


def _arm(state: CampaignState, drive: DriveUnderTest, kind: TaskKind) -> Arm | None:
    """What runs on a drive. In the check of a file system of the user's an arm that it may not be fit for;
    once a cut was made the settings stay, and such an arm's runs say themselves that they do not begin."""
    if kind == "run" and state.cycle is not None:
        return arm_of(state.plan, state.cycle.began.cycle)
    if kind == "examine" and drive.target and not state.has_cut:
        return next((arm for arm in state.plan.arms if WORKLOADS[arm.workload].needs_file), None)
    return None


def _taking_part(state: CampaignState, machine: str, kind: TaskKind) -> list[DriveUnderTest]:
    """The machine's drives that a task is about."""
    cycle = state.cycle
    names = cycle.began.drives if cycle is not None else tuple(one.name for one in state.plan.drives)
    done = cycle.verified if cycle is not None and kind == "verify" else {}
    return [one for one in state.plan.drives_of(machine) if one.name in names and one.name not in done]


def _is_too_late(cycle: CycleState, drive: DriveUnderTest) -> bool:
    """Whether no run may begin on the drive any more: an agent that was restarted would make a file system,
    and the cut that is due would come meanwhile."""
    return cycle.phase != "run" and drive.name not in cycle.runs


def _run_of(state: CampaignState, drive: str, kind: TaskKind) -> str:
    """The run that a drive's part of a task names: to verify, also before the next one begins, or whose files
    may go, "" for none. In a pause none may: it can last for weeks, and the next cycle uses them again."""
    if kind == "verify" and state.cycle is not None:
        return state.cycle.runs.get(drive, "")
    if kind == "run":
        return state.unjudged[drive].run if drive in state.unjudged else ""
    return _released(state, drive) if kind == "release" else ""


def removed_runs(state: CampaignState) -> frozenset[str]:
    """The runs whose files agents are told to remove, or were: what is missing of them is no loss. A run is
    among them before any task names it for that, since the log has the end first."""
    named = (_released(state, drive.name) for drive in state.plan.drives if drive.target)
    return frozenset(run for run in named if run)


def removal(state: CampaignState, run: str) -> Event | None:
    """That the files of a run were removed, if it is one of `removed_runs`; None if not. It follows from the
    log that has told it, so it holds whoever died since."""
    if state.settings is None or state.last is None or run not in removed_runs(state):
        return None
    return Event(
        at_ns=state.last.at_ns,
        wall=state.last.wall,
        kind=FILES_REMOVED,
        text=f"the files of run {run} were removed after its verdict by campaign {state.plan.name}, which is"
        f" over: no other verdict can be made, and that one stands (`durability show {run}`)",
    )


def _released(state: CampaignState, drive: str) -> str:
    if state.state != "ended":
        return ""
    said = (mine for past in reversed(state.cycles) if (mine := past.of(drive)) is not None and mine.run)
    newest = next(said, None)
    return newest.run if newest is not None and newest.word in ("durable", "kept") else ""


def stranger(state: CampaignState, machine: str, status: Status, speaker: Speaker) -> str:
    """Why who speaks for `machine` is not heard, as a sentence; "" for the machine itself. The check binds
    switches to a machine, so another one that took its name must not be cut in its place."""
    # The second is of the server that conducts the campaign: the agent may speak to another one of its store.
    is_server = speaker.is_server or status.boot_id == state.conducted_in
    if is_server and state.plan.subject == "machine":
        return f"the agent of {machine} runs on the server's own machine, whose power must not be cut"
    known = state.checked_machines.get(machine)
    if known is None:
        return ""
    remedy = "stop this campaign, and begin it under another name" if state.has_cut else "check again"
    if known.machine_id != status.machine_id:
        return f"another machine than the one that was checked answers as {machine}; {remedy}"
    if known.client != speaker.client:
        return f"{machine} has joined again since it was checked; {remedy}"
    return ""


def run_claimed(state: CampaignState, machine: str, status: Status) -> Iterator[tuple[str, str]]:
    """Drive and run of each run that a status names and the cycle does not know yet: whether they are the
    machine's own is for the server to see before they are heard."""
    cycle = state.cycle
    if cycle is None or status.campaign != state.plan.name or task_for(state, machine).kind != "run":
        return
    for drive in status.drives:
        if drive.run and cycle.runs.get(drive.drive) != drive.run:
            yield drive.drive, drive.run


def named_before(state: CampaignState, drive: str, run: str) -> str:
    """Why a run cannot be a drive's in this cycle, as a sentence, from what was said before; "" if it can."""
    if any(mine.run == run for past in state.cycles for mine in past.drives):
        return f"the agent named run {run}, which is of an earlier cycle"
    runs = state.cycle.runs if state.cycle is not None else {}
    if any(known == run and other != drive for other, known in runs.items()):
        return f"the agent named run {run}, which is another drive's"
    return ""


def without_run(status: Status, drive: str, why: str) -> Status:
    """The status with the part of `drive` failed, as it names a run that it must not."""
    return replace(
        status,
        drives=tuple(
            replace(one, state="failed", trouble="agent", run="", text=why) if one.drive == drive else one
            for one in status.drives
        ),
    )


def hear(
    state: CampaignState, machine: str, status: Status, now: Instant, speaker: Speaker
) -> Iterator[Happening]:
    """What a status of the agent of `machine`, heard `now`, adds to the log: nothing without a cycle, so the
    log of a campaign that is over stays as it is. The runs that it names are believed: see `run_claimed`."""
    known, cycle = state.machines.get(machine), state.cycle
    if cycle is None or _is_outdated(state, machine, status):
        return
    if why := stranger(state, machine, status, speaker):
        if why not in state.strangers.get(machine, ()):
            yield StrangerHeard(machine=machine, text=why)
        return
    if _may_be_late(state, machine, status, speaker):
        return
    if why := _without_power(state, machine, status, now):
        yield StillThere(machine=machine, text=f"machine {machine} {why}")
    me = (status.boot_id, status.machine_id, speaker.client)
    if known is None or (known.boot_id, known.machine_id, known.client) != me:
        if cycle.boots[machine] > STARTS_MAX:
            return  # the campaign pauses for it, and hears it again once it is resumed
        yield MachineSeen(
            machine=machine,
            boot_id=status.boot_id,
            machine_id=status.machine_id,
            uptime_s=status.uptime_ns / _S,
            virtualisation=status.virtualisation,
            software=status.software,
            client=speaker.client,
        )
    task = task_for(state, machine)
    if not task.number or (status.campaign, status.task) != (task.campaign, task.number):
        return
    for drive in status.drives:
        expected = any(one.name == drive.drive for one in _taking_part(state, machine, task.kind))
        if expected and _is_news(cycle.status(drive.drive, task.number), drive):
            yield DriveReported(machine=machine, task=task.number, what=task.kind, status=drive)


def _cut(value: T) -> T:
    """The document with its texts cut, at every depth."""
    if isinstance(value, str):
        return cast(T, value.encode(errors="replace")[:REPORTED_TEXT_BYTES_MAX].decode(errors="ignore"))
    if isinstance(value, tuple):
        return cast(T, tuple(map(_cut, value)))
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{one.name: _cut(getattr(value, one.name)) for one in fields(value)})
    return value


def _is_outdated(state: CampaignState, machine: str, status: Status) -> bool:
    """Whether a status is from before the machine started anew, and came late."""
    known = state.machines.get(machine)
    return known is not None and known.boot_id != status.boot_id and status.boot_id in state.boots[machine]


def _may_be_late(state: CampaignState, machine: str, status: Status, speaker: Speaker) -> bool:
    """Whether a status is of a boot that may have ended before the newest one began. A machine has one boot
    at a time: who speaks after an answer that was given when the newest boot was known is a newer one."""
    seen = state.seen.get(machine)
    return (
        seen is not None
        and state.machines[machine].boot_id != status.boot_id
        and speaker.answered < seen.number
    )


def _is_news(before: DriveStatus | None, now: DriveStatus) -> bool:
    """Whether a drive is further than before; what is said meanwhile is for people who look now."""
    if before is None or before.state != now.state:
        return True
    if now.repaired and not before.repaired:  # said once: after a pause nothing tells of it any more
        return True
    return now.state != "working" and before != now


def _without_power(state: CampaignState, machine: str, status: Status, now: Instant) -> str:
    """What the machine did without power, if its switches said that it had none; "" if nothing shows that. A
    switch that only resets its machine says off too, until it is asked to go on."""
    cycle = state.cycle
    if cycle is None or cycle.went_off is None or state.plan.subject != "machine":
        return ""
    off = cycle.off_of(machine)
    if not off or machine in cycle.still_there or machine not in cycle.machines:
        return ""
    known, on = state.machines.get(machine), cycle.on_again(machine)
    same_boot = known is not None and known.boot_id == status.boot_id
    late_s = _late_s(state.seen.get(machine), status, now) if same_boot else 0.0
    was_off = now.age_estimate_s(cycle.went_off) - late_s > LATE_S
    if same_boot and not cycle.has_started_since(machine, off) and not cycle.settled:
        return KEPT_RUNNING if was_off else ""
    early = "was running before it was switched on again"
    if on is None:
        return early if was_off else ""
    # Only of the first status of a boot: clocks go apart. The clock of another server says nothing here.
    began_early = now.age_estimate_s(on) < status.uptime_ns / _S - EARLY_S
    return early if not same_boot and on.boot_id == now.boot_id and began_early else ""


def _late_s(seen: Entry | None, status: Status, now: Instant) -> float:
    """How late a status is heard: the time since its boot was heard first, less what the machine counted of
    it. 0 where another boot of a server heard that: what was under way to it has not come here."""
    if seen is None or seen.boot_id != now.boot_id or not isinstance(seen.happening, MachineSeen):
        return 0.0
    counted_s = status.uptime_ns / _S - seen.happening.uptime_s
    return max(0.0, now.age_estimate_s(seen) - counted_s)
