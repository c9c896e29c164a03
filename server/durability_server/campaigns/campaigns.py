"""All campaigns of the store: requests of agents and operators, and the tasks that conduct campaigns.

A machine's agent gets its task from the newest campaign that names the machine and is not over. If all of
these are over, it gets the task from the newest one. A campaign is refused if another campaign has one of its
machines. Only an operator on this machine can begin one: its file names commands and files of the server's
own machine.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from durability.campaign.assignments import WAIT, Speaker, bounded, removal
from durability.campaign.campaign_state import CampaignState
from durability.campaign.definition.settings import Settings, check
from durability.campaign.log_entries import Began, Happening, PauseAsked, Resumed
from durability.campaign.tasks import Status, Task
from durability.errors import DurabilityError, FormatError, ProtocolError, RefusedError
from durability.formats.case import Case, Event
from durability.formats.documents import from_value, to_value
from durability.formats.packing import Value
from durability.protocol import messages
from durability.protocol.messages import Message
from durability.units import counted, format_run
from durability_server import clock
from durability_server.access.caller import Caller
from durability_server.announcements import Announce, silence
from durability_server.campaigns.campaign_logs import CampaignLog
from durability_server.campaigns.campaign_task import CampaignTask, Switches, hold_writers
from durability_server.campaigns.notifications import News, require_program
from durability_server.power.exchange import SwitchAccess
from durability_server.power.switches import identity
from durability_server.store.store import RUNS_OF_CLIENT_MAX, Store
from durability_server.store.store_thread import StoreThread

REQUESTS = (
    messages.AgentStatus,
    messages.ListCampaigns,
    messages.ShowCampaign,
    messages.StartCampaign,
    messages.SteerCampaign,
)
NAMED_MAX = 10  # campaigns named in an answer about an unknown one
CLAIM_S = 1.0  # interval of looking for campaigns whose server has ended

log = logging.getLogger(__name__)


class Campaigns:
    """Answers requests, and conducts the campaigns that this server has claimed. `CampaignTask` describes
    `case`, `hold` and `is_still`."""

    def __init__(
        self,
        store: Store,
        thread: StoreThread,
        switches: Switches,
        *,
        case: Callable[[int], Awaitable[Case]],
        hold: Callable[[int], None],
        is_still: Callable[[int], Awaitable[bool]],
        boot_id: str,
        announce: Announce = silence,
    ) -> None:
        self._store = store.campaigns
        self._clients = store.clients
        self._runs_named = store.runs_named
        self._shared = store.leases.is_shared
        self._thread = thread
        self._switches = switches
        self._case = case
        self._hold = hold
        self._is_still = is_still
        self._boot_id = boot_id
        self._announce = announce
        self._home = clock.read_machine_id()
        self._logs: dict[str, CampaignLog] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._work: asyncio.Task[None] | None = None
        self._unread: set[str] = set()
        self._left: set[str] = set()  # campaigns of another machine that were reported
        self._notified_up_to: dict[str, int] = {}  # last notified entry of each campaign that is over

    def begin(self) -> None:
        """Starts to conduct campaigns."""
        self._work = asyncio.get_running_loop().create_task(self._keep_claiming())

    async def close(self) -> None:
        """Stops conducting campaigns. Their logs say how to continue."""
        tasks = [task for task in (self._work, *self._tasks.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()

    def campaign_of(self, run: int) -> str:
        """The campaign whose present cycle has the run, "" for none."""
        named = format_run(run)
        for name, log in self._logs.items():
            cycle = log.state.cycle
            if cycle is not None and named in cycle.runs.values():
                return name
        return ""

    async def removal_of(self, run: int) -> Event | None:
        """The event that an agent was told to remove the run's files, None if not. Raises StoreError."""
        named = format_run(run)
        removals = (removal(known.state, named) for known in await self._newest_logs())
        return next((one for one in removals if one is not None), None)

    async def campaign_with(self, machine: str) -> str:
        """The campaign that has the machine and is not over, "" for none. Raises StoreError."""
        for known in await self._newest_logs():
            state = known.state
            if state.settings is not None and state.state != "ended" and machine in state.plan.machines:
                return known.name
        return ""

    @property
    def silent_s(self) -> dict[str, dict[str, float]]:
        """For how many seconds each agent has been silent, by campaign that is not over and by machine."""
        logs = self._logs.items()
        return {
            name: log.silent_s() for name, log in logs if log.state.settings and log.state.state != "ended"
        }

    # Requests.

    async def answer(self, caller: Caller, message: Message, answered: dict[str, int]) -> Message:
        """The answer to a request. `answered` belongs to the connection: for each campaign the number of its
        newest entry when the agent got its last answer. Raises RefusedError, FormatError or StoreError."""
        match message:
            case messages.AgentStatus():
                status = bounded(from_value(Status, message.status))
                return messages.AgentTask(task=to_value(await self._task(caller, status, answered)))
            case messages.ListCampaigns():
                _require_not_client(caller)
                return messages.CampaignNames(names=await self._thread.ask(self._store.names))
            case messages.ShowCampaign():
                _require_not_client(caller)
                return await self._show(message)
            case messages.StartCampaign():
                await self._start(caller, message)
            case messages.SteerCampaign():
                await self._steer(caller, message)
            case _:
                raise ProtocolError(f"{type(message).__name__} is not a request")
        return messages.Stored()

    async def _task(self, caller: Caller, status: Status, answered: dict[str, int]) -> Task:
        """The task for the agent of the machine `caller`."""
        machine = await self._machine(caller)
        mine = None
        for known in await self._newest_logs():
            state = known.state
            if state.settings is not None and machine in state.plan.machines:
                over = mine is None or mine.state.state == "ended"
                mine = known if over or state.state != "ended" else mine
        if mine is None:
            return WAIT
        speaker = Speaker(
            client=caller.client,
            is_server=status.boot_id == self._boot_id,
            answered=answered.get(mine.name, 0),
        )
        task = await mine.hear(machine, status, speaker)
        answered[mine.name] = mine.state.number
        return task

    async def _machine(self, caller: Caller) -> str:
        """The caller's present name, "" if it was revoked. The client may have been renamed since it
        connected, also at another server, and another client may have its old name."""
        if caller.is_local:
            return caller.name
        known = await self._thread.look_up(self._clients.find, caller.client)
        return known.name if known is not None else ""

    async def _show(self, message: messages.ShowCampaign) -> Message:
        log = await self._known(message.name)
        note = await self._note(log)
        rows: tuple[Value, ...]
        try:
            rows = await self._thread.ask(self._store.entries, message.name, after=message.after)
        except FormatError as error:
            # An empty answer would mean the end of the log. A reader of any release must fail instead.
            rows = ({"unreadable": str(error)},)
            note = note or f"the server cannot read its log: {error}"
        return messages.Campaign(entries=rows, silent_s=log.silent_s(), note=note)  # type: ignore[arg-type]

    async def _note(self, log: CampaignLog) -> str:
        """Why this server does not conduct a campaign, as a sentence; "" for no reason."""
        if await self._state(log.name) is None:
            return "the server cannot read its log, and does nothing for it: the server's own log says why"
        if log.state.state == "ended":
            return ""
        home, other = await self._thread.look_up(self._store.place, log.name)
        if other:
            return f"the server at {other} runs it"
        if home != self._home:
            return (
                f"no server runs it: it was started on another machine ({home}); if this one reaches its"
                f" switches, type `durability campaign adopt {log.name}` here"
            )
        return ""

    async def _start(self, caller: Caller, message: messages.StartCampaign) -> None:
        if caller.client:
            raise RefusedError(
                "forbidden",
                "a campaign is begun on the server's own machine: its file names files and commands there",
            )
        settings = check(from_value(Settings, message.settings))
        require_program(settings.notify)
        await self._require_joined(settings)
        await self._require_runs_left(settings)

        def begin(state: CampaignState) -> Happening:
            state.require_may_begin()
            return Began(settings=settings, check_only=message.check_only)

        while True:
            newest = await self._thread.look_up(self._store.newest)
            await self._require_free(settings)  # stays true as long as no other campaign begins
            if await self._log(settings.name).begin(begin, home=self._home, after=newest):
                break
        begun = "check begun" if message.check_only else f"begun: {settings.cuts} cuts"
        self._announce_event(settings.name, begun)
        await self._claim(self._log(settings.name))

    async def _require_joined(self, settings: Settings) -> None:
        joined = await self._thread.look_up(self._clients.names)
        for machine in settings.machines:
            if machine not in joined:
                known = f"; those that did: {', '.join(joined[:NAMED_MAX])}" if joined else ""
                raise RefusedError(
                    "bad-request",
                    f"no machine has joined as {machine!r}{known} (`durability clients invite --name"
                    f" {shlex.quote(machine)}` prints the line for it)",
                )

    async def _require_runs_left(self, settings: Settings) -> None:
        """Raises RefusedError if a machine would exceed the runs of one client before the campaign's end."""
        for machine in settings.machines:
            begun = await self._thread.look_up(self._runs_named, machine)
            drives = len(settings.drives_of(machine))
            needed = drives * settings.cuts
            if begun + needed > RUNS_OF_CLIENT_MAX:
                what = f"{counted(drives, 'drive')}, {counted(settings.cuts, 'cut')} each"
                raise RefusedError(
                    "quota",
                    f"machine {machine} has {counted(begun, 'run')} here, and this campaign makes at least"
                    f" {needed:,} more ({what}), but one client may have {RUNS_OF_CLIENT_MAX:,}. Set fewer"
                    " cuts, test fewer drives of the machine, or revoke it and let it join again",
                )

    async def _require_free(self, settings: Settings) -> None:
        """Raises RefusedError if another campaign that is not over has one of the machines or switches."""
        switches = {identity(SwitchAccess.of(power)): power.name for power in settings.power}
        for known in await self._newest_logs():
            name, state = known.name, known.state
            if name == settings.name or state.settings is None or state.state == "ended":
                continue
            taken = [f"machine {one}" for one in settings.machines if one in state.plan.machines]
            theirs = {identity(SwitchAccess.of(power)) for power in state.plan.power}
            taken += [f"switch {one}" for known, one in switches.items() if known in theirs]
            if taken:
                raise RefusedError(
                    "busy",
                    f"{taken[0]} belongs to campaign {name}, which is not over: stop that one first"
                    f" (`durability campaign stop {name}`)",
                )

    async def _steer(self, caller: Caller, message: messages.SteerCampaign) -> None:
        log = await self._known(message.name)
        if message.action == "adopt":
            await self._adopt(caller, message.name)
            return

        def steer(state: CampaignState) -> Iterator[Happening]:
            if state.state == "ended":
                raise RefusedError("bad-request", f"campaign {message.name} is over: {state.reason}")
            if message.action == "resume":
                is_due = state.asked is not None and not state.asked.stop
                if state.state != "paused" and not is_due:
                    raise RefusedError("bad-request", f"campaign {message.name} is not paused")
                yield Resumed()
            elif state.state == "paused" and message.action == "pause":
                raise RefusedError("bad-request", f"campaign {message.name} is paused already")
            else:
                yield PauseAsked(stop=message.action == "stop")

        await log.add(steer)
        self._announce_event(message.name, message.action)

    async def _adopt(self, caller: Caller, name: str) -> None:
        if caller.client:
            raise RefusedError(
                "forbidden",
                "a campaign is adopted on the server's own machine, which must reach its switches",
            )
        await self._thread.call(self._store.adopt, name, home=self._home)
        self._announce_event(name, "adopted by this server")
        if await self._state(name) is not None:
            await self._claim(self._log(name))

    async def _known(self, name: str) -> CampaignLog:
        names = await self._thread.look_up(self._store.names)
        if name not in names:
            newest = ", ".join(reversed(names[-NAMED_MAX:]))
            raise RefusedError(
                "campaign-unknown",
                f"there is no campaign {name!r}; "
                + (f"the newest ones are {newest}" if newest else "none has begun on this server"),
            )
        return self._log(name)

    def _log(self, name: str) -> CampaignLog:
        if name not in self._logs:
            self._logs[name] = CampaignLog(name, self._store, self._thread, boot_id=self._boot_id)
        return self._logs[name]

    async def _state(self, name: str) -> CampaignState | None:
        """The newest state of a campaign. None while its log cannot be read, which is logged once; the other
        campaigns continue. Raises StoreError."""
        try:
            state = await self._log(name).refresh()
        except FormatError as error:
            if name not in self._unread:
                log.error("the log of campaign %s cannot be read: %s", name, error)
            self._unread.add(name)
            return None
        if name in self._unread:
            log.warning("the log of campaign %s can be read again", name)
            self._unread.remove(name)
        return state

    async def _newest_logs(self) -> list[CampaignLog]:
        """All campaigns with readable logs and their newest states, oldest campaign first. This takes one
        query, and one more for each campaign with new entries. Raises StoreError."""
        newest = []
        for name, number in (await self._thread.look_up(self._store.last_entries)).items():
            known = self._log(name)
            known.store_answered()
            if name not in self._unread and known.state.number != number:
                await self._state(name)
            if name not in self._unread:
                newest.append(known)
        return newest

    def _announce_event(self, name: str, what: str) -> None:
        self._announce(f"campaign {name}", what)

    # Conducting campaigns.

    async def _keep_claiming(self) -> None:
        away = False
        while True:
            try:
                for name in tuple(self._unread):  # people may have repaired it, or the store has gone back
                    await self._state(name)
                for known in await self._newest_logs():
                    await self._claim(known)
                away = False
            except DurabilityError as error:  # the store may fail for a while; logged once
                if not away:
                    log.warning("campaigns are stalled: %s", error)
                away = True
            except Exception:  # must not end this task unnoticed: no campaign would be conducted then
                if not away:
                    log.exception("campaigns are stalled: a defect of this tool")
                away = True
            await asyncio.sleep(CLAIM_S)

    def _is_conducted(self, name: str) -> bool:
        task = self._tasks.get(name)
        return task is not None and not task.done()

    async def _claim(self, campaign: CampaignLog) -> None:
        """Conducts the campaign, if this server may and it is not over or has notifications to send. Else
        does what every server does: holds writers and looks for signs of life. The state must be the
        newest."""
        name, state = campaign.name, campaign.state
        if self._is_conducted(name) or state.settings is None:
            return
        if state.state == "ended" and await self._is_notified(campaign):
            return
        hold_writers(state, self._hold)
        await campaign.look_for_signs()

        async def claim() -> bool:
            return await self._thread.call(self._store.claim, name, home=self._home)

        claimed = await claim()
        if not claimed and not self._shared and name not in self._left:
            # Its machine may be off. With several servers another one conducts it, or will again.
            self._left.add(name)
            self._announce_event(name, await self._note(campaign))
        if not claimed or self._is_conducted(name):
            return
        steps = CampaignTask(
            campaign,
            self._switches,
            claim=claim,
            case=self._case,
            hold=self._hold,
            is_still=self._is_still,
            news=News(campaign, self._store, self._thread, announce=self._announce),
            shared=self._shared,
        )
        task = asyncio.get_running_loop().create_task(steps.work())
        task.add_done_callback(partial(_tell_defect, name))
        self._tasks[name] = task

    async def _is_notified(self, campaign: CampaignLog) -> bool:
        """Whether all notifications of a campaign that is over were sent; a server may have died before. The
        store is asked until they were. Raises StoreError."""
        name, number = campaign.name, campaign.state.number
        if self._notified_up_to.get(name) != number:  # or higher, if the store has gone back
            self._notified_up_to[name] = await self._thread.look_up(self._store.notified_up_to, name)
        return self._notified_up_to[name] >= number


def _tell_defect(name: str, task: asyncio.Task[None]) -> None:
    """Logs a defect that ended a task. The campaign is then claimed again."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("campaign %s stands still: a defect of this tool", name, exc_info=error)


def _require_not_client(caller: Caller) -> None:
    if caller.role == "client":
        raise RefusedError(
            "forbidden",
            f"{caller.name} joined as client, and campaigns are shown to operators and viewers: type this on"
            " the server's machine",
        )
