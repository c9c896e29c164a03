"""`durability accept`: whether to accept a drive. `main` registers it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from durability.errors import SetupError, UsageError
from durability_cli.options import Json, OfClients, ServerOptions, on_server, path

PROFILES = ("database-ssd", "datacenter-nvme-plp", "consumer-ssd", "rented-vm-disk", "rented-server")

Profile = Annotated[
    str, typer.Argument(metavar="PROFILE", help=f"Profile: {', '.join(PROFILES)}, or a TOML file.")
]
OfCampaign = Annotated[
    list[str] | None,
    typer.Option(
        "--campaign",
        metavar="NAME",
        help="Campaign whose drives are judged; repeatable.",
        show_default="those of the same drives",
    ),
]
OfBench = Annotated[
    list[str] | None,
    typer.Option(
        "--bench",
        metavar="FILE|RESULT",
        help="Result file of `bench`, or stored result; repeatable.",
        show_default="the newest stored one",
    ),
]
OfDrive = Annotated[
    str,
    typer.Option(
        "--drive", metavar="TEXT", help="Judge only drives with serial TEXT, or with TEXT in the model."
    ),
]
Report = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        parser=path,
        help="Report page (HTML); its JSON goes beside it.",
    ),
]
By = Annotated[
    str,
    typer.Option(
        metavar="TEXT",
        help="Name of the person who decides, printed in the report.",
        show_default="user and machine",
    ),
]
ShowProfile = Annotated[bool, typer.Option("--show-profile", help="Print the profile as TOML to edit.")]


@on_server
def accept(
    profile: Profile,
    *,
    connection: ServerOptions,
    campaign: OfCampaign = None,
    bench: OfBench = None,
    drive: OfDrive = "",
    client: OfClients = None,
    output: Report = None,
    by: By = "",
    show_profile: ShowProfile = False,
    json: Json = False,
) -> None:
    """Decide whether to accept a drive, by the criteria of a profile.

    Combines benchmark results, campaigns and the drive's own counters. Exit code 0 means pass, 3 refuse, 4
    not shown.
    """
    from durability_client.acceptance import accept_command
    from durability_client.acceptance.gather import EvidenceWanted

    if show_profile:
        if campaign or bench or drive or client or output or json:
            raise UsageError("--show-profile judges nothing: remove the other options")
        accept_command.show_profile(profile, sys.stdout)
        return
    if not (campaign or bench or drive):
        raise UsageError("nothing is named to accept: add --campaign NAME, --bench FILE or --drive SERIAL")
    try:
        endpoint = connection.endpoint()
    except SetupError:
        if (
            campaign
            or client
            or not bench
            or connection.server is not None
            or connection.credential is not None
        ):
            raise
        endpoint = None
    options = accept_command.AcceptOptions(
        profile=profile,
        wanted=EvidenceWanted(
            campaigns=tuple(campaign or ()),
            results=tuple(bench or ()),
            drive=drive,
            clients=tuple(client or ()),
        ),
        endpoint=endpoint,
        output=output,
        by=by,
        json=json,
    )
    raise typer.Exit(accept_command.accept(options, sys.stdout, sys.stderr))
