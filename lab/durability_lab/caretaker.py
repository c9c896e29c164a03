"""Takes a rig down whose process died without doing so itself: after SIGKILL, an out-of-memory kill, a crash.

A shell in a session of its own holds the end of a pipe whose other end only the rig's process has. When that
process is gone, however it went, the pipe ends; if the rig's directory is still there then, the shell kills
the drive, unmounts, detaches the loop device and removes the directory. A rig that was closed properly has
removed its directory, and the shell has nothing to do.

It touches only what lies in, or is backed by a file in, that directory. What a stranger still holds open (a
shell whose working directory is on the file system) the kernel takes down when it is let go.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

DRIVE_FILE = "drive"  # in a rig's directory: the drive as a file, which backs the loop device
MOUNT_POINT = "mount"
PID_SUFFIX = ".pid"  # of the file that has the process id of a program, for as long as it may run

_SCRIPT = f"""
while read -r _; do :; done
[ -d "$1" ] || exit 0
for file in "$1"/*{PID_SUFFIX}; do
    [ -e "$file" ] && kill -KILL "$(cat "$file")"
done
umount --lazy "$1/{MOUNT_POINT}"
losetup --associated "$1/{DRIVE_FILE}" --noheadings --output NAME | while read -r loop; do
    echo write back > "/sys/block/${{loop##*/}}/queue/write_cache"
    losetup --detach "$loop"
done
umount --lazy "$1/{DRIVE_FILE}"
rm -rf --one-file-system "$1"
"""


class Caretaker:
    """Watches over the rig in `directory` for as long as this process lives, or until it is dismissed."""

    def __init__(self, directory: Path) -> None:
        self._shell = subprocess.Popen(
            ("sh", "-c", _SCRIPT, "durability-rig-caretaker", str(directory)),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a signal to the rig's process group is not meant for it
        )

    def dismiss(self) -> None:
        """The rig has been taken down, or what is left of it shall be; returns when that is done."""
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        self._shell.wait()
