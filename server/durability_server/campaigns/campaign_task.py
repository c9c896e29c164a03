"""Conducts campaigns: takes the steps that their logs require, and logs the results.

There is one task for each campaign that this server has claimed. The task asks switches through the
controller, so a slow switch delays nothing else. It does not decide: `durability.campaign.next_steps` returns
the next steps.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from durability.campaign.campaign_state import CampaignState
from durability.campaign.definition.settings import Power
from durability.campaign.delays import long_at_work
from durability.campaign.log_entries import Happening, Judged, Operation, PowerAnswered, PowerAsked
from durability.campaign.next_steps import next_steps
from durability.campaign.server_time import ServerTime
from durability.campaign.steps import Ask, LookUp, Note, UnlessStill, WaitFor, WhenStill
from durability.errors import DurabilityError, FormatError, RefusedError, StoreError
from durability.evidence.strength import weightiest
from durability.formats.case import Case
from durability.formats.histogram import supported
from durability.formats.run_statistics import Statistics
from durability.units import parse_run
from durability_server import clock
from durability_server.campaigns.campaign_logs import CampaignLog
from durability_server.campaigns.notifications import News
from durability_server.power.exchange import SwitchAnswer

LOOK_S = 0.5  # interval at which entries of another server are read
HOLD_S = 0.5  # interval of holding writers: a run that returns to a server has its credit again
RETRY_S = 2.0  # pause after the store failed
ALARM_S = 60.0  # people are told if steps have failed for this long

log = logging.getLogger(__name__)


class Switches(Protocol):
    """Asks switches. `power.controller.Controller` implements it."""

    async def ask(self, power: Power, operation: Operation) -> SwitchAnswer:
        """The switch's answer, with its times. Never raises."""


def hold_writers(state: CampaignState, hold: Callable[[int], None]) -> None:
    """In the phase `held` no writer of the cycle's runs gets credit. Each server of a store holds the runs
    that it has."""
    if state.cycle is not None and state.cycle.phase == "held":
        for run in state.cycle.runs.values():
            hold(parse_run(run))


def percentile_us(statistics: Statistics | None, percent: float) -> float | None:
    """A percentile of the latencies of a run's commits in µs, None if there are too few."""
    if statistics is None:
        return None
    latencies = statistics.latencies()
    return latencies.percentile(percent) / 1000 if supported(len(latencies), percent) else None


