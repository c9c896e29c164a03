"""The slot oracle: which contents a slot may legally have after a cut, and what is wrong with other contents.

This implements rules 6 to 8 of docs/explanation/evidence.md for slots that lie in files. It works from a plan
and the frontiers that the server received (A). `name_oracle` handles slots that are files. Call the methods
in this order:

1. `in_flight_slots` returns the slots with a version in (A, A + credit]. Read these first. `hold` takes whole
   records in bulk. Pass the slots that it returns, and every unreadable or short record, to `observe` and
   `prove_by`.
2. `screen` everything once. Pass the slots that it returns to `observe` and `prove_by` as well. Read the
   slots again that showed no whole version in step 1 (`without_version`, `kept_rows`), and call
   `prove_again`.
3. `judge_all` the observations of step 2. Then judge those of step 1 (`in_flight()`) with the proven
   frontiers (A') and the last operation that can have been issued (`last_issued`). Slots without a version in
   (A, A + credit] have the same legal content whatever A' becomes, so they can be judged at once.
4. `absent_slots` returns the slots that a short file lacks. For a log (`LogOracle`), `files` returns the
   files that must exist, `files_beyond` those that the server never allowed, and `resurrected` those that
   must not exist any more.

Without a server's log (`acked` None), A is 0 and the operations in flight are unlimited. Then damage to a
slot that may be overwritten is excused. An intact version is not excused if the target itself proves that a
newer one was acknowledged. In this case, `survey` everything before `screen`. This module does not decide a
verdict, and reads nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from durability.evidence.judgement import FindingClass, Judgement, describe, place_name, version_name
from durability.evidence.observation import NO_SEQ, PREFILL, Observation, SectorState, Span, whole
from durability.evidence.proven_operations import (
    CLASS_OF_STATE,
    UNSEEN,
    Faults,
    ProvenOperations,
    first_of,
)
from durability.evidence.record_rows import (
    JudgedRows,
    RowFaults,
    Rows,
    among,
    faults,
    joined,
    select,
    whole_rows,
)
from durability.formats.mixing import U64, Words
from durability.formats.plan import Extent, Name, Plan, parse_name
from durability.formats.record import KIND_RECORD, SECTOR_WORDS, parse

# Content of a file that no writer can have reached: see `LogOracle.look_beyond`.
Beyond: TypeAlias = Literal["newer", "another run's", "nothing newer"]
# Findings that an operation in flight beyond the ceiling may cause in a slot of a region. A write never
# leaves an older version, data of another place or a shorter file. In a log, no slot beyond the ceiling is
# required.
MAY_BE_EXPLAINED: Final[frozenset[FindingClass]] = frozenset({"corrupt"})

_SEQS_AHEAD = 8192  # expected versions computed at a time; the permutation is only cheap for many slots


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedFile:
    """A file of a log."""

    suffix: str
    writer: int
    generation: int
    min_bytes: int | None  # the file must exist and have this size; None: it may be missing


class SlotOracle(ProvenOperations):
    """Judges one run's target. A' (`proven`) and the newest versions seen rise as observations come in."""

    def __init__(self, plan: Plan, acked: Sequence[int] | None) -> None:
        super().__init__(plan, acked)
        self._ahead: tuple[int, int, int, Words] = (-1, 0, 0, np.empty(0, dtype=U64))
        self._kept: dict[int, list[Rows]] = {}  # rows of slots in flight, by writer

    # -- what was in flight --------------------------------------------------------------------------------

    def hold(self, writer: int, slots: Words, words: Words) -> NDArray[np.intp]:
        """Observe whole records in bulk and raise A' by them. `slots` must be among `in_flight_slots`.
        Returns the positions of records that are not one intact version; pass those to `observe` and
        `prove_by`."""
        claimed, same = self._whole_versions(writer, slots, words)
        good = np.flatnonzero(same)
        positions = np.searchsorted(self.in_flight_slots(writer), slots[good])
        self._held[writer][positions] = claimed[good]
        if len(good):
            self._prove(writer, int(claimed[good].max()))
        return np.flatnonzero(~same)

    def _plainly_legal(self, writer: int, slots: Words, held: Words) -> NDArray[np.bool_]:
        expected = self._versions.newest(writer, slots, self._proven[writer])
        legal: NDArray[np.bool_] = (expected <= held) & (held <= U64(self.ceiling(writer)))
        return legal

    # -- the pass over everything --------------------------------------------------------------------------

    def screen(self, writer: int, first_slot: int, words: Words) -> NDArray[np.intp]:
        """Which of the consecutive slots in `words`, a whole number of records, must be observed. These are
        the slots that do not equal the newest version <= A' byte for byte, without the slots in
        `in_flight_slots`, which were observed before. Positions in the result count from `first_slot`."""
        records = words.reshape(-1, self._sectors, SECTOR_WORDS)
        chunk = len(self._scratch)
        suspects: list[int] = []
        for start in range(0, len(records), chunk):
            part = records[start : start + chunk]
            slots = np.arange(first_slot + start, first_slot + start + len(part), dtype=U64)
            expected = self._expected(writer, first_slot + start, len(part))
            same = self._same(writer, slots, expected, part)
            self._seen = self._seen or bool((expected[same] > U64(PREFILL)).any())
            if not same.all():
                suspects.extend(int(number) + start for number in np.flatnonzero(~same))
        found = np.array(suspects, dtype=np.intp)
        if len(found):
            slots = found.astype(U64) + U64(first_slot)
            found = found[~among(slots, self.in_flight_slots(writer))]
        return found

    def observe_all(self, writer: int, slots: Words, words: Words) -> list[Observation]:
        """`observe` for many whole records at once, which is much cheaper if most of them are intact."""
        records = words.reshape(-1, self._sectors, SECTOR_WORDS)
        claimed, same = self._whole_versions(writer, slots, words)
        return [
            whole(writer, int(slots[number]), int(claimed[number]), self._sectors)
            if same[number]
            else self.observe(writer, int(slots[number]), records[number].data.cast("B"))
            for number in range(len(slots))
        ]

    # -- judging -------------------------------------------------------------------------------------------

    def _judge_writer(self, writer: int, observations: Sequence[Observation]) -> Iterator[Judgement]:
        slots = np.array([observation.slot for observation in observations], dtype=U64)
        expected = self._versions.newest(writer, slots, self._proven[writer])
        logged = self._versions.newest(writer, slots, self.acked[writer])
        latest = self._latest_issued(writer, slots)
        hidden = self._hidden(writer, slots)
        found = [
            self._faults(observation, int(expected[number]), int(latest[number]), hidden=bool(hidden[number]))
            for number, observation in enumerate(observations)
        ]
        lost = self._oldest_lost(writer, slots, expected, found)
        for number, observation in enumerate(observations):
            yield self._judge(
                observation,
                found[number],
                expected=int(expected[number]),
                logged=int(logged[number]),
                latest=int(latest[number]),
                hidden=bool(hidden[number]),
                oldest_lost=lost[number],
            )

    def _latest_issued(self, writer: int, slots: Words) -> Words:
        """The newest version of each slot that can have been issued. For an endless writer, the tail of a
        file may hold anything up to the ceiling."""
        endless = self._versions.endless(writer)
        return self._versions.newest(
            writer, slots, self.ceiling(writer) if endless else self.last_issued(writer)
        )

    def _hidden(self, writer: int, slots: Words) -> NDArray[np.bool_]:
        """Which slots may have a version in flight only if there are operations that could not be read."""
        last, hidden = self.last_issued(writer), self.last_hidden(writer)
        if last == hidden or self._versions.endless(writer):
            return np.zeros(len(slots), dtype=np.bool_)
        return self._versions.newest(writer, slots, hidden) > self._versions.newest(writer, slots, last)

    def _judge(
        self,
        observation: Observation,
        found: Faults,
        *,
        expected: int,
        logged: int,
        latest: int,
        hidden: bool,
        oldest_lost: int | None,
    ) -> Judgement:
        writer, slot = observation.writer, observation.slot
        suffix, offset, record_bytes = self._versions.place(writer, slot)
        in_flight = latest > expected
        wrong = found.finding is not None
        return self._judgement(
            observation,
            found,
            expected=expected,
            in_flight=in_flight,
            order_violation=wrong
            and self._faults(observation, logged, latest, hidden=hidden).finding is None,
            collateral=wrong and not in_flight and self._beside_in_flight(suffix, offset, record_bytes),
            text=describe(
                observation,
                place=place_name(writer=writer, slot=slot, suffix=suffix, offset=offset),
                expected=f"{version_name(expected)} or newer",
                finding=found.finding,
            ),
            oldest_lost=oldest_lost,
        )

    def _faults(self, observation: Observation, expected: int, latest: int, *, hidden: bool) -> Faults:
        """What is wrong if `expected` is the newest acknowledged version and `latest` the newest issued one.
        `hidden`: a newer version may have been issued, among operations that cannot be read. Then damage
        counts only as unreadable."""
        tail = self._versions.endless(observation.writer) and expected == 0
        ceiling = self.ceiling(observation.writer)
        excused = latest > expected
        found: set[FindingClass] = set()
        stale: list[int] = []
        damaged = above = out_of_reach = False
        for span in observation.spans:
            if self._is_writer(span.writer) and span.seq > self.ceiling(span.writer):
                above = True
            elif tail:
                damaged |= excused and span.state not in ("version", "zero", "absent")
                out_of_reach |= not excused and span.state != "absent"
            elif span.state == "version" and expected <= span.seq <= ceiling:
                continue
            elif (seq := self._outdated(span)) is not None:
                stale.append(seq)
            elif span.state in ("zero", "damaged", "unreadable") and excused:
                damaged = True
            elif span.state in ("zero", "damaged") and hidden:
                found.add("unreadable")
            else:
                found.add(_CLASS_OF_STATE[span.state])
        if found:
            return Faults(first_of(found), damaged, above, min(stale, default=None))
        if not stale:
            return Faults(None, damaged, above, None, out_of_reach)
        lost = len(stale) == len(observation.spans) and len(set(stale)) == 1
        return Faults("lost" if lost else "torn", damaged, above, min(stale))

    def _outdated(self, span: Span) -> int | None:
        if span.state == "zero" and not self.plan.contract.prefilled:
            return PREFILL  # zeros are the file's content before any record was written here
        return super()._outdated(span)

    def _beside_in_flight(self, suffix: str, offset: int, record_bytes: int) -> bool:
        """True if a slot in flight lies at least partly in a physical block that this record touches."""
        if not self.logged:
            return False
        block = self.plan.block_bytes
        first, last = offset // block * block, -(-(offset + record_bytes) // block) * block
        if (first, last) == (offset, offset + record_bytes):
            return False  # the record fills its blocks alone
        for extent in self._extents_of(suffix):
            low = max(0, (first - extent.offset_bytes) // extent.record_bytes)
            high = min(extent.slots, -(-(last - extent.offset_bytes) // extent.record_bytes))
            if low >= high:
                continue
            slots = np.arange(extent.first_slot + low, extent.first_slot + high, dtype=U64)
            newest = self._versions.newest(extent.writer, slots, self.ceiling(extent.writer))
            if (newest > U64(self._proven[extent.writer])).any():
                return True
        return False

    # -- many at once --------------------------------------------------------------------------------------

    def prove_rows(self, writer: int, rows: Rows) -> None:
        """As `prove_by`, for plain rows of slots that are not in flight."""
        if len(rows.slots) and (newest := int(rows.highest.max())) != NO_SEQ:
            self._prove(writer, newest)

    def keep_rows(self, writer: int, rows: Rows) -> None:
        """As `prove_by`, for plain rows of slots in flight that `hold` returned."""
        self.prove_rows(writer, rows)
        self._kept.setdefault(writer, []).append(rows)

    def kept_rows(self, writer: int) -> Rows | None:
        """As `without_version`, for the rows that `keep_rows` kept; None if there are none."""
        return joined(part for part in self._kept.get(writer, ()) if len(part.slots))

    def rows_in_flight(self, writer: int) -> Rows | None:
        """As `in_flight`, for whole versions and kept rows, combined; None if there are none."""
        parts = [select(rows, ~self._hidden(writer, rows.slots)) for rows in self._kept.get(writer, ())]
        if writer in self._held:
            slots, held = self._slots_in_flight[writer], self._held[writer]
            odd = ~self._plainly_legal(writer, slots, held) & (held <= U64(self.ceiling(writer)))
            parts.append(whole_rows(slots[odd], held[odd]))
        return joined(part for part in parts if len(part.slots))

    def odd_in_flight(self) -> Iterator[Observation]:
        """As `in_flight`, for the observations that `rows_in_flight` leaves out."""
        for writer, parts in self._kept.items():
            for rows in parts:
                for number in np.flatnonzero(self._hidden(writer, rows.slots)).tolist():
                    yield self.observation_of(writer, select(rows, slice(number, number + 1)))
        for writer, held in self._held.items():
            beyond = np.flatnonzero((held > U64(self.ceiling(writer))) & (held != UNSEEN))
            for position in beyond:
                yield self._observation(writer, int(self._slots_in_flight[writer][position]), held[position])
        yield from self._odd.values()

    def observation_of(self, writer: int, row: Rows) -> Observation:
        """One row as an observation: one span of one sector for each kind of content."""
        (lowest,), (highest,) = row.lowest.tolist(), row.highest.tolist()
        spans = [
            Span(state="version", sectors=1, seq=seq, writer=writer, slot=int(row.slots[0]))
            for seq in sorted({lowest, highest} - {NO_SEQ})
        ]
        kinds: dict[SectorState, NDArray[np.bool_]] = {
            "zero": row.zeros,
            "damaged": row.damaged,
            "earlier": row.earlier,
            "foreign": row.foreign,
        }
        spans += [Span(state=state, sectors=1) for state, there in kinds.items() if there[0]]
        return Observation(writer=writer, slot=int(row.slots[0]), spans=tuple(spans))

    def judge_rows(self, writer: int, rows: Rows, *, in_flight: bool) -> JudgedRows:
        """As `judge_all`, for plain rows, with the current A'. `in_flight`: all rows are of slots in
        `in_flight_slots`; otherwise none are."""
        slots, proven, acked = rows.slots, self._proven[writer], self.acked[writer]
        self._seen = self._seen or bool((rows.highest > PREFILL).any())
        latest = expected = self._versions.newest(writer, slots, proven)
        if in_flight or not self.logged:  # on other slots nothing was issued after A
            latest = self._latest_issued(writer, slots)
        found = self._row_faults(writer, rows, expected, latest)
        wrong = found.finding > 0
        out_of_order = np.zeros(len(slots), dtype=np.bool_)
        if proven != acked and latest is not expected:
            logged = self._versions.newest(writer, slots, acked)
            out_of_order = wrong & (self._row_faults(writer, rows, logged, latest).finding == 0)
        oldest = np.zeros(len(slots), dtype=U64)
        lacking = wrong & (expected > U64(0))
        if lacking.any():
            before, newest = found.found[lacking], expected[lacking]
            after = self._versions.following(writer, slots[lacking], np.maximum(before, 0).astype(U64))
            oldest[lacking] = np.where(before == NO_SEQ, newest, after)
        return JudgedRows(
            slots=slots,
            finding=found.finding,
            in_flight_damaged=found.damaged,
            out_of_reach=found.out_of_reach,
            order_violation=out_of_order,
            collateral=self._rows_beside(writer, slots, wrong & (latest <= expected)),
            expected=expected,
            oldest_lost=oldest,
        )

    def _row_faults(self, writer: int, rows: Rows, expected: Words, latest: Words) -> RowFaults:
        return faults(
            rows,
            expected=expected,
            latest=latest,
            endless=self._versions.endless(writer),
            prefilled=self.plan.contract.prefilled,
            run_began=self.prefilled,
        )

    def _rows_beside(self, writer: int, slots: Words, asked: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """`_beside_in_flight` for the slots that are selected by `asked`."""
        beside = np.zeros(len(slots), dtype=np.bool_)
        block, size = self.plan.block_bytes, self.plan.record_bytes
        if not self.logged:
            return beside
        offsets = self._versions.offsets(writer, slots)
        shared = asked & ((offsets % U64(block) != 0) | (size % block != 0))
        for number in np.flatnonzero(shared).tolist():
            suffix, offset, record_bytes = self._versions.place(writer, int(slots[number]))
            beside[number] = self._beside_in_flight(suffix, offset, record_bytes)
        return beside

    # -- files ---------------------------------------------------------------------------------------------

    def absent_slots(self, writer: int, generation: int, size_bytes: int) -> range:
        """The slots that a file of `size_bytes` (0: no file) must have but lacks at least in part."""
        extent = self.plan.extent(writer, generation)
        present = max(0, size_bytes - extent.offset_bytes) // extent.record_bytes
        required = extent.slots
        if self._versions.endless(writer):
            required = min(max(self._proven[writer] - extent.first_slot, 0), extent.slots)
        return range(extent.first_slot + min(present, required), extent.first_slot + required)

    # -- versions ------------------------------------------------------------------------------------------

    def _extents_of(self, suffix: str) -> Iterator[Extent]:
        for writer in range(self.plan.writers):
            if not self._versions.endless(writer):
                yield self.plan.extent(writer)
            elif suffix.startswith(f".{writer}."):
                yield self.plan.extent(writer, int(suffix.rpartition(".")[2]))

    def _expected(self, writer: int, first_slot: int, count: int) -> Words:
        """The newest version <= A' of `count` slots. It is computed ahead for the slots that follow."""
        frontier = self._proven[writer]
        ahead_writer, ahead_frontier, ahead_slot, newest = self._ahead
        start = first_slot - ahead_slot
        if (ahead_writer, ahead_frontier) != (writer, frontier) or not 0 <= start <= len(newest) - count:
            total = max(count, _SEQS_AHEAD)
            if not self._versions.endless(writer):
                total = min(total, self.plan.slots - first_slot)
            slots = np.arange(first_slot, first_slot + total, dtype=U64)
            newest, start = self._versions.newest(writer, slots, frontier), 0
            self._ahead = (writer, frontier, first_slot, newest)
        return newest[start : start + count]


