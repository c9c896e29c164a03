"""Simulated cuts for the campaign of the demo, made by worker processes, so that all processors are used.

A cut depends only on its order, so any worker can make it. The verdict is that of the product's judge. The
drive's own log shows whether the verdict is right.
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
    """A cut to be made: its scenario as text, its seed, and the power controller's log of it."""

    scenario: str
    seed: int
    switched_off: SwitchedOff


@dataclass(frozen=True, slots=True, kw_only=True)
class CutVerdict:
    """The answer of `verify` for the cut. `defects`: contradictions between it and the drive's own log."""

    run: str
    exit_code: int
    verdict: str
    cut_class: str
    reasons: tuple[str, ...]
    at_risk_ms1000: int
    defects: tuple[str, ...]


def make_cut(order: CutOrder) -> CutVerdict:
    """Make a cut in this process."""
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
    """Worker processes, each with the file for its stderr."""

    def __init__(self, workers: Sequence[tuple[asyncio.subprocess.Process, IO[bytes]]]) -> None:
        self._free = asyncio.Queue[tuple[asyncio.subprocess.Process, IO[bytes]]]()
        for worker in workers:
            self._free.put_nowait(worker)

    async def make(self, orders: Sequence[CutOrder]) -> list[CutVerdict]:
        """Make all cuts, one per worker at a time. Raises SetupError if a worker ends."""
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
    """`count` worker processes for the duration of a block."""
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
    """Entry point of the worker process: make one cut per line, until the end of stdin."""
    answers = sys.stdout.fileno()
    sys.stdout = sys.stderr  # keep other output out of the answers
    with contextlib.suppress(BrokenPipeError):
        for line in sys.stdin:
            made = make_cut(from_value(CutOrder, from_json(line)))
            os.write(answers, to_json(to_value(made)).encode() + b"\n")
