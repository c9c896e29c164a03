"""Simulated cuts for the campaign of the demo, made by worker processes, so that all processors are used.

What an order says is all that a cut depends on, so it does not matter who makes it. Refuses to judge: the
verdict is that of the product's judge, and whether it is right is the word of the drive's own log.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import IO, Any

from durability.errors import SetupError
from durability.formats.documents import from_json, from_value, to_json, to_value
from durability_lab.simulated_rig.scenario import Scenario
from durability_lab.simulated_rig.simulation import SwitchedOff, simulate
from durability_lab.support.worker_processes import last_words, start


@dataclass(frozen=True, slots=True, kw_only=True)
class CutOrder:
    """A cut to be made: its scenario as text, its seed, and what the power controller's log says of it."""

    scenario: str
    seed: int
    switched_off: SwitchedOff


@dataclass(frozen=True, slots=True, kw_only=True)
class CutVerdict:
    """What `verify` said of the cut, and in `defects` where the drive's own log contradicts it."""

    run: str
    exit_code: int
    verdict: str
    cut_class: str
    reasons: tuple[str, ...]
    at_risk_ms1000: int
    defects: tuple[str, ...]


def make_cut(order: CutOrder) -> CutVerdict:
    """Make a cut here."""
    made = simulate(Scenario.parse(order.scenario), seed=order.seed, switched_off=order.switched_off)
    document: Mapping[str, Any] = made.document
    return CutVerdict(
        run=document["run"],
        exit_code=made.exit_code,
        verdict=document["verdict"],
        cut_class=document["cut"]["class"],
        reasons=tuple(reason["code"] for reason in document["reasons"]),
        at_risk_ms1000=document["at_risk"]["ms1000"],
        defects=made.truth.defects,
    )


class CutMakers:
    """Worker processes, each with the file that its stderr goes to."""

    def __init__(self, workers: Sequence[tuple[asyncio.subprocess.Process, IO[bytes]]]) -> None:
        self._free = asyncio.Queue[tuple[asyncio.subprocess.Process, IO[bytes]]]()
        for worker in workers:
            self._free.put_nowait(worker)

    async def make(self, orders: Sequence[CutOrder]) -> list[CutVerdict]:
        """Make all cuts, as many at a time as there are workers. Raises SetupError."""
        return await asyncio.gather(*map(self._make, orders))

    async def _make(self, order: CutOrder) -> CutVerdict:
        worker = process, said = await self._free.get()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(to_json(to_value(order)).encode() + b"\n")
        answer = await process.stdout.readline()
        if not answer.endswith(b"\n"):
            raise SetupError(f"a process that simulates cuts ended{last_words(said)}")
        self._free.put_nowait(worker)
        return from_value(CutVerdict, from_json(answer))


@asynccontextmanager
async def cut_makers(count: int) -> AsyncIterator[CutMakers]:
    """So many worker processes for the time of a block."""
    processes: list[asyncio.subprocess.Process] = []
    with contextlib.ExitStack() as files:
        try:
            workers = []
            for _ in range(count):
                said = files.enter_context(tempfile.TemporaryFile())
                processes.append(await start(__name__, said))
                workers.append((processes[-1], said))
            yield CutMakers(workers)
        finally:
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()


def main() -> None:
    """The process: one cut for each line, until there are no more."""
    answers = sys.stdout.fileno()
    sys.stdout = sys.stderr  # whatever else is printed is not an answer
    with contextlib.suppress(BrokenPipeError):
        for line in sys.stdin:
            made = make_cut(from_value(CutOrder, from_json(line)))
            os.write(answers, to_json(to_value(made)).encode() + b"\n")
