"""gzip whose head does not depend on the Python that writes it: the byte that names the system is not the
same with `gzip.compress` of each release.
"""

from __future__ import annotations

import gzip
from io import BytesIO
from typing import BinaryIO

NO_SYSTEM = 0xFF  # the tenth byte


def writer(to: BinaryIO, *, level: int = 9, dated_s: int = 0) -> gzip.GzipFile:
    """What is written to it goes compressed to the file `to`, without a name and with this date."""
    return gzip.GzipFile("", "wb", level, to, dated_s)


def compressed(content: bytes, *, level: int = 9) -> bytes:
    """The content as a file of gzip, without a name and a date."""
    to = BytesIO()
    with writer(to, level=level) as file:
        file.write(content)
    return to.getvalue()
