"""Cells: the measurements of the benchmark. A cell is one workload with all its parameters.

A figure means nothing without its conditions, so a cell's name contains its parameters and the state of the
file. Two cells of one name are the same measurement. The measuring code has no workloads of its own: it only
measures cells. Parameters that contradict each other are refused.

    workload   one operation
    overwrite  `writes_per_sync` writes within a job's span, then a sync; sync "none": one write;
               "dsync", "osync": one write that syncs itself
    append     the same at the end of a growing file
    create     create a file, write it, sync it, and sync its directory
    mix        a read (in `read_percent` % of the operations), else a write and its sync
    read       a read
    flush      a sync with nothing to write

    file_state   the file before a round
    overwritten  every block was written and synced before, so that no block needs to be allocated
    fresh        preallocated and never written; for append and create: a new file
    sparse       of full length, but empty: blocks are allocated during the round

A job has one operation in flight, or `depth` operations, which only fio measures. This tool's own loops wait
for each operation, since a sync does not cover operations that are still in flight.

The format of a name is
BLOCK-WHAT[-direct][-SYNC][-perN][-Njobs][-qDEPTH][-shared][-everyT][-DATA][-memory][-sustained]-STATE.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, get_args

from durability.errors import FormatError
from durability.formats.documents import Finite, Flag, Natural, Text, shown
from durability.formats.plan import WRITE_THROUGH_METHODS, Pattern

CellWorkload: TypeAlias = Literal["overwrite", "append", "create", "mix", "read", "flush"]
Sync: TypeAlias = Literal["none", "fdatasync", "fsync", "dsync", "osync"]
FileState: TypeAlias = Literal["overwritten", "fresh", "sparse"]
Data: TypeAlias = Literal["unique", "half", "repeated", "zeros"]  # half: half of each block is zeros
Place: TypeAlias = Literal["target", "memory"]  # memory: tmpfs
Group: TypeAlias = Literal[
    "commit",
    "file state",
    "block size",
    "jobs",
    "group commit",
    "mix",
    "classic",
    "controls",
    "flush ladder",
    "data probe",
    "sustained",
]
GROUPS: tuple[Group, ...] = get_args(Group)

# These fields do not define the measurement: the duration, for example, changes the precision of the figures,
# not their meaning.
_NOT_OF_THE_MEASUREMENT = frozenset(
    {"name", "about", "group", "fio", "seconds", "warmup_s", "rounds", "p99_limit_ms"}
)
KIB, MIB = 1 << 10, 1 << 20
CELL_BLOCK_BYTES_MAX = MIB
JOBS_MAX = 64
DEPTH_MAX = 1024
WRITES_PER_SYNC_MAX = 1 << 16
ROUNDS = 5
# Workloads that continue in an existing file.
_WRITTEN_BEFORE = frozenset({"overwrite", "mix", "read", "flush"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One measurement."""

    name: Text
    group: Group
    about: Text  # what the figure tells, in one line
    workload: CellWorkload
    block_bytes: Natural
    pattern: Pattern
    sync: Sync
    direct: Flag  # O_DIRECT
    file_state: FileState
    jobs: Natural  # processes that work at once, each in its own file (on a device: range)
    shared: Flag  # all jobs use one file
    writes_per_sync: Natural
    read_percent: Natural
    # Interval at which operations are due (open loop; latency counts from the due time). 0: each operation
    # follows the previous one.
    pace_us: Natural
    data: Data  # the kind of data that is written
    place: Place
    seconds: Finite  # measured time of each round
    warmup_s: Finite  # time before each round that is not measured
    rounds: Natural
    p99_limit_ms: Finite | None  # published rule for the p99 of the sync alone
    fio: Flag  # fio can measure the same
    depth: Natural  # operations in flight per job

    def __post_init__(self) -> None:
        """Raises FormatError if the parameters contradict each other or are out of bounds."""
        for name, low, high in (
            ("block_bytes", 1, CELL_BLOCK_BYTES_MAX),
            ("jobs", 1, JOBS_MAX),
            ("writes_per_sync", 0, WRITES_PER_SYNC_MAX),
            ("read_percent", 0, 99),
            ("pace_us", 0, 60_000_000),
            ("seconds", 0.001, 48 * 3600.0),
            ("warmup_s", 0, 3600.0),
            ("rounds", 1, 100),
            ("depth", 1, DEPTH_MAX),
        ):
            if not low <= getattr(self, name) <= high:  # also true for NaN
                raise FormatError(
                    f"cell '{shown(self.name)}': {name} is {getattr(self, name)}, not {low} to {high}"
                )
        if (self.sync == "none" or self.workload == "flush") != (self.writes_per_sync == 0):
            raise FormatError(
                f"cell '{shown(self.name)}': {self.writes_per_sync} writes to a sync ({self.sync})"
            )
        if self.sync in WRITE_THROUGH_METHODS and self.writes_per_sync != 1:
            raise FormatError(f"cell '{shown(self.name)}': with {self.sync} each write is a sync")
        if (self.workload == "mix") != (self.read_percent > 0):
            raise FormatError(
                f"cell '{shown(self.name)}': {self.read_percent} % reads in workload {self.workload}"
            )
        if self.workload == "read" and self.sync != "none":
            raise FormatError(f"cell '{shown(self.name)}': a read has no sync ({self.sync})")

    @property
    def dirty_bytes(self) -> int:
        """Bytes that a sync makes durable."""
        return self.block_bytes * self.writes_per_sync

    @property
    def needs_file_system(self) -> bool:
        """Whether the cell needs a file system, so that a bare block device cannot be measured."""
        return self.place == "target" and self.file_state != "overwritten" and not self.fills

    @property
    def goes_on(self) -> bool:
        """Whether the cell continues in the files that exist for all cells, not in new files."""
        return self.file_state == "overwritten" and self.workload in _WRITTEN_BEFORE

    @property
    def fills(self) -> bool:
        """Whether the cell writes most of the free space, not the space that all cells share."""
        return self.group == "sustained" and self.workload == "overwrite" and self.file_state == "fresh"

    @property
    def only_fio(self) -> bool:
        """Whether only fio can measure the cell: the loops of this tool measure syncs."""
        return self.depth > 1 or self.workload == "read" or self.group == "classic"

    @property
    def has_sync(self) -> bool:
        """Whether a sync call is timed separately from the writes."""
        return self.sync != "none" and self.sync not in WRITE_THROUGH_METHODS


