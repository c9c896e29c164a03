"""`durability lab matrix`: every drive on every rig, cut again and again, and what the tester made of it.

The cells come from `cells`, a cut of one is made by `cutting` in a process of `workers`, its result is kept
by `cutlog` and told by `report` and `scoreboard`; here is only the order of things. Cuts are interleaved, one
of each cell and then the next of each, so that a matrix that is stopped has seen something of everything. Rig
A takes all processors but one; the others are one lane of their own, since two kernels' worth of drives at a
time would only wait for each other.

Refuses to leave a rig out in silence: what this machine lacks for one that was asked for is an error.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import TextIO

from rich.console import Console

from durability.documents import to_json
from durability.errors import SetupError, UsageError
from durability_lab import blockdev, machine, report, scoreboard
from durability_lab.cells import Cell, Load, Rig, digest, long_cells, quick_cells
from durability_lab.cutlog import CutLog, Header, seed_of
from durability_lab.progress import Progress
from durability_lab.workers import Request, Worker, workers

_PLAIN_COLUMNS = 132  # where nobody's terminal says how many there are


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixOptions:
    """What the command line says. `cuts` None: as many of each cell as it has; `cut` None: all of them, else
    only that one, to see it again."""

    quick: bool = False
    rigs: tuple[Rig, ...] = ()
    only: str = ""
    cuts: int | None = None
    cut: int | None = None
    seed: int | None = None
    state: Path | None = None
    markdown: Path | None = None
    json: bool = False
    verbose: bool = False

    def __str__(self) -> str:
        """Those that choose the cells, as they are typed."""
        words = ["--quick"] if self.quick else []
        words += [f"--rig {rig}" for rig in self.rigs]
        words += [f"--only '{self.only}'"] if self.only else []
        words += [f"--cuts {self.cuts}"] if self.cuts is not None else []
        words += [f"--cut {self.cut}"] if self.cut is not None else []
        return " ".join(words)


async def matrix(options: MatrixOptions, *, out: TextIO, err: TextIO) -> int:
    """Make the cuts that are not made yet and tell what all of them came to; the exit code.

    Raises UsageError, SetupError and FormatError where there is no matrix.
    """
    cells = choose(options)
    require(cells)
    seed = options.seed if options.seed is not None else seed_of(options.state)
    seed = secrets.randbits(32) if seed is None else seed
    header = Header(seed=seed, options=str(options), cells=digest(cells))
    with CutLog(header, options.state) as log:
        await _make(cells, log, options, err)
        _tell(cells, log, options, out)
        return report.exit_code(log.trials)


def choose(options: MatrixOptions) -> list[Cell]:
    """The cells that the options ask for. Raises UsageError where there are none, or options are at odds."""
    if options.cut is not None and (options.seed is None or options.state is not None):
        raise UsageError("--cut makes a cut of an earlier matrix again: give its --seed, and no --state")
    if options.markdown is not None and not options.markdown.absolute().parent.is_dir():
        raise UsageError(f"--markdown {options.markdown}: there is no such directory")
    every = quick_cells() if options.quick else long_cells()
    every = [cell for cell in every if not options.rigs or cell.rig in options.rigs]
    named = [cell for cell in every if options.only == cell.name]
    cells = named or [cell for cell in every if options.only in cell.name]
    if not cells:
        names = "\n".join(f"  {cell.name}" for cell in every)
        raise UsageError(f"no cell of the matrix has {options.only!r} in its name. The cells are:\n{names}")
    return cells if options.cuts is None else [replace(cell, cuts=options.cuts) for cell in cells]


def require(cells: Iterable[Cell]) -> None:
    """Raises SetupError for what this machine lacks for the rigs of `cells`."""
    rigs = {cell.rig for cell in cells}
    problems = []
    if "b" in rigs:
        names = {cell.load.file_system for cell in cells if isinstance(cell.load, Load)}
        problems += [("b", blockdev.missing(name)) for name in sorted(names, key=str)]
    if "c" in rigs:
        problems.append(("c", machine.missing()))
    for rig, problem in problems:
        if problem:
            raise SetupError(f"rig {rig} cannot be set up: {problem}. Rig a needs nothing: --rig a")


def pending(cells: Sequence[Cell], log: CutLog, options: MatrixOptions) -> list[Request]:
    """The cuts that are to be made: the first of each cell, the second of each, and so on."""
    done = {(trial.cell, trial.number) for trial in log.trials}
    by_cell = (
        [
            Request(cell=cell, number=number, seed=log.header.seed)
            for number in ([options.cut] if options.cut is not None else range(1, cell.cuts + 1))
            if (cell.name, number) not in done
        ]
        for cell in cells
    )
    return [request for row in zip_longest(*by_cell) for request in row if request is not None]


async def _make(cells: Sequence[Cell], log: CutLog, options: MatrixOptions, err: TextIO) -> None:
    """Make what is pending, each rig in a lane of its own."""
    requests = pending(cells, log, options)
    crews = _crews(requests)
    lanes = {rig: iter([one for one in requests if one.cell.rig == rig]) for rig in crews}
    with Progress(requests, crews, err) as progress:
        await _all(_work(lanes[rig], count, log, progress) for rig, count in crews.items())


def _crews(requests: Sequence[Request]) -> dict[Rig, int]:
    """How many workers each rig gets. Simulations take the processors that the others leave; of these each is
    one, since two kernels' worth of drives would only wait for each other."""
    rigs = {request.cell.rig for request in requests}
    spare = max(1, (os.cpu_count() or 1) - len(rigs - {"a"}))
    return {rig: spare if rig == "a" else 1 for rig in sorted(rigs)}


async def _work(lane: Iterator[Request], count: int, log: CutLog, progress: Progress) -> None:
    """Have so many workers make the cuts of a lane."""

    async def work(worker: Worker) -> None:
        for request in lane:
            progress.begin(request)
            trial = await worker.make(request)
            log.add(trial)
            progress.done(request, trial)

    async with workers(count) as crew:
        await _all(work(worker) for worker in crew)


def _tell(cells: Sequence[Cell], log: CutLog, options: MatrixOptions, out: TextIO) -> None:
    seed = log.header.seed
    if options.json:
        document = report.document(cells, log.trials, seed=seed, options=log.header.options)
        print(to_json(document), file=out)
    else:
        page = report.page(cells, log.trials, seed=seed, by_cell=options.verbose)
        width = None if out.isatty() else _PLAIN_COLUMNS
        Console(file=out, highlight=False, width=width).print(page)
    if options.markdown is not None:
        text = scoreboard.markdown(cells, log.trials, seed=seed, options=log.header.options)
        options.markdown.write_text(text)


async def _all(tasks: Iterable[Coroutine[None, None, None]]) -> None:
    """Do all of them; the first error ends the others, and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            for task in tasks:
                group.create_task(task)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from errors
