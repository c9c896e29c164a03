"""A `durability run` that the agent has started: what it says of itself, and its end in order.

It outlives the task's own work: a task that changes lets it end as the next one needs it. A run is stopped in
order by SIGTERM, which lets it finish its groups and have the server confirm the end.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections import deque
from contextlib import suppress
from typing import Any

from durability.campaign.tasks import DriveTask
from durability.formats.workloads.registry import WORKLOADS
from durability_client.agent.abandonable_calls import Children, last_words, shell_code
from durability_client.agent.drives import DriveError

_STOP_S = 60.0  # for a run to end in order; then it is told again, and then killed
_AGAIN_S = 15.0
_LAST_WORDS_S = 2.0
_LINES_KEPT = 12
_WRITING = frozenset({"running", "waiting for credit", "reconnecting", "stopping", "stopped"})


class RunChild:
    """A run. `run`: its id, "" before it said so; `acked`: operations; `news` is set whenever any of this
    changed."""

    def __init__(self, children: Children, process: asyncio.subprocess.Process) -> None:
        self._children = children
        self._process = process
        self.run = ""
        self.state = ""
        self.acked = 0
        self.was_armed = False
        self.news = asyncio.Event()
        self._said: deque[str] = deque(maxlen=_LINES_KEPT)
        self._stopping: asyncio.Task[None] | None = None
        self._ended = asyncio.create_task(self._follow())
        self._ended.add_done_callback(lambda _: self.news.set())

    @classmethod
    async def start(cls, children: Children, *command: str) -> RunChild:
        """Start the run. Raises ProgramError."""
        return cls(children, await children.start(*command))

    @property
    def exit_code(self) -> int | None:
        """As a shell has it; None while it goes on."""
        return shell_code(self._process.returncode) if self._process.returncode is not None else None

    @property
    def over(self) -> bool:
        """Whether it has ended and all that it said was heard."""
        return self._ended.done()

    @property
    def said(self) -> str:
        """Why it ended, in its own words."""
        return last_words(self._said)

    def has_said(self, words: str) -> bool:
        """Whether `words` are in what it said last for people."""
        return any(words in line for line in self._said)

    async def ended(self) -> None:
        """Wait for its end."""
        await asyncio.shield(self._ended)

    async def stop(self) -> None:
        """End it in order, and wait for that; one that does not end is killed. May be called at any time."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop())
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        for patience_s in (_STOP_S, _AGAIN_S):
            if self.over:
                return
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
            await asyncio.wait({self._ended}, timeout=patience_s)
        if not self.over:
            await self._children.end(self._process)

    async def _follow(self) -> None:
        hearing = asyncio.gather(self._hear_lines(), self._hear_people())
        await self._process.wait()
        with suppress(TimeoutError):  # a writer that waits for the drive keeps them open
            async with asyncio.timeout(_LAST_WORDS_S):
                await hearing

    async def _hear_lines(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            with suppress(ValueError):
                self._take(json.loads(line))

    async def _hear_people(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            self._said.append(line.decode(errors="replace").rstrip())

    def _take(self, sample: Any) -> None:
        if not isinstance(sample, dict):
            return
        run, state, acked = sample.get("run"), sample.get("state"), sample.get("acked")
        if isinstance(run, str) and isinstance(state, str) and isinstance(acked, int):
            self.run, self.state, self.acked = run, state, acked
            self.was_armed = self.was_armed or state in _WRITING
            self.news.set()


def run_options(mine: DriveTask) -> list[str]:
    """The options of `durability run` for this drive and arm. At idle only the control arm still writes: its
    errors are how a run sees that its drive alone lost power."""
    arm, drive = mine.arm, mine.drive
    if arm is None:
        raise DriveError("not-begun", "the task names no arm")
    options = ["--json", "--workload", arm.workload, "--writers", str(arm.writers), "--group", str(arm.group)]
    options += ["--record-size", arm.record_size] if arm.record_size else []
    options += [] if WORKLOADS[arm.workload].endless else ["--pattern", arm.pattern]
    options += ["--sync", arm.sync] if arm.sync else []
    options += ["--direct"] if arm.direct else []
    options += ["--prefill-only"] if arm.moment == "prefill" else []
    options += ["--size", drive.size] if drive.size else []
    options += ["--label", mine.label] if mine.label else []
    options += ["--destroy-data"] if drive.is_raw else []
    options += ["--force"] if mine.fresh else []
    return options
