"""Compare the acknowledged rate of `durability run` with that of fio, which makes the same writes.

Each load is measured with as many fio jobs as writers. The server runs on the same machine. Rounds of `run`
and fio alternate in changing order and are compared in pairs, because a drive's rate drifts by more than the
difference. The results also have, per operation, the writes and flushes that reached the directory's block
device, and the processor time of the client or of fio's jobs; and the share of time in which the processors
were idle. On tmpfs, a sync costs nothing. There a bare loop shows the microseconds that `run` adds.

    python benchmarks/run_vs_fio.py [--directory DIR] [--loads fdatasync,fsync] [--jobs 1,4,16] [--rounds 5]
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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from serving import MEMORY, serving

from durability import limits
from durability.formats.facts import Facts
from durability.formats.plan import SyncMethod
from durability_client.link.endpoint import Endpoint
from durability_client.run.planning import RunOptions
from durability_client.run.run_command import RunSummary, run
from durability_client.run.sender import run_in_fine_loop
from durability_client.target.kernel_storage import KernelStorage
from durability_client.target.storage import DriveWatch

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_APPENDED_BYTES = 8 << 30  # file size per job of fio: more than a job writes in a round


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The writes of a load, and their sync."""

    sync: SyncMethod = "fdatasync"
    direct: bool = False
    group: int = 1
    record_bytes: int = 4096
    workload: str = "overwrite"

    def fio_options(self) -> tuple[str, ...]:
        """The load as fio's options. fio has no RWF_DSYNC; O_DSYNC makes the same writes."""
        sync = {
            "fdatasync": f"--fdatasync={self.group}",
            "fsync": f"--fsync={self.group}",
            "osync": "--sync=sync",
        }
        return (
            sync.get(self.sync, "--sync=dsync"),
            f"--bs={self.record_bytes}",
            f"--direct={int(self.direct)}",
        )


