"""`durability lab histories`: plays histories at random on every processor, or one from a file.

A history that goes wrong ends the search: it is made short, printed as steps, and written to a file that
`--replay` plays again.
"""

from __future__ import annotations

import multiprocessing
import os
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, fields
from itertools import count as counting
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from durability.errors import EXIT_INTERNAL, EXIT_OK, SetupError, UsageError
from durability.formats.documents import to_json
from durability.formats.packing import Value
from durability.units import counted
from durability_lab.histories.play import play
from durability_lab.histories.search import Failure, Tally, search
from durability_lab.histories.steps import History

SCHEMA = "durability.histories/1"
_AT_ONCE = 100  # histories that one process plays for one seed
_LINE_S = 10.0  # between lines without a terminal
_SHOWN = 12  # of the most frequent reasons


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoriesOptions:
    """What the command line says. `replay`: play this file and nothing else."""

    count: int = 300
    seed: int | None = None
    replay: Path | None = None
    failure: Path = Path("failed.history")
    json: bool = False


def histories(options: HistoriesOptions, *, out: TextIO, err: TextIO) -> int:
    """Play them; the exit code. Raises UsageError for a file that holds no history, SetupError for one that
    cannot be read or written."""
    if options.replay is not None:
        return _replay(options.replay, out)
    number = secrets.randbits(32) if options.seed is None else options.seed
    began_s = time.monotonic()
    tally, failure = _search(options.count, number, err)
    duration_s = time.monotonic() - began_s
    if options.json:
        print(to_json(_document(tally, failure, number, duration_s)), file=out)
    else:
        _tell(tally, number, duration_s, out)
    if failure is None:
        return EXIT_OK
    try:
        options.failure.write_text(str(failure.history), encoding="utf-8")
    except OSError as error:
        raise SetupError(
            f"the failing history cannot be written to {options.failure}: {error.strerror}"
        ) from error
    if not options.json:
        print(f"\nwrong: {failure.what}\n\n{failure.history}", file=out)
        print(
            f"Written to {options.failure}; play it again: durability lab histories --replay {options.failure}",
            file=out,
        )
    return EXIT_INTERNAL


def _replay(file: Path, out: TextIO) -> int:
    try:
        history = History.parse(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SetupError(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{file}: {error}") from error
    played = play(history)
    for line in played.told:
        print(line, file=out)
    for what in played.wrong:
        print(f"wrong: {what}", file=out)
    if not played.wrong:
        print("every verdict is deserved", file=out)
    return EXIT_INTERNAL if played.wrong else EXIT_OK


def _search(count: int, number: int, err: TextIO) -> tuple[Tally, Failure | None]:
    """Play so many, in as many processes as there are processors; ends with the first failure."""
    total = Tally()
    bar = Progress(
        TextColumn("histories"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(file=err),
        disable=not err.isatty(),
        transient=True,
    )
    task = bar.add_task("", total=count)
    next_line_s, began_s = time.monotonic() + _LINE_S, time.monotonic()
    context = multiprocessing.get_context("spawn")
    processes = os.process_cpu_count() if hasattr(os, "process_cpu_count") else os.cpu_count()
    with bar, ProcessPoolExecutor(processes or 1, mp_context=context) as pool:
        waiting: set[Future[tuple[Tally, Failure | None]]] = set()
        parts = _parts(count, number)
        try:
            while True:
                while len(waiting) < (processes or 1) * 2 and (part := next(parts, None)) is not None:
                    waiting.add(pool.submit(_part, *part))
                if not waiting:
                    return total, None
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for one in done:
                    tally, failure = one.result()
                    total.merge(tally)
                    if failure is not None:
                        return total, failure
                bar.update(task, completed=total.histories)
                if bar.disable and time.monotonic() >= next_line_s:
                    next_line_s = time.monotonic() + _LINE_S
                    left_s = (
                        (time.monotonic() - began_s) / max(1, total.histories) * (count - total.histories)
                    )
                    print(
                        f"{total.histories} of {counted(count, 'history', 'histories')}, about {left_s:.0f} s left",
                        file=err,
                        flush=True,
                    )
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _parts(count: int, number: int) -> Iterator[tuple[int, int]]:
    """How many histories of which seed, until all are given out."""
    for part in counting():
        left = count - part * _AT_ONCE
        if left <= 0:
            return
        yield min(left, _AT_ONCE), number * 1_000_003 + part


def _part(count: int, number: int) -> tuple[Tally, Failure | None]:
    tally = Tally()
    return tally, search(count=count, number=number, tally=tally)


def _document(tally: Tally, failure: Failure | None, number: int, duration_s: float) -> dict[str, Value]:
    return {
        "schema": SCHEMA,
        "seed": number,
        **{field.name: _plain(getattr(tally, field.name)) for field in fields(tally)},
        "wrong": failure.what if failure else "",
        "history": str(failure.history) if failure else "",
        "duration_s": round(duration_s, 1),
    }


def _plain(value: int | Counter[str]) -> Value:
    return dict(value.most_common()) if isinstance(value, Counter) else value


def _tell(tally: Tally, number: int, duration_s: float, out: TextIO) -> None:
    print(f"{tally.histories} histories, seed {number}, {duration_s:.0f} s", file=out)
    for title, counts in (
        ("verdicts", tally.verdicts),
        ("reasons of the inconclusive", tally.reasons),
        ("inconclusive, though the facts allowed", tally.missed),
        ("right under a documented assumption", tally.limits),
    ):
        if counts:
            print(f"{title}:", file=out)
        for name, number_of in counts.most_common(_SHOWN):
            print(f"  {number_of:7d}  {name}", file=out)
