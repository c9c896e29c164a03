"""Progress of a campaign, and an estimate of the time left.

The time left is the sum over the cycles to come. A cycle takes the mean time of earlier cycles of its arm;
without any, the time expected from the settings. The share of cycles left out is assumed to stay the same.
The estimate does not foresee a machine that does not come back.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

from durability.campaign.campaign_state import CampaignState
from durability.campaign.cycle_state import CycleState, Phase
from durability.campaign.cycles import arm_of
from durability.campaign.definition.settings import Arm, Settings
from durability.campaign.log_entries import Entry

# Guesses for times that the settings do not give.
BOOT_S = 90.0  # boot of the machine, or return of the drive
WORK_S = 60.0  # prefill, verify and clean-up

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
_DARK = frozenset[Phase]({"shutdown", "off", "rest", "on", "again"})


def cycles_left(state: CampaignState) -> int:
    """Least number of cycles still to come, with the present one. 0 for a check."""
    if state.check_only or state.state == "ended":
        return 0
    wanted = [state.plan.cuts - state.judged_cycles(drive.name) for drive in state.drives]
    return max(0, *wanted) if wanted else 0


def expected_cycle_s(settings: Settings) -> float:
    """Expected seconds of a cycle from the settings, as the mean over the arms."""
    return sum(map(_expected_s, settings.arms)) / len(settings.arms)


def expected_s(
    settings: Settings, *, cycles: int, first: int = 1, took_s: Mapping[str, float] | None = None
) -> float:
    """Expected seconds of `cycles` cycles, starting with cycle number `first`. `took_s`: mean seconds of each
    arm from `Pace`."""
    arms = [arm_of(settings, first + number) for number in range(len(settings.arms))]
    known = took_s or {}
    times = [known.get(arm.name, _expected_s(arm)) for arm in arms]
    rounds, rest = divmod(cycles, len(times))
    return rounds * sum(times) + sum(times[:rest])


def _expected_s(arm: Arm) -> float:
    """Expected seconds of a cycle of an arm, from the settings."""
    drawn = (sum(arm.cut_after_s) + sum(arm.off_s) + sum(arm.again_after_s or ())) / 2
    return drawn + (arm.idle_s if arm.moment == "idle" else 0.0) + BOOT_S + WORK_S


def left_s(state: CampaignState, *, took_s: Mapping[str, float] | None) -> float | None:
    """Estimated seconds until the last cycle ends. None for a check, if the campaign is not running, or if a
    pause or an end was asked for. `took_s`: mean seconds of each arm from `Pace`, None before the first
    cycle ended."""
    if state.check_only or state.state != "running" or state.asked is not None:
        return None
    over = [past for past in state.cycles if past.began.cycle]
    first = over[-1].began.cycle + 1 if over else 1
    return expected_s(state.plan, cycles=_cycles_to_come(state), first=first, took_s=took_s)


def _cycles_to_come(state: CampaignState) -> int:
    """Like `cycles_left`, plus the cycles that will be left out if their share stays the same."""
    most = 0
    for drive in state.drives:
        judged = state.judged_cycles(drive.name)
        mine = sum(past.began.cycle > 0 and past.of(drive.name) is not None for past in state.cycles)
        # One judged cycle is added to both counts, because a first cycle without a result means little.
        wanted = (state.plan.cuts - judged) * (mine + 1) / (judged + 1)
        most = max(most, math.ceil(wanted))
    return most


def is_dark(state: CampaignState, machine: str) -> bool:
    """Whether silence of a machine is expected: it shuts down, or its power is off or is being switched."""
    return is_without_power(state, machine) and state.plan.subject == "machine"


def is_without_power(state: CampaignState, machine: str) -> bool:
    """Whether a campaign shuts a machine down, switches its power, or keeps it without power. If drives are
    cut alone, this is about the power of its drives."""
    cycle = state.cycle
    return cycle is not None and cycle.phase in _DARK and cycle.loses_power(machine)


class Pace:
    """Mean seconds of a cycle of each arm, from the dates of the log's entries. Checks and pauses do not
    count."""

    def __init__(self) -> None:
        self._within = False  # whether a cycle other than the check is running
        self._arm = ""  # arm of this cycle
        self._since = ""  # when this cycle began or was resumed, "" in a pause
        self._mine_s = 0.0  # seconds of this cycle before `_since`
        self._total_s = defaultdict[str, float](float)  # by arm, seconds of the ended cycles
        self._cycles = Counter[str]()  # by arm, number of ended cycles

    def apply(self, entry: Entry) -> None:
        """Apply the next entry."""
        kind = entry.happening.kind
        if entry.happening.kind == "cycle-began":
            self._within, self._since, self._mine_s = bool(entry.happening.cycle), entry.wall, 0.0
            self._arm = entry.happening.arm
        elif kind == "resumed" and self._within and not self._since:
            self._since = entry.wall
        elif kind in ("paused", "cycle-ended", "ended") and self._within:
            self._stop(entry.wall)
            if kind == "cycle-ended":
                self._within = False
                self._cycles[self._arm] += 1
                self._total_s[self._arm] += self._mine_s

    def _stop(self, wall: str) -> None:
        if self._since:
            took = datetime.fromisoformat(wall) - datetime.fromisoformat(self._since)
            self._mine_s += max(0.0, took.total_seconds())
        self._since = ""

    @property
    def took_s(self) -> Mapping[str, float]:
        """Mean seconds of a cycle, by the name of each arm that had one."""
        return {arm: self._total_s[arm] / cycles for arm, cycles in self._cycles.items()}


def took_s(entries: Sequence[Entry]) -> Mapping[str, float]:
    """Mean seconds of a cycle, by the name of each arm that had one."""
    pace = Pace()
    for entry in entries:
        pace.apply(entry)
    return pace.took_s


def doing(state: CampaignState) -> str:
    """The present activity, in a few words."""
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
    """A long time as text: "40 min", "2 h 30 min"."""
    minutes = max(1, round(seconds / 60))
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
