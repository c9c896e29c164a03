"""What a machine of the live image says on a console."""

from __future__ import annotations

import asyncio


async def heard(reader: asyncio.StreamReader, *words: str) -> str:
    """What the machine says, until it has said all of these words, in any order."""
    said = ""
    while not all(one in said for one in words):
        piece = await reader.read(4096)
        assert piece, said
        said += piece.decode(errors="replace")
    return said
