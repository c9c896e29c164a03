"""Takes down what a process had set up that died without doing so itself: after SIGKILL, an out-of-memory
kill, a crash.

A shell in a session of its own holds the end of a pipe whose other end only that process has. When the
process is gone, however it went, the pipe ends; if the directory that the shell watches over is still there
then, it kills the drive, unmounts, detaches the loop device and removes the directory. It does so until the
directory is gone: what was just being started may mount once more. What was closed properly has removed its
directory, and the shell has nothing to do.

A program has its process id in the directory before it is the program (`watched`), so that none can run of
which the shell does not know.

It touches only what lies in, or is backed by a file in, that directory. What a stranger still holds open (a
shell whose working directory is on the file system) the kernel takes down when it is let go.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

DRIVE_FILE = "drive"  # in a rig's directory: the drive as a file, which backs the loop device
MOUNT_POINT = "mount"
MOUNT_POINTS = "agent/mnt"  # of an agent whose directory lies in that of the lab
PID_SUFFIX = ".pid"  # of the file that has the process id of a program, for as long as it may run

_WATCHED: Final = ("sh", "-c", 'echo $$ >"$1" && shift && exec "$@"', "durability-rig-program")
# A file of a process id goes once that process is killed, and the directory last: until then a program that
# is just being started writes its own there, and after that it cannot, and does not start.
_SCRIPT = f"""
while read -r _; do :; done
for attempt in $(seq 100); do
    [ -d "$1" ] || exit 0
    for file in "$1"/*{PID_SUFFIX}; do
        read -r pid <"$file" && {{ kill -KILL "$pid"; rm "$file"; }}
    done
    umount --lazy "$1/{MOUNT_POINT}" "$1/{MOUNT_POINTS}"/*
    losetup --associated "$1/{DRIVE_FILE}" --noheadings --output NAME | while read -r loop; do
        echo write back > "/sys/block/${{loop##*/}}/queue/write_cache"
        losetup --detach "$loop"
    done
    umount --lazy "$1/{DRIVE_FILE}"
    find "$1" -xdev -mindepth 1 -depth ! -name '*{PID_SUFFIX}' -delete
    rmdir "$1" || sleep 0.1
done
rm -rf --one-file-system "$1"
"""


def watched(directory: Path, name: str, command: Sequence[str]) -> tuple[str, ...]:
    """`command` as the program `name` of what lies in `directory`: the file of its process id comes first.
    The caller removes that file once the program has ended, `NAME` + `PID_SUFFIX`."""
    return (*_WATCHED, str(directory / f"{name}{PID_SUFFIX}"), *command)


class Cleanup:
    """Watches over `directory` for as long as this process lives, or until it is dismissed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._shell = subprocess.Popen(
            ("sh", "-c", _SCRIPT, "durability-rig-cleanup", str(directory)),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a signal to the rig's process group is not meant for it
        )

    def dismiss(self) -> None:
        """Remove the directory: all has been taken down, or what is left of it shall be. Returns when that is
        done."""
        shutil.rmtree(self._directory, ignore_errors=True)
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        self._shell.wait()


@contextmanager
def watched_directory(prefix: str, *, within: Path | None = None) -> Iterator[Path]:
    """A directory for files of the lab that goes away with the block, or with this process. It lies in
    `within`, by default where temporary files do."""
    directory = Path(tempfile.mkdtemp(prefix=prefix, dir=within))
    cleanup = Cleanup(directory)
    try:
        yield directory
    finally:
        cleanup.dismiss()


def in_memory() -> Path | None:
    """Where media lie by default: their own speed is not what is tested."""
    shared = Path("/dev/shm")
    return shared if shared.is_dir() else None
