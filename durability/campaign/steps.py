"""The kinds of step that a campaign takes: an entry for its log, a request to a switch, a look at a verdict.

Refuses to take any: the server does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from durability.campaign.log_entries import Happening, Operation


@dataclass(frozen=True, slots=True)
class Note:
    """Add this entry."""

    happening: Happening


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the switch with this number, unless a request of this server to it is still under way: a log cannot
    tell that from one that died with its server."""

    switch: int
    operation: Operation


@dataclass(frozen=True, slots=True)
class LookUp:
    """Look up the verdict on this run of a drive, and add it."""

    drive: str
    run: str


@dataclass(frozen=True, slots=True)
class WhenStill:
    """Add this entry once no writer of these runs has credit left; until then look again and again."""

    runs: tuple[str, ...]
    happening: Happening


@dataclass(frozen=True, slots=True)
class UnlessStill:
    """Add this entry, in place of the steps behind this one, if a writer of these runs has credit left."""

    runs: tuple[str, ...]
    happening: Happening


@dataclass(frozen=True, slots=True)
class WaitFor:
    """Nothing is to be done for so long, unless something happens."""

    seconds: float


Step: TypeAlias = Note | Ask | LookUp | WhenStill | UnlessStill | WaitFor
FOREVER = WaitFor(3600.0)
