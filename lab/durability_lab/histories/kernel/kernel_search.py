"""Plays histories on rig B, with the same steps as on rig A, and shortens a history that goes wrong.

A history takes seconds here, and the kernel's scheduling differs from play to play. A history that goes wrong
is played again with one step less. The shorter history is kept only if it goes wrong too. A history that goes
wrong only sometimes may stay as it was found. The same seed draws the same histories.
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

TRIES = 20  # number of tries to shorten a history
# Recovery of a drive is not recorded on this rig. A dead drive shows no more than on rig A.
_DRIVES = tuple(drive for drive in DRIVES if drive != "dead" and "recovery_ms" not in drive)


def play_on_kernel(history: History, within: Path | None = None) -> Played:
    """Play a history on rig B, with its files except the drive below `within`.

    The drives have their own serials and no counters, and the machine is this one. Raises SetupError if rig B
    is impossible here, and DefectError if a command of the product ends with the exit code of a defect.
    """
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
    """Draw `count` histories with steps that are possible on rig B; the same for the same seed `number`.

    Each is drawn independently of the others, since there are few. Every second one has an honest drive.
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
    """As `search`, on rig B. Raises SetupError if rig B is impossible here."""
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
    """The shortest wrong history found in `TRIES` tries. `wrong`: plays a history; "" if it goes right."""
    tries = iter(range(TRIES))
    with suppress(StopIteration):
        while (shorter := _shorter(failure, wrong, tries)) is not None:
            failure = shorter
    return failure


def _shorter(
    failure: WrongHistory, wrong: Callable[[History], str], tries: Iterator[int]
) -> WrongHistory | None:
    """A history with one step less that goes wrong too. Raises StopIteration after the last try."""
    steps = failure.history.steps
    for number in reversed(range(len(steps))):
        next(tries)
        history = replace(failure.history, steps=steps[:number] + steps[number + 1 :])
        if what := wrong(history):
            return WrongHistory(history=history, what=what)
    return None
