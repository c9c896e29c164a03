"""Plays histories on rig B, of the same steps as on rig A, and makes one that goes wrong shorter.

A history takes seconds here, and what the kernel's scheduling decides differs from play to play. So a
history that goes wrong is played again with one step less, and a shorter one is kept only where it goes wrong
as well; one that goes wrong only sometimes stays as it was found. The same seed draws the same histories.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

from durability_lab.histories.kernel.kernel_world import STEPS, KernelWorld
from durability_lab.histories.play import Played, play_through
from durability_lab.histories.search import DRIVES, STEPS_MAX, WEIGHTS, SearchTally, WrongHistory, attempt
from durability_lab.histories.steps import KINDS, MACHINES, SERIALS, TARGETS, History, Step
from durability_lab.support.cleanup import watched_directory

TRIES = 20  # to make a history shorter
# Nobody notes here when a drive recovers, and one that is dead shows no more than on rig A.
_DRIVES = tuple(drive for drive in DRIVES if drive != "dead" and "recovery_ms" not in drive)


def play_on_kernel(history: History, within: Path | None = None) -> Played:
    """Play it on rig B, whose drives have serials of their own and no counters, and on the machine that there
    is, with its files but the drive within `within`. Raises SetupError where there can be no rig B, and
    DefectError where a command of the product ends as a defect does."""
    made = replace(history, counters=False, serials=SERIALS[0], machine=MACHINES[0])
    return asyncio.run(_play(made, within))


async def _play(history: History, within: Path | None) -> Played:
    with watched_directory("durability-history-", within=within) as directory:
        world = KernelWorld(history, directory)
        try:
            return await play_through(world)
        finally:
            await world.end()


def drawn(count: int, number: int) -> list[History]:
    """So many histories of steps that can be made on rig B; the same for the same seed `number`.

    Each is drawn apart from the others, as there are few of them; every other one has an honest drive.
    """
    return [_drawn(Random(f"{number} {one}"), honest=one % 2 == 0) for one in range(count)]


def _drawn(draw: Random, *, honest: bool) -> History:
    kinds = [
        "run",
        *draw.choices(STEPS, [WEIGHTS.get(kind, 1) for kind in STEPS], k=draw.randint(0, STEPS_MAX)),
    ]
    lines = (
        " ".join([kind, *(f"{word}={draw.choice(values)}" for word, values in KINDS[kind].words.items())])
        for kind in kinds
    )
    return History(
        seed=draw.getrandbits(16),
        target=draw.choice(TARGETS),
        drive=_DRIVES[0] if honest else draw.choice(_DRIVES),
        counters=False,
        steps=tuple(map(Step.parse, lines)),
    )


def search_on_kernel(
    *,
    count: int,
    number: int,
    within: Path | None = None,
    on_play: Callable[[History], None] = lambda _: None,
    on_right: Callable[[], None] = lambda: None,
) -> tuple[SearchTally, WrongHistory | None]:
    """As `search`, on rig B. Raises SetupError where there can be none."""
    tally = SearchTally()

    def wrong(history: History) -> tuple[str, Played | None]:
        on_play(history)
        return attempt(play_on_kernel, history, within)

    for history in drawn(count, number):
        what, played = wrong(history)
        if what:
            return tally, _shortened(WrongHistory(history=history, what=what), lambda one: wrong(one)[0])
        if played is not None:
            tally.add(history, played)
            on_right()
    return tally, None


def _shortened(failure: WrongHistory, wrong: Callable[[History], str]) -> WrongHistory:
    """The shortest that was found in `TRIES` tries. `wrong`: plays a history; "" where it goes right."""
    tries = iter(range(TRIES))
    with suppress(StopIteration):
        while (shorter := _shorter(failure, wrong, tries)) is not None:
            failure = shorter
    return failure


def _shorter(
    failure: WrongHistory, wrong: Callable[[History], str], tries: Iterator[int]
) -> WrongHistory | None:
    """One with a step less that goes wrong as well. Raises StopIteration after the last try."""
    steps = failure.history.steps
    for number in reversed(range(len(steps))):
        next(tries)
        history = replace(failure.history, steps=steps[:number] + steps[number + 1 :])
        if what := wrong(history):
            return WrongHistory(history=history, what=what)
    return None
