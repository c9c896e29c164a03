"""`durability agent` and its commands: the machine under test, for campaigns."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from durability_cli import options, service_manager

agent = typer.Typer(invoke_without_command=True, rich_markup_mode=None)

Print = Annotated[bool, typer.Option("--print", help="Only print the unit.")]
_DIRECTORY = Path("/run/durability-agent")

Directory = Annotated[
    Path,
    typer.Option(
        parser=options.path,
        metavar="DIRECTORY",
        help="Directory in memory for mount points and records of started runs.",
    ),
]


@agent.callback()
def run_agent(
    context: typer.Context,
    *,
    server: options.JoinedServer = None,
    credential: options.CredentialFile = None,
    directory: Directory = _DIRECTORY,
) -> None:
    """Run the tasks of campaigns on the machine under test.

    Without a command, works in the foreground. Ctrl-C or SIGTERM stops its runs, unmounts and exits with 0.
    Needs root, and a machine that has joined. Options go before the command.
    """
    context.obj = (options.ServerOptions(server=server, credential=credential), directory)
    if context.invoked_subcommand is not None:
        return
    from durability_client.agent import agent_command
    from durability_client.link.credential import credential_path

    connection, directory = context.obj
    endpoint = agent_command.require_joined(connection.endpoint())
    asyncio.run(
        agent_command.agent(
            endpoint,
            options=_typed(connection),
            directory=directory,
            credential=connection.credential or credential_path(),
            out=sys.stdout,
            working=service_manager.informed,
        )
    )


@agent.command()
def install(context: typer.Context, *, print_only: Print = False) -> None:
    """Start the agent now and at every boot.

    Writes a systemd unit that runs the agent as root with the credential that `join` left. The Debian
    package has such a unit: without options, that one is enabled.
    """
    from durability_client.agent import agent_command, service

    connection, directory = context.obj
    agent_command.require_joined(connection.endpoint())
    words = [*_typed(connection), *_of_directory(directory)]
    if print_only:
        print(service.unit(words), end="")
    else:
        service.install(words, out=sys.stdout, err=sys.stderr)


@agent.command()
def live() -> None:
    """Run the live image's own program.

    Joins the server, starts the agent and shows its progress on the consoles. Refuses to run on another
    system.
    """
    from durability_client.live.live_command import live as serve_boot

    asyncio.run(serve_boot())


@agent.command()
def uninstall() -> None:
    """Stop the agent and do not start it at boot."""
    from durability_client.agent import service

    service.uninstall(out=sys.stdout)


def _typed(connection: options.ServerOptions) -> list[str]:
    """The options with which commands find the server as this one does."""
    words = ["--server", connection.server] if connection.server else []
    return [*words, "--credential", str(connection.credential.absolute())] if connection.credential else words


def _of_directory(directory: Path) -> list[str]:
    return [] if directory == _DIRECTORY else ["--directory", str(directory.absolute())]
