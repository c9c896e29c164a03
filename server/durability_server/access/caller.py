"""The party on a connection, and what it may do there."""

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
    """The party on a connection."""

    client: str  # id of the client; "" is the operator on the server's own machine
    name: str
    role: Role
    invitation: bytes = b""  # hash of the code by which the caller joins, b"" if it has joined
    of_machines: bool = False  # whether that code joins machines again after each boot

    def require(self, purpose: str) -> None:
        """Raises RefusedError "forbidden" if this caller may not connect for `purpose`."""
        allowed = {"join"} if self.invitation else _PURPOSES[self.role]
        if purpose not in allowed:
            role = "" if purpose in _PURPOSES["client"] else " --role operator"
            raise RefusedError(
                "forbidden",
                f"{self.name} joined as {self.role}, which may not do this: type `durability clients invite"
                f"{role}` on the server's machine, then the line that it prints here",
            )

    def owns(self, owner: str) -> bool:
        """Whether this caller may change data of the client `owner`."""
        return self.role == "operator" or (self.role == "client" and self.client == owner)

    def sees(self, owner: str) -> bool:
        """Whether this caller may read data of the client `owner`."""
        return self.role == "viewer" or self.owns(owner)

    @property
    def is_local(self) -> bool:
        """Whether this is the operator on the server's own machine."""
        return not self.client and not self.invitation

    @property
    def holder(self) -> str:
        """The party to which the limits for this caller apply: the client, or all callers with the same code.
        "" is the operator on the server's own machine."""
        return f"code {self.invitation.hex()}" if self.invitation else self.client

    @property
    def only_of(self) -> str | None:
        """The only client whose runs this caller may read; None for all runs."""
        return self.client if self.role == "client" else None


OPERATOR = Caller(client="", name=OPERATOR_MACHINE, role="operator")
