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
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, TypeAlias

import typer
from typer.core import TyperGroup

import durability
from durability import cli_bench, limits
from durability.cli_lab import lab
from durability.documents import to_json, to_value
from durability.errors import EXIT_ENVIRONMENT, EXIT_INTERNAL, DurabilityError
from durability.plan import Pattern, SyncMethod, Workload
from durability.units import parse_run, parse_size

if TYPE_CHECKING:
    from durability_client.peer import Endpoint

EXIT_READER_GONE = 128 + signal.SIGPIPE
ADDRESS = "127.0.0.1:7420"
TRACEBACK_VARIABLE = "DURABILITY_TRACEBACK"


class _ReaderGoneError(Exception):
    """Whoever read our stdout has closed it."""


class _Commands(TyperGroup):
    """Typer ends the program without a word on every EPIPE, a broken socket's too; here `main` sees it."""

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
    try:
        code = _run()
        sys.stdout.flush()
    except (_ReaderGoneError, BrokenPipeError):
        # So that Python's own flush at exit does not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = EXIT_READER_GONE
    sys.exit(code)


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
        return _failure(str(error), EXIT_ENVIRONMENT)
    except Exception as error:  # the outermost handler: whatever it is, people get a message
        text = f"a defect of this tool: {type(error).__name__}: {error}"
        return _failure(f"{text} ({TRACEBACK_VARIABLE}=1 shows where)", EXIT_INTERNAL)
    raise AssertionError("typer ends by SystemExit")


def _failure(text: str, exit_code: int) -> int:
    if os.environ.get(TRACEBACK_VARIABLE) == "1":
        traceback.print_exc()
    print(f"durability: {text}", file=sys.stderr)
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


AttestedCut: TypeAlias = Literal["power", "vm", "os"]
Target = Annotated[Path, typer.Argument(metavar="TARGET", help="A file (made if missing) or a block device.")]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run's 16 hexadecimal digits.")]
Server = Annotated[
    str, typer.Option("--server", metavar="HOST:PORT", help="Where `durability serve` listens.")
]
TokenFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The token that both machines share. Default: where `serve` puts it."),
]
TlsCa = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Use TLS; the certificate authority of the server.")
]
TlsFingerprint = Annotated[
    str | None, typer.Option(metavar="HEX", help="Use TLS; the SHA-256 of the server's certificate.")
]
Limit = Annotated[int, typer.Option(min=1, max=limits.LISTING_ROWS_MAX, help="The newest so many.")]
Json = Annotated[bool, typer.Option("--json", help="JSON on stdout, nothing else there.")]


def _endpoint(server: str, token_file: Path | None, ca: Path | None, fingerprint: str | None) -> Endpoint:
    from durability_client.peer import endpoint
    from durability_client.token import read_token

    return endpoint(server, read_token(token_file), ca=ca, fingerprint=fingerprint)


@app.command()
def serve(
    *,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Port 0: any free one.")] = ADDRESS,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="sqlite:///FILE or postgresql://… Default: SQLite in the state directory."
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The token; made if missing. Default: in the state directory."),
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="Listen with TLS; PEM.")] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Its key, if it is not in the same file.")
    ] = None,
) -> None:
    """Keep the log, on the machine that stays up.

    Prints the line to type on the machine under test. SIGTERM or Ctrl-C stops it cleanly.
    """
    from durability_server import access
    from durability_server import app as server_app

    token, path = access.load_token(token_file)

    tls = access.tls_context(tls_cert, tls_key)

    def announce(host: str, port: int) -> None:
        terminal = sys.stdout.isatty()
        lines = access.client_instructions(
            host, port, token_file=path, certificate=tls_cert, show_token=terminal
        )
        print(lines, flush=True)

    asyncio.run(
        server_app.serve(
            listen=listen,
            store_url=store or access.default_store_url(),
            token=token,
            tls=tls,
            ready=announce,
        )
    )


