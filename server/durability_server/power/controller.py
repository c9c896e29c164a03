"""The server's side of the power controller: starts its process on demand, sends requests and reads answers.

A request may take a minute. It never delays the server, because another process does it. A request whose
controller died has failed and is not repeated: only its caller knows whether it may be.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import suppress
from pathlib import Path

from durability.campaign.definition.settings import Power
from durability.campaign.log_entries import Operation
from durability_server import clock
from durability_server.power.exchange import (
    SwitchAccess,
    SwitchAnswer,
    SwitchRequest,
    answer_of,
    request_line,
)

_MODULE = "durability_server.power.controller_process"
_GRACE_S = 60.0  # extra time of a request, for a busy machine; after it the controller counts as hung
_END_S = 10.0  # time for the controller to end the processes that it started

log = logging.getLogger(__name__)


class Controller:
    """The power controller of one server. `directory` has the locks of switches. Controllers that may reach
    the same switches must share it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.absolute()
        self._starting = asyncio.Lock()
        self._child: _Child | None = None

    @property
    def process(self) -> int | None:
        """Process id of the controller, None if it does not run."""
        return None if self._child is None or self._child.is_over else self._child.process

    async def ask(self, power: Power, operation: Operation) -> SwitchAnswer:
        """Asks a switch, within about `power.timeout_s`. Requests to the same switch wait for each other.
        Raises nothing: the answer reports errors of the switch, its options or the controller. If the caller
        is cancelled, the request continues, and a later one waits for it."""
        began_ns = clock.now_ns()
        try:
            child = await self._started()
        except OSError as error:
            return _failed(f"the power controller cannot be started: {error}", began_ns)
        try:
            return await asyncio.wait_for(child.ask(power, operation), power.timeout_s + _GRACE_S)
        except TimeoutError:
            child.kill()
            return _failed("the power controller hung and was ended: the switch may have obeyed", began_ns)

    async def close(self) -> None:
        """Ends the controller and the processes that it started. Requests under way fail. Call this once,
        after the last request."""
        async with self._starting:
            if self._child is not None:
                await self._child.close()

    async def _started(self) -> _Child:
        async with self._starting:
            if self._child is None or self._child.is_over:
                self._child = await _Child.start(self._directory)
            return self._child


class _Child:
    """One controller process until its end."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._requests = 0
        self._asked: dict[int, tuple[int, asyncio.Future[SwitchAnswer]]] = {}
        self._hearing = asyncio.get_running_loop().create_task(self._hear())

    @classmethod
    async def start(cls, directory: Path) -> _Child:
        """Starts the process. Raises OSError."""
        _make(directory)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", _MODULE, str(directory)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C must reach only the server, which ends the controller
        )
        return cls(process)

    @property
    def process(self) -> int:
        return self._process.pid

    @property
    def is_over(self) -> bool:
        """Whether the process accepts no more requests."""
        return self._hearing.done()

    async def ask(self, power: Power, operation: Operation) -> SwitchAnswer:
        self._requests += 1
        number = self._requests
        future: asyncio.Future[SwitchAnswer] = asyncio.get_running_loop().create_future()
        self._asked[number] = clock.now_ns(), future
        assert self._process.stdin is not None
        request = SwitchRequest(number=number, switch=SwitchAccess.of(power), operation=operation)
        self._process.stdin.write(
            request_line(request)
        )  # if the process has ended, `_hear` fails the request
        return await future

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()

    async def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(asyncio.shield(self._hearing), _END_S)
        except TimeoutError:
            self.kill()
            await self._hearing

    async def _hear(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            number, answer = answer_of(line)
            _, future = self._asked.pop(number)
            if not future.done():  # its caller may have been cancelled
                future.set_result(answer)
        code = await self._process.wait()
        if self._asked:
            log.warning("the power controller ended (%d) with %d requests under way", code, len(self._asked))
        for began_ns, future in self._asked.values():
            if not future.done():
                future.set_result(
                    _failed(f"the power controller ended ({code}): the switch may have obeyed", began_ns)
                )
        self._asked.clear()


def _make(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)


def _failed(text: str, began_ns: int) -> SwitchAnswer:
    return SwitchAnswer(outcome="failed", text=text, began_ns=began_ns, ended_ns=clock.now_ns())
