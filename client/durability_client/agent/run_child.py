"""Child processes of the agent: `durability run`, with its output and its end, and `verify`, which judges it
later.

The run survives its task: the next task decides how it ends. SIGTERM stops it in order: it finishes its
groups, and the server confirms the end. A verdict counts only if the server has stored it.
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
# Attempts of a run that the server does not accept, and of a verify that gives no verdict. Before the last
# attempt, the agent itself would have noticed an unreachable server.
TRIES = 5
BETWEEN_TRIES_S = 3.0
STORE_TRIES = 600  # attempts if the server cannot store, because its disk may be full for a while
_BY_SIGNAL = 128  # exit codes of programs that a signal ended are greater
_SHOW_S = 120.0  # a slow machine may need half a minute to start a program for each of several drives
_LISTED_MAX = 1000  # newest runs to list; they include a run of this machine's last boot
_VERIFY_S = 7 * 86_400.0
_NO_SUCH_RUN = "knows of no run"  # part of the server's answer
_UNSTORED = (NOT_STORED, PERHAPS_NOT_STORED)
_NO_VERDICT_LEFT = f"{NOT_STORED} (quota)"  # another attempt cannot help
_STOP_S = 60.0  # time for a run to end in order; then it gets the signal again, and then it is killed
_AGAIN_S = 15.0
_LAST_WORDS_S = 2.0
_LINES_KEPT = 12
_WRITING = frozenset({"running", "waiting for credit", "reconnecting", "stopping", "stopped"})
_OF_DATA = frozenset({"findings", "device-smaller"})  # other reasons for a loss only repeat an earlier one
Check: TypeAlias = Callable[[], Awaitable[None]]  # called before each verify; raises DriveError


class RunChild:
    """A run as a child process. `run`: its id, "" while unknown. `acked`: acknowledged operations. `news` is
    set when one of these, the state or `over` has changed."""

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
        """Exit code as in a shell; None while the run goes on."""
        return shell_code(self._process.returncode) if self._process.returncode is not None else None

    @property
    def over(self) -> bool:
        """Whether the run has ended and its output was read, as far as it came in time."""
        return self._ended.done()

    @property
    def said(self) -> str:
        """The run's own message about its end."""
        return last_words(self._said)

    def has_said(self, words: str) -> bool:
        """Whether one of the run's last lines for people contains `words`."""
        return any(words in line for line in self._said)

    async def ended(self) -> None:
        """Wait for the end of the run."""
        await asyncio.shield(self._ended)

    async def stop(self) -> None:
        """Stop the run in order, and wait for its end. If it does not end, it is killed. Can be called at any
        time."""
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
        with suppress(TimeoutError):  # a writer that waits for the drive keeps the pipes open
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
    """The options of `durability run` for this drive and arm. The control arm stays enabled: at an idle
    moment only it writes, and its errors show the run that its drive lost power."""
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
    """A run without a verdict that is of another campaign, or was begun by hand."""

    run: str
    label: str
    path: str  # path of its target
    mount_point: str  # mount point of the target's file system; "" for a device


