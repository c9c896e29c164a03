"""Histories in which agents lie: whatever they say, and under whatever name, nothing is counted that was not
cut, and no drive gets a file system that the check of these settings did not find.

The machines do what they are told for a while, then anything is said by anybody. An account, which shares no
code with the fold, knows what was said before it was heard.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from durability.campaign.assignments import Speaker, named_before
from durability.campaign.campaign_state import CampaignState
from durability.campaign.definition.settings import Settings
from durability.campaign.log_entries import (
    Began,
    Checked,
    CycleBegan,
    CycleEnded,
    DriveReported,
    Entry,
    Happening,
    JudgedLate,
    MachineSeen,
    PauseAsked,
    PowerAnswered,
    PowerAsked,
    PowerWentOff,
    Resumed,
    StillThere,
    entry_from_value,
    entry_to_value,
)
from durability.campaign.results import results
from durability.campaign.steps import Ask, LookUp, Note, WaitFor, WhenStill
from durability.campaign.tasks import DriveStatus, Task
from tests.core.campaign.told_campaign import ToldCampaign, condition, judged, part, told_settings

DRIVES = ("d0", "d1", "d2")
DEVICES = (("/dev/sdb", "/dev/sdc", "/dev/sdd"), ("/dev/sde", "/dev/sdc", "/dev/sdf"))
USUAL: dict[str, tuple[str, tuple[str, ...]]] = {
    "load": ("durable", ()),
    "idle": ("inconclusive", ("nothing-at-risk",)),
    "prefill": ("inconclusive", ("not-armed", "nothing-at-risk")),
    "shutdown": ("inconclusive", ("session-stopped", "nothing-at-risk")),
}
REASONS = ("attestation-contradicted", "scan-unfinished", "not-armed", "nothing-at-risk", "session-closed")


@dataclass(slots=True)
class Truth:
    """What was said of the present cycle by the machines themselves, by number of the log's entry then."""

    armed: dict[str, int] = field(default_factory=dict)
    over: dict[str, int] = field(default_factory=dict)
    asked: int = 0
    offs: dict[int, int] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    still: set[str] = field(default_factory=set)


