"""What a scan has counted so far, and the few examples that it keeps whole.

Counts are exact however many findings there are; examples are the first and the last of each class, because
the first tell where it began and the last whether it ever ended. Nothing here judges.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

import numpy as np

from durability import limits
from durability.evidence.judgement import FindingClass, Judgement
from durability.evidence.observation import PREFILL, SUPERBLOCK_WRITER
from durability.evidence.record_rows import ROW_FINDINGS, JudgedRows
from durability.formats.plan import Plan

# Findings that are no lost operation of their own: a slot that no acknowledged operation had written; a copy
# of the superblock; a removed file of a log that is back; a name that is back, which arming had removed as an
# earlier run's; the second name of an operation that makes one and removes another, where both are wrong.
Apart: TypeAlias = Literal["prefill", "superblock", "file", "earlier name", "second name"]
UNREADABLE: Final[frozenset[FindingClass]] = frozenset({"unreadable"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One judged slot and the bytes that lay there (unreadable sectors as zeros). `kind`: class, or
    "unstable" or "in_flight_damaged"."""

    kind: str
    judgement: Judgement
    data: bytes

    @property
    def is_finding(self) -> bool:
        """Whether it was counted against the target."""
        return self.kind == self.judgement.finding


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanReport:
    """The outcome of a scan, or of as much of it as was done.

    `checked` counts slots. `proven`, `newest_seen` and `may_be_done` per writer as the oracles (`SlotOracle`,
    `NameOracle`) have them. `oldest_lost`: per writer the first acknowledged operation that is known to be
    lost, else None; `newest_lost` the last one. Both are of the findings that are `convicting`.
    `control_lost`: completed writes of the control arm that are not there.
    `failure` says why the scan ended before it was `finished`, for people. `apart`: the findings that are no
    lost operation of their own, by what they are of, and by class. `provisional`: the classes of findings
    that count only if the scan finished. `by_errors`: I/O errors of the drive may be all that is behind the
    findings, whatever their classes. `failed_reads`: a read failed, be it where anything is allowed.
    `is_seen`: an operation of the run is there, whole.
    """

    finished: bool
    failure: str
    checked: int
    in_flight: int
    in_flight_damaged: int
    findings: dict[FindingClass, int]
    order_violations: int
    collateral: int
    unstable: int
    above_ceiling: int
    proven: tuple[int, ...]
    newest_seen: tuple[int, ...]
    may_be_done: tuple[int, ...]
    oldest_lost: tuple[int | None, ...]
    newest_lost: tuple[int | None, ...]
    control_lost: int
    apart: dict[tuple[Apart, FindingClass], int]
    provisional: frozenset[FindingClass] = UNREADABLE
    by_errors: bool = False
    failed_reads: bool = False
    is_seen: bool = False

    @property
    def convicting(self) -> dict[FindingClass, int]:
        """The findings that count. Before a scan that did not finish, the drive may have gone away, so what
        was unreadable to it is set aside, and what the rest of the target may have explained."""
        counting = {name: count for name, count in self.findings.items() if self._counts(name)}
        for (kind, name), count in self.apart.items():
            if not self._counts(name) and self._counts(name, kind):
                counting[name] = counting.get(name, 0) + count
        return {name: count for name, count in counting.items() if count}

    @property
    def operations_lost(self) -> int:
        """How many acknowledged operations the target lacks: of each slot at most one, its newest."""
        apart = sum(count for (kind, name), count in self.apart.items() if self._counts(name, kind))
        return sum(self.convicting.values()) - apart

    @property
    def prefill_lost(self) -> int:
        """How many slots that no acknowledged operation had written lack what was there before."""
        return self._convicting_apart("prefill")

    @property
    def superblocks_lost(self) -> int:
        """How many copies of the superblock are lost."""
        return self._convicting_apart("superblock")

    @property
    def files_back(self) -> int:
        """How many removed files of a log are back."""
        return self._convicting_apart("file")

    @property
    def earlier_names_back(self) -> int:
        """How many names of an earlier run are back, which were removed for good before this one."""
        return self._convicting_apart("earlier name")

    @property
    def superblocks_wrong(self) -> int:
        """How many copies of the superblock are not as they were written, be they set aside."""
        return sum(count for (kind, _), count in self.apart.items() if kind == "superblock")

    def _convicting_apart(self, kind: Apart) -> int:
        """How many findings of this kind count."""
        return sum(
            count for (one, name), count in self.apart.items() if one == kind and self._counts(name, kind)
        )

    def _counts(self, name: FindingClass, kind: Apart | None = None) -> bool:
        """Whether findings of a class count, or those of them that are apart as `kind`. No operation writes a
        superblock, so the rest of the target explains nothing of it."""
        explainable = kind != "superblock" or name in UNREADABLE
        return self.finished or name not in self.provisional or not explainable


