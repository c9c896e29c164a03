"""Which handshakes the listener begins, and at which rate."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from durability_lab.support import flood
from durability_server.connections import listener
from durability_server.connections.listener import Listener
from tests.waiting import DEADLINE_S

STRANGERS = 100
TURN_S = 0.02
AT_ONCE = int(listener._CATCH_UP_S / listener._INTERVAL_S)


@contextmanager
def listening(note: Callable[[tuple[str, int]], None]) -> Iterator[tuple[str, int]]:
    """A listener, at this address. `note` gets the address of each stranger whose handshake would begin."""

    def admit(stranger: socket.socket, has_begun: Callable[[], None]) -> Callable[[], None]:
        note(stranger.getpeername())
        stranger.close()
        has_begun()
        return lambda: None

    strangers = Listener(admit)
    try:
        yield strangers.open("127.0.0.1", 0, None)
    finally:
        strangers.close()


@pytest.mark.parametrize("turn_s", [0.0, TURN_S])
async def test_a_busy_server_begins_handshakes_at_the_same_rate(turn_s: float) -> None:
    """Strangers who come at once begin at a bounded rate. It is the same if the event loop turns slowly."""
    loop = asyncio.get_running_loop()
    began: list[int] = []  # turn of the event loop in which each handshake began
    turns = 0

    with listening(lambda _: began.append(turns)) as address, ExitStack() as stack:
        for _ in range(STRANGERS):
            stranger = stack.enter_context(socket.create_connection(address))
            stranger.sendall(bytes.fromhex(flood.client_hello()))
        begun_s = loop.time()
        async with asyncio.timeout(DEADLINE_S):
            while len(began) < STRANGERS:
                turns += 1
                time.sleep(turn_s)  # what a busy server does in a turn  # noqa: ASYNC251
                await asyncio.sleep(0)
        took_s = loop.time() - begun_s
    assert took_s >= (STRANGERS - AT_ONCE - 1) * listener._INTERVAL_S
    if turn_s:  # longer turns, as on a loaded machine, are fewer
        assert (began[-1] - began[0]) * turn_s <= STRANGERS * listener._INTERVAL_S


async def test_no_handshake_begins_with_a_client_that_has_left() -> None:
    """A client that found another server meanwhile costs this one no handshake."""
    admitted: asyncio.Queue[tuple[str, int]] = asyncio.Queue()

    with listening(admitted.put_nowait) as address, ExitStack() as stack:
        for number in range(STRANGERS):
            stranger = stack.enter_context(socket.create_connection(address))
            stranger.sendall(bytes.fromhex(flood.client_hello()))
            if number % 2:
                stranger.close()
            else:
                stays = stranger.getsockname()
        async with asyncio.timeout(DEADLINE_S):
            found = [await admitted.get()]
            while found[-1] != stays:
                found.append(await admitted.get())
    assert len(found) == STRANGERS // 2
