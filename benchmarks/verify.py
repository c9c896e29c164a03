"""Measure how fast verify reads a target back, compared with `dd` on the same file, and its peak memory.

Cold: both read the drive with O_DIRECT, in turns, and each pair gives a ratio. From memory (a tmpfs): there
is no drive to wait for, so the processor time shows how much one core can check. The peak memory is that of
the reading process, for a small target and a large one.

    python benchmarks/verify.py [--directory DIR] [--size 4GiB] [--large 16GiB] [--rounds 5]
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from durability import limits
from durability.evidence.scan_report import ScanReport
from durability.formats.mixing import U64, Words
from durability.formats.plan import MAIN, Plan
from durability.formats.record import SECTOR_WORDS, Stamper, superblock
from durability.units import parse_size
from durability_client.target.kernel_storage import KernelStorage
from durability_client.verify.scan.scan_base import ScanJob, ScanListener
from durability_client.verify.scan.scan_process import ScanProcess
from durability_client.verify.scan.slot_scan import SlotScan

RECORD_BYTES = 4096
MEMORY = Path("/dev/shm")
SMALL_BYTES = 64 << 20
CHUNK_SLOTS = 1024
DAMAGED = {"lost": "lost", "empty": "corrupt", "foreign": "foreign", "corrupt": "corrupt"}  # kind: finding


def plan_of(size_bytes: int) -> Plan:
    """A plan of one writer over the whole size, with the credit that `run` would give it."""
    slots = size_bytes // RECORD_BYTES
    return Plan(
        run=1,
        seed=2,
        target=3,
        target_kind="file",
        workload="overwrite",
        pattern="random",
        record_bytes=RECORD_BYTES,
        writers=1,
        slots=slots,
        group=1,
        credit=min(slots // limits.SLOTS_PER_CREDIT, limits.CREDIT_MAX),
        sync="fdatasync",
        direct=False,
        block_bytes=4096,
        control_slots=0,
        control_interval_us=0,
    )


def acked_of(plan: Plan) -> int:
    """Number of operations that the writer acknowledged: one and a half passes."""
    return plan.slots * 3 // 2


def contents(plan: Plan, kind: str) -> Callable[[Words], bytes]:
    """A function that gives the content of consecutive slots, by their numbers."""
    theirs = replace(plan, run=5, target=7) if kind == "foreign" else plan
    stamper, frontier = Stamper(theirs), 0 if kind == "lost" else acked_of(plan)

    def stamped(slots: Words) -> bytes:
        out = np.empty((len(slots), RECORD_BYTES // limits.SECTOR_BYTES, SECTOR_WORDS), dtype=U64)
        seqs = plan.schedule(0).newest_at(slots, frontier)
        stamper.stamp_extent(out, plan.extent(0), slots=slots, seqs=seqs)
        return out.tobytes()

    others: dict[str, Callable[[Words], bytes]] = {
        "empty": lambda slots: bytes(len(slots) * RECORD_BYTES),
        "corrupt": lambda slots: np.random.default_rng(int(slots[0])).bytes(len(slots) * RECORD_BYTES),
    }
    return others.get(kind, stamped)


def lay_down(plan: Plan, path: Path, kind: str = "clean") -> KernelStorage:
    """Write the target as it is after one and a half passes, or with damaged content in every slot."""
    storage, extent, content = KernelStorage(path), plan.extent(0), contents(plan, kind)
    with path.open("wb") as file:
        for offset in plan.superblock_offsets:
            file.seek(offset)
            file.write(superblock(plan, offset))
        file.seek(extent.offset_bytes)
        for first in range(0, plan.slots, CHUNK_SLOTS):
            slots = np.arange(first, min(plan.slots, first + CHUNK_SLOTS), dtype=U64)
            file.write(content(slots))
    subprocess.run(["sync", str(path)], check=True)
    return storage


def dd_s(path: Path, *flags: str) -> float:
    """Seconds that `dd` takes to read the file with `flags`."""
    began_s = time.perf_counter()
    subprocess.run(["dd", f"if={path}", "of=/dev/null", "bs=4M", "status=none", *flags], check=True)
    return time.perf_counter() - began_s


async def scan_s(storage: KernelStorage, plan: Plan) -> float:
    """Duration of a scan in its process, in s, from its start to the report; superblocks are read before."""
    with ScanProcess(storage, stall_s=limits.SCAN_STALL_S_MIN) as scan_process:
        await scan_process.superblocks(plan)
        began_s = time.perf_counter()
        report = await scan_process.scan(job_of(plan), on_progress=lambda _: None, on_example=lambda _: None)
        elapsed_s = time.perf_counter() - began_s
    check(report, plan)
    return elapsed_s


def job_of(plan: Plan) -> ScanJob:
    """The scan job of a verify with a complete log."""
    return ScanJob(plan=plan, acked=(acked_of(plan),), control_completed=0, block_bytes=limits.SECTOR_BYTES)


def check(report: ScanReport, plan: Plan) -> None:
    """Raises SystemExit unless the report covers the whole target without findings."""
    if not report.finished or report.findings or report.checked != plan.slots:
        raise SystemExit(f"the scan of an intact target came to {report}")


def cold(directory: Path, size_bytes: int, rounds: int) -> None:
    """Print GB/s from the drive, without the page cache, and the ratio to `dd` of each round."""
    plan = plan_of(size_bytes)
    path = directory / "target"
    storage = lay_down(plan, path)
    rates, ratios = [], []
    for _ in range(rounds):
        dd, scan = dd_s(path, "iflag=direct"), asyncio.run(scan_s(storage, plan))
        rates.append(plan.main_bytes / scan / 1e9)
        ratios.append(dd / scan)
    path.unlink()
    print(
        f"cold    {plan.main_bytes / 2**30:.1f} GiB: verify {statistics.median(rates):.2f} GB/s, of dd"
        f" {statistics.median(ratios):.2f} ({', '.join(f'{ratio:.2f}' for ratio in ratios)})"
    )


def cached(size_bytes: int, rounds: int) -> None:
    """Print GB/s from memory: per core by processor time, and in total by wall time."""
    if not MEMORY.is_dir():
        print("memory  not measured: this system has no /dev/shm")
        return
    plan = plan_of(size_bytes)
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        storage = lay_down(plan, Path(directory, "target"))
        walls, cpus, dds = [], [], []
        for _ in range(rounds):
            dds.append(dd_s(storage.path))
            began_s, began_cpu_s = time.perf_counter(), time.process_time()
            told = ScanListener(tick=lambda: None, progress=lambda _: None, example=lambda _: None)
            check(SlotScan(storage, job_of(plan), told).run(), plan)
            walls.append(time.perf_counter() - began_s)
            cpus.append(time.process_time() - began_cpu_s)
    gigabytes = plan.main_bytes / 1e9
    print(
        f"memory  {plan.main_bytes / 2**30:.1f} GiB: {gigabytes / statistics.median(cpus):.2f} GB/s per core,"
        f" {gigabytes / statistics.median(walls):.2f} in all; dd {gigabytes / statistics.median(dds):.2f}"
    )


def findings(size_bytes: int, rounds: int) -> None:
    """Print the rates from memory for targets with a finding in every slot, and ratios to a clean target."""
    if not MEMORY.is_dir():
        return
    plan = plan_of(size_bytes)
    told = ScanListener(tick=lambda: None, progress=lambda _: None, example=lambda _: None)
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        clean = lay_down(plan, Path(directory, "clean"))
        for kind, name in DAMAGED.items():
            wrong = lay_down(plan, Path(directory, kind), kind)
            rates, ratios = [], []
            for _ in range(rounds):
                began_s = time.process_time()
                check(SlotScan(clean, job_of(plan), told).run(), plan)
                clean_s = time.process_time() - began_s
                report = SlotScan(wrong, job_of(plan), told).run()
                wrong_s = time.process_time() - began_s - clean_s
                if report.findings.keys() != {name}:
                    raise SystemExit(f"the scan of a target that is all {kind} came to {report}")
                rates.append(plan.main_bytes / wrong_s / 1e9)
                ratios.append(clean_s / wrong_s)
            wrong.unlink(MAIN)
            print(
                f"{kind:<7} {plan.main_bytes / 2**30:.1f} GiB: {statistics.median(rates):.2f} GB/s per core,"
                f" of clean {statistics.median(ratios):.2f} ({', '.join(f'{ratio:.2f}' for ratio in ratios)})"
            )


def peak(directory: Path, size_bytes: int) -> None:
    """Print the peak memory of a scan. Call this for small targets first: the children's peak never falls."""
    plan = plan_of(size_bytes)
    storage = lay_down(plan, directory / "target")
    elapsed_s = asyncio.run(scan_s(storage, plan))
    storage.unlink(MAIN)
    peak_mib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"peak    {size_bytes / 2**30:.2f} GiB: {peak_mib:.0f} MiB resident, in {elapsed_s:.1f} s")


def main() -> None:
    """Print peak memory, rate from the drive, and rates from memory for clean and damaged targets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--size", type=parse_size, default=parse_size("4GiB"))
    parser.add_argument("--large", type=parse_size, default=parse_size("16GiB"))
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        peak(Path(directory), SMALL_BYTES)
        peak(Path(directory), options.large)
        cold(Path(directory), options.size, options.rounds)
    cached(options.size // 2, options.rounds)
    findings(options.size // 4, options.rounds)


if __name__ == "__main__":
    main()
