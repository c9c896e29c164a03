"""Reading and writing the rows of a run.

All functions run within a transaction of the caller, which decides what is allowed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import groupby
from typing import Any, Final, TypeVar

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Row,
    Select,
    Table,
    and_,
    bindparam,
    delete,
    func,
    insert,
    not_,
    or_,
    select,
    text,
    true,
    update,
)

from durability.errors import FormatError, RefusedError
from durability.evidence.strength import weightiest
from durability.formats.case import Event, PastVerdict, SessionEnd
from durability.formats.documents import from_value
from durability.formats.facts import Facts
from durability.formats.packing import Value, unpack
from durability.units import format_run, parse_run
from durability_server.store import tables
from durability_server.store.records import EVENTS_MAX, RunSnapshot, StoredRun, state_of
from durability_server.store.target_keys import TargetKeys, overlap, run_drives

T = TypeVar("T")

LISTED_BYTES_MAX = 8 << 20  # data in the rows of one listing
_PLACES_MAX = 256  # other targets on the drives of a run that are compared, newest first

# Tables with one row of data per run, with the field of a snapshot that the row stores.
_NAMES: Final = {
    tables.timelines: "timeline",
    tables.credits: "credits",
    tables.statistics: "statistics",
    tables.errors: "target_error",
}
PARTS: Final = tuple(_NAMES)
# Compiled once, because each commit saves credits: `verify` must know every credit that may have arrived.
_REPLACE: Final = {
    part: text(
        f"INSERT INTO {part.name} (run, data) VALUES (:run, :data)"
        " ON CONFLICT (run) DO UPDATE SET data = excluded.data"
    )
    for part in PARTS
}
_RUN = select(tables.runs.c.run).where(tables.runs.c.run == bindparam("key"))
_THESE: BindParameter[Any] = bindparam("keys", expanding=True)
_FRONTIERS = (
    select(tables.frontiers.c.run, tables.frontiers.c.acked)
    .where(tables.frontiers.c.run.in_(_THESE))
    .order_by(tables.frontiers.c.run, tables.frontiers.c.writer)
)
_EVENTS = (
    select(tables.events)
    .where(tables.events.c.run.in_(_THESE))
    .order_by(tables.events.c.run, tables.events.c.number)
)
_DROP_EVENTS = delete(tables.events).where(
    tables.events.c.run == bindparam("key"),
    or_(tables.events.c.number >= bindparam("first"), tables.events.c.number <= bindparam("too_old")),
)
_ADD_EVENTS = insert(tables.events)
_UPDATE_FRONTIER = update(tables.frontiers).where(
    tables.frontiers.c.run == bindparam("key"), tables.frontiers.c.writer == bindparam("number")
)


def save_parts(db: Connection, by_key: Mapping[str, RunSnapshot]) -> None:
    """Saves all fields of these runs that are not columns of their rows."""
    frontiers = [
        {"key": key, "number": writer, "acked": acked}
        for key, snapshot in by_key.items()
        for writer, acked in enumerate(snapshot.frontiers)
        if snapshot.durable[writer : writer + 1] != (acked,)
    ]
    if frontiers:
        db.execute(_UPDATE_FRONTIER, frontiers)
    for part in PARTS:
        rows = [
            {"run": key, "data": data}
            for key, snapshot in by_key.items()
            if (data := getattr(snapshot, _NAMES[part])) is not None
        ]
        if rows:
            db.execute(_REPLACE[part], rows)
    events = {key: snapshot.events for key, snapshot in by_key.items() if snapshot.events}
    if events:
        _save_events(db, events)


def changing_columns(source: RunSnapshot | Row[Any]) -> dict[str, Any]:
    """The values that a snapshot and the row of its run have under the same names."""
    names = "finish session_end control last_receipt_ns receipt_boot_id receipt_wall rtt_max_ns gap_max_ns"
    return {name: getattr(source, name) for name in (*names.split(), "tainted", "epoch")}


def _save_events(db: Connection, by_key: Mapping[str, Sequence[tuple[int, Event]]]) -> None:
    """Saves numbered events. Saving them again after a commit of unknown outcome adds no duplicate."""
    gone = [
        {"key": key, "first": events[0][0], "too_old": events[-1][0] - EVENTS_MAX}
        for key, events in by_key.items()
    ]
    db.execute(_DROP_EVENTS, gone)
    rows = [
        {"run": key, "number": at, **asdict(event)} for key, events in by_key.items() for at, event in events
    ]
    db.execute(_ADD_EVENTS, rows)


def of_client(client: str | None) -> ColumnElement[bool]:
    """The runs of this client, or of all clients for None."""
    return true() if client is None else tables.runs.c.client == client


def contains(column: ColumnElement[str], part: str) -> ColumnElement[bool]:
    """Whether the column contains this part, ignoring case. The database converts both to lower case."""
    return column.icontains(part, autoescape=True)


def in_turn(
    client: ColumnElement[str], number: ColumnElement[int]
) -> tuple[ColumnElement[int], ColumnElement[int]]:
    """An order with the newest of each client first, then the second newest. So a limit gives each client its
    share, however many rows another client has."""
    place = func.row_number().over(partition_by=client, order_by=number.desc())
    return place, number.desc()


def that_fit(rows: Iterable[T], size: Callable[[T], int]) -> list[T]:
    """The first of these rows, as many as fit one listing. The others are not read."""
    room = LISTED_BYTES_MAX
    kept = []
    for row in rows:
        room -= size(row)
        if room < 0:
            break
        kept.append(row)
    return kept


def key_columns(keys: TargetKeys) -> dict[str, str]:
    """The columns of a run's row with the identities of its target."""
    return {"drive_key": keys.drive, "file_system_key": keys.file_system, "path_key": keys.path}


