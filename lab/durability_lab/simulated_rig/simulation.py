"""Rig A: a run, its power cut and `verify` in virtual time, thousands of times a minute.

The plan, the records, the drive model, the server's `Run`, the scan and every rule of evidence are the real
ones. Processes, the network and time are simulated (`virtual_time`). There is no socket and no sleep. A cut
is therefore a function of its scenario and its seed, which fit in a line of text. Every cut can be repeated:

    replay("seed=7 model=early-ack:delay_ms=10 writers=4 rate=500")

Only workloads for devices are possible: this rig has no file system. A drive has one request per writer at a
time, and serves the requests of several writers in parallel. No statistics reach the server. The rig returns
the tester's verdict and its comparison with the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import NoReturn

from durability import limits
from durability.evidence.identity import target_tag
from durability.evidence.judge import Attestation, Found, judge
from durability.evidence.judgement import Judgement
from durability.evidence.outcome import Outcome, Requirements
from durability.evidence.scan_report import Example, empty_report
from durability.formats import facts
from durability.formats.case import Case, PowerOff
from durability.formats.packing import Value
from durability.formats.plan import MAIN, Plan, largest_credit
from durability_client.run.planning import CONTROL_INTERVAL_US
from durability_client.target.drive_watch import LOOK_S
from durability_client.target.safety_checks import block_bytes
from durability_client.verify.scan.scan_base import ScanJob, ScanListener
from durability_client.verify.scan.scan_child import scan_here
from durability_client.verify.scan.target_reader import block_bytes_of, read_superblocks
from durability_lab.drive import faults
from durability_lab.drive.drive import HangingReadError, Model
from durability_lab.drive.drive_log import Broken, DriveLog
from durability_lab.simulated_rig.scenario import Scenario
from durability_lab.simulated_rig.simulated_storage import SimulatedStorage
from durability_lab.simulated_rig.virtual_time import (
    MS,
    SERVER_BOOT,
    Agenda,
    Chance,
    S,
    VirtualClient,
)
from durability_lab.truth.comparison import Claims, LogAlone, Truth, compare
from durability_lab.truth.reference_judge import ReferenceJudge
from durability_server.store.records import NO_RELATIONS

ATTESTATION = "the simulation cut the power of its drive"

_SETTLING_NS = 10 * S  # from prefill to the first record: delayed data of the prefill reach media
_AFTER_CUT_NS = round((3 + LOOK_S) * S)  # for silence, or the client's look at the drive, and a commit
_OUTAGE_NS = 30 * S  # time without power
_BOOT_NS = 20 * S
_CONTROL_SLOTS = 16
_SPARE_BYTES = 64 << 10  # size of the drive beyond the plan's target


@dataclass(frozen=True, slots=True, kw_only=True)
class CutResult:
    """One cut and the tester's answer. Results of the same scenario and seed are equal."""

    scenario: str
    seed: int
    exit_code: int  # of `verify --json`
    document: Mapping[str, Value]  # of `verify --json`
    cut_s: float  # virtual time from arming to the cut
    # Per writer, the newest operation:
    received: tuple[int, ...]  # whose acknowledgement reached the server
    proven: tuple[int, ...]  # that is proven to have been acknowledged (A')
    returned: tuple[int, ...]  # whose sync had returned successfully
    truth: Truth  # the comparison of the tester's claims with the truth

    @property
    def name(self) -> str:
        """The name from which `replay` repeats the cut."""
        return f"seed={self.seed} {self.scenario}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchedOff:
    """A power controller's log of the cut, in place of the operator's attestation."""

    asked_before_ns: int  # the switch was asked this long before the cut
    confirmed_after_ns: int  # the switch confirmed that it is off this long after the cut
    text: str


def replay(name: str) -> CutResult:
    """Repeat the cut of that name. Raises ValueError."""
    first, _, scenario = name.partition(" ")
    key, _, seed = first.partition("=")
    if key != "seed":
        raise ValueError(f"expected 'seed=NUMBER SCENARIO' as the name of a cut, found {name!r}")
    return simulate(Scenario.parse(scenario), seed=int(seed))


def simulate(scenario: Scenario, *, seed: int, switched_off: SwitchedOff | None = None) -> CutResult:
    """Prefill, run, cut, power on, verify. Raises ValueError for an impossible drive and PlanError for an
    impossible load."""
    return _Cut(scenario, seed, switched_off).go()


