"""fio as a second opinion: the same cells through its psync engine, so asked that its figures mean the same.

One sync per write in flight and one file per job, since asynchronous engines do not order a sync after writes
in flight, and with several files to a job fio syncs another than it wrote. No ramp time: what of it is
counted has differed between versions. What fio calls latency of a write leaves the sync out, so only the rate
and the syncs are taken. Refuses to guess: an absent fio is a SetupError, an error of fio's a TargetError.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from durability.bench.cells import Cell
from durability.bench.measurement import NO_LATENCIES, Latencies, Round
from durability.errors import SetupError, TargetError
from durability.formats.histogram import FineHistogram
from durability_client.bench.measure.job import Task, bin_ns_of
from durability_client.system.programs import find_tool

_GRACE_S = 30.0  # beyond the runtime, until fio is given up


class Fio:
    """An installed fio. Raises SetupError where there is none."""

    def __init__(self) -> None:
        program = find_tool("fio")
        if program is None:
            raise SetupError("--engine fio: fio is not installed; install it (Debian: apt-get install fio)")
        self._program = program
        done = subprocess.run((program, "--version"), capture_output=True, text=True, check=False)
        self.version = done.stdout.strip()
        if done.returncode or not self.version.startswith("fio-"):
            raise SetupError(f"--engine fio: {program} --version answers {done.stdout or done.stderr!r}")

    def run(self, cell: Cell, tasks: Sequence[Task]) -> tuple[Round, float, float]:
        """One round of `cell`, without `started_s` and `work`; processor time of fio's jobs in user and in
        kernel mode, in microseconds. Raises TargetError."""
        command = (self._program, *_options(cell), *_jobs(tasks))
        report = self._report(command, timeout_s=cell.seconds + _GRACE_S)
        try:
            job = report["jobs"][0]
            if job["error"]:
                raise TargetError(f"fio: {cell.name}: {os.strerror(job['error'])}")
            spent_us = job["job_runtime"] * 10.0  # per cent of milliseconds
            return _round(cell, job), job["usr_cpu"] * spent_us, job["sys_cpu"] * spent_us
        except (KeyError, IndexError, TypeError) as error:
            raise SetupError(f"fio: {cell.name}: its report cannot be read ({error!r})") from error

    def _report(self, command: Sequence[str], *, timeout_s: float) -> dict[str, Any]:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # so that its jobs can be ended with it
        )
        try:
            output, errors = process.communicate(timeout=timeout_s)
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise TargetError(f"fio did not end within {timeout_s:.0f} s: {' '.join(command)}") from error
        try:
            document = json.loads(output[output.index("{") :])  # notes come before the report
        except ValueError:
            document = None
        if not isinstance(document, dict) or (process.returncode and not document.get("jobs")):
            said = (errors or output).strip()[:400]
            raise TargetError(f"fio ended with code {process.returncode}: {said}")
        return document


def _options(cell: Cell) -> Iterator[str]:
    """The options that all jobs share."""
    yield "--ioengine=psync"
    yield f"--rw={'randwrite' if cell.pattern == 'random' else 'write'}"
    yield f"--bs={cell.block_bytes}"
    yield f"--direct={int(cell.direct)}"
    if cell.sync == "dsync":
        yield "--sync=dsync"
    else:
        yield f"--{cell.sync}={cell.writes_per_sync}"
    yield "--time_based"
    yield f"--runtime={round(cell.seconds * 1000)}ms"
    yield "--overwrite=1"
    yield "--fallocate=none"
    yield "--allow_file_create=0"
    yield "--group_reporting"
    yield "--output-format=json+"


def _jobs(tasks: Sequence[Task]) -> Iterator[str]:
    for number, task in enumerate(tasks):
        yield f"--name=job{number}"
        yield f"--filename={task.path.replace(':', chr(92) + ':')}"  # an unescaped colon begins another file
        yield f"--offset={task.offset_bytes}"
        yield f"--size={task.span_bytes // task.cell.block_bytes * task.cell.block_bytes}"
        yield f"--randseed={task.seed & ((1 << 63) - 1)}"


def _round(cell: Cell, job: dict[str, Any]) -> Round:
    commits = job["write"]["total_ios"]
    syncs = _latencies(job["sync"]["lat_ns"].get("bins", {}))
    return Round(
        started_s=0.0,
        seconds=job["write"]["runtime"] / 1000,
        commits=commits,
        writes=commits,
        reads=0,
        commit_ns=NO_LATENCIES,
        sync_ns=syncs if cell.has_sync and len(syncs) == commits else NO_LATENCIES,
        read_ns=NO_LATENCIES,
        bin_s=bin_ns_of(cell) / 1e9,
        bins=(),
        work=None,
    )


def _latencies(bins: dict[str, int]) -> Latencies:
    """The buckets of fio, by the value that stands for each."""
    histogram = FineHistogram()
    if bins:
        values = np.array([int(value) for value in bins], dtype=np.uint64)
        histogram.record(np.repeat(values, list(bins.values())))
    return Latencies.of(histogram)
