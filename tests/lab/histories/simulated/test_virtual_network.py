"""The network of a history: bytes in order, none lost while both ends live, and what each end hears."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from durability_lab.histories.simulated.virtual_loop import VirtualLoop, virtual_time
from durability_lab.histories.simulated.virtual_network import SEALED_BYTES, TCP_INFO, End, VirtualNetwork
from durability_lab.histories.simulated.virtual_process import Process

DELAY_S = 0.001
LATER_S = 1.0
SEEDS = range(10)


class Ear(asyncio.Protocol):
    """Notes what it hears."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.heard = b""
        self.events: list[str] = []

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.heard += data

    def eof_received(self) -> bool:
        self.events.append("fin")
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.events.append("lost" if error is None else type(error).__name__)


class BufferedEar(asyncio.BufferedProtocol):
    """The same, with a buffer of 7 bytes."""

    def __init__(self) -> None:
        self.heard = b""
        self._buffer = bytearray(7)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.heard += self._buffer[:nbytes]


def play(work: Callable[[VirtualLoop, VirtualNetwork], Awaitable[None]], *, seed: int = 1) -> None:
    """Run `work` in virtual time."""
    network = VirtualNetwork(delay_s=DELAY_S, seed=seed)
    loop = VirtualLoop(network)
    try:
        with virtual_time(loop, seed=seed):
            loop.run_until_complete(asyncio.ensure_future(work(loop, network), loop=loop))
    finally:
        loop.close()


async def connected(loop: VirtualLoop, network: VirtualNetwork) -> tuple[End, Ear, Ear]:
    """A connection: the client's end, what the client hears, what the server hears."""
    server = Ear()
    network.listen(lambda: server, "server")
    end, client = await network.connect(loop, Ear, "client")
    assert isinstance(client, Ear)
    return end, client, server


@pytest.mark.parametrize("seed", SEEDS)
def test_bytes_keep_their_order(seed: int) -> None:
    """Data written in pieces arrive complete and in order, although each piece has its own delay."""

    async def work(loop: VirtualLoop, network: VirtualNetwork) -> None:
        end, client, server = await connected(loop, network)
        sent = b""
        for number in range(200):
            piece = b"%d " % number
            end.write(piece)
            sent += piece
            server.transport.write(piece)
            await asyncio.sleep(DELAY_S / 3)
        await asyncio.sleep(LATER_S)
        assert server.heard == client.heard == sent

    play(work, seed=seed)


def test_a_frozen_process_reads_later() -> None:
    """Its kernel takes and acknowledges what comes, in a window that shrinks; the process reads it later."""

    async def work(loop: VirtualLoop, network: VirtualNetwork) -> None:
        process = Process("client")
        server = Ear()
        network.listen(lambda: server, "server")
        _, client = await network.connect(loop, Ear, process)
        assert isinstance(client, Ear)
        kernel = server.transport.get_extra_info("socket")

        def told() -> tuple[int, ...]:
            return TCP_INFO.unpack(kernel.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256))

        _, _, window_bytes = told()
        process.freeze()
        taken = len(b"unread") + SEALED_BYTES
        server.transport.write(b"unread")
        await asyncio.sleep(LATER_S)
        age_ms, acked_bytes, left_bytes = told()
        assert (client.heard, acked_bytes, left_bytes) == (b"", taken, window_bytes - taken)
        assert age_ms == pytest.approx(LATER_S * 1000, abs=10)
        process.thaw()
        network.thaw(process)
        assert (client.heard, told()[1:]) == (b"unread", (taken, window_bytes))

    play(work)


def test_a_small_buffer_gets_everything() -> None:
    """A protocol that reads into its own buffer gets all bytes, as many at a time as it has room for."""

    async def work(loop: VirtualLoop, network: VirtualNetwork) -> None:
        server = BufferedEar()
        network.listen(lambda: server, "server")
        end, _ = await network.connect(loop, Ear, "client")
        end.write(bytes(range(100)))
        await asyncio.sleep(LATER_S)
        assert server.heard == bytes(range(100))

    play(work)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_dead_network_keeps_bytes(seed: int) -> None:
    """Data sent before or while the network is dead arrive when it is back, once and in order."""

    async def work(loop: VirtualLoop, network: VirtualNetwork) -> None:
        end, _, server = await connected(loop, network)
        end.write(b"under way, ")
        network.turn(up=False)
        end.write(b"into a dead network, ")
        await asyncio.sleep(LATER_S)
        assert server.heard == b""
        network.turn(up=True)
        end.write(b"after it")
        await asyncio.sleep(LATER_S)
        assert server.heard == b"under way, into a dead network, after it"

    play(work, seed=seed)


