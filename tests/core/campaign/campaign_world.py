"""A campaign in memory in which everything may go wrong, and what must hold whatever does.

The parts are the lab's; this adds drives whose verdicts are drawn, and an account of its own of what the log
may say, which shares no code with the fold.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from random import Random

from durability.campaign.definition.campaign_file import read_campaign
from durability.campaign.definition.settings import Settings
from durability.campaign.log_entries import (
    Checked,
    CycleBegan,
    CycleEnded,
    DriveLeft,
    DriveReported,
    Ended,
    Entry,
    Happening,
    Judged,
    JudgedLate,
    MachineSeen,
    NotBack,
    Paused,
    PowerAnswered,
    PowerAsked,
    PowerFailed,
    PowerWentOff,
    StillThere,
    entry_from_value,
)
from durability.campaign.results import results
from durability.campaign.tasks import Condition, DriveTask
from durability_lab.campaign_rig.memory_server import MemoryServer, ServerDiedError
from durability_lab.campaign_rig.played_machine import Durations, PlayedMachine
from durability_lab.campaign_rig.played_switch import PlayedController, PlayedSwitch
from durability_lab.simulated_rig.virtual_time import Agenda, S

ENTRIES_AT_ONCE_MAX = 100  # without any time between them
BOOT_WITHIN_S = 120.0
WEEKS_DAYS = 40  # after which no check holds
ASKS_IN_A_ROW_MAX = 600  # of one switch, in one phase of one cycle; each start of the server has 90

FILE = """
[campaign]
machines = [{machines}]
cuts = {cuts}
stop_at = "{stop_at}"
seed = 7
cut_after_s = [{cut_after_s}]
off_s = [{off_s}]
boot_within_s = {boot_within_s:g}
ready_within_s = 30
{switches}
{drives}
{arms}
"""


def settings_of(
    *,
    drives: tuple[str, ...] = ("b", "b", "c"),
    switches: int = 2,
    subject: str = "machine",
    stop_at: str = "end",
    arms: tuple[str, ...] = ("load",),
    cuts: int = 4,
    off_s: tuple[float, float] = (1, 5),
    cut_after_s: tuple[float, float] = (1, 20),
    own: bool = False,
    group: bool = False,
) -> Settings:
    """A campaign of drives on the machines that `drives` names. `arms`: moments, or "again". `own`: in place
    of `switches` for all machines, each has one of its own; with `group` the first two have one together."""
    machines = sorted(set(drives))
    power = f'tasmota = "192.0.2.1"\ncut_class = "power"\ncuts = "{subject}"\n'
    text = FILE.format(
        machines=", ".join(f'"{one}"' for one in machines),
        cuts=cuts,
        boot_within_s=BOOT_WITHIN_S,
        off_s=f"{off_s[0]}, {off_s[1]}",
        cut_after_s=f"{cut_after_s[0]}, {cut_after_s[1]}",
        stop_at=stop_at,
        switches="".join(
            f"[[power]]\nmachines = [{', '.join(f'{chr(34)}{one}{chr(34)}' for one in of)}]\n{power}"
            for of in _switched(machines, switches, own=own, group=group)
        ),
        drives="".join(
            f'[[drive]]\nname = "d{number}"\nmachine = "{machine}"\ndevice = "/dev/sd{number}"\n'
            'file_system = "ext4"\n'
            for number, machine in enumerate(drives)
        ),
        arms="".join(
            f'[[arm]]\nname = "{arm}-{number}"\n'
            + ("again_after_s = [5, 60]\n" if arm == "again" else f'moment = "{arm}"\n')
            for number, arm in enumerate(arms)
        ),
    )
    return read_campaign(text, name="world", seed=7)


def _switched(machines: list[str], switches: int, *, own: bool, group: bool) -> list[list[str]]:
    """The machines of each switch, none for all."""
    if not own:
        return [[]] * switches
    together = 2 if group else 1
    return [machines[:together], *([one] for one in machines[together:])]


@dataclass(slots=True)
class RunTruth:
    """A run as it was. `lost_power`: its drive lost its power while it was armed. `moment`: when its power is
    to go."""

    drive: str
    moment: str = "load"
    is_armed: bool = False
    lost_power: bool = False
    verified: bool = False


class Account:
    """What the log may say, entry by entry. Raises AssertionError."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.machine = {drive.name: drive.machine for drive in settings.drives}
        self.ended: list[CycleEnded] = []
        self.cycle: CycleBegan | None = None
        self.words: Counter[tuple[str, str]] = Counter()
        self.over = ""
        self.left: set[str] = set()
        self.power: dict[int, str] = {}  # what each switch was asked last
        self.asks: Counter[int] = Counter()
        self._at_ns, self._at_once = 0, 0
        self._forget()

    def _forget(self) -> None:
        self.armed: dict[str, int] = {}
        self.runs: dict[str, str] = {}
        self.offs: list[tuple[int, set[int]]] = []  # the entry, and the switches
        self.missing = ""  # the machine that alone is switched off and on again
        self.seen: dict[str, int] = {}
        self.losses: set[str] = set()
        self.still: set[str] = set()
        self.confirmed: dict[int, tuple[str, str]] = {}

    def take(self, entry: Entry) -> None:
        """The next entry."""
        self._at_once = self._at_once + 1 if entry.at_ns == self._at_ns else 1
        self._at_ns = entry.at_ns
        assert self._at_once <= ENTRIES_AT_ONCE_MAX, "entries without end, in no time"
        match entry.happening:
            case CycleBegan() as began:
                self._began(began)
            case PowerAsked(switch=switch, operation=operation):
                self._asked(switch, operation)
            case PowerAnswered(switch=switch, outcome=outcome):
                self.confirmed[switch] = (outcome, entry.boot_id)
            case PowerWentOff(runs=runs):
                self._went_off(entry, runs)
            case CycleEnded() as ended:
                self._ended(ended)
            case JudgedLate(cycle=cycle, judged=Judged(drive=drive, verdict="loss")):
                self._lost_late(cycle, drive)
            case Paused(reason=reason):
                self._stopped(reason, over=False)
            case Ended(reason=reason):
                self._stopped(reason, over=True)
            case happening:
                self._heard(entry.number, happening)

    def _began(self, began: CycleBegan) -> None:
        assert self.cycle is None, "a cycle began in another"
        assert not self.over, "a cycle began after the end"
        assert began.cycle in (0, len([one for one in self.ended if one.cycle]) + 1)
        self.cycle = began
        self._forget()

    def _went_off(self, entry: Entry, runs: tuple[str, ...]) -> None:
        off = ("off", entry.boot_id)
        assert self.cycle is not None
        going = {self.missing} if self.missing else {self.machine[drive] for drive in self.cycle.drives}
        every = {switch for machine in going for switch in self.switches_of(machine)}
        if not self.cycle.cycle and self.settings.subject == "machine":  # the check cuts one after the other
            every = {switch for switch, asked in self.power.items() if asked == "off"}
        assert all(self.confirmed.get(switch) == off for switch in every), "off without each switch's word"
        without = [drive for drive in self.armed if self.switches_of(self.machine[drive]) & every]
        assert len(runs) == len(without)
        self.offs.append((entry.number, every))
        self.missing = ""

    def switches_of(self, machine: str) -> set[int]:
        """Those that a machine gets its power through."""
        return {
            number
            for number, switch in enumerate(self.settings.power)
            if not switch.machines or machine in switch.machines
        }

    def _heard(self, number: int, happening: Happening) -> None:
        match happening:
            case MachineSeen(machine=machine):
                self.seen[machine] = number
            case DriveReported(what="run", status=status) if status.state == "armed":
                self.armed.setdefault(status.drive, number)
                self.runs.setdefault(status.drive, status.run)
            case StillThere(machine=machine):
                self.still.add(machine)
            case NotBack(machine=machine):
                self.missing = machine
            case PowerFailed(on=False):
                self.missing = ""
            case DriveLeft(drive=drive):
                self.left.add(drive)
            case Judged(drive=drive, verdict="loss"):
                self.losses.add(drive)
            case _:
                pass

    def _asked(self, switch: int, operation: str) -> None:
        if operation in ("on", "off"):
            if self.power.get(switch) != operation:
                self.asks[switch] = 0
            self.power[switch] = operation
        self.asks[switch] += 1
        assert self.cycle is not None
        parts = {number for drive in self.cycle.drives for number in self.switches_of(self.machine[drive])}
        assert switch in parts, "a machine without a drive to test is switched"
        assert self.asks[switch] <= ASKS_IN_A_ROW_MAX, "a switch is asked without end"

    def _ended(self, ended: CycleEnded) -> None:
        assert self.cycle is not None and self.cycle.cycle == ended.cycle
        if ended.cycle:
            assert tuple(one.drive for one in ended.drives) == self.cycle.drives, "a drive was dropped"
        for mine in ended.drives:
            assert (mine.word == "loss") == (mine.drive in self.losses), f"{mine} against {self.losses}"
            assert mine.word != "nothing" or (mine.cause and mine.text), f"nothing without a reason: {mine}"
            if mine.word == "durable":
                self._deserves(mine.drive)
            self.words[mine.drive, mine.word] += 1
        self.ended.append(ended)
        self.cycle = None

    def _lost_late(self, cycle: int, drive: str) -> None:
        (at,) = [at for at, ended in enumerate(self.ended) if ended.cycle == cycle]
        (mine,) = [one for one in self.ended[at].drives if one.drive == drive]
        assert mine.word == "nothing", f"a late verdict on {mine}"
        self.words[drive, mine.word] -= 1
        self.words[drive, "loss"] += 1
        drives = tuple(replace(one, word="loss") if one is mine else one for one in self.ended[at].drives)
        self.ended[at] = replace(self.ended[at], drives=drives)

    def _deserves(self, drive: str) -> None:
        assert self.offs, "durable without a confirmed off"
        machine = self.machine[drive]
        mine = self.switches_of(machine)
        assert self.armed[drive] < self.offs[0][0], "durable, and armed only after the off"
        still = any(self.switches_of(other) & mine for other in self.still)
        assert not still, "durable, though something went on without power"
        if self.settings.subject == "machine":
            last = max(number for number, switches in self.offs if mine <= switches)
            assert self.seen.get(machine, 0) > last, "durable without a new boot"

    def _stopped(self, reason: str, *, over: bool) -> None:
        self.over = reason if over else self.over
        dark = [switch for switch, operation in self.power.items() if operation == "off"]
        assert not dark, f"{reason}: switches {dark} were asked last to be off"
        if over:
            assert self.cycle is None, "it ended within a cycle"
        if reason == "complete":
            for drive in self.settings.drives:
                counted = sum(self.words[drive.name, word] for word in ("durable", "loss", "kept"))
                assert counted >= self.settings.cuts or drive.name in self.left, f"{drive.name}: {counted}"


