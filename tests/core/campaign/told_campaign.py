"""A campaign whose log is told entry by entry: what agents say goes through the product's own ears, and all
else is said by the test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from durability.campaign.assignments import Speaker, answer_to, hear
from durability.campaign.campaign_state import CampaignState
from durability.campaign.definition.campaign_file import read_campaign
from durability.campaign.definition.settings import Settings
from durability.campaign.log_entries import (
    Began,
    Checked,
    CutDue,
    CycleEnded,
    Entry,
    Happening,
    Instant,
    Judged,
    Operation,
    PowerAnswered,
    PowerAsked,
    PowerCameBack,
    PowerWentOff,
)
from durability.campaign.next_steps import next_steps
from durability.campaign.server_time import ServerTime
from durability.campaign.steps import Ask, LookUp, Note, Step
from durability.campaign.tasks import Condition, DriveStatus, Status, Task, Trouble, WorkState

S = 1_000_000_000
RUN, OTHER_RUN = "00000000000000aa", "00000000000000bb"
B_ANEW = Speaker(client="client-b-anew")
NEW_YEAR = "2027-01-01T00:00:00Z"

_FILE = """
[campaign]
machines = [{machines}]
cuts = 9
cut_after_s = [5, 90]
boot_within_s = 120
{switches}
{drives}
{arms}
"""
_POWER = (
    '[[power]]\nmachine = "{machine}"\ntasmota = "192.0.2.{number}"\n'
    'cut_class = "power"\ncuts = "{subject}"\n'
)


def told_settings(
    *,
    name: str = "told",
    machines: tuple[str, ...] = ("b",),
    devices: tuple[str, ...] = ("/dev/sdb",),
    moment: str = "load",
    moments: tuple[str, ...] = (),
    subject: str = "machine",
) -> Settings:
    """Drives `d0`, `d1` … on `devices` of the machines, in turn; a switch for each machine. `moments`: those
    of several arms, in place of `moment`."""
    return read_campaign(
        _FILE.format(
            machines=", ".join(f'"{machine}"' for machine in machines),
            switches="".join(
                _POWER.format(machine=machine, number=number + 1, subject=subject)
                for number, machine in enumerate(machines)
            ),
            drives="".join(
                f'[[drive]]\nname = "d{number}"\nmachine = "{machines[number % len(machines)]}"\n'
                f'device = "{device}"\nfile_system = "ext4"\n'
                for number, device in enumerate(devices)
            ),
            arms="".join(
                f'[[arm]]\nname = "{number}"\nmoment = "{one}"\n'
                for number, one in enumerate(moments or (moment,))
            ),
        ),
        name=name,
        seed=1,
    )


def condition(
    serial: str = "S0",
    *,
    unsafe: int | None = 5,
    cycles: int | None = None,
    emulated: bool = False,
    diskseq: int = 1,
) -> Condition:
    """What a drive says of itself; `unsafe`: its count of unsafe shutdowns, `cycles` of power cycles."""
    return Condition(
        model="m",
        serial=serial,
        firmware="1",
        size_bytes=10**9,
        diskseq=diskseq,
        emulated=emulated,
        ready_s=None,
        power_cycles=cycles,
        unsafe_shutdowns=unsafe,
        media_errors=0,
        spare_percent=None,
        used_percent=None,
        backup_failed=None,
        capacitor_percent=None,
    )


def part(
    state: WorkState,
    *,
    drive: str = "d0",
    trouble: Trouble = "",
    text: str = "",
    run: str = "",
    found: Condition | None = None,
) -> DriveStatus:
    """How far a drive's part of a task is."""
    return DriveStatus(
        drive=drive,
        state=state,
        trouble=trouble,
        text=text,
        run=run,
        exit_code=None,
        condition=found,
        mount_s=None,
        repaired=False,
    )


