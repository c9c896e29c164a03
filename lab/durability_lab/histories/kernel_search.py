"""Plays histories on rig B, from the same generator, and makes one that goes wrong shorter in few tries.

A history takes seconds here, and what the kernel's scheduling decides differs from play to play. So a
history that goes wrong is played again with one step less, and a shorter one is kept only where it goes wrong
as well; one that goes wrong only sometimes stays as it was found. The same seed draws the same histories.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

from hypothesis import HealthCheck, Phase, given, seed, settings

from durability_lab.histories.kernel_processes import DefectError
from durability_lab.histories.kernel_world import STEPS, KernelWorld
from durability_lab.histories.play import Played, play_through
from durability_lab.histories.search import Failure, Tally, histories
from durability_lab.histories.steps import History
from durability_lab.support.cleanup import watched_directory

TRIES = 20  # to make a history shorter


def play_on_kernel(history: History) -> Played:
    """Play it on rig B, whose drives have no counters. Raises SetupError where there can be no rig B, and
    DefectError where a command of the product ends as a defect does."""
    return asyncio.run(_play(replace(history, counters=False)))


async def _play(history: History) -> Played:
    with watched_directory("durability-history-") as directory:
        world = KernelWorld(history, directory)
        try:
            return await play_through(world)
        finally:
            await world.end()


def drawn(count: int, number: int) -> list[History]:
    """So many histories of steps that can be made on rig B; the same for the same seed `number`."""
    found: list[History] = []

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(history=histories(STEPS))
    def collect(history: History) -> None:
        found.append(replace(history, counters=False))

    collect()
    return found


def search_on_kernel(
    *, count: int, number: int, tally: Tally, on_history: Callable[[], None] = lambda: None
) -> Failure | None:
    """As `search`, on rig B. Raises SetupError where there can be none."""
    for history in drawn(count, number):
        wrong, played = _played(history)
        if wrong:
            return _shortened(Failure(history=history, what=wrong))
        if played is not None:
            tally.add(played)
        on_history()
    return None


def _played(history: History) -> tuple[str, Played | None]:
    try:
        played = play_on_kernel(history)
    except DefectError as error:
        return f"{type(error).__name__}: {error}", None
    return "; ".join(played.wrong), played


def _shortened(failure: Failure) -> Failure:
    """The shortest that was found in `TRIES` tries."""
    tries = iter(range(TRIES))
    with suppress(StopIteration):
        while (shorter := _shorter(failure, tries)) is not None:
            failure = shorter
    return failure


def _shorter(failure: Failure, tries: Iterator[int]) -> Failure | None:
    """One with a step less that goes wrong as well. Raises StopIteration after the last try."""
    steps = failure.history.steps
    for number in reversed(range(len(steps))):
        next(tries)
        history = replace(failure.history, steps=steps[:number] + steps[number + 1 :])
        if wrong := _played(history)[0]:
            return Failure(history=history, what=wrong)
    return None
