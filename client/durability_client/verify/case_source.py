"""Where the log of a run comes from and the evidence goes to: the server, or an export.

Evidence is stored on the server, not on the machine under test, whose drives are in doubt. An export is only
read: a verdict made from it is printed and not stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol

from durability import limits
from durability.errors import FormatError, PeerError, RefusedError, SetupError
from durability.evidence.scan_report import Example
from durability.formats.case import Case, case_from_value
from durability.formats.documents import from_json, to_value
from durability.formats.facts import Facts
from durability.formats.packing import Value
from durability.protocol.messages import CaseFile, Evidence, Fetch, GiveVerdict, Stored
from durability.units import counted, format_run
from durability_client.link.endpoint import Endpoint
from durability_client.link.server_connection import connect


class CaseSource(Protocol):
    """The log of a run, as far as it exists."""

    async def open(self, run: int, facts: Facts, *, end: bool) -> Case | None:
        """The case of `run`, or with 0 of the newest run on the target of `facts`; None where `run` is not
        known.

        `end`: nothing may be added to the run from now on. Raises PeerError, SetupError.
        """

    async def close(self, run: int, document: dict[str, Value], examples: Sequence[Example]) -> str:
        """Keep the verdict, then the evidence. Returns what of the evidence is not kept and why, "" if all
        is. Raises PeerError where the verdict is not kept."""


class ServerCaseSource:
    """The server's own log."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def open(self, run: int, facts: Facts, *, end: bool) -> Case | None:
        """Ask the server. None where it does not know `run`; without a run that is PeerError, as all else."""
        request = Fetch(run=run, facts=to_value(facts), end=end)
        try:
            with closing(await connect(self._endpoint, "verify")) as connection:
                return case_from_value((await connection.request(request, CaseFile)).case)
        except RefusedError as error:
            if error.code != "run-unknown" or run == 0:
                raise
            return None

    async def close(self, run: int, document: dict[str, Value], examples: Sequence[Example]) -> str:
        """Store the verdict on the server, then the raw bytes of each example."""
        with closing(await connect(self._endpoint, "verify")) as connection:
            await connection.request(GiveVerdict(run=run, document=document), Stored)
            for number, example in enumerate(examples):
                piece = Evidence(run=run, name=_name_of(number, example), data=example.data)
                assert len(piece.data) <= limits.EVIDENCE_BYTES_MAX
                try:
                    await connection.request(piece, Stored)
                except PeerError as error:  # which ends the connection
                    return f"{len(examples) - number} of {counted(len(examples), 'copy', 'copies')}: {error}"
        return ""


class ExportCaseSource:
    """A file that `durability export` wrote."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def open(self, run: int, facts: Facts, *, end: bool) -> Case | None:
        """Read the file; `end` has no effect on it. Raises SetupError, FormatError for another content."""
        try:
            case = case_from_value(from_json(self._path.read_bytes()))
        except OSError as error:
            raise SetupError(f"cannot read the export {self._path}: {error.strerror}") from error
        except FormatError as error:
            raise FormatError(f"{self._path}: {error}") from error
        if run and case.run != format_run(run):
            raise SetupError(f"{self._path} holds run {case.run}, but run {format_run(run)} was asked for")
        return case

    async def close(self, run: int, document: dict[str, Value], examples: Sequence[Example]) -> str:
        """Store nothing: an export is only read."""
        return ""


def _name_of(number: int, example: Example) -> str:
    judgement = example.judgement
    place = (
        f"writer {judgement.writer} slot {judgement.slot} TARGET{judgement.suffix} offset {judgement.offset}"
    )
    return f"{example.kind} {number:04d} {place}"
