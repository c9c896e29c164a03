"""Measures cells on a target, interleaved, and makes a complete or partial result.

In each pass, the rounds of all cells are shuffled, so that drift (heat, garbage collection, neighbours)
affects all cells alike. The result contains the seed of the order. This module judges nothing. If a
measurement ends early - by Ctrl-C, SIGTERM or an error of the target - all complete rounds are in a result
that is marked as partial. The test files are removed in any case.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import durability
from durability.bench.catalogue import Mode
from durability.bench.cells import Cell
from durability.bench.hashed_serials import hash_serials
from durability.bench.measurement import Engine, Idle, Round
from durability.bench.result import INTERRUPTED, SCHEMA, SIGNALLED, CellRounds, Result
from durability.errors import DurabilityError, TargetError
from durability.formats.documents import escaped
from durability.formats.facts import Facts, MachineLoad
from durability.formats.mixing import combine
from durability_client.bench.measure import workspace as target
from durability_client.bench.measure.cost_meter import Meter, Spent, idle_of, spent
from durability_client.bench.measure.disturbances import wait_until_idle
from durability_client.bench.measure.fio import Fio, UnlikeError
from durability_client.bench.measure.hardware_bounds import medium
from durability_client.bench.measure.job import JobTask
from durability_client.bench.measure.job_processes import JobError, Jobs
from durability_client.bench.measure.layer_blocks import layer_blocks
from durability_client.bench.measure.rounds import round_of, work_of
from durability_client.bench.measure.workspace import CellPlace, LackError
from durability_client.system import host
from durability_client.target.kernel_storage import KernelStorage
from durability_client.target.safety_checks import Consent

IDLE_S, IDLE_QUICK_S = 1.0, 0.3
_LACKING = {errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS}  # the target does not support the call
_EXTRA_S, _EXTRA_FIO_S = 0.08, 0.5  # first estimate of a round's overhead
_OVERDUE_S = 5.0  # a round that is late by more is shown as one without an answer
_BELIEVED_S = 5.0  # weight of planned durations, against measured ones, in the estimate of the time left


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a measurement."""

    target: Path
    cells: tuple[Cell, ...]
    mode: Mode
    profile: str  # name of the profile, for the result
    size_bytes: int
    seed: int
    consent: Consent
    show_serials: bool
    fio: bool  # also measure with fio the cells that it supports
    idle_s: float = IDLE_S  # duration of the measurements of the idle machine before and after
    wait_s: float = 0.0  # longest wait for a drive that other programs use


