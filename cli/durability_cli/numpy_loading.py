"""What a machine must have for NumPy, which nearly every command needs. What it lacks is said."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from durability.errors import EXIT_ENVIRONMENT

_LIBRARY = re.compile(r"(libstdc\+\+\.so\.6|libgcc_s\.so\.1): ")  # of the system; NumPy brings the others


@contextmanager
def numpy_required() -> Iterator[None]:
    """Exits with EXIT_ENVIRONMENT and a sentence if the block cannot load NumPy on this machine. NumPy itself
    looks at the machine, so one that somebody built for an older processor is not refused."""
    try:
        yield
    except (ImportError, RuntimeError) as error:
        text = _unfit(str(error))
        if not text:
            raise
        print(f"durability: {text}", file=sys.stderr)
        sys.exit(EXIT_ENVIRONMENT)


def _unfit(error: str) -> str:
    """Why this machine cannot load NumPy, and what to do; empty if the error has another cause."""
    if library := _LIBRARY.search(error):
        return (
            f"numpy cannot load {library[1]} from this system: install or upgrade your distribution's package"
            " of it (Debian: apt install libstdc++6 libgcc-s1)"
        )
    if "baseline optimizations" in error:
        return (
            "numpy needs a processor with x86-64-v2 (SSSE3, SSE4.1, SSE4.2, POPCNT), as of 2009 or later, and"
            " this one lacks a part of it: use another machine; for a virtual machine, choose another"
            " processor model (QEMU: -cpu host, or -cpu Nehalem)"
        )
    return ""
