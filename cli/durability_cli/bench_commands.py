"""The commands of the benchmark, registered by `cli`: options in, one call, an exit code out.

Apart from `cli` only because of its length; what is said there holds here.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from durability.bench.catalogue import ACCEPT_MINUTES, PROFILES
from durability.errors import UsageError
from durability.units import parse_size
from durability_cli.options import Json, path

Engine: TypeAlias = Literal["durability", "fio"]
Html = Annotated[
    Path | None, typer.Option(metavar="FILE", parser=path, help="Also a page with pictures, in one file.")
]


def bench(
    target: Annotated[
        Path | None,
        typer.Argument(metavar="TARGET", parser=path, help="A directory, a file in one, or a block device."),
    ] = None,
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            parser=path,
            help="The result. Default: in the state directory.",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="20 seconds; not to be compared.")] = False,
    accept: Annotated[bool, typer.Option("--accept", help="Also a load held for long.")] = False,
    minutes: Annotated[
        float | None, typer.Option(metavar="N", help=f"Of --accept, in all. Default: {ACCEPT_MINUTES}.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="These cells or groups; may be repeated.")
    ] = None,
    profile: Annotated[str, typer.Option(metavar="NAME", help=f"One of {', '.join(PROFILES)}.")] = "",
    size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="That jobs share. Default: 256MiB, with --accept 1GiB.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=(1 << 62) - 1, help="Of order and places.")] = None,
    engine: Annotated[Engine, typer.Option(help="fio: measure with it as well.")] = "durability",
    destroy_data: Annotated[
        bool, typer.Option("--destroy-data", help="Overwrite a block device; all on it is lost.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Also over a recognised signature.")] = False,
    show_serials: Annotated[
        bool, typer.Option("--show-serials", help="Keep serial numbers as they are in the result.")
    ] = False,
    show: Annotated[
        Path | None,
        typer.Option(metavar="FILE", parser=path, help="Print a result; measure nothing."),
    ] = None,
    html: Html = None,
    json: Json = False,
) -> None:
    """Measure what a sync costs on TARGET.

    And whether to believe it. Takes about a minute; files that it makes are removed.
    """
    from durability_client.bench import bench_command

    if show is not None:
        given = {
            "TARGET": target is not None,
            "-o": output is not None,
            "--quick": quick,
            "--accept": accept,
            "--minutes": minutes is not None,
            "--only": only,
            "--profile": profile,
            "--size": size is not None,
            "--seed": seed is not None,
            "--engine": engine != "durability",
            "--destroy-data": destroy_data,
            "--force": force,
            "--show-serials": show_serials,
        }
        if useless := [name for name, whether in given.items() if whether]:
            raise UsageError(f"--show FILE measures nothing: leave out {', '.join(useless)}")
        raise typer.Exit(bench_command.show(show, sys.stdout, html=html, json=json))
    if target is None:
        raise UsageError("bench takes a TARGET: a directory, a file in one, or a block device")
    if minutes is not None and not accept:
        raise UsageError("--minutes belongs to --accept")
    options = bench_command.BenchOptions(
        target=target,
        output=output,
        quick=quick,
        accept_minutes=(ACCEPT_MINUTES if minutes is None else minutes) if accept else None,
        only=tuple(only or ()),
        profile=profile,
        size_bytes=None if size is None else parse_size(size),
        seed=seed,
        destroy_data=destroy_data,
        force=force,
        show_serials=show_serials,
        engine=engine,
        html=html,
        json=json,
    )
    raise typer.Exit(bench_command.bench(options, sys.stdout, sys.stderr))


def compare(
    results: Annotated[
        list[Path], typer.Argument(metavar="FILE...", parser=path, help="Results of `bench`.")
    ],
    *,
    html: Html = None,
    json: Json = False,
) -> None:
    """Hold results against the first.

    The exit code is 2 where they cannot be compared; it says why.
    """
    from durability_client.bench import bench_command

    raise typer.Exit(bench_command.compare_files(results, sys.stdout, html=html, json=json))
