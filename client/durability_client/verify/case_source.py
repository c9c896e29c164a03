"""Where the log of a run comes from and the evidence goes to: the server, or an export.

Evidence is stored on the server, not on the machine under test, whose drives are in doubt. An export is only
read: a verdict made from it is printed and not stored.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol

from durability import limits
from durability.errors import AuthenticationError, FormatError, PeerError, RefusedError, SetupError
from durability.evidence.judge import Attestation, Found
from durability.evidence.scan_report import Example
from durability.formats.case import Case, case_from_value
from durability.formats.documents import from_json, to_value
from durability.formats.facts import Facts
from durability.formats.packing import Value
from durability.protocol.messages import CaseFile, Evidence, Examine, Fetch, GiveVerdict, Message, Stored
from durability.units import counted, format_run
from durability_client.link.endpoint import Endpoint
from durability_client.link.server_connection import connect

WAIT_S = 60.0  # for a server that is away and is to store a verdict: it may be restarted
_AGAIN_S = 1.0


class CaseSource(Protocol):
    """The log of a run, as far as it exists."""

    async def open(self, run: int, facts: Facts) -> Case | None:
        """The case of `run`, or with 0 of the newest run on the target of `facts`; None where `run` is not
        known. Raises PeerError, SetupError."""

    async def end(self, run: int, found: Found, attestation: Attestation) -> Case | None:
        """The case of `run`, to which nothing may be added from now on: its target is about to be read. Keeps
        what was `found` of that, and what the operator says of the cut. Raises as `open` does."""

    async def close(self, run: int, document: dict[str, Value], examples: Sequence[Example]) -> str:
        """Keep the verdict, then the evidence. Returns what of the evidence is not kept and why, "" if all
        is. Raises PeerError where the verdict is not kept."""


class ServerCaseSource:
    """The server's own log. `on_wait` is called with the reason when `close` begins to wait for a server that
    is away."""

    def __init__(self, endpoint: Endpoint, on_wait: Callable[[str], None] = lambda _: None) -> None:
        self._endpoint = endpoint
        self._on_wait = on_wait

    async def open(self, run: int, facts: Facts) -> Case | None:
        """Ask the server. None where it does not know `run`; without a run that is PeerError, as all else."""
        return await self._asked(Fetch(run=run, facts=to_value(facts), end=False), run)

    async def end(self, run: int, found: Found, attestation: Attestation) -> Case | None:
        """Have the server end the run. One of the first release keeps nothing of what was found."""
        facts = to_value(found.facts)
        request = Examine(
            run=run,
            facts=facts,
            answers=run in (plan.run for plan in found.superblocks if plan is not None),
            attested=attestation.text or "",
            cut_class=attestation.cut_class or "",
        )
        return await self._asked(request, run, before=Fetch(run=run, facts=facts, end=True))

    async def _asked(self, request: Message, run: int, *, before: Message | None = None) -> Case | None:
        """The answer to `request`, or to that of `before`, which an earlier release has."""
        try:
            with closing(await connect(self._endpoint, "verify")) as connection:
                if before is not None and not connection.session.may_send(type(request)):
                    request = before
                return case_from_value((await connection.request(request, CaseFile)).case)
        except RefusedError as error:
            if error.code != "run-unknown" or run == 0:
                raise
            return None

    async def close(self, run: int, document: dict[str, Value], examples: Sequence[Example]) -> str:
        """Store the verdict on the server, then the raw bytes of each example."""
        left: deque[Message] = deque((GiveVerdict(run=run, document=document),))
        for number, example in enumerate(examples):
            assert len(example.data) <= limits.EVIDENCE_BYTES_MAX
            left.append(Evidence(run=run, name=_name_of(number, example), data=example.data))
        try:
            await self._store(left)
        except PeerError as error:
            if len(left) > len(examples):  # the verdict is left, too
                raise
            return f"{len(left)} of {counted(len(examples), 'copy', 'copies')}: {error}"
        return ""

    async def _store(self, left: deque[Message]) -> None:
        """Have the server store what is `left`, and remove from that what it has stored. What it may have
        stored before its answer was lost is given again: a second copy of it changes nothing. Raises
        PeerError if the server refuses something, or has been away for `WAIT_S`."""
        loop = asyncio.get_running_loop()
        until_s: float | None = None
        while True:
            try:
                with closing(await connect(self._endpoint, "verify")) as connection:
                    while left:
                        await connection.request(left[0], Stored)
                        left.popleft()
                return
            except (AuthenticationError, RefusedError):
                raise
            except PeerError as error:
                if until_s is None:
                    until_s = loop.time() + WAIT_S
                    self._on_wait(str(error))
                elif loop.time() >= until_s:
                    raise
            await asyncio.sleep(_AGAIN_S)


class ExportCaseSource:
    """A file that `durability export` wrote."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def end(self, run: int, found: Found, attestation: Attestation) -> Case | None:
        """As `open`: an export is only read."""
        return await self.open(run, found.facts)

    async def open(self, run: int, facts: Facts) -> Case | None:
        """Read the file. Raises SetupError, FormatError for another content."""
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