def empty_report(plan: Plan, *, failure: str = "") -> ScanReport:
    """The report of a scan that has read nothing, because of `failure`."""
    nothing = (0,) * plan.writers
    return replace(
        ScanCounts(plan).report(proven=nothing, newest_seen=nothing, may_be_done=nothing, finished=False),
        failure=failure,
    )


@dataclass(slots=True)
class ScanCounts:
    """Counts of a scan of a run's target, as it goes on. `provisional`: see `ScanReport`; it is set before
    the first finding."""

    plan: Plan
    provisional: frozenset[FindingClass] = UNREADABLE
    checked: int = 0
    in_flight: int = 0
    in_flight_damaged: int = 0
    order_violations: int = 0
    collateral: int = 0
    unstable: int = 0
    above_ceiling: int = 0
    out_of_reach: int = 0
    control_lost: int = 0
    findings: Counter[FindingClass] = field(default_factory=Counter)
    apart: Counter[tuple[Apart, FindingClass]] = field(default_factory=Counter)
    # By writer and seq, where one operation makes a name and removes another: the first finding of either.
    _of_operations: dict[tuple[int, int], FindingClass] = field(default_factory=dict)
    # By writer, the oldest and the newest lost operation; apart those of provisional findings.
    _lost: dict[int, tuple[int, int]] = field(default_factory=dict)
    _perhaps_lost: dict[int, tuple[int, int]] = field(default_factory=dict)

    def excuse(self, judgement: Judgement) -> None:
        """Count a slot that holds nothing wrong."""
        self.in_flight_damaged += judgement.in_flight_damaged
        self.above_ceiling += judgement.above_ceiling
        self.out_of_reach += judgement.out_of_reach

    def convict(self, judgement: Judgement) -> None:
        """Count a finding that was read twice."""
        assert judgement.finding is not None
        self.findings[judgement.finding] += 1
        self._set_apart(judgement, judgement.finding)
        self.order_violations += judgement.order_violation
        self.collateral += judgement.collateral
        self.excuse(judgement)
        if judgement.oldest_lost_seq is not None:
            lost = self._perhaps_lost if judgement.finding in self.provisional else self._lost
            _widen(lost, judgement.writer, judgement.oldest_lost_seq, judgement.expected_seq)

    def _set_apart(self, judgement: Judgement, finding: FindingClass) -> None:
        """Count a finding that is no lost operation of its own as such."""
        contract = self.plan.contract
        if judgement.writer == SUPERBLOCK_WRITER:
            self.apart["superblock", finding] += 1
        elif judgement.expected_seq == PREFILL:
            never_made = finding == "resurrected" or (contract.by_name and not contract.prefilled)
            self.apart["earlier name" if never_made else "prefill", finding] += 1
        elif contract.layout == "log" and finding == "resurrected":
            self.apart["file", finding] += 1
        elif contract.by_name and contract.endless:
            operation = judgement.writer, judgement.expected_seq
            first = self._of_operations.get(operation)
            if first is None:
                self._of_operations[operation] = finding
            else:  # a provisional one may be set aside, and then the other stands for the operation
                self.apart["second name", first if first in self.provisional else finding] += 1

    def count_rows(self, writer: int, rows: JudgedRows) -> None:
        """Count many slots of one writer; those with findings were read twice."""
        for number, name in enumerate(ROW_FINDINGS, start=1):
            of_class = rows.finding == number
            if count := int(np.count_nonzero(of_class)):
                self.findings[name] += count
            if prefill := int(np.count_nonzero(of_class & (rows.expected == PREFILL))):
                self.apart["prefill", name] += prefill
            lost = of_class & (rows.oldest_lost > 0)
            if lost.any():
                self.lose(writer, int(rows.oldest_lost[lost].min()), int(rows.expected[lost].max()), name)
        self.in_flight_damaged += int(np.count_nonzero(rows.in_flight_damaged))
        self.out_of_reach += int(np.count_nonzero(rows.out_of_reach))
        self.order_violations += int(np.count_nonzero(rows.order_violation))
        self.collateral += int(np.count_nonzero(rows.collateral))

    def lose(self, writer: int, oldest: int, newest: int, finding: FindingClass) -> None:
        """Note that operations of `writer` from `oldest` to `newest` on some slots are lost, by findings of
        this class."""
        _widen(self._perhaps_lost if finding in self.provisional else self._lost, writer, oldest, newest)

    def settle_out_of_reach(self, explained: int) -> None:
        """Count what is out of reach, now that all is judged: the log is behind if that explains all
        findings. `explained`: how many of them it does."""
        if explained == sum(self.findings.values()):
            self.above_ceiling += explained or self.out_of_reach

    def report(
        self,
        *,
        proven: tuple[int, ...],
        newest_seen: tuple[int, ...],
        may_be_done: tuple[int, ...],
        finished: bool,
    ) -> ScanReport:
        """The counts as they are now."""
        lost = dict(self._lost)
        for writer, (oldest, newest) in self._perhaps_lost.items() if finished else ():
            _widen(lost, writer, oldest, newest)
        ranges = [lost.get(writer, (None, None)) for writer in range(self.plan.writers)]
        return ScanReport(
            finished=finished,
            failure="",
            checked=self.checked,
            in_flight=self.in_flight,
            in_flight_damaged=self.in_flight_damaged,
            findings=dict(self.findings),
            order_violations=self.order_violations,
            collateral=self.collateral,
            unstable=self.unstable,
            above_ceiling=self.above_ceiling,
            proven=proven,
            newest_seen=newest_seen,
            may_be_done=may_be_done,
            oldest_lost=tuple(oldest for oldest, _ in ranges),
            newest_lost=tuple(newest for _, newest in ranges),
            control_lost=self.control_lost,
            apart=dict(self.apart),
            provisional=self.provisional,
        )


