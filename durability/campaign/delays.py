"""Sentences on why a cycle makes no progress.

A machine is not heard, restarts again and again, or fell silent after it came back. Or drives are at work for
too long. `next_steps` decides what to do about it. `long_at_work` comes long before that, so that people may
look: it changes nothing.
"""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from statistics import median

from durability.campaign.campaign_state import CampaignState
from durability.campaign.cycle_state import CycleState
from durability.campaign.definition.settings import DAY_S
from durability.campaign.progress import doing, expected_cycle_s, hours
from durability.campaign.server_time import ServerTime

WORK_WITHIN_S = 2 * DAY_S  # longest time to make a target ready, or to verify it
LONG_S = 3600.0  # least time at work that people are told of
LONG_CYCLES = 4.0  # the same, in usual cycles
STARTS_MAX = 8  # boots of a machine in one cycle: more boots have another cause than the campaign


def unheard(state: CampaignState, cycle: CycleState, moment: ServerTime) -> str:
    """A sentence on a machine that has not asked for its task for too long. "" for none."""
    within_s = state.plan.boot_within_s
    if moment.age_min_s(cycle.since) < within_s:
        return ""
    for machine in cycle.machines:
        if moment.silent_s.get(machine, within_s) >= within_s:
            return not_heard(state, machine) or _asks_nothing(machine, within_s)
    return ""


def _asks_nothing(machine: str, for_s: float) -> str:
    return (
        f"machine {machine} has not asked for its task for {for_s:.0f} s: is it on, and does its"
        " agent run (`durability agent install`)?"
    )


def stuck_at_work(cycle: CycleState, moment: ServerTime, what: str) -> str:
    """Why machines that are heard will not finish their work, as a sentence. "" while they still may. `what`:
    the work, in words."""
    for machine in cycle.machines:
        if cycle.boots[machine] > STARTS_MAX:
            return f"machine {machine} has started more than {STARTS_MAX} times in this cycle"
    if moment.age_min_s(cycle.since) >= WORK_WITHIN_S:
        return f"drives did not {what} within {WORK_WITHIN_S / 3600:.0f} hours: look at the agent's log"
    return ""


def long_at_work(state: CampaignState, moment: ServerTime) -> str:
    """A sentence on drives that are at work, or machines that boot, for much longer than a usual cycle takes.
    "" if none is. The campaign goes on: a target may be large, or a drive slow."""
    cycle = state.cycle
    if state.state != "running" or cycle is None or cycle.phase not in ("examine", "run", "back"):
        return ""
    age_s = moment.watched_s(cycle.since)  # without a server the agents had nothing to do
    if age_s < LONG_S or age_s < LONG_CYCLES * _usual_cycle_s(state):
        return ""
    return f"{doing(state)} for {hours(age_s)}, much longer than usual: look at the agent's log"


def _usual_cycle_s(state: CampaignState) -> float:
    """The median of the times from the end of one cycle to that of the next, so that few pauses do not
    matter. Before two cycles have ended, the time that is expected from the settings."""
    ends = [datetime.fromisoformat(past.wall) for past in state.cycles if past.began.cycle]
    took_s = [(after - before).total_seconds() for before, after in pairwise(ends)]
    return median(took_s) if took_s else expected_cycle_s(state.plan)


def silent(state: CampaignState, cycle: CycleState, moment: ServerTime) -> str:
    """A sentence on a machine that has been silent for too long after the phase began. "" for none."""
    within_s, since_s = state.plan.boot_within_s, moment.age_min_s(cycle.since)
    if since_s < within_s:
        return ""
    for machine in cycle.machines:
        silent_s = moment.silent_s.get(machine, 0.0)
        if silent_s >= within_s:
            never_asked = cycle.first_off is None and silent_s >= since_s  # not even for its run
            fell = f"machine {machine} fell silent while it verified"
            why = _asks_nothing(machine, within_s) if never_asked else fell
            return not_heard(state, machine) or why
    return ""


def not_heard(state: CampaignState, machine: str) -> str:
    """A sentence on other agents that report for the machine, and why they are not accepted. "" for none."""
    others = state.strangers.get(machine, ())
    return f"machine {machine} is not heard: {'; '.join(others)}" if others else ""


def restarted(cycle: CycleState, state: CampaignState) -> str:
    """A sentence on a machine that restarted after its run was armed. "" for none."""
    for drive, armed in cycle.armed.items():
        seen = cycle.seen.get(state.machine_of(drive))
        if seen is not None and seen.number > armed:
            return f"machine {state.machine_of(drive)} was restarted before the cut"
    return ""