LOADS: Mapping[str, Load] = {
    "fdatasync": Load(),
    "fsync": Load(sync="fsync"),
    "dsync": Load(sync="dsync"),
    "osync": Load(sync="osync"),
    "rwf-dsync": Load(sync="rwf-dsync"),
    "direct-fdatasync": Load(direct=True),
    "direct-dsync": Load(direct=True, sync="dsync"),
    "group-8": Load(group=8),
    "64k": Load(record_bytes=64 << 10),
    "append": Load(workload="append"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A round of either program. All figures but `rate` and `idle` are per operation.

    Processor times are user and system time, without the kernel's threads.
    """

    rate: float  # operations per second
    writes: float | None  # of the block device; None if the directory has none
    flushes: float | None  # of the block device; None if the directory has none
    writers_us: float  # processor time of the writers, or of fio's jobs
    idle: float  # share of the time of all processors in which they were idle
    sender_us: float = 0.0  # processor time of the client's main process


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Totals up to some time: use of the block device below a directory, and processor time."""

    writes: int | None
    flushes: int | None
    writers_s: float
    sender_s: float  # processor time of this process
    idle_s: float  # idle time of all processors, in s
    all_s: float  # time of all processors, in s

    @classmethod
    def now(cls, directory: Path) -> Usage:
        """The totals up to now."""
        number = directory.stat().st_dev
        writes, flushes = None, None
        with contextlib.suppress(OSError):
            device = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/stat")
            fields = device.read_text().split()
            writes, flushes = int(fields[4]), int(fields[15])
        ticks = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return cls(
            writes=writes,
            flushes=flushes,
            writers_s=_writers_s(),
            sender_s=time.process_time(),
            idle_s=(ticks[3] + ticks[4]) / _TICKS_PER_S,  # idle, and idle while a process waits for a disk
            all_s=sum(ticks) / _TICKS_PER_S,
        )

    def until(self, end: Usage, *, operations: int, rate: float, fio_s: float | None = None) -> Measured:
        """The figures of `operations` between these totals and `end`. `fio_s`: fio's processor time, if the
        round is fio's."""

        def each(before: int | None, after: int | None) -> float | None:
            return None if before is None or after is None else (after - before) / operations

        writers_s = end.writers_s - self.writers_s if fio_s is None else fio_s
        return Measured(
            rate=rate,
            writes=each(self.writes, end.writes),
            flushes=each(self.flushes, end.flushes),
            writers_us=writers_s / operations * 1e6,
            idle=(end.idle_s - self.idle_s) / (end.all_s - self.all_s),
            sender_us=(end.sender_s - self.sender_s) / operations * 1e6 if fio_s is None else 0.0,
        )


def _writers_s() -> float:
    """Processor time, in s, of this process's fork server and of the processes that it has started."""
    parents, used = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                number = int(entry.name)
                parents[number] = int(fields[1])
                used[number] = (sum(map(int, fields[11:13])), sum(map(int, fields[13:15])))
    for number, parent in parents.items():
        if parent == os.getpid():
            with contextlib.suppress(OSError):
                if b"forkserver" in Path(f"/proc/{number}/cmdline").read_bytes():
                    own = [used[child][0] for child, above in parents.items() if above == number]
                    return (sum(own) + sum(used[number])) / _TICKS_PER_S
    return 0.0


class MeasuredStorage(KernelStorage):
    """A storage that records the usage before the run is armed, after the prefill, while the writers wait."""

    armed: Usage

    def watch_drives(self, armed: Facts) -> DriveWatch:  # type: ignore[override]
        """As in `KernelStorage`, and record the usage."""
        watch = super().watch_drives(armed)
        self.armed = Usage.now(self.path.parent)
        return watch


def measure_run(
    target: Path, where: Endpoint, load: Load, *, writers: int, size_bytes: int, seconds: float
) -> tuple[Measured, RunSummary]:
    """Measure one run of `seconds`, without its prefill."""
    options = RunOptions(
        endpoint=where,
        size_bytes=size_bytes,
        record_bytes=load.record_bytes,
        writers=writers,
        workload=load.workload,
        sync=load.sync,
        direct=load.direct,
        group=load.group,
        duration_s=seconds,
        force=True,
    )
    storage = MeasuredStorage(target)
    with contextlib.redirect_stderr(io.StringIO()):
        summary = run_in_fine_loop(run(options, storage, io.StringIO()))
    operations = sum(summary.frontiers)
    end = Usage.now(target.parent)
    return storage.armed.until(end, operations=operations, rate=operations / summary.elapsed_s), summary


def measure_fio(target: Path, load: Load, *, jobs: int, size_bytes: int, seconds: float) -> Measured:
    """Measure fio on the file that `run` left, without its superblocks. If fio appends, each job has its own
    file."""
    if load.workload == "append":
        place = (
            f"--directory={target.parent}",
            "--rw=write",
            f"--size={_APPENDED_BYTES}",
            "--fallocate=none",
            "--unlink=1",
        )
    else:
        per_job = (size_bytes - 2 * limits.SUPERBLOCK_BYTES) // jobs // load.record_bytes * load.record_bytes
        place = (
            f"--filename={target}",
            "--rw=randwrite",
            f"--offset={limits.SUPERBLOCK_BYTES}",
            f"--offset_increment={per_job}",
            f"--size={per_job}",
        )
    command = (
        *("fio", "--name=commit", *place, *load.fio_options(), "--ioengine=psync", f"--numjobs={jobs}"),
        *("--time_based", f"--runtime={seconds}", "--group_reporting", "--output-format=json"),
    )
    before = Usage.now(target.parent)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    end = Usage.now(target.parent)
    job = json.loads(done.stdout)["jobs"][0]
    busy = (job["usr_cpu"] + job["sys_cpu"]) / 100  # share of the run time of all jobs together
    return before.until(
        end,
        operations=job["write"]["total_ios"],
        rate=float(job["write"]["iops"]),
        fio_s=busy * job["job_runtime"] / 1000,
    )


def bare_rate(target: Path, *, size_bytes: int, seconds: float) -> float:
    """Commits per second of the shortest Python loop: pwrite, fdatasync, and the clock every 1000 commits."""
    record = os.urandom(LOADS["fdatasync"].record_bytes)
    last = (size_bytes - 2 * limits.SUPERBLOCK_BYTES) // len(record)
    offsets = [limits.SUPERBLOCK_BYTES + number * 7919 % last * len(record) for number in range(1000)]
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


def compare_with_fio(
    directory: Path, where: Endpoint, name: str, jobs: int, *, rounds: int, size_bytes: int, seconds: float
) -> str:
    """Print the rounds; returns the line with their medians."""
    load, pairs = LOADS[name], list[tuple[Measured, Measured]]()
    label = f"{name:16} {jobs:3} writers"
    with tempfile.TemporaryDirectory(dir=directory) as place:
        target = Path(place) / "durability.dat"
        for number in range(rounds):

            def by_fio() -> Measured:
                return measure_fio(target, load, jobs=jobs, size_bytes=size_bytes, seconds=seconds)

            fio = by_fio() if number % 2 else None  # the first round of `run` makes the file
            ours, summary = measure_run(
                target, where, load, writers=jobs, size_bytes=size_bytes, seconds=seconds
            )
            pairs.append((ours, fio or by_fio()))
            p50, p99 = (summary.latencies.percentile(percent) / 1000 for percent in (50, 99))
            print(f"{label}  {_pair(*pairs[-1])}  commit p50 {p50:.0f} us  p99 {p99:.0f} us", flush=True)
    return f"{label}  {_medians(pairs)}"


def _pair(ours: Measured, fio: Measured) -> str:
    return f"run {ours.rate:9,.0f}/s  fio {fio.rate:9,.0f}/s  ratio {ours.rate / fio.rate:.3f}"


def _medians(pairs: list[tuple[Measured, Measured]]) -> str:
    """The median ratio with the range of the rounds, and the medians of the other figures."""

    def both(name: str) -> str:
        columns = zip(*((getattr(ours, name), getattr(fio, name)) for ours, fio in pairs), strict=True)
        return " / ".join("-" if None in column else f"{statistics.median(column):.2f}" for column in columns)

    ratios = sorted(ours.rate / fio.rate for ours, fio in pairs)
    sender_us = statistics.median(ours.sender_us for ours, _ in pairs)
    return (
        f"{statistics.median(ratios):.3f} of fio ({ratios[0]:.2f}-{ratios[-1]:.2f})"
        f"  per operation, run / fio:  writes {both('writes')}  flushes {both('flushes')}"
        f"  processor {both('writers_us')} us, and {sender_us:.2f} us of the sender  idle {both('idle')}"
    )


def added_on_tmpfs(where: Endpoint, *, rounds: int, size_bytes: int, seconds: float) -> float:
    """Microseconds per operation that `run` adds to the bare loop on tmpfs, where a sync costs nothing; the
    median."""
    added = []
    with tempfile.TemporaryDirectory(dir=MEMORY) as place:
        target = Path(place) / "durability.dat"
        for _ in range(rounds):
            ours, _ = measure_run(
                target, where, LOADS["fdatasync"], writers=1, size_bytes=size_bytes, seconds=seconds
            )
            bare = bare_rate(target, size_bytes=size_bytes, seconds=seconds)
            added.append(1e6 / ours.rate - 1e6 / bare)
            print(
                f"tmpfs  run {ours.rate:9,.0f}/s  bare {bare:9,.0f}/s  added {added[-1]:.2f} us", flush=True
            )
    return statistics.median(added)


def main() -> None:
    """Print the ratio of rates for each load and number of jobs, measured in turns."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--directory", type=Path, default=Path("/var/tmp"), help="on the drive to be measured"
    )
    parser.add_argument("--loads", default=",".join(LOADS), help="some of these, separated by commas")
    parser.add_argument("--jobs", default="1,4,16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--size", type=int, default=64 << 20, help="bytes of the file")
    parser.add_argument("--no-tmpfs", action="store_true", help="leave out the bare loop on tmpfs")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"the machine is not idle (load {load:.1f}): ratios will scatter", file=sys.stderr)
    how_long = {"rounds": arguments.rounds, "size_bytes": arguments.size, "seconds": arguments.seconds}
    lines = []
    with serving() as server:
        for name in arguments.loads.split(","):
            for jobs in map(int, arguments.jobs.split(",")):
                lines.append(compare_with_fio(arguments.directory, server.endpoint, name, jobs, **how_long))
        if not arguments.no_tmpfs:
            added_us = added_on_tmpfs(server.endpoint, **how_long)
            lines.append(f"added on tmpfs  {added_us:.2f} us per operation")
    print(*lines, sep="\n")


if __name__ == "__main__":
    main()
