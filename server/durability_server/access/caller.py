"""Who speaks on a connection, and what they may do there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from durability.errors import RefusedError
from durability.plain_text import OPERATOR_MACHINE
from durability.protocol.auth import Role

_PURPOSES: Mapping[Role, frozenset[str]] = {
    "client": frozenset({"run", "verify", "query", "agent"}),
    "viewer": frozenset({"query"}),
    "operator": frozenset({"run", "verify", "query", "agent", "operate"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The client with the id `client`, known as `name`; "" is the operator on the server's own machine.
    `invitation`: the hash of the code with which the caller joins, b"" for one that has joined;
    `of_machines`: that code joins machines again and again."""

    client: str
    name: str
    role: Role
    invitation: bytes = b""
    of_machines: bool = False

    def require(self, purpose: str) -> None:
        """Raises RefusedError "forbidden" where this caller may not come for that."""
        allowed = {"join"} if self.invitation else _PURPOSES[self.role]
        if purpose not in allowed:
            role = "" if purpose in _PURPOSES["client"] else " --role operator"
            raise RefusedError(
                "forbidden",
                f"{self.name} joined as {self.role}, which may not do this: type `durability clients invite"
                f"{role}` on the server's machine, then the line that it prints here",
            )

    def owns(self, owner: str) -> bool:
        """Whether this caller may change what belongs to the client `owner`."""
        return self.role == "operator" or (self.role == "client" and self.client == owner)

    def sees(self, owner: str) -> bool:
        """Whether this caller may read what belongs to the client `owner`."""
        return self.role == "viewer" or self.owns(owner)

    @property
    def is_local(self) -> bool:
        """Whether this is the operator, on the server's own machine."""
        return not self.client and not self.invitation

    @property
    def holder(self) -> str:
        """Who holds the places and turns that this caller takes: the client, or all who show one code; "" is
        the operator on the server's own machine."""
        return f"code {self.invitation.hex()}" if self.invitation else self.client

    @property
    def only_of(self) -> str | None:
        """The client whose runs alone this caller may read; None for all runs."""
        return self.client if self.role == "client" else None


OPERATOR = Caller(client="", name=OPERATOR_MACHINE, role="operator")
