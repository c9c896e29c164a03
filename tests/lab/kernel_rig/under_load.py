"""Cuts that met no load: on a busy machine all of a run may stand still for the second before a cut.

Then nothing was at risk, and `verify` rightly says inconclusive of an honest drive. The test is made again.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import ParamSpec

from durability_lab.kernel_rig.cycle import CommandAnswer

TRIES = 5
P = ParamSpec("P")


class StandstillError(Exception):
    """Nothing was at risk at the cut."""


def again_after_a_standstill(test: Callable[P, Awaitable[None]]) -> Callable[P, Awaitable[None]]:
    """Makes `test` again, as often as `TRIES` allows, while its cut met no load."""

    @functools.wraps(test)
    async def repeated(*args: P.args, **kwargs: P.kwargs) -> None:
        for _ in range(TRIES - 1):
            with suppress(StandstillError):
                return await test(*args, **kwargs)
        return await test(*args, **kwargs)

    return repeated


def codes(answer: CommandAnswer) -> list[str]:
    """Why `verify` said what it said."""
    return [reason["code"] for reason in answer.document["reasons"]]


def require_durable(answer: CommandAnswer) -> None:
    """The verdict is durable. Raises StandstillError where all that is missing is load at the cut."""
    if codes(answer) == ["nothing-at-risk"]:
        raise StandstillError(answer)
    assert (answer.exit_code, answer.document["verdict"]) == (0, "durable"), answer
