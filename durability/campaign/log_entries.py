"""What happens in a campaign: the entries of its log, which is all that the server keeps of it.

Every step is an entry before it is taken, so the log says after any crash what is to be done next; all steps
can be taken twice. Entries are only ever added. Times of power are nanoseconds of the server's
CLOCK_BOOTTIME, and compare only within one boot of the server. Refuses entries of kinds that it does not
know.
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

# Why a cycle says nothing of a drive.
Cause: TypeAlias = Literal[
    "switch",  # no switch confirmed that the power was off
    "not-a-cut",  # a switch confirmed it, and the machine or the drive went on
    "operator",  # paused or stopped before the cut
    "agent",  # the agent or its run ended before the cut, or the server was not there
    "not-armed",  # the run did not become armed
    "drive",  # the drive was not there, was too small, did not mount, failed under load …
    "no-verdict",  # there was a cut, and no verdict on it
    "inconclusive",  # there was a cut, and the verdict is inconclusive
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Began:
    """The campaign, or only its check, begins with these settings."""

    settings: Settings
    check_only: Flag
    kind: Literal["began"] = "began"


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleBegan:
    """Cycle `cycle` begins, 0 is the check. `arm` names what `drives` run; times as they were drawn."""

    cycle: Natural
    arm: Text
    drives: tuple[Text, ...]
    cut_after_s: Finite
    off_s: Finite
    again_after_s: Finite | None
    kind: Literal["cycle-began"] = "cycle-began"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSeen:
    """A machine's agent asks for the first time in this boot of its. `client`: the id with which it
    joined."""

    machine: Text
    boot_id: Text
    machine_id: Text
    uptime_s: Finite
    virtualisation: Text
    software: Text
    client: Text = ""
    kind: Literal["machine-seen"] = "machine-seen"


@dataclass(frozen=True, slots=True, kw_only=True)
class StrangerHeard:
    """Somebody asks for the machine's task who must not have it: another machine than the one that was
    checked, or one whose power must not be cut. Said once, until the machine itself is heard or its
    power is back."""

    machine: Text
    text: Text
    kind: Literal["stranger-heard"] = "stranger-heard"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveReported:
    """What an agent says of a drive has changed. `task`: the number of the task that it is about."""

    machine: Text
    task: Natural
    what: TaskKind
    status: DriveStatus
    kind: Literal["drive-reported"] = "drive-reported"


@dataclass(frozen=True, slots=True, kw_only=True)
class CutDue:
    """All runs are armed, or as far as they are to be: the power is to go `in_s` from now."""

    in_s: Finite
    kind: Literal["cut-due"] = "cut-due"


@dataclass(frozen=True, slots=True, kw_only=True)
class WritersHeld:
    """No writer gets credit from now on. `in_s`: 0 while writers may have credit left; another entry follows
    once they have none, and the power is to go `in_s` after that."""

    in_s: Finite
    kind: Literal["writers-held"] = "writers-held"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownDue:
    """The machines are to shut down in order."""

    kind: Literal["shutdown-due"] = "shutdown-due"


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandoned:
    """There will be no cut in this cycle, for the cause that is named. Its runs are stopped and verified. In
    the phase `shutdown` the power goes all the same, and only a loss counts."""

    cause: Cause
    text: Text
    kind: Literal["abandoned"] = "abandoned"


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerAsked:
    """A switch, numbered as in the settings, is about to be asked."""

    switch: Natural
    operation: Operation
    kind: Literal["power-asked"] = "power-asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerAnswered:
    """What the switch answered, and when."""

    switch: Natural
    operation: Operation
    outcome: SwitchOutcome
    text: Text
    began_ns: Natural
    ended_ns: Natural
    kind: Literal["power-answered"] = "power-answered"


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerWentOff:
    """All switches have confirmed that the power is off. `asked_ns`: when the first was about to be asked.
    `runs`: those that it ended, 16 hex digits each."""

    asked_ns: Natural
    confirmed_ns: Natural
    runs: tuple[Text, ...]
    kind: Literal["power-went-off"] = "power-went-off"


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerFailed:
    """The switches did not do what was asked. `on`: whether they were to switch on."""

    on: Flag
    reason: Text
    kind: Literal["power-failed"] = "power-failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerCameBack:
    """All switches have confirmed that the power is on."""

    kind: Literal["power-came-back"] = "power-came-back"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotBack:
    """A machine did not ask for its task in time after its power was back."""

    machine: Text
    kind: Literal["not-back"] = "not-back"


@dataclass(frozen=True, slots=True, kw_only=True)
class StillThere:
    """A machine, or a drive of its, went on in spite of a confirmed off."""

    machine: Text
    text: Text
    kind: Literal["still-there"] = "still-there"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The verdict on a drive's run, as the server has it, "" if it has none. `reasons`: its codes. Commit
    latencies in microseconds, None where the run said none. `target_error`: the I/O error that ended the run,
    "" for none. `other_clock`: the run's server had another clock than the log of the switches, so nothing is
    known to be at risk. `armed`: whether the server knows the run as armed, also where it cannot tell; of one
    that was not, nothing was acknowledged, so nothing can be lost."""

    drive: Text
    run: Text
    verdict: Text
    cut_class: Text
    reasons: tuple[Text, ...]
    at_risk_ms1000: Natural
    commit_p50_us: Finite | None
    commit_p99_us: Finite | None
    target_error: Text = ""
    other_clock: Flag = False
    armed: Flag = True
    kind: Literal["judged"] = "judged"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveCycle:
    """What a cycle says of a drive. `word`: durable, loss, kept (an arm that asks another question found all
    in place), or nothing; then `cause` and `text` say why. `run`: to look at, "" for none. `cut`: whether the
    power went while the run was armed."""

    drive: Text
    word: OutcomeWord
    cause: Cause | None
    text: Text
    run: Text
    cut: Flag


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleEnded:
    """A cycle is over, with what it says of each drive that took part."""

    cycle: Natural
    drives: tuple[DriveCycle, ...]
    kind: Literal["cycle-ended"] = "cycle-ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedLate:
    """The verdict on the run of a cycle that is over, looked up anew since it had none, "" if there is none
    yet. A loss counts in that cycle."""

    cycle: Natural
    judged: Judged
    kind: Literal["judged-late"] = "judged-late"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The check is over. `problems`: why the campaign must not begin, none if it may. `notes`: what it could
    not check, a sentence each."""

    problems: tuple[Text, ...]
    notes: tuple[Text, ...] = ()
    kind: Literal["checked"] = "checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveLeft:
    """A drive takes part no more."""

    drive: Text
    reason: Text
    kind: Literal["drive-left"] = "drive-left"


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseAsked:
    """An operator wants the campaign to pause, or (`stop`) to end, as soon as all can be left in order."""

    stop: Flag
    kind: Literal["pause-asked"] = "pause-asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """Nothing more is done until it is resumed."""

    reason: Text
    kind: Literal["paused"] = "paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """It goes on."""

    kind: Literal["resumed"] = "resumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """It is over, for ever."""

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
    """One entry of a campaign's log, numbered from 1. `at_ns` is of the server's boot `boot_id`; `wall` is
    UTC, ISO 8601, for people."""

    number: Natural
    at_ns: Natural
    boot_id: Text
    wall: Text
    happening: Annotated[Happening, tagged("kind")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    """A moment on a server's clocks, as in an `Entry`."""

    at_ns: int
    boot_id: str
    wall: str

    def age_estimate_s(self, entry: Entry) -> float:
        """Seconds since an entry. Clocks of two boots compare by their dates only, and a date may be wrong:
        so for an entry of another boot they may be too many, too few, or below 0. Too few may only let
        something be found later, too many only leave a cycle out; no verdict may rest on them."""
        if self.boot_id == entry.boot_id:
            return (self.at_ns - entry.at_ns) / 1e9
        return (datetime.fromisoformat(self.wall) - datetime.fromisoformat(entry.wall)).total_seconds()


def entry_to_value(entry: Entry) -> dict[str, Value]:
    """The entry as plain values, for the store and for exports."""
    return to_value(entry)


def entry_from_value(value: object) -> Entry:
    """Reads what `entry_to_value` wrote. Raises FormatError."""
    return from_value(Entry, value)
