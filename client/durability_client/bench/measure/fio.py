"""Measures cells with fio, with options that give its figures the same meaning as this tool's.

A cell with one operation in flight uses the psync engine, with one sync per write and one file per job.
Asynchronous engines do not order a sync after writes in flight, and with several files per job fio may sync
another file than it wrote. Cells of the classic profile use libaio, as KDiskMark does. Other cells with
several operations in flight use libaio with O_DIRECT, and posixaio without, since buffered libaio blocks.
There is no ramp time, because fio's versions differ in what they count of it. fio's latency of a write does
not include the sync, so for cells with a sync only the rate and the sync latencies are used.

If fio is missing, or its report lacks a figure or contradicts itself, SetupError is raised. An error of fio
is a TargetError. Before 3.38, in a mix, fio also syncs after reads, which is another workload: such a round
is refused.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from durability import limits
from durability.bench.cells import Cell
from durability.bench.measurement import NO_LATENCIES, Latencies, Round
from durability.errors import SetupError, TargetError
from durability.formats.documents import shown
from durability.formats.histogram import FineHistogram
from durability_client.bench.measure.job import JobTask, bin_ns_of
from durability_client.bench.measure.job_processes import JobError
from durability_client.system.processes import signals_held
from durability_client.system.programs import find_tool

_GRACE_S = 30.0  # wait for fio's end, beyond its runtime and the operations in flight
_OPERATION_S_MAX = 2.0  # longest operation, as on a slow stick that writes one block a second
_LOOK_S = 0.5  # interval between calls of `watch`
_END_S = 15.0  # a killed process that has not ended after this time waits for the drive
_REPORT_CHARACTERS_MAX = 64 << 20
_LACKING = {errno.EINVAL, errno.EOPNOTSUPP}  # errors of open if O_DIRECT is not supported


class ReportError(ValueError):
    """fio's output is not the report that its options request."""


class UnlikeError(Exception):
    """fio did not do the cell's workload, so its rate cannot be compared with this tool's. The text is for
    people."""


class Fio:
    """The installed fio. Raises SetupError if there is none."""

    def __init__(self) -> None:
        program = find_tool("fio")
        if program is None:
            raise SetupError("--engine fio: fio is not installed; install it (Debian: apt-get install fio)")
        self._program = program
        done = subprocess.run((program, "--version"), capture_output=True, text=True, check=False)
        self.version = done.stdout.strip()
        if done.returncode or not self.version.startswith("fio-"):
            raise SetupError(f"--engine fio: {program} --version answers {done.stdout or done.stderr!r}")

    def run(
        self, cell: Cell, tasks: Sequence[JobTask], watch: Callable[[], None] = lambda: None
    ) -> tuple[Round, float, float]:
        """Measure one round of `cell`. Returns the round without `started_s` and `work`, and the processor
        time of fio's jobs in user and kernel mode, in microseconds.

        `watch` is called twice a second. Raises TargetError, SetupError, JobError if the target does not
        support O_DIRECT, and UnlikeError if this fio does another workload.
        """
        command = (self._program, *options(cell), *_jobs(tasks))
        in_flight_s = _OPERATION_S_MAX * cell.jobs * cell.depth
        report = self._report(command, cell, timeout_s=cell.seconds + _GRACE_S + in_flight_s, watch=watch)
        try:
            return round_of_report(cell, report)
        except ReportError as error:
            raise SetupError(
                f"{self.version}: {cell.name}: its report cannot be read: {error}; measure without --engine"
                " fio, or install another fio"
            ) from error

    def _report(
        self, command: Sequence[str], cell: Cell, *, timeout_s: float, watch: Callable[[], None]
    ) -> dict[str, Any]:
        output, errors, code = _output_of(command, timeout_s=timeout_s, watch=watch)
        try:
            document = json.loads(output[output.index("{") :])  # notes come before the report
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict) or (code and not document.get("jobs")):
            said = shown((errors or output).strip())
            raise TargetError(f"fio ended with code {code}: {said or 'no output'}")
        failed = _errno_of(document)
        if failed in _LACKING and cell.direct:
            raise JobError(failed, os.strerror(failed))
        if failed or code:
            said = shown(errors.strip()) or os.strerror(failed)
            raise TargetError(f"fio: {cell.name}: it ended with code {code}: {said}")
        return document


