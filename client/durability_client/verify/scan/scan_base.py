"""Common part of all scans: superblocks, the control arm, rereads, counts and reports.

A wrong slot is read again through a new descriptor before it counts, so a cable that flips bits does not fail
a drive. Unreadable data count only while the drive still answers at other places. Missing data count only
while the target is the same as at recognition (`canary`). Memory use does not grow with the target. The
subclasses read the slots: `slot_scan` has slots in files, `name_scan` has one file per slot. A scan decides
no verdict and writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal, TypeAlias

from durability import limits
from durability.evidence.judgement import FindingClass, Judgement
from durability.evidence.observation import Observation
from durability.evidence.proven_operations import ProvenOperations
from durability.evidence.scan_report import Example, Examples, ScanCounts, ScanReport
from durability.formats.plan import MAIN, Extent, Plan
from durability_client.target.storage import MEDIUM_ERRORS, Storage
from durability_client.verify.scan.canary import Canary, CanaryPlace, Presence
from durability_client.verify.scan.read_chunks import Chunk, Piece, pieces_within
from durability_client.verify.scan.target_reader import (
    CHUNK_BYTES,
    ClosedReader,
    Reader,
    aligned_buffer,
    opened,
    read_ahead,
)

Phase: TypeAlias = Literal[
    "in flight", "survey", "all slots", "all names", "control arm", "judging", "earlier names"
]

_BUFFERS = 8
_EARLIER_BYTES = 4096  # bytes read from a name of an earlier run, whose records may have any length
_GONE: frozenset[FindingClass | None] = frozenset({"truncated", "absent"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanJob:
    """Input of a scan, apart from the storage."""

    plan: Plan
    acked: tuple[int, ...] | None  # A of rule 4; None without a server's log
    control_completed: int  # the control arm's frontier
    block_bytes: int  # the smallest read that all drives accept
    before: Presence | None = None  # the target when it was recognised; None: as when the scan begins
    # Runs whose names this run durably removed before it was armed; empty if that is uncertain.
    earlier: Collection[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanProgress:
    """Progress: `done` of `total` bytes of a phase were read. `report` is the scan's report so far."""

    phase: Phase
    done: int
    total: int
    report: ScanReport


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanListener:
    """Callbacks that get a scan's reports."""

    tick: Callable[[], None]  # after each read that returned, from the thread that read
    progress: Callable[[ScanProgress], None]  # after each judged chunk
    example: Callable[[Example], None]  # for each example to store
    # For each single finding, also without an example; slow for many findings. If a file is too short, only
    # the first and last missing slots are passed.
    finding: Callable[[Judgement], None] | None = None


@dataclass(frozen=True, slots=True)
class Suspect:
    """A slot that looked wrong, and the data that were read."""

    judgement: Judgement
    data: bytes


@dataclass(frozen=True, slots=True)
class TwoReadings:
    """The first and second observation of a slot in flight. `data`: bytes of the second read, if there was
    room to keep them."""

    first: Observation
    second: Observation
    data: bytes


Visit: TypeAlias = Callable[[Chunk], None]


