"""The commands of the benchmark: `bench`, `compare`, `results`, with their options. `main` registers them."""

from __future__ import annotations

import asyncio
import math
import sys
from pathlib import Path
from typing import Annotated

import typer

from durability import limits
from durability.bench.catalogue import ACCEPT_MINUTES, ACCEPT_MINUTES_MAX, ACCEPT_MINUTES_MIN, PROFILES
from durability.bench.measurement import Engine
from durability.errors import SetupError, UsageError
from durability.units import parse_size
from durability_cli.options import DestroyData, Json, ServerOptions, on_server, path, whole

_LISTED = 50
_SEEDS = 1 << 62  # a result file holds no larger number


def _seconds(text: str) -> float:
    """Parse a time that is not negative. Raises typer.BadParameter."""
    try:
        number = float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number of seconds") from None
    if not 0 <= number < math.inf:
        raise typer.BadParameter(f"{number:g} is out of range: type 0 or more")
    return number


# Of `bench`.
BenchTarget = Annotated[
    Path | None,
    typer.Argument(
        metavar="TARGET", parser=path, help="Existing directory, a file in one, or a block device."
    ),
]
Result = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        parser=path,
        help="New file for the result.",
        show_default="state directory",
    ),
]
Quick = Annotated[bool, typer.Option("--quick", help="Measure fewer cells in 20 seconds, for a first look.")]
Accept = Annotated[
    bool,
    typer.Option(
        "--accept", help="Add sustained loads, which `accept` needs; one writes most of the free space."
    ),
]
Minutes = Annotated[
    float | None,
    typer.Option(
        metavar="MINUTES",
        help="Minutes that the whole benchmark takes with --accept"
        f" ({ACCEPT_MINUTES_MIN} to {ACCEPT_MINUTES_MAX}).",
        show_default=f"{ACCEPT_MINUTES}",
    ),
]
OnlyCells = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Measure only this cell or group; repeatable.", show_default="all"),
]
Profile = Annotated[str, typer.Option(metavar="NAME", help=f"Workload preset: {', '.join(PROFILES)}.")]
DataSize = Annotated[
    str | None,
    typer.Option(
        metavar="BYTES",
        help="Space for all jobs of a cell together.",
        show_default="256MiB; 1GiB with --accept",
    ),
]
BenchSeed = Annotated[
    int | None,
    typer.Option(
        metavar="N", parser=whole(0), help="Seed of the cell order and the offsets.", show_default="random"
    ),
]
MeasuredBy = Annotated[
    Engine,
    typer.Option(
        help="Program that measures; with fio, this tool and fio both measure the cells that they can."
    ),
]
Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Overwrite a device with a known signature (such as a file system or RAID) or a run; allow an"
        " unexpected file system.",
    ),
]
Wait = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        parser=_seconds,
        help="Seconds to wait at most for a busy drive to become idle.",
        show_default="30",
    ),
]
ShowSerials = Annotated[
    bool, typer.Option("--show-serials", help="Do not hash serial numbers in the result.")
]
Show = Annotated[
    Path | None, typer.Option(metavar="FILE", parser=path, help="Print a saved result; measure nothing.")
]
Keep = Annotated[bool, typer.Option("--keep", help="Also store the result on the server.")]
Full = Annotated[bool, typer.Option("--full", help="Print all tables instead of one screen.")]

# Of `compare`.
VerdictOf = Annotated[
    list[str] | None,
    typer.Option(
        metavar="RUN|CAMPAIGN",
        help="Run or campaign whose cuts count; repeatable.",
        show_default="those of the same drives",
    ),
]
RunsOfClients = Annotated[
    list[str] | None,
    typer.Option(
        "--client",
        metavar="NAME",
        help="Client whose runs count; repeatable.",
        show_default="the only client with runs on the drive",
    ),
]

# Of `results`.
OfResultDrive = Annotated[
    str,
    typer.Option(
        "--drive",
        metavar="TEXT",
        help="List only results of drives with serial TEXT, or with TEXT in the model.",
    ),
]
OfResultHost = Annotated[
    str,
    typer.Option("--host", metavar="TEXT", help="List only results of machines whose name contains TEXT."),
]

# Of `bench` and `compare`.
Html = Annotated[Path | None, typer.Option(metavar="FILE", parser=path, help="Also write an HTML report.")]