def _output_of(
    command: Sequence[str], *, timeout_s: float, watch: Callable[[], None]
) -> tuple[str, str, int]:
    """Run fio. Returns both output streams and the exit code. On an error, fio and its jobs are killed."""
    process = None
    deadline = time.monotonic() + timeout_s
    try:
        with signals_held():  # otherwise a signal during the start would leave fio running
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,  # so that Ctrl-C reaches only this process
            )
        while True:
            try:
                output, errors = process.communicate(timeout=_LOOK_S)
                break
            except subprocess.TimeoutExpired:
                watch()
                if time.monotonic() >= deadline:
                    raise TargetError(
                        f"fio did not end within {timeout_s:.0f} s: {' '.join(command)}"
                    ) from None
    except BaseException:
        if process is not None:
            if process.returncode is None:
                _kill_with_jobs(process.pid)
            with suppress(subprocess.TimeoutExpired):  # its end, before its files are removed
                process.communicate(timeout=_END_S)
        raise
    if len(output) > _REPORT_CHARACTERS_MAX:
        raise SetupError(
            f"fio printed {len(output):,} characters, at most {_REPORT_CHARACTERS_MAX:,} are read"
        )
    return output, errors, process.returncode


def _kill_with_jobs(fio: int) -> None:
    """Kill the process `fio`, its process group, and its jobs. The jobs have sessions of their own and would
    wait for fio for ever. fio is stopped first, so that it starts no further job."""
    with suppress(ProcessLookupError):
        os.kill(fio, signal.SIGSTOP)
        _wait_until_stopped(fio)
        jobs = _children(fio)
        os.killpg(fio, signal.SIGKILL)
        for job in jobs:
            with suppress(ProcessLookupError):
                os.kill(job, signal.SIGKILL)


