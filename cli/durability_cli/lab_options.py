"""The options of the commands `durability lab …`, as those of the others are in `options`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

import typer

from durability.campaign.definition.settings import CUTS_MAX
from durability_cli.options import RANDOM, WORKLOAD_SUMMARIES, WorkloadName, path, whole


class Rig(Enum):
    """An enumeration, because typer cannot parse a list of literals."""

    a = "a"
    b = "b"
    c = "c"


class RigOfHistories(Enum):
    """As `Rig`, without the virtual machine."""

    a = "a"
    b = "b"


# Of `lab matrix`.
MatrixQuick = Annotated[
    bool, typer.Option("--quick", help="Finish in under two minutes: rig a and part of rig b.")
]
Rigs = Annotated[
    list[Rig] | None,
    typer.Option(
        help="a: simulated drives. b: real file systems (root). c: virtual machine (root). Repeatable.",
        show_default="all; a and b with --quick",
    ),
]
MatrixCells = Annotated[str, typer.Option(metavar="TEXT", help="Run only cells whose name contains TEXT.")]
CutsOfCell = Annotated[
    int | None,
    typer.Option(metavar="N", parser=whole(1), help="Cuts per cell.", show_default="depends on the cell"),
]
MatrixSeed = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        parser=whole(0),
        help="Seed of all cuts; printed.",
        show_default=f"from the --state file, else {RANDOM}",
    ),
]
CutNumber = Annotated[
    int | None,
    typer.Option(
        parser=whole(1),
        metavar="N",
        help="Repeat only cut N of each cell; needs that matrix's --seed, --quick and --cuts.",
    ),
]
State = Annotated[
    Path | None,
    typer.Option(
        parser=path, metavar="FILE", help="File to save each result in; a repeated command resumes from it."
    ),
]
Markdown = Annotated[
    Path | None, typer.Option(parser=path, metavar="FILE", help="Also write the report page (Markdown).")
]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Print a row for each cell.")]

# Of `lab histories`.
HistoriesRig = Annotated[
    RigOfHistories,
    typer.Option("--rig", help="a: simulated drives. b: real file systems (root).", show_default="a"),
]
Count = Annotated[
    int | None,
    typer.Option(metavar="N", parser=whole(1), help="Number of histories to play.", show_default="300"),
]
HistoriesSeed = Annotated[
    int | None,
    typer.Option(metavar="N", parser=whole(0), help="Seed of all histories; printed.", show_default=RANDOM),
]
Replay = Annotated[
    Path | None, typer.Option(parser=path, metavar="FILE", help="Play only the history in this file.")
]
FailedHistory = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        parser=path,
        metavar="FILE",
        help="New file for a history that got a wrong verdict.",
        show_default="history-SEED.txt",
    ),
]

# Of `lab drive`.
FileSystem: TypeAlias = Literal["ext4", "xfs", "btrfs"]
Model = Annotated[
    str | None,
    typer.Argument(metavar="MODEL", help="Drive model, e.g. honest or early-ack:delay_ms=100; see --list."),
]
DriveSize = Annotated[str, typer.Option(metavar="BYTES", help="Drive capacity, a multiple of 4096.")]
DriveFileSystem = Annotated[
    FileSystem | None, typer.Option(help="File system to create and mount.", show_default="raw device")
]
DriveSeed = Annotated[
    int | None,
    typer.Option(
        metavar="N", parser=whole(0), help="Seed of the drive's faults; printed.", show_default=RANDOM
    ),
]
Directory = Annotated[
    Path | None,
    typer.Option(
        parser=path,
        metavar="DIRECTORY",
        help="Directory for the drive's media and mount point.",
        show_default="memory",
    ),
]
ListModels = Annotated[bool, typer.Option("--list", help="List the drive models and exit.")]

# Of `lab vm` and `lab campaign`.
Models = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[MODEL]...",
        help="Drive models; see `lab drive --list`.",
        show_default="honest and flush-ignored",
    ),
]
GuestFileSystem = Annotated[
    Literal["ext4", "none"], typer.Option(help="File system in the guest; none is the raw device.")
]
GuestWorkload = Annotated[
    WorkloadName, typer.Option(help=f"What the writers in the guest do: {WORKLOAD_SUMMARIES}.")
]
RigOfCampaign = Annotated[
    Literal["b", "c"], typer.Option(help="b: block devices of this machine; c: drives of a virtual machine.")
]
LiveIso = Annotated[
    Path | None,
    typer.Option(
        "--live",
        parser=path,
        metavar="ISO",
        help="Live image that the virtual machine of rig c boots.",
        show_default="the lab's own system",
    ),
]
LIVE_FIRMWARE: Final = "bios"
LiveFirmware = Annotated[
    Literal["bios", "uefi"] | None,
    typer.Option(help="Firmware of the machine that boots the live image.", show_default=LIVE_FIRMWARE),
]
CutsOfCampaign = Annotated[
    int, typer.Option(metavar="N", parser=whole(1, CUTS_MAX), help=f"Cuts per drive (1 to {CUTS_MAX}).")
]
CutsOfDrive = Annotated[int, typer.Option(metavar="N", parser=whole(1), help="Cuts per drive.")]
CutSeed = Annotated[
    int | None,
    typer.Option(metavar="N", parser=whole(0), help="Seed of the first cut; printed.", show_default=RANDOM),
]
KeepLog = Annotated[
    Path | None, typer.Option(parser=path, metavar="FILE", help="Append guest console output to this file.")
]
