"""The options of the commands: type, name, bounds and help of each. Defaults are in the commands.

A help text is one sentence with its unit; `show_default` states a default that is computed. The page
docs/reference/cli.md has tables of these texts, printed by `tests/cli/help_page.py`. Those of the lab are in
`lab_options`; those of the benchmark, of `accept`, `agent` and `campaign` are with their commands.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from durability import limits
from durability.formats import plan
from durability.formats.case import ProvableCutClass
from durability.formats.workloads import workload
from durability.formats.workloads.registry import WORKLOADS
from durability.protocol.auth import Role
from durability.protocol.local_address import PORT

if TYPE_CHECKING:
    from durability_client.link.endpoint import Endpoint

if TYPE_CHECKING:
    WorkloadName: TypeAlias = str
else:  # what typer makes choices of
    WorkloadName = Literal[tuple(WORKLOADS)]

LISTEN = f"0.0.0.0:{PORT}"
BYTES_EPILOG = "BYTES: a number, alone or with K or KiB, M, G, T (1024) or KB to TB (1000)."
_STATE_DIRECTORY = "state directory"
_CREDENTIAL = "the file of `durability join`"
RANDOM = "random"
CODE_DAYS = 30
_CODE_DAYS_MAX = limits.MACHINE_CODE_S_MAX // 86_400
WORKLOAD_SUMMARIES = ", ".join(one.summary for one in WORKLOADS.values())


def path(text: str) -> Path:
    """Parse a path. Raises typer.BadParameter for an empty one, which would mean the current directory.

    Every option that is a path uses this parser, so that the tool's own message and exit code appear when
    the file cannot be read.
    """
    if not text:
        raise typer.BadParameter("the path is empty: check whether a shell variable is unset")
    return Path(text)


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """A parser of whole numbers from `least` to `most`, None: to any. A help text states a highest itself: in
    help and messages typer's own range would be "1<=x<=256"."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is not a whole number") from None
        if number < least or (most is not None and number > most):
            highest = "or more" if most is None else f"to {most}"
            raise typer.BadParameter(f"{number} is out of range: type {least} {highest}")
        return number

    return parse


