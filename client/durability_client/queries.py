"""`runs`, `show` and `export`: show data stored on the server. They access no target and end no run.

They show the server's data as they are; only `verify` draws conclusions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TextIO

from durability import plain_text
from durability.evidence.flushes import leaf_flushes
from durability.evidence.strength import weightiest
from durability.evidence.verdict import REASONS
from durability.formats.case import RUNS_SCHEMA, SHOW_SCHEMA, Case, Look, case_from_value
from durability.formats.documents import to_json
from durability.formats.plan import Plan
from durability.plain_text import owner_label, shortened
from durability.protocol.messages import CaseFile, Export, List, Listing, Show, Shown
from durability.units import counted, percent_at_most
from durability_client.descriptions import (
    describe,
    describe_commits,
    describe_flushes,
    describe_operations,
    describe_writers,
)
from durability_client.link.endpoint import Endpoint
from durability_client.link.server_connection import connect
from durability_client.system import output_files
from durability_client.system.terminal import fitted, print_json, width_of
from durability_client.text_tables import table

_RUN_COLUMNS = ("run", "state", "session_end", "verdict", "acked", "registered", "path", "label")
_DRIVE_COLUMNS = ("model", "serial", "host", "cuts", "clean", "at_most", "last_verdict")
_WHOLE_COLUMNS = ("cuts", "clean", "at_most", "last_verdict")  # never cut on a narrow terminal
_TEXT_CHARACTERS = 160  # longest text of an event
_EXPORT = "an export"

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenRuns:
    """Filter of the runs to list. "" matches all."""

    limit: int  # most runs, or most drives
    drive: str = ""  # a part of a drive's model or serial
    host: str = ""  # a part of the machine's name

    def by(self, what: Literal["run", "drive"]) -> List:
        """The request to the server."""
        return List(limit=self.limit, by=what, drive=self.drive, host=self.host)


async def runs(endpoint: Endpoint, chosen: ChosenRuns, *, each: bool, json: bool, out: TextIO) -> None:
    """Write the drives with the newest runs to `out`, newest first. `each`: write the runs instead. JSON
    contains both. Raises PeerError."""
    with closing(await connect(endpoint, "query")) as connection:
        drives = () if each and not json else (await connection.request(chosen.by("drive"), Listing)).rows
        rows = (await connection.request(chosen.by("run"), Listing)).rows if each or json else ()
    if json:
        print_json({"schema": RUNS_SCHEMA, "runs": rows, "drives": drives}, out)
    elif each:
        # Numbers as text, because the table shows a 0 as a dash, like an unknown value.
        _print(table(_RUN_COLUMNS, [{**row, "acked": str(row["acked"])} for row in rows]), out)
    else:
        columns = _DRIVE_COLUMNS if _each_has_one_client(drives) else (*_DRIVE_COLUMNS, "client")
        _print(table(columns, list(map(_drive_row, drives)), width=width_of(out), whole=_WHOLE_COLUMNS), out)
        print(fitted(_below(drives), out, indent=0), file=out)


def _print(lines: Iterator[str], out: TextIO) -> None:
    for line in lines:
        print(line, file=out)


def _drive_row(drive: Row) -> Row:
    """The table's row of a drive. Numbers are text, so that a 0 is shown."""
    return {
        **drive,
        "cuts": str(drive["cuts"]),
        "clean": str(drive["cuts"] - drive["losses"]),
        "at_most": _at_most(drive),
        "last_verdict": drive["verdict"],
        "client": owner_label(*_client(drive)),
    }


def _at_most(drive: Row) -> str:
    """The bound on the share of cuts that lose data, with the class of the cuts unless these were of power.
    "" without a bound."""
    if drive["bound"] is None:
        return ""
    share = percent_at_most(drive["bound"])
    return share if drive["cut_class"] == "power" else f"{share} ({drive['cut_class']})"


def _each_has_one_client(drives: Sequence[Row]) -> bool:
    """Whether no serial is claimed by two clients. Then the column of clients is not needed."""
    claims = {(drive["serial"], *_client(drive)) for drive in drives if drive["serial"]}
    return len(claims) == len({serial for serial, *_ in claims})


def _client(drive: Row) -> tuple[str, str]:
    """Id and name of the client; "" from servers before release 0.2."""
    return str(drive.get("client", "")), str(drive.get("client_name", ""))


