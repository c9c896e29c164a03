"""One cycle of a campaign as its log tells it: how far it is, what the switches answered, what the drives
did.

Built up entry by entry; the only place that knows which phase follows which. Refuses to decide what comes
next: `next_steps` does.

    examine   cycle 0 only: find the drives, ask the switches
    run       the agents make targets ready; the runs become armed
    load      all that can be is armed: the time to the cut goes on
    held      the writers get no credit: they use up what they have, then the time to the cut at idle goes on
    shutdown  the machines shut down in order
    off       the switches are asked to go off, and whether they are
    rest      there is no power
    on        the switches are asked to go on, and whether they are
    again     the power is back for a moment
    back      the machines boot; the runs are verified, or in cycle 0 the drives examined again
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
    """What a switch was asked last, and answered last to that, since the phase began. `boot_id`: of the
    server, when it answered. `done_ns`: when it said that it did what was asked, by the clock of the boot
    `done_boot_id` of the server; "" for not yet. `attempts`: its failures."""

    asked: Operation | None = None
    answered: PowerAnswered | None = None
    boot_id: str = ""
    done_ns: int = 0
    done_boot_id: str = ""
    attempts: int = 0

    @property
    def requested(self) -> bool:
        """Whether it took the request; whether it did what it says is to be seen."""
        return bool(self.done_boot_id)


@dataclass(slots=True)
class CycleState:
    """A cycle. `number`: of its first entry, which is that of its `run` task. `since`: the entry with
    which the phase began, or the operator let it go on. `statuses`: by drive and number of the task, the
    newest. `verified`: by drive, the status that ended its verify: what was done once is not done again.
    `runs`: by drive, the one that was armed, or had ended when it was heard of first; `armed`: the number
    of the entry that said that it is armed; `over`: of the first one after that which said that it ended.
    `found`: what the drive said of itself when its run was armed, `examined`: when this check examined it
    first. `repaired`: drives whose file system had to be repaired, as any of its statuses said.
    `seen`: by machine, the entry of its newest boot in this cycle, `starts`: those of all; `boots`: how many
    there were, since it was let go on. `machines`: those that take part; `power`: all switches, as in the
    settings.
    `involved`: the switches that are asked now: those of all that take part, in the check of those that
    it cuts together, or of a machine that did not come back. `offs_by_switch`: the numbers of each one's
    confirmed offs. `asked_on`: the requests to go on. `still_there`: by machine, what contradicts an off
    of its power. `revived`: the switches that were asked to go on since it was let go on, for a machine that
    fell silent after its power was back. `spared`: by machine, the number of the entry that lets it keep its
    power and verify although others lose theirs. `was_paused`: people may have switched meanwhile. `spent`:
    why none of its runs may begin any more, "" if they may."""

    began: CycleBegan
    number: int
    since: Entry
    phase: Phase
    switches: list[Switch]
    subject: CutSubject
    machines: tuple[str, ...]
    power: tuple[Power, ...]
    statuses: dict[tuple[str, int], DriveStatus] = field(default_factory=dict)
    verified: dict[str, DriveStatus] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)
    armed: dict[str, int] = field(default_factory=dict)
    found: dict[str, Condition | None] = field(default_factory=dict)
    examined: dict[str, Condition] = field(default_factory=dict)
    over: dict[str, int] = field(default_factory=dict)
    repaired: set[str] = field(default_factory=set)
    seen: dict[str, Entry] = field(default_factory=dict)
    starts: dict[str, list[Entry]] = field(default_factory=dict)
    boots: Counter[str] = field(default_factory=Counter)
    judged: dict[str, Judged] = field(default_factory=dict)
    due_s: float = 0.0
    first_asked: Entry | None = None  # of the present off
    touched_by: Entry | None = None  # the entry with which the power was touched first
    first_off: Entry | None = None  # the first confirmed off
    went_off: Entry | None = None  # the last confirmed off
    offs: int = 0
    abandoned: Abandoned | None = None
    power_failed: str = ""  # why the power did not go off
    stays_off: str = ""  # why the power does not come back
    still_there: dict[str, StillThere] = field(default_factory=dict)
    not_back: list[str] = field(default_factory=list)
    shutdown: int = 0  # the number of the task to shut down
    involved: tuple[int, ...] = ()
    offs_by_switch: dict[int, tuple[int, ...]] = field(default_factory=dict)
    asked_on: list[tuple[int, Entry]] = field(default_factory=list)  # with the switch
    settled: int = 0  # the number of the entry that let machines verify without a new boot, 0 for none
    went_on: set[str] = field(default_factory=set)  # machines that verify without one
    revived: set[int] = field(default_factory=set)
    spared: dict[str, int] = field(default_factory=dict)
    was_paused: bool = False
    spent: str = ""
    held: Entry | None = None  # with which the writers were held first

    def __post_init__(self) -> None:
        self.involved = self._to_go_off()

    @property
    def touched(self) -> int:
        """The number of the entry with which the power was touched first, 0 for not yet."""
        return self.touched_by.number if self.touched_by is not None else 0

    @property
    def is_check(self) -> bool:
        """Whether this is cycle 0."""
        return self.began.cycle == 0

    def cut_of(self, machine: str) -> bool:
        """Whether the machine's switches confirmed an off, and nothing contradicted it."""
        spared = machine in self.spared
        return self.went_off is not None and not spared and self.contradiction(machine) is None

    def contradiction(self, machine: str) -> StillThere | None:
        """What contradicts an off of the machine's switches: a machine that has one of them, or this machine,
        went on. One that is silent since may be kept from its start by its drive."""
        mine = set(self.switches_of(machine))
        for still in self.still_there.values():
            if mine & set(self.switches_of(still.machine)):
                return still
        restarted = self.has_started_since(machine, self.off_of(machine))
        went_on = machine in self.went_on and not restarted
        return next(iter(self.still_there.values()), None) if went_on else None

    def tries_of(self, machine: str) -> int:
        """How often the machine was switched off and on because one was not back, since it was let go on."""
        mine = set(self.switches_of(machine))
        return sum(bool(mine & set(self.switches_of(other))) for other in self.not_back)

    @property
    def off_again_due(self) -> bool:
        """Whether the power was off once, and is to go off once more while the machines boot."""
        return self.began.again_after_s is not None and self.offs == 1 and not self.settled

    def status(self, drive: str, task: int) -> DriveStatus | None:
        """What the agent said last of a drive's part of a task."""
        return self.statuses.get((drive, task))

    def was_armed_at_cut(self, drive: str) -> bool:
        """Whether the drive's run was armed when the power went."""
        return self.first_off is not None and 0 < self.armed.get(drive, 0) < self.first_off.number

    def restarted_before_cut(self, machine: str, drive: str) -> bool | None:
        """Whether the machine of a drive has restarted since the drive's run was armed, and before its power
        was off: then the run ended by that. None where nobody knows. It may restart just because its drive
        went."""
        armed = self.armed.get(drive, 0)
        early = [self._is_early(entry) for entry in self.starts.get(machine, ()) if entry.number > armed]
        return True if True in early else None if None in early else False

    def _is_early(self, seen: Entry) -> bool | None:
        """Whether the boot that an entry tells of began before the power went. None for one that began while
        the switches were asked, and for one whose time is that of another boot of the server."""
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
        """Whether the switches failed to cut the power: then the cycle counts no cut."""
        return bool(self.power_failed) and self.first_off is None

    def is_refused(self, drive: str) -> bool:
        """Whether the drive was ready for its run, which did not begin."""
        status = self.status(drive, self.number)
        return status is not None and status.trouble == "not-begun"

    def ended_before_cut(self, drive: str) -> bool:
        """Whether the drive's run was over before a switch was asked to go off."""
        return 0 < self.over.get(drive, 0) < self.touched

    def switches_of(self, machine: str) -> tuple[int, ...]:
        """The switches that a machine gets its power through."""
        return tuple(number for number, of in enumerate(self.power) if of.has(machine))

    @property
    def taking_part(self) -> tuple[int, ...]:
        """The switches of all machines that take part."""
        return tuple(sorted({number for machine in self.machines for number in self.switches_of(machine)}))

    @property
    def is_up_again(self) -> bool:
        """Whether all machines that were to shut down have started since: perhaps people use them."""
        return all(self.has_started_since(machine, self.shutdown) for machine in self.machines)

    def off_of(self, machine: str) -> int:
        """The number of the last confirmed off of the machine's power, 0 for none."""
        return max(self._offs(machine), default=0)

    def is_cut_later(self, machine: str) -> bool:
        """Whether the check has not come to the machine yet: it cuts machines that share no switch one after
        the other. Where two have each other's outlets, one goes on while its own is off."""
        return self.is_check and self.subject == "machine" and not self.settled and not self.off_of(machine)

    def _to_go_off(self) -> tuple[int, ...]:
        """The switches that go off next: of all machines that take part, so one without a drive to test goes
        off only if it shares one with those; in the check of one machine, and of those that share one with it
        or with those."""
        every = [set(self.switches_of(machine)) for machine in self.machines]
        later = [machine for machine in self.machines if self.is_cut_later(machine)]
        return self._with_shared(set(self.switches_of(later[0])) if later else set[int]().union(*every))

    def _with_shared(self, going: set[int]) -> tuple[int, ...]:
        """These switches, and those of all machines that share one with them or with those."""
        every = [set(self.switches_of(machine)) for machine in self.machines]
        while wider := set[int]().union(*(mine for mine in every if mine & going)) - going:
            going |= wider
        return tuple(sorted(going))

    def on_again(self, machine: str) -> Entry | None:
        """The first request to switch the machine on since the last confirmed off of its power, None before
        that."""
        off, mine = self.off_of(machine), self.switches_of(machine)
        asked = (entry for switch, entry in self.asked_on if switch in mine and entry.number > off)
        return next(asked, None)

    def has_started_since(self, machine: str, number: int) -> bool:
        """Whether a boot of the machine was heard first after the entry with that number."""
        seen = self.seen.get(machine)
        return seen is not None and seen.number > number

    def offs_of(self, machine: str) -> int:
        """How often the machine's power was confirmed to be off."""
        return len(self._offs(machine))

    def _offs(self, machine: str) -> set[int]:
        """The confirmed offs of all its switches: one of two supplies keeps a machine going."""
        offs = [set(self.offs_by_switch.get(switch, ())) for switch in self.switches_of(machine)]
        return set[int]().union(*offs).intersection(*offs)

    def loses_power(self, machine: str) -> bool:
        """Whether the switches that are asked now have all of the machine's power."""
        mine = self.switches_of(machine)
        return bool(mine) and set(mine) <= set(self.involved)

    def back_task(self, machine: str) -> int:
        """The number of the task with which a machine verifies, or is examined again; 0 while it is not back
        from its cut."""
        if self.off_again_due:
            return 0
        if machine in self.spared:
            return self.spared[machine]
        seen = self.seen.get(machine)
        after = self.off_of(machine)
        booted = seen.number if seen is not None and seen.number > after else 0
        return max(self.settled, booted) if self.settled or after else 0

    def back_status(self, drive: str, machine: str) -> DriveStatus | None:
        """What was said of a drive after the cut, None before that."""
        task = self.back_task(machine)
        return self.verified.get(drive) or (self.status(drive, task) if task else None)

    def started_anew(self, machine: str, drives: Iterable[str]) -> bool:
        """Whether the machine of `drives` has started since what this cycle needs of it was under way: a run
        that was armed, a shutdown, the request to switch off. A run that began now would overwrite what is to
        be verified."""
        seen = self.seen.get(machine)
        under_way = [self.armed[drive] for drive in drives if drive in self.armed]
        under_way += [number for number in (self.touched, self.shutdown) if number]
        return seen is not None and any(seen.number > number for number in under_way)

    def apply(self, entry: Entry) -> None:
        """Take in an entry that belongs to the cycle."""
        change = _CHANGES.get(type(entry.happening))
        if change is not None:
            change(self, entry, entry.happening)

    def retry(self, entry: Entry, *, to_end: bool) -> None:
        """After a pause, which `entry` ends: what failed is tried anew, and has its time again unless the
        campaign is only `to_end`. Verdicts are looked up anew, also losses, of which one by unreadable data
        alone may be withdrawn: people may have verified meanwhile. A run begins at most once for the number
        of its task, so runs that none was heard of yet have another number."""
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
        """The power goes all the same, since a machine that was shut down needs it to start. One that is up
        again keeps its own, if it shares no switch with those."""
        up = [one for one in self.machines if self.has_started_since(one, self.shutdown)]
        down = (self.switches_of(one) for one in self.machines if one not in up)
        self.involved = self._with_shared(set[int]().union(*down))
        self.spared = {one: entry.number for one in up if not set(self.switches_of(one)) & set(self.involved)}

    def _settle(self, entry: Entry) -> None:
        self.settled = self.settled or entry.number

    # What each happening changes.

    def _report(self, entry: Entry, report: DriveReported) -> None:
        status = report.status
        self.statuses[status.drive, report.task] = status
        if status.repaired:  # said once: a later status tells only of a later mount
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
            # This one may have found more than an earlier verify, or withdrawn its loss.
            self.judged.pop(status.drive, None)

    def _run_reported(self, entry: Entry, status: DriveStatus) -> None:
        """A run is of the drive for which it was named first: one run is never two cuts."""
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
        # What a server of an earlier release asked to go off must go on again.
        if asked.operation == "off" and asked.switch not in self.involved:
            self.involved = tuple(sorted((*self.involved, asked.switch)))
        self.switches[asked.switch].asked = asked.operation

    def _answered(self, entry: Entry, answered: PowerAnswered) -> None:
        switch = self.switches[answered.switch]
        if switch.asked != answered.operation:
            return  # it was asked in an earlier phase: "off" says nothing once it is to go on
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
        self.involved = self.switches_of(missing.machine)
        self._begin_off(entry)

    def _judged(self, _: Entry, judged: Judged) -> None:
        """One on an earlier run of the drive, which came too late, says nothing of this cycle."""
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
