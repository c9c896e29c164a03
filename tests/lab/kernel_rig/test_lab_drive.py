"""`durability lab drive` as scripts use it: as a process, through its streams."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO

import pytest

from durability_lab.drive import faults
from durability_lab.truth.expected_verdict import FILTERS
from tests.lab.lab_command import COMMAND, DEADLINE_S, lab

pytestmark = pytest.mark.slow  # each starts the program


def test_missing_packages_of_a_drive_are_named(tmp_path: Path) -> None:
    """Without the tools of rig b it ends with 5 and says what to install."""
    done = lab("drive", "honest", env=os.environ | {"PATH": str(tmp_path)})
    assert (done.returncode, done.stdout) == (5, "")
    assert "install nbdkit" in done.stderr or "run as root" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("drive",),
        ("drive", "perfect"),
        ("drive", "early-ack:delay_s=1"),
        ("drive", "honest", "--size", "1000"),
        ("drive", "honest", "--directory", "/nonexistent"),
    ],
    ids=" ".join,
)
def test_drive_that_cannot_be_is_a_usage_error(arguments: tuple[str, ...]) -> None:
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
    lines = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
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
    """In a script, a command that is unknown or impossible now ends `lab drive` with exit code 2."""
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