def run_number(scenario: Scenario, *, seed: int) -> int:
    """The run number of the cut with this scenario and seed."""
    return _plan(scenario, _plan_draw(seed)).run


class _Cut:
    """One cut, from an empty drive to the verdict."""

    def __init__(self, scenario: Scenario, seed: int, switched_off: SwitchedOff | None) -> None:
        self._scenario = scenario
        self._switched_off = switched_off
        self._seed = seed
        self._agenda = Agenda()
        self._draw = Random(f"{seed} cut").random
        draft = _plan(scenario, _plan_draw(seed))
        self._storage = VirtualStorage(
            faults.parse(scenario.model), seed, self._agenda, draft.main_bytes + _SPARE_BYTES
        )
        found = self._storage.facts()
        self._plan = replace(draft, target=target_tag(found), block_bytes=block_bytes(found, direct=True))
        chance = Chance(f"{seed} load", scenario.pace)
        self._client = VirtualClient(self._agenda, self._plan, self._storage, chance, self._on_return)
        low, high = scenario.operations
        self._cut_after: float = low + int(self._draw() * (high - low + 1))
        self._armed_ns = self._cut_ns = 0

    def go(self) -> CutResult:
        """Make the whole cut."""
        self._storage.lock(create=True)
        self._client.create()
        self._pass(_SETTLING_NS)
        self._armed_ns = self._agenda.now_ns
        if self._scenario.seconds != (0.0, 0.0):
            low, high = self._scenario.seconds
            self._cut_after = float("inf")
            self._agenda.after(int((low + self._draw() * (high - low)) * S), self._decide)
        self._client.start()
        while not self._cut_ns:
            self._agenda.step()
        self._pass(_AFTER_CUT_NS)
        self._client.server.watch()
        self._storage.unlock()
        self._pass(_OUTAGE_NS)
        self._storage.power_on()
        self._pass(_BOOT_NS)
        return self._examine()

    def _pass(self, ns: int) -> None:
        self._agenda.run(until_ns=self._agenda.now_ns + ns)

    def _on_return(self) -> None:
        if sum(self._client.returned) >= self._cut_after:
            self._cut_after = float("inf")
            self._agenda.after(int(self._draw() * self._scenario.commit_ns), self._decide)

    def _decide(self) -> None:
        """Schedule the cut now, or after the events that the scenario has before it."""
        before_ms = (self._scenario.idle_ms, self._scenario.partition_ms, self._scenario.error_ms)
        idle_ns, partition_ns, error_ns = (int(ms * MS) for ms in before_ms)
        last_ns = max(idle_ns, partition_ns, error_ns)
        if idle_ns:
            self._agenda.after(last_ns - idle_ns, self._client.rest)
        if partition_ns:
            self._agenda.after(last_ns - partition_ns, self._client.server.lose_network)
        if error_ns:
            self._agenda.after(last_ns - error_ns, self._storage.fail_once)
        self._agenda.after(last_ns, self._cut)

    def _cut(self) -> None:
        """Cut the power. The drive gets its unacknowledged writes first, so its model decides their fate."""
        drive = self._storage.open_bulk(MAIN)
        for record, offset in self._client.under_way():
            drive.pwrite(record, offset)
        self._storage.cut()
        self._cut_ns = self._agenda.now_ns
        if not self._scenario.survives:
            self._client.dead = True
            self._client.server.lose_network()
            self._storage.reboot()

    def _examine(self) -> CutResult:
        """Verify as `verify` does, but in this thread and without a deadline; compare with the truth."""
        plan, run, storage = self._plan, self._client.server.run, self._storage
        now = storage.facts()
        run.ended(self._agenda.now_ns)
        case = run.case(now_ns=self._agenda.now_ns, relations=NO_RELATIONS)
        if self._switched_off is not None:
            case = replace(case, power_offs=(self._power_off(self._switched_off),))
        outcome, findings = verify(case, plan, storage, now)
        promised, broken = storage.promises()
        claims = Claims.of_scan(findings, outcome.report)
        reference: ReferenceJudge | LogAlone
        try:
            reference = ReferenceJudge(plan, case.frontiers, storage, block_bytes=block_bytes_of(now))
        except HangingReadError:
            reference = LogAlone(plan=plan, acked=case.frontiers)
        return CutResult(
            scenario=str(self._scenario),
            seed=self._seed,
            exit_code=outcome.verdict.exit_code,
            document=outcome.document(),
            cut_s=(self._cut_ns - self._armed_ns) / S,
            received=case.frontiers,
            proven=outcome.report.proven,
            returned=tuple(self._client.returned),
            truth=compare(claims, reference, plan, broken, promised=promised),
        )

    def _power_off(self, said: SwitchedOff) -> PowerOff:
        return PowerOff(
            asked_ns=self._cut_ns - said.asked_before_ns,
            confirmed_ns=self._cut_ns + said.confirmed_after_ns,
            boot_id=SERVER_BOOT,
            subject="drive" if self._scenario.survives else "machine",
            cut_class="power",
            text=said.text,
        )