def size_word(size_bytes: int) -> str:
    """A size as in names of cells: 4k, 1m, 2300b."""
    for unit, bytes_per_unit in (("m", MIB), ("k", KIB)):
        if size_bytes % bytes_per_unit == 0:
            return f"{size_bytes // bytes_per_unit}{unit}"
    return f"{size_bytes}b"


def _what(workload: CellWorkload, pattern: Pattern, read_percent: int) -> str:
    if workload == "mix":
        return f"mix{read_percent}"
    if workload == "read":
        return f"{pattern}-read"
    return pattern if workload == "overwrite" else workload


def _name(values: Mapping[str, Any]) -> str:
    group, flush = values["group"], values["workload"] == "flush"
    depth, read = values["depth"], values["workload"] == "read"
    pace_us, per = values["pace_us"], values["writes_per_sync"]
    words = (
        "empty" if flush else size_word(values["block_bytes"]),
        _what(values["workload"], values["pattern"], values["read_percent"]),
        "direct" if values["direct"] else "",
        "" if read else "nosync" if values["sync"] == "none" else values["sync"],
        f"per{per}" if per > 1 or group == "flush ladder" else "",
        f"{values['jobs']}jobs" if values["jobs"] > 1 else "",
        f"q{depth}" if depth > 1 or group == "classic" else "",
        "shared" if values["shared"] else "",
        f"every{pace_us}us" if pace_us else "",
        values["data"] if values["data"] != "unique" or group == "data probe" else "",
        "memory" if values["place"] == "memory" else "",
        "sustained" if group == "sustained" else "",
        values["file_state"],
    )
    return "-".join(word for word in words if word)


_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {
        "workload": "overwrite",
        "block_bytes": 4 * KIB,
        "pattern": "random",
        "sync": "fdatasync",
        "direct": False,
        "file_state": "overwritten",
        "jobs": 1,
        "shared": False,
        "read_percent": 0,
        "pace_us": 0,
        "data": "unique",
        "place": "target",
        "seconds": 0.2,
        "warmup_s": 0.02,
        "rounds": ROUNDS,
        "p99_limit_ms": None,
        "fio": False,
        "depth": 1,
    }
)


def make_cell(group: Group, about: str, **changes: Any) -> Cell:
    """A cell that differs from the defaults by `changes`, with a name from its parameters."""
    values = {**_DEFAULTS, "group": group, "about": about, **changes}
    none = values["sync"] == "none" or values["workload"] == "flush"
    values.setdefault("writes_per_sync", 0 if none else 1)
    return Cell(name=_name(values), **values)


def differing(cells: Sequence[Cell]) -> frozenset[str]:
    """The parameters of the measurement that differ between `cells`."""
    return frozenset(
        field.name
        for field in fields(Cell)
        if field.name not in _NOT_OF_THE_MEASUREMENT and len({getattr(one, field.name) for one in cells}) > 1
    )


def file_sizes(cells: Sequence[Cell], size_bytes: int) -> list[int]:
    """The sizes in bytes of the files that exist for all of `cells`, one for each job. Each cell finds its
    share of `size_bytes`, rounded up to whole MiB."""
    sizes: list[int] = []
    for cell in cells:
        files = 1 if cell.shared else cell.jobs
        if cell.goes_on:
            sizes += [0] * (files - len(sizes))
            sizes[:files] = [max(size, -(-size_bytes // files // MIB) * MIB) for size in sizes[:files]]
    return sizes
