"""State of a campaign, built from its log: settings, state, present cycle and outcomes of earlier cycles.

The state depends only on the entries of the log, so it is the same after every restart of the server and on
every server of a store. An entry that does not follow the last one is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

from durability.campaign.cycle_state import CycleState, Switch
from durability.campaign.definition.settings import DriveUnderTest, Settings
from durability.campaign.log_entries import (
    Began,
    Checked,
    CycleBegan,
    CycleEnded,
    DriveCycle,
    DriveLeft,
    DriveReported,
    Ended,
    Entry,
    Happening,
    Judged,
    JudgedLate,
    MachineSeen,
    PauseAsked,
    Paused,
    PowerAnswered,
    PowerAsked,
    PowerCameBack,
    PowerWentOff,
    Resumed,
    StrangerHeard,
)
from durability.campaign.tasks import Condition, DriveStatus, Trouble
from durability.errors import FormatError, RefusedError
from durability.formats.case import PowerOff

State: TypeAlias = Literal["running", "paused", "ended"]
CHECK_HOLDS_DAYS = 30  # a check holds for so long: later, switches and drives may have been moved
_OF_RELEASE_0_1 = "durability 0.1."
_UNUSABLE: frozenset[Trouble] = frozenset({"unmountable", "not-made"})  # the file system must be made again


@dataclass(frozen=True, slots=True, kw_only=True)
class PastCycle:
    """A cycle that has ended."""

    began: CycleBegan
    drives: tuple[DriveCycle, ...]
    judged: dict[str, Judged]  # by drive
    statuses: dict[str, DriveStatus]  # by drive: the finished verify, else the status of its newest task
    wall: str  # when the cycle ended
    cut: frozenset[str] = frozenset()  # drives whose power was confirmed to be off, without a contradiction
    back: frozenset[str] = frozenset()  # drives with a status after the cut that is not "failed"
    refused: frozenset[str] = frozenset()  # drives whose run did not begin
    not_back: frozenset[str] = frozenset()  # machines that were switched off and on again to boot
    _by_drive: dict[str, DriveCycle] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # `of` is called for each drive of each cycle: there may be 64 drives and thousands of cycles.
        object.__setattr__(self, "_by_drive", {one.drive: one for one in self.drives})

    def of(self, drive: str) -> DriveCycle | None:
        """The outcome for a drive, None if the drive took no part."""
        return self._by_drive.get(drive)

    def with_loss(self, judged: Judged) -> PastCycle:
        """The cycle with a loss that was found after its end. The loss replaces the earlier outcome."""
        return replace(
            self,
            drives=tuple(
                replace(one, word="loss", cause=None, text="") if one.drive == judged.drive else one
                for one in self.drives
            ),
            judged={**self.judged, judged.drive: judged},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnjudgedRun:
    """A run whose cycle ended without a verdict on it."""

    cycle: int
    run: str


class CampaignState:
    """State of a campaign, built from its log entry by entry."""

    def __init__(self) -> None:
        self.settings: Settings | None = None
        self.check_only = True
        self.checked: Checked | None = None
        self.checked_at = ""  # wall clock
        self.checked_machines: dict[str, MachineSeen] = {}  # machines as the check found them first
        self.checked_before = False  # the check was made before the campaign began
        self.check_due = False  # the check must be made again after a long pause
        self.proven: dict[str, str] = {}  # by drive, the wall clock of its last passed check or cut
        self.conducted_in = ""  # boot of the server that began the campaign or last asked a switch
        self.strangers: dict[str, tuple[str, ...]] = {}  # by machine, why other agents are rejected
        self.state: State = "running"
        self.reason = ""
        self.asked: PauseAsked | None = None
        self.cycle: CycleState | None = None
        self.cycles: list[PastCycle] = []
        self.machines: dict[str, MachineSeen] = {}
        self.seen: dict[str, Entry] = {}  # by machine, the entry of its newest boot
        self.left: dict[str, str] = {}  # by drive that left, the reason
        self.conditions: dict[str, Condition] = {}  # by drive, its condition in the check
        self.boots: dict[str, set[str]] = {}  # by machine, all its boot ids so far
        self.unjudged: dict[str, UnjudgedRun] = {}  # by drive: its newest run, if a verdict on it is due
        # Drives whose unjudged run was looked up, each with the progress that `_with_run` told then.
        self.looked: frozenset[tuple[str, str]] = frozenset()
        self.just_looked: frozenset[str] = frozenset()  # runs looked up since the last entry of another kind
        self.lost: dict[str, int] = {}  # by drive, the cycle of the loss that was found first
        self.damaged: frozenset[str] = frozenset()  # drives whose file system must be made again
        self.afresh: frozenset[str] = frozenset()  # drives that had to begin afresh when this cycle began
        self.stays_off = ""  # why the power did not come back in the last cycle
        self.resumed = 0  # number of cycles that had ended at the last resume
        self.last: Entry | None = None

    @property
    def number(self) -> int:
        """Number of the last entry, 0 before the first."""
        return 0 if self.last is None else self.last.number

    @property
    def plan(self) -> Settings:
        """The settings. Only valid once the campaign or its check has begun."""
        assert self.settings is not None
        return self.settings

    @property
    def drives(self) -> tuple[DriveUnderTest, ...]:
        """The drives that still take part."""
        return tuple(drive for drive in self.plan.drives if drive.name not in self.left)

    @property
    def has_cut(self) -> bool:
        """Whether a cycle other than the check has begun."""
        under_way = self.cycle is not None and not self.cycle.is_check
        return under_way or any(past.began.cycle for past in self.cycles)

    def attested(self, happening: Happening, boot_id: str) -> tuple[tuple[str, PowerOff], ...]:
        """The runs that `PowerWentOff` ended, each with the attested cut (rule 11). () for other happenings.
        `boot_id`: boot of the server."""
        if not isinstance(happening, PowerWentOff) or self.cycle is None:
            return ()
        plan = self.plan
        switches = ", ".join(plan.power[switch].name for switch in self.cycle.involved)
        cycle = f"campaign {plan.name}, cycle {self.cycle.began.cycle}"
        off = PowerOff(
            asked_ns=happening.asked_ns,
            confirmed_ns=happening.confirmed_ns,
            boot_id=boot_id,
            subject=plan.subject,
            cut_class=plan.cut_class if plan.cut_class != "none" else "os",
            text=f"{cycle}: {switches} switched off and confirmed it",
        )
        return tuple((run, off) for run in happening.runs)

    def is_checked(self, settings: Settings, wall: str) -> bool:
        """Whether the last check passed with these settings, less than `CHECK_HOLDS_DAYS` before `wall`, and
        contains all values that later cycles are compared with."""
        return self._was_checked(settings, wall) and not self.check_says_less

    @property
    def check_says_less(self) -> bool:
        """Whether an agent of release 0.1 checked a device that is not empty. Such agents report the kind of
        content, but not its identity."""
        machines = self.checked_machines
        return any(
            drive.device
            and drive.machine in machines
            and machines[drive.machine].software.startswith(_OF_RELEASE_0_1)
            and drive.name in self.conditions
            and self.conditions[drive.name].holds
            for drive in self.plan.drives
        )

    @property
    def is_to_be_checked(self) -> bool:
        """Whether the check comes next. A check with less information, made before the campaign began, is
        made again before the first run."""
        says_less = self.checked_before and not self.has_cut and self.check_says_less
        return self.checked is None or self.check_due or says_less

    def _was_checked(self, settings: Settings, wall: str) -> bool:
        if self.checked is None or self.checked.problems or self.settings != settings:
            return False
        return _holds(self.checked_at, wall)

    def require_may_begin(self) -> None:
        """Raises RefusedError unless a campaign of this name may begin, or be checked."""
        if self.settings is None:
            return
        name = self.settings.name
        if self.state != "ended":
            raise RefusedError(
                "busy", f"campaign {name} is {self.state}: `durability campaign status {name}`"
            )
        if self.has_cut:
            raise RefusedError(
                "bad-request",
                f"campaign {name} is over ({self.reason}), and its log stays as it is: give the file another"
                " name, or set name in [campaign]",
            )

    def machine_of(self, drive: str) -> str:
        """The machine of a drive."""
        return next(one.machine for one in self.plan.drives if one.name == drive)

    def verdict_entry(self, judged: Judged) -> Judged | JudgedLate:
        """The entry for a verdict that was looked up: `JudgedLate` if its cycle has ended, else `Judged`."""
        known = self.unjudged.get(judged.drive)
        if known is None or known.run != judged.run:
            return judged
        return JudgedLate(cycle=known.cycle, judged=judged)

    def unjudged_to_look_up(self, drives: Iterable[str]) -> dict[str, str]:
        """The unjudged runs of `drives` to look up now, by drive. Each is looked up once before the drive's
        part of a cycle, since people may have verified it. It is looked up again once that part ended without
        a run, or once a run is reported: agents verify the earlier run first."""
        return {
            drive: self.unjudged[drive].run
            for drive in drives
            if drive in self.unjudged and self._with_run(drive) not in self.looked
        }

    def _with_run(self, drive: str) -> tuple[str, str]:
        """A drive with the progress of its part of this cycle: its run, else "over" if its part ended without
        a run, else ""."""
        if self.cycle is None:
            return drive, ""
        status = self.cycle.status(drive, self.cycle.number)
        is_over = status is not None and status.state != "working"
        return drive, self.cycle.runs.get(drive, "") or ("over" if is_over else "")

    def judged_cycles(self, drive: str) -> int:
        """Number of cycles with a result for a drive."""
        words = Counter(one.word for past in self.cycles if past.began.cycle and (one := past.of(drive)))
        return words.total() - words["nothing"]

    def begins_afresh(self, drive: DriveUnderTest) -> bool:
        """Whether the content of a device may be lost before its next run: the device is then erased, or its
        file system is made again. The check must have found the drive. Either this is its first run, or its
        file system did not mount, was not made or had to be repaired, and no run began afresh since. False
        for a run without a verdict: it is verified before the next run. A file system that does not mount may
        only lack a kernel module."""
        if drive.target or drive.name not in self.conditions or drive.name in self.unjudged:
            return False
        return drive.name in self.damaged or not self.has_run_on(drive)

    def has_run_on(self, drive: DriveUnderTest) -> bool:
        """Whether a run of an earlier cycle was begun on the drive."""
        runs = (mine.run for past in self.cycles if (mine := past.of(drive.name)) is not None)
        return any(runs)

    def apply(self, entry: Entry) -> None:
        """Apply the next entry. Raises FormatError if the entry is not the next, or does not fit the entries
        before it. In the second case the entry is `last`, and a part of it may have been applied."""
        if entry.number != self.number + 1:
            raise FormatError(f"entry {entry.number} of a campaign's log follows entry {self.number}")
        self.last = entry
        change = _CHANGES.get(type(entry.happening))
        try:
            if change is not None:
                change(self, entry, entry.happening)
            if self.cycle is not None:
                self.cycle.apply(entry)
            self._note_look(entry.happening)
        except (LookupError, AttributeError, AssertionError, ValueError) as error:
            raise FormatError(f"entry {entry.number} does not fit those before it: {error!r}") from error

    def _note_look(self, happening: Happening) -> None:
        match happening:
            case Judged(run=run) | JudgedLate(judged=Judged(run=run)):
                self.just_looked |= {run}
            case _:
                self.just_looked = frozenset()

    # One method for each kind of happening: how it changes the state.

    def _began(self, entry: Entry, began: Began) -> None:
        self.checked_before = not began.check_only and self._was_checked(began.settings, entry.wall)
        if not self.checked_before:
            self._forget_check()
        self.strangers.clear()
        self.check_due, self.conducted_in = False, entry.boot_id
        self.settings = began.settings
        self.check_only, self.state, self.reason, self.asked = began.check_only, "running", "", None

    def _forget_check(self) -> None:
        self.checked, self.checked_before = None, False
        self.conditions.clear()
        self.checked_machines.clear()
        self.proven.clear()
        self.cycles.clear()  # all of these are checks, perhaps of other drives
        self.resumed, self.stays_off = 0, ""

    def _begin_cycle(self, entry: Entry, cycle: CycleBegan) -> None:
        if not cycle.cycle:
            self._begin_check()
        self.looked = frozenset(one for one in self.looked if not one[1])
        self.cycle = CycleState(
            began=cycle,
            number=entry.number,
            since=entry,
            phase="run" if cycle.cycle else "examine",
            switches=[Switch() for _ in self.plan.power],
            subject=self.plan.subject,
            machines=tuple(
                machine
                for machine in self.plan.machines
                if any(self.machine_of(drive) == machine for drive in cycle.drives)
            ),
            power=self.plan.power,
        )
        self.afresh = frozenset(drive.name for drive in self.plan.drives if self.begins_afresh(drive))

    def _begin_check(self) -> None:
        """Forget an earlier check, which may have been broken off: people may have moved switches or drives
        since. Once a cycle has begun, drives and machines stay the same, so only the check is forgotten."""
        if self.has_cut:
            self.checked = None
        else:
            self._forget_check()
        self.check_due = False

    def _end_cycle(self, entry: Entry, over: CycleEnded) -> None:
        cycle = self.cycle
        if cycle is None:
            raise FormatError(f"entry {entry.number} of a campaign's log ends a cycle that has not begun")
        newest: dict[str, DriveStatus] = {}
        for (drive, _), status in sorted(cycle.statuses.items(), key=lambda item: item[0][1]):
            newest[drive] = status
        cut = frozenset(one for one in cycle.began.drives if cycle.cut_of(self.machine_of(one)))
        self.cycles.append(
            PastCycle(
                began=cycle.began,
                drives=over.drives,
                judged=dict(cycle.judged),
                statuses=_with_repairs(cycle, {**newest, **cycle.verified}),
                wall=entry.wall,
                cut=cut,
                back=frozenset(drive for drive in cycle.began.drives if self._is_back(cycle, drive)),
                refused=frozenset(drive for drive in cycle.began.drives if cycle.is_refused(drive)),
                not_back=frozenset(cycle.missed),
            )
        )
        self._prove(
            (one.drive for one in over.drives if one.drive in cut and one.cause != "not-a-cut"), entry
        )
        self._note_losses(over.cycle, (one.drive for one in over.drives if one.word == "loss"))
        self.stays_off = cycle.stays_off
        self.cycle = None
        self._keep_unjudged(cycle, over)
        self._note_damage(cycle, over)

    def _keep_unjudged(self, cycle: CycleState, over: CycleEnded) -> None:
        """Note the runs of this cycle without a verdict. A drive that missed this cycle keeps its earlier
        unjudged run. A run that was not armed cannot get a verdict, so it is not noted. Runs of this cycle
        count as looked up only if their look-up was just now: verifying another drive may take hours."""
        runs = {one.drive: one for one in over.drives if one.run}
        self.unjudged = {drive: known for drive, known in self.unjudged.items() if drive not in runs}
        for drive, one in runs.items():
            judged = cycle.judged.get(drive)
            if one.word == "nothing" and (judged is None or _is_due(judged)):
                self.unjudged[drive] = UnjudgedRun(cycle=over.cycle, run=one.run)
        self.looked = frozenset(
            self._with_run(drive) for drive, one in runs.items() if one.run in self.just_looked
        )

    def _note_damage(self, cycle: CycleState, over: CycleEnded) -> None:
        """Note which file systems must be made again. A run that began afresh has made one. That is certain
        only if the drive had to begin afresh when the cycle began: an agent does not notice a task that
        changes but keeps its number."""
        if cycle.is_check:
            return
        anew = {one.drive for one in over.drives if one.run and one.drive in self.afresh}
        unusable = {drive for (drive, _), said in cycle.statuses.items() if said.trouble in _UNUSABLE}
        self.damaged = (self.damaged - anew) | unusable | cycle.repaired

    def _judge_late(self, _: Entry, late: JudgedLate) -> None:
        """Apply a late verdict. Only a loss changes the cycle: for other verdicts the drive came back too
        late."""
        drive = late.judged.drive
        self.looked |= {self._with_run(drive)}
        if not _is_due(late.judged):
            self.unjudged = {other: known for other, known in self.unjudged.items() if other != drive}
        if late.judged.verdict == "loss":
            self.cycles = [
                past.with_loss(late.judged) if past.began.cycle == late.cycle else past
                for past in self.cycles
            ]
            self._note_losses(late.cycle, [drive])

    def _note_losses(self, cycle: int, drives: Iterable[str]) -> None:
        self.lost = {**dict.fromkeys(drives, cycle), **self.lost}  # a new mapping, as in `_prove`

    def _is_back(self, cycle: CycleState, drive: str) -> bool:
        status = cycle.back_status(drive, self.machine_of(drive))
        return status is not None and status.state != "failed"

    def _prove(self, drives: Iterable[str], entry: Entry) -> None:
        # A new mapping, because `acceptance` ends the present cycle in a shallow copy of the state.
        self.proven = {**self.proven, **dict.fromkeys(drives, entry.wall)}

    def _checked(self, entry: Entry, checked: Checked) -> None:
        self.checked = checked
        if not self.has_cut:
            self.checked_at = entry.wall
        if not checked.problems:
            self._prove((drive.name for drive in self.drives), entry)

    def _leave(self, _: Entry, left: DriveLeft) -> None:
        self.left[left.drive] = left.reason

    def _ask(self, entry: Entry, asked: PauseAsked) -> None:
        """Note a request to pause or stop. In a pause, a request to pause changes nothing. A request to stop
        resumes the campaign, so that the cycle ends cleanly first."""
        if self.state == "running":
            self.asked = self.asked if self.asked is not None and self.asked.stop else asked
        elif self.state == "paused" and asked.stop:
            self.asked = asked
            self._go_on(entry, to_end=True)

    def _pause(self, _: Entry, paused: Paused) -> None:
        self.state, self.reason, self.asked = "paused", paused.reason, None

    def _resume(self, entry: Entry, _: Resumed) -> None:
        """End a pause, or withdraw a request to pause."""
        if self.state == "paused":
            self.check_due = self.check_due or self._must_check(entry.wall)
            self._go_on(entry, to_end=False)
            self.resumed = len(self.cycles)
        elif self.asked is not None and not self.asked.stop:
            self.asked = None

    def _must_check(self, wall: str) -> bool:
        """Whether the check must be made again after a pause: it is missing or failed, or for some drive both
        the check and the last cut are too old. Then switches and drives may have been moved."""
        if self.checked is None or self.checked.problems:
            return True
        return not all(_holds(self.proven.get(drive.name, self.checked_at), wall) for drive in self.drives)

    def _go_on(self, entry: Entry, *, to_end: bool) -> None:
        self.state, self.reason, self.looked = "running", "", frozenset()
        if self.cycle is not None:
            self.cycle.retry(entry, to_end=to_end)

    def _ask_switch(self, entry: Entry, _: PowerAsked | PowerAnswered) -> None:
        self.conducted_in = entry.boot_id

    def _end(self, _: Entry, ended: Ended) -> None:
        self.state, self.reason, self.asked = "ended", ended.reason, None

    def _see(self, entry: Entry, seen: MachineSeen) -> None:
        """Note a boot of a machine. Verdicts on its drives are looked up again, since its agent may have
        verified an earlier run before the restart."""
        if self.cycle is not None and self.cycle.phase == "run":
            mine = {drive.name for drive in self.plan.drives_of(seen.machine)}
            self.looked = frozenset(one for one in self.looked if one[0] not in mine)
        self.strangers.pop(seen.machine, None)
        self.machines[seen.machine] = seen
        self.seen[seen.machine] = entry
        self.boots.setdefault(seen.machine, set()).add(seen.boot_id)

    def _turn_away(self, _: Entry, stranger: StrangerHeard) -> None:
        self.strangers[stranger.machine] = (*self.strangers.get(stranger.machine, ()), stranger.text)

    def _come_back(self, _: Entry, __: PowerCameBack) -> None:
        """Forget rejected agents: only agents that are heard from now on may explain a silent machine."""
        self.strangers.clear()

    def _report(self, _: Entry, report: DriveReported) -> None:
        """Note a report. The first report of an examination binds the machine: another machine must not
        continue the check."""
        self.strangers.pop(report.machine, None)
        status = report.status
        if report.what != "examine":
            return
        if report.machine in self.machines:
            self.checked_machines.setdefault(report.machine, self.machines[report.machine])
        if status.state == "done" and status.condition is not None:
            self.conditions.setdefault(status.drive, status.condition)


_CHANGES: dict[type, Callable[[CampaignState, Entry, Any], None]] = {
    Began: CampaignState._began,
    CycleBegan: CampaignState._begin_cycle,
    CycleEnded: CampaignState._end_cycle,
    JudgedLate: CampaignState._judge_late,
    Checked: CampaignState._checked,
    DriveLeft: CampaignState._leave,
    PauseAsked: CampaignState._ask,
    Paused: CampaignState._pause,
    Resumed: CampaignState._resume,
    Ended: CampaignState._end,
    MachineSeen: CampaignState._see,
    StrangerHeard: CampaignState._turn_away,
    PowerAsked: CampaignState._ask_switch,
    PowerAnswered: CampaignState._ask_switch,
    PowerCameBack: CampaignState._come_back,
    DriveReported: CampaignState._report,
}


def _is_due(judged: Judged) -> bool:
    """Whether a verdict may still come: the run was armed and has none."""
    return judged.armed and not judged.verdict


def _with_repairs(cycle: CycleState, statuses: dict[str, DriveStatus]) -> dict[str, DriveStatus]:
    """The statuses, marked as repaired if another status in the cycle reported a repair, for example one from
    before the run."""
    return {**statuses, **{drive: replace(statuses[drive], repaired=True) for drive in cycle.repaired}}


def _holds(since: str, wall: str) -> bool:
    """Whether a check or cut at the time `since` still holds at the time `wall`."""
    age = datetime.fromisoformat(wall) - datetime.fromisoformat(since)
    return age < timedelta(days=CHECK_HOLDS_DAYS)
