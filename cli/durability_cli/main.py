"""The `durability` command: each command turns its options into one call and ends with an exit code.

Commands import the server, the client and the lab only inside their functions, so `--help` is quick and the
machine under test loads no database. Answers go to stdout, everything else to stderr.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

import durability
from durability import plain_text
from durability.errors import (
    EXIT_ENVIRONMENT,
    EXIT_INTERNAL,
    DurabilityError,
    RefusedError,
    SetupError,
    StoreError,
    TargetError,
    UsageError,
)
from durability.formats.documents import to_value
from durability.protocol.local_address import SYSTEM_DIRECTORY
from durability_cli.numpy_loading import numpy_required

with numpy_required():
    from durability.formats.workloads import registry

from durability.units import counted, format_address, parse_run, parse_size
from durability_cli import accept_commands, bench_commands, options, service_manager, streams
from durability_cli.agent_commands import agent
from durability_cli.campaign_commands import campaign
from durability_cli.clients_commands import clients
from durability_cli.lab_commands import lab

EXIT_READER_GONE = 128 + signal.SIGPIPE
_GONE = frozenset({"--token-file", "--tls-ca", "--tls-fingerprint", "--tls-cert", "--tls-key"})
TRACEBACK_VARIABLE = "DURABILITY_TRACEBACK"

# How `--help` groups the commands.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "Test a drive": ("serve", "join", "device", "run", "verify"),
    "Many cuts": ("campaign", "agent"),
    "Stored runs and clients": ("runs", "show", "export", "clients"),
    "Performance": ("bench", "compare", "results"),
    "Accept or refuse a drive": ("accept",),
    "Test the tester": ("demo", "lab"),
}


_UsageError: Any = typer.BadParameter.__base__  # typer has no public name for it


class _ReaderGoneError(Exception):
    """The reader of stdout closed it."""


class _Commands(TyperGroup):
    """The commands in groups.

    Typer ends the program silently on every EPIPE, even that of a broken socket; this class passes the error
    on to `main`.
    """

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, self.commands))
        for title, names in GROUPS.items():
            with formatter.section(title):
                rows = [(name.ljust(width), self.commands[name].get_short_help_str(80)) for name in names]
                formatter.write_dl(rows)

    def make_context(self, *given: Any, **named: Any) -> Any:
        try:
            return super().make_context(*given, **named)  # which prints what --help and --version ask for
        except (SystemExit, typer.Exit) as ended:
            _require_known_shell(ended)
            raise
        except _UsageError as error:
            _make_plain(error)
            raise
        except BrokenPipeError as error:
            raise _ReaderGoneError from error

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except _UsageError as error:
            _make_plain(error)
            raise
        except BrokenPipeError as error:
            raise _ReaderGoneError from error


def _require_known_shell(ended: SystemExit | typer.Exit) -> None:
    """Raises SetupError if typer ended because it has no completion for the shell."""
    if (ended.code if isinstance(ended, SystemExit) else ended.exit_code) == EXIT_INTERNAL:
        raise SetupError(
            "the shell that started this command is not known: completions are for bash, zsh and fish;"
            " start one of them and type the command there"
        )


def _make_plain(error: Any) -> None:
    """A shell's pattern may have put anything on the command line: names of files. Where a command is
    missing, the message is the help, which has lines."""
    if error.ctx is None or error.message != error.ctx.get_help():
        error.message = plain_text.as_line(error.message)


app = typer.Typer(
    cls=_Commands,
    help="Test whether a drive keeps acknowledged writes through power loss.",
    epilog=(
        "To test a drive, start `serve` on a machine that stays up. On the machine under test, type the"
        " `join` line that it prints, then `run TARGET`. Cut its power, boot it and type `verify TARGET`."
        " `demo` needs no hardware."
    ),
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(lab, name="lab")
app.add_typer(clients, name="clients")
app.add_typer(campaign, name="campaign")
app.add_typer(agent, name="agent")


def main() -> NoReturn:
    """Entry point of the `durability` command."""
    signal.signal(signal.SIGTERM, _terminate)
    streams.prepare()
    try:
        code = _run()
        sys.stdout.flush()
    except (_ReaderGoneError, BrokenPipeError):
        _forget_stdout()
        code = EXIT_READER_GONE
    except OSError as error:
        _forget_stdout()
        code = _failure(f"stdout cannot be written: {error.strerror}", EXIT_ENVIRONMENT)
    sys.exit(code)


def _forget_stdout() -> None:
    """Point stdout to nowhere, so that Python's own flush at exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run() -> int:
    try:
        _refuse_tokens(sys.argv[1:])
        app()
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else EXIT_INTERNAL
    except _ReaderGoneError:
        raise
    except DurabilityError as error:
        return _failure(str(error), error.exit_code)
    except OSError as error:
        sys.stdout.flush()  # if stdout caused the error, this fails again and `main` reports it
        return _failure(str(error), EXIT_ENVIRONMENT)
    except Exception as error:  # the outermost handler: every error gets a message
        text = f"a defect of this tool: {type(error).__name__}: {error}"
        return _failure(f"{text} (set {TRACEBACK_VARIABLE}=1 to see where)", EXIT_INTERNAL)
    raise AssertionError("typer ends by SystemExit")