def _below(drives: Sequence[Row]) -> str:
    """The text below the table: an explanation of the columns, and the command that lists the runs."""
    count = sum(drive["runs"] for drive in drives)
    return (
        f"{counted(count, 'run')}; a row is a drive, or all drives below one target."
        ' "at most": this share of cuts may lose data (95 % confidence), with the class of cuts that kept the'
        " drive's power."
        " `durability runs --all` lists the runs."
    )


async def show(endpoint: Endpoint, run: int, *, json: bool, out: TextIO) -> None:
    """Write the server's data of `run` to `out`. Raises PeerError, and RefusedError for an unknown run."""
    with closing(await connect(endpoint, "query")) as connection:
        document = (await connection.request(Show(run=run), Shown)).document
    if json:
        print_json({"schema": SHOW_SCHEMA, **document}, out)
        return
    for line in _page(document):
        print(plain_text.as_line(line), file=out)


async def export(endpoint: Endpoint, run: int, *, output: Path | None, out: TextIO) -> None:
    """Write the case of `run` to the file `output`, or to `out`, for `verify --from-export`.

    An existing file is not replaced. Raises like `show`, and SetupError if the file cannot be written.
    """
    if output is not None:
        output_files.check_new(output, _EXPORT)
    with closing(await connect(endpoint, "query")) as connection:
        case = (await connection.request(Export(run=run), CaseFile)).case
    if output is None:
        print_json(case, out)
    else:
        output_files.create(output, f"{to_json(case)}\n".encode(), _EXPORT)


def _page(document: Row) -> Iterator[str]:
    case = case_from_value(document["case"])
    yield from _head(case)
    if case.armed is not None:
        yield ""
        yield from describe(case.armed)
    if case.events:
        yield ""
        yield from (
            f"{event.wall}  {event.kind:<16} {shortened(event.text, _TEXT_CHARACTERS)}"
            for event in case.events
        )
    if case.looks:
        yield ""
        yield from (_look(look, case.run) for look in case.looks)
    for verdict in _documents(document.get("verdicts")):
        yield ""
        yield f"verdict      {verdict.get('verdict')}, cut: {verdict.get('cut', {}).get('class')}"
        match verdict.get("requirements"):
            case {"cut": str(cut), "min_cuts": int(cuts)}:  # missing from earlier releases
                yield f"             asked for: a cut of class {cut}, {counted(cuts, 'verified cut')}"
        yield from (f"             {_reason(reason)}" for reason in _documents(verdict.get("reasons")))
    evidence = _documents(document.get("evidence"))
    if evidence:
        yield ""
        total = sum(piece["bytes"] for piece in evidence)
        copies = counted(len(evidence), "copy", "copies")
        yield f"evidence     {copies} of slots as they were found, {total:,} bytes in all"


def _head(case: Case) -> Iterator[str]:
    plan = Plan.decode(bytes.fromhex(case.plan))
    yield f"run          {case.run} {case.label}".rstrip()
    yield f"state        {case.state}, session: {case.session_end}"
    yield f"plan         {describe_operations(plan)}"
    yield f"             {describe_writers(plan)}, credit of {counted(plan.credit, 'operation')}"
    yield f"acked        {sum(case.frontiers)}, control arm completed {case.control}"
    if case.statistics is not None:
        yield from (f"{name:<12} {text}" for name, text in describe_commits(plan, case.statistics))
        if case.armed is not None:
            leaves = leaf_flushes(plan, case.armed, case.statistics)
            yield from (f"flushes      {describe_flushes(leaf)}" for leaf in leaves)
    if case.tainted:
        yield f"tainted      {case.tainted}"
    if (stands := weightiest(case.verdicts)) is not None:
        yield f"stands       {stands.verdict}, cut: {stands.cut_class}, of {stands.wall}"
    if case.superseded_by:
        yield f"superseded   by run {case.superseded_by}"


def _look(look: Look, run: str) -> str:
    """The data that a call of `verify` sent to the server before it read the target."""
    of = "" if look.run == run else f" of run {look.run}"
    said = f'attested "{look.attested}"' if look.attested else "no cut attested"
    drives = "".join(f", {one.name} diskseq {one.diskseq or '?'}" for one in look.facts.drives)
    return f"{look.wall}  {'verify-begins':<16} boot {look.facts.host.boot_id[:8] or '?'}{drives}; {said}{of}"


def _reason(value: Any) -> str:
    """The text of a verdict's reason. Servers before release 0.2 stored reasons of any form."""
    match value:
        case {"text": str(text)}:
            return text
        case {"code": str(code)}:
            return REASONS.get(code, code)
    return "a reason of an unknown form"


def _documents(value: Any) -> list[Row]:
    return list(value or ())
