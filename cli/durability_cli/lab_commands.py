"""The commands of the lab, `durability lab …`: each turns its options into one call and an exit code.

Commands import the lab only inside their functions, so `--help` is quick and no other command loads the lab.
"""

from __future__ import annotations

import asyncio
import secrets
import sys

import typer

from durability.errors import UsageError
from durability.formats.workloads import registry
from durability.units import parse_size
from durability_cli import lab_options, options

lab = typer.Typer(
    help="Test the tester on drives with known faults.", no_args_is_help=True, rich_markup_mode=None
)


@lab.command()
def matrix(
    *,
    quick: lab_options.MatrixQuick = False,
    rig: lab_options.Rigs = None,
    only: lab_options.MatrixCells = "",
    cuts: lab_options.CutsOfCell = None,
    seed: lab_options.MatrixSeed = None,
    cut: lab_options.CutNumber = None,
    state: lab_options.State = None,
    markdown: lab_options.Markdown = None,
    verbose: lab_options.Verbose = False,
    json: options.Json = False,
) -> None:
    """Cut every lab drive and grade the verdicts.

    Compares each verdict with what the drive really lost. Exit code 0 if every honest drive is durable,
    every missed fault has an explanation and no finding is false.
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
def histories(
    *,
    rig: lab_options.HistoriesRig = lab_options.RigOfHistories.a,
    count: lab_options.Count = None,
    seed: lab_options.HistoriesSeed = None,
    replay: lab_options.Replay = None,
    output: lab_options.FailedHistory = None,
    json: options.Json = False,
) -> None:
    """Play random histories of runs, errors, cuts and restarts.

    Compares each verdict with what happened. Exit code 0 if every verdict is correct. Rig a plays each
    history in virtual time on simulated drives. Rig b plays it on real file systems and takes 10 to 25
    seconds per history.
    """
    from durability_lab.histories import libraries

    libraries.require()
    from durability_lab.histories.histories_command import HistoriesOptions
    from durability_lab.histories.histories_command import histories as play

    chosen = HistoriesOptions(rig=rig.value, count=count, seed=seed, replay=replay, output=output, json=json)
    raise typer.Exit(play(chosen, out=sys.stdout, err=sys.stderr))


@lab.command(epilog=options.BYTES_EPILOG)
def drive(
    model: lab_options.Model = None,
    *,
    size: lab_options.DriveSize = "1GiB",
    file_system: lab_options.DriveFileSystem = None,
    seed: lab_options.DriveSeed = None,
    directory: lab_options.Directory = None,
    list_: lab_options.ListModels = False,
) -> None:
    """Provide a faulty drive as a block device.

    Any program can use the drive. Reads commands from stdin, one per line: cut (remove power), on (restore
    power), status, quit. Needs root.
    """
    from durability_lab.kernel_rig import drive_command

    if list_:
        drive_command.list_models(sys.stdout)
        return
    if model is None:
        raise UsageError("MODEL is missing: `durability lab drive --list` lists the models")
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
    drives: lab_options.Models = None,
    *,
    file_system: lab_options.GuestFileSystem = "ext4",
    workload: lab_options.GuestWorkload = registry.DEFAULT,
    cuts: lab_options.CutsOfDrive = 1,
    seed: lab_options.CutSeed = None,
    keep_log: lab_options.KeepLog = None,
    json: options.Json = False,
) -> None:
    """Cut the power of a virtual machine.

    The guest runs the client against a server outside, loses power, boots again and verifies. Exit code 0 if
    every verdict is the one expected for its drive. Needs root.
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


@lab.command()
def campaign(
    models: lab_options.Models = None,
    *,
    rig: lab_options.RigOfCampaign = "b",
    cuts: lab_options.CutsOfCampaign = 3,
    file_system: lab_options.DriveFileSystem = None,
    live: lab_options.LiveIso = None,
    firmware: lab_options.LiveFirmware = None,
    seed: lab_options.CutSeed = None,
    json: options.Json = False,
) -> None:
    """Run a campaign on drives with known faults.

    Server, agent and switch are real. Each drive takes part until its first loss. On rig b, server, agent and
    drives all run on this machine. On rig c, a BMC cuts a virtual machine that has all drives and runs the
    agent. Exit code 0 if every honest drive was durable in all cuts and every lying drive was caught. Needs
    root.
    """
    from durability_lab.campaign_rig.lab_campaign_command import CampaignOptions
    from durability_lab.campaign_rig.lab_campaign_command import campaign as make_campaign
    from durability_lab.vm_rig.live_machine import LiveImage

    if live is None and firmware is not None:
        raise UsageError("--firmware needs --live")
    image = None if live is None else LiveImage(iso=live, firmware=firmware or lab_options.LIVE_FIRMWARE)
    chosen = CampaignOptions(
        models=tuple(models or CampaignOptions().models),
        cuts=cuts,
        file_system=file_system,
        seed=secrets.randbits(32) if seed is None else seed,
        json=json,
        rig=rig,
        live=image,
    )
    raise typer.Exit(asyncio.run(make_campaign(chosen, out=sys.stdout, err=sys.stderr)))
