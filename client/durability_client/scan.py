"""The scan: reads everything that a run wrote to its target once, and counts what the oracle says of it.

The order is rule 8's: slots that were in flight at the cut first, for their testimony; then every slot once;
the control arm; what is missing at the ends of files; at last the verdict on the slots in flight, under the
testified frontiers. Whatever looks wrong is read again through a new descriptor before it counts, so a cable
that flips bits does not fail a drive. Memory does not grow with the target. It decides no verdict and writes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
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
from durability_client.pieces import Chunk, Piece, bytes_around, pieces_around, pieces_within
from durability_client.reading import CHUNK_BYTES, Reader, aligned_buffer, read_ahead
from durability_client.tally import Example, Examples, Report, Tally

Phase: TypeAlias = Literal["in flight", "survey", "all slots", "control arm", "judging"]

_BUFFERS = 8
_IN_FLIGHT_SHARE = 16  # slots in flight are read first where that is less than this part of everything
_BATCH = 4096  # observations judged at a time
_SLOTS_AT_A_TIME = 1 << 20  # of a missing range, to keep memory flat


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
class _Suspect:
    """A slot that looked wrong when first read, and what was read."""

    judgement: Judgement
    data: bytes


Visit: TypeAlias = Callable[[Chunk], None]


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
        self._testified = False  # whether the slots in flight have been read
        self._phase: Phase = "in flight"
        self._done = self._total = 0

    def run(self) -> Report:
        """Scan everything. Raises OSError for what is no error of the medium: the rest was not read."""
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

    @property
    def so_far(self) -> Report:
        """What the part that was done has come to."""
        return self._report(finished=False)

    # -- phases --------------------------------------------------------------------------------------------

    def _read_in_flight(self) -> None:
        """Let the slots testify that may hold a version newer than the log knows.

        Where reading them amounts to much of the pass over everything, they are read in that pass: what the
        other slots must hold does not depend on their testimony, and they are judged at the end anyway.
        """
        extents = list(self._extents())
        self._tally.in_flight = sum(len(self._in_flight_of(extent)) for extent in extents)
        total = sum(bytes_around(extent, self._in_flight_of(extent)) for extent in extents)
        if total * _IN_FLIGHT_SHARE > self._bytes_of(extents):
            return
        self._begin("in flight", total)
        for extent in extents:
            self._read(extent, pieces_around(extent, self._in_flight_of(extent)), self._testify)
        self._testified = True

    def _in_flight_of(self, extent: Extent) -> Words:
        """The slots of `extent` that may have been in flight, and that its file is long enough for."""
        slots = self._oracle.in_flight_slots(extent.writer)
        stop = extent.first_slot + self._present_slots(extent)
        return slots[np.searchsorted(slots, U64(extent.first_slot)) : np.searchsorted(slots, U64(stop))]

    def _testify(self, chunk: Chunk) -> None:
        """Hold the slots of `chunk` that were in flight, and let them testify."""
        piece = chunk.piece
        slots = self._in_flight_of(piece.extent)
        first, stop = np.searchsorted(slots, (U64(piece.first_slot), U64(piece.first_slot + piece.slots)))
        rows = (slots[first:stop] - U64(piece.first_slot)).tolist()
        readable = [row for row in rows if row not in chunk.doubtful]
        slots = np.array(readable, dtype=U64) + U64(piece.first_slot)
        odd = self._oracle.hold(piece.extent.writer, slots, chunk.words(readable))
        for row in (*chunk.doubtful.intersection(rows), *(readable[number] for number in odd)):
            observation = self._observe(chunk, row)
            self._oracle.testify(observation)
            if len(self._odd) < limits.EXAMPLES_FIRST:
                self._odd[observation.writer, observation.slot] = bytes(chunk.record(row))

    def _survey(self, chunk: Chunk) -> None:
        self._oracle.survey(chunk.words())

    def _check(self, chunk: Chunk) -> None:
        """Hold every slot that has no version in flight against what must be there."""
        if not self._testified:
            self._testify(chunk)
        piece = chunk.piece
        writer = piece.extent.writer
        in_flight = self._oracle.in_flight_slots(writer)
        suspects = set(self._oracle.screen(writer, piece.first_slot, chunk.words()).tolist())
        suspects |= {row for row in chunk.doubtful if not _holds(in_flight, piece.first_slot + row)}
        rows = sorted(suspects)
        observations = self._observe_rows(chunk, rows)
        for observation in observations:
            self._oracle.testify(observation)
        self._tally.checked += piece.slots
        self._settle(observations, [bytes(chunk.record(row)) for row in rows])

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
            text = f"copy {copy} of the superblock, written before the run, is unreadable in part"
            judgement = replace(judgement, finding="unreadable", text=text)
        return _Suspect(judgement, data)

    def _read_control(self) -> None:
        """Count what the control arm completed and the target no longer has: no finding (rule 15)."""
        extent = self._plan.extent(self._plan.control_writer)
        completed = self._job.control_completed
        present = min(self._present_slots(extent), completed)

        def check(chunk: Chunk) -> None:
            lost = self._oracle.screen_control(chunk.piece.first_slot, chunk.words(), completed)
            self._tally.control_lost += lost + chunk.piece.slots - chunk.whole

        self._begin("control arm", present * extent.record_bytes)
        self._read(extent, pieces_within(extent, present), check)
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
                self._convict(self._oracle.judge(observation), b"")
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
            for piece in pieces_around(extent, slots):
                chunk = Chunk(piece, reader.read(self._second_look, piece.offset, piece.length))
                rows = (piece.wanted_slots - U64(piece.first_slot)).tolist()
                observations += self._observe_rows(chunk, rows)
                data += [bytes(chunk.record(row)) for row in rows]
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
        # An I/O error that comes only the second time does not hide what was read before.
        hidden = second.judgement.finding == "unreadable" and first.judgement.finding != "unreadable"
        final = first if hidden else second
        self._convict(final.judgement, final.data)

    def _convict(self, judgement: Judgement, data: bytes) -> None:
        assert judgement.finding is not None
        self._tally.convict(judgement)
        self._keep(judgement.finding, judgement, data)

    # -- reading -------------------------------------------------------------------------------------------

    def _pass(self, phase: Phase, extents: Sequence[Extent], visit: Visit) -> None:
        """Visit every slot of `extents` that lies within its file."""
        self._begin(phase, self._bytes_of(extents))
        for extent in extents:
            self._read(extent, pieces_within(extent, self._present_slots(extent)), visit)

    def _read(self, extent: Extent, pieces: Iterator[Piece], visit: Visit) -> None:
        """Read `pieces` of one file, and visit each while the next is read."""
        first = next(pieces, None)
        if first is None:
            return  # and do not open a file that may not exist
        with self._reader(extent.suffix) as reader:

            def read(piece: Piece, buffer: memoryview) -> Chunk:
                return Chunk(piece, reader.read(buffer, piece.offset, piece.length))

            for chunk in read_ahead(chain([first], pieces), read, self._buffers):
                visit(chunk)
                self._done += chunk.piece.length
                self._tell()

    def _reader(self, suffix: str) -> Reader:
        return Reader(self._storage, suffix, block_bytes=self._job.block_bytes, tick=self._listener.tick)

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

    def _extents(self) -> Iterator[Extent]:
        """Where the writers' slots lie, file by file, without files that need not exist and do not."""
        if self._plan.workload != "append":
            yield from (self._plan.extent(writer) for writer in range(self._plan.writers))
            return
        for file in self._oracle.files():
            if file.writer is not None and (file.min_bytes is not None or self._storage.exists(file.suffix)):
                yield self._plan.extent(file.writer, file.generation)

    def _every_extent(self) -> Iterator[Extent]:
        """As `_extents`, and every other append file that is there: without a log, none is too old."""
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

    def _bytes_of(self, extents: Iterable[Extent]) -> int:
        """How much there is to read of `extents`."""
        return sum(self._present_slots(extent) * extent.record_bytes for extent in extents)

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
            Progress(phase=self._phase, done=self._done, total=self._total, report=self.so_far)
        )

    def _report(self, *, finished: bool) -> Report:
        return self._tally.report(
            testified=self._oracle.testified, newest_seen=self._oracle.newest_seen, finished=finished
        )


def _holds(ascending: Words, value: int) -> bool:
    position = int(np.searchsorted(ascending, U64(value)))
    return position < len(ascending) and int(ascending[position]) == value
