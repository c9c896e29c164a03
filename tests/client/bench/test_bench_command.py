"""The commands `bench` and `compare` as scripts see them: streams, exit codes, files."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from durability.bench.catalogue import STANDARD
from durability.bench.result import decode, encode
from durability.formats.plan import Plan
from durability.formats.record import superblock
from durability_client.bench.measure.workspace import Directory
from tests.core.bench.results import Device, simulate

COMMAND = str(Path(sys.executable).with_name("durability"))
DEADLINE_S = 120
# The directory of the tests may be on the root file system.
SMALL = ("--force", "--size", "64MiB", "--only", "headline", "--wait", "0")
MEMORY = ("--force", "--size", "64MiB", "--only", "fdatasync-memory", "--wait", "0")


pytestmark = pytest.mark.slow  # each starts the program, most measure


def _durability(environment: dict[str, str], *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, *(str(argument) for argument in arguments)],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


def test_a_result_is_printed_kept_and_shown_again(
    environment: dict[str, str], tmp_path: Path, place: Path
) -> None:
    """One command gives a screen and a file; `--show` prints the file the same way, `--full` its tables."""
    output = tmp_path / "result.json"
    done = _durability(environment, "bench", place, *SMALL, "--quick", "-o", output, "--seed", "5")
    assert done.returncode == 0, done.stderr
    assert "honest?" in done.stdout and "commits/s" in done.stdout
    assert f"the result is in {output}" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    result = decode(output.read_bytes())
    assert (result.mode, result.seed, result.complete) == ("quick", 5, True)
    shown = _durability(environment, "bench", "--show", output)
    assert (shown.returncode, shown.stdout) == (0, done.stdout)
    full = _durability(environment, "bench", "--show", output, "--full")
    assert "4k-random-fdatasync-overwritten" in full.stdout and "plausibility:" in full.stdout


def test_a_terminal_that_knows_only_ascii(environment: dict[str, str], tmp_path: Path, place: Path) -> None:
    """On an ASCII terminal, other characters become question marks, and the exit code does not change."""
    output = tmp_path / "result.json"
    assert _durability(environment, "bench", place, *SMALL, "--quick", "-o", output).returncode == 0
    narrow = environment | {"PYTHONIOENCODING": "ascii", "COLUMNS": "40"}
    done = _durability(narrow, "bench", "--show", output, "--full")
    assert done.returncode == 0, done.stderr
    assert "4k-random-fdatasync-overwritten" in done.stdout
    assert done.stdout.isascii() and "?s" in done.stdout
    assert _durability(narrow, "bench", "--show", output, "--json").returncode == 0


@pytest.mark.parametrize("printed", [(), ("--json",)], ids=["table", "json"])
def test_names_that_are_no_text_are_measured_and_shown(
    environment: dict[str, str], tmp_path: Path, printed: tuple[str, ...]
) -> None:
    """A directory, a file and a page of any bytes: all is kept, and what is printed can be read."""
    place, page = (tmp_path / os.fsdecode(name) for name in (b"odd\xff", b"page\xff.html"))
    place.mkdir()
    output = tmp_path / "result.json"
    options = ("--force", "--size", "2MiB", "--only", "headline", "--quick", "--wait", "0", "-o", output)
    done = _durability(environment, "bench", place, *options, "--html", page, *printed)
    assert done.returncode == 0, done.stderr
    assert decode(output.read_bytes()).facts.path == f"{tmp_path}/odd\\xff"
    assert r"odd\xff" in page.read_text()
    assert ("odd\\\\xff" if printed else "odd\\xff") in done.stdout
    assert list(place.iterdir()) == []


def test_json_is_one_document(environment: dict[str, str], place: Path, tmp_path: Path) -> None:
    """With --json stdout holds a summary and nothing else; the file goes to the state directory."""
    done = _durability(environment, "bench", place, *MEMORY, "--quick", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert next(iter(document)) == "schema"
    assert document["schema"].startswith("durability.bench-summary/")
    (kept,) = (tmp_path / "state/durability/bench").iterdir()
    assert decode(kept.read_bytes()).size_bytes == 64 << 20
    shown = _durability(environment, "bench", "--show", kept, "--json")
    assert json.loads(shown.stdout) == document


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "TARGET is missing"),
        (("--show", "x.json", "PLACE"), "remove TARGET"),
        (("--show", "x.json", "--quick", "--seed", "0"), "remove --quick, --seed"),
        (("PLACE", "-o", "PLACE"), "-o names TARGET"),
        (("PLACE", "--quick", "--accept"), "exclude each other; choose one"),
        (("PLACE", "--minutes", "5"), "--minutes needs --accept"),
        (("PLACE", "--accept", "--minutes", "1"), "minutes, not 1"),
        (("PLACE", "--only", "no-such-cell"), "no-such-cell"),
        (("PLACE", "--profile", "no-such-profile"), "no profile is named"),
        (("PLACE", "--seed", str(1 << 62)), "use a number below 2^62"),
        (("PLACE", "--size", "1XB"), "is not a size"),
        (("PLACE", "--size", "1MiB"), "too small"),
        (("PLACE", "--size", "0", "--quick"), "--size is 0 bytes, expected at least 1MiB"),
        (("PLACE", "--size", "1KiB", "--only", "fdatasync-memory"), "expected at least 1MiB"),
        (("PLACE", "--accept", "--minutes", "0"), "minutes, not 0"),
        (("PLACE", "--engine", "fio", "--only", "mix"), "fio can measure none of these cells"),
        (("PLACE", "--profile", "classic"), "--profile classic: only fio measures its cells without a sync"),
        (("PLACE", "--profile", "dedicated-server", "--only", "q16"), "only fio can measure"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_is_a_usage_error(
    environment: dict[str, str], place: Path, arguments: tuple[str, ...], words: str
) -> None:
    """A command line that contradicts itself ends with 2 and a sentence, before anything is made."""
    in_place = [str(place) if argument == "PLACE" else argument for argument in arguments]
    done = _durability(environment, "bench", *in_place)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_what_is_not_ours_is_the_environments_fault(environment: dict[str, str], tmp_path: Path) -> None:
    """A stranger's file and a device that is not there end with 5; the file keeps its bytes."""
    precious = tmp_path / "precious"
    precious.write_text("not ours\n")
    for target in (precious, Path("/dev/no-such-drive")):
        done = _durability(environment, "bench", target, *SMALL, "--quick")
        assert (done.returncode, done.stdout) == (5, "")
        assert str(target) in done.stderr
    assert precious.read_text() == "not ours\n"


