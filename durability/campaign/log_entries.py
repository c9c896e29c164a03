"""Entries of a campaign's log. The log is all that the server stores of a campaign.

Every step is logged before it is taken, so after any crash the log tells the next step; each step may be
taken twice. Entries are only added, never changed. Times of power are nanoseconds of the server's
CLOCK_BOOTTIME, and can be compared only within one boot of the server. Entries of unknown kinds are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal, TypeAlias

from durability.campaign.definition.settings import Settings
from durability.campaign.tasks import DriveStatus, TaskKind
from durability.formats.documents import Finite, Flag, Natural, Text, from_value, tagged, to_value
from durability.formats.packing import Value

Operation: TypeAlias = Literal["on", "off", "status", "check"]
SwitchOutcome: TypeAlias = Literal["done", "on", "off", "failed"]
OutcomeWord: TypeAlias = Literal["durable", "loss", "kept", "nothing"]

# Why a cycle has no result for a drive.
Cause: TypeAlias = Literal[
    "switch",  # no switch confirmed that the power was off
    "not-a-cut",  # a switch confirmed the off, but the machine or the drive kept running
    "operator",  # an operator paused or stopped the campaign before the cut
    "agent",  # the agent or its run ended before the cut, or the server was away
    "not-armed",  # the run did not become armed in time
    "drive",  # the drive was missing or too small, did not mount, failed under load …
    "no-verdict",  # there was a cut, but no verdict
    "inconclusive",  # there was a cut, but the verdict is inconclusive
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Began:
    """The campaign begins with these settings; with `check_only`, only its check."""

    settings: Settings
    check_only: Flag
    kind: Literal["began"] = "began"


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleBegan:
    """Cycle `cycle` begins. Its times are in seconds, drawn from the intervals of the arm (fixed for the
    check)."""

    cycle: Natural  # 0 is the check
    arm: Text  # name of the arm that the drives run, "" for the check
    drives: tuple[Text, ...]  # drives that take part
    cut_after_s: Finite  # from the armed runs to the cut
    off_s: Finite  # without power
    again_after_s: Finite | None  # with power before the second cut, None without a second cut
    kind: Literal["cycle-began"] = "cycle-began"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSeen:
    """A machine's agent asks for its task for the first time in this boot."""

    machine: Text
    boot_id: Text
    machine_id: Text
    uptime_s: Finite
    virtualisation: Text
    software: Text
    client: Text = ""  # id with which the agent joined
    kind: Literal["machine-seen"] = "machine-seen"


@dataclass(frozen=True, slots=True, kw_only=True)
class StrangerHeard:
    """An agent that must not have the machine's task asks for it: another machine than the checked one, or a
    machine whose power must not be cut. Logged once until the machine itself is heard or its power is
    back."""

    machine: Text
    text: Text
    kind: Literal["stranger-heard"] = "stranger-heard"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveReported:
    """An agent reports a new status of a drive."""

    machine: Text
    task: Natural  # number of the task that the status is about
    what: TaskKind  # kind of that task
    status: DriveStatus
    kind: Literal["drive-reported"] = "drive-reported"


@dataclass(frozen=True, slots=True, kw_only=True)
class CutDue:
    """Every run is armed or will not be armed any more. The cut is due in `in_s`."""

    in_s: Finite  # seconds from this entry
    kind: Literal["cut-due"] = "cut-due"


@dataclass(frozen=True, slots=True, kw_only=True)
class WritersHeld:
    """The server gives writers no credit from now on."""

    # Seconds from this entry to the cut. 0 while writers may have credit left: a second entry follows once
    # they have none.
    in_s: Finite
    kind: Literal["writers-held"] = "writers-held"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownDue:
    """The machines are to shut down cleanly."""

    kind: Literal["shutdown-due"] = "shutdown-due"


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandoned:
    """This cycle gets no cut that counts, for the cause `cause`. Its runs are stopped and verified. In the
    phase `shutdown` the machines that are down are still switched off and on, and only a loss counts."""

    cause: Cause
    text: Text
    kind: Literal["abandoned"] = "abandoned"


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerAsked:
    """The server is about to send a request to a switch. Switches are numbered as in the settings."""

    switch: Natural
    operation: Operation
    kind: Literal["power-asked"] = "power-asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerAnswered:
    """The answer of a switch, with the times at which the request began and ended."""

    switch: Natural
    operation: Operation
    outcome: SwitchOutcome
    text: Text
    began_ns: Natural
    ended_ns: Natural
    kind: Literal["power-answered"] = "power-answered"


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerWentOff:
    """All switches that were asked have confirmed that the power is off."""

    asked_ns: Natural  # when the first request was about to be sent, 0 if that was in another boot
    confirmed_ns: Natural  # when the last switch had confirmed
    runs: tuple[Text, ...]  # armed runs whose machine lost its power, 16 hex digits each
    kind: Literal["power-went-off"] = "power-went-off"


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerFailed:
    """A request to switch has failed."""

    on: Flag  # whether the request was to switch on
    reason: Text
    kind: Literal["power-failed"] = "power-failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerCameBack:
    """All switches that were asked have confirmed that the power is on."""

    kind: Literal["power-came-back"] = "power-came-back"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotBack:
    """A machine did not ask for its task in time after its power was back."""

    machine: Text
    kind: Literal["not-back"] = "not-back"


