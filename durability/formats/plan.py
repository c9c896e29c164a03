"""The plan of a run: everything that determines which bytes are written where and when, and nothing else.

The client makes a plan once, the server stores it, and it is written twice into the target's superblocks. The
plan alone maps `(writer, seq)` to slot, place and bytes. A plan that contradicts itself raises `PlanError`.

Layout (each superblock has `limits.SUPERBLOCK_BYTES`):

    overwrite: TARGET           | superblock | writer 0 | writer 1 | ... | superblock |
      on a device               the same, with the control arm's slots before the second superblock
    append: TARGET              | superblock | superblock |
            TARGET.W.G          generation G of writer W, record k of the writer at (k-1) * record_bytes,
                                G counting the files that it has filled
    create, rename, unlink: TARGET as for append
            TARGET.W.N          slot N of writer W: a file of one record
            TARGET.W.N.tmp      temporary file that `rename` writes before it renames it to TARGET.W.N
    control arm: TARGET.control beside a file target
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, fields
from typing import Literal, TypeAlias, cast, get_args

from durability import limits
from durability.errors import PlanError
from durability.formats.packing import Value, pack, unpack
from durability.formats.schedule import Schedule
from durability.formats.workloads.registry import WORKLOADS
from durability.formats.workloads.workload import Workload

PLAN_VERSION = 1

TargetKind: TypeAlias = Literal["file", "device"]
Pattern: TypeAlias = Literal["random", "sequential"]
SyncMethod: TypeAlias = Literal["fsync", "fdatasync", "dsync", "osync", "rwf-dsync", "fullfsync"]
WRITE_THROUGH_METHODS: frozenset[str] = frozenset({"dsync", "osync", "rwf-dsync"})  # each write syncs itself

MAIN = ""
CONTROL = ".control"
TEMPORARY = ".tmp"  # appended to the suffix of a name that `rename` is about to replace

# The control arm overwrites its slots in place, whatever the workload of the writers.
_CONTROL_ARM = Workload(name="control arm", summary="overwrite without a sync", layout="region")
_CHOICES: dict[str, Collection[str]] = {
    "target_kind": get_args(TargetKind),
    "workload": WORKLOADS,
    "pattern": get_args(Pattern),
    "sync": get_args(SyncMethod),
}
_RANGES = {
    "target": (0, (1 << 32) - 1),
    "record_bytes": (limits.SECTOR_BYTES, limits.RECORD_BYTES_MAX),
    "writers": (1, limits.WRITERS_MAX),
    "slots": (1, limits.SLOTS_MAX),
    "group": (1, limits.GROUP_MAX),
    "credit": (1, limits.CREDIT_MAX),
    "block_bytes": (limits.SECTOR_BYTES, limits.BLOCK_BYTES_MAX),
    "control_slots": (0, limits.SLOTS_MAX),
    "control_interval_us": (0, 60_000_000),
}


@dataclass(frozen=True, slots=True, order=True)
class Name:
    """The meaning of a file's suffix: number `number` of `writer` (see `Plan.extent`), or the temporary file
    of that name."""

    writer: int
    number: int
    temporary: bool

    @property
    def suffix(self) -> str:
        """The part after TARGET in the file's name; `parse_name` is the inverse."""
        return f".{self.writer}.{self.number}{TEMPORARY if self.temporary else ''}"


def is_record_size(record_bytes: int) -> bool:
    """Whether records may have this size: whole sectors of 512 bytes, up to 1 MiB."""
    low, high = _RANGES["record_bytes"]
    return low <= record_bytes <= high and record_bytes % limits.SECTOR_BYTES == 0


