"""What the options of the commands are: type, name, bounds and help of each; the commands have the defaults.

Apart from the commands so that these can be read at a glance. Used as `options.Size`; the benchmark's are
with its commands.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from durability import limits
from durability.formats import plan
from durability.formats.workloads.registry import WORKLOADS

CutClass: TypeAlias = Literal["power", "vm", "os"]
if TYPE_CHECKING:
    _WorkloadName: TypeAlias = str
else:  # what typer makes choices of
    _WorkloadName = Literal[tuple(WORKLOADS)]


def path(text: str) -> Path:
    """What parses every path, so that one that cannot be read gets the tool's own sentence and exit code.

    Raises typer.BadParameter for an empty one, which would mean the current directory.
    """
    if not text:
        raise typer.BadParameter("the path is empty; is a variable of the shell unset?")
    return Path(text)


# Of several commands.
Target = Annotated[
    Path, typer.Argument(parser=path, metavar="TARGET", help="A file (made if missing) or a block device.")
]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run's 16 hexadecimal digits.")]
Server = Annotated[
    str, typer.Option("--server", metavar="HOST:PORT", help="Where `durability serve` listens.")
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        parser=path,
        metavar="FILE",
        help="The token that both machines share. Default: where `serve` puts it.",
    ),
]
TlsCa = Annotated[
    Path | None,
    typer.Option(parser=path, metavar="FILE", help="Use TLS; the certificate authority of the server."),
]
TlsFingerprint = Annotated[
    str | None, typer.Option(metavar="HEX", help="Use TLS; the SHA-256 of the server's certificate.")
]
Limit = Annotated[int, typer.Option(min=1, max=limits.LISTING_ROWS_MAX, help="The newest so many.")]
Json = Annotated[bool, typer.Option("--json", help="JSON on stdout, nothing else there.")]

# Of `serve`.
Listen = Annotated[str, typer.Option(metavar="HOST:PORT", help="Port 0: any free one.")]
Store = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="sqlite:///FILE or postgresql://… Default: SQLite in the state directory."
    ),
]
ServerTokenFile = Annotated[
    Path | None,
    typer.Option(
        parser=path, metavar="FILE", help="The token; made if missing. Default: in the state directory."
    ),
]
TlsCert = Annotated[Path | None, typer.Option(parser=path, metavar="FILE", help="Listen with TLS; PEM.")]
TlsKey = Annotated[
    Path | None, typer.Option(parser=path, metavar="FILE", help="Its key, if it is not in the same file.")
]

# Of `run`.
Size = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Of all writers together. Default: 1GiB; 64MiB of names.")
]
RecordSize = Annotated[str, typer.Option(metavar="SIZE", help="A multiple of 512 up to 1MiB.")]
Writers = Annotated[int, typer.Option(min=1, max=limits.WRITERS_MAX)]
Workload = Annotated[
    _WorkloadName, typer.Option(help="Write in place, let logs grow, or make, replace, remove files.")
]
Pattern = Annotated[
    plan.Pattern | None, typer.Option(help="Default: random; append and create are always sequential.")
]
Sync = Annotated[plan.SyncMethod, typer.Option(help="What makes a write durable.")]
Direct = Annotated[bool, typer.Option("--direct", help="Bypass the page cache (O_DIRECT).")]
Group = Annotated[int, typer.Option(min=1, max=limits.GROUP_MAX, help="Operations to one sync.")]
Duration = Annotated[float | None, typer.Option(metavar="S", help="Stop after so many seconds.")]
Label = Annotated[str, typer.Option(metavar="TEXT", help="Kept with the run.")]
Control = Annotated[bool, typer.Option(help="The control arm: writes that are never synced.")]
AllowSharedBlocks = Annotated[
    bool,
    typer.Option("--allow-shared-blocks", help="Records smaller than, or across, the device's blocks."),
]
DestroyData = Annotated[
    bool, typer.Option("--destroy-data", help="Overwrite a block device; all on it is lost.")
]
Force = Annotated[
    bool,
    typer.Option("--force", help="Also over a recognised signature, or an earlier run not yet verified."),
]

# Of `verify`.
VerifyTarget = Annotated[
    Path | None, typer.Argument(parser=path, metavar="TARGET", help="The file or device of the run.")
]
Run = Annotated[str | None, typer.Option(metavar="RUN", help="Default: what TARGET or the server says.")]
AttestCut = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Your word that the power was cut, and how.")
]
AttestedClass = Annotated[CutClass | None, typer.Option(help="What --attest-cut attests. Default: power.")]
RequireCut = Annotated[CutClass, typer.Option(help="The least class of cut for `durable`.")]
MinCuts = Annotated[int, typer.Option(min=1, help="So many cuts of the series for `durable`.")]
Device = Annotated[
    Path | None,
    typer.Option(parser=path, metavar="DEV", help="Where TARGET lay, if its file system does not mount."),
]
FromExport = Annotated[
    Path | None, typer.Option(parser=path, metavar="FILE", help="Judge by this export, without the server.")
]
Junit = Annotated[Path | None, typer.Option(parser=path, metavar="FILE", help="Also write a JUnit report.")]

# Of `export` and `demo`.
Output = Annotated[
    Path | None, typer.Option("-o", "--output", parser=path, metavar="FILE", help="Default: stdout.")
]
DemoSeed = Annotated[int | None, typer.Option(min=0, help="The drives and cuts of an earlier demo again.")]


class Rig(Enum):
    """An enumeration, because typer knows no list of literals."""

    a = "a"
    b = "b"
    c = "c"


# Of `lab matrix`.
Quick = Annotated[
    bool, typer.Option("--quick", help="Every drive on rig a and some on rig b: under two minutes.")
]
Rigs = Annotated[
    list[Rig] | None,
    typer.Option(help="a: simulated; b: real file systems; c: a virtual machine. Repeat it for several."),
]
OnlyCells = Annotated[str, typer.Option(metavar="TEXT", help="Only cells with this in their name.")]
CutsOfCell = Annotated[int | None, typer.Option(min=1, help="So many of each cell.")]
MatrixSeed = Annotated[
    int | None, typer.Option(min=0, help="Of all cuts. Default: the --state file's, or any; printed.")
]
CutNumber = Annotated[
    int | None, typer.Option(min=1, metavar="NUMBER", help="Only this cut of each cell, again.")
]
State = Annotated[
    Path | None,
    typer.Option(
        parser=path, metavar="FILE", help="Keep each cut's result there; go on where it was stopped."
    ),
]
Markdown = Annotated[
    Path | None, typer.Option(parser=path, metavar="FILE", help="Also write the page docs/detection.md.")
]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="A row for each cell.")]

# Of `lab drive`.
FileSystem: TypeAlias = Literal["ext4", "xfs", "btrfs"]
Model = Annotated[
    str | None, typer.Argument(metavar="MODEL", help="Such as honest, or early-ack:delay_ms=100.")
]
DriveSize = Annotated[str, typer.Option(metavar="SIZE", help="Of the drive.")]
DriveFileSystem = Annotated[
    FileSystem | None, typer.Option(help="Make one and mount it. Default: a raw device.")
]
DriveSeed = Annotated[int | None, typer.Option(min=0, help="Of its faults. Default: any; printed.")]
Directory = Annotated[
    Path | None,
    typer.Option(parser=path, metavar="DIR", help="For media and mount point. Default: in memory."),
]
ListModels = Annotated[bool, typer.Option("--list", help="List the models and end.")]

# Of `lab vm`.
Models = Annotated[
    list[str] | None,
    typer.Argument(metavar="[MODEL]...", help="Drives. Default: honest and flush-ignored."),
]
GuestFileSystem = Annotated[Literal["ext4", "none"], typer.Option(help="none: the raw device.")]
GuestWorkload = Annotated[_WorkloadName, typer.Option(help="As of `durability run`.")]
CutsOfDrive = Annotated[int, typer.Option(min=1, help="So many of each drive.")]
CutSeed = Annotated[int | None, typer.Option(min=0, help="Default: any; printed.")]
KeepLog = Annotated[
    Path | None, typer.Option(parser=path, metavar="FILE", help="Append what the guest said to it.")
]