@dataclass(frozen=True, slots=True, kw_only=True)
class StillThere:
    """A machine kept running in spite of a confirmed off."""

    machine: Text
    text: Text
    kind: Literal["still-there"] = "still-there"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The verdict on a drive's run."""

    drive: Text
    run: Text
    verdict: Text  # "" if the server has no verdict
    cut_class: Text
    reasons: tuple[Text, ...]  # codes of the reasons
    at_risk_ms1000: Natural
    commit_p50_us: Finite | None  # commit latency in microseconds, None if the run reported none
    commit_p99_us: Finite | None
    target_error: Text = ""  # the I/O error that ended the run, "" for none
    # The run's server and the log of the switches use different clocks, so operations at risk are unknown.
    other_clock: Flag = False
    # Whether the run was armed; True if the server cannot tell. A run that was never armed acknowledged
    # nothing, so it can lose nothing.
    armed: Flag = True
    kind: Literal["judged"] = "judged"

    @property
    def is_final_loss(self) -> bool:
        """Whether this is a loss that no later verify of the run withdraws: not one by unreadable data
        alone."""
        return self.verdict == "loss" and "unreadable-only" not in self.reasons


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveCycle:
    """The outcome of a cycle for a drive."""

    drive: Text
    # "durable", "loss", "kept" (an arm that asks another question found all data in place) or "nothing".
    word: OutcomeWord
    cause: Cause | None  # why the word is "nothing"
    text: Text  # the cause in words
    run: Text  # the run of this cycle, "" for none
    cut: Flag  # whether the drive lost its power while the run was armed


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleEnded:
    """A cycle has ended, with an outcome for each drive that took part."""

    cycle: Natural
    drives: tuple[DriveCycle, ...]
    kind: Literal["cycle-ended"] = "cycle-ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedLate:
    """The verdict on a run whose cycle ended without one, looked up again. The verdict is "" if there is
    still none. A loss counts in the cycle `cycle`."""

    cycle: Natural
    judged: Judged
    kind: Literal["judged-late"] = "judged-late"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The check has ended."""

    problems: tuple[Text, ...]  # why the campaign must not begin, in sentences; () if it may
    notes: tuple[Text, ...] = ()  # what the check could not check, in sentences
    kind: Literal["checked"] = "checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveLeft:
    """A drive no longer takes part."""

    drive: Text
    reason: Text
    kind: Literal["drive-left"] = "drive-left"


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseAsked:
    """An operator asks the campaign to pause, or with `stop` to end, as soon as the cycle can end cleanly."""

    stop: Flag
    kind: Literal["pause-asked"] = "pause-asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """The campaign is paused until it is resumed."""

    reason: Text
    kind: Literal["paused"] = "paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """The campaign goes on, or a request to pause is withdrawn."""

    kind: Literal["resumed"] = "resumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The campaign has ended and cannot be resumed. Only if it has had no cycle besides checks may it begin
    again."""

    reason: Text
    kind: Literal["ended"] = "ended"


Happening: TypeAlias = (
    Began
    | CycleBegan
    | MachineSeen
    | StrangerHeard
    | DriveReported
    | CutDue
    | WritersHeld
    | ShutdownDue
    | Abandoned
    | PowerAsked
    | PowerAnswered
    | PowerWentOff
    | PowerFailed
    | PowerCameBack
    | NotBack
    | StillThere
    | Judged
    | CycleEnded
    | JudgedLate
    | Checked
    | DriveLeft
    | PauseAsked
    | Paused
    | Resumed
    | Ended
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of a campaign's log."""

    number: Natural  # counted from 1
    at_ns: Natural  # CLOCK_BOOTTIME of the server's boot `boot_id`
    boot_id: Text
    wall: Text  # UTC, ISO 8601
    happening: Annotated[Happening, tagged("kind")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    """A moment on a server's clocks, as in an `Entry`."""

    at_ns: int
    boot_id: str
    wall: str

    def age_estimate_s(self, entry: Entry) -> float:
        """Estimated seconds since an entry. For an entry of another boot, the difference of the dates is
        used: dates may be wrong, so the estimate may be too high, too low or negative. An estimate that is
        too low may only delay a finding, and one that is too high may only leave out a cycle. No verdict may
        depend on it."""
        if self.boot_id == entry.boot_id:
            return (self.at_ns - entry.at_ns) / 1e9
        return (datetime.fromisoformat(self.wall) - datetime.fromisoformat(entry.wall)).total_seconds()


def entry_to_value(entry: Entry) -> dict[str, Value]:
    """The entry as plain values, for the store and for exports."""
    return to_value(entry)


def entry_from_value(value: object) -> Entry:
    """The entry in a value that `entry_to_value` wrote. Raises FormatError."""
    return from_value(Entry, value)
