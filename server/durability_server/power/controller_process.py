"""The power controller: reads requests from stdin and answers them on stdout, each by a process of its own.

    python -m durability_server.power.controller_process DIRECTORY

It has one thread and no event loop, because it forks for each request. Requests to the same switch wait for
each other, in order. The controller ends at the end of its input. A pipe that only the controller holds open
tells the request processes of any kind of end, and they end the programs that they started. The controller
itself does not talk to switches.
"""

from __future__ import annotations

import os
import selectors
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from durability_server import clock
from durability_server.power import switches
from durability_server.power.exchange import SwitchAnswer, SwitchRequest, answer_line, request_of
from durability_server.power.request import Bounds
from durability_server.power.request import do as do_request

_STDIN = 0
_STDOUT = 1


def main() -> None:
    """Answers requests until the end of the input."""
    controller = _Controller(Path(sys.argv[1]))
    controller.work()
    controller.end()


@dataclass(slots=True)
class _Job:
    """One request."""

    request: SwitchRequest
    received_ns: int
    deadline_s: float  # on the monotonic clock
    process: int = 0  # process of the request, 0 before it is started
    results: int = -1  # read end of the pipe of its answer
    lock: int = -1  # open file of the switch's lock
    heard: bytearray = field(default_factory=bytearray)  # unfinished line of the answer
    is_answered: bool = False


class _Controller:
    """All unfinished requests, by switch. Only the first request of each switch has a process."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._jobs: dict[str, deque[_Job]] = {}
        self._selector = selectors.DefaultSelector()
        self._lifeline, self._held = os.pipe()
        self._input = bytearray()

    def work(self) -> None:
        """Answers requests until the end of the input."""
        self._selector.register(_STDIN, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select(self._wait_s()):
                if key.fd != _STDIN:
                    self._hear(*key.data)
                elif not self._read():
                    return
            self._give_up_waiting()

    def end(self) -> None:
        """Makes the processes of all requests end the programs that they started, and waits for them."""
        os.close(self._held)
        for job in [job for jobs in self._jobs.values() for job in jobs if job.process]:
            os.waitpid(job.process, 0)

    def _wait_s(self) -> float | None:
        waiting = [job.deadline_s for jobs in self._jobs.values() for job in jobs if not job.process]
        return max(0.0, min(waiting) - time.monotonic()) if waiting else None

    def _read(self) -> bool:
        """Reads requests. False at the end of the input."""
        chunk = os.read(_STDIN, 1 << 16)
        self._input += chunk
        *lines, rest = bytes(self._input).split(b"\n")
        self._input = bytearray(rest)
        for line in lines:
            request = request_of(line)
            deadline_s = time.monotonic() + request.switch.timeout_s
            job = _Job(request, received_ns=clock.now_ns(), deadline_s=deadline_s)
            switch = switches.identity(request.switch)
            jobs = self._jobs.setdefault(switch, deque())
            jobs.append(job)
            if len(jobs) == 1:
                self._begin(switch)
        return bool(chunk)

    def _give_up_waiting(self) -> None:
        """Fails requests whose time ended while they waited for another request to their switch."""
        now_s = time.monotonic()
        for jobs in self._jobs.values():
            for job in [job for job in jobs if not job.process and job.deadline_s <= now_s]:
                jobs.remove(job)
                self._fail(job, "not begun in time: an earlier request to this switch is not over")

    def _begin(self, switch: str) -> None:
        """Starts a process for the first request to `switch`."""
        jobs = self._jobs[switch]
        while jobs:
            job = jobs[0]
            try:
                path = self._directory / f"{switch}.lock"
                job.lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
                self._fork(switch, job)
            except OSError as error:
                _close(job.lock)
                jobs.popleft()
                self._fail(job, f"the server cannot ask the switch: {error}")
            else:
                return
        del self._jobs[switch]

    def _fork(self, switch: str, job: _Job) -> None:
        """Forks a process that does the request. Raises OSError."""
        results, found = os.pipe()
        try:
            process = os.fork()
        except OSError:
            os.close(results)
            os.close(found)
            raise
        if process == 0:
            self._be_forked(job, results)
            _end_after(lambda: self._do(job, found))
        os.close(found)
        job.process, job.results = process, results
        self._selector.register(results, selectors.EVENT_READ, (switch, job))

    def _be_forked(self, job: _Job, results: int) -> None:
        """Prepares a new process. It gets its own session, which signals to the controller's session do not
        reach. It closes the files of the controller and of other requests, whose locks it would hold."""
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, _STDIN)
        os.dup2(null, _STDOUT)
        os.close(null)
        self._selector.close()
        os.close(self._held)
        os.close(results)
        for other in (other for jobs in self._jobs.values() for other in jobs if other is not job):
            _close(other.results)
            _close(other.lock)

    def _do(self, job: _Job, found: int) -> None:
        def tell(answer: SwitchAnswer) -> None:
            _write(found, answer_line(job.request.number, answer))

        bounds = Bounds(deadline_s=job.deadline_s, lifeline=self._lifeline)
        do_request(job.request, lock=job.lock, bounds=bounds, tell=tell)

    def _hear(self, switch: str, job: _Job) -> None:
        """Reads the answer of a request's process, or notices its end."""
        chunk = os.read(job.results, 1 << 16)
        *lines, rest = (bytes(job.heard) + chunk).split(b"\n")
        job.heard = bytearray(rest)
        for line in lines:
            self._answer(job, line + b"\n")
        if not chunk:
            self._end(switch, job)

    def _end(self, switch: str, job: _Job) -> None:
        self._selector.unregister(job.results)
        os.close(job.results)
        job.results = -1
        _, status = os.waitpid(job.process, 0)
        if not job.is_answered:
            how = os.waitstatus_to_exitcode(status)
            self._fail(job, f"its process ended early ({how}): the switch may have obeyed or not")
        _close(job.lock)
        self._jobs[switch].popleft()
        self._begin(switch)

    def _fail(self, job: _Job, text: str) -> None:
        answer = SwitchAnswer(outcome="failed", text=text, began_ns=job.received_ns, ended_ns=clock.now_ns())
        self._answer(job, answer_line(job.request.number, answer))

    def _answer(self, job: _Job, line: bytes) -> None:
        job.is_answered = True
        _write(_STDOUT, line)


def _end_after(body: Callable[[], None]) -> NoReturn:
    """Runs `body` and ends this process, without returning to the controller."""
    code = 1
    try:
        body()
        code = 0
    except BaseException as error:  # its message may have a secret, which must not be logged
        traceback.print_tb(error.__traceback__)
        print(type(error).__name__, file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def _write(descriptor: int, line: bytes) -> None:
    """Writes `line`, unless no process reads any more: the end of the other pipe reports that too."""
    with suppress(BrokenPipeError):
        while line:
            line = line[os.write(descriptor, line) :]


def _close(descriptor: int) -> None:
    if descriptor >= 0:
        os.close(descriptor)


if __name__ == "__main__":
    main()