@on_server
def bench(
    target: BenchTarget = None,
    *,
    connection: ServerOptions,
    output: Result = None,
    quick: Quick = False,
    accept: Accept = False,
    minutes: Minutes = None,
    only: OnlyCells = None,
    profile: Profile = "",
    size: DataSize = None,
    seed: BenchSeed = None,
    engine: MeasuredBy = "durability",
    destroy_data: DestroyData = False,
    force: Force = False,
    wait: Wait = None,
    show_serials: ShowSerials = False,
    show: Show = None,
    html: Html = None,
    keep: Keep = False,
    full: Full = False,
    json: Json = False,
) -> None:
    """Measure commit latency and rate on TARGET.

    Also says whether the figures are plausible for the hardware. Takes about a minute without --accept. Needs
    a server only for --keep. Removes its own files afterwards.
    """
    from durability_client.bench import bench_command

    endpoint = connection.endpoint() if keep else None
    if show is not None:
        _refuse_beside_show(
            {
                "TARGET": target is not None,
                "-o": output is not None,
                "--quick": quick,
                "--accept": accept,
                "--minutes": minutes is not None,
                "--only": bool(only),
                "--profile": bool(profile),
                "--size": size is not None,
                "--seed": seed is not None,
                "--engine": engine != "durability",
                "--destroy-data": destroy_data,
                "--force": force,
                "--wait": wait is not None,
                "--show-serials": show_serials,
            }
        )
        chosen = bench_command.ShowOptions(html=html, keep_on=endpoint, full=full, json=json)
        raise typer.Exit(bench_command.show(show, chosen, sys.stdout, sys.stderr))
    if target is None:
        raise UsageError("TARGET is missing: name a directory, a file in a directory, or a block device")
    options = bench_command.BenchOptions(
        target=target,
        output=output,
        quick=quick,
        accept_minutes=_accept_minutes(minutes, accept=accept),
        only=tuple(only or ()),
        profile=profile,
        size_bytes=None if size is None else parse_size(size),
        seed=_checked(seed),
        destroy_data=destroy_data,
        force=force,
        wait_s=bench_command.WAIT_S if wait is None else wait,
        show_serials=show_serials,
        engine=engine,
        html=html,
        keep_on=endpoint,
        full=full,
        json=json,
    )
    raise typer.Exit(bench_command.bench(options, sys.stdout, sys.stderr))


def _refuse_beside_show(given: dict[str, bool]) -> None:
    """Raises UsageError if one of the options, by name, was given: `--show` has no use for them."""
    if useless := [name for name, whether in given.items() if whether]:
        raise UsageError(f"--show FILE measures nothing: remove {', '.join(useless)}")


def _accept_minutes(minutes: float | None, *, accept: bool) -> float | None:
    """How long sustained loads take; None without them. Raises UsageError."""
    if minutes is not None and not accept:
        raise UsageError("--minutes needs --accept")
    return None if not accept else ACCEPT_MINUTES if minutes is None else minutes


def _checked(seed: int | None) -> int | None:
    """Raises UsageError for a seed that no result file can hold."""
    if seed is not None and seed >= _SEEDS:
        raise UsageError(f"--seed {seed} is too large: use a number below 2^62")
    return seed


@on_server
def compare(
    results: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...", parser=path, help="Result files of `bench`; the first is the baseline."
        ),
    ],
    *,
    connection: ServerOptions,
    verdict_of: VerdictOf = None,
    client: RunsOfClients = None,
    html: Html = None,
    full: Full = False,
    json: Json = False,
) -> None:
    """Compare benchmark results with the first one given.

    Answers which drive to take. Verdicts of power cuts come from the server, if this machine has one. If the
    results have nothing in common, prints the reason and exits with 2.
    """
    from durability_client.bench import bench_command

    asked, clients = tuple(verdict_of or ()), tuple(client or ())
    try:
        endpoint = connection.endpoint()
    except SetupError:
        if asked or clients or connection.server is not None or connection.credential is not None:
            raise
        endpoint = None
    options = bench_command.CompareOptions(
        paths=tuple(results),
        verdicts_of=asked,
        clients=clients,
        endpoint=endpoint,
        html=html,
        full=full,
        json=json,
    )
    raise typer.Exit(bench_command.compare_files(options, sys.stdout, sys.stderr))


@on_server
def results(
    result: Annotated[
        str | None,
        typer.Argument(metavar="RESULT", help="Stored result to show: 12 hexadecimal digits."),
    ] = None,
    *,
    connection: ServerOptions,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", parser=path, help="Save RESULT in this new file."),
    ] = None,
    drive: OfResultDrive = "",
    host: OfResultHost = "",
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=whole(1, limits.LISTING_ROWS_MAX),
            help=f"Number of stored results to list (1 to {limits.LISTING_ROWS_MAX}).",
            show_default=f"{_LISTED}",
        ),
    ] = None,
    full: Full = False,
    json: Json = False,
) -> None:
    """List benchmark results stored on the server, or show one.

    `bench --keep` stores them. The newest result comes first.
    """
    from durability_client.bench import bench_command, kept_results

    if result is None:
        if output is not None or full:
            raise UsageError("-o and --full need RESULT: `durability results` lists the stored results")
        chosen = kept_results.ChosenResults(limit=_LISTED if limit is None else limit, drive=drive, host=host)
        asyncio.run(kept_results.show_listing(connection.endpoint(), chosen, json=json, out=sys.stdout))
        return
    if drive or host or limit is not None:
        raise UsageError("--drive, --host and --limit choose from the list: remove them, or RESULT")
    if output is not None and (full or json):
        raise UsageError("-o saves the file of RESULT, and shows nothing: remove -o, or --full and --json")
    code = bench_command.show_kept(
        connection.endpoint(), result, output, full=full, json=json, out=sys.stdout, err=sys.stderr
    )
    raise typer.Exit(code)