@app.command()
def run(
    target: Target,
    *,
    server: Server = ADDRESS,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    tls_fingerprint: TlsFingerprint = None,
    size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Of all writers together. Default: 1GiB; 64MiB of names."),
    ] = None,
    record_size: Annotated[str, typer.Option(metavar="SIZE", help="A multiple of 512 up to 1MiB.")] = "4KiB",
    writers: Annotated[int, typer.Option(min=1, max=limits.WRITERS_MAX)] = 1,
    workload: Annotated[
        Workload, typer.Option(help="Write in place, let logs grow, or make, replace, remove files.")
    ] = "overwrite",
    pattern: Annotated[
        Pattern | None, typer.Option(help="Default: random; append and create are always sequential.")
    ] = None,
    sync: Annotated[SyncMethod, typer.Option(help="What makes a write durable.")] = "fdatasync",
    direct: Annotated[bool, typer.Option("--direct", help="Bypass the page cache (O_DIRECT).")] = False,
    group: Annotated[int, typer.Option(min=1, max=limits.GROUP_MAX, help="Operations to one sync.")] = 1,
    duration: Annotated[float | None, typer.Option(metavar="S", help="Stop after so many seconds.")] = None,
    label: Annotated[str, typer.Option(metavar="TEXT", help="Kept with the run.")] = "",
    control: Annotated[bool, typer.Option(help="The control arm: writes that are never synced.")] = True,
    allow_shared_blocks: Annotated[
        bool,
        typer.Option("--allow-shared-blocks", help="Records smaller than, or across, the device's blocks."),
    ] = False,
    destroy_data: Annotated[
        bool, typer.Option("--destroy-data", help="Overwrite a block device; all on it is lost.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also over a recognised signature, or an earlier run not yet verified."),
    ] = False,
    json: Json = False,
) -> None:
    """Write to TARGET until the power goes.

    What TARGET acknowledged is reported to the server at once. Ctrl-C or --duration stops a run cleanly.
    """
    from durability_client.planning import RunOptions
    from durability_client.run import run as run_client
    from durability_client.sender import run_in_fine_loop
    from durability_client.target import KernelStorage
    from durability_client.token import read_token

    options = RunOptions(
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
    summary = run_in_fine_loop(run_client(options, KernelStorage(target), sys.stdout))
    raise typer.Exit(summary.exit_code)


@app.command()
def verify(
    target: Annotated[
        Path | None, typer.Argument(metavar="TARGET", help="The file or device of the run.")
    ] = None,
    *,
    server: Server = ADDRESS,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    tls_fingerprint: TlsFingerprint = None,
    run: Annotated[
        str | None, typer.Option(metavar="RUN", help="Default: what TARGET or the server says.")
    ] = None,
    attest_cut: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Your word that the power was cut, and how.")
    ] = None,
    cut_class: Annotated[
        AttestedCut | None, typer.Option(help="What --attest-cut attests. Default: power.")
    ] = None,
    require_cut: Annotated[AttestedCut, typer.Option(help="The least class of cut for `durable`.")] = "power",
    min_cuts: Annotated[int, typer.Option(min=1, help="So many cuts of the series for `durable`.")] = 1,
    device: Annotated[
        Path | None, typer.Option(metavar="DEV", help="Where TARGET lay, if its file system does not mount.")
    ] = None,
    from_export: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Judge by this export, without the server.")
    ] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write a JUnit report.")] = None,
    json: Json = False,
) -> None:
    """Judge TARGET after a cut.

    The exit code is 0 for durable, 3 for loss, 4 for inconclusive.
    """
    from durability_client.verify import VerifyOptions
    from durability_client.verify import verify as verify_target

    options = VerifyOptions(
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
    raise typer.Exit(asyncio.run(verify_target(options)))


@app.command()
def device(target: Target, json: Json = False) -> None:
    """Print the facts of TARGET.

    Its drives, layers and file system, and warnings about what could mask a loss.
    """
    from durability_client.describe import DEVICE_SCHEMA, describe
    from durability_client.target import KernelStorage

    facts = KernelStorage(target).facts()
    if json:
        print(to_json({"schema": DEVICE_SCHEMA, **to_value(facts)}))
    else:
        print(*describe(facts), sep="\n")


@app.command()
def runs(
    *,
    server: Server = ADDRESS,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    tls_fingerprint: TlsFingerprint = None,
    limit: Limit = 50,
    json: Json = False,
) -> None:
    """List the server's runs, newest first."""
    from durability_client import query

    asyncio.run(
        query.runs(
            _endpoint(server, token_file, tls_ca, tls_fingerprint), limit=limit, json=json, out=sys.stdout
        )
    )


@app.command()
def show(
    run: RunId,
    *,
    server: Server = ADDRESS,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    tls_fingerprint: TlsFingerprint = None,
    json: Json = False,
) -> None:
    """Print one run whole."""
    from durability_client import query

    number = parse_run(run)
    asyncio.run(
        query.show(_endpoint(server, token_file, tls_ca, tls_fingerprint), number, json=json, out=sys.stdout)
    )


@app.command()
def export(
    run: RunId,
    *,
    server: Server = ADDRESS,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    tls_fingerprint: TlsFingerprint = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Default: stdout.")
    ] = None,
) -> None:
    """Write a run to a file.

    It holds all that `verify --from-export` needs to judge the run elsewhere.
    """
    from durability_client import query

    number = parse_run(run)
    endpoint = _endpoint(server, token_file, tls_ca, tls_fingerprint)
    asyncio.run(query.export(endpoint, number, output=output, out=sys.stdout))


app.command()(cli_bench.bench)
app.command()(cli_bench.compare)


@app.command()
def demo(
    seed: Annotated[
        int | None, typer.Option(min=0, help="The drives and cuts of an earlier demo again.")
    ] = None,
) -> None:
    """Cut the power of three simulated drives.

    And judge each; takes no privileges. The exit code is 0 if every verdict is the expected one.
    """
    from durability_lab.demo import demo as show_demo

    raise typer.Exit(asyncio.run(show_demo(sys.stdout, seed=seed)))