class ProgressListener(Protocol):
    """Gets the progress of a measurement."""

    def say(self, text: str) -> None:
        """Gets a message for people."""

    def preparing(self, done: int, total: int) -> None:
        """Gets the bytes of test files that are written, and the total."""

    def measuring(self, doing: str, done_s: float, left_s: float) -> None:
        """Gets the current cell, the seconds since the start, and the estimated seconds left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredResult:
    """A result, and the exception that ended the measurement early, or None."""

    result: Result
    ending: BaseException | None


def measure(
    options: Options, listener: ProgressListener, hold: Callable[[], None] = lambda: None
) -> MeasuredResult:
    """Measure. `hold` is called after the last round, because the following steps must not be interrupted.
    Raises DurabilityError if nothing could be measured."""
    with ExitStack() as stack:
        measurement = _Measurement(options, listener, stack)
        measurement.prepare()
        ending: BaseException | None = None
        try:
            measurement.run()
            hold()
        except (DurabilityError, KeyboardInterrupt, SystemExit) as error:
            hold()
            listener.say("ended early: test files are being removed")
            if not measurement.order:
                raise
            ending = error
        return MeasuredResult(result=measurement.result(ending), ending=ending)


@dataclass(slots=True)
class _Entry:
    """A cell measured by one engine, its rounds so far, and why there are no more rounds, or ""."""

    cell: Cell
    engine: Engine
    rounds: list[Round] = field(default_factory=list)
    note: str = ""


class _Measurement:
    """State of one measurement. Resources to be released are on `stack`."""

    def __init__(self, options: Options, listener: ProgressListener, stack: ExitStack) -> None:
        self.order: list[int] = []  # for each round in time order, the index of its entry
        self._options = options
        self._listener = listener
        self._stack = stack
        self._fio = Fio() if options.fio else None
        target.check_size(options.cells, options.size_bytes)
        path = KernelStorage(options.target).path
        self._place = self._keep(target.place_of(path, options.consent, size_bytes=options.size_bytes))
        self._facts: Facts = KernelStorage(self._place.where).facts()
        self._layer_blocks = layer_blocks(self._facts)
        self._memory = self._memory_place()
        self._entries = [_Entry(cell, "durability") for cell in options.cells if not cell.only_fio]
        if self._fio is not None:
            self._entries += [_Entry(cell, "fio") for cell in options.cells if cell.fio]
        self._meter = Meter([drive.name for drive in self._facts.drives])
        self._jobs = stack.enter_context(Jobs(self._tell))
        self._progress = _Progress(self._entries)
        self._created = datetime.now(UTC).isoformat(timespec="seconds")
        self._began_s = time.monotonic()
        self._first_ns = 0

    def prepare(self) -> None:
        """Measure the idle machine, then write the test files."""
        cells = self._options.cells
        on_target = [cell for cell in cells if cell.place == "target"]
        in_memory = [cell for cell in cells if cell.place == "memory"]
        self._place.require_room(on_target)
        if self._memory is not None:
            self._memory.require_room(in_memory)
        began = host.ticks()
        settled = wait_until_idle(
            self._meter, self._facts, self._listener, idle_s=self._options.idle_s, wait_s=self._options.wait_s
        )
        self._alone: Spent = settled.alone
        self._facts = replace(self._facts, warnings=(*settled.disturbances, *self._facts.warnings))
        self._idle: list[Idle] = list(idle_of(self._alone))
        self._before: MachineLoad = host.machine_load(self._room(), since=began)
        self._ticks = host.ticks()
        try:
            self._place.prepare(on_target, self._listener.preparing)
            if self._memory is not None:
                self._memory.prepare(in_memory, lambda _, __: None)
        except OSError as error:
            raise TargetError(
                f"{self._options.target}: {_words(error.errno or 0, error.strerror or str(error))}"
            ) from error
        self._jobs.start(max((cell.jobs for cell in cells if not cell.only_fio), default=0))

    def run(self) -> None:
        """Measure all rounds. Raises the exception that ends them early."""
        for index, number in _rounds(self._entries, self._options.seed):
            entry = self._entries[index]
            if entry.note:
                self._progress.skip(entry)
                continue
            self._progress.begin(entry, number)
            self._tell()
            try:
                self._round(index, combine(self._options.seed, index, number))
            except LackError as error:
                entry.note = str(error)
            except UnlikeError as error:
                self._drop(index, str(error))
            except JobError as error:
                entry.note = _words(error.errno, str(error))
                if error.errno not in _LACKING:
                    raise self._ended_by(entry) from error
            except OSError as error:  # test files cannot be made or removed, so no cell can be measured
                entry.note = _words(error.errno or 0, error.strerror or str(error))
                raise self._ended_by(entry) from error
            self._progress.end()
        if not self.order:
            notes = dict.fromkeys(entry.note for entry in self._entries)
            raise TargetError(f"{self._options.target}: no cell could be measured: {'; '.join(notes)}")
        self._idle += idle_of(self._meter.leave_alone(self._options.idle_s))

    def _drop(self, index: int, note: str) -> None:
        """Remove all rounds of an entry: earlier rounds have the fault in `note`, too, but were too short to
        show it."""
        entry = self._entries[index]
        entry.rounds.clear()
        entry.note = note
        self.order = [other for other in self.order if other != index]

    def _ended_by(self, entry: _Entry) -> TargetError:
        return TargetError(f"{self._options.target}: {entry.cell.name}: {entry.note}")

    def result(self, ending: BaseException | None) -> Result:
        """The result of the measurement."""
        options = self._options
        after = None
        with suppress(OSError):  # the target may be gone
            after = host.machine_load(self._room(), since=self._ticks)
        media = tuple(medium(drive) for drive in self._facts.drives)
        result = Result(
            schema=SCHEMA,
            software=f"durability {durability.__version__}",
            created=self._created,
            mode=options.mode,
            profile=options.profile,
            seed=options.seed,
            size_bytes=options.size_bytes,
            complete=ending is None,
            stopped="" if ending is None else _stopped(ending),
            duration_s=time.monotonic() - self._began_s,
            facts=self._facts,
            serials="shown",
            machine=host.machine(),
            media=media,
            layer_blocks=self._layer_blocks,
            before=self._before,
            after=after,
            idle=tuple(self._idle),
            order=tuple(self.order),
            cells=tuple(
                CellRounds(
                    cell=entry.cell,
                    engine=entry.engine,
                    engine_version=self._version(entry.engine),
                    rounds=tuple(entry.rounds),
                    note=entry.note,
                )
                for entry in self._entries
            ),
        )
        result = escaped(result)
        return result if options.show_serials else hash_serials(result)

    def _keep(self, place: CellPlace) -> CellPlace:
        """Register `place` to be closed at the end of the measurement, and report its leftovers."""

        def close() -> None:
            if trouble := place.close():
                self._listener.say(trouble)

        self._stack.callback(close)
        for path in place.leftovers:
            self._listener.say(f"removed {path}, left over by a measurement that was killed")
        for path in place.others:
            self._listener.say(f"warning: another measurement runs in {path}: each of them slows the other")
        return place

    def _memory_place(self) -> CellPlace | None:
        if not any(cell.place == "memory" for cell in self._options.cells):
            target.remove_leftovers(target.MEMORY)  # nothing else frees this memory
            return None
        place = target.memory(self._options.size_bytes)
        return None if place is None else self._keep(place)

    def _round(self, index: int, seed: int) -> None:
        """Measure one round of an entry. The round counts even if its files cannot be removed afterwards.

        Raises LackError, UnlikeError, JobError, OSError, DurabilityError.
        """
        entry = self._entries[index]
        place = self._place if entry.cell.place == "target" else self._memory
        if place is None:
            raise LackError(f"needs a tmpfs with free space at {target.MEMORY}")
        try:
            tasks = place.begin(entry.cell, seed)
            measure = self._measure_fio if entry.engine == "fio" else self._measure
            measured = measure(entry.cell, tasks)
        except BaseException:
            with suppress(OSError):  # the first error is more informative
                place.end(entry.cell)
            raise
        entry.rounds.append(measured)
        self.order.append(index)
        place.end(entry.cell)

    def _measure(self, cell: Cell, tasks: Sequence[JobTask]) -> Round:
        jobs = self._jobs
        try:
            jobs.open(tasks)
            jobs.run(cell.jobs, seconds=cell.warmup_s)
            before = self._meter.read()
            start_ns, stretches = jobs.run(cell.jobs, seconds=cell.seconds)
            busy = spent(before, self._meter.read())
        except JobError:
            with suppress(JobError):
                jobs.close(cell.jobs, sync=False)
            raise
        jobs.close(cell.jobs, sync=True)
        started_s = self._since_first(start_ns)
        return round_of(cell, stretches, start_ns=start_ns, started_s=started_s, idle=self._alone, busy=busy)

    def _measure_fio(self, cell: Cell, tasks: Sequence[JobTask]) -> Round:
        assert self._fio is not None
        before = self._meter.read()
        measured, user_us, system_us = self._fio.run(cell, tasks, self._tell)
        busy = spent(before, self._meter.read())
        target.sync(tasks)
        work = work_of(measured.operations, user_us=user_us, system_us=system_us, idle=self._alone, busy=busy)
        return replace(measured, started_s=self._since_first(before.at_ns), work=work)

    def _since_first(self, start_ns: int) -> float:
        self._first_ns = self._first_ns or start_ns
        return (start_ns - self._first_ns) / 1e9

    def _room(self) -> Path | None:
        """A path on the target's file system, to read how full that is; None for a device."""
        return None if self._facts.kind == "device" else self._place.where

    def _version(self, engine: Engine) -> str:
        return self._fio.version if engine == "fio" and self._fio else durability.__version__

    def _tell(self) -> None:
        self._listener.measuring(self._progress.doing(), *self._progress.times())


