"""The scan of slots in files: reads everything that a run wrote to its target, and counts the oracle's
judgements.

Rule 8 sets the order. First come slots that were in flight at the cut, because they may prove operations.
Then follow every slot once; the control arm; slots in flight without a whole version, a second time; and
missing slots at the ends of files. Last, slots in flight are judged with the proven frontiers, and log files
that must be gone are looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, groupby, islice

import numpy as np
from numpy.typing import NDArray

from durability import limits
from durability.evidence.judgement import Judgement
from durability.evidence.observation import Observation
from durability.evidence.record_rows import ROW_FINDINGS, JudgedRows, Rows, alike, among, select
from durability.evidence.scan_report import Example, ScanReport
from durability.evidence.slot_oracle import MAY_BE_EXPLAINED, Beyond, LogOracle, SlotOracle
from durability.formats.mixing import U64, Words
from durability.formats.plan import Extent, parse_name
from durability.formats.versions import Versions
from durability_client.target.storage import MEDIUM_ERRORS, Storage
from durability_client.verify.scan.canary import CanaryPlace
from durability_client.verify.scan.read_chunks import Chunk, bytes_around, pieces_around, pieces_within
from durability_client.verify.scan.scan_base import Phase, ScanBase, ScanJob, ScanListener, Suspect, Visit

_IN_FLIGHT_SHARE = 16  # slots in flight are read first only if they are at most 1/16 of all bytes
_BATCH = 4096  # observations judged at a time
_TRIED = 16  # places of each file to try if no place was readable
_SLOTS_AT_A_TIME = 1 << 20  # slots of a missing range that are counted at a time, to limit memory


class SlotScan(ScanBase):
    """One scan of a target whose slots lie in files."""

    def __init__(
        self, storage: Storage, job: ScanJob, listener: ScanListener, oracle: SlotOracle | None = None
    ) -> None:
        self._oracle = SlotOracle(job.plan, job.acked) if oracle is None else oracle
        super().__init__(storage, job, listener, self._oracle)
        self._versions = Versions(job.plan)
        self._in_flight_read = False  # whether the slots in flight have been read

    def run(self) -> ScanReport:
        """Read slots in flight first, then every slot, then the control arm, and judge."""
        if self._oracle.logged and self._plan.contract.layout == "region":
            self._counts.provisional |= MAY_BE_EXPLAINED
        self._read_in_flight()
        self._read_beyond()
        if not self._oracle.logged:
            self._pass("survey", list(self._every_extent()), self._survey)
        self._check_superblocks()
        self._pass("all slots", list(self._extents()), self._check)
        self._read_control()
        self._read_in_flight_again()
        self._count_absent()
        self._judge_in_flight()
        self._look_for_removed()
        self._look_for_earlier_names()
        self._counts.settle_out_of_reach(0)
        return self._finish()

    # -- phases --------------------------------------------------------------------------------------------

    def _read_in_flight(self) -> None:
        """Read the slots that may hold a version newer than the log, because they may prove operations.

        If they are a large part of all slots, they are read in the pass over all slots instead. That is
        possible because the required content of other slots does not depend on the proven operations. Slots
        in flight are judged at the end in any case.
        """
        extents = list(self._extents())
        self._counts.in_flight = sum(len(self._in_flight_of(extent)) for extent in extents)
        total = sum(bytes_around(extent, self._in_flight_of(extent)) for extent in extents)
        if total * _IN_FLIGHT_SHARE > self._bytes_of(extents):
            return
        self._begin("in flight", total)
        for extent in extents:
            self._read(extent, pieces_around(extent, self._in_flight_of(extent)), self._prove)
        self._in_flight_read = True

    def _read_beyond(self) -> None:
        """Examine files that no writer can have reached according to the log. A region has no such files."""

    def _in_flight_of(self, extent: Extent) -> Words:
        """The slots of `extent` that may have been in flight and lie within its file."""
        slots = self._oracle.in_flight_slots(extent.writer)
        stop = extent.first_slot + self._present_slots(extent)
        return slots[np.searchsorted(slots, U64(extent.first_slot)) : np.searchsorted(slots, U64(stop))]

    def _prove(self, chunk: Chunk) -> None:
        """Keep the contents of slots of `chunk` that were in flight, and use them as proof of operations."""
        piece = chunk.piece
        slots = self._in_flight_of(piece.extent)
        first, stop = np.searchsorted(slots, (U64(piece.first_slot), U64(piece.first_slot + piece.slots)))
        rows = (slots[first:stop] - U64(piece.first_slot)).astype(np.intp)
        doubtful = chunk.doubtful.intersection(rows.tolist())
        if doubtful:
            rows = rows[~np.isin(rows, list(doubtful))]
        slots, words = rows.astype(U64) + U64(piece.first_slot), chunk.words(rows)
        odd = self._oracle.hold(piece.extent.writer, slots, words)
        seen = self._oracle.classify(piece.extent.writer, slots[odd], words[odd])
        self._oracle.keep_rows(piece.extent.writer, select(seen, seen.plain))
        for row in rows[odd[seen.plain]][: limits.EXAMPLES_FIRST].tolist():
            self._keep_odd(piece.extent.writer, piece.first_slot + row, bytes(chunk.record(row)))
        for row in (*doubtful, *rows[odd[~seen.plain]].tolist()):
            observation = self._observe(chunk, row)
            self._oracle.prove_by(observation)
            self._keep_odd(piece.extent.writer, observation.slot, bytes(chunk.record(row)))

    def _survey(self, chunk: Chunk) -> None:
        self._oracle.survey(chunk.words())

    def _check(self, chunk: Chunk) -> None:
        """Compare every slot without a version in flight with the required content."""
        if not self._in_flight_read:
            self._prove(chunk)
        piece = chunk.piece
        writer = piece.extent.writer
        in_flight = self._oracle.in_flight_slots(writer)
        suspects = self._oracle.screen(writer, piece.first_slot, chunk.words())
        doubtful = {row for row in chunk.doubtful if not _holds(in_flight, piece.first_slot + row)}
        if doubtful:
            suspects = suspects[~np.isin(suspects, list(doubtful))]
        words = chunk.words(suspects)
        seen = self._oracle.classify(writer, suspects.astype(U64) + U64(piece.first_slot), words)
        plain = select(seen, seen.plain)
        self._oracle.prove_rows(writer, plain)
        rows = sorted(doubtful.union(suspects[~seen.plain].tolist()))
        observations = self._observe_rows(chunk, rows)
        for observation in observations:
            self._oracle.prove_by(observation)
        self._counts.checked += piece.slots
        self._settle_rows(writer, plain, words if len(plain.slots) == len(words) else words[seen.plain])
        self._settle(observations, [bytes(chunk.record(row)) for row in rows])

    def _read_in_flight_again(self) -> None:
        """Read again the slots in flight that held no whole version.

        This happens before any of them is judged. A slot that was unreadable for a moment may prove
        operations, and the other slots are judged by the proven operations.
        """
        odd = {(one.writer, one.slot): one for one in self._oracle.without_version()}
        wanted: list[tuple[Extent, Words, Rows | None]] = []
        for extent in self._extents():
            kept = self._oracle.kept_rows(extent.writer)
            slots = np.array(sorted(slot for writer, slot in odd if writer == extent.writer), dtype=U64)
            slots = slots if kept is None else np.union1d(slots, kept.slots)
            stop = extent.first_slot + self._present_slots(extent)
            wanted.append((extent, slots[(slots >= U64(extent.first_slot)) & (slots < U64(stop))], kept))
        self._begin("judging", sum(bytes_around(extent, slots) for extent, slots, _ in wanted))
        for extent, slots, kept in wanted:
            self._read(extent, pieces_around(extent, slots), partial(self._compare_again, odd, kept))

    def _compare_again(
        self, odd: Mapping[tuple[int, int], Observation], kept: Rows | None, chunk: Chunk
    ) -> None:
        """Compare slots in flight with their first observations: `odd`, or the rows `kept`."""
        writer, slots = chunk.piece.extent.writer, chunk.piece.wanted_slots
        rows = (slots - U64(chunk.piece.first_slot)).astype(np.intp)
        same = np.zeros(len(rows), dtype=np.bool_)
        if kept is not None:
            plain = among(slots, kept.slots)
            if chunk.doubtful:
                plain &= ~np.isin(rows, list(chunk.doubtful))
            first = select(kept, np.searchsorted(kept.slots, slots[plain]))
            same[plain] = alike(first, self._oracle.classify(writer, first.slots, chunk.words(rows[plain])))
        others = rows[~same].tolist()
        for row, second in zip(others, self._observe_rows(chunk, others), strict=True):
            at_first = odd.get((writer, second.slot)) or self._kept_observation(writer, kept, second.slot)
            self._compare(at_first, second, bytes(chunk.record(row)))

    def _kept_observation(self, writer: int, kept: Rows | None, slot: int) -> Observation:
        """The first observation of a slot in `kept`, made from its bytes, or from its row if the bytes were
        not kept."""
        assert kept is not None
        data = self._odd.get((writer, slot))
        if data is not None:
            return self._oracle.observe(writer, slot, data)
        number = int(np.searchsorted(kept.slots, U64(slot)))
        return self._oracle.observation_of(writer, select(kept, slice(number, number + 1)))

    def _count_absent(self) -> None:
        """Count the slots beyond the end of a file that is too short, without judging each of them."""
        for extent in self._extents():
            generation = extent.first_slot // extent.slots
            absent = self._oracle.absent_slots(extent.writer, generation, self._size(extent.suffix))
            first = max(absent.start, extent.first_slot + self._present_slots(extent))
            if first >= absent.stop:
                continue
            edges = [*range(first, absent.stop)[: limits.EXAMPLES_FIRST]]
            edges += range(max(first + len(edges), absent.stop - limits.EXAMPLES_LAST), absent.stop)
            judgements = [
                self._oracle.judge(self._oracle.observe(extent.writer, slot, b"")) for slot in edges
            ]
            self._require_drive(Suspect(judgement, b"") for judgement in judgements)
            for judgement in judgements:
                self._convict(judgement, b"")
            self._counts.checked += absent.stop - first
            self._lose_range(extent.writer, edges, range(first, absent.stop))

    def _lose_range(self, writer: int, counted: Sequence[int], absent: range) -> None:
        """Count the slots of `absent` that are not in `counted`, and note their newest proven operations as
        lost."""
        frontier, acked = self._oracle.proven[writer], self._oracle.acked[writer]
        for start in range(absent.start, absent.stop, _SLOTS_AT_A_TIME):
            slots = np.arange(start, min(absent.stop, start + _SLOTS_AT_A_TIME), dtype=U64)
            slots = np.setdiff1d(slots, np.array(counted, dtype=U64), assume_unique=True)
            newest = self._versions.newest(writer, slots, frontier)
            written = newest[newest > 0]
            self._counts.findings["truncated"] += len(slots)
            self._counts.apart["prefill", "truncated"] += len(slots) - len(written)
            if self._versions.endless(writer):  # a log may end anywhere beyond A
                self._counts.order_violations += int(np.count_nonzero(written > U64(acked)))
            if len(written):
                self._counts.lose(writer, int(written.min()), int(written.max()), "truncated")
            self._listener.tick()

    def _judge_in_flight(self) -> None:
        """Judge the slots in flight, after everything has been read."""
        for writer in range(self._plan.writers):
            rows = self._oracle.rows_in_flight(writer)
            changed = [slot for other, slot in self._changed if other == writer]
            if rows is not None and changed:
                rows = select(rows, ~np.isin(rows.slots, np.array(changed, dtype=U64)))
            for start in range(0, 0 if rows is None else len(rows.slots), _BATCH):
                assert rows is not None
                self._settle_rows(writer, select(rows, slice(start, start + _BATCH)))
                self._tell()
        observations = self._unchanged(self._oracle.odd_in_flight())
        while batch := list(islice(observations, _BATCH)):
            self._settle(batch, [self._odd.get((one.writer, one.slot), b"") for one in batch])
            self._tell()
        self._judge_changed()

    def _look_for_removed(self) -> None:
        """Find files that were durably removed and still exist. A region has no such files."""

    # -- second look ---------------------------------------------------------------------------------------

    def _settle_rows(self, writer: int, rows: Rows, words: Words | None = None) -> None:
        """Judge and count plain rows. Findings are read again first. `words`: the data read, or None for
        slots in flight, because only some of their data were kept."""
        if not len(rows.slots):
            return
        judged = self._oracle.judge_rows(writer, rows, in_flight=words is None)
        fine = np.flatnonzero(judged.finding == 0)
        self._counts.count_rows(writer, select(judged, fine))
        damaged = fine[judged.in_flight_damaged[fine]]
        self._keep_rows(
            writer,
            "in_flight_damaged",
            select(judged, damaged),
            lambda number: self._first_data(writer, rows, words, damaged[number]),
        )
        wrong = np.flatnonzero(judged.finding)
        files = rows.slots[wrong] // U64(self._plan.slots)  # number of a log file; 0 for a region
        for group in np.split(wrong, np.flatnonzero(np.diff(files)) + 1):
            if len(group):
                first = None if words is None else words[group]
                self._look_at_rows_again(writer, select(rows, group), select(judged, group), first)

    def _first_data(self, writer: int, rows: Rows, words: Words | None, number: int) -> bytes:
        if words is not None:
            return bytes(words[number].tobytes())
        return self._odd.get((writer, int(rows.slots[number])), b"")

    def _look_at_rows_again(self, writer: int, rows: Rows, judged: JudgedRows, words: Words | None) -> None:
        """Read rows of one file again, like `_look_again`."""
        extent = self._plan.extent_of(writer, int(rows.slots[0]))
        with self._reader(extent.suffix) as reader:
            done = 0
            for piece in pieces_around(extent, rows.slots):
                chunk = Chunk(piece, reader.read(self._second_look, piece.offset, piece.length))
                part = slice(done, done + len(piece.wanted_slots))
                done = part.stop
                first = None if words is None else words[part]
                self._conclude_rows(chunk, select(rows, part), select(judged, part), first)

    def _conclude_rows(self, chunk: Chunk, rows: Rows, judged: JudgedRows, first: Words | None) -> None:
        """Count rows that were read twice, in `first` and `chunk`, like `_conclude`. Rows whose second read
        differs are judged one by one."""
        writer = chunk.piece.extent.writer
        numbers = (rows.slots - U64(chunk.piece.first_slot)).astype(np.intp)
        whole = numbers < chunk.whole
        if chunk.content.unreadable:
            whole &= ~np.isin(numbers, list(chunk.doubtful))
        second = chunk.words(numbers[whole]) if whole.any() else None
        same = np.zeros(len(numbers), dtype=np.bool_)
        if second is not None and first is not None:
            same[whole] = (second == (first if whole.all() else first[whole])).all(axis=1)
        elif second is not None:
            seen = self._oracle.classify(writer, rows.slots[whole], second)
            same[whole] = alike(select(rows, whole), seen)
        if second is not None and same.any():
            kept = second if same.all() else second[same[whole]]
            self._convict_rows(writer, select(judged, same), kept)
        others = np.flatnonzero(~same)
        if not len(others):
            return
        observations = self._observe_rows(chunk, numbers[others].tolist())
        pairs = [
            (
                self._suspect(writer, select(rows, slice(number, number + 1)), first, number),
                Suspect(judgement, bytes(chunk.record(int(numbers[number])))),
            )
            for number, judgement in zip(others.tolist(), self._oracle.judge_all(observations), strict=True)
        ]
        self._require_drive(chain.from_iterable(pairs))
        for before, after in pairs:
            self._conclude(before, after)

    def _suspect(self, writer: int, row: Rows, first: Words | None, number: int) -> Suspect:
        """The first reading of a row, made from its bytes, or from the row if the bytes were not kept."""
        slot = int(row.slots[0])
        if first is not None:
            data = first[number].tobytes()
            observation = self._oracle.observe(writer, slot, data)
        else:
            data = self._odd.get((writer, slot), b"")
            observation = self._oracle.observation_of(writer, row)
        return Suspect(self._oracle.judge(observation), data)

    def _convict_rows(self, writer: int, judged: JudgedRows, words: Words) -> None:
        """Count findings that were wrong in both reads. `words`: data of the second read."""
        self._counts.count_rows(writer, judged)
        for number, name in enumerate(ROW_FINDINGS, start=1):
            of_class = np.flatnonzero(judged.finding == number)
            if len(of_class):
                self._keep_rows(writer, name, select(judged, of_class), partial(_record, words, of_class))
        if self._listener.finding is not None:
            for number in range(len(judged.slots)):
                data = words[number].tobytes()
                self._listener.finding(self._judgement_of(writer, judged, number, data))

    def _keep_rows(self, writer: int, kind: str, judged: JudgedRows, data_of: Callable[[int], bytes]) -> None:
        """Keep rows of one kind as examples, if there is room."""

        def make(number: int) -> Callable[[], Example]:
            return partial(self._example, kind, writer, judged, number, data_of(number))

        for example in self._examples.add_many(kind, len(judged.slots), make):
            self._listener.example(example)

    def _example(self, kind: str, writer: int, judged: JudgedRows, number: int, data: bytes) -> Example:
        return Example(kind=kind, judgement=self._judgement_of(writer, judged, number, data), data=data)

    def _judgement_of(self, writer: int, judged: JudgedRows, number: int, data: bytes) -> Judgement:
        """The judgement of one row with content `data`. Its flags are those that were counted for the row."""
        observation = self._oracle.observe(writer, int(judged.slots[number]), data)
        return replace(
            self._oracle.judge(observation),
            order_violation=bool(judged.order_violation[number]),
            collateral=bool(judged.collateral[number]),
        )

    def _settle(self, observations: Sequence[Observation], data: Sequence[bytes]) -> None:
        suspects = self._sort_out(self._oracle.judge_all(observations), data)
        for _, group in groupby(
            suspects, key=lambda suspect: (suspect.judgement.writer, suspect.judgement.suffix)
        ):
            self._look_again(list(group))

    def _look_again(self, suspects: Sequence[Suspect]) -> None:
        """Read slots of one file again through a new descriptor."""
        first = suspects[0].judgement
        extent = self._plan.extent_of(first.writer, first.slot)
        slots = np.array([suspect.judgement.slot for suspect in suspects], dtype=U64)
        observations: list[Observation] = []
        data: list[bytes] = []
        with self._reader(first.suffix) as reader:
            for piece in pieces_around(extent, slots):
                chunk = Chunk(piece, reader.read(self._second_look, piece.offset, piece.length))
                rows = (piece.wanted_slots - U64(piece.first_slot)).tolist()
                observations += self._observe_rows(chunk, rows)
                data += [bytes(chunk.record(row)) for row in rows]
        again = [
            Suspect(judgement, record)
            for judgement, record in zip(self._oracle.judge_all(observations), data, strict=True)
        ]
        self._require_drive((*suspects, *again))
        for before, after in zip(suspects, again, strict=True):
            self._conclude(before, after)

    # -- reading -------------------------------------------------------------------------------------------

    def _pass(self, phase: Phase, extents: Sequence[Extent], visit: Visit) -> None:
        """Read and visit all slots of `extents` that lie within their files."""
        self._begin(phase, self._bytes_of(extents))
        for extent in extents:
            self._read(extent, pieces_within(extent, self._present_slots(extent)), visit)

    def _observe(self, chunk: Chunk, row: int) -> Observation:
        piece = chunk.piece
        return self._oracle.observe(
            piece.extent.writer, piece.first_slot + row, chunk.record(row), chunk.unreadable_sectors(row)
        )

    def _observe_rows(self, chunk: Chunk, rows: Sequence[int]) -> list[Observation]:
        """`_observe` for many rows, in order."""
        readable = [row for row in rows if row not in chunk.doubtful]
        slots = np.array(readable, dtype=U64) + U64(chunk.piece.first_slot)
        in_bulk = self._oracle.observe_all(chunk.piece.extent.writer, slots, chunk.words(readable))
        observed = dict(zip(readable, in_bulk, strict=True))
        return [observed[row] if row in observed else self._observe(chunk, row) for row in rows]

    def _places(self) -> Iterator[CanaryPlace]:
        yield from super()._places()
        for extent in self._extents():
            present = self._present_slots(extent)
            for slot in range(0, present, max(1, present // _TRIED)):
                yield CanaryPlace(extent.suffix, extent.offset_of(extent.first_slot + slot))

    def _extents(self) -> Iterator[Extent]:
        """The extents of the writers' slots, one per file, without optional files that do not exist."""
        yield from (self._plan.extent(writer) for writer in range(self._plan.writers))

    def _every_extent(self) -> Iterator[Extent]:
        """Like `_extents`, plus other files that may hold records. Without a log, no file is too old."""
        yield from self._extents()

    def _bytes_of(self, extents: Iterable[Extent]) -> int:
        """Total bytes to read in `extents`."""
        return sum(self._present_slots(extent) * extent.record_bytes for extent in extents)


