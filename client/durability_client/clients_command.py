"""`durability clients`: lists, invites, renames and revokes a server's clients."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any, TextIO

from durability.protocol.messages import (
    Clients,
    Invite,
    Invited,
    InviteMachines,
    ListClients,
    Rename,
    Revoke,
    Revoked,
    Stored,
)
from durability.units import counted
from durability_client.link.endpoint import Endpoint
from durability_client.link.server_connection import connect
from durability_client.system.terminal import print_json
from durability_client.text_tables import table

CLIENTS_SCHEMA = "durability.clients/1"
_COLUMNS = ("name", "role", "state", "since", "runs", "client")


async def list_clients(endpoint: Endpoint, *, json: bool, out: TextIO) -> None:
    """Write the clients and open invitations to `out`. Raises PeerError, RefusedError if not an operator."""
    with closing(await connect(endpoint, "operate")) as connection:
        rows = (await connection.request(ListClients(), Clients)).rows
    if json:
        print_json({"schema": CLIENTS_SCHEMA, "clients": rows}, out)
        return
    for line in table(_COLUMNS, [_shown(row) for row in rows]):
        print(line, file=out)


async def invite(endpoint: Endpoint, *, role: str, name: str, out: TextIO) -> None:
    """Write the command to type on another machine. Raises like `list_clients`."""
    with closing(await connect(endpoint, "operate")) as connection:
        invited = await connection.request(Invite(role=role, name=name), Invited)
    print(f"On the other machine, once, until {invited.expires}:\n  {invited.line}", file=out)


async def invite_machines(endpoint: Endpoint, *, name: str, machines: int, days: int, out: TextIO) -> None:
    """Write the settings with which machines that run the live image join after each boot. Raises like
    `list_clients`."""
    with closing(await connect(endpoint, "operate")) as connection:
        asked = InviteMachines(name=name, machines=machines, valid_s=days * 86_400)
        invited = await connection.request(asked, Invited)
    server, code = invited.line.split()[-2:]
    print(
        f"For {counted(machines, 'machine')} that {'runs' if machines == 1 else 'run'} the live image, until"
        f" {invited.expires}. Keep it secret: whoever has it can be one of them.\n"
        f"On the kernel's command line:\n  durability.join={server},{code}\n"
        f"In durability-join.txt on the stick:\n  join = {server} {code}\n"
        f"At the machine's console:\n  {server} {code}",
        file=out,
    )


async def rename(endpoint: Endpoint, client: str, name: str) -> None:
    """Rename a client, which is given by its name or id. Raises like `list_clients`, and RefusedError."""
    with closing(await connect(endpoint, "operate")) as connection:
        await connection.request(Rename(client=client, name=name), Stored)


async def revoke(endpoint: Endpoint, client: str, *, out: TextIO) -> None:
    """Revoke a client or an open invitation, and write to `out` which campaigns still need the client. A
    server of an earlier release does not report these. Raises like `rename`."""
    with closing(await connect(endpoint, "operate")) as connection:
        connection.send(Revoke(client=client))
        answer = await connection.receive()
    for campaign in answer.campaigns if isinstance(answer, Revoked) else ():
        print(
            f"campaign {campaign} still needs this client, and will pause. End it with"
            f" `durability campaign stop {campaign}`",
            file=out,
        )


def _shown(row: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**row, "runs": str(row.get("runs", 0))}
