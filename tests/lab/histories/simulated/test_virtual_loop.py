"""Virtual time: waiting costs nothing, what blocks runs in fibers, and nothing of it is left afterwards."""

from __future__ import annotations

import asyncio
import secrets
import signal
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from durability_lab.histories.simulated.virtual_loop import (
    DeadlockError,
    VirtualLoop,
    current_fiber,
    virtual_time,
)
from durability_lab.histories.simulated.virtual_network import VirtualNetwork
from durability_lab.histories.simulated.virtual_process import CURRENT, Process

REPLACED = (
    (time, "monotonic"),
    (time, "monotonic_ns"),
    (time, "clock_gettime_ns"),
    (time, "sleep"),
    (threading, "Thread"),
    (ThreadPoolExecutor, "submit"),
    (signal, "pthread_sigmask"),
    (secrets, "randbelow"),
    (secrets, "token_bytes"),
    (secrets, "token_hex"),
)
HOUR_S = 3600.0


def in_virtual_time(work: Coroutine[Any, Any, Any], *, seed: int = 1) -> Any:
    """What `work` returns, in a loop of its own; the asyncio runner of the tests is not in the way."""
    loop = VirtualLoop(VirtualNetwork(delay_s=0.001, seed=seed))
    try:
        asyncio.set_event_loop(loop)
        with virtual_time(loop, seed=seed):
            return loop.run_until_complete(work)
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def test_sleeping_takes_no_time() -> None:
    """An hour of sleep passes at once, and every clock of the product shows it."""

    async def work() -> tuple[float, ...]:
        before = time.monotonic(), time.monotonic_ns(), time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        await asyncio.sleep(HOUR_S)
        after = time.monotonic(), time.monotonic_ns() / 1e9, time.clock_gettime_ns(0) / 1e9
        return after[0] - before[0], after[1] - before[1] / 1e9, after[2] - before[2] / 1e9

    began_s = time.perf_counter()
    assert in_virtual_time(work()) == pytest.approx((HOUR_S,) * 3)
    assert time.perf_counter() - began_s < HOUR_S / 100


def test_threads_run_in_turns() -> None:
    """Threads of the product are fibers: each runs until it sleeps, in the order in which they wake."""
    said: list[tuple[str, float]] = []

    def count(name: str, naps_s: float) -> str:
        for _ in range(2):
            time.sleep(naps_s)
            said.append((name, time.monotonic()))
        return name

    async def work() -> tuple[float, list[str]]:
        began_s = time.monotonic()
        thread = threading.Thread(target=count, args=("thread", 3.0), daemon=True)
        thread.start()
        found = await asyncio.gather(asyncio.to_thread(count, "a", 2.0), asyncio.to_thread(count, "b", 5.0))
        assert not thread.is_alive()
        return began_s, list(found)

    began_s, found = in_virtual_time(work())
    assert found == ["a", "b"]
    assert [name for name, _ in said] == ["a", "thread", "a", "b", "thread", "b"]
    assert [at_s - began_s for _, at_s in said] == pytest.approx([2, 3, 4, 5, 6, 10])


def test_a_thread_is_joined() -> None:
    """`join` waits for the thread, or for its timeout, whichever is first."""

    def nap() -> None:
        time.sleep(4.0)

    def joins() -> tuple[bool, bool]:
        thread = threading.Thread(target=nap)
        thread.start()
        thread.join(timeout=1.0)
        early = thread.is_alive()
        thread.join()
        return early, thread.is_alive()

    async def work() -> tuple[bool, bool]:
        return await asyncio.to_thread(joins)

    assert in_virtual_time(work()) == (True, False)


def test_what_a_thread_raises_is_raised() -> None:
    """`to_thread` raises what its function raised."""

    def fail() -> None:
        time.sleep(1.0)
        raise OSError(5, "as drives do")

    async def work() -> None:
        await asyncio.to_thread(fail)

    with pytest.raises(OSError, match="as drives do"):
        in_virtual_time(work())


