"""Sets of cells: standard, quick, accept, and profiles of known workloads.

The standard set takes about a minute with its set-up. Quick takes a third of that, with fewer rounds. Accept
takes as long as the user asks. Every set contains the controls of the plausibility verdict. A name that
matches no cell is refused with a list of the names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal, TypeAlias

from durability.bench.cells import GROUPS, KIB, MIB, Cell, make_cell
from durability.errors import UsageError
from durability.formats.plan import Pattern
from durability.units import format_size

Mode: TypeAlias = Literal["standard", "quick", "accept"]

LADDER_STEPS = (1, 4, 16, 64, 256, 1024)  # writes of 64 KiB before the sync: 64 KiB to 64 MiB
QUICK_ROUNDS = 3
ACCEPT_MINUTES_MIN, ACCEPT_MINUTES_MAX, ACCEPT_MINUTES = 2, 24 * 60, 10
ACCEPT_STANDARD_S = 80  # part of this time for all cells but the sustained loads
PACED_ACCEPT_S = 2.1  # five such rounds with a commit each millisecond: 10,500 commits; p99.9 needs 10,000

HEADLINE = make_cell(
    "commit",
    "what one committing writer gets: the rate and latency to plan a database on this target with",
    seconds=1.0,
    warmup_s=0.1,
    fio=True,
)
FSYNC = make_cell(
    "commit",
    "the cost of fsync beyond fdatasync: the inode, and often a commit of the journal",
    sync="fsync",
    seconds=0.3,
    fio=True,
)
DSYNC = make_cell(
    "commit",
    "the FUA path, which firmware handles apart from flush: open_datasync of databases",
    sync="dsync",
    direct=True,
    seconds=0.3,
    fio=True,
)
SEQUENTIAL = make_cell(
    "commit",
    "a log that is reused from its start, as WAL segments and redo logs are",
    pattern="sequential",
    seconds=0.3,
)
APPEND = make_cell(
    "commit",
    "a log that grows: each sync also commits the new length and blocks",
    workload="append",
    pattern="sequential",
    file_state="fresh",
    seconds=0.3,
)
ETCD = make_cell(
    "commit",
    "etcd's write-ahead log; etcd asks for a p99 of the sync below 10 ms",
    workload="append",
    block_bytes=2300,
    pattern="sequential",
    file_state="fresh",
    seconds=0.3,
    p99_limit_ms=10.0,
)
CREATE = make_cell(
    "commit",
    "a mail or a queued job: a file is created and synced, then its directory",
    workload="create",
    pattern="sequential",
    sync="fsync",
    file_state="fresh",
)
PACED = make_cell(
    "commit",
    "one commit due each millisecond, with latency from the due time: stalls that a closed loop hides",
    pace_us=1000,
    seconds=0.4,
)
_COMMIT = (HEADLINE, FSYNC, DSYNC, SEQUENTIAL, APPEND, ETCD, CREATE, PACED)
_STATES = (
    make_cell("file state", "a preallocated file: each sync converts unwritten extents", file_state="fresh"),
    make_cell("file state", "a file with holes: each sync allocates blocks", file_state="sparse"),
)
_BLOCKS = tuple(
    make_cell("block size", about, block_bytes=kib * KIB, seconds=0.3 if kib == 16 else 0.2, fio=kib == 16)
    for kib, about in (
        (8, "a page of PostgreSQL; slower than 4 KiB if a layer below uses smaller blocks"),
        (16, "a page of InnoDB; some drives write 16 KiB in one piece, at the cost of 4 KiB"),
        (64, "a cluster of qcow2, a usual RAID stripe: smaller writes may cost as much"),
        (128, "the default recordsize of ZFS: smaller writes into a large file rewrite this much"),
    )
)
_JOBS = (
    *(
        make_cell(
            "jobs",
            "whether commits of several writers share flushes, each writer in its own file",
            jobs=jobs,
            seconds=0.3 if jobs == 4 else 0.2,
            fio=jobs == 4,
        )
        for jobs in (2, 4, 8, 16)
    ),
    make_cell("jobs", "the same in one file, whose lock the writers share", jobs=4, shared=True),
)
_GROUP_COMMIT = tuple(
    make_cell(
        "group commit", "group commit: the cost of a write if several share a sync", writes_per_sync=writes
    )
    for writes in (8, 32)
)
_MIX = (
    make_cell(
        "mix",
        "60 % reads, each write synced: datacenter drives are far ahead of consumer drives here",
        workload="mix",
        read_percent=60,
        block_bytes=16 * KIB,
        direct=True,
    ),
    make_cell(
        "mix",
        "the same without a sync: consumer drives look better than they are",
        workload="mix",
        read_percent=60,
        block_bytes=16 * KIB,
        direct=True,
        sync="none",
    ),
    make_cell(
        "mix",
        "a busy server: 16 writers of 64 KiB, each write synced",
        block_bytes=64 * KIB,
        jobs=16,
        sync="fsync",
    ),
)
WRITE_CONTROL = make_cell(
    "controls",
    "W: a direct write without a sync, answered from the drive's cache or protected memory",
    direct=True,
    sync="none",
)
COMMIT_CONTROL = make_cell(
    "controls", "C: the same write and a sync; the time beyond W is the flush", direct=True, seconds=0.2
)
FLUSH_CONTROL = make_cell(
    "controls",
    "F0: a sync with nothing to write, so the price of asking",
    workload="flush",
    pattern="sequential",
)
_MEMORY = make_cell(
    "controls",
    "the same loop in memory (tmpfs): the cost of this tool per operation",
    place="memory",
    seconds=0.1,
)
_PACED_MEMORY = make_cell(
    "controls",
    "the paced loop in memory: the part of the paced row that this machine adds by being late",
    place="memory",
    pace_us=PACED.pace_us,
    seconds=PACED.seconds,
)
_CONTROL_GROUP = (WRITE_CONTROL, COMMIT_CONTROL, FLUSH_CONTROL, _MEMORY, _PACED_MEMORY)
LADDER = tuple(
    make_cell(
        "flush ladder",
        "the time of a flush by the bytes written before it: longer with more, if it moves them",
        block_bytes=64 * KIB,
        pattern="sequential",
        direct=True,
        writes_per_sync=step,
        seconds=0.1,
        warmup_s=0.0,
    )
    for step in LADDER_STEPS
)
PROBE = tuple(
    make_cell(
        "data probe",
        about,
        data=data,
        block_bytes=128 * KIB,
        pattern="sequential",
        writes_per_sync=8,
        seconds=0.15,
    )
    for data, about in (
        ("unique", "data that neither compress nor repeat, as in all other cells"),
        ("half", "half of each block is zeros: a compressing layer writes less"),
        ("repeated", "one incompressible block repeated: a deduplicating layer writes less"),
        ("zeros", "zeros: the data of tests that measure compression instead of a drive"),
    )
)

# Cells that the plausibility verdict depends on.
CONTROLS = (HEADLINE, SEQUENTIAL, WRITE_CONTROL, COMMIT_CONTROL, FLUSH_CONTROL, LADDER[-1])

STANDARD = (*_COMMIT, *_STATES, *_BLOCKS, *_JOBS, *_GROUP_COMMIT, *_MIX, *_CONTROL_GROUP, *LADDER, *PROBE)

_QUICK_CELLS = (
    *(HEADLINE, FSYNC, DSYNC, SEQUENTIAL, APPEND, PACED),
    *(_BLOCKS[1], _BLOCKS[2], _JOBS[1], _JOBS[3], LADDER[2], LADDER[-1]),
    *_CONTROL_GROUP,
)
QUICK = tuple(
    replace(cell, rounds=QUICK_ROUNDS, seconds=min(cell.seconds, 0.5))
    for cell in STANDARD
    if cell in _QUICK_CELLS
)


_HELD: Mapping[str, float] = MappingProxyType({"warmup_s": 1.0, "rounds": 1})
HELD_COMMIT = make_cell(
    "sustained", "one committing writer under sustained load: heat, burst credits by operations", **_HELD
)
HELD_WRITERS = make_cell(
    "sustained",
    "16 writers of 64 KiB under sustained load: a fast cache that fills, burst credits by bytes",
    block_bytes=64 * KIB,
    jobs=16,
    **_HELD,
)
HELD_UNSYNCED = make_cell(
    "sustained",
    "the same 16 writers without a sync and past the page cache: what the syncs cost under sustained load",
    block_bytes=64 * KIB,
    jobs=16,
    direct=True,
    sync="none",
    **_HELD,
)
HELD_FILL = make_cell(
    "sustained",
    "most of the free space written in order, without a sync: the rate when a large fast cache is full",
    block_bytes=1024 * KIB,
    pattern="sequential",
    direct=True,
    sync="none",
    file_state="fresh",
    warmup_s=0.0,
    rounds=1,
)
HELD = (HELD_COMMIT, HELD_WRITERS, HELD_UNSYNCED, HELD_FILL)
_HELD_SHARES = (0.25, 0.25, 0.15, 0.35)  # shares of the time; the fill load needs the most


def sustained(minutes: float = ACCEPT_MINUTES) -> tuple[Cell, ...]:
    """The cells of `--accept`: the standard cells, with paced cells that are long enough for a p99.9, then
    four sustained loads, for about `minutes` in all. Raises UsageError."""
    if not ACCEPT_MINUTES_MIN <= minutes <= ACCEPT_MINUTES_MAX:
        raise UsageError(
            f"--accept takes {ACCEPT_MINUTES_MIN} to {ACCEPT_MINUTES_MAX} minutes, not {minutes:g}"
        )
    held_s = minutes * 60 - ACCEPT_STANDARD_S
    return (
        *(replace(cell, seconds=PACED_ACCEPT_S) if cell.pace_us else cell for cell in STANDARD),
        *(replace(cell, seconds=held_s * share) for cell, share in zip(HELD, _HELD_SHARES, strict=True)),
    )


def minutes_to_hold(held: Cell, seconds: float) -> int | None:
    """The least whole number of minutes for `--accept` with which the load `held` lasts longer than
    `seconds`. None if the largest allowed number is not enough."""
    whole_s = ACCEPT_STANDARD_S + seconds / _HELD_SHARES[HELD.index(held)]
    minutes = max(ACCEPT_MINUTES_MIN, int(whole_s // 60) + 1)
    return minutes if minutes <= ACCEPT_MINUTES_MAX else None


def _profile(*cells: Cell) -> tuple[Cell, ...]:
    """`cells` with rounds of one second, and the controls that the plausibility verdict needs."""
    longer = tuple(replace(cell, seconds=1.0, warmup_s=0.1) for cell in cells)
    names = {cell.name for cell in longer}
    return (*longer, *(cell for cell in CONTROLS if cell.name not in names))


def _postgres() -> tuple[Cell, ...]:
    wal = "WAL of PostgreSQL, 8 KiB pages in a recycled segment, wal_sync_method = "
    syncs = (
        ("fdatasync", "fdatasync"),
        ("fsync", "fsync"),
        ("dsync", "open_datasync"),
        ("osync", "open_sync"),
    )
    return _profile(
        *(
            make_cell("commit", wal + word, block_bytes=8 * KIB, pattern="sequential", sync=sync)
            for sync, word in syncs
        ),
        make_cell(
            "jobs",
            "eight backends that commit at once, each in its own file",
            block_bytes=8 * KIB,
            pattern="sequential",
            jobs=8,
        ),
        make_cell(
            "group commit",
            "a checkpoint: 32 pages at random places, then fsync",
            block_bytes=8 * KIB,
            sync="fsync",
            writes_per_sync=32,
        ),
    )


def _mixes() -> tuple[Cell, ...]:
    return _profile(
        *(replace(cell, fio=True) for cell in _MIX[:2]),
        *(
            make_cell(
                "mix",
                f"16 clients, 60 % reads, each write {'synced' if sync == 'fsync' else 'left to the cache'}",
                workload="mix",
                read_percent=60,
                block_bytes=16 * KIB,
                direct=True,
                jobs=16,
                sync=sync,
                fio=True,
            )
            for sync in ("fsync", "none")
        ),
    )


def _dedicated_server() -> tuple[Cell, ...]:
    return _profile(
        replace(_MIX[2], fio=True),
        make_cell(
            "mix",
            "the load of many published tests: 16 jobs with 16 writes of 64 KiB in flight each, fsync",
            block_bytes=64 * KIB,
            jobs=16,
            depth=16,
            sync="fsync",
            fio=True,
        ),
        make_cell("mix", "one writer of 64 KiB, each write synced", block_bytes=64 * KIB, sync="fsync"),
        make_cell(
            "data probe",
            "the busy server writing zeros, as many tests do: shows compression",
            block_bytes=64 * KIB,
            jobs=16,
            sync="fsync",
            data="zeros",
        ),
        *PROBE,
    )


def _classic_cell(label: str, *, read: bool) -> Cell:
    """A cell from a label of CrystalDiskMark: SEQ1M Q8T1 is 1 MiB in sequence, 8 in flight, 1 thread."""
    what, queue = label.split()
    pattern: Pattern = "sequential" if what.startswith("SEQ") else "random"
    depth = int(queue[1:].partition("T")[0])
    block_bytes = MIB if what.endswith("1M") else 4 * KIB
    doing = f"{format_size(block_bytes)} {'reads' if read else 'writes without a sync'}"
    return make_cell(
        "classic",
        f"{label}: {pattern} {doing}, {f'{depth} in flight' if depth > 1 else 'one at a time'}",
        workload="read" if read else "overwrite",
        block_bytes=block_bytes,
        pattern=pattern,
        sync="none",
        direct=True,
        depth=depth,
        fio=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Classic:
    """A row of the classic profile."""

    label: str
    read: Cell  # reads by fio
    write: Cell  # writes by fio, without a sync
    synced: Cell  # the same writes with a sync each; one writer for each write in flight


def _synced(label: str, write: Cell) -> Cell:
    """The cell of commits that a classic row is compared with."""
    writers = "one writer" if write.depth == 1 else f"{write.depth} writers"
    return make_cell(
        "commit",
        f"{label} with syncs: {writers}, each write followed by fdatasync",
        block_bytes=write.block_bytes,
        pattern=write.pattern,
        direct=True,
        jobs=write.depth,
    )


def _classic_row(label: str) -> Classic:
    write = _classic_cell(label, read=False)
    synced = COMMIT_CONTROL if label == "RND4K Q1T1" else _synced(label, write)
    return Classic(label=label, read=_classic_cell(label, read=True), write=write, synced=synced)


# The default measurements of CrystalDiskMark 9 and KDiskMark 3.
CLASSIC = tuple(map(_classic_row, ("SEQ1M Q8T1", "SEQ1M Q1T1", "RND4K Q32T1", "RND4K Q1T1")))


def _classic() -> tuple[Cell, ...]:
    return _profile(
        HEADLINE,
        *(cell for row in CLASSIC for cell in (row.read, row.write)),
        *(row.synced for row in CLASSIC),
    )


def _record_sizes() -> tuple[Cell, ...]:
    return _profile(
        *(
            make_cell(
                "block size",
                "8 writers without a sync: slow below the recordsize or cluster_size, which is read first",
                block_bytes=kib * KIB,
                jobs=8,
                direct=True,
                sync="none",
            )
            for kib in (4, 8, 16, 32, 64, 128, 256)
        ),
        *(
            make_cell("block size", "the same for one committing writer", block_bytes=kib * KIB)
            for kib in (8, 16, 64, 128)
        ),
    )


PROFILES: Mapping[str, tuple[Cell, ...]] = MappingProxyType(
    {
        "postgres": _postgres(),
        "etcd": _profile(ETCD, HEADLINE, PACED),
        "consumer-vs-datacenter": _mixes(),
        "dedicated-server": _dedicated_server(),
        "zfs-qcow2": _record_sizes(),
        "classic": _classic(),
    }
)


def profile(name: str) -> tuple[Cell, ...]:
    """The cells of a named workload. Raises UsageError."""
    if name not in PROFILES:
        raise UsageError(f"no profile is named {name!r}; choose one of {', '.join(PROFILES)}")
    return PROFILES[name]


def select(cells: Sequence[Cell], words: Iterable[str]) -> tuple[Cell, ...]:
    """The cells that match any of `words`, in their order. A word is the name of a cell, a group of cells,
    consecutive words of a name ("4jobs", "random-fsync"), or "headline" for the headline cell. Raises
    UsageError for a word that matches no cell."""
    chosen: set[str] = set()
    for word in words:
        found = {cell.name for cell in cells if _means(word.strip(), cell)}
        if not found:
            groups = ", ".join(group for group in GROUPS if any(cell.group == group for cell in cells))
            names = "\n  ".join(cell.name for cell in cells)
            raise UsageError(
                f"--only {word!r} matches no cell of this run; give a group ({groups}), consecutive words of"
                f" a name, headline, or one of\n  {names}"
            )
        chosen |= found
    return tuple(cell for cell in cells if cell.name in chosen)


def _means(word: str, cell: Cell) -> bool:
    if word == "headline":
        return cell.name == HEADLINE.name
    return bool(word) and (word in (cell.name, cell.group) or f"-{word}-" in f"-{cell.name}-")