class ToldCampaign:
    """A campaign, its log, and its clock, which goes on with each entry."""

    def __init__(self, *, software: str = "") -> None:
        self.state = CampaignState()
        self.software = software  # of the agents
        self.now_ns = S
        self.wall = NEW_YEAR
        self.booted_ns: dict[tuple[str, str], int] = {}

    def add(self, *happenings: Happening) -> None:
        """These happen, a second apart."""
        for happening in happenings:
            self.now_ns += S
            self.state.apply(
                Entry(
                    number=self.state.number + 1,
                    at_ns=self.now_ns,
                    boot_id="server",
                    wall=self.wall,
                    happening=happening,
                )
            )

    def begin(self, settings: Settings, *, check_only: bool = False) -> None:
        """It begins."""
        self.add(Began(settings=settings, check_only=check_only))

    def steps(
        self,
        *,
        later_s: float = 0.0,
        silent_s: float = 0.0,
        silent: Mapping[str, float] | None = None,
        up_s: float | None = None,
    ) -> list[Step]:
        """What is to be done next. `silent`: of each machine, in place of `silent_s` for all; `up_s`: for how
        long the server runs, None for all the time."""
        silent = silent or dict.fromkeys(self.state.plan.machines, silent_s)
        now_ns = self.now_ns + int(later_s * S)
        began_ns = now_ns - int(up_s * S) if up_s is not None else 0
        moment = ServerTime(now_ns=now_ns, boot_id="server", silent_s=silent, began_ns=began_ns)
        return next_steps(self.state, moment)

    def steps_after_looks(
        self, *, later_s: float = 0.0, silent_s: float = 0.0, silent: Mapping[str, float] | None = None
    ) -> list[Step]:
        """What is to be done next, after switches of machines that fell silent have said that they are on."""
        steps = self.steps(later_s=later_s, silent_s=silent_s, silent=silent)
        cycle = self.state.cycle
        looks = [step for step in steps if isinstance(step, Ask) and step.operation == "status"]
        if not looks or cycle is None or cycle.phase not in ("run", "back"):
            return steps
        self.now_ns += int(later_s * S)
        for look in looks:
            self.add(PowerAsked(switch=look.switch, operation="status"))
            self.add(self._answered(look.switch, "on"))
        return self.steps(silent_s=silent_s, silent=silent)

    def note(
        self, *, later_s: float = 0.0, silent_s: float = 0.0, silent: Mapping[str, float] | None = None
    ) -> Happening:
        """The next step is an entry: it is added. See `steps_after_looks`."""
        (step,) = self.steps_after_looks(later_s=later_s, silent_s=silent_s, silent=silent)
        assert isinstance(step, Note), step
        self.add(step.happening)
        return step.happening

    def say(
        self,
        *drives: DriveStatus,
        machine: str = "b",
        boot: str = "boot-1",
        machine_id: str = "",
        speaker: Speaker | None = None,
        task: int | None = None,
        campaign: str | None = None,
        up_s: float = 0.0,
        answered: int | None = None,
        virtualisation: str = "none",
    ) -> Task:
        """An agent says how far it is with its task, unless another one is named; the task that it gets.
        `up_s`: for how long its boot had been running when it said its first word. `answered`: None for the
        newest entry."""
        booted_ns = self.booted_ns.setdefault((machine, boot), self.now_ns - int(up_s * S))
        ours = self.task(machine)
        status = Status(
            boot_id=boot,
            machine_id=machine_id or machine,
            uptime_ns=self.now_ns - booted_ns,
            virtualisation=virtualisation,
            software=self.software,
            task=ours.number if task is None else task,
            drives=drives,
            campaign=ours.campaign if campaign is None else campaign,
        )
        me = speaker or Speaker(client=f"client-{machine}")
        if answered is None:
            answered = self.state.number
        me = replace(me, answered=answered)
        now = Instant(at_ns=self.now_ns, boot_id="server", wall=self.wall)
        self.add(*hear(self.state, machine, status, now, me))
        return answer_to(self.state, machine, status, me)

    def task(self, machine: str = "b") -> Task:
        """The task of the machine itself."""
        known = self.state.machines.get(machine)
        status = Status(
            boot_id=known.boot_id if known is not None else "boot-1",
            machine_id=machine,
            uptime_ns=1,
            virtualisation="none",
            software="",
            task=0,
            drives=(),
        )
        return answer_to(self.state, machine, status, Speaker(client=f"client-{machine}"))

    def cut(self, *switches: int) -> None:
        """These switches, or else all, go off, confirm it, and go on again."""
        asked = switches or tuple(range(len(self.state.plan.power)))
        self.add(*(PowerAsked(switch=switch, operation="off") for switch in asked))
        self.add(*(self._answered(switch, "off") for switch in asked))
        cycle = self.state.cycle
        assert cycle is not None
        runs = tuple(cycle.runs[drive] for drive in cycle.armed)
        self.add(PowerWentOff(asked_ns=1, confirmed_ns=2, runs=runs))
        self.add(*(PowerAsked(switch=switch, operation="on") for switch in asked))
        self.add(PowerCameBack())

    def answers_to_check(self) -> None:
        """Each switch says that it is on when the check begins."""
        for switch in range(len(self.state.plan.power)):
            self.add(PowerAsked(switch=switch, operation="check"))
            self.add(self._answered(switch, "on", operation="check"))

    def _answered(self, switch: int, outcome: str, *, operation: Operation = "status") -> PowerAnswered:
        return PowerAnswered(
            switch=switch,
            operation=operation,
            outcome="off" if outcome == "off" else "on",
            text="",
            began_ns=self.now_ns,
            ended_ns=self.now_ns,
        )

    def checked(self, *, found: Condition | None = None, boot: int = 1) -> Checked:
        """The check of one machine with one drive goes as it should; what it found. `boot`: that of the
        machine before the cut."""
        is_cut_alone = self.state.plan.subject == "drive"
        before, after = f"boot-{boot}", f"boot-{boot if is_cut_alone else boot + 1}"
        known = found or condition()
        unsafe = known.unsafe_shutdowns
        self.note()  # the cycle begins
        self.say(boot=before)
        self.say(part("done", found=known), boot=before)
        self.cut()
        self.say(boot=after)
        counted = replace(known, unsafe_shutdowns=None if unsafe is None else unsafe + 1)
        if is_cut_alone and known.diskseq is not None:
            counted = replace(counted, diskseq=known.diskseq + 1)
        self.say(part("done", found=counted), boot=after)
        found_out = self.note()
        assert isinstance(found_out, Checked)
        self.note()  # the cycle ends
        return found_out

    def judge(self, *, verdict: str, reasons: tuple[str, ...] = (), target_error: str = "") -> None:
        """The verdict on each run that is to be looked up."""
        looked_up = [step for step in self.steps() if isinstance(step, LookUp)]
        assert looked_up
        for step in looked_up:
            found = judged(step.drive, step.run, verdict, reasons=reasons, target_error=target_error)
            self.add(self.state.verdict_entry(found))

    def ended(self) -> CycleEnded:
        """The cycle ends; what it says."""
        over = self.note()
        assert isinstance(over, CycleEnded)
        return over


