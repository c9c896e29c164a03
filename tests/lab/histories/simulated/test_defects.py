"""A defect of the product fails a history: what a process raises and nobody awaits, or what is logged."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from durability.errors import DurabilityError
from durability_client.run.run_command import run
from durability_lab.histories.simulated.virtual_loop import VirtualLoop, virtual_time
from durability_lab.histories.simulated.virtual_network import VirtualNetwork
from durability_lab.histories.simulated.virtual_process import Process
from durability_server.runs.committer import Committer
from tests.lab.histories.test_deserved import played
from tests.lab.mutants.mutation import without

Work = Callable[[], Coroutine[Any, Any, None]]


def defects_of(work: Work, *, killed: bool = False) -> list[str]:
    """What is found of a process that does `work`, and is perhaps killed before it ends."""
    loop = VirtualLoop(VirtualNetwork(delay_s=0.001, seed=1))
    logging.root.addHandler(loop.defects)
    try:
        asyncio.set_event_loop(loop)
        with virtual_time(loop, seed=1):
            process = Process("client")
            process.begin(loop, work())
            loop.run_until_complete(asyncio.sleep(0.5))
            if killed:
                process.end()
            loop.run_until_complete(asyncio.sleep(5.0))
            return list(loop.end_of_play())
    finally:
        logging.root.removeHandler(loop.defects)
        asyncio.set_event_loop(None)
        loop.close()


async def raises(error: BaseException) -> None:
    """Raise it after a second, or as it is cancelled."""
    try:
        await asyncio.sleep(1.0)
    finally:
        raise error


async def child() -> None:
    """A task of its own raises, and nobody awaits it."""
    asyncio.get_running_loop().create_task(raises(KeyError("task")), name="child")
    await asyncio.sleep(3.0)


async def callback() -> None:
    """A callback raises."""
    asyncio.get_running_loop().call_later(1.0, {}.popitem)


async def thread() -> None:
    """A thread raises."""

    def work() -> None:
        time.sleep(1.0)
        raise KeyError("thread")

    threading.Thread(target=work).start()


async def logs() -> None:
    """An exception is logged."""
    await asyncio.sleep(1.0)
    try:
        raise KeyError("log")
    except KeyError:
        logging.getLogger("durability_server").exception("client 1")


@pytest.mark.parametrize(
    ("work", "found"),
    [
        (lambda: raises(KeyError("a")), "a defect in client: KeyError: 'a' (test_defects.py"),
        (lambda: raises(DurabilityError("a defect of this tool: x")), "a defect in client: DurabilityError"),
        (child, "a defect in client: KeyError: 'task'"),
        (callback, "KeyError: 'popitem(): dictionary is empty'"),
        (thread, "a defect in a thread: KeyError: 'thread'"),
        (logs, "a defect in durability_server, client 1: KeyError: 'log'"),
    ],
)
def test_a_defect_of_a_process_is_found(work: Work, found: str) -> None:
    """A defect is found whichever part of a process raises it. Errors of a killed process do not count."""
    (what,) = defects_of(work)
    assert found in what
    assert defects_of(work, killed=True) == []


@pytest.mark.parametrize("error", [DurabilityError("the drive is too small"), OSError(5, "an I/O error")])
def test_what_is_for_people_is_no_defect(error: Exception) -> None:
    """The command line has an exit code for it."""
    assert defects_of(lambda: raises(error)) == []


@pytest.mark.slow
def test_a_history_with_a_defect_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """A history is wrong if `run` raises a defect that no task awaits, or if the server has a defect and goes
    on."""

    async def broken(*given: Any) -> Any:
        await run(*given)
        raise AssertionError("a defect at the end")

    lines = ("run", "pass ms=400", "stop", "pass ms=400")
    assert played(*lines).wrong == ()
    with monkeypatch.context() as patch:
        patch.setattr("durability_lab.histories.simulated.world.run", broken)
        assert any("a defect in client: AssertionError" in one for one in played(*lines).wrong)
    packs = "await self._pack(timelines, snapshots, outcome)"
    with without(Committer._commit, packs, "raise KeyError('pack')")():
        assert any("a defect in durability_server.runs.committer" in one for one in played(*lines).wrong)
