"""Worker processes of a command of the lab.

Each reads requests from its stdin and answers on its stdout, as lines of JSON. It ends at the end of its
input, so no worker survives a killed command. This module does not interpret requests or answers.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import IO, Final

from durability_client.system.processes import main_of

_LINE_BYTES_MAX = 16 << 20
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


async def start(
    module: str, said: IO[bytes], environment: Mapping[str, str] = _NOTHING
) -> asyncio.subprocess.Process:
    """Start a process that runs `main` of `module`. Its stderr goes to the file `said`. `environment` is
    added to this process's environment."""
    return await asyncio.create_subprocess_exec(
        *main_of(module),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=said,
        limit=_LINE_BYTES_MAX,
        process_group=0,  # Ctrl-C is for the command, which ends its workers
        env={**os.environ, **environment},
    )


def last_words(said: IO[bytes]) -> str:
    """The last line of the file `said`, after a colon; "" if nothing was said."""
    said.seek(0)
    lines = said.read().decode(errors="replace").split("\n")
    return next((f": {line}" for line in reversed(lines) if line.strip()), "")
