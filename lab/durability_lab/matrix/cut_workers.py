"""Worker processes that make cuts: a matrix uses every processor and survives the death of a worker.

A worker reads requests from its stdin and answers each on its stdout, both as lines of JSON. It ends at the
end of its input. If the matrix is killed, a worker therefore finishes its present cut, removes that cut's
resources as usual, and ends. If a worker dies, its present cut has failed, and a new worker replaces it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import IO

from durability.errors import DurabilityError
from durability.formats.documents import from_json, from_value, to_json, to_value
from durability_lab.matrix.cutting import Cutter
from durability_lab.matrix.graded_cut import GradedCut, failed
from durability_lab.matrix.matrix_cells import MatrixCell
from durability_lab.support.worker_processes import last_words, start

DEADLINE_S = 600.0  # for one cut: many times the duration of the slowest
_GRACE_S = 30.0  # time to remove the resources of a cut


@dataclass(frozen=True, slots=True, kw_only=True)
class CutRequest:
    """A request for cut `number` of `cell` in the matrix with `seed`."""

    cell: MatrixCell
    number: int
    seed: int


class Worker:
    """A worker process, seen from the matrix. It is started at first use. Its stderr goes to the file `said`;
    if the process dies, only the last line is reported."""

    def __init__(self, said: IO[bytes]) -> None:
        self.process: asyncio.subprocess.Process | None = None
        self._said = said

    async def make(self, request: CutRequest, *, deadline_s: float = DEADLINE_S) -> GradedCut:
        """Let the process make the cut. A failure, or a cut that takes too long, is a graded cut too."""
        began_s = time.monotonic()
        process = self.process or await self._start()
        assert process.stdin is not None and process.stdout is not None
        answer, late = b"", ""
        try:
            async with asyncio.timeout(deadline_s):
                process.stdin.write(to_json(to_value(request)).encode() + b"\n")
                await process.stdin.drain()
                answer = await process.stdout.readline()
        except TimeoutError:
            late = f" after {deadline_s:g} s without an answer"
            process.kill()  # the worker's cleanup processes remove its resources
        except (BrokenPipeError, ConnectionResetError):
            pass
        if answer.endswith(b"\n"):
            return from_value(GradedCut, from_json(answer))
        code = await process.wait()
        self.process = None
        return failed(
            request.cell,
            request.number,
            seed=request.cell.seed(request.seed, request.number),
            why=f"the process that made this cut ended with code {code}{late}{last_words(self._said)}",
            duration_s=time.monotonic() - began_s,
        )

    async def end(self) -> None:
        """End the process, and wait up to 30 s until it has removed its resources; then kill it."""
        process, self.process = self.process, None
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None
        process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(_GRACE_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    async def _start(self) -> asyncio.subprocess.Process:
        self.process = await start(__name__, self._said)
        return self.process


@asynccontextmanager
async def workers(count: int) -> AsyncIterator[list[Worker]]:
    """`count` workers for the duration of a block."""
    with contextlib.ExitStack() as files:
        every = [Worker(files.enter_context(tempfile.TemporaryFile())) for _ in range(count)]
        try:
            yield every
        finally:
            await asyncio.gather(*(worker.end() for worker in every))


def main() -> None:
    """Entry point of the worker process: make one cut per line, until the matrix closes stdin."""
    with contextlib.suppress(asyncio.CancelledError, BrokenPipeError):
        asyncio.run(_serve())


async def _serve() -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    answers = sys.stdout.fileno()
    sys.stdout = sys.stderr  # keep other output out of the answers
    async with Cutter() as cutter:
        while line := await asyncio.to_thread(sys.stdin.readline):
            request = from_value(CutRequest, from_json(line))
            graded_cut = await _make(cutter, request)
            os.write(answers, to_json(to_value(graded_cut)).encode() + b"\n")


async def _make(cutter: Cutter, request: CutRequest) -> GradedCut:
    """Make and grade the cut; a cut that fails for any reason is graded as failed."""
    began_s = time.monotonic()
    seed = request.cell.seed(request.seed, request.number)
    try:
        return await cutter.make(request.cell, request.number, seed)
    except (DurabilityError, OSError, TimeoutError) as error:
        why = str(error) or type(error).__name__
    except Exception as error:  # the matrix goes on and reports the defect
        why = f"a defect of this tool: {type(error).__name__}: {error}"
    duration_s = time.monotonic() - began_s
    return failed(request.cell, request.number, seed=seed, why=why, duration_s=duration_s)
