"""A real client and a real server, and somebody on the wire between them who reads, alters and repeats."""

from __future__ import annotations

import asyncio
import io
import random
import re
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from durability import limits
from durability.errors import PeerError, ProtocolError, RefusedError
from durability.formats.documents import to_value
from durability.formats.plan import Plan
from durability.protocol import messages
from durability.protocol.join_code import parse_join_code
from durability.protocol.secure_stream import SecureStream
from durability.units import format_address
from durability_client.join_command import join
from durability_client.link.credential import load_credential
from durability_client.link.endpoint import Endpoint
from durability_client.link.server_connection import Connection, connect
from durability_server.access.server_identity import new_identity
from durability_server.server import Server
from tests.joined import joined
from tests.sample_facts import facts
from tests.waiting import DEADLINE_S

FACTS = to_value(facts(machine="machine-1", path_in_file_system="/target", uptime_s=1))
FRONTIERS = ((0, 0), (3, 5), (7, 11), (13, 17))  # as they are acknowledged; no other is ever true
TYPE, HEAD_BYTES = 23, 5  # of a record of TLS that is encrypted

# What comes out for a piece that came in; b"" at the end. `to_server`: which way it goes.
Alter = Callable[[bool, bytes], list[bytes]]

CLEAR = re.compile(
    r"altered, lost or repeated on the way|no connection in TLS 1.3 came about|does not answer"
    r"|was lost|cannot connect|no handshake within|closed the connection|did not say"
)


@asynccontextmanager
async def middle(address: tuple[str, int], new: Callable[[], Alter]) -> AsyncIterator[tuple[str, int]]:
    """A proxy in front of the server at `address`; `new` makes what alters one connection. A piece None
    ends the connection."""
    connections: set[asyncio.Task[None]] = set()

    async def carry(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, alter: Alter, *, to_server: bool
    ) -> None:
        while data := await reader.read(1 << 16):
            for piece in alter(to_server, data):
                if not piece:
                    writer.close()
                    return
                writer.write(piece)
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        server_reader, server_writer = await asyncio.open_connection(*address)
        alter = new()
        with suppress(asyncio.CancelledError):  # the end of the block
            await asyncio.gather(
                carry(reader, server_writer, alter, to_server=True),
                carry(server_reader, writer, alter, to_server=False),
                return_exceptions=True,
            )
        for end in (writer, server_writer):
            end.transport.abort()
        connections.discard(task)

    listener = await asyncio.start_server(accept, "127.0.0.1", 0)
    host, port = listener.sockets[0].getsockname()[:2]
    yield host, port
    listener.close()
    for task in tuple(connections):
        task.cancel()
    await asyncio.gather(*connections, return_exceptions=True)


