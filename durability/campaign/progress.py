"""How far a campaign is, and how long it will still take.

The time left is the mean of what its cycles took so far; before the first one, what its settings and the
check let expect. Refuses to promise: a machine that does not come back is not foreseen.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from durability.campaign.campaign_state import CampaignState
from durability.campaign.cycle_state import CycleState, Phase
from durability.campaign.cycles import arm_of
from durability.campaign.definition.settings import Settings
from durability.campaign.log_entries import Entry

# A guess for what was not measured: boot or return of the drive, prefill, verify and tidying up.
BOOT_S = 90.0
WORK_S = 60.0

_PHASES: dict[Phase, str] = {
    "examine": "looking for the drives",
    "run": "making the targets ready",
    "load": "under load",
    "held": "holding the writers",
    "shutdown": "shutting down cleanly",
    "off": "switching off",
    "rest": "without power",
    "on": "switching on",
    "again": "on for a moment",
    "back": "booting and verifying",
}


def cycles_left(state: CampaignState) -> int:
    """How many cycles are to come at least, the one under way included; a check has none."""
    if state.check_only or state.state == "ended":
        return 0
    wanted = [state.plan.cuts - state.judged_cycles(drive.name) for drive in state.drives]
    return max(0, *wanted) if wanted else 0


def expected_cycle_s(settings: Settings) -> float:
    """What a cycle takes as far as the settings tell, on the average of its arms."""
    middle = [
        (sum(arm.cut_after_s) + sum(arm.off_s) + sum(arm.again_after_s or ())) / 2
        + (arm.idle_s if arm.moment == "idle" else 0.0)
        for arm in settings.arms
    ]
    return sum(middle) / len(middle) + BOOT_S + WORK_S


def left_s(state: CampaignState, *, took_s: float | None) -> float | None:
    """Seconds until the last cycle is over; None for a check, and where none runs or a pause or end is due.
    `took_s`: what a cycle took so far on average, None where none is over."""
    if state.check_only or state.state != "running" or state.asked is not None:
        return None
    return cycles_left(state) * (expected_cycle_s(state.plan) if took_s is None else took_s)


class Pace:
    """What a cycle takes on average, by the date and time of a log's entries, without the check, and without
    pauses."""

    def __init__(self) -> None:
        self._within = False  # a cycle
        self._since = ""  # when it began, or went on; "" in a pause
        self._mine_s = self._total_s = 0.0  # of this cycle; of those that are over
        self._cycles = 0

    def apply(self, entry: Entry) -> None:
        """Take in the next entry."""
        kind = entry.happening.kind
        if entry.happening.kind == "cycle-began":
            self._within, self._since, self._mine_s = bool(entry.happening.cycle), entry.wall, 0.0
        elif kind == "resumed" and self._within:
            self._since = entry.wall
        elif kind in ("paused", "cycle-ended", "ended") and self._within:
            self._stop(entry.wall)
            if kind == "cycle-ended":
                self._within, self._cycles = False, self._cycles + 1
                self._total_s += self._mine_s

    def _stop(self, wall: str) -> None:
        if self._since:
            took = datetime.fromisoformat(wall) - datetime.fromisoformat(self._since)
            self._mine_s += max(0.0, took.total_seconds())
        self._since = ""

    @property
    def took_s(self) -> float | None:
        """Seconds; None before a cycle is over."""
        return self._total_s / self._cycles if self._cycles else None


def took_s(entries: Sequence[Entry]) -> float | None:
    """What a cycle took on average, None before one is over."""
    pace = Pace()
    for entry in entries:
        pace.apply(entry)
    return pace.took_s


def doing(state: CampaignState) -> str:
    """What is being done, in a few words."""
    if state.state != "running":
        return f"{state.state}: {state.reason}" if state.reason else state.state
    if state.cycle is None:
        return "between two cycles"
    return f"{_cycle(state, state.cycle)}: {_PHASES[state.cycle.phase]}"


def _cycle(state: CampaignState, cycle: CycleState) -> str:
    if cycle.is_check:
        return "check"
    return f"cycle {cycle.began.cycle} ({arm_of(state.plan, cycle.began.cycle).name})"


def hours(seconds: float) -> str:
    """A long time in words: "40 min", "2 h 30 min"."""
    minutes = max(1, round(seconds / 60))
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
