"""Values that the store takes and returns: a run at its registration, its changes, and the stored run.

Plain values without a database, so that their users need not know the tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

from durability.errors import RefusedError
from durability.formats.case import Event, Look, PastVerdict, PowerOff, SessionEnd
from durability.formats.facts import Facts
from durability.formats.packing import Value
from durability.units import format_run
from durability_server.store.target_keys import TargetKeys

RunState: TypeAlias = Literal["registered", "armed", "stopped", "ended"]
# Why a run was not saved. "moved": another server has taken the run. "behind": the database lacks what this
# server saved last, as after a failover to a standby. No server has taken the run, so save the complete run.
# "gone": the database also lacks that this server took the run, or the run itself.
Unsaved: TypeAlias = Literal["moved", "behind", "gone"]

EVENTS_MAX = 256  # events per run; older ones are dropped


class MovedError(RefusedError):
    """Another server has the run. Its client connects again and finds that server."""

    def __init__(self, run: int, why: str = "is another server's now") -> None:
        code = "moved"
        super().__init__(code, f"run {format_run(run)} {why}: connect again")


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """The fixed part of a run. `facts`: the facts of its target known at registration."""

    run: int
    client: str
    label: str
    plan: bytes
    secret: bytes
    facts: Facts
    keys: TargetKeys
    path: str
    host: str
    wall: str
    writers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSnapshot:
    """The changing part of a run. A packed field that is None leaves the stored value unchanged."""

    run: int
    finish: str  # "", "stopped" or "ended"
    session_end: SessionEnd
    frontiers: tuple[int, ...]
    control: int
    last_receipt_ns: int
    receipt_boot_id: str
    receipt_wall: str
    rtt_max_ns: int
    gap_max_ns: int
    tainted: str
    timeline: bytes | None  # packed
    statistics: bytes | None  # packed
    events: tuple[tuple[int, Event], ...]  # the numbered events not saved before
    credits: bytes | None = None  # packed
    target_error: bytes | None = None  # packed
    # Rises whenever a server takes the run. The store accepts the snapshot if this server holds the run with
    # this epoch. It also accepts it if no save has followed the one that this server loaded (`follows` and
    # `saves`).
    epoch: int = 0
    follows: int = 0  # epoch of the run when it was loaded
    saves: int = 0  # number of its last save when it was loaded
    save: int = 1  # number of this snapshot, higher than that of each earlier one
    # Number of the last snapshot that this server knows to be durable, 0 for none. A store that has only
    # older ones has gone back. It then accepts only a whole snapshot: with all events and frontiers, and
    # `whole`.
    last_save: int = 0
    whole: StoredRun | None = None  # the data that are stored once, at arming
    # Frontiers that this server saved last, () for none. An unchanged frontier is not written again.
    durable: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """A run as the store has it."""

    number: int
    client: str  # owner of the run
    label: str
    plan: bytes
    secret: bytes
    keys: TargetKeys
    host: str
    armed: Value  # value of the facts at arming, None before that
    series: str
    snapshot: RunSnapshot
    held_at: str = ""  # address of another live server that holds the run, "" for none


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHead:
    """The fields that decide who may do what with a run."""

    run: int
    client: str  # owner of the run
    host: str
    secret: bytes
    state: RunState
    session_end: SessionEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptLook:
    """A look as the store keeps it for `run`. The run had received nothing after `receipt_ns`."""

    run: str  # 16 hex digits
    look: Look
    receipt_ns: int  # on the clock of the server's boot `receipt_boot_id`
    receipt_boot_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Relations:
    """What other runs and earlier looks say about a run. Lists start with the oldest, except `attempts`."""

    # A run registered later on the same target or on one that overlaps, or "". It may have prefilled the
    # target.
    superseded_by: str
    verdicts: tuple[PastVerdict, ...]  # verdicts of the run itself
    # The weightiest verdict of each other run of the series, or "unverified" after a possible cut.
    series: tuple[PastVerdict, ...]
    predecessors: tuple[str, ...] = ()  # runs registered earlier on the same target
    power_offs: tuple[PowerOff, ...] = ()  # those that ended the run
    # Plans of all later runs on the target, newest first. Empty if one was armed, if one is on a target that
    # overlaps, or if there are more than `store.ATTEMPTS_MAX`.
    attempts: tuple[bytes, ...] = ()
    looks: tuple[Look, ...] = ()  # findings of earlier calls of `verify`


NO_RELATIONS = Relations(superseded_by="", verdicts=(), series=())  # for the only run on its target


def state_of(finish: str, *, armed: bool) -> RunState:
    """The state of a run. Arming and finishing are stored apart, so that neither can undo the other."""
    if finish in ("stopped", "ended"):
        return cast(RunState, finish)
    return "armed" if armed else "registered"
