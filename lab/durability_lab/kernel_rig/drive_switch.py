"""A command that switches the drives of a rig: what `[power]` of a campaign on them names.

    python drive_switch.py SOCKET on|off|status

Its exit codes are those of such commands: 0 done or on, 2 off, else failed, with the reason on stderr. It
asks the process that has the drives (`switched_drives`) through its socket. It is a program of its own with
the standard library only, so that it takes a campaign no longer than a real switch.
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
