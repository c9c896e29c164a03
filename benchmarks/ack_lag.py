"""Measure the ack lag under load: from the return of the drive's sync to the server's receipt.

Operations that the drive acknowledged within this time before a cut are not tested by the cut. Both ends run
on loopback and share the machine's clock. The target records when each sync returned, and the server records
when each frontier arrived. `--real-time` gives client and server, but not the writers, real-time priority, so
that neither waits for a processor as it would not on a machine of its own. Needs root.

    python benchmarks/ack_lag.py [--directory DIR] [--writers 1,4] [--seconds 5] [--real-time]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from ctypes import c_uint64
from functools import partial
from multiprocessing.sharedctypes import RawArray
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from serving import Server, serving

from durability import limits
from durability.formats.plan import Plan
from durability_client.run.planning import RunOptions
from durability_client.run.run_command import run
from durability_client.run.sender import run_in_fine_loop
from durability_client.target.kernel_storage import KernelFile, KernelStorage
from durability_client.target.storage import Buffer

COMMITS_MAX = 1 << 20  # per writer


class TimedFile(KernelFile):
    """A file that records when each sync returned: commit n of writer w at [w * COMMITS_MAX + n]."""

    __slots__ = ("_at", "_plan", "_times")

    def __init__(self, file: KernelFile, plan: Plan, times: Any) -> None:
        super().__init__(file._fd, sync=file._sync, direct=file.direct, check=file._check)
        self._plan = plan
        self._times = times
        self._at = -1

    def pwrite(self, buffer: Buffer, offset: int) -> None:
        """Write; the first offset shows which writer has this file."""
        super().pwrite(buffer, offset)
        if self._at < 0:
            per_writer = self._plan.slots * self._plan.record_bytes
            self._at = (offset - limits.SUPERBLOCK_BYTES) // per_writer * COMMITS_MAX

    def sync(self) -> None:
        """Sync, then record CLOCK_MONOTONIC in nanoseconds."""
        super().sync()
        self._times[self._at] = time.monotonic_ns()
        self._at += 1


class TimedStorage(KernelStorage):
    """A storage whose writers' files are timed, in this process and in its children."""

    def __init__(self, path: str | Path, times: Any) -> None:
        super().__init__(path)
        self._times = times

    def __reduce__(self) -> Any:
        return TimedStorage, (self.path, self._times)

    def open(self, suffix: str, *, plan: Plan | None = None, create: bool = False) -> KernelFile:
        """The kernel's file; timed if it is opened for writing."""
        file = super().open(suffix, plan=plan, create=create)
        return file if plan is None else TimedFile(file, plan, self._times)


def instrument(*, real_time: bool) -> Callable[[], object]:
    """In the server's process: record when each frontier arrived."""
    from durability_server.runs.run import Run  # noqa: PLC0415 - only that process is a server

    if real_time:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    receipts: list[tuple[int, ...]] = []
    acknowledge = Run.acknowledge

    def timed(self: Run, at_ns: int, frontiers: tuple[int, ...], control: int) -> bool:
        receipts.append((time.monotonic_ns(), *frontiers))
        return acknowledge(self, at_ns, frontiers, control)

    Run.acknowledge = timed  # type: ignore[method-assign]
    return lambda: np.array(receipts, dtype=np.int64)


def measure(
    directory: Path,
    writers: int,
    seconds: float,
    *,
    real_time: bool = False,
    web: str | None = None,
    beside: Callable[[Server], AbstractContextManager[object]] = contextlib.nullcontext,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The lag in ns of every acknowledged operation, and the times of all acks, in ns.

    `real_time`: the server has real-time priority. `web`: address of the server's live page, None for none.
    `beside`: a context manager over the server, entered for the duration of the run.
    """
    times = RawArray(c_uint64, writers * COMMITS_MAX)
    options = {"size_bytes": 64 << 20, "writers": writers, "duration_s": seconds, "force": True}
    recorded = partial(instrument, real_time=real_time)
    with tempfile.TemporaryDirectory(dir=directory) as place, serving(recorded, web=web) as server:
        storage = TimedStorage(Path(place) / "durability.dat", times)
        with contextlib.redirect_stderr(io.StringIO()), beside(server):
            run_in_fine_loop(
                run(RunOptions(endpoint=server.endpoint, **options), storage, io.StringIO())  # type: ignore[arg-type]
            )
        receipts = cast("NDArray[np.int64]", server.stop())
    returned = np.frombuffer(memoryview(times), dtype=np.int64).reshape(writers, COMMITS_MAX)
    lags = []
    for writer in range(writers):
        frontiers = receipts[:, 1 + writer]
        acked = min(int(frontiers[-1]), COMMITS_MAX)
        carried_by = np.searchsorted(frontiers, np.arange(1, acked + 1))
        lags.append(receipts[carried_by, 0] - returned[writer, :acked])
    return np.concatenate(lags), receipts[:, 0]


def main() -> None:
    """Run with each number of writers, and print rate and lag."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--directory", type=Path, default=Path("/var/tmp"), help="on the drive that is written"
    )
    parser.add_argument("--writers", default="1,4")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--real-time", action="store_true", help="priority for client and server; needs root")
    arguments = parser.parse_args()
    if arguments.real_time:  # the writers' processes start without it
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    for writers in map(int, arguments.writers.split(",")):
        lag, acks = measure(arguments.directory, writers, arguments.seconds, real_time=arguments.real_time)
        p50, p99, p999 = np.percentile(lag, (50, 99, 99.9)) / 1000
        rate = len(lag) / arguments.seconds
        print(
            f"{writers:3} writers  {rate:8,.0f} commits/s in {len(acks) / arguments.seconds:7,.0f} acks/s"
            f"  lag p50 {p50:.0f} us  p99 {p99:.0f} us  p99.9 {p999:.0f} us",
            flush=True,
        )


if __name__ == "__main__":
    main()
