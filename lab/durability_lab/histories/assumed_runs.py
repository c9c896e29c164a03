"""The runs that documented assumptions are about: what happened to them looks like a cut to every tester."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class AssumedRuns:
    """`ended_unheard`: those that stopped writing in a dead network; `restarted`: those whose machine was
    shut down in order and started again; `failed_with_power`: those whose drive failed everything, with
    power; `frozen_shortly`: those whose client was frozen just before a cut, or before the server's end;
    `counted`: those whose drive counted a power loss, and did not say so to their client afterwards;
    `copied_alive`: those whose log is of a time at which their client still ran."""

    ended_unheard: set[int] = field(default_factory=set)
    restarted: set[int] = field(default_factory=set)
    failed_with_power: set[int] = field(default_factory=set)
    frozen_shortly: set[int] = field(default_factory=set)
    counted: set[int] = field(default_factory=set)
    copied_alive: set[int] = field(default_factory=set)

    @property
    def stopped(self) -> set[int]:
        """Those that wrote no more, and no server could see it by then."""
        return self.ended_unheard | self.frozen_shortly
