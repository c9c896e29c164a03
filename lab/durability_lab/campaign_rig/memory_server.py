"""The server's part of a campaign, in memory and in virtual time.

Settings, log, state, next steps, tasks of agents and results are the product's own. The rest of the server is
imitated here. An entry is added before its step is taken. A step that is an entry is added only if no other
entry came meanwhile. Each switch has one request at a time. Requests of a dead server are forgotten. All
state is in the log, except the state that a real server has in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol

from durability.campaign.assignments import WAIT, Speaker, answer_to, hear, is_heard
from durability.campaign.campaign_state import CampaignState
from durability.campaign.definition.settings import Settings
from durability.campaign.log_entries import (
    Began,
    Entry,
    Happening,
    Instant,
    Judged,
    Operation,
    PauseAsked,
    PowerAnswered,
    PowerAsked,
    Resumed,
    SwitchOutcome,
    entry_from_value,
    entry_to_value,
)
from durability.campaign.next_steps import next_steps
from durability.campaign.server_time import ServerTime
from durability.campaign.steps import Ask, LookUp, Note, WaitFor, WhenStill
from durability.campaign.tasks import Status, Task
from durability.formats.case import PowerOff
from durability.formats.packing import Value
from durability_lab.simulated_rig.virtual_time import Agenda, S

_NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
Reply = Callable[[SwitchOutcome, str], None]


class ServerDiedError(Exception):
    """The server was killed in the middle of its work."""


class PowerControl(Protocol):
    """The controller that asks the switches."""

    def ask(self, switch: int, operation: Operation, reply: Reply) -> None:
        """Ask a switch; `reply` is called with outcome and text, later or never."""


class MemoryServer:
    """The server of one campaign. `look_up` gives the verdict on a run of a drive. `added` is called after
    each entry and may raise `ServerDiedError`."""

    def __init__(
        self,
        agenda: Agenda,
        controller: PowerControl,
        look_up: Callable[[str, str], Judged],
        added: Callable[[Entry], None] = lambda _: None,
    ) -> None:
        self.log: list[dict[str, Value]] = []  # the store, which survives the server
        self.power_offs: dict[str, list[PowerOff]] = {}  # by run: the attested power-offs
        self.state = CampaignState()
        self.up = False
        self.steps = 0  # rounds of steps since the first start of the server
        self.boot_id = "server-1"
        self._agenda = agenda
        self._controller = controller
        self._look_up = look_up
        self._added = added
        self._life = 0
        self._asking: set[int] = set()
        self._heard_ns: dict[str, int] = {}
        self._began_ns = 0
        self._woken: set[int] = set()

    # Start and end.

    def start(self, *, boot_id: str = "") -> None:
        """Start the server with its log; with `boot_id`, in another boot of its machine."""
        self.boot_id = boot_id or self.boot_id
        self.state = CampaignState()
        for value in self.log:
            self.state.apply(entry_from_value(value))
        self.up, self._asking, self._heard_ns, self._woken = True, set(), {}, set()
        self._began_ns = self._agenda.now_ns
        self._wake()

    def kill(self) -> None:
        """Kill the server; answers of the controller are lost."""
        self.up = False
        self._life += 1

    # Requests.

    def begin(self, settings: Settings, *, check_only: bool = False) -> None:
        """Begin a campaign."""
        self.add([Began(settings=settings, check_only=check_only)])

    def pause(self, *, stop: bool = False) -> None:
        """Handle an operator's `pause` or `stop`."""
        if self.up and self.state.state != "ended" and (stop or self.state.state == "running"):
            self.add([PauseAsked(stop=stop)])

    def resume(self) -> None:
        """Handle an operator's `resume`."""
        if self.up and self.state.state == "paused":
            self.add([Resumed()])

    def hear(self, machine: str, status: Status, *, answered: int = 0) -> Task | None:
        """The answer to an agent's status, None if the server is down or dies meanwhile. `answered`: as in
        `Speaker`."""
        if not self.up:
            return None
        if self.state.settings is None:
            return WAIT
        speaker = Speaker(client=machine, answered=answered)
        if is_heard(self.state, machine, status, speaker):
            self._heard_ns[machine] = self._agenda.now_ns
        now = Instant(at_ns=self._agenda.now_ns, boot_id=self.boot_id, wall=self._wall())
        if not self.add(list(hear(self.state, machine, status, now, speaker))):
            return None
        return answer_to(self.state, machine, status, speaker)

    # Steps.

    def add(self, happenings: Iterable[Happening]) -> bool:
        """Add entries. Returns whether the server is still alive."""
        try:
            for happening in happenings:
                self._add(happening)
        except ServerDiedError:
            return False
        self._wake()
        return True

    def _add(self, happening: Happening) -> None:
        entry = Entry(
            number=len(self.log) + 1,
            at_ns=self._agenda.now_ns,
            boot_id=self.boot_id,
            wall=self._wall(),
            happening=happening,
        )
        for run, off in self.state.attested(happening, self.boot_id):
            self.power_offs.setdefault(run, []).append(off)
        value = entry_to_value(entry)
        self.log.append(value)
        self.state.apply(entry_from_value(value))
        self._added(entry)

    def _wall(self) -> str:
        return (_NEW_YEAR + timedelta(microseconds=self._agenda.now_ns // 1000)).isoformat()

    def _wake(self, after_ns: int = 0) -> None:
        at_ns = self._agenda.now_ns + after_ns
        if at_ns not in self._woken:
            self._woken.add(at_ns)
            self._agenda.at(at_ns, partial(self._woken_up, at_ns, self._life))

    def _woken_up(self, at_ns: int, life: int) -> None:
        if self.up and life == self._life:
            self._woken.discard(at_ns)
            self._step()

    def _step(self) -> None:
        self.steps += 1
        now_ns = self._agenda.now_ns
        machines = self.state.plan.machines if self.state.settings is not None else ()
        silent_s = {
            machine: (now_ns - self._heard_ns.get(machine, self._began_ns)) / S for machine in machines
        }
        moment = ServerTime(now_ns=now_ns, boot_id=self.boot_id, silent_s=silent_s, began_ns=self._began_ns)
        for step in next_steps(self.state, moment):
            match step:
                case Note(happening=happening) | WhenStill(happening=happening):  # runs have no credit here
                    self.add([happening])
                    return
                case LookUp(drive=drive, run=run):
                    self.add([self.state.verdict_entry(self._look_up(drive, run))])
                    return
                case Ask(switch=switch, operation=operation):
                    if not self._ask(switch, operation):
                        return
                case WaitFor(seconds=seconds):
                    self._wake(math.ceil(seconds * S) or 1)

    def _ask(self, switch: int, operation: Operation) -> bool:
        """Ask a switch, unless a request is under way. Returns whether the server is still alive."""
        if switch in self._asking:
            return True
        self._asking.add(switch)
        if not self.add([PowerAsked(switch=switch, operation=operation)]):
            return False
        began_ns, life = self._agenda.now_ns, self._life

        def answer(outcome: SwitchOutcome, text: str) -> None:
            if not self.up or life != self._life:
                return
            self._asking.discard(switch)
            self.add(
                [
                    PowerAnswered(
                        switch=switch,
                        operation=operation,
                        outcome=outcome,
                        text=text,
                        began_ns=began_ns,
                        ended_ns=self._agenda.now_ns,
                    )
                ]
            )

        self._controller.ask(switch, operation, answer)
        return True
