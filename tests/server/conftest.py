"""Real servers on port 0, real databases, and a client that says exactly what a test wants it to say."""

from __future__ import annotations

import asyncio
import itertools
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from durability import auth, messages
from durability.case import Case, case_from_value
from durability.documents import to_value
from durability.facts import Drive, Facts, FileSystem, Host
from durability.messages import Message
from durability.packing import Value
from durability.plan import Plan
from durability.session import ClientSession
from durability_server.app import Server

TOKEN = b"a token of both machines"
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

FACTS = Facts(
    host=Host(
        machine_id="machine-1",
        boot_id="boot-1",
        uptime_ns=1,
        kernel="6.1",
        virtualisation="none",
        hostname="shelf",
    ),
    path="/mnt/target",
    path_in_file_system="/target",
    kind="file",
    size_bytes=1 << 30,
    offset_bytes=1 << 20,
    file_system=FileSystem(
        type="ext4", uuid="uuid-1", source="/dev/sda1", mount_point="/mnt", options="rw", block_bytes=4096
    ),
    layers=("sda1", "sda"),
    drives=(
        Drive(
            name="sda",
            model="M",
            serial="S1",
            firmware="F",
            size_bytes=1 << 40,
            logical_block_bytes=512,
            physical_block_bytes=4096,
            rotational=False,
            write_cache="write back",
            fua=False,
            diskseq=1,
            unsafe_shutdowns=3,
            atomic_write_bytes=None,
            flushes=0,
            emulated=False,
        ),
    ),
    warnings=(),
)


@pytest.fixture(scope="session")
def make_plan() -> Callable[..., Plan]:
    """A function that makes a valid plan, any field of it given by keyword."""

    def make(**changes: Any) -> Plan:
        return Plan(**{**PLAN_FIELDS, **changes})

    return make


@pytest.fixture(scope="session")
def make_facts() -> Callable[..., Facts]:
    """A function that makes the facts of a file; `serial`, `uuid` and any field of `Facts` by keyword."""

    def make(*, serial: str = "S1", uuid: str = "uuid-1", **changes: Any) -> Facts:
        assert FACTS.file_system is not None
        facts = replace(
            FACTS,
            file_system=replace(FACTS.file_system, uuid=uuid),
            drives=(replace(FACTS.drives[0], serial=serial),),
        )
        return replace(facts, **changes)

    return make


class Client:
    """A client whose every message a test chooses; only the handshake and heartbeats go by themselves."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, session: ClientSession
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.session = session
        self.received: list[Message] = []
        self.arrived = asyncio.Event()
        self.reading = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        """Reads until the connection ends; what ends it is raised to whoever waits."""
        try:
            while data := await self.reader.read(1 << 16):
                self.received += self.session.receive(data)
                self.flush()
                self.arrived.set()
            raise ConnectionError("the server closed the connection")
        finally:
            self.arrived.set()

    def flush(self) -> None:
        """Writes what the session has to say."""
        self.writer.write(self.session.outgoing())

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

    async def register(self, plan: Plan, facts: Facts, *, force: bool = False) -> messages.Accepted:
        """Registers a run."""
        register = messages.Register(
            run=plan.run,
            plan=plan.encode(),
            facts=to_value(facts),
            secret=SECRET,
            label="label",
            force=force,
        )
        return await self.ask(register, messages.Accepted)

    async def begin(self, plan: Plan, facts: Facts, *, force: bool = False) -> None:
        """Registers and arms a run."""
        await self.register(plan, facts, force=force)
        await self.ask(messages.Arm(facts=to_value(facts)), messages.Armed)

    async def resume(self, run: int, secret: bytes = SECRET) -> messages.Accepted:
        """Goes on with a run."""
        client_nonce, server_nonce = self.session.nonces
        proof = auth.resume_proof(secret, run=run, client_nonce=client_nonce, server_nonce=server_nonce)
        return await self.ask(messages.Resume(run=run, proof=proof), messages.Accepted)

    async def acknowledge(self, *frontiers: int, control: int = 0) -> None:
        """Acknowledges, and waits until credit for these frontiers came."""
        self.say(messages.Ack(frontiers=frontiers, control=control))
        while (await self.get(messages.Credit)).grants != frontiers:
            pass

    async def fetch(self, run: int, facts: Facts, *, end: bool = False) -> Case:
        """Fetches a case as verify does."""
        case_file = await self.ask(
            messages.Fetch(run=run, facts=to_value(facts), end=end), messages.CaseFile
        )
        return case_from_value(case_file.case)

    async def export(self, run: int) -> Case:
        """Fetches a case as it is now."""
        return case_from_value((await self.ask(messages.Export(run=run), messages.CaseFile)).case)

    def vanish(self) -> None:
        """Stops answering without closing: what a machine without power looks like."""
        self.reading.cancel()

    def reset(self) -> None:
        """Ends the connection with an RST."""
        linger = (1).to_bytes(4, sys.byteorder) + bytes(4)
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.writer.transport.abort()

    async def close(self) -> None:
        """Ends the connection as a process does that exits."""
        self.reading.cancel()
        self.writer.close()
        await asyncio.wait([self.reading])


Connect = Callable[..., Awaitable[Client]]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """A function that connects a client to an address and does the handshake."""
    clients: list[Client] = []

    async def connect(address: tuple[str, int], role: str = "run", *, token: bytes = TOKEN) -> Client:
        reader, writer = await asyncio.open_connection(*address)
        session = ClientSession(role, token, nonce=secrets.token_bytes(32), software="durability test")
        client = Client(reader, writer, session)
        clients.append(client)
        session.start()
        client.flush()
        while not session.authenticated:
            await client._wait()
        return client

    yield connect
    for client in clients:
        await client.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A server in this process and where it listens."""

    server: Server
    address: tuple[str, int]


@pytest.fixture
async def start() -> AsyncIterator[Callable[..., Awaitable[Running]]]:
    """A function that starts a server on a store and port 0."""
    running: list[Server] = []

    async def start(store_url: str, *, token: bytes = TOKEN, **options: Any) -> Running:
        server = Server(store_url=store_url, token=token, **options)
        address = await server.start("127.0.0.1", 0)
        running.append(server)
        return Running(server=server, address=address)

    yield start
    for server in running:
        await server.stop()
