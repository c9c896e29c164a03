"""Switches in virtual time: they obey, fail, hang, are late, or say what is not so.

Refuses to know what hangs on them: that is passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias

from durability.campaign.log_entries import Operation, SwitchOutcome
from durability_lab.campaign_rig.memory_server import Reply
from durability_lab.simulated_rig.virtual_time import Agenda, S

# obeys · fails at once · answers that it took too long, and does nothing · does as it is told, and says that
# it failed · says "done", and does nothing · says "done" and that it is so, and does nothing
Manner: TypeAlias = Literal["obeys", "fails", "hangs", "denies", "idles", "lies"]


@dataclass(slots=True, kw_only=True)
class PlayedSwitch:
    """One switch. `go`: what hangs on it, called with whether the power is on. `answer_s`: how long a request
    takes; `timeout_s`: after which one that hangs is given up. `asked`: all requests that reached it, with
    the manner in which it took them."""

    go: Callable[[bool], None]
    answer_s: Callable[[], float] = lambda: 1.0
    timeout_s: float = 60.0
    manner: Manner = "obeys"
    on: bool = True
    claimed: bool = True  # what a switch that lies says
    asked: list[tuple[Operation, Manner]] = field(default_factory=list)

    def take(self, operation: Operation) -> tuple[SwitchOutcome, str]:
        """Do what is asked, and say what came of it."""
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
    """The controller of several switches, one request at a time for each."""

    def __init__(self, agenda: Agenda, switches: Sequence[PlayedSwitch]) -> None:
        self._agenda = agenda
        self._switches = switches

    def ask(self, switch: int, operation: Operation, reply: Reply) -> None:
        """Ask a switch; it does what it does in the middle of the time that it takes."""
        played = self._switches[switch]
        takes_s = played.timeout_s if played.manner == "hangs" else played.answer_s()
        self._agenda.after(int(takes_s * S / 2), partial(self._do, played, operation, reply, takes_s / 2))

    def _do(self, played: PlayedSwitch, operation: Operation, reply: Reply, left_s: float) -> None:
        outcome, text = played.take(operation)
        self._agenda.after(int(left_s * S), partial(reply, outcome, text))
