"""A matrix's log is given a file that is not one: the file is refused, and stays as it is."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from durability.errors import FormatError, SetupError, UsageError
from durability_lab.matrix.cut_log import CutLog, Header, seed_of
from durability_lab.matrix.graded_cut import GradedCut, failed
from durability_lab.matrix.matrix_cells import MatrixCell
from durability_lab.simulated_rig.scenario import Scenario

HEADER = Header(seed=7, options="--quick", cells="0123")


def graded_cut(number: int) -> GradedCut:
    """Any graded cut."""
    cell = MatrixCell(rig="a", drive="honest", load=Scenario(), cuts=3)
    return failed(cell, number, seed=number, why="ü", duration_s=0.5)


@pytest.mark.parametrize("text", [b"notes", b"notes\nmore", b"\n\n", b'{"schema":"other', b"\xff\xfe\n\0"])
def test_file_of_something_else_is_left_alone(tmp_path: Path, text: bytes) -> None:
    """A file that is not a log is refused and not changed, even if its last line has no end."""
    path = tmp_path / "notes"
    path.write_bytes(text)
    with pytest.raises(FormatError, match="is not a --state file"), CutLog(HEADER, path):
        pass
    assert path.read_bytes() == text


def test_log_of_another_matrix_keeps_its_torn_line(tmp_path: Path) -> None:
    """Only the matrix that goes on with a log cuts off what a kill left."""
    path = tmp_path / "cuts"
    with CutLog(HEADER, path):
        pass
    text = path.read_bytes() + b'{"cell":"a hon'
    path.write_bytes(text)
    with pytest.raises(UsageError), CutLog(Header(seed=8, options="--quick", cells="0123"), path):
        pass
    assert path.read_bytes() == text


@pytest.mark.parametrize("torn", [b"", b"{", b'{"schema":"durability.lab.cuts/1","seed":'])
def test_torn_header_is_written_again(tmp_path: Path, torn: bytes) -> None:
    """If a kill during the first line tore the log's header, the log is started again."""
    path = tmp_path / "cuts"
    path.write_bytes(torn)
    with CutLog(HEADER, path):
        pass
    assert seed_of(path) == 7


@pytest.mark.parametrize("path", [Path("/dev/zero"), Path("/tmp"), Path("/nonexistent/cuts")], ids=str)
def test_path_that_can_be_no_log_is_refused(path: Path) -> None:
    """A device, which has no end, a directory, and what lies in none."""
    assert seed_of(path) is None
    with pytest.raises(UsageError, match=f"--state {path}"), CutLog(HEADER, path):
        pass


@pytest.mark.slow
def test_log_that_a_kill_left_at_any_byte_goes_on(tmp_path: Path) -> None:
    """Wherever the write was when it ended: what is whole is there, and the log is as if never cut off."""
    path = tmp_path / "cuts"
    graded_cuts = [graded_cut(number) for number in (1, 2)]
    with CutLog(HEADER, path) as log:
        for one in graded_cuts:
            log.add(one)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with CutLog(HEADER, path) as log:
            assert log.graded_cuts == graded_cuts[: max(0, whole[:length].count(b"\n") - 1)]
            for one in graded_cuts[len(log.graded_cuts) :]:
                log.add(one)
        assert path.read_bytes() == whole, length


def test_file_without_room_is_named_and_goes_on_later(tmp_path: Path) -> None:
    """A graded cut that cannot be kept ends the matrix with the file's name; those before it are kept."""
    path = tmp_path / "cuts"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with CutLog(HEADER, path) as log:
        log.add(graded_cut(1))
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 100, before[1]))
        try:
            with pytest.raises(SetupError, match=f"--state {path} cannot be written: "):
                log.add(graded_cut(2))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    with CutLog(HEADER, path) as log:
        assert log.graded_cuts == [graded_cut(1)]
