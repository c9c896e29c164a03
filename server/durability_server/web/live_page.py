"""The server's side of the live page: binds its address, runs its process, and sends it state of the server.

The page is a separate process, so that no browser delays an acknowledgement. It ends with the server in every
case, because its standard input ends then. If the process ends or hangs, one line reports that, and it is
started again. The socket stays open meanwhile. This module does not import what only that process needs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress

from durability.errors import SetupError
from durability.units import format_address, is_loopback, parse_address
from durability_server.announcements import Announce
from durability_server.web.page_exchange import PULSE_S, PageSettings, Pulse, line_of

PORT = 7421  # default port
WHO = "live page"

_MODULE = "durability_server.web.page_process"
_BACKLOG = 128
_START_S = 60.0  # time for the process to report that it is alive; a machine may be busy
_SILENT_S = 10.0  # time without a report that counts as one silence
_SILENCES_MAX = 3  # after this many silences in a row the process counts as hung
_AGAIN_S = (1.0, 60.0)  # first and longest pause before the process is started again
_END_S = 5.0  # time for the process to end
_UNHEARD_BYTES_MAX = 64 << 10  # unread pulses of a process that does not read

log = logging.getLogger(__name__)


class LivePage:
    """The page at `address`, HOST or HOST:PORT. `listen`, then `start`, then `close`."""

    def __init__(self, address: str, *, store_url: str, announce: Announce) -> None:
        """Raises UsageError for an invalid address."""
        self._host, self._port = parse_address(address, port=PORT)
        if address.endswith(":0"):
            self._port = 0
        self._store_url = store_url
        self._announce = announce
        self._socket: socket.socket | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._keeping: asyncio.Task[None] | None = None

    @property
    def process(self) -> int | None:
        """Process id of the page, None if it does not run."""
        return None if self._process is None or self._process.returncode is not None else self._process.pid

    def listen(self) -> None:
        """Binds the address. Raises SetupError."""
        where = format_address(self._host, self._port)
        try:
            family, *_, address = socket.getaddrinfo(
                self._host or None, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            self._socket = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
            raise SetupError(
                f"cannot show the live page on {where}: {why}. Give --web another address or port"
            ) from error
        self._port = self._socket.getsockname()[1]

    async def start(self, pulse: Callable[[], Pulse]) -> str:
        """Starts the process and keeps it running. `pulse` is called every second. Returns the page's address
        for people. Raises SetupError if the process does not report that it is alive."""
        try:
            process = await self._begin()
            async with asyncio.timeout(_START_S):
                line = await _line_from(process)
        except (OSError, TimeoutError) as error:
            await self.close()
            raise SetupError(f"cannot start the live page: {error or 'it says nothing'}") from error
        if not line:
            code = await process.wait()
            await self.close()
            raise SetupError(
                f"the live page ended as it started (exit code {code}): the lines above have the reason"
            )
        self._keeping = asyncio.get_running_loop().create_task(self._keep(process, pulse))
        host = self._host if self._host not in ("", "0.0.0.0", "::") else socket.gethostname()
        return f"{'http' if self._is_open else 'https'}://{format_address(host, self._port)}/"

    async def close(self) -> None:
        """Ends the process."""
        if self._keeping is not None:
            self._keeping.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeping
            self._keeping = None
        if self._process is not None:
            await _end(self._process)
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    @property
    def _is_open(self) -> bool:
        return is_loopback(self._host)

    async def _begin(self) -> asyncio.subprocess.Process:
        assert self._socket is not None
        self._process = process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", _MODULE),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=(self._socket.fileno(),),
            start_new_session=True,  # Ctrl-C must reach only the server, which ends the process
        )
        settings = PageSettings(
            store_url=self._store_url,
            descriptor=self._socket.fileno(),
            host=self._host,
            open=self._is_open,
        )
        assert process.stdin is not None
        process.stdin.write(line_of(settings))
        return process

    async def _keep(self, process: asyncio.subprocess.Process, pulse: Callable[[], Pulse]) -> None:
        """Sends pulses to the process, and starts it again whenever it ends."""
        pause_s, most_s = _AGAIN_S
        while True:
            beating = asyncio.get_running_loop().create_task(_beat(process, pulse))
            try:
                began_s = asyncio.get_running_loop().time()
                how = await _over(process)
            finally:
                beating.cancel()
            if asyncio.get_running_loop().time() - began_s > most_s:
                pause_s = _AGAIN_S[0]
            self._announce(WHO, f"{how}; it is started again in {pause_s:.0f} s")
            while True:
                await asyncio.sleep(pause_s)
                pause_s = min(most_s, 2 * pause_s)
                try:
                    process = await self._begin()
                    break
                except OSError as error:
                    log.warning("the live page cannot be started: %s", error)


async def _beat(process: asyncio.subprocess.Process, pulse: Callable[[], Pulse]) -> None:
    """Sends pulses to the process, except while it does not read."""
    stdin = process.stdin
    assert stdin is not None
    while not stdin.transport.is_closing():
        if stdin.transport.get_write_buffer_size() < _UNHEARD_BYTES_MAX:
            stdin.write(line_of(pulse()))
        await asyncio.sleep(PULSE_S)


async def _over(process: asyncio.subprocess.Process) -> str:
    """Returns how the process ended, once it has ended. Ends a process that hangs."""
    silences = 0
    while silences < _SILENCES_MAX:
        try:
            async with asyncio.timeout(_SILENT_S):
                line = await _line_from(process)
            if not line:
                return f"its process ended ({await process.wait()})"
            silences = 0
        except TimeoutError:
            silences += 1
    await _end(process)
    return "its process hung and was ended"


async def _line_from(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    return await process.stdout.readline()


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with asyncio.timeout(_END_S):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