class _Progress:
    """Estimate of the time left, from the duration of earlier rounds."""

    def __init__(self, entries: Sequence[_Entry]) -> None:
        self._doing = ""
        self._left_s = sum(self._planned_s(entry) * entry.cell.rounds for entry in entries)
        self._done_s = 0.0
        self._took_s = 0.0
        self._began_s = time.monotonic()
        self._round_s = 0.0
        self._round_began_s = self._began_s

    @staticmethod
    def _planned_s(entry: _Entry) -> float:
        if entry.engine == "fio":
            return entry.cell.seconds + _EXTRA_FIO_S
        return entry.cell.seconds + entry.cell.warmup_s + _EXTRA_S

    def skip(self, entry: _Entry) -> None:
        self._left_s -= self._planned_s(entry)

    def begin(self, entry: _Entry, number: int) -> None:
        name = entry.cell.name if entry.engine == "durability" else f"{entry.cell.name} ({entry.engine})"
        self._doing = f"{name} {number + 1}/{entry.cell.rounds}" if entry.cell.rounds > 1 else name
        self._round_s = self._planned_s(entry)
        self._round_began_s = time.monotonic()

    def end(self) -> None:
        self._took_s += time.monotonic() - self._round_began_s
        self._done_s += self._round_s
        self._left_s -= self._round_s

    def doing(self) -> str:
        """The current cell and round, and a note if the round takes too long."""
        late_s = time.monotonic() - self._round_began_s - self._round_s
        return self._doing if late_s < _OVERDUE_S else f"{self._doing}: no answer for {late_s:.0f} s"

    def times(self) -> tuple[float, float]:
        """Seconds since the start, and estimated seconds left."""
        now_s = time.monotonic()
        factor = (self._took_s + _BELIEVED_S) / (self._done_s + _BELIEVED_S)
        left_s = self._left_s * factor - (now_s - self._round_began_s)
        return now_s - self._began_s, max(0.0, left_s)