class Heard(ToldCampaign):
    """A campaign, and the account of it."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[Entry] = []
        self.truth = Truth()
        self.examined: dict[str, str] = {}  # by drive, the serial that this check found first
        self.bound: dict[str, tuple[str, str]] = {}  # by machine, who the check found first
        self.speaking = ("", "")  # machine id and client of who says something now
        self.present: Settings | None = None
        self.passed = False
        self.ended_cycles: list[CycleEnded] = []
        self.boots = Counter({"b": 1, "c": 1})
        self.asked_off: set[int] = set()

    def add(self, *happenings: Happening) -> None:
        """These happen."""
        for happening in happenings:
            super().add(happening)
            assert self.state.last is not None
            self.log.append(self.state.last)
            self._take(self.state.last.number, happening)
            if isinstance(happening, JudgedLate) and happening.judged.verdict == "loss":
                self._lost_late(happening.cycle, happening.judged.drive)

    def _take(self, number: int, happening: Happening) -> None:
        match happening:
            case Began(settings=plan, check_only=check_only):
                if check_only or plan != self.present or not self.passed:
                    self.examined.clear()
                    self.bound.clear()
                    self.passed = False
                self.present = plan
            case Checked(problems=problems):
                self.passed = not problems
            case DriveReported(what="examine", machine=machine):
                self.bound.setdefault(machine, self.speaking)
            case CycleBegan(cycle=cycle):
                self.truth = Truth()
                if not cycle and not self.state.has_cut:  # a check finds machines and drives anew
                    self.examined.clear()
                    self.bound.clear()
            case MachineSeen(machine=machine):
                self.truth.seen[machine] = number
            case PowerAsked(operation="off", switch=switch):
                self.truth.asked = self.truth.asked or number
                self.asked_off.add(switch)
            case PowerWentOff():
                self.truth.offs |= dict.fromkeys(self.asked_off, number)
                self.asked_off.clear()
            case StillThere(machine=machine):
                self.truth.still.add(machine)
            case CycleEnded() as over if over.cycle:
                self._ended(over)
            case _:
                pass

    def _ended(self, over: CycleEnded) -> None:
        assert over.cycle == len(self.ended_cycles) + 1, "a cycle was counted twice, or dropped"
        before = {mine.run for past in self.ended_cycles for mine in past.drives} - {""}
        runs = [mine.run for mine in over.drives if mine.run]
        assert not before & set(runs), "one run was counted in two cycles"
        assert len(runs) == len(set(runs)), "one run was counted for two drives"
        for mine in over.drives:
            if mine.word in ("durable", "kept"):
                self._deserves(mine.drive)
        self.ended_cycles.append(over)

    def _lost_late(self, cycle: int, drive: str) -> None:
        over = self.ended_cycles[cycle - 1]
        assert all(mine.word == "nothing" for mine in over.drives if mine.drive == drive), "it had a verdict"
        drives = (replace(mine, word="loss") if mine.drive == drive else mine for mine in over.drives)
        self.ended_cycles[cycle - 1] = replace(over, drives=tuple(drives))

    def _deserves(self, drive: str) -> None:
        truth, machine = self.truth, self.state.machine_of(drive)
        switch = self.state.plan.machines.index(machine)
        armed, over = truth.armed.get(drive, 0), truth.over.get(drive, 0)
        assert 0 < armed < truth.asked, f"{drive} was not armed"
        assert switch in truth.offs, f"the power of {drive} did not go"
        assert not 0 < over < truth.asked, f"the run of {drive} was over"
        assert truth.seen.get(machine, 0) > truth.offs[switch], f"{machine} did not boot"
        assert machine not in truth.still, f"{machine} went on"

    def said(
        self,
        status: DriveStatus,
        *,
        machine: str,
        boot: str,
        of: str,
        speaker: Speaker,
        task: int,
        campaign: str,
    ) -> Task:
        """Anybody says something for a machine; runs are held against the store as the server does."""
        ours = self.task(machine)
        named = status.run and named_before(self.state, status.drive, status.run)
        if named:
            status = part("failed", drive=status.drive, trouble="agent", text=named)
        known = self.state.machines.get(machine)
        self.speaking = (of, speaker.client)
        itself = not speaker.is_server and self.bound.get(machine, self.speaking) == self.speaking
        new_boot = known is None or boot == known.boot_id or boot not in self.state.boots.get(machine, ())
        before = self.state.number
        fits = new_boot and (task, campaign) == (ours.number, ours.campaign)
        if itself and fits and any(one.drive.name == status.drive for one in ours.drives):
            if ours.kind == "run" and status.state == "armed" and status.run:
                self.truth.armed.setdefault(status.drive, before + 1)
            if (
                ours.kind == "run"
                and status.state in ("ended", "failed")
                and status.drive in self.truth.armed
            ):
                self.truth.over.setdefault(status.drive, before + 1)
            if ours.kind == "examine" and status.state == "done":
                assert status.condition is not None
                self.examined.setdefault(status.drive, status.condition.serial)
        answer = self.say(
            status, machine=machine, boot=boot, machine_id=of, speaker=speaker, task=task, campaign=campaign
        )
        if not new_boot or not itself:
            assert answer.number == 0, "a stranger got a task"
        return answer


class Lies(RuleBasedStateMachine):
    """Two machines with three drives."""

    def __init__(self) -> None:
        super().__init__()
        self.told = Heard()
        self.runs = 0
        self.verdicts: list[tuple[str, tuple[str, ...]]] = []  # the next ones
        self.dark: set[str] = set()  # machines without power

    @initialize(
        moment=st.sampled_from(sorted(USUAL)),
        check_only=st.booleans(),
        rounds=st.sampled_from([0, 8, 20, 30, 60]),
    )
    def begin(self, moment: str, check_only: bool, rounds: int) -> None:
        """It begins, and nothing goes wrong for a while."""
        self.moment = moment
        self._begin(0, check_only=check_only)
        self.go_on(rounds, lies=False)

    def _begin(self, file: int, *, check_only: bool) -> None:
        plan = told_settings(machines=("b", "c"), devices=DEVICES[file], moment=self.moment)
        self.told.begin(plan, check_only=check_only)

    @precondition(lambda self: self.told.state.state == "ended" and not self.told.state.has_cut)
    @rule(file=st.sampled_from([0, 0, 1]), check_only=st.booleans())
    def begin_again(self, file: int, check_only: bool) -> None:
        """The file is checked or begun again, perhaps with other devices."""
        self._begin(file, check_only=check_only)

    @rule(
        rounds=st.sampled_from([1, 2, 4, 8, 20]),
        lies=st.sampled_from([False, False, False, True]),
        machines=st.sampled_from(["bc", "bc", "bc", "b", ""]),
    )
    def go_on(self, rounds: int, lies: bool, machines: str = "bc") -> None:
        """These machines do what they are told, and the server takes its steps; a switch may lie."""
        for _ in range(rounds):
            for machine in machines:
                self._obey(machine)
            self._step(lies=lies)

    def _obey(self, machine: str) -> None:
        told = self.told
        if machine in self.dark:
            return
        task = told.task(machine)
        boot = f"boot-{told.boots[machine]}"
        mine: list[DriveStatus] = []
        for one in task.drives:
            drive = one.drive.name
            if task.kind == "run":
                if one.fresh:
                    assert told.examined.get(drive) == one.serial, f"{one.serial} is erased"
                known = told.state.cycle.runs.get(drive) if told.state.cycle is not None else None
                self.runs += known is None
                mine.append(part("armed", drive=drive, run=known or f"{self.runs:016x}"))
            else:
                counted = condition(one.drive.device, unsafe=4 + told.boots[machine])
                mine.append(part("done", drive=drive, run=one.run, found=counted))
        me = Speaker(client=f"client-{machine}")
        told.said(
            mine[0] if mine else part("working"),
            machine=machine,
            boot=boot,
            of=machine,
            speaker=me,
            task=task.number if mine else 0,
            campaign=task.campaign,
        )
        for status in mine[1:]:
            now = told.task(machine)
            if now.number == task.number:
                told.said(
                    status,
                    machine=machine,
                    boot=boot,
                    of=machine,
                    speaker=me,
                    task=task.number,
                    campaign=task.campaign,
                )

    def _step(self, *, lies: bool = False) -> None:
        told = self.told
        for step in told.steps():
            number = told.state.number
            match step:
                case Note(happening=happening) | WhenStill(happening=happening):
                    told.add(happening)
                    if isinstance(happening, PowerWentOff) and not lies:
                        cycle = told.state.cycle
                        assert cycle is not None
                        self.dark |= {told.state.plan.machines[switch] for switch in cycle.involved}
                case Ask(switch=switch, operation=operation):
                    machine = told.state.plan.machines[switch]
                    if operation == "on" and machine in self.dark:
                        told.boots[machine] += 1
                        self.dark.discard(machine)
                    told.add(PowerAsked(switch=switch, operation=operation))
                    told.add(self._answer(switch, operation))
                case LookUp(drive=drive, run=run):
                    verdict, reasons = self.verdicts.pop() if self.verdicts else USUAL[self.moment]
                    found = judged(drive, run, verdict, reasons=reasons)
                    told.add(told.state.verdict_entry(found))
                case WaitFor(seconds=seconds):
                    told.now_ns += int(min(seconds, 400.0) * 1e9)
            if told.state.number > number + 2:
                break

    def _answer(self, switch: int, operation: str) -> PowerAnswered:
        cycle = self.told.state.cycle
        assert cycle is not None
        going_off = cycle.phase == "off"
        return PowerAnswered(
            switch=switch,
            operation=operation,  # type: ignore[arg-type]
            outcome="off" if operation != "check" and going_off else "on",
            text="",
            began_ns=self.told.now_ns,
            ended_ns=self.told.now_ns,
        )

    @rule(
        verdict=st.sampled_from(["durable", "loss", "inconclusive", ""]),
        reasons=st.lists(st.sampled_from(REASONS), max_size=2, unique=True),
    )
    def judge(self, verdict: str, reasons: list[str]) -> None:
        """The next look for a verdict finds this one."""
        self.verdicts.append((verdict, tuple(reasons) if verdict == "inconclusive" else ()))

    @rule(
        machine=st.sampled_from(["b", "c"]),
        of=st.sampled_from(["itself", "itself", "another"]),
        client=st.sampled_from(["itself", "itself", "another", "server"]),
        boot=st.sampled_from(["this", "this", "earlier", "new"]),
        task=st.sampled_from(["this", "this", "this", "earlier", "none"]),
        campaign=st.sampled_from(["told", "told", "told", "another", ""]),
        drive=st.sampled_from(DRIVES),
        state=st.sampled_from(["working", "armed", "ended", "done", "failed"]),
        trouble=st.sampled_from(["", "", "missing", "in-use", "agent"]),
        run=st.sampled_from(["", "new", "new", "known", "another drive's"]),
    )
    def say(
        self,
        *,
        machine: str,
        of: str,
        client: str,
        boot: str,
        task: str,
        campaign: str,
        drive: str,
        state: str,
        trouble: str,
        run: str,
    ) -> None:
        """Anybody says anything."""
        told = self.told
        self.runs += run == "new"
        told.boots[machine] += boot == "new"
        known = told.state.cycle.runs if told.state.cycle is not None else {}
        runs = {
            "": "",
            "new": f"{self.runs:016x}",
            "known": known.get(drive, ""),
            "another drive's": next((one for other, one in known.items() if other != drive), ""),
        }
        number = told.task(machine).number
        told.said(
            part(
                state,  # type: ignore[arg-type]
                drive=drive,
                trouble=trouble if state == "failed" else "",  # type: ignore[arg-type]
                text="it is so",
                run=runs[run],
                found=condition("S9") if state == "done" else None,
            ),
            machine=machine,
            boot=f"boot-{max(1, told.boots[machine] - (boot == 'earlier'))}",
            of=machine if of == "itself" else "another",
            speaker=Speaker(
                client=f"client-{machine}" if client != "another" else "client-z",
                is_server=client == "server",
            ),
            task={"this": number, "earlier": max(0, number - 1), "none": 0}[task],
            campaign=campaign,
        )

    @rule(seconds=st.sampled_from([1.0, 130.0, 1000.0]), silent=st.booleans())
    def wait(self, seconds: float, silent: bool) -> None:
        """Time passes; perhaps no machine is heard."""
        steps = self.told.steps(later_s=seconds, silent_s=seconds if silent else 0.0)
        self.told.now_ns += int(seconds * 1e9)
        for step in steps:
            if isinstance(step, Note):
                self.told.add(step.happening)

    @rule(what=st.sampled_from(["pause", "stop", "resume", "resume", "resume"]))
    def steer(self, what: str) -> None:
        """An operator pauses, stops or resumes."""
        if self.told.state.state == "ended" or (what == "resume" and self.told.state.state != "paused"):
            return
        self.told.add(Resumed() if what == "resume" else PauseAsked(stop=what == "stop"))

    @invariant()
    def results_add_up(self) -> None:
        """Each cycle that ended is in one column, for each drive and arm."""
        if self.told.state.settings is None:
            return
        ended = Counter(mine.drive for one in self.told.ended_cycles for mine in one.drives)
        for result in results(self.told.state):
            (arm,) = result.arms
            clean = arm.tally.cuts - arm.tally.losses - arm.kept
            words = Counter(
                mine.word
                for one in self.told.ended_cycles
                for mine in one.drives
                if mine.drive == result.drive
            )
            assert (clean, arm.tally.losses, arm.kept, arm.left_out) == tuple(
                words[word] for word in ("durable", "loss", "kept", "nothing")
            )
            assert clean + arm.tally.losses + arm.kept + arm.left_out == ended[result.drive]
            assert len(result.left_out) == arm.left_out

    def teardown(self) -> None:
        """The log, read anew, says the same."""
        again = CampaignState()
        for entry in self.told.log:
            again.apply(entry_from_value(entry_to_value(entry)))
        assert vars(again) == vars(self.told.state)


TestLies = pytest.mark.slow(Lies.TestCase)
TestLies.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
)


@pytest.mark.slow
def test_an_honest_history_is_counted() -> None:
    """Machines that do what they are told get through the check and through cycles, which count."""
    lies = Lies()
    lies.begin("load", False, 400)
    words = Counter(mine.word for one in lies.told.ended_cycles for mine in one.drives)
    assert set(words) == {"durable"} and words.total() >= 9, words
