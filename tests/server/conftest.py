"""Real servers on port 0, real databases, and a client that says exactly what a test wants it to say."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar, cast

import pytest

from durability import limits
from durability.formats.case import Case, case_from_value
from durability.formats.documents import to_value
from durability.formats.facts import Facts
from durability.formats.plan import Plan
from durability.protocol import messages
from durability.protocol.auth import APPLICATION
from durability.protocol.frame import FrameDecoder
from durability.protocol.join_code import parse_join_code
from durability.protocol.local_address import socket_name
from durability.protocol.messages import Message, decode
from durability.protocol.secure_stream import PlainStream, SecureStream, Stream, client_context
from durability.protocol.state_machine import ClientProtocol
from durability_lab.kernel_rig.block_rig import without_loop_mounts
from durability_lab.support.postgresql import PostgreSQL, postgresql_is_installed, postgresql_server
from durability_server.announcements import Announce, silence
from durability_server.runs import leases
from durability_server.server import Server
from durability_server.store import database, lease_store
from tests.sample_facts import facts
from tests.waiting import DEADLINE_S

SECRET = b"s" * 32

M = TypeVar("M", bound=Message)

PLAN_FIELDS: dict[str, Any] = {
    "run": 0x0123456789ABCDEF,
    "seed": 7,
    "target": 0xC0FFEE,
    "target_kind": "file",
    "workload": "overwrite",
    "pattern": "random",
    "record_bytes": 4096,
    "writers": 2,
    "slots": 4000,
    "group": 1,
    "credit": 1000,
    "sync": "fdatasync",
    "direct": False,
    "block_bytes": 4096,
    "control_slots": 16,
    "control_interval_us": 5000,
}

FACTS = facts(machine="machine-1", path_in_file_system="/target", uptime_s=1)


class Client:
    """A client whose every message a test chooses; only the handshake and heartbeats go by themselves."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        stream: Stream,
        session: ClientProtocol,
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.stream = stream
        self.session = session
        self.received: list[Message] = []
        self.arrived = asyncio.Event()
        self.reading = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        """Reads until the connection ends; what ends it is raised to whoever waits."""
        try:
            while data := await self.reader.read(1 << 16):
                self.received += self.session.receive(self.stream.receive(data))
                if self.stream.failure is not None:
                    raise self.stream.failure
                self.flush()
                self.arrived.set()
            raise ConnectionError("the server closed the connection")
        finally:
            self.arrived.set()

    def flush(self) -> None:
        """Writes what the session has to say."""
        self.say_bytes(self.session.outgoing())

    def say_bytes(self, data: bytes) -> None:
        """Writes whatever a test wants, as the peer of a known client would get it."""
        if data:
            self.stream.send(data)
        self.writer.write(self.stream.outgoing())

    def say(self, message: Message) -> None:
        """Sends `message`."""
        self.session.send(message)
        self.flush()

    async def get(self, kind: type[M]) -> M:
        """The next message of `kind`; others before it are dropped. Raises what ended the connection."""
        while True:
            while self.received:
                message = self.received.pop(0)
                if isinstance(message, kind):
                    return message
            await self._wait()

    async def _wait(self) -> None:
        if self.reading.done():
            self.reading.result()
        self.arrived.clear()
        await self.arrived.wait()

    async def shaken_hands(self) -> None:
        """Returns when the handshake is over. Raises what ended the connection instead."""
        while not self.session.authenticated:
            await self._wait()

    async def ask(self, message: Message, kind: type[M]) -> M:
        """Sends `message` and returns the answer."""
        self.say(message)
        return await self.get(kind)

    async def ended(self) -> BaseException:
        """What ended the connection, once it has."""
        await asyncio.wait([self.reading])
        error = self.reading.exception()
        assert error is not None
        return error

    async def register(
        self, plan: Plan, facts: Facts, *, force: bool = False, label: str = "label"
    ) -> messages.Accepted:
        """Registers a run."""
        register = messages.Register(
            run=plan.run,
            plan=plan.encode(),
            facts=to_value(facts),
            secret=SECRET,
            label=label,
            force=force,
        )
        return await self.ask(register, messages.Accepted)

    async def begin(self, plan: Plan, facts: Facts, *, force: bool = False, label: str = "label") -> None:
        """Registers and arms a run."""
        await self.register(plan, facts, force=force, label=label)
        await self.ask(messages.ArmRun(facts=to_value(facts)), messages.Armed)

    async def resume(self, run: int, secret: bytes = SECRET) -> messages.Accepted:
        """Goes on with a run."""
        return await self.ask(messages.Resume(run=run, secret=secret), messages.Accepted)

    async def acknowledge(self, *frontiers: int, control: int = 0) -> None:
        """Acknowledges, and waits until credit for these frontiers came."""
        self.say(messages.Ack(frontiers=frontiers, control=control))
        while (await self.get(messages.Credit)).grants != frontiers:
            pass

    async def fetch(self, run: int, facts: Facts, *, end: bool = False) -> Case:
        """Fetches a case as verify does."""
        case_file = await self.ask(messages.Fetch(run=run, facts=to_value(facts), end=end), messages.CaseFile)
        return case_from_value(case_file.case)

    async def export(self, run: int) -> Case:
        """Fetches a case as it is now."""
        return case_from_value((await self.ask(messages.Export(run=run), messages.CaseFile)).case)

    def pause(self) -> None:
        """Reads nothing, so that no heartbeat is answered."""
        self._transport.pause_reading()

    def unread(self) -> list[Message]:
        """What has come since `pause` and waits to be read; only on the local socket, which has no TLS."""
        data = b""
        ours = socket.socket(fileno=os.dup(self.writer.get_extra_info("socket").fileno()))
        with ours, suppress(BlockingIOError):
            data = ours.recv(1 << 16, socket.MSG_PEEK)
        return [decode(body) for body in FrameDecoder(limits.FRAME_BYTES_MAX).feed(data)]

    def go_on(self) -> None:
        """Reads again."""
        self._transport.resume_reading()

    @property
    def _transport(self) -> asyncio.Transport:
        return cast(asyncio.Transport, self.writer.transport)

    def vanish(self) -> None:
        """Stops answering without closing: what a machine without power looks like."""
        self.reading.cancel()

    def reset(self) -> None:
        """Ends the connection with an RST."""
        linger = (1).to_bytes(4, sys.byteorder) + bytes(4)
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._transport.abort()

    async def close(self) -> None:
        """Ends the connection as a process does that exits and has read all that came: with a FIN, which a
        heartbeat that comes now must not turn into an RST."""
        self.reading.cancel()
        with suppress(OSError):  # it is over already
            self.writer.write_eof()
        self.writer.close()
        await asyncio.wait([self.reading])


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A server in this process and where it listens."""

    server: Server
    address: tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A client that has joined a server."""

    fingerprint: bytes
    client: str
    secret: bytes


