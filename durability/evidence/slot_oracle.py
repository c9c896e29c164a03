"""The slot oracle: which contents a slot may legally have after a cut, and what is wrong with those it has.

Rules 6 to 8 of docs/explanation/evidence.md for slots that lie in files, for a plan and the frontiers that
the server received (A); slots that are files are the business of `name_oracle`. In this order:

1. `in_flight_slots` names the slots with a version in (A, A + credit]; read them first. `hold` takes whole
   records in bulk; what it names, and every unreadable or short record, goes through `observe` and
   `prove_by`.
2. `screen` everything once; `observe` what it names, and `prove_by` with that as well. Read again what gave
   no whole version in step 1 (`without_version`, `kept_rows`), and `prove_again`.
3. `judge_all` the observations of step 2, and `in_flight()`, those of step 1 with the proven frontiers
   (A') and the last operation that can have been issued (`last_issued`). Slots without a version in
   (A, A + credit] have the same legal content whatever A' becomes, so judging them at once is safe.
4. `absent_slots` says which slots a short file lacks; of a log (`LogOracle`) `files` what must exist,
   `files_beyond` what the server never allowed, and `resurrected` what must not exist any more.

Without a server's log (`acked` None) A is 0 and nothing bounds what is in flight: damage to a slot that may
be overwritten is excused, an intact version older than one that the target itself proves to be acknowledged
is not. Then `survey` everything before `screen`. It refuses to decide a verdict; it reads nothing itself.
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

# What a file that no writer can have reached shows: see `LogOracle.look_beyond`.
Beyond: TypeAlias = Literal["newer", "another run's", "nothing newer"]
# What an operation beyond the ceiling that was under way may leave of a slot of a region. An older version,
# data of another place and a file that ends are never a write's work; in a log no slot there is required.
MAY_BE_EXPLAINED: Final[frozenset[FindingClass]] = frozenset({"corrupt"})

_SEQS_AHEAD = 8192  # expected versions computed at a time: the permutation is cheap only for many slots


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedFile:
    """A file of a log. It must exist and have `min_bytes`; None: it may be missing altogether."""

    suffix: str
    writer: int
    generation: int
    min_bytes: int | None


class SlotOracle(ProvenOperations):
    """Judges one run's target; A' (`proven`) and the newest versions seen rise as observations come in."""

    def __init__(self, plan: Plan, acked: Sequence[int] | None) -> None:
        super().__init__(plan, acked)
        self._ahead: tuple[int, int, int, Words] = (-1, 0, 0, np.empty(0, dtype=U64))
        self._kept: dict[int, list[Rows]] = {}  # of slots in flight, by writer

    # -- what was in flight --------------------------------------------------------------------------------

    def hold(self, writer: int, slots: Words, words: Words) -> NDArray[np.intp]:
        """Observe whole records in bulk, for what they prove; `slots` must be among `in_flight_slots`.
        Returns the positions of those that are not one intact version: `observe` and `prove_by` them."""
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
        """Which of the consecutive slots in `words`, a whole number of records, must be observed. All that
        are not byte for byte the newest version <= A', except the slots of `in_flight_slots`, which were
        observed before. The result counts from `first_slot`."""
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
        """`observe` for many whole records at once, which is much cheaper where most are intact."""
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
        """The newest version of each slot that can have been issued; the tail of a file may hold anything up
        to the ceiling."""
        endless = self._versions.endless(writer)
        return self._versions.newest(
            writer, slots, self.ceiling(writer) if endless else self.last_issued(writer)
        )

    def _hidden(self, writer: int, slots: Words) -> NDArray[np.bool_]:
        """Which slots may have a version in flight only if operations are hidden that could not be read."""
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
        """What is wrong if `expected` is the newest acknowledged version and `latest` the newest issued.
        `hidden`: a newer one may have been, behind operations that cannot be read: then damage is no more
        than unreadable."""
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
            return PREFILL  # nothing was ever written here: the file's content before the record
        return super()._outdated(span)

    def _beside_in_flight(self, suffix: str, offset: int, record_bytes: int) -> bool:
        """True if a slot in flight lies at least partly in a physical block that this record touches."""
        if not self.logged:
            return False
        block = self.plan.block_bytes
        first, last = offset // block * block, -(-(offset + record_bytes) // block) * block
        if (first, last) == (offset, offset + record_bytes):
            return False  # it fills its blocks alone
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
        """As `prove_by`, of plain rows of slots that are not in flight."""
        if len(rows.slots) and (newest := int(rows.highest.max())) != NO_SEQ:
            self._prove(writer, newest)

    def keep_rows(self, writer: int, rows: Rows) -> None:
        """As `prove_by`, of plain rows of slots in flight that `hold` named."""
        self.prove_rows(writer, rows)
        self._kept.setdefault(writer, []).append(rows)

    def kept_rows(self, writer: int) -> Rows | None:
        """As `without_version`, of what `keep_rows` kept; None for nothing."""
        return joined(part for part in self._kept.get(writer, ()) if len(part.slots))

    def rows_in_flight(self, writer: int) -> Rows | None:
        """As `in_flight`, of whole versions and kept rows, in one; None for nothing."""
        parts = [select(rows, ~self._hidden(writer, rows.slots)) for rows in self._kept.get(writer, ())]
        if writer in self._held:
            slots, held = self._slots_in_flight[writer], self._held[writer]
            odd = ~self._plainly_legal(writer, slots, held) & (held <= U64(self.ceiling(writer)))
            parts.append(whole_rows(slots[odd], held[odd]))
        return joined(part for part in parts if len(part.slots))

    def odd_in_flight(self) -> Iterator[Observation]:
        """As `in_flight`, of what `rows_in_flight` leaves out."""
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
        """What one row says of its sectors, with an equal share for each kind of content."""
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
        """As `judge_all`, of plain rows, with A' as it stands. `in_flight`: the rows are of slots of
        `in_flight_slots`, else of none of them."""
        slots, proven, acked = rows.slots, self._proven[writer], self.acked[writer]
        self._seen = self._seen or bool((rows.highest > PREFILL).any())
        latest = expected = self._versions.newest(writer, slots, proven)
        if in_flight or not self.logged:  # elsewhere nothing was issued after A
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
        """`_beside_in_flight` for the slots that are `asked` for."""
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
        """The slots that a file of `size_bytes` (0: no file) must have, but lacks at least in part."""
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
        """The newest version <= A' of `count` slots, computed ahead for the slots that follow."""
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
    """As `SlotOracle`, of files that grow: which of them must be there, and which must not."""

    def files(self) -> list[ExpectedFile]:
        """The files that may hold records, with A' as it stands. File g-1 is removed once file g+1 exists, so
        it is not asked for if the writer may have got that far."""
        return [file for writer in range(self.plan.writers) for file in self._generations(writer)]

    def files_beyond(self, suffixes: Iterable[str]) -> list[Extent]:
        """The files among `suffixes`, those that exist, which only records beyond the ceiling belong in, or
        none: a writer makes its next file before it waits for credit."""
        names = filter(None, map(parse_name, suffixes))
        return [
            self.plan.extent(name.writer, name.number)
            for name in sorted(names)
            if self._is_writer(name.writer)
            and not name.temporary
            and name.number * self.plan.slots > self.ceiling(name.writer)
        ]

    def look_beyond(self, words: Words) -> Beyond:
        """What the first record of a file beyond the ceiling shows; `words`: a whole number of sectors. A
        writer begins a file with its first record, so an acknowledged one in the file shows there."""
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
        made this one, whatever it shows. A file after it shows a version beyond the ceiling, in itself or in
        the one before it."""
        return self.ceiling(writer) // self.plan.slots + 1

    def may_make(self, suffix: str) -> bool:
        """As for any plan, and the files up to the next one of each writer."""
        name = parse_name(suffix)
        return super().may_make(suffix) if name is None else self._may_be_begun(name)

    def _may_be_begun(self, name: Name) -> bool:
        """Whether a writer can have begun the file, if it is its own."""
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
        """The files of writers among `suffixes`, those that exist, which were removed for good. File g is
        removed when file g + 2 exists, and the sync of the directory that makes file g + 3 durable, before
        the first record of that, makes the removal durable too."""
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
