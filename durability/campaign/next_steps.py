"""The next steps of a campaign, derived from its log and the time.

There is one rule for each phase of a cycle, and one for the time between cycles. A step is an entry for the
log, a request to a switch, a look-up of a verdict, or a wait. The server takes the steps and logs their
results. This module takes no step and stores nothing: after a crash the same log gives the same steps.
"""

from __future__ import annotations

from collections.abc import Iterable

from durability.campaign.assignments import KEPT_RUNNING
from durability.campaign.between_cycles import between_cycles
from durability.campaign.campaign_state import CHECK_HOLDS_DAYS, CampaignState
from durability.campaign.check_findings import check_notes, check_problems
from durability.campaign.cycle_outcome import drive_cycles
from durability.campaign.cycle_state import CycleState
from durability.campaign.cycles import arm_of
from durability.campaign.definition.settings import Arm
from durability.campaign.delays import not_heard, restarted, silent, stuck_at_work, unheard
from durability.campaign.log_entries import (
    Abandoned,
    Cause,
    Checked,
    CutDue,
    CycleBegan,
    CycleEnded,
    DriveLeft,
    Ended,
    NotBack,
    Paused,
    PowerCameBack,
    PowerFailed,
    PowerWentOff,
    ShutdownDue,
    StillThere,
    WritersHeld,
)
from durability.campaign.server_time import HEARD_WITHIN_S, ServerTime
from durability.campaign.steps import FOREVER, Ask, LookUp, Note, Step, UnlessStill, WaitFor, WhenStill
from durability.campaign.switch_steps import (
    answer_of,
    ask_all,
    ask_to_look,
    ask_until,
    last_look,
    may_be_off,
    power_failure,
    switches_of_silent,
)
from durability.campaign.tasks import DriveStatus
from durability.units import counted

SHUTDOWN_WITHIN_S = 300.0  # longest wait for machines to shut down
HELD_WITHIN_S = 2.0  # time until each server of a store holds its writers: a server looks once a second
STILL_WITHIN_S = 3600.0  # time for held writers to use up the credit that they have
AFTER_SHUTDOWN_S = 60.0  # silence after which a machine counts as shut down: it may still write meanwhile
BOOTS_MAX = 2  # times that a machine is switched on to boot before the campaign pauses
_AWAY = "the server was away when the power was to go"
_CHECK_FIRST = f"no check or cut for {CHECK_HOLDS_DAYS} days: the check comes first"
_IS = {"on": "says that it is on", "off": "says that it is off"}


def next_steps(state: CampaignState, moment: ServerTime) -> list[Step]:
    """The steps to take now: one entry, or several independent steps, or only `WaitFor`."""
    if state.settings is None or state.state != "running":
        return [FOREVER]
    if state.cycle is None:
        return _between(state)
    return _RULES[state.cycle.phase](state, state.cycle, moment)


def _between(state: CampaignState) -> list[Step]:
    """Steps between cycles. Before a cycle begins, a drive leaves or the campaign ends, missing verdicts on
    last runs are looked up again: people may have verified a run and then erased the drive."""
    match happening := between_cycles(state):
        case CycleBegan(drives=drives):
            named = list(drives)
        case DriveLeft(drive=drive):
            named = [drive]
        case Ended():
            named = list(state.unjudged)
        case _:
            named = []
    return _late_look_ups(state, named) or [Note(happening)]


# One rule for each phase.


def _examine(state: CampaignState, cycle: CycleState, moment: ServerTime) -> list[Step]:
    if state.asked is not None or state.checked is not None:
        return _end_cycle(state, cycle)
    asks = ask_until(cycle, moment, "check")
    statuses = _statuses(cycle, cycle.number)
    late = _late(state, cycle, moment)
    if late:
        return [Note(Checked(problems=(late,)))]
    if asks:
        return asks
    if len(statuses) < len(cycle.began.drives):
        return [_until(cycle, moment, state.plan.boot_within_s)]
    problems = check_problems(state, cycle, list(statuses.values()))
    if problems:
        return [Note(Checked(problems=problems))]
    return [WaitFor(1.0)] if _mute(cycle, moment) else ask_all(cycle, "off")


