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
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import dropwhile
from pathlib import Path
from typing import Any, TypeAlias

from durability import limits
from durability.campaign.tasks import DriveTask
from durability.errors import (
    EXIT_ENVIRONMENT,
    EXIT_INCONCLUSIVE,
    EXIT_LOSS,
    EXIT_OK,
    NOT_STORED,
    PERHAPS_NOT_STORED,
    DurabilityError,
)
from durability.evidence.cut import CUT_CLASSES
from durability.evidence.strength import weightiest
from durability.formats.case import PastVerdict
from durability.formats.documents import from_value
from durability.formats.facts import Facts
from durability.formats.workloads.registry import WORKLOADS
from durability_client.agent.abandonable_calls import (
    Children,
    Done,
    ProgramError,
    in_thread,
    last_words,
    shell_code,
)
from durability_client.agent.drive_status import TaskPart
from durability_client.agent.drives import DriveError, FoundDrive
from durability_client.agent.same_drive import Contents, is_certain, is_on, may_lie_on
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
_UNSTORED = (NOT_STORED, PERHAPS_NOT_STORED)
_NO_VERDICT_LEFT = f"{NOT_STORED} (quota)"  # which no other try changes
_STOP_S = 60.0  # for a run to end in order; then it is told again, and then killed
_AGAIN_S = 15.0
_LAST_WORDS_S = 2.0
_LINES_KEPT = 12
_WRITING = frozenset({"running", "waiting for credit", "reconnecting", "stopping", "stopped"})
_OF_DATA = frozenset({"findings", "device-smaller"})  # the others only repeat an earlier loss
Check: TypeAlias = Callable[[], Awaitable[None]]  # before each verify; raises DriveError


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


@dataclass(frozen=True, slots=True, kw_only=True)
class OthersRun:
    """A run of another campaign, or one begun by hand, that has no verdict. `path`: of its target.
    `mount_point`: of the file system of that, "" for a device."""

    run: str
    label: str
    path: str
    mount_point: str


