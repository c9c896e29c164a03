"""`durability demo --campaign`: a campaign of 59 cuts on each of three simulated drives, in seconds.

The campaign is the product's own: file, log, state, steps, tasks and results. Machine, agent, switch and
drives are simulated, in virtual time. Each run and its verdict are those of rig A: the real records, the real
scan, and the real judge with the power controller's log as attestation. The exit code says whether each
verdict agrees with the drive's own log of what it kept.
"""

from __future__ import annotations

import os
import secrets
import textwrap
import time
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import TextIO

from durability.campaign.campaign_state import CampaignState
from durability.campaign.definition.campaign_file import CUTS, read_campaign
from durability.campaign.definition.settings import Arm, Settings
from durability.campaign.log_entries import Judged
from durability.campaign.results import result_of_cycles, results
from durability.campaign.tasks import Condition, DriveTask
from durability.errors import EXIT_INTERNAL, EXIT_OK
from durability.formats.mixing import combine
from durability.units import counted
from durability_client.campaigns.campaign_text import status
from durability_lab.campaign_rig.demo_cuts import CutOrder, CutVerdict, cut_makers
from durability_lab.campaign_rig.memory_server import MemoryServer
from durability_lab.campaign_rig.played_machine import Durations, PlayedMachine
from durability_lab.campaign_rig.played_switch import PlayedController, PlayedSwitch
from durability_lab.simulated_rig.scenario import Scenario
from durability_lab.simulated_rig.simulation import SwitchedOff, run_number
from durability_lab.simulated_rig.virtual_time import Agenda
from durability_lab.support.progress_line import ProgressLine
from durability_lab.truth.expected_verdict import NOT_AS_EXPECTED

MACHINE = "b"
MODELS: Mapping[str, str] = {
    "honest": "honest",
    "early-ack": "early-ack:delay_ms=10",
    "flush-skipped": "flush-skipped:one_in=12",
}
ABOUT: Mapping[str, str] = {
    "honest": "honours each flush",
    "early-ack": "acknowledges 10 ms before the data are on media",
    "flush-skipped": "skips one flush in 12",
}
COLUMNS = 80
SYNC_US = 1000.0  # like a consumer SSD with a volatile cache
SLOTS = 512  # credit is a quarter of the slots, and must last longer than its grant takes to arrive
SWITCH_S = (0.02, 0.12)  # duration of a request to the switch: least and most
FILE = """
[campaign]
name = "demo"
machine = "{machine}"
cuts = {cuts}
stop_at = "end"
seed = {seed}
cut_after_s = [0.02, 0.2]
off_s = [5, 20]
[power]
tasmota = "192.0.2.9"
cut_class = "power"
{drives}
[[arm]]
name = "one-writer"
writers = 1
"""


@dataclass(slots=True, kw_only=True)
class DemoRun:
    """A run of a drive. Times are those of the agenda, in ns; 0 means not yet."""

    drive: str
    scenario: Scenario
    seed: int
    armed_ns: int = 0
    lost_power_ns: int = 0


class DemoDrives:
    """The simulated drives of the demo."""

    def __init__(self, agenda: Agenda, seed: int) -> None:
        self.server: MemoryServer | None = None
        self.orders: dict[str, CutOrder] = {}  # by run: cuts whose verdicts are needed before time goes on
        self.verdicts: dict[str, CutVerdict] = {}  # by run
        self.ended: set[str] = set()  # runs whose verdict the server has
        self.cuts = 0
        self._agenda = agenda
        self._seed = seed
        self._runs: dict[str, DemoRun] = {}
        self._going: dict[str, str] = {}

    def condition(self, drive: str) -> Condition:
        """The condition that a drive reports; its counters count each cut."""
        return Condition(
            model=f"Simulated {drive}",
            serial=f"SIM-{drive}",
            firmware="1",
            size_bytes=1 << 40,
            diskseq=1 + self.cuts,
            emulated=False,
            ready_s=1.0,
            power_cycles=self.cuts,
            unsafe_shutdowns=self.cuts,
            media_errors=0,
            spare_percent=100,
            used_percent=0,
            backup_failed=None,
            capacitor_percent=None,
        )

    def begin(self, part: DriveTask) -> str:
        """Begin a run with the load of the task's arm; returns the run's id."""
        assert part.arm is not None
        drive = part.drive.name
        scenario = _scenario(MODELS[drive], part.arm)
        seed = combine(self._seed, list(MODELS).index(drive), len(self._runs)) % 2**48
        run = f"{run_number(scenario, seed=seed):016x}"
        self._runs[run] = DemoRun(drive=drive, scenario=scenario, seed=seed)
        self._going[drive] = run
        return run

    def armed(self, drive: str) -> None:
        """Note that the drive's run is armed."""
        self._runs[self._going[drive]].armed_ns = self._agenda.now_ns

    def lose_power(self, drive: str) -> None:
        """Note that the drive's run is cut; all drives share one power supply."""
        run = self._going.pop(drive, "")
        if run:
            self._runs[run].lost_power_ns = self._agenda.now_ns

    def stop(self, drive: str) -> None:
        """Does nothing: in the demo, only cuts end runs."""

    def verify(self, part: DriveTask) -> None:
        """Order the cut: by now, all values that it depends on are known."""
        assert self.server is not None
        run = self._runs[part.run]
        off = self.server.power_offs[part.run][0]
        load_s = (run.lost_power_ns - run.armed_ns) / 1e9
        scenario = f"{run.scenario} seconds={load_s!r}..{load_s!r}"
        said = SwitchedOff(
            asked_before_ns=run.lost_power_ns - off.asked_ns,
            confirmed_after_ns=off.confirmed_ns - run.lost_power_ns,
            text=off.text,
        )
        self.orders[part.run] = CutOrder(scenario=scenario, seed=run.seed, switched_off=said)

    def verified(self, part: DriveTask) -> int:
        """Note that the server has the verdict; returns the exit code."""
        self.ended.add(part.run)
        return self.verdicts[part.run].exit_code

    def look_up(self, drive: str, run: str) -> Judged:
        """The verdict on a run, as the server has it."""
        assert run in self.ended
        said = self.verdicts[run]
        return Judged(
            drive=drive,
            run=run,
            verdict=said.verdict,
            cut_class=said.cut_class,
            reasons=said.reasons,
            at_risk_ms1000=said.at_risk_ms1000,
            commit_p50_us=None,
            commit_p99_us=None,
        )


