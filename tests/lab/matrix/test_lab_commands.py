"""`durability lab matrix` and `lab drive` as scripts use them: as processes, through their streams."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from durability_lab.drive import faults
from durability_lab.truth.expected_verdict import FILTERS
from tests.places import REFERENCE

COMMAND = str(Path(sys.executable).with_name("durability"))
DOCUMENTATION = REFERENCE / "cli.md"
DEADLINE_S = 120
SMALL = ("--rig", "a", "--quick", "--only", "a flush-ignored", "--cuts", "3", "--seed", "5")

pytestmark = pytest.mark.slow  # each starts the program, most cut drives


def lab(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """`durability lab` with these arguments, to its end."""
    command = [COMMAND, "lab", *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=DEADLINE_S, **options)


def rows(state: Path) -> list[dict[str, Any]]:
    """The graded cuts of a state file, without what differs from time to time, in the order of their
    names."""
    lines = [json.loads(line) for line in state.read_text().splitlines()[1:]]
    for line in lines:
        del line["duration_s"]
    return sorted(lines, key=lambda line: (line["cell"], line["number"]))


def test_killed_matrix_goes_on(tmp_path: Path) -> None:
    """SIGKILL in the middle, then the same command again: what was done stays, and what follows is the same
    as in a matrix that was never stopped."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert lab("matrix", *SMALL, "--state", whole).returncode == 0
    endless = (*SMALL, "--cuts", "20000", "--state", str(killed))  # of each cell: it is never at its end
    kept = killed_after(2, endless, killed)
    assert killed_after(len(kept) + 2, endless, killed)[: len(kept)] == kept
    wanted = {(row["cell"], row["number"]): row for row in rows(whole)}
    made = {(row["cell"], row["number"]): row for row in rows(killed)}
    assert len(made) >= 4
    assert {place: row for place, row in made.items() if place in wanted}.items() <= wanted.items()


