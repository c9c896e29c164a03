"""The scan: reads everything that a run wrote to its target once, and counts what the oracle says of it.

The order is rule 8's: slots that were in flight at the cut first, for their testimony; then every slot once;
the control arm; what is missing at the ends of files; at last the slots in flight again, under the testified
frontiers. Whatever looks wrong is read again through a new descriptor before it counts, so a cable that
flips bits does not fail a drive. Memory does not grow with the target. It decides no verdict and writes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, islice
from typing import Literal, TypeAlias

import numpy as np

from durability import limits
from durability.judgement import Judgement
from durability.mixing import U64, Words
from durability.observation import Observation
from durability.oracle import Oracle
from durability.plan import CONTROL, MAIN, Extent, Plan
from durability_client.io import Storage
from durability_client.reading import CHUNK_BYTES, Content, Reader, Span, aligned_buffer, read_ahead
from durability_client.tally import Example, Examples, Report, Tally

Phase: TypeAlias = Literal["in flight", "survey", "all slots", "control arm", "judging"]

_BUFFERS = 4
_GAP_BYTES = 256 << 10  # reading over a gap of this size costs a drive less than another request
_BATCH = 4096  # observations judged at a time
_SLOTS_AT_A_TIME = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanJob:
    """What a scan needs beside the storage. `acked` is rule 4's A, None without a server's log;
    `control_completed` the control arm's frontier; `block_bytes` the smallest piece that the drives can be
    asked for.
    """

    plan: Plan
    acked: tuple[int, ...] | None
    control_completed: int
    block_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """`done` of `total` bytes of a phase were read; `report` is what they came to."""

    phase: Phase
    done: int
    total: int
    report: Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Whom a scan tells. `tick` after each read that returned, from the thread that read; `progress` after
    each chunk that was judged; `example` for each one to keep.
    """

    tick: Callable[[], None]
    progress: Callable[[Progress], None]
    example: Callable[[Example], None]


@dataclass(frozen=True, slots=True)
class _Piece:
    """Consecutive slots of one file to read at once; `wanted` names those to look at, None for all."""

    extent: Extent
    first_slot: int
    slots: int
    wanted: Words | None = None

    @property
    def length(self) -> int:
        return self.slots * self.extent.record_bytes


@dataclass(frozen=True, slots=True)
class _Suspect:
    """A slot that looked wrong when first read, and what was read."""

    judgement: Judgement
    data: bytes


Visit: TypeAlias = Callable[[_Piece, Content], None]


