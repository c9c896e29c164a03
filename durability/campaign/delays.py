"""Why a cycle does not get on, in sentences: machines that are not heard, that start again and again, that
came back and fell silent, or drives at work for too long.

Refuses to say what follows from it: `next_steps` does.
"""

from __future__ import annotations

from durability.campaign.campaign_state import CampaignState
from durability.campaign.cycle_state import CycleState
from durability.campaign.definition.settings import DAY_S
from durability.campaign.server_time import ServerTime

WORK_WITHIN_S = 2 * DAY_S  # to make a target ready, or to verify it
STARTS_MAX = 8  # of a machine in one cycle; more, and something else restarts it


def unheard(state: CampaignState, cycle: CycleState, moment: ServerTime) -> str:
    """Which machine has not asked for its task for too long, as a sentence; "" for none."""
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
    """Why the machines will not come to an end, though they are heard, as a sentence; "" while they may."""
    for machine in cycle.machines:
        if cycle.boots[machine] > STARTS_MAX:
            return f"machine {machine} has started more than {STARTS_MAX} times in this cycle"
    if moment.age_min_s(cycle.since) >= WORK_WITHIN_S:
        return f"drives did not {what} within {WORK_WITHIN_S / 3600:.0f} hours: look at the agent's log"
    return ""


def silent(state: CampaignState, cycle: CycleState, moment: ServerTime) -> str:
    """Which machine has said nothing for too long after it came back, as a sentence; "" for none."""
    within_s, since_s = state.plan.boot_within_s, moment.age_min_s(cycle.since)
    if since_s < within_s:
        return ""
    for machine in cycle.machines:
        silent_s = moment.silent_s.get(machine, 0.0)
        if silent_s >= within_s:
            never_asked = cycle.first_off is None and silent_s >= since_s  # for its run either
            fell = f"machine {machine} fell silent while it verified"
            why = _asks_nothing(machine, within_s) if never_asked else fell
            return not_heard(state, machine) or why
    return ""


def not_heard(state: CampaignState, machine: str) -> str:
    """That others speak for the machine, and why they are not heard, as a sentence; "" where there are
    none."""
    others = state.strangers.get(machine, ())
    return f"machine {machine} is not heard: {'; '.join(others)}" if others else ""


def restarted(cycle: CycleState, state: CampaignState) -> str:
    """Which machine has started anew since its run was armed, as a sentence; "" for none."""
    for drive, armed in cycle.armed.items():
        seen = cycle.seen.get(state.machine_of(drive))
        if seen is not None and seen.number > armed:
            return f"machine {state.machine_of(drive)} was restarted before the cut"
    return ""
