"""What the store takes and gives: a run at its registration, as it changes, and as it is stored.

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
# Why nothing was saved of a run. "moved": another server has taken it. "behind": the database lacks what this
# server saved last, as after a failover to a standby, and nobody has taken the run: save it whole. "gone": it
# also lacks that this server took the run, or the run itself.
Unsaved: TypeAlias = Literal["moved", "behind", "gone"]

EVENTS_MAX = 256  # per run; older ones are dropped


class MovedError(RefusedError):
    """Another server has the run; its client is to connect again, and finds that one."""

    def __init__(self, run: int, why: str = "is another server's now") -> None:
        code = "moved"
        super().__init__(code, f"run {format_run(run)} {why}: connect again")


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What is fixed when a run is registered. `facts`: what is known of its target then."""

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
    """What changes while a run goes on, whole. `finish` is "", "stopped" or "ended". `timeline`, `credits`,
    `statistics` and `target_error`, all packed, leave the stored ones where they are None; `events` are those
    not saved before, numbered. `durable`: the frontiers that this server saved last, () for none; what stands
    there as well is not written again.
    `epoch` rises whenever a server takes the run. The store takes the snapshot only if this server has the
    run with this epoch, or if nothing was saved since it was loaded: with the epoch `follows`, when the
    number of its last save was `saves`. `save` is the number of this one, higher than each before it.
    `last_save`: that of the last one which this server knows to be durable, 0 for none. A store that has only
    older ones has gone back, and takes no snapshot but a whole one: with all events and frontiers, and with
    `whole`, which has what was stored once, at arming.
    """

    run: int
    finish: str
    session_end: SessionEnd
    frontiers: tuple[int, ...]
    control: int
    last_receipt_ns: int
    receipt_boot_id: str
    receipt_wall: str
    rtt_max_ns: int
    gap_max_ns: int
    tainted: str
    timeline: bytes | None
    statistics: bytes | None
    events: tuple[tuple[int, Event], ...]
    credits: bytes | None = None
    target_error: bytes | None = None
    epoch: int = 0
    follows: int = 0
    saves: int = 0
    save: int = 1
    last_save: int = 0
    whole: StoredRun | None = None
    durable: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """A run as the store has it. `client`: whose run it is. `armed` is the value of the facts at arming, None
    before it. `held_at`: the address of another server that holds the run and lives, "" if there is none."""

    number: int
    client: str
    label: str
    plan: bytes
    secret: bytes
    keys: TargetKeys
    host: str
    armed: Value
    series: str
    snapshot: RunSnapshot
    held_at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHead:
    """What decides who may do what with a run, without its timeline. `client`: whose run it is."""

    run: int
    client: str
    host: str
    secret: bytes
    state: RunState
    session_end: SessionEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptLook:
    """A look as it is kept of `run` (16 hex digits), which had received nothing after `receipt_ns`, by the
    clock of the server's boot `receipt_boot_id`."""

    run: str
    look: Look
    receipt_ns: int
    receipt_boot_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Relations:
    """What other runs and earlier looks say about a run. `superseded_by`: a run registered later on the same
    target or one that overlaps (it may have prefilled it already), or "". `verdicts`: of the run itself,
    oldest first. `series`: of each other run of the series, oldest first, its weightiest verdict, or
    "unverified" after a cut. `predecessors`: the runs registered earlier on the same target, oldest first.
    `power_offs`: those that ended the run, oldest first. `attempts`: the plans of all later runs on the
    target, if none was armed and none is on one that overlaps. `looks`: what calls of `verify` found, oldest
    first."""

    superseded_by: str
    verdicts: tuple[PastVerdict, ...]
    series: tuple[PastVerdict, ...]
    predecessors: tuple[str, ...] = ()
    power_offs: tuple[PowerOff, ...] = ()
    attempts: tuple[bytes, ...] = ()
    looks: tuple[Look, ...] = ()


NO_RELATIONS = Relations(superseded_by="", verdicts=(), series=())  # of the only run on its target


def state_of(finish: str, *, armed: bool) -> RunState:
    """How far a run has come. Arming and finishing are stored apart, so that neither can undo the other."""
    if finish in ("stopped", "ended"):
        return cast(RunState, finish)
    return "armed" if armed else "registered"
