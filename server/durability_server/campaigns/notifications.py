"""News of a campaign: a line of the server for each, and the operator's command for those that matter.

The store keeps up to which entry news were given, so that a server that was killed gives the rest; the last
one may come twice. The command gets the news as its last argument, and half a minute; what it does is its own
business, up to its end: then whatever it started is ended too, where the server may. Refuses to let a
campaign wait for it. An alarm needs no store: it says that the campaign stands still.
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
    DriveLeft,
    Ended,
    Entry,
    Happening,
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

COMMAND_S = 30.0
RETRY_S = 2.0  # after the store failed, or something else

log = logging.getLogger(__name__)


class News:
    """Gives the news of one campaign."""

    def __init__(
        self, campaign: CampaignLog, store: CampaignStore, thread: StoreThread, *, announce: Announce
    ) -> None:
        self._log = campaign
        self._store = store
        self._thread = thread
        self._announce = announce
        self._told: int | None = None
        self._state = campaign.state
        self._said = ""  # the failure that was logged last

    async def work(self) -> None:
        """Give news until all of a campaign that is over are given; the store may fail meanwhile."""
        while not self._is_over:
            self._log.news.clear()
            try:
                gave = await self._give(self._log.state)
            except Exception as error:  # it must not end in silence: no news would be given any more
                if repr(error) != self._said:
                    defect = None if isinstance(error, DurabilityError) else error
                    text = str(error) or repr(error)
                    log.error("news of campaign %s: %s", self._log.name, text, exc_info=defect)
                self._said = repr(error)
                await asyncio.sleep(RETRY_S)
            else:
                self._said = ""
                # Without a row, whatever the state has more of is no longer in the store.
                if not gave and not self._is_over:
                    await self._log.news.wait()

    async def alarm(self, text: str) -> None:
        """Call the command without the store, which may be what failed."""
        settings = self._log.state.settings
        if settings is not None and settings.notify:
            await self._call(settings.notify, f"campaign {self._log.name}: {text}")

    @property
    def _is_over(self) -> bool:
        """Whether there will be no more to tell, unless the campaign begins again."""
        return self._log.state.state == "ended" and not self._waits(self._log.state)

    def _waits(self, state: CampaignState) -> bool:
        """Whether there is something to tell."""
        return self._told is None or self._state is not state or self._told < state.number

    async def _give(self, state: CampaignState) -> bool:
        """Give what is new in the log; whether there was anything. Raises StoreError."""
        if self._state is not state:  # the store has gone back: see `CampaignLog`
            self._state, self._told = state, None
        if self._told is None:
            self._told = await self._thread.look_up(self._store.told, self._log.name)
        if not self._waits(state):
            return False
        rows = await self._thread.look_up(self._store.entries, self._log.name, after=self._told)
        for row in rows:
            entry = entry_from_value(row)
            called = False
            for text, matters in news_of(entry):
                self._announce(f"campaign {self._log.name}", text)
                if matters and state.plan.notify:
                    await self._call(state.plan.notify, f"campaign {self._log.name}: {text}")
                    called = True
            self._told = entry.number
            if called:  # nobody is to be called for it again
                await self._thread.call(self._store.tell, self._log.name, self._told)
        await self._thread.call(self._store.tell, self._log.name, self._told)
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
            with suppress(ProcessLookupError, PermissionError):  # it may have become another user
                os.killpg(process.pid, signal.SIGKILL)


def require_program(command: str) -> None:
    """Raises RefusedError if the program of the notify command, which may be "", is not installed."""
    if command and _find(program := shlex.split(command)[0]) is None:
        raise RefusedError(
            "bad-request",
            f"[campaign] notify cannot be run: there is no program {program} that the server's user may run",
        )


def _find(program: str) -> str | None:
    """Where it is, as a switch's commands are looked for; None if it is not there."""
    return shutil.which(program, path=switch_programs.search_path())


def news_of(entry: Entry) -> Iterator[tuple[str, bool]]:
    """What an entry tells people, and whether it matters to those who are away."""
    happening: Happening = entry.happening
    match happening:
        case PowerWentOff(runs=runs):
            yield f"power off, {counted(len(runs), 'run')} cut", False
        case CycleEnded(cycle=cycle, drives=drives) if cycle:
            for mine in drives:
                text = f": {mine.text}" if mine.text else f" (run {mine.run})" if mine.run else ""
                yield f"cycle {cycle}: {mine.drive}: {mine.word}{text}", mine.word == "loss"
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