def _keys(row: Row[Any]) -> TargetKeys:
    return TargetKeys(drive=row.drive_key, file_system=row.file_system_key, path=row.path_key)


def is_on(keys: TargetKeys) -> ColumnElement[bool]:
    """Whether a run is on the target with these identities. The strongest identity that both have decides."""
    same: ColumnElement[bool] = tables.runs.c.path_key == keys.path
    for name, key in (("file_system_key", keys.file_system), ("drive_key", keys.drive)):
        if key:
            column = tables.runs.c[name]
            same = or_(column == key, and_(column == "", same))
    return same


def runs_on(
    db: Connection, targets: Iterable[TargetKeys], *where: Any, limit: int | None = None
) -> Sequence[Row[Any]]:
    """The newest `limit` runs on any of the targets that match `where`, newest first: their ids, numbers and
    registration times."""
    columns = tables.runs.c
    there = or_(*map(_has_keys, targets))
    runs: Select[Any] = select(columns.run, columns.number, columns.registered_wall).where(there, *where)
    return db.execute(runs.order_by(columns.number.desc()).limit(limit)).all()


def _has_keys(keys: TargetKeys) -> ColumnElement[bool]:
    columns = tables.runs.c
    shared = or_(*(columns[name] == key for name, key in key_columns(keys).items() if key))  # uses indexes
    return and_(shared, is_on(keys))


def elsewhere(targets: Iterable[TargetKeys]) -> ColumnElement[bool]:
    """Whether a run is on none of these targets."""
    return not_(or_(*map(_has_keys, targets)))


def newest_of_each_client(db: Connection, keys: TargetKeys, *where: Any) -> Sequence[Row[Any]]:
    """The newest run of each client on a target that matches `where`, newest first."""
    columns = tables.runs.c
    newest = select(func.max(columns.number)).where(_has_keys(keys), *where).group_by(columns.client)
    named: Select[Any] = select(columns.run, columns.registered_wall, columns.client)
    runs = named.where(columns.number.in_(newest))
    return db.execute(runs.order_by(columns.number.desc())).all()


def newest_on(db: Connection, keys: TargetKeys, *where: Any) -> Row[Any] | None:
    """The newest run on the target that matches `where`, None if there is none."""
    return next(iter(runs_on(db, (keys,), *where, limit=1)), None)


def newest_over(db: Connection, stored: StoredRun, *where: Any) -> Row[Any] | None:
    """The newest run that matches `where` on another target that overlaps with that of `stored`. None if
    `stored` was never armed. The facts of registration describe the target of a run that was never armed."""
    if stored.armed is None:
        return None
    facts = from_value(Facts, stored.armed)
    identities = [one.identity for one in run_drives(facts)]
    columns, drives = tables.runs.c, tables.run_drives.c
    on_drives = columns.run.in_(select(drives.run).where(drives.identity.in_(identities)))
    newest = func.max(columns.number)  # one run of each target suffices, because all have the same place
    places = (
        select(newest)
        .where(on_drives, *where)
        .group_by(columns.drive_key, columns.file_system_key, columns.path_key)
        .order_by(newest.desc())
        .limit(_PLACES_MAX)
    )
    known = func.coalesce(columns.armed, data_of(tables.registrations)).label("facts")
    for number in db.execute(places).scalars().all():
        # One row at a time, because facts may be long.
        one: Select[Any] = select(columns.run, columns.registered_wall, known).where(columns.number == number)
        row = db.execute(one).one()
        with suppress(FormatError):  # facts of a release that this one cannot read
            if overlap(facts, from_value(Facts, unpack(row.facts))):
                return row
    return None


def runs_with(*columns: Any) -> Select[Any]:
    """Selects these columns of the runs with the parameter `keys`."""
    return select(*columns).where(tables.runs.c.run.in_(_THESE))


def data_of(part: Table) -> ColumnElement[Any]:
    """The data of a run in table `part`, as a column for queries of `runs`."""
    return select(part.c.data).where(part.c.run == tables.runs.c.run).scalar_subquery().label(part.name)


