"""Checks whether a run's drives still answer after an I/O error of its target (rules 12 and 13).

A failed file system refuses reads although its drive works, and a page cache answers although the drive is
gone. So the drives below the target are read directly, with O_DIRECT. Their descriptors are opened before the
run is armed. If a drive is enumerated again later, its old descriptor fails, even if another drive has the
same name by then. Another process (`drive_reader`) reads the drives, because a read may never return.

If one of several drives answers, the result is "answered". The result is "dead" only if all drives failed.
"""

from __future__ import annotations

import errno
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from durability.formats.facts import Facts
from durability_client.system import block_devices
from durability_client.system.processes import main_of
from durability_client.target import drive_reader
from durability_client.target.discovery import drives_under_loop
from durability_client.target.drive_reader import NO_DATA, REFUSED_BY_DRIVE
from durability_client.target.storage import DriveLook

_O_DIRECT: int | None = getattr(os, "O_DIRECT", None)
LOOK_S = 3.0  # a drive whose reads all fail for this long is dead
_GRACE_S = 1.0  # for the last reads to return
_BLOCK_BYTES = 4096
# Errors of a drive that is gone, has no power or cannot be reached.
_GONE = frozenset(
    {NO_DATA, errno.EIO, errno.ENXIO, errno.ENODEV, errno.ENOLINK, errno.ETIMEDOUT, errno.ENOMEDIUM}
)


class KernelDriveWatch:
    """A `DriveWatch` of the drives in `armed`, the facts of the target at `path` at arming.

    If the target is a device whose drives are unknown or cannot be opened, the device itself is read. For a
    loop device, the drives below its file are read, too.
    """

    def __init__(self, path: Path, armed: Facts) -> None:
        self._names: list[str] = []
        self._fds: list[int] = []
        self._refused: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None
        for drive in armed.drives:
            self._open(drive.name, block_devices.node_of(drive.name))
        if armed.kind == "device" and (self._refused or not armed.drives):
            self._refused.clear()
            self._open(str(path), path)
        # A loop device reads through a file system, which may refuse reads although the drive below works.
        pending = [drive.name for drive in armed.drives]
        seen = set(pending)
        while pending:
            for below in set(drives_under_loop(pending.pop())) - seen:
                seen.add(below)
                pending.append(below)
                self._open(below, block_devices.node_of(below))
        sizes = [drive.logical_block_bytes for drive in armed.drives]
        if self._fds:
            self._process = _reader(max([_BLOCK_BYTES, *sizes]), self._fds)

    def _open(self, name: str, path: Path) -> None:
        if _O_DIRECT is None:
            self._refused.append(f"{name} cannot be read past the page cache: this system has no O_DIRECT")
            return
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | _O_DIRECT)
        except OSError as error:
            self._refused.append(f"{name} cannot be read: {error.strerror}")
        else:
            self._names.append(name)
            self._fds.append(fd)

    @property
    def blind(self) -> str:
        """Why not all drives can be read, or ""."""
        return "; ".join(self._refused)

    def look(self, timeout_s: float) -> DriveLook:
        """Read the drives, and wait at most `timeout_s` and a grace period. Can be called only once."""
        codes, ended = self._ask(timeout_s) if self._process is not None else ({}, False)
        refused = "the process that reads the drives ended" if ended else self.blind
        return conclude(self._names, codes, refused=refused, timeout_s=timeout_s)

    def close(self) -> None:
        """Kill the process that reads. If it waits for its drive, it is abandoned."""
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()
        if self._process is not None:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_GRACE_S)
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
            self._process = None

    def _ask(self, timeout_s: float) -> tuple[dict[str, int], bool]:
        """The result of the reads of each drive, by name, if they returned, and whether the process ended too
        early."""
        process, codes = self._process, dict[str, int]()
        assert process is not None and process.stdin is not None and process.stdout is not None
        deadline_s = time.monotonic() + timeout_s + _GRACE_S
        out, told = process.stdout.fileno(), b""
        with suppress(BrokenPipeError):  # the process has ended: the read below finds the end of its output
            os.write(process.stdin.fileno(), f"{timeout_s}\n".encode())
        while len(codes) < len(self._names) and not any(map(_answered, codes.values())):
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or not select.select([out], [], [], left_s)[0]:
                break
            data = os.read(out, 4096)
            if not data:
                return codes, True
            *lines, told = (told + data).split(b"\n")
            for line in lines:
                number, code = map(int, line.split())
                codes[self._names[number]] = code
        return codes, False


def conclude(names: Sequence[str], codes: Mapping[str, int], *, refused: str, timeout_s: float) -> DriveLook:
    """The conclusion from reads of the drives `names`. `codes`: results of `drive_reader` for the drives
    whose reads returned. `refused`: the drives that could not be read, with the reason, or ""."""
    if alive := [name for name in names if _answered(codes.get(name))]:
        return DriveLook(drive="answered", text=f"{', '.join(alive)} still answers reads")
    if refused or not names:
        return DriveLook(drive="unseen", text=refused or "the drives below the target are not known")
    if hanging := [name for name in names if name not in codes]:
        text = f"a read of {', '.join(hanging)} did not return within {timeout_s:g} s"
        return DriveLook(drive="silent", text=text)
    if odd := [name for name in names if codes[name] not in _GONE]:
        text = "; ".join(f"a read of {name} failed: {os.strerror(codes[name])}" for name in odd)
        return DriveLook(drive="unseen", text=text)
    return DriveLook(
        drive="dead", text=f"{', '.join(names)} does not answer: every read failed for {timeout_s:g} s"
    )


def _answered(code: int | None) -> bool:
    return code == 0 or code in REFUSED_BY_DRIVE


def _reader(block_bytes: int, fds: Sequence[int]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        main_of(drive_reader.__name__, *map(str, (block_bytes, *fds))),
        pass_fds=fds,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        process_group=0,  # Ctrl-C must reach only the parent, which ends the child
    )
