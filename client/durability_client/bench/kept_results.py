"""Results of the benchmark on the server: kept with `bench --keep`, listed and fetched with `results`.

What is fetched is read again, so that a result that another release wrote, or that is not one, is refused
with the reason. Refuses to list what the server does not show this client.
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
    """Which kept results are listed, newest first. `drive`: a serial, or a part of a drive's model or serial;
    `host`: a part of the machine's name; "" is any."""

    limit: int
    drive: str = ""
    host: str = ""

    @property
    def request(self) -> ListResults:
        """The question for them. Results hide serials, so a serial is asked for by its hash as well."""
        return ListResults(
            limit=self.limit, drive=self.drive, identity=hashed(self.drive.strip()), host=self.host
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """A kept result: its row of the list, the file to the byte, and the result in that."""

    row: Row
    data: bytes
    result: Result


async def require_server(endpoint: Endpoint) -> None:
    """Find out before a minute is spent whether the server can be reached and lets this client keep results.
    Raises PeerError."""
    with closing(await connect(endpoint, "verify")):
        pass


async def keep(endpoint: Endpoint, result: Result) -> str:
    """Have the server keep a result; what the server calls it. Raises PeerError, UsageError."""
    message = KeepResult(summary=to_value(summary_of(result)), body=pack_body(result))
    with closing(await connect(endpoint, "verify")) as connection:
        return (await connection.request(message, ResultKept)).result


async def fetch(endpoint: Endpoint, result: str) -> Fetched:
    """A kept result. Raises PeerError, FormatError."""
    with closing(await connect(endpoint, "query")) as connection:
        return await fetch_over(connection, result)


async def fetch_over(connection: Connection, result: str) -> Fetched:
    """The same over a connection that is open."""
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
    """Rows of the kept results, newest first, without the results themselves."""
    return (await connection.request(chosen.request, Listing)).rows


async def show_listing(endpoint: Endpoint, chosen: ChosenResults, *, json: bool, out: TextIO) -> None:
    """Write the kept results to `out`. Raises PeerError."""
    with closing(await connect(endpoint, "query")) as connection:
        rows = await listing(connection, chosen)
    if json:
        print_json({"schema": RESULTS_SCHEMA, "results": rows}, out)
        return
    for line in listing_lines(rows, width_of(out)):
        print(line, file=out)


def listing_lines(rows: Sequence[Row], width: int | None) -> Iterator[str]:
    """The rows as a table, and how to see more. `width`: of the terminal, None for none."""
    # Few results have their rate of another cell than all others.
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
