"""Switches in virtual time: they obey, fail, hang, are late, or give false answers.

The caller passes in the effect of switching.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias

from durability.campaign.log_entries import Operation, SwitchOutcome
from durability_lab.campaign_rig.memory_server import Reply
from durability_lab.simulated_rig.virtual_time import Agenda, S

# obeys:  does as asked and answers "done"
# fails:  does nothing and answers "failed" after the usual time
# hangs:  does nothing and answers "failed" after its timeout
# denies: does as asked and answers "failed"
# idles:  does nothing and answers "done"; `status` tells the truth
# lies:   does nothing and answers "done"; `status` confirms it falsely
Manner: TypeAlias = Literal["obeys", "fails", "hangs", "denies", "idles", "lies"]


@dataclass(slots=True, kw_only=True)
class PlayedSwitch:
    """One switch."""

    go: Callable[[bool], None]  # the effect of switching, called with whether the power is on
    answer_s: Callable[[], float] = lambda: 1.0  # duration of a request
    timeout_s: float = 60.0  # a hanging request is given up after this time
    manner: Manner = "obeys"
    on: bool = True
    claimed: bool = True  # the state that a lying switch reports
    # All requests that reached the switch, each with the manner of the switch at that time.
    asked: list[tuple[Operation, Manner]] = field(default_factory=list)

    def take(self, operation: Operation) -> tuple[SwitchOutcome, str]:
        """Handle a request; returns outcome and text of the answer."""
        self.asked.append((operation, self.manner))
        if self.manner in ("fails", "hangs"):
            return "failed", "it does not answer"
        if operation in ("status", "check"):
            state = self.claimed if self.manner == "lies" else self.on
            return ("on" if state else "off"), ""
        self.claimed = operation == "on"
        if self.manner in ("obeys", "denies") and self.on != self.claimed:
            self.on = self.claimed
            self.go(self.on)
        return ("failed", "exit code 1") if self.manner == "denies" else ("done", "")


class PlayedController:
    """The controller of several switches."""

    def __init__(self, agenda: Agenda, switches: Sequence[PlayedSwitch]) -> None:
        self._agenda = agenda
        self._switches = switches

    def ask(self, switch: int, operation: Operation, reply: Reply) -> None:
        """Ask a switch. The switch acts after half of the request's duration, and answers at the end."""
        played = self._switches[switch]
        takes_s = played.timeout_s if played.manner == "hangs" else played.answer_s()
        self._agenda.after(int(takes_s * S / 2), partial(self._do, played, operation, reply, takes_s / 2))

    def _do(self, played: PlayedSwitch, operation: Operation, reply: Reply, left_s: float) -> None:
        outcome, text = played.take(operation)
        self._agenda.after(int(left_s * S), partial(reply, outcome, text))
