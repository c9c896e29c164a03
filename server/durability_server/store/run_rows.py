"""The rows of a run: how its record is read from them and written to them.

Within a transaction of the caller's, which decides what is allowed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import groupby
from typing import Any, Final, TypeVar

from sqlalchemy import (
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

LISTED_BYTES_MAX = 8 << 20  # of what the rows of one listing hold
_PLACES_MAX = 256  # of other targets on the drives of a run, newest first

# What has a row of its own beside that of its run, and its name in a snapshot.
_NAMES: Final = {
    tables.timelines: "timeline",
    tables.credits: "credits",
    tables.statistics: "statistics",
    tables.errors: "target_error",
}
PARTS: Final = tuple(_NAMES)
# Made once, since credits are in each commit: `verify` does not know a credit of which nothing is stored.
_REPLACE: Final = {
    part: text(
        f"INSERT INTO {part.name} (run, data) VALUES (:run, :data)"
        " ON CONFLICT (run) DO UPDATE SET data = excluded.data"
    )
    for part in PARTS
}
_RUN = select(tables.runs.c.run).where(tables.runs.c.run == bindparam("key"))
_UPDATE_FRONTIER = update(tables.frontiers).where(
    tables.frontiers.c.run == bindparam("key"), tables.frontiers.c.writer == bindparam("number")
)


def save_parts(db: Connection, by_key: Mapping[str, RunSnapshot]) -> None:
    """All of these runs that does not stand in their rows."""
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
    for key, snapshot in by_key.items():
        if snapshot.events:
            _save_events(db, key, snapshot.events)


def changing_columns(source: RunSnapshot | Row[Any]) -> dict[str, Any]:
    """What a snapshot and the row of its run have under the same names."""
    names = "finish session_end control last_receipt_ns receipt_boot_id receipt_wall rtt_max_ns gap_max_ns"
    return {name: getattr(source, name) for name in (*names.split(), "tainted", "epoch")}


def _save_events(db: Connection, key: str, events: Sequence[tuple[int, Event]]) -> None:
    """Events are numbered, so that saving them again after a commit of unknown outcome adds none twice."""
    first, last = events[0][0], events[-1][0]
    number = tables.events.c.number
    gone = or_(number >= first, number <= last - EVENTS_MAX)
    db.execute(delete(tables.events).where(tables.events.c.run == key, gone))
    rows = [{"run": key, "number": at, **asdict(event)} for at, event in events]
    db.execute(insert(tables.events), rows)


def of_client(client: str | None) -> ColumnElement[bool]:
    """The runs of this client; None: of all."""
    return true() if client is None else tables.runs.c.client == client


def contains(column: ColumnElement[str], part: str) -> ColumnElement[bool]:
    """Whether this part is in the column, in any case: the database makes both of them small letters."""
    return column.icontains(part, autoescape=True)


def in_turn(
    client: ColumnElement[str], number: ColumnElement[int]
) -> tuple[ColumnElement[int], ColumnElement[int]]:
    """An order in which the newest of each client come first, then the second newest: a limit gives each
    client its share, however much another has."""
    place = func.row_number().over(partition_by=client, order_by=number.desc())
    return place, number.desc()


def that_fit(rows: Iterable[T], size: Callable[[T], int]) -> list[T]:
    """The first of these rows, as many as one listing has room for. The others are not read."""
    room = LISTED_BYTES_MAX
    kept = []
    for row in rows:
        room -= size(row)
        if room < 0:
            break
        kept.append(row)
    return kept


def key_columns(keys: TargetKeys) -> dict[str, str]:
    """The columns of a run's row that hold the identities of its target."""
    return {"drive_key": keys.drive, "file_system_key": keys.file_system, "path_key": keys.path}


def _keys(row: Row[Any]) -> TargetKeys:
    return TargetKeys(drive=row.drive_key, file_system=row.file_system_key, path=row.path_key)


def is_on(keys: TargetKeys) -> ColumnElement[bool]:
    """Whether a run is on the target with these identities, by the strongest identity that both have."""
    same: ColumnElement[bool] = tables.runs.c.path_key == keys.path
    for name, key in (("file_system_key", keys.file_system), ("drive_key", keys.drive)):
        if key:
            column = tables.runs.c[name]
            same = or_(column == key, and_(column == "", same))
    return same


def runs_on(
    db: Connection, targets: Iterable[TargetKeys], *where: Any, limit: int | None = None
) -> Sequence[Row[Any]]:
    """The newest `limit` runs on any of the targets of which `where` holds, newest first; their names and
    numbers, and when they were registered."""
    columns = tables.runs.c
    there = or_(*map(_has_keys, targets))
    runs: Select[Any] = select(columns.run, columns.number, columns.registered_wall).where(there, *where)
    return db.execute(runs.order_by(columns.number.desc()).limit(limit)).all()


def _has_keys(keys: TargetKeys) -> ColumnElement[bool]:
    columns = tables.runs.c
    shared = or_(*(columns[name] == key for name, key in key_columns(keys).items() if key))  # has indexes
    return and_(shared, is_on(keys))


