"""What calls of `verify` found: of which runs a look is kept, and how it is read again.

A verify of one run has seen the machine and the drives of others, which nobody may have verified since. So
these keep it too. Refuses to keep what another client has seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from sqlalchemy import Connection, Row, Select, func, insert, not_, select

from durability import limits
from durability.errors import FormatError
from durability.evidence.drive_identity import same_kernel
from durability.evidence.looks import as_of_another_run, is_to_be_kept
from durability.formats.case import Look
from durability.formats.documents import from_value, to_value
from durability.formats.facts import Facts
from durability.formats.packing import pack, unpack
from durability.formats.run_statistics import Statistics
from durability.units import parse_run
from durability_server.store import evidence_rows, tables
from durability_server.store.run_rows import data_of, known_row

# A look is kept of so many other runs, of the newest of the client, and as long as their facts are no longer:
# it is kept in the thread that saves.
_NEWEST_MAX = 256
_OTHERS_MAX = 64
_FACTS_BYTES_MAX = 4 << 20
_RUNS = tables.runs.c


def looks_of(db: Connection, run: str) -> tuple[Look, ...]:
    """The looks that are kept of this run, oldest first."""
    columns = tables.looks.c
    rows = db.execute(select(columns.data).where(columns.run == run).order_by(columns.number)).scalars().all()
    return tuple(from_value(Look, unpack(row)) for row in rows)


def keep_look(db: Connection, look: Look) -> int:
    """Keeps it of the run that was verified, and of others of its client that no verify has judged; how many
    bytes that takes. Raises RefusedError "run-unknown"."""
    own = known_row(db, parse_run(look.run), _RUNS.run, _RUNS.client, _RUNS.armed, data_of(tables.statistics))
    if own.armed is None:
        return 0
    verified = from_value(Facts, unpack(own.armed))
    added = _keep(db, own.run, verified, _statistics(own), look)
    for row in _unjudged(db, own.run, own.client):
        with suppress(FormatError):  # of a release whose facts this one does not read
            armed = from_value(Facts, unpack(row.armed))
            if row.session_end == "live" and same_kernel(armed.host, look.facts.host):
                continue  # what ends it is still to come
            added += _keep(db, row.run, armed, _statistics(row), as_of_another_run(look, verified, armed))
    return added


def _unjudged(db: Connection, run: str, client: str) -> Iterator[Row[Any]]:
    """The armed runs of the client but this one that have no verdict, newest first."""
    newest = select(_RUNS.run).where(_RUNS.client == client).order_by(_RUNS.number.desc()).limit(_NEWEST_MAX)
    judged = select(tables.verdicts.c.run).where(tables.verdicts.c.run == _RUNS.run).exists()
    runs: Select[Any] = (
        select(_RUNS.run, func.length(_RUNS.armed).label("bytes"))
        .where(_RUNS.run.in_(newest), _RUNS.run != run, _RUNS.armed.is_not(None), not_(judged))
        .order_by(_RUNS.number.desc())
        .limit(_OTHERS_MAX)
    )
    room = _FACTS_BYTES_MAX
    for row in db.execute(runs).all():
        room -= row.bytes
        if room < 0:
            return
        yield known_row(
            db, parse_run(row.run), _RUNS.run, _RUNS.session_end, _RUNS.armed, data_of(tables.statistics)
        )


def _statistics(row: Row[Any]) -> Statistics | None:
    return None if row.statistics is None else from_value(Statistics, unpack(row.statistics))


def _keep(db: Connection, run: str, armed: Facts, counted: Statistics | None, look: Look) -> int:
    kept = looks_of(db, run)
    if len(kept) >= limits.LOOKS_MAX or not is_to_be_kept(run, armed, counted, kept, look):
        return 0
    data = pack(to_value(look))
    db.execute(insert(tables.looks).values(run=run, number=len(kept) + 1, data=data))
    return evidence_rows.ROW_BYTES + len(data)