def test_connecting_waits_for_the_network() -> None:
    """A connection that is begun in a dead network is made when it is back."""

    async def work(loop: VirtualLoop, network: VirtualNetwork) -> None:
        network.listen(Ear, "server")
        network.turn(up=False)
        task = loop.create_task(network.connect(loop, Ear, "client"))
        await asyncio.sleep(LATER_S)
        assert not task.done()
        network.turn(up=True)
        await task

    play(work)


def test_nobody_listens() -> None:
    """Where no server listens, a connection is refused."""

    async def work(loop: VirtualLoop, network: VirtualNetwork) -> None:
        with pytest.raises(ConnectionRefusedError):
            await network.connect(loop, Ear, "client")
        listener = network.listen(Ear, "server")
        listener.close()
        with pytest.raises(ConnectionRefusedError):
            await network.connect(loop, Ear, "client")

    play(work)


def test_a_killed_process_sends_a_fin() -> None:
    """Its kernel sends what was written, then closes; the process itself hears nothing any more."""

    async def work(loop: VirtualLoop, network: VirtualNetwork) -> None:
        end, client, server = await connected(loop, network)
        end.write(b"last words")
        network.kill("client")
        server.transport.write(b"too late")
        await asyncio.sleep(LATER_S)
        assert (server.heard, server.events) == (b"last words", ["fin", "lost"])
        assert (client.heard, client.events) == (b"", [])

    play(work)


def test_a_machine_without_power_is_silent() -> None:
    """A machine without power sends no data. After a start it resets the connections that it no longer
    knows."""

    async def work(loop: VirtualLoop, network: VirtualNetwork) -> None:
        _, client, server = await connected(loop, network)
        network.darken("client")
        await asyncio.sleep(LATER_S)
        assert server.events == []
        network.reset_dark()
        await asyncio.sleep(LATER_S)
        assert server.events == ["ConnectionResetError"]
        assert client.events == []

    play(work)


@pytest.mark.parametrize("under_way", [True, False])
def test_what_a_dead_machine_had_to_send_dies_with_it(under_way: bool) -> None:
    """Bytes that a dead network kept for a machine are gone with its power; later its boot resets."""

    async def work(loop: VirtualLoop, network: VirtualNetwork) -> None:
        end, _, server = await connected(loop, network)
        if under_way:
            end.write(b"under way, ")
        network.turn(up=False)
        end.write(b"into a dead network")
        if not under_way:
            await asyncio.sleep(LATER_S)
        network.darken("client")
        await asyncio.sleep(LATER_S)
        network.turn(up=True)
        await asyncio.sleep(LATER_S)
        assert (server.heard, server.events) == (b"", [])
        network.reset_dark()
        await asyncio.sleep(LATER_S)
        assert (server.heard, server.events) == (b"", ["ConnectionResetError"])

    play(work)


@pytest.mark.parametrize("dies", [False, True])
def test_the_fin_of_a_killed_process_waits_for_the_network(dies: bool) -> None:
    """Its kernel sends the FIN again until it arrives, unless the machine loses its power meanwhile."""

    async def work(loop: VirtualLoop, network: VirtualNetwork) -> None:
        _, _, server = await connected(loop, network)
        network.kill("client")
        network.turn(up=False)
        await asyncio.sleep(LATER_S)
        assert network.unheard("client")
        if dies:
            network.darken("client")
        network.turn(up=True)
        await asyncio.sleep(LATER_S)
        assert server.events == ([] if dies else ["fin", "lost"])
        assert not network.unheard("client")

    play(work)


def test_a_process_that_is_killed_while_its_peer_goes_on_sending_resets_the_connection() -> None:
    """The kernel of a process that was killed in a dead network resets the connection when it gets the peer's
    data, since no process reads it."""

    async def work(loop: VirtualLoop, network: VirtualNetwork) -> None:
        end, client, server = await connected(loop, network)
        network.turn(up=False)
        end.write(b"last words")
        server.transport.write(b"are you there?")
        network.kill("client")
        await asyncio.sleep(LATER_S)
        assert server.events == []
        network.turn(up=True)
        await asyncio.sleep(LATER_S)
        assert (server.heard, server.events) == (b"", ["ConnectionResetError"])
        assert (client.heard, client.events) == (b"", [])
        assert not network.unheard("client")

    play(work)


def test_closing_and_aborting() -> None:
    """A closed connection sends what was written, then a FIN; an aborted one a RST."""

    async def work(loop: VirtualLoop, network: VirtualNetwork) -> None:
        end, client, server = await connected(loop, network)
        end.write(b"all of it")
        end.close()
        await asyncio.sleep(LATER_S)
        assert (server.heard, server.events) == (b"all of it", ["fin", "lost"])
        assert client.events == ["lost"]
        assert end.is_closing()
        end, client, server = await connected(loop, network)
        end.abort()
        await asyncio.sleep(LATER_S)
        assert (client.events, server.events) == (["lost"], ["ConnectionResetError"])

    play(work)