def _run(state: CampaignState, cycle: CycleState, moment: ServerTime) -> list[Step]:
    if look_ups := _late_look_ups(state, cycle.began.drives):  # an agent, or people, may have verified a run
        return look_ups
    statuses = _statuses(cycle, cycle.number)
    late = _late(state, cycle, moment)
    if (no_cut := _no_cut(state, cycle, late)) is not None:
        return _give_up(*no_cut)
    if late:
        return _stuck(state, cycle, moment, late)
    if len(statuses) < len(cycle.began.drives):
        return [_until(cycle, moment, state.plan.boot_within_s)]
    if not any(status.state == "armed" for status in statuses.values()):
        return _give_up("not-armed", "no run was armed")
    return [Note(CutDue(in_s=cycle.began.cut_after_s))]


def _no_cut(state: CampaignState, cycle: CycleState, late: str) -> tuple[Cause, str] | None:
    """Cause and text of a reason to cancel the cut, even if runs are armed. None if the cut may come."""
    if state.asked is not None:
        return "operator", "an operator asked for a pause"
    if state.check_due:
        return "operator", _CHECK_FIRST
    # Armed runs would keep writing during a pause. So the cycle is given up now and pauses later if needed.
    why = cycle.spent or restarted(cycle, state) or (late if cycle.armed else "")
    return ("agent", why) if why else None


def _load(state: CampaignState, cycle: CycleState, moment: ServerTime) -> list[Step]:
    arm = arm_of(state.plan, cycle.began.cycle)
    if state.asked is not None:
        return _give_up("operator", "an operator asked for a pause")
    if why := restarted(cycle, state):
        return _give_up("agent", why)
    if all(_is_over(cycle, drive) for drive in cycle.armed):
        return _give_up("agent", "every run ended before the cut")
    left_s = cycle.due_s - moment.age_min_s(cycle.since)
    if left_s > 0:
        return [*_unless_they_write(cycle), WaitFor(left_s)]
    if mute := _mute(cycle, moment):
        return _wait_to_hear(state, cycle, moment, mute)
    return _cut(cycle, arm, moment)


def _wait_to_hear(state: CampaignState, cycle: CycleState, moment: ServerTime, machine: str) -> list[Step]:
    """Wait until the machine is heard: no machine is switched off unheard, because after a long absence of
    the server somebody may use it. The cycle is given up after `boot_within_s`."""
    silent_s = moment.silent_s.get(machine, 0.0)
    waited_s = min(moment.age_min_s(cycle.since) - cycle.due_s, moment.watched_s(cycle.since), silent_s)
    if waited_s < state.plan.boot_within_s:
        return [WaitFor(1.0)]
    return _give_up("agent", f"machine {machine} was not heard when its power was to go")


def _cut(cycle: CycleState, arm: Arm, moment: ServerTime) -> list[Step]:
    if cycle.phase == "held":
        if not cycle.due_s:
            return _use_up(cycle, arm, moment)
        return [*_unless_they_write(cycle), *ask_all(cycle, "off")]
    if arm.moment == "idle":
        return [Note(WritersHeld(in_s=0.0))]
    return [Note(ShutdownDue())] if arm.moment == "shutdown" else ask_all(cycle, "off")


