"""Sources of a run's log, which also store the evidence: the server, or an export.

Evidence is stored on the server, not on the machine under test, because the drives of that machine are under
test. An export is only read: a verdict from an export is printed and not stored.
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

WAIT_S = 60.0  # wait for an unreachable server that must store a verdict: it may be restarting
_AGAIN_S = 1.0


class CaseSource(Protocol):
    """Source of a run's log."""

    async def open(self, run: int, facts: Facts) -> Case | None:
        """The case of `run`, or for 0 that of the newest run on the target of `facts`. None if `run` is
        unknown. Raises PeerError, SetupError."""

    async def end(self, run: int, found: Found, attestation: Attestation) -> Case | None:
        """End `run` and return its case. From now on nothing may be added to the run, because its target is
        about to be read. Stores `found` and the operator's `attestation`. Raises the same errors as `open`.
        """

    async def close(self, run: int, document: dict[str, Value], examples: Sequence[Example]) -> str:
        """Store the verdict, then the evidence. Returns how much evidence was not stored and why, or "" if
        all was stored. Raises PeerError if the verdict was not stored."""


class ServerCaseSource:
    """The log on the server. When `close` begins to wait for an unreachable server, it calls `on_wait` with
    the reason."""

    def __init__(self, endpoint: Endpoint, on_wait: Callable[[str], None] = lambda _: None) -> None:
        self._endpoint = endpoint
        self._on_wait = on_wait

    async def open(self, run: int, facts: Facts) -> Case | None:
        """Fetch the case from the server. None if the server does not know `run`. All other failures raise
        PeerError, also an unknown target with `run` 0."""
        return await self._asked(Fetch(run=run, facts=to_value(facts), end=False), run)

    async def end(self, run: int, found: Found, attestation: Attestation) -> Case | None:
        """Make the server end the run. A server of the first release does not store `found`."""
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
        """Send `request` and return the case. A server that does not know the request gets `before`."""
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
        """Make the server store the messages in `left`, and remove each stored message from `left`.

        If the server's answer to a message is lost, the message is sent again; a second copy changes nothing.
        Raises PeerError if the server refuses a message, or has been unreachable for `WAIT_S`.
        """
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
        """Like `open`, because an export is only read."""
        return await self.open(run, found.facts)

    async def open(self, run: int, facts: Facts) -> Case | None:
        """Read the file. Raises SetupError, and FormatError for a file that is not an export."""
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
