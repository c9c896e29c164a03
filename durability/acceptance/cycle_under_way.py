"""The cycle that a campaign is in, as evidence: what it would say of each drive if it ended now.

A machine that never comes back ends no cycle, and its campaign may stay paused for as long as people like.
So once the power went off, the cycle under way counts as one more. Its outcome is not known, unless a verdict
is there already. A drive that the agent reports as gone, or not as it must be, counts before that too.
Refuses to count a cycle in which nothing has happened to a drive yet, and the check.
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
    """`state`, or a copy of it in which the cycle under way is over, with what that says so far of the drives
    that it concerns."""
    cycle = state.cycle
    if cycle is None or cycle.is_check or state.last is None:
        return state
    concerned = tuple(_so_far(state, cycle))
    if not concerned:
        return state
    # The fold itself ends the cycle, so that a cycle has one meaning.
    over = copy.copy(state)
    over.cycles = [*state.cycles]
    ended = CycleEnded(cycle=cycle.began.cycle, drives=concerned)
    last = state.last
    over.apply(
        Entry(number=last.number + 1, at_ns=last.at_ns, boot_id=last.boot_id, wall=last.wall, happening=ended)
    )
    return over


def number_under_way(state: CampaignState) -> int | None:
    """The number of the cycle that is under way, None between two."""
    return None if state.cycle is None else state.cycle.began.cycle


def _so_far(state: CampaignState, cycle: CycleState) -> Iterator[DriveCycle]:
    why = "the cycle is not over"
    if state.reason:
        why += f": the campaign is {state.state}, since {state.reason}"
    for one in drive_cycles(state, cycle):
        if not _is_concerned(cycle, one.drive):
            continue
        # The rules on a cycle that has ended would say that its machine did not come back.
        yield replace(one, text=why) if one.cause == "no-verdict" else one


def _is_concerned(cycle: CycleState, drive: str) -> bool:
    """Whether the power went off, or something is known of the drive that counts without that."""
    if cycle.first_off is not None or drive in cycle.judged:
        return True
    said = [(task, one) for (name, task), one in cycle.statuses.items() if name == drive]
    return bool(said) and max(said, key=lambda item: item[0])[1].trouble in OF_THE_DRIVE
