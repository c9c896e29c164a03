"""Runs small programs of the system that provide facts beyond the kernel's: blkid, smartctl, zfs,
systemd-detect-virt.

All are optional. They are searched in the usual directories, even if PATH does not contain these. They run
with a deadline, since a drive may not answer after a cut.
"""

from __future__ import annotations

import shutil
import subprocess

from durability.errors import TargetError
from durability.program_places import PROGRAM_PLACES

_TIMEOUT_S = 30.0


def find_tool(name: str) -> str | None:
    """The program's path; None if it is not installed."""
    return shutil.which(name, path=PROGRAM_PLACES)


def run_tool(*command: str, timeout_s: float = _TIMEOUT_S) -> subprocess.CompletedProcess[str]:
    """Run a program to its end. Raises TargetError if it is missing, cannot run or does not end in time."""
    program = find_tool(command[0])
    if program is None:
        raise TargetError(f"{command[0]} is not installed; install it (Debian: apt-get install util-linux)")
    try:
        process = subprocess.Popen(
            [program, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
    except (OSError, ValueError) as error:
        raise TargetError(f"{' '.join(command)}: cannot be run: {error}") from error
    try:
        output, errors = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        process.kill()  # not waited for: a process that waits for a drive in the kernel does not end
        raise TargetError(f"{' '.join(command)}: no answer within {timeout_s:.0f} s") from error
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def output_of(*command: str) -> str:
    """The program's output, stripped; "" if it is missing, does not end in time, or prints nothing.

    The exit code is ignored, because systemd-detect-virt and smartctl use it for other information.
    """
    try:
        return run_tool(*command).stdout.strip()
    except TargetError:
        return ""
