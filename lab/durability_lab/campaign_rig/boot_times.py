"""How long a machine needs from power on until its agent is heard, and until its runs are armed.

Read from the campaign's log: both ends of each time are the server's clock.
"""

from __future__ import annotations

from durability.campaign.happenings import CutDue, Entry, MachineSeen, PowerCameBack


class BootTimes:
    """Of one campaign, entry by entry."""

    def __init__(self) -> None:
        self._on_ns = 0
        self._seen_s = 0.0

    def line(self, entry: Entry) -> str:
        """What the entry says of a time, as a line; "" if it says none."""
        match entry.happening:
            case PowerCameBack():
                self._on_ns = entry.at_ns
            case MachineSeen() if self._on_ns:
                self._seen_s = (entry.at_ns - self._on_ns) / 1e9
            case CutDue() if self._on_ns:
                armed_s = (entry.at_ns - self._on_ns) / 1e9
                self._on_ns = 0
                return f"from power on: {self._seen_s:.0f} s to the agent, {armed_s:.0f} s to armed"
        return ""
