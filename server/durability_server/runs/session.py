"""A session: one client that speaks for one run, over one connection.

The run keeps what was received from any session; a connection may come and go. A session knows both, so
neither knows the other. Refuses nothing: `requests` decides who may speak for a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from durability.protocol.messages import Credit, Message, Notice
from durability_server.access.caller import Caller
from durability_server.runs.run import Run


class Channel(Protocol):
    """What the runs need of a client's connection; the connections bring it. What goes wrong with it ends it,
    and is raised to nobody."""

    name: str  # where the client is, for people
    caller: Caller | None  # who that is, from the handshake on
    session: Session | None  # of the run for which the client speaks, until the connection ends

    def send(self, message: Message) -> None:
        """Sends `message` where it is legal now, and else nothing."""

    def fail(self, code: str, text: str) -> None:
        """Tells the client why, and closes the connection."""


@dataclass(frozen=True, slots=True, eq=False)
class Session:
    """The client at the other end of `channel` speaks for `run`. Each session is equal only to itself."""

    run: Run
    channel: Channel

    def grant(self) -> None:
        """Tells the client what is durable."""
        self.channel.send(Credit(grants=self.run.frontiers.grants))

    def notice_outage(self, fails: bool) -> None:
        """Tells the client that the store fails, or that it works again."""
        code, text = "store-recovered", "the server's store works again"
        if fails:
            code = "store-unavailable"
            text = "the server cannot save to its store, so writers must wait; the server's log says more"
        self.channel.send(Notice(code=code, text=text))
