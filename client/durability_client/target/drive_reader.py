"""The process that reads drives after an I/O error of the target. If it waits for a drive for ever, its
parent abandons it.

It imports only the standard library, and is started while the drives still work, because it may be unable to
load code after they have gone. It neither reads nor writes before its parent sends the line on stdin.

    stdin    one line: the number of seconds to read
    stdout   a line NUMBER ERRNO for each drive, as soon as the drive has answered, or after these seconds
             ERRNO 0: a read returned data; -1: a read returned no data (end of the drive)

If the line of a drive is missing, a read of that drive has not returned.
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
import threading
import time

NO_DATA = -1
RETRY_S = 0.1  # after a read that failed
# The drive itself refused the read, so it has power: an unreadable sector, an unsupported command, a failed
# integrity check, a reservation.
REFUSED_BY_DRIVE = frozenset({errno.ENODATA, errno.EREMOTEIO, errno.EILSEQ, errno.EBADE})
_SPREAD = 0.6180339887498949  # fraction of the golden ratio: multiples of it are spread evenly over the drive


def main() -> None:
    """Command line: bytes per read, then a descriptor of each drive, opened with O_DIRECT."""
    block_bytes, *fds = map(int, sys.argv[1:])
    line = sys.stdin.readline()
    if not line:
        return  # the parent ended without a request
    threads = [
        threading.Thread(target=_read, args=(number, fd, block_bytes, float(line)), daemon=True)
        for number, fd in enumerate(fds)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _read(number: int, fd: int, block_bytes: int, seconds: float) -> None:
    """Read at different places until the drive answers or the time is over, so that one bad place does not
    count as a dead drive."""
    deadline_s = time.monotonic() + seconds
    buffer = mmap.mmap(-1, block_bytes)  # aligned to a page, as O_DIRECT needs it
    blocks = max(1, _size(fd) // block_bytes)
    tries, code = 0, NO_DATA
    while True:
        offset = int(tries * _SPREAD % 1.0 * blocks) * block_bytes
        try:
            code = 0 if os.preadv(fd, [buffer], offset) else NO_DATA
        except OSError as error:
            code = error.errno or errno.EIO
        tries += 1
        if code == 0 or code in REFUSED_BY_DRIVE or time.monotonic() >= deadline_s:
            break
        time.sleep(RETRY_S)
    os.write(1, f"{number} {code}\n".encode())


def _size(fd: int) -> int:
    try:
        return os.lseek(fd, 0, os.SEEK_END)
    except OSError:
        return 0
