"""The command line of the lab, `durability lab …`: options in, one call, an exit code out.

Like `cli` it knows the lab only inside its functions, so that `--help` is quick and no other command loads
it.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from durability.errors import UsageError
from durability.plan import Workload
from durability.units import parse_size

lab = typer.Typer(
    help="Drives that lose power on command, and the tester tested on them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

FileSystem: TypeAlias = Literal["ext4", "xfs", "btrfs"]
GuestFileSystem: TypeAlias = Literal["ext4", "none"]

Json = Annotated[bool, typer.Option("--json", help="JSON on stdout, nothing else there.")]


class _Rig(Enum):
    """An enumeration, because typer knows no list of literals."""

    a = "a"
    b = "b"
    c = "c"


@lab.command()
def matrix(
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="Every drive on rig a and some on rig b: under two minutes.")
    ] = False,
    rig: Annotated[
        list[_Rig] | None,
        typer.Option(help="a: simulated; b: real file systems; c: a virtual machine. Repeat it for several."),
    ] = None,
    only: Annotated[str, typer.Option(metavar="TEXT", help="Only cells with this in their name.")] = "",
    cuts: Annotated[int | None, typer.Option(min=1, help="So many of each cell.")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of all cuts. Default: the --state file's, or any; printed.")
    ] = None,
    cut: Annotated[
        int | None, typer.Option(min=1, metavar="NUMBER", help="Only this cut of each cell, again.")
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keep each cut's result there; go on where it was stopped."),
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the page docs/detection.md.")
    ] = None,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="A row for each cell.")] = False,
    json: Json = False,
) -> None:
    """Cut the power of every drive of the lab, again and again.

    And hold each verdict against the truth. The exit code is 0 if there is no false alarm and no miss
    without an explanation.
    """
    from durability_lab.matrix import MatrixOptions
    from durability_lab.matrix import matrix as make_matrix

    options = MatrixOptions(
        quick=quick,
        rigs=tuple(one.value for one in rig or ()),
        only=only,
        cuts=cuts,
        cut=cut,
        seed=seed,
        state=state,
        markdown=markdown,
        json=json,
        verbose=verbose,
    )
    raise typer.Exit(asyncio.run(make_matrix(options, out=sys.stdout, err=sys.stderr)))


@lab.command()
def drive(
    model: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="Such as honest, or early-ack:delay_ms=100.")
    ] = None,
    *,
    size: Annotated[str, typer.Option(metavar="SIZE", help="Of the drive.")] = "1GiB",
    file_system: Annotated[
        FileSystem | None, typer.Option(help="Make one and mount it. Default: a raw device.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of its faults. Default: any; printed.")] = None,
    directory: Annotated[
        Path | None, typer.Option(metavar="DIR", help="For media and mount point. Default: in memory.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the models and end.")] = False,
) -> None:
    """Stand a drive up as a block device, for any program.

    Then read commands from stdin, one a line: cut (the power goes), on (it comes back), status, quit.
    """
    from durability_lab import drive_command

    if list_:
        drive_command.list_models(sys.stdout)
        return
    if model is None:
        raise UsageError("name a MODEL; --list has them")
    options = drive_command.DriveOptions(
        model=model,
        size_bytes=parse_size(size),
        file_system=file_system,
        seed=secrets.randbits(32) if seed is None else seed,
        directory=directory,
    )
    drive_command.drive(options, commands=sys.stdin, out=sys.stdout, err=sys.stderr)


@lab.command()
def vm(
    drives: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODEL]...", help="Drives. Default: honest and flush-ignored."),
    ] = None,
    *,
    file_system: Annotated[GuestFileSystem, typer.Option(help="none: the raw device.")] = "ext4",
    workload: Annotated[Workload, typer.Option(help="As of `durability run`.")] = "overwrite",
    cuts: Annotated[int, typer.Option(min=1, help="So many of each drive.")] = 1,
    seed: Annotated[int | None, typer.Option(min=0, help="Default: any; printed.")] = None,
    keep_log: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Append what the guest said to it.")
    ] = None,
    json: Json = False,
) -> None:
    """Pull the plug of a virtual machine with an NVMe drive.

    The guest runs the client against a server outside, loses its power, boots again and verifies. The exit
    code is 0 if each verdict is the one that its drive deserves.
    """
    from durability_lab.vm_command import VmOptions
    from durability_lab.vm_command import vm as cut_machines

    defaults = VmOptions()
    options = VmOptions(
        drives=tuple(drives or defaults.drives),
        file_system=file_system,
        workload=workload,
        cuts=cuts,
        seed=seed,
        json=json,
        keep_log=keep_log,
    )
    raise typer.Exit(asyncio.run(cut_machines(options, sys.stdout, sys.stderr)))
