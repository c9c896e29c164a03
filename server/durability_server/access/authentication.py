"""Finds out who a client is, from what it shows in its first message.

On the local socket that is the operator, because only the user who runs the server, and root, can open it.
Over the network it is a client with its secret, or the holder of a join code. An unknown client and a wrong
secret get the same message.
"""

from __future__ import annotations

import time

from durability.errors import AuthenticationError
from durability.protocol import auth
from durability.protocol.messages import Hello
from durability_server.access.caller import OPERATOR, Caller
from durability_server.store.joint_reads import JointReads
from durability_server.store.store import Store
from durability_server.store.store_thread import StoreThread


class Authentication:
    """Authenticates clients and join codes of one store."""

    def __init__(self, store: Store, thread: StoreThread) -> None:
        self._clients = store.clients
        self._known = JointReads(thread, store.clients.find_several)
        self._machines = store.machines
        self._thread = thread

    async def caller(self, hello: Hello, *, local: bool) -> Caller:
        """The caller that has sent `hello`, if its purpose is allowed. Raises AuthenticationError,
        RefusedError and StoreError."""
        if local:
            caller = OPERATOR
        elif hello.purpose == "join":
            hash_ = auth.invitation_hash(hello.secret)
            now = int(time.time())
            code = await self._thread.look_up(self._machines.find, hash_, now=now)
            if code is not None:
                caller = Caller(client="", name=code.name, role="client", invitation=hash_, of_machines=True)
            else:
                invitation = await self._thread.look_up(self._clients.invitation, hash_, now=now)
                caller = Caller(client="", name=invitation.name, role=invitation.role, invitation=hash_)
        else:
            client = await self._known.read(hello.client)
            shown = auth.client_hash(hello.secret)
            if client is None or not auth.equal(client.hash, shown):
                raise AuthenticationError(
                    "this server does not know this client, or has revoked it: type `durability clients"
                    " invite` on the server's machine, then the line that it prints here"
                )
            caller = Caller(client=client.id, name=client.name, role=client.role)
        caller.require(hello.purpose)
        return caller
