"""What the server's store has of a history, and the copies and exports that were taken of it meanwhile."""

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
    """The store as it was once: its files, and what it had then of `known`, `stored` and `looks`. `assumed`:
    of a server that ended then."""

    path: Path
    known: frozenset[int]
    stored: Mapping[int, Sequence[StoredVerdict]]
    looks: Mapping[int, Sequence[PlayedLook]]
    assumed: AssumedRuns


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """What the server had of a run once, as a file. `looks` and `assumed`: as of a copy."""

    path: Path
    looks: Mapping[int, Sequence[PlayedLook]]
    assumed: AssumedRuns


class StoreCopies:
    """`known`: the runs that the store has as armed, as it is now; `stored`: of each run the verdicts that it
    has, oldest first; `unanswered`: runs of which it may have others; `cut`: runs of which it must have seen
    that a cut ended them; `looks`: of each run what calls of `verify` have told it, oldest first. Copies and
    exports go below `directory`."""

    def __init__(self, directory: Path) -> None:
        self.known: set[int] = set()
        self.stored: dict[int, list[StoredVerdict]] = {}
        self.looks: dict[int, list[PlayedLook]] = {}
        self.unanswered: set[int] = set()
        self.cut: set[int] = set()
        self._directory = directory
        self._copies: list[_Copy] = []
        self._exports: list[Export] = []

    def add_copy(self, assumed: AssumedRuns) -> Path:
        """Where a copy of the store as it is now is to be put: a directory to make."""
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
        """Keep a case, as a document."""
        path = self._directory / f"export-{len(self._exports)}.json"
        path.write_text(to_json(case))
        self._exports.append(Export(path=path, looks=self._looks_now(), assumed=assumed))

    def _looks_now(self) -> dict[int, Sequence[PlayedLook]]:
        return {run: tuple(given) for run, given in self.looks.items()}

    def restore(self, step: Step) -> _Copy | None:
        """The copy on which a `server` step starts it; from here on it knows what it knew then. None: the
        store stays as it is."""
        if step["how"] not in ("newest", "oldest") or not self._copies:
            return None
        copy = of_age(self._copies, step) if step["how"] == "newest" else self._copies[0]
        self.known, self.cut = set(copy.known), set()
        self.stored = {run: list(given) for run, given in copy.stored.items()}
        self.looks = {run: list(given) for run, given in copy.looks.items()}
        return copy

    def export_for(self, step: Step) -> Export | None:
        """The export that a `verify` step judges by; None if it asks the server."""
        return of_age(self._exports, step) if step["log"] == "export" and self._exports else None


def put_back(copy: Path, directory: Path) -> None:
    """Put the files of a copy in place of the store in `directory`, whose server does not run."""
    for file in directory.glob("store*"):
        file.unlink()
    for file in copy.iterdir():
        shutil.copy(file, directory / file.name)


def of_age(paths: Sequence[T], step: Step) -> T:
    """The newest, or so many before it as the step says; the oldest if there are not so many."""
    return paths[max(0, len(paths) - 1 - int(step["age"]))]