def _rounds(entries: Sequence[_Entry], seed: int) -> Iterator[tuple[int, int]]:
    """Index of the entry and number of the round, in time order.

    Each pass has one round of each cell with rounds left, shuffled. The rounds of both engines for a cell are
    adjacent, and their order alternates from pass to pass. Sustained cells come after all others.
    """
    numbers = {id(cell): number for number, cell in enumerate(entry.cell for entry in entries)}
    for number in range(max(entry.cell.rounds for entry in entries)):

        def key(index: int, number: int = number) -> tuple[int, int]:
            entry = entries[index]
            return combine(seed, number, numbers[id(entry.cell)]), (entry.engine == "fio") ^ (number % 2)

        sustained = [entry.cell.group == "sustained" for entry in entries]
        chosen = [
            index
            for index, entry in enumerate(entries)
            if number < entry.cell.rounds and not sustained[index]
        ]
        yield from ((index, number) for index in sorted(chosen, key=key))
    for index, entry in enumerate(entries):
        if entry.cell.group == "sustained":
            yield from ((index, number) for number in range(entry.cell.rounds))


def _words(code: int, text: str) -> str:
    """An error of the target as a sentence."""
    if code == errno.EINVAL:
        return "the target does not support O_DIRECT, or not for blocks of this size"
    if code in _LACKING:
        return f"the target does not support this call ({text})"
    if code in (errno.ENOSPC, errno.EDQUOT):
        return f"the target is full ({text}): free some space, or lower --size"
    if code == 0:  # the text names the cause
        return text
    return f"I/O error of the target: {text}"


def _stopped(ending: BaseException) -> str:
    if isinstance(ending, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(ending, SystemExit):
        return SIGNALLED
    return str(ending)
