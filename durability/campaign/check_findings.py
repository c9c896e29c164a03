"""Findings of a campaign's check: whether switch, machine and drives belong together and may be cut.

Before the cut, each drive must be there and unused, and the machine must not run from it. After the cut, the
machine must have restarted or the drive must have been attached again, and the drives' counters must agree.
So a wrong outlet is never cut twice. If a drive reports nothing about itself, no finding is guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from durability.campaign.campaign_state import CampaignState
from durability.campaign.cycle_state import CycleState
from durability.campaign.log_entries import MachineSeen
from durability.campaign.tasks import Condition, DriveStatus, in_one_order
from durability.units import counted


def check_problems(
    state: CampaignState, cycle: CycleState, statuses: Sequence[DriveStatus]
) -> tuple[str, ...]:
    """Why the campaign must not begin, in sentences. () if it may. `statuses`: of each drive, before the cut
    or after it."""
    return tuple(_problems(state, cycle, statuses))


def check_notes(state: CampaignState, statuses: Sequence[DriveStatus]) -> tuple[str, ...]:
    """What the check could not check, in sentences. `statuses`: of each drive after the cut."""
    return (
        *_of_several_switches(state),
        *_of_several_drives(state, statuses),
        *_of_counters(state, statuses),
    )


def _of_several_switches(state: CampaignState) -> Iterator[str]:
    """A sentence for each machine with several switches. They go off together, so one of them alone may cut
    the machine's power, and another may feed a machine of somebody else."""
    for machine in state.plan.machines:
        mine = [switch.name for switch in state.plan.power if switch.has(machine)]
        fed = "it" if state.plan.subject == "machine" else "a drive of this campaign"
        if len(mine) > 1:
            yield (
                f"machine {machine} has {len(mine)} switches, and the check does not show that each of them"
                f" feeds {fed}: make sure of {', '.join(mine)}"
            )


def _of_several_drives(state: CampaignState, statuses: Sequence[DriveStatus]) -> Iterator[str]:
    for status in statuses if state.plan.subject == "drive" else ():
        if status.condition is not None and status.condition.is_of_several:
            yield (
                f"drive {status.drive} lies on several drives: only the switch says that all of them lose"
                " their power"
            )


def _of_counters(state: CampaignState, statuses: Sequence[DriveStatus]) -> Iterator[str]:
    for status in statuses if state.plan.cut_class == "power" else ():
        if not _has_counter(status.condition) or not _has_counter(state.conditions.get(status.drive)):
            yield (
                f"drive {status.drive} has no count of unsafe shutdowns: only the switch says that it loses"
                " its power"
            )


def _has_counter(condition: Condition | None) -> bool:
    """Whether a drive counts its unsafe shutdowns itself. The counter of an emulated drive does not count."""
    return condition is not None and condition.unsafe_shutdowns is not None and not condition.emulated


def _problems(state: CampaignState, cycle: CycleState, statuses: Sequence[DriveStatus]) -> Iterator[str]:
    for still in cycle.still_there.values():
        yield f"the switch said that it was off, and {still.text}"
    if cycle.power_failed:
        yield cycle.power_failed
    for status in statuses:
        if status.state == "failed":
            yield f"drive {status.drive}: {status.text}"
    yield from _of_guests(state, statuses)
    if cycle.went_off is None:
        yield from _before(state, cycle, statuses)
    elif not cycle.still_there:
        yield from _after(state, cycle, statuses)


def _of_guests(state: CampaignState, statuses: Sequence[DriveStatus]) -> Iterator[str]:
    """Sentences on drives for which a cut of the machine cannot prove class `power`. The verdict on a guest's
    drive, or on an emulated drive, has at most class `vm`, unless the drive counts unsafe shutdowns itself
    (rule 11). For a drive that is cut alone, the campaign file decides."""
    if state.plan.cut_class != "power" or state.plan.subject != "machine":
        return
    remedy = 'a cut of it shows nothing about the loss of power: set cut_class = "vm"'
    guests = set[str]()
    for status in statuses:
        machine = state.machine_of(status.drive)
        if status.condition is None or _has_counter(status.condition) or machine in guests:
            continue
        if _is_guest(state.machines.get(machine)):
            guests.add(machine)
            yield f"machine {machine} is a virtual machine; {remedy}"
        elif status.condition.emulated:
            yield f"drive {status.drive} is emulated; {remedy}"


def _is_guest(seen: MachineSeen | None) -> bool:
    return seen is not None and seen.virtualisation not in ("", "none")


