"""A session: one client that speaks for one run over one connection.

The run keeps what it received in all its sessions, while connections come and go. A session knows both run
and connection, so they need not know each other. It refuses nothing: `requests` decides who may speak for a
run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from durability.protocol.messages import Credit, Message, Notice
from durability_server.access.caller import Caller
from durability_server.runs.run import Run


class Channel(Protocol):
    """What a run needs of its client's connection. The connections implement it. An error of a channel ends
    the connection, and is not raised to the caller."""

    name: str  # address of the client, for people
    caller: Caller | None  # identity of the client, None before the handshake ends
    session: Session | None  # session of the run for which the client speaks, None once the connection ends

    def send(self, message: Message) -> None:
        """Sends `message` if the protocol allows it now, else nothing."""

    def fail(self, code: str, text: str) -> None:
        """Tells the client why, and closes the connection."""


@dataclass(frozen=True, slots=True, eq=False)
class Session:
    """The client at the other end of `channel` speaks for `run`. A session is equal only to itself."""

    run: Run
    channel: Channel

    def grant(self) -> None:
        """Tells the client its grants: the operations that are durable here."""
        self.channel.send(Credit(grants=self.run.frontiers.grants))

    def notice_outage(self, fails: bool) -> None:
        """Tells the client that the store fails, or that it works again."""
        code, text = "store-recovered", "the server's store works again"
        if fails:
            code = "store-unavailable"
            text = "the server cannot save to its store, so writers must wait; the server's log says more"
        self.channel.send(Notice(code=code, text=text))
