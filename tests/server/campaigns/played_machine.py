"""A machine under test as a test plays it: commands switch its power, its agent asks the server, its runs are
registered, armed and judged over real connections. Only drives and file systems are missing."""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from durability.campaign.definition.settings import Power
from durability.campaign.tasks import Condition, DriveStatus, DriveTask, Status, Task
from durability.errors import PeerError, RefusedError
from durability.formats.case import Case
from durability.formats.documents import from_value, to_value
from durability.protocol import messages
from durability.units import format_run, parse_run
from tests.server.conftest import FACTS, Client, Lab, Member
from tests.waiting import DEADLINE_S

TICK_S = 0.02
WRITTEN_IN_A_TICK = 50  # operations of each writer before a cut at idle: its credit takes many ticks


def switch(power: Path, *, before_off: str = "") -> Power:
    """Commands that make the file `power` say "on" or "off", and read it. It never says neither, which the
    machine would take for a moment without power, as where "on" is asked for again after a kill. The file
    that `_offs_of` names gets a line each time that it has said "off". `before_off`: what the shell of "off"
    does first."""
    off = f"{before_off}echo off > {power}.$$ && mv {power}.$$ {power} && echo >> {_offs_of(power)}"
    options = {
        "on": f"sh -c 'echo on > {power}.$$ && mv {power}.$$ {power}'",
        "off": f"sh -c '{off}'",
        "status": f"sh -c 'grep -q on {power} || exit 2'",
    }
    return Power(kind="commands", agent="", options=options, timeout_s=20.0, machine="")


def gated_switch(power: Path, gate: Path) -> Power:
    """A `switch` that waits for the file `gate` before it goes off."""
    waits = f"until [ -e {gate} ]; do sleep 0.05; done; "
    return replace(switch(power, before_off=waits), timeout_s=DEADLINE_S)


def _offs_of(power: Path) -> Path:
    return power.with_name(f"{power.name}.offs")


