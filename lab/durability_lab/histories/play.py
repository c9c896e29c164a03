"""Plays one history from its first step to its last verdict, and says what was wrong."""

from __future__ import annotations

import asyncio
import atexit
import io
import logging
import shutil
import tempfile
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from durability_lab.histories.deserved import Grade, grade, listing
from durability_lab.histories.steps import History
from durability_lab.histories.virtual_loop import VirtualLoop, virtual_time
from durability_lab.histories.virtual_network import Network
from durability_lab.histories.world import Answer, World
from durability_lab.support.cleanup import in_memory

_DELAY_S = 0.0002


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A history with the grades of its answers. `told`: what happened when, and what `verify` said, a line
    each. `wrong`: every sentence of what was wrong; none: all right."""

    grades: tuple[Grade, ...]
    told: tuple[str, ...]
    wrong: tuple[str, ...]


def play(history: History, *, within: Path | None = None) -> Played:
    """Play it, with its files in a directory within `within`, by default in memory, and remove them. What
    the product raises that is not for people is raised here."""
    directory = _directory(within or in_memory())
    loop = VirtualLoop(Network(delay_s=_DELAY_S, seed=history.seed))
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        asyncio.set_event_loop(loop)
        with virtual_time(loop, seed=history.seed), redirect_stderr(io.StringIO()):
            return loop.run_until_complete(_play(World(history=history, directory=directory, loop=loop)))
    finally:
        logging.disable(before)
        asyncio.set_event_loop(None)
        loop.close()
        for entry in directory.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()


@cache
def _directory(within: Path | None) -> Path:
    """One for all histories of this process, since the server keeps what it has compiled for a store's path.
    It goes away with the process."""
    directory = tempfile.TemporaryDirectory(prefix="durability-history-", dir=within)
    atexit.register(directory.cleanup)
    return Path(directory.name)


async def _play(world: World) -> Played:
    await world.start()
    answers: list[Answer] = []
    grades: list[Grade] = []
    told: list[str] = []
    wrong: list[str] = []

    def take(answer: Answer | None) -> None:
        if answer is not None:
            answers.append(answer)
            grades.append(grade(world, answer))
            told.append(f"{'':12}{_said(answer)}")
            if grades[-1].wrong:
                wrong.append(grades[-1].wrong)

    began_s = world.loop.time()
    for step in world.history.steps:
        told.append(f"{world.loop.time() - began_s:8.3f} s  {step}")
        take(await world.take(step))
    told.append(f"{world.loop.time() - began_s:8.3f} s  (the plug is pulled, all is put right, verify)")
    take(await world.finish())
    if world.copies == []:
        wrong += listing(world, answers, await world.listed())
    await world.end()
    return Played(grades=tuple(grades), told=tuple(told), wrong=tuple(wrong))


def _said(answer: Answer) -> str:
    document = answer.document
    if document is None:
        return f"no verdict: {answer.why}"
    codes = ", ".join(reason["code"] for reason in document["reasons"])
    return f"run {document['run']}: {document['verdict']}" + (f" ({codes})" if codes else "")
