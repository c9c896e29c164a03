"""The command line: options in, one call, an exit code out. No command does anything itself.

The only module of the core that knows the sides, and only inside its functions, so that `--help` is quick and
the machine under test loads no database. Answers go to stdout, all else to stderr.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

import durability
from durability import limits
from durability.errors import EXIT_ENVIRONMENT, EXIT_INTERNAL, DurabilityError
from durability.plan import Pattern, SyncMethod, Workload
from durability.units import parse_address, parse_run, parse_size

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
Json = Annotated[bool, typer.Option("--json", help="JSON on stdout, nothing else there.")]


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
    """Keep the log of what was acknowledged, on the machine that stays up."""
    from durability_server import access
    from durability_server import app as server_app

    token, path = access.load_token(token_file)

    def announce(host: str, port: int) -> None:
        show_token = sys.stdout.isatty()
        print(access.client_instructions(host, port, token, path, show_token=show_token), flush=True)

    asyncio.run(
        server_app.serve(
            listen=listen,
            store_url=store or access.default_store_url(),
            token=token,
            tls=access.tls_context(tls_cert, tls_key),
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
    size: Annotated[str, typer.Option(metavar="SIZE", help="Bytes that all writers together use.")] = "1GiB",
    record_size: Annotated[str, typer.Option(metavar="SIZE", help="A multiple of 512 up to 1MiB.")] = "4KiB",
    writers: Annotated[int, typer.Option(min=1, max=limits.WRITERS_MAX)] = 1,
    workload: Annotated[Workload, typer.Option()] = "overwrite",
    pattern: Annotated[
        Pattern | None, typer.Option(help="Default: random; append is always sequential.")
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
    """Write to TARGET and report what was acknowledged, until the power goes, Ctrl-C or --duration."""


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
        CutClass | None, typer.Option(help="What --attest-cut attests. Default: power.")
    ] = None,
    require_cut: Annotated[CutClass, typer.Option(help="The least class of cut for `durable`.")] = "power",
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
    """Read TARGET after a cut and say: durable (exit 0), loss (3) or inconclusive (4)."""


@app.command()
def device(target: Target, json: Json = False) -> None:
    """Print what is known of TARGET, its drives and its layers, and what could mask a loss."""


@app.command()
def runs(
    *,
    server: Server = ADDRESS,
    token_file: TokenFile = None,
    tls_ca: TlsCa = None,
    tls_fingerprint: TlsFingerprint = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="The newest so many.")] = 50,
    json: Json = False,
) -> None:
    """List the server's runs, newest first."""


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
    """Print one run whole: plan, facts, events, verdicts."""


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
    """Write all that is needed to judge a run elsewhere, for `verify --from-export`."""


@app.command()
def demo() -> None:
    """Three simulated drives, a power cut of each, a verdict on each. Takes no privileges."""
