"""The oracle: which contents a slot may legally have after a cut, and what is wrong with those it has.

Rules 6 to 8 of docs/evidence.md, for a plan and the frontiers that the server received (A). In this order:

1. `in_flight_slots` names the slots with a version in (A, A + credit]; read them first. `hold` takes whole
   records in bulk; what it names, and every unreadable or short record, goes through `observe` and `testify`.
2. `screen` everything once; `observe` what it names, and `testify` with that as well.
3. `judge_all` the observations of step 2, and `in_flight()`, those of step 1 with the testified frontiers
   (A'). Slots without a version in (A, A + credit] have the same legal content whatever A' becomes, so
   judging them at once is safe.
4. `files` and `absent_slots` say what must exist and which slots a short file lacks.

Without a server's log (`acked` None) A is 0 and nothing bounds what is in flight: damage to a slot that may
be overwritten is excused, an intact version older than one that the target itself proves to be acknowledged
is not. Then `survey` everything before `screen`. It refuses to decide a verdict; it reads nothing itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from durability import limits
from durability.judgement import FindingClass, Judgement, describe, place_name
from durability.mixing import U64, Words
from durability.observation import (
    EARLIER_RUN,
    PREFILL,
    SUPERBLOCK_WRITER,
    Observation,
    Observer,
    Span,
    whole,
)
from durability.plan import MAIN, Extent, Plan
from durability.record import SECTOR_WORDS, Stamper, parse, superblock
from durability.versions import Versions

# Where the sectors of one slot are wrong in several ways, the first of these names the finding.
PRECEDENCE: tuple[FindingClass, ...] = ("misdirected", "foreign", "unreadable", "corrupt", "truncated")

_SCREEN_BYTES = 512 << 10  # stamped and compared at a time: stays in the processor's cache
_SEQS_AHEAD = 8192  # expected versions computed at a time: the permutation is cheap only for many slots
_UNSEEN = U64((1 << 64) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedFile:
    """A file of an append writer. It must exist and have `min_bytes`; None: it may be missing altogether."""

    suffix: str
    writer: int
    generation: int
    min_bytes: int | None


@dataclass(frozen=True, slots=True)
class _Faults:
    """The outcome of holding the spans of a slot against one pair of frontiers."""

    finding: FindingClass | None
    damaged: bool
    above: bool
    found: int | None


class Oracle:
    """Judges one run's target; A' (`testified`) and the newest versions seen rise as observations testify."""

    def __init__(self, plan: Plan, acked: Sequence[int] | None) -> None:
        self.plan = plan
        self.logged = acked is not None
        self.acked = tuple(acked) if acked is not None else (0,) * plan.writers
        self.above_ceiling = 0  # sectors that claim a version beyond the ceiling
        self._testified = list(self.acked)
        self._newest_seen = [PREFILL] * plan.writers
        self._observer = Observer(plan)
        self._versions = Versions(plan)
        self._stamper = Stamper(plan)
        self._sectors = plan.record_bytes // limits.SECTOR_BYTES
        self._scratch = np.empty(
            (max(1, _SCREEN_BYTES // plan.record_bytes), self._sectors, SECTOR_WORDS), dtype=U64
        )
        self._ahead: tuple[int, int, int, Words] = (-1, 0, 0, np.empty(0, dtype=U64))
        self._slots_in_flight: dict[int, Words] = {}
        self._held: dict[int, Words] = {}
        self._odd: dict[tuple[int, int], Observation] = {}

    @property
    def testified(self) -> tuple[int, ...]:
        """A': per writer, the newest operation that the log or the target itself proves acknowledged."""
        return tuple(self._testified)

    @property
    def newest_seen(self) -> tuple[int, ...]:
        """Per writer, the newest version of which an intact sector was seen."""
        return tuple(self._newest_seen)

    def ceiling(self, writer: int) -> int:
        """The newest seq that `writer` was ever allowed to issue."""
        return self.acked[writer] + self.plan.credit if self.logged else limits.SEQ_MAX

    # -- what was in flight --------------------------------------------------------------------------------

    def in_flight_slots(self, writer: int) -> Words:
        """The slots with a version in (A, A + credit], ascending; none without a log."""
        if writer not in self._slots_in_flight:
            if not self.logged:
                slots = np.empty(0, dtype=U64)
            else:
                seqs = np.arange(self.acked[writer] + 1, self.ceiling(writer) + 1, dtype=U64)
                slots = self._versions.slots_of(writer, seqs)
            self._slots_in_flight[writer] = np.unique(slots)
            self._held[writer] = np.full(len(self._slots_in_flight[writer]), _UNSEEN, dtype=U64)
        return self._slots_in_flight[writer]

    def in_flight(self) -> Iterator[Observation]:
        """The observations that were made of the slots of `in_flight_slots`.

        Left out are whole versions that were allowed and are no older than A' asks for: they are legal.
        """
        for writer, held in self._held.items():
            slots = self._slots_in_flight[writer]
            expected = self._versions.newest(writer, slots, self._testified[writer])
            legal = (expected <= held) & (held <= U64(self.ceiling(writer)))
            for position in np.flatnonzero(~legal & (held != _UNSEEN)):
                yield whole(writer, int(slots[position]), int(held[position]), self._sectors)
        yield from self._odd.values()

    def hold(self, writer: int, slots: Words, words: Words) -> NDArray[np.intp]:
        """Observe whole records in bulk, and let them testify; `slots` must be among `in_flight_slots`.

        Returns the positions of those that are not one intact version: `observe` and `testify` them.
        """
        claimed, same = self._whole_versions(writer, slots, words)
        good = np.flatnonzero(same)
        positions = np.searchsorted(self.in_flight_slots(writer), slots[good])
        self._held[writer][positions] = claimed[good]
        if len(good):
            self._testify(writer, int(claimed[good].max()))
        return np.flatnonzero(~same)

    # -- the pass over everything --------------------------------------------------------------------------

    def screen(self, writer: int, first_slot: int, words: Words) -> NDArray[np.intp]:
        """Which of the consecutive slots in `words`, a whole number of records, must be observed.

        All that are not byte for byte the newest version <= A', except the slots of `in_flight_slots`,
        which were observed before. The result counts from `first_slot`.
        """
        records = words.reshape(-1, self._sectors, SECTOR_WORDS)
        chunk = len(self._scratch)
        suspects: list[int] = []
        for start in range(0, len(records), chunk):
            part = records[start : start + chunk]
            slots = np.arange(first_slot + start, first_slot + start + len(part), dtype=U64)
            expected = self._expected(writer, first_slot + start, len(part))
            same = self._same(writer, slots, expected, part)
            if not same.all():
                suspects.extend(int(number) + start for number in np.flatnonzero(~same))
        found = np.array(suspects, dtype=np.intp)
        if len(found):
            slots = found.astype(U64) + U64(first_slot)
            found = found[~np.isin(slots, self.in_flight_slots(writer), assume_unique=True)]
        return found

    def survey(self, words: Words) -> None:
        """Let every intact sector in `words` testify: the first pass where there is no log."""
        sectors = words.reshape(-1, SECTOR_WORDS)
        claims = (sectors[:, 2] & U64(0xFFFFFFFF) == U64(self.plan.target)) & (
            sectors[:, 1] == U64(self.plan.run)
        )
        writers = sectors[:, 2] >> U64(32)
        for writer in range(self.plan.writers):
            newer = np.flatnonzero(
                claims & (writers == U64(writer)) & (sectors[:, 4] > U64(self._newest_seen[writer]))
            )
            for number in newer[np.argsort(sectors[newer, 4])][::-1]:
                if self._testify_sector(sectors[number : number + 1]):
                    break

    def screen_control(self, first_slot: int, words: Words, completed: int) -> int:
        """How many of the control arm's consecutive slots in `words` lack a completed write (rule 15)."""
        writer = self.plan.control_writer
        sectors = self.plan.control_record_bytes // limits.SECTOR_BYTES
        records = words.reshape(-1, sectors, SECTOR_WORDS)
        slots = np.arange(first_slot, first_slot + len(records), dtype=U64)
        newest = self._versions.newest(writer, slots, completed)
        parsed = parse(words.reshape(-1, SECTOR_WORDS))
        own = parsed.intact & (parsed.run == U64(self.plan.run)) & (parsed.writer == U64(writer))
        own &= parsed.slot == np.repeat(slots, sectors)
        kept = own & (parsed.seq >= np.repeat(newest, sectors))
        return int(np.count_nonzero((newest > 0) & ~kept.reshape(-1, sectors).all(axis=1)))

    # -- testimony -----------------------------------------------------------------------------------------

    def observe(
        self,
        writer: int,
        slot: int,
        data: bytes | bytearray | memoryview,
        unreadable: Collection[int] = (),
    ) -> Observation:
        """What `data`, read at the slot's place, holds; see `Observer.observe`."""
        return self._observer.observe(writer, slot, data, unreadable)

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

    def testify(self, observation: Observation) -> None:
        """Let the intact sectors of `observation` raise A' (rule 6); keep it if its slot is in flight."""
        for span in observation.spans:
            if span.state in ("version", "stray") and self._is_writer(span.writer):
                self._testify(span.writer, span.seq)
        if observation.writer >= self.plan.writers:
            return
        in_flight = self.in_flight_slots(observation.writer)
        position = int(np.searchsorted(in_flight, U64(observation.slot)))
        if position == len(in_flight) or int(in_flight[position]) != observation.slot:
            return
        seq = observation.whole_version
        key = (observation.writer, observation.slot)
        self._odd.pop(key, None)
        self._held[observation.writer][position] = _UNSEEN if seq is None else U64(seq)
        if seq is None:
            self._odd[key] = observation

    def _is_writer(self, writer: int) -> bool:
        """True for a writer, False for the control arm and the superblocks, which prove nothing."""
        return 0 <= writer < self.plan.writers

    def _testify(self, writer: int, seq: int) -> None:
        if seq > self.ceiling(writer):
            self.above_ceiling += 1
            return
        group = self.plan.group
        self._newest_seen[writer] = max(self._newest_seen[writer], seq)
        self._testified[writer] = max(self._testified[writer], (seq - 1) // group * group)

    def _testify_sector(self, sector: Words) -> bool:
        """Let one sector that claims to be of this run testify, if it is what it claims. True if it is."""
        parsed = parse(sector)
        if not parsed.intact[0]:
            return False
        writer, slot, index = int(parsed.writer[0]), int(parsed.slot[0]), int(parsed.index[0])
        span = self._observer.identify(
            parsed, 0, writer=writer, slot=slot, index=index, offset=int(parsed.offset[0])
        )
        if span.state != "version":
            return False
        self._testify(writer, span.seq)
        return True

    # -- judging -------------------------------------------------------------------------------------------

    def judge(self, observation: Observation) -> Judgement:
        """Hold one observation of a writer's slot against the rules, with A' as it stands."""
        return self.judge_all([observation])[0]

    def judge_all(self, observations: Sequence[Observation]) -> list[Judgement]:
        """`judge` for many at once, which is much cheaper; the order is kept."""
        judgements: list[Judgement | None] = [None] * len(observations)
        for writer in sorted({observation.writer for observation in observations}):
            chosen = [number for number, one in enumerate(observations) if one.writer == writer]
            slots = np.array([observations[number].slot for number in chosen], dtype=U64)
            expected = self._versions.newest(writer, slots, self._testified[writer])
            logged = self._versions.newest(writer, slots, self.acked[writer])
            latest = self._versions.newest(writer, slots, self.ceiling(writer))
            for place, number in enumerate(chosen):
                judgements[number] = self._judge(
                    observations[number], int(expected[place]), int(logged[place]), int(latest[place])
                )
        return [judgement for judgement in judgements if judgement is not None]

    def _judge(self, observation: Observation, expected: int, logged: int, latest: int) -> Judgement:
        faults = self._faults(observation, expected, latest)
        suffix, offset, record_bytes = self._versions.place(observation.writer, observation.slot)
        in_flight = latest > expected
        wrong = faults.finding is not None
        place = place_name(writer=observation.writer, slot=observation.slot, suffix=suffix, offset=offset)
        return Judgement(
            writer=observation.writer,
            slot=observation.slot,
            suffix=suffix,
            offset=offset,
            record_bytes=record_bytes,
            finding=faults.finding,
            in_flight=in_flight,
            in_flight_damaged=faults.damaged,
            order_violation=wrong and self._faults(observation, logged, latest).finding is None,
            collateral=wrong and not in_flight and self._beside_in_flight(suffix, offset, record_bytes),
            above_ceiling=faults.above,
            expected_seq=expected,
            found_seq=faults.found,
            oldest_lost_seq=self._oldest_lost(observation, expected, faults),
            text=describe(observation, place=place, expected_seq=expected, finding=faults.finding),
        )

    def _faults(self, observation: Observation, expected: int, latest: int) -> _Faults:
        """What is wrong if `expected` is the newest acknowledged version and `latest` the newest issued."""
        tail = self._versions.appends(observation.writer) and expected == 0
        ceiling = self.ceiling(observation.writer)
        excused = latest > expected
        found: set[FindingClass] = set()
        stale: list[int] = []
        damaged = above = False
        for span in observation.spans:
            if self._is_writer(span.writer) and span.seq > self.ceiling(span.writer):
                above = True
            elif tail:
                damaged |= excused and span.state not in ("version", "zero", "absent")
                above |= not excused and span.state != "absent"
            elif span.state == "version" and expected <= span.seq <= ceiling:
                continue
            elif (seq := self._stale_seq(span, observation.writer)) is not None:
                stale.append(seq)
            elif span.state in ("zero", "damaged", "unreadable") and excused:
                damaged = True
            else:
                found.add(_CLASS_OF_STATE[span.state])
        for name in PRECEDENCE:
            if name in found:
                return _Faults(name, damaged, above, min(stale, default=None))
        if not stale:
            return _Faults(None, damaged, above, None)
        lost = len(stale) == len(observation.spans) and len(set(stale)) == 1
        return _Faults("lost" if lost else "torn", damaged, above, min(stale))

    def _stale_seq(self, span: Span, writer: int) -> int | None:
        """The outdated version that `span` proves to be in place; None if it proves none."""
        if span.state == "version":
            return span.seq
        if span.state == "zero" and self._versions.appends(writer):
            return PREFILL  # nothing was ever written here: the file's content before the record
        if span.state == "earlier" and (self.logged or any(self._newest_seen)):
            return EARLIER_RUN  # without a log, only a record of this run proves that the prefill was done
        return None

    def _oldest_lost(self, observation: Observation, expected: int, faults: _Faults) -> int | None:
        """The first operation on the slot after what was found there; it was never durable at the cut."""
        if expected == 0 or faults.finding not in ("lost", "torn", "truncated"):
            return None
        if faults.found is None:
            return expected
        return self._versions.after(observation.writer, observation.slot, faults.found)

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
            if (newest > U64(self._testified[extent.writer])).any():
                return True
        return False

    def judge_superblock(self, copy: int, data: bytes | bytearray | memoryview) -> Judgement:
        """Hold one copy of the superblock (0 or 1) against what was written and synced before arming."""
        offset = self.plan.superblock_offsets[copy]
        wanted = superblock(self.plan, offset)
        finding: FindingClass | None = None
        if len(data) < len(wanted):
            finding = "truncated"
        elif bytes(data) != wanted:
            sectors = parse(data)
            others = sectors.intact & (sectors.run != U64(self.plan.run))
            finding = "lost" if others.any() else "corrupt"
        return Judgement(
            writer=SUPERBLOCK_WRITER,
            slot=copy,
            suffix=MAIN,
            offset=offset,
            record_bytes=len(wanted),
            finding=finding,
            in_flight=False,
            in_flight_damaged=False,
            order_violation=False,
            collateral=False,
            above_ceiling=False,
            expected_seq=PREFILL,
            found_seq=None,
            oldest_lost_seq=None,
            text=f"copy {copy} of the superblock, written before the run, is {finding or 'intact'}",
        )

    # -- files ---------------------------------------------------------------------------------------------

    def files(self) -> list[ExpectedFile]:
        """The append files that may hold records, with A' as it stands; none for `overwrite`.

        File g-1 is removed once file g+1 exists, so it is not asked for if the writer may have got that far.
        """
        if self.plan.workload != "append":
            return []
        return [file for writer in range(self.plan.writers) for file in self._generations(writer)]

    def _generations(self, writer: int) -> Iterator[ExpectedFile]:
        slots, done = self.plan.slots, self._testified[writer]
        newest_file = self.ceiling(writer) // slots if self.logged else done // slots + 1
        for generation in range(max(0, newest_file - 1), newest_file + 1):
            required = min(max(done - generation * slots, 0), slots)
            yield ExpectedFile(
                suffix=self.plan.extent(writer, generation).suffix,
                writer=writer,
                generation=generation,
                min_bytes=required * self.plan.record_bytes if required and self.logged else None,
            )

    def absent_slots(self, writer: int, generation: int, size_bytes: int) -> range:
        """The slots that a file of `size_bytes` (0: no file) must have, but lacks at least in part."""
        extent = self.plan.extent(writer, generation)
        present = max(0, size_bytes - extent.offset_bytes) // extent.record_bytes
        required = extent.slots
        if self._versions.appends(writer):
            required = min(max(self._testified[writer] - extent.first_slot, 0), extent.slots)
        return range(extent.first_slot + min(present, required), extent.first_slot + required)

    # -- versions ------------------------------------------------------------------------------------------

    def _extents_of(self, suffix: str) -> Iterator[Extent]:
        for writer in range(self.plan.writers):
            if not self._versions.appends(writer):
                yield self.plan.extent(writer)
            elif suffix.startswith(f".{writer}."):
                yield self.plan.extent(writer, int(suffix.rpartition(".")[2]))

    def _expected(self, writer: int, first_slot: int, count: int) -> Words:
        """The newest version <= A' of `count` slots, computed ahead for the slots that follow."""
        frontier = self._testified[writer]
        ahead_writer, ahead_frontier, ahead_slot, newest = self._ahead
        start = first_slot - ahead_slot
        if (ahead_writer, ahead_frontier) != (writer, frontier) or not 0 <= start <= len(newest) - count:
            total = max(count, _SEQS_AHEAD)
            if not self._versions.appends(writer):
                total = min(total, self.plan.slots - first_slot)
            slots = np.arange(first_slot, first_slot + total, dtype=U64)
            newest, start = self._versions.newest(writer, slots, frontier), 0
            self._ahead = (writer, frontier, first_slot, newest)
        return newest[start : start + count]

    def _whole_versions(self, writer: int, slots: Words, words: Words) -> tuple[Words, NDArray[np.bool_]]:
        """The version that each record claims, and whether it is that byte for byte and was allowed."""
        records = words.reshape(-1, self._sectors, SECTOR_WORDS)
        claimed = np.array(records[:, 0, 4], dtype=U64)
        plausible = claimed <= U64(self.ceiling(writer))
        plausible &= self._versions.are_versions(writer, slots, np.where(plausible, claimed, U64(0)))
        same = np.zeros(len(slots), dtype=np.bool_)
        for start in range(0, len(slots), len(self._scratch)):
            part = slice(start, start + len(self._scratch))
            seqs = np.where(plausible[part], claimed[part], U64(0))
            same[part] = plausible[part] & self._same(writer, slots[part], seqs, records[part])
        return claimed, same

    def _same(self, writer: int, slots: Words, seqs: Words, records: Words) -> NDArray[np.bool_]:
        """Which records (at most one scratch buffer of them) are byte for byte the given versions."""
        if not len(records):
            return np.empty(0, dtype=np.bool_)
        wanted = self._scratch[: len(records)]
        extent = self.plan.extent(writer)
        in_file = slots % U64(self.plan.slots)
        offsets = in_file * U64(extent.record_bytes) + U64(extent.offset_bytes)
        self._stamper.stamp(wanted, writer=writer, slots=slots, seqs=seqs, offsets=offsets)
        width = self._sectors * SECTOR_WORDS
        return np.asarray((wanted.reshape(-1, width) == records.reshape(-1, width)).all(axis=1))


_CLASS_OF_STATE: dict[str, FindingClass] = {
    "stray": "misdirected",
    "foreign": "foreign",
    "earlier": "foreign",
    "zero": "corrupt",
    "damaged": "corrupt",
    "unreadable": "unreadable",
    "absent": "truncated",
}