class ScanBase:
    """One scan of one target; `run` does it."""

    def __init__(
        self, storage: Storage, job: ScanJob, listener: ScanListener, proven: ProvenOperations
    ) -> None:
        self._storage = storage
        self._plan = job.plan
        self._job = job
        self._listener = listener
        self._proven = proven
        self._counts = ScanCounts(job.plan)
        self._examples = Examples(job.plan.record_bytes)
        chunk = max(CHUNK_BYTES, job.plan.record_bytes)
        self._buffers = [aligned_buffer(chunk) for _ in range(_BUFFERS)]
        self._second_look = aligned_buffer(chunk)
        self._odd: dict[tuple[int, int], bytes] = {}  # contents of the first odd slots in flight
        self._changed: dict[tuple[int, int], TwoReadings] = {}  # slots in flight whose second read differed
        self._canary = Canary(
            storage,
            block_bytes=job.block_bytes,
            tick=listener.tick,
            before=job.before,
            is_device=job.plan.target_kind == "device",
        )
        self._doubted = False  # whether any read has failed
        self._back: set[str] = set()  # suffixes convicted as resurrected
        self._unlisted: OSError | None = None  # why the directory could not be listed
        self._phase: Phase = "in flight"
        self._done = self._total = 0

    def require_target(self) -> None:
        """Raises DriveWentAwayError if the target has changed since its recognition."""
        self._canary.require_presence()

    def run(self) -> ScanReport:
        """Scan everything. Raises OSError for an error other than a medium error, and DriveWentAwayError. In
        both cases the rest was not read."""
        raise NotImplementedError

    @property
    def so_far(self) -> ScanReport:
        """The report of the part that was scanned so far."""
        return self._report(finished=False)

    # -- superblocks and control arm -----------------------------------------------------------------------

    def _check_superblocks(self) -> None:
        """Check both copies of the superblock, which were durable before the run began."""
        size = self._size(MAIN)
        for copy, offset in enumerate(self._plan.superblock_offsets):
            first = self._judge_superblock(copy, offset, size)
            if first.judgement.finding is not None:
                second = self._judge_superblock(copy, offset, size)
                self._require_drive((first, second))
                self._conclude(first, second)

    def _judge_superblock(self, copy: int, offset: int, size: int) -> Suspect:
        if size <= offset:
            return Suspect(self._proven.judge_superblock(copy, b""), b"")
        with self._reader(MAIN) as reader:
            content = reader.read(self._second_look, offset, limits.SUPERBLOCK_BYTES)
        self._canary.saw(MAIN, offset, content)
        data = bytes(content.data)
        judgement = self._proven.judge_superblock(copy, data)
        if content.unreadable:
            text = f"copy {copy} of the superblock, written before the run, is unreadable in part"
            judgement = replace(judgement, finding="unreadable", text=text)
        return Suspect(judgement, data)

    def _read_control(self) -> None:
        """Count completed writes of the control arm that are lost. These are not findings (rule 15)."""
        completed = self._job.control_completed
        if not self._plan.control_slots or not completed:
            return
        extent = self._plan.extent(self._plan.control_writer)
        present = min(self._present_slots(extent), completed)

        def check(chunk: Chunk) -> None:
            lost = self._proven.screen_control(chunk.piece.first_slot, chunk.words(), completed)
            self._counts.control_lost += lost + chunk.piece.slots - chunk.whole

        self._begin("control arm", present * extent.record_bytes)
        self._read(extent, pieces_within(extent, present), check)
        self._counts.control_lost += min(completed, extent.slots) - present

    # -- slots in flight -----------------------------------------------------------------------------------

    def _compare(self, first: Observation, second: Observation, data: bytes) -> None:
        """Use the second observation of a slot in flight, made from `data`. It may prove operations that the
        first did not show. An unreadable second observation does not replace a readable first one."""
        self._proven.prove_again(second)
        if second != first and (first.unreadable or not second.unreadable):
            kept = data if len(self._changed) < limits.EXAMPLES_FIRST else b""
            self._changed[second.writer, second.slot] = TwoReadings(first, second, kept)

    def _unchanged(self, observations: Iterable[Observation]) -> Iterator[Observation]:
        """The observations of slots in flight whose second read did not differ."""
        return (one for one in observations if (one.writer, one.slot) not in self._changed)

    def _judge_changed(self) -> None:
        """Judge the slots in flight whose second read differed. If the second read is wrong, the slot is read
        a third time before it counts. If only the first was wrong, the slot is unstable."""
        changed = [reading for _, reading in sorted(self._changed.items())]
        firsts = self._proven.judge_all([one.first for one in changed])
        seconds = self._proven.judge_all([one.second for one in changed])
        wrong: list[TwoReadings] = []
        for one, before, after in zip(changed, firsts, seconds, strict=True):
            first = Suspect(before, self._odd.get((before.writer, before.slot), b""))
            second = Suspect(after, one.data)
            if after.finding is not None:
                wrong.append(one)
            elif before.finding is not None:
                self._require_drive((first, second))
                self._conclude(first, second)
            else:
                damaged = first if before.in_flight_damaged else second
                self._sort_out([damaged.judgement], [damaged.data])
        self._settle([one.second for one in wrong], [one.data for one in wrong])

    # -- second look ---------------------------------------------------------------------------------------

    def _settle(self, observations: Sequence[Observation], data: Sequence[bytes]) -> None:
        """Judge and count `observations`, made from `data`. Findings are read again first."""
        raise NotImplementedError

    def _sort_out(self, judgements: Sequence[Judgement], data: Sequence[bytes]) -> list[Suspect]:
        """Count the `judgements` of `data` that are not findings. Returns the findings, to be read again."""
        suspects: list[Suspect] = []
        for judgement, record in zip(judgements, data, strict=True):
            if judgement.finding is not None:
                suspects.append(Suspect(judgement, record))
                continue
            self._counts.excuse(judgement)
            if judgement.in_flight_damaged:
                self._keep("in_flight_damaged", judgement, record)
        return suspects

    def _require_drive(self, suspects: Iterable[Suspect]) -> None:
        """Check the drive before `suspects` are concluded. Raises DriveWentAwayError if the drive went away.

        Unreadable data count only if another place is readable. Missing data need only an unchanged target,
        unless readable places are known: then these must still be readable.
        """
        found = {suspect.judgement.finding for suspect in suspects}
        if "unreadable" in found:
            self._doubted = True
        if "unreadable" in found or (found & _GONE and self._canary.known):
            self._canary.require_drive(self._places())
        elif found & _GONE:
            self._canary.require_presence()

    def _places(self) -> Iterator[CanaryPlace]:
        """Places all over the target that should be readable, to try if no place was readable yet."""
        yield from (CanaryPlace(MAIN, offset) for offset in self._plan.superblock_offsets)
        if self._plan.control_slots:
            control = self._plan.extent(self._plan.control_writer)
            yield CanaryPlace(control.suffix, control.offset_bytes)

    def _conclude(self, first: Suspect, second: Suspect) -> None:
        """Count a slot that was read twice. The slot is a finding only if it was wrong both times."""
        if second.judgement.finding is None:
            self._counts.unstable += 1
            self._keep("unstable", first.judgement, first.data)
            return
        # If only the second read failed, the result of the first read counts.
        hidden = second.judgement.finding == "unreadable" and first.judgement.finding != "unreadable"
        final = first if hidden else second
        self._convict(final.judgement, final.data)

    def _convict(self, judgement: Judgement, data: bytes) -> None:
        assert judgement.finding is not None
        self._counts.convict(judgement)
        self._keep(judgement.finding, judgement, data)
        if judgement.finding == "resurrected":
            self._back.add(judgement.suffix)
        if self._listener.finding is not None:
            self._listener.finding(judgement)

    # -- earlier runs --------------------------------------------------------------------------------------

    def _look_for_earlier_names(self) -> None:
        """Find names of earlier runs that are back, among names that this run cannot have made. This is the
        last phase, so names that the rules for slots have already convicted are left out."""
        if not self._job.earlier:
            return
        try:
            suffixes = self._storage.suffixes()
        except OSError:
            return  # a directory that cannot be listed proves nothing
        others = [name for name in suffixes if name not in self._back and not self._proven.may_make(name)]
        self._begin("earlier names", len(others) * _EARLIER_BYTES)
        for suffix, first in zip(others, read_ahead(others, self._judge_earlier, self._buffers), strict=True):
            if first is not None and first.judgement.finding is not None:
                second = self._judge_earlier(suffix, self._second_look)
                if second is not None:
                    self._conclude(first, second)
            self._done += _EARLIER_BYTES
            self._tell()

    def _judge_earlier(self, suffix: str, buffer: memoryview) -> Suspect | None:
        """Judge a name that does not belong to this run. None if the name is gone or cannot be read, because
        this run did not promise that it exists."""
        try:
            with self._reader(suffix) as reader:
                content = reader.read(buffer, 0, _EARLIER_BYTES)
        except OSError:
            return None
        if content.unreadable:
            return None
        data = bytes(content.data)
        return Suspect(self._proven.judge_earlier(suffix, data, self._job.earlier), data)

    # -- reading -------------------------------------------------------------------------------------------

    def _read(self, extent: Extent, pieces: Iterator[Piece], visit: Visit) -> None:
        """Read `pieces` of one file, and visit each while the next ones are read."""
        first = next(pieces, None)
        if first is None:
            return  # do not open the file, which may not exist
        with self._reader(extent.suffix) as reader:

            def read(piece: Piece, buffer: memoryview) -> Chunk:
                return Chunk(piece, reader.read(buffer, piece.offset, piece.length))

            for chunk in read_ahead(chain([first], pieces), read, self._buffers):
                self._canary.saw(extent.suffix, chunk.piece.offset, chunk.content)
                self._doubted |= bool(chunk.content.unreadable)
                visit(chunk)
                self._done += chunk.piece.length
                self._tell()

    def _reader(self, suffix: str) -> Reader | ClosedReader:
        return opened(self._storage, suffix, block_bytes=self._job.block_bytes, tick=self._listener.tick)

    def _present_slots(self, extent: Extent) -> int:
        """Number of slots of `extent` in its file; the last one may be incomplete."""
        within = self._size(extent.suffix) - extent.offset_bytes
        return min(extent.slots, max(0, -(-within // extent.record_bytes)))

    def _size(self, suffix: str) -> int:
        """Length of a file of the target, 0 if the file is gone. If an I/O error hides the length, the length
        that the file must have."""
        try:
            return self._storage.size(suffix)
        except FileNotFoundError:
            return 0
        except OSError as error:
            if error.errno not in MEDIUM_ERRORS:
                raise
            return self._required_bytes(suffix)

    def _required_bytes(self, suffix: str) -> int:
        """The length that a file of the target must have if it exists."""
        control = self._plan.control_writer
        return self._plan.main_bytes if suffix == MAIN else self._plan.extent(control).end_bytes

    def _suffixes(self) -> tuple[str, ...]:
        """Suffixes of the target's files. Empty if an I/O error prevents the list. Then the scan does not
        finish, because files that must not exist may exist."""
        try:
            return self._storage.suffixes()
        except OSError as error:
            if error.errno not in MEDIUM_ERRORS:
                raise
            self._unlisted = error
            return ()

    # -- reports -------------------------------------------------------------------------------------------

    def _keep(self, kind: str, judgement: Judgement, data: bytes) -> None:
        example = Example(kind=kind, judgement=judgement, data=data)
        if self._examples.add(example):
            self._listener.example(example)

    def _keep_odd(self, writer: int, slot: int, data: bytes) -> None:
        """Keep the content of a slot in flight until the slot is judged, if there is room."""
        if len(self._odd) < limits.EXAMPLES_FIRST:
            self._odd[writer, slot] = data

    def _begin(self, phase: Phase, total: int) -> None:
        self._phase, self._done, self._total = phase, 0, total

    def _tell(self) -> None:
        self._listener.progress(
            ScanProgress(phase=self._phase, done=self._done, total=self._total, report=self.so_far)
        )

    def _finish(self) -> ScanReport:
        """Pass on the last examples and return the report of a finished scan.

        Raises DriveWentAwayError if the drive went away: the last failed reads may have been its first sign,
        and data may have come from another drive. Raises OSError if the directory could not be listed.
        """
        if self._unlisted is not None:
            raise self._unlisted
        if self._doubted:
            self._canary.require_drive(self._places())
        else:
            self._canary.require_presence()
        for example in self._examples.latest():
            self._listener.example(example)
        return self._report(finished=True)

    def _report(self, *, finished: bool) -> ScanReport:
        counted = self._counts.report(
            proven=self._proven.proven,
            newest_seen=self._proven.newest_seen,
            may_be_done=self._proven.may_be_done,
            finished=finished,
        )
        return replace(counted, failed_reads=self._doubted, is_seen=self._proven.is_seen)
