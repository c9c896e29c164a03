"""The command line of the lab, `durability lab …`: options in, one call, an exit code out.

Like `cli` it knows the lab only inside its functions, so that `--help` is quick and no other command loads
it.
"""

from __future__ import annotations

import asyncio
import secrets
import sys

import typer

from durability.errors import UsageError
from durability.units import parse_size
from durability_cli import options

lab = typer.Typer(
    help="Drives that lose power on command, and the tester tested on them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@lab.command()
def matrix(
    *,
    quick: options.Quick = False,
    rig: options.Rigs = None,
    only: options.OnlyCells = "",
    cuts: options.CutsOfCell = None,
    seed: options.MatrixSeed = None,
    cut: options.CutNumber = None,
    state: options.State = None,
    markdown: options.Markdown = None,
    verbose: options.Verbose = False,
    json: options.Json = False,
) -> None:
    """Cut the power of every drive of the lab, again and again.

    And hold each verdict against the truth. The exit code is 0 if there is no false alarm and no miss
    without an explanation.
    """
    from durability_lab.matrix.matrix_command import MatrixOptions
    from durability_lab.matrix.matrix_command import matrix as make_matrix

    chosen = MatrixOptions(
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
    raise typer.Exit(asyncio.run(make_matrix(chosen, out=sys.stdout, err=sys.stderr)))


@lab.command()
def drive(
    model: options.Model = None,
    *,
    size: options.DriveSize = "1GiB",
    file_system: options.DriveFileSystem = None,
    seed: options.DriveSeed = None,
    directory: options.Directory = None,
    list_: options.ListModels = False,
) -> None:
    """Stand a drive up as a block device, for any program.

    Then read commands from stdin, one a line: cut (the power goes), on (it comes back), status, quit.
    """
    from durability_lab.kernel_rig import drive_command

    if list_:
        drive_command.list_models(sys.stdout)
        return
    if model is None:
        raise UsageError("name a MODEL; --list has them")
    chosen = drive_command.DriveOptions(
        model=model,
        size_bytes=parse_size(size),
        file_system=file_system,
        seed=secrets.randbits(32) if seed is None else seed,
        directory=directory,
    )
    drive_command.drive(chosen, commands=sys.stdin, out=sys.stdout, err=sys.stderr)


@lab.command()
def vm(
    drives: options.Models = None,
    *,
    file_system: options.GuestFileSystem = "ext4",
    workload: options.GuestWorkload = "overwrite",
    cuts: options.CutsOfDrive = 1,
    seed: options.CutSeed = None,
    keep_log: options.KeepLog = None,
    json: options.Json = False,
) -> None:
    """Pull the plug of a virtual machine with an NVMe drive.

    The guest runs the client against a server outside, loses its power, boots again and verifies. The exit
    code is 0 if each verdict is the one that its drive deserves.
    """
    from durability_lab.vm_rig.vm_command import VmOptions
    from durability_lab.vm_rig.vm_command import vm as cut_machines

    chosen = VmOptions(
        drives=tuple(drives or VmOptions().drives),
        file_system=file_system,
        workload=workload,
        cuts=cuts,
        seed=seed,
        json=json,
        keep_log=keep_log,
    )
    raise typer.Exit(asyncio.run(cut_machines(chosen, sys.stdout, sys.stderr)))