def _wait_until_stopped(child: int) -> None:
    """Wait until the process has stopped or ended, so that a fork in progress is complete. A process that
    waits for its drive does not fork, so the wait is limited to `_END_S`."""
    deadline = time.monotonic() + _END_S
    while time.monotonic() < deadline:
        if os.waitid(os.P_PID, child, os.WSTOPPED | os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None:
            return
        time.sleep(0.001)


def _children(parent: int) -> list[int]:
    """The processes whose parent is `parent`; empty without /proc."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            ppid = (entry / "stat").read_text().rpartition(") ")[2].split()[1]
            if int(ppid) == parent:
                found.append(int(entry.name))
    return found


def _engine(cell: Cell) -> str:
    if cell.group == "classic":
        return "libaio"
    if cell.depth == 1:
        return "psync"
    return "libaio" if cell.direct else "posixaio"


def _order(cell: Cell) -> str:
    """fio's name of the workload and its order."""
    random = "rand" if cell.pattern == "random" else ""
    return random + {"mix": "rw", "read": "read"}.get(cell.workload, "write")


def options(cell: Cell) -> Iterator[str]:
    """The options that all jobs share."""
    yield f"--ioengine={_engine(cell)}"
    yield f"--iodepth={cell.depth}"
    yield f"--rw={_order(cell)}"
    if cell.read_percent:
        yield f"--rwmixread={cell.read_percent}"
    yield f"--bs={cell.block_bytes}"
    yield f"--direct={int(cell.direct)}"
    if cell.sync == "dsync":
        yield "--sync=dsync"
    elif cell.sync != "none":
        yield f"--{cell.sync}={cell.writes_per_sync}"
    yield "--time_based"
    yield f"--runtime={round(cell.seconds * 1000)}ms"
    yield "--overwrite=1"
    yield "--fallocate=none"
    yield "--allow_file_create=0"
    yield "--group_reporting"
    yield "--lat_percentiles=1"  # from the request to its answer, including the queue
    yield "--clat_percentiles=0"
    yield "--output-format=json+"


def _jobs(tasks: Sequence[JobTask]) -> Iterator[str]:
    for number, task in enumerate(tasks):
        yield f"--name=job{number}"
        yield f"--filename={task.path.replace(':', chr(92) + ':')}"  # an unescaped colon separates file names
        yield f"--offset={task.offset_bytes}"
        yield f"--size={task.span_bytes // task.cell.block_bytes * task.cell.block_bytes}"
        yield f"--randseed={task.seed & ((1 << 63) - 1)}"


def _errno_of(report: Mapping[str, Any]) -> int:
    """The error that ended fio's jobs; 0 if there was none."""
    jobs = report.get("jobs")
    first = jobs[0] if isinstance(jobs, list) and jobs else None
    found = first.get("error") if isinstance(first, dict) else None
    return found if isinstance(found, int) else 0


def round_of_report(cell: Cell, report: Mapping[str, Any]) -> tuple[Round, float, float]:
    """The round in fio's report (`--output-format=json+`, all jobs as one group), and the processor times.
    Raises ReportError if a figure is missing, invalid or contradicts another, and UnlikeError if fio synced
    after reads."""
    jobs = report.get("jobs")
    if not isinstance(jobs, list) or len(jobs) != 1 or not isinstance(jobs[0], dict):
        raise ReportError("jobs: expected one group of all jobs")
    job = jobs[0]
    writes, write_ms = (0, 0) if cell.workload == "read" else _done(cell, job, "write")
    reads, read_ms = _done(cell, job, "read") if cell.workload in ("read", "mix") else (0, 0)
    runtime_ms = max(write_ms, read_ms)
    if not runtime_ms:
        raise ReportError("runtime: 0 ms")
    spent_us = _number(job, "job_runtime") * 10.0  # per cent of milliseconds
    synced = _latencies(job, "sync") if cell.has_sync else NO_LATENCIES
    if cell.workload == "mix" and cell.has_sync:
        # fio's own count does not include fdatasync, for which it reports only latencies.
        counted = _count(_part(job, "sync"), "total_ios")
        _require_syncs_of_writes(cell, max(len(synced), counted), writes)
    found = Round(
        started_s=0.0,
        seconds=runtime_ms / 1000,
        commits=writes,
        writes=writes,
        reads=reads,
        commit_ns=_fitting(_latencies(job, "write"), writes) if cell.sync == "none" else NO_LATENCIES,
        sync_ns=_fitting(synced, writes),
        read_ns=_fitting(_latencies(job, "read"), reads) if reads else NO_LATENCIES,
        bin_s=bin_ns_of(cell) / 1e9,
        bins=(),
        work=None,
    )
    return found, _number(job, "usr_cpu") * spent_us, _number(job, "sys_cpu") * spent_us


def _require_syncs_of_writes(cell: Cell, syncs: int, writes: int) -> None:
    """Raises UnlikeError if there are more `syncs` than `writes` plus one of fio's own syncs per job."""
    if syncs > writes + cell.jobs:
        raise UnlikeError(
            f"fio syncs after reads too (syncs: {syncs:,}, writes: {writes:,}); install fio 3.38 or later"
        )


def _done(cell: Cell, job: Mapping[str, Any], direction: str) -> tuple[int, int]:
    """The number of completed calls, and their runtime in milliseconds."""
    part = _part(job, direction)
    calls, moved, runtime_ms = (_count(part, name) for name in ("total_ios", "io_bytes", "runtime"))
    if moved != calls * cell.block_bytes:
        raise ReportError(f"{direction}.io_bytes: {moved} in {calls} calls of {cell.block_bytes} bytes")
    return calls, runtime_ms


def _part(holder: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = holder.get(name)
    if not isinstance(found, dict):
        raise ReportError(f"{name}: expected an object")
    return found


def _count(holder: Mapping[str, Any], name: str) -> int:
    found = holder.get(name)
    if type(found) is not int or not 0 <= found < 1 << 62:
        raise ReportError(f"{name}: expected a count, found {shown(repr(found))}")
    return found


def _number(holder: Mapping[str, Any], name: str) -> float:
    found = holder.get(name)
    if not isinstance(found, int | float) or not 0 <= found < 1e12:
        raise ReportError(f"{name}: expected a number, found {shown(repr(found))}")
    return float(found)


def _fitting(latencies: Latencies, calls: int) -> Latencies:
    """The latencies, if there is one per call; fio may also count syncs of its own."""
    return latencies if len(latencies) == calls else NO_LATENCIES


def _latencies(job: Mapping[str, Any], direction: str) -> Latencies:
    """The latencies from fio's buckets; each bucket is represented by its value."""
    bins = _part(_part(job, direction), "lat_ns").get("bins", {})
    if not isinstance(bins, dict) or not all(key.isdecimal() and len(key) < 19 for key in bins):
        raise ReportError(f"{direction}.lat_ns.bins: expected counts of nanoseconds")
    counts = [_count(bins, key) for key in bins]
    if sum(counts) > limits.COUNT_MAX:
        raise ReportError(
            f"{direction}.lat_ns.bins: {sum(counts)} latencies, at most {limits.COUNT_MAX} can be"
        )
    histogram = FineHistogram()
    if counts:
        values = np.array([int(key) for key in bins], dtype=np.uint64)
        histogram.record(np.repeat(values, counts))
    return Latencies.of(histogram)
