"""The results of a matrix's cuts, saved one by one, so that a stopped matrix can continue.

The file is text with one JSON document per line: first the header, then one line per finished cut.

    {"schema":"durability.lab.cuts/1","seed":7,"options":"--quick","cells":"5f0c…"}
    {"cell":"a honest raw overwrite x1 fdatasync","number":1,…}

An incomplete last line, left by a kill, is removed; any other invalid line is an error. The file of a matrix
with other options, another seed or other cells is refused: its cuts cannot be counted together with these. A
refused file is not changed. Without a file, the results are kept in memory only.
"""

from __future__ import annotations

import fcntl
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, Self, TypeVar

from durability.errors import FormatError, SetupError, UsageError
from durability.formats.documents import escaped, from_json, from_value, to_json, to_value
from durability_client.system import output_files
from durability_lab.matrix.graded_cut import GradedCut

T = TypeVar("T")
_BEGINNING = b'{"schema":"durability.lab.cuts/'


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The values that all cuts of a file share."""

    schema: Literal["durability.lab.cuts/1"] = "durability.lab.cuts/1"
    seed: int
    options: str  # the options of the command that choose the cells
    cells: str  # a digest of the cells and their numbers of cuts


class CutLog:
    """The finished cuts of one matrix, old and new. Use it in a `with` statement. `graded_cuts` has them in
    the order in which they were finished."""

    def __init__(self, header: Header, path: Path | None) -> None:
        self.header = header
        self.graded_cuts: list[GradedCut] = []
        self._path = path
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        """Open the file and read its cuts.

        Raises UsageError if the file belongs to another matrix or the path cannot be a log, FormatError if
        the file is not a log, and SetupError if it cannot be written.
        """
        if self._path is not None:
            self._file = _open(self._path)
            try:
                self._resume(self._file)
            except BaseException:
                self._file.close()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, graded_cut: GradedCut) -> None:
        """Save a graded cut; a kill of this process after that does not lose it. Raises SetupError."""
        self.graded_cuts.append(graded_cut)
        if self._file is not None:
            self._write(self._file, graded_cut)

    def _resume(self, file: IO[bytes]) -> None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(
                f"{self._path}: another matrix writes to it; wait for its end, or stop it"
            ) from error
        file.seek(0)
        whole, _, torn = file.read().rpartition(b"\n")
        lines = whole.splitlines()
        if lines:
            self._check(_parse(Header, lines[0], f"{self._path}:1"))
            for number, line in enumerate(lines[1:], 2):
                self.graded_cuts.append(_parse(GradedCut, line, f"{self._path}:{number}"))
        elif not _BEGINNING.startswith(torn[: len(_BEGINNING)]):
            raise FormatError(f"{self._path} is not a --state file; name another file")
        file.truncate(file.seek(0, 2) - len(torn))
        if not lines:
            self._write(file, self.header)

    def _check(self, found: Header) -> None:
        for what, theirs, ours in (
            ("seed", found.seed, self.header.seed),
            ("options", found.options or "none", self.header.options or "none"),
            ("cells of this version", found.cells, self.header.cells),
        ):
            if theirs != ours:
                raise UsageError(
                    f"{self._path} has the cuts of another matrix ({what}: {theirs} there, {ours} here);"
                    " give the same options to continue that matrix, or name another --state file"
                )

    def _write(self, file: IO[bytes], document: Header | GradedCut) -> None:
        try:
            file.write(to_json(to_value(document)).encode() + b"\n")
            file.flush()
        except OSError as error:
            with suppress(OSError):  # otherwise leaving the block would try to write the line again
                file.close()
            raise SetupError(f"--state {self._path} cannot be written: {error.strerror}") from error


def _open(path: Path) -> IO[bytes]:
    if not path.absolute().parent.is_dir():
        raise UsageError(f"--state {path}: its directory does not exist; create it first")
    if path.exists() and not path.is_file():
        raise UsageError(f"--state {path} is not a regular file")
    return output_files.to_append(path, "the --state file")


def seed_of(path: Path | None) -> int | None:
    """The seed of the matrix that wrote `path`; None if there is no file or no complete header yet. Raises
    FormatError for an invalid header, and SetupError if the file cannot be read."""
    if path is None or not path.is_file():
        return None
    try:
        with path.open("rb") as file:
            first = file.readline()
    except OSError as error:
        raise SetupError(f"--state {path} cannot be read: {error.strerror}") from error
    return _parse(Header, first, f"{path}:1").seed if first.endswith(b"\n") else None


def _parse(kind: type[T], line: bytes, where: str) -> T:
    try:
        return escaped(from_value(kind, from_json(line)))
    except FormatError as error:
        raise FormatError(
            f"{where}: {error}. It is not a --state file of this version; name another file"
        ) from error
