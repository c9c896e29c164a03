"""What the store has of each drive that runs were made on: its cuts, and what their verdicts say.

A run counts for each drive below its target. A drive is known by its serial; one without, by its model on its
machine. Refuses to judge: it counts the verdicts that stand, as a series is counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, Connection, Row, delete, func, insert, or_, select, true

from durability.errors import FormatError
from durability.evidence.strength import strength_of_drive, weightiest
from durability.formats.case import PastVerdict, SessionEnd
from durability.formats.documents import from_value
from durability.formats.facts import Facts
from durability.formats.packing import Value, unpack
from durability_server.store import tables
from durability_server.store.run_rows import unverified, verdicts_of
from durability_server.store.target_keys import run_drives

# The end of a run's session as it stands, by what is stored of it, where it is held, and by whom.
Seen: TypeAlias = Callable[[str, str | None, str], SessionEnd]

_DRIVES = tables.run_drives.c
_RUNS = tables.runs.c


def add_drives(db: Connection, run: str, armed: Value) -> None:
    """Keep the drives of a run whose facts are `armed`, in the place of those of an earlier arming."""
    drives = run_drives(from_value(Facts, armed))
    rows = [
        {"run": run, "number": number, "identity": one.identity, "model": one.model, "serial": one.serial}
        for number, one in enumerate(drives)
    ]
    db.execute(delete(tables.run_drives).where(_DRIVES.run == run))
    db.execute(insert(tables.run_drives), rows)


def add_drives_of_all_runs(db: Connection) -> None:
    """Keep the drives of the runs in a store of a release that did not; one run's facts at a time."""
    armed = select(_RUNS.run).where(_RUNS.armed.is_not(None))
    for run in db.execute(armed).scalars().all():
        facts = db.execute(select(_RUNS.armed).where(_RUNS.run == run)).scalar_one()
        with suppress(FormatError):  # of a release whose facts this one does not read
            add_drives(db, run, unpack(facts))


def on_host(host: str) -> ColumnElement[bool]:
    """Whether a run's machine has this in its name; "": any."""
    return _contains(_RUNS.host, host)


def on_drive(drive: str) -> ColumnElement[bool]:
    """Whether a run is on a drive with this in its model or serial; "": also one without a drive."""
    if not drive:
        return true()
    return (
        select(_DRIVES.run).where(_DRIVES.run == _RUNS.run, _is_named(drive)).correlate(tables.runs).exists()
    )


def _is_named(drive: str) -> ColumnElement[bool]:
    return or_(_contains(_DRIVES.model, drive), _contains(_DRIVES.serial, drive))


def _end(row: Row[Any], seen: Seen) -> SessionEnd:
    return seen(row.session_end, row.held_at, row.holder)


def _contains(column: ColumnElement[str], part: str) -> ColumnElement[bool]:
    return func.lower(column).contains(part.lower(), autoescape=True)


def drives(
    db: Connection,
    limit: int,
    drive: str,
    *chosen: ColumnElement[bool],
    held_at: ColumnElement[Any],
    seen: Seen,
) -> tuple[dict[str, Value], ...]:
    """The `limit` drives with the newest of the chosen runs, with what all chosen runs on each say.
    `drive`: a part of the drive's model or serial. `held_at`: where another server holds a run."""
    chosen = (*chosen, _is_named(drive))
    newest = func.max(_RUNS.number)
    both = tables.run_drives.join(tables.runs, _DRIVES.run == _RUNS.run)
    wanted = (
        select(_DRIVES.identity)
        .select_from(both)
        .where(*chosen)
        .group_by(_DRIVES.identity)
        .order_by(newest.desc())
        .limit(limit)
    )
    identities = db.execute(wanted).scalars().all()
    listed = _DRIVES.identity.in_(wanted.subquery().select())
    of_run = (_RUNS.run, _RUNS.host, _RUNS.session_end, _RUNS.receipt_wall, _RUNS.registered_wall)
    held = (_RUNS.holder, held_at)
    columns: tuple[ColumnElement[Any], ...] = (
        *of_run,
        *held,
        _DRIVES.identity,
        _DRIVES.model,
        _DRIVES.serial,
    )
    rows = select(*columns)
    runs: defaultdict[str, list[Row[Any]]] = defaultdict(list)
    for row in db.execute(rows.select_from(both).where(listed, *chosen).order_by(_RUNS.number)):
        runs[row.identity].append(row)
    given = verdicts_of(db, select(_RUNS.run).select_from(both).where(listed, *chosen))
    return tuple(_drive(runs[identity], given, seen) for identity in identities)


def _drive(runs: list[Row[Any]], given: dict[str, list[PastVerdict]], seen: Seen) -> dict[str, Value]:
    """What listings have of a drive; `runs`: those on it, oldest first."""
    each = [weightiest(given.get(row.run, ())) or unverified(row, _end(row, seen)) for row in runs]
    standing = [one for one in each if one is not None]
    cut_class, strength = strength_of_drive(standing)
    newest = runs[-1]
    return {
        "model": newest.model,
        "serial": newest.serial,
        "host": newest.host,
        "runs": len(runs),
        "cut_class": cut_class,
        "cuts": strength.cuts,
        "losses": strength.losses,
        "bound": strength.bound,
        "left_out": strength.left_out,
        "verdict": standing[-1].verdict if standing else "",
        "run": newest.run,
        "registered": newest.registered_wall,
    }
