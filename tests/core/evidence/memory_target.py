"""A target in memory, a scan of it by the book, and a case to judge it by, for the judges' tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from durability import limits
from durability.evidence.judge import Attestation, judge
from durability.evidence.judge import Found as FoundTarget
from durability.evidence.judgement import FindingClass, Judgement
from durability.evidence.name_oracle import MISSING, FoundNames, NameOracle
from durability.evidence.observation import PREFILL
from durability.evidence.outcome import Outcome, Requirements
from durability.evidence.proven_operations import ProvenOperations
from durability.evidence.scan_report import Apart, Example, ScanReport
from durability.evidence.slot_oracle import ExpectedFile, LogOracle, SlotOracle
from durability.evidence.verdict import Verdict
from durability.formats.case import CASE_SCHEMA, Case, Event, Look, PastVerdict, Receipt
from durability.formats.facts import Facts
from durability.formats.histogram import Histogram
from durability.formats.mixing import U64, Words
from durability.formats.plan import MAIN, Plan, parse_name
from durability.formats.record import SECTOR_WORDS, Stamper, superblock
from durability.formats.run_statistics import Conditions, DriveFlushes, Statistics
from durability.formats.versions import Versions
from tests.sample_facts import drive, facts

SECTOR = limits.SECTOR_BYTES
MS = 1_000_000
LAST_NS = 60_000 * MS  # when the server heard the last of a run
_NAMES_AT_A_TIME = 7
ENDLESS = ("append", "create")  # workloads of which seq k goes to slot k-1, for ever
MakePlan = Callable[..., Plan]


class Disk:
    """The files of a target, as they are after the cut."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.files: dict[str, bytearray] = {}
        self.versions = Versions(plan)
        self._stamper = Stamper(plan)
        main = bytearray(plan.main_bytes)
        self.files[MAIN] = main
        for offset in plan.superblock_offsets:
            main[offset : offset + limits.SUPERBLOCK_BYTES] = superblock(plan, offset)
        for extent in plan.extents():
            if extent.suffix != MAIN:
                self.files[extent.suffix] = bytearray(extent.end_bytes)
            for slot in range(extent.slots):
                self.put(extent.writer, slot, self.record(extent.writer, slot, 0))
        for writer in range(plan.writers):
            for slot in range(plan.prefilled_names):
                self.put(writer, slot, self.record(writer, slot, 0))

    def slot_of(self, writer: int, seq: int) -> int:
        """Where `seq` goes."""
        return int(self.versions.slots_of(writer, np.array([seq], dtype=U64))[0])

    def newest(self, writer: int, slot: int, frontier: int) -> int:
        """The newest version <= `frontier` of a slot."""
        return int(self.versions.newest(writer, np.array([slot], dtype=U64), frontier)[0])

    def record(self, writer: int, slot: int, seq: int) -> bytes:
        """The bytes of version `seq` of a slot."""
        _, offset, record_bytes = self.versions.place(writer, slot)
        out = np.empty((1, record_bytes // SECTOR, SECTOR_WORDS), dtype=U64)
        one = [np.array([number], dtype=U64) for number in (slot, seq, offset)]
        self._stamper.stamp(out, writer=writer, slots=one[0], seqs=one[1], offsets=one[2])
        return out.tobytes()

    def get(self, writer: int, slot: int) -> bytes:
        """What lies at the slot's place; short or empty past the end of the file."""
        suffix, offset, record_bytes = self.versions.place(writer, slot)
        return bytes(self.files.get(suffix, b"")[offset : offset + record_bytes])

    def put(self, writer: int, slot: int, data: bytes, sector: int = 0) -> None:
        """Lay `data` down in the slot from `sector` on; the file grows as needed."""
        suffix, offset, _ = self.versions.place(writer, slot)
        file = self.files.setdefault(suffix, bytearray())
        start = offset + sector * SECTOR
        file.extend(bytes(max(0, start + len(data) - len(file))))
        file[start : start + len(data)] = data

    def remove(self, writer: int, number: int) -> None:
        """Take a name, or a file of append, away; it need not be there."""
        self.files.pop(f".{writer}.{number}", None)

    def write(self, writer: int, *seqs: int) -> None:
        """Do these operations, each whole: write a version, make or remove a name."""
        workload, slots = self.plan.workload, self.plan.slots
        for seq in seqs:
            slot, turn = self.slot_of(writer, seq), (seq - 1) // slots
            if workload == "unlink" and turn % 2 == 0:
                self.remove(writer, slot)
                continue
            if workload == "create":
                self.remove(writer, slot - slots)
            if workload == "append" and slot % slots == 0:
                self.remove(writer, turn - 2)
            self.put(writer, slot, self.record(writer, slot, seq))

    def write_to(self, writer: int, frontier: int) -> None:
        """Write every version up to `frontier`."""
        self.write(writer, *range(1, frontier + 1))


@dataclass(kw_only=True)
class Found:
    """What a scan by the book found; counts are added up here as plainly as can be."""

    oracle: ProvenOperations
    judgements: list[Judgement] = field(default_factory=list)
    checked: int = 0
    finished: bool = True
    failure: str = ""
    unstable: int = 0
    control_lost: int = 0
    above_ceiling: int = 0

    @property
    def wrong(self) -> list[Judgement]:
        return [judgement for judgement in self.judgements if judgement.finding]

    @property
    def findings(self) -> Counter[FindingClass]:
        return Counter(judgement.finding for judgement in self.judgements if judgement.finding)

    @property
    def in_flight(self) -> int:
        return sum(len(self.oracle.in_flight_slots(writer)) for writer in range(self.oracle.plan.writers))

    @property
    def in_flight_damaged(self) -> int:
        return sum(judgement.in_flight_damaged for judgement in self.judgements)

    @property
    def order_violations(self) -> int:
        return sum(judgement.order_violation for judgement in self.judgements)

    @property
    def collateral(self) -> int:
        return sum(judgement.collateral for judgement in self.judgements)

    @property
    def oldest_lost(self) -> tuple[int | None, ...]:
        lost: list[int | None] = []
        for writer in range(self.oracle.plan.writers):
            seqs = [one.oldest_lost_seq for one in self.wrong if one.writer == writer]
            lost.append(min((seq for seq in seqs if seq is not None), default=None))
        return tuple(lost)

    @property
    def newest_lost(self) -> tuple[int | None, ...]:
        lost: list[int | None] = []
        for writer in range(self.oracle.plan.writers):
            seqs = [
                one.expected_seq
                for one in self.wrong
                if one.writer == writer and one.oldest_lost_seq is not None
            ]
            lost.append(max(seqs, default=None))
        return tuple(lost)

    @property
    def apart(self) -> Counter[tuple[Apart, FindingClass]]:
        apart: Counter[tuple[Apart, FindingClass]] = Counter()
        operations: set[tuple[int, int]] = set()
        for one in self.wrong:
            assert one.finding is not None
            if one.expected_seq == PREFILL:
                made = one.finding != "resurrected" and self.oracle.plan.workload != "create"
                apart["prefill" if made else "earlier name", one.finding] += 1
            elif self.oracle.plan.workload == "append" and one.finding == "resurrected":
                apart["file", one.finding] += 1
            elif (one.writer, one.expected_seq) in operations:
                apart["second name", one.finding] += 1
            operations.add((one.writer, one.expected_seq))
        return apart

    def report(self) -> ScanReport:
        """The same as a scan of the product reports it."""
        return ScanReport(
            finished=self.finished,
            failure=self.failure,
            checked=self.checked,
            in_flight=self.in_flight,
            in_flight_damaged=self.in_flight_damaged,
            findings=dict(self.findings),
            order_violations=self.order_violations,
            collateral=self.collateral,
            unstable=self.unstable,
            above_ceiling=self.above_ceiling,
            proven=self.oracle.proven,
            newest_seen=self.oracle.newest_seen,
            may_be_done=self.oracle.may_be_done,
            oldest_lost=self.oldest_lost,
            newest_lost=self.newest_lost,
            control_lost=self.control_lost,
            apart=dict(self.apart),
        )

    def examples(self) -> list[Example]:
        """Every finding, without its bytes."""
        return [
            Example(kind=judgement.finding, judgement=judgement, data=b"")
            for judgement in self.judgements
            if judgement.finding
        ]


def words(data: bytes) -> Words:
    """Bytes as the words that the oracle screens."""
    return np.frombuffer(data, dtype="<u8")


def scan(
    disk: Disk, acked: tuple[int, ...] | None, unreadable: dict[tuple[int, int], set[int]] | None = None
) -> Found:
    """Scan as `slot_oracle` or `name_oracle` says that it must be done; `unreadable`: sectors by
    (writer, slot)."""
    if disk.plan.contract.by_name:
        return _scan_names(disk, NameOracle(disk.plan, acked), unreadable or {})
    return _Scan(disk, acked, unreadable or {}).run()


def _scan_names(disk: Disk, oracle: NameOracle, bad: dict[tuple[int, int], set[int]]) -> Found:
    found = Found(oracle=oracle)
    names = [name for name in map(parse_name, disk.files) if name is not None]
    for name in names:
        if name.temporary or not oracle.logged:
            data = bytes(disk.files[name.suffix])
            oracle.survey(words(data[: len(data) // SECTOR * SECTOR]))
    found.above_ceiling = oracle.above_ceiling
    for writer in range(disk.plan.writers):
        listed = [name.number for name in names if name.writer == writer and not name.temporary]
        slots = oracle.slots_to_check(writer, np.array(listed, dtype=U64))
        for start in range(0, len(slots), _NAMES_AT_A_TIME):
            screened = oracle.screen(look_up(disk, writer, slots[start : start + _NAMES_AT_A_TIME], bad))
            found.checked += screened.checked
            found.judgements += oracle.judge_all(screened.wrong)
    found.judgements += oracle.judge_all(list(oracle.in_flight()))
    found.judgements.sort(key=lambda judgement: (judgement.writer, judgement.slot))
    found.above_ceiling += _above(found.judgements)
    return found


def look_up(disk: Disk, writer: int, slots: Words, bad: dict[tuple[int, int], set[int]]) -> FoundNames:
    """What the disk has under the names of `slots`; `bad`: unreadable sectors by (writer, slot)."""
    size = disk.plan.record_bytes
    files = [disk.files.get(f".{writer}.{slot}") for slot in slots]
    data = b"".join(bytes(file or b"")[:size].ljust(size, b"\xff") for file in files)
    return FoundNames(
        writer=writer,
        slots=slots,
        lengths=np.array([MISSING if file is None else len(file) for file in files], dtype=np.int64),
        words=words(data).reshape(len(slots), -1),
        unreadable={
            row: bad[writer, int(slot)] for row, slot in enumerate(slots) if (writer, int(slot)) in bad
        },
    )


def _above(judgements: Sequence[Judgement]) -> int:
    """How many slots show that the log is behind: what is only out of reach does if nothing is wrong."""
    wrong = any(one.finding for one in judgements)
    return sum(one.above_ceiling or (one.out_of_reach and not wrong) for one in judgements)


class _Scan:
    def __init__(
        self, disk: Disk, acked: tuple[int, ...] | None, bad: dict[tuple[int, int], set[int]]
    ) -> None:
        self.disk, self.plan, self.bad = disk, disk.plan, bad
        oracle = LogOracle if disk.plan.contract.layout == "log" else SlotOracle
        self.oracle = oracle(disk.plan, acked)
        self.judgements: dict[tuple[int, int], Judgement] = {}
        self.checked = 0

    def run(self) -> Found:
        if not self.oracle.logged:
            for file in self.disk.files.values():
                self.oracle.survey(words(bytes(file[: len(file) // SECTOR * SECTOR])))
        for writer in range(self.plan.writers):
            self.observe_in_flight(writer)
        for writer in range(self.plan.writers):
            for generation in _generations(self.disk, writer):
                self.screen(writer, generation)
        self.look_for_absent()
        for judgement in self.oracle.judge_all(list(self.oracle.in_flight())):
            self.judgements[judgement.writer, judgement.slot] = judgement
        judgements = [self.judgements[key] for key in sorted(self.judgements)]
        if isinstance(self.oracle, LogOracle):
            judgements += self.oracle.resurrected(self.disk.files)
        return Found(
            oracle=self.oracle,
            judgements=judgements,
            checked=self.checked,
            above_ceiling=_above(judgements),
        )

    def look(self, writer: int, slot: int) -> None:
        data = self.disk.get(writer, slot)
        seen = self.oracle.observe(writer, slot, data, self.bad.get((writer, slot), ()))
        self.oracle.prove_by(seen)
        self.judgements[writer, slot] = self.oracle.judge(seen)

    def observe_in_flight(self, writer: int) -> None:
        slots: list[int] = self.oracle.in_flight_slots(writer).tolist()
        present = {slot: self.disk.get(writer, slot) for slot in slots}
        whole = [
            slot
            for slot in slots
            if len(present[slot]) == self.plan.record_bytes and (writer, slot) not in self.bad
        ]
        odd = self.oracle.hold(
            writer, np.array(whole, dtype=U64), words(b"".join(present[slot] for slot in whole))
        )
        for slot in {whole[number] for number in odd} | set(slots) - set(whole):
            if present[slot] or (writer, slot) in self.bad:
                self.look(writer, slot)

    def screen(self, writer: int, generation: int) -> None:
        extent = self.plan.extent(writer, generation)
        data = bytes(self.disk.files.get(extent.suffix, b"")[extent.offset_bytes : extent.end_bytes])
        records = len(data) // self.plan.record_bytes
        self.checked += records
        found = self.oracle.screen(writer, extent.first_slot, words(data[: records * self.plan.record_bytes]))
        suspects = {extent.first_slot + int(number) for number in found}
        suspects |= {slot for other, slot in self.bad if other == writer}
        if len(data) % self.plan.record_bytes:
            suspects.add(extent.first_slot + records)
        for slot in sorted(suspects - set(self.oracle.in_flight_slots(writer).tolist())):
            self.look(writer, slot)

    def look_for_absent(self) -> None:
        files = [(writer, 0) for writer in range(self.plan.writers)]
        if isinstance(self.oracle, LogOracle):
            files = [(file.writer, file.generation) for file in self.oracle.files() if self.is_expected(file)]
        for writer, generation in files:
            size = len(self.disk.files.get(self.plan.extent(writer, generation).suffix, b""))
            for slot in self.oracle.absent_slots(writer, generation, size):
                self.look(writer, slot)

    def is_expected(self, file: ExpectedFile) -> bool:
        return file.min_bytes is not None or file.suffix in self.disk.files


def _generations(disk: Disk, writer: int) -> list[int]:
    if disk.plan.workload != "append":
        return [0]
    names = [name for name in map(parse_name, disk.files) if name is not None and not name.temporary]
    return sorted(name.number for name in names if name.writer == writer)


def after_power_loss() -> Facts:
    """The same target on the next boot, and a drive that has counted the cut."""
    return facts(boot="boot-2", uptime_s=30, drives=(drive(diskseq=1, unsafe_shutdowns=4),))


def make_case(plan: Plan, acked: tuple[int, ...], **changes: Any) -> Case:
    """A run that fell silent under load: one operation of every writer each millisecond until the end."""
    newest = max(acked, default=0)
    span = min(newest, 2000)
    receipts = [
        Receipt(
            at_ns=LAST_NS - back * MS,
            frontiers=tuple(max(0, frontier - back) // plan.group * plan.group for frontier in acked),
        )
        for back in range(span, -1, -1)
    ]
    fields: dict[str, Any] = {
        "schema": CASE_SCHEMA,
        "run": f"{plan.run:016x}",
        "label": "",
        "plan": plan.encode().hex(),
        "armed": facts(),
        "state": "armed",
        "session_end": "silence",
        "frontiers": acked,
        "grants": acked,
        "control": 0,
        "timeline": tuple(receipts),
        "last_receipt_ns": LAST_NS,
        "now_ns": LAST_NS + 120_000 * MS,
        "server_boot_id": "server-boot",
        "receipt_boot_id": "server-boot",
        "rtt_max_ns": MS // 2,
        "gap_max_ns": 51 * MS,
        "heartbeat_ns": 50 * MS,
        "events": (Event(at_ns=LAST_NS - 5000 * MS, wall="", kind="armed", text=""),),
        "tainted": "",
        "superseded_by": "",
        "verdicts": (),
        "series": (),
        "statistics": make_statistics(operations=acked, flushes={"sda": sum(acked)}),
    }
    return Case(**{**fields, **changes})


def make_look(found: Facts, **changes: Any) -> Look:
    """A verify of the plan's run 100 s after its last frame, which read a superblock, and in which nobody
    attested anything."""
    fields: dict[str, Any] = {
        "run": "0123456789abcdef",
        "at_ns": LAST_NS + 100_000 * MS,
        "boot_id": "server-boot",
        "wall": "2026-11-29T12:00:00.000Z",
        "facts": found,
        "answers": True,
        "attested": "",
        "cut_class": None,
    }
    return Look(**{**fields, **changes})


def apart(*given: PastVerdict) -> tuple[PastVerdict, ...]:
    """The verdicts on runs of which each ended in a cut of its own."""
    return tuple(replace(past, enumerations=(f"cut {number}",)) for number, past in enumerate(given))


def make_statistics(*, operations: tuple[int, ...], flushes: dict[str, int | None]) -> Statistics:
    """What a client said of ten seconds: a commit of 1 ms for each operation, flushes by drive."""
    latencies = Histogram()
    latencies.record(np.full(sum(operations), MS, dtype=np.uint64))
    return Statistics(
        elapsed_s=10.0,
        operations=operations,
        latency_ns={name: list(numbers) for name, numbers in latencies.to_value().items()},
        drives=tuple(DriveFlushes(name=name, flushes=count) for name, count in flushes.items()),
        conditions=Conditions(
            cpu_model="CPU", cpus=2, governor="powersave", load=0.5, busy_percent=40.0, steal_percent=1.25
        ),
    )


def judged(
    case: Case,
    plan: Plan,
    scanned: Found,
    *,
    now: Facts | None = None,
    superblock: Plan | None = None,
    attested: str | None = None,
    min_cuts: int = 1,
) -> Outcome:
    """The judge's outcome on what was scanned, after a power loss unless `now` says otherwise. `superblock`:
    the plan that both copies hold, that of the run unless given.
    """
    return judge(
        plan=plan,
        case=case,
        found=FoundTarget(facts=now or after_power_loss(), superblocks=(superblock or plan,) * 2),
        report=scanned.report(),
        examples=scanned.examples(),
        attestation=Attestation(text=attested),
        requirements=Requirements(min_cuts=min_cuts),
        duration_s=1.23456,
    )


def codes(verdict: Verdict) -> list[str]:
    """The verdict's reason codes."""
    return [reason.code for reason in verdict.reasons]


def with_case(case: Case, **changes: Any) -> Case:
    """The case with some fields changed."""
    return replace(case, **changes)


def small(make_plan: MakePlan, **changes: Any) -> Plan:
    """A plan of one writer with 64 slots of two sectors, eight operations of credit."""
    fields = {
        "writers": 1,
        "slots": 64,
        "credit": 8,
        "record_bytes": 1024,
        "block_bytes": 1024,
        "control_slots": 0,
        **changes,
    }
    if fields.get("workload") in ENDLESS:
        fields.setdefault("pattern", "sequential")
    return make_plan(**fields)
