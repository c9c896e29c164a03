"""Kinds of steps of a campaign: an entry for its log, a request to a switch, a look-up of a verdict, a wait.

The server takes the steps; this module only defines them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from durability.campaign.log_entries import Happening, Operation


@dataclass(frozen=True, slots=True)
class Note:
    """Add this entry to the log."""

    happening: Happening


@dataclass(frozen=True, slots=True)
class Ask:
    """Send a request to the switch with this number, unless a request of this server to it is still pending.
    The log cannot distinguish a pending request from one that was lost with its server."""

    switch: int
    operation: Operation


@dataclass(frozen=True, slots=True)
class LookUp:
    """Look up the verdict on this run of a drive, and add it to the log."""

    drive: str
    run: str


@dataclass(frozen=True, slots=True)
class WhenStill:
    """Add this entry once no writer of these runs has credit left. Until then, check again and again."""

    runs: tuple[str, ...]
    happening: Happening


@dataclass(frozen=True, slots=True)
class UnlessStill:
    """Add this entry instead of the following steps if a writer of these runs has credit left."""

    runs: tuple[str, ...]
    happening: Happening


@dataclass(frozen=True, slots=True)
class WaitFor:
    """Wait for this time, or until something happens."""

    seconds: float


Step: TypeAlias = Note | Ask | LookUp | WhenStill | UnlessStill | WaitFor
FOREVER = WaitFor(3600.0)
