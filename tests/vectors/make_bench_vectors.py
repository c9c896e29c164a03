"""Prints a new vector for a bench-v*.json: a small result that was stopped early, with every kind of field.

Vectors are only ever added: a format that changes gets a new version, and a new name here.
"""

from __future__ import annotations

import sys

import numpy as np

from durability.bench.catalogue import APPEND, CLASSIC, FLUSH_CONTROL, HEADLINE
from durability.bench.hashed_serials import hash_serials
from durability.bench.measurement import NO_LATENCIES, DiskWork, Idle, Latencies, Round, Work
from durability.bench.result import SCHEMA, CellRounds, LayerBlock, Medium, Result, encode
from durability.formats.facts import Machine, MachineLoad, TargetWarning
from durability.formats.histogram import FineHistogram
from tests.sample_facts import drive, facts, file_system, host

FACTS = facts(
    host=host(
        machine_id="0123456789abcdef0123456789abcdef",
        boot_id="01234567-89ab-cdef-0123-456789abcdef",
        uptime_ns=123_456_789_000,
        kernel="Linux 6.1.0-32-amd64",
        hostname="shelf-3",
    ),
    path="/srv/data/durability-bench",
    path_in_file_system="durability-bench",
    size_bytes=268_435_456,
    file_system=file_system(
        uuid="0a1b2c3d-0000-1111-2222-333344445555",
        source="/dev/nvme0n1p1",
        mount_point="/srv/data",
        options="rw,relatime",
    ),
    layers=("nvme0n1p1 (partition)", "nvme0n1 (drive)"),
    drives=(
        drive(
            name="nvme0n1",
            model="Ünlabelled NVMe",
            serial="S5GXNX0W123456",
            firmware="GXA7801Q",
            size_bytes=1_000_204_886_016,
            physical_block_bytes=512,
            fua=True,
            diskseq=1,
            unsafe_shutdowns=42,
            flushes=1234,
        ),
    ),
    warnings=(TargetWarning(code="example", text="a warning of the target"),),
)


def _latencies(*values: int) -> Latencies:
    histogram = FineHistogram()
    histogram.record(np.array(values, dtype=np.uint64))
    return Latencies.of(histogram)


def _work(operations: int, flushes: float) -> Work:
    disk = DiskWork(
        name="nvme0n1", flushes=flushes, writes=2.0 * operations, write_kib=4.0 * operations, reads=None
    )
    return Work(operations=operations, user_us=2.5, system_us=30.0, kernel_us=None, disks=(disk,))


def _round(started_s: float, *, scale: int) -> Round:
    return Round(
        started_s=started_s,
        seconds=0.05 * scale,
        commits=4,
        writes=4,
        reads=0,
        commit_ns=_latencies(90_000 * scale, 90_000 * scale, 91_500 * scale, 190_007 * scale),
        sync_ns=_latencies(60_000, 60_001, 60_002, 150_001 * scale),
        read_ns=NO_LATENCIES,
        bin_s=0.025,
        bins=(3, 1),
        work=_work(5, 5.25),
    )


RESULT = Result(
    schema=SCHEMA,
    software="0.1.0",
    created="2026-11-21T10:11:12+00:00",
    mode="standard",
    profile="",
    seed=20_261_121,
    size_bytes=268_435_456,
    complete=False,
    stopped="stopped by Ctrl-C",
    duration_s=3.25,
    facts=FACTS,
    serials="shown",
    machine=Machine(cpu_model="CPU @ 3.00GHz", cpus=8, governor="performance", memory_bytes=34_359_738_368),
    media=(Medium(name="nvme0n1", rpm=None, link_bytes_per_s=7_876_923_076, link="16.0 GT/s PCIe x4"),),
    layer_blocks=(LayerBlock(what="recordsize", of="tank/data", block_bytes=131_072),),
    before=MachineLoad(
        load=0.15,
        busy_percent=1.5,
        steal_percent=0.0,
        used_bytes=10_737_418_240,
        size_bytes=53_687_091_200,
        reserved_bytes=2_684_354_560,
    ),
    after=None,
    idle=(Idle(name="nvme0n1", seconds=1.0, flushes=0, writes=3, write_kib=12, reads=None),),
    order=(0, 3, 1, 0, 4),
    cells=(
        CellRounds(
            cell=HEADLINE,
            engine="durability",
            engine_version="0.1.0",
            rounds=(_round(0.0, scale=1), _round(1.75, scale=2)),
            note="",
        ),
        CellRounds(
            cell=FLUSH_CONTROL,
            engine="durability",
            engine_version="0.1.0",
            rounds=(
                Round(
                    started_s=1.25,
                    seconds=0.001,
                    commits=20,
                    writes=0,
                    reads=0,
                    commit_ns=_latencies(*[42_000] * 19, 42_300),
                    sync_ns=_latencies(*[42_000] * 19, 42_300),
                    read_ns=NO_LATENCIES,
                    bin_s=0.1,
                    bins=(),
                    work=None,
                ),
            ),
            note="sync: Input/output error",
        ),
        CellRounds(
            cell=APPEND, engine="durability", engine_version="0.1.0", rounds=(), note="needs a file system"
        ),
        CellRounds(
            cell=HEADLINE,
            engine="fio",
            engine_version="fio-3.33",
            rounds=(
                Round(
                    started_s=0.75,
                    seconds=0.5,
                    commits=5000,
                    writes=5000,
                    reads=0,
                    commit_ns=NO_LATENCIES,
                    sync_ns=NO_LATENCIES,
                    read_ns=NO_LATENCIES,
                    bin_s=0.1,
                    bins=(),
                    work=None,
                ),
            ),
            note="",
        ),
        CellRounds(
            cell=CLASSIC[0].read,
            engine="fio",
            engine_version="fio-3.33",
            rounds=(
                Round(
                    started_s=2.5,
                    seconds=1.002,
                    commits=0,
                    writes=0,
                    reads=3,
                    commit_ns=NO_LATENCIES,
                    sync_ns=NO_LATENCIES,
                    read_ns=_latencies(1_200_000, 1_300_000, 9_000_000),
                    bin_s=0.1,
                    bins=(),
                    work=None,
                ),
            ),
            note="",
        ),
    ),
)

if __name__ == "__main__":
    sys.stdout.write(encode(hash_serials(RESULT)).decode())