class Lab:
    """Makes servers and clients and what they talk about, and cleans up after them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.members: dict[tuple[str, int], Member] = {}  # who `connect` is, at each address
        self._joined: dict[str, Member] = {}  # by store
        self._servers: list[Server] = []
        self._clients: list[Client] = []

    async def start(self, store_url: str, *, announce: Announce = silence, readers: bool = False) -> Running:
        """Starts a server on a store and port 0, and joins it. `readers` is as `Server` has it."""
        server = Server(store_url=store_url, announce=announce, readers=readers)
        self._servers.append(server)
        address = await server.start("127.0.0.1", 0, directory=self.directory)
        if store_url not in self._joined:
            self._joined[store_url] = await self.join(address, (await server.invite()).line)
        self.members[address] = self._joined[store_url]
        return Running(server=server, address=address)

    async def join(
        self, address: tuple[str, int], line: str, *, name: str = "test", machine: str = ""
    ) -> Member:
        """Joins a server with the line that it gave; `machine`: as one that keeps nothing on a disk."""
        code = parse_join_code(line.rsplit(maxsplit=1)[-1])
        stranger = Member(fingerprint=code.fingerprint, client="", secret=code.secret)
        client = await self.connect(address, "join", member=stranger)
        assert isinstance(client.stream, SecureStream)
        fingerprint = client.stream.certificate_fingerprint
        asked = messages.JoinMachine(name=name, machine=machine) if machine else messages.Join(name=name)
        joined = await client.ask(asked, messages.Joined)
        await client.close()
        return Member(fingerprint=fingerprint, client=joined.client, secret=joined.secret)

    async def connect(
        self,
        address: tuple[str, int],
        purpose: str = "run",
        *,
        member: Member | None = None,
        local: bool = False,
    ) -> Client:
        """Connects a client and does the handshake; `local`: as the operator, on the local socket. Raises
        what the server refuses it with."""
        if local:
            path = str(self.directory / socket_name(address[1]))
            reader, writer = await asyncio.open_unix_connection(path)
            session = ClientProtocol(purpose, client="", secret=b"", software="durability test")
            client = Client(reader, writer, PlainStream(), session)
        else:
            me = member or self.members[address]
            reader, writer = await asyncio.open_connection(*address)
            stream = SecureStream.client_end(client_context(), fingerprint=me.fingerprint)
            session = ClientProtocol(purpose, client=me.client, secret=me.secret, software="durability test")
            client = Client(reader, writer, stream, session)
        self._clients.append(client)
        session.start()
        client.flush()
        await client.shaken_hands()
        return client

    async def exported(self, address: tuple[str, int], run: int, until: Callable[[Case], bool]) -> Case:
        """The case of a run as soon as it is as `until` wants it, for the operator."""
        client = await self.connect(address, "query", local=True)
        async with asyncio.timeout(DEADLINE_S):
            while True:
                case = await client.export(run)
                if until(case):
                    return case

    def plan(self, **changes: Any) -> Plan:
        """A valid plan, any field of it given by keyword."""
        return Plan(**{**PLAN_FIELDS, **changes})

    def facts(self, *, serial: str = "S1", uuid: str = "uuid-1", **changes: Any) -> Facts:
        """The facts of a file: the drive's `serial`, the file system's `uuid`, and fields of `Facts`."""
        assert FACTS.file_system is not None
        facts = replace(
            FACTS,
            file_system=replace(FACTS.file_system, uuid=uuid),
            drives=(replace(FACTS.drives[0], serial=serial),),
        )
        return replace(facts, **changes)

    async def close(self) -> None:
        """Closes all clients, then all servers."""
        for client in self._clients:
            await client.close()
        for server in self._servers:
            await server.stop()


@pytest.fixture(autouse=True)
def patient_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL gives up no transaction because the machine stands still."""
    options = str(database._POSTGRESQL_OPTIONS["options"])
    monkeypatch.setitem(database._POSTGRESQL_OPTIONS, "connect_timeout", DEADLINE_S)
    monkeypatch.setitem(database._POSTGRESQL_OPTIONS, "options", options.replace("=4s", f"={DEADLINE_S}s"))


