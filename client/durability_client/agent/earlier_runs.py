"""Earlier runs without a verdict, whose evidence the next run would overwrite.

Runs of this campaign are verified first. The next run is refused if that gives no verdict, or if the run is
not of this campaign: then people must decide.
"""

from __future__ import annotations

import asyncio
import shlex
from contextlib import closing
from functools import partial

from durability.units import verify_device_line
from durability_client.agent import file_systems, same_drive
from durability_client.agent.abandonable_calls import ProgramError, in_thread, shortened
from durability_client.agent.drive_status import TaskPart
from durability_client.agent.drive_target import TARGET, DriveTarget
from durability_client.agent.drives import DriveError, FoundDrive
from durability_client.agent.file_systems import KernelLog, NotMountedError, first_damage
from durability_client.agent.run_child import BETWEEN_TRIES_S, TRIES, VERDICTS, Verify


class EarlierRuns:
    """Verifies earlier runs. `online` is set while the agent reaches its server."""

    def __init__(self, target: DriveTarget, verify_child: Verify, online: asyncio.Event) -> None:
        self._target = target
        self._verify_child = verify_child
        self._online = online

    async def verify(self, work: TaskPart, found: FoundDrive) -> str:
        """Verify the campaign's last run on the drive if it has no verdict, since the next run would
        overwrite its evidence.

        The server names that run in the task. People may have verified it since, and erased the drive. If the
        target is to be made again (`fresh`), a run that the task does not name is looked for, too, on the
        drive and at the server; otherwise the server itself refuses a new run over an unverified one. Returns
        a text about the verified run, or "". Raises DriveError without a verdict.
        """
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
            lost = await self._verify_child.due_on(work, found, self._target.path(work), or_stopped=False)
        if lost:
            raise await self._not_there(work, found, lost)
        return said

    async def _verify_earlier_mounted(self, work: TaskPart, found: FoundDrive, named: str) -> str:
        """`verify` for a drive with a file system that this campaign made."""
        kind, run = work.drive.file_system, named
        assert kind
        try:
            with closing(await in_thread(KernelLog, discard=KernelLog.close)) as log:
                if not run:
                    try:
                        await self._target.mount(work, found)
                    except NotMountedError:  # the drive names no run, but the server may
                        target = self._target.path(work)
                        run = await self._verify_child.due_on(work, found, target, or_stopped=True)
                        if not run:
                            return ""
                if run and await self.mount_or_judge(work, found, run) is None:
                    if not work.mine.fresh:
                        raise DriveError(
                            "unmountable", f"{found.device} does not mount; run {run} has its verdict"
                        )
                    exit_code = work.status.exit_code
                    work.say(exit_code=None, trouble="")
                    return _verified_first(run, exit_code)
                said = await self._verify_last(work, found, run)
                counted = file_systems.error_count(kind, found.name)
                damage = await first_damage(log, found.name) or (
                    f"it counts {counted} errors" if counted else ""
                )
                if not damage or work.mine.fresh:
                    return said
                work.say(repaired=True)
                return f"{said}; its file system had to be repaired: {shortened(damage)}"
        finally:
            await self._target.dismount(work)

    async def check_others(self, work: TaskPart, found: FoundDrive, contents: same_drive.Contents) -> None:
        """Raises DriveError if a device may carry the evidence of a run of another campaign, or of a run that
        was begun by hand. `contents`: signatures on the device. A file system of this campaign has replaced
        earlier contents, so such a device passes."""
        device = found.device
        if device is None or await in_thread(partial(same_drive.holds_own, work.task, work.mine, device)):
            return
        named = await self._target.run_at(device)
        other = await self._verify_child.of_others(work, found, contents, named=named)
        if other is None:
            return
        command = f"`durability verify {shlex.quote(other.path)} --run {other.run}`"
        if other.run == named:
            carries, remedy = "carries", f"type {command}"
            erase = f"`dd if=/dev/zero of={device} bs=1M count=1`"
        else:
            place = f"mount its file system at {other.mount_point} and " if other.mount_point else ""
            carries, remedy = "may carry", f"{place}type {command}"
            erase = f"`wipefs --all {device}`"
        known = f"run {other.run} ({f'label {other.label}' if other.label else 'without a label'})"
        raise DriveError(
            "in-use",
            f"{device} {carries} {known}, which is not of this campaign and has no verdict; it was not"
            f" touched. To verify that run, {remedy}. If you do not need it, erase the drive: {erase}",
        )

    async def verify_refused(self, work: TaskPart, found: FoundDrive) -> None:
        """Verify the run because of which the server refuses a new one: the machine restarted before this
        agent had reported that run to the server. Raises DriveError without a verdict."""
        try:
            work.say(text=await self._verify_last(work, found))
        except (DriveError, ProgramError):  # a mount would keep a cut drive from getting its name back
            await self._target.dismount(work)
            raise

    async def _verify_last(self, work: TaskPart, found: FoundDrive, named: str = "") -> str:
        """Verify the run `named`, which is due, or else the run on the target, if that is due. Runs that
        people began by hand are left to them, since they may attest a cut. Returns a text about the verified
        run, or "". Raises DriveError without a verdict."""
        run = named or await self._target.last_run(work)
        if not run or not (named or await self._verify_child.is_due(work, run)):
            return ""
        check = partial(self._check_carries, work, found, run) if not work.drive.file_system else None
        exit_code = await self._verify_child.judge(work, self._target.path(work), run, check=check)
        work.say(exit_code=None)
        return _verified_first(run, exit_code)

    async def _check_carries(self, work: TaskPart, found: FoundDrive, run: str) -> None:
        """Raises DriveError if the drive does not carry the run or its file system. The server may have been
        away for hours, and the owner may have erased the drive or put it to use meanwhile."""
        if not work.drive.file_system:
            await self._target.check_writable(work, found)
            is_there = await self._target.last_run(work) == run
        else:
            assert found.device is not None
            is_there = await in_thread(partial(same_drive.holds_own, work.task, work.mine, found.device))
        if not is_there and found.device is not None and not found.is_still_there:
            raise DriveError("missing", f"{found.device} went away")
        if not is_there:
            raise await self._not_there(work, found, run)

    async def _not_there(self, work: TaskPart, found: FoundDrive, run: str) -> DriveError:
        """The error for a run that is not on the drive. People must decide whether the drive lost the run or
        somebody erased it."""
        device, target = found.device, self._target.path(work)
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

    async def mount_or_judge(self, work: TaskPart, found: FoundDrive, run: str) -> float | None:
        """Mount the file system and return the duration in seconds. None if it does not mount and the run was
        judged with `verify --device`. If that gives no verdict, for example because `verify` could mount the
        file system, the mount is tried again. Raises DriveError."""
        why, said = "", ""
        # No check in the `verify` task of the run's own cycle: there an empty drive has lost all its data.
        check = partial(self._check_carries, work, found, run) if work.task.kind == "run" else None
        for _ in range(TRIES):
            try:
                return await self._target.mount(work, found)
            except NotMountedError as error:
                why = str(error)
            if not run:
                raise DriveError("unmountable", why)
            words = (str(self._target.path(work)), "--device", str(found.device))
            exit_code, said = await self._verify_child.verdict(work, run, *words, check=check)
            work.say(exit_code=exit_code, text=why)
            if exit_code in VERDICTS:
                work.say(trouble="unmountable")
                return None
            if not await self._verify_child.is_due(work, run):  # for example, the run was never armed
                raise DriveError("unmountable", f"{why}; no verdict on run {run} is due")
            await asyncio.sleep(BETWEEN_TRIES_S)
            await self._online.wait()
        # Not "unmountable": then the file system would be made again before the run is judged.
        raise DriveError("not-verified", f"{why}; verify --device gave no verdict on run {run}: {said}")


def _verified_first(run: str, exit_code: int | None) -> str:
    return f"first verified run {run}, which had no verdict: {VERDICTS[exit_code or 0]}"
