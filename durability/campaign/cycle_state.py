"""State of one campaign cycle: its phase, the answers of the switches and the reports of the agents.

`CycleState.apply` takes in the log entry by entry. Only this module knows which phase follows which.
`next_steps` decides what to do next; this module does not.

    examine   cycle 0 only: agents find the drives, the server asks the switches
    run       agents make the targets ready; the runs become armed
    load      all runs that can be armed are armed; the time to the cut elapses
    held      writers get no new credit: they use up the rest, then the idle time to the cut elapses
    shutdown  the machines shut down cleanly
    off       the server asks the switches to go off, and whether they are off
    rest      the power is off
    on        the server asks the switches to go on, and whether they are on
    again     the power is on for a short time before the second cut
    back      the machines boot; agents verify the runs, or examine the drives again in cycle 0
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from durability.campaign.definition.settings import CutSubject, Power
from durability.campaign.log_entries import (
    Abandoned,
    CutDue,
    CycleBegan,
    DriveReported,
    Entry,
    Judged,
    MachineSeen,
    NotBack,
    Operation,
    PowerAnswered,
    PowerAsked,
    PowerCameBack,
    PowerFailed,
    PowerWentOff,
    ShutdownDue,
    StillThere,
    WritersHeld,
)
from durability.campaign.tasks import Condition, DriveStatus

Phase: TypeAlias = Literal["examine", "run", "load", "held", "shutdown", "off", "rest", "on", "again", "back"]


@dataclass(slots=True)
class Switch:
    """The last request to a switch and its last answer, both since the phase began."""

    asked: Operation | None = None  # the request that the switch has not answered yet
    answered: PowerAnswered | None = None
    boot_id: str = ""  # boot of the server that stored `answered`
    # When the switch said that it had switched, by the clock of the server's boot `done_boot_id`.
    done_ns: int = 0
    done_boot_id: str = ""  # "" until the switch says that it has switched
    attempts: int = 0  # failed requests

    @property
    def requested(self) -> bool:
        """Whether the switch accepted the request to switch. Only its state shows whether it switched."""
        return bool(self.done_boot_id)


@dataclass(slots=True)
class CycleState:
    """State of one cycle, built from the entries of the log. Fields that are dicts are by drive name unless
    their comment says otherwise."""

    began: CycleBegan
    number: int  # number of the task `run` (cycle 0: `examine`): that of the cycle's first entry, at first
    since: Entry  # the entry that began the phase, or that resumed the campaign in this phase
    phase: Phase
    switches: list[Switch]  # one for each switch in `power`
    subject: CutSubject
    machines: tuple[str, ...]  # machines that take part
    power: tuple[Power, ...]  # all switches, in the order of the settings
    statuses: dict[tuple[str, int], DriveStatus] = field(default_factory=dict)  # newest, by drive and task
    # The status with which a verify was done. A drive that has one is not verified again.
    verified: dict[str, DriveStatus] = field(default_factory=dict)
    # The run that was armed, or that had already ended in its first report.
    runs: dict[str, str] = field(default_factory=dict)
    armed: dict[str, int] = field(default_factory=dict)  # number of the entry that reported the run as armed
    found: dict[str, Condition | None] = field(default_factory=dict)  # condition when the run was armed
    examined: dict[str, Condition] = field(default_factory=dict)  # first condition that this check reported
    over: dict[str, int] = field(default_factory=dict)  # first entry that reported an armed run as over
    repaired: set[str] = field(default_factory=set)  # drives for which any status reported a repair
    seen: dict[str, Entry] = field(default_factory=dict)  # by machine, entry of its newest boot in this cycle
    starts: dict[str, list[Entry]] = field(default_factory=dict)  # by machine, entries of all its boots
    boots: Counter[str] = field(default_factory=Counter)  # by machine, boots since the last resume
    judged: dict[str, Judged] = field(default_factory=dict)
    due_s: float = 0.0  # length of the present phase, if the phase has one
    first_asked: Entry | None = None  # the entry that began the present phase `off`
    touched_by: Entry | None = None  # the entry that began the first phase `off`
    first_off: Entry | None = None  # the first confirmed off
    went_off: Entry | None = None  # the last confirmed off
    offs: int = 0  # confirmed offs
    abandoned: Abandoned | None = None
    power_failed: str = ""  # why the power did not go off
    stays_off: str = ""  # why the power does not come back
    # By machine, the entry that contradicts a confirmed off of its power.
    still_there: dict[str, StillThere] = field(default_factory=dict)
    # Machines that were not back, one item for each time that one was switched off and on since the last
    # resume.
    not_back: list[str] = field(default_factory=list)
    missed: set[str] = field(default_factory=set)  # all machines of this cycle that were once in `not_back`
    shutdown: int = 0  # number of the task `shutdown`, 0 for none
    # Switches that are asked now: those of all machines that take part, of the machines that the check cuts
    # together, or of a machine that did not come back.
    involved: tuple[int, ...] = ()
    offs_by_switch: dict[int, tuple[int, ...]] = field(default_factory=dict)  # entries of its confirmed offs
    asked_on: list[tuple[int, Entry]] = field(default_factory=list)  # requests to go on, each with its switch
    settled: int = 0  # number of the entry that let machines verify without a new boot, 0 for none
    went_on: set[str] = field(default_factory=set)  # machines that reported on the task `settled`
    # Switches that were asked to go on since the last resume because a machine fell silent with power back.
    revived: set[int] = field(default_factory=set)
    # By machine, the entry that lets it keep its power and verify although other machines lose theirs.
    spared: dict[str, int] = field(default_factory=dict)
    was_paused: bool = False  # people may have used the switches during a pause
    spent: str = ""  # why no run of this cycle may begin any more, "" if runs may begin
    held: Entry | None = None  # the first entry that held the writers

    def __post_init__(self) -> None:
        self.involved = self._to_go_off()

    @property
    def touched(self) -> int:
        """Number of the entry that began the first phase `off`, 0 before that."""
        return self.touched_by.number if self.touched_by is not None else 0

    @property
    def is_check(self) -> bool:
        """Whether this is cycle 0."""
        return self.began.cycle == 0

    def cut_of(self, machine: str) -> bool:
        """Whether the machine's power was cut: an off was confirmed, the machine was not spared, and no
        status contradicted the off."""
        spared = machine in self.spared
        return self.went_off is not None and not spared and self.contradiction(machine) is None

    def contradiction(self, machine: str) -> StillThere | None:
        """The entry that contradicts an off of the machine's switches, None if there is none. Either a
        machine with one of these switches kept running, or this machine verified without a restart while
        another kept running. A silent machine contradicts nothing: its drive may keep it from booting."""
        mine = set(self.switches_of(machine))
        for still in self.still_there.values():
            if mine & set(self.switches_of(still.machine)):
                return still
        restarted = self.has_started_since(machine, self.off_of(machine))
        went_on = machine in self.went_on and not restarted
        return next(iter(self.still_there.values()), None) if went_on else None

    def tries_of(self, machine: str) -> int:
        """How often the machine was switched off and on since the last resume because a machine on its
        switches was not back."""
        mine = set(self.switches_of(machine))
        return sum(bool(mine & set(self.switches_of(other))) for other in self.not_back)

    @property
    def off_again_due(self) -> bool:
        """Whether a second cut is due: the power was off once and goes off again while the machines boot."""
        return self.began.again_after_s is not None and self.offs == 1 and not self.settled

    def status(self, drive: str, task: int) -> DriveStatus | None:
        """The newest status of a drive for a task, None if the agent has not reported one."""
        return self.statuses.get((drive, task))

    def was_armed_at_cut(self, drive: str) -> bool:
        """Whether the drive's run was armed before the first off was confirmed."""
        return self.first_off is not None and 0 < self.armed.get(drive, 0) < self.first_off.number

    def restarted_before_cut(self, machine: str, drive: str) -> bool | None:
        """Whether the machine of a drive restarted after the drive's run was armed and before the power was
        off: such a restart ended the run. None if the order is unknown. A machine may also restart because
        its drive lost power."""
        armed = self.armed.get(drive, 0)
        early = [self._is_early(entry) for entry in self.starts.get(machine, ()) if entry.number > armed]
        return True if True in early else None if None in early else False

    def _is_early(self, seen: Entry) -> bool | None:
        """Whether the boot in this entry began before the power went off. None if the boot began while the
        switches were asked, or if its time is of another boot of the server."""
        boot, asked, off = seen.happening, self.touched_by, self.first_off
        if asked is None or off is None or seen.number < asked.number:
            return True
        assert isinstance(boot, MachineSeen)
        assert isinstance(off.happening, PowerWentOff)
        began_ns = seen.at_ns - boot.uptime_s * 1e9
        if seen.boot_id == asked.boot_id and began_ns < asked.at_ns:
            return True
        is_after = seen.boot_id == off.boot_id and began_ns >= off.happening.confirmed_ns
        return False if is_after else None

    @property
    def kept_power(self) -> bool:
        """Whether the switches failed to cut the power. Such a cycle counts no cut."""
        return bool(self.power_failed) and self.first_off is None

    def is_refused(self, drive: str) -> bool:
        """Whether the drive's run did not begin although the drive was ready."""
        status = self.status(drive, self.number)
        return status is not None and status.trouble == "not-begun"

    def ended_before_cut(self, drive: str) -> bool:
        """Whether the drive's run was over before a switch was asked to go off."""
        return 0 < self.over.get(drive, 0) < self.touched

    def switches_of(self, machine: str) -> tuple[int, ...]:
        """Numbers of the switches that feed a machine."""
        return tuple(number for number, of in enumerate(self.power) if of.has(machine))

    @property
    def taking_part(self) -> tuple[int, ...]:
        """Numbers of the switches of all machines that take part."""
        return tuple(sorted({number for machine in self.machines for number in self.switches_of(machine)}))

    @property
    def is_up_again(self) -> bool:
        """Whether all machines that were to shut down have started since then. People may be using them."""
        return all(self.has_started_since(machine, self.shutdown) for machine in self.machines)

    def off_of(self, machine: str) -> int:
        """Entry number of the last confirmed off of the machine's power, 0 for none."""
        return max(self._offs(machine), default=0)

    def is_cut_later(self, machine: str) -> bool:
        """Whether the check has still to cut this machine. The check cuts machines that share no switch one
        after the other. If the outlets of two machines are swapped, one machine runs on while its own switch
        is off, so the check finds the mistake."""
        return self.is_check and self.subject == "machine" and not self.settled and not self.off_of(machine)

    def _to_go_off(self) -> tuple[int, ...]:
        """The switches that go off next. In a cycle: those of all machines that take part, and of machines
        that share one with them. In the check: those of one machine, and of machines that share one with it,
        directly or through others."""
        every = [set(self.switches_of(machine)) for machine in self.machines]
        later = [machine for machine in self.machines if self.is_cut_later(machine)]
        return self._with_shared(set(self.switches_of(later[0])) if later else set[int]().union(*every))

    def _with_shared(self, going: set[int]) -> tuple[int, ...]:
        """These switches, and those of machines that take part and share one with them, directly or through
        others."""
        every = [set(self.switches_of(machine)) for machine in self.machines]
        while wider := set[int]().union(*(mine for mine in every if mine & going)) - going:
            going |= wider
        return tuple(sorted(going))

    def on_again(self, machine: str) -> Entry | None:
        """The first request to switch the machine on after the last confirmed off of its power. None before
        that request."""
        off, mine = self.off_of(machine), self.switches_of(machine)
        asked = (entry for switch, entry in self.asked_on if switch in mine and entry.number > off)
        return next(asked, None)

    def has_started_since(self, machine: str, number: int) -> bool:
        """Whether the machine's newest boot in this cycle was first heard after the entry `number`."""
        seen = self.seen.get(machine)
        return seen is not None and seen.number > number

    def offs_of(self, machine: str) -> int:
        """Number of times that the machine's power was confirmed to be off."""
        return len(self._offs(machine))

    def _offs(self, machine: str) -> set[int]:
        """Entry numbers of the offs that all switches of the machine confirmed: a machine with two supplies
        runs on one of them."""
        offs = [set(self.offs_by_switch.get(switch, ())) for switch in self.switches_of(machine)]
        return set[int]().union(*offs).intersection(*offs)

    def loses_power(self, machine: str) -> bool:
        """Whether the switches that are asked now include all switches of the machine."""
        mine = self.switches_of(machine)
        return bool(mine) and set(mine) <= set(self.involved)

    def back_task(self, machine: str) -> int:
        """Number of the task with which a machine verifies, or examines its drives again in the check. 0
        while the machine is not back from its cut."""
        if self.off_again_due:
            return 0
        if machine in self.spared:
            return self.spared[machine]
        seen = self.seen.get(machine)
        after = self.off_of(machine)
        booted = seen.number if seen is not None and seen.number > after else 0
        return max(self.settled, booted) if self.settled or after else 0

    def back_status(self, drive: str, machine: str) -> DriveStatus | None:
        """The status of a drive after the cut: the finished verify, else the newest one. None before that."""
        task = self.back_task(machine)
        return self.verified.get(drive) or (self.status(drive, task) if task else None)

    def started_anew(self, machine: str, drives: Iterable[str]) -> bool:
        """Whether the machine of `drives` has started since one of its runs was armed, since the shutdown, or
        since the request to switch off. A run that began now would overwrite the data to verify."""
        seen = self.seen.get(machine)
        under_way = [self.armed[drive] for drive in drives if drive in self.armed]
        under_way += [number for number in (self.touched, self.shutdown) if number]
        return seen is not None and any(seen.number > number for number in under_way)

    def apply(self, entry: Entry) -> None:
        """Apply an entry of the log to the cycle."""
        change = _CHANGES.get(type(entry.happening))
        if change is not None:
            change(self, entry, entry.happening)

    def retry(self, entry: Entry, *, to_end: bool) -> None:
        """Go on after a pause that `entry` ends. Failed steps are tried again, with their full time unless
        the campaign only goes on to end (`to_end`). Verdicts are looked up again, because people may have
        verified meanwhile; even a loss may be withdrawn if it came from unreadable data alone. An agent
        begins a run at most once for each task number. So the task gets a new number if no run is known yet
        and the campaign is not to end."""
        self.was_paused = True
        if self.phase == "run":
            ended = "a run had ended before the campaign was paused" if self.runs else ""
            self.spent = "the campaign is to end" if to_end else ended
            self.number = self.number if self.spent else entry.number
        self.judged.clear()
        self.switches = [Switch() for _ in self.switches]
        self.not_back.clear()
        self.boots.clear()
        self.stays_off = ""
        if not to_end:
            self.revived.clear()
            self.since = entry

    def _begin(self, phase: Phase, entry: Entry, due_s: float = 0.0) -> None:
        self.phase, self.since, self.due_s = phase, entry, due_s
        self.switches = [Switch() for _ in self.switches]
        self.first_asked = None

    def _begin_off(self, entry: Entry) -> None:
        self._begin("off", entry)
        self.first_asked = entry
        self.touched_by = self.touched_by or entry

    def _spare(self, entry: Entry) -> None:
        """Choose the machines that keep their power after a shutdown was abandoned. The others are still
        switched off, since a machine that was shut down needs its power back to start. A machine that is up
        again keeps its power if it shares no switch with those."""
        up = [one for one in self.machines if self.has_started_since(one, self.shutdown)]
        down = (self.switches_of(one) for one in self.machines if one not in up)
        self.involved = self._with_shared(set[int]().union(*down))
        self.spared = {one: entry.number for one in up if not set(self.switches_of(one)) & set(self.involved)}

    def _settle(self, entry: Entry) -> None:
        self.settled = self.settled or entry.number

    # One method for each kind of happening: how it changes the state.

    def _report(self, entry: Entry, report: DriveReported) -> None:
        status = report.status
        self.statuses[status.drive, report.task] = status
        if status.repaired:  # reported once: a later status is about a later mount
            self.repaired.add(status.drive)
        if report.what == "run":
            self.number = report.task  # servers of earlier releases kept it after a pause
            self._run_reported(entry, status)
        if report.what == "examine" and status.state == "done" and status.condition is not None:
            self.examined.setdefault(status.drive, status.condition)
        if self.settled and report.task == self.settled:
            self.went_on.add(report.machine)
        if report.what == "verify" and status.state in ("done", "failed"):
            if status.state == "done":
                self.verified.setdefault(status.drive, status)
            # This verify may have found more than an earlier one, or withdrawn its loss.
            self.judged.pop(status.drive, None)

    def _run_reported(self, entry: Entry, status: DriveStatus) -> None:
        """Note the run of a drive. A run belongs to the drive that first reported it, so that one run never
        counts as two cuts."""
        drive, state = status.drive, status.state
        if state in ("ended", "failed") and drive in self.armed:
            self.over.setdefault(drive, entry.number)
        others = [run for other, run in self.runs.items() if other != drive]
        if state not in ("armed", "ended") or not status.run or status.run in others:
            return
        self.runs.setdefault(drive, status.run)
        if state == "armed" and self.runs[drive] == status.run:
            self.armed.setdefault(drive, entry.number)
            self.found.setdefault(drive, status.condition)

    def _due(self, entry: Entry, due: CutDue) -> None:
        self._begin("load", entry, due.in_s)

    def _held(self, entry: Entry, held: WritersHeld) -> None:
        self._begin("held", entry, held.in_s)
        self.held = self.held or entry

    def _shutdown(self, entry: Entry, _: ShutdownDue) -> None:
        self._begin("shutdown", entry)
        self.shutdown = entry.number

    def _abandon(self, entry: Entry, abandoned: Abandoned) -> None:
        self.abandoned = abandoned
        if self.phase == "shutdown" and not self.is_up_again:
            self._spare(entry)
            return
        self._settle(entry)
        self._begin("back", entry)

    def _asked(self, entry: Entry, asked: PowerAsked) -> None:
        if asked.operation == "off" and self.phase != "off":
            self._begin_off(entry)
        elif asked.operation == "on" and self.phase == "rest":
            self._begin("on", entry)
        elif asked.operation == "on" and self.phase == "back":
            self.involved = self._with_shared({asked.switch})
            self.revived.update(self.involved)
            self._begin("on", entry)
        if asked.operation == "on":
            self.asked_on.append((asked.switch, entry))
        # A switch that a server of an earlier release asked to go off must be asked to go on again.
        if asked.operation == "off" and asked.switch not in self.involved:
            self.involved = tuple(sorted((*self.involved, asked.switch)))
        self.switches[asked.switch].asked = asked.operation

    def _answered(self, entry: Entry, answered: PowerAnswered) -> None:
        switch = self.switches[answered.switch]
        if switch.asked != answered.operation:
            return  # the answer belongs to an earlier phase: "off" means nothing once the request is "on"
        switch.asked, switch.answered, switch.boot_id = None, answered, entry.boot_id
        if answered.outcome == "failed":
            switch.attempts += 1
        elif answered.operation in ("on", "off"):
            switch.done_ns, switch.done_boot_id = answered.ended_ns, entry.boot_id

    def _went_off(self, entry: Entry, _: PowerWentOff) -> None:
        self.went_off = entry
        for switch in self.involved:
            self.offs_by_switch[switch] = (*self.offs_by_switch.get(switch, ()), entry.number)
        self.first_off = self.first_off or entry
        self.offs += 1
        self._begin("rest", entry, self.began.off_s)

    def _power_failed(self, entry: Entry, failed: PowerFailed) -> None:
        if failed.on:
            self.stays_off = failed.reason
        else:
            self.power_failed = failed.reason
            self._begin("on", entry)

    def _came_back(self, entry: Entry, _: PowerCameBack) -> None:
        if self.off_again_due and not self.power_failed:
            self._begin("again", entry, self.began.again_after_s or 0.0)
            return
        if self.power_failed or self.subject == "drive":
            self._settle(entry)
        self.involved = self._to_go_off()
        self._begin("back", entry)

    def _seen(self, entry: Entry, seen: MachineSeen) -> None:
        self.seen[seen.machine] = entry
        self.starts.setdefault(seen.machine, []).append(entry)
        self.boots[seen.machine] += 1

    def _still(self, entry: Entry, still: StillThere) -> None:
        self.still_there[still.machine] = still
        self._settle(entry)

    def _not_back(self, entry: Entry, missing: NotBack) -> None:
        self.not_back.append(missing.machine)
        self.missed.add(missing.machine)
        self.involved = self.switches_of(missing.machine)
        self._begin_off(entry)

    def _judged(self, _: Entry, judged: Judged) -> None:
        """Keep a verdict on the drive's run of this cycle. A late verdict on an earlier run is ignored."""
        if self.runs.get(judged.drive) == judged.run:
            self.judged[judged.drive] = judged


_CHANGES: dict[type, Callable[[CycleState, Entry, Any], None]] = {
    DriveReported: CycleState._report,
    CutDue: CycleState._due,
    WritersHeld: CycleState._held,
    ShutdownDue: CycleState._shutdown,
    Abandoned: CycleState._abandon,
    PowerAsked: CycleState._asked,
    PowerAnswered: CycleState._answered,
    PowerWentOff: CycleState._went_off,
    PowerFailed: CycleState._power_failed,
    PowerCameBack: CycleState._came_back,
    MachineSeen: CycleState._seen,
    StillThere: CycleState._still,
    NotBack: CycleState._not_back,
    Judged: CycleState._judged,
}
