"""Kept benchmark results of clients. They can be added, listed and read.

A listing has summaries without bodies, and ends where the answer would become too long. All calls block;
`add` runs in the store's thread and is one transaction. Bodies are not read, and a result is not replaced. If
a client keeps the same file again, the existing result is returned.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, func, insert, or_, select, true

from durability.bench.kept_result import FileDigest, KeptSummary, result_id
from durability.errors import RefusedError
from durability.formats.documents import to_value
from durability.formats.packing import Value, pack, unpack
from durability_server.store import tables
from durability_server.store.client_store import client_names
from durability_server.store.database import Database
from durability_server.store.run_rows import contains, in_turn, that_fit

RESULTS_OF_CLIENT_MAX = 1000  # results of a client; the operator's own are not limited
RESULT_BYTES_OF_CLIENT_MAX = 256 << 20  # bodies of these results

_RESULTS = tables.results.c
_DRIVES = tables.result_drives.c
_ROW = (_RESULTS.result, _RESULTS.client, _RESULTS.wall, _RESULTS.sha256, _RESULTS.file_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewResult:
    """A result to keep."""

    client: str  # owner of the result
    wall: str  # time of its arrival
    summary: KeptSummary
    body: bytes
    digest: FileDigest  # digest of the file in `body`


class ResultStore:
    """The kept results in `database`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, new: NewResult) -> str:
        """Keeps a result and returns its name. Raises RefusedError "quota" or "bad-request"."""
        result = result_id(new.client, new.digest.sha256)
        with self._database.transaction() as db:
            there = db.execute(select(_RESULTS.sha256).where(_RESULTS.result == result)).scalar()
            if there == new.digest.sha256:
                return result
            if there is not None:
                raise RefusedError("bad-request", f"another result is called {result}: measure again")
            _require_results_left(db, new.client, len(new.body))
            number = db.execute(select(func.coalesce(func.max(_RESULTS.number), 0) + 1)).scalar_one()
            db.execute(
                insert(tables.results).values(
                    result=result,
                    number=number,
                    client=new.client,
                    wall=new.wall,
                    host=new.summary.host,
                    sha256=new.digest.sha256,
                    file_bytes=new.digest.file_bytes,
                    bytes=len(new.body),
                    summary=pack(to_value(new.summary)),
                    body=new.body,
                )
            )
            rows = [
                {
                    "result": result,
                    "number": index,
                    "identity": drive.identity[:64],
                    "model": drive.model,
                    "serial": drive.serial,
                }
                for index, drive in enumerate(new.summary.drives)
            ]
            if rows:
                db.execute(insert(tables.result_drives), rows)
        return result

    def listing(
        self, limit: int, *, client: str | None, drive: str = "", identity: str = "", host: str = ""
    ) -> tuple[dict[str, Value], ...]:
        """The newest `limit` results of `client`, None for all clients. One map each without its body, newest
        first. If the limit excludes some, each client gets its share. `drive`: part of a drive's model or
        serial; `identity`: hash of a serial; `host`: part of the machine's name. "" matches any."""
        chosen = (_of_client(client), contains(_RESULTS.host, host), _on_drive(drive, identity))
        columns = (*_ROW, _RESULTS.number, _RESULTS.summary)
        newest = select(*columns).where(*chosen).order_by(*in_turn(_RESULTS.client, _RESULTS.number))
        with self._database.listing() as db:
            names = client_names(db)
            with closing(db.execute(newest.limit(limit))) as found:
                rows = that_fit(found, lambda row: len(row.summary))
        rows.sort(key=lambda row: -row.number)
        return tuple(_listed(row, names) for row in rows)

    def find(self, result: str, *, client: str | None) -> tuple[dict[str, Value], bytes]:
        """The row of a result and its body. `client` is as in `listing`. Raises RefusedError
        "result-unknown"."""
        wanted = select(*_ROW, _RESULTS.summary, _RESULTS.body).where(_RESULTS.result == result)
        with self._database.reading() as db:
            row = db.execute(wanted.where(_of_client(client))).first()
            names = client_names(db)
        if row is None:
            raise RefusedError(
                "result-unknown", f"this server has no result {result!r}: `durability results` lists them"
            )
        return _listed(row, names), bytes(row.body)


def _listed(row: Any, names: dict[str, str]) -> dict[str, Value]:
    summary = unpack(row.summary)
    assert isinstance(summary, dict)
    return {
        "result": row.result,
        "client": row.client,
        "client_name": names.get(row.client, ""),
        "kept": row.wall,
        "sha256": row.sha256,
        "file_bytes": row.file_bytes,
        **summary,
    }


def _of_client(client: str | None) -> ColumnElement[bool]:
    return true() if client is None else _RESULTS.client == client


def _on_drive(drive: str, identity: str) -> ColumnElement[bool]:
    if not drive and not identity:
        return true()
    fits: list[ColumnElement[bool]] = []
    if drive:
        fits += [contains(_DRIVES.model, drive), contains(_DRIVES.serial, drive)]
    if identity:
        fits.append(_DRIVES.identity == identity)
    mine = and_(_DRIVES.result == _RESULTS.result, or_(*fits))
    return select(_DRIVES.result).where(mine).correlate(tables.results).exists()


def _require_results_left(db: Connection, client: str, new_bytes: int) -> None:
    if not client:
        return
    size = func.coalesce(func.sum(_RESULTS.bytes), 0)
    count, total = db.execute(select(func.count(), size).where(_RESULTS.client == client)).one()
    if count >= RESULTS_OF_CLIENT_MAX or total + new_bytes > RESULT_BYTES_OF_CLIENT_MAX:
        raise RefusedError(
            "quota", f"this client stored {count} results of {total:,} bytes here, the maximum of one client"
        )
