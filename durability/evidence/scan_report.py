"""Counts of a scan so far, and the few examples that are stored whole.

Counts are exact, however many findings there are. Examples are the first and the last of each kind. The first
show where the damage began; the last show whether it ever ended. Nothing here judges.
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

# Findings that are not counted as a lost operation:
# - prefill: a slot that no acknowledged operation had written
# - superblock: a copy of the superblock
# - file: a removed file of a log that is back
# - earlier name: a name of an earlier run, removed at arming, that is back; or one that no operation has made
# - second name: of an operation that makes one name and removes another, where both names are wrong
Apart: TypeAlias = Literal["prefill", "superblock", "file", "earlier name", "second name"]
UNREADABLE: Final[frozenset[FindingClass]] = frozenset({"unreadable"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One judged slot and its bytes on the target (unreadable sectors as zeros)."""

    kind: str  # class of the finding, "unstable" or "in_flight_damaged"
    judgement: Judgement
    data: bytes

    @property
    def is_finding(self) -> bool:
        """Whether this example was counted as a finding against the target."""
        return self.kind == self.judgement.finding


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanReport:
    """The outcome of a scan, or of the part of it that was done."""

    finished: bool
    failure: str  # why the scan ended before it was `finished`, for people
    checked: int  # number of slots that were checked
    in_flight: int
    in_flight_damaged: int
    findings: dict[FindingClass, int]
    order_violations: int
    collateral: int
    unstable: int
    above_ceiling: int
    proven: tuple[int, ...]  # per writer, see `ProvenOperations.proven`
    newest_seen: tuple[int, ...]  # per writer, see `ProvenOperations.newest_seen`
    may_be_done: tuple[int, ...]  # per writer, see `ProvenOperations.may_be_done`
    # Per writer, the first acknowledged operation known to be lost, else None; only from findings that are
    # `convicting`.
    oldest_lost: tuple[int | None, ...]
    newest_lost: tuple[int | None, ...]  # the last such operation
    control_lost: int  # completed writes of the control arm that are gone
    # Findings that are not counted as a lost operation, by kind and class.
    apart: dict[tuple[Apart, FindingClass], int]
    # Classes of findings that count only if the scan finished.
    provisional: frozenset[FindingClass] = UNREADABLE
    # I/O errors of the drive may be the cause of all findings, whatever their classes.
    by_errors: bool = False
    failed_reads: bool = False  # a read failed, even where any content is allowed
    is_seen: bool = False  # a whole operation of the run is on the target

    @property
    def convicting(self) -> dict[FindingClass, int]:
        """The findings that count, by class. If the scan did not finish, the drive may have gone away, so
        unreadable slots are set aside. So are findings that the rest of the target may have explained."""
        counting = {name: count for name, count in self.findings.items() if self._counts(name)}
        for (kind, name), count in self.apart.items():
            if not self._counts(name) and self._counts(name, kind):
                counting[name] = counting.get(name, 0) + count
        return {name: count for name, count in counting.items() if count}

    @property
    def operations_lost(self) -> int:
        """Number of acknowledged operations that the target lacks: at most one per slot, its newest."""
        apart = sum(count for (kind, name), count in self.apart.items() if self._counts(name, kind))
        return sum(self.convicting.values()) - apart

    @property
    def prefill_lost(self) -> int:
        """Number of slots that no acknowledged operation had written and that lack their previous content."""
        return self._convicting_apart("prefill")

    @property
    def superblocks_lost(self) -> int:
        """Number of copies of the superblock that are lost."""
        return self._convicting_apart("superblock")

    @property
    def files_back(self) -> int:
        """Number of removed files of a log that are back."""
        return self._convicting_apart("file")

    @property
    def earlier_names_back(self) -> int:
        """Number of names of an earlier run, durably removed before this run, that are back."""
        return self._convicting_apart("earlier name")

    @property
    def superblocks_wrong(self) -> int:
        """Number of copies of the superblock that are not as they were written, including those that are set
        aside."""
        return sum(count for (kind, _), count in self.apart.items() if kind == "superblock")

    def _convicting_apart(self, kind: Apart) -> int:
        """Number of findings of this kind that count."""
        return sum(
            count for (one, name), count in self.apart.items() if one == kind and self._counts(name, kind)
        )

    def _counts(self, name: FindingClass, kind: Apart | None = None) -> bool:
        """Whether findings of a class count, or with `kind` the findings of that kind and class. No operation
        writes a superblock, so the rest of the target cannot explain a wrong one."""
        explainable = kind != "superblock" or name in UNREADABLE
        return self.finished or name not in self.provisional or not explainable