async def campaign_demo(out: TextIO, err: TextIO, *, seed: int | None = None, cuts: int = CUTS) -> int:
    """Run the demo and return its exit code; the same `seed` gives the same drives and the same cuts."""
    chosen = secrets.randbits(32) if seed is None else seed
    settings = _settings(chosen, cuts)
    print(f"A campaign on three simulated drives, {cuts} power cuts each. Seed {chosen}.", file=out)
    for drive, about in ABOUT.items():
        print(f"  {drive}: {about}", file=out)
    agenda = Agenda()
    drives = DemoDrives(agenda, chosen)
    state = await _play(settings, agenda, drives, err, chosen)
    print("", file=out)
    for line in status(state, {}, took_s=None):
        print(textwrap.fill(line, COLUMNS, subsequent_indent="  "), file=out)
    return _conclude(state, drives, out)


async def _play(
    settings: Settings, agenda: Agenda, drives: DemoDrives, err: TextIO, seed: int
) -> CampaignState:
    draw = Random(f"{seed} switch").random
    switch = PlayedSwitch(
        go=lambda on: _switch(machine, drives, on=on),
        answer_s=lambda: SWITCH_S[0] + draw() * (SWITCH_S[1] - SWITCH_S[0]),
    )
    server = drives.server = MemoryServer(agenda, PlayedController(agenda, [switch]), drives.look_up)
    machine = PlayedMachine(agenda, server, MACHINE, drives=drives, names=list(MODELS), pace=Durations())
    machine.boot()
    server.start()
    server.begin(settings)
    began_s, over = time.monotonic(), 0
    workers = min(len(MODELS), os.cpu_count() or 1)
    async with cut_makers(workers) as makers:
        with ProgressLine(settings.cuts, err, description="cuts") as progress:
            while server.state.state == "running":
                agenda.step()
                if drives.orders:
                    orders, drives.orders = drives.orders, {}
                    made = await makers.make(list(orders.values()))
                    drives.verdicts.update(zip(orders, made, strict=True))
                    over += 1
                    left_s = (time.monotonic() - began_s) / over * (settings.cuts - over)
                    progress.advance(left_s, f"{over} of {settings.cuts} cuts")
    return server.state


def _switch(machine: PlayedMachine, drives: DemoDrives, *, on: bool) -> None:
    if on:
        machine.switch_on()
    else:
        drives.cuts += 1
        machine.switch_off()


def _conclude(state: CampaignState, drives: DemoDrives, out: TextIO) -> int:
    """Print whether the verdicts agree with the drives' own logs, and how many cuts came before a loss.

    Returns the exit code.
    """
    defects = [text for said in drives.verdicts.values() for text in said.defects]
    if state.reason != "complete" or defects:
        print("", file=out)
        for text in [state.reason, *defects][:5]:
            print(text, file=out)
        print(NOT_AS_EXPECTED, file=out)
        return EXIT_INTERNAL
    for result in results(state):
        first = result.first_loss[0] if result.first_loss is not None else 0
        clean = sum(arm.clean for arm in result_of_cycles(state, result.drive, range(1, first)).arms)
        if clean:
            print(f"{result.drive} passed {counted(clean, 'cut')} before that loss.", file=out)
    print("\nEach verdict agrees with the drive's own log of what it kept.", file=out)
    return EXIT_OK


def _settings(seed: int, cuts: int) -> Settings:
    drives = "".join(
        f'[[drive]]\nname = "{name}"\ndevice = "/dev/disk/by-id/simulated-{name}"\n' for name in MODELS
    )
    text = FILE.format(machine=MACHINE, cuts=cuts, seed=seed, drives=drives)
    return read_campaign(text, name="demo", seed=seed)


def _scenario(model: str, arm: Arm) -> Scenario:
    """The load of an arm, as a scenario of rig A."""
    return Scenario(
        model=model,
        workload=arm.workload,
        writers=arm.writers,
        pattern=arm.pattern,
        group=arm.group,
        sync=arm.sync or "fdatasync",
        slots=SLOTS,
        sync_us=SYNC_US,
    )
