"""Which processes there are and what they were started as, while others come and go."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.waiting import wait_for


class Process(NamedTuple):
    """A process, as no other one is: an id is given again, but not in the same clock tick.

    Its command line does not tell it: that changes with each exec, and is empty in the middle of one.
    """

    pid: int
    started: int  # clock ticks since the machine was booted


def command_line(pid: int) -> list[str]:
    """What a process was started as; empty in the middle of an exec, and once it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except (FileNotFoundError, ProcessLookupError):
        return []


def naming(path: Path) -> list[list[str]]:
    """The command lines of all processes that were started with `path` in them."""
    lines = [command_line(pid) for pid in _ids()]
    return [line for line in lines if any(str(path) in part for part in line)]


def children(parent: int) -> dict[Process, list[str]]:
    """The processes that `parent` has started and that still run, and as what."""
    found = [_seen(pid) for pid in _ids()]
    return {one: command_line(one.pid) for one, starter in filter(None, found) if starter == parent}


def runs(process: Process) -> bool:
    """Whether it has not ended yet; one that nobody has waited for has."""
    seen = _seen(process.pid)
    return seen is not None and seen[0] == process


def wait_until_gone(programs: Iterable[Process], paths: Iterable[Path]) -> None:
    """Return once these processes have ended and nothing is at these paths. Raises AssertionError."""
    programs, paths = list(programs), list(paths)

    def left() -> list[object]:
        running = [(process, command_line(process.pid)) for process in programs if runs(process)]
        return [*running, *(path for path in paths if path.exists())]

    wait_for(lambda: not left(), left)


def _ids() -> list[int]:
    """The ids of all processes, some of which may be gone by the time that they are looked at."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _seen(pid: int) -> tuple[Process, int] | None:
    """A process that runs, and the id of its parent; None where there is none of this id (any more)."""
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name, in parentheses, may hold anything; behind it come the fields from the third on.
    state, parent, *fields = status.rpartition(b")")[2].split()
    return None if state in (b"Z", b"X") else (Process(pid, started=int(fields[17])), int(parent))