def _refuse_tokens(words: Sequence[str]) -> None:
    """Raises UsageError for an option with which earlier releases found their server."""
    for word in words:
        if word.partition("=")[0] in _GONE:
            raise UsageError(
                f"{word}: tokens and certificates are no longer given by hand. Type `durability clients"
                " invite` on the server's machine, then here, once, the line that it prints (`durability"
                " join …`)"
            )


def _failure(text: str, exit_code: int) -> int:
    from durability_client.system.terminal import fitted

    if os.environ.get(TRACEBACK_VARIABLE) == "1":
        print(plain_text.as_text(traceback.format_exc()), end="", file=sys.stderr)
    print(fitted(f"durability: {text}", sys.stderr, indent=2), file=sys.stderr)
    return exit_code


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"durability {durability.__version__}")
        raise typer.Exit


@app.callback()
def _durability(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    pass


@app.command()
def serve(
    *,
    listen: options.Listen = options.LISTEN,
    store: options.Store = None,
    advertise: options.Advertise = None,
    web: options.Web = None,
    quiet: options.ServeQuiet = False,
) -> None:
    """Run the log server on a machine that stays up.

    On a terminal, prints the `join` line for the machine under test. Then prints a line for each event.
    Ctrl-C or SIGTERM stops the server cleanly.
    """
    from durability_server import server
    from durability_server.access.state_directory import default_store_url, state_directory
    from durability_server.announcements import Announcer

    async def say_where(running: server.Server, host: str, port: int) -> None:
        lines = [f"Listening on {format_address(host, port)}."]
        if running.page:
            lines.append(f"Live page: {running.page}")
        if running.others:
            count, others = counted(len(running.others), "other server"), ", ".join(running.others)
            lines.append(f"Sharing the store with {count}: {others}.")
        announce.say("\n".join((*lines, await how_to_join(running))))

    async def how_to_join(running: server.Server) -> str:
        line = f"type here, as {_who_finds(directory)}: durability clients invite"
        if not sys.stdout.isatty():  # what a service prints is kept in logs, and the code is a secret
            return f"To join a machine under test, {line}"
        try:
            invited = await running.invite()
        except (RefusedError, StoreError) as error:
            return f"There is no join code now: {plain_text.as_line(str(error))}.\nLater, {line}"
        return f"On the machine under test, once, until {invited.expires}:\n  {invited.line}"

    directory = state_directory()
    announce = Announcer(sys.stdout, is_quiet=quiet)
    try:
        asyncio.run(
            server.serve(
                listen=listen,
                store_url=store or default_store_url(),
                directory=directory,
                ready=say_where,
                announce=announce,
                advertise=advertise,
                web=web,
                listening=service_manager.informed,
            )
        )
    finally:
        announce.flush()


def _who_finds(directory: Path) -> str:
    """Whose commands find a server with this state directory by themselves."""
    return "this user or root" if str(directory) == SYSTEM_DIRECTORY else "this user"


@app.command()
def join(
    address: options.JoinServer,
    code: options.JoinCode,
    *,
    name: options.JoinName = "",
    credential: options.NewCredential = None,
    force: options.ReplaceCredential = False,
) -> None:
    """Make this machine a client of a server, once.

    Type the line that `durability serve` printed. Afterwards every command on this machine finds the server.
    """
    from durability_client.join_command import join as join_server

    typed = " ".join(code)  # its groups may be typed with spaces between them
    asyncio.run(join_server(address, typed, name=name, credential=credential, force=force, out=sys.stdout))


@app.command(epilog=options.BYTES_EPILOG)
@options.on_server
def run(
    target: options.Target,
    *,
    connection: options.ServerOptions,
    size: options.Size = None,
    record_size: options.RecordSize = "4KiB",
    writers: options.Writers = 1,
    workload: options.Workload = registry.DEFAULT,
    pattern: options.Pattern = None,
    sync: options.Sync = "fdatasync",
    direct: options.Direct = False,
    group: options.Group = 1,
    duration: options.Duration = None,
    label: options.Label = "",
    control: options.Control = True,
    prefill_only: options.PrefillOnly = False,
    allow_shared_blocks: options.AllowSharedBlocks = False,
    destroy_data: options.DestroyData = False,
    force: options.RunForce = False,
    json: options.Json = False,
) -> None:
    """Write to TARGET and log acknowledgements until power fails.

    Reports each acknowledgement to the server at once. Cut the power while the run writes; Ctrl-C or
    --duration stops the run cleanly instead.
    """
    from durability_client.run.planning import RunOptions
    from durability_client.run.run_command import run as run_client
    from durability_client.run.sender import run_in_fine_loop
    from durability_client.target.kernel_storage import KernelStorage

    chosen = RunOptions(
        endpoint=connection.endpoint(),
        size_bytes=None if size is None else parse_size(size),
        record_bytes=parse_size(record_size),
        writers=writers,
        workload=workload,
        pattern=pattern,
        sync=sync,
        direct=direct,
        group=group,
        duration_s=duration,
        label=label,
        control=control,
        prefill_only=prefill_only,
        allow_shared_blocks=allow_shared_blocks,
        destroy_data=destroy_data,
        force=force,
        json=json,
    )
    summary = run_in_fine_loop(run_client(chosen, KernelStorage(target), sys.stdout))
    raise typer.Exit(summary.exit_code)


@app.command()
@options.on_server
def verify(
    target: options.VerifyTarget = None,
    *,
    connection: options.ServerOptions,
    run: options.Run = None,
    attest_cut: options.AttestCut = None,
    cut_class: options.AttestedClass = None,
    require_cut: options.RequireCut = "power",
    min_cuts: options.MinCuts = 1,
    device: options.Device = None,
    from_export: options.FromExport = None,
    junit: options.Junit = None,
    json: options.Json = False,
) -> None:
    """Check TARGET after a cut and print the verdict.

    Exit code 0 means durable, 3 loss, 4 inconclusive.
    """
    from durability_client.verify.verify_command import VerifyOptions
    from durability_client.verify.verify_command import verify as verify_target

    named = _named_run(run)
    if target is None and device is None:
        raise UsageError(
            "TARGET is missing: name the file or device that `run` wrote, or add --device DEVICE --run RUN"
        )
    if attest_cut is not None and not attest_cut.strip():
        raise UsageError("--attest-cut is empty: say how the power was cut, or leave it out")
    chosen = VerifyOptions(
        target=target,
        endpoint=None if from_export else connection.endpoint(),
        run=named,
        attest_cut=attest_cut,
        cut_class=cut_class,
        require_cut=require_cut,
        min_cuts=min_cuts,
        device=device,
        from_export=from_export,
        junit=junit,
        json=json,
    )
    raise typer.Exit(asyncio.run(verify_target(chosen)))


def _named_run(run: str | None) -> int:
    """The run that is named, 0 for none. Raises UsageError."""
    if run is None:
        return 0
    if not run.strip() or not (named := parse_run(run)):
        raise UsageError(f"--run {run!r} names no run: give its id (is a shell variable unset?)")
    return named


@app.command()
def device(target: options.DeviceTarget, json: options.Json = False) -> None:
    """Show TARGET's drives, layers and warnings.

    Each warning names something that weakens a verdict on TARGET. Needs no server.
    """
    from durability_client.descriptions import DEVICE_SCHEMA, VALUES_AT, describe
    from durability_client.system.terminal import fitted, print_json
    from durability_client.target.kernel_storage import KernelStorage
    from durability_client.target.safety_checks import check_shown

    check_shown(target)
    try:
        facts = KernelStorage(target).facts()
    except OSError as error:
        raise TargetError(f"{target}: cannot be examined: {error.strerror}") from error
    if json:
        print_json({"schema": DEVICE_SCHEMA, **to_value(facts)}, sys.stdout)
    else:
        print(fitted("\n".join(describe(facts)), sys.stdout, indent=VALUES_AT))


@app.command()
@options.on_server
def runs(
    *,
    connection: options.ServerOptions,
    every: options.AllRuns = False,
    drive: options.OfRunDrive = "",
    host: options.OfHost = "",
    limit: options.Limit = 50,
    json: options.Json = False,
) -> None:
    """List tested drives with their cuts and last verdict, or all runs.

    The drives with the newest runs come first. A cut is clean if its verdict is durable. --json prints
    both runs and drives.
    """
    from durability_client import queries

    chosen = queries.ChosenRuns(limit=limit, drive=drive, host=host)
    asyncio.run(queries.runs(connection.endpoint(), chosen, each=every, json=json, out=sys.stdout))


@app.command()
@options.on_server
def show(run: options.RunId, *, connection: options.ServerOptions, json: options.Json = False) -> None:
    """Show everything stored about a run."""
    from durability_client import queries

    number = parse_run(run)
    asyncio.run(queries.show(connection.endpoint(), number, json=json, out=sys.stdout))


@app.command()
@options.on_server
def export(run: options.RunId, *, connection: options.ServerOptions, output: options.Output = None) -> None:
    """Save a run for `verify --from-export`.

    The file holds everything that `verify` needs to judge the run without the server.
    """
    from durability_client import queries

    number = parse_run(run)
    asyncio.run(queries.export(connection.endpoint(), number, output=output, out=sys.stdout))


app.command(epilog=options.BYTES_EPILOG)(bench_commands.bench)
app.command()(bench_commands.compare)
app.command()(bench_commands.results)
app.command()(accept_commands.accept)


@app.command()
def demo(*, seed: options.DemoSeed = None, campaign: options.DemoCampaign = False) -> None:
    """Test three simulated drives.

    Runs a server, writes, cuts power and verifies; needs no privileges and no hardware. Exit code 0 if every
    verdict is as expected.
    """
    if campaign:
        from durability_lab.campaign_rig.campaign_demo import campaign_demo

        raise typer.Exit(asyncio.run(campaign_demo(sys.stdout, sys.stderr, seed=seed)))
    from durability_lab.demo_command import demo as show_demo

    raise typer.Exit(asyncio.run(show_demo(sys.stdout, seed=seed)))