def _use_up(cycle: CycleState, arm: Arm, moment: ServerTime) -> list[Step]:
    """Wait until held writers have used up their credit; the idle time begins after that. How long this takes
    depends on the drive. In the first `HELD_WITHIN_S` the state of a run in the store means nothing, because
    its server may still give it credit. The total wait is limited to `STILL_WITHIN_S`, plus one idle time if
    writers were held again: runs that reconnect again and again would get credit forever."""
    assert cycle.held is not None  # the phase began with this entry
    within_s = STILL_WITHIN_S + (arm.idle_s if cycle.held is not cycle.since else 0.0)
    if moment.watched_s(cycle.held) >= within_s:
        within = f"{within_s / 60:.0f} min"
        text = f"the writers that were held still wrote after {within}: give the arm fewer, or a smaller size"
        return _give_up("not-armed", text)
    left_s = HELD_WITHIN_S - moment.age_min_s(cycle.since)
    if left_s > 0:
        return [WaitFor(left_s)]
    return [WhenStill(_going_on(cycle), WritersHeld(in_s=arm.idle_s))]


def _unless_they_write(cycle: CycleState) -> list[Step]:
    """Hold the writers again if one got credit during the idle time: a run that reconnects to a server at
    idle gets its full credit. The idle time begins again once that credit is used up."""
    idle = cycle.phase == "held" and cycle.due_s
    return [UnlessStill(_going_on(cycle), WritersHeld(in_s=0.0))] if idle else []


def _going_on(cycle: CycleState) -> tuple[str, ...]:
    return tuple(run for drive, run in cycle.runs.items() if not _is_over(cycle, drive))


def _shutdown(state: CampaignState, cycle: CycleState, moment: ServerTime) -> list[Step]:
    """Steps of a clean shutdown. A server that was away starts to wait again, because it heard no machine
    meanwhile. If it was away for `boot_within_s`, it switches nothing off until it has heard every machine:
    somebody may have booted one, as in `_wait_to_hear`."""
    if cycle.is_up_again and cycle.abandoned is None:
        return _give_up("agent", f"machine {cycle.machines[0]} was started again before its power went")
    loud = [one for one in cycle.machines if moment.silent_s.get(one, 0.0) < AFTER_SHUTDOWN_S]
    waiting = [drive for drive in cycle.began.drives if drive not in _statuses(cycle, cycle.shutdown)]
    waited_s = moment.watched_s(cycle.since)
    if (loud or waiting) and waited_s < SHUTDOWN_WITHIN_S:
        return [WaitFor(min(1.0, SHUTDOWN_WITHIN_S - waited_s))]
    # Machines whose drives did not report a clean end are left out here: that already excludes their drives.
    went_on = set(loud) - {state.machine_of(drive) for drive in waiting}
    if went_on and cycle.abandoned is None:
        text = f"machine {min(went_on)} was to shut down, and was heard after that"
        return _give_up("agent", text)
    late = moment.came_after_s(cycle.since) >= state.plan.boot_within_s
    if late and not all(map(moment.has_heard, cycle.machines)):
        return [Note(PowerFailed(on=False, reason=_AWAY))]
    return ask_all(cycle, "off")


def _off(state: CampaignState, cycle: CycleState, moment: ServerTime) -> list[Step]:
    """Steps while the switches go off. A server that was away for `boot_within_s` or longer switches nothing
    off, as in `_wait_to_hear`. It asks each switch for its state: a switch that was asked before may be
    off."""
    late = moment.came_after_s(cycle.since) >= state.plan.boot_within_s
    failed = power_failure(state, cycle, moment, "off") or (_not_gone(state, cycle, moment) if late else "")
    if failed:
        return [Note(PowerFailed(on=False, reason=failed))]
    answers = [answer_of(cycle.switches[number], moment) for number in cycle.involved]
    confirmed = [answer.ended_ns for answer in answers if answer is not None and answer.outcome == "off"]
    if len(confirmed) == len(answers):
        first = cycle.first_asked
        assert first is not None  # the phase began with this entry
        asked_ns = first.at_ns if first.boot_id == moment.boot_id else 0
        without = [drive for drive in cycle.armed if cycle.loses_power(state.machine_of(drive))]
        runs = tuple(cycle.runs[drive] for drive in without)
        return [Note(PowerWentOff(asked_ns=asked_ns, confirmed_ns=max(confirmed), runs=runs))]
    return ask_until(cycle, moment, "off", look=late)