class DatedServer(MemoryServer):
    """A server whose date may go on by `days`, in which nothing else happens."""

    days = 0

    def _add(self, happening: Happening) -> None:
        super()._add(self.state.verdict_entry(happening) if isinstance(happening, Judged) else happening)

    def _wall(self) -> str:
        return (datetime.fromisoformat(super()._wall()) + timedelta(days=self.days)).isoformat()


class World:
    """A campaign with all its parts. `words`: what the judge says, one after the other, then durable.
    `counts`: whether drives count unsafe shutdowns."""

    def __init__(self, settings: Settings, *, seed: int = 1, counts: bool = False) -> None:
        self.settings = settings
        self.counts = counts
        self.account = Account(settings)
        self.words: list[str] = []
        self.gone: set[str] = set()
        self.dark: set[str] = set()  # drives without power
        self.runs: dict[str, RunTruth] = {}
        self.on_drive: dict[str, str] = {}  # the run that was begun last
        self.going: dict[str, str] = {}  # the run that goes on
        self.verdicts: dict[str, Judged] = {}
        self.kill_in = 0  # entries
        self.kill_at_off = False  # or sooner, when a switch is to be asked to go off
        self.down_s = self.away_s = 1.0
        self.came_ns = 0  # when the server started last
        self.reboots = 0
        self.reboot = False
        self._random = Random(seed)
        self._cuts: Counter[str] = Counter()
        self.agenda = Agenda()
        self.switches = [
            PlayedSwitch(go=partial(self._switched, number), answer_s=self._answer_s)
            for number in range(len(settings.power))
        ]
        self.reported: set[str] = set()  # runs that the log calls armed
        self.power_losses: list[tuple[str, int, bool]] = []  # drive, entries before, by hand
        self.by_hand = False
        self.must_check = False  # before another cycle
        self.agents_killed = False
        self.server = DatedServer(
            self.agenda, PlayedController(self.agenda, self.switches), self._look_up, self._added
        )
        self.machines = {
            name: PlayedMachine(
                self.agenda,
                self.server,
                name,
                drives=self,
                names=[drive.name for drive in settings.drives_of(name)],
                pace=Durations(),
            )
            for name in settings.machines
        }
        for machine in self.machines.values():
            machine.boot()
        self.server.start()
        self.server.begin(settings)

    # Time.

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        steps = self.server.steps
        self.agenda.run(until_ns=self.agenda.now_ns + int(seconds * S))
        assert self.server.steps - steps < 2000 + 50 * seconds, "steps without end"

    @property
    def is_over(self) -> bool:
        """Whether the campaign is at its end."""
        return self.server.up and self.server.state.state == "ended"

    def until_still(self, within_s: float) -> None:
        """Let time pass until the campaign is over or paused."""
        end_ns = self.agenda.now_ns + int(within_s * S)
        while not (self.server.up and self.server.state.state != "running"):
            assert self.agenda.now_ns < end_ns, f"nothing came of it: {self.story()}"
            self.advance(20.0)

    def finish(self) -> str:
        """Mend all that is broken, and let people resume what pauses: the reason of the end."""
        self.kill_in = 0
        self.gone.clear()
        for switch in self.switches:
            switch.manner = "obeys"
        for machine in self.machines.values():
            machine.cut_off = False
            if machine.hangs or not machine.is_up:
                machine.hangs = False
                if machine.power:
                    machine.reset()
        for _ in range(8):
            self.until_still(3 * 86_400)
            if self.is_over:
                self.check_results()
                reason = self.server.state.reason
                assert "cannot be switched on" in reason or all(
                    switch.on or _last_manner(switch, "on") == "lies" for switch in self.switches
                ), f"a machine was left without power: {reason}"
                return reason
            for machine in self.machines.values():
                machine.hangs = False
                if machine.power and not machine.is_up:
                    machine.reset()
            if "the drive is not there" in self.server.state.reason:
                self._switch_on_by_hand()
            self.advance(60.0)
            assert self.is_over or not self.going, f"a run goes on in a pause: {self.story()}"
            self.server.resume()
        raise AssertionError(f"paused again and again: {self.story()}")

    def _switch_on_by_hand(self) -> None:
        """People look whether a drive that is missed has power: its switch may have said what was not so."""
        for switch in self.switches:
            if not switch.on:
                switch.on = switch.claimed = True
                switch.go(True)

    def check_results(self) -> None:
        """Hold the results against the account; no machine was shut down for drives that are not tested."""
        for machine in self.machines.values():
            assert all(task.drives for task in machine.tasks if task.kind == "shutdown"), machine.name
        arms = {arm.name: arm.moment for arm in self.settings.arms}
        moments = {past.began.cycle: arms.get(past.began.arm, "") for past in self.server.state.cycles}
        for one in results(self.server.state):
            words = Counter(
                mine.word
                for ended in self.account.ended
                for mine in ended.drives
                if mine.drive == one.drive and moments[ended.cycle] == "load"
            )
            tally = one.tally
            assert (tally.cuts, tally.losses) == (words["durable"] + words["loss"], words["loss"])
            if tally.bound is not None and not tally.losses:
                assert abs((1 - tally.bound) ** tally.cuts - 0.05) < 1e-9
            of_all = [
                mine for ended in self.account.ended for mine in ended.drives if mine.drive == one.drive
            ]
            assert len(one.left_out) == sum(mine.word == "nothing" for mine in of_all)
            lost = {mine.run for mine in of_all if mine.word == "loss"}
            for run, judged in self.verdicts.items():
                known = judged.drive == one.drive and judged.verdict == "loss" and run in self.reported
                assert not known or run in lost, f"the loss of run {run} is lost: {self.story()}"

    def story(self) -> str:
        """The log's last entries, for a failure."""
        told = []
        for value in self.server.log[-40:]:
            entry = entry_from_value(value)
            what = str(entry.happening)
            if isinstance(entry.happening, DriveReported):
                status = entry.happening.status
                what = f"{entry.happening.what} {status.drive} {status.state} {status.text}"
            told.append(f"{entry.number} {entry.at_ns / S:.1f} {what}")
        return "\n".join(told)

    # The server.

    def _added(self, entry: Entry) -> None:
        if isinstance(entry.happening, CycleEnded):
            for drive, run in self.account.runs.items():
                word = next(mine.word for mine in entry.happening.drives if mine.drive == drive)
                given = self.verdicts.get(run)
                assert given is None or given.verdict != "loss" or word == "loss", (
                    f"a loss of {drive} is lost"
                )
                if self.settings.subject == "drive" and word in ("durable", "kept"):
                    assert self.runs[run].lost_power, f"{word}, and {drive} kept its power: {self.story()}"
        self._hold_against_truth(entry)
        self.account.take(entry)
        asked = entry.happening
        is_off = isinstance(asked, PowerAsked) and asked.operation == "off"
        if isinstance(asked, PowerAsked) and is_off:
            self._may_go_off(asked.switch)
        if self.kill_in:
            self.kill_in -= 1
            if not self.kill_in or (self.kill_at_off and is_off):
                self.kill_in = 0
                self.kill_server()
                raise ServerDiedError

    def _hold_against_truth(self, entry: Entry) -> None:
        """Passing means that the check's own switches cut each drive, and it fails for what happened since it
        began. After weeks it comes first. No agent says that it was restarted if none was."""
        match entry.happening:
            case DriveReported(status=status) if status.text == "the agent was restarted":
                assert self.agents_killed, f"no agent was restarted: {self.story()}"
            case CycleBegan(cycle=cycle):
                assert not self.must_check or not cycle, f"no check after weeks: {self.story()}"
                self.must_check = False
            case DriveReported(what="run", status=status) if status.state == "armed":
                self.reported.add(status.run)
            case Checked(problems=problems):
                for drive in self.account.cycle.drives if self.account.cycle is not None else ():
                    since = [each for each in self.power_losses if each[0] == drive and each[1] >= self.began]
                    cut = sum(not by_hand for _, _, by_hand in since)
                    assert problems or cut, f"the check passed, and did not cut {drive}: {self.story()}"
                    mine = [problem for problem in problems if problem.startswith(f"drive {drive}:")]
                    for problem in mine:
                        rose = re.search(r"rose by \d+ in (\d+) cut", problem)
                        assert rose is None or cut > int(rose[1]), f"{problem}: {self.story()}"
                        assert "stayed at" not in problem or not cut, f"{problem}: {self.story()}"
            case _:
                pass

    @property
    def began(self) -> int:
        """The number of the entry with which the cycle under way began."""
        kinds = (value["happening"]["kind"] for value in reversed(self.server.log))  # type: ignore[index,call-overload]
        return len(self.server.log) - next(at for at, kind in enumerate(kinds) if kind == "cycle-began")

    def switch_by_hand(self, name: str) -> None:
        """In a pause, somebody switches a machine off and on at once."""
        machine = self.machines[name]
        if machine.power and not self.dark:
            self.by_hand = True
            machine.switch_off()
            machine.switch_on()
            self.by_hand = False

    def let_weeks_go(self) -> None:
        """A pause takes weeks, and is over."""
        self.server.days += WEEKS_DAYS
        self.must_check = True
        self.server.resume()

    def _may_go_off(self, switch: int) -> None:
        """A server that was away for long has heard a machine before it switches it off, or waited for it."""
        waited_s = (self.agenda.now_ns - self.came_ns) / S
        if self.away_s < BOOT_WITHIN_S or waited_s >= BOOT_WITHIN_S:
            return
        cycle = self.account.cycle
        assert cycle is not None
        for drive in self.settings.drives:
            if drive.name in cycle.drives and switch in self.account.switches_of(drive.machine):
                heard_ns = self.machines[drive.machine].answered_ns
                assert heard_ns >= self.came_ns, f"power goes without a sign of life: {self.story()}"

    def kill_server(self) -> None:
        """Kill the server; it starts again after `down_s`, in another boot if `reboot`."""
        if not self.server.up:
            return
        before = self.server.state
        self.server.kill()
        self.agenda.after(int(self.down_s * S), partial(self._start_server, before, self.down_s))

    def _start_server(self, before: object, away_s: float) -> None:
        self.away_s, self.came_ns = away_s, self.agenda.now_ns
        self.reboots += self.reboot
        self.server.start(boot_id=f"server-{1 + self.reboots}")
        assert vars(self.server.state) == vars(before), "the log says something else than the state did"

    # The power.

    def _answer_s(self) -> float:
        return self._random.choice((0.2, 1.0, 3.0, 20.0))

    def _switched(self, number: int, on: bool) -> None:
        """A switch has the machines that it names; of two that name none, each has every other machine."""
        every = list(self.machines)
        names = self.settings.power[number].machines or (
            every[number :: len(self.switches)] if len(self.switches) > 1 else every
        )
        for name in names:
            if self.settings.subject == "drive":
                self._switch_drives(self.machines[name], on=on)
            elif on:
                self.machines[name].switch_on()
            else:
                self.machines[name].switch_off()

    def _switch_drives(self, machine: PlayedMachine, *, on: bool) -> None:
        for drive in self.settings.drives_of(machine.name):
            if on:
                self.dark.discard(drive.name)
            else:
                self.dark.add(drive.name)
                self.lose_power(drive.name)
                machine.drive_lost(drive.name)

    # The drives.

    def condition(self, drive: str) -> Condition | None:
        """What a drive says of itself."""
        if drive in self.gone or drive in self.dark:
            return None
        return Condition(
            model="Played",
            serial=drive,
            firmware="1",
            size_bytes=1 << 30,
            diskseq=1 + self._cuts[drive],
            emulated=False,
            ready_s=1.0,
            power_cycles=self._cuts[drive],
            unsafe_shutdowns=self._cuts[drive] if self.counts else None,
            media_errors=0,
            spare_percent=100,
            used_percent=0,
            backup_failed=None,
            capacitor_percent=None,
        )

    def begin(self, part: DriveTask) -> str:
        """A run begins; what was on the drive is gone."""
        drive = part.drive.name
        last = self.on_drive.get(drive)
        cycle = self.server.state.cycle
        known = cycle.runs.get(drive) if cycle is not None else None
        assert last is None or last != known, "an armed run was overwritten before its verdict"
        assert not self.must_check, f"a run began before the check: {self.story()}"
        if last is not None and last in self.reported and self.runs[last].moment != "prefill":
            verified = self.runs[last].verified
            assert verified or not part.fresh, f"run {last} was erased without a verdict: {self.story()}"
            if last not in self.verdicts:  # what the agent does before the next run
                self.verified(replace(part, run=last))
        run = f"{len(self.runs) + 1:016x}"
        self.runs[run] = RunTruth(drive, moment="load" if part.arm is None else part.arm.moment)
        self.on_drive[drive] = self.going[drive] = run
        return run

    def armed(self, drive: str) -> None:
        """The run is armed."""
        if drive in self.going:
            self.runs[self.going[drive]].is_armed = True

    def lose_power(self, drive: str) -> None:
        """The power goes."""
        self._cuts[drive] += 1
        self.power_losses.append((drive, len(self.server.log), self.by_hand))
        run = self.going.pop(drive, None)
        if run is not None:
            self.runs[run].lost_power = self.runs[run].is_armed

    def vanish(self, drive: str) -> None:
        """It is gone, with its power on, and its run sees that. What vanishes while a switch is asked to go
        off looks as if it was cut."""
        self.gone.add(drive)
        run = self.going.pop(drive, None)
        if run is None:
            return
        cycle = self.server.state.cycle
        is_at_off = cycle is not None and cycle.phase == "off"
        self.runs[run].lost_power = is_at_off and self.runs[run].is_armed
        self.machines[self.account.machine[drive]].drive_lost(drive)

    def stop(self, drive: str) -> None:
        """The run is ended in order."""
        self.going.pop(drive, None)

    def verify(self, part: DriveTask) -> None:
        """The verify begins."""
        assert self.on_drive[part.drive.name] == part.run, "another run lies on the drive"
        self.stop(part.drive.name)

    def verified(self, part: DriveTask) -> int:
        """The verdict is with the server."""
        truth = self.runs[part.run]
        truth.verified = True
        usual = {"prefill": "not-armed", "idle": "still"}.get(truth.moment, "durable")
        word = self.words.pop(0) if self.words else usual
        kept_its_power = self.settings.subject == "drive" and not truth.lost_power
        if kept_its_power and truth.moment != "prefill" and word in ("durable", "still"):
            word = "contradicted"  # the run was armed, so its facts tell
        self.verdicts.setdefault(
            part.run,
            Judged(
                drive=part.drive.name,
                run=part.run,
                verdict="" if word == "none" else word if word in ("durable", "loss") else "inconclusive",
                cut_class="power",
                reasons={
                    "contradicted": ("attestation-contradicted",),
                    "inconclusive": ("scan-unfinished",),
                    "not-armed": ("not-armed", "cut-not-shown", "nothing-at-risk"),
                    "still": ("nothing-at-risk",),
                }.get(word, ()),
                at_risk_ms1000=0 if word in ("not-armed", "still") else 9,
                commit_p50_us=100.0,
                commit_p99_us=200.0,
                armed=truth.moment != "prefill",
            ),
        )
        return 0

    def nothing(self, drive: str, run: str) -> Judged:
        """What the server knows of a run without a verdict. None is armed in its prefill."""
        return Judged(
            drive=drive,
            run=run,
            verdict="",
            cut_class="",
            reasons=(),
            at_risk_ms1000=0,
            commit_p50_us=None,
            commit_p99_us=None,
            armed=run not in self.runs or self.runs[run].moment != "prefill",
        )

    def _look_up(self, drive: str, run: str) -> Judged:
        return self.verdicts.get(run) or self.nothing(drive, run)


