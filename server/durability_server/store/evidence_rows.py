"""The pieces of evidence of a run, and the size of all data that a client has stored.

A piece is never replaced. Other data under a name that is taken are kept as `name.2` and so on, and equal
data are kept once. Comparing data may read all evidence of a run. So that happens in a transaction that only
reads, before the one that writes. All functions run within a transaction of the caller.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from sqlalchemy import ColumnElement, Connection, Table, and_, bindparam, func, insert, literal, select

from durability import limits
from durability.errors import RefusedError
from durability_server.store import tables

EVIDENCE_BYTES_TOTAL_MAX = 256 << 20  # evidence per run
BYTES_OF_CLIENT_MAX = 2 << 30  # all data of a client; the operator's own data are not limited
# Part of these that evidence cannot use: evidence of one drive must not stop the runs on others.
BYTES_NOT_FOR_EVIDENCE = 512 << 20
BYTES_BEYOND_FOR_VERDICTS = 64 << 20  # more for verdicts, so that runs armed together all get theirs
BYTES_BEYOND_FOR_LOSSES = 64 << 20  # still more, only for verdicts of loss
ROW_BYTES = 100  # size of each row without its long columns
_NAME_MAX = 255  # characters in the column

Kind: TypeAlias = Literal["evidence", "runs", "verdicts", "losses"]

_EVIDENCE = tables.evidence.c
# Compiled once, because each verdict comes with about ten pieces.
_OF_RUN = _EVIDENCE.run == bindparam("run")
_NAMES = select(
    _EVIDENCE.name, and_(_EVIDENCE.bytes == bindparam("size"), _EVIDENCE.data == bindparam("data"))
).where(_OF_RUN)
_TOTAL = select(func.count(), func.coalesce(func.sum(_EVIDENCE.bytes), 0)).where(_OF_RUN)
_DATA = select(_EVIDENCE.data).where(_OF_RUN, _EVIDENCE.name == bindparam("name"))


def others_named(db: Connection, run: str, name: str, data: bytes) -> int | None:
    """How many pieces `name`, `name.2` and so on there are, if all of them have other data. None if one of
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
    """Keeps `data`, unless they are already kept. `others`: the result of `others_named`. Raises RefusedError
    "bad-request" if the run has too much evidence or the name is too long."""
    pieces, total = db.execute(_TOTAL, {"run": run}).one()
    while (kept := _data(db, run, _numbered(name, others + 1))) is not None:  # added after `others_named`
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
    """Maximum of all data of a client that stores more data of this kind, in bytes."""
    beyond = {
        "evidence": -BYTES_NOT_FOR_EVIDENCE,
        "runs": 0,
        "verdicts": BYTES_BEYOND_FOR_VERDICTS,
        "losses": BYTES_BEYOND_FOR_VERDICTS + BYTES_BEYOND_FOR_LOSSES,
    }
    return BYTES_OF_CLIENT_MAX + beyond[kind]


def bytes_of(db: Connection, client: str) -> int:
    """Size of the client's runs and of all data stored with them, in bytes."""
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
