"""One drive's part of the tasks, one task after the other.

All work can be cancelled at any time, except a run. A run belongs to the drive, and the next task decides how
it ends: `verify` lets it end by the cut, every other task stops it in order. Results are reported at once, as
a status.

A task's run is not begun twice in a boot, nor in another boot than planned, because the data of an earlier
run may be unverified. Files of a target are removed only when the server says so, since a repeated `verify`
would judge missing files as a loss.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from durability.campaign.tasks import DriveTask, Task, Trouble
from durability.errors import NOT_ACCEPTED, NOT_STARTED, DurabilityError
from durability_client.agent import drives, file_systems, same_drive
from durability_client.agent.abandonable_calls import Children, ProgramError, in_thread, shortened
from durability_client.agent.agent_paths import AgentPaths, read_mark, write_mark
from durability_client.agent.condition import condition_of
from durability_client.agent.drive_status import Report, TaskPart
from durability_client.agent.drive_target import DriveTarget
from durability_client.agent.drives import DriveError, FoundDrive
from durability_client.agent.earlier_runs import EarlierRuns
from durability_client.agent.file_systems import KernelLog, first_damage
from durability_client.agent.run_child import (
    BETWEEN_TRIES_S,
    STORE_TRIES,
    TRIES,
    RunChild,
    Verify,
    run_options,
)
from durability_client.system.processes import own_command
from durability_client.system.programs import find_tool
from durability_client.target import discovery

_NO_STORE = f"{NOT_ACCEPTED} (store-unavailable)"
_UNVERIFIED = f"{NOT_ACCEPTED} (unverified-run)"
_STILL_ACKED_S = 3.0  # a run that still acknowledges after this time was not cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Settings that all drives of an agent share."""

    places: AgentPaths
    options: Sequence[str]  # command-line options with which started commands find the server
    boot_id: str  # id of the current boot
    online: asyncio.Event = field(default_factory=asyncio.Event)  # set while the agent reaches its server


