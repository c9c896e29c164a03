"""The present state of runs for viewers: one row each, without the evidence.

All functions run within a transaction of the caller. Nothing is judged here: reports of drive and client are
passed on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import ColumnElement, Connection, select

from durability.formats.case import SessionEnd
from durability.formats.packing import Value, unpack
from durability.units import format_run
from durability_server.store import tables
from durability_server.store.records import RunState, state_of
from durability_server.store.run_rows import data_of, in_turn, standing_verdicts


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveNow:
    """A drive below a run's target. `identity` is its name in the store."""

    identity: str
    model: str
    serial: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNow:
    """A run as it was last saved."""

    run: str
    client: str
    label: str
    path: str
    host: str
    plan: bytes
    state: RunState
    session_end: SessionEnd
    frontiers: tuple[int, ...]  # acknowledged operations of each writer
    last_receipt_ns: int  # on the clock of the boot `boot_id`
    boot_id: str
    last_receipt: str
    registered: str
    rtt_max_ns: int
    statistics: Value  # the newest of the client, None for none
    drive_seen: str  # state of the drives that the client saw after a target error, "" without an error
    verdict: str  # the verdict that counts, "" for none
    drives: tuple[DriveNow, ...]

    @property
    def acked(self) -> int:
        """Acknowledged operations of all writers together."""
        return sum(self.frontiers)


_COLUMNS = (
    *("run", "number", "client", "label", "path", "host", "plan", "finish", "session_end", "last_receipt_ns"),
    *("receipt_boot_id", "receipt_wall", "registered_wall", "rtt_max_ns", "holder"),
)


def rows_now(
    db: Connection, limit: int, *chosen: ColumnElement[bool], held_at: ColumnElement[Any]
) -> tuple[tuple[Any, RunNow], ...]:
    """The newest `limit` of the chosen runs, newest first, each with its row, from which the caller
    determines whether its session is live. If the limit excludes some, each client gets its share."""
    runs = tables.runs.c
    parts = (data_of(tables.statistics), data_of(tables.errors))
    wanted = select(*(runs[name] for name in _COLUMNS), runs.armed.is_not(None).label("is_armed"))
    wanted = wanted.add_columns(held_at, *parts).where(*chosen)
    wanted = wanted.order_by(*in_turn(runs.client, runs.number)).limit(limit)
    rows = sorted(db.execute(wanted).all(), key=lambda row: -row.number)
    names = [row.run for row in rows]
    frontiers, drives = _frontiers(db, names), _drives(db, names)
    given = standing_verdicts(db, select(runs.run).where(runs.run.in_(names)))
    found: list[tuple[Any, RunNow]] = []
    for row in rows:
        standing = given.get(row.run)
        error = cast(dict[str, Value], unpack(row.errors)) if row.errors is not None else {}
        now = RunNow(
            run=row.run,
            client=row.client,
            label=row.label,
            path=row.path,
            host=row.host,
            plan=row.plan,
            state=state_of(row.finish, armed=row.is_armed),
            session_end=row.session_end,
            frontiers=tuple(frontiers[row.run]),
            last_receipt_ns=row.last_receipt_ns,
            boot_id=row.receipt_boot_id,
            last_receipt=row.receipt_wall,
            registered=row.registered_wall,
            rtt_max_ns=row.rtt_max_ns,
            statistics=None if row.statistics is None else unpack(row.statistics),
            drive_seen=str(error.get("drive", "")),
            verdict=standing.verdict if standing else "",
            drives=tuple(drives[row.run]),
        )
        found.append((row, now))
    return tuple(found)


def named(runs: Sequence[int]) -> ColumnElement[bool]:
    """Whether a run is one of these runs."""
    return tables.runs.c.run.in_([format_run(run) for run in runs])


def is_live() -> ColumnElement[bool]:
    """Whether a run's client is connected, according to the row."""
    return tables.runs.c.session_end == "live"


def _frontiers(db: Connection, runs: Sequence[str]) -> defaultdict[str, list[int]]:
    columns = tables.frontiers.c
    wanted = select(columns.run, columns.acked).where(columns.run.in_(runs))
    found: defaultdict[str, list[int]] = defaultdict(list)
    for row in db.execute(wanted.order_by(columns.run, columns.writer)):
        found[row.run].append(row.acked)
    return found


def _drives(db: Connection, runs: Sequence[str]) -> defaultdict[str, list[DriveNow]]:
    columns = tables.run_drives.c
    wanted = select(tables.run_drives).where(columns.run.in_(runs)).order_by(columns.run, columns.number)
    found: defaultdict[str, list[DriveNow]] = defaultdict(list)
    for row in db.execute(wanted):
        found[row.run].append(DriveNow(identity=row.identity, model=row.model, serial=row.serial))
    return found
