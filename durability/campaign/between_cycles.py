"""What follows a cycle: another cycle, a drive that leaves, a pause, or the end.

The rules are tried in order; the first one with an answer decides. These rules do not look at a cycle that is
still running: `next_steps` does.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

from durability import limits
from durability.campaign.campaign_state import CampaignState, PastCycle
from durability.campaign.cycles import CHECK, arm_of, draw_cycle
from durability.campaign.log_entries import DriveCycle, DriveLeft, Ended, Happening, Paused

EMPTY_CYCLES_MAX = 5  # cycles in a row without a result for any drive, or for one drive
DRIVE_TROUBLES_MAX = 2  # cycles in a row in which a drive could not be tested
NOT_CUTS_MAX = 2  # last cycles in which the power of a machine's drives did not go off
ENTRIES_KEPT = 20_000  # entries of the log reserved for one more cycle: some 500 for each of many drives


def between_cycles(state: CampaignState) -> Happening:
    """The next entry between two cycles."""
    for rule in _RULES:
        happening = rule(state)
        if happening is not None:
            return _naming_runs(state, happening)
    past = _past(state)
    return draw_cycle(state.plan, 1 + (past[-1].began.cycle if past else 0), _names(state))


def _naming_runs(state: CampaignState, happening: Happening) -> Happening:
    """Add to the reason of an end, or of a drive that leaves, each last run without a verdict: only people
    can have these runs verified now."""
    if isinstance(happening, DriveLeft):
        leaving = [happening.drive]
    elif isinstance(happening, Ended):
        leaving = list(_names(state))
    else:
        return happening
    named = [_without_verdict(state, drive) for drive in leaving if drive in state.unjudged]
    return replace(happening, reason="; ".join((happening.reason, *named)))


def _without_verdict(state: CampaignState, drive: str) -> str:
    """A sentence with the command that gives the verdict on a drive's last run."""
    mine = next(one for one in state.plan.drives if one.name == drive)
    run, cut_class = state.unjudged[drive].run, state.plan.cut_class
    target = "DIRECTORY/target" if mine.file_system else shlex.quote(mine.device or mine.target)
    mount = f"mount {mine.device} at DIRECTORY and " if mine.file_system else ""
    weaker = f" --require-cut {cut_class}" if cut_class != "power" else ""
    return (
        f"run {run} of {drive} has no verdict: on {mine.machine}, {mount}type"
        f" `durability verify {target} --run {run}{weaker}`"
    )


def _asked(state: CampaignState) -> Happening | None:
    if state.asked is None:
        return None
    stays_off = f"the power cannot be switched on again: {state.stays_off}" if state.stays_off else ""
    if state.asked.stop:
        return Ended(reason=f"stopped, but {stays_off}" if stays_off else "stopped")
    return Paused(reason=stays_off)


def _check(state: CampaignState) -> Happening | None:
    checked = None if state.is_to_be_checked else state.checked
    if checked is None:
        return draw_cycle(state.plan, CHECK, _names(state))
    if checked.problems and state.has_cut:
        return Paused(reason=f"the check failed: {checked.problems[0]}")
    if checked.problems:
        return Ended(reason="the check failed")
    return Ended(reason="checked") if state.check_only else None


def _log_full(state: CampaignState) -> Happening | None:
    """End the campaign if the log may lack room for another cycle: the results of that cycle would be
    lost."""
    if state.number < limits.CAMPAIGN_ENTRIES_MAX - ENTRIES_KEPT:
        return None
    return Ended(reason=f"its log has {state.number:,} entries, almost the maximum: begin another campaign")


def _loss(state: CampaignState) -> Happening | None:
    for drive in _names(state) if state.plan.stop_at == "loss" else ():
        if drive in state.lost:
            return DriveLeft(drive=drive, reason=f"loss in cycle {state.lost[drive]}")
    return None


def _troubles(state: CampaignState) -> Happening | None:
    """Let a drive leave that could not be tested in its last cycles. If that is true of all drives, pause:
    they may have one cause, and people can help."""
    unfit = {
        drive: said[-1][1].text
        for drive, said in _said(state, _lately(state), newest=DRIVE_TROUBLES_MAX)
        if len(said) == DRIVE_TROUBLES_MAX
        and all(mine.cause == "drive" and not _is_for_arm(state, drive, cycle) for cycle, mine in said)
    }
    for drive, why in unfit.items():
        if len(unfit) == len(state.drives):
            return Paused(reason=f"no drive could be tested in the last {DRIVE_TROUBLES_MAX} cycles: {why}")
        return DriveLeft(drive=drive, reason=why)
    return None


