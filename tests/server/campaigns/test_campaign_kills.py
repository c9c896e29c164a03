"""Whoever is killed at whatever step: the campaign goes on, and no cycle is counted twice or lost."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from durability.campaign.campaign_state import CampaignState
from durability.campaign.log_entries import Entry, PowerWentOff
from durability.campaign.results import results
from durability.errors import PeerError
from durability.protocol import messages
from durability_client.campaigns.entry_lines import entry_line
from tests.server.campaigns.played_machine import Machine
from tests.server.campaigns.test_campaigns import begin, entries_of, living, settings_of
from tests.server.conftest import Lab, Running, ServerProcess

CUTS = 7
KILLS = 34  # at most; with three seeds more than a hundred
KILLS_LEAST = 5  # on a machine so busy that the log grows by many entries between two looks
KILL_RATE = 0.7  # of the looks at which the log has grown: how many there are depends on the machine
DEADLINE_S = 600

pytestmark = pytest.mark.slow


def controllers_of(server: int) -> list[int]:
    """The process ids of the power controller of a server."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[1]) == server:
                found.append(int(path.parent.name))
    return found


class Killer:
    """Kills one of the processes of a campaign whenever its log has grown, in an order drawn from a seed."""

    def __init__(self, server: ServerProcess, machine: Machine, seed: int) -> None:
        self.server = server
        self.machine = machine
        self.draw = random.Random(seed)
        self.kills = 0

    def kill(self, victim: str) -> None:
        """Kills it, and starts it again where nothing else does."""
        assert self.server.process is not None
        self.kills += 1
        if victim == "server":
            self.server.end()
            self.server.start()
        elif victim == "controller":
            for process in controllers_of(self.server.process.pid):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
        else:
            self.machine.restart_agent()


async def follow(lab: Lab, running: Running, after: int) -> list[Entry]:
    """The log, which is longer than `after`; it may be read in the middle of a restart."""
    while True:
        with suppress(PeerError, ConnectionError, OSError):
            entries = await entries_of(lab, running)
            if len(entries) > after:
                return entries
        await asyncio.sleep(0.005)


async def go_on(lab: Lab, running: Running) -> None:
    """Resume the campaign, as an operator does."""
    operator = await lab.connect(running.address, "operate", local=True)
    await operator.ask(messages.SteerCampaign(name="trial", action="resume"), messages.Stored)
    await operator.close()


def victims_of(state: CampaignState) -> list[str]:
    """Who may be killed now. A request whose controller was killed has failed, and after three of them the
    campaign rightly pauses: so the controller is spared until another phase begins."""
    failed = state.cycle is not None and any(switch.attempts for switch in state.cycle.switches)
    return ["server", "agent"] if failed else ["server", "controller", "agent"]


def told(seed: int, state: CampaignState, entries: list[Entry]) -> str:
    """What became of the campaign, for who reads of a failure."""
    problems = state.checked.problems if state.checked is not None else ()
    lines = (f"seed {seed}: {state.state}, {state.reason}", *problems, *map(entry_line, entries))
    return "\n".join(lines)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.timeout(DEADLINE_S + 60)
async def test_kills_at_every_step(
    seed: int,
    lab: Lab,
    sqlite_url: str,
    tmp_path: Path,
    server_process: Callable[[str], Awaitable[ServerProcess]],
) -> None:
    """After most looks at the log one process is killed; all cuts are made, and each is counted once."""
    power = tmp_path / "power"
    power.write_text("on\n")
    server = await server_process(sqlite_url)
    running = Running(server=None, address=server.address)  # type: ignore[arg-type]
    async with living(Machine(lab, server.address, power)) as machine:
        await begin(lab, running, settings_of(power, cuts=CUTS))
        killer = Killer(server, machine, seed)
        entries: list[Entry] = []
        state = CampaignState()
        try:
            async with asyncio.timeout(DEADLINE_S):
                while state.state != "ended":
                    entries = await follow(lab, running, len(entries))
                    state = CampaignState()
                    for entry in entries:
                        state.apply(entry)
                    if state.state == "paused":  # kills void cycles; after five of them an operator goes on
                        voided = "in a row gave no result for any drive" in state.reason
                        assert voided, told(seed, state, entries)
                        await go_on(lab, running)
                    goes_on = state.state == "running" and killer.kills < KILLS
                    if goes_on and killer.draw.random() < KILL_RATE:
                        killer.kill(killer.draw.choice(victims_of(state)))
        except TimeoutError:
            pytest.fail(told(seed, state, entries))
    assert KILLS_LEAST <= killer.kills <= KILLS
    assert state.reason == "complete", told(seed, state, entries)
    (result,) = results(state)
    cycles = [past for past in state.cycles if past.began.cycle]
    assert [past.began.cycle for past in cycles] == list(range(1, len(cycles) + 1))
    assert result.tally.cuts == CUTS and result.tally.losses == 0
    judged = [mine.run for past in cycles for mine in past.drives if mine.word == "durable"]
    assert len(judged) == len(set(judged)) == CUTS
    offs = [entry.happening for entry in entries if isinstance(entry.happening, PowerWentOff)]
    for run in judged:
        assert any(run in off.runs for off in offs)
        case = await lab.exported(server.address, int(run, 16), lambda case: case.state == "ended")
        assert len(case.power_offs) == sum(run in off.runs for off in offs)
    assert power.read_text() == "on\n"
