"""Texts about campaigns: the plan, the progress, and the results.

The status fits on a screen of 80 columns. The texts claim no more than the cuts prove: "no loss seen in n
cuts".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from durability import plain_text
from durability.campaign.campaign_state import CampaignState
from durability.campaign.cycles import arm_of
from durability.campaign.definition.settings import Settings
from durability.campaign.health import health_rows, health_warnings
from durability.campaign.progress import doing, expected_s, hours, is_dark, left_s
from durability.campaign.results import (
    ArmResult,
    DriveResult,
    LossSoFar,
    Tally,
    losses_so_far,
    results,
    sentence,
)
from durability.campaign.server_time import SILENT_AFTER_S
from durability.campaign.tasks import Condition
from durability.evidence.strength import CONFIDENCE, upper_bound
from durability.units import counted, format_size, percent_at_least, percent_at_most
from durability_client.campaigns.campaign_results import losses_so_far_to_value, results_to_value
from durability_client.campaigns.health_text import health_text
from durability_client.text_tables import table

AFTER: Mapping[str, str] = {
    "pause": "Campaign {name} pauses as soon as its machines are on and its file systems unmounted.",
    "resume": "Campaign {name} continues.",
    "adopt": "This server runs campaign {name} from now on.",
    "stop": "Campaign {name} ends as soon as its machines are on and its file systems unmounted.",
}
CHECK_FIRST = (
    "Campaign {name} has no valid check, so the check runs first. Then the command shows the drives and asks."
)
CHECK_SAYS_LESS = (
    "Campaign {name} was checked with release 0.1, which did not note which file systems the drives hold: it"
    " must be checked again."
)
CHECK_QUESTION = "Switch off and on now? [y/N]"
START_QUESTION = "Begin? [y/N]"
BEGUN = "Campaign {name} has begun. `durability campaign status {name}` shows its progress."
_COLUMNS = ("drive", "cuts", "clean", "loss", "kept", "left_out", "at_most")
_ARM_COLUMNS = ("drive", "arm", "moment", "cuts", "clean", "loss", "kept", "left_out", "at_most")


def what_check_does(settings: Settings) -> str:
    """The steps of the check."""
    switches = ", ".join(power.name for power in settings.power)
    what = "machine " + ", ".join(settings.machines) if settings.subject == "machine" else "the drives"
    drives = ", ".join(drive.name for drive in settings.drives)
    return (
        f"The check looks for {drives} on {', '.join(settings.machines)}. Then it switches {what} off and on"
        f" once ({switches}). It writes nothing to the drives."
    )


def what_start_does(settings: Settings, before: CampaignState) -> str:
    """The data that a campaign destroys, and its duration. `before`: the campaign's current state; a check
    may have found the drives already."""
    known = before.conditions if before.settings == settings else {}
    lines = []
    for drive in settings.drives:
        where = f"{drive.machine}: {drive.device or drive.target}{_known(known.get(drive.name))}"
        if drive.file_system:
            lines.append(f"{where}: ALL DATA WILL BE LOST; {drive.file_system} will be created on it")
        elif drive.device:
            lines.append(f"{where}: ALL DATA WILL BE LOST")
        else:
            lines.append(f"{where}: the files of the target are made and removed")
    length = expected_s(settings, cycles=settings.cuts)
    load = sum(arm_of(settings, cycle).moment == "load" for cycle in range(1, settings.cuts + 1))
    some = load != settings.cuts  # cuts at other moments have separate bounds
    of_them = f", {load} of them under load" if some else ""
    what = f"{counted(settings.cuts, 'cut')} for each drive{of_them}, about {hours(length)};"
    lines.append(f"{what} seed {settings.seed}.{_would_show(load, some=some)}")
    return "\n".join(lines)


def _would_show(load: int, *, some: bool) -> str:
    """A sentence about what `load` cuts under load prove if none loses data. `some`: the campaign also has
    other cuts."""
    if not load:
        return ""
    return (
        f" Without a loss {'those' if some else 'they'} show that at most"
        f" {percent_at_most(upper_bound(0, load))} of cuts lose data ({100 * CONFIDENCE:.0f} % confidence)."
    )


def _known(condition: Condition | None) -> str:
    """The drive that the check found, in brackets; "" if unknown."""
    if condition is None:
        return ""
    serial = f"serial {condition.serial}" if condition.serial else "no serial"
    kinds = re.sub(r"=\S+", "", condition.holds)  # without UUIDs
    holds = f"holds {kinds}" if kinds else "nothing recognised on it"
    size = format_size(condition.size_bytes)
    return f" ({', '.join(filter(None, (condition.model, serial, size, holds)))})"


def checked(state: CampaignState, problems: Sequence[str]) -> Iterator[str]:
    """The outcome of a check. A paused check has no outcome yet."""
    if state.checked is None and state.state == "paused":
        name, machines = state.plan.name, ", ".join(state.plan.machines)
        yield f"Check paused: {state.reason or 'an operator asked for it'}."
        yield f"  No other campaign can have {machines} before this one ends."
        yield f"  `durability campaign resume {name}` makes the check again, `... stop {name}` ends it."
        return
    if not problems:
        yield f"Check passed: the switches cut {', '.join(state.plan.machines)}, and every drive came back."
        yield from (f"  {name}{_known(known)}" for name, known in state.conditions.items())
        notes = state.checked.notes if state.checked is not None else ()
        yield from (f"Not checked: {note}." for note in notes)
        return
    yield "Check failed:"
    yield from (f"  {problem}" for problem in problems)


def status(
    state: CampaignState, silent_s: Mapping[str, float], *, took_s: Mapping[str, float] | None
) -> Iterator[str]:
    """The progress of a campaign, and its results so far. For `took_s` see `progress.Pace`."""
    if state.settings is None:
        return
    yield f"campaign {state.plan.name}: {doing(state)}"
    if state.asked is not None:
        then = "ends" if state.asked.stop else "pauses"
        yield f"it {then} as soon as its machines are on and its file systems unmounted"
    elif (left := left_s(state, took_s=took_s)) is not None:
        yield f"time left: about {hours(left)}"
    for machine in state.plan.machines if state.state == "running" else ():
        if silent_s.get(machine, 0.0) > SILENT_AFTER_S and not is_dark(state, machine):
            yield f"machine {machine} has not reported for {silent_s[machine]:.0f} s"
    yield ""
    found = results(state)
    yield from table(_COLUMNS, [_row(result) for result in found])
    yield ""
    yield from (f"{result.drive}: {sentence(result)}" for result in found)
    yield from map(_so_far, losses_so_far(state))


def _so_far(loss: LossSoFar) -> str:
    what = "lost data" if loss.final else "has unreadable data, a loss unless a later verify reads them"
    return f"cycle {loss.cycle}, not over: {loss.drive} {what} (`durability show {loss.run}`)"


def warnings(state: CampaignState) -> Iterator[str]:
    """Warnings about trends in the drives' health. `page` shows them beside the figures."""
    for drive in state.plan.drives if state.settings is not None else ():
        for warning in health_warnings(health_rows(state, drive.name)):
            yield plain_text.as_line(f"{drive.name}: warning: {warning.text}")