def parse_name(suffix: str) -> Name | None:
    """The name that `suffix` denotes, in any plan. None for the main file, the control arm and suffixes that
    no plan uses."""
    _, *parts = suffix.removesuffix(TEMPORARY).split(".")
    if len(parts) != 2 or not all(part.isascii() and part.isdecimal() for part in parts):
        return None
    name = Name(int(parts[0]), int(parts[1]), suffix.endswith(TEMPORARY))
    return name if name.suffix == suffix and name.number < limits.SLOTS_MAX else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Consecutive slots of equal length, of one writer, within one file of the target. Slot `first_slot + i`
    lies at `offset_bytes + i * record_bytes` of the file named TARGET + `suffix`."""

    writer: int
    suffix: str
    offset_bytes: int
    first_slot: int
    slots: int
    record_bytes: int

    @property
    def end_bytes(self) -> int:
        """Offset of the first byte after the last slot."""
        return self.offset_bytes + self.slots * self.record_bytes

    def offset_of(self, slot: int) -> int:
        """Byte offset in the file of `slot`, which must lie in the extent."""
        assert 0 <= slot - self.first_slot < self.slots
        return self.offset_bytes + (slot - self.first_slot) * self.record_bytes


def largest_credit(*, slots: int, group: int) -> int:
    """The largest number of operations that a writer of `slots` may be ahead of the server: whole groups."""
    return min(slots // limits.SLOTS_PER_CREDIT, limits.CREDIT_MAX) // group * group


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run's plan. Sizes are in bytes; ids are 64-bit."""

    run: int
    seed: int
    target: int  # 32-bit tag of the target's identity, stored in every sector
    target_kind: TargetKind
    workload: str
    pattern: Pattern
    record_bytes: int
    writers: int
    # Per writer; `append`: records in one file; `create`: names that a writer keeps, so that operation k
    # removes the name of operation k - `slots`.
    slots: int
    group: int  # operations that share one sync
    credit: int  # per writer, in operations
    sync: SyncMethod
    direct: bool
    # Bytes that may be torn together: the largest of physical block, file-system block and, on a device
    # without O_DIRECT, page-cache block.
    block_bytes: int
    control_slots: int  # 0: no control arm
    control_interval_us: int

    def __post_init__(self) -> None:
        problem = self._problem()
        if problem:
            raise PlanError(f"plan of run {self.run:016x}: {problem}")

    def _problem(self) -> str | None:
        """The first rule that the plan breaks, as a sentence without its beginning; None if it breaks
        none."""
        for name in ("run", "seed"):
            if not 0 < getattr(self, name) < 1 << 64:
                return f"{name} is not a positive 64-bit number"
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                return f"{name} {getattr(self, name)!r} is not one of {', '.join(allowed)}"
        for name, (low, high) in _RANGES.items():
            if not low <= getattr(self, name) <= high:
                return f"{name} {getattr(self, name)} is not within {low} to {high}"
        for name in ("record_bytes", "block_bytes"):
            if getattr(self, name) % limits.SECTOR_BYTES:
                return f"{name} {getattr(self, name)} is not a multiple of {limits.SECTOR_BYTES}"
        return self._contradiction()

    def _contradiction(self) -> str | None:
        """The first pair of fields that contradict each other, as `_problem` describes them; None if there is
        none."""
        if self.group > 1 and self.sync in WRITE_THROUGH_METHODS:
            return f"group {self.group} has no meaning with {self.sync}, which syncs each write"
        if self.credit < limits.CREDIT_GROUPS_MIN * self.group:
            return f"credit {self.credit} is less than {limits.CREDIT_GROUPS_MIN} groups of {self.group}"
        if self.slots < limits.SLOTS_PER_CREDIT * self.credit:
            least = limits.SLOTS_PER_CREDIT * self.credit
            return f"slots {self.slots} per writer are fewer than {least}, as the credit {self.credit} needs"
        needs_file = self.contract.needs_file and self.target_kind != "file"
        in_sequence = self.contract.endless
        if needs_file or (in_sequence and self.pattern != "sequential"):
            return f"{self.workload} needs a file{' and is always sequential' if in_sequence else ''}"
        return None

    @property
    def contract(self) -> Workload:
        """The workload with the name `workload`."""
        return WORKLOADS[self.workload]

    def issue_limit(self, grant: int) -> int:
        """The seq up to which a writer may issue after it received `grant`: the end of a group."""
        return (grant + self.credit) // self.group * self.group

    @property
    def prefilled_names(self) -> int:
        """How many names of each writer, starting at slot 0, hold the prefill before the run is armed."""
        contract = self.contract
        return self.slots if contract.by_name and contract.prefilled else 0

    @property
    def control_writer(self) -> int:
        """The writer number of the control arm: one past the last writer."""
        return self.writers

    @property
    def control_record_bytes(self) -> int:
        """Record size of the control arm: 4 KiB, or a whole block if that is larger."""
        return max(4096, self.block_bytes)

    def contract_of(self, writer: int) -> Workload:
        """The workload of `writer`, which may be the control arm."""
        return _CONTROL_ARM if writer == self.control_writer else self.contract

    def schedule(self, writer: int) -> Schedule:
        """The schedule of `writer`. It has no meaning for append and create, where seq k is always slot
        k-1."""
        control = writer == self.control_writer
        return self.contract_of(writer).schedule(
            seed=self.seed,
            writer=writer,
            slots=self.control_slots if control else self.slots,
            shuffled=self.pattern == "random" and not control,
        )

    def extent(self, writer: int, number: int = 0) -> Extent:
        """The extent of slots of `writer`. For append, `number` is the file, counted from 0. For a workload
        on names, the extent is only slot `number`."""
        if writer == self.control_writer:
            after_writers = limits.SUPERBLOCK_BYTES + self.writers * self.slots * self.record_bytes
            aligned = -(-after_writers // self.control_record_bytes) * self.control_record_bytes
            return Extent(
                writer=writer,
                suffix=CONTROL if self.target_kind == "file" else MAIN,
                offset_bytes=0 if self.target_kind == "file" else aligned,
                first_slot=0,
                slots=self.control_slots,
                record_bytes=self.control_record_bytes,
            )
        beside = self.contract.needs_file
        slots = 1 if self.contract.by_name else self.slots
        return Extent(
            writer=writer,
            suffix=Name(writer, number, False).suffix if beside else MAIN,
            offset_bytes=0 if beside else limits.SUPERBLOCK_BYTES + writer * slots * self.record_bytes,
            first_slot=number * slots if beside else 0,
            slots=slots,
            record_bytes=self.record_bytes,
        )

    def extent_of(self, writer: int, slot: int) -> Extent:
        """The extent that contains `slot` of `writer`."""
        contract = self.contract_of(writer)
        if not contract.needs_file:
            return self.extent(writer)
        return self.extent(writer, slot if contract.by_name else slot // self.slots)

    def extents(self) -> Iterator[Extent]:
        """Every extent that is prefilled before arming, writers first, then the control arm. The files of an
        append writer are not included, because they grow and are not prefilled. Names are not included,
        because there may be very many (`prefilled_names`)."""
        if not self.contract.needs_file:
            yield from (self.extent(writer) for writer in range(self.writers))
        if self.control_slots:
            yield self.extent(self.control_writer)

    @property
    def superblock_offsets(self) -> tuple[int, int]:
        """Byte offsets in the main file of the two superblock copies."""
        end = limits.SUPERBLOCK_BYTES
        for extent in self.extents():
            if extent.suffix == MAIN:
                end = max(end, extent.end_bytes)
        alignment = max(4096, self.block_bytes)
        return 0, -(-end // alignment) * alignment

    @property
    def main_bytes(self) -> int:
        """Length of the main file, or of the part of the device that is used."""
        return self.superblock_offsets[1] + limits.SUPERBLOCK_BYTES

    def encode(self) -> bytes:
        """The plan as versioned msgpack, see docs/reference/record.md."""
        return pack({"version": PLAN_VERSION, **asdict(self)})

    @classmethod
    def decode(cls, data: bytes) -> Plan:
        """The plan that `data` holds. Raises FormatError or PlanError, which names the field."""
        value = unpack(data)
        if not isinstance(value, dict):
            raise PlanError("a plan is a map")
        if value.get("version") != PLAN_VERSION:
            raise PlanError(
                f"plan version {value.get('version')!r} is not {PLAN_VERSION}: use the release that wrote it"
            )
        wanted = {field.name: field.type for field in fields(cls)}
        if set(value) != {*wanted, "version"}:
            raise PlanError(f"a plan's fields are {sorted(wanted)}, not {sorted(value)}")
        for name, type_name in wanted.items():
            kind = {"int": int, "bool": bool}.get(str(type_name), str)
            if type(value[name]) is not kind:
                raise PlanError(f"plan field {name} is {value[name]!r}, not of type {kind.__name__}")
        return cls(**cast("dict[str, Value]", {name: value[name] for name in wanted}))  # type: ignore[arg-type]
