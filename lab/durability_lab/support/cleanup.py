"""Removes the resources of a process that died without cleaning up: by SIGKILL, out of memory, or a crash.

A shell in a session of its own reads from a pipe whose other end only that process has. When the process is
gone, for any reason, the pipe ends. If the watched directory still exists then, the shell kills the drive,
unmounts, detaches the loop device and removes the directory. The shell repeats this until the directory is
gone, since a program that was just being started may mount once more. After a proper end, the directory is
already gone, and the shell does nothing.

A program writes its process id to the directory before it starts (`watched`), so the shell knows every
program.

The shell touches only the content of that directory and devices backed by files in it. If another process
still uses the file system (a shell with its working directory there), the kernel finishes the unmount later.
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
MOUNT_POINTS = "agent/mnt"  # mount points of an agent whose directory lies in that of the lab
PID_SUFFIX = ".pid"  # suffix of the file with a program's process id, which exists while it may run

_WATCHED: Final = ("sh", "-c", 'echo $$ >"$1" && shift && exec "$@"', "durability-rig-program")
# A file with a process id is removed once that process is killed, and the directory last. Until then, a
# program that is just being started writes its own file there. Without the directory it cannot, and does not
# start.
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
    """`command` as the program `name`, which first writes its process id to a file in `directory`. The caller
    removes that file, `NAME` + `PID_SUFFIX`, once the program has ended."""
    return (*_WATCHED, str(directory / f"{name}{PID_SUFFIX}"), *command)


class Cleanup:
    """Watches `directory` as long as this process lives, or until `dismiss`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._shell = subprocess.Popen(
            ("sh", "-c", _SCRIPT, "durability-rig-cleanup", str(directory)),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # signals to the rig's process group must not reach the shell
        )

    def dismiss(self) -> None:
        """Remove the directory and, with the shell, resources that are left. Returns when this is done."""
        # A second Ctrl-C may leave programs that run. Then the shell needs the files with their process ids.
        if not any(self._directory.glob(f"*{PID_SUFFIX}")):
            shutil.rmtree(self._directory, ignore_errors=True)
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        self._shell.wait()


@contextmanager
def watched_directory(prefix: str, *, within: Path | None = None) -> Iterator[Path]:
    """A directory for files of the lab that is removed with the block, or with this process. It lies in
    `within`, by default in the system's directory for temporary files."""
    directory = Path(tempfile.mkdtemp(prefix=prefix, dir=within))
    cleanup = Cleanup(directory)
    try:
        yield directory
    finally:
        cleanup.dismiss()


def in_memory() -> Path | None:
    """The default place of media: a directory in memory, since their own speed is not tested. None if this
    machine has none."""
    shared = Path("/dev/shm")
    return shared if shared.is_dir() else None
