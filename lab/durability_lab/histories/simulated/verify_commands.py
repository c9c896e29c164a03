"""`verify` as an operator of a history starts it, once or twice on one target."""

from __future__ import annotations

import asyncio
import io
import json
from dataclasses import dataclass
from typing import Any, Final

from durability.errors import DurabilityError, TargetBusyError
from durability_client.verify.case_source import WAIT_S
from durability_client.verify.verify_command import VerifyOptions, verify
from durability_lab.histories.simulated.eventful_drive import HistoryStorage
from durability_lab.histories.simulated.virtual_loop import VirtualLoop
from durability_lab.histories.simulated.virtual_process import Process

_PATIENCE_S: Final = 20.0 + WAIT_S  # how long to wait for a command's answer
_AGAIN_S: Final = 0.0003


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOutput:
    """The output of one `verify`."""

    document: dict[str, Any] | None
    why: str  # why there is no document


class VerifyCommands:
    """One `verify`, and with `beside` a second one, which starts again while the first holds the target.
    `processes`: the processes of both, in this order."""

    def __init__(
        self, loop: VirtualLoop, storage: HistoryStorage, options: VerifyOptions, *, beside: bool
    ) -> None:
        self.processes = [Process("verify") for _ in range(1 + beside)]
        self._loop = loop
        self._storage = storage
        self._options = options

    async def outputs(self) -> list[VerifyOutput]:
        """Run the commands; returns the output of each."""
        first = self._begin(self.processes[0])
        tasks = [first, *(self._begin(process, patiently=first) for process in self.processes[1:])]
        await asyncio.wait(tasks, timeout=_PATIENCE_S)
        return [await _output(task) for task in tasks]

    def _begin(self, process: Process, *, patiently: asyncio.Task[str] | None = None) -> asyncio.Task[str]:
        """Start a `verify`. `patiently`: start it again and again while that task holds the target."""

        async def verified() -> str:
            while True:
                out = io.StringIO()
                try:
                    await verify(self._options, storage=self._storage, out=out, err=io.StringIO())
                except TargetBusyError:
                    if patiently is None or patiently.done():
                        raise
                    await asyncio.sleep(_AGAIN_S)
                else:
                    return out.getvalue()

        return process.begin(self._loop, verified())


async def _output(task: asyncio.Task[str]) -> VerifyOutput:
    """The output of a `verify`; one that has not ended is cancelled."""
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
        return VerifyOutput(document=None, why="no answer")
    if task.cancelled():
        return VerifyOutput(document=None, why="killed")
    error = task.exception()
    if isinstance(error, DurabilityError):
        return VerifyOutput(document=None, why=f"{type(error).__name__}: {error}")
    return VerifyOutput(document=json.loads(task.result()), why="")
