"""The case: everything that the server knows of one run, as sent to `verify` or exported to a file.

A judge needs nothing else except the target itself. Times are nanoseconds of the server's CLOCK_BOOTTIME.
They can be compared only if the server's boot id is the same.
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
RUNS_SCHEMA = "durability.runs/1"  # a list of many cases
SHOW_SCHEMA = "durability.show/1"  # one case with its verdicts and evidence

# How the server saw the client's session end.
SessionEnd: TypeAlias = Literal[
    "never", "live", "silence", "fin", "rst", "target-error", "client-error", "stop", "server-down"
]
TRACES_OF_A_CUT: frozenset[SessionEnd] = frozenset({"silence", "target-error"})  # rule 12: the only such ends
# Session ends that a cut may have caused. At "server-down", no server was running that could see a cut.
PERHAPS_CUT: frozenset[SessionEnd] = TRACES_OF_A_CUT | {"server-down"}
# Start of the text of an `rst` event if the RST came from outside. Otherwise this server closed the
# connection.
RESET = "the connection was reset"
# Event kind: nothing of the run is left to verify. The event's text says why.
FILES_REMOVED = "files-removed"
# Event kind: the client fell silent, but its kernel still acknowledged data that the server sent.
KERNEL_ALIVE = "kernel-alive"
# Event kind: the server ended while a silent client's kernel still acknowledged data. It is unknown for how
# long the kernel went on.
LOST_SIGHT = "lost-sight"
REBOOT = "reboot"  # event kind: the server's machine restarted, so earlier times have another clock

# Cut classes that can be attested, strongest first: everything lost its power, a guest died, an operating
# system died.
ProvableCutClass: TypeAlias = Literal["power", "vm", "os"]
PROVABLE_CUT_CLASSES: tuple[ProvableCutClass, ...] = get_args(ProvableCutClass)

# State of the drives after an I/O error of the target, as the client found it by uncached reads: at least one
# drive answered; every read failed on all drives; a read did not return; or the client could not look.
DriveState: TypeAlias = Literal["answered", "dead", "silent", "unseen"]
DRIVE_STATES: tuple[DriveState, ...] = get_args(DriveState)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """At `at_ns` the server received these frontiers: per writer, the seq up to which all operations were
    acknowledged."""

    at_ns: int
    frontiers: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event of the run, as the server saw it."""

    at_ns: int
    wall: str  # UTC, ISO 8601; only for people
    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PastVerdict:
    """The verdict of an earlier verify, of this run or of another run of the same series."""

    run: str
    verdict: str
    cut_class: str
    at_risk_ms1000: int
    wall: str
    reasons: tuple[str, ...] = ()  # codes of the reasons
    # Enumerations of the run's drives (`drive_identity.enumerations`); () if unknown.
    enumerations: tuple[str, ...] = ()


