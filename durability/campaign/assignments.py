"""The present task of each machine, and the entries that its status adds to the campaign's log.

Both are derived from the log, so a machine gets the same task however often it asks. The drives in a status
that is about another task are ignored.
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

# A status heard up to so many seconds after the off may have been sent before the off.
LATE_S = 3.0
# A system cannot start before its machine is asked to go on. This tolerance allows for uneven clocks.
EARLY_S = 10.0
KEPT_RUNNING = "kept running without a restart"
REPORTED_TEXT_BYTES_MAX = 2048  # of each text in a status: an entry keeps up to seven texts
_S = 1_000_000_000
T = TypeVar("T")
WAIT = Task(kind="wait", number=0, campaign="", cycle=0, drives=(), ready_within_s=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speaker:
    """The agent that sends a status for a machine."""

    client: str = ""  # id with which the agent joined
    is_server: bool = False  # the agent runs in the server's own boot, so a cut would end the server
    answered: int = 0  # newest entry of the campaign when the agent got its last answer, 0 before the first


def label_of(plan: Settings, cycle: int) -> str:
    """The label of the runs of a cycle."""
    return f"{plan.name} {cycle}"


def bounded(status: Status) -> Status:
    """The status with every text cut to `REPORTED_TEXT_BYTES_MAX`. The log keeps its entries forever, so
    their size must be limited; the limit leaves room for sentences, serials and names."""
    return _cut(status)


def answer_to(state: CampaignState, machine: str, status: Status, speaker: Speaker) -> Task:
    """The task for the agent that sent `status`. `WAIT` for an earlier boot of `machine`, or for another
    machine."""
    return task_for(state, machine) if is_heard(state, machine, status, speaker) else WAIT


def is_heard(state: CampaignState, machine: str, status: Status, speaker: Speaker) -> bool:
    """Whether `status` comes from the newest boot of the machine itself. A status from another agent does
    not show that the machine is alive."""
    outdated = _is_outdated(state, machine, status) or _may_be_late(state, machine, status, speaker)
    return not outdated and not stranger(state, machine, status, speaker)


def task_for(state: CampaignState, machine: str) -> Task:
    """The present task of the agent of `machine`."""
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
    is_out = machine not in cycle.machines  # after a shutdown, no step would switch this machine on again
    anew = cycle.started_anew(machine, (drive.name for drive in state.plan.drives_of(machine)))
    if is_out or anew or _no_cut_comes(state, cycle):
        return "wait", 0
    if cycle.shutdown:
        return "shutdown", cycle.shutdown
    return "run", cycle.number


def _no_cut_comes(state: CampaignState, cycle: CycleState) -> bool:
    """Whether a run would write on without a cut. Either the cut waits for somebody to resume the campaign,
    or this cycle has no cut any more while a switch may take days to answer."""
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
    """The arm that a drive's part of a task names. In the check of a user's file system: an arm that may not
    suit that file system, so that the check finds this. After the first cycle the settings are fixed, and the
    runs of an unsuitable arm report themselves that they do not begin."""
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
    """Whether no run may begin on the drive in this cycle. A restarted agent would first make a file system,
    and the cut would come meanwhile."""
    return cycle.phase != "run" and drive.name not in cycle.runs


def _run_of(state: CampaignState, drive: str, kind: TaskKind) -> str:
    """The run that a drive's part of a task names: the run to verify (in `run`: before the next one begins),
    or the run whose files are to be removed. "" for none. In a pause no files are removed: the next cycle
    uses them again, even after weeks."""
    if kind == "verify" and state.cycle is not None:
        return state.cycle.runs.get(drive, "")
    if kind == "run":
        return state.unjudged[drive].run if drive in state.unjudged else ""
    return _released(state, drive) if kind == "release" else ""


def removed_runs(state: CampaignState) -> frozenset[str]:
    """The runs whose files agents are told to remove, now or earlier: missing files of these runs are not a
    loss. A run is in this set before any task tells an agent to remove its files, because the end of the
    campaign is logged first."""
    named = (_released(state, drive.name) for drive in state.plan.drives if drive.target)
    return frozenset(run for run in named if run)


def removal(state: CampaignState, run: str) -> Event | None:
    """The event that the files of a run were removed, None unless the run is in `removed_runs`. The event is
    derived from the log, so it holds even if the server or an agent died since."""
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
    """Why the agent that sent `status` is not accepted for `machine`, as a sentence. "" for the machine
    itself. The check binds switches to one machine, so another machine with the same name must not be cut."""
    # `conducted_in` is the boot of the server that conducts the campaign. The agent may be connected to
    # another server of the same store.
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
    """Drive and run of each run in a status that the cycle does not know yet. The server must check that
    these runs belong to the machine before it accepts the status."""
    cycle = state.cycle
    if cycle is None or status.campaign != state.plan.name or task_for(state, machine).kind != "run":
        return
    for drive in status.drives:
        if drive.run and cycle.runs.get(drive.drive) != drive.run:
            yield drive.drive, drive.run


def named_before(state: CampaignState, drive: str, run: str) -> str:
    """Why a run cannot be the drive's run in this cycle, as a sentence: an earlier cycle or another drive has
    it. "" if it can."""
    if any(mine.run == run for past in state.cycles for mine in past.drives):
        return f"the agent named run {run}, which is of an earlier cycle"
    runs = state.cycle.runs if state.cycle is not None else {}
    if any(known == run and other != drive for other, known in runs.items()):
        return f"the agent named run {run}, which is another drive's"
    return ""


def without_run(status: Status, drive: str, why: str) -> Status:
    """The status with the part of `drive` marked as failed, because it names a run that is not its own."""
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
    """The entries that a status for `machine`, heard `now`, adds to the log. None without a cycle, so the log
    of an ended campaign does not grow. The runs in the status are trusted here: `run_claimed` lists those
    to check first."""
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
            return  # the campaign pauses because of this machine, and accepts it again after a resume
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
    """The document with all its texts cut, at every depth."""
    if isinstance(value, str):
        return cast(T, value.encode(errors="replace")[:REPORTED_TEXT_BYTES_MAX].decode(errors="ignore"))
    if isinstance(value, tuple):
        return cast(T, tuple(map(_cut, value)))
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{one.name: _cut(getattr(value, one.name)) for one in fields(value)})
    return value


def _is_outdated(state: CampaignState, machine: str, status: Status) -> bool:
    """Whether a status is a late one from an earlier boot of the machine."""
    known = state.machines.get(machine)
    return known is not None and known.boot_id != status.boot_id and status.boot_id in state.boots[machine]


def _may_be_late(state: CampaignState, machine: str, status: Status, speaker: Speaker) -> bool:
    """Whether a status comes from a boot that may have ended before the newest known boot began. A machine
    runs one boot at a time. So an agent that got an answer once the newest boot was known is a later boot."""
    seen = state.seen.get(machine)
    return (
        seen is not None
        and state.machines[machine].boot_id != status.boot_id
        and speaker.answered < seen.number
    )


def _is_news(before: DriveStatus | None, now: DriveStatus) -> bool:
    """Whether the status of a drive is to be logged. Progress within the state "working" is only for people
    who look now."""
    if before is None or before.state != now.state:
        return True
    if now.repaired and not before.repaired:  # reported once: after a pause no status mentions the repair
        return True
    return now.state != "working" and before != now


def _without_power(state: CampaignState, machine: str, status: Status, now: Instant) -> str:
    """How the machine ran although its switches had confirmed an off, as the end of a sentence. "" if the
    status does not contradict the off. A switch that only resets its machine says "off" too, until it is
    asked to go on."""
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
    # Only for the first status of a boot, since clocks drift, and only by the clock of the same server boot.
    began_early = now.age_estimate_s(on) < status.uptime_ns / _S - EARLY_S
    return early if not same_boot and on.boot_id == now.boot_id and began_early else ""


def _late_s(seen: Entry | None, status: Status, now: Instant) -> float:
    """Delay of a status: the time since its boot was first heard, minus the machine's own count of that time.
    0 if another boot of a server first heard the machine: messages to that boot do not arrive here."""
    if seen is None or seen.boot_id != now.boot_id or not isinstance(seen.happening, MachineSeen):
        return 0.0
    counted_s = status.uptime_ns / _S - seen.happening.uptime_s
    return max(0.0, now.age_estimate_s(seen) - counted_s)