class Scan:
    """One scan of one target; `run` does it."""

    def __init__(self, storage: Storage, job: ScanJob, listener: Listener) -> None:
        self._storage = storage
        self._plan = job.plan
        self._job = job
        self._listener = listener
        self._oracle = Oracle(job.plan, job.acked)
        self._tally = Tally(writers=job.plan.writers)
        self._examples = Examples()
        chunk = max(CHUNK_BYTES, job.plan.record_bytes)
        self._buffers = [aligned_buffer(chunk) for _ in range(_BUFFERS)]
        self._odd: dict[tuple[int, int], bytes] = {}  # what the first odd slots in flight held
        self._second_look = aligned_buffer(chunk)
        self._phase: Phase = "in flight"
        self._done = self._total = 0

    def run(self) -> Report:
        """Scan everything. Raises OSError where the target cannot be read for a reason that is no error of
        the medium.
        """
        self._read_in_flight()
        if not self._oracle.logged:
            self._pass("survey", list(self._every_extent()), self._survey)
        self._check_superblocks()
        self._pass("all slots", list(self._extents()), self._check)
        if self._plan.control_slots and self._job.control_completed:
            self._read_control()
        self._phase = "judging"
        self._count_absent()
        self._judge_in_flight()
        for example in self._examples.latest():
            self._listener.example(example)
        return self._report(finished=True)

    # -- phases --------------------------------------------------------------------------------------------

    def _read_in_flight(self) -> None:
        """Let the slots testify that may hold a version newer than the log knows."""
        wanted: list[tuple[Extent, Words]] = []
        for extent in self._extents():
            slots = self._oracle.in_flight_slots(extent.writer)
            stop = extent.first_slot + self._present_slots(extent)
            wanted.append((extent, slots[(slots >= U64(extent.first_slot)) & (slots < U64(stop))]))
        self._tally.in_flight = sum(len(slots) for _, slots in wanted)
        self._begin("in flight", self._tally.in_flight * self._plan.record_bytes)
        for extent, slots in wanted:
            self._read(extent, _pieces_of(extent, slots), self._testify)

    def _testify(self, piece: _Piece, content: Content) -> None:
        assert piece.wanted is not None
        record_bytes = piece.extent.record_bytes
        whole = len(content.data) // record_bytes
        rows = (piece.wanted - U64(piece.first_slot)).astype(np.intp)
        odd = set(rows[rows >= whole].tolist()) | (
            _rows_of(content.unreadable, record_bytes) & set(rows.tolist())
        )
        readable = np.array([row for row in rows.tolist() if row not in odd], dtype=np.intp)
        words = _words(content.data, whole, record_bytes)
        held = self._oracle.hold(
            piece.extent.writer, readable.astype(U64) + U64(piece.first_slot), words[readable]
        )
        for row in (*odd, *readable[held].tolist()):
            observation = self._observe(piece, content, row)
            self._oracle.testify(observation)
            if len(self._odd) < limits.EXAMPLES_FIRST:
                self._odd[observation.writer, observation.slot] = _record(piece, content, row)

    def _survey(self, piece: _Piece, content: Content) -> None:
        whole_sectors = len(content.data) // limits.SECTOR_BYTES * limits.SECTOR_BYTES
        self._oracle.survey(np.frombuffer(content.data[:whole_sectors], dtype=U64))

    def _check(self, piece: _Piece, content: Content) -> None:
        """Hold every slot of `piece` that has no version in flight against what must be there."""
        record_bytes, writer = piece.extent.record_bytes, piece.extent.writer
        whole = len(content.data) // record_bytes
        words = _words(content.data, whole, record_bytes)
        rows = set(self._oracle.screen(writer, piece.first_slot, words).tolist())
        doubtful = _rows_of(content.unreadable, record_bytes)
        if len(content.data) % record_bytes:
            doubtful.add(whole)
        in_flight = self._oracle.in_flight_slots(writer)
        rows |= {row for row in doubtful if not _holds(in_flight, piece.first_slot + row)}
        self._tally.checked += piece.slots
        ordered = sorted(rows)
        observations = [self._observe(piece, content, row) for row in ordered]
        for observation in observations:
            self._oracle.testify(observation)
        self._settle(observations, [_record(piece, content, row) for row in ordered])

    def _check_superblocks(self) -> None:
        """Both copies were durable before the run began."""
        size = self._size(MAIN)
        for copy, offset in enumerate(self._plan.superblock_offsets):
            first = self._judge_superblock(copy, offset, size)
            if first.judgement.finding is not None:
                self._conclude(first, self._judge_superblock(copy, offset, size))

    def _judge_superblock(self, copy: int, offset: int, size: int) -> _Suspect:
        if size <= offset:
            return _Suspect(self._oracle.judge_superblock(copy, b""), b"")
        with self._reader(MAIN) as reader:
            content = reader.read(self._second_look, offset, limits.SUPERBLOCK_BYTES)
        data = bytes(content.data)
        judgement = self._oracle.judge_superblock(copy, data)
        if content.unreadable:
            judgement = replace(judgement, finding="unreadable")
        return _Suspect(judgement, data)

    def _read_control(self) -> None:
        """Count what the control arm completed and the target no longer has; a fact, never a finding (rule
        15).
        """
        extent = self._plan.extent(self._plan.control_writer)
        completed = self._job.control_completed
        present = min(self._present_slots(extent), completed)

        def check(piece: _Piece, content: Content) -> None:
            whole = len(content.data) // extent.record_bytes
            words = _words(content.data, whole, extent.record_bytes)
            self._tally.control_lost += self._oracle.screen_control(piece.first_slot, words, completed)

        self._begin("control arm", present * extent.record_bytes)
        self._read(extent, _pieces_within(extent, present), check)
        self._tally.control_lost += min(completed, extent.slots) - present

    def _count_absent(self) -> None:
        """Count the slots beyond the end of a file that is too short, without looking at each."""
        for extent in self._extents():
            generation = extent.first_slot // extent.slots
            absent = self._oracle.absent_slots(extent.writer, generation, self._size(extent.suffix))
            first = max(absent.start, extent.first_slot + self._present_slots(extent))
            if first >= absent.stop:
                continue
            edges = [*range(first, absent.stop)[: limits.EXAMPLES_FIRST]]
            edges += range(max(first + len(edges), absent.stop - limits.EXAMPLES_LAST), absent.stop)
            for slot in edges:
                observation = self._oracle.observe(extent.writer, slot, b"")
                judgement = self._oracle.judge(observation)
                self._tally.convict(judgement)
                self._keep(judgement.finding or "truncated", judgement, b"")
            self._tally.checked += absent.stop - first
            self._tally.findings["truncated"] += absent.stop - first - len(edges)
            self._lose_range(extent.writer, first, absent.stop)

    def _lose_range(self, writer: int, first: int, stop: int) -> None:
        """Note the acknowledged operations that ended on the slots from `first` on, all of them gone."""
        frontier = self._oracle.testified[writer]
        for start in range(first, stop, _SLOTS_AT_A_TIME):
            slots = np.arange(start, min(stop, start + _SLOTS_AT_A_TIME), dtype=U64)
            if self._plan.workload == "append":
                newest = slots + U64(1)
            else:
                newest = self._plan.schedule(writer).newest_at(slots, frontier)
            newest = newest[newest > 0]
            if len(newest):
                self._tally.lose(writer, int(newest.min()), int(newest.max()))
            self._listener.tick()

    def _judge_in_flight(self) -> None:
        """Judge what was read first, now that every testimony is in."""
        observations = self._oracle.in_flight()
        while batch := list(islice(observations, _BATCH)):
            self._settle(batch, [self._odd.get((one.writer, one.slot), b"") for one in batch])
            self._tell()

    # -- second look ---------------------------------------------------------------------------------------

    def _settle(self, observations: Sequence[Observation], data: Sequence[bytes]) -> None:
        """Count what `observations`, made of `data`, come to; findings are read again first."""
        suspects: list[_Suspect] = []
        for judgement, record in zip(self._oracle.judge_all(observations), data, strict=True):
            if judgement.finding is not None:
                suspects.append(_Suspect(judgement, record))
                continue
            self._tally.excuse(judgement)
            if judgement.in_flight_damaged:
                self._keep("in_flight_damaged", judgement, record)
        for _, group in groupby(
            suspects, key=lambda suspect: (suspect.judgement.writer, suspect.judgement.suffix)
        ):
            self._look_again(list(group))

    def _look_again(self, suspects: Sequence[_Suspect]) -> None:
        """Read slots of one file again, through a descriptor that has read nothing before."""
        first = suspects[0].judgement
        extent = self._plan.extent(first.writer, self._generation_of(first))
        slots = np.array([suspect.judgement.slot for suspect in suspects], dtype=U64)
        observations: list[Observation] = []
        data: list[bytes] = []
        with self._reader(first.suffix) as reader:
            for piece in _pieces_of(extent, slots):
                assert piece.wanted is not None
                offset = extent.offset_of(piece.first_slot)
                content = reader.read(self._second_look, offset, piece.length)
                for slot in piece.wanted.tolist():
                    observations.append(self._observe(piece, content, slot - piece.first_slot))
                    data.append(_record(piece, content, slot - piece.first_slot))
        for number, judgement in enumerate(self._oracle.judge_all(observations)):
            self._conclude(suspects[number], _Suspect(judgement, data[number]))

    def _generation_of(self, judgement: Judgement) -> int:
        return judgement.slot // self._plan.slots if self._plan.workload == "append" else 0

    def _conclude(self, first: _Suspect, second: _Suspect) -> None:
        """Count a slot that was read twice: only what is wrong both times is a finding."""
        if second.judgement.finding is None:
            self._tally.unstable += 1
            self._keep("unstable", first.judgement, first.data)
            return
        # An I/O error counts only if it repeats; one that came the second time does not hide what was read
        # before.
        final = second
        if second.judgement.finding == "unreadable" and first.judgement.finding != "unreadable":
            final = first
        assert final.judgement.finding is not None
        self._tally.convict(final.judgement)
        self._keep(final.judgement.finding, final.judgement, final.data)

    # -- reading -------------------------------------------------------------------------------------------

    def _pass(self, phase: Phase, extents: Sequence[Extent], visit: Visit) -> None:
        """Visit every slot of `extents` that lies within its file."""
        present = [self._present_slots(extent) for extent in extents]
        self._begin(phase, sum(present) * self._plan.record_bytes)
        for extent, slots in zip(extents, present, strict=True):
            self._read(extent, _pieces_within(extent, slots), visit)

    def _read(self, extent: Extent, pieces: Iterator[_Piece], visit: Visit) -> None:
        """Read `pieces` of one file, and visit each while the next is read."""
        first = next(pieces, None)
        if first is None:
            return  # and do not open a file that may not exist
        with self._reader(extent.suffix) as reader:

            def read(piece: _Piece, buffer: memoryview) -> tuple[_Piece, Content]:
                return piece, reader.read(buffer, extent.offset_of(piece.first_slot), piece.length)

            for piece, content in read_ahead(chain([first], pieces), read, self._buffers):
                visit(piece, content)
                self._done += (
                    len(piece.wanted) * extent.record_bytes if piece.wanted is not None else piece.length
                )
                self._tell()

    def _reader(self, suffix: str) -> Reader:
        return Reader(self._storage, suffix, block_bytes=self._job.block_bytes, tick=self._listener.tick)

    def _observe(self, piece: _Piece, content: Content, row: int) -> Observation:
        record_bytes = piece.extent.record_bytes
        start = row * record_bytes
        unreadable = {
            sector
            for span in content.unreadable
            if span.start < start + record_bytes and span.end > start
            for sector in range(
                max(0, span.start - start) // limits.SECTOR_BYTES,
                min(record_bytes, span.end - start) // limits.SECTOR_BYTES,
            )
        }
        data = content.data[start : start + record_bytes]
        return self._oracle.observe(piece.extent.writer, piece.first_slot + row, data, unreadable)

    def _extents(self) -> Iterator[Extent]:
        """Where the writers' slots lie, file by file; those of files that need not exist and do not are left
        out.
        """
        if self._plan.workload != "append":
            yield from (self._plan.extent(writer) for writer in range(self._plan.writers))
            return
        for file in self._oracle.files():
            if file.writer is not None and (file.min_bytes is not None or self._storage.exists(file.suffix)):
                yield self._plan.extent(file.writer, file.generation)

    def _every_extent(self) -> Iterator[Extent]:
        """As `_extents`, and every other append file that is there: without a log, none can be called too
        old.
        """
        yield from self._extents()
        if self._plan.workload == "append":
            known = {extent.suffix for extent in self._extents()}
            for suffix in self._storage.suffixes():
                if suffix not in known and suffix != CONTROL:
                    _, writer, generation = suffix.split(".")
                    yield self._plan.extent(int(writer), int(generation))

    def _present_slots(self, extent: Extent) -> int:
        """How many slots of `extent` its file holds, the last one perhaps in part."""
        within = self._size(extent.suffix) - extent.offset_bytes
        return min(extent.slots, max(0, -(-within // extent.record_bytes)))

    def _size(self, suffix: str) -> int:
        """Length of a file of the target, 0 where it is gone."""
        try:
            return self._storage.size(suffix)
        except FileNotFoundError:
            return 0

    # -- telling -------------------------------------------------------------------------------------------

    def _keep(self, kind: str, judgement: Judgement, data: bytes) -> None:
        example = Example(kind=kind, judgement=judgement, data=data)
        if self._examples.add(example):
            self._listener.example(example)

    def _begin(self, phase: Phase, total: int) -> None:
        self._phase, self._done, self._total = phase, 0, total

    def _tell(self) -> None:
        self._listener.progress(
            Progress(
                phase=self._phase, done=self._done, total=self._total, report=self._report(finished=False)
            )
        )

    def _report(self, *, finished: bool) -> Report:
        return self._tally.report(
            testified=self._oracle.testified, newest_seen=self._oracle.newest_seen, finished=finished
        )


def _pieces_within(extent: Extent, slots: int) -> Iterator[_Piece]:
    """The first `slots` slots of `extent`, in chunks."""
    per_chunk = max(1, CHUNK_BYTES // extent.record_bytes)
    for start in range(0, slots, per_chunk):
        yield _Piece(extent, extent.first_slot + start, min(per_chunk, slots - start))


def _pieces_of(extent: Extent, slots: Words) -> Iterator[_Piece]:
    """Pieces that hold `slots` (ascending), without reading over larger gaps."""
    if not len(slots):
        return
    per_chunk = max(1, CHUNK_BYTES // extent.record_bytes)
    gap = max(1, _GAP_BYTES // extent.record_bytes)
    chunks = (slots - U64(extent.first_slot)) // U64(per_chunk)
    breaks = np.flatnonzero((np.diff(slots) > U64(gap)) | (np.diff(chunks) > 0)) + 1
    for wanted in np.split(slots, breaks):
        first, last = int(wanted[0]), int(wanted[-1])
        yield _Piece(extent, first, last - first + 1, wanted)


def _rows_of(spans: Sequence[Span], record_bytes: int) -> set[int]:
    """The records, counted from the start of the data, that `spans` touch."""
    return {row for span in spans for row in range(span.start // record_bytes, -(-span.end // record_bytes))}


def _words(data: memoryview, records: int, record_bytes: int) -> Words:
    """The first `records` whole records of `data`, one row each."""
    return np.frombuffer(data[: records * record_bytes], dtype=U64).reshape(records, record_bytes // 8)


def _record(piece: _Piece, content: Content, row: int) -> bytes:
    record_bytes = piece.extent.record_bytes
    return bytes(content.data[row * record_bytes : (row + 1) * record_bytes])


def _holds(ascending: Words, value: int) -> bool:
    position = int(np.searchsorted(ascending, U64(value)))
    return position < len(ascending) and int(ascending[position]) == value
