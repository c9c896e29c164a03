"""The reference judge: judges a target again, in the plainest way, to compare with the tester's findings.

The judge knows the plan, the frontiers that the server received and the content of the target. It follows
docs/explanation/evidence.md word by word, without shortcuts. It compares each sector with its expected bytes
and counts the versions of a slot up from the first operation. It does not use the code of
`durability.evidence`, only the names of the finding classes. The plan, the schedule's forward direction and
the stamping of records come from `durability.formats`. The judge is slow and meant for small lab targets. It
needs a server's log.

The judge is independent on purpose. It knows the workloads by name and states again what each of them puts
and removes, so that an error in `workloads` is noticed. It shares only the order of a pass (the plan's
`schedule`) and the layout (the plan's `extent`) with the tester. Golden vectors test both of them. An unknown
workload is judged as `overwrite`: each operation puts a version at the schedule's slot within a region. Bytes
are read with the scan's `Reader`, which finds the unreadable sectors.

This module does not know what the drive promised; `comparison` compares findings with promises.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, TypeAlias

import numpy as np

from durability import limits
from durability.evidence.judgement import FindingClass
from durability.formats.mixing import U64
from durability.formats.plan import MAIN, Extent, Name, Plan, parse_name
from durability.formats.record import KIND_RECORD, KIND_SUPERBLOCK, SECTOR_WORDS, Stamper, parse, superblock
from durability_client.target.storage import Storage
from durability_client.verify.scan.target_reader import CHUNK_BYTES, Reader, aligned_buffer

Place: TypeAlias = tuple[int, int]  # writer and slot; SUPERBLOCK and copy
SUPERBLOCK = -1
EARLIER_RUN = -1  # stands for a seq older than the prefill

_SECTOR = limits.SECTOR_BYTES
_EARLIER_BYTES = 4096  # bytes read from a file that an earlier run may have made
_SECTORS_AT = range(0, _EARLIER_BYTES, _SECTOR)
_LABEL = struct.Struct("<4sBBHQIIQQQ")
_PRECEDENCE: tuple[FindingClass, ...] = ("misdirected", "foreign", "unreadable", "corrupt", "truncated")
_CLASSES: dict[str, FindingClass] = {
    "stray": "misdirected",
    "foreign": "foreign",
    "unreadable": "unreadable",
    "zero": "corrupt",
    "damaged": "corrupt",
    "absent": "truncated",
}
_CLASSES_OF_NAMES: dict[str, FindingClass] = {**_CLASSES, "zero": "torn", "absent": "torn", "excess": "torn"}


class Label(NamedTuple):
    """The header fields in the first 48 bytes of a sector, not yet checked."""

    magic: bytes
    version: int
    kind: int
    number: int
    run: int
    target: int
    writer: int
    slot: int
    seq: int
    offset: int

    @classmethod
    def of(cls, data: bytes | memoryview) -> Label:
        """Parse the label from the first bytes of `data`."""
        return cls(*_LABEL.unpack_from(data))

    def place(self, plan: Plan) -> Place | None:
        """The slot or superblock of the plan's run that the label names; None for anything else."""
        if (self.run, self.target) != (plan.run, plan.target):
            return None
        if self.kind == KIND_RECORD:
            return self.writer, self.slot
        start = self.offset - self.number * _SECTOR
        if self.kind == KIND_SUPERBLOCK and start in plan.superblock_offsets:
            return SUPERBLOCK, plan.superblock_offsets.index(start)
        return None


class Held(NamedTuple):
    """The content of one sector."""

    # "version" (of this place), "stray" (of another place), "earlier" (of an earlier run), "foreign", "zero",
    # "damaged", "unreadable", "absent" (the file ends before it) or "excess" (the file is too long).
    state: str
    writer: int = SUPERBLOCK  # set if `state` is "version" or "stray"
    seq: int = 0  # set if `state` is "version" or "stray"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """What is wrong with a place."""

    finding: FindingClass
    expected: int  # the newest operation that is proven to have been acknowledged there
    found: int | None  # the oldest outdated operation found there


