"""A machine under test in virtual time: it boots, its agent asks for tasks and does them, its power is cut.

The agent has state only in memory, for one boot: it begins a run at most once per task number and boot. The
caller passes in the drives. This module does not depend on switches or verdicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from durability.campaign.tasks import Condition, DriveStatus, DriveTask, Status, Task, Trouble, WorkState
from durability_lab.campaign_rig.memory_server import MemoryServer
from durability_lab.simulated_rig.virtual_time import Action, Agenda, S

TICK_S = 1.0
CALM_TICKS, CALM_S = 30, 8.0  # after 30 ticks without a new task, a status comes every 8 s, to save time


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """Durations of the machine's work, in seconds."""

    boot_s: float = 20.0
    prepare_s: float = 2.0
    verify_s: float = 3.0
    mount_s: float | None = None  # part of `verify_s`


class Drives(Protocol):
    """The drives of a machine, as its agent finds them."""

    def condition(self, drive: str) -> Condition | None:
        """The condition that a drive reports, None if it is not there."""

    def begin(self, part: DriveTask) -> str:
        """Begin a run, which writes to the drive; returns the run's id."""

    def armed(self, drive: str) -> None:
        """Called when the drive's run is armed."""

    def lose_power(self, drive: str) -> None:
        """Called when the drive loses its power, which ends its run."""

    def stop(self, drive: str) -> None:
        """End the drive's run in order, if there is one."""

    def verify(self, part: DriveTask) -> None:
        """Begin the verify of a run; the verdict must be known before the verify ends."""

    def verified(self, part: DriveTask) -> int:
        """Called when the verify has ended and the server has its verdict; returns its exit code."""


