"""Processes for the jobs of a cell: started together, stopped together, and never left behind.

Processes are reused for later cells, since starting one takes as long as a short round. A job answers each
order with its result, or with its error. A job that ends without an answer is an error, too. Signals stay
blocked in the jobs, so that Ctrl-C reaches only the main process, which knows what to save. A job whose
parent has ended ends within some hundred operations. This module judges nothing.
"""

from __future__ import annotations

import gc
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeAlias

from durability_client.bench.measure.job import Job, JobTask, Stretch
from durability_client.system.processes import CONTEXT, JOIN_S, OrphanedError, ParentWatch, starting

_LEAD_NS, _LEAD_PER_JOB_NS = 2_000_000, 100_000  # time for each job to get the order before the start
_POLL_S = 0.5  # interval between calls of `watch`
_TIMER_SLACK = Path("/proc/self/timerslack_ns")

Watch: TypeAlias = Callable[[], None]


@dataclass(frozen=True, slots=True)
class _Run:
    start_ns: int
    until_ns: int


@dataclass(frozen=True, slots=True)
class _Close:
    sync: bool


@dataclass(frozen=True, slots=True)
class _Failure:
    errno: int
    text: str


class JobError(Exception):
    """A job could not start or continue. `errno` 0: not because of a target's error; the text has the
    cause."""

    def __init__(self, errno: int, text: str) -> None:
        super().__init__(text)
        self.errno = errno


class Jobs:
    """The processes, as a context manager. `watch` is called twice a second while jobs work."""

    def __init__(self, watch: Watch = lambda: None) -> None:
        self._watch = watch
        self._processes: list[BaseProcess] = []
        self._connections: list[Connection[Any, Any]] = []

    def __enter__(self) -> Jobs:
        return self

    def __exit__(self, *_: object) -> None:
        self.dismiss()

    def start(self, jobs: int) -> None:
        """Start processes until there are `jobs`, which the largest cell needs."""
        while len(self._processes) < jobs:
            self._start()

    def open(self, tasks: Sequence[JobTask]) -> None:
        """Give each job its task, which it prepares. Raises JobError; the caller must then call `close`."""
        self.start(len(tasks))
        self._ask(list(tasks))

    def run(self, jobs: int, *, seconds: float) -> tuple[int, list[Stretch]]:
        """Make the first `jobs` jobs work together. Returns the start (CLOCK_MONOTONIC) and their results.

        Raises JobError.
        """
        start_ns = time.monotonic_ns() + _LEAD_NS + jobs * _LEAD_PER_JOB_NS
        order = _Run(start_ns, start_ns + int(seconds * 1e9))
        return start_ns, self._ask([order] * jobs)

    def close(self, jobs: int, *, sync: bool) -> None:
        """Make the first `jobs` jobs close their files, after a sync if `sync`. Raises JobError."""
        self._ask([_Close(sync)] * jobs)

    def dismiss(self) -> None:
        """Kill all processes, also those that wait for a drive."""
        deadline = time.monotonic() + JOIN_S
        for process in self._processes:
            process.kill()  # all other signals are blocked in the jobs
        for process in self._processes:
            process.join(max(0.0, deadline - time.monotonic()))
        for connection in self._connections:
            connection.close()
        self._processes, self._connections = [], []

    def _start(self) -> None:
        CONTEXT.set_forkserver_preload(["__main__", __name__])
        with starting():
            ours, theirs = CONTEXT.Pipe()
            name = f"durability-job-{len(self._processes)}"
            process = CONTEXT.Process(target=_serve, args=(theirs,), name=name, daemon=True)
            process.start()
        theirs.close()  # so that reads from `ours` end when the process ends
        self._processes.append(process)
        self._connections.append(ours)

    def _ask(self, orders: Sequence[JobTask | _Run | _Close]) -> list[Any]:
        """Send each of the first jobs its order, and wait for all answers. Raises JobError."""
        for connection, order in zip(self._connections, orders, strict=False):
            with suppress(BrokenPipeError):  # the process has ended, which the read below reports
                connection.send(order)
        pending = dict(zip(self._connections, range(len(orders)), strict=False))
        answers: list[Any] = [None] * len(orders)
        while pending:
            ready = wait(list(pending), timeout=_POLL_S)
            if not ready:
                self._watch()
            for connection in [one for one in pending if one in ready]:
                number = pending.pop(connection)
                try:
                    answers[number] = connection.recv()
                except (EOFError, ConnectionError):
                    answers[number] = _Failure(0, self._obituary(number))
        failures = [answer for answer in answers if isinstance(answer, _Failure)]
        if failures:
            raise JobError(failures[0].errno, failures[0].text)
        return answers

    def _obituary(self, number: int) -> str:
        process = self._processes[number]
        process.join(JOIN_S)
        code = process.exitcode
        if code is not None and code < 0:
            return f"the process of a job was killed by {signal.Signals(-code).name}: memory may be short"
        return f"a defect of this tool: the process of a job ended with exit code {code}"


def _serve(connection: Connection[Any, Any]) -> None:
    """Main function of a job's process: carry out orders until the pipe is closed."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    gc.disable()
    with suppress(OSError):
        _TIMER_SLACK.write_text("1")  # so that sleeps end on time
    server = _Server()
    with suppress(EOFError, ConnectionError, OrphanedError):
        while True:
            order = connection.recv()
            connection.send(server.carry_out(order))


class _Server:
    """Carries out orders, and holds the open job."""

    def __init__(self) -> None:
        self._job: Job | None = None
        self._parent = ParentWatch()

    def carry_out(self, order: object) -> object:
        """The answer to `order`. Raises OrphanedError."""
        try:
            return self._carry_out(order)
        except OSError as error:
            return _Failure(error.errno or 0, error.strerror or str(error))
        except OrphanedError:
            raise
        except Exception as error:  # report the defect to the parent, since people do not see this process
            return _Failure(0, f"a defect of this tool: {type(error).__name__}: {error}")

    def _carry_out(self, order: object) -> object:
        if isinstance(order, JobTask):
            self._job = Job(order, self._look)
        elif isinstance(order, _Run):
            assert self._job is not None
            return self._job.run(order.start_ns, order.until_ns)
        elif isinstance(order, _Close) and self._job is not None:
            job, self._job = self._job, None
            try:
                if order.sync:
                    job.sync()
            finally:
                job.close()
        return None

    def _look(self) -> None:
        self._parent.look(time.monotonic_ns())
