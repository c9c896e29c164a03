"""A `durability run` that the agent has started: what it says of itself, and its end in order. And `verify`,
which judges it later.

The run outlives the task's own work: a task that changes lets it end as the next one needs it. It is stopped
in order by SIGTERM, which lets it finish its groups and have the server confirm the end. Refuses to take for
a verdict what the server has not stored.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from durability.campaign.tasks import DriveTask
from durability.errors import EXIT_ENVIRONMENT, EXIT_INCONCLUSIVE, EXIT_LOSS, EXIT_OK, NOT_STORED
from durability.formats.workloads.registry import WORKLOADS
from durability_client.agent.abandonable_calls import Children, last_words, shell_code
from durability_client.agent.drive_status import TaskPart
from durability_client.agent.drives import DriveError
from durability_client.system.processes import own_command

VERDICTS = {EXIT_OK: "durable", EXIT_LOSS: "loss", EXIT_INCONCLUSIVE: "inconclusive"}
# Of a run that the server did not accept, and of a verify that came to no verdict; the last after the agent
# would miss its server as well.
TRIES = 5
BETWEEN_TRIES_S = 3.0
STORE_TRIES = 600  # of what the server does not store, since its disk is full for a while
_BY_SIGNAL = 128  # the exit code of a program that a signal ended is greater
_SHOW_S = 30.0
_LISTED_MAX = 1000  # of the newest runs, among which one of this machine's last boot is
_VERIFY_S = 7 * 86_400.0
_NO_SUCH_RUN = "knows of no run"  # in the server's words
_NO_VERDICT_LEFT = f"{NOT_STORED} (quota)"  # which no other try changes
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


class Verify:
    """Has the runs on one drive verified. `options`: those with which commands find the server. `online` is
    set while the agent reaches it."""

    def __init__(self, children: Children, options: Sequence[str], online: asyncio.Event) -> None:
        self._children = children
        self._options = options
        self._online = online

    async def judge(self, work: TaskPart, target: Path | None, run: str) -> int:
        """Have the run verified; while the server cannot be reached, that is waited for. A verify that was
        killed is tried again. Its exit code. Raises DriveError without a verdict."""
        assert target is not None
        for number in range(1, TRIES + 1):
            exit_code, said = await self.verdict(work, run, str(target))
            if exit_code in VERDICTS:
                work.say(exit_code=exit_code, text="")
                return exit_code
            work.say(exit_code=exit_code, text=said)
            killed = exit_code > _BY_SIGNAL  # by the kernel, where memory is short, or by people
            if not (exit_code == EXIT_ENVIRONMENT or killed) or number == TRIES:
                break
            await self._wait()
        raise DriveError("not-verified", said)

    async def verdict(self, work: TaskPart, run: str, *words: str) -> tuple[int, str]:
        """The exit code of `verify`, and what it said. A verdict that the server did not store counts
        nowhere, so it is made again. Raises DriveError."""
        options = ("--run", run, "--require-cut", work.mine.cut_class, "--json")
        command = own_command("verify", *words, *self._options, *options)
        for _ in range(STORE_TRIES):
            work.say(text="verifying")
            done = await self._children.run(*command, timeout_s=_VERIFY_S)
            if NOT_STORED not in done.errors:
                return done.exit_code, done.said
            work.say(text=f"exit code {done.exit_code} of verify, but {NOT_STORED}")
            if _NO_VERDICT_LEFT in done.errors:
                raise DriveError("not-verified", done.said)
            await self._wait()
        raise DriveError("not-verified", f"exit code {done.exit_code} of verify, but {NOT_STORED}")

    async def is_due(self, work: TaskPart, run: str) -> bool:
        """Whether a run is of this campaign, by its label, was armed and has no verdict. Raises DriveError
        if the server does not say."""
        command = own_command("show", run, *self._options, "--json")
        for _ in range(TRIES):
            done = await self._children.run(*command, timeout_s=_SHOW_S)
            with suppress(ValueError, KeyError):
                case = json.loads(done.output)["case"]
                return _is_ours(work, case["label"]) and case["armed"] is not None and not case["verdicts"]
            if _NO_SUCH_RUN in done.errors:  # it is of another server; verify says that of one that is named
                return run == work.mine.run
            work.say(text=done.said)
            await self._wait()
        raise DriveError("agent", f"the server does not say whether run {run} has a verdict: {done.said}")

    async def due_on(self, work: TaskPart, target: Path) -> str:
        """The campaign's run that was armed last on `target`, by its path, if that is due; "" if not. Raises
        DriveError if the server does not say."""
        command = own_command("runs", "--all", "--limit", str(_LISTED_MAX), *self._options, "--json")
        for _ in range(TRIES):
            done = await self._children.run(*command, timeout_s=_SHOW_S)
            with suppress(ValueError, KeyError):
                rows = [
                    (str(row["run"]), bool(row["verdict"]))
                    for row in json.loads(done.output)["runs"]
                    if row["path"] == str(target) and _is_ours(work, row["label"])
                ]
                for run, is_judged in rows:
                    if is_judged or await self.is_due(work, run):
                        return "" if is_judged else run
                return ""
            work.say(text=done.said)
            await self._wait()
        raise DriveError("agent", f"the server does not say which runs it has: {done.said}")

    async def _wait(self) -> None:
        await asyncio.sleep(BETWEEN_TRIES_S)
        await self._online.wait()


def _is_ours(work: TaskPart, label: object) -> bool:
    """Whether a run is of the task's campaign: its label is the campaign's name and the number of a cycle."""
    return str(label).rpartition(" ")[0] == work.mine.label.rpartition(" ")[0]