# Fields of `PastVerdict` that the first release does not know and rejects.
NEWER_OF_VERDICTS = ("enumerations",)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFailure:
    """The I/O error of the target that ended the run's load."""

    at_ns: int  # latest time at which the error can have occurred
    drive: DriveState  # state of the drives then; "unseen" until the client reports it
    text: str  # the state of the drives, for people


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerOff:
    """A power controller switched off a machine, or a drive alone. Times are on the clock of the server's
    boot `boot_id`."""

    asked_ns: int  # when the first request was sent
    confirmed_ns: int  # when the last switch had confirmed that it is off
    boot_id: str
    subject: Literal["machine", "drive"]  # what lost its power
    cut_class: ProvableCutClass  # strongest class that this can prove
    text: str  # for people: which switches, and the reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a `verify` found of a machine and its drives before it read them."""

    run: str  # run that was verified, 16 hex digits
    at_ns: int  # on the clock of the server's boot `boot_id`
    boot_id: str
    wall: str  # UTC, ISO 8601; only for people
    facts: Facts  # without the parts that take much space
    answers: bool  # whether a superblock of that run could be read
    attested: str  # the operator's statement about the cut; "" if there is none
    cut_class: ProvableCutClass | None  # class that the operator named; None if no class was named

    def tells_more_than(self, earlier: Look) -> bool:
        """Whether this look differs in its information from an earlier one."""
        return self._told != earlier._told

    @property
    def _told(self) -> tuple[object, ...]:
        host = self.facts.host
        drives = [(one.name, one.serial, one.diskseq, one.unsafe_shutdowns) for one in self.facts.drives]
        said = (self.run, self.attested, self.cut_class) if self.attested else None
        return host.machine_id, host.boot_id, drives, self.answers, said


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldUp:
    """Frames that came late, because the network or the server stood still. Frames that came by `until_ns`,
    and were not held up earlier, may have been sent at any time since `from_ns`."""

    from_ns: int
    until_ns: int
    frontiers: tuple[int, ...]  # the last frontiers in these frames


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run as the server has it."""

    schema: str
    run: str  # 16 hex digits
    label: str
    plan: str  # the encoded plan as hex
    armed: Facts | None  # the facts at arming, None before it
    state: str
    session_end: SessionEnd
    frontiers: tuple[int, ...]  # per writer, the newest acknowledgement received (rule 4's A)
    grants: tuple[int, ...]  # per writer, the frontier for which it was last granted credit
    control: int  # number of writes that the control arm completed
    # Ordered by time; the last entry is the last change of a frontier; spacing grows with age (about 1/64 of
    # the age).
    timeline: tuple[Receipt, ...]
    # When the last frame of any kind came, or the kernel of a client that had fallen silent last acknowledged
    # data.
    last_receipt_ns: int
    now_ns: int
    server_boot_id: str
    receipt_boot_id: str
    rtt_max_ns: int
    gap_max_ns: int
    heartbeat_ns: int
    events: tuple[Event, ...]
    tainted: str  # why the run cannot be judged durable; "" if it can
    superseded_by: str  # a later run on the same target, or ""
    verdicts: tuple[PastVerdict, ...]  # verdicts of this run
    # The weightiest verdict of each other run of the series (same stack and plan); "unverified" for runs that
    # were cut but never verified.
    series: tuple[PastVerdict, ...]
    statistics: Statistics | None = None  # the newest statistics that the client sent, None if it sent none
    # Grants that may have been the last to reach the client, oldest first; empty: `grants` alone.
    credits: tuple[tuple[int, ...], ...] = ()
    # None if the client reported no error, and in exports of releases that did not look at the drives.
    target_error: TargetFailure | None = None
    # Runs that were registered earlier on the same target, with any plan, oldest first.
    predecessors: tuple[str, ...] = ()
    power_offs: tuple[PowerOff, ...] = ()  # confirmed power-offs since arming, oldest first
    held_up: tuple[HeldUp, ...] = ()  # the newest stretches of frames that came late, oldest first
    # Encoded plans, as hex, of runs registered later on the same target, if none of them was ever armed;
    # empty also if the server does not report them.
    attempts: tuple[str, ...] = ()
    # Looks of verify calls, also for other runs, at the machine and drives of this run, oldest first; at most
    # `limits.LOOKS_MAX`.
    looks: tuple[Look, ...] = ()

    @property
    def power_off(self) -> PowerOff | None:
        """The first power-off, if its times can be compared with those of the receipts."""
        first = next(iter(self.power_offs), None)
        return first if first is not None and not self.off_by_another_clock else None

    @property
    def off_by_another_clock(self) -> bool:
        """Whether a controller switched off, but the time between the last frame and that is unknown. The
        controller's log has the clock of another machine or boot than the receipts."""
        first = next(iter(self.power_offs), None)
        return first is not None and first.boot_id != self.receipt_boot_id

    @property
    def failed(self) -> bool:
        """Whether the target's I/O error ended the load."""
        return self.session_end == "target-error" or self.target_error is not None


# Fields of `Case` that the first release does not know and rejects.
NEWER_OF_CASES = ("attempts", "looks")


def case_to_value(case: Case) -> dict[str, Value]:
    """The case as plain values: the payload of the `Case` message and, as JSON, of an export file."""
    return to_value(case)


def case_from_value(value: object) -> Case:
    """Read what `case_to_value` wrote. Raises FormatError for anything else, also for an unknown schema."""
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