class DriveWork:
    """The work on one drive of one campaign."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._children = Children()
        self._verify_child = Verify(self._children, setting.options, setting.online)
        self._run: RunChild | None = None
        self._last: tuple[Task, DriveTask] | None = None
        self._target = DriveTarget(setting.places, self._children)
        self._earlier = EarlierRuns(self._target, self._verify_child, setting.online)

    async def do(self, task: Task, mine: DriveTask, report: Report) -> None:
        """Do the drive's part of `task`, and report its progress as statuses. Returns when the part is done;
        for a run, when the run has ended."""
        self._last = (task, mine)
        work = TaskPart(task, mine, report)
        steps: dict[str, Callable[[TaskPart], Any]] = {
            "examine": self._examine,
            "run": self._do_run,
            "verify": self._verify,
            "shutdown": self._release,
            "release": self._release,
        }
        try:
            work.say()
            await steps[task.kind](work)
        except DriveError as error:
            work.fail(error)
        except (ProgramError, OSError, DurabilityError) as error:
            work.fail(DriveError("agent", str(error)))
        except Exception as error:  # a defect with one drive must not stop the work on others
            work.fail(DriveError("agent", f"a defect of this tool: {type(error).__name__}: {error}"))
        finally:
            self._target.unpin()

    async def retire(self) -> None:
        """Stop the run in order and unmount."""
        if self._last is not None:
            task, mine = self._last
            await self.do(replace(task, kind="shutdown"), mine, lambda _: None)

    # The tasks.

    async def _examine(self, work: TaskPart) -> None:
        await self._leave(work)
        found = await self._target.find(work)
        kind = work.drive.file_system
        if kind and find_tool(f"mkfs.{kind}") is None:
            raise DriveError("agent", f"mkfs.{kind} is not installed on this machine")
        before = work.task.drives[: work.task.drives.index(work.mine)]
        await in_thread(partial(drives.check_named_once, found, before))
        work.condition = await in_thread(partial(condition_of, found, ready_s=None))
        trouble: DriveError | None = None
        if found.device is None:
            try:
                await in_thread(partial(drives.check_system_disk, found))
            except DriveError as error:
                trouble = error  # not fatal: writing a file there destroys no data
            await in_thread(partial(drives.check_target, Path(work.drive.target)))
            await in_thread(partial(_check_names, work.mine))
        contents = await self._target.erasable(found)
        holds = same_drive.contents_text(contents)
        drives.check_size(found, work.drive)
        if found.device is None:
            holds = await in_thread(partial(same_drive.file_system_at, Path(work.drive.target).parent))
        work.condition = replace(work.condition, holds=holds)
        await self._earlier.check_others(work, found, contents)
        work.say(state="done", trouble=trouble.trouble if trouble else "", text=str(trouble or ""))

    async def _do_run(self, work: TaskPart) -> None:
        task, mine, drive = work.task, work.mine, work.drive
        if task.boot_id and task.boot_id != self._setting.boot_id:
            raise DriveError("not-begun", "the machine was restarted since this run was planned")
        mark = self._setting.places.begun(task, mine)
        if (begun := read_mark(mark)) is not None:
            named = str(begun.get("run", ""))
            if not named and (last := await self._target.last_run(work)) != begun.get("before", last):
                named = last  # the server may have armed this run although the agent did not know
            text = "the run of this task is over: the agent was restarted, or had another task since"
            work.say(state="ended", run=named, text=text)
            # A mount that stays after its drive has gone would keep the drive from getting its name back.
            await self._target.dismount(work)
            return
        await self._leave(work)
        found = await self._target.find(work, hold=True)
        drives.check_size(found, drive)
        await self._target.erasable(found)  # waits for programs that examine new devices
        work.condition = await in_thread(partial(condition_of, found, ready_s=None))
        work.say()
        await self._target.check_writable(work, found)
        earlier = await self._earlier.verify(work, found)
        if mine.fresh:
            await self._earlier.check_others(work, found, await self._target.erasable(found))
        if mine.run or mine.fresh:  # checked again: requests to the server may have taken hours
            await self._target.check_writable(work, found)
        target = await self._target.make(work, found)
        if drive.is_raw and mine.fresh:
            work.mine = mine = same_drive.erased(mine, await self._target.erasable(found))
        work.say(text=earlier)
        write_mark(mark, {"before": await self._target.last_run(work)})
        command = own_command("run", str(target), *self._setting.options, *run_options(mine))
        self._target.run_on = found
        tries_left = {True: STORE_TRIES, False: TRIES}  # the key: whether the server could not store
        verified = False
        while True:
            self._run = run = await RunChild.start(self._children, *command)
            if await self._watch_run(work, run, mark):
                return
            no_store = run.has_said(_NO_STORE)
            tries_left[no_store] -= 1
            if not run.has_said(NOT_ACCEPTED) or not tries_left[no_store]:
                break
            work.say(text=run.said)
            if run.has_said(_UNVERIFIED) and not verified:
                await self._earlier.verify_refused(work, found)
                verified = True
            else:
                await asyncio.sleep(BETWEEN_TRIES_S)
                await self._setting.online.wait()
            if drive.is_raw:  # the wait may have lasted a week, and the drive may have been put to use
                await self._target.check_writable(work, found)
        # The cut may hit this drive, too. A mount would then keep the drive from getting its name back.
        await self._target.dismount(work)
        raise DriveError(_not_begun(run), run.said or f"run ended with exit code {run.exit_code}")

    async def _watch_run(self, work: TaskPart, run: RunChild, mark: Path) -> bool:
        """Report the run's progress until it ends. Returns whether the server knows the run."""
        early = work.mine.arm is not None and work.mine.arm.moment == "prefill"
        while True:
            run.news.clear()
            if run.over:
                break
            if run.run and not work.status.run:
                write_mark(mark, {"run": run.run})
                self._target.unpin()  # the run keeps the device open
            armed = run.was_armed or (early and run.state == "prefill")
            work.say(state="armed" if armed else "working", run=run.run)
            await run.news.wait()
        self._run = None
        if not run.was_armed and not work.status.run:
            return False
        self._target.unpin()
        trouble = "" if run.was_armed or early else _not_begun(run)
        state = "failed" if trouble else "ended"
        work.say(state=state, trouble=trouble, run=run.run, exit_code=run.exit_code, text=run.said)
        await self._target.let_go(work)
        return True

    async def _verify(self, work: TaskPart) -> None:
        task, mine, drive = work.task, work.mine, work.drive
        work.say(run=mine.run)
        await self._let_run_end(work)
        await self._target.settled(work)
        await self._target.dismount(work)
        returned = self._setting.places.ran_in_this_boot(task, mine)
        began_s = asyncio.get_running_loop().time()
        found = await self._target.find(work, hold=True)
        waited_s = asyncio.get_running_loop().time() - began_s
        ready_s = waited_s if returned else await in_thread(partial(_ready_after_start_s, found))
        work.condition = await in_thread(partial(condition_of, found, ready_s=round(ready_s, 3)))
        work.say()
        certain = same_drive.is_certain(found)
        same_drive.check_condition(work.condition, mine, certain=certain, writes=False)
        if drive.file_system and found.device is not None:
            await self._verify_mounted(work, found)
        elif mine.run:
            self._target.unpin()
            await self._verify_child.judge(
                work, Path(drive.target) if drive.target else found.device, mine.run
            )
        work.condition = await in_thread(partial(condition_of, found, ready_s=round(ready_s, 3)))
        await self._target.dismount(work)
        work.say(state="done")

    async def _release(self, work: TaskPart) -> None:
        run = self._run
        await self._leave(work)
        if work.task.kind == "release" and work.drive.target and work.mine.run:
            target = Path(work.drive.target)
            await in_thread(partial(same_drive.remove_target, target, work.mine.run))
        said = {"run": run.run, "exit_code": run.exit_code} if run is not None else {}
        work.say(state="done", **said)

    # Parts of the tasks.

    async def _leave(self, work: TaskPart) -> None:
        """End the run in order, and unmount."""
        await self._stop_run(work)
        await self._target.settled(work)
        await self._target.dismount(work)

    async def _stop_run(self, work: TaskPart) -> None:
        if self._run is not None:
            work.say(text="stopping the run")
            await self._run.stop()
            self._run = None
            work.say(text="")

    async def _let_run_end(self, work: TaskPart) -> None:
        """Wait for the run to end by the cut of its drive.

        The run is stopped in order if it still acknowledges operations or does not end in time. An earlier
        signal would record a clean stop for a run that was cut. A run in its prefill has acknowledged
        nothing, so it can be stopped.
        """
        run = self._run
        if run is None:
            return
        work.say(text="waiting for the run to see that its drive is gone")
        loop = asyncio.get_running_loop()
        deadline_s, calm_s = loop.time() + work.task.ready_within_s, loop.time() + _STILL_ACKED_S
        acked = run.acked
        while not run.over and loop.time() < deadline_s:
            if loop.time() > calm_s and (run.acked > acked or run.state == "prefill"):
                break
            run.news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await run.news.wait()
        await run.stop()
        self._run = None
        work.say(text="")

    async def _verify_mounted(self, work: TaskPart, found: FoundDrive) -> None:
        """Mount the file system, verify the run, and report the results of the mounts for this task."""
        assert work.drive.file_system
        mark = self._setting.places.mounted(work.task, work.mine)
        # An agent that was killed since may have done the first mount. Then the log is replayed already, and
        # the kernel's messages about it do not appear again.
        known = dict(read_mark(mark) or {})
        opening = in_thread(partial(KernelLog, known.get("log")), discard=KernelLog.close)
        with closing(await opening) as log:
            write_mark(mark, known := {"damage": "", **known, "log": log.first})
            work.say(text="mounting")
            took_s = await self._earlier.mount_or_judge(work, found, work.mine.run)
            if took_s is None:
                return
            self._target.unpin()
            known = {
                "mount_s": took_s,
                **known,
                "damage": known["damage"] or await first_damage(log, found.name),
            }
            write_mark(mark, known)
            work.say(mount_s=known["mount_s"], repaired=bool(known["damage"]), text="")
            if work.mine.run:
                await self._verify_child.judge(work, self._target.path(work), work.mine.run)
            counted = file_systems.error_count(work.drive.file_system, found.name)
            damage = known["damage"] or await first_damage(log, found.name)
        if damage or counted:
            work.say(repaired=True, text=shortened(damage or f"the file system counts {counted} errors"))


def _check_names(mine: DriveTask) -> None:
    """Raises DriveError if a target's file system has no journal, so that name workloads prove nothing. `run`
    would refuse the arm in every cycle."""
    directory = Path(mine.drive.target).parent
    if mine.arm is not None and discovery.has_no_journal(directory):
        raise DriveError(
            "not-begun",
            f"{directory} is on a file system without a journal, which may lose names and lengths in a cut."
            f" So arm {mine.arm.name} (workload {mine.arm.workload}) proves nothing there: use another file"
            ' system, or give only [[arm]] tables with workload = "overwrite"',
        )


def _not_begun(run: RunChild) -> Trouble:
    """The kind of trouble if a run ended before it began: "agent" if the server did not accept it or the
    machine could not start it, else "not-begun"."""
    return "agent" if run.has_said(NOT_ACCEPTED) or run.has_said(NOT_STARTED) else "not-begun"


def _ready_after_start_s(found: FoundDrive) -> float:
    known_s = drives.initialised_s(found)
    return known_s if known_s is not None else discovery.uptime_ns() / 1e9