@pytest.fixture
def impatient_database(patient_database: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL gives up a transaction of a server that stands still, as it does outside of tests."""
    options = str(database._POSTGRESQL_OPTIONS["options"])
    monkeypatch.setitem(database._POSTGRESQL_OPTIONS, "options", options.replace(f"={DEADLINE_S}s", "=4s"))


@pytest.fixture
def no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """No session counts as silent, in this process and in a `server_process`: clients of a few lines say
    nothing by themselves, and stand still whenever the machine does."""
    monkeypatch.setattr(limits, "SILENCE_NS", 3600 * 10**9)


@pytest.fixture
def local_directory() -> Iterator[Path]:
    """Where local sockets lie: a path that is short enough for them."""
    with tempfile.TemporaryDirectory(prefix="durability-test-") as state:
        directory = Path(state, APPLICATION)  # where commands find them with XDG_STATE_HOME
        directory.mkdir()
        yield directory


@pytest.fixture
async def lab(local_directory: Path) -> AsyncIterator[Lab]:
    """A lab."""
    lab = Lab(local_directory)
    yield lab
    await lab.close()


# What a test has patched of these holds in a `ServerProcess` too.
_BOUNDS = (
    (limits, "SILENCE_NS"),
    (limits, "HANDSHAKE_TIMEOUT_S"),
    (lease_store, "LEASE_MS"),
    (leases, "ASKED_S"),
    (database, "_POSTGRESQL_OPTIONS"),
)

_SERVE = """
import asyncio, importlib, json, sys
from pathlib import Path
from durability_server.server import serve
listen, store_url, directory, joined, bounds, web = sys.argv[1:]
for module, name, value in json.loads(bounds):
    setattr(importlib.import_module(module), name, value)
async def ready(server, host, port):
    print(port, flush=True)
    print("" if joined else (await server.invite()).line, flush=True)
def announce(who, what):
    print(f"{who}: {what}", file=sys.stderr, flush=True)
asyncio.run(
    serve(
        listen=listen,
        store_url=store_url,
        directory=Path(directory),
        ready=ready,
        announce=announce if web else lambda who, what: None,
        web=web or None,
    )
)
"""


class ServerProcess:
    """A server in a process of its own, which can be killed and started again on the same port and store."""

    def __init__(self, store_url: str, log: Path, lab: Lab) -> None:
        self._store_url = store_url
        self._log = log
        self._lab = lab
        self.address = ("127.0.0.1", 0)
        self.line = ""  # with which it was joined
        self.web = ""  # the address of its live page
        self.process: subprocess.Popen[str] | None = None

    @property
    def log(self) -> str:
        """All that its processes have logged."""
        return self._log.read_text()

    def start(self) -> None:
        """Starts it and waits until it listens."""
        listen = f"{self.address[0]}:{self.address[1]}"
        options = (
            listen,
            self._store_url,
            str(self._lab.directory),
            self.line,
            json.dumps([(module.__name__, name, getattr(module, name)) for module, name in _BOUNDS]),
            self.web,
        )
        command = [sys.executable, "-c", _SERVE, *options]
        with self._log.open("a") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log
        self.address = (self.address[0], int(line))
        invited = self.process.stdout.readline().strip()
        if invited:
            self.line = invited

    async def join(self) -> None:
        """Joins it, once."""
        self._lab.members[self.address] = await self._lab.join(self.address, self.line)

    def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        """Ends it with a signal, waits, and returns its exit code."""
        assert self.process is not None
        with self.process as process:
            process.send_signal(number)
            return process.wait(timeout=DEADLINE_S)


@pytest.fixture
def server_process(tmp_path: Path, lab: Lab) -> Iterator[Callable[[str], Awaitable[ServerProcess]]]:
    """A function that starts a server process on a store, and joins it."""
    started: list[ServerProcess] = []

    async def start(store_url: str) -> ServerProcess:
        server = ServerProcess(store_url, tmp_path / "server.log", lab)
        server.start()
        started.append(server)
        await server.join()
        return server

    yield start
    for server in started:
        if server.process is not None and server.process.poll() is None:
            server.end()


def _cannot(why: str) -> NoReturn:
    """Skips the test, but fails it where the whole lab is required."""
    if os.environ.get("DURABILITY_LAB_REQUIRED") == "1":
        pytest.fail(why)
    pytest.skip(why)


@pytest.fixture
def root() -> None:
    """Skips without root, unless DURABILITY_LAB_REQUIRED=1 says that it must be there."""
    if os.geteuid() != 0:
        _cannot("needs root")


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """A running PostgreSQL server."""
    if not postgresql_is_installed():
        _cannot("no PostgreSQL under /usr/lib/postgresql: install the package postgresql")
    with postgresql_server() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.lab)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store, of either kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.sqlite'}"
    server: PostgreSQL = request.getfixturevalue("postgresql")
    return server.new_database()


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The URL of an empty SQLite store."""
    return f"sqlite:///{tmp_path / 'store.sqlite'}"


class SmallDisk:
    """A file system that can be filled up and given free again."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._ballast = directory / "ballast"

    @property
    def store_url(self) -> str:
        """A store on it."""
        return f"sqlite:///{self.directory / 'store.sqlite'}"

    def fill(self) -> None:
        """Leaves not one block free."""
        with self._ballast.open("ab", buffering=0) as ballast:
            for size in (1 << 20, 4096, 1):
                with suppress(OSError):
                    while ballast.write(bytes(size)):
                        pass
            with suppress(OSError):
                os.fsync(ballast.fileno())

    def free(self) -> None:
        """Gives the space free."""
        self._ballast.unlink()
        os.sync()


@pytest.fixture
def power(tmp_path: Path) -> Path:
    """The file that is the power of a machine of a campaign; it is on."""
    power = tmp_path / "power"
    power.write_text("on\n")
    return power


@pytest.fixture
def small_disk(mount_small: MountSmall) -> SmallDisk:
    """A file system of a few MiB."""
    return mount_small("tmpfs")


class MountSmall(Protocol):
    """Mounts a small file system of a kind."""

    def __call__(self, kind: str, *, size_mib: int = 4, readable: bool = False) -> SmallDisk: ...


# The least that these file systems take.
_SMALL_MIB = {"ext4": 8, "xfs": 300, "btrfs": 120}


@pytest.fixture
def mount_small(tmp_path: Path) -> Iterator[MountSmall]:
    """A function that mounts a small file system; each is unmounted at the end."""
    if os.geteuid() != 0:
        _cannot("mounting a small file system needs root")
    with ExitStack() as stack:

        def mount(kind: str, *, size_mib: int = 4, readable: bool = False) -> SmallDisk:
            if readable:  # by other users too, which pytest's directories are not
                directory = Path(tempfile.mkdtemp(prefix="durability-small-"))
                stack.callback(directory.rmdir)
            else:
                directory = tmp_path / f"small-{kind}"
                directory.mkdir()
            command = ["mount", "-t", kind, "-o", f"size={size_mib}m", "tmpfs", str(directory)]
            if kind in _SMALL_MIB:
                image = tmp_path / f"{kind}.img"
                with image.open("wb") as file:
                    file.truncate(_SMALL_MIB[kind] << 20)
                subprocess.run([*without_loop_mounts(), f"mkfs.{kind}", "-q", str(image)], check=True)
                command = ["mount", "-o", "loop", str(image), str(directory)]
            subprocess.run(command, check=True)
            stack.callback(subprocess.run, ["umount", str(directory)], check=True)
            return SmallDisk(directory)

        yield mount
