"""One drive's part of the tasks, one task after the other.

Whatever is under way can be cancelled at any moment, except a run: it belongs to the drive, and is ended as
the next task needs it. `verify` lets it end by the cut that it met; every other task stops it in order. What
is found on the way is said at once, as a status.

Refuses to begin a run twice in a boot, and one that was meant for another boot: what was written before may
be unverified. Removes no file of a target before the server says so, since a repeated `verify` would take the
missing file for a loss.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from durability.campaign.tasks import DriveTask, Task, Trouble
from durability.errors import NOT_ACCEPTED, NOT_STARTED, DurabilityError, NotOursError
from durability.units import verify_device_line
from durability_client.agent import drives, file_systems, same_drive
from durability_client.agent.abandonable_calls import (
    Children,
    ProgramError,
    in_thread,
    poll,
    shortened,
)
from durability_client.agent.agent_paths import AgentPaths, read_mark, write_mark
from durability_client.agent.condition import condition_of
from durability_client.agent.drive_status import Report, TaskPart
from durability_client.agent.drives import DriveError, FoundDrive
from durability_client.agent.file_systems import KernelLog, NotMountedError
from durability_client.agent.run_child import (
    BETWEEN_TRIES_S,
    STORE_TRIES,
    TRIES,
    VERDICTS,
    RunChild,
    Verify,
    run_options,
)
from durability_client.system import block_devices
from durability_client.system.processes import own_command
from durability_client.system.programs import find_tool
from durability_client.target import discovery

TARGET = "target"  # the file in a file system that the agent made
_LOOK_S = 0.2  # between looks for a drive
_READ_S = 30.0
_BUSY_S = 10.0  # for whoever looks at a new device to let go of it
_NO_STORE = f"{NOT_ACCEPTED} (store-unavailable)"
_UNVERIFIED = f"{NOT_ACCEPTED} (unverified-run)"
_STILL_ACKED_S = 3.0  # in which a run whose drive was cut acknowledges nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What all drives of an agent have in common. `options`: those with which its commands find the server.
    `boot_id`: of this boot. `online` is set while the agent reaches its server."""

    places: AgentPaths
    options: Sequence[str]
    boot_id: str
    online: asyncio.Event = field(default_factory=asyncio.Event)