class PlayedMachine:
    """A machine called `name`, which has power from the beginning. Call `boot` to start it."""

    def __init__(
        self,
        agenda: Agenda,
        server: MemoryServer,
        name: str,
        *,
        drives: Drives,
        names: Sequence[str],
        pace: Durations,
    ) -> None:
        self.name = name
        self.power = True
        self.boots = 0  # number of boots
        self.hangs = False  # the machine does not boot until it is switched off and on once more
        self.cut_off = False  # the machine has no network
        self.answered_ns = 0  # when the server last answered
        self.tasks: list[Task] = []  # tasks in order of arrival, each once
        self._agenda = agenda
        self._server = server
        self._drives = drives
        self._names = tuple(names)
        self._pace = pace
        self._life = 0  # number of the agent's life; a change drops pending actions
        self._alive = False
        self._booted_ns = 0
        self._begun: set[tuple[str, int]] = set()  # drive and task number of the runs of this boot
        self._task: Task | None = None
        self._statuses: dict[str, DriveStatus] = {}
        # The last statuses, each with the number of the newest entry at the answer before it.
        self.said: list[tuple[Status, int]] = []
        self._said_to = ""
        self._answered = 0  # see `Speaker`
        self._calm = 0

    @property
    def is_up(self) -> bool:
        """Whether the system runs."""
        return self.power and self._booted_ns > 0

    def switch_on(self) -> None:
        """Restore the power, and boot."""
        if not self.power:
            self.power = True
            self.boot()

    def switch_off(self) -> None:
        """Cut the power of the machine and its drives."""
        if self.power:
            self.power = self.hangs = False
            self._die()
            for drive in self._names:
                self._drives.lose_power(drive)

    def boot(self) -> None:
        """Begin to boot."""
        if not self.hangs:
            self._after(self._pace.boot_s, self._boot)

    def crash(self) -> None:
        """Let the system die and boot again; the drives keep their power."""
        if self.is_up:
            self.reset()

    def reset(self) -> None:
        """Press the reset button: the machine boots in any case."""
        self._die()
        for drive in self._names:
            self._drives.stop(drive)
        self.boot()

    def shut_down(self) -> None:
        """Shut the system down in order; it stays down."""
        self._die()

    def kill_agent(self) -> None:
        """Kill the agent with its children; the system starts it again."""
        if self._alive:
            self._end_agent()
            for drive in self._names:
                self._drives.stop(drive)
            self._after(TICK_S, self._start_agent)

    def say_again(self, back: int) -> None:
        """Deliver one of the last statuses once more, or late; the answer is dropped.

        A status is not repeated in a later boot of the server, since its connection ended with the old boot.
        """
        self._forget_said()
        if self.said:
            status, answered = self.said[-1 - back % len(self.said)]
            self._server.hear(self.name, status, answered=answered)

    def tell(self) -> None:
        """Send a status, and do the task in the answer."""
        if not self._alive or self.cut_off:
            return
        status = self._status()
        self._forget_said()
        self.said = [*self.said[-20:], (status, self._answered)]
        task = self._server.hear(self.name, status, answered=self._answered)
        if task is not None:
            self.answered_ns = self._agenda.now_ns
            self._answered = self._server.state.number
            if self._alive:
                self._take(task)

    def _forget_said(self) -> None:
        if self._said_to != self._server.boot_id:
            self.said, self._said_to = [], self._server.boot_id

    # The system.

    def _after(self, delay_s: float, action: Action) -> None:
        """Run `action` in `delay_s`, if agent and system have not changed by then."""
        self._agenda.after(int(delay_s * S), partial(self._if_same, self._life, action))

    def _if_same(self, life: int, action: Action) -> None:
        if life == self._life:
            action()

    def _boot(self) -> None:
        self.boots += 1
        self._booted_ns = self._agenda.now_ns
        self._begun.clear()
        self._start_agent()

    def _die(self) -> None:
        self._end_agent()
        self._booted_ns = 0

    # The agent.

    def _start_agent(self) -> None:
        self._alive, self._calm = True, 0
        self._tick()

    def _end_agent(self) -> None:
        self._life += 1
        self._alive, self._task, self._statuses, self._answered = False, None, {}, 0

    def _tick(self) -> None:
        self._calm += 1
        self._after(TICK_S if self._calm < CALM_TICKS else CALM_S, self._tick)
        self.tell()

    def _status(self) -> Status:
        return Status(
            boot_id=f"{self.name}-{self.boots}",
            machine_id=self.name,
            uptime_ns=self._agenda.now_ns - self._booted_ns,
            virtualisation="none",
            software="durability",
            task=self._task.number if self._task is not None else 0,
            drives=tuple(self._statuses.values()),
            campaign=self._task.campaign if self._task is not None else "",
        )

    def _take(self, task: Task) -> None:
        if self._task is not None and self._task.number == task.number:
            return
        self._task, self._statuses, self._calm = task, {}, 0
        self._life += 1
        self._after(TICK_S, self._tick)
        self.tasks.append(task)
        if task.kind in ("wait", "release", "shutdown", "examine"):
            for drive in self._names:
                self._drives.stop(drive)
        for part in task.drives:
            self._begin(task, part)
        if task.kind == "shutdown":
            self._after(2 * TICK_S, self.shut_down)

    def _begin(self, task: Task, part: DriveTask) -> None:
        drive = part.drive.name
        condition = self._drives.condition(drive)
        if task.kind == "run" and (drive, task.number) in self._begun:
            self._say(drive, "ended", text="the agent was restarted")
        elif condition is None and task.kind != "release":
            self._say(drive, "working", text="waiting for the drive")
            self._after(task.ready_within_s, partial(self._look_again, task, part))
        elif task.kind == "run":
            self._begun.add((drive, task.number))
            run = self._drives.begin(part)
            self._say(drive, "working", run=run)
            self._after(self._pace.prepare_s, partial(self._arm, drive, run))
        elif task.kind == "verify" and part.run:
            self._say(drive, "working", run=part.run)
            self._drives.verify(part)
            self._after(self._pace.verify_s, partial(self._verified, part))
        else:
            self._say(drive, "done", condition=condition)

    def _look_again(self, task: Task, part: DriveTask) -> None:
        if self._drives.condition(part.drive.name) is not None:
            self._begin(task, part)
        else:
            self._say(part.drive.name, "failed", trouble="missing", text="the drive is not there")
        self.tell()

    def _arm(self, drive: str, run: str) -> None:
        if self._statuses[drive].state != "working":  # meanwhile the drive was lost, and the run with it
            return
        condition = self._drives.condition(drive)
        if condition is None:
            self._say(drive, "failed", trouble="not-begun", text="the drive is gone")
        else:
            self._drives.armed(drive)
            self._say(drive, "armed", run=run, condition=condition)
        self.tell()

    def _verified(self, part: DriveTask) -> None:
        drive = part.drive.name
        condition = self._drives.condition(drive)
        if condition is None:
            self._say(drive, "failed", trouble="missing", text="the drive went away", run=part.run)
        else:
            code = self._drives.verified(part)
            self._say(
                drive, "done", run=part.run, condition=condition, exit_code=code, mount_s=self._pace.mount_s
            )
        self.tell()

    def drive_lost(self, drive: str) -> None:
        """Note that the drive is gone while the machine lives: a run on it ends."""
        status = self._statuses.get(drive)
        if self._task is not None and self._task.kind == "run" and status is not None:
            ended: WorkState = "ended" if status.state == "armed" else "failed"
            trouble: Trouble = "" if ended == "ended" else "not-begun"
            self._statuses[drive] = replace(status, state=ended, trouble=trouble, text="the drive is gone")
            self.tell()

    def _say(
        self,
        drive: str,
        state: WorkState,
        *,
        trouble: Trouble = "",
        text: str = "",
        run: str = "",
        condition: Condition | None = None,
        exit_code: int | None = None,
        mount_s: float | None = None,
    ) -> None:
        self._statuses[drive] = DriveStatus(
            drive=drive,
            state=state,
            trouble=trouble,
            text=text,
            run=run,
            exit_code=exit_code,
            condition=condition,
            mount_s=mount_s,
            repaired=False,
        )
