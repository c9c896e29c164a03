"""The present cycle of a campaign as evidence: its outcome for each drive if the cycle ended now.

A cycle does not end while a machine is away, and its campaign may stay paused for any time. So once the power
went off, the present cycle counts as one more cycle. Its outcome is unknown unless there is a verdict
already. If the agent reports that a drive is missing or not in the expected state, the cycle counts even
before the power goes off. The check does not count, nor does a cycle without an event for the drive.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace

from durability.campaign.campaign_state import CampaignState
from durability.campaign.cycle_outcome import OF_THE_DRIVE, drive_cycles
from durability.campaign.cycle_state import CycleState
from durability.campaign.log_entries import CycleEnded, DriveCycle, Entry


def with_cycle_under_way(state: CampaignState) -> CampaignState:
    """`state`, or a copy of it in which the present cycle has ended with its outcomes so far. The ended cycle
    has only the drives for which it counts."""
    cycle = state.cycle
    if cycle is None or cycle.is_check or state.last is None:
        return state
    concerned = tuple(_so_far(state, cycle))
    if not concerned:
        return state
    # `CampaignState.apply` ends the cycle, so that it ends by the usual rules.
    over = copy.copy(state)
    over.cycles = [*state.cycles]
    ended = CycleEnded(cycle=cycle.began.cycle, drives=concerned)
    last = state.last
    over.apply(
        Entry(number=last.number + 1, at_ns=last.at_ns, boot_id=last.boot_id, wall=last.wall, happening=ended)
    )
    return over


def number_under_way(state: CampaignState) -> int | None:
    """The number of the present cycle, None between two cycles."""
    return None if state.cycle is None else state.cycle.began.cycle


def _so_far(state: CampaignState, cycle: CycleState) -> Iterator[DriveCycle]:
    why = "the cycle is not over"
    if state.reason:
        why += f": the campaign is {state.state}, since {state.reason}"
    for one in drive_cycles(state, cycle):
        if not _is_concerned(cycle, one.drive):
            continue
        # The rules for an ended cycle would say that the machine did not come back.
        yield replace(one, text=why) if one.cause == "no-verdict" else one


def _is_concerned(cycle: CycleState, drive: str) -> bool:
    """Whether the cycle counts for a drive: the power went off, its run was judged, or the newest status
    reports a trouble of the drive."""
    if cycle.first_off is not None or drive in cycle.judged:
        return True
    said = [(task, one) for (name, task), one in cycle.statuses.items() if name == drive]
    return bool(said) and max(said, key=lambda item: item[0])[1].trouble in OF_THE_DRIVE