class DriveWork:
    """What is done with one drive of one campaign."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._children = Children()
        self._verify_child = Verify(self._children, setting.options, setting.online)
        self._run: RunChild | None = None
        self._run_on: FoundDrive | None = None  # where the run was begun last
        self._last: tuple[Task, DriveTask] | None = None
        self._pin: int | None = None  # of the device until a mount or a run holds it: see `same_drive.pin`

    async def do(self, task: Task, mine: DriveTask, report: Report) -> None:
        """Do the drive's part of `task`, and say in each status how far it is. Ends when it is done; that of
        a run when the run ends."""
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
        except Exception as error:  # one drive's defect must not keep the others from their tasks
            work.fail(DriveError("agent", f"a defect of this tool: {type(error).__name__}: {error}"))
        finally:
            self._unpin()

    async def retire(self) -> None:
        """Leave the drive: stop the run in order and unmount."""
        if self._last is not None:
            task, mine = self._last
            await self.do(replace(task, kind="shutdown"), mine, lambda _: None)

    # The tasks.

    async def _examine(self, work: TaskPart) -> None:
        await self._leave(work)
        found = await self._find(work)
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
                trouble = error  # to write a file there destroys nothing
            await in_thread(partial(drives.check_target, Path(work.drive.target)))
            await in_thread(partial(_check_names, work.mine))
        holds = same_drive.contents_text(await self._erasable(found))
        drives.check_size(found, work.drive)
        if found.device is None:
            holds = await in_thread(partial(same_drive.file_system_at, Path(work.drive.target).parent))
        work.condition = replace(work.condition, holds=holds)
        work.say(state="done", trouble=trouble.trouble if trouble else "", text=str(trouble or ""))

    async def _do_run(self, work: TaskPart) -> None:
        task, mine, drive = work.task, work.mine, work.drive
        if task.boot_id and task.boot_id != self._setting.boot_id:
            raise DriveError("not-begun", "the machine was restarted since this run was planned")
        mark = self._setting.places.begun(task, mine)
        if (begun := read_mark(mark)) is not None:
            named = str(begun.get("run", ""))
            if not named and (last := await self._last_run(work)) != begun.get("before", last):
                named = last  # which may be armed for the server, though the agent had not heard of it
            text = "the run of this task is over: the agent was restarted, or had another task since"
            work.say(state="ended", run=named, text=text)
            # A mount that outlives its drive would keep it from coming back under its name.
            await self._dismount(self._setting.places.mount_point(task, mine))
            return
        await self._leave(work)
        found = await self._find(work, hold=True)
        drives.check_size(found, drive)
        await self._erasable(found)  # whoever looks at a new device is waited for
        work.condition = await in_thread(partial(condition_of, found, ready_s=None))
        work.say()
        await self._check_writable(work, found)
        earlier = await self._verify_earlier(work, found)
        if mine.run or mine.fresh:  # to ask the server alone may have taken hours
            await self._check_writable(work, found)
        target = await self._make_target(work, found)
        if drive.is_raw and mine.fresh:
            work.mine = mine = same_drive.erased(mine, await self._erasable(found))
        work.say(text=earlier)
        write_mark(mark, {"before": await self._last_run(work)})
        command = own_command("run", str(target), *self._setting.options, *run_options(mine))
        self._run_on = found
        tries_left = {True: STORE_TRIES, False: TRIES}  # by whether the server could not store
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
                await self._verify_refused(work, found)
                verified = True
            else:
                await asyncio.sleep(BETWEEN_TRIES_S)
                await self._setting.online.wait()
            if drive.is_raw:  # the server may have been away for a week, and the drive be put to use since
                await self._check_writable(work, found)
        # A cut of the other drives may be this one's too: a mount would keep it from coming back.
        await self._dismount(self._setting.places.mount_point(task, mine))
        raise DriveError(_not_begun(run), run.said or f"run ended with exit code {run.exit_code}")

    async def _watch_run(self, work: TaskPart, run: RunChild, mark: Path) -> bool:
        """Say how the run goes, until it ends. Whether the server came to know it."""
        early = work.mine.arm is not None and work.mine.arm.moment == "prefill"
        while True:
            run.news.clear()
            if run.over:
                break
            if run.run and not work.status.run:
                write_mark(mark, {"run": run.run})
                self._unpin()  # the run has it open
            armed = run.was_armed or (early and run.state == "prefill")
            work.say(state="armed" if armed else "working", run=run.run)
            await run.news.wait()
        self._run = None
        if not run.was_armed and not work.status.run:
            return False
        self._unpin()
        trouble = "" if run.was_armed or early else _not_begun(run)
        state = "failed" if trouble else "ended"
        work.say(state=state, trouble=trouble, run=run.run, exit_code=run.exit_code, text=run.said)
        await self._let_go(work)
        return True

    async def _let_go(self, work: TaskPart) -> None:
        """Take the mount of a drive that is dead out of the tree at once, so that it can come back under its
        name. Of several drives, one that is dead suffices."""
        directory = self._setting.places.mount_point(work.task, work.mine)
        if self._run_on is None or not file_systems.is_mounted(directory):
            return
        for leaf in self._run_on.leaves:
            if await self._unreadable(block_devices.node_of(leaf)):
                await file_systems.unmount(self._children, directory, gone=True)
                return

    async def _verify(self, work: TaskPart) -> None:
        task, mine, drive = work.task, work.mine, work.drive
        work.say(run=mine.run)
        await self._let_run_end(work)
        await self._settled(work)
        directory = self._setting.places.mount_point(task, mine)
        await self._dismount(directory)
        returned = self._setting.places.ran_in_this_boot(task, mine)
        began_s = asyncio.get_running_loop().time()
        found = await self._find(work, hold=True)
        waited_s = asyncio.get_running_loop().time() - began_s
        ready_s = waited_s if returned else await in_thread(partial(_ready_after_start_s, found))
        work.condition = await in_thread(partial(condition_of, found, ready_s=round(ready_s, 3)))
        work.say()
        certain = same_drive.is_certain(found)
        same_drive.check_condition(work.condition, mine, certain=certain, writes=False)
        if drive.file_system and found.device is not None:
            await self._verify_mounted(work, found)
        elif mine.run:
            self._unpin()
            await self._verify_child.judge(
                work, Path(drive.target) if drive.target else found.device, mine.run
            )
        work.condition = await in_thread(partial(condition_of, found, ready_s=round(ready_s, 3)))
        await self._dismount(directory)
        work.say(state="done")

    async def _release(self, work: TaskPart) -> None:
        run = self._run
        await self._leave(work)
        if work.task.kind == "release" and work.drive.target and work.mine.run:
            target = Path(work.drive.target)
            await in_thread(partial(same_drive.remove_target, target, work.mine.run))
        said = {"run": run.run, "exit_code": run.exit_code} if run is not None else {}
        work.say(state="done", **said)

    # Their parts.

    async def _leave(self, work: TaskPart) -> None:
        """End the run in order, and unmount."""
        await self._stop_run(work)
        await self._settled(work)
        await self._dismount(self._setting.places.mount_point(work.task, work.mine))

    async def _stop_run(self, work: TaskPart) -> None:
        if self._run is not None:
            work.say(text="stopping the run")
            await self._run.stop()
            self._run = None
            work.say(text="")

    async def _let_run_end(self, work: TaskPart) -> None:
        """Wait for the run to end by the cut of its drive; one that is still acknowledged, or does not end in
        time, is stopped in order. A signal before would make a clean stop of a run that was cut. One in its
        prefill acknowledges nothing, so a clean stop takes nothing from it."""
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

    async def _settled(self, work: TaskPart) -> None:
        """Wait for programs of earlier tasks that the drive still keeps. Raises DriveError."""
        if not self._children.stuck:
            return
        work.say(text="waiting: an earlier program still uses the drive")
        try:
            async with asyncio.timeout(max(work.task.ready_within_s, _BUSY_S)):
                await self._children.settled()
        except TimeoutError:
            raise DriveError(
                "missing", "a killed program still waits for the drive, which does not answer"
            ) from None
        work.say(text="")

    async def _dismount(self, directory: Path) -> None:
        gone = self._run_on is not None and not self._run_on.is_still_there
        await file_systems.unmount(self._children, directory, gone=gone)

    async def _find(self, work: TaskPart, *, hold: bool = False) -> FoundDrive:
        """The drive, once it is there and can be read; one that carries the system is not even read. `hold`:
        keep the name of its device from other drives, until `_unpin`. Raises DriveError."""
        why = DriveError("missing", "")

        async def look() -> FoundDrive | DriveError | None:
            nonlocal why
            if self._children.stuck:
                return None
            try:
                found = await in_thread(partial(drives.find, work.drive, work.mine.serial))
                await in_thread(partial(same_drive.check_file_system, work.drive, work.mine))
            except DriveError as error:
                why = error
                return None
            if found.device is not None:
                try:
                    same_drive.check_name(work.drive, found)
                    await in_thread(partial(drives.check_system_disk, found))
                except DriveError as refused:
                    return refused
            if found.device is not None and (problem := await self._unreadable(found.device)):
                why = DriveError("missing", f"{found.device} cannot be read: {problem}")
                return None
            try:
                if hold:
                    await self._hold(found)
            except DriveError as error:  # it is just being attached
                why = error
                return None
            return found

        work.say(text="waiting for the drive")
        found: FoundDrive | DriveError | None
        found = await poll(look, every_s=_LOOK_S, within_s=work.task.ready_within_s)
        if isinstance(found, DriveError):
            raise found
        if found is None:
            raise DriveError(why.trouble, f"{why}, for {work.task.ready_within_s:g} s")
        work.say(text="")
        return found

    async def _unreadable(self, device: Path) -> str:
        """Why the device's first block cannot be read past the cache; "" if it can."""
        options = ("of=/dev/null", "bs=4096", "count=1", "iflag=direct", "status=none")
        try:
            done = await self._children.run("dd", f"if={device}", *options, timeout_s=_READ_S)
        except ProgramError as error:
            return str(error)
        return done.said if done.exit_code else ""

    async def _hold(self, found: FoundDrive) -> None:
        """Keep the name of the device from other drives, until `_unpin`. Raises DriveError."""
        if found.device is not None:
            self._unpin()
            self._pin = await in_thread(partial(same_drive.pin, found), discard=os.close)

    def _unpin(self) -> None:
        if self._pin is not None:
            os.close(self._pin)
            self._pin = None

    async def _erasable(self, found: FoundDrive) -> same_drive.Contents:
        """What is on a device that may be overwritten. Whoever looks at new devices is waited for. Raises
        DriveError."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + _BUSY_S
        while True:
            try:
                return await in_thread(partial(drives.check_unused, found))
            except DriveError as error:
                if isinstance(error.__cause__, NotOursError) or loop.time() > deadline_s:
                    raise
            await asyncio.sleep(1.0)

    async def _check_writable(self, work: TaskPart, found: FoundDrive) -> None:
        """Look at what the drive holds now, before it is written to. Raises DriveError."""
        contents, condition = await self._erasable(found), work.condition
        assert condition is not None
        await in_thread(
            partial(same_drive.check_before_writing, work.task, work.mine, found, condition, contents)
        )

    async def _last_run(self, work: TaskPart) -> str:
        """The run that was begun on the target last, "" for none and for a drive that does not answer."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_READ_S):
                return await in_thread(partial(same_drive.run_on, self._target(work)))
        return ""

    def _target(self, work: TaskPart) -> Path:
        """The path to which runs write, once it is made."""
        if work.drive.file_system:
            return self._setting.places.mount_point(work.task, work.mine) / TARGET
        return Path(work.drive.target or work.drive.device)

    async def _make_target(self, work: TaskPart, found: FoundDrive) -> Path:
        """The path for the run to write to; before that its file system is made, if asked for, and mounted.
        Raises DriveError."""
        drive = work.drive
        if found.device is None:
            return Path(drive.target)
        if not drive.file_system:
            if work.mine.fresh:  # the next run is not forced, and what lies beyond this one's records stays
                work.say(text="erasing what the drive held")
                if await in_thread(partial(same_drive.needs_mark, found)):
                    text = same_drive.mark_of(work.task, work.mine)
                    await file_systems.mark(self._children, found.device, text)
                await file_systems.erase(self._children, found.device)
            return found.device
        if work.mine.fresh:
            work.say(text=f"making {drive.file_system}")
            uuid = same_drive.new_uuid(work.task, work.mine)
            await file_systems.make(self._children, drive.file_system, found.device, uuid=uuid)
        work.say(text="mounting")
        try:
            await self._mount(work, found)
        except NotMountedError as error:
            raise DriveError("unmountable", str(error)) from error
        self._unpin()  # the mount has it open
        return self._target(work)

    async def _mount(self, work: TaskPart, found: FoundDrive) -> float:
        kind, device = work.drive.file_system, found.device
        assert kind and device is not None
        await in_thread(partial(same_drive.check_mountable, work.task, work.mine, found))
        directory = self._setting.places.mount_point(work.task, work.mine)
        options, within_s = work.drive.mount_options, max(work.task.ready_within_s, _BUSY_S)
        took_s = await file_systems.mount(
            self._children, kind, device, directory, options=options, within_s=within_s
        )
        if not file_systems.is_mounted(directory):
            raise NotMountedError(f"{device} was mounted at {directory}, and is gone from there")
        return took_s

    async def _verify_mounted(self, work: TaskPart, found: FoundDrive) -> None:
        """Mount, judge, and say what the mounts for this task showed."""
        assert work.drive.file_system
        mark = self._setting.places.mounted(work.task, work.mine)
        # Of the first mount, by an agent that was killed since: the replay is then done, and what it said is
        # not said again.
        known = dict(read_mark(mark) or {})
        opening = in_thread(partial(KernelLog, known.get("log")), discard=KernelLog.close)
        with closing(await opening) as log:
            write_mark(mark, known := {"damage": "", **known, "log": log.first})
            work.say(text="mounting")
            took_s = await self._mount_or_judge(work, found, work.mine.run)
            if took_s is None:
                return
            self._unpin()
            known = {"mount_s": took_s, **known, "damage": known["damage"] or await _damage(log, found)}
            write_mark(mark, known)
            work.say(mount_s=known["mount_s"], repaired=bool(known["damage"]), text="")
            if work.mine.run:
                await self._verify_child.judge(work, self._target(work), work.mine.run)
            counted = file_systems.error_count(work.drive.file_system, found.name)
            damage = known["damage"] or await _damage(log, found)
        if damage or counted:
            work.say(repaired=True, text=shortened(damage or f"the file system counts {counted} errors"))

    async def _verify_earlier(self, work: TaskPart, found: FoundDrive) -> str:
        """Have the campaign's last run on the drive verified if it has no verdict, since the next one would
        overwrite its evidence. The server names that run; people may have verified it since, and erased the
        drive. One of which it has not heard from this agent is looked for where all is to be made anew, on
        the drive and at the server; else the server refuses another one over it. What was verified, in words,
        "" for nothing. Raises DriveError without a verdict."""
        task, mine, device = work.task, work.mine, found.device
        named = mine.run if mine.run and await self._verify_child.is_due(work, mine.run) else ""
        if not (named or mine.fresh):
            return ""
        said, lost = "", named
        if device is None or not work.drive.file_system:
            said, lost = await self._verify_last(work, found, named), ""
        elif await in_thread(partial(same_drive.holds_own, task, mine, device)):
            said, lost = await self._verify_earlier_mounted(work, found, named), ""
        if mine.fresh and not lost:
            lost = await self._verify_child.due_on(work, found, self._target(work), or_stopped=False)
        if lost:
            raise await self._not_there(work, found, lost)
        return said

    async def _verify_earlier_mounted(self, work: TaskPart, found: FoundDrive, named: str) -> str:
        """`_verify_earlier` of a file system that this campaign made."""
        kind, run = work.drive.file_system, named
        assert kind
        try:
            with closing(await in_thread(KernelLog, discard=KernelLog.close)) as log:
                if not run:
                    try:
                        await self._mount(work, found)
                    except NotMountedError:  # nothing on it tells of a run, but the server may
                        target = self._target(work)
                        run = await self._verify_child.due_on(work, found, target, or_stopped=True)
                        if not run:
                            return ""
                if run and await self._mount_or_judge(work, found, run) is None:
                    if not work.mine.fresh:
                        raise DriveError(
                            "unmountable", f"{found.device} does not mount; run {run} has its verdict"
                        )
                    exit_code = work.status.exit_code
                    work.say(exit_code=None, trouble="")
                    return _verified_first(run, exit_code)
                said = await self._verify_last(work, found, run)
                counted = file_systems.error_count(kind, found.name)
                damage = await _damage(log, found) or (f"it counts {counted} errors" if counted else "")
                if not damage or work.mine.fresh:
                    return said
                work.say(repaired=True)
                return f"{said}; its file system had to be repaired: {shortened(damage)}"
        finally:
            await self._dismount(self._setting.places.mount_point(work.task, work.mine))

    async def _verify_refused(self, work: TaskPart, found: FoundDrive) -> None:
        """Have the run verified over which the server lets no other one begin: the machine restarted before
        the server had heard of it from this agent. Raises DriveError without a verdict."""
        try:
            work.say(text=await self._verify_last(work, found))
        except (DriveError, ProgramError):  # a mount would keep a drive that is cut from coming back
            await self._dismount(self._setting.places.mount_point(work.task, work.mine))
            raise

    async def _verify_last(self, work: TaskPart, found: FoundDrive, named: str = "") -> str:
        """Have the run `named` verified, which is due, or else that on the target if it is. One that somebody
        began by hand is left to them, who may attest a cut. What was verified, in words. Raises DriveError
        without a verdict."""
        run = named or await self._last_run(work)
        if not run or not (named or await self._verify_child.is_due(work, run)):
            return ""
        check = partial(self._check_carries, work, found, run) if not work.drive.file_system else None
        exit_code = await self._verify_child.judge(work, self._target(work), run, check=check)
        work.say(exit_code=None)
        return _verified_first(run, exit_code)

    async def _check_carries(self, work: TaskPart, found: FoundDrive, run: str) -> None:
        """The owner may have erased the drive, or put it to use, and the server been away for hours. Raises
        DriveError if it does not carry the run, or its file system."""
        if not work.drive.file_system:
            await self._check_writable(work, found)
            is_there = await self._last_run(work) == run
        else:
            assert found.device is not None
            is_there = await in_thread(partial(same_drive.holds_own, work.task, work.mine, found.device))
        if not is_there and found.device is not None and not found.is_still_there:
            raise DriveError("missing", f"{found.device} went away")
        if not is_there:
            raise await self._not_there(work, found, run)

    async def _not_there(self, work: TaskPart, found: FoundDrive, run: str) -> DriveError:
        """What is for people to judge: the drive has lost the run, or they have erased it."""
        device, target = found.device, self._target(work)
        weaker = f" --require-cut {work.mine.cut_class}" if work.mine.cut_class != "power" else ""
        if device is None or not work.drive.file_system:
            why = f"it is not recognised on {target}"
            remedy = f"type `durability verify {shlex.quote(str(target))} --run {run}{weaker}`"
        elif await in_thread(partial(same_drive.holds_own, work.task, work.mine, device)):
            why = f"it is not in the file system on {device}"
            command = f"`durability verify DIRECTORY/{TARGET} --run {run}{weaker}`"
            remedy = f"mount {device} at DIRECTORY and type {command}"
        else:
            why = f"no file system of this campaign is recognised on {device}"
            remedy = f"type {verify_device_line(work.drive.device, run)}"
        return DriveError(
            "not-verified",
            f"run {run} has no verdict, and {why}. If nobody erased that, {remedy}; else begin another"
            " campaign",
        )

    async def _mount_or_judge(self, work: TaskPart, found: FoundDrive, run: str) -> float | None:
        """How long the mount took; None if the file system does not mount and the run was judged without.
        If verify can mount it, it is tried again. Raises DriveError."""
        why, said = "", ""
        # In the verify of its own cycle a drive that shows nothing has lost all.
        check = partial(self._check_carries, work, found, run) if work.task.kind == "run" else None
        for _ in range(TRIES):
            try:
                return await self._mount(work, found)
            except NotMountedError as error:
                why = str(error)
            if not run:
                raise DriveError("unmountable", why)
            words = (str(self._target(work)), "--device", str(found.device))
            exit_code, said = await self._verify_child.verdict(work, run, *words, check=check)
            work.say(exit_code=exit_code, text=why)
            if exit_code in VERDICTS:
                work.say(trouble="unmountable")
                return None
            if not await self._verify_child.is_due(work, run):  # as of one that was never armed
                raise DriveError("unmountable", f"{why}; no verdict on run {run} is due")
            await asyncio.sleep(BETWEEN_TRIES_S)
            await self._setting.online.wait()
        # Not "unmountable": that would have the file system made anew, and the run is not judged yet.
        raise DriveError("not-verified", f"{why}; verify --device gave no verdict on run {run}: {said}")


