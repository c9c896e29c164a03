"""Turns of the requests of each client."""

from __future__ import annotations

import asyncio
import threading

import pytest

from durability.protocol import messages
from durability.protocol.messages import Message
from durability.protocol.state_machine import Undecoded
from durability_server.connections.turns import UNDER_WAY_MAX, Turns
from tests.waiting import DEADLINE_S, until

TOOK_S = 0.2


@pytest.mark.parametrize(
    ("kind", "at_once"), [(messages.GiveVerdict, UNDER_WAY_MAX), (messages.Evidence, 1), (messages.List, 1)]
)
async def test_the_requests_of_a_client_wait_for_each_other(kind: type[Message], at_once: int) -> None:
    """A limited number of requests of one client run at a time. Requests of other clients do not wait for
    them, and a failed request frees its turn."""
    turns = Turns()
    under_way: list[int] = []
    go_on = asyncio.Event()
    most = 0

    async def request(number: int) -> None:
        nonlocal most
        async with turns.turn("greedy", kind):
            under_way.append(number)
            most = max(most, len(under_way))
            await go_on.wait()
            under_way.remove(number)
            raise ValueError

    requests = [asyncio.create_task(request(number)) for number in range(100)]
    await until(lambda: len(under_way) == at_once)
    async with asyncio.timeout(DEADLINE_S):
        async with turns.turn("honest", kind):
            assert len(under_way) == at_once
        requests[-1].cancel()
        go_on.set()
        ended = await asyncio.gather(*requests, return_exceptions=True)
    assert {type(one) for one in ended} == {ValueError, asyncio.CancelledError}
    assert most == at_once
    async with turns.turn("greedy", kind):
        assert not under_way


async def test_long_questions_leave_turns_for_other_requests() -> None:
    """However many long questions of a client wait, its verify goes on."""
    turns = Turns()
    over = asyncio.Event()
    begun: list[int] = []

    async def question(number: int) -> None:
        async with turns.turn("b", messages.List):
            begun.append(number)
            await over.wait()

    questions = [asyncio.create_task(question(number)) for number in range(3 * UNDER_WAY_MAX)]
    await asyncio.sleep(0)
    async with asyncio.timeout(DEADLINE_S), turns.turn("b", messages.GiveVerdict):
        assert 0 < len(begun) < UNDER_WAY_MAX, "the others wait"
        over.set()
    await asyncio.gather(*questions)


async def test_clients_take_turns_to_be_decoded() -> None:
    """One message at a time, and the event loop runs in between; who comes after many of another client waits
    for a few of them, also if one that waits gives up, or one that is decoded fails."""
    turns = Turns()
    order: list[str] = []
    at_once = 0

    async def decode(client: str) -> None:
        nonlocal at_once
        async with turns.decoding(client):
            order.append(client)
            at_once += 1
            assert at_once == 1
            await asyncio.sleep(0)
            at_once -= 1
            raise ValueError

    greedy = [asyncio.create_task(decode("greedy")) for _ in range(60)]
    await asyncio.sleep(0)
    honest = asyncio.create_task(decode("honest"))
    greedy[1].cancel()
    ended = await asyncio.gather(*greedy, honest, return_exceptions=True)
    assert {type(one) for one in ended} == {ValueError, asyncio.CancelledError}
    assert len(order) == 60
    assert order.index("honest") < 4
    async with asyncio.timeout(DEADLINE_S), turns.decoding("greedy"):
        assert at_once == 0


async def test_a_turn_that_comes_with_a_cancellation_is_passed_on() -> None:
    """Whose connection ends just as its message is to be decoded keeps no other waiting."""
    turns = Turns()

    async def decode() -> None:
        async with turns.decoding("greedy"):
            pass

    async with asyncio.timeout(DEADLINE_S):
        async with turns.decoding("first"):
            given_up, waiting = asyncio.create_task(decode()), asyncio.create_task(decode())
            await asyncio.sleep(0)
        given_up.cancel()  # its turn has come, and it has not run since
        await waiting
    assert given_up.cancelled()


async def test_whose_message_was_decoded_rests_as_long_as_that_took() -> None:
    """So no client has more than half of the thread's time, which the event loop lacks. Others do not wait
    for a rest, and a client that is gone leaves nothing."""
    turns, loop = Turns(), asyncio.get_running_loop()
    order: list[str] = []
    times_s: list[float] = []

    async def decode(client: str) -> None:
        async with turns.decoding(client):
            order.append(client)
            times_s.append(loop.time())
            if len(order) == 1:
                await asyncio.sleep(TOOK_S)
                times_s.append(loop.time())

    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        for client in ("greedy", "greedy", "honest"):
            group.create_task(decode(client))
    assert order == ["greedy", "honest", "greedy"]
    began_s, ended_s, _, again_s = times_s
    assert again_s - ended_s >= (ended_s - began_s) * 0.9  # the loop's timers are early by its resolution
    await until(lambda: not turns._to_decode)


async def test_the_thread_ends_with_the_server() -> None:
    """Nothing of it is left, although it has decoded something."""
    turns = Turns()
    before = set(threading.enumerate())
    message = Undecoded(kind=messages.List, body=messages.encode(messages.List(limit=1)))
    async with turns.decoding("client"):
        assert await turns.decoded(message) == messages.List(limit=1)
    (thread,) = set(threading.enumerate()) - before
    turns.close()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
