"""Which operations of a run the log and the target prove, and which may be in flight.

This implements rules 4 and 6 of docs/explanation/evidence.md, which are the same for all workloads. The
oracles of slots in files (`slot_oracle`) and of names (`name_oracle`) build on it. The frontiers that the
server received (A) are given. A' (`proven`) rises as observations come in. Observations of slots in flight
are kept until everything has been read. This module does not decide what is right or wrong, and reads nothing
itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from durability import limits
from durability.evidence.judgement import FindingClass, Judgement
from durability.evidence.observation import (
    EARLIER_RUN,
    NO_SEQ,
    PREFILL,
    SUPERBLOCK_WRITER,
    Observation,
    Observer,
    Span,
    missing,
    whole,
)
from durability.evidence.record_rows import Rows
from durability.formats.mixing import U64, Words
from durability.formats.plan import CONTROL, MAIN, Plan, parse_name
from durability.formats.record import (
    KIND_RECORD,
    SECTOR_WORDS,
    Stamper,
    claims,
    may_be_sectors,
    parse,
    superblock,
)
from durability.formats.versions import Versions

_STAMPED_BYTES = 512 << 10  # bytes stamped and compared at a time; they fit in the processor's cache
_VERSIONS_IN_A_RECORD = 3  # versions handled with arrays; a record with more is observed sector by sector
# Entries for a slot in flight without a whole version. UNSEEN: none was seen. GONE: the name does not exist.
UNSEEN = U64((1 << 64) - 1)
GONE = U64((1 << 64) - 2)
CLASS_OF_STATE: Mapping[str, FindingClass] = {
    "stray": "misdirected",
    "foreign": "foreign",
    "earlier": "foreign",
    "damaged": "corrupt",
    "unreadable": "unreadable",
}
# If the sectors of one slot are wrong in several ways, the first class in this order is the finding.
PRECEDENCE: tuple[FindingClass, ...] = (
    "misdirected",
    "foreign",
    "unreadable",
    "corrupt",
    "truncated",
    "torn",
)


@dataclass(frozen=True, slots=True)
class Faults:
    """The result of comparing the spans of a slot with one pair of frontiers; see `Judgement`."""

    finding: FindingClass | None
    damaged: bool
    above: bool
    found: int | None
    out_of_reach: bool = False


def first_of(found: Collection[FindingClass]) -> FindingClass:
    """The class that is the finding, of the classes in `found`."""
    return next(name for name in PRECEDENCE if name in found)


class ProvenOperations:
    """Proven operations of one run's target. A' (`proven`) and the newest versions seen rise as observations
    come in."""

    def __init__(self, plan: Plan, acked: Sequence[int] | None) -> None:
        self.plan = plan
        self.logged = acked is not None
        self.acked = tuple(acked) if acked is not None else (0,) * plan.writers
        self.above_ceiling = 0  # sectors that claim a version beyond the ceiling
        self._proven = list(self.acked)
        self._newest_seen = [PREFILL] * plan.writers
        self._may_be_done = [PREFILL] * plan.writers
        self._seen = False
        self._observer = Observer(plan)
        self._versions = Versions(plan)
        self._stamper = Stamper(plan)
        self._sectors = plan.record_bytes // limits.SECTOR_BYTES
        self._scratch = np.empty(
            (max(1, _STAMPED_BYTES // plan.record_bytes), self._sectors, SECTOR_WORDS), dtype=U64
        )
        self._slots_in_flight: dict[int, Words] = {}
        self._held: dict[int, Words] = {}
        self._odd: dict[tuple[int, int], Observation] = {}
        # By writer: slots in flight whose latest read failed.
        self._unread: tuple[set[int], ...] = tuple(set() for _ in range(plan.writers))

    @property
    def proven(self) -> tuple[int, ...]:
        """A': per writer, the newest operation that the log or the target itself proves acknowledged."""
        return tuple(self._proven)

    @property
    def newest_seen(self) -> tuple[int, ...]:
        """Per writer, the newest operation that the target shows to have been done."""
        return tuple(self._newest_seen)

    @property
    def is_seen(self) -> bool:
        """Whether a whole operation of the run is on the target, even one that proves nothing new."""
        return self._seen or any(self._newest_seen)

    @property
    def may_be_done(self) -> tuple[int, ...]:
        """As `newest_seen`, but newer if an absent name may come from a newer operation. Absence does not
        prove an operation."""
        return tuple(map(max, self._newest_seen, self._may_be_done))

    @property
    def prefilled(self) -> bool:
        """Whether the prefill is known to have been durable: there is a log, or a record was written after
        the prefill."""
        return self.logged or any(self._newest_seen)

    def ceiling(self, writer: int) -> int:
        """The newest seq that `writer` was ever allowed to issue."""
        return self.acked[writer] + self.plan.credit if self.logged else limits.SEQ_MAX

    def last_issued(self, writer: int) -> int:
        """The newest seq that `writer` can have issued. It is valid after everything has been read, and only
        for operations that leave a record. Suppose that the second group after the newest seen group had
        begun. Then the group between them would have been acknowledged. Operations in flight do not cover all
        of that group, so it would have been seen."""
        return self._end_of_group(writer, self._groups_seen(writer) + 1)

    def last_hidden(self, writer: int) -> int:
        """As `last_issued`, on the assumption that each group with an unreadable slot was acknowledged. A
        drive that keeps acknowledged data does not hide them for good, so this excuses nothing. It only shows
        which findings beyond `last_issued` may disappear when everything can be read."""
        groups, unread = self._groups_seen(writer) + 1, self._unread_groups(writer)
        while groups in unread:
            groups += 1
        return self._end_of_group(writer, groups)

    def _groups_seen(self, writer: int) -> int:
        """How many groups have certainly begun."""
        return -(-max(self._proven[writer], self._newest_seen[writer]) // self.plan.group)

    def _end_of_group(self, writer: int, number: int) -> int:
        return min(self.ceiling(writer), number * self.plan.group) if self.logged else limits.SEQ_MAX

    def _unread_groups(self, writer: int) -> set[int]:
        """The groups, counted from 1, with an operation on a slot of `writer` that could not be read."""
        if not self._unread[writer]:
            return set()
        slots = np.array(sorted(self._unread[writer]), dtype=U64)
        first = self._versions.following(
            writer, slots, self._versions.newest(writer, slots, self.acked[writer])
        )
        last = self._versions.newest(writer, slots, self.ceiling(writer))  # at most two operations per slot
        return {-(-seq // self.plan.group) for seq in (*first.tolist(), *last.tolist())}

    # -- what was in flight --------------------------------------------------------------------------------

    def in_flight_slots(self, writer: int) -> Words:
        """The slots with an operation in (A, A + credit], ascending; none without a log."""
        if writer not in self._slots_in_flight:
            slots = np.empty(0, dtype=U64)
            if self.logged:
                seqs = np.arange(self.acked[writer] + 1, self.ceiling(writer) + 1, dtype=U64)
                slots = self._versions.touched(writer, seqs)
            self._slots_in_flight[writer] = slots
            self._held[writer] = np.full(len(slots), UNSEEN, dtype=U64)
        return self._slots_in_flight[writer]

    def in_flight(self) -> Iterator[Observation]:
        """The observations of the slots in `in_flight_slots`, without those that are legal at first sight."""
        for writer, held in self._held.items():
            slots = self._slots_in_flight[writer]
            legal = self._plainly_legal(writer, slots, held)
            for position in np.flatnonzero(~legal & (held != UNSEEN)):
                yield self._observation(writer, int(slots[position]), held[position])
        yield from self._odd.values()

    def _observation(self, writer: int, slot: int, held: np.uint64) -> Observation:
        """The observation of a slot that holds the whole version `held`, or is GONE."""
        if held == GONE:
            return missing(writer, slot, self._sectors)
        return whole(writer, slot, int(held), self._sectors)

    def _plainly_legal(self, writer: int, slots: Words, held: Words) -> NDArray[np.bool_]:
        """For which slots the whole version `held` (or GONE) is certainly legal, with the current A'."""
        raise NotImplementedError

    def _in_flight_positions(self, writer: int, slots: Words) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """The position of each of `slots` in `in_flight_slots`, and whether the slot is in it."""
        in_flight = self.in_flight_slots(writer)
        if not len(in_flight):
            return np.zeros(len(slots), dtype=np.intp), np.zeros(len(slots), dtype=np.bool_)
        positions = np.minimum(np.searchsorted(in_flight, slots), len(in_flight) - 1)
        there: NDArray[np.bool_] = in_flight[positions] == slots
        return positions, there

    # -- what is proven ------------------------------------------------------------------------------------

    def observe(
        self, writer: int, slot: int, data: bytes | bytearray | memoryview, unreadable: Collection[int] = ()
    ) -> Observation:
        """The content of `data`, read at the slot's place; see `Observer.observe`."""
        return self._observer.observe(writer, slot, data, unreadable)

    def prove_by(self, observation: Observation) -> None:
        """Raise A' by the intact sectors of `observation` (rule 6). Keep the observation if its slot is in
        flight."""
        self._prove_by_spans(observation)
        if observation.writer >= self.plan.writers:
            return
        slots = np.array([observation.slot], dtype=U64)
        (position,), (there,) = self._in_flight_positions(observation.writer, slots)
        if not there:
            return
        self._note_unread(observation)
        seq = observation.whole_version
        key = (observation.writer, observation.slot)
        self._odd.pop(key, None)
        self._held[observation.writer][position] = UNSEEN if seq is None else U64(seq)
        if seq is None:
            self._odd[key] = observation

    def without_version(self) -> list[Observation]:
        """Observations of slots in flight that `prove_by` kept and that show no whole version. These slots
        must be read again."""
        return list(self._odd.values())

    def prove_again(self, observation: Observation) -> None:
        """As `prove_by`, for a slot in flight that was read again. `in_flight` still returns the first
        observation."""
        self._prove_by_spans(observation)
        self._note_unread(observation)

    def _prove_by_spans(self, observation: Observation) -> None:
        for span in observation.spans:
            if span.state in ("version", "stray") and self._is_writer(span.writer):
                self._prove(span.writer, span.seq)

    def _note_unread(self, observation: Observation) -> None:
        unread = self._unread[observation.writer]
        if observation.unreadable:
            unread.add(observation.slot)
        else:
            unread.discard(observation.slot)

    def survey(self, words: Words) -> None:
        """Raise A' by every intact sector in `words`, wherever it lay. This is for targets without a log, and
        for sectors that belong to no slot."""
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
                if self._prove_by_sector(sectors[number : number + 1]):
                    break

    def screen_control(self, first_slot: int, words: Words, completed: int) -> int:
        """Number of the control arm's consecutive slots in `words` that show the loss of a completed write
        (rule 15). A slot shows it if its place holds an intact sector that is neither of that write nor of a
        newer one. Nothing limits what was in flight, so damage shows nothing."""
        writer = self.plan.control_writer
        sectors = self.plan.control_record_bytes // limits.SECTOR_BYTES
        records = words.reshape(-1, sectors, SECTOR_WORDS)
        slots = np.arange(first_slot, first_slot + len(records), dtype=U64)
        newest = self._versions.newest(writer, slots, completed)
        parsed = parse(words.reshape(-1, SECTOR_WORDS))
        own = parsed.intact & (parsed.run == U64(self.plan.run)) & (parsed.writer == U64(writer))
        own &= parsed.slot == np.repeat(slots, sectors)
        other = parsed.intact & ~(own & (parsed.seq >= np.repeat(newest, sectors)))
        return int(np.count_nonzero((newest > 0) & other.reshape(-1, sectors).any(axis=1)))

    # -- judging -------------------------------------------------------------------------------------------

    def judge(self, observation: Observation) -> Judgement:
        """Compare one observation of a writer's slot with the rules, with the current A'."""
        return self.judge_all([observation])[0]

    def judge_all(self, observations: Sequence[Observation]) -> list[Judgement]:
        """`judge` for many observations at once, which is much cheaper; the order is kept."""
        judgements: list[Judgement | None] = [None] * len(observations)
        for writer in sorted({observation.writer for observation in observations}):
            chosen = [number for number, one in enumerate(observations) if one.writer == writer]
            judged = self._judge_writer(writer, [observations[number] for number in chosen])
            for number, judgement in zip(chosen, judged, strict=True):
                judgements[number] = judgement
        return [judgement for judgement in judgements if judgement is not None]

    def _judge_writer(self, writer: int, observations: Sequence[Observation]) -> Iterator[Judgement]:
        """The judgements of slots of one writer, in order."""
        raise NotImplementedError

    def judge_superblock(self, copy: int, data: bytes | bytearray | memoryview) -> Judgement:
        """Compare one copy of the superblock (0 or 1) with the one that was written and synced before
        arming."""
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
            expected_seq=PREFILL,
            text=f"copy {copy} of the superblock, written before the run, is {finding or 'intact'}",
        )

    def may_make(self, suffix: str) -> bool:
        """Whether the plan can ever have made the file TARGET + `suffix`, perhaps with old blocks in it."""
        return suffix == MAIN or (suffix == CONTROL and bool(self.plan.control_slots))

    def judge_earlier(
        self, suffix: str, data: bytes | bytearray | memoryview, earlier: Collection[int]
    ) -> Judgement:
        """Judge a file that the plan never makes and that begins with `data`. Arming removes everything that
        earlier runs left, of any workload, and syncs the directory. `earlier`: these runs. Only records in
        their own place count. Their target tag may be any, because the drive may have had another serial
        then. Only the target itself begins with a superblock, so another file that begins with one is a copy
        that somebody made."""
        sectors = parse(memoryview(data)[: len(data) // limits.SECTOR_BYTES * limits.SECTOR_BYTES])
        places = np.arange(len(sectors.run), dtype=U64) * U64(limits.SECTOR_BYTES)
        records = sectors.intact & (sectors.kind == U64(KIND_RECORD)) & (sectors.offset == places)
        runs = sectors.run[records].tolist()
        back = next((run for run in runs if run in earlier), None)
        name = parse_name(suffix)
        found = "nothing of an earlier run" if back is None else f"data of run {back:016x}"
        return Judgement(
            writer=self.plan.control_writer if name is None else name.writer,
            slot=0 if name is None else name.number,
            suffix=suffix,
            offset=0,
            record_bytes=len(data),
            finding=None if back is None else "resurrected",
            expected_seq=PREFILL,
            found_seq=None if back is None else EARLIER_RUN,
            text=f"name {suffix}: {'legal' if back is None else 'resurrected'}, expected no such name,"
            f" found {found}",
        )

    def _outdated(self, span: Span) -> int | None:
        """The version that `span` shows in its own place; None if it shows none."""
        if span.state == "version":
            return span.seq
        return EARLIER_RUN if span.state == "earlier" and self.prefilled else None

    def _judgement(
        self,
        observation: Observation,
        faults: Faults,
        *,
        expected: int,
        in_flight: bool,
        order_violation: bool,
        collateral: bool,
        text: str,
        oldest_lost: int | None,
    ) -> Judgement:
        suffix, offset, record_bytes = self._versions.place(observation.writer, observation.slot)
        return Judgement(
            writer=observation.writer,
            slot=observation.slot,
            suffix=suffix,
            offset=offset,
            record_bytes=record_bytes,
            finding=faults.finding,
            in_flight=in_flight,
            in_flight_damaged=faults.damaged,
            order_violation=order_violation,
            collateral=collateral,
            above_ceiling=faults.above,
            out_of_reach=faults.out_of_reach,
            expected_seq=expected,
            found_seq=faults.found,
            oldest_lost_seq=oldest_lost,
            text=text,
        )

    def _oldest_lost(
        self, writer: int, slots: Words, expected: Words, found: Sequence[Faults]
    ) -> list[int | None]:
        """Per slot with a finding, the first operation on it after the content found there, which was not
        durable at the cut. It is the newest expected operation if the content shows no version. None without
        a finding or an expected operation."""
        versions = [0 if faults.found is None else max(0, faults.found) for faults in found]
        after = self._versions.following(writer, slots, np.array(versions, dtype=U64)).tolist()
        return [
            None if newest == 0 or faults.finding is None else (newest if faults.found is None else following)
            for newest, faults, following in zip(expected.tolist(), found, after, strict=True)
        ]

    # -- what proves an operation ----------------------------------------------

    def _is_writer(self, writer: int) -> bool:
        """True for a writer, False for the control arm and the superblocks, which prove nothing."""
        return 0 <= writer < self.plan.writers

    def _prove(self, writer: int, seq: int) -> bool:
        """Record what an intact sector of `seq` proves. False if `seq` is beyond the ceiling: then it proves
        nothing."""
        if seq > self.ceiling(writer):
            self.above_ceiling += 1
            return False
        group = self.plan.group
        self._newest_seen[writer] = max(self._newest_seen[writer], seq)
        self._proven[writer] = max(self._proven[writer], (seq - 1) // group * group)
        return True

    def _prove_by_sector(self, sector: Words) -> bool:
        """Record what one sector that claims to be of this run proves. True if the claim is correct and not
        beyond the ceiling."""
        parsed = parse(sector)
        if not parsed.intact[0]:
            return False
        writer, slot, index = int(parsed.writer[0]), int(parsed.slot[0]), int(parsed.index[0])
        span = self._observer.identify(
            parsed, 0, writer=writer, slot=slot, index=index, offset=int(parsed.offset[0])
        )
        return span.state == "version" and self._prove(writer, span.seq)

    # -- whole records -------------------------------------------------------------------------------------

    def _whole_versions(self, writer: int, slots: Words, words: Words) -> tuple[Words, NDArray[np.bool_]]:
        """The version that each record claims, and whether the record is that version byte for byte and was
        allowed."""
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

    def classify(self, writer: int, slots: Words, words: Words) -> Rows:
        """The content of whole records, read at the places of `slots`; see `Rows`."""
        records = words.reshape(-1, self._sectors, SECTOR_WORDS)
        offsets = self._versions.offsets(writer, slots)
        claimed = claims(
            records,
            run=self.plan.run,
            target=self.plan.target,
            writer=writer,
            slots=slots,
            offsets=offsets,
        )
        seqs = records[:, :, 4]
        version = np.zeros(claimed.shape, dtype=np.bool_)
        for _ in range(_VERSIONS_IN_A_RECORD):
            pending = np.flatnonzero(claimed.any(axis=1))
            if not len(pending):
                break
            asked = seqs[pending, claimed[pending].argmax(axis=1)]
            likely = asked <= U64(self.ceiling(writer))
            likely &= self._versions.are_versions(writer, slots[pending], np.where(likely, asked, U64(0)))
            alike = claimed[pending] & (seqs[pending] == asked[:, None])
            some = pending[likely]
            version[some] |= alike[likely] & self._same_sectors(
                writer, slots[some], asked[likely], records if len(some) == len(records) else records[some]
            )
            claimed[pending] &= ~alike
        zeros, damaged, earlier, foreign, plain = self._other_sectors(records, offsets, ~version)
        plain &= ~claimed.any(axis=1)
        lowest = np.where(version, seqs, U64(limits.SEQ_MAX)).min(axis=1).astype(np.int64)
        highest = np.where(version, seqs, U64(0)).max(axis=1).astype(np.int64)
        none = ~version.any(axis=1)
        return Rows(
            slots=slots,
            lowest=np.where(none, NO_SEQ, lowest),
            highest=np.where(none, NO_SEQ, highest),
            zeros=zeros,
            damaged=damaged,
            earlier=earlier,
            foreign=foreign,
            plain=plain,
        )

    def _other_sectors(
        self, records: Words, offsets: Words, asked: NDArray[np.bool_]
    ) -> tuple[NDArray[np.bool_], ...]:
        """For each record, whether a sector selected by `asked` is zero, damaged, an earlier run's, or
        foreign. Also whether none of these sectors is anything else."""
        states = np.zeros((4, *asked.shape), dtype=np.bool_)
        zeros, damaged, earlier, foreign = states
        plain = np.ones(len(records), dtype=np.bool_)
        first = records[:, :, 0]
        maybe = asked & may_be_sectors(first)
        blank = asked & (first == U64(0))
        damaged |= asked & ~maybe & ~blank
        if blank.any():
            content = np.array(records.any(axis=2)) if blank.all() else blank.copy()
            if not blank.all():
                content[blank] = records[blank].any(axis=1)
            zeros |= blank & ~content
            damaged |= blank & content
        rows, numbers = np.nonzero(maybe)
        if len(rows):
            parsed = parse(records if len(rows) == maybe.size else records[rows, numbers])
            damaged[rows, numbers] = ~parsed.intact
            here = parsed.target == U64(self.plan.target)
            own = parsed.intact & here & (parsed.run == U64(self.plan.run))
            plain[rows[own]] = False
            places = offsets[rows] + numbers.astype(U64) * U64(limits.SECTOR_BYTES)
            in_place = parsed.intact & here & (parsed.offset == places)
            earlier[rows, numbers] = in_place
            foreign[rows, numbers] = parsed.intact & ~in_place
        return *(np.asarray(state.any(axis=1)) for state in states), plain

    def _same_sectors(self, writer: int, slots: Words, seqs: Words, records: Words) -> NDArray[np.bool_]:
        """Which sectors of the records, shape (n, sectors), equal the given versions byte for byte."""
        same = np.empty((len(slots), self._sectors), dtype=np.bool_)
        step = len(self._scratch)
        for start in range(0, len(slots), step):
            part = slice(start, start + step)
            wanted = self._scratch[: len(slots[part])]
            offsets = self._versions.offsets(writer, slots[part])
            self._stamper.stamp(wanted, writer=writer, slots=slots[part], seqs=seqs[part], offsets=offsets)
            same[part] = (wanted == records[part]).all(axis=2)
        return same

    def _same(self, writer: int, slots: Words, seqs: Words, records: Words) -> NDArray[np.bool_]:
        """Which records (at most one scratch buffer of them) equal the given versions byte for byte."""
        if not len(records):
            return np.empty(0, dtype=np.bool_)
        wanted = self._scratch[: len(records)]
        offsets = self._versions.offsets(writer, slots)
        self._stamper.stamp(wanted, writer=writer, slots=slots, seqs=seqs, offsets=offsets)
        width = self._sectors * SECTOR_WORDS
        return np.asarray((wanted.reshape(-1, width) == records.reshape(-1, width)).all(axis=1))
