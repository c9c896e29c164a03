"""Mounted file systems from /proc, in this process's mount namespace and in others. Empty without /proc."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of /proc/self/mountinfo. `root`: the directory of the file system that is mounted."""

    id: int
    device_number: tuple[int, int]
    root: str
    mount_point: str
    type: str
    source: str
    options: str


def mounts() -> list[Mount]:
    """All mounts that this process sees, in the order in which they were made; empty without /proc."""
    try:
        text = Path("/proc/self/mountinfo").read_bytes()
    except OSError:
        return []
    return _parse(text)


def foreign_mounts() -> Iterator[tuple[int, Mount]]:
    """The mounts of other mount namespaces that this user may examine, each with a process that sees it."""
    with suppress(OSError):
        seen = {_namespace("self")}
        for entry in sorted(filter(str.isdecimal, os.listdir("/proc")), key=int):  # noqa: PTH208 - names
            with suppress(OSError):  # the process has ended, or is another user's
                namespace = _namespace(entry)
                if namespace in seen:
                    continue
                text = Path("/proc", entry, "mountinfo").read_bytes()
                seen.add(namespace)
                yield from ((int(entry), mount) for mount in _parse(text))


def _namespace(process: str) -> str:
    return str(Path("/proc", process, "ns", "mnt").readlink())


def mount_of(path: Path) -> Mount | None:
    """The mount that holds `path`, or its nearest existing parent."""
    existing = path
    while not os.path.lexists(existing) and existing != existing.parent:  # Path's raise if damaged
        existing = existing.parent
    mount_id = _mount_id(existing)
    return next((mount for mount in mounts() if mount.id == mount_id), None)


def _parse(text: bytes) -> list[Mount]:
    # Not splitlines: in names, the kernel escapes only the line feed of all characters that end a line there.
    return [parse_mount(os.fsdecode(line)) for line in text.split(b"\n") if line]


def parse_mount(line: str) -> Mount:
    """Parse a line of mountinfo, see proc(5): optional fields end at a lone hyphen."""
    fields = line.split(" ")
    tail = fields.index("-", 6)
    major, minor = fields[2].split(":")
    options = dict.fromkeys((*fields[5].split(","), *fields[tail + 3].split(",")))
    return Mount(
        id=int(fields[0]),
        device_number=(int(major), int(minor)),
        root=_unescape(fields[3]),
        mount_point=_unescape(fields[4]),
        type=fields[tail + 1],
        source=_unescape(fields[tail + 2]),
        options=_unescape(",".join(options)),
    )


def _unescape(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def _mount_id(path: Path) -> int | None:
    """The id of the mount that a path is on, from the kernel. A comparison of path prefixes would be wrong if
    one mount hides another."""
    try:
        fd = os.open(path, getattr(os, "O_PATH", 0) | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        text = Path(f"/proc/self/fdinfo/{fd}").read_text()
    except OSError:
        return None
    finally:
        os.close(fd)
    found = re.search(r"^mnt_id:\s*(\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else None