def _widen(ranges: dict[int, tuple[int, int]], writer: int, oldest: int, newest: int) -> None:
    """Let the range of `writer` take in all from `oldest` to `newest`."""
    first, last = ranges.get(writer, (oldest, newest))
    ranges[writer] = min(first, oldest), max(last, newest)


class Examples:
    """Keeps, of each kind, the first `EXAMPLES_FIRST` by handing them out at once, and the latest
    `EXAMPLES_LAST`; of either fewer where those would have more than `EXAMPLES_BYTES_MAX`."""

    def __init__(self, record_bytes: int) -> None:
        fitting = max(1, limits.EXAMPLES_BYTES_MAX // record_bytes)
        self._first, self._last = min(fitting, limits.EXAMPLES_FIRST), min(fitting, limits.EXAMPLES_LAST)
        self._seen: Counter[str] = Counter()
        self._latest: dict[str, deque[Callable[[], Example]]] = {}

    def add(self, example: Example) -> bool:
        """True if `example` is one of the first, which the caller keeps; else it is kept here while it is one
        of the latest."""
        return any(self.add_many(example.kind, 1, lambda _: lambda: example))

    def add_many(
        self, kind: str, count: int, make: Callable[[int], Callable[[], Example]]
    ) -> Iterator[Example]:
        """As `add`, of `count` examples of a kind: gives those that the caller keeps. `make(number)` is asked
        for few of them, and what it returns is called for those that are kept in the end."""
        first = min(count, max(0, self._first - self._seen[kind]))
        self._seen[kind] += count
        latest = self._latest.setdefault(kind, deque(maxlen=self._last))
        latest.extend(make(number) for number in range(max(first, count - self._last), count))
        for number in range(first):
            yield make(number)()

    def latest(self) -> Iterator[Example]:
        """The latest examples of every kind, beyond the first."""
        for kept in self._latest.values():
            yield from (make() for make in kept)
