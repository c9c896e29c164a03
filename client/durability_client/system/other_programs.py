"""Other programs on this machine from /proc: names of kernel threads, and bytes written by each program.

The module only reads. The counts of other users' programs need root; unreadable counts are left out, never
guessed. `proc` is the root of the tree, so that a tree of another machine can be read, too.
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
    """A process: its `pid`, its `name` in the kernel (at most 15 bytes), and the bytes that it has caused to
    be written to drives since its start."""

    pid: int
    name: str
    written_bytes: int


def kernel_threads(*, proc: Path = PROC) -> frozenset[str]:
    """Names of the kernel's threads; empty in a container, where they are not visible."""
    return frozenset(name for _, name, parent in _processes(proc) if parent == KTHREADD)


def programs(*, proc: Path = PROC) -> Mapping[int, Program]:
    """The programs whose counts are readable, by pid, without kernel threads."""
    return {
        pid: Program(pid=pid, name=name, written_bytes=written)
        for pid, name, parent in _processes(proc)
        if parent != KTHREADD and (written := _written_bytes(proc / str(pid))) is not None
    }


def busiest(before: Mapping[int, Program], after: Mapping[int, Program]) -> Program | None:
    """The program that wrote the most between two readings, with the bytes of that time; None if none wrote.

    All bytes of a program that started in between count.
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
        with suppress(OSError, ValueError, IndexError):  # the process has ended meanwhile
            text = (directory / "stat").read_text(errors="replace")
            name, _, rest = text.partition("(")[2].rpartition(")")  # names may contain blanks and brackets
            yield int(directory.name), name, int(rest.split()[1])


def _written_bytes(directory: Path) -> int | None:
    with suppress(OSError, ValueError):
        for line in (directory / "io").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "write_bytes":
                return int(value)
    return None
