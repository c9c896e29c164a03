"""What the evidence costs a writer: the acknowledged rate of `durability run` against fio doing the same
writes.

Both overwrite 4 KiB records at random in the same preallocated file, one fdatasync each, with as many jobs
as writers; the server runs on the same machine. Rounds are interleaved and compared in pairs, because a
drive's rate drifts by more than the difference. On tmpfs, where a sync is nothing, a bare loop shows the
microseconds that `run` adds.

    python benchmarks/run_vs_fio.py [--directory DIR] [--jobs 1,4,16] [--rounds 5] [--seconds 5]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from serving import MEMORY, serving

from durability import limits
from durability_client.link.endpoint import Endpoint
from durability_client.run.planning import RunOptions
from durability_client.run.run_command import RunSummary, run
from durability_client.run.sender import run_in_fine_loop
from durability_client.target.kernel_storage import KernelStorage

RECORD_BYTES = 4096


def measure_run(
    target: Path, where: Endpoint, *, writers: int, size_bytes: int, seconds: float
) -> RunSummary:
    """One run of `seconds`, prefilled before."""
    options = RunOptions(
        endpoint=where, size_bytes=size_bytes, writers=writers, duration_s=seconds, force=True
    )
    with contextlib.redirect_stderr(io.StringIO()):
        return run_in_fine_loop(run(options, KernelStorage(target), io.StringIO()))


def fio_rate(target: Path, *, jobs: int, size_bytes: int, seconds: float) -> float:
    """fio's writes per second over the file that `run` left, its superblocks spared."""
    per_job = (size_bytes - 2 * limits.SUPERBLOCK_BYTES) // jobs // RECORD_BYTES * RECORD_BYTES
    command = [
        "fio",
        "--name=commit",
        f"--filename={target}",
        f"--offset={limits.SUPERBLOCK_BYTES}",
        f"--offset_increment={per_job}",
        f"--size={per_job}",
        "--rw=randwrite",
        f"--bs={RECORD_BYTES}",
        "--ioengine=psync",
        "--fdatasync=1",
        f"--numjobs={jobs}",
        "--time_based",
        f"--runtime={seconds}",
        "--group_reporting",
        "--output-format=json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout)["jobs"][0]["write"]["iops"])


def bare_rate(target: Path, *, size_bytes: int, seconds: float) -> float:
    """Commits per second of the shortest Python loop: pwrite, fdatasync, and the clock now and then."""
    record = os.urandom(RECORD_BYTES)
    last = (size_bytes - 2 * limits.SUPERBLOCK_BYTES) // RECORD_BYTES
    offsets = [limits.SUPERBLOCK_BYTES + number * 7919 % last * RECORD_BYTES for number in range(1000)]
    fd = os.open(target, os.O_RDWR)
    count, began = 0, time.monotonic()
    while time.monotonic() - began < seconds:
        for offset in offsets:
            os.pwrite(fd, record, offset)
            os.fdatasync(fd)
        count += len(offsets)
    rate = count / (time.monotonic() - began)
    os.close(fd)
    return rate


def compare_with_fio(directory: Path, jobs: int, *, rounds: int, size_bytes: int, seconds: float) -> float:
    """Print the rounds; the median of the paired ratios."""
    ratios = []
    with tempfile.TemporaryDirectory(dir=directory) as place, serving() as server:
        target = Path(place) / "durability.dat"
        for number in range(rounds):
            summary = measure_run(
                target, server.endpoint, writers=jobs, size_bytes=size_bytes, seconds=seconds
            )
            ours = sum(summary.frontiers) / summary.elapsed_s
            fio = fio_rate(target, jobs=jobs, size_bytes=size_bytes, seconds=seconds)
            ratios.append(ours / fio)
            p50, p99 = (summary.latencies.percentile(percent) / 1000 for percent in (50, 99))
            print(
                f"{jobs:3} writers  round {number + 1}  run {ours:9,.0f}/s  fio {fio:9,.0f}/s"
                f"  ratio {ratios[-1]:.3f}  commit p50 {p50:.0f} us  p99 {p99:.0f} us",
                flush=True,
            )
    return statistics.median(ratios)


def added_on_tmpfs(*, rounds: int, size_bytes: int, seconds: float) -> float:
    """Microseconds per operation that `run` adds to the bare loop where a sync costs nothing; the median."""
    added = []
    with tempfile.TemporaryDirectory(dir=MEMORY) as place, serving() as server:
        target = Path(place) / "durability.dat"
        for _ in range(rounds):
            summary = measure_run(target, server.endpoint, writers=1, size_bytes=size_bytes, seconds=seconds)
            ours = sum(summary.frontiers) / summary.elapsed_s
            bare = bare_rate(target, size_bytes=size_bytes, seconds=seconds)
            added.append(1e6 / ours - 1e6 / bare)
            print(f"tmpfs  run {ours:9,.0f}/s  bare {bare:9,.0f}/s  added {added[-1]:.2f} us", flush=True)
    return statistics.median(added)


def main() -> None:
    """Print the ratio of rates for each number of jobs, measured in turns."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--directory", type=Path, default=Path("/var/tmp"), help="on the drive to be measured"
    )
    parser.add_argument("--jobs", default="1,4,16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--size", type=int, default=64 << 20, help="bytes of the file")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"the machine is not idle (load {load:.1f}): ratios will scatter", file=sys.stderr)
    how_long = {"rounds": arguments.rounds, "size_bytes": arguments.size, "seconds": arguments.seconds}
    medians = {
        jobs: compare_with_fio(arguments.directory, jobs, **how_long)
        for jobs in map(int, arguments.jobs.split(","))
    }
    added_us = added_on_tmpfs(**how_long)
    for jobs, ratio in medians.items():
        print(f"{jobs:3} writers  {ratio:.3f} of fio")
    print(f"added on tmpfs  {added_us:.2f} us per operation")


if __name__ == "__main__":
    main()
