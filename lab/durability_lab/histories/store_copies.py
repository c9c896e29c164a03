"""The content of the server's store during a history, and the copies and exports taken of it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from durability.formats.documents import to_json
from durability_lab.histories.assumed_runs import AssumedRuns
from durability_lab.histories.cuts_and_answers import PlayedLook
from durability_lab.histories.steps import Step
from durability_lab.histories.stored_verdicts import StoredVerdict

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copy:
    """A copy of the store at one time: its files, and the values of `StoreCopies` at that time."""

    path: Path
    known: frozenset[int]
    stored: Mapping[int, Sequence[StoredVerdict]]
    looks: Mapping[int, Sequence[PlayedLook]]
    assumed: AssumedRuns  # the assumptions that hold if the server ended at that time


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """An export of one run to a file. `looks` and `assumed` are as in a copy."""

    path: Path
    looks: Mapping[int, Sequence[PlayedLook]]
    assumed: AssumedRuns


class StoreCopies:
    """The content of the store now, and its copies and exports, which go below `directory`."""

    def __init__(self, directory: Path) -> None:
        self.known: set[int] = set()  # runs that the store has as armed
        self.stored: dict[int, list[StoredVerdict]] = {}  # by run: its verdicts, oldest first
        self.looks: dict[int, list[PlayedLook]] = {}  # by run: the reports of `verify`, oldest first
        self.unanswered: set[int] = set()  # runs that may have other verdicts in the store
        self.cut: set[int] = set()  # runs whose end by a cut the store must have seen
        self._directory = directory
        self._copies: list[_Copy] = []
        self._exports: list[Export] = []

    def add_copy(self, assumed: AssumedRuns) -> Path:
        """Register a copy of the present store. Returns the directory that the caller makes for it."""
        path = self._directory / f"copy-{len(self._copies)}"
        stored = {run: tuple(given) for run, given in self.stored.items()}
        self._copies.append(
            _Copy(
                path=path,
                known=frozenset(self.known),
                stored=stored,
                looks=self._looks_now(),
                assumed=assumed,
            )
        )
        return path

    def add_export(self, case: Any, assumed: AssumedRuns) -> None:
        """Write a case to a file as a document, and register it as an export."""
        path = self._directory / f"export-{len(self._exports)}.json"
        path.write_text(to_json(case))
        self._exports.append(Export(path=path, looks=self._looks_now(), assumed=assumed))

    def _looks_now(self) -> dict[int, Sequence[PlayedLook]]:
        return {run: tuple(given) for run, given in self.looks.items()}

    def restore(self, step: Step) -> _Copy | None:
        """The copy on which a `server` step starts the server; the values become those of the copy. None if
        the store stays as it is."""
        if step["how"] not in ("newest", "oldest") or not self._copies:
            return None
        copy = of_age(self._copies, step) if step["how"] == "newest" else self._copies[0]
        self.known, self.cut = set(copy.known), set()
        self.stored = {run: list(given) for run, given in copy.stored.items()}
        self.looks = {run: list(given) for run, given in copy.looks.items()}
        return copy

    def export_for(self, step: Step) -> Export | None:
        """The export by which a `verify` step judges; None if the step asks the server."""
        return of_age(self._exports, step) if step["log"] == "export" and self._exports else None


def put_back(copy: Path, directory: Path) -> None:
    """Replace the store in `directory` with the files of a copy. The server must not run."""
    for file in directory.glob("store*"):
        file.unlink()
    for file in copy.iterdir():
        shutil.copy(file, directory / file.name)


def of_age(paths: Sequence[T], step: Step) -> T:
    """The entry that is the step's `age` older than the newest; the oldest if there are not enough."""
    return paths[max(0, len(paths) - 1 - int(step["age"]))]
