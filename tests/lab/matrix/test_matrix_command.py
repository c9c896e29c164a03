"""`durability lab matrix` as scripts use it: as a process, through its streams."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.lab.lab_command import COMMAND, lab
from tests.places import REFERENCE

DOCUMENTATION = REFERENCE / "cli.md"
SMALL = ("--rig", "a", "--quick", "--only", "a flush-ignored", "--cuts", "3", "--seed", "5")

pytestmark = pytest.mark.slow  # each starts the program, most cut drives


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state file of a small matrix that was never stopped."""
    state = tmp_path_factory.mktemp("matrix") / "cuts"
    assert lab("matrix", *SMALL, "--state", state).returncode == 0
    return state


@pytest.fixture
def state(finished: Path, tmp_path: Path) -> Path:
    """A copy of it, to go on with or to damage."""
    return Path(shutil.copy(finished, tmp_path))


def rows(state: Path) -> list[dict[str, Any]]:
    """The graded cuts of a state file, without what differs from time to time, in the order of their
    names."""
    lines = [json.loads(line) for line in state.read_text().splitlines()[1:]]
    for line in lines:
        del line["duration_s"]
    return sorted(lines, key=lambda line: (line["cell"], line["number"]))


def test_killed_matrix_goes_on(finished: Path, tmp_path: Path) -> None:
    """SIGKILL in the middle, then the same command again: what was done stays, and what follows is the same
    as in a matrix that was never stopped."""
    killed = tmp_path / "killed"
    endless = (*SMALL, "--cuts", "20000", "--state", str(killed))  # of each cell: it is never at its end
    kept = killed_after(2, endless, killed)
    assert killed_after(len(kept) + 2, endless, killed)[: len(kept)] == kept
    wanted = {(row["cell"], row["number"]): row for row in rows(finished)}
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
def test_state_with_cuts_of_no_cell_is_refused(state: Path, broken: str) -> None:
    """Each cut counts once, and only in the matrix that it is of: else 5, with the line."""
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


def test_matrix_is_resumed_with_the_same_options_only(state: Path) -> None:
    """Other options on the same file end with 2 and the difference; without --seed it is the file's."""
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


def test_one_cut_again(finished: Path) -> None:
    """--only, --seed and --cut make one cut of a matrix again, with the same outcome."""
    wanted = rows(finished)[1]
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
    """Without the tools of rig b the matrix ends with 5 and says what to install; rig a needs none."""
    bare = {"env": os.environ | {"PATH": str(tmp_path)}}
    done = lab("matrix", "--quick", **bare)
    assert (done.returncode, done.stdout) == (5, "")
    assert "install nbdkit" in done.stderr or "run as root" in done.stderr
    assert lab("matrix", *SMALL, **bare).returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [
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