class Verify:
    """Verifies the runs on one drive. `options`: command-line options with which commands find the server.
    `online` is set while the agent reaches the server."""

    def __init__(self, children: Children, options: Sequence[str], online: asyncio.Event) -> None:
        self._children = children
        self._options = options
        self._online = online

    async def judge(
        self, work: TaskPart, target: Path | None, run: str, *, check: Check | None = None
    ) -> int:
        """Verify the run and return the exit code. Waits while the server cannot be reached. A `verify` that
        was killed is repeated. Raises DriveError without a verdict."""
        assert target is not None
        for number in range(1, TRIES + 1):
            exit_code, said = await self.verdict(work, run, str(target), check=check)
            if exit_code in VERDICTS:
                work.say(exit_code=exit_code, text="")
                return exit_code
            work.say(exit_code=exit_code, text=said)
            killed = exit_code > _BY_SIGNAL  # by the kernel, if memory is short, or by people
            if not (exit_code == EXIT_ENVIRONMENT or killed) or number == TRIES:
                break
            await self._wait()
        raise DriveError("not-verified", said)

    async def verdict(
        self, work: TaskPart, run: str, *words: str, check: Check | None = None
    ) -> tuple[int, str]:
        """Run `verify`. Returns its exit code and message.

        A verdict that the server did not store does not count, so `verify` is repeated. The wait for the
        server may take hours. So `check` is called before each `verify`, and in a `verify` task the server is
        asked first for a verdict that people have made meanwhile. Raises DriveError.
        """
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
        """Whether a run is of this campaign (by its label), was armed, and has no verdict. Raises DriveError
        if the server does not answer."""
        case = await self._case(work, run)
        # A run that the server does not know belongs to another server. For the task's run, `verify` says so.
        return _is_due(work, case) if case is not None else run == work.mine.run

    async def due_on(self, work: TaskPart, found: FoundDrive, target: Path, *, or_stopped: bool) -> str:
        """The campaign's newest run on a drive whose runs write to `target`, if the run is due; else "".

        Earlier runs do not count, because the newest run has overwritten them, even if it was never armed. On
        a raw drive, only armed runs can be matched to the drive, so others are ignored. `or_stopped`: also
        return a run that was stopped in order, without a cut. Raises DriveError if the server does not
        answer.
        """
        is_raw = work.drive.is_raw
        for row in await self._listed(work):
            run, path = str(row["run"]), str(row["path"])
            # The kernel's name of a raw drive may belong to another drive by now.
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
        """A run that is not of this campaign, was neither stopped in order nor verified, and whose evidence a
        device may carry; or None.

        `named`: the run in the superblock at the start of the device, or "". Other runs may be in `contents`,
        the signatures on the device, unless a later run has replaced them. Raises DriveError if the server
        does not answer.
        """
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
        """The result of `verdict` if the run has a final verdict: people may have verified it since the cut,
        and erased the drive after that.

        None if there is no verdict, or one that another `verify` may strengthen or withdraw. If the server
        does not answer, the exit code is EXIT_ENVIRONMENT, because the server may have a verdict.
        """
        done = await self._ask("show", run)
        with suppress(ValueError, KeyError, DurabilityError):
            given = [from_value(PastVerdict, one) for one in json.loads(done.output)["case"]["verdicts"]]
            stands = weightiest(given)
            if stands is not None and _is_final(work, stands):
                return (EXIT_LOSS if stands.verdict == "loss" else EXIT_OK), ""
            return None
        return None if _NO_SUCH_RUN in done.errors else (EXIT_ENVIRONMENT, done.said)

    async def _case(self, work: TaskPart, run: str) -> Mapping[str, Any] | None:
        """The server's case of a run; None if it does not know the run. Raises DriveError if the server does
        not answer."""
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
        """Run a command that asks the server. A command that is too slow counts as a failed one."""
        try:
            command = own_command(*words, *self._options, "--json")
            return await self._children.run(*command, timeout_s=_SHOW_S)
        except ProgramError as error:
            return Done(exit_code=EXIT_ENVIRONMENT, output="", errors=str(error))

    async def _listed(self, work: TaskPart, *options: str) -> list[Mapping[str, Any]]:
        """The newest runs on the server, newest first. Raises DriveError if the server does not answer."""
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
    """Whether a run that is not of this campaign still needs its evidence: it lacks a verdict and was not
    stopped in order."""
    is_others = not _is_ours(work, case["label"])
    return is_others and _lacks_verdict(case) and case["session_end"] != "stop"


def _lacks_verdict(case: Mapping[str, Any]) -> bool:
    return case["armed"] is not None and not case["verdicts"]


def _is_final(work: TaskPart, stands: PastVerdict) -> bool:
    """Whether the valid verdict `stands` needs no further `verify`.

    A `verify` that reads everything may withdraw a loss that only I/O errors showed. People may have verified
    with a weaker class of cut than the task requires.
    """
    if stands.verdict == "loss":
        return "unreadable-only" not in stands.reasons and not _OF_DATA.isdisjoint(stands.reasons)
    enough = tuple(dropwhile(lambda one: one != work.mine.cut_class, CUT_CLASSES))
    return stands.verdict == "durable" and stands.cut_class in enough


def _is_ours(work: TaskPart, label: object) -> bool:
    """Whether a run is of the task's campaign, by its label: the campaign's name and a cycle number."""
    return str(label).rpartition(" ")[0] == work.mine.label.rpartition(" ")[0]
