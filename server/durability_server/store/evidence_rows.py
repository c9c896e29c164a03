"""The pieces of evidence of a run, and what all that a client has given takes in the store.

A piece is never replaced: other data of a name that is taken are kept as `name.2` and so on, the same data
are kept once. To compare data may mean to read all evidence of a run, so that is done in a transaction that
only reads, before the one that writes. Within a transaction of the caller's.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from sqlalchemy import ColumnElement, Connection, Table, and_, bindparam, func, insert, literal, select

from durability import limits
from durability.errors import RefusedError
from durability_server.store import tables

EVIDENCE_BYTES_TOTAL_MAX = 256 << 20  # per run
BYTES_OF_CLIENT_MAX = 2 << 30  # the operator's own are not counted
BYTES_NOT_FOR_EVIDENCE = 512 << 20  # of these: evidence of one drive must not end the runs on others
BYTES_BEYOND_FOR_VERDICTS = 64 << 20  # so a run that was armed gets its verdict, though others armed with it
BYTES_BEYOND_FOR_LOSSES = 64 << 20  # beyond those, for verdicts of loss when all else is refused
ROW_BYTES = 100  # of each row, beside what its long columns hold
_NAME_MAX = 255  # characters: the column's

Kind: TypeAlias = Literal["evidence", "runs", "verdicts", "losses"]

_EVIDENCE = tables.evidence.c
# Made once, since each verdict comes with some ten pieces.
_OF_RUN = _EVIDENCE.run == bindparam("run")
_NAMES = select(
    _EVIDENCE.name, and_(_EVIDENCE.bytes == bindparam("size"), _EVIDENCE.data == bindparam("data"))
).where(_OF_RUN)
_TOTAL = select(func.count(), func.coalesce(func.sum(_EVIDENCE.bytes), 0)).where(_OF_RUN)
_DATA = select(_EVIDENCE.data).where(_OF_RUN, _EVIDENCE.name == bindparam("name"))


def others_named(db: Connection, run: str, name: str, data: bytes) -> int | None:
    """How many pieces `name`, `name.2` and so on there are, where they all have other data; None where one of
    them has these data."""
    has_same_data = {
        taken: bool(same) for taken, same in db.execute(_NAMES, {"run": run, "size": len(data), "data": data})
    }
    others = 0
    while (taken := _numbered(name, others + 1)) in has_same_data:
        if has_same_data[taken]:
            return None
        others += 1
    return others


def add_piece(db: Connection, run: str, name: str, data: bytes, *, others: int) -> None:
    """Keeps `data`, unless they are kept. `others`: as `others_named` gave it. Raises RefusedError
    "bad-request" where the run has too much."""
    pieces, total = db.execute(_TOTAL, {"run": run}).one()
    while (kept := _data(db, run, _numbered(name, others + 1))) is not None:  # it came since
        if kept == data:
            return
        others += 1
    if pieces >= limits.EVIDENCE_PIECES_MAX:
        raise RefusedError("bad-request", f"run {run} has {pieces} pieces of evidence, the maximum")
    if total + len(data) > EVIDENCE_BYTES_TOTAL_MAX:
        raise RefusedError("bad-request", f"run {run} has {total} bytes of evidence, the maximum")
    free = _numbered(name, others + 1)
    if len(free) > _NAME_MAX:
        raise RefusedError(
            "bad-request",
            f"the name of a piece of evidence has {len(free)} characters, and the maximum is {_NAME_MAX}",
        )
    db.execute(insert(tables.evidence), {"run": run, "name": free, "bytes": len(data), "data": data})


def _data(db: Connection, run: str, name: str) -> bytes | None:
    data = db.execute(_DATA, {"run": run, "name": name}).scalar()
    return None if data is None else bytes(data)


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}.{number}"


def bytes_max(kind: Kind) -> int:
    """How many bytes a client may have in all when it gives more of this kind."""
    beyond = {
        "evidence": -BYTES_NOT_FOR_EVIDENCE,
        "runs": 0,
        "verdicts": BYTES_BEYOND_FOR_VERDICTS,
        "losses": BYTES_BEYOND_FOR_VERDICTS + BYTES_BEYOND_FOR_LOSSES,
    }
    return BYTES_OF_CLIENT_MAX + beyond[kind]


def bytes_of(db: Connection, client: str) -> int:
    """What the client's runs take, and all that was given with them."""
    mine = select(tables.runs.c.run).where(tables.runs.c.client == client)
    total = 0
    for table, sizes in _SIZES.items():
        size = func.coalesce(func.sum(sum(sizes, literal(ROW_BYTES))), 0)
        total += int(db.execute(select(size).where(table.c.run.in_(mine))).scalar_one())
    return total


def _lengths(table: Table, *names: str) -> tuple[ColumnElement[int], ...]:
    return tuple(func.coalesce(func.length(table.c[name]), 0) for name in names)


_RUN_COLUMNS = "label plan drive_key file_system_key path_key path host armed"
_SIZES: dict[Table, tuple[ColumnElement[int], ...]] = {
    tables.runs: _lengths(tables.runs, *_RUN_COLUMNS.split()),
    tables.run_drives: _lengths(tables.run_drives, "model", "serial"),
    tables.evidence: (_EVIDENCE.bytes,),
    tables.verdicts: _lengths(tables.verdicts, "reasons", "document"),
    tables.frontiers: (),
    tables.events: _lengths(tables.events, "text"),
    **{
        part: _lengths(part, "data")
        for part in (
            tables.registrations,
            tables.statistics,
            tables.timelines,
            tables.credits,
            tables.looks,
        )
    },
}
