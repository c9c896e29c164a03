"""The time of a server that conducts a campaign, and how long each machine has been silent.

This module does not read a clock: the server passes the time in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from durability.campaign.log_entries import Entry

# A machine must be heard so recently before its power is cut. Its agent asks every second.
HEARD_WITHIN_S = 10.0
SILENT_AFTER_S = 5.0  # after this silence, people see that the machine has not reported
# After this time without an answer from the store, which it asks every second, a server cannot hear agents.
STORE_SILENT_AFTER_S = 5.0
_S = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTime:
    """The present time and the start of this server's work on the campaign. All times are nanoseconds on the
    clock of the server's boot `boot_id`."""

    now_ns: int
    boot_id: str
    # By machine: seconds since its agent last reached any server of the store. At most the time for which
    # this server could have heard the agent.
    silent_s: Mapping[str, float]
    began_ns: int = 0  # when this server began, or was again able, to conduct the campaign
    read_ns: int | None = None  # when this server read the entry that began the phase; None means `began_ns`

    def age_min_s(self, entry: Entry) -> float:
        """Seconds since the entry that began the phase, never an overestimate: a step that waits may come
        late, but never early. Clocks of two boots cannot be compared, and after `adopt` the other boot
        belongs to another machine. So an entry of another boot is taken to be as old as this server's
        knowledge of it."""
        if entry.boot_id == self.boot_id:
            return (self.now_ns - entry.at_ns) / _S
        return (self.now_ns - (self.began_ns if self.read_ns is None else self.read_ns)) / _S

    def watched_s(self, entry: Entry) -> float:
        """Like `age_min_s`, but at most the seconds for which this server has conducted the campaign."""
        return min(self.age_min_s(entry), (self.now_ns - self.began_ns) / _S)

    def came_after_s(self, entry: Entry) -> float:
        """Seconds from an entry until this server began to conduct the campaign, 0 if it began before the
        entry. For an entry of another boot the time is unknown and taken to be infinite."""
        if entry.boot_id != self.boot_id:
            return math.inf
        return max(0.0, (self.began_ns - entry.at_ns) / _S)

    def has_heard(self, machine: str) -> bool:
        """Whether a machine was heard after this server began to conduct the campaign."""
        return self.silent_s.get(machine, math.inf) < (self.now_ns - self.began_ns) / _S

    def hears(self, machine: str) -> bool:
        """Whether a machine was heard in the last `HEARD_WITHIN_S` seconds, and after this server began to
        conduct the campaign."""
        silent_s = self.silent_s.get(machine, HEARD_WITHIN_S)
        return silent_s < min(HEARD_WITHIN_S, (self.now_ns - self.began_ns) / _S)


class AgentContacts:
    """When a server last heard each machine, and since when it can hear without a gap, by its own clock.
    While its store does not answer, or the server itself is stopped, it cannot receive messages of agents.
    That time does not count as silence of the agents."""

    def __init__(self, now_ns: int) -> None:
        self._since_ns = self._answered_ns = now_ns
        self._heard_ns: dict[str, int] = {}

    def store_answered(self, now_ns: int) -> None:
        """Note that the store has answered, so the server can hear agents now."""
        self._since_ns, self._answered_ns = self.since_ns(now_ns), now_ns

    def heard(self, machine: str, now_ns: int) -> None:
        """Note that this server or another one heard a machine."""
        self._heard_ns[machine] = now_ns

    def since_ns(self, now_ns: int) -> int:
        """Time since which the server can hear without a gap; `now_ns` if the store's answer is too old."""
        return now_ns if now_ns - self._answered_ns > STORE_SILENT_AFTER_S * _S else self._since_ns

    def silent_s(self, machine: str, now_ns: int) -> float:
        """Seconds since a machine was last heard, at most the time for which the server can hear."""
        return (now_ns - max(self._heard_ns.get(machine, 0), self.since_ns(now_ns))) / _S