@dataclass(frozen=True, slots=True)
class _File:
    """The content of a file. Unreadable sectors are zeros in `data`; `unreadable` has their numbers."""

    data: bytes
    unreadable: frozenset[int]


class ReferenceJudge:
    """Judges one target; `wrong` has every place whose content is illegal. `earlier`: the earlier runs whose
    files beside the target were removed before this run. Raises OSError if the target cannot be read."""

    def __init__(
        self,
        plan: Plan,
        acked: Sequence[int],
        storage: Storage,
        *,
        block_bytes: int,
        earlier: Collection[int] = (),
    ) -> None:
        self._plan = plan
        self._storage = storage
        self._block_bytes = block_bytes
        self._buffer = aligned_buffer(CHUNK_BYTES)
        self._stamper = Stamper(plan)
        self._sectors_of = cache(self._stamp_one)
        self._endless = plan.workload in ("append", "create")
        self._by_name = plan.workload in ("create", "rename", "unlink")  # whether each slot is a file
        self._ceilings = [frontier + plan.credit for frontier in acked]
        self._events = [{} if self._endless else self._walk(writer) for writer in range(plan.writers)]
        self._frontiers = list(acked)
        self._newest_heard = [0] * plan.writers
        self._unread: set[tuple[int, int]] = set()  # writer and number of the groups that may be hidden
        self._held: dict[Place, tuple[Held, ...]] = {}
        self._heard: list[Held] = []
        self._superblock_sectors = 0  # sectors of superblock copies that can be read
        self._earlier = earlier
        self._names = tuple(filter(None, map(parse_name, storage.suffixes())))
        self._look()
        self._hear()
        self._note_unread()
        self.wrong: dict[Place, Wrong] = {}
        self._judge()

    @property
    def proven(self) -> tuple[int, ...]:
        """A' of each writer."""
        return tuple(self._frontiers)

    @property
    def read_nothing(self) -> bool:
        """Whether there are slots, but no sector of any slot or superblock can be read."""
        held = [one for slot in self._held.values() for one in slot]
        copies = [self.wrong.get((SUPERBLOCK, copy)) for copy in range(2)]
        blind = all(one is not None and one.finding == "unreadable" for one in copies)
        return (
            blind
            and not self._superblock_sectors
            and bool(held)
            and all(one.state == "unreadable" for one in held)
        )

    def expected(self, place: Place) -> int:
        """The newest operation on a writer's slot that is proven to have been acknowledged, 0 for none."""
        return self._newest(place, self._frontiers[place[0]])

    def losses(self) -> Iterator[tuple[Place, int, Wrong]]:
        """For each slot that lost an acknowledged operation: place, first lost operation, finding. The first
        lost operation is the first one newer than the version found."""
        for place, wrong in self.wrong.items():
            if place[0] == SUPERBLOCK or not wrong.expected or wrong.finding == "resurrected":
                continue
            found = wrong.expected - 1 if wrong.found is None else wrong.found
            yield place, next(seq for seq in self._events_of(place) if seq > found), wrong

    def lost_operations(self) -> int:
        """Number of acknowledged operations that the target lacks, counting only the newest of each slot.

        An operation of `create` can show at two names, the one it makes and the one it removes, but counts
        once. A file of `append` that is back after its removal does not count.
        """
        return len(
            {
                (place[0], wrong.expected)
                for place, wrong in self.wrong.items()
                if place[0] != SUPERBLOCK
                and wrong.expected
                and not (self._plan.workload == "append" and wrong.finding == "resurrected")
            }
        )

    def control_lost(self, completed: int) -> int:
        """Number of control slots that lost the newest of the control arm's first `completed` writes.

        A slot counts if a sector holds other intact content, but not a later write, or lies beyond the end of
        the file. Damaged sectors do not count, since their write may have been in flight.
        """
        plan = self._plan
        if not completed or not plan.control_slots:
            return 0
        writer, extent = plan.control_writer, plan.extent(plan.control_writer)
        slots = plan.schedule(writer).slot_of(np.arange(1, completed + 1, dtype=U64)).tolist()
        newest = {slot: seq for seq, slot in enumerate(slots, 1)}
        file = self._read(extent.suffix, extent.offset_bytes, extent.slots * extent.record_bytes)
        held = {slot: [*self._sectors(extent, slot, file)] for slot in newest}
        damaged = ("zero", "damaged", "unreadable")
        return sum(
            any(
                one.state not in damaged and not (one.state == "version" and one.seq >= newest[slot])
                for one in held[slot]
            )
            for slot in newest
        )

    def under_way(self, place: Place) -> list[int]:
        """The operations on a writer's slot that may have been issued but are not proven acknowledged."""
        events = self._events_of(place)
        return [seq for seq in events if self._frontiers[place[0]] < seq <= self._last_begun(place, seq)]

    def _hidden(self, place: Place) -> list[int]:
        """As `under_way`, assuming that every group with an unreadable slot was acknowledged.

        On a drive that keeps its promises, no acknowledged group has an unreadable slot. Damage that only
        these operations would excuse is a finding, but only of class `unreadable`.
        """
        newest, ceiling = self._frontiers[place[0]], self._ceilings[place[0]]
        events = [seq for seq in self._events_of(place) if newest < seq <= ceiling]
        return [seq for seq in events if seq <= self._last_begun(place, seq, hidden=True)]

    def _last_begun(self, place: Place, seq: int, *, hidden: bool = False) -> int:
        """Rule 7: the newest operation that the writer may have begun.

        If operations leave their records on the target, the writer can have begun at most one group after the
        newest record that was found or acknowledged. With `hidden`, unreadable groups that follow directly
        count as acknowledged. If slots are files, this limits only the removals of `create`, whose operation
        also makes a file. Other operations on files can be any up to the ceiling.
        """
        writer, slot = place
        shows = not self._by_name or (self._plan.workload == "create" and self._removes(slot, seq))
        if not shows:
            return self._ceilings[writer]
        newest = max(self._frontiers[writer], self._newest_heard[writer])
        groups = self._group_of(newest) + 1
        while hidden and (writer, groups) in self._unread:
            groups += 1
        return min(self._ceilings[writer], groups * self._plan.group)

    def _group_of(self, seq: int) -> int:
        """The number of the group of an operation, counted from 1."""
        return (seq + self._plan.group - 1) // self._plan.group

    def asks_for(self, place: Place) -> bool:
        """Whether a writer's slot must still exist; the older files of a log may be removed."""
        oldest = self._ceilings[place[0]] // self._plan.slots - 1
        return self._plan.workload != "append" or place[1] // self._plan.slots >= oldest

    # The plan's arithmetic, counted up from the first operation.

    def _walk(self, writer: int) -> dict[int, list[int]]:
        """The operations on each slot that may have been issued, in order."""
        events: dict[int, list[int]] = {}
        seqs = np.arange(1, self._ceilings[writer] + 1, dtype=U64)
        for seq, slot in enumerate(self._plan.schedule(writer).slot_of(seqs).tolist(), 1):
            events.setdefault(slot, []).append(seq)
        return events

    def _events_of(self, place: Place) -> list[int]:
        writer, slot = place
        if not self._endless:
            return self._events[writer].get(slot, [])
        put, removal = slot + 1, slot + 1 + self._plan.slots
        events = [put, removal] if self._plan.workload == "create" else [put]
        return [seq for seq in events if seq <= self._ceilings[writer]]

    def _newest(self, place: Place, frontier: int) -> int:
        events = self._events_of(place)
        count = bisect_right(events, frontier)
        return events[count - 1] if count else 0

    def _removes(self, slot: int, seq: int) -> bool:
        """Whether operation `seq` removes the slot's file."""
        if self._plan.workload == "create":
            return seq > slot + 1
        return self._plan.workload == "unlink" and seq > 0 and (seq - 1) // self._plan.slots % 2 == 0

    # The content of the target.

    def _look(self) -> None:
        """Classify each sector of every slot. If slots are files, only existing files are read."""
        plan = self._plan
        if self._by_name:
            for name in self._names:
                if name.writer < plan.writers:
                    self._look_at_name(name)
            return
        for writer in range(plan.writers):
            if plan.workload == "append":
                for number in range(self._ceilings[writer] // plan.slots + 1):
                    if self.asks_for((writer, number * plan.slots)):
                        self._look_at(plan.extent(writer, number))
            else:
                self._look_at(plan.extent(writer))

    def _look_at(self, extent: Extent) -> None:
        file = self._read(extent.suffix, extent.offset_bytes, extent.slots * extent.record_bytes)
        slots = range(extent.first_slot, extent.first_slot + extent.slots)
        whole = len(file.data) // extent.record_bytes
        likely = [self._newest((extent.writer, slot), self._frontiers[extent.writer]) for slot in slots]
        same = self._same(extent, likely[:whole], file.data[: whole * extent.record_bytes])
        for number, slot in enumerate(slots):
            if number < whole and same[number] and (likely[number] or not self._endless):
                held = (Held("version", extent.writer, likely[number]),) * (extent.record_bytes // _SECTOR)
            else:
                held = tuple(self._sectors(extent, slot, file))
            self._held[extent.writer, slot] = held

    def _look_at_name(self, name: Name) -> None:
        suffix, extent = name.suffix, self._plan.extent(name.writer, name.number)
        file = self._read(suffix, 0, 2 * extent.record_bytes)
        held = [*self._sectors(extent, name.number, file)]
        if len(file.data) > extent.record_bytes:
            held.append(Held("excess"))
        if name.temporary:
            self._heard += held
        elif self._storage.exists(suffix):
            self._held[name.writer, name.number] = tuple(held)

    def _same(self, extent: Extent, seqs: list[int], data: bytes) -> list[bool]:
        """Whether each of an extent's first records equals its version in `seqs`, byte for byte."""
        if not seqs:
            return []
        slots = np.arange(len(seqs), dtype=U64) + U64(extent.first_slot)
        wanted = np.empty((len(seqs), extent.record_bytes // _SECTOR, SECTOR_WORDS), dtype=U64)
        self._stamper.stamp_extent(wanted, extent, slots=slots, seqs=np.array(seqs, dtype=U64))
        found = np.frombuffer(data, dtype="<u8").reshape(len(seqs), -1)
        return [bool(one) for one in (wanted.reshape(len(seqs), -1) == found).all(axis=1)]

    def _sectors(self, extent: Extent, slot: int, file: _File) -> Iterator[Held]:
        """Classify each sector of one slot; `file` begins with the extent."""
        start = extent.offset_of(slot) - extent.offset_bytes
        for index in range(extent.record_bytes // _SECTOR):
            at = start + index * _SECTOR
            data = file.data[at : at + _SECTOR]
            if at // _SECTOR in file.unreadable:
                yield Held("unreadable")
            elif len(data) < _SECTOR:
                yield Held("absent")
            else:
                yield self._identify(data, (extent.writer, slot), index, extent.offset_bytes + at)

    def _identify(self, data: bytes, place: Place, index: int, offset: int) -> Held:
        """Classify the sector at `offset`, where sector `index` of `place` belongs."""
        if not any(data):
            return Held("zero")
        label = Label.of(data)
        home = label.place(self._plan) if label.magic == b"DURB" else None
        if home is not None and data in self._sectors_of(home, label.seq):
            here = home == place and label.number == index
            return Held("version" if here else "stray", home[0], label.seq)
        if not parse(data).intact[0]:
            return Held("damaged")
        own_target = label.target == self._plan.target
        earlier = own_target and label.run != self._plan.run and label.offset == offset
        return Held("earlier" if earlier else "foreign")

    def _stamp_one(self, place: Place, seq: int) -> frozenset[bytes]:
        """The sectors of a version, or of a superblock; empty if the plan lacks that version."""
        writer, slot = place
        plan = self._plan
        if writer == SUPERBLOCK:
            data = superblock(plan, plan.superblock_offsets[slot])
        elif self._is_version(place, seq):
            extent = plan.extent_of(writer, slot)
            out = np.empty((1, extent.record_bytes // _SECTOR, SECTOR_WORDS), dtype=U64)
            one = [np.array([number], dtype=U64) for number in (slot, seq)]
            self._stamper.stamp_extent(out, extent, slots=one[0], seqs=one[1])
            data = out.tobytes()
        else:
            data = b""
        return frozenset(data[start : start + _SECTOR] for start in range(0, len(data), _SECTOR))

    def _is_version(self, place: Place, seq: int) -> bool:
        writer, slot = place
        plan = self._plan
        if writer > plan.control_writer:
            return False
        if writer < plan.writers and self._endless:
            return seq == slot + 1
        if slot >= (plan.control_slots if writer == plan.control_writer else plan.slots):
            return False
        if seq == 0:
            return True
        at = plan.schedule(writer).slot_of(np.array([seq], dtype=U64))[0]
        return int(at) == slot and not (writer < plan.writers and self._removes(slot, seq))

    def _read(self, suffix: str, offset: int, length: int) -> _File:
        """Up to `length` bytes of a file; no bytes if the file does not exist."""
        parts: list[bytes] = []
        unreadable: set[int] = set()
        try:
            with Reader(self._storage, suffix, block_bytes=self._block_bytes, tick=lambda: None) as reader:
                for start in range(0, length, CHUNK_BYTES):
                    step = min(CHUNK_BYTES, length - start)
                    content = reader.read(self._buffer, offset + start, step)
                    parts.append(bytes(content.data))
                    for span in content.unreadable:
                        first = (start + span.start) // _SECTOR
                        unreadable.update(range(first, -(-(start + span.end) // _SECTOR)))
                    if len(content.data) < step:
                        break
        except FileNotFoundError:
            pass
        return _File(b"".join(parts), frozenset(unreadable))

    def _hear(self) -> None:
        """Rule 6: any intact sector of seq s proves that every group before that of s was acknowledged."""
        group = self._plan.group
        for held in (*self._heard, *(one for slot in self._held.values() for one in slot)):
            if self._is_operation(held) and not self._beyond(held):
                proven = (held.seq - 1) // group * group
                self._newest_heard[held.writer] = max(self._newest_heard[held.writer], held.seq)
                self._frontiers[held.writer] = max(self._frontiers[held.writer], proven)

    def _note_unread(self) -> None:
        """Rule 7: a group is hidden if any sector of a slot that it works on cannot be read."""
        for place, sectors in self._held.items():
            if any(held.state == "unreadable" for held in sectors):
                self._unread.update((place[0], self._group_of(seq)) for seq in self._events_of(place))

    def _is_operation(self, held: Held) -> bool:
        """Whether a sector belongs to a writer's operation, at any place. Control records prove nothing."""
        return held.state in ("version", "stray") and 0 <= held.writer < self._plan.writers

    def _beyond(self, held: Held) -> bool:
        """Whether a sector is newer than the log allowed. This gives `log-behind`, not a finding."""
        return self._is_operation(held) and held.seq > self._ceilings[held.writer]

    # Rules 7 and 8.

    def _judge(self) -> None:
        plan = self._plan
        places: Iterable[Place] = self._held
        judge: Callable[[Place], Wrong | None] = self._judge_slot
        if self._by_name:
            places, judge = self._places_of_names(), self._judge_name
        for place in places:
            if wrong := judge(place):
                self.wrong[place] = wrong
        for copy in range(2):
            if finding := self._judge_superblock(copy):
                self.wrong[SUPERBLOCK, copy] = Wrong(finding=finding, expected=0, found=None)
        if plan.workload == "append":
            self._judge_files()
        if self._earlier:
            self._judge_names_of_earlier_runs()

    def _judge_slot(self, place: Place) -> Wrong | None:
        """A slot of `overwrite`, or a record of `append`."""
        held, expected = self._held[place], self.expected(place)
        if self._endless and expected == 0:
            return None  # beyond the acknowledged end of a log
        excused = bool(self.under_way(place))
        outdated: list[int] = []
        found: set[FindingClass] = set()
        for one in held:
            if self._beyond(one) or (one.state == "version" and one.seq >= expected):
                continue
            if one.state == "version":
                outdated.append(one.seq)
            elif one.state == "zero" and self._endless:
                outdated.append(0)
            elif one.state == "earlier":
                outdated.append(EARLIER_RUN)
            elif not (excused and one.state in ("zero", "damaged", "unreadable")):
                unclear = one.state in ("zero", "damaged") and len(self._hidden(place)) > 0
                found.add("unreadable" if unclear else _CLASSES[one.state])
        oldest = min(outdated, default=None)
        for finding in _PRECEDENCE:
            if finding in found:
                return Wrong(finding=finding, expected=expected, found=oldest)
        if oldest is None:
            return None
        everywhere = len(outdated) == len(held) and len(set(outdated)) == 1
        return Wrong(finding="lost" if everywhere else "torn", expected=expected, found=oldest)

    def _places_of_names(self) -> list[Place]:
        """The names that exist, and those that may be required to exist."""
        plan, places = self._plan, set(self._held)
        for writer in range(plan.writers):
            slots = range(self._ceilings[writer]) if self._endless else range(plan.slots)
            places.update((writer, slot) for slot in slots)
        return sorted(places)

    def _judge_name(self, place: Place) -> Wrong | None:
        held, expected, under_way = self._held.get(place), self.expected(place), self.under_way(place)
        prepared = not self._endless and place[1] < self._plan.slots
        puts = (expected > 0 or prepared) and not self._removes(place[1], expected)
        remade = [seq for seq in under_way if not self._removes(place[1], seq)]
        whole_at_all_times = self._plan.workload == "rename"
        if held is None:
            gone_is_legal = not puts or len(remade) < len(under_way) or (remade and not whole_at_all_times)
            removed = any(self._removes(place[1], seq) for seq in self._hidden(place))
            missing: FindingClass = "unreadable" if removed else "absent"
            return None if gone_is_legal else Wrong(finding=missing, expected=expected, found=None)
        if any(self._beyond(one) for one in held) or (remade and not whole_at_all_times):
            return None
        outdated = [EARLIER_RUN for one in held if one.state == "earlier"]
        if not puts:
            outdated += [one.seq for one in held if one.state == "version"]
            if not expected and (self._may_be_begun(place) or not outdated):
                return self._judge_stranger(place, held)
            return Wrong(finding="resurrected", expected=expected, found=min(outdated, default=None))
        legal = {expected, *remade}
        outdated += [one.seq for one in held if one.state == "version" and one.seq not in legal]
        oldest = min(outdated, default=None)
        if len(set(held)) == 1 and held[0].state in ("version", "earlier"):
            return None if oldest is None else Wrong(finding="stale", expected=expected, found=oldest)
        states = {one.state for one in held} - {"version", "earlier"}
        found = {_CLASSES_OF_NAMES[state] for state in states}
        finding: FindingClass = next((one for one in _PRECEDENCE if one in found), "torn")
        return Wrong(finding=finding, expected=expected, found=oldest)

    def _may_be_begun(self, place: Place) -> bool:
        """Whether a name of `create` beyond the ceiling may belong to a group unknown to the log."""
        return self._endless and place[1] < self._ceilings[place[0]] + self._plan.group

    def _judge_stranger(self, place: Place, held: Sequence[Held]) -> Wrong | None:
        """Judge a name that was never allowed to exist: `log-behind`, or a foreign file.

        `create` never puts an older record into a name so far ahead, so that record is misdirected.
        """
        stray = self._endless and any(one.state == "stray" for one in held)
        if not stray or self._may_be_begun(place):
            return None
        return Wrong(finding="misdirected", expected=0, found=None)

    def _judge_superblock(self, copy: int) -> FindingClass | None:
        offset = self._plan.superblock_offsets[copy]
        wanted = superblock(self._plan, offset)
        file = self._read(MAIN, offset, len(wanted))
        self._superblock_sectors += len(file.data) // _SECTOR - len(file.unreadable)
        if file.unreadable:
            return "unreadable"
        if len(file.data) < len(wanted):
            return "truncated"
        if file.data == wanted:
            return None
        sectors = parse(file.data)
        return "lost" if (sectors.intact & (sectors.run != U64(self._plan.run))).any() else "corrupt"

    def _judge_files(self) -> None:
        """Find removed log files that are back. The directory was synced when file g + 3 was made."""
        plan = self._plan
        for name in self._names:
            if name.writer < plan.writers and not name.temporary:
                removed_before = (name.number + 3) * plan.slots + 1
                if removed_before <= self._frontiers[name.writer]:
                    place = name.writer, name.number * plan.slots
                    self.wrong[place] = Wrong(finding="resurrected", expected=removed_before, found=None)

    def _judge_names_of_earlier_runs(self) -> None:
        """Find files of earlier runs that are back. Arming removed them and synced the directory.

        Such a file has a name that this run never makes. Its first bytes hold a record of an earlier run at
        the record's own offset.
        """
        for suffix in self._storage.suffixes():
            name = parse_name(suffix)
            if self._is_own(suffix, name):
                continue
            file = self._read(suffix, 0, _EARLIER_BYTES)
            if file.unreadable or not any(self._is_of_an_earlier_run(file.data, at) for at in _SECTORS_AT):
                continue
            self.wrong.setdefault(self._place_of(name), Wrong(finding="resurrected", expected=0, found=None))

    def _place_of(self, name: Name | None) -> Place:
        """The place of a name that this run does not make.

        The run's own rules may have judged that place already. Other names get a place that no slot has.
        """
        if name is None:
            return self._plan.control_writer, 0
        if self._plan.workload == "append" and not name.temporary:
            return name.writer, name.number * self._plan.slots
        if self._by_name and not name.temporary:
            return name.writer, name.number
        return name.writer, -1 - 2 * name.number - int(name.temporary)

    def _is_own(self, suffix: str, name: Name | None) -> bool:
        """Whether this run makes this name, or may have begun to make it."""
        plan = self._plan
        if name is None:
            return suffix == MAIN or plan.control_slots > 0
        if name.writer >= plan.writers:
            return False
        if plan.workload == "append":
            return not name.temporary and name.number <= self._ceilings[name.writer] // plan.slots + 1
        if not self._by_name:
            return False
        if name.temporary:
            return plan.workload == "rename" and name.number < plan.slots
        return name.number < plan.slots or self._may_be_begun((name.writer, name.number))

    def _is_of_an_earlier_run(self, data: bytes, at: int) -> bool:
        sector = data[at : at + _SECTOR]
        if len(sector) < _SECTOR or not parse(sector).intact[0]:
            return False
        label = Label.of(sector)
        return label.kind == KIND_RECORD and label.run in self._earlier and label.offset == at