def _not_gone(state: CampaignState, cycle: CycleState, moment: ServerTime) -> str:
    """A sentence on a switch that is on and has not accepted a request to go off. "" if there is none."""
    for number in cycle.involved:
        switch = cycle.switches[number]
        answer = answer_of(switch, moment)
        if answer is not None and answer.outcome == "on" and not switch.requested:
            return f"{_AWAY}, and {state.plan.power[number].name} is on"
    return ""


def _rest(state: CampaignState, cycle: CycleState, moment: ServerTime) -> list[Step]:
    """Steps without power. A rest may last for days, so a request to pause or stop ends it early."""
    left_s = cycle.due_s - moment.age_min_s(cycle.since)
    return [WaitFor(left_s)] if left_s > 0 and state.asked is None else ask_all(cycle, "on")


def _on(state: CampaignState, cycle: CycleState, moment: ServerTime) -> list[Step]:
    if cycle.stays_off:
        return _stuck(state, cycle, moment, "")
    failed = power_failure(state, cycle, moment, "on")
    if failed:
        return [Note(PowerFailed(on=True, reason=failed))]
    answers = [answer_of(cycle.switches[number], moment) for number in cycle.involved]
    if all(answer is not None and answer.outcome == "on" for answer in answers):
        return [Note(PowerCameBack())]
    return ask_until(cycle, moment, "on")


def _again(state: CampaignState, cycle: CycleState, moment: ServerTime) -> list[Step]:
    if not cycle.off_again_due:  # a machine had kept its power: machines that are back verify already
        return [Note(PowerCameBack())]
    left_s = cycle.due_s - moment.age_min_s(cycle.since)
    if moment.came_after_s(cycle.since) >= cycle.due_s + state.plan.boot_within_s:
        return [Note(PowerFailed(on=False, reason=_AWAY))]
    if state.check_due:
        return [Note(PowerFailed(on=False, reason=_CHECK_FIRST))]
    return [WaitFor(left_s)] if left_s > 0 else ask_all(cycle, "off")


def _back(state: CampaignState, cycle: CycleState, moment: ServerTime) -> list[Step]:
    if cycle.abandoned is not None and not cycle.runs:
        return _leave(state, cycle, moment)
    statuses = _back_statuses(state, cycle)
    done = [drive for drive, status in statuses.items() if status.state in ("done", "failed")]
    further = _look_ups(cycle, done) or _not_back(state, cycle, moment)
    if further:
        return further
    later = [drive for drive in cycle.began.drives if cycle.is_cut_later(state.machine_of(drive))]
    if len(done) + len(later) < len(cycle.began.drives):
        why = stuck_at_work(cycle, moment, "verify") or silent(state, cycle, moment)
        return _stuck(state, cycle, moment, why) if why else [WaitFor(5.0)]
    if cycle.is_check and state.checked is None:
        return _examined_again(state, cycle, moment, list(statuses.values()), more=bool(later))
    return _end_cycle(state, cycle)


def _examined_again(
    state: CampaignState, cycle: CycleState, moment: ServerTime, found: list[DriveStatus], *, more: bool
) -> list[Step]:
    """Steps after the drives were examined again. `more`: the check cuts other machines next. A check that
    was paused is made again: people may have used the switches meanwhile, which raises the drives' counters.
    A machine that kept running without power is reported anyway, because people do not cause that."""
    if cycle.was_paused and not cycle.still_there:
        return _end_cycle(state, cycle)
    problems = check_problems(state, cycle, found)
    if more and not problems:
        return _cut_next(state, cycle, moment)
    return [Note(Checked(problems=problems, notes=check_notes(state, found)))]