def empty_report(plan: Plan, *, failure: str = "") -> ScanReport:
    """The report of a scan that has read nothing because of `failure`."""
    nothing = (0,) * plan.writers
    return replace(
        ScanCounts(plan).report(proven=nothing, newest_seen=nothing, may_be_done=nothing, finished=False),
        failure=failure,
    )


@dataclass(slots=True)
class ScanCounts:
    """Counts of a scan of a run's target while it runs. `provisional`: see `ScanReport`; it is set before the
    first finding."""

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
    # By writer and seq, if one operation makes a name and removes another: the first finding of the two.
    _of_operations: dict[tuple[int, int], FindingClass] = field(default_factory=dict)
    # By writer, the oldest and the newest lost operation. Those of provisional findings are in
    # `_perhaps_lost`.
    _lost: dict[int, tuple[int, int]] = field(default_factory=dict)
    _perhaps_lost: dict[int, tuple[int, int]] = field(default_factory=dict)

    def excuse(self, judgement: Judgement) -> None:
        """Count the properties of a slot that are not findings."""
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
        """Also count the finding in `apart` if it is not counted as a lost operation."""
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
            else:  # a provisional finding may be set aside; then the other one counts for the operation
                self.apart["second name", first if first in self.provisional else finding] += 1

    def count_rows(self, writer: int, rows: JudgedRows) -> None:
        """Count many slots of one writer. Slots with findings were read twice."""
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
        """Note that operations of `writer` from `oldest` to `newest` on some slots are lost, because of
        findings of this class."""
        _widen(self._perhaps_lost if finding in self.provisional else self._lost, writer, oldest, newest)

    def settle_out_of_reach(self, explained: int) -> None:
        """Call this after everything was judged. `explained`: number of findings that a log that is behind
        explains. If it explains all findings, they are counted as above the ceiling. If there are no
        findings, the out-of-reach slots are."""
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
        """The counts at this moment."""
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
    """Extend the range of `writer` so that it includes `oldest` to `newest`."""
    first, last = ranges.get(writer, (oldest, newest))
    ranges[writer] = min(first, oldest), max(last, newest)


class Examples:
    """Collects examples of each kind. The first `EXAMPLES_FIRST` are returned at once, for the caller to
    store. The latest `EXAMPLES_LAST` are kept here. Both numbers are lower if that many records exceed
    `EXAMPLES_BYTES_MAX`."""

    def __init__(self, record_bytes: int) -> None:
        fitting = max(1, limits.EXAMPLES_BYTES_MAX // record_bytes)
        self._first, self._last = min(fitting, limits.EXAMPLES_FIRST), min(fitting, limits.EXAMPLES_LAST)
        self._seen: Counter[str] = Counter()
        self._latest: dict[str, deque[Callable[[], Example]]] = {}

    def add(self, example: Example) -> bool:
        """True if `example` is one of the first, which the caller stores. Otherwise it is kept here while it
        is one of the latest."""
        return any(self.add_many(example.kind, 1, lambda _: lambda: example))

    def add_many(
        self, kind: str, count: int, make: Callable[[int], Callable[[], Example]]
    ) -> Iterator[Example]:
        """As `add`, for `count` examples of one kind. Yields the examples that the caller stores.
        `make(number)` is called only for the few that may be kept, and its result only for those that are
        kept in the end."""
        first = min(count, max(0, self._first - self._seen[kind]))
        self._seen[kind] += count
        latest = self._latest.setdefault(kind, deque(maxlen=self._last))
        latest.extend(make(number) for number in range(max(first, count - self._last), count))
        for number in range(first):
            yield make(number)()

    def latest(self) -> Iterator[Example]:
        """The latest examples of every kind, after the first ones."""
        for kept in self._latest.values():
            yield from (make() for make in kept)