def _before(state: CampaignState, cycle: CycleState, statuses: Sequence[DriveStatus]) -> Iterator[str]:
    for status in statuses:
        first = state.conditions.get(status.drive)
        if first is not None and status.condition is not None and _is_another(first, status.condition):
            yield f"drive {status.drive}: it is another drive than the one that was examined first"
    for switch, power in zip(cycle.switches, state.plan.power, strict=True):
        answer = switch.answered
        if answer is not None and answer.outcome == "failed":
            yield f"{power.name}: {answer.text}"
        elif answer is not None and answer.outcome == "off":
            yield (
                f"{power.name} says that it is off, while its machine asks for its task: this switch"
                " controls something else"
            )


def _after(state: CampaignState, cycle: CycleState, statuses: Sequence[DriveStatus]) -> Iterator[str]:
    if state.plan.subject == "drive":
        yield from _of_restarts(cycle)
    for status in statuses:
        before, after = cycle.examined.get(status.drive), status.condition
        if before is not None and after is not None:
            offs = cycle.offs_of(state.machine_of(status.drive))
            changes = _changes(state, before, after, offs=offs)
            yield from (f"drive {status.drive}: {text}" for text in changes)
        elif status.state != "failed":
            yield f"drive {status.drive}: the agent did not say which drive it is"


def _of_restarts(cycle: CycleState) -> Iterator[str]:
    """A sentence for each machine that restarted although only its drives were cut."""
    asked = cycle.touched_by
    for machine, starts in cycle.starts.items():
        if asked is not None and any(one.number > asked.number for one in starts):
            yield (
                f"machine {machine} was restarted by the cut: either its switch cuts the whole machine (set"
                ' cuts = "machine"), or it does not survive without the drive'
            )


def _is_another(first: Condition, now: Condition) -> bool:
    """Whether a drive differs from the one that was examined first, perhaps in an earlier check. A smaller
    size does not count here: the health warnings and the agent report it."""
    other_name = first.wwid and now.wwid and in_one_order(first.wwid) != in_one_order(now.wwid)
    return bool(other_name) or any(
        in_one_order(one) != in_one_order(other)
        for one, other in ((first.serial, now.serial), (first.model, now.model))
    )


def _changes(state: CampaignState, before: Condition, after: Condition, *, offs: int) -> Iterator[str]:
    if in_one_order(before.serial) != in_one_order(after.serial):
        yield f"it is another drive after the cut: {after.serial or 'without a serial'}, not {before.serial}"
        return
    if after.size_bytes < before.size_bytes:
        yield f"it has {after.size_bytes:,} bytes after the cut, and had {before.size_bytes:,}"
    if state.plan.subject == "drive":
        yield from _not_anew(before, after)
    if state.plan.cut_class != "power" or before.emulated:
        return
    if before.unsafe_shutdowns is None:
        yield from _not_risen("power cycles", before.power_cycles, after.power_cycles)
        return
    yield from _not_risen("unsafe shutdowns", before.unsafe_shutdowns, after.unsafe_shutdowns)
    if after.unsafe_shutdowns is not None and after.unsafe_shutdowns > before.unsafe_shutdowns + offs:
        yield (
            f"its count of unsafe shutdowns rose by {after.unsafe_shutdowns - before.unsafe_shutdowns} in"
            f" {counted(offs, 'cut')}: it loses its power in other ways too"
        )


def _not_anew(before: Condition, after: Condition) -> Iterator[str]:
    """Why a drive that was cut alone does not show the cut. Yields nothing if it was attached again."""
    if before.diskseq is not None and after.diskseq is not None:
        if before.diskseq == after.diskseq:
            yield "it was not attached anew, so it kept its power: this switch controls something else"
        return
    if before.is_of_several:  # the agent reports no numbers for several drives: see `check_notes`
        return
    counts = ((before.unsafe_shutdowns, after.unsafe_shutdowns), (before.power_cycles, after.power_cycles))
    if not any(one is not None and other is not None and other > one for one, other in counts):
        yield (
            "nothing shows that it lost its power: this kernel does not count how often a drive was attached"
            " (Linux 5.15 does), and no counter of the drive rose"
        )


def _not_risen(what: str, before: int | None, after: int | None) -> Iterator[str]:
    """Why a drive's counter does not show the cut. Yields nothing if the counter rose, or if it was unknown
    before the cut."""
    if before is None:
        return
    if after is None:
        yield f"it no longer reports its count of {what}"
    elif after == before:
        yield (
            f"its count of {what} stayed at {after}, so it kept its power: the switch only resets the"
            ' machine: set cut_class = "os"'
        )
    elif after < before:
        yield f"its count of {what} fell from {before} to {after}: it says nothing of a cut"
