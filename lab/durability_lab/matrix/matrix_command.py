"""`durability lab matrix`: cuts every drive on every rig many times, and grades the verdicts.

`matrix_cells` names the cells, `cutting` makes a cut in a process of `cut_workers`, `cut_log` saves its
result, and `matrix_report` and `detection_page` print the results. This module only controls the order. Cuts
are interleaved: the first of each cell, then the second of each. A stopped matrix therefore has results of
every cell. Each rig with a kernel has one worker, because two such rigs' drives would only wait for each
other. Simulations use the other processors.

It never skips a requested rig silently: if this machine lacks something for it, that is an error.
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

from durability import plain_text
from durability.errors import FormatError, SetupError, UsageError
from durability.units import counted
from durability_client.system import output_files
from durability_client.system.terminal import Terminal, print_json
from durability_lab.kernel_rig import block_rig
from durability_lab.matrix import detection_page, matrix_report
from durability_lab.matrix.cut_log import CutLog, Header, seed_of
from durability_lab.matrix.cut_workers import CutRequest, Worker, workers
from durability_lab.matrix.matrix_cells import MatrixCell, Rig, digest, long_cells, quick_cells
from durability_lab.matrix.matrix_progress import MatrixProgress
from durability_lab.support.loads import Load
from durability_lab.vm_rig import guest_machine

_PAGE = "a page of results"
_PLAIN_COLUMNS = 144  # width if stdout is not a terminal


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixOptions:
    """The options of the command line."""

    quick: bool = False
    rigs: tuple[Rig, ...] = ()
    only: str = ""
    cuts: int | None = None  # cuts per cell; None: each cell's own number
    cut: int | None = None  # repeat only this cut; None: make all cuts
    seed: int | None = None
    state: Path | None = None
    markdown: Path | None = None
    json: bool = False
    verbose: bool = False

    def __str__(self) -> str:
        """The options that choose the cells, as they are typed."""
        words = ["--quick"] if self.quick else []
        words += [f"--rig {rig}" for rig in self.rigs]
        words += [f"--only '{self.only}'"] if self.only else []
        words += [f"--cuts {self.cuts}"] if self.cuts is not None else []
        words += [f"--cut {self.cut}"] if self.cut is not None else []
        return " ".join(words)


async def matrix(options: MatrixOptions, *, out: TextIO, err: TextIO) -> int:
    """Make the missing cuts and print the results of all cuts; returns the exit code. Raises UsageError,
    SetupError or FormatError if no matrix can be run."""
    cells = choose(options)
    _probe(options)
    require(cells)
    seed = options.seed if options.seed is not None else seed_of(options.state)
    seed = secrets.randbits(32) if seed is None else seed
    header = Header(seed=seed, options=str(options), cells=digest(cells))
    with CutLog(header, options.state) as log:
        _check(log, cells)
        await _make(cells, log, options, err)
        _tell(cells, log, options, out)
        return matrix_report.exit_code(log.graded_cuts)


def choose(options: MatrixOptions) -> list[MatrixCell]:
    """The cells that the options choose. Raises UsageError if there are none, or if options contradict each
    other."""
    if options.cut is not None and (options.seed is None or options.state is not None):
        raise UsageError("--cut repeats a cut of an earlier matrix: give its --seed, and remove --state")
    every = quick_cells() if options.quick else long_cells()
    for rig in options.rigs:
        if not any(cell.rig == rig for cell in every):
            raise UsageError(f"--quick has no cuts on rig {rig}: remove --quick or --rig {rig}")
    every = [cell for cell in every if not options.rigs or cell.rig in options.rigs]
    named = [cell for cell in every if options.only == cell.name]
    cells = named or [cell for cell in every if options.only in cell.name]
    if not cells:
        names = "\n".join(f"  {cell.name}" for cell in every)
        raise UsageError(f"no cell has {options.only!r} in its name. The cells are:\n{names}")
    if options.cuts is not None:
        cells = [replace(cell, cuts=options.cuts) for cell in cells]
    for cell in cells:
        if options.cut is not None and options.cut > cell.cuts:
            raise UsageError(
                f"--cut {options.cut}: {cell.name} has {counted(cell.cuts, 'cut')};"
                " give --only, and the --quick and --cuts of that matrix"
            )
    return cells


def _probe(options: MatrixOptions) -> None:
    """Check before the first cut that the page can be written.

    Raises UsageError if the path cannot be that of a page, and SetupError if this machine does not permit
    writing there. An existing file is not changed.
    """
    page = options.markdown
    if page is None:
        return
    if not page.absolute().parent.is_dir():
        raise UsageError(f"--markdown {page}: its directory does not exist; create it first")
    if page.exists() and not page.is_file():
        raise UsageError(f"--markdown {page} is not a regular file")
    if options.state is not None and page.resolve() == options.state.resolve():
        raise UsageError(f"--markdown and --state name the same file, {page}; name two files")
    output_files.check_replaceable(page, _PAGE, detection_page.is_page)


def _check(log: CutLog, cells: Iterable[MatrixCell]) -> None:
    """Raises FormatError if a cut in the log belongs to no cell, or is there twice."""
    wanted = {
        (cell.name, number, cell.seed(log.header.seed, number))
        for cell in cells
        for number in range(1, cell.cuts + 1)
    }
    for line, graded_cut in enumerate(log.graded_cuts, 2):
        try:
            wanted.remove((graded_cut.cell, graded_cut.number, graded_cut.seed))
        except KeyError:
            raise FormatError(
                f"--state, line {line}: {matrix_report.name(graded_cut)} is not a cut of this matrix, or is"
                " there twice; name another file"
            ) from None


def require(cells: Iterable[MatrixCell]) -> None:
    """Raises SetupError if this machine lacks a requirement of the cells' rigs."""
    rigs = {cell.rig for cell in cells}
    problems = []
    if "b" in rigs:
        names = {cell.load.file_system for cell in cells if isinstance(cell.load, Load)}
        problems += [("b", block_rig.missing(name)) for name in sorted(names, key=str)]
    if "c" in rigs:
        problems.append(("c", guest_machine.missing()))
    for rig, problem in problems:
        if problem:
            raise SetupError(f"rig {rig} cannot be set up: {problem}. Rig a needs no set-up: --rig a")


