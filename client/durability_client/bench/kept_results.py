"""Results of the benchmark on the server: stored with `bench --keep`, listed and fetched with `results`.

A fetched result is decoded, so that a result of another release, or a file that is not a result, is refused
with the reason. Only results that the server shows this client are listed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TextIO

from durability.bench.hashed_serials import hashed
from durability.bench.kept_result import digest_of, other_cell, pack_body, summary_of, unpack_body
from durability.bench.result import Result
from durability.errors import FormatError
from durability.formats.documents import to_value
from durability.protocol.messages import (
    FetchResult,
    KeepResult,
    KeptResult,
    Listing,
    ListResults,
    ResultKept,
)
from durability.units import counted, duration, few_digits
from durability_client.link.endpoint import Endpoint
from durability_client.link.server_connection import Connection, connect
from durability_client.system.terminal import print_json, width_of
from durability_client.text_tables import table

RESULTS_SCHEMA = "durability.results/1"
_COLUMNS = ("result", "created", "host", "drive", "mode", "commits/s", "MB/s", "p99", "honest")

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenResults:
    """Filter of the stored results to list, newest first. "" matches all."""

    limit: int
    drive: str = ""  # a serial, or a part of a drive's model or serial
    host: str = ""  # a part of the machine's name

    @property
    def request(self) -> ListResults:
        """The request to the server. It also contains the serial's hash, because results hide serials."""
        return ListResults(
            limit=self.limit, drive=self.drive, identity=hashed(self.drive.strip()), host=self.host
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """A stored result: its row in the list, the exact bytes of its file, and the decoded result."""

    row: Row
    data: bytes
    result: Result


async def require_server(endpoint: Endpoint) -> None:
    """Check before a measurement whether the server can be reached and lets this client store results. Raises
    PeerError."""
    with closing(await connect(endpoint, "verify")):
        pass


async def keep(endpoint: Endpoint, result: Result) -> str:
    """Store a result on the server. Returns its name on the server. Raises PeerError, UsageError."""
    message = KeepResult(summary=to_value(summary_of(result)), body=pack_body(result))
    with closing(await connect(endpoint, "verify")) as connection:
        return (await connection.request(message, ResultKept)).result


async def fetch(endpoint: Endpoint, result: str) -> Fetched:
    """Fetch a stored result. Raises PeerError, FormatError."""
    with closing(await connect(endpoint, "query")) as connection:
        return await fetch_over(connection, result)


async def fetch_over(connection: Connection, result: str) -> Fetched:
    """Like `fetch`, over an open connection."""
    answer = await connection.request(FetchResult(result=result), KeptResult)
    try:
        digest = digest_of(answer.body)
        if digest.sha256 != answer.row.get("sha256"):
            raise FormatError("its hash is not the one with which it was stored")
        data, read = unpack_body(answer.body)
    except FormatError as error:
        raise FormatError(f"the stored result {result}: {error}") from error
    return Fetched(row=answer.row, data=data, result=read)


async def listing(connection: Connection, chosen: ChosenResults) -> tuple[Row, ...]:
    """Rows of the stored results, newest first, without the results themselves."""
    return (await connection.request(chosen.request, Listing)).rows


async def show_listing(endpoint: Endpoint, chosen: ChosenResults, *, json: bool, out: TextIO) -> None:
    """Write the list of stored results to `out`. Raises PeerError."""
    with closing(await connect(endpoint, "query")) as connection:
        rows = await listing(connection, chosen)
    if json:
        print_json({"schema": RESULTS_SCHEMA, "results": rows}, out)
        return
    for line in listing_lines(rows, width_of(out)):
        print(line, file=out)


def listing_lines(rows: Sequence[Row], width: int | None) -> Iterator[str]:
    """The rows as a table, and a hint for details. `width`: width of the terminal, None without one."""
    # Only few results take their rate from another cell than usual, so that column is usually left out.
    columns = (*_COLUMNS, "cell") if any(map(other_cell, rows)) else _COLUMNS
    yield from table(columns, list(map(_cells, rows)), width=width)
    yield (
        f"{counted(len(rows), 'stored result')}. `durability results RESULT` shows one, and with -o FILE"
        " saves it."
    )


def _cells(row: Row) -> Row:
    drives = row.get("drives") or ()
    rate, moved, p99 = row.get("rate"), row.get("bytes_per_s"), row.get("p99_ns")
    return {
        "result": row.get("result"),
        "created": str(row.get("created", ""))[:16],
        "host": row.get("host"),
        "drive": " + ".join(str(drive.get("model") or "unnamed") for drive in drives),
        "mode": row.get("profile") or row.get("mode") if row.get("complete") else "partial",
        "commits/s": "" if rate is None else few_digits(rate),
        "MB/s": "" if moved is None else few_digits(moved / 1e6),
        "p99": "" if p99 is None else duration(p99),
        "honest": row.get("honesty"),
        "cell": other_cell(row),
    }