def elsewhere(targets: Iterable[TargetKeys]) -> ColumnElement[bool]:
    """Whether a run is on none of these targets."""
    return not_(or_(*map(_has_keys, targets)))


def newest_of_each_client(db: Connection, keys: TargetKeys, *where: Any) -> Sequence[Row[Any]]:
    """The newest run of each client on a target of which `where` holds, newest first."""
    columns = tables.runs.c
    newest = select(func.max(columns.number)).where(_has_keys(keys), *where).group_by(columns.client)
    named: Select[Any] = select(columns.run, columns.registered_wall, columns.client)
    runs = named.where(columns.number.in_(newest))
    return db.execute(runs.order_by(columns.number.desc())).all()


def newest_on(db: Connection, keys: TargetKeys, *where: Any) -> Row[Any] | None:
    """The newest of them."""
    return next(iter(runs_on(db, (keys,), *where, limit=1)), None)


def newest_over(db: Connection, stored: StoredRun, *where: Any) -> Row[Any] | None:
    """The newest run of which `where` holds on another target that overlaps with that of `stored`, an armed
    run. The target of one that was not armed yet is that of its registration."""
    if stored.armed is None:
        return None
    facts = from_value(Facts, stored.armed)
    identities = [one.identity for one in run_drives(facts)]
    columns, drives = tables.runs.c, tables.run_drives.c
    on_drives = columns.run.in_(select(drives.run).where(drives.identity.in_(identities)))
    newest = func.max(columns.number)  # one run of each place is enough to know where it is
    places = (
        select(newest)
        .where(on_drives, *where)
        .group_by(columns.drive_key, columns.file_system_key, columns.path_key)
        .order_by(newest.desc())
        .limit(_PLACES_MAX)
    )
    known = func.coalesce(columns.armed, data_of(tables.registrations)).label("facts")
    for number in db.execute(places).scalars().all():
        # One by one: facts may be long.
        one: Select[Any] = select(columns.run, columns.registered_wall, known).where(columns.number == number)
        row = db.execute(one).one()
        with suppress(FormatError):  # of a release whose facts this one does not read
            if overlap(facts, from_value(Facts, unpack(row.facts))):
                return row
    return None


def data_of(part: Table) -> ColumnElement[Any]:
    """What the run's row in `part` has, as a column beside those of the run."""
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
    """What to raise of a run that is not in the store."""
    return RefusedError("run-unknown", f"this server knows of no run {format_run(run)}")


def stored_run(db: Connection, row: Row[Any]) -> StoredRun:
    """`row` has its run's data in `PARTS` as well."""
    acked = select(tables.frontiers.c.acked).where(tables.frontiers.c.run == row.run)
    events = select(tables.events).where(tables.events.c.run == row.run).order_by(tables.events.c.number)
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
            frontiers=tuple(db.execute(acked.order_by(tables.frontiers.c.writer)).scalars()),
            **changing_columns(row),
            follows=row.epoch,
            saves=row.saves,
            save=row.saves + 1,
            timeline=row.timelines,
            credits=row.credits,
            statistics=row.statistics,
            target_error=row.errors,
            events=tuple(
                (one.number, Event(at_ns=one.at_ns, wall=one.wall, kind=one.kind, text=one.text))
                for one in db.execute(events)
            ),
        ),
    )


def verdicts_of(db: Connection, run: str) -> list[PastVerdict]:
    """The verdicts of this run, oldest first."""
    one = select(tables.runs.c.run).where(tables.runs.c.run == run)
    return next((given for _, given in _verdicts_by_run(db, one)), [])


def standing_verdicts(db: Connection, runs: Select[Any]) -> dict[str, PastVerdict]:
    """The verdict that counts of each of the selected runs that has one."""
    each = ((run, weightiest(given)) for run, given in _verdicts_by_run(db, runs))
    return {run: standing for run, standing in each if standing is not None}


def _verdicts_by_run(db: Connection, runs: Select[Any]) -> Iterator[tuple[str, list[PastVerdict]]]:
    """The verdicts of each of the selected runs that has some, oldest first; of one run at a time, since a
    run may have hundreds."""
    own, columns = tables.runs.c, tables.verdicts.c
    given = select(columns.run).where(columns.run.in_(runs))
    enumerations = {  # can be long, so once per run
        row.run: tuple(row.enumerations.split())
        for row in db.execute(select(own.run, own.enumerations).where(own.run.in_(given)))
    }
    documents = columns.document  # can be long
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
    """The codes of a verdict's reasons, each once: earlier releases stored what a client repeated. The same
    codes stand in the verdicts of thousands of runs, so there is one string of each."""
    return tuple(map(sys.intern, dict.fromkeys(stored.split())))


def listed(
    row: Any, session_end: SessionEnd, acked: int, standing: PastVerdict | None, *, client_name: str
) -> dict[str, Value]:
    """A run as listings have it; `standing`: the verdict that counts."""
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