def pending(cells: Sequence[MatrixCell], log: CutLog, options: MatrixOptions) -> list[CutRequest]:
    """The cuts still to be made: the first of each cell, the second of each, and so on."""
    done = {(graded_cut.cell, graded_cut.number) for graded_cut in log.graded_cuts}
    by_cell = (
        [
            CutRequest(cell=cell, number=number, seed=log.header.seed)
            for number in ([options.cut] if options.cut is not None else range(1, cell.cuts + 1))
            if (cell.name, number) not in done
        ]
        for cell in cells
    )
    return [request for row in zip_longest(*by_cell) for request in row if request is not None]


async def _make(cells: Sequence[MatrixCell], log: CutLog, options: MatrixOptions, err: TextIO) -> None:
    """Make the pending cuts, those of each rig in a lane of their own."""
    requests = pending(cells, log, options)
    workers_by_rig = _workers_by_rig(requests)
    lanes = {rig: iter([one for one in requests if one.cell.rig == rig]) for rig in workers_by_rig}
    with MatrixProgress(requests, workers_by_rig, err) as progress:
        await _all(_work(lanes[rig], count, log, progress) for rig, count in workers_by_rig.items())


def _workers_by_rig(requests: Sequence[CutRequest]) -> dict[Rig, int]:
    """Number of workers per rig. Each rig with a kernel gets one: two kernels' drives would only wait for
    each other. Simulations get the remaining processors, at least one."""
    rigs = {request.cell.rig for request in requests}
    spare = max(1, (os.cpu_count() or 1) - len(rigs - {"a"}))
    return {rig: spare if rig == "a" else 1 for rig in sorted(rigs)}


async def _work(lane: Iterator[CutRequest], count: int, log: CutLog, progress: MatrixProgress) -> None:
    """Let `count` workers make the cuts of a lane."""

    async def work(worker: Worker) -> None:
        for request in lane:
            progress.begin(request)
            graded_cut = await worker.make(request)
            log.add(graded_cut)
            progress.done(request, graded_cut)

    async with workers(count) as started:
        await _all(work(worker) for worker in started)


def _tell(cells: Sequence[MatrixCell], log: CutLog, options: MatrixOptions, out: TextIO) -> None:
    seed = log.header.seed
    if options.json:
        document = matrix_report.document(cells, log.graded_cuts, seed=seed, options=log.header.options)
        print_json(document, out)
    else:
        page = matrix_report.page(cells, log.graded_cuts, seed=seed, by_cell=options.verbose)
        width = None if out.isatty() else _PLAIN_COLUMNS
        Terminal(file=out, highlight=False, width=width).print(page)
    if options.markdown is not None:
        again = str(replace(options, rigs=(), only="CELL", cut=None))
        text = detection_page.markdown(
            cells, log.graded_cuts, seed=seed, options=log.header.options, again=again
        )
        data = plain_text.as_text(text).encode()
        output_files.replace(options.markdown, data, _PAGE, detection_page.is_page)


async def _all(tasks: Iterable[Coroutine[None, None, None]]) -> None:
    """Run all tasks; the first error cancels the others and is raised unwrapped."""
    try:
        async with asyncio.TaskGroup() as group:
            for task in tasks:
                group.create_task(task)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from errors