def judged(
    drive: str, run: str, verdict: str, *, reasons: tuple[str, ...] = (), target_error: str = ""
) -> Judged:
    """A verdict on a run."""
    return Judged(
        drive=drive,
        run=run,
        verdict=verdict,
        cut_class="power",
        reasons=reasons,
        at_risk_ms1000=0,
        commit_p50_us=None,
        commit_p99_us=None,
        target_error=target_error,
    )


def begun(**settings: object) -> ToldCampaign:
    """A campaign of which the check has passed, in its first cycle. Its machine is in its second boot."""
    told = ToldCampaign()
    told.begin(told_settings(**settings))  # type: ignore[arg-type]
    told.add(Checked(problems=()))
    told.note()
    for machine in told.state.plan.machines:
        told.say(machine=machine)
    return told


def cut_under_load(**settings: object) -> ToldCampaign:
    """A campaign whose first cut of one armed run is over; its machine boots."""
    told = begun(**settings)
    told.say(part("armed", run=RUN))
    assert isinstance(told.note(), CutDue)
    told.cut()
    return told


def with_check() -> ToldCampaign:
    """A campaign whose check has passed, and which then began."""
    told = ToldCampaign()
    told.begin(told_settings(), check_only=True)
    assert told.checked().problems == ()
    told.note()
    told.begin(told_settings())
    told.note()
    return told
