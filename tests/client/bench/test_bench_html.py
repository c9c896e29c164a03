"""`--html` as people type it: where the page goes, and what it never replaces."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from durability.bench.cells import make_cell
from durability.bench.result import encode
from durability_client.bench.saved_results import save_page
from tests.client.bench.test_bench_command import COMMAND, DEADLINE_S
from tests.core.bench.results import Device, simulate

pytestmark = pytest.mark.slow  # each starts the program


def _durability(*arguments: str | Path, columns: str = "80") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, *map(str, arguments)],
        env=os.environ | {"COLUMNS": columns},
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


@pytest.fixture
def results(tmp_path: Path) -> tuple[Path, Path]:
    """Two result files."""
    paths = (tmp_path / "a.json", tmp_path / "b.json")
    for seed, path in enumerate(paths):
        path.write_bytes(encode(simulate(Device(), seed=seed)))
    return paths


def test_a_result_that_is_shown_has_a_page(results: tuple[Path, Path], tmp_path: Path) -> None:
    """`--show FILE --html PAGE` prints the screen and makes the page, as readable as any file."""
    page = tmp_path / "page.html"
    page.write_text("of yesterday")
    done = _durability("bench", "--show", results[0], "--html", page)
    assert (done.returncode, page.read_text()) == (5, "of yesterday")
    assert "exists and is not a page of this tool" in done.stderr
    page.unlink()
    assert _durability("bench", "--show", results[1], "--html", page).returncode == 0
    done = _durability("bench", "--show", results[0], "--html", page)
    assert done.returncode == 0, done.stderr
    assert "honest?" in done.stdout
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert page.stat().st_mode & 0o044 or os.umask(os.umask(0o022)) & 0o044


def test_a_measurement_has_a_page(tmp_path: Path) -> None:
    """`bench TARGET --html PAGE` makes it with the result, and says where it is."""
    target, page = tmp_path / "place", tmp_path / "page.html"
    target.mkdir()
    options = (
        "--force",
        "--size",
        "64MiB",
        "--only",
        "fdatasync-memory",
        "--wait",
        "0",
        "--quick",
        "-o",
        tmp_path / "r.json",
    )
    done = _durability("bench", target, *options, "--html", page)
    assert done.returncode == 0, done.stderr
    assert f"the page is in {page}" in done.stderr
    assert "4k-random-fdatasync-memory-overwritten" in page.read_text(encoding="utf-8")


def test_results_that_are_compared_have_a_page(results: tuple[Path, Path], tmp_path: Path) -> None:
    """`compare A B --html PAGE` makes one page of both, also of those that are refused."""
    page = tmp_path / "page.html"
    done = _durability("compare", *results, "--html", page)
    assert done.returncode == 0, done.stderr
    assert "b compared with a" in page.read_text(encoding="utf-8")
    results[1].write_bytes(encode(simulate(Device(), cells=[make_cell("commit", "", jobs=3)])))
    done = _durability("compare", *results, "--html", page)
    assert done.returncode == 2
    assert "These results are not comparable" in page.read_text(encoding="utf-8")


def test_a_page_is_durable_under_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is synced before it gets its name, and the directory after."""
    synced: list[tuple[Path, bool]] = []
    path, sync = tmp_path / "page.html", os.fsync

    def noting(fd: int) -> None:
        synced.append((Path(f"/proc/self/fd/{fd}").readlink(), path.exists()))
        sync(fd)

    monkeypatch.setattr(os, "fsync", noting)
    save_page("text", path)
    (file, named_before), (directory, named_after) = synced
    assert file.parent == tmp_path and not named_before
    assert directory == tmp_path and named_after
    assert path.read_text() == "text"


def test_a_page_never_replaces_its_result(results: tuple[Path, Path], tmp_path: Path) -> None:
    """A page named as the result that it shows, also by another path, is a usage error; the result stays."""
    before = results[0].read_bytes()
    link = tmp_path / "link.json"
    link.symlink_to(results[0])
    for arguments in (
        ("bench", "--show", results[0], "--html", link),
        ("compare", *results, "--html", results[0]),
        ("bench", tmp_path, "-o", results[0], "--html", results[0]),
    ):
        assert _durability(*arguments).returncode == 2
        assert results[0].read_bytes() == before


def test_a_page_that_cannot_be_is_refused_first(tmp_path: Path) -> None:
    """A page in no directory ends with 5 and a sentence, before anything is measured."""
    done = _durability("bench", tmp_path, "--html", tmp_path / "no/page.html")
    assert done.returncode == 5
    assert "does not exist; create it first" in done.stderr


@pytest.mark.parametrize("columns", ["80", "200"])
def test_columns_are_heeded(results: tuple[Path, Path], columns: str) -> None:
    """COLUMNS says how wide the table may be where stdout is no terminal."""
    done = _durability("bench", "--show", results[0], columns=columns)
    lines = [line for line in done.stdout.splitlines() if "next: durability" not in line]
    assert max(map(len, lines)) <= int(columns)
