"""Plays one history from its first step to its last verdict, and says what was wrong."""

from __future__ import annotations

import asyncio
import atexit
import io
import logging
import shutil
import tempfile
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Protocol

from durability.units import parse_run
from durability_lab.histories.cuts_and_answers import VerifyAnswer
from durability_lab.histories.deserved import Grade, Grader
from durability_lab.histories.known_truth import KnownTruth
from durability_lab.histories.simulated.virtual_loop import VirtualLoop, virtual_time
from durability_lab.histories.simulated.virtual_network import VirtualNetwork
from durability_lab.histories.simulated.world import World
from durability_lab.histories.steps import History, Step
from durability_lab.histories.store_copies import StoreCopies
from durability_lab.histories.stored_verdicts import StoredVerdict, listing
from durability_lab.support.cleanup import in_memory

_DELAY_S = 0.0002


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A history with the grades of its answers. `told`: what happened when, and what `verify` said, a line
    each. `wrong`: every sentence of what was wrong; none: all right."""

    grades: tuple[Grade, ...]
    told: tuple[str, ...]
    wrong: tuple[str, ...]


def play(history: History, within: Path | None = None) -> Played:
    """Play it, with its files in a directory within `within`, by default in memory, and remove them. A defect
    of a process of the product is wrong, if the history has an end; one of `verify` is raised here."""
    directory = _directory(within or in_memory())
    loop = VirtualLoop(VirtualNetwork(delay_s=_DELAY_S, seed=history.seed))
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    logging.root.addHandler(loop.defects)
    try:
        asyncio.set_event_loop(loop)
        with virtual_time(loop, seed=history.seed), redirect_stderr(io.StringIO()):
            world = World(history=history, directory=directory, loop=loop)
            try:
                played = loop.run_until_complete(play_through(world))
                return replace(played, wrong=(*played.wrong, *loop.end_of_play()))
            finally:
                loop.run_until_complete(world.end())
    finally:
        logging.root.removeHandler(loop.defects)
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


class Playable(Protocol):
    """A world in which a history can be played. `truth`: what it knows of that; `store`: what the server's
    store has of it, of which `play` keeps the verdicts."""

    @property
    def truth(self) -> KnownTruth:
        """See above."""

    @property
    def store(self) -> StoreCopies:
        """See above."""

    async def start(self) -> None:
        """What comes before the first step."""

    async def take(self, step: Step) -> VerifyAnswer | None:
        """One step; the answer of a `verify`."""

    async def finish(self) -> VerifyAnswer | None:
        """What every history ends with, and the last answer."""

    async def listed(self) -> dict[int, str]:
        """The verdict that `runs` shows of each run."""


async def play_through(world: Playable) -> Played:
    """Play the history of a world, from its start to its last answer."""
    await world.start()
    clock = asyncio.get_running_loop().time
    grader = Grader(world.truth)
    grades: list[Grade] = []
    told: list[str] = []
    wrong: list[str] = []

    def take(answer: VerifyAnswer | None) -> None:
        if answer is not None:
            grades.append(grader.grade(answer))
            _keep(world, answer)
            told.append(f"{'':12}{_said(answer)}")
            if grades[-1].wrong:
                wrong.append(grades[-1].wrong)
            take(answer.beside)

    began_s = clock()
    for step in world.truth.history.steps:
        told.append(f"{clock() - began_s:8.3f} s  {step}")
        take(await world.take(step))
    told.append(f"{clock() - began_s:8.3f} s  (the plug is pulled, all is put right, verify)")
    take(await world.finish())
    wrong += listing(world.store.stored, world.store.unanswered, await world.listed())
    return Played(grades=tuple(grades), told=tuple(told), wrong=tuple(wrong))


def _keep(world: Playable, answer: VerifyAnswer) -> None:
    """Note what the server's store has of the answer."""
    store = world.store
    if answer.exported:
        return
    if answer.document is None:
        store.unanswered.update(world.truth.plans)
        for run in world.truth.plans:
            store.looks.setdefault(run, []).append(answer.look(run))
        return
    run, given = parse_run(answer.document["run"]), StoredVerdict.of_document(answer.document)
    for seen in (run, *answer.others):
        store.looks.setdefault(seen, []).append(answer.look(seen))
    if answer.interrupted:
        store.unanswered.add(run)  # it may not have been stored
    elif answer.case is not None:  # else the server does not know the run
        store.stored.setdefault(run, []).append(given)
        if given.by_reads:
            store.unanswered.discard(run)  # nothing had withdrawn it


def _said(answer: VerifyAnswer) -> str:
    document = answer.document
    if document is None:
        return f"no verdict: {answer.why}"
    codes = ", ".join(reason["code"] for reason in document["reasons"])
    return f"run {document['run']}: {document['verdict']}" + (f" ({codes})" if codes else "")