def killed_after(count: int, arguments: Sequence[str], state: Path) -> list[str]:
    """Start a matrix, and kill it when its state file has `count` cuts; the whole lines of that file."""
    command = [COMMAND, "lab", "matrix", *arguments]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        follow = ["tail", "--lines=+1", "--follow=name", "--retry", f"--pid={process.pid}", str(state)]
        with subprocess.Popen(follow, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as lines:
            assert lines.stdout is not None
            try:
                assert all(lines.stdout.readline() for _ in range(1 + count)), "the matrix has ended"
            finally:
                process.kill()
                lines.kill()
    return state.read_text().rpartition("\n")[0].split("\n")


@pytest.mark.parametrize("broken", ["repeated", "another cell", "another seed"])
def test_state_with_cuts_of_no_cell_is_refused(tmp_path: Path, broken: str) -> None:
    """Each cut counts once, and only in the matrix that it is of: else 5, with the line."""
    state = tmp_path / "cuts"
    assert lab("matrix", *SMALL, "--state", state).returncode == 0
    last = json.loads(state.read_text().splitlines()[-1])
    changes = {
        "repeated": {},
        "another cell": {"cell": "a perfect"},
        "another seed": {"number": 1, "seed": 1},
    }
    with state.open("a") as file:
        print(json.dumps(last | changes[broken]), file=file)
    refused = lab("matrix", *SMALL, "--state", state)
    assert (refused.returncode, refused.stdout) == (5, "")
    assert "line 11" in refused.stderr
    assert "defect of this tool" not in refused.stderr


def test_paths_that_cannot_be_written_are_refused_before_the_first_cut(tmp_path: Path) -> None:
    """Directories, missing directories and the same file twice end with 2, a file that is kept from being
    written with 5; nothing is cut, and nothing is left."""
    for option in ("--markdown", "--state"):
        for path in (tmp_path, tmp_path / "missing" / "file"):
            refused = lab("matrix", *SMALL, option, path)
            assert (refused.returncode, refused.stdout) == (2, "")
            assert f"{option} {path}" in refused.stderr
        for kept in ("/proc/version", "/proc/page"):
            refused = lab("matrix", *SMALL, option, kept)
            assert (refused.returncode, refused.stdout) == (5, "")
            assert kept in refused.stderr and "cannot be written there" in refused.stderr
    page = tmp_path / "page"
    assert lab("matrix", *SMALL, "--markdown", page, "--state", page).returncode == 2
    assert list(tmp_path.iterdir()) == []
    page.write_text("years of work")
    assert lab("matrix", *SMALL, "--markdown", page).returncode == 5
    assert page.read_text() == "years of work"


def test_matrix_is_resumed_with_the_same_options_only(tmp_path: Path) -> None:
    """Other options on the same file end with 2 and the difference; without --seed it is the file's."""
    state = tmp_path / "cuts"
    assert lab("matrix", *SMALL, "--state", state).returncode == 0
    refused = lab("matrix", *SMALL, "--cuts", "4", "--state", state)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--cuts 3" in refused.stderr
    assert "--cuts 4" in refused.stderr
    resumed = lab("matrix", *SMALL[:-2], "--state", state)
    assert resumed.returncode == 0
    assert resumed.stdout.startswith("seed 5\n")


def test_matrix_document(tmp_path: Path) -> None:
    """--json is one document with the documented keys; --markdown names the command that made it."""
    page = tmp_path / "page.md"
    done = lab("matrix", *SMALL, "--json", "--markdown", page)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    section = DOCUMENTATION.read_text().partition("\n### `lab matrix --json`\n")[2].partition("\n##")[0]
    assert list(document) == re.findall(r"^\| `([^`]+)` \|", section, re.M)
    assert document["schema"] == "durability.lab.matrix/1"
    assert (document["seed"], document["totals"]["cuts"], document["totals"]["wrong"]) == (5, 9, 0)
    made_by = "durability lab matrix --quick --rig a --only 'a flush-ignored' --cuts 3 --seed 5 --state FILE"
    assert made_by in page.read_text()


def test_one_cut_again(tmp_path: Path) -> None:
    """--only, --seed and --cut make one cut of a matrix again, with the same outcome."""
    state = tmp_path / "cuts"
    assert lab("matrix", *SMALL, "--state", state).returncode == 0
    wanted = rows(state)[1]
    number = str(wanted["number"])
    done = lab("matrix", "--quick", "--only", wanted["cell"], "--seed", "5", "--cut", number, "--json")
    (row,) = json.loads(done.stdout)["rows"]
    assert (row["cuts"], row["smallest_loss"]) == (1, wanted["lost"])


def test_false_alarm_fails_the_command(tmp_path: Path) -> None:
    """A finished state file in which an honest drive was called a loss: exit 1, with cell and seed."""
    state = tmp_path / "cuts"
    honest = ("--rig", "a", "--quick", "--only", "a honest slots=512 rate=1000", "--cuts", "1", "--seed", "5")
    assert lab("matrix", *honest, "--state", state).returncode == 0
    header, row = state.read_text().splitlines()
    alarm = json.loads(row) | {"verdict": "loss", "grade": "false alarm", "reason": "loss: findings"}
    state.write_text(f"{header}\n{json.dumps(alarm)}\n")
    done = lab("matrix", *honest, "--state", state)
    assert done.returncode == 1
    assert f"WRONG (false alarm): {alarm['cell']} #1, seed {alarm['seed']}" in " ".join(done.stdout.split())


def test_missing_packages_are_named(tmp_path: Path) -> None:
    """Without the tools of rig b the matrix, and a drive, end with 5 and say what to install."""
    bare = {"env": os.environ | {"PATH": str(tmp_path)}}
    for arguments in (("matrix", "--quick"), ("drive", "honest")):
        done = lab(*arguments, **bare)
        assert (done.returncode, done.stdout) == (5, "")
        assert "install nbdkit" in done.stderr or "run as root" in done.stderr
    assert lab("matrix", *SMALL, **bare).returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("drive",),
        ("drive", "perfect"),
        ("drive", "early-ack:delay_s=1"),
        ("drive", "honest", "--size", "1000"),
        ("drive", "honest", "--directory", "/nonexistent"),
        ("matrix", "--only", "perfect"),
        ("matrix", "--cut", "1"),
        ("matrix", "--cut", "99", "--seed", "1"),
        ("matrix", "--quick", "--rig", "c"),
        ("matrix", "--rig", "d"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_is_a_usage_error(arguments: tuple[str, ...]) -> None:
    """It ends with 2 and a message, and sets nothing up."""
    done = lab(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr
    assert "Traceback" not in done.stderr


def test_models_are_listed() -> None:
    """--list has every model with its parameters and a line on each, and takes no privileges."""
    done = lab("drive", "--list")
    assert done.returncode == 0
    names = [line.partition(":")[0] for line in done.stdout.splitlines()[::2]]
    assert names == [*faults.CATALOGUE, *FILTERS]
    assert all(line.startswith("    ") for line in done.stdout.splitlines()[1::2])


class Stood:
    """A `lab drive` that runs: what it answered when it stood, and a way to tell it more."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self.process = process
        self._stdin: IO[str] = process.stdin
        self._stdout: IO[str] = process.stdout
        self.state, *self.places = self._stdout.readline().split()

    def tell(self, word: str) -> None:
        """Type a word and wait for the answer."""
        print(word, file=self._stdin, flush=True)
        self.state, *self.places = self._stdout.readline().split()

    def end(self) -> int:
        """End its input; its exit code."""
        self._stdin.close()
        return self.process.wait(DEADLINE_S)


@contextmanager
def stood(*arguments: str) -> Iterator[Stood]:
    """A drive for the time of a block, which is ended if the block has not done so."""
    command = [COMMAND, "lab", "drive", *arguments, "--size", "384MiB", "--seed", "3"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        drive = Stood(process)
        try:
            yield drive
        finally:
            if process.returncode is None:
                process.terminate()
                process.wait(DEADLINE_S)


def left(directory: Path) -> list[str]:
    """Mounts and files of a rig that are still there."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    mounts = [line for line in lines if str(directory) in line]
    return mounts + ([str(directory)] if directory.exists() else [])


@pytest.mark.usefixtures("rig_machine")
@pytest.mark.parametrize(("model", "kept"), [("honest", True), ("rollback:interval_ms=600000", False)])
def test_drive_under_somebody_elses_program(model: str, kept: bool) -> None:
    """SQLite commits on the drive's file system; after cut and on, the rows are there, or they are not."""
    with stood(model, "--file-system", "ext4") as drive:
        device, mount_point = drive.places
        assert Path(device).is_block_device()
        database = Path(mount_point, "rows.sqlite")
        with closing(sqlite3.connect(database)) as rows:
            rows.execute("PRAGMA synchronous = EXTRA")  # FULL does not sync the directory
            rows.execute("CREATE TABLE numbers (n INTEGER)")
            for number in range(10):
                with rows:
                    rows.execute("INSERT INTO numbers VALUES (?)", (number,))
        drive.tell("cut")
        assert (drive.state, drive.places) == ("off", [])
        drive.tell("on")
        assert drive.state == "on"
        if kept:
            with closing(sqlite3.connect(database)) as rows:
                assert rows.execute("SELECT count(*) FROM numbers").fetchone() == (10,)
        else:
            assert len(drive.places) == 1, "the file system was made after the state that the drive is in"
        assert drive.end() == 0
    assert left(Path(mount_point).parent) == []


@pytest.mark.usefixtures("rig_machine")
def test_drive_as_a_raw_device() -> None:
    """Without a file system it is a block device, and after a cut another enumeration of one."""
    with stood("honest") as drive:
        (device,) = drive.places
        before = Path("/sys/block", Path(device).name, "diskseq").read_text()
        with Path(device).open("r+b", buffering=0) as file:
            file.write(b"kept" * 1024)
            os.fsync(file.fileno())
        drive.tell("status")
        assert (drive.state, drive.places) == ("on", [device])
        drive.tell("cut")
        drive.tell("on")
        (device,) = drive.places
        assert Path("/sys/block", Path(device).name, "diskseq").read_text() != before
        with Path(device).open("rb") as file:
            assert file.read(4096) == b"kept" * 1024
        print("quit", file=drive.process.stdin, flush=True)
        assert drive.process.wait(DEADLINE_S) == 0


@pytest.mark.usefixtures("rig_machine")
@pytest.mark.parametrize(("words", "complaint"), [("on\n", "on: the drive has power"), ("stop\n", "'stop'")])
def test_word_that_cannot_be_ends_a_script(words: str, complaint: str) -> None:
    """What is unknown, or cannot be done now, ends a command that no terminal speaks to, with 2."""
    done = lab("drive", "honest", "--size", "384MiB", input=words)
    assert done.returncode == 2
    assert complaint in done.stderr


@pytest.mark.usefixtures("rig_machine")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_takes_the_drive_down(number: signal.Signals) -> None:
    """Ctrl-C and SIGTERM end it with 128 + the signal, and nothing of it is left."""
    with stood("honest", "--file-system", "xfs") as drive:
        directory = Path(drive.places[1]).parent
        drive.process.send_signal(number)
        assert drive.process.wait(DEADLINE_S) == 128 + number
    assert left(directory) == []