def verify(
    case: Case, plan: Plan, storage: SimulatedStorage, now: facts.Facts
) -> tuple[Outcome, list[Judgement]]:
    """The outcome of `verify` for the run of `case`, and each of its findings. The cut is attested by a power
    controller's log if there is one, otherwise by the operator."""
    try:
        superblocks, stalled = read_superblocks(storage, plan), ""
    except HangingReadError as error:
        superblocks, stalled = (), str(error)
    findings: list[Judgement] = []
    examples: list[Example] = []
    job = ScanJob(
        plan=plan, acked=case.frontiers, control_completed=case.control, block_bytes=block_bytes_of(now)
    )
    listener = ScanListener(
        tick=lambda: None, progress=lambda _: None, example=examples.append, finding=findings.append
    )
    report = empty_report(plan, failure=stalled) if stalled else scan_here(storage, job, listener)
    outcome = judge(
        plan=plan,
        case=case,
        found=Found(facts=now, superblocks=superblocks),
        report=report,
        examples=examples,
        attestation=Attestation(text=None if case.power_offs else ATTESTATION),
        requirements=Requirements(),
        duration_s=0.0,
    )
    return outcome, findings


class VirtualStorage(SimulatedStorage):
    """A simulated drive with a log, in a machine that exists in virtual time only."""

    def __init__(self, model: Model, seed: int, agenda: Agenda, size_bytes: int) -> None:
        self._drive_log = DriveLog()
        super().__init__(
            model,
            seed=seed,
            size_bytes=size_bytes,
            clock=agenda.seconds,
            drive_log=self._drive_log,
            hang=_never,
        )
        self._agenda = agenda
        self._boots = 1
        self._booted_ns = 0

    def promises(self) -> tuple[int, list[Broken]]:
        """The number of sectors with a promise, and the broken promises among them."""
        promises = self._drive_log.promises()
        return promises.sectors, promises.broken(self._drive.peek, self._drive.size_bytes)

    def reboot(self) -> None:
        """Start a new boot, which begins when the power is back after the outage."""
        self._boots += 1
        self._booted_ns = self._agenda.now_ns + _AFTER_CUT_NS + _OUTAGE_NS

    def host(self) -> facts.Host:
        """The simulated machine: a new boot id after each `reboot`, uptime in virtual time."""
        return facts.Host(
            machine_id="simulated-machine",
            boot_id=f"boot-{self._boots}",
            uptime_ns=self._agenda.now_ns - self._booted_ns,
            kernel="simulated",
            virtualisation="none",
            hostname="simulated",
        )


def _never() -> NoReturn:
    raise HangingReadError("a read of the drive never returns")


def _plan_draw(seed: int) -> Callable[[], float]:
    return Random(f"{seed} plan").random


def _plan(scenario: Scenario, draw: Callable[[], float]) -> Plan:
    """The plan, without the values that depend on the target's facts."""
    most = largest_credit(slots=scenario.slots, group=scenario.group)
    slots = _CONTROL_SLOTS if scenario.control else 0
    return Plan(
        run=1 + int(draw() * (1 << 53)),
        seed=1 + int(draw() * (1 << 53)),
        target=0,
        target_kind="device",
        workload=scenario.workload,
        pattern=scenario.pattern,
        record_bytes=scenario.record_bytes,
        writers=scenario.writers,
        slots=scenario.slots,
        group=scenario.group,
        credit=scenario.credit or most,
        sync=scenario.sync,
        direct=True,
        block_bytes=limits.SECTOR_BYTES,
        control_slots=slots,
        control_interval_us=CONTROL_INTERVAL_US if slots else 0,
    )
