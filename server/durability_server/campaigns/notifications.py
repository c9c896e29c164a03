"""Notifications about a campaign: a line of the server for each, and the operator's command for important
ones.

The store has the number of the last entry that was notified, so that a server that was killed sends the rest;
the last notification may come twice. So may a loss, if the server was restarted before the end of its cycle.
The command gets the text as its last argument, and `COMMAND_S` to run. At its end the processes that it
started are killed too, if the server may do that. A campaign does not wait for the command. An alarm works
without the store: it says that the campaign stands still.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress

from durability.campaign.campaign_state import CampaignState
from durability.campaign.log_entries import (
    Checked,
    CycleEnded,
    DriveCycle,
    DriveLeft,
    Ended,
    Entry,
    Happening,
    Judged,
    JudgedLate,
    NotBack,
    Paused,
    PowerWentOff,
    Resumed,
    StrangerHeard,
    entry_from_value,
)
from durability.errors import DurabilityError, RefusedError
from durability.units import counted
from durability_server.announcements import Announce
from durability_server.campaigns.campaign_logs import CampaignLog
from durability_server.power import switch_programs
from durability_server.store.campaign_store import CampaignStore
from durability_server.store.store_thread import StoreThread

COMMAND_S = 30.0  # longest run of the notify command
RETRY_S = 2.0  # pause after a failure of the store, or any other failure

log = logging.getLogger(__name__)


class News:
    """Sends the notifications of one campaign."""

    def __init__(
        self, campaign: CampaignLog, store: CampaignStore, thread: StoreThread, *, announce: Announce
    ) -> None:
        self._log = campaign
        self._store = store
        self._thread = thread
        self._announce = announce
        self._notified_number: int | None = None
        self._state = campaign.state
        self._said = ""  # the failure that was logged last
        self._lost = set[str]()  # see `news_of`

    async def work(self) -> None:
        """Sends notifications until the campaign is over and all were sent. Continues after store
        failures."""
        while not self._is_over:
            self._log.news.clear()
            try:
                gave = await self._give(self._log.state)
            except Exception as error:  # must not end this task unnoticed: no notification would follow
                if repr(error) != self._said:
                    defect = None if isinstance(error, DurabilityError) else error
                    text = str(error) or repr(error)
                    log.error("news of campaign %s: %s", self._log.name, text, exc_info=defect)
                self._said = repr(error)
                await asyncio.sleep(RETRY_S)
            else:
                self._said = ""
                # No row means that the store no longer has the newer entries of the state.
                if not gave and not self._is_over:
                    await self._log.news.wait()

    async def alarm(self, text: str) -> None:
        """Calls the command without the store, because the store may have failed."""
        settings = self._log.state.settings
        if settings is not None and settings.notify:
            await self._call(settings.notify, f"campaign {self._log.name}: {text}")

    async def warn(self, text: str) -> None:
        """Sends a notification that no entry of the log has. A restarted server may send it
        again."""
        self._announce(f"campaign {self._log.name}", text)
        await self.alarm(text)

    @property
    def _is_over(self) -> bool:
        """Whether no notification will follow, unless the campaign begins again."""
        return self._log.state.state == "ended" and not self._waits(self._log.state)

    def _waits(self, state: CampaignState) -> bool:
        """Whether there is a notification to send."""
        return (
            self._notified_number is None or self._state is not state or self._notified_number < state.number
        )

    async def _give(self, state: CampaignState) -> bool:
        """Sends notifications for new entries of the log. Returns whether there were any. Raises
        StoreError."""
        if self._state is not state:  # the store has gone back, see `CampaignLog`
            self._state, self._notified_number = state, None
        if self._notified_number is None:
            self._notified_number = await self._thread.look_up(self._store.notified_up_to, self._log.name)
        if not self._waits(state):
            return False
        rows = await self._thread.look_up(self._store.entries, self._log.name, after=self._notified_number)
        for row in rows:
            entry = entry_from_value(row)
            called = False
            for text, matters in news_of(entry, self._lost):
                self._announce(f"campaign {self._log.name}", text)
                if matters and state.plan.notify:
                    await self._call(state.plan.notify, f"campaign {self._log.name}: {text}")
                    called = True
            self._notified_number = entry.number
            if called:  # so that a restart does not call the command again for this entry
                await self._thread.call(self._store.set_notified, self._log.name, self._notified_number)
        await self._thread.call(self._store.set_notified, self._log.name, self._notified_number)
        return bool(rows)

    async def _call(self, command: str, text: str) -> None:
        try:
            program, *words = shlex.split(command)
            process = await asyncio.create_subprocess_exec(
                _find(program) or program,
                *words,
                text,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            log.error("the notify command cannot be run: %s", error)
            return
        try:
            async with asyncio.timeout(COMMAND_S):
                status = await process.wait()
        except TimeoutError:
            log.error("the notify command did not end within %.0f s", COMMAND_S)
        else:
            if status:
                log.error("the notify command failed with exit code %d", status)
        finally:
            with suppress(ProcessLookupError, PermissionError):  # the program may run as another user now
                os.killpg(process.pid, signal.SIGKILL)


def require_program(command: str) -> None:
    """Raises RefusedError if the program of the notify command is not installed. The command may be ""."""
    if command and _find(program := shlex.split(command)[0]) is None:
        raise RefusedError(
            "bad-request",
            f"[campaign] notify cannot be run: there is no program {program} that the server's user may run",
        )


def _find(program: str) -> str | None:
    """Path of the program, searched like a switch's commands; None if it is missing."""
    return shutil.which(program, path=switch_programs.search_path())


def news_of(entry: Entry, lost: set[str]) -> Iterator[tuple[str, bool]]:
    """The notifications for an entry, each with whether it matters to people who are away. A cycle may last
    for days after a loss, so the loss is told as soon as it is final, and matters only once. `lost`: the runs
    whose loss was told; this function adds to them."""
    happening: Happening = entry.happening
    match happening:
        case PowerWentOff(runs=runs):
            yield f"power off, {counted(len(runs), 'run')} cut", False
        case Judged(drive=drive, run=run) if happening.is_final_loss and run not in lost:
            yield f"{drive}: loss (run {run}), its cycle is not over", True
            lost.add(run)
        case CycleEnded(cycle=cycle, drives=drives) if cycle:
            yield from (
                (_outcome(cycle, mine), mine.word == "loss" and mine.run not in lost) for mine in drives
            )
        case JudgedLate(cycle=cycle, judged=judged) if judged.verdict:
            late = f"{judged.verdict} (run {judged.run}), judged after its cycle"
            yield f"cycle {cycle}: {judged.drive}: {late}", judged.verdict == "loss"
        case Checked(problems=problems, notes=notes):
            said = [f"check: {problem}" for problem in problems] or ["; ".join(("check passed", *notes))]
            yield from ((text, False) for text in said)
        case StrangerHeard(machine=machine, text=text):
            yield f"machine {machine}: not heard: {text}", True
        case DriveLeft(drive=drive, reason=reason):
            yield f"{drive} is no longer tested: {reason}", True
        case NotBack(machine=machine):
            yield f"machine {machine} did not come back; switching it off and on once more", True
        case Paused(reason=reason):
            yield f"paused{': ' + reason if reason else ''}", bool(reason)
        case Resumed():
            yield "resumed", False
        case Ended(reason=reason):
            yield f"over: {reason}", True
        case _:
            pass


def _outcome(cycle: int, mine: DriveCycle) -> str:
    text = f": {mine.text}" if mine.text else f" (run {mine.run})" if mine.run else ""
    return f"cycle {cycle}: {mine.drive}: {mine.word}{text}"
