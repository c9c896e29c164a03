"""The case: what the server knows of one run, as handed to `verify` or exported to a file.

It is all that a judge needs beside the target itself. Times are nanoseconds of the server's CLOCK_BOOTTIME
and compare only where the server's boot id is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from durability.errors import FormatError
from durability.formats.documents import from_value, to_value
from durability.formats.facts import Facts
from durability.formats.packing import Value
from durability.formats.run_statistics import Statistics

CASE_SCHEMA = "durability.case/1"
RUNS_SCHEMA = "durability.runs/1"  # what is listed of many cases
SHOW_SCHEMA = "durability.show/1"  # one case with its verdicts and evidence

# How the server saw the client's session end.
SessionEnd: TypeAlias = Literal[
    "never", "live", "silence", "fin", "rst", "target-error", "client-error", "stop", "server-down"
]
TRACES_OF_A_CUT: frozenset[SessionEnd] = frozenset({"silence", "target-error"})  # rule 12: no other end is
# A cut may have ended these: of the last one no server was there to see it.
PERHAPS_CUT: frozenset[SessionEnd] = TRACES_OF_A_CUT | {"server-down"}
# How the text of an event `rst` begins where the RST came from outside; else this server closed it.
RESET = "the connection was reset"
# The kind of the event that says that nothing of the run is left to verify, and why, in its text.
FILES_REMOVED = "files-removed"
# The kind of the event that says that the client fell silent, and its kernel still took what was sent to it.
KERNEL_ALIVE = "kernel-alive"
# The kind of the event that says that the server ended while such a client's kernel still took what it sent:
# nobody saw for how long that went on.
LOST_SIGHT = "lost-sight"
REBOOT = "reboot"  # of the server's machine: times before are of another clock

# What may be attested of a cut, in falling order: all lost its power, a guest died, an operating system died.
ProvableCutClass: TypeAlias = Literal["power", "vm", "os"]
PROVABLE_CUT_CLASSES: tuple[ProvableCutClass, ...] = get_args(ProvableCutClass)

# What the client saw of the drives after an I/O error of the target, by reads past every cache: at least one
# drive answered; every read failed, on all of them; a read did not return; or it could not look.
DriveState: TypeAlias = Literal["answered", "dead", "silent", "unseen"]
DRIVE_STATES: tuple[DriveState, ...] = get_args(DriveState)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """At `at_ns` the server received these frontiers: per writer the seq up to which all was acknowledged."""

    at_ns: int
    frontiers: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to the run, as the server saw it; `wall` is UTC ISO 8601, for people only."""

    at_ns: int
    wall: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PastVerdict:
    """The verdict of an earlier verify, of this run or of another run of the same series. `reasons`: their
    codes. `enumerations`: of the drives that the run was made on (`drive_identity.enumerations`); () where
    nobody says."""

    run: str
    verdict: str
    cut_class: str
    at_risk_ms1000: int
    wall: str
    reasons: tuple[str, ...] = ()
    enumerations: tuple[str, ...] = ()