def test_a_dead_process_does_nothing_more() -> None:
    """Tasks and threads of a process that was ended do not go on."""
    said: list[str] = []

    def count() -> None:
        try:
            while True:
                said.append("thread")
                time.sleep(1.0)
        finally:
            left.append(time.monotonic())
            time.sleep(1.0)
            said.append("a fiber slept after its end")

    left: list[float] = []

    async def within(process: Process) -> None:
        CURRENT.set(process)
        await asyncio.to_thread(count)

    async def work() -> int:
        process = Process("client")
        task = asyncio.get_running_loop().create_task(within(process))
        process.tasks.add(task)
        await asyncio.sleep(2.5)
        process.end()
        before = len(said)
        ended_s = time.monotonic()
        await asyncio.sleep(10.0)
        assert task.cancelled()
        assert [at_s - ended_s for at_s in left] == pytest.approx([0.5])  # when it would have gone on
        return before

    assert in_virtual_time(work()) == len(said) == 3


def test_a_frozen_process_goes_on_where_it_was() -> None:
    """The tasks and fibers of a frozen process stop while other processes go on. It resumes without loss, and
    it can be ended."""
    said: list[tuple[str, float]] = []

    def count(name: str) -> None:
        while True:
            time.sleep(1.0)
            said.append((name, time.monotonic() - began_s))

    async def within(process: Process) -> None:
        CURRENT.set(process)
        await asyncio.to_thread(count, process.name)

    async def work() -> None:
        processes = [Process("frozen"), Process("other")]
        for process in processes:
            process.tasks.add(asyncio.get_running_loop().create_task(within(process)))
        await asyncio.sleep(1.5)
        processes[0].freeze()
        await asyncio.sleep(2.0)
        processes[0].thaw()
        await asyncio.sleep(1.0)
        processes[0].freeze()
        for process in processes:
            process.end()
        await asyncio.sleep(5.0)
        assert all(task.done() for process in processes for task in process.tasks)

    began_s = 1000.0
    in_virtual_time(work())
    assert [at_s for name, at_s in said if name == "other"] == pytest.approx([1.0, 2.0, 3.0, 4.0])
    assert [at_s for name, at_s in said if name == "frozen"] == pytest.approx([1.0, 3.5, 4.5])


def test_nothing_left_to_happen_is_an_error() -> None:
    """A history that waits for what can never happen ends with DeadlockError, and does not hang."""

    async def work() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(DeadlockError, match="nothing is left to happen"):
        in_virtual_time(work())


def test_signals_are_those_of_a_process() -> None:
    """A handler belongs to the process that set it; the history calls it."""
    heard: list[str] = []

    async def work() -> Process:
        process = Process("client")
        CURRENT.set(process)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, heard.append, "ctrl-c")
        loop.add_signal_handler(signal.SIGTERM, heard.append, "term")
        assert loop.remove_signal_handler(signal.SIGTERM)
        return process

    before = signal.getsignal(signal.SIGINT)
    process = in_virtual_time(work())
    assert list(process.handlers) == [signal.SIGINT]
    process.handlers[signal.SIGINT]()
    assert heard == ["ctrl-c"]
    assert signal.getsignal(signal.SIGINT) == before


@pytest.mark.parametrize("error", [None, OSError, KeyboardInterrupt])
def test_everything_is_put_back(error: type[BaseException] | None) -> None:
    """Clocks, threads, signals and secrets are the real ones again, also after an error; no fiber goes on."""
    said: list[str] = []

    def forever() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        try:
            while True:
                time.sleep(1.0)
        finally:
            time.sleep(1.0)
            said.append("a fiber slept after its end")

    async def work() -> None:
        _ = asyncio.get_running_loop().run_in_executor(None, forever)
        await asyncio.sleep(2.5)
        if error is not None:
            raise error

    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    before = [getattr(owner, name) for owner, name in REPLACED]
    if error is None:
        in_virtual_time(work())
    else:
        with pytest.raises(error):
            in_virtual_time(work())
    assert [getattr(owner, name) for owner, name in REPLACED] == before
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == mask
    assert current_fiber() is None
    assert said == []


def test_secrets_follow_from_the_seed() -> None:
    """Run ids and the like are the same in each play of a history, and others in another history."""

    async def work() -> tuple[int, bytes, str]:
        return secrets.randbelow(1 << 64), secrets.token_bytes(32), secrets.token_hex(8)

    first, again, other = (in_virtual_time(work(), seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    assert len(first[1]) == 32
    assert len(first[2]) == 16