def test_a_device_takes_consent(environment: dict[str, str], make_loop: Callable[..., Path]) -> None:
    """A block device ends with 2 without --destroy-data, and is measured with it."""
    device = make_loop(80 << 20)
    done = _durability(environment, "bench", device, *SMALL, "--quick")
    assert done.returncode == 2
    assert "--destroy-data" in done.stderr
    done = _durability(environment, "bench", device, *SMALL, "--quick", "--destroy-data", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["target"]["kind"] == "device"


def test_an_output_that_cannot_be_is_refused_first(
    environment: dict[str, str], place: Path, tmp_path: Path
) -> None:
    """A directory, or a file in a directory that does not exist, ends with 5 before a minute is lost."""
    (tmp_path / "dangling").symlink_to(tmp_path / "none/result.json")
    for output, words in (
        (tmp_path, "is a directory"),
        (tmp_path / "no/result.json", "does not exist; create it first"),
        (tmp_path / "dangling", "is a symbolic link, expected a name that is free"),
    ):
        done = _durability(environment, "bench", place, "-o", output)
        assert done.returncode == 5
        assert words in done.stderr


def test_a_result_that_could_not_be_kept_is_not_measured(environment: dict[str, str], place: Path) -> None:
    """If the state directory cannot be created, `bench` ends with 5 before it measures, and suggests -o."""
    done = _durability(environment | {"XDG_STATE_HOME": "/proc/none"}, "bench", place)
    assert done.returncode == 5
    assert "cannot create /proc/none" in done.stderr
    assert "name a file with -o" in done.stderr


def test_a_result_replaces_no_run(
    environment: dict[str, str], place: Path, tmp_path: Path, make_plan: Callable[..., Plan]
) -> None:
    """A target of `durability run`, which may still be to verify, is no place for a result or a page."""
    run, link = tmp_path / "run", tmp_path / "link"
    run.write_bytes(superblock(make_plan(), 0))
    before = run.read_bytes()
    link.symlink_to(run)
    for option, output in (("-o", run), ("-o", link), ("--html", run), ("--html", link)):
        done = _durability(environment, "bench", place, *MEMORY, "--quick", option, output)
        assert done.returncode == 5
        assert str(output) in done.stderr and "; name " in done.stderr
    assert run.read_bytes() == before


@pytest.mark.parametrize("command", ["bench --show A --html NODE", "compare A A --html NODE"])
def test_nothing_but_a_plain_file_is_replaced(
    environment: dict[str, str], tmp_path: Path, command: str
) -> None:
    """A page is put into the place of a file, and of nothing else that has a name: not of /dev/null."""
    result, node = tmp_path / "a.json", tmp_path / "node"
    result.write_bytes(encode(simulate(Device())))
    os.mkfifo(node)
    named = {"A": str(result), "NODE": str(node)}
    done = _durability(environment, *(named.get(word, word) for word in command.split()))
    assert done.returncode == 5
    assert f"{node}: a page cannot be written there" in done.stderr
    assert node.is_fifo()


def test_a_file_that_is_replaced_keeps_its_mode_and_its_links(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """A page that only its owner may read stays so, and a symbolic link still leads to it."""
    result, page, link = tmp_path / "a.json", tmp_path / "page.html", tmp_path / "link.html"
    result.write_bytes(encode(simulate(Device())))
    page.touch(0o600)
    link.symlink_to(page)
    assert _durability(environment, "bench", "--show", result, "--html", link).returncode == 0
    assert link.is_symlink()
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert page.stat().st_mode & 0o777 == 0o600


def test_two_measurements_in_one_place_are_told_of_each_other(
    environment: dict[str, str], place: Path
) -> None:
    """The second says that the first works there; neither takes the other's files for leftovers."""
    first = Directory(place, size_bytes=1 << 20)
    try:
        done = _durability(environment, "bench", place, *SMALL, "--quick")
    finally:
        assert first.close() == ""
    assert done.returncode == 0, done.stderr
    assert f"warning: another measurement runs in {place}/durability-bench-" in done.stderr


def test_a_result_is_not_thrown_away(
    environment: dict[str, str], place: Path, tmp_path: Path, loop_machine: None
) -> None:
    """Where the named file cannot be written after all, the result goes to the state directory, and that is
    said with 5."""
    full = tmp_path / "full"
    full.mkdir()
    subprocess.run(("mount", "-t", "tmpfs", "-o", "size=64k", "none", full), check=True)
    try:
        (full / "theirs").write_bytes(bytes(64 << 10))
        done = _durability(environment, "bench", place, *MEMORY, "-o", full / "result.json", "--full")
    finally:
        subprocess.run(("umount", full), check=True)
    assert done.returncode == 5
    assert f"cannot write a result {full / 'result.json'}: No space left on device" in done.stderr
    (kept,) = (tmp_path / "state/durability/bench").iterdir()
    assert decode(kept.read_bytes()).complete
    assert "4k-random-fdatasync-memory-overwritten" in done.stdout


def test_a_file_that_is_no_result_is_named(environment: dict[str, str], tmp_path: Path) -> None:
    """A file that is missing or not a benchmark result gives exit code 5 and the file's name."""
    path = tmp_path / "other.json"
    path.write_text('{"schema": "durability.run/1"}')
    for name, words in ((path, "not the result of a benchmark"), (tmp_path / "none.json", "cannot read")):
        for arguments in (("bench", "--show", name), ("compare", name, name)):
            done = _durability(environment, *arguments)
            assert (done.returncode, done.stdout) == (5, "")
            assert str(name) in done.stderr
            assert words in done.stderr


def test_results_with_nothing_in_common_are_not_compared(environment: dict[str, str], tmp_path: Path) -> None:
    """Other cells end with 2 and the reason, in words or as a document; one file is no comparison."""
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path, cell in zip(paths, STANDARD[:2], strict=True):
        path.write_bytes(encode(simulate(Device(), cells=[cell])))
    done = _durability(environment, "compare", *paths)
    assert done.returncode == 2
    assert "not comparable: no cell was measured in all results" in done.stdout
    done = _durability(environment, "compare", *paths, "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["refusals"]
    assert _durability(environment, "compare", paths[0]).returncode == 2


def test_runs_are_compared(environment: dict[str, str], place: Path, tmp_path: Path) -> None:
    """Two runs of one cell, one of them quick, have a ratio and an answer, and the exit code is 0."""
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path, quick in zip(paths, ((), ("--quick",)), strict=True):
        assert _durability(environment, "bench", place, *MEMORY, *quick, "-o", path).returncode == 0
    done = _durability(environment, "compare", *paths, "--json")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["refusals"] == [] and document["proofs"] == [None, None]
    assert len(document["cells"]) == 1
    done = _durability(environment, "compare", *paths, "--full")
    assert done.returncode == 0
    assert "4k-random-fdatasync-memory-overwritten" in done.stdout
    done = _durability(environment, "compare", *paths)
    assert done.returncode == 0
    # A drive that has a serial of its own is one drive.
    assert re.match(r"answer  (Do not choose yet|Both results are of one drive \(serial )", done.stdout)
    done = _durability(environment, "compare", *paths, "--verdict-of", "night")
    assert done.returncode == 5 and "this machine has no server" in done.stderr