def _is_for_arm(state: CampaignState, drive: str, cycle: int) -> bool:
    """Whether a drive's run did not begin because of its arm, for example an arm that does not suit the file
    system. That is so if the arm never gave a result and another arm did."""
    past = _past(state)
    if not any(one.began.cycle == cycle and drive in one.refused for one in past):
        return False
    told = {one.began.arm for one in past if (mine := one.of(drive)) is not None and mine.word != "nothing"}
    return bool(told) and arm_of(state.plan, cycle).name not in told


def _over(state: CampaignState) -> Happening | None:
    if not state.drives:
        return Ended(reason="no drive is left to test")
    done = all(state.judged_cycles(drive.name) >= state.plan.cuts for drive in state.drives)
    return Ended(reason="complete") if done else None


def _not_cuts(state: CampaignState) -> Happening | None:
    """Pause if the last cuts of a machine did not remove its power: the outlet may feed another machine,
    which must not be cut. Cycles that do not show whether the machine was cut are skipped."""
    lately = _lately(state)
    for machine in {drive.machine: None for drive in state.drives}:
        drives = [drive.name for drive in state.plan.drives_of(machine)]
        every = (_no_cut(state, one, drives) for one in reversed(lately))
        shown = list(islice((why for why in every if why is not None), NOT_CUTS_MAX))
        if len(shown) == NOT_CUTS_MAX and all(shown):
            return Paused(reason=f"the last {NOT_CUTS_MAX} cuts did not remove power: {shown[0]}")
    return None


def _empty(state: CampaignState) -> Happening | None:
    """Pause if the last cycles have no result for any drive: only people can help. If they have no result for
    one drive, that drive leaves."""
    empty = {
        drive: said[-1][1].text
        for drive, said in _said(state, _lately(state), newest=EMPTY_CYCLES_MAX)
        if len(said) == EMPTY_CYCLES_MAX and all(mine.word == "nothing" for _, mine in said)
    }
    for drive, why in empty.items():
        in_a_row = f"{EMPTY_CYCLES_MAX} cycles in a row gave no result for"
        if len(empty) == len(state.drives):
            return Paused(reason=f"{in_a_row} any drive: {why}")
        return DriveLeft(drive=drive, reason=f"{in_a_row} it: {why}")
    return None


_RULES: tuple[Callable[[CampaignState], Happening | None], ...] = (
    _asked,
    _check,
    _loss,
    _troubles,
    _over,
    _log_full,
    _not_cuts,
    _empty,
)


def _names(state: CampaignState) -> tuple[str, ...]:
    return tuple(drive.name for drive in state.drives)


def _past(state: CampaignState) -> list[PastCycle]:
    return [one for one in state.cycles if one.began.cycle]


def _lately(state: CampaignState) -> list[PastCycle]:
    """The cycles since the last resume, without checks."""
    return [one for one in state.cycles[state.resumed :] if one.began.cycle]


def _said(
    state: CampaignState, past: Sequence[PastCycle], *, newest: int
) -> list[tuple[str, list[tuple[int, DriveCycle]]]]:
    """For each drive that still takes part: its outcomes in its last cycles, each with the number of the
    cycle. At most `newest` outcomes, the newest last."""
    said = []
    for drive in state.drives:
        of_it = (
            (one.began.cycle, mine) for one in reversed(past) if (mine := one.of(drive.name)) is not None
        )
        said.append((drive.name, list(islice(of_it, newest))[::-1]))
    return said


def _no_cut(state: CampaignState, past: PastCycle, names: Sequence[str]) -> str | None:
    """Why a cycle did not cut the power of these drives, which are all of one machine, in words. "" if it
    did. None if the cycle does not show whether the power went off."""
    drives = [mine for name in names if (mine := past.of(name)) is not None]
    if any(mine.word != "nothing" for mine in drives):
        # After a clean shutdown no fact could contradict the switch.
        return None if arm_of(state.plan, past.began.cycle).moment == "shutdown" else ""
    for mine in drives:
        if mine.cause == "not-a-cut":
            return f"{mine.drive}: {mine.text}"
    return "" if any(mine.cut for mine in drives) else None