def _leave(state: CampaignState, cycle: CycleState, moment: ServerTime) -> list[Step]:
    """End a cycle that was given up before it had a run. No machine is left without power."""
    if steps := _revive(state, cycle, moment, HEARD_WITHIN_S):
        return steps
    return [WaitFor(1.0)] if may_be_off(state, cycle, moment) else _end_cycle(state, cycle)


def _cut_next(state: CampaignState, cycle: CycleState, moment: ServerTime) -> list[Step]:
    """Continue the check with the machines that it cuts next."""
    if state.asked is not None:
        return _end_cycle(state, cycle)
    if _mute(cycle, moment):
        why = silent(state, cycle, moment)
        return _stuck(state, cycle, moment, why) if why else [WaitFor(1.0)]
    return ask_all(cycle, "off")


# Helpers of several phases.


def _mute(cycle: CycleState, moment: ServerTime) -> str:
    """A machine that was not heard lately, so that its power must not be cut yet. "" for none."""
    return next((machine for machine in cycle.machines if not moment.hears(machine)), "")


def _statuses(cycle: CycleState, task: int) -> dict[str, DriveStatus]:
    """The newest statuses of the drives that are no longer at work on a task."""
    found = {drive: cycle.status(drive, task) for drive in cycle.began.drives}
    return {
        drive: status for drive, status in found.items() if status is not None and status.state != "working"
    }


def _back_statuses(state: CampaignState, cycle: CycleState) -> dict[str, DriveStatus]:
    """The statuses of the drives after the cut."""
    found = {drive: cycle.back_status(drive, state.machine_of(drive)) for drive in cycle.began.drives}
    return {drive: status for drive, status in found.items() if status is not None}


def _is_over(cycle: CycleState, drive: str) -> bool:
    status = cycle.status(drive, cycle.number)
    return status is not None and status.state in ("ended", "failed")


def _until(cycle: CycleState, moment: ServerTime, within_s: float) -> WaitFor:
    return WaitFor(max(5.0, within_s - moment.age_min_s(cycle.since)))


def _late(state: CampaignState, cycle: CycleState, moment: ServerTime) -> str:
    """Why the drives will not become ready, as a sentence. "" while they still may."""
    return unheard(state, cycle, moment) or stuck_at_work(cycle, moment, "get ready")


def _give_up(cause: Cause, text: str) -> list[Step]:
    """Give up the cut of this cycle. Armed runs are still verified."""
    return [Note(Abandoned(cause=cause, text=text))]


def _look_ups(cycle: CycleState, drives: Iterable[str]) -> list[Step]:
    """Steps that look up the verdicts on this cycle's runs of `drives` that are not known yet."""
    wanted = (drive for drive in drives if drive in cycle.runs and drive not in cycle.judged)
    return [LookUp(drive, cycle.runs[drive]) for drive in wanted]


def _late_look_ups(state: CampaignState, drives: Iterable[str]) -> list[Step]:
    """Steps that look up the verdicts on runs of `drives` whose cycles ended without one."""
    return [LookUp(drive, run) for drive, run in state.unjudged_to_look_up(drives).items()]


def _end_cycle(state: CampaignState, cycle: CycleState) -> list[Step]:
    """End the cycle after all verdicts were looked up: even in a cycle that ends early, a loss counts."""
    drives = cycle.began.drives
    if look_ups := _look_ups(cycle, drives) or _late_look_ups(state, drives):
        return look_ups
    said = () if cycle.is_check else drive_cycles(state, cycle)
    return [Note(CycleEnded(cycle=cycle.began.cycle, drives=said))]