# Of several commands.
Target = Annotated[
    Path, typer.Argument(parser=path, metavar="TARGET", help="Block device, or file that `run` creates.")
]
DeviceTarget = Annotated[
    Path, typer.Argument(parser=path, metavar="TARGET", help="File or block device to examine.")
]
RunId = Annotated[
    str,
    typer.Argument(metavar="RUN", help="Run id: 16 hexadecimal digits, listed by `durability runs --all`."),
]
Limit = Annotated[
    int,
    typer.Option(
        metavar="N",
        parser=whole(1, limits.LISTING_ROWS_MAX),
        help=f"Number of drives, or of runs, to list (1 to {limits.LISTING_ROWS_MAX}).",
    ),
]
AllRuns = Annotated[bool, typer.Option("--all", help="List each run instead of each drive.")]
OfRunDrive = Annotated[
    str,
    typer.Option("--drive", metavar="TEXT", help="List only drives whose model or serial contains TEXT."),
]
OfHost = Annotated[
    str, typer.Option("--host", metavar="TEXT", help="List only runs of machines whose name contains TEXT.")
]
OfClients = Annotated[
    list[str] | None,
    typer.Option(
        "--client",
        metavar="NAME",
        help="Client whose runs and results count; repeatable.",
        show_default="the only client with runs on the drive",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")]
DestroyData = Annotated[
    bool, typer.Option("--destroy-data", help="Overwrite a block device. ALL ITS DATA WILL BE LOST.")
]


def _server_option(default: str) -> Any:
    """The option `--server` of a command that takes the server `default` without it."""
    return typer.Option(
        "--server",
        metavar="HOST[:PORT]",
        envvar="DURABILITY_SERVER",
        show_envvar=False,
        help="Address of the server.",
        show_default=default,
    )


def _credential_option(text: str, default: str) -> Any:
    """The option `--credential` of a command that uses the file `default` without it."""
    return typer.Option(
        "--credential",
        parser=path,
        metavar="FILE",
        envvar="DURABILITY_CREDENTIAL",
        show_envvar=False,
        help=text,
        show_default=default,
    )


# Of every command that talks to a server; `on_server` adds them.
Server = Annotated[str | None, _server_option("the joined one, or that of this machine")]
CredentialFile = Annotated[
    Path | None, _credential_option("File with this machine's credential for the server.", _CREDENTIAL)
]
NewCredential = Annotated[
    Path | None,
    _credential_option(
        "New file for this machine's credential.", "/etc/durability for root, else ~/.config/durability"
    ),
]
OperatorServer = Annotated[str | None, _server_option("that of this machine, or the joined one")]
JoinedServer = Annotated[str | None, _server_option("the joined one")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """How a command reaches its server. Each field is an option of every command under `on_server`."""

    server: Server = None
    credential: CredentialFile = None

    def endpoint(self, *, as_operator: bool = False) -> Endpoint:
        """The server, and who this client is. `as_operator`: a server on this machine comes first. Raises
        UsageError, SetupError and FormatError."""
        from durability_client.link.endpoint import endpoint

        return endpoint(self.server, self.credential, as_operator=as_operator)


def operator_endpoint(context: typer.Context) -> Endpoint:
    """The server of a group's options, for the operator first. Raises as `ServerOptions.endpoint`."""
    connection: ServerOptions = context.obj
    return connection.endpoint(as_operator=True)


def on_server(command: Callable[..., None]) -> Callable[..., None]:
    """`command` as typer sees it: its parameter `connection` is replaced by the fields of `ServerOptions`."""
    shared = inspect.signature(ServerOptions, eval_str=True).parameters

    @functools.wraps(command)
    def with_connection(**given: Any) -> None:
        connection = ServerOptions(**{name: given.pop(name) for name in shared})
        command(connection=connection, **given)

    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        parameters.extend(shared.values() if name == "connection" else [parameter])
    with_connection.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_connection.__annotations__ = {one.name: one.annotation for one in parameters}
    return with_connection


# Of `serve`.
Listen = Annotated[
    str,
    typer.Option(
        metavar="HOST[:PORT]", help="Address to listen on; port 7420 unless given, port 0 picks a free one."
    ),
]
Store = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Database: sqlite:///FILE or postgresql://USER@HOST/NAME.",
        show_default=f"SQLite, {_STATE_DIRECTORY}",
    ),
]


Advertise = Annotated[
    str | None,
    typer.Option(
        metavar="HOST[:PORT]",
        help="Address at which other machines reach this server.",
        show_default="--listen, or this machine's address",
    ),
]
Web = Annotated[
    str | None,
    typer.Option(
        metavar="HOST[:PORT]",
        help="Address of a read-only live page and /metrics; port 7421 unless given. Addresses other than"
        " loopback use TLS and need a viewer's credential.",
        show_default="no page",
    ),
]
ServeQuiet = Annotated[bool, typer.Option("--quiet", help="Do not print events.")]

# Of `join` and `clients`.
JoinServer = Annotated[
    str, typer.Argument(metavar="HOST[:PORT]", help="Address of the server, from the line that it printed.")
]
JoinCode = Annotated[list[str], typer.Argument(metavar="CODE", help="Join code, from the same line.")]
JoinName = Annotated[
    str, typer.Option(metavar="TEXT", help="Name of this machine on the server.", show_default="host name")
]
ReplaceCredential = Annotated[
    bool, typer.Option("--force", help="Replace the credential of an earlier join, or a damaged one.")
]
InvitedRole = Annotated[
    Role,
    typer.Option(
        help="Role of the other machine. client: its own runs; viewer: read all runs; operator: everything."
    ),
]
InvitedName = Annotated[
    str,
    typer.Option(metavar="TEXT", help="Name of the machine that joins.", show_default="its host name"),
]
InvitedMachines = Annotated[
    int | None,
    typer.Option(
        parser=whole(1, limits.MACHINES_OF_CODE_MAX),
        metavar="N",
        help="Number of live-image machines that may join with one code"
        f" (1 to {limits.MACHINES_OF_CODE_MAX}).",
        show_default="one machine, once",
    ),
]
InvitedDays = Annotated[
    int | None,
    typer.Option(
        parser=whole(1, _CODE_DAYS_MAX),
        metavar="N",
        help=f"Days until the code of --machines expires (1 to {_CODE_DAYS_MAX}).",
        show_default=f"{CODE_DAYS}",
    ),
]
ClientName = Annotated[
    str, typer.Argument(metavar="CLIENT", help="Name or id of a client, listed by `durability clients`.")
]
NewName = Annotated[str, typer.Argument(metavar="NAME", help="New name.")]


def _those(which: Callable[[workload.Workload], bool]) -> str:
    """The names of the workloads of which `which` holds."""
    return ", ".join(one.name for one in WORKLOADS.values() if which(one))


# Of `run`.
Size = Annotated[
    str | None,
    typer.Option(
        metavar="BYTES",
        help="Space for all writers together.",
        show_default=f"1GiB; 64MiB for {_those(lambda one: one.by_name)}",
    ),
]
RecordSize = Annotated[str, typer.Option(metavar="BYTES", help="Record size, a multiple of 512 up to 1MiB.")]
Writers = Annotated[
    int,
    typer.Option(
        metavar="N",
        parser=whole(1, limits.WRITERS_MAX),
        help=f"Concurrent writers, each with its own part of the space (1 to {limits.WRITERS_MAX}).",
    ),
]
Workload = Annotated[WorkloadName, typer.Option(help=f"What the writers do: {WORKLOAD_SUMMARIES}.")]
Pattern = Annotated[
    plan.Pattern | None,
    typer.Option(
        help="Order in which each writer writes its records.",
        show_default=f"random; sequential for {_those(lambda one: one.endless)}",
    ),
]
Sync = Annotated[plan.SyncMethod, typer.Option(help="Call or flag that makes writes durable.")]
Direct = Annotated[bool, typer.Option("--direct", help="Bypass the page cache (O_DIRECT).")]
Group = Annotated[
    int,
    typer.Option(
        metavar="N",
        parser=whole(1, limits.GROUP_MAX),
        help=f"Operations per sync (1 to {limits.GROUP_MAX}).",
    ),
]
Duration = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS", help="Seconds until the run stops cleanly.", show_default="until stopped"
    ),
]
Label = Annotated[str, typer.Option(metavar="TEXT", help="Note stored with the run.")]
Control = Annotated[bool, typer.Option(help="Also write records that are never synced (control arm).")]
PrefillOnly = Annotated[
    bool,
    typer.Option(
        "--prefill-only",
        help="Only fill TARGET, again and again, until power fails, to see whether the drive comes back.",
    ),
]
AllowSharedBlocks = Annotated[
    bool,
    typer.Option(
        "--allow-shared-blocks", help="Allow records that share a block of the drive or file system."
    ),
]
RunForce = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Overwrite a device with a known signature (such as a file system or RAID) or a run that was not"
        " verified; allow an unexpected file system, or one without a journal.",
    ),
]

