"""A flood of unwanted connections to a server, for tests and benchmarks, made by a separate process.

The connections come from several addresses of this machine's loopback network, 127.0.1.1 and so on. Each
sends its opening, which may be empty, and then waits. A connection that the server closes is replaced. This
module only counts connections; its callers check the server. No command of the lab uses it.
"""

from __future__ import annotations

import json
import select
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass

from durability.errors import SetupError
from durability.protocol.secure_stream import SecureStream, client_context
from durability_client.system.processes import main_of
from durability_server.server import raise_file_limit

_IP_BIND_ADDRESS_NO_PORT = 24  # Linux chooses the port at connect, so that there are enough ports
_FROM = "127.0.1."
_STEP_S = 0.005  # interval for making connections and noticing closed ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Flood:
    """The parameters of a flood."""

    port: int  # port of the server, on loopback
    held: int  # connections held open at a time
    rate: int  # most new connections per second
    sources: int = 4  # number of source addresses
    opening: str = ""  # bytes that each connection sends at once, as hexadecimal
    renewed: bool = False  # once all are open, new connections keep replacing the oldest ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Numbers of a flood's connections: open now, made so far, closed by the server so far."""

    open: int
    made: int
    closed: int


class RunningFlood:
    """A flood in a separate process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def counted(self) -> Counted:
        """The present numbers of connections. Raises SetupError if the process has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SetupError("the process that makes the strangers' connections has ended")
        return Counted(**json.loads(line))


def client_hello() -> str:
    """The complete first message of a TLS handshake, as hexadecimal."""
    return SecureStream.client_end(client_context(), fingerprint=bytes(32)).outgoing().hex()


@contextmanager
def running(flood: Flood) -> Iterator[RunningFlood]:
    """The flood, for the duration of the block, which begins when `held` connections have been made."""
    command = main_of(__name__, json.dumps(asdict(flood)))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        running = RunningFlood(process)
        while running.counted().made < flood.held:
            time.sleep(_STEP_S)
        yield running
        assert process.stdin is not None
        process.stdin.close()


class _Strangers:
    """The connections of one flood."""

    def __init__(self, flood: Flood) -> None:
        self._flood = flood
        self._opening = bytes.fromhex(flood.opening)
        self._open: dict[int, socket.socket] = {}  # by descriptor, oldest first
        self._poll = select.epoll()
        self._made = 0
        self._closed = 0
        self._due: deque[float] = deque()

    def counted(self) -> Counted:
        return Counted(open=len(self._open), made=self._made, closed=self._closed)

    def add(self, count: int) -> None:
        """Makes `count` connections. If all are open, each replaces the oldest, or none is made without
        `renewed`."""
        for _ in range(count):
            if len(self._open) >= self._flood.held:
                if not self._flood.renewed:
                    return
                self._end(next(iter(self._open)))
            self._connect()

    def look(self) -> None:
        """Sends the opening on new connections, and drops connections that the server has closed."""
        for descriptor, events in self._poll.poll(0, 1 << 16):
            if events & (select.EPOLLHUP | select.EPOLLERR | select.EPOLLRDHUP):
                self._closed += 1
                self._end(descriptor)
            elif events & select.EPOLLOUT:
                with suppress(OSError):
                    self._open[descriptor].send(self._opening)
                self._poll.modify(descriptor, select.EPOLLRDHUP)

    def _connect(self) -> None:
        stranger = socket.socket()
        stranger.setblocking(False)
        stranger.setsockopt(socket.SOL_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        stranger.bind((f"{_FROM}{1 + self._made % self._flood.sources}", 0))
        with suppress(BlockingIOError):
            stranger.connect(("127.0.0.1", self._flood.port))
        self._open[stranger.fileno()] = stranger
        self._poll.register(stranger, select.EPOLLRDHUP | (select.EPOLLOUT if self._opening else 0))
        self._made += 1

    def _end(self, descriptor: int) -> None:
        self._open.pop(descriptor).close()


def main() -> None:
    """Entry point of the process: a line on stdin asks for the numbers, the end of stdin ends the process."""
    raise_file_limit()
    flood = Flood(**json.loads(sys.argv[1]))
    strangers = _Strangers(flood)
    began_s, begun = time.monotonic(), 0
    while True:
        asked, _, _ = select.select([sys.stdin], [], [], _STEP_S)
        if asked:
            if not sys.stdin.readline():
                return
            print(json.dumps(asdict(strangers.counted())), flush=True)
        due = int((time.monotonic() - began_s) * flood.rate)
        strangers.add(min(due - begun, flood.rate))
        begun = due
        strangers.look()