def page(
    state: CampaignState,
    silent_s: Mapping[str, float],
    *,
    took_s: Mapping[str, float] | None,
    bars: str,
    health: bool,
) -> Iterator[str]:
    """A campaign without its log. `bars` and `health`: the parameters `bars` and `whole` of `health_text`."""
    yield from status(state, silent_s, took_s=took_s)
    if state.settings is None:
        return
    found = results(state)
    yield ""
    yield from table(_ARM_COLUMNS, [_arm_row(result, arm) for result in found for arm in result.arms])
    rates = [line for result in found for line in _rates(result)]
    if rates:
        yield ""
        sure = f"{100 * CONFIDENCE:.0f} % confidence"
        yield f"Losses by arm, and how many cuts lose data ({sure}):"
        yield from rates
    left_out = [(result.drive, *one) for result in found for one in result.left_out]
    if left_out:
        yield ""
        yield "Cycles that were not counted, and why:"
        yield from (f"  {drive}, cycle {cycle}: {cause}: {text}" for drive, cycle, cause, text in left_out)
    for result in found:
        if result.first_loss is not None:
            yield ""
            cycle, run = result.first_loss
            yield f"{result.drive} lost data in cycle {cycle}: `durability show {run}`"
    yield ""
    yield from health_text(state, bars=bars, whole=health)


def _rates(result: DriveResult) -> Iterator[str]:
    """The loss rate of each arm with losses, if the campaign has several arms."""
    for arm in result.arms if len(result.arms) > 1 else ():
        tally = arm.tally
        if tally.low is not None and tally.high is not None:
            unknown = f" and {tally.unknown} not known," if tally.unknown else ""
            yield (
                f"  {result.drive}, arm {arm.arm}: {tally.losses} of {counted(tally.cuts, 'cut')},{unknown}"
                f" {percent_at_least(tally.low)} to {percent_at_most(tally.high)}"
            )


def status_value(
    state: CampaignState, silent_s: Mapping[str, float], *, took_s: Mapping[str, float] | None
) -> dict[str, Any]:
    """The progress of a campaign, as plain values."""
    if state.settings is None:
        return {}
    return {
        "name": state.plan.name,
        "state": state.state,
        "reason": state.reason,
        "doing": doing(state),
        "left_s": left_s(state, took_s=took_s),
        "silent_s": dict(silent_s),
        "results": results_to_value(state),
        "losses_so_far": losses_so_far_to_value(state),
    }


def _row(result: DriveResult) -> dict[str, Any]:
    clean = result.tally.cuts - result.tally.losses
    return {"drive": result.drive, **_counts(result.tally, clean, result.kept, len(result.left_out))}


def _arm_row(result: DriveResult, arm: ArmResult) -> dict[str, Any]:
    return {
        "drive": result.drive,
        "arm": arm.arm,
        "moment": arm.moment,
        **_counts(arm.tally, arm.clean, arm.kept, arm.left_out),
    }


def _counts(tally: Tally, clean: int, kept: int, left_out: int) -> dict[str, Any]:
    return {
        "cuts": str(tally.cuts),
        "clean": str(clean),
        "loss": str(tally.losses),
        "kept": str(kept),
        "left_out": str(left_out),
        "at_most": percent_at_most(tally.bound) if tally.bound is not None else None,
    }
