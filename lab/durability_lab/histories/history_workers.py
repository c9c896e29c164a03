"""Worker processes that play histories: a search uses every processor and survives the death of a worker.

A search is split into parts, each with a seed of its own. The same seed therefore gives the same histories
for any number of processors. A worker reads parts from its stdin. On its stdout it reports each history that
it begins, each history that was right, and the result of the part, as lines of JSON. If a worker dies or is
silent for too long, the history that it played last has failed. If several parts fail, the first of them
counts, and the results of later parts are dropped.

The processes and their files go away with the command, even if it is killed.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import IO, Final, Literal, TypeAlias

from durability.errors import DurabilityError
from durability.formats.documents import from_json, from_value, to_json, to_value
from durability_lab.histories.kernel.kernel_search import play_on_kernel, search_on_kernel
from durability_lab.histories.play import play
from durability_lab.histories.search import Play, Search, SearchTally, WrongHistory, search
from durability_lab.histories.steps import History
from durability_lab.support.cleanup import in_memory, watched_directory
from durability_lab.support.worker_processes import last_words, start

Rig: TypeAlias = Literal["a", "b"]  # rig of the lab: simulated, or with a real kernel

_PARTS_MAX = 1_000_003  # most parts of one seed; a prime, so that the parts of two seeds differ


@dataclass(frozen=True, slots=True, kw_only=True)
class _Searching:
    """How a rig plays histories."""

    search: Search
    play: Play
    part: int  # histories in one part
    # Longest silence of a worker, in s: many times the duration of one history. On rig B, a `verify` of a
    # drive that hangs takes minutes.
    silent_s_max: float


RIGS: Final[Mapping[Rig, _Searching]] = {
    "a": _Searching(search=search, play=play, part=50, silent_s_max=300.0),
    "b": _Searching(search=search_on_kernel, play=play_on_kernel, part=5, silent_s_max=1200.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchShare:
    """One part of a search: `count` histories of the seed `seed` on `rig`, with files below `within`."""

    rig: Rig
    number: int
    count: int
    seed: int
    within: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A worker's report: it begins a history, the history was right, or the part has ended."""

    playing: str = ""  # the history that begins
    right: bool = False
    tally: SearchTally | None = None  # result of the part
    failed: str = ""  # the history of the part that went wrong, "" if none did
    what: str = ""  # what went wrong


@dataclass(slots=True)
class _Search:
    """The state that the workers of a search share."""

    parts: Iterator[SearchShare]  # parts still to be played
    on_right: Callable[[], None]  # called after each history that was right
    results: dict[int, tuple[SearchTally, WrongHistory | None]] = field(default_factory=dict)  # by part
    tasks: dict[int, asyncio.Task[None]] = field(default_factory=dict)  # by the part that each plays now

    @property
    def failed(self) -> int | None:
        """The first part that failed."""
        return min((number for number, (_, failure) in self.results.items() if failure), default=None)


