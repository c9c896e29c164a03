"""Tries places one shortly after the other, until one of them answers.

A place that drops packets costs a short pause instead of a whole timeout. Slower attempts are cancelled and
their results discarded.
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
    """Try `places` in order. Returns the first place whose attempt succeeds, with the result, or None.

    The next place is tried when an attempt fails, or when none has answered for `patience_s`. An attempt
    fails with an error of the type `failure`. `failures` gets each such error, also if this call is cancelled
    later. `discard` gets the results of slower attempts that still succeed.
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