def _last_manner(switch: PlayedSwitch, operation: str) -> str:
    """How a switch behaved when it was last asked for this, "" if it never was."""
    return next((manner for asked, manner in reversed(switch.asked) if asked == operation), "")


def log_of(world: World) -> list[Happening]:
    """All that happened."""
    return [entry_from_value(value).happening for value in world.server.log]


def until(world: World, kind: type[Happening], count: int = 1, within_s: float = 5000.0) -> None:
    """Let time pass until there are so many entries of a kind."""
    end_ns = world.agenda.now_ns + int(within_s * S)
    while sum(isinstance(one, kind) for one in log_of(world)) < count:
        assert world.agenda.now_ns < end_ns, world.story()
        world.agenda.step()


def until_phase(world: World, phase: str, cycle: int = 1) -> None:
    """Let time pass until a cycle is in a phase."""
    end_ns = world.agenda.now_ns + 5000 * S
    while not (
        (now := world.server.state.cycle) is not None and (now.began.cycle, now.phase) == (cycle, phase)
    ):
        assert world.agenda.now_ns < end_ns, world.story()
        world.agenda.step()


def words(world: World) -> list[list[str]]:
    """What each cycle said of its drives."""
    return [[mine.word for mine in ended.drives] for ended in world.account.ended if ended.cycle]