class CampaignTask:
    """Conducts one campaign until it is over and its notifications are sent. `claim` returns whether this
    server conducts the campaign now; it is called before each step. `case` looks up a run. `hold` stops the
    credit of a run's writers. `is_still` returns whether they have used up their credit."""

    def __init__(
        self,
        campaign: CampaignLog,
        switches: Switches,
        *,
        claim: Callable[[], Awaitable[bool]],
        case: Callable[[int], Awaitable[Case]],
        hold: Callable[[int], None],
        is_still: Callable[[int], Awaitable[bool]],
        news: News,
        shared: bool,
    ) -> None:
        self._log = campaign
        self._switches = switches
        self._claim = claim
        self._case = case
        self._hold = hold
        self._is_still = is_still
        self._news = news
        self._look_s = LOOK_S if shared else 3600.0
        self._said = ""
        self._failing_ns: int | None = None  # time since which no step succeeded, None if steps succeed
        self._alarm: asyncio.Task[None] | None = None  # alarm about the present failure
        self._warned = 0  # number of the entry with which the phase began that was warned of last
        self._warning: asyncio.Task[None] | None = None  # warning about that phase
        self._began_ns = clock.now_ns()
        self._asking: dict[int, asyncio.Task[None]] = {}

    async def work(self) -> None:
        """Takes steps until the campaign is over or another server conducts it. Continues after failures of
        the store."""
        telling = asyncio.get_running_loop().create_task(self._news.work())
        try:
            # Notifications about the end are sent too. The campaign may begin again meanwhile.
            while self._log.state.state != "ended" or not telling.done():
                if self._log.state.state == "ended":
                    await self._until_changed_or(telling)
                    continue
                if telling.done():  # all notifications were sent just before the campaign began again
                    telling = asyncio.get_running_loop().create_task(self._news.work())
                try:
                    if not await self._claim():
                        return
                    await self._step()
                    self._said, self._failing_ns = "", None
                except Exception as error:  # the store failed, or a defect: the log is unchanged
                    self._say(error)
                    self._alarm_of(str(error) or type(error).__name__)
                    await asyncio.sleep(RETRY_S)
        finally:
            for task in (telling, self._alarm, self._warning, *self._asking.values()):
                if task is not None:
                    task.cancel()

    async def _until_changed_or(self, task: asyncio.Task[None]) -> None:
        self._log.changed.clear()
        changed = asyncio.get_running_loop().create_task(self._log.changed.wait())
        await asyncio.wait({task, changed}, return_when=asyncio.FIRST_COMPLETED)
        changed.cancel()

    def _say(self, error: Exception) -> None:
        """Logs a failure once while it stays the same, a defect with its traceback."""
        if repr(error) != self._said:
            defect = None if isinstance(error, DurabilityError) else error
            log.error("campaign %s: %s", self._log.name, str(error) or repr(error), exc_info=defect)
        self._said = repr(error)

    def _alarm_of(self, error: str) -> None:
        """Notifies people who are away, once for each lasting failure: a machine may be without power."""
        now_ns = clock.now_ns()
        if self._failing_ns is None:
            self._failing_ns, self._alarm = now_ns, None
        lasts_s = (now_ns - self._failing_ns) / 1e9
        if self._alarm is None and lasts_s >= ALARM_S and self._log.state.state == "running":
            text = f"no step could be taken for {lasts_s:.0f} s: {error}"
            self._alarm = asyncio.get_running_loop().create_task(self._news.alarm(text))

    def _warn_of_long_work(self, state: CampaignState, moment: ServerTime) -> None:
        """Notifies people who are away, once for each phase that lasts for very long."""
        text = long_at_work(state, moment)
        if text and state.cycle is not None and state.cycle.since.number != self._warned:
            self._warned = state.cycle.since.number
            self._warning = asyncio.get_running_loop().create_task(self._news.warn(text))

    async def _step(self) -> None:
        self._log.changed.clear()
        state = await self._log.refresh()
        hold_writers(state, self._hold)
        await self._log.look_for_signs()
        held = state.cycle is not None and state.cycle.phase == "held"
        wait_s = min(self._look_s, HOLD_S) if held else self._look_s
        moment = self._log.moment(began_ns=self._began_ns)
        self._warn_of_long_work(state, moment)
        for step in next_steps(state, moment):
            match step:
                case Note(happening=happening):
                    await self._note(happening, state, state.number)
                    return
                case LookUp(drive=drive, run=run):
                    after = state.number  # entries added meanwhile may make this verdict one of another cycle
                    judged = await self._judged(drive, run)
                    await self._note(state.verdict_entry(judged), state, after)
                    return
                case WhenStill(runs=runs, happening=happening):
                    if await self._are_still(runs):
                        await self._note(happening, state, state.number)
                        return
                case UnlessStill(runs=runs, happening=happening):
                    if not await self._are_still(runs):
                        await self._note(happening, state, state.number)
                        return
                case Ask(switch=switch, operation=operation):
                    self._begin_asking(switch, operation, state)
                case WaitFor(seconds=seconds):
                    wait_s = min(wait_s, seconds)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, wait_s)):
                await self._log.changed.wait()

    async def _note(self, happening: Happening, seen: CampaignState, after: int) -> bool:
        """Adds an entry to the state `seen`, if its number is still `after`. After any other entry the next
        step may differ. Returns whether the entry was added."""
        return await self._log.add(lambda now: [happening] if now is seen and now.number == after else [])

    def _begin_asking(self, switch: int, operation: Operation, seen: CampaignState) -> None:
        if switch in self._asking:
            return
        task = asyncio.get_running_loop().create_task(self._ask(switch, operation, seen, seen.number))
        self._asking[switch] = task
        task.add_done_callback(lambda _: self._asked(switch))

    def _asked(self, switch: int) -> None:
        task = self._asking.pop(switch)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("campaign %s: %s", self._log.name, error)
        self._log.changed.set()

    async def _ask(self, switch: int, operation: Operation, seen: CampaignState, after: int) -> None:
        """Asks a switch, unless another entry came first: another server may conduct the campaign then. The
        answer is dropped if the store has lost the question, because a later question may have its number."""
        if not await self._note(PowerAsked(switch=switch, operation=operation), seen, after):
            return
        if not await self._claim():  # this server may have stood still, and another one conducts the campaign
            return
        answer = await self._switches.ask(self._log.state.plan.power[switch], operation)
        said = PowerAnswered(
            switch=switch,
            operation=operation,
            outcome=answer.outcome,
            text=answer.text,
            began_ns=answer.began_ns,
            ended_ns=answer.ended_ns,
        )
        while True:
            try:
                await self._log.add(
                    lambda now: [said] if now is seen and self._log.is_asked(switch, after + 1) else []
                )
                return
            except StoreError as error:  # the answer is known, and only the store is missing
                self._say(error)
                await asyncio.sleep(RETRY_S)

    async def _are_still(self, runs: tuple[str, ...]) -> bool:
        """Whether no writer of these runs has credit left. A run that is missing in the store, or cannot be
        read, counts as still: its verdict will show that."""
        for run in runs:
            with suppress(RefusedError, FormatError):
                if not await self._is_still(parse_run(run)):
                    return False
        return True

    async def _judged(self, drive: str, run: str) -> Judged:
        case = None
        try:
            case = await self._case(parse_run(run))
        # The store does not know the run that the agent named, or cannot read it.
        except (RefusedError, FormatError) as error:
            log.error("campaign %s: %s", self._log.name, error)
        past = weightiest(case.verdicts) if case is not None else None
        statistics = case.statistics if case is not None else None
        return Judged(
            drive=drive,
            run=run,
            verdict=past.verdict if past is not None else "",
            cut_class=past.cut_class if past is not None else "",
            reasons=past.reasons if past is not None else (),
            at_risk_ms1000=past.at_risk_ms1000 if past is not None else 0,
            target_error=case.target_error.text if case is not None and case.target_error is not None else "",
            other_clock=case is not None and case.off_by_another_clock,
            armed=case is None or case.armed is not None,
            commit_p50_us=percentile_us(statistics, 50),
            commit_p99_us=percentile_us(statistics, 99),
        )
