"""Executes another program, which ends with the agent: `bound_child.py PARENT PROGRAM [ARGUMENT]...`.

Linux kills the process when its parent ends for any reason. PARENT is the parent's process id. The module is
run as a script without site packages, so that it costs only milliseconds. It imports nothing of this package.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import NoReturn

_PR_SET_PDEATHSIG = 1  # see prctl(2)
_NOT_STARTED = 126


def main() -> NoReturn:
    """Bind this process to its parent, then execute the program. Exit code 126: it cannot be started."""
    parent, *command = sys.argv[1:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent):  # the parent ended before the call above
        sys.exit(_NOT_STARTED)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and the program would inherit that
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(_NOT_STARTED)


if __name__ == "__main__":
    main()
