"""`durability clients` and its commands: a server's clients, for its operator."""

from __future__ import annotations

import asyncio
import sys

import typer

from durability.errors import UsageError
from durability_cli import options

clients = typer.Typer(invoke_without_command=True, rich_markup_mode=None)


@clients.callback()
def list_clients(
    context: typer.Context,
    *,
    server: options.OperatorServer = None,
    credential: options.CredentialFile = None,
    json: options.Json = False,
) -> None:
    """List, invite, rename and revoke clients.

    Without a command, lists the clients and the join codes that can still be used. On the server's own
    machine these commands need no options; elsewhere they need the role operator.
    """
    context.obj = options.ServerOptions(server=server, credential=credential)
    if context.invoked_subcommand is not None:
        if json:
            raise UsageError(f"--json is for the list of clients: remove it, or {context.invoked_subcommand}")
        return
    from durability_client import clients_command

    asyncio.run(clients_command.list_clients(options.operator_endpoint(context), json=json, out=sys.stdout))


@clients.command()
def invite(
    context: typer.Context,
    *,
    role: options.InvitedRole = "client",
    name: options.InvitedName = "",
    machines: options.InvitedMachines = None,
    days: options.InvitedDays = None,
) -> None:
    """Print the line that joins another machine.

    The code works once, within an hour. A code of --machines is for the live image: each machine joins with
    it again after every boot.
    """
    from durability_client import clients_command

    if machines is None and days is not None:
        raise UsageError("--days needs --machines")
    if machines is not None:
        if role != "client":
            raise UsageError("--machines: a machine that runs the live image has the role client")
        asyncio.run(
            clients_command.invite_machines(
                options.operator_endpoint(context),
                name=name,
                machines=machines,
                days=options.CODE_DAYS if days is None else days,
                out=sys.stdout,
            )
        )
        return
    asyncio.run(
        clients_command.invite(options.operator_endpoint(context), role=role, name=name, out=sys.stdout)
    )


@clients.command()
def rename(context: typer.Context, client: options.ClientName, name: options.NewName) -> None:
    """Give a client another name."""
    from durability_client import clients_command

    asyncio.run(clients_command.rename(options.operator_endpoint(context), client, name))


@clients.command()
def revoke(context: typer.Context, client: options.ClientName) -> None:
    """Disconnect a client for good.

    Its runs stay. To revoke an unused join code, name the id that `durability clients` lists. Revoking a code
    of --machines also revokes its machines.
    """
    from durability_client import clients_command

    asyncio.run(clients_command.revoke(options.operator_endpoint(context), client, out=sys.stdout))
