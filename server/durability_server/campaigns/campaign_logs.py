"""The logs of all campaigns with their states, and the only way to add entries.

The state in memory is a copy: entries of other servers are read before an entry is added here. After a
failover to a standby, the store may lack the last entry of the copy. Then the copy is rebuilt from the store.
An entry that could not be read again is refused. Everything is in the store, except when agents were heard,
which only people and time-outs need. For that, the store of several servers has only a count, because their
clocks differ.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable
from contextlib import suppress

from durability.campaign.assignments import (
    Speaker,
    answer_to,
    hear,
    is_heard,
    label_of,
    named_before,
    run_claimed,
    without_run,
)
from durability.campaign.campaign_state import CampaignState
from durability.campaign.log_entries import (
    DriveReported,
    Entry,
    Happening,
    Instant,
    PowerAsked,
    entry_from_value,
    entry_to_value,
)
from durability.campaign.server_time import AgentContacts, ServerTime
from durability.campaign.tasks import Status, Task
from durability.errors import FormatError, StoreError
from durability.formats.documents import shortened
from durability.formats.packing import Value, pack
from durability_server import clock
from durability_server.campaigns.allowance import Allowance
from durability_server.store.campaign_store import CampaignStore
from durability_server.store.store_thread import StoreThread

_S = 1_000_000_000
SIGN_NS = _S  # shortest time between two stored signs of life of a machine
_RUN = re.compile(r"[0-9a-f]{16}")

log = logging.getLogger(__name__)


class CampaignLog:
    """One campaign. `changed` is set whenever an entry is added here or read from another server."""

    def __init__(self, name: str, store: CampaignStore, thread: StoreThread, *, boot_id: str) -> None:
        self.name = name
        self.state = CampaignState()
        self.changed = asyncio.Event()
        self.news = asyncio.Event()  # set together with `changed`, for notifications
        self._store = store
        self._thread = thread
        self._boot_id = boot_id
        self._lock = asyncio.Lock()
        self._last = b""  # the last entry of the state, packed
        self._phase_read_ns = 0  # when the entry that began the cycle's phase was read or added here
        self._unreadable = ""  # why the last entry, which was applied only in part, is invalid
        self._asked: dict[int, int] = {}  # number of the newest entry that asked each switch
        self._allowances: dict[str, Allowance] = {}  # by machine
        self._signed_ns: dict[str, int] = {}  # when a sign of life of each machine was last stored
        self._signs: dict[str, int] | None = None  # stored signs of life by machine, at the last look
        self._contacts = AgentContacts(clock.now_ns())

    async def refresh(self) -> CampaignState:
        """The state with all entries of the store. Raises StoreError."""
        async with self._lock:
            await self._read()
        return self.state

    async def begin(self, make: Callable[[CampaignState], Happening], *, home: str, after: int) -> bool:
        """Adds the entry that begins the campaign. `CampaignStore.begin` describes the result. Raises
        StoreError, RefusedError, FormatError, and what `make` raises."""
        async with self._lock:
            await self._read()
            entry = self._entry(make(self.state))
            value, number = _readable(entry), entry.number
            begun = await self._thread.call(
                self._store.begin, self.name, value, number=number, home=home, after=after
            )
            if begun:
                self._apply(entry, value)
            return begun

    async def add(self, make: Callable[[CampaignState], Iterable[Happening]]) -> bool:
        """Adds the entries that `make` returns for the newest state. `make` is called again if another server
        was faster. Returns whether its last result had any entry. Raises StoreError, FormatError, and what
        `make` raises."""
        async with self._lock:
            await self._read()
            waiting = list(make(self.state))
            some = bool(waiting)
            while waiting:
                if await self._append(waiting[0]):
                    waiting.pop(0)
                else:
                    await self._read()
                    waiting = list(make(self.state))
                    some = bool(waiting)
        return some

    async def hear(self, machine: str, status: Status, speaker: Speaker) -> Task:
        """Records an agent's report and returns the agent's task. Raises StoreError."""
        now_ns = clock.now_ns()
        now = Instant(at_ns=now_ns, boot_id=self._boot_id, wall=clock.wall())
        runs: dict[str, str] = {}
        if is_heard(self.state, machine, status, speaker):
            self._contacts.heard(machine, now_ns)
            await self._sign(machine, now_ns)
            for drive, run in run_claimed(self.state, machine, status):
                other = runs.setdefault(run, drive)
                why = f"the agent named run {run} for {other} too" if other != drive else ""
                if why := why or await self._why_not(drive, run, speaker):
                    status = without_run(status, drive, why)
        news = list(hear(self.state, machine, status, now, speaker))
        if news and not self._allowance(machine).take(len(news), now_ns):
            return answer_to(self.state, machine, status, speaker)  # the agent repeats its report
        if news or self.state.number == 0:
            room = await self._thread.look_up(self._store.has_room)
            if not room:
                log.warning("campaign %s: the disk has no room for what agents report of drives", self.name)
            await self.add(
                lambda state: (
                    one
                    for one in hear(state, machine, status, now, speaker)
                    if room or not isinstance(one, DriveReported)  # the agent repeats its report
                )
            )
        return answer_to(self.state, machine, status, speaker)

    def _allowance(self, machine: str) -> Allowance:
        if machine not in self._allowances:
            self._allowances[machine] = Allowance(f"campaign {self.name}: the agent of {machine}")
        return self._allowances[machine]

    async def _why_not(self, drive: str, run: str, speaker: Speaker) -> str:
        """Why the machine's client did not begin this run in this cycle, as a sentence; "" if it did."""
        state = self.state
        begun = await self._thread.look_up(self._store.begun_by, run) if _RUN.fullmatch(run) else None
        if begun is None:
            return "the agent named a run that this server does not know"
        client, label = begun
        if client != speaker.client:
            return f"the agent named run {run}, which another client began"
        if why := named_before(state, drive, run):
            return why
        if state.cycle is None or label != label_of(state.plan, state.cycle.began.cycle):
            return f"the agent named run {run}, which was not begun in this cycle"
        return ""

    async def _sign(self, machine: str, now_ns: int) -> None:
        """Tells the other servers that the machine was heard, at most once a second."""
        if not self._store.is_shared or now_ns - self._signed_ns.get(machine, -SIGN_NS) < SIGN_NS:
            return
        self._signed_ns[machine] = now_ns
        with suppress(StoreError):  # the agent repeats its report
            await self._thread.call(self._store.sign, self.name, machine)

    async def look_for_signs(self) -> None:
        """A machine that any server of the store has heard since the last look counts as heard now. The
        clocks of servers cannot be compared. Raises StoreError."""
        if not self._store.is_shared:
            return
        before, self._signs = self._signs, await self._thread.look_up(self._store.signs, self.name)
        for machine, signs in self._signs.items():
            if before is not None and before.get(machine, 0) != signs:
                self._contacts.heard(machine, clock.now_ns())

    def silent_s(self) -> dict[str, float]:
        """For how many seconds each agent has been silent towards all servers of the store, as far as this
        one knows. At most the time since this server could hear agents."""
        machines = self.state.plan.machines if self.state.settings is not None else ()
        now_ns = clock.now_ns()
        return {machine: self._contacts.silent_s(machine, now_ns) for machine in machines}

    def moment(self, *, began_ns: int) -> ServerTime:
        """The present time, for a server that has conducted the campaign since `began_ns`."""
        now_ns = clock.now_ns()
        return ServerTime(
            now_ns=now_ns,
            boot_id=self._boot_id,
            silent_s=self.silent_s(),
            began_ns=max(began_ns, self._contacts.since_ns(now_ns)),
            read_ns=self._phase_read_ns,
        )

    def store_answered(self) -> None:
        """The store has answered, so agents can be heard now."""
        self._contacts.store_answered(clock.now_ns())

    def is_asked(self, switch: int, number: int) -> bool:
        """Whether the entry `number` is the newest that asks this switch. An answer to an older one does not
        describe the present state."""
        return self._asked.get(switch) == number

    async def _read(self) -> None:
        while True:
            known = self.state.number
            # Including the last known entry: a store that has gone back may have other entries since.
            rows = await self._thread.look_up(self._store.entries, self.name, after=max(0, known - 1))
            self.store_answered()
            if known and (not rows or pack(rows[0]) != self._last):
                self._begin_anew()
                continue
            if self._unreadable:
                raise FormatError(self._unreadable)
            new = rows[1:] if known else rows
            for row in new:
                self._apply(entry_from_value(row), row)
            if not new:
                return

    def _begin_anew(self) -> None:
        """Forgets the whole log, because the store no longer has the entries that were read."""
        if self._unreadable:
            log.warning("campaign %s: entry %d of its log has changed", self.name, self.state.number)
        else:
            log.error(
                "campaign %s: the store has gone back and lacks entry %d of its log, which was durable: it"
                " goes on from what the store has. Was there a failover to a standby that lacked commits?",
                self.name,
                self.state.number,
            )
        self.state = CampaignState()  # a new object, so that holders of the old one notice the change
        self._last, self._unreadable = b"", ""
        self._asked.clear()
        self._allowances.clear()
        self.changed.set()
        self.news.set()

    def _entry(self, happening: Happening) -> Entry:
        return Entry(
            number=self.state.number + 1,
            at_ns=clock.now_ns(),
            boot_id=self._boot_id,
            wall=clock.wall(),
            happening=happening,
        )

    async def _append(self, happening: Happening) -> bool:
        happening = shortened(happening)
        entry = self._entry(happening)
        attested = self.state.attested(happening, self._boot_id)
        value = _readable(entry)
        added = await self._thread.call(self._store.append, self.name, entry.number, value, attested=attested)
        if added:
            self._apply(entry, value)
        return added

    def _apply(self, entry: Entry, value: Value) -> None:
        """Applies an entry. `value` is the entry as stored. Raises FormatError."""
        try:
            self.state.apply(entry)
        except FormatError as error:
            if self.state.last is entry:
                # A state that lacks a part would conduct another campaign.
                self._last, self._unreadable = pack(value), str(error)
            raise
        self._last = pack(value)
        if self.state.cycle is not None and self.state.cycle.since is entry:
            self._phase_read_ns = clock.now_ns()
        if isinstance(entry.happening, PowerAsked):
            self._asked[entry.happening.switch] = entry.number
        if machine := getattr(entry.happening, "machine", ""):
            self._allowance(machine).add(len(self._last))
        self.changed.set()
        self.news.set()


def _readable(entry: Entry) -> dict[str, Value]:
    """The entry as stored. Raises FormatError if it could not be read again, because the campaign would then
    stand still for good."""
    value = entry_to_value(entry)
    entry_from_value(value)
    return value
