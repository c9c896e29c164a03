"""The command line: options in, one call, an exit code out. No command does anything itself.

With `cli_lab` the only module of the core that knows the sides, and only inside its functions, so that
`--help` is quick and the machine under test loads no database. Answers go to stdout, all else to stderr.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

import durability
from durability.errors import EXIT_ENVIRONMENT, EXIT_INTERNAL, DurabilityError
from durability.formats.documents import to_json, to_value
from durability.units import parse_run, parse_size
from durability_cli import bench_commands, options, streams
from durability_cli.lab_commands import lab

if TYPE_CHECKING:
    from durability_client.link.endpoint import Endpoint

EXIT_READER_GONE = 128 + signal.SIGPIPE
ADDRESS = "127.0.0.1:7420"
TRACEBACK_VARIABLE = "DURABILITY_TRACEBACK"


class _ReaderGoneError(Exception):
    """Whoever read our stdout has closed it."""


class _Commands(TyperGroup):
    """Typer ends the program without a word on every EPIPE, a broken socket's too; here `main` sees it."""

    def make_context(self, *given: Any, **named: Any) -> Any:
        try:
            return super().make_context(*given, **named)  # which prints what --help and --version ask for
        except BrokenPipeError as error:
            raise _ReaderGoneError from error

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _ReaderGoneError from error


