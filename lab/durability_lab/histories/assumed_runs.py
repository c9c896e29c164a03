"""Runs to which documented assumptions apply: to every tester, their end looks like a cut."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class AssumedRuns:
    """The runs to which each assumption applies, by number."""

    # The run stopped writing while the network was dead.
    ended_unheard: set[int] = field(default_factory=set)
    # The machine was shut down in order and started again.
    restarted: set[int] = field(default_factory=set)
    # The drive had power but failed every request.
    failed_with_power: set[int] = field(default_factory=set)
    # The client was frozen just before a cut or before the server's end.
    frozen_shortly: set[int] = field(default_factory=set)
    # The drive counted a power loss, and the client has not reported this count since.
    counted: set[int] = field(default_factory=set)
    # The log dates from a time when the client still ran.
    copied_alive: set[int] = field(default_factory=set)

    @property
    def stopped(self) -> set[int]:
        """The runs that had stopped writing before any server could see it."""
        return self.ended_unheard | self.frozen_shortly