class Verify:
    """Has the runs on one drive verified. `options`: those with which commands find the server. `online` is
    set while the agent reaches it."""

    def __init__(self, children: Children, options: Sequence[str], online: asyncio.Event) -> None:
        self._children = children
        self._options = options
        self._online = online

    async def judge(
        self, work: TaskPart, target: Path | None, run: str, *, check: Check | None = None
    ) -> int:
        """Have the run verified; while the server cannot be reached, that is waited for. A verify that was
        killed is tried again. Its exit code. Raises DriveError without a verdict."""
        assert target is not None
        for number in range(1, TRIES + 1):
            exit_code, said = await self.verdict(work, run, str(target), check=check)
            if exit_code in VERDICTS:
                work.say(exit_code=exit_code, text="")
                return exit_code
            work.say(exit_code=exit_code, text=said)
            killed = exit_code > _BY_SIGNAL  # by the kernel, where memory is short, or by people
            if not (exit_code == EXIT_ENVIRONMENT or killed) or number == TRIES:
                break
            await self._wait()
        raise DriveError("not-verified", said)

    async def verdict(
        self, work: TaskPart, run: str, *words: str, check: Check | None = None
    ) -> tuple[int, str]:
        """The exit code of `verify`, and what it said. A verdict that the server did not store counts
        nowhere, so it is made again. To wait for the server may take hours: `check` is asked before each
        verify, and in a task to verify the server for a verdict that people had made. Raises DriveError."""
        options = ("--run", run, "--require-cut", work.mine.cut_class, "--json")
        command = own_command("verify", *words, *self._options, *options)
        for _ in range(STORE_TRIES):
            if work.task.kind == "verify" and (known := await self._known(work, run)) is not None:
                return known
            if check is not None:
                await check()
            work.say(text="verifying")
            done = await self._children.run(*command, timeout_s=_VERIFY_S)
            unstored = next((words for words in _UNSTORED if words in done.errors), "")
            if not unstored:
                return done.exit_code, done.said
            work.say(text=f"exit code {done.exit_code} of verify, but {unstored}")
            if _NO_VERDICT_LEFT in done.errors:
                raise DriveError("not-verified", done.said)
            await self._wait()
        raise DriveError("not-verified", f"exit code {done.exit_code} of verify, but {unstored}")

    async def is_due(self, work: TaskPart, run: str) -> bool:
        """Whether a run is of this campaign, by its label, was armed and has no verdict. Raises DriveError
        if the server does not say."""
        case = await self._case(work, run)
        # One that is not known is of another server; verify says that of one that is named.
        return _is_due(work, case) if case is not None else run == work.mine.run

    async def due_on(self, work: TaskPart, found: FoundDrive, target: Path, *, or_stopped: bool) -> str:
        """The campaign's newest run on a drive, whose runs write to `target`, if that is due; "" if not: it
        has overwritten those before it, also if it was never armed. On a raw drive only one that was armed
        tells its drive. `or_stopped`: also one that was stopped in order, which no cut ended. Raises
        DriveError if the server does not say."""
        is_raw = work.drive.is_raw
        for row in await self._listed(work):
            run, path = str(row["run"]), str(row["path"])
            # The kernel's name of a raw drive may be another one's by now.
            is_there = path.startswith("/dev/") if is_raw else path == str(target)
            if not (is_there and _is_ours(work, row["label"])):
                continue
            case = await self._case(work, run)
            facts = case["armed"] if case is not None else None
            if is_raw and (not facts or not await in_thread(partial(is_on, found, from_value(Facts, facts)))):
                continue
            if case is None or not _is_due(work, case):
                return ""
            return run if or_stopped or case["session_end"] != "stop" else ""
        return ""

    async def of_others(
        self, work: TaskPart, found: FoundDrive, contents: Contents, *, named: str
    ) -> OthersRun | None:
        """A run of somebody else that nobody stopped or verified, and whose evidence a device may carry.
        `named`: the run of which its beginning tells, "" for none. Others may lie in `contents`, which are
        recognised on it; not one whose place a later run took. Raises DriveError if the server does not
        say."""
        if named and (case := await self._case(work, named)) is not None and _is_kept(work, case):
            return OthersRun(run=named, label=str(case["label"]), path=str(found.device), mount_point="")
        if not any(contents.values()):
            return None
        serial = found.serial[: limits.DRIVE_NAME_MAX] if is_certain(found) else ""
        for row in await self._listed(work, *([f"--drive={serial}"] if serial else [])):
            if row["verdict"] or row["session_end"] == "stop" or _is_ours(work, row["label"]):
                continue
            run = str(row["run"])
            case = await self._case(work, run)
            if case is None or not _is_kept(work, case) or case["superseded_by"]:
                continue
            facts = from_value(Facts, case["armed"])
            if await in_thread(partial(may_lie_on, found, contents, facts)):
                place = facts.file_system.mount_point if facts.file_system is not None else ""
                return OthersRun(run=run, label=str(case["label"]), path=facts.path, mount_point=place)
        return None

    async def _known(self, work: TaskPart, run: str) -> tuple[int, str] | None:
        """What `verdict` says without a verify: people have made one since the cut, and may have erased the
        drive after that. None where there is none, or one that another verify may add to or withdraw. A
        server that does not answer may have one."""
        done = await self._ask("show", run)
        with suppress(ValueError, KeyError, DurabilityError):
            given = [from_value(PastVerdict, one) for one in json.loads(done.output)["case"]["verdicts"]]
            stands = weightiest(given)
            if stands is not None and _is_final(work, stands):
                return (EXIT_LOSS if stands.verdict == "loss" else EXIT_OK), ""
            return None
        return None if _NO_SUCH_RUN in done.errors else (EXIT_ENVIRONMENT, done.said)

    async def _case(self, work: TaskPart, run: str) -> Mapping[str, Any] | None:
        """What the server has of a run, None if it does not know it. Raises DriveError if it does not say."""
        for _ in range(TRIES):
            done = await self._ask("show", run)
            with suppress(ValueError, KeyError):
                case: Mapping[str, Any] = json.loads(done.output)["case"]
                return case
            if _NO_SUCH_RUN in done.errors:
                return None
            work.say(text=done.said)
            await self._wait()
        raise DriveError("agent", f"the server does not say whether run {run} has a verdict: {done.said}")

    async def _ask(self, *words: str) -> Done:
        """What the server answers to a command. One that is too slow has not answered."""
        try:
            command = own_command(*words, *self._options, "--json")
            return await self._children.run(*command, timeout_s=_SHOW_S)
        except ProgramError as error:
            return Done(exit_code=EXIT_ENVIRONMENT, output="", errors=str(error))

    async def _listed(self, work: TaskPart, *options: str) -> list[Mapping[str, Any]]:
        """The newest runs that the server lists, newest first. Raises DriveError if it does not say."""
        for _ in range(TRIES):
            done = await self._ask("runs", "--all", "--limit", str(_LISTED_MAX), *options)
            with suppress(ValueError, KeyError):
                return list(json.loads(done.output)["runs"])
            work.say(text=done.said)
            await self._wait()
        raise DriveError("agent", f"the server does not say which runs it has: {done.said}")

    async def _wait(self) -> None:
        await asyncio.sleep(BETWEEN_TRIES_S)
        await self._online.wait()


def _is_due(work: TaskPart, case: Mapping[str, Any]) -> bool:
    return _is_ours(work, case["label"]) and _lacks_verdict(case)


def _is_kept(work: TaskPart, case: Mapping[str, Any]) -> bool:
    """Whether the evidence of a run is for somebody else to judge."""
    is_others = not _is_ours(work, case["label"])
    return is_others and _lacks_verdict(case) and case["session_end"] != "stop"


def _lacks_verdict(case: Mapping[str, Any]) -> bool:
    return case["armed"] is not None and not case["verdicts"]


def _is_final(work: TaskPart, stands: PastVerdict) -> bool:
    """Whether no other verify is wanted beside the verdict that stands. One that reads everything may
    withdraw a loss that I/O errors alone showed, and people may have asked for a weaker class of cut."""
    if stands.verdict == "loss":
        return "unreadable-only" not in stands.reasons and not _OF_DATA.isdisjoint(stands.reasons)
    enough = tuple(dropwhile(lambda one: one != work.mine.cut_class, CUT_CLASSES))
    return stands.verdict == "durable" and stands.cut_class in enough


def _is_ours(work: TaskPart, label: object) -> bool:
    """Whether a run is of the task's campaign: its label is the campaign's name and the number of a cycle."""
    return str(label).rpartition(" ")[0] == work.mine.label.rpartition(" ")[0]
