"""Which processes there are and what they were started as, while others come and go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from tests.waiting import wait_for


def command_line(process: int) -> list[str]:
    """What a process was started as; empty once it is gone."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except (FileNotFoundError, ProcessLookupError):
        return []


def naming(path: Path) -> list[list[str]]:
    """The command lines of all processes that were started with `path` in them."""
    lines = [command_line(int(found.name)) for found in Path("/proc").glob("[0-9]*")]
    return [line for line in lines if any(str(path) in part for part in line)]


def children(parent: int) -> dict[int, list[str]]:
    """The processes that `parent` has started and that still run, and as what."""
    found = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(FileNotFoundError, ProcessLookupError):
            if f"\nPPid:\t{parent}\n" in status.read_text():
                process = int(status.parent.name)
                found[process] = command_line(process)
    return found


def wait_until_gone(programs: Mapping[int, list[str]], paths: Iterable[Path]) -> None:
    """Return once these processes have ended and nothing is at these paths. Raises AssertionError."""
    paths = list(paths)

    def left() -> list[object]:
        running = [line for process, line in programs.items() if command_line(process) == line]
        return [*running, *(path for path in paths if path.exists())]

    wait_for(lambda: not left(), left)