app = typer.Typer(
    cls=_Commands,
    help="Does a drive keep what it said it has kept? Power-loss durability, tested from another machine.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(lab, name="lab")


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
    """So that Python's own flush at exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run() -> int:
    try:
        app()
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else EXIT_INTERNAL
    except _ReaderGoneError:
        raise
    except DurabilityError as error:
        return _failure(str(error), error.exit_code)
    except OSError as error:
        sys.stdout.flush()  # if that is what failed it fails again, and `main` says so
        return _failure(str(error), EXIT_ENVIRONMENT)
    except Exception as error:  # the outermost handler: whatever it is, people get a message
        text = f"a defect of this tool: {type(error).__name__}: {error}"
        return _failure(f"{text} ({TRACEBACK_VARIABLE}=1 shows where)", EXIT_INTERNAL)
    raise AssertionError("typer ends by SystemExit")


def _failure(text: str, exit_code: int) -> int:
    if os.environ.get(TRACEBACK_VARIABLE) == "1":
        traceback.print_exc()
    # What it quotes may be anybody's words, which must not move a terminal's cursor.
    plain = "".join(one if one.isprintable() or one == "\n" else "\N{REPLACEMENT CHARACTER}" for one in text)
    print(f"durability: {plain}", file=sys.stderr)
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


def _endpoint(server: str, token_file: Path | None, ca: Path | None, fingerprint: str | None) -> Endpoint:
    from durability_client.link.endpoint import endpoint, read_token

    return endpoint(server, read_token(token_file), ca=ca, fingerprint=fingerprint)


@app.command()
def serve(
    *,
    listen: options.Listen = ADDRESS,
    store: options.Store = None,
    token_file: options.ServerTokenFile = None,
    tls_cert: options.TlsCert = None,
    tls_key: options.TlsKey = None,
) -> None:
    """Keep the log, on the machine that stays up.

    Prints the line to type on the machine under test. SIGTERM or Ctrl-C stops it cleanly.
    """
    from durability_server import server
    from durability_server.connections import access

    token, path = access.load_token(token_file)
    tls = access.tls_context(tls_cert, tls_key)

    def announce(host: str, port: int) -> None:
        terminal = sys.stdout.isatty()
        lines = access.client_instructions(
            host, port, token_file=path, certificate=tls_cert, show_token=terminal
        )
        print(lines, flush=True)

    asyncio.run(
        server.serve(
            listen=listen,
            store_url=store or access.default_store_url(),
            token=token,
            tls=tls,
            ready=announce,
        )
    )


@app.command()
def run(
    target: options.Target,
    *,
    server: options.Server = ADDRESS,
    token_file: options.TokenFile = None,
    tls_ca: options.TlsCa = None,
    tls_fingerprint: options.TlsFingerprint = None,
    size: options.Size = None,
    record_size: options.RecordSize = "4KiB",
    writers: options.Writers = 1,
    workload: options.Workload = "overwrite",
    pattern: options.Pattern = None,
    sync: options.Sync = "fdatasync",
    direct: options.Direct = False,
    group: options.Group = 1,
    duration: options.Duration = None,
    label: options.Label = "",
    control: options.Control = True,
    allow_shared_blocks: options.AllowSharedBlocks = False,
    destroy_data: options.DestroyData = False,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Write to TARGET until the power goes.

    What TARGET acknowledged is reported to the server at once. Ctrl-C or --duration stops a run cleanly.
    """
    from durability_client.link.endpoint import read_token
    from durability_client.run.planning import RunOptions
    from durability_client.run.run_command import run as run_client
    from durability_client.run.sender import run_in_fine_loop
    from durability_client.target.kernel_storage import KernelStorage

    chosen = RunOptions(
        server=server,
        token=read_token(token_file),
        tls_ca=tls_ca,
        tls_fingerprint=tls_fingerprint,
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
        allow_shared_blocks=allow_shared_blocks,
        destroy_data=destroy_data,
        force=force,
        json=json,
    )
    summary = run_in_fine_loop(run_client(chosen, KernelStorage(target), sys.stdout))
    raise typer.Exit(summary.exit_code)


@app.command()
def verify(
    target: options.VerifyTarget = None,
    *,
    server: options.Server = ADDRESS,
    token_file: options.TokenFile = None,
    tls_ca: options.TlsCa = None,
    tls_fingerprint: options.TlsFingerprint = None,
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
    """Judge TARGET after a cut.

    The exit code is 0 for durable, 3 for loss, 4 for inconclusive.
    """
    from durability_client.verify.verify_command import VerifyOptions
    from durability_client.verify.verify_command import verify as verify_target

    chosen = VerifyOptions(
        target=target,
        endpoint=None if from_export else _endpoint(server, token_file, tls_ca, tls_fingerprint),
        run=parse_run(run) if run else 0,
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


@app.command()
def device(target: options.Target, json: options.Json = False) -> None:
    """Print the facts of TARGET.

    Its drives, layers and file system, and warnings about what could mask a loss.
    """
    from durability_client.descriptions import DEVICE_SCHEMA, describe
    from durability_client.target.kernel_storage import KernelStorage

    facts = KernelStorage(target).facts()
    if json:
        print(to_json({"schema": DEVICE_SCHEMA, **to_value(facts)}))
    else:
        print(*describe(facts), sep="\n")


@app.command()
def runs(
    *,
    server: options.Server = ADDRESS,
    token_file: options.TokenFile = None,
    tls_ca: options.TlsCa = None,
    tls_fingerprint: options.TlsFingerprint = None,
    limit: options.Limit = 50,
    json: options.Json = False,
) -> None:
    """List the server's runs, newest first."""
    from durability_client import queries

    asyncio.run(
        queries.runs(
            _endpoint(server, token_file, tls_ca, tls_fingerprint), limit=limit, json=json, out=sys.stdout
        )
    )


@app.command()
def show(
    run: options.RunId,
    *,
    server: options.Server = ADDRESS,
    token_file: options.TokenFile = None,
    tls_ca: options.TlsCa = None,
    tls_fingerprint: options.TlsFingerprint = None,
    json: options.Json = False,
) -> None:
    """Print one run whole."""
    from durability_client import queries

    number = parse_run(run)
    asyncio.run(
        queries.show(
            _endpoint(server, token_file, tls_ca, tls_fingerprint), number, json=json, out=sys.stdout
        )
    )


@app.command()
def export(
    run: options.RunId,
    *,
    server: options.Server = ADDRESS,
    token_file: options.TokenFile = None,
    tls_ca: options.TlsCa = None,
    tls_fingerprint: options.TlsFingerprint = None,
    output: options.Output = None,
) -> None:
    """Write a run to a file.

    It holds all that `verify --from-export` needs to judge the run elsewhere.
    """
    from durability_client import queries

    number = parse_run(run)
    endpoint = _endpoint(server, token_file, tls_ca, tls_fingerprint)
    asyncio.run(queries.export(endpoint, number, output=output, out=sys.stdout))


app.command()(bench_commands.bench)
app.command()(bench_commands.compare)


@app.command()
def demo(seed: options.DemoSeed = None) -> None:
    """Cut the power of three simulated drives.

    And judge each; takes no privileges. The exit code is 0 if every verdict is the expected one.
    """
    from durability_lab.demo_command import demo as show_demo

    raise typer.Exit(asyncio.run(show_demo(sys.stdout, seed=seed)))