def _stuck(state: CampaignState, cycle: CycleState, moment: ServerTime, reason: str) -> list[Step]:
    """Pause, because only people can help, after silent machines were given power if possible. If an operator
    asked to stop, the cycle ends with what is known."""
    within_s = state.plan.boot_within_s
    if steps := _revive(state, cycle, moment, within_s):
        return steps
    if state.asked is not None and state.asked.stop:
        return _end_cycle(state, cycle)
    if cycle.stays_off:
        return [Note(Paused(reason=f"the power cannot be switched on again: {cycle.stays_off}"))]
    looks = (
        last_look(cycle, moment, number, within_s) for number in switches_of_silent(cycle, moment, within_s)
    )
    said = [
        f"{state.plan.power[one.switch].name} {_IS.get(one.outcome, 'does not say whether it is on')}"
        for one in looks
        if one is not None
    ]
    return [Note(Paused(reason=f"{reason} ({', '.join(said)})" if said else reason))]


def _revive(state: CampaignState, cycle: CycleState, moment: ServerTime, silent_s: float) -> list[Step]:
    """Ask whether machines that were silent for `silent_s` have power, and switch them on if not. No step if
    they have power or cannot get it. A switch may go off long after the campaign gave up its request: the
    cloud of a plug, or a provider, may queue requests."""
    if state.plan.subject != "machine" or cycle.stays_off:
        return []
    within_s = state.plan.boot_within_s
    silent = switches_of_silent(cycle, moment, silent_s)
    if asks := [step for number in silent for step in ask_to_look(cycle, moment, number, within_s)]:
        return asks
    for number in silent:
        look, name = last_look(cycle, moment, number, within_s), state.plan.power[number].name
        if look is None or look.outcome == "on":
            continue
        is_off = look.outcome == "off"
        if cycle.phase == "run":  # give up this cycle: the next one has the machine from its start
            if is_off:
                return _give_up("agent", f"{name} says that it is off, before its power was to go")
        elif is_off or number in switches_of_silent(cycle, moment, within_s):
            if number not in cycle.revived:
                return [Ask(number, "on")]
            what = "says that it is off, though it was switched on" if is_off else f"failed: {look.text}"
            return [Note(PowerFailed(on=True, reason=f"{name} {what}"))]
    return []


def _not_back(state: CampaignState, cycle: CycleState, moment: ServerTime) -> list[Step]:
    """Steps for machines that are not back from their cut; [] if all are back. Time in which no server could
    have heard a machine does not count. After a long pause or absence of the server nothing is switched off,
    since others may use the outlet. A machine that is heard all the time in its old boot was not off.
    `assignments` misses that if the date and time are wrong after a boot of the server."""
    since_s, within_s = moment.age_min_s(cycle.since), state.plan.boot_within_s
    waited_s = {
        machine: min(since_s, moment.silent_s.get(machine, since_s))
        for machine in cycle.machines
        if not cycle.back_task(machine) and not cycle.is_cut_later(machine)
    }
    if not waited_s:
        return []
    watched_s = moment.watched_s(cycle.since)
    went_on = [machine for machine, waited in waited_s.items() if watched_s - waited >= within_s]
    if went_on:
        return [Note(StillThere(machine=went_on[0], text=f"machine {went_on[0]} {KEPT_RUNNING}"))]
    missing = [machine for machine, waited in waited_s.items() if waited >= within_s]
    if not missing:
        return [WaitFor(within_s - max(waited_s.values()))]
    if others := not_heard(state, missing[0]):
        return _stuck(state, cycle, moment, others)
    untried = [machine for machine in missing if cycle.tries_of(machine) < BOOTS_MAX - 1]
    is_known = not state.check_due and moment.came_after_s(cycle.since) < within_s
    if untried and is_known and state.asked is None:
        return [Note(NotBack(machine=untried[0]))]
    times = counted(cycle.tries_of(missing[0]) + 1, "time")
    reason = (
        f"machine {missing[0]} did not come back within {within_s:.0f} s, though it was switched on {times}:"
        " look at its console, then resume the campaign"
    )
    return _stuck(state, cycle, moment, reason)


_RULES = {
    "examine": _examine,
    "run": _run,
    "load": _load,
    "held": _load,
    "shutdown": _shutdown,
    "off": _off,
    "rest": _rest,
    "on": _on,
    "again": _again,
    "back": _back,
}