# Fields of `PastVerdict` that the first release does not have, and refuses.
NEWER_OF_VERDICTS = ("enumerations",)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFailure:
    """The I/O error of the target that ended the run's load. `at_ns`: when the error came, at the latest.
    `drive`: what was seen of the drives then, "unseen" until the client reports it; `text` says it for
    people."""

    at_ns: int
    drive: DriveState
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerOff:
    """A power controller switched off a machine, or a drive alone: the first request went out at `asked_ns`,
    and at `confirmed_ns` the last switch had said that it is off; both on the clock of the server's boot
    `boot_id`. `subject`: what lost its power. `cut_class`: what it stands for at most. `text`: for people,
    which switch and what for."""

    asked_ns: int
    confirmed_ns: int
    boot_id: str
    subject: Literal["machine", "drive"]
    cut_class: ProvableCutClass
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a `verify` of `run` (16 hex digits) found of a machine and drives before it read them, at `at_ns`
    on the clock of the server's boot `boot_id`; `wall` is UTC ISO 8601, for people only. `facts` are without
    what takes much room. `answers`: whether a superblock of that run could be read. `attested`: what its
    operator said of the cut, "" for nothing, and `cut_class` of which class; None: no class was named."""

    run: str
    at_ns: int
    boot_id: str
    wall: str
    facts: Facts
    answers: bool
    attested: str
    cut_class: ProvableCutClass | None

    def tells_more_than(self, earlier: Look) -> bool:
        """Whether it tells anything that an earlier one does not."""
        return self._told != earlier._told

    @property
    def _told(self) -> tuple[object, ...]:
        host = self.facts.host
        drives = [(one.name, one.serial, one.diskseq, one.unsafe_shutdowns) for one in self.facts.drives]
        said = (self.run, self.attested, self.cut_class) if self.attested else None
        return host.machine_id, host.boot_id, drives, self.answers, said


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldUp:
    """Frames that came late, since the network or the server stood still. What came by `until_ns`, and was
    not held up earlier, may have been sent at any time since `from_ns`; `frontiers` are the last of it."""

    from_ns: int
    until_ns: int
    frontiers: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run as the server has it.

    `run` is 16 hex digits; `plan` the encoded plan as hex. `frontiers`: newest acknowledgement received, per
    writer (rule 4's A). `grants`: the frontier that each writer was last granted credit for; `credits`: the
    grants that may have been the last to reach the client, oldest first (empty: `grants` alone). `control`:
    writes that the control arm completed. `armed`: the facts at arming, None before it. `timeline` is
    ordered by time, its last entry is the last change of a frontier; spacing grows with age (about 1/64 of
    it). `last_receipt_ns`: when the last frame of any kind came, or the kernel of a client that had fallen
    silent last acknowledged something. `tainted` holds the reason why the run cannot be judged durable, or
    "". `superseded_by`: a later run on the same target, or "". `verdicts`: of
    this run; `series`: the weightiest verdict of each other run of the series (same stack and plan), with the
    verdict "unverified" for runs that were cut but never verified. `statistics`: the newest
    that the client sent, None where it sent none. `predecessors`: runs that were registered earlier on the
    same target, whatever their plan, oldest first. `target_error`: None where the client reported none, and
    in exports of releases that did not look at the drives. `power_offs`: the confirmed ones since arming,
    oldest first. `held_up`: the newest stretches of frames that came late, oldest first. `attempts`: encoded
    plans, as hex, of the runs that were registered later on the same target, if none of them was ever armed;
    empty also where the server does not say. `looks`: what calls of `verify` have told of the machine and the
    drives of this run, also those of other runs, oldest first; not more than `limits.LOOKS_MAX`.
    """

    schema: str
    run: str
    label: str
    plan: str
    armed: Facts | None
    state: str
    session_end: SessionEnd
    frontiers: tuple[int, ...]
    grants: tuple[int, ...]
    control: int
    timeline: tuple[Receipt, ...]
    last_receipt_ns: int
    now_ns: int
    server_boot_id: str
    receipt_boot_id: str
    rtt_max_ns: int
    gap_max_ns: int
    heartbeat_ns: int
    events: tuple[Event, ...]
    tainted: str
    superseded_by: str
    verdicts: tuple[PastVerdict, ...]
    series: tuple[PastVerdict, ...]
    statistics: Statistics | None = None
    credits: tuple[tuple[int, ...], ...] = ()
    target_error: TargetFailure | None = None
    predecessors: tuple[str, ...] = ()
    power_offs: tuple[PowerOff, ...] = ()
    held_up: tuple[HeldUp, ...] = ()
    attempts: tuple[str, ...] = ()
    looks: tuple[Look, ...] = ()

    @property
    def power_off(self) -> PowerOff | None:
        """The first one, if its times compare with those of the receipts."""
        first = next(iter(self.power_offs), None)
        return first if first is not None and not self.off_by_another_clock else None

    @property
    def off_by_another_clock(self) -> bool:
        """Whether a controller switched off, and how long after the last frame is not known: its log has the
        clock of another machine, or of another boot, than the receipts."""
        first = next(iter(self.power_offs), None)
        return first is not None and first.boot_id != self.receipt_boot_id

    @property
    def failed(self) -> bool:
        """Whether the target's I/O error ended the load."""
        return self.session_end == "target-error" or self.target_error is not None


# Fields of `Case` that the first release does not have, and refuses.
NEWER_OF_CASES = ("attempts", "looks")


def case_to_value(case: Case) -> dict[str, Value]:
    """The case as plain values: the payload of the `Case` message and, as JSON, of an export file."""
    return to_value(case)


def case_from_value(value: object) -> Case:
    """Reads what `case_to_value` wrote. Raises FormatError, also for an unknown schema."""
    schema = value.get("schema") if isinstance(value, dict) else None
    if schema != CASE_SCHEMA:
        raise FormatError(
            f"schema is {schema!r}, expected {CASE_SCHEMA!r}: not an export of a run, or from another release"
        )
    case = from_value(Case, value)
    try:
        bytes.fromhex(case.plan)
    except ValueError:
        raise FormatError("the plan is not of hexadecimal digits, as in an export that is whole") from None
    if case.statistics is not None:
        case.statistics.require_possible()
    return case
