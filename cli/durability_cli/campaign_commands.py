"""`durability campaign` and its commands: many cuts by machine."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from durability_cli import options

if TYPE_CHECKING:
    from durability_client.link.endpoint import Endpoint

campaign = typer.Typer(
    help="Cut the power many times, by machine.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

CampaignFile = Annotated[
    Path, typer.Argument(parser=options.path, metavar="FILE", help="Campaign file (TOML).")
]
Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Campaign: its file's name without .toml, or the name in the file."),
]
NameOrAll = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="Campaign.", show_default="those not over, and the newest"),
]
Yes = Annotated[bool, typer.Option("--yes", help="Begin without asking.")]
WithLog = Annotated[bool, typer.Option("--log", help="Also print the log, one line per step.")]
WithHealth = Annotated[
    bool, typer.Option("--health", help="Also print each drive's health after each cycle, one row per cycle.")
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        parser=options.path,
        metavar="FILE",
        help="New file for the export.",
        show_default="stdout",
    ),
]
JUnit = Annotated[
    Path | None,
    typer.Option(
        parser=options.path, metavar="FILE", help="Also write a JUnit report: a test case for each cycle."
    ),
]


@campaign.callback()
def options_of_all(
    context: typer.Context,
    *,
    server: options.OperatorServer = None,
    credential: options.CredentialFile = None,
) -> None:
    """Cut the power many times, by machine.

    Type `check` and `start` on the server's own machine. On each machine under test, type `durability agent
    install` once. `--server` and `--credential` go before the command.
    """
    context.obj = options.ServerOptions(server=server, credential=credential)


@campaign.command()
def check(context: typer.Context, file: CampaignFile, *, yes: Yes = False) -> None:
    """Switch off and on once, and compare what comes back.

    Shows that the switches cut these machines and drives, and writes nothing to the drives. Waits until the
    check is over. Exit code 0: the campaign may begin; 5: it must not, for the reasons printed.
    """
    from durability_client.campaigns import campaign_command

    work = campaign_command.check(_endpoint(context), file, yes=yes, out=sys.stdout, err=sys.stderr)
    raise typer.Exit(asyncio.run(work))


@campaign.command()
def start(context: typer.Context, file: CampaignFile, *, yes: Yes = False) -> None:
    """Begin a campaign; it goes on by itself.

    Prints what it destroys and how long it takes, and asks. Begins with the check, unless `check` passed
    with the same file, and waits for that. Then the server conducts the campaign by itself.
    """
    from durability_client.campaigns import campaign_command

    work = campaign_command.start(_endpoint(context), file, yes=yes, out=sys.stdout, err=sys.stderr)
    raise typer.Exit(asyncio.run(work))


@campaign.command()
def status(context: typer.Context, name: NameOrAll = None, *, json: options.Json = False) -> None:
    """Show how far campaigns are: cuts, losses, bounds, time left."""
    from durability_client.campaigns import campaign_command

    asyncio.run(campaign_command.status(_endpoint(context), name, json=json, out=sys.stdout))


@campaign.command()
def show(
    context: typer.Context,
    name: Name,
    *,
    log: WithLog = False,
    health: WithHealth = False,
    json: options.Json = False,
) -> None:
    """Show a campaign by arm, its losses and left-out cycles, and the health of its drives."""
    from durability_client.campaigns import campaign_command

    endpoint = _endpoint(context)
    work = campaign_command.show(endpoint, name, log=log, health=health, json=json, out=sys.stdout)
    asyncio.run(work)


@campaign.command()
def pause(context: typer.Context, name: Name) -> None:
    """Pause a campaign; its machines stay on.

    The cycle under way ends in order first: a run that was not cut is stopped and verified.
    """
    _steer(context, name, "pause")


@campaign.command()
def resume(context: typer.Context, name: Name) -> None:
    """Continue a paused campaign.

    Whatever failed is tried again, with its whole time.
    """
    _steer(context, name, "resume")


@campaign.command()
def adopt(context: typer.Context, name: Name) -> None:
    """Conduct a campaign that was begun on another machine.

    For a server that was moved with its store, and reaches the campaign's switches.
    """
    _steer(context, name, "adopt")


@campaign.command()
def stop(context: typer.Context, name: Name) -> None:
    """End a campaign for good; its machines stay on.

    The cycle under way ends in order first. A campaign that has ended cannot continue.
    """
    _steer(context, name, "stop")


@campaign.command()
def export(context: typer.Context, name: Name, *, output: Output = None, junit: JUnit = None) -> None:
    """Save a campaign with its log, runs and verdicts as JSON."""
    from durability_client.campaigns import campaign_command

    work = campaign_command.export(_endpoint(context), name, output=output, junit=junit, out=sys.stdout)
    asyncio.run(work)


def _steer(context: typer.Context, name: str, action: str) -> None:
    from durability_client.campaigns import campaign_command

    asyncio.run(campaign_command.steer(_endpoint(context), name, action, out=sys.stdout))


def _endpoint(context: typer.Context) -> Endpoint:
    connection: options.ServerOptions = context.obj
    return connection.endpoint(as_operator=True)
