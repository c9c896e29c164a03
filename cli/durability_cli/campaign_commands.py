"""`durability campaign` and its commands: many automatic cuts."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from durability_cli import options

campaign = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

CampaignFile = Annotated[
    Path, typer.Argument(parser=options.path, metavar="FILE", help="Campaign file (TOML).")
]
Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Campaign: its file's name without .toml, or the name in the file."),
]
NameOrAll = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="Campaign to show.", show_default="unfinished ones and the newest"),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask first.")]
WithLog = Annotated[bool, typer.Option("--log", help="Also print the log, one line per step.")]
WithHealth = Annotated[
    bool, typer.Option("--health", help="Also print each drive's health after each cycle, one row per cycle.")
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
    """Cut the power automatically, many times.

    Type `check` and `start` on the server's own machine. On each machine under test, type `durability agent
    install` once. `--server` and `--credential` go before the command.
    """
    context.obj = options.ServerOptions(server=server, credential=credential)


@campaign.command()
def check(context: typer.Context, file: CampaignFile, *, yes: Yes = False) -> None:
    """Test the switches: cut the power once, write nothing.

    Passes if the switches cut these machines and drives, and the same drives come back. Waits for the result.
    Exit code 0: the campaign may start. 5: it must not; the reasons are printed.
    """
    from durability_client.campaigns import campaign_command

    work = campaign_command.check(
        options.operator_endpoint(context), file, yes=yes, out=sys.stdout, err=sys.stderr
    )
    raise typer.Exit(asyncio.run(work))


@campaign.command()
def start(context: typer.Context, file: CampaignFile, *, yes: Yes = False) -> None:
    """Start a campaign.

    Prints what it destroys and how long it takes, and asks before it starts. Runs the check first, unless
    `check` passed with the same file. The server then runs the campaign.
    """
    from durability_client.campaigns import campaign_command

    work = campaign_command.start(
        options.operator_endpoint(context), file, yes=yes, out=sys.stdout, err=sys.stderr
    )
    raise typer.Exit(asyncio.run(work))


@campaign.command()
def status(context: typer.Context, name: NameOrAll = None, *, json: options.Json = False) -> None:
    """Show the progress of campaigns: cuts, losses, bounds, time left."""
    from durability_client.campaigns import campaign_command

    asyncio.run(campaign_command.status(options.operator_endpoint(context), name, json=json, out=sys.stdout))


@campaign.command()
def show(
    context: typer.Context,
    name: Name,
    *,
    log: WithLog = False,
    health: WithHealth = False,
    json: options.Json = False,
) -> None:
    """Show a campaign's arms, losses, uncounted cycles and drive health."""
    from durability_client.campaigns import campaign_command

    endpoint = options.operator_endpoint(context)
    work = campaign_command.show(endpoint, name, log=log, health=health, json=json, out=sys.stdout)
    asyncio.run(work)


@campaign.command()
def pause(context: typer.Context, name: Name) -> None:
    """Pause a campaign; its machines stay on.

    Before the cut, stops and verifies the runs and leaves the cycle out. After it, finishes the cycle.
    """
    _steer(context, name, "pause")


@campaign.command()
def resume(context: typer.Context, name: Name) -> None:
    """Continue a paused campaign.

    Repeats the step that failed, with its full time limit.
    """
    _steer(context, name, "resume")


@campaign.command()
def adopt(context: typer.Context, name: Name) -> None:
    """Take over a campaign that was started on another machine.

    Use this on a server that was moved with its store. It must reach the campaign's switches.
    """
    _steer(context, name, "adopt")


@campaign.command()
def stop(context: typer.Context, name: Name) -> None:
    """End a campaign for good; its machines stay on.

    Like `pause`, then ends the campaign. A campaign that has ended cannot continue.
    """
    _steer(context, name, "stop")


@campaign.command()
def export(context: typer.Context, name: Name, *, output: options.Output = None, junit: JUnit = None) -> None:
    """Save a campaign with its log, runs and verdicts as JSON."""
    from durability_client.campaigns import campaign_command

    work = campaign_command.export(
        options.operator_endpoint(context), name, output=output, junit=junit, out=sys.stdout, err=sys.stderr
    )
    asyncio.run(work)


def _steer(context: typer.Context, name: str, action: str) -> None:
    from durability_client.campaigns import campaign_command

    asyncio.run(campaign_command.steer(options.operator_endpoint(context), name, action, out=sys.stdout))