class LogOracle(SlotOracle):
    """As `SlotOracle`, for files that grow: it also decides which files must exist and which must not."""

    def files(self) -> list[ExpectedFile]:
        """The files that may hold records, with the current A'. File g-1 is removed after file g+1 exists. So
        it is not required if the writer may have made file g+1."""
        return [file for writer in range(self.plan.writers) for file in self._generations(writer)]

    def files_beyond(self, suffixes: Iterable[str]) -> list[Extent]:
        """The existing files, of those in `suffixes`, in which only records beyond the ceiling belong. Such a
        file may also hold no records: a writer makes its next file before it waits for credit."""
        names = filter(None, map(parse_name, suffixes))
        return [
            self.plan.extent(name.writer, name.number)
            for name in sorted(names)
            if self._is_writer(name.writer)
            and not name.temporary
            and name.number * self.plan.slots > self.ceiling(name.writer)
        ]

    def look_beyond(self, words: Words) -> Beyond:
        """What the first record of a file beyond the ceiling shows. `words`: a whole number of sectors. A
        writer begins a file with its first record, so an acknowledged record in the file shows there."""
        sectors = parse(words)
        own = sectors.intact & (sectors.run == U64(self.plan.run))
        own &= sectors.target == U64(self.plan.target)
        ceilings = np.array([self.ceiling(writer) for writer in range(self.plan.writers)], dtype=U64)
        records = own & (sectors.kind == U64(KIND_RECORD)) & (sectors.writer < U64(self.plan.writers))
        newer = sectors.seq[records] > ceilings[sectors.writer[records].astype(np.intp)]
        others = sectors.intact & ~own
        return "newer" if newer.any() else "another run's" if others.any() else "nothing newer"

    def next_file(self, writer: int) -> int:
        """The number of the first file beyond the ceiling. If the log is behind, the writer may just have
        made this file, whatever its content. A later file means that it, or the file before it, shows a
        version beyond the ceiling."""
        return self.ceiling(writer) // self.plan.slots + 1

    def may_make(self, suffix: str) -> bool:
        """As for any plan, and also the files of each writer up to its next one."""
        name = parse_name(suffix)
        return super().may_make(suffix) if name is None else self._may_be_begun(name)

    def _may_be_begun(self, name: Name) -> bool:
        """Whether a writer can have begun the file, if it is the writer's own."""
        if name.temporary or not self._is_writer(name.writer):
            return False
        return not self.logged or name.number <= self.next_file(name.writer)

    def _generations(self, writer: int) -> Iterator[ExpectedFile]:
        slots, done = self.plan.slots, self._proven[writer]
        newest_file = self.ceiling(writer) // slots if self.logged else done // slots + 1
        for generation in range(max(0, newest_file - 1), newest_file + 1):
            required = min(max(done - generation * slots, 0), slots)
            yield ExpectedFile(
                suffix=self.plan.extent(writer, generation).suffix,
                writer=writer,
                generation=generation,
                min_bytes=required * self.plan.record_bytes if required and self.logged else None,
            )

    def resurrected(self, suffixes: Iterable[str]) -> list[Judgement]:
        """The existing files of writers, of those in `suffixes`, that had been durably removed. File g is
        removed when file g + 2 exists. The sync of the directory that makes file g + 3 durable also makes the
        removal durable. It comes before the first record of file g + 3."""
        judgements = []
        for name in sorted(filter(None, map(parse_name, suffixes))):
            if self._is_writer(name.writer) and not name.temporary:
                outlived_by = (name.number + 3) * self.plan.slots + 1
                if outlived_by <= self._proven[name.writer]:
                    judgements.append(self._judge_removed(name.writer, name.number, outlived_by))
        return judgements

    def _judge_removed(self, writer: int, generation: int, outlived_by: int) -> Judgement:
        extent = self.plan.extent(writer, generation)
        return Judgement(
            writer=writer,
            slot=extent.first_slot,
            suffix=extent.suffix,
            offset=0,
            record_bytes=extent.record_bytes,
            finding="resurrected",
            order_violation=self.acked[writer] < outlived_by,
            expected_seq=outlived_by,
            text=f"file TARGET{extent.suffix}: resurrected; its removal was durable before seq {outlived_by}",
        )


_CLASS_OF_STATE: dict[str, FindingClass] = {**CLASS_OF_STATE, "zero": "corrupt", "absent": "truncated"}
