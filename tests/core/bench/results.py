"""Results of drives that are simulated in a few lines, so that rules can be held against what is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from durability.bench.catalogue import PROBE, PROFILES, STANDARD
from durability.bench.cells import Cell
from durability.bench.measurement import NO_LATENCIES, DiskWork, Idle, Latencies, Round, Work
from durability.bench.result import SCHEMA, CellRounds, Medium, Result
from durability.formats.facts import Drive, Facts, Machine, MachineLoad
from durability.formats.histogram import FineHistogram
from tests import sample_facts

JUDGED = tuple(  # what verdicts need, so that a run of them is quick to simulate
    cell for cell in STANDARD if cell.group in ("controls", "flush ladder") or cell in (*STANDARD[:4], *PROBE)
)
SAMPLES = 400  # of a round: enough for a p99 of five, and quick to make


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A drive in times: a write, an empty flush, what a flush takes for each byte before it and at least."""

    write_ns: float = 20_000.0
    flush_ns: float = 15_000.0
    dirty_ns: float = 0.0  # of a flush that has anything to do
    dirty_bytes_per_s: float = 0.0  # 0: it moves nothing
    flushes: float = 1.0  # that reach it for each sync
    noise: float = 0.03
    written: Mapping[str, float] = field(default_factory=dict, hash=False)  # bytes of those given, by data
    speed: Mapping[str, float] = field(default_factory=dict, hash=False)  # times the rate, by data

    def commit_ns(self, cell: Cell) -> tuple[float, float]:
        """The whole commit and its sync alone."""
        sync_ns = 0.0
        if cell.sync != "none":
            sync_ns = self.flush_ns
            if cell.dirty_bytes:
                sync_ns += self.dirty_ns
                if self.dirty_bytes_per_s:
                    sync_ns += cell.dirty_bytes * 1e9 / self.dirty_bytes_per_s
        writes = 0 if cell.workload == "flush" else max(1, cell.writes_per_sync)
        whole = (writes * self.write_ns + sync_ns) / self.speed.get(cell.data, 1.0)
        return whole, sync_ns


def planned_s(cells: Sequence[Cell]) -> float:
    """Seconds that measuring takes, warm-up included; set-up and the start of processes come on top."""
    return sum((cell.seconds + cell.warmup_s) * cell.rounds for cell in cells)


def drive(**changes: Any) -> Drive:
    """A drive of a machine that is not virtual."""
    own = {"model": "Model One", "serial": "S4X-0001 7", "fua": True, "diskseq": 3, "unsafe_shutdowns": 7}
    return sample_facts.drive(**{**own, **changes})


def facts(*, virtualisation: str = "none", drives: tuple[Drive, ...] = (drive(),), **changes: Any) -> Facts:
    """A directory on ext4 on one drive."""
    own: dict[str, Any] = {
        "host": sample_facts.host(
            machine_id="0123456789abcdef",
            boot_id="b",
            uptime_ns=10**12,
            kernel="Linux 6.1.0",
            virtualisation=virtualisation,
            hostname="shelf-3",
        ),
        "path": "/srv/data base",
        "path_in_file_system": "data base",
        "size_bytes": 256 << 20,
        "offset_bytes": None,
        "file_system": sample_facts.file_system(
            uuid="aaaa-bbbb-cccc",
            source="/dev/disk/by-id/ata-Model_One_S4X-0001_7-part1",
            mount_point="/srv/data",
            options="rw,relatime",
        ),
        "layers": ("sda1 (partition)", "sda (drive)"),
        "drives": drives,
    }
    return sample_facts.facts(**{**own, **changes})


def latencies(values: Sequence[float] | np.ndarray[Any, Any]) -> Latencies:
    """Latencies in nanoseconds."""
    histogram = FineHistogram()
    histogram.record(np.asarray(values).astype(np.uint64))
    return Latencies.of(histogram)


