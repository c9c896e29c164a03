"""Runs programs that talk to switches, reads their output, and ends all processes that they started. Linux
only.

Each request has its own process, which calls this and is a subreaper. Processes that a program leaves behind
become its children, so it knows when the last one is gone. A program that is stopped leaves no process
behind. A program that ends by itself may leave a daemon in a session of its own; the rest of its group is
killed.
"""

from __future__ import annotations

import ctypes
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from durability.errors import SetupError
from durability.program_places import PROGRAM_PLACES
from durability_server import clock

OUTPUT_BYTES_MAX = 64 << 10  # kept of each of stdout and stderr
GIVEN_BYTES_MAX = 16 << 10  # fits into a pipe that is not being read

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.005  # interval of checking whether processes are gone
_STATE, _SESSION, _START = 0, 3, 19  # fields of /proc/PID/stat, counted from the one after the name
_LIBC = ctypes.CDLL(None)

# How a program ended: by itself, because of the deadline, or because the controller has ended.
End: TypeAlias = Literal["exit", "late", "abandoned"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedProgram:
    """A program that has ended. Times are on the server's clock."""

    end: End
    process: int
    code: int  # exit code, or a signal as a negative number; valid only after "exit"
    output: str  # the first `OUTPUT_BYTES_MAX` bytes of its stdout
    errors: str  # the same of its stderr
    began_ns: int
    ended_ns: int


def search_path() -> str:
    """Where programs are searched: in the server's PATH, then in the usual directories of systems."""
    return f"{os.environ.get('PATH', '')}:{PROGRAM_PLACES}".lstrip(":")


def become_subreaper() -> None:
    """Orphans below this process become its children from now on."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def run(
    argv: Sequence[str],
    given: str,
    *,
    leave_out: Collection[str],
    deadline_s: float,
    lifeline: int,
    sessions: int,
) -> EndedProgram:
    """Runs a program in its own session with `given` on its stdin. Returns when it ends, at `deadline_s` of
    the monotonic clock, or when `lifeline` reaches its end of file. Notes its session in the open file
    `sessions`. `leave_out`: environment variables that it does not get. Raises SetupError if it cannot be
    started. Afterwards, call `wait_for_group` if the program ended by itself, else `end_descendants`."""
    began_ns = clock.now_ns()
    try:
        process = subprocess.Popen(
            argv,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=lambda: _before(sessions),  # noqa: PLW1509 - this process has one thread
            env=_environment(leave_out),
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise SetupError(f"{argv[0]} cannot be run: {reason}") from None
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    with suppress(BrokenPipeError), process.stdin as stdin:
        stdin.write(given.encode())
    with process.stdout as output, process.stderr as errors:
        reader = _OutputReader(output.fileno(), errors.fileno())
        end = reader.read_until_end(process.pid, deadline_s, lifeline)
        ended_ns = clock.now_ns()
        reader.drain()
    if end == "exit":
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()  # only now, because until then no other group can get its number
    return EndedProgram(
        end=end,
        process=process.pid,
        code=process.returncode if end == "exit" else -signal.SIGKILL,
        output=reader.text(reader.output),
        errors=reader.text(reader.errors),
        began_ns=began_ns,
        ended_ns=ended_ns,
    )


class _OutputReader:
    """Reads the output of a program, so that the program never waits for room, and keeps the beginning."""

    def __init__(self, output: int, errors: int) -> None:
        self.output, self.errors = output, errors
        self._kept = {output: bytearray(), errors: bytearray()}
        self._full: set[int] = set()

    def read_until_end(self, process: int, deadline_s: float, lifeline: int) -> End:
        """Reads until the process has ended or must be ended."""
        pidfd = os.pidfd_open(process)
        try:
            with selectors.DefaultSelector() as selector:
                for descriptor in (self.output, self.errors, pidfd, lifeline):
                    selector.register(descriptor, selectors.EVENT_READ)
                while (left_s := deadline_s - time.monotonic()) > 0:
                    ready = {key.fd for key, _ in selector.select(left_s)}
                    if pidfd in ready:
                        return "exit"
                    if lifeline in ready:
                        return "abandoned"
                    for descriptor in ready:
                        if not self._take(descriptor):
                            selector.unregister(descriptor)
                return "late"
        finally:
            os.close(pidfd)

    def drain(self) -> None:
        """Reads the output that is still in the pipes. Does not wait for daemons that hold them open."""
        for descriptor in (self.output, self.errors):
            os.set_blocking(descriptor, False)
            taken = 0
            with suppress(BlockingIOError):
                while taken < OUTPUT_BYTES_MAX and (more := self._take(descriptor)):
                    taken += more

    def text(self, descriptor: int) -> str:
        """The kept output. Cut output ends with a whole line, because a secret cut in two would not be
        found."""
        text = self._kept[descriptor].decode(errors="replace")
        return text.rpartition("\n")[0] if descriptor in self._full else text

    def _take(self, descriptor: int) -> int:
        chunk = os.read(descriptor, 1 << 16)
        kept = self._kept[descriptor]
        room = OUTPUT_BYTES_MAX - len(kept)
        kept += chunk[:room]
        if len(chunk) > room:
            self._full.add(descriptor)
        return len(chunk)


def end_descendants(patience_s: float) -> bool:
    """Kills all children, and their children once they become ours. Returns whether all are gone within
    `patience_s`."""
    deadline_s = time.monotonic() + patience_s
    while True:
        for child in _children():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        if _reap(-1):
            return True
        if time.monotonic() > deadline_s:
            return False
        time.sleep(_POLL_S)


def wait_for_group(group: int) -> None:
    """Returns when the children left in a killed group are gone."""
    while not _reap(-group):
        time.sleep(_POLL_S)


def note_session(lines: int) -> None:
    """Appends a line to the open file `lines` that identifies the session led by this process. Call it before
    the process executes its program. A full disk does not prevent the program from running."""
    with suppress(OSError):
        os.write(lines, f"{clock.read_boot_id()} {os.getpid()} {_stat(os.getpid())[_START]}\n".encode())


def end_sessions(lines: str) -> bool:
    """Kills the remaining processes of the sessions that `note_session` wrote, even if they are not children.
    Returns whether none is left. A session is skipped if another process has its number now."""
    left = False
    boot_id = clock.read_boot_id()
    noted = [fields for line in lines.splitlines() if (fields := line.split())[:1] == [boot_id]]
    for _, session, start in noted:
        leader = _stat(int(session))
        if leader and leader[_START] != start:
            continue
        # Twice, because a dying process may have started another one that the first look did not see.
        for process in _in_session(session) or _in_session(session):
            left = True
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
    return not left


def _before(sessions: int) -> None:
    """Runs in the new process before its program, so that no unknown session can exist."""
    note_session(sessions)
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _environment(leave_out: Collection[str]) -> dict[str, str]:
    """The server's environment with messages in English, and without Python warnings about code."""
    kept = {name: value for name, value in os.environ.items() if name not in leave_out}
    return {**kept, "PATH": search_path(), "LC_ALL": "C.UTF-8", "PYTHONWARNINGS": "ignore"}


def _reap(which: int) -> bool:
    """Reaps children that have ended. Returns whether none is left. `which` is as for waitpid."""
    try:
        while os.waitpid(which, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        return True
    return False


def _children() -> list[int]:
    me = os.getpid()
    text = Path(f"/proc/{me}/task/{me}/children").read_text(encoding="ascii")
    return [int(child) for child in text.split()]


def _in_session(session: str) -> list[int]:
    processes = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    stats = {process: _stat(process) for process in processes}
    return [
        process
        for process, stat in stats.items()
        if stat and stat[_SESSION] == session and stat[_STATE] not in {"Z", "X"}
    ]


def _stat(process: int) -> list[str]:
    """The fields of /proc/PID/stat after the process name; empty if the process is gone."""
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return []
