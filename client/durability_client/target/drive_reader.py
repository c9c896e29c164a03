"""The process that reads drives after an I/O error of the target: it may wait for a drive for ever, and then
its parent leaves it behind.

It imports the standard library alone, and is started while the drives are well, because it may not be able
to load anything once they are gone. It reads and writes nothing before its parent says so.

    stdin    one line: for how many seconds to read
    stdout   a line for each drive when that is over, or at once when one has answered: NUMBER ERRNO
             ERRNO 0: a read was answered; -1: a read found the end of the drive at its start

A drive whose line does not come has a read that does not return.
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
# The drive itself refused the read, so it has power: an unreadable sector, a command that it does not take, a
# failed check of its data, a reservation. 0 is success.
REFUSED_BY_DRIVE = frozenset({errno.ENODATA, errno.EREMOTEIO, errno.EILSEQ, errno.EBADE})
_SPREAD = 0.6180339887498949  # the golden ratio's fraction: places that never come together


def main() -> None:
    """Arguments: bytes to read at a time, then a descriptor of each drive, opened with O_DIRECT."""
    block_bytes, *fds = map(int, sys.argv[1:])
    line = sys.stdin.readline()
    if not line:
        return  # the parent has no question
    threads = [
        threading.Thread(target=_read, args=(number, fd, block_bytes, float(line)), daemon=True)
        for number, fd in enumerate(fds)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _read(number: int, fd: int, block_bytes: int, seconds: float) -> None:
    """Read here and there, so that no bad place stands for the drive, until it answers or time is over."""
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
