"""`durability lab histories`: plays random histories on every processor, or one history from a file.

A history that goes wrong ends the search. The command shortens it, prints its steps, and writes it to a file
that `--replay` plays again. A file with any other content is never overwritten.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shlex
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count as counting
from pathlib import Path
from typing import TextIO

from durability import plain_text
from durability.errors import EXIT_INTERNAL, EXIT_OK, FormatError, SetupError, UsageError
from durability.formats.documents import to_json
from durability.formats.packing import Value
from durability.units import counted
from durability_client.system.terminal import print_json
from durability_lab.histories.history_workers import RIGS, Rig, search_everywhere
from durability_lab.histories.search import SearchTally, WrongHistory
from durability_lab.histories.steps import History
from durability_lab.kernel_rig.block_rig import missing
from durability_lab.support.loads import FILE_SYSTEMS
from durability_lab.support.progress_line import ProgressLine

SCHEMA = "durability.lab.histories/1"
REPLAY_SCHEMA = "durability.lab.histories.replay/1"
COUNT = 300
_SHOWN = 12  # number of the most frequent entries that are printed
_COUNTED = {
    "verdicts": "verdicts",
    "reasons": "reasons of the inconclusive",
    "missed": "inconclusive, although the facts allowed a verdict",
    "limits": "right under a documented assumption",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoriesOptions:
    """The options of the command line."""

    rig: Rig = "a"  # "a" in virtual time, "b" on a real kernel
    count: int | None = None
    seed: int | None = None
    replay: Path | None = None  # play only this file
    output: Path | None = None  # where a failing history is written; None: a free name, current directory
    json: bool = False


def histories(options: HistoriesOptions, *, out: TextIO, err: TextIO) -> int:
    """Play the histories; returns the exit code.

    Raises UsageError if options contradict each other, FormatError if the file is not a history, and
    SetupError if the file cannot be read or written.
    """
    if options.rig == "b":
        _require_kernel_rig()
    if options.replay is not None:
        if (options.count, options.seed, options.output) != (None, None, None):
            raise UsageError("--replay plays one history: remove --count, --seed and --output")
        return _replay(options, options.replay, out)
    if options.output is not None:
        _probe(options.output)
    count = COUNT if options.count is None else options.count
    seed = secrets.randbits(32) if options.seed is None else options.seed
    began_s = time.monotonic()
    tally, failure = asyncio.run(_search(options.rig, count, seed, err))
    return report(tally, failure, options, seed=seed, duration_s=time.monotonic() - began_s, out=out)


def report(
    tally: SearchTally,
    failure: WrongHistory | None,
    options: HistoriesOptions,
    *,
    seed: int,
    duration_s: float,
    out: TextIO,
) -> int:
    """Print the result of a search and write the failing history; returns the exit code. Raises UsageError or
    SetupError if the history cannot be written."""
    written = None
    try:
        written = None if failure is None else _write(failure, options.output, seed)
    finally:  # the result is printed even if the history cannot be written
        if options.json:
            print(
                to_json(
                    _document(tally, failure, written, rig=options.rig, seed=seed, duration_s=duration_s)
                ),
                file=out,
            )
        else:
            _tell(tally, failure, written, rig=options.rig, seed=seed, duration_s=duration_s, out=out)
    return EXIT_OK if failure is None else EXIT_INTERNAL


async def _search(rig: Rig, count: int, seed: int, err: TextIO) -> tuple[SearchTally, WrongHistory | None]:
    every = counted(count, "history", "histories")
    print(f"{every}, seed {seed}", file=err, flush=True)
    right, began_s = 0, time.monotonic()

    def one_right() -> None:
        nonlocal right
        right += 1
        left_s = (time.monotonic() - began_s) / right * (count - right)
        progress.advance(left_s, f"{right:,} of {every} right")

    with ProgressLine(count, err, description="histories") as progress:
        try:
            return await search_everywhere(
                rig=rig, count=count, seed=seed, processes=os.cpu_count() or 1, on_right=one_right
            )
        except asyncio.CancelledError:
            print(f"Stopped: {right:,} of {every} played, all right; seed {seed}", file=err)
            raise


def _require_kernel_rig() -> None:
    """Raises SetupError if this machine lacks a requirement of rig B."""
    for file_system in FILE_SYSTEMS:
        if problem := missing(file_system):
            raise SetupError(f"histories cannot be played on rig b: {problem}")


def _replay(options: HistoriesOptions, file: Path, out: TextIO) -> int:
    try:
        history = History.parse(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SetupError(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise FormatError(f"{file}: {error}") from error
    played = RIGS[options.rig].play(history, None)
    if options.json:
        document: dict[str, Value] = {
            "schema": REPLAY_SCHEMA,
            "rig": options.rig,
            "history": str(history),
            "told": list(played.told),
            "wrong": list(played.wrong),
        }
        print_json(document, out)
    else:
        for line in played.told:
            print(line, file=out)
        for what in played.wrong:
            print(plain_text.as_text(f"wrong: {what}"), file=out)
        if not played.wrong:
            print("every verdict is correct", file=out)
    return EXIT_INTERNAL if played.wrong else EXIT_OK


def _probe(output: Path) -> None:
    """Check before the search that a failing history can be written. Raises UsageError or SetupError."""
    if output.exists():
        raise UsageError(f"--output {output} exists: name another file, or remove this one")
    if not os.access(output.absolute().parent, os.W_OK):
        raise SetupError(f"--output {output}: its directory does not exist or cannot be written")


def _write(failure: WrongHistory, output: Path | None, seed: int) -> Path:
    """Write the history to `output`, or to the first free name; returns the name. Without `output`, a name
    whose file already holds this history counts as free."""
    for file in _names(seed) if output is None else (output,):
        try:
            with file.open("x", encoding="utf-8") as new:
                new.write(f"# wrong: {' '.join(failure.what.split())}\n{failure.history}")
        except FileExistsError:
            if output is None and not _holds(file, failure.history):
                continue
            if output is not None:
                raise UsageError(f"{file} exists by now, and the history is not written") from None
        except OSError as error:
            raise SetupError(f"the history cannot be written to {file}: {error.strerror}") from error
        return file
    raise AssertionError("the names do not end")


def _names(seed: int) -> Iterator[Path]:
    yield Path(f"history-{seed}.txt")
    for number in counting(2):
        yield Path(f"history-{seed}-{number}.txt")


def _holds(file: Path, history: History) -> bool:
    try:
        return History.parse(file.read_text(encoding="utf-8")) == history
    except (OSError, ValueError):
        return False


def _document(
    tally: SearchTally,
    failure: WrongHistory | None,
    written: Path | None,
    *,
    rig: Rig,
    seed: int,
    duration_s: float,
) -> dict[str, Value]:
    return {
        "schema": SCHEMA,
        "rig": rig,
        "seed": seed,
        "histories": tally.histories,
        "distinct": tally.distinct,
        **{name: dict(getattr(tally, name).most_common()) for name in _COUNTED},
        "wrong": failure.what if failure else "",
        "history": str(failure.history) if failure else "",
        "file": str(written) if written else "",
        "duration_s": round(duration_s, 1),
    }


def _tell(
    tally: SearchTally,
    failure: WrongHistory | None,
    written: Path | None,
    *,
    rig: Rig,
    seed: int,
    duration_s: float,
    out: TextIO,
) -> None:
    right = counted(tally.histories, "history", "histories")
    print(f"{right} right, seed {seed}, {duration_s:.0f} s; {tally.distinct:,} different", file=out)
    for kind, title in _COUNTED.items():
        counts: Counter[str] = getattr(tally, kind)
        if counts:
            print(f"{title}:", file=out)
        for name, number in counts.most_common(_SHOWN):
            print(f"  {number:7,d}  {name}", file=out)
    if failure is not None:
        print(plain_text.as_text(f"\nwrong: {failure.what}\n\n{failure.history}"), file=out)
    if written is not None:
        where = "" if rig == "a" else f" --rig {rig}"
        again = f"durability lab histories{where} --replay {shlex.quote(str(written))}"
        print(plain_text.as_line(f"To play it again: {again}"), file=out)
