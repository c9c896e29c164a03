"""A command that switches the drives of a rig, for `[power]` of a campaign on these drives.

    python drive_switch.py SOCKET on|off|status

The exit codes are those of power commands: 0 done or on, 2 off, otherwise failed, with the reason on stderr.
The command asks the process that has the drives (`switched_drives`) through its socket. It uses only the
standard library, so that it is as fast as a real switch.
"""

from __future__ import annotations

import socket
import sys

ON, OFF, DONE = "on", "off", "done"  # answers; any other is a failure


def main(path: str, operation: str) -> int:
    """Ask, and return the exit code."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(path)
            connection.sendall(f"{operation}\n".encode())
            with connection.makefile(encoding="utf-8") as lines:
                answer = lines.readline().strip()
        except OSError as error:
            answer = f"{path}: {error}"
    if answer in (ON, DONE):
        return 0
    if answer == OFF:
        return 2
    print(answer or "the drives are gone", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
