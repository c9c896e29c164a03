"""What the requests mean by which clients join, and by which an operator lists, invites, renames and revokes
them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from durability.errors import ProtocolError
from durability.protocol import auth, join_code, messages
from durability.protocol.messages import Message
from durability_server import clock
from durability_server.access.caller import Caller
from durability_server.announcements import Announce, silence
from durability_server.store.client_store import Client, Invitation
from durability_server.store.store import Store
from durability_server.store.store_thread import StoreThread

CODE_S = 3600  # for which a join code is good
_ID_BYTES = 8


class ClientRequests:
    """Answers them. `on_revoked` is called with the id of a client that is no longer known. `where` is the
    address that the line of an invitation names; the server sets it once it listens."""

    def __init__(
        self,
        store: Store,
        thread: StoreThread,
        *,
        fingerprint: bytes,
        on_revoked: Callable[[str], None],
        announce: Announce = silence,
    ) -> None:
        self._announce = announce
        self._clients = store.clients
        self._thread = thread
        self._fingerprint = fingerprint
        self._on_revoked = on_revoked
        self.where = ""

    async def answer(self, caller: Caller, message: Message) -> Message:
        """The answer to a request. Raises RefusedError or StoreError."""
        match message:
            case messages.Join():
                return await self._join(caller, message.name)
            case messages.Invite():
                return await self.invite(message.role, message.name)
            case messages.ListClients():
                rows = await self._thread.ask(self._clients.listing, now=_now())
                return messages.Clients(rows=rows)
            case messages.Rename():
                await self._thread.call(self._clients.rename, message.client, message.name)
            case messages.Revoke():
                revoke = self._clients.revoke
                revoked = await self._thread.call(revoke, message.client, wall=clock.wall(), now=_now())
                self._on_revoked(revoked)
            case _:
                raise ProtocolError(f"{type(message).__name__} is not a request")
        return messages.Stored()

    async def invite(self, role: auth.Role | str, name: str) -> messages.Invited:
        """A new join code, and the line to type with it."""
        secret = secrets.token_bytes(join_code.SECRET_BYTES)
        code = join_code.JoinCode(secret=secret, fingerprint=self._fingerprint[: join_code.FINGERPRINT_BYTES])
        now = _now()
        (known,) = (one for one in auth.ROLES if one == role)
        invitation = Invitation(
            hash=auth.invitation_hash(secret), role=known, name=name, expires=now + CODE_S
        )
        await self._thread.call(self._clients.invite, invitation, wall=clock.wall(), now=now)
        return messages.Invited(
            line=f"durability join {self.where} {code}",
            expires=clock.wall(clock.now_ns() + CODE_S * 1_000_000_000),
        )

    async def _join(self, caller: Caller, name: str) -> messages.Joined:
        secret = secrets.token_bytes(auth.SECRET_BYTES)
        client = Client(
            id=secrets.token_hex(_ID_BYTES),
            name=name.strip() or "client",
            role=caller.role,
            hash=auth.client_hash(secret),
        )
        join = self._clients.join
        kept = await self._thread.call(join, caller.invitation, client, wall=clock.wall(), now=_now())
        self._announce(kept.name, f"joined as {kept.role}")
        return messages.Joined(client=kept.id, secret=secret, name=kept.name, role=kept.role)


def _now() -> int:
    return int(time.time())
