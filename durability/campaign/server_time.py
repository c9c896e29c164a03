"""The time of a server that conducts a campaign, and for how long it has heard nothing of each machine.

Refuses to read a clock: the server does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from durability.campaign.log_entries import Entry

HEARD_WITHIN_S = 10.0  # before its power goes, a machine is heard: its agent asks every second
SILENT_AFTER_S = 5.0  # then people are told that it has not reported
DEAF_AFTER_S = 5.0  # without an answer of the store, which a server asks every second
_S = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTime:
    """The time, on the clock of the server's boot. `silent_s`: of each machine, for how long its agent has
    said nothing to any server of the store, since this one could hear it at most. `began_ns`: when this
    server began to conduct the campaign, or could again. `read_ns`: when it read the entry with which the
    phase began; None for when it began to conduct."""

    now_ns: int
    boot_id: str
    silent_s: Mapping[str, float]
    began_ns: int = 0
    read_ns: int | None = None

    def age_min_s(self, entry: Entry) -> float:
        """Seconds since the entry with which the phase began, never too many: what waits for a time may come
        late, and nothing comes early. Clocks of two boots do not compare, and after `adopt` the other boot is
        that of another machine. So an entry of another boot is as old as this server's knowledge of it."""
        if entry.boot_id == self.boot_id:
            return (self.now_ns - entry.at_ns) / _S
        return (self.now_ns - (self.began_ns if self.read_ns is None else self.read_ns)) / _S

    def watched_s(self, entry: Entry) -> float:
        """The same, without the seconds in which this server did not conduct the campaign."""
        return min(self.age_min_s(entry), (self.now_ns - self.began_ns) / _S)

    def came_after_s(self, entry: Entry) -> float:
        """How long after an entry this server began to conduct the campaign, 0 if it did before. After one of
        another boot that is not known, and taken to be infinite."""
        if entry.boot_id != self.boot_id:
            return math.inf
        return max(0.0, (self.began_ns - entry.at_ns) / _S)

    def has_heard(self, machine: str) -> bool:
        """Whether a machine was heard since this server began to conduct the campaign."""
        return self.silent_s.get(machine, math.inf) < (self.now_ns - self.began_ns) / _S

    def hears(self, machine: str) -> bool:
        """Whether a machine was heard lately, while this server conducted the campaign."""
        silent_s = self.silent_s.get(machine, HEARD_WITHIN_S)
        return silent_s < min(HEARD_WITHIN_S, (self.now_ns - self.began_ns) / _S)


class Hearing:
    """When a server heard each machine, by its clock, and since when it can hear. While its store is away, or
    it stands still itself, it can take in nothing that agents say: that time is no silence of theirs."""

    def __init__(self, now_ns: int) -> None:
        self._since_ns = self._answered_ns = now_ns
        self._heard_ns: dict[str, int] = {}

    def store_answered(self, now_ns: int) -> None:
        """The store has answered, so what agents say now is heard."""
        self._since_ns, self._answered_ns = self.since_ns(now_ns), now_ns

    def heard(self, machine: str, now_ns: int) -> None:
        """A machine was heard, by this server or another one."""
        self._heard_ns[machine] = now_ns

    def since_ns(self, now_ns: int) -> int:
        """Since when it can hear without a gap."""
        return now_ns if now_ns - self._answered_ns > DEAF_AFTER_S * _S else self._since_ns

    def silent_s(self, machine: str, now_ns: int) -> float:
        """For how long a machine has said nothing, since it could be heard at most."""
        return (now_ns - max(self._heard_ns.get(machine, 0), self.since_ns(now_ns))) / _S
