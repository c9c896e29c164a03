"""Requests by which clients join, and by which an operator lists, invites, renames and revokes clients."""

from __future__ import annotations

import asyncio
import secrets
import shlex
import time
from collections.abc import Awaitable, Callable, Collection

from durability import limits
from durability.errors import ProtocolError, RefusedError
from durability.protocol import auth, join_code, messages
from durability.protocol.messages import Message
from durability_server import clock
from durability_server.access.caller import Caller
from durability_server.announcements import Announce, silence
from durability_server.log_lines import EVENTS_AT_ONCE, LineLimit
from durability_server.store.client_store import CODE_S, Client, Invitation
from durability_server.store.machine_store import MachineCode
from durability_server.store.store import Store
from durability_server.store.store_thread import StoreThread

_ID_BYTES = 8


class ClientRequests:
    """Answers these requests. `on_revoked` is called with the ids of revoked clients. The server sets the
    address `where` in the line of an invitation. It also sets `campaign_with`, which returns the campaign
    that is not over and has a machine of this name, "" for none."""

    def __init__(
        self,
        store: Store,
        thread: StoreThread,
        *,
        fingerprint: bytes,
        on_revoked: Callable[[Collection[str]], None],
        announce: Announce = silence,
    ) -> None:
        self._announce = announce
        self._told_again = LineLimit(EVENTS_AT_ONCE)
        self._clients = store.clients
        self._machines = store.machines
        self._thread = thread
        self._fingerprint = fingerprint
        self._on_revoked = on_revoked
        self._revoking: set[asyncio.Task[messages.Revoked]] = set()
        self.where = ""
        self.campaign_with: Callable[[str], Awaitable[str]] = _no_campaign

    async def answer(self, caller: Caller, message: Message) -> Message:
        """The answer to a request. Raises RefusedError or StoreError."""
        match message:
            case messages.Join() | messages.JoinMachine():
                machine = message.machine if isinstance(message, messages.JoinMachine) else ""
                return await self._join(caller, message.name, machine=machine)
            case messages.Invite():
                return await self.invite(message.role, message.name)
            case messages.InviteMachines():
                return await self._invite_machines(message)
            case messages.ListClients():
                codes = await self._thread.ask(self._machines.listing, now=_now())
                room = limits.LISTING_ROWS_MAX - len(codes)
                clients = await self._thread.ask(self._clients.listing, now=_now(), rows_max=room)
                rows = (*clients, *codes)[: limits.LISTING_ROWS_MAX]  # earlier releases took more clients
                return messages.Clients(rows=rows)
            case messages.Rename():
                await self._rename(message.client, message.name)
            case messages.Revoke():
                return await self._revoke(message.client)
            case _:
                raise ProtocolError(f"{type(message).__name__} is not a request")
        return messages.Stored()

    async def invite(self, role: auth.Role | str, name: str) -> messages.Invited:
        """A new join code with the line to type. Raises RefusedError and StoreError."""
        code = self._new_code()
        now = _now()
        (known,) = (one for one in auth.ROLES if one == role)
        invitation = Invitation(
            hash=auth.invitation_hash(code.secret), role=known, name=name, expires=now + CODE_S
        )
        await self._thread.call(self._clients.invite, invitation, wall=clock.wall(), now=now)
        # A person types this line into a shell, where the brackets of an IPv6 address are a pattern.
        return self._invited(code, CODE_S, where=shlex.quote(self.where))

    async def _invite_machines(self, message: messages.InviteMachines) -> messages.Invited:
        """A new code for machines with its line. Raises RefusedError and StoreError."""
        code = self._new_code()
        kept = MachineCode(
            hash=auth.invitation_hash(code.secret),
            name=message.name,
            machines=message.machines,
            expires=_now() + message.valid_s,
        )
        await self._thread.call(self._machines.invite, kept, wall=clock.wall(), now=_now())
        return self._invited(code, message.valid_s, where=self.where)  # not quoted, because no shell reads it

    def _new_code(self) -> join_code.JoinCode:
        secret = secrets.token_bytes(join_code.CODE_SECRET_BYTES)
        return join_code.JoinCode(
            secret=secret, fingerprint=self._fingerprint[: join_code.CODE_FINGERPRINT_BYTES]
        )

    def _invited(self, code: join_code.JoinCode, valid_s: int, *, where: str) -> messages.Invited:
        return messages.Invited(
            line=f"durability join {where} {code}",
            expires=clock.wall(clock.now_ns() + valid_s * 1_000_000_000),
        )

    async def _rename(self, client: str, name: str) -> None:
        """Renames a client, unless a campaign that is not over knows its machine by its name."""
        known = (await self._names()).get(client, client)
        if name != known and (campaign := await self.campaign_with(known)):
            raise RefusedError(
                "busy",
                f"campaign {campaign}, which is not over, has the machine {known}, and would not hear it"
                f" under another name: rename it after the end (`durability campaign stop {campaign}`)",
            )
        await self._thread.call(self._clients.rename, client, name)

    async def _names(self) -> dict[str, str]:
        """The names of all clients that are not revoked, by id."""
        rows = await self._thread.ask(self._clients.listing, now=_now())
        return {str(row["client"]): str(row["name"]) for row in rows if row["state"] == "joined"}

    async def _revoke(self, client: str) -> messages.Revoked:
        """Revokes a client, even if the caller is cancelled: storing it alone would not end connections."""
        self._revoking.add(task := asyncio.get_running_loop().create_task(self._end(client)))
        task.add_done_callback(self._revoking.discard)
        return await asyncio.shield(task)

    async def _end(self, client: str) -> messages.Revoked:
        """Revokes a client, or a code for machines with all machines that joined by it. This is also allowed
        during a campaign, because another party may have the machine's credential."""
        campaigns: list[str] = []
        now, wall = _now(), clock.wall()
        names = await self._thread.call(self._machines.revoke, client, wall=wall)
        if names is None:
            names = await self._thread.call(self._clients.revoke, client, wall=wall, now=now)
        self._on_revoked(names)
        for name in names.values():
            if campaign := await self.campaign_with(name):
                text = f"its machine {name} was revoked, and is not heard any more: stop the campaign"
                self._announce(f"campaign {campaign}", text)
                campaigns.append(campaign)
        return messages.Revoked(campaigns=tuple(dict.fromkeys(campaigns)))

    async def _join(self, caller: Caller, name: str, *, machine: str) -> messages.Joined:
        if machine and not caller.of_machines:  # the machine could not join again after its next boot
            raise RefusedError(
                "bad-request",
                "this code joins once; for the live image: `durability clients invite --machines N`",
            )
        secret = secrets.token_bytes(auth.SECRET_BYTES)
        client = Client(
            id=secrets.token_hex(_ID_BYTES),
            name=name.strip() or "client",
            role=caller.role,
            hash=auth.client_hash(secret),
        )
        if caller.of_machines:
            join = self._machines.join
            kept, again = await self._thread.call(
                join, caller.invitation, machine, client, wall=clock.wall(), now=_now()
            )
            if again:
                self._tell_again(caller, kept)
            else:
                self._announce(kept.name, f"joined as {kept.role}")
        else:
            use_up = self._clients.join
            kept = await self._thread.call(use_up, caller.invitation, client, wall=clock.wall(), now=_now())
            self._announce(kept.name, f"joined as {kept.role}")
        return messages.Joined(client=kept.id, secret=secret, name=kept.name, role=kept.role)

    def _tell_again(self, caller: Caller, kept: Client) -> None:
        left_out = self._told_again.left_out(caller.holder)
        if left_out is not None:
            before = f" ({left_out:,} events before this one were left out)" if left_out else ""
            self._announce(kept.name, f"joined again after a boot{before}")


async def _no_campaign(_machine: str) -> str:
    return ""


def _now() -> int:
    return int(time.time())