def make_round(cell: Cell, device: Device, rng: np.random.Generator, *, started_s: float = 0.0) -> Round:
    """One round of `cell` on `device`."""
    whole_ns, sync_ns = device.commit_ns(cell)
    slow = np.exp(rng.normal(0, device.noise)) * np.exp(rng.normal(0, 0.1, SAMPLES))
    whole, syncs = whole_ns * slow, sync_ns * slow
    seconds = float(whole.sum()) / 1e9
    if cell.pace_us:
        seconds = SAMPLES * cell.pace_us / 1e6
    writes = SAMPLES * (0 if cell.workload == "flush" else max(1, cell.writes_per_sync))
    kib = writes * cell.block_bytes / 1024 * device.written.get(cell.data, 1.0)
    flushes = SAMPLES * device.flushes if cell.sync != "none" else 0.0
    return Round(
        started_s=started_s,
        seconds=seconds,
        commits=SAMPLES,
        writes=writes,
        reads=0,
        commit_ns=latencies(whole),
        sync_ns=latencies(syncs) if cell.has_sync else NO_LATENCIES,
        read_ns=NO_LATENCIES,
        bin_s=seconds / 4,
        bins=(SAMPLES // 4,) * 4,
        work=Work(
            operations=SAMPLES,
            user_us=2.0 * SAMPLES,
            system_us=10.0 * SAMPLES,
            kernel_us=None,
            disks=(DiskWork(name="sda", flushes=flushes, writes=float(writes), write_kib=kib, reads=0.0),),
        ),
    )


def simulate(
    device: Device,
    *,
    seed: int = 1,
    cells: Sequence[Cell] = JUDGED,
    rounds: int | None = None,
    **changes: Any,
) -> Result:
    """The result of a run on `device`; any field of it by keyword."""
    rng = np.random.default_rng(seed)
    measured = tuple(
        CellRounds(
            cell=cell,
            engine="durability",
            engine_version="0.1.0",
            rounds=tuple(
                make_round(cell, device, rng, started_s=float(number))
                for number in range(cell.rounds if rounds is None else rounds)
            ),
            note="",
        )
        for cell in cells
    )
    fields: dict[str, Any] = {
        "schema": SCHEMA,
        "software": "0.1.0",
        "created": "2026-01-02T03:04:05+00:00",
        "mode": "standard",
        "profile": "",
        "seed": seed,
        "size_bytes": 256 << 20,
        "complete": True,
        "stopped": "",
        "duration_s": 60.0,
        "facts": facts(),
        "serials": "shown",
        "machine": Machine(cpu_model="CPU", cpus=2, governor="performance", memory_bytes=1 << 34),
        "media": (Medium(name="sda", rpm=None, link_bytes_per_s=600_000_000, link="SATA 6.0 Gbps"),),
        "layer_blocks": (),
        "before": MachineLoad(
            load=0.1, busy_percent=1.0, steal_percent=0.0, used_bytes=1, size_bytes=1 << 40, reserved_bytes=0
        ),
        "after": MachineLoad(
            load=1.0, busy_percent=60.0, steal_percent=0.0, used_bytes=1, size_bytes=1 << 40, reserved_bytes=0
        ),
        "idle": (Idle(name="sda", seconds=1.0, flushes=0, writes=2, write_kib=8, reads=0),),
        "order": tuple(
            index for number in range(100) for index, one in enumerate(measured) if number < len(one.rounds)
        ),
        "cells": measured,
    }
    return Result(**{**fields, **changes})


def classic_result(device: Device | None = None) -> Result:
    """The classic profile on a simulated drive, its classic cells by fio."""
    result = simulate(device or Device(noise=0.0), cells=PROFILES["classic"], profile="classic")
    cells = tuple(
        replace(one, engine="fio", engine_version="fio-3.33") if one.cell.only_fio else one
        for one in result.cells
    )
    return replace(result, cells=cells)


def throttled(cell: Cell) -> Result:
    """A load held for long on a drive that slows to a tenth after a third of it."""
    whole = simulate(Device(), cells=(cell,))
    one = replace(
        whole.cells[0].rounds[0],
        seconds=30.0,
        commits=12_000,
        writes=12_000,
        commit_ns=NO_LATENCIES,
        sync_ns=NO_LATENCIES,
        bin_s=1.0,
        bins=(1000,) * 10 + (100,) * 20,
    )
    return replace(whole, order=(0,), cells=(replace(whole.cells[0], rounds=(one,)),))