class Eavesdropper:
    """A server with a certificate of its own, which notes what clients say to it."""

    def __init__(self) -> None:
        self._context = new_identity().context()
        self.heard = b""
        self.over = 0

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until the client ends it."""
        stream = SecureStream.server_end(self._context)
        while data := await reader.read(1 << 16):
            self.heard += stream.receive(data)
            writer.write(stream.outgoing())
        self.over += 1
        writer.close()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[tuple[str, int]]:
        """Where it listens."""
        listener = await asyncio.start_server(self.accept, "127.0.0.1", 0)
        host, port = listener.sockets[0].getsockname()[:2]
        yield host, port
        listener.close()


class Served:
    """A real server, and a client of it."""

    def __init__(self, directory: Path) -> None:
        self.store = directory / "store.sqlite"
        self.credential = directory / "credential.json"
        self.server = Server(store_url=f"sqlite:///{self.store}")
        self.endpoint = Endpoint()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        return self.endpoint.addresses[0]

    async def start(self) -> None:
        """Starts it, after `stop` anew on the same store."""
        self.server = Server(store_url=f"sqlite:///{self.store}")
        host, port = await self.server.start("127.0.0.1", 0, directory=None)
        self.endpoint = await joined(self.server, host, port, credential=self.credential)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """A server that runs."""
    served = Served(tmp_path)
    await served.start()
    yield served
    await served.server.stop()


async def _join(address: tuple[str, int], code: str, credential: Path) -> str:
    out = io.StringIO()
    where = format_address(*address)
    await join(where, code, name="b", credential=credential, force=False, out=out)
    return out.getvalue()


async def _code(server: Server) -> str:
    return (await server.invite()).line.split()[-1]


# A server in the middle with its own certificate.


@pytest.mark.slow
async def test_a_server_with_its_own_certificate_hears_nothing(served: Served, tmp_path: Path) -> None:
    """Neither a known client nor a joining client sends anything to a server with another certificate. The
    join code stays valid."""
    other = Eavesdropper()
    code = await _code(served.server)
    async with other.listening() as address:
        for purpose in ("run", "verify", "query"):
            with pytest.raises(
                ProtocolError, match=r"another server answers.*Nothing was said to it"
            ) as known:
                await connect(replace(served.endpoint, addresses=(address,)), purpose)
        with pytest.raises(ProtocolError, match=r"the join code begins with") as joining:
            await _join(address, code, tmp_path / "new.json")
        async with asyncio.timeout(DEADLINE_S):
            while other.over < 4:  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0)
    assert other.heard == b""
    assert format_address(*address) in str(known.value)
    assert "durability clients invite" in str(joining.value)
    assert served.endpoint.secret.hex() not in f"{known.value}{joining.value}"
    assert not (tmp_path / "new.json").exists()
    assert "Joined" in await _join(served.address, code, tmp_path / "new.json")


# Bytes that are altered on the way.


async def _one_run(where: Endpoint, plan: Plan) -> Connection:
    """All that a run says, to its end; where it stops early it raises PeerError."""
    async with asyncio.timeout(DEADLINE_S):
        connection = await connect(where, "run")
        with closing(connection):
            register = messages.Register(
                run=plan.run, plan=plan.encode(), facts=FACTS, secret=bytes(32), label="label", force=True
            )
            await connection.request(register, messages.Accepted)
            await connection.request(messages.ArmRun(facts=FACTS), messages.Armed)
            for frontiers in FRONTIERS[1:]:
                connection.send(messages.Ack(frontiers=frontiers, control=0))
                while (granted := await connection.receive()) != messages.Credit(grants=frontiers):
                    assert isinstance(granted, messages.Credit)
                    assert granted.grants in FRONTIERS
            stop = messages.Stop(frontiers=FRONTIERS[-1], control=0, statistics={})
            await connection.request(stop, messages.Stopped)
    return connection


def _plan(run: int) -> Plan:
    return Plan(
        run=run,
        seed=7,
        target=run,
        target_kind="file",
        workload="overwrite",
        pattern="random",
        record_bytes=4096,
        writers=2,
        slots=4000,
        group=1,
        credit=1000,
        sync="fdatasync",
        direct=False,
        block_bytes=4096,
        control_slots=0,
        control_interval_us=0,
    )


async def _attempts(served: Served, alters: list[Callable[[], Alter]]) -> list[str]:
    """One run through each of `alters`, several at a time. What ended each, "" for one that came to its end;
    and of none has the server anything that its client did not say."""
    several = asyncio.Semaphore(16)

    async def attempt(number: int, new: Callable[[], Alter]) -> str:
        plan = _plan(number)
        async with several, middle(served.address, new) as address:
            try:
                await _one_run(replace(served.endpoint, addresses=(address,)), plan)
            except PeerError as error:
                return str(error)
        return ""

    with pytest.MonkeyPatch.context() as patched:  # one that never ends its handshake ends no later
        patched.setattr(limits, "HANDSHAKE_TIMEOUT_S", 3.0)
        ended = await asyncio.gather(*(attempt(number, new) for number, new in enumerate(alters, 1)))
    with closing(await connect(served.endpoint, "query")) as asker:
        rows = (await asker.request(messages.List(limit=10_000), messages.Listing)).rows
        for row in rows:
            run = int(str(row["run"]), 16)
            if run > len(alters):
                continue
            shown = (await asker.request(messages.Show(run=run), messages.Shown)).document
            case = shown["case"]
            assert isinstance(case, dict)
            assert tuple(case["frontiers"]) in FRONTIERS
            assert (case["tainted"], row["label"], row["path"]) == ("", "label", FACTS["path"])
            if ended[run - 1] == "":
                assert tuple(case["frontiers"]) == FRONTIERS[-1]
    return list(ended)


class _Flip:
    """Alters one byte at `position` of one direction."""

    def __init__(self, *, to_server: bool, position: int, bits: int) -> None:
        self._to_server, self.position, self._bits = to_server, position, bits
        self._passed = 0

    def __str__(self) -> str:
        return f"byte {self.position} {'to the server' if self._to_server else 'to the client'}"

    def __call__(self, to_server: bool, data: bytes) -> list[bytes]:
        if to_server is not self._to_server:
            return [data]
        at, self._passed = self.position - self._passed, self._passed + len(data)
        if 0 <= at < len(data):
            data = data[:at] + bytes([data[at] ^ self._bits]) + data[at + 1 :]
        return [data]


class _Count:
    """Alters nothing, and counts the bytes of each direction."""

    def __init__(self) -> None:
        self.passed = {True: 0, False: 0}

    def __call__(self, to_server: bool, data: bytes) -> list[bytes]:
        self.passed[to_server] += len(data)
        return [data]


# Of the version in a record before anything is protected TLS says that it must be ignored (RFC 8446, 5.1).
UNREAD = (1, 2)
PLACES = 100  # in each direction


@pytest.mark.slow
async def test_no_altered_byte_is_taken_in(served: Served) -> None:
    """An altered byte in either direction ends the connection with a message, and the data is not used. The
    exception is the version in the first record, which TLS ignores."""
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    drawn = random.Random(seed)
    count = _Count()
    async with middle(served.address, lambda: count) as address:
        await _one_run(replace(served.endpoint, addresses=(address,)), _plan(1 << 20))
    flips = [
        _Flip(to_server=to_server, position=position, bits=1 << drawn.randrange(8))
        for to_server, passed in count.passed.items()
        # Not in the last bytes, after which nothing is said that could show it.
        for position in (*range(12), *drawn.sample(range(12, passed * 8 // 10), PLACES - 12))
    ]
    ended = await _attempts(served, [partial(_same, flip) for flip in flips])
    outcomes = list(zip(flips, ended, strict=True))
    assert not [(str(flip), words) for flip, words in outcomes if words and not CLEAR.search(words)]
    assert {flip.position for flip, words in outcomes if not words} <= {*UNREAD}


def _same(alter: Alter) -> Alter:
    return alter


class _Records:
    """Hands the records of TLS of one direction to `act`, each whole, with its number among those that are
    encrypted."""

    def __init__(self, *, to_server: bool, act: Callable[[int, bytes], list[bytes]]) -> None:
        self._to_server, self._act = to_server, act
        self._rest = b""
        self._number = 0

    def __call__(self, to_server: bool, data: bytes) -> list[bytes]:
        if to_server is not self._to_server:
            return [data]
        out: list[bytes] = []
        self._rest += data
        while len(self._rest) >= HEAD_BYTES:
            length = HEAD_BYTES + int.from_bytes(self._rest[3:HEAD_BYTES], "big")
            if len(self._rest) < length:
                break
            record, self._rest = self._rest[:length], self._rest[length:]
            if record[0] == TYPE:
                self._number += 1
                out += self._act(self._number, record)
            else:
                out.append(record)
        return out


def _twice(at: int) -> Callable[[int, bytes], list[bytes]]:
    return lambda number, record: [record, record] if number == at else [record]


def _left_out(at: int) -> Callable[[int, bytes], list[bytes]]:
    return lambda number, record: [] if number == at else [record]


def _cut_short(at: int) -> Callable[[int, bytes], list[bytes]]:
    return lambda number, record: [record[:-3], b""] if number == at else [record]


def _exchanged(at: int) -> Callable[[int, bytes], list[bytes]]:
    kept: list[bytes] = []

    def act(number: int, record: bytes) -> list[bytes]:
        if number == at:
            kept.append(record)
            return []
        out = [record, *kept]
        kept.clear()
        return out

    return act


def _said_again(at: int) -> Callable[[int, bytes], list[bytes]]:
    """The record before the one at `at` comes once more after it."""
    kept: list[bytes] = []

    def act(number: int, record: bytes) -> list[bytes]:
        if number == at - 1:
            kept.append(record)
        return [record, *kept] if number == at else [record]

    return act


@pytest.mark.slow
async def test_no_record_is_repeated_exchanged_or_left_out(served: Served) -> None:
    """Records that come twice, later, never, or in part end the connection with words."""
    alters: list[Callable[[], Alter]] = []
    for to_server in (True, False):
        for make in (_twice, _left_out, _cut_short, _exchanged, _said_again):
            for at in range(2, 8):
                alters.append(partial(_Records, to_server=to_server, act=make(at)))
    ended = await _attempts(served, alters)
    assert not [words for words in ended if words and not CLEAR.search(words)]
    assert all(ended)


async def test_a_recorded_join_joins_nobody(served: Served, tmp_path: Path) -> None:
    """A recorded join contains neither the join code's secret nor the client's, and replaying it does not
    join a client."""
    said: list[bytes] = []

    def note(to_server: bool, data: bytes) -> list[bytes]:
        if to_server:
            said.append(data)
        return [data]

    code = await _code(served.server)
    async with middle(served.address, lambda: note) as address:
        await _join(address, code, tmp_path / "b.json")
    recorded = b"".join(said)
    assert parse_join_code(code).secret not in recorded
    secret = load_credential(tmp_path / "b.json")
    assert secret is not None
    assert bytes.fromhex(secret.secret) not in recorded
    reader, writer = await asyncio.open_connection(*served.address)
    writer.write(recorded)
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(ConnectionError):
            while await reader.read(1 << 16):
                pass
            raise ConnectionResetError
    writer.close()
    with closing(await connect(served.endpoint, "query")) as asker:
        await asker.request(messages.List(limit=1), messages.Listing)


# Join codes.


async def test_a_code_is_good_for_an_hour(served: Served, tmp_path: Path) -> None:
    """A join code expires after an hour. The refusal says what to type."""
    code = await _code(served.server)
    await served.server.stop()
    with closing(sqlite3.connect(served.store)) as store, store:
        (left,) = store.execute(
            "SELECT max(expires) - unixepoch() FROM invitations WHERE used = ''"
        ).fetchone()
        store.execute("UPDATE invitations SET expires = expires - 3600")
    assert 3500 < left <= 3600
    await served.start()
    with pytest.raises(RefusedError, match=r"older than an hour.*clients invite") as refusal:
        await _join(served.address, code, tmp_path / "b.json")
    assert refusal.value.code == "code-expired"


@pytest.mark.slow
async def test_a_code_of_another_server_is_told_so(served: Served, tmp_path: Path) -> None:
    """A code of another server is not sent to this server, and stays valid for its own server."""
    (tmp_path / "other").mkdir()
    other = Served(tmp_path / "other")
    await other.start()
    code = await _code(other.server)
    with pytest.raises(ProtocolError, match=r"another server answers.*join code begins with"):
        await _join(served.address, code, tmp_path / "b.json")
    assert "Joined" in await _join(other.address, code, tmp_path / "b.json")
    await other.server.stop()


@pytest.mark.slow
async def test_a_code_is_taken_as_people_type_it(served: Served, tmp_path: Path) -> None:
    """Small letters, spaces, no hyphens, and the letters O, I and L for digits."""
    ways: tuple[Callable[[str], str], ...] = (
        str.lower,
        lambda code: code.replace("-", " "),
        lambda code: code.replace("-", ""),
        lambda code: f"  {code.replace('0', 'O').replace('1', 'l')}\n",
        lambda code: code.lower().replace("0", "o").replace("1", "I").replace("-", "  "),
    )
    for number, typed in enumerate(ways):
        code = await _code(served.server)
        assert "Joined" in await _join(served.address, typed(code), tmp_path / f"{number}.json")


@pytest.mark.slow
async def test_guesses_are_slow_and_change_nothing(served: Served, tmp_path: Path) -> None:
    """Each guess of a join code costs a handshake, and the server begins at most 400 a second. A refused
    guess changes no state."""
    code = await _code(served.server)
    fingerprint = parse_join_code(code).fingerprint
    loop = asyncio.get_running_loop()
    began_s, guesses = loop.time(), 200

    async def guess(number: int) -> str:
        secret = number.to_bytes(10, "big")
        with pytest.raises(RefusedError, match="does not know this join code") as refusal:
            await connect(
                Endpoint(addresses=(served.address,), fingerprint=fingerprint, secret=secret), "join"
            )
        return refusal.value.code

    codes = {await guess(0)}
    for first in range(0, guesses, 50):
        codes |= set(await asyncio.gather(*(guess(first + number) for number in range(50))))
    assert codes == {"code-unknown"}
    assert loop.time() - began_s > guesses / 400
    assert "Joined" in await _join(served.address, code, tmp_path / "b.json")
