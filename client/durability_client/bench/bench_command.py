"""The commands `bench` and `compare`: they check options, print results and return exit codes.

Other modules measure and judge. A result is saved to its file before it is printed, so that it is not lost if
the terminal is closed.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from durability import plain_text
from durability.acceptance.known_cuts import unsearchable
from durability.bench import catalogue
from durability.bench.catalogue import Mode
from durability.bench.cells import MIB, Cell
from durability.bench.compare import compare
from durability.bench.decision.proof import Proof
from durability.bench.json_documents import comparison_document, summary_document
from durability.bench.measurement import Engine
from durability.bench.result import Result
from durability.errors import (
    EXIT_ENVIRONMENT,
    EXIT_OK,
    EXIT_USAGE,
    DurabilityError,
    FormatError,
    PeerError,
    SetupError,
    UsageError,
)
from durability_client.bench import cut_verdicts, kept_results, saved_results
from durability_client.bench.cut_verdicts import FoundVerdicts
from durability_client.bench.measure import workspace
from durability_client.bench.progress_bar import Bar
from durability_client.bench.report import comparison_screen, html_page, one_screen, terminal_tables
from durability_client.bench.runner import IDLE_QUICK_S, IDLE_S, Options, measure
from durability_client.bench.stop_signals import StopSignals
from durability_client.link.endpoint import Endpoint, endpoint
from durability_client.system.terminal import Terminal, print_json
from durability_client.target import safety_checks
from durability_client.target.kernel_storage import KernelStorage
from durability_client.target.safety_checks import Consent

SIZE_BYTES = 256 * MIB
SIZE_ACCEPT_BYTES = 1024 * MIB
WAIT_S = 30.0  # wait for a drive that other programs use; many such disturbances are shorter
_EXIT_INTERRUPTED = 128 + signal.SIGINT
_TABLE_WIDTH = 160  # without a terminal and without COLUMNS
_TABLE_WIDTH_MIN = 80  # on a narrower terminal, lines wrap instead of losing parts of names


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """Options of `bench` from the command line."""

    target: Path
    output: Path | None = None
    quick: bool = False
    accept_minutes: float | None = None  # None: without --accept
    only: tuple[str, ...] = ()
    profile: str = ""
    size_bytes: int | None = None  # None: the mode's default
    seed: int | None = None  # None: random
    destroy_data: bool = False
    force: bool = False
    wait_s: float = WAIT_S
    show_serials: bool = False
    engine: Engine = "durability"
    html: Path | None = None
    keep_on: Endpoint | None = None  # server that is to store the result
    full: bool = False
    json: bool = False


def bench(options: BenchOptions, out: TextIO, err: TextIO) -> int:
    """Measure, save and print. Returns the exit code. Raises DurabilityError if nothing was measured."""
    wanted = _wanted(options)
    _check_outputs(options)
    workspace.check_size(wanted.cells, wanted.size_bytes)
    _check_target(options.target, wanted.consent)
    if options.keep_on is not None:
        asyncio.run(kept_results.require_server(options.keep_on))
    with StopSignals() as stop_signals:
        try:
            with Bar(err) as bar:
                outcome = measure(wanted, bar, stop_signals.hold)
        except (KeyboardInterrupt, SystemExit) as ending:
            print("durability: ended before the first measurement; no result was saved", file=err)
            return _exit_code(ending)
        kept = _save(outcome.result, options.output, err)
        kept = _save_page(outcome.result, options, err) and kept
        if options.keep_on is not None:
            kept = _keep(outcome.result, options.keep_on, err) and kept
    if outcome.ending is None:
        _print(outcome.result, out, full=options.full, json=options.json)
        return EXIT_OK if kept else EXIT_ENVIRONMENT
    # The text in the result has hashes instead of serials.
    why = outcome.ending if isinstance(outcome.ending, DurabilityError) else outcome.result.stopped
    _say(f"durability: {why}; the result is partial", err)
    with suppress(OSError):  # the terminal may be closed, which may have ended the measurement
        _print(outcome.result, out, full=options.full, json=options.json)
    return _exit_code(outcome.ending)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowOptions:
    """Options for a saved result that is printed."""

    html: Path | None = None
    keep_on: Endpoint | None = None
    full: bool = False
    json: bool = False


def show(path: Path, options: ShowOptions, out: TextIO, err: TextIO) -> int:
    """Print the result in a file. If requested, also save its page and store it on a server. Returns the exit
    code. Raises SetupError, FormatError, UsageError, PeerError."""
    result = saved_results.load(path)
    if options.html is not None:
        saved_results.save_page(html_page.result_page(result), options.html, apart_from=[path])
    if options.keep_on is not None:
        _say_kept(asyncio.run(kept_results.keep(options.keep_on, result)), err)
    _print(result, out, full=options.full, json=options.json)
    return EXIT_OK


def show_kept(
    endpoint: Endpoint,
    name: str,
    output: Path | None,
    *,
    full: bool,
    json: bool,
    out: TextIO,
    err: TextIO,
) -> int:
    """Print a result stored on the server, or save its file as `output`. Returns the exit code. Raises
    PeerError, FormatError, SetupError."""
    if output is not None:
        saved_results.check_result(output)
    fetched = asyncio.run(kept_results.fetch(endpoint, name))
    if output is not None:
        saved_results.save_file(fetched.data, output)
        _say(f"the result is in {output}", err)
    else:
        _print(fetched.result, out, full=full, json=json)
    return EXIT_OK


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions:
    """Options of `compare` from the command line."""

    paths: tuple[Path, ...]
    verdicts_of: tuple[str, ...] = ()  # runs and campaigns whose clean cuts count; (): all of these drives
    # Clients, by id or name, whose runs count. (): those of machines that campaigns cut, or the only client.
    clients: tuple[str, ...] = ()
    endpoint: Endpoint | None = None  # the server, if there is one
    html: Path | None = None
    full: bool = False
    json: bool = False


def compare_files(options: CompareOptions, out: TextIO, err: TextIO) -> int:
    """Compare results with the first. Returns the exit code, which is 2 if the results are not comparable.
    The page is made in either case. Raises UsageError, SetupError, FormatError, and PeerError if verdicts
    were requested."""
    paths = options.paths
    loaded = [saved_results.load(path) for path in paths]
    labelled = list(zip(_labels(paths), loaded, strict=True))
    if len(loaded) < 2:
        raise UsageError("name two result files or more: `durability compare BEFORE.json AFTER.json`")
    proofs, notes = _proofs(options, labelled, err)
    comparison = compare(labelled, proofs)
    # Page and JSON contain the notes. For tables, `_proofs` has printed them on stderr.
    kept = replace(comparison, warnings=(*notes, *comparison.warnings))
    if options.html is not None:
        page = html_page.comparison_page(kept, loaded)
        saved_results.save_page(page, options.html, apart_from=paths)
    if options.json:
        print_json(comparison_document(kept), out)
    elif options.full:
        terminal_tables.show_comparison(comparison, _console(out))
    else:
        comparison_screen.show_comparison_screen(comparison, _console(out))
    return EXIT_USAGE if comparison.refusals else EXIT_OK


def _proofs(
    options: CompareOptions, labelled: Sequence[tuple[str, Result]], err: TextIO
) -> tuple[tuple[Proof | None, ...], tuple[str, ...]]:
    """The verdicts of cuts for the drive of each result, and notes about verdicts that were left out. If no
    verdicts were requested, an unreachable server is not an error."""
    if options.endpoint is None:
        return (), ()
    loaded = [result for _, result in labelled]
    if options.verdicts_of:
        named = cut_verdicts.named_verdicts(options.endpoint, options.verdicts_of, loaded, options.clients)
        return _told(asyncio.run(named), err)
    for label, result in labelled:
        if why := unsearchable(result.facts):
            _say(f"durability: {label}: {why}; name them with --verdict-of RUN or CAMPAIGN", err)
    try:
        found = asyncio.run(cut_verdicts.found_verdicts(options.endpoint, loaded, options.clients))
    except (PeerError, SetupError) as error:
        _say(f"durability: no verdicts of cuts: {error}", err)
        return (), ()
    return _told(found, err)


def _told(found: FoundVerdicts, err: TextIO) -> tuple[tuple[Proof | None, ...], tuple[str, ...]]:
    """Print the notes, and return proofs and notes."""
    for note in found.notes:
        _say(f"durability: {note}", err)
    return found.proofs, found.notes


def _check_outputs(options: BenchOptions) -> None:
    """Before the measurement, refuse output files that cannot be written, that are the target, or that are
    the same file. Raises UsageError, SetupError, TargetError."""
    if options.output and options.html and saved_results.same_file(options.html, options.output):
        raise UsageError("-o and --html name the same file; name two files")
    outputs = (
        ("-o", options.output, saved_results.check_result),
        ("--html", options.html, saved_results.check_page),
    )
    for option, path, check in outputs:
        if path is None:
            continue
        if saved_results.same_file(path, options.target):
            raise UsageError(f"{option} names TARGET, which a result must not replace; name another file")
        check(path)
    if options.output is None:
        saved_results.check_default()


def _check_target(target: Path, consent: Consent) -> None:
    """Check the target, and ask the user if needed, before a progress bar is drawn. Raises TargetError,
    UsageError."""
    path = KernelStorage(target).path
    workspace.check_target(path, consent)
    safety_checks.check_place(path, consent)


def _exit_code(ending: BaseException) -> int:
    """The exit code of a measurement that `ending` ended."""
    if isinstance(ending, DurabilityError):
        return ending.exit_code
    if isinstance(ending, SystemExit) and isinstance(ending.code, int):
        return ending.code
    return _EXIT_INTERRUPTED


def _wanted(options: BenchOptions) -> Options:
    """The options of the measurement. Raises UsageError for options that contradict each other."""
    mode, cells = _cells(options)
    if options.only:
        cells = catalogue.select(cells, options.only)
    cells = _for_engine(cells, options)
    size_bytes = options.size_bytes
    if size_bytes is None:
        size_bytes = SIZE_ACCEPT_BYTES if mode == "accept" else SIZE_BYTES
    if size_bytes < MIB:
        raise UsageError(f"--size is {size_bytes} bytes, expected at least 1MiB")
    return Options(
        target=options.target,
        cells=cells,
        mode=mode,
        profile=options.profile,
        size_bytes=size_bytes // MIB * MIB,
        seed=secrets.randbits(32) if options.seed is None else options.seed,
        consent=Consent(destroy_data=options.destroy_data, force=options.force),
        show_serials=options.show_serials,
        fio=options.engine == "fio",
        idle_s=IDLE_QUICK_S if mode == "quick" else IDLE_S,
        wait_s=options.wait_s,
    )


def _for_engine(cells: tuple[Cell, ...], options: BenchOptions) -> tuple[Cell, ...]:
    """The cells that the chosen engines can measure. Raises UsageError if there are none, or if the profile
    needs fio."""
    if options.engine == "fio":
        if not any(cell.fio for cell in cells):
            raise UsageError("--engine fio: fio can measure none of these cells; choose others with --only")
        return cells
    if any(cell.group == "classic" for cell in cells):
        raise UsageError(
            f"--profile {options.profile}: only fio measures its cells without a sync; add --engine fio"
        )
    found = tuple(cell for cell in cells if not cell.only_fio)
    if not found:
        raise UsageError(f"only fio can measure {cells[0].name}; add --engine fio")
    return found


def _cells(options: BenchOptions) -> tuple[Mode, tuple[Cell, ...]]:
    asked = [options.quick, options.accept_minutes is not None, bool(options.profile)]
    if sum(asked) > 1:
        raise UsageError("--quick, --accept and --profile exclude each other; choose one")
    if options.quick:
        return "quick", catalogue.QUICK
    if options.accept_minutes is not None:
        return "accept", catalogue.sustained(options.accept_minutes)
    return "standard", catalogue.profile(options.profile) if options.profile else catalogue.STANDARD


def _save(result: Result, output: Path | None, err: TextIO) -> bool:
    """Save the result as `output`, or in the state directory if that fails or is None, so that it is not
    lost. Returns whether it was saved where the user wanted it."""
    if output is not None:
        try:
            saved_results.save(result, output)
            _say(f"the result is in {output}", err)
            return True
        except SetupError as error:
            _say(f"durability: {error}", err)
    try:
        path = saved_results.save_by_default(result)
        _say(f"the result is in {path}", err)
    except SetupError as error:
        _say(f"durability: the result was not saved: {error}", err)
        return False
    return output is None


def _save_page(result: Result, options: BenchOptions, err: TextIO) -> bool:
    """Save the page, if requested. Returns False if that failed."""
    html = options.html
    if html is None:
        return True
    try:
        saved_results.save_page(
            html_page.result_page(result),
            html,
            apart_from=() if options.output is None else (options.output,),
        )
    except (SetupError, UsageError) as error:
        _say(f"durability: {error}", err)
        return False
    _say(f"the page is in {html}", err)
    return True


def _keep(result: Result, endpoint: Endpoint, err: TextIO) -> bool:
    """Store a saved result on the server. Returns whether it was stored. Partial results are not stored."""
    again = "`durability bench --show FILE --keep` stores it later"
    if not result.complete:
        _say(f"durability: a partial result is not stored on the server; {again}", err)
        return False
    try:
        _say_kept(asyncio.run(kept_results.keep(endpoint, result)), err)
    except DurabilityError as error:
        _say(f"durability: the server did not store the result: {error}; {again}", err)
        return False
    return True


def _say_kept(name: str, err: TextIO) -> None:
    _say(f"the server stored the result as {name}", err)


def _say(text: str, err: TextIO) -> None:
    print(plain_text.as_text(text), file=err)


def _print(result: Result, out: TextIO, *, full: bool, json: bool) -> None:
    if json:
        print_json(summary_document(result), out)
    elif full:
        terminal_tables.show_result(result, _console(out), joined=_has_server())
    else:
        one_screen.show_screen(result, _console(out), joined=_has_server())


def _has_server() -> bool:
    """Whether commands on this machine find a server without an option that names it."""
    server, credential = (os.environ.get(f"DURABILITY_{name}") for name in ("SERVER", "CREDENTIAL"))
    try:
        endpoint(server or None, Path(credential) if credential else None)
    except (SetupError, FormatError, UsageError):
        return False
    return True


def _console(out: TextIO) -> Terminal:
    """The console for tables, wide enough for names and figures."""
    told = out.isatty() or "COLUMNS" in os.environ
    console = Terminal(file=out, width=None if told else _TABLE_WIDTH)
    console.width = max(console.width, _TABLE_WIDTH_MIN)
    return console


def _labels(paths: Sequence[Path]) -> tuple[str, ...]:
    """A short name for each result, in their order: the file name without its ending, the file name, or the
    path. The first kind that distinguishes all results is used."""
    # The same kind for all, because one file's name without its ending may be another's name with it.
    for names in (tuple(path.stem for path in paths), tuple(path.name for path in paths)):
        if len(set(names)) == len(names):
            return names
    return tuple(map(str, paths))
