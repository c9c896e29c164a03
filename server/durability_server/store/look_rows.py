"""What calls of `verify` found: which runs keep a look, and how looks are read.

The verify of one run has seen the drives of other runs, which may be unverified. So those runs keep the look
too, as long as they receive nothing more. A run that was silent for a while may not have ended. A run does
not keep a look of another client.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, delete, insert, not_, select

from durability import limits
from durability.errors import FormatError
from durability.evidence.looks import as_of_another_run, is_to_be_kept
from durability.formats.case import Look
from durability.formats.documents import from_value, to_value
from durability.formats.facts import Facts
from durability.formats.packing import pack, unpack
from durability.formats.run_statistics import Statistics
from durability.units import parse_run
from durability_server.store import evidence_rows, tables
from durability_server.store.records import KeptLook
from durability_server.store.run_rows import data_of, known_row

_OTHERS_MAX = 16  # newest other runs that keep a look, because their facts may be long
_RUNS, _LOOKS, _DRIVES = tables.runs.c, tables.looks.c, tables.run_drives.c


def looks_of(db: Connection, run: str) -> tuple[Look, ...]:
    """The looks kept for this run, oldest first, without those before its last receipt."""
    looks = select(_LOOKS.data).join_from(tables.looks, tables.runs, _is_current(run))
    return tuple(
        from_value(Look, unpack(data)) for data in db.execute(looks.order_by(_LOOKS.number)).scalars()
    )


def _is_current(run: str) -> ColumnElement[bool]:
    """Whether a row is a look of the run, and the run has received nothing since."""
    received = _LOOKS.receipt_ns == _RUNS.last_receipt_ns, _LOOKS.receipt_boot_id == _RUNS.receipt_boot_id
    return and_(_LOOKS.run == run, _RUNS.run == run, *received)


def to_be_kept(db: Connection, look: Look) -> list[KeptLook]:
    """The look, as kept for the verified run and for other runs on its drives that have no verdict. Raises
    RefusedError "run-unknown"."""
    own = known_row(db, parse_run(look.run), *_WANTED)
    verified = None if own.armed is None else from_value(Facts, unpack(own.armed))
    told = [] if verified is None else [_kept(db, own, verified, look)]
    for row in _unjudged(db, own):
        with suppress(FormatError):  # facts of a release that this one cannot read
            armed = from_value(Facts, unpack(row.armed))
            told.append(_kept(db, row, armed, as_of_another_run(look, verified, armed)))
    return [one for one in told if one is not None]


_WANTED = (
    _RUNS.run,
    _RUNS.client,
    _RUNS.armed,
    _RUNS.last_receipt_ns,
    _RUNS.receipt_boot_id,
    data_of(tables.statistics),
)


def _unjudged(db: Connection, own: Row[Any]) -> Iterator[Row[Any]]:
    """The client's other armed runs on these drives that have no verdict, newest first."""
    drives = select(_DRIVES.identity).where(_DRIVES.run == own.run)
    on_these = select(_DRIVES.run).where(_DRIVES.identity.in_(drives))
    judged = select(tables.verdicts.c.run).where(tables.verdicts.c.run == _RUNS.run).exists()
    mine = (_RUNS.client == own.client, _RUNS.run != own.run)
    runs: Select[Any] = select(_RUNS.run).where(
        _RUNS.run.in_(on_these), *mine, _RUNS.armed.is_not(None), not_(judged)
    )
    for run in db.execute(runs.order_by(_RUNS.number.desc()).limit(_OTHERS_MAX)).scalars().all():
        yield known_row(db, parse_run(run), *_WANTED)  # one row at a time, because facts may be long


def _kept(db: Connection, row: Row[Any], armed: Facts, look: Look) -> KeptLook | None:
    counted = None if row.statistics is None else from_value(Statistics, unpack(row.statistics))
    kept = looks_of(db, row.run)
    if len(kept) >= limits.LOOKS_MAX or not is_to_be_kept(row.run, armed, counted, kept, look):
        return None
    return KeptLook(
        run=row.run, look=look, receipt_ns=row.last_receipt_ns, receipt_boot_id=row.receipt_boot_id
    )


def keep(db: Connection, looks: Sequence[KeptLook]) -> int:
    """Keeps these looks, and removes older ones after which their runs went on. Returns their size in
    bytes."""
    added = 0
    for one in looks:
        current = select(_LOOKS.number).join_from(tables.looks, tables.runs, _is_current(one.run))
        numbers = db.execute(current).scalars().all()
        if len(numbers) >= limits.LOOKS_MAX:
            continue
        db.execute(delete(tables.looks).where(_LOOKS.run == one.run, _LOOKS.number.not_in(numbers)))
        data = pack(to_value(one.look))
        db.execute(
            insert(tables.looks).values(
                run=one.run,
                number=max(numbers, default=0) + 1,
                data=data,
                receipt_ns=one.receipt_ns,
                receipt_boot_id=one.receipt_boot_id,
            )
        )
        added += evidence_rows.ROW_BYTES + len(data)
    return added
