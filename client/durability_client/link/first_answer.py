"""Places tried one shortly after the other, until something answers at one of them.

A place that drops what is sent to it costs a pause, not the time after which it would be given up. Leaves
nothing behind of the attempts that were slower.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

Place = TypeVar("Place")
Found = TypeVar("Found")
Failed = TypeVar("Failed", bound=Exception)


async def first_answer(
    places: Sequence[Place],
    attempt: Callable[[Place], Coroutine[Any, Any, Found]],
    *,
    patience_s: float,
    failure: type[Failed],
    failures: list[tuple[Place, Failed]],
    discard: Callable[[Found], None],
) -> tuple[Place, Found] | None:
    """The first place where an attempt succeeds, and what came of it; None if all fail. The next place is
    tried when one fails, or has not answered for `patience_s`.

    An attempt fails with an error of the type `failure`; `failures` gets it, also if this is cancelled later.
    `discard` gets what comes of an attempt that another one has beaten.
    """
    untried = list(places)
    attempts: dict[asyncio.Task[Found], Place] = {}

    def close_late(late: asyncio.Task[Found]) -> None:
        if not late.cancelled() and late.exception() is None:
            discard(late.result())

    try:
        while untried or attempts:
            if untried:
                place = untried.pop(0)
                attempts[asyncio.create_task(attempt(place))] = place
            done, _ = await asyncio.wait(
                attempts, timeout=patience_s if untried else None, return_when=asyncio.FIRST_COMPLETED
            )
            for ended in done:
                try:
                    found = ended.result()
                except failure as error:
                    failures.append((attempts.pop(ended), error))
                else:
                    return attempts.pop(ended), found
    finally:
        for slower in attempts:
            slower.add_done_callback(close_late)
            slower.cancel()
    return None