# Of `verify`.
VerifyTarget = Annotated[
    Path | None, typer.Argument(parser=path, metavar="TARGET", help="File or block device that `run` wrote.")
]
Run = Annotated[
    str | None,
    typer.Option(metavar="RUN", help="Run to verify.", show_default="from TARGET, else the server"),
]
AttestCut = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT", help="State that power was cut, and how; in the first verify after the cut."
    ),
]
AttestedClass = Annotated[
    ProvableCutClass | None,
    typer.Option(help="Class of the attested cut.", show_default="power; vm if a guest died"),
]
RequireCut = Annotated[
    ProvableCutClass, typer.Option(help="Weakest class of cut for a durable verdict (power > vm > os).")
]
MinCuts = Annotated[
    int,
    typer.Option(metavar="N", parser=whole(1), help="Verified cuts the series needs for a durable verdict."),
]
Device = Annotated[
    Path | None,
    typer.Option(
        parser=path, metavar="DEVICE", help="Device that held TARGET, if it no longer mounts; needs --run."
    ),
]
FromExport = Annotated[
    Path | None,
    typer.Option(parser=path, metavar="FILE", help="Read the run from this export, not from the server."),
]
Junit = Annotated[Path | None, typer.Option(parser=path, metavar="FILE", help="Also write a JUnit report.")]

# Of `export`, `campaign export` and `demo`.
Output = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", parser=path, metavar="FILE", help="New file for the export.", show_default="stdout"
    ),
]
DemoSeed = Annotated[
    int | None,
    typer.Option(
        metavar="N", parser=whole(0), help="Seed of the drives' faults and of the cuts.", show_default=RANDOM
    ),
]

DemoCampaign = Annotated[
    bool, typer.Option("--campaign", help="Run a campaign: cut each drive 59 times, in about half a minute.")
]