def _now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@dataclass
class Machine:
    """A machine at `address` of `lab`, which joined as `member`, None: as the first. `verdicts`: what its
    verify says of each drive, one after the other, then durable for ever. `obeys`: whether it loses its power
    when the switch says so. `host`: what it calls itself."""

    lab: Lab
    address: tuple[str, int]
    power: Path
    verdicts: dict[str, list[str]] = field(default_factory=dict)
    member: Member | None = None
    obeys: bool = True
    host: str = FACTS.host.hostname
    boots: int = 0
    tasks: list[Task] = field(default_factory=list)  # as they came, each once
    statuses: dict[str, DriveStatus] = field(default_factory=dict)
    number: int = 0
    campaign: str = ""  # of the newest task
    runs: list[Client] = field(default_factory=list)
    writing: list[asyncio.Task[None]] = field(default_factory=list)
    armed: list[str] = field(default_factory=list)
    begun: set[tuple[int, int, str]] = field(default_factory=set)  # runs: boot, task, drive
    _booted_ns: int = 0
    _is_down: bool = False
    _killed: asyncio.Event = field(default_factory=asyncio.Event)

    async def live(self) -> None:
        """Boot, ask, do, lose power, boot again, until cancelled."""
        while True:
            await self._until(on=True)
            offs = self._offs()
            self.boots += 1
            self._booted_ns = _now_ns()
            self.number, self.statuses, self._is_down = 0, {}, False
            await self._boot(offs)

    def restart_agent(self) -> None:
        """The agent is killed, its runs with it, and started again in the same boot."""
        self._killed.set()

    async def _boot(self, offs: int) -> None:
        """One boot, until the power is off, which it had been `offs` times before."""
        off = asyncio.get_running_loop().create_task(self._off(offs))
        while not off.done():
            self._killed.clear()
            agent = asyncio.get_running_loop().create_task(self._agent())
            killed = asyncio.get_running_loop().create_task(self._killed.wait())
            await asyncio.wait([off, killed, agent], return_when=asyncio.FIRST_COMPLETED)
            killed.cancel()
            if agent.done():
                agent.result()
            agent.cancel()
            await asyncio.wait([agent])
            self._stop_writing()
            for run in self.runs:
                if off.done():
                    run.vanish()
                else:
                    await run.close()
            self.runs.clear()
            self.number, self.statuses, self._is_down = 0, {}, False

    async def _off(self, offs: int) -> None:
        """Returns also where a standstill outlasted all the time without power."""
        if not self.obeys:
            await self._until(on=False)
            await self._until(on=True)
            offs = self._offs()
        while self._is_on() and self._offs() == offs:  # noqa: ASYNC110 - files of other processes
            await asyncio.sleep(TICK_S)

    async def _until(self, *, on: bool) -> None:
        while self._is_on() != on:  # noqa: ASYNC110 - a file of other processes
            await asyncio.sleep(TICK_S)

    def _is_on(self) -> bool:
        return self.power.read_text().strip() == "on"

    def _offs(self) -> int:
        """How often the switch has said that it was off."""
        offs = _offs_of(self.power)
        return offs.stat().st_size if offs.exists() else 0

    async def _agent(self) -> None:
        while True:
            with suppress(PeerError, ConnectionError, OSError):
                client = await self.lab.connect(self.address, "agent", member=self.member)
                while True:
                    status = messages.AgentStatus(status=to_value(self._status()))
                    answer = await client.ask(status, messages.AgentTask)
                    await self._do(from_value(Task, answer.task))
                    if self._is_down:
                        await asyncio.Event().wait()
                    await asyncio.sleep(TICK_S)
            await asyncio.sleep(TICK_S)

    def _status(self) -> Status:
        return Status(
            boot_id=f"boot-{self.boots}",
            machine_id="machine-1",
            uptime_ns=_now_ns() - self._booted_ns,
            virtualisation="none",
            software="test",
            task=self.number,
            drives=tuple(self.statuses.values()),
            campaign=self.campaign,
        )

    async def _do(self, task: Task) -> None:
        if task.number == self.number:
            self._is_down = task.kind == "shutdown"  # its end was said
            return
        self._is_down = False
        self.tasks.append(task)
        statuses = {drive.drive.name: await self._part(task, drive) for drive in task.drives}
        self.number, self.campaign, self.statuses = task.number, task.campaign, statuses

    async def _part(self, task: Task, part: DriveTask) -> DriveStatus:
        run = ""
        if task.kind == "run" and (self.boots, task.number, part.drive.name) in self.begun:
            return replace(self._done(part, ""), state="ended", text="the agent was restarted")
        if task.kind == "run":
            self.begun.add((self.boots, task.number, part.drive.name))
            run = await self._run(part)
        elif task.kind == "verify" and part.run:
            run = part.run
            await self._verify(part.drive.name, run)
        return replace(self._done(part, run), state="armed" if task.kind == "run" else "done")

    def _done(self, part: DriveTask, run: str) -> DriveStatus:
        return DriveStatus(
            drive=part.drive.name,
            state="done",
            trouble="",
            text="",
            run=run,
            exit_code=0,
            condition=self._condition(),
            mount_s=0.01,
            repaired=False,
        )

    async def _run(self, part: DriveTask) -> str:
        run, drive = secrets.randbits(63) | 1, part.drive.name
        client = await self.lab.connect(self.address, member=self.member)
        host = replace(FACTS.host, hostname=self.host)
        facts = self.lab.facts(serial=drive, uuid=drive, host=host)
        plan = self.lab.plan(run=run)
        await client.begin(plan, facts, force=True, label=part.label)
        await client.acknowledge(3, 4)
        self.runs.append(client)
        if part.arm is not None and part.arm.moment == "idle":
            self.writing.append(asyncio.get_running_loop().create_task(_write(client, plan.credit, 3, 4)))
        self.armed.append(format_run(run))
        return format_run(run)

    async def _verify(self, drive: str, run: str) -> None:
        self._stop_writing()
        for one in self.runs:
            await one.close()
        self.runs.clear()
        verifier, case = await self._ended(parse_run(run))
        waiting = self.verdicts.get(drive)
        word = waiting.pop(0) if waiting else "durable"
        document: dict[str, Any] = {
            "verdict": word,
            "cut": {"class": "power" if case.power_offs else "none"},
            "at_risk": {"ms1000": 0 if word == "inconclusive" else 5},
            "reasons": [] if word != "inconclusive" else [{"code": "nothing-at-risk", "text": ""}],
        }
        await verifier.ask(messages.GiveVerdict(run=parse_run(run), document=document), messages.Stored)
        await verifier.close()

    def _stop_writing(self) -> None:
        for writer in self.writing:
            writer.cancel()
        self.writing.clear()

    async def _ended(self, run: int) -> tuple[Client, Case]:
        """The case of a run that is over; a machine that boots so fast must wait until the server knows."""
        while True:
            verifier = await self.lab.connect(self.address, "verify", member=self.member)
            try:
                return verifier, await verifier.fetch(run, self.lab.facts(), end=True)
            except RefusedError as error:
                if error.code != "run-live":
                    raise
                await asyncio.sleep(TICK_S)

    def _condition(self) -> Condition:
        return Condition(
            model="played",
            serial="S1",
            firmware="1",
            size_bytes=1 << 30,
            diskseq=self.boots,
            emulated=False,
            ready_s=0.1,
            power_cycles=self.boots,
            unsafe_shutdowns=self.boots - 1,
            media_errors=0,
            spare_percent=100,
            used_percent=0,
            backup_failed=False,
            capacitor_percent=None,
        )


async def _write(client: Client, credit: int, *frontiers: int) -> None:
    """Acknowledge on and on from `frontiers`, which were granted, as far as the credit reaches."""
    grants = frontiers
    while True:
        for message in client.received:
            grants = message.grants if isinstance(message, messages.Credit) else grants
        client.received.clear()
        frontiers = tuple(
            min(acked + WRITTEN_IN_A_TICK, granted + credit)
            for acked, granted in zip(frontiers, grants, strict=True)
        )
        client.say(messages.Ack(frontiers=frontiers, control=0))
        await asyncio.sleep(TICK_S)