def _check_names(mine: DriveTask) -> None:
    """Raises DriveError where the file system of a target cannot show what an arm asks: `run` would refuse
    it, cycle after cycle."""
    directory = Path(mine.drive.target).parent
    if mine.arm is not None and discovery.has_no_journal(directory):
        raise DriveError(
            "not-begun",
            f"{directory} is on a file system without a journal, which may lose names and lengths in a cut."
            f" So arm {mine.arm.name} (workload {mine.arm.workload}) proves nothing there: use another file"
            ' system, or give only [[arm]] tables with workload = "overwrite"',
        )


def _verified_first(run: str, exit_code: int | None) -> str:
    return f"first verified run {run}, which had no verdict: {VERDICTS[exit_code or 0]}"


def _not_begun(run: RunChild) -> Trouble:
    """Why a run that has ended did not begin: the drive is not to blame for the server, nor for a machine
    that is short of memory."""
    return "agent" if run.has_said(NOT_ACCEPTED) or run.has_said(NOT_STARTED) else "not-begun"


async def _damage(log: KernelLog, found: FoundDrive) -> str:
    """The first that was said of it since the last call; "" for nothing."""
    return next(iter(await in_thread(partial(log.damage, found.name))), "")


def _ready_after_start_s(found: FoundDrive) -> float:
    known_s = drives.initialised_s(found)
    return known_s if known_s is not None else discovery.uptime_ns() / 1e9
