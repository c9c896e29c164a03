"""Other programs on this machine, as /proc shows them: threads of the kernel by name, and who writes what.

Read-only. The counts of other users' programs need root; what may not be read is left out, never guessed.
`proc` is the root of the tree, so that a tree of another machine can be read as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
KTHREADD = 2  # the parent of all threads of the kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A process: its `pid`, its `name` as the kernel has it (at most 15 bytes), and the bytes that it has
    caused to be written to any drive since it began."""

    pid: int
    name: str
    written_bytes: int


def kernel_threads(*, proc: Path = PROC) -> frozenset[str]:
    """Names of the kernel's threads; empty in a container, which does not see them."""
    return frozenset(name for _, name, parent in _processes(proc) if parent == KTHREADD)


def programs(*, proc: Path = PROC) -> Mapping[int, Program]:
    """The programs whose counts may be read, by pid; without threads of the kernel."""
    return {
        pid: Program(pid=pid, name=name, written_bytes=written)
        for pid, name, parent in _processes(proc)
        if parent != KTHREADD and (written := _written_bytes(proc / str(pid))) is not None
    }


def busiest(before: Mapping[int, Program], after: Mapping[int, Program]) -> Program | None:
    """The program that wrote the most between two readings, with the bytes of that time; None if none wrote.

    A program that began in between counts whole.
    """
    grown = [
        Program(pid=one.pid, name=one.name, written_bytes=one.written_bytes - _before(before, one))
        for one in after.values()
    ]
    most = max(grown, key=lambda one: one.written_bytes, default=None)
    return most if most is not None and most.written_bytes > 0 else None


def _before(before: Mapping[int, Program], one: Program) -> int:
    earlier = before.get(one.pid)
    return earlier.written_bytes if earlier is not None and earlier.name == one.name else 0


def _processes(proc: Path) -> Iterator[tuple[int, str, int]]:
    """Pid, name and parent of each process."""
    for directory in proc.glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):  # it has ended meanwhile
            text = (directory / "stat").read_text(errors="replace")
            name, _, rest = text.partition("(")[2].rpartition(")")  # a name may hold blanks and brackets
            yield int(directory.name), name, int(rest.split()[1])


def _written_bytes(directory: Path) -> int | None:
    with suppress(OSError, ValueError):
        for line in (directory / "io").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "write_bytes":
                return int(value)
    return None
