"""The cells of a matrix: each is a drive on a rig under a load, with a number of cuts. Data only.

A cell's name names its rig, drive and load. The name, the matrix's seed and a cut's number determine the
cut's seed, so a single cut can be repeated. Two cells of a matrix never have the same name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from durability.formats.workloads.registry import WORKLOADS
from durability_lab.matrix import detection_curves
from durability_lab.simulated_rig.scenario import Scenario
from durability_lab.support.loads import FILE_SYSTEMS, Load
from durability_lab.truth.expected_verdict import UNREAD

Rig: TypeAlias = Literal["a", "b", "c"]
Curve: TypeAlias = Literal["early-ack", "flush-skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixCell:
    """One cell of a matrix."""

    rig: Rig
    drive: str  # a model's spec, or a cache filter of nbdkit (`FILTERS`)
    load: Load | Scenario  # on rig A a scenario, whose own `model` is ignored
    cuts: int
    curve: Curve | None = None  # the detection curve that this cell belongs to, if any

    @property
    def name(self) -> str:
        """The name of the cell, as `--only` finds it."""
        return f"{self.rig} {self.drive} {self.load_name}"

    @property
    def load_name(self) -> str:
        """The name of the load."""
        words = [word for word in str(self.load).split() if not word.startswith("model=")]
        return " ".join(words) or "plain"

    def seed(self, matrix_seed: int, number: int) -> int:
        """The seed of cut `number`, counted from 1, in the matrix of `matrix_seed`; 32 bits."""
        text = f"{matrix_seed} {self.name} {number}"
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest())


def digest(cells: Iterable[MatrixCell]) -> str:
    """A digest of a list of cells and their numbers of cuts."""
    text = "\n".join(f"{cell.name} {cell.cuts}" for cell in cells)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


_HONEST = ("honest", "write-through")
_DELAYS = tuple(f"early-ack:delay_ms={delay_ms}" for delay_ms in detection_curves.DELAYS_MS)
_LIARS = (
    "flush-ignored",
    *_DELAYS,
    "flush-skipped:one_in=2",
    "flush-skipped:one_in=10",
    "partial-flush",
    "fua-ignored",
    "flush-below:cache_bytes=32768",
    "shorn",
    "misdirected",
    "neighbour-flip",
    "rollback",
    "partial-rollback",
    "unreadable",
    "hanging",
    "smaller",
    "empty",
    "dead",
)
_NOT_ON_RIG_B = ("fua-ignored", *UNREAD)  # not under `_LIAR_LOADS`; `long_cells` names their loads

# Rig A. The pace is slow enough that no writer waits for credit: a waiting writer has no record at risk.
_PLAIN = Scenario(slots=512, rate=1000.0)
_GROUPS = Scenario(writers=2, group=8, slots=512, rate=100.0)
_DSYNC = Scenario(sync="dsync", slots=512, rate=1000.0)
_LIAR_SCENARIOS = (
    _PLAIN,
    Scenario(writers=4, slots=512, rate=500.0, operations=(200, 3000)),
    _GROUPS,
    _DSYNC,
    Scenario(slots=512, rate=50.0),
)
_FUA_SCENARIOS = (  # only rig A really sends FUA: a loop device does not know FUA, QEMU's drive drops it
    replace(_DSYNC, rate=50.0),
    replace(_DSYNC, survives=True),
    replace(_DSYNC, pattern="sequential", record_bytes=16384, slots=128, rate=200.0),
    replace(_DSYNC, writers=4, record_bytes=512, slots=2048, rate=2000.0, operations=(1000, 5000)),
)
_HONEST_SCENARIOS = (
    *_LIAR_SCENARIOS,
    replace(_PLAIN, operations=(600, 1500)),
    Scenario(record_bytes=512, slots=4096, operations=(500, 5000)),
    Scenario(pattern="sequential", record_bytes=16384, slots=128, rate=200.0),
    Scenario(writers=4, sync="dsync", record_bytes=512, slots=2048, rate=2000.0, operations=(1000, 5000)),
    Scenario(writers=2, slots=512, rate=500.0, lag_p50_ms=5.0, lag_p99_ms=30.0),
    replace(_PLAIN, survives=True),
)

# Rig B. Every workload that is possible on a device or a file system.
_IN_FILES = tuple(one.name for one in WORKLOADS.values() if not one.by_name)
_RAW = Load()
_EXT4 = Load(file_system="ext4")
_SIMPLE = (_RAW, *(Load(file_system=name) for name in FILE_SYSTEMS))
_HONEST_LOADS = (
    _RAW,
    Load(writers=4),
    Load(writers=4, group=8),
    Load(sync="dsync", direct=True),
    *(
        Load(file_system=file_system, workload=workload, writers=writers)
        for file_system in FILE_SYSTEMS
        for workload in WORKLOADS
        for writers in (1, 4)
    ),
    *(
        Load(file_system=file_system, workload=workload, writers=4, sync="dsync", direct=True)
        for file_system in FILE_SYSTEMS
        for workload in _IN_FILES
    ),
    *(Load(file_system="ext4", workload=workload, group=8) for workload in WORKLOADS),
)
_LIAR_LOADS = (
    _RAW,
    _EXT4,
    Load(file_system="xfs", workload="append"),
    Load(file_system="ext4", workload="create"),
    Load(file_system="btrfs", workload="rename"),
    Load(file_system="xfs", workload="unlink"),
    Load(file_system="ext4", workload="unlink", writers=4, group=8),
    Load(file_system="btrfs", workload="append", writers=4, sync="dsync", direct=True),
)
_RAW_DSYNC = Load(sync="dsync", direct=True)

# Rig C. Drives and loads; each cut takes minutes, not seconds.
_MACHINES: tuple[tuple[str, Load], ...] = (
    ("honest", _EXT4),
    ("honest", _RAW_DSYNC),
    ("honest", Load(file_system="ext4", workload="append", writers=4)),
    ("honest", Load(file_system="ext4", workload="rename")),
    ("write-through", _EXT4),
    ("flush-ignored", _EXT4),
    ("flush-ignored", _RAW),
    ("early-ack:delay_ms=1000", _EXT4),
    ("fua-ignored", _RAW_DSYNC),
    ("rollback", Load(file_system="ext4", workload="create")),
    ("misdirected", _RAW),
)


def long_cells() -> list[MatrixCell]:
    """The matrix reported in docs/explanation/detection.md."""
    return [
        *_cells("a", _HONEST, _HONEST_SCENARIOS, cuts=50),
        *_cells("a", _LIARS, _LIAR_SCENARIOS, cuts=12),
        *_cells("a", ("fua-ignored",), _FUA_SCENARIOS, cuts=12),
        *_points("early-ack", detection_curves.early_ack_scenarios(), cuts=60),
        *_points("flush-skipped", detection_curves.flush_skipped_scenarios(), cuts=60),
        *_cells("b", ("honest",), _HONEST_LOADS, cuts=1),
        *_cells("b", ("write-through", "filter-honest"), _SIMPLE, cuts=1),
        *_cells("b", ("filter-amnesiac",), _SIMPLE, cuts=13),  # a filter of nbdkit, which only rig B has
        *_cells("b", [drive for drive in _LIARS if drive not in _NOT_ON_RIG_B], _LIAR_LOADS, cuts=1),
        *_cells("b", ("fua-ignored",), (_RAW_DSYNC,), cuts=2),
        *_cells("b", ("hanging",), (_RAW,), cuts=1),
        *(MatrixCell(rig="c", drive=drive, load=load, cuts=2) for drive, load in _MACHINES),
    ]


def quick_cells() -> list[MatrixCell]:
    """Every model on rig A and a little of rig B: under two minutes on two processors."""
    return [
        *_cells("a", _HONEST, _LIAR_SCENARIOS, cuts=10),
        *_cells("a", _LIARS, (_PLAIN, _GROUPS, _DSYNC), cuts=11),
        *_cells(
            "b", ("honest",), (_RAW, _EXT4, Load(file_system="xfs", workload="append", writers=4)), cuts=1
        ),
        *_cells("b", ("honest",), (Load(file_system="btrfs", workload="rename"),), cuts=1),
        *_cells("b", ("flush-ignored",), (_RAW, _EXT4), cuts=1),
        *_cells("b", ("early-ack:delay_ms=100",), (Load(file_system="xfs", workload="create"),), cuts=1),
        *_cells("b", ("rollback", "misdirected"), (_EXT4,), cuts=1),
    ]


def _cells(
    rig: Rig, drives: Iterable[str], loads: Sequence[Load] | Sequence[Scenario], *, cuts: int
) -> Iterator[MatrixCell]:
    for drive in drives:
        for load in loads:
            yield MatrixCell(rig=rig, drive=drive, load=load, cuts=cuts)


def _points(curve: Curve, scenarios: Iterable[Scenario], *, cuts: int) -> Iterator[MatrixCell]:
    for scenario in scenarios:
        load = replace(scenario, model=Scenario().model)
        yield MatrixCell(rig="a", drive=scenario.model, load=load, cuts=cuts, curve=curve)
