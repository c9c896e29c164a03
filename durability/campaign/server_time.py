"""The time of a server that conducts a campaign, and for how long it has heard nothing of each machine.

Refuses to read a clock: the server does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from durability.campaign.happenings import Entry

HEARD_WITHIN_S = 10.0  # before its power goes, a machine is heard: its agent asks every second
_S = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTime:
    """The time, on the clock of the server's boot. `silent_s`: of each machine, for how long its agent has
    said nothing to any server of the store, since this one runs at most. `began_ns`: when this server began
    to conduct the campaign."""

    now_ns: int
    boot_id: str
    silent_s: Mapping[str, float]
    began_ns: int = 0

    def since_s(self, entry: Entry) -> float:
        """Seconds since an entry. One of an earlier boot of the server is as old as the server's boot."""
        return (self.now_ns - (entry.at_ns if entry.boot_id == self.boot_id else 0)) / _S

    def watched_s(self, entry: Entry) -> float:
        """Seconds since an entry, without those in which this server did not conduct the campaign."""
        return min(self.since_s(entry), (self.now_ns - self.began_ns) / _S)

    def came_after_s(self, entry: Entry) -> float:
        """How long after an entry this server began to conduct the campaign, 0 if it did before. After one of
        an earlier boot that is not known, and taken to be infinite."""
        if entry.boot_id != self.boot_id:
            return math.inf
        return max(0.0, (self.began_ns - entry.at_ns) / _S)

    def hears(self, machine: str) -> bool:
        """Whether a machine was heard lately, while this server conducted the campaign."""
        silent_s = self.silent_s.get(machine, HEARD_WITHIN_S)
        return silent_s < min(HEARD_WITHIN_S, (self.now_ns - self.began_ns) / _S)