class LogScan(SlotScan):
    """One scan of a target whose slots lie in log files: a full file is replaced by the next."""

    def __init__(
        self, storage: Storage, job: ScanJob, listener: ScanListener, log: LogOracle | None = None
    ) -> None:
        self._log = LogOracle(job.plan, job.acked) if log is None else log
        super().__init__(storage, job, listener, self._log)

    def _read_beyond(self) -> None:
        """Count each file whose first record is beyond the ceiling: then the log is behind.

        Other such files do not show that the log is behind. A writer makes a file only after the file before
        is full and synced, so the last record of the file before would show that.
        """
        for extent in self._log.files_beyond(self._suffixes()) if self._log.logged else ():
            shown = self._first_record(extent)
            if shown == "newer":
                self._counts.above_ceiling += 1
                continue
            # A file with another run's data is judged as a name of that run, unless it is the next file.
            is_next = extent.first_slot // extent.slots == self._log.next_file(extent.writer)
            self._counts.out_of_reach += is_next or shown != "another run's"

    def _first_record(self, extent: Extent) -> Beyond:
        """What the first record of a file shows. "newer" also if the record is unreadable, because it may be
        one beyond the ceiling."""
        shown: Beyond = "nothing newer"

        def look(chunk: Chunk) -> None:
            nonlocal shown
            whole = len(chunk.content.data) // limits.SECTOR_BYTES * limits.SECTOR_BYTES
            shown = self._log.look_beyond(np.frombuffer(chunk.content.data[:whole], dtype=U64))
            if chunk.content.unreadable:
                shown = "newer"

        first = pieces_within(extent, min(1, self._present_slots(extent)))
        self._begin("in flight", extent.record_bytes)
        self._read(extent, first, look)
        return shown

    def _look_for_removed(self) -> None:
        """Find files that still exist although they were durably removed before acknowledged records."""
        for judgement in self._log.resurrected(self._suffixes()):
            again = judgement if self._is_there(judgement.suffix) else replace(judgement, finding=None)
            self._conclude(Suspect(judgement, b""), Suspect(again, b""))

    def _extents(self) -> Iterator[Extent]:
        for file in self._log.files():
            # Without a list of the files, the scan may not see that the log is behind and that a later file
            # has replaced this one.
            required = file.min_bytes is not None and self._unlisted is None
            if required or self._is_there(file.suffix):
                yield self._plan.extent(file.writer, file.generation)

    def _is_there(self, suffix: str) -> bool:
        """Whether a file exists. True if an I/O error hides the answer."""
        try:
            return self._storage.exists(suffix)
        except OSError as error:
            if error.errno not in MEDIUM_ERRORS:
                raise
            return True

    def _required_bytes(self, suffix: str) -> int:
        """Like any target; for a log file, the length that A' requires, and at least its first record."""
        if parse_name(suffix) is None:
            return super()._required_bytes(suffix)
        required = {file.suffix: file.min_bytes or 0 for file in self._log.files()}
        return max(required.get(suffix, 0), self._plan.record_bytes)

    def _every_extent(self) -> Iterator[Extent]:
        """Like `_extents`, plus every other existing file of a writer."""
        yield from self._extents()
        known = {extent.suffix for extent in self._extents()}
        for name in filter(None, map(parse_name, self._suffixes())):
            if name.suffix not in known and name.writer < self._plan.writers and not name.temporary:
                yield self._plan.extent(name.writer, name.number)


def _record(words: Words, rows: NDArray[np.intp], number: int) -> bytes:
    return bytes(words[rows[number]].tobytes())


def _holds(ascending: Words, value: int) -> bool:
    position = int(np.searchsorted(ascending, U64(value)))
    return position < len(ascending) and int(ascending[position]) == value