async def search_everywhere(
    *, rig: Rig, count: int, seed: int, processes: int, on_right: Callable[[], None]
) -> tuple[SearchTally, WrongHistory | None]:
    """Play `count` histories of `seed` on `rig` in `processes` processes.

    Returns the tally of the histories up to the first failure, and that failure's history, shortened, or
    None. `on_right` is called after each history that was right. Raises DurabilityError if a process ended
    before it played a history.
    """
    with watched_directory("durability-histories-", within=in_memory()) as within:
        shared = _Search(parts=_parts(rig, count, seed, within), on_right=on_right)
        tasks = [asyncio.create_task(_work(shared)) for _ in range(processes)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                if not task.cancelled():
                    task.result()
            await asyncio.wait(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return _result(shared)


def _result(shared: _Search) -> tuple[SearchTally, WrongHistory | None]:
    total, failed = SearchTally(), shared.failed
    for number, (tally, _) in sorted(shared.results.items()):
        if failed is None or number <= failed:
            total.merge(tally)
    return total, None if failed is None else shared.results[failed][1]


def _parts(rig: Rig, count: int, seed: int, within: Path) -> Iterator[SearchShare]:
    size = RIGS[rig].part
    for number, done in enumerate(range(0, count, size)):
        yield SearchShare(
            rig=rig,
            number=number,
            count=min(count - done, size),
            seed=seed * _PARTS_MAX + number,
            within=within,
        )


async def _work(shared: _Search) -> None:
    """Let one process play parts until no part is left or one has failed; then cancel later parts."""
    task = asyncio.current_task()
    assert task is not None
    with tempfile.TemporaryFile() as said:
        worker = _Worker(said, shared.on_right)
        try:
            while shared.failed is None and (part := next(shared.parts, None)) is not None:
                shared.tasks[part.number] = task
                shared.results[part.number] = await worker.play(part)
                del shared.tasks[part.number]
        finally:
            await worker.end()
    if (failed := shared.failed) is not None:
        for number, other in shared.tasks.items():
            if number > failed:
                other.cancel()


class _Worker:
    """A worker process, seen from the command. Its stderr goes to the file `said`; if the process dies, the
    last line is reported as the reason."""

    def __init__(self, said: IO[bytes], on_right: Callable[[], None]) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._said = said
        self._on_right = on_right

    async def play(self, part: SearchShare) -> tuple[SearchTally, WrongHistory | None]:
        """Let the process play the part. Raises DurabilityError if it ended before it played a history."""
        process = self._process or await self._start(part.within)
        assert process.stdin is not None
        process.stdin.write(to_json(to_value(part)).encode() + b"\n")
        right, playing = SearchTally(), ""
        while (line := await self._line(process, RIGS[part.rig].silent_s_max)) is not None:
            if line.playing:
                playing = line.playing
            elif line.right:
                right.count(playing)
                self._on_right()
            elif line.tally is not None:
                failure = (
                    WrongHistory(history=History.parse(line.failed), what=line.what) if line.failed else None
                )
                return line.tally, failure
        self._process = None
        code = await process.wait()
        what = f"the process that played it ended with code {code}{last_words(self._said)}"
        if not playing:
            raise DurabilityError(f"no history of part {part.number} (seed {part.seed}) was played: {what}")
        return right, WrongHistory(history=History.parse(playing), what=what)

    async def _line(self, process: asyncio.subprocess.Process, silent_s_max: float) -> _Line | None:
        """The next line of the process; None if it has ended, or was killed after a long silence."""
        assert process.stdout is not None
        try:
            async with asyncio.timeout(silent_s_max):
                line = await process.stdout.readline()
        except TimeoutError:
            self._said.write(f"it had told nothing for {silent_s_max:g} s\n".encode())
            process.kill()
            return None
        return from_value(_Line, from_json(line)) if line.endswith(b"\n") else None

    async def end(self) -> None:
        """Kill the process. Its files are removed with the search."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()

    async def _start(self, within: Path) -> asyncio.subprocess.Process:
        storage = {"HYPOTHESIS_STORAGE_DIRECTORY": str(within / "hypothesis")}
        self._process = await start(__name__, self._said, storage)
        return self._process


def _read(parts: SimpleQueue[str]) -> None:
    """Queue the parts from stdin. End the process at once when the command is gone, even during a history."""
    for text in sys.stdin:
        parts.put(text)
    os._exit(0)


def main() -> None:
    """Entry point of the worker process: play one part per line, until the command closes stdin."""
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # keep other output out of the answers

    def tell(line: _Line) -> None:
        try:
            os.write(answers, to_json(to_value(line)).encode() + b"\n")
        except BrokenPipeError:
            os._exit(1)

    parts: SimpleQueue[str] = SimpleQueue()
    Thread(target=_read, args=(parts,), daemon=True).start()  # before any history has threads of its own
    gc.collect()
    gc.freeze()  # exempt the loaded modules from collection during histories
    while True:
        part = from_value(SearchShare, from_json(parts.get()))
        tally, failure = RIGS[part.rig].search(
            count=part.count,
            number=part.seed,
            within=part.within,
            on_play=lambda history: tell(_Line(playing=str(history))),
            on_right=lambda: tell(_Line(right=True)),
        )
        failed, what = (str(failure.history), failure.what) if failure else ("", "")
        tell(_Line(tally=tally, failed=failed, what=what))
