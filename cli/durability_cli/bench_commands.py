"""The commands of the benchmark, `bench` and `compare`, with their options. `main` registers them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from durability.bench.catalogue import ACCEPT_MINUTES, PROFILES
from durability.bench.measurement import Engine
from durability.errors import UsageError
from durability.units import parse_size
from durability_cli.options import DestroyData, Json, path

_SEEDS = 1 << 62  # a result file holds no larger number
Html = Annotated[Path | None, typer.Option(metavar="FILE", parser=path, help="Also write an HTML report.")]


def bench(
    target: Annotated[
        Path | None,
        typer.Argument(
            metavar="TARGET", parser=path, help="Existing directory, file in one, or block device."
        ),
    ] = None,
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            parser=path,
            help="New file for the result.",
            show_default="state directory",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Measure fewer cells in 20 seconds; results are not comparable.")
    ] = False,
    accept: Annotated[bool, typer.Option("--accept", help="Add sustained loads.")] = False,
    minutes: Annotated[
        float | None,
        typer.Option(metavar="MINUTES", help="Total time with --accept.", show_default=f"{ACCEPT_MINUTES}"),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Measure only this cell or group; repeatable.", show_default="all"),
    ] = None,
    profile: Annotated[
        str, typer.Option(metavar="NAME", help=f"Workload preset: {', '.join(PROFILES)}.")
    ] = "",
    size: Annotated[
        str | None,
        typer.Option(
            metavar="BYTES", help="Data shared by a cell's jobs.", show_default="256MiB; 1GiB with --accept"
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Seed of order and offsets.", show_default="random")
    ] = None,
    engine: Annotated[Engine, typer.Option(help="fio: also measure with fio.")] = "durability",
    destroy_data: DestroyData = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Allow a known signature, an unverified run or an unexpected file system.",
        ),
    ] = False,
    show_serials: Annotated[
        bool, typer.Option("--show-serials", help="Do not hash serial numbers in the result.")
    ] = False,
    show: Annotated[
        Path | None, typer.Option(metavar="FILE", parser=path, help="Print a saved result; measure nothing.")
    ] = None,
    html: Html = None,
    json: Json = False,
) -> None:
    """Measure commit latency and rate on TARGET.

    Also says whether the figures are plausible for the hardware. Takes about a minute. Removes its own files
    afterwards.
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
            raise UsageError(f"--show FILE measures nothing: remove {', '.join(useless)}")
        raise typer.Exit(bench_command.show(show, sys.stdout, html=html, json=json))
    if target is None:
        raise UsageError("TARGET is missing: name a directory, a file in a directory, or a block device")
    if seed is not None and seed >= _SEEDS:
        raise UsageError(f"--seed {seed} is too large: use a number below 2^62")
    if minutes is not None and not accept:
        raise UsageError("--minutes needs --accept")
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
        list[Path],
        typer.Argument(
            metavar="FILE...", parser=path, help="Result files of `bench`; the first is the baseline."
        ),
    ],
    *,
    html: Html = None,
    json: Json = False,
) -> None:
    """Compare benchmark results with the first.

    Exit code 2 if results are not comparable, with the reasons.
    """
    from durability_client.bench import bench_command

    raise typer.Exit(bench_command.compare_files(results, sys.stdout, html=html, json=json))