def known_row(db: Connection, run: int, *columns: Any) -> Row[Any]:
    """These columns of the row of a run. Raises RefusedError "run-unknown"."""
    row = db.execute(select(*columns).where(tables.runs.c.run == format_run(run))).first()
    if row is None:
        raise unknown_run(run)
    return row


def has_run(db: Connection, run: int) -> bool:
    """Whether there is such a run."""
    return db.execute(_RUN, {"key": format_run(run)}).first() is not None


def require_run(db: Connection, run: int) -> None:
    """Raises RefusedError "run-unknown" if there is no such run."""
    if not has_run(db, run):
        raise unknown_run(run)


def unknown_run(run: int) -> RefusedError:
    """The error for a run that is not in the store."""
    return RefusedError("run-unknown", f"this server knows of no run {format_run(run)}")


def stored_runs(db: Connection, rows: Sequence[Row[Any]]) -> Iterator[tuple[Row[Any], StoredRun]]:
    """The stored run of each of `rows`, which also have the data of all `PARTS`."""
    keys = {"keys": [row.run for row in rows]}
    acked: dict[str, list[int]] = {}
    for one in db.execute(_FRONTIERS, keys):
        acked.setdefault(one.run, []).append(one.acked)
    events: dict[str, list[tuple[int, Event]]] = {}
    for one in db.execute(_EVENTS, keys):
        event = Event(at_ns=one.at_ns, wall=one.wall, kind=one.kind, text=one.text)
        events.setdefault(one.run, []).append((one.number, event))
    for row in rows:
        yield row, _stored_run(row, tuple(acked.get(row.run, ())), tuple(events.get(row.run, ())))


def _stored_run(
    row: Row[Any], frontiers: tuple[int, ...], events: tuple[tuple[int, Event], ...]
) -> StoredRun:
    return StoredRun(
        number=row.number,
        client=row.client,
        label=row.label,
        plan=row.plan,
        secret=row.secret,
        keys=_keys(row),
        host=row.host,
        armed=None if row.armed is None else unpack(row.armed),
        series=row.series,
        snapshot=RunSnapshot(
            run=parse_run(row.run),
            frontiers=frontiers,
            **changing_columns(row),
            follows=row.epoch,
            saves=row.saves,
            save=row.saves + 1,
            timeline=row.timelines,
            credits=row.credits,
            statistics=row.statistics,
            target_error=row.errors,
            events=events,
        ),
    )


def verdicts_of(db: Connection, run: str) -> list[PastVerdict]:
    """The verdicts of this run, oldest first."""
    one = select(tables.runs.c.run).where(tables.runs.c.run == run)
    return next((given for _, given in _verdicts_by_run(db, one)), [])


def standing_verdicts(db: Connection, runs: Select[Any]) -> dict[str, PastVerdict]:
    """The verdict that counts, for each of the selected runs that has one."""
    each = ((run, weightiest(given)) for run, given in _verdicts_by_run(db, runs))
    return {run: standing for run, standing in each if standing is not None}


def _verdicts_by_run(db: Connection, runs: Select[Any]) -> Iterator[tuple[str, list[PastVerdict]]]:
    """The verdicts of each selected run that has some, oldest first. It yields one run at a time, because a
    run may have hundreds."""
    own, columns = tables.runs.c, tables.verdicts.c
    given = select(columns.run).where(columns.run.in_(runs))
    enumerations = {  # can be long, so read only once per run
        row.run: tuple(row.enumerations.split())
        for row in db.execute(select(own.run, own.enumerations).where(own.run.in_(given)))
    }
    documents = columns.document  # can be long, so not read
    wanted = select(*(column for column in columns if column is not documents)).where(columns.run.in_(runs))
    rows = db.execute(wanted.order_by(columns.run, columns.number))
    for run, of_run in groupby(rows, lambda row: str(row.run)):
        yield (
            run,
            [
                PastVerdict(
                    run=run,
                    verdict=row.verdict,
                    cut_class=row.cut_class,
                    at_risk_ms1000=row.at_risk_ms1000,
                    wall=row.wall,
                    reasons=_codes(row.reasons),
                    enumerations=enumerations[run],
                )
                for row in of_run
            ],
        )


def _codes(stored: str) -> tuple[str, ...]:
    """The codes of a verdict's reasons, each once: earlier releases stored repeated codes. Equal codes share
    one string, because the verdicts of thousands of runs repeat them."""
    return tuple(map(sys.intern, dict.fromkeys(stored.split())))


def listed(
    row: Any, session_end: SessionEnd, acked: int, standing: PastVerdict | None, *, client_name: str
) -> dict[str, Value]:
    """A run as listings show it. `standing`: the verdict that counts."""
    return {
        "run": row.run,
        "label": row.label,
        "state": state_of(row.finish, armed=row.is_armed),
        "session_end": session_end,
        "verdict": standing.verdict if standing else "",
        "acked": acked,
        "path": row.path,
        "host": row.host,
        "registered": row.registered_wall,
        "last_receipt": row.receipt_wall,
        "tainted": row.tainted,
        "client": row.client,
        "client_name": client_name,
    }
