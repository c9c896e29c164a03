"""`durability lab histories` as people use it: a search on every processor, a failure to be replayed."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from durability.errors import FormatError, SetupError, UsageError
from durability.evidence import verdict
from durability_lab.histories import histories_command
from durability_lab.histories.histories_command import HistoriesOptions, histories
from durability_lab.histories.play import play
from durability_lab.histories.search import SIMPLEST, SearchTally, WrongHistory, search
from durability_lab.histories.steps import History
from tests.lab.mutants.mutation import answering
from tests.lab.support.processes import Process, children, wait_until_gone
from tests.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

COMMAND = str(Path(sys.executable).with_name("durability"))
DEADLINE_S = 840  # a search takes 80 seconds of a processor, which others may have
HISTORY = """durability.history/1
seed 7
target device
drive flush-ignored
counters no
run
pass ms=400
cut
boot
verify
"""
# A tester for which nothing found is a loss, and one that has a defect.
blinded = answering(verdict._loss_reasons, "return ()")
broken = answering(verdict._loss_reasons, "return 1 // 0")


def lab_histories(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """`durability lab histories` with these arguments, to its end."""
    command = [COMMAND, "lab", "histories", *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=DEADLINE_S, **options)


@contextmanager
def searching(directory: Path) -> Iterator[tuple[subprocess.Popen[str], list[Process], Path]]:
    """A search that has no end, in `directory`, once all of its workers play; these, and where their files
    are."""
    command = [COMMAND, "lab", "histories", "--count", "1000000", "--seed", "3"]
    with subprocess.Popen(
        command, cwd=directory, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as search:
        try:
            wait_for(lambda: playing(search) == os.cpu_count(), lambda: children(search.pid))
            started = children(search.pid)
            yield search, [one for one, line in started.items() if is_worker(line)], files(search)
        finally:
            search.kill()


def is_worker(line: list[str]) -> bool:
    """Whether a process of this command line plays histories."""
    return any("history_workers" in part for part in line)


def files(search: subprocess.Popen[str]) -> Path:
    """Where the files of a search are: its cleanup process names it. Raises ValueError before it is there."""
    found = [line[-1] for line in children(search.pid).values() if "durability-rig-cleanup" in line]
    (path,) = found
    return Path(path)


def playing(search: subprocess.Popen[str]) -> int:
    """How many processes of a search have begun to play."""
    try:
        return len(list(files(search).glob("durability-history-*")))
    except ValueError:
        return 0


# -- one history -------------------------------------------------------------------------------------------


def test_a_history_is_the_same_in_each_play() -> None:
    """Two plays tell the same, to the microsecond and to the ids of runs."""
    history = History.parse(HISTORY)
    first, again = play(history), play(history)
    assert first == again
    assert any("loss (findings)" in line for line in first.told)


def test_no_clock_of_this_machine_is_told() -> None:
    """An error message has the date and time of a run: those of the history."""
    history = History.parse(HISTORY.partition("pass")[0] + "stop\nreplace\n")
    told = play(history).told
    assert told == play(history).told
    assert "of 2026-01-01T00:16:" in told[-1]


def test_a_play_leaves_nothing_behind(tmp_path: Path) -> None:
    """The files of a history are gone after it; their directory is that of the process."""
    for _ in range(2):
        play(History.parse(HISTORY), within=tmp_path)
        (directory,) = tmp_path.iterdir()
        assert list(directory.iterdir()) == []


def test_a_play_that_raises_leaves_nothing_for_the_next(tmp_path: Path) -> None:
    """The next play in the process is as if it were the first, so a search makes such a history short."""
    history = History.parse(HISTORY)
    for _ in range(2):
        with broken(), pytest.raises(ZeroDivisionError):
            play(history, within=tmp_path)
        (directory,) = tmp_path.iterdir()
        assert list(directory.iterdir()) == []
    assert play(history, within=tmp_path) == play(history)


def test_a_history_that_raises_is_made_short() -> None:
    """A defect of the product is found, and shortened, as a wrong verdict is."""
    with broken():
        _, failure = search(count=200, number=1)
    assert failure is not None
    assert failure.what == "ZeroDivisionError: integer division or modulo by zero"
    assert len(failure.history.steps) <= 4, failure.history


def test_a_replay_tells_what_happened(tmp_path: Path) -> None:
    """`--replay` prints each step with its time and each answer, and ends with 0 if all are deserved."""
    file = tmp_path / "some.history"
    file.write_text(HISTORY)
    out = io.StringIO()
    assert histories(HistoriesOptions(replay=file), out=out, err=io.StringIO()) == 0
    assert re.search(r"^ +0\.000 s  run$", out.getvalue(), re.M)
    assert re.search(r"^ +run [0-9a-f]{16}: loss \(findings\)$", out.getvalue(), re.M)
    assert out.getvalue().endswith("every verdict is correct\n")


def test_a_replay_as_json(tmp_path: Path) -> None:
    """With `--json` it is one document."""
    file = tmp_path / "some.history"
    file.write_text(HISTORY)
    out = io.StringIO()
    assert histories(HistoriesOptions(replay=file, json=True), out=out, err=io.StringIO()) == 0
    document = json.loads(out.getvalue())
    assert document["schema"] == histories_command.REPLAY_SCHEMA
    assert document["history"] == HISTORY
    assert document["wrong"] == []
    assert len(document["told"]) == 8


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (None, SetupError, "cannot be read: No such file"),
        (b"something else\n", FormatError, "not a history"),
        (b"\xff\xfe", FormatError, "codec can't decode"),
    ],
)
def test_a_file_that_is_no_history(
    tmp_path: Path, content: bytes | None, error: type[Exception], message: str
) -> None:
    """A file that cannot be read, or holds no history, is named with what is wrong with it."""
    file = tmp_path / "some.history"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(error, match=f"some.history.*{message}"):
        histories(HistoriesOptions(replay=file), out=io.StringIO(), err=io.StringIO())


def test_a_replay_takes_no_other_option(tmp_path: Path) -> None:
    """`--replay` with a count, a seed or an output file contradicts itself."""
    for options in ({"count": 3}, {"seed": 3}, {"output": tmp_path / "out"}):
        with pytest.raises(UsageError, match="--replay plays one history"):
            histories(HistoriesOptions(replay=tmp_path, **options), out=io.StringIO(), err=io.StringIO())


# -- a failure -------------------------------------------------------------------------------------------


def failure_of_a_blinded_tester() -> tuple[SearchTally, WrongHistory]:
    """What a search finds in a tester for which nothing is a loss."""
    with blinded():
        tally, failure = search(count=200, number=1)
    assert failure is not None
    return tally, failure


def test_a_failure_is_short_and_replays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search finds a history that a broken tester judges wrongly, makes it short, prints and writes it. The
    file replays to the same wrong verdict, and with the whole tester to the right one; no file is lost."""
    monkeypatch.chdir(tmp_path)
    tally, failure = failure_of_a_blinded_tester()
    assert "durable, and the target is damaged" in failure.what
    assert len(failure.history.steps) <= 4, failure.history
    Path("history-9.txt").write_text("precious")
    out = io.StringIO()
    options = HistoriesOptions(seed=9)
    assert histories_command.report(tally, failure, options, seed=9, duration_s=1.0, out=out) == 1
    assert Path("history-9.txt").read_text() == "precious"
    assert f"wrong: {failure.what}\n\n{failure.history}" in out.getvalue()
    assert out.getvalue().endswith("durability lab histories --replay history-9-2.txt\n")
    replay = HistoriesOptions(replay=Path("history-9-2.txt"))
    with blinded():
        assert histories(replay, out=io.StringIO(), err=io.StringIO()) == 1
    assert histories(replay, out=io.StringIO(), err=io.StringIO()) == 0
    assert histories_command.report(tally, failure, options, seed=9, duration_s=1.0, out=io.StringIO()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["history-9-2.txt", "history-9.txt"]


def test_a_failure_that_cannot_be_written_is_printed(tmp_path: Path) -> None:
    """A failing history is printed even if its output file was made by someone else meanwhile; that file
    stays."""
    taken = tmp_path / "taken"
    taken.write_text("precious")
    failure = WrongHistory(history=History.parse(HISTORY), what="as an example")
    for as_json in (False, True):
        out = io.StringIO()
        options = HistoriesOptions(output=taken, json=as_json)
        with pytest.raises(UsageError, match="taken exists by now"):
            histories_command.report(SearchTally(), failure, options, seed=9, duration_s=1.0, out=out)
        printed = json.loads(out.getvalue())["history"] if as_json else out.getvalue()
        assert HISTORY in printed
    assert taken.read_text() == "precious"


def test_an_output_file_is_looked_at_first(tmp_path: Path) -> None:
    """A file that exists, or a directory that does not, is an error before anything is played."""
    taken = tmp_path / "taken"
    taken.write_text("precious")
    for output, error in ((taken, UsageError), (tmp_path / "none" / "file", SetupError)):
        with pytest.raises(error, match=f"--output {output}"):
            histories(HistoriesOptions(output=output), out=io.StringIO(), err=io.StringIO())


def test_a_search_that_cannot_be_set_up_says_so() -> None:
    """It is no history that went wrong: what the lab lacks is told as it is."""

    def lacking(_: History) -> None:
        raise SetupError("no room in memory")

    with pytest.raises(SetupError, match="no room in memory"):
        search(count=5, number=1, on_play=lacking)


def test_parts_of_a_search_play_different_histories() -> None:
    """Hypothesis begins each search with the simplest history, and repeats some: each is played once in a
    part, and the simplest in none, so that many parts do not play it as often."""
    drawn: list[History] = []
    found = SearchTally()
    for part in range(2):
        tally, failure = search(count=20, number=part, on_play=drawn.append)
        assert failure is None
        found.merge(tally)
    assert SIMPLEST not in drawn
    assert (found.histories, found.distinct) == (40, len(set(map(str, drawn)))) == (40, 40)


# -- the search as a process ---------------------------------------------------------------------------------


def test_some_hundreds_of_histories_are_right(tmp_path: Path) -> None:
    """Every verdict of some hundred histories is deserved. `make nightly` plays others each time."""
    found = lab_histories("--count", "300", "--seed", "5", cwd=tmp_path)
    assert found.returncode == 0, f"{found.stdout}\n{found.stderr}"
    assert found.stdout.startswith("300 histories right, seed 5, ")


def test_the_same_seed_gives_the_same_histories(tmp_path: Path) -> None:
    """Two searches of one seed come to the same, but for the time that they took."""
    documents = []
    for _ in range(2):
        found = lab_histories("--count", "20", "--seed", "11", "--json", cwd=tmp_path)
        documents.append(json.loads(found.stdout))
        assert documents[-1].pop("duration_s") > 0
    assert documents[0] == documents[1]
    assert documents[0]["schema"] == histories_command.SCHEMA
    assert documents[0]["seed"] == 11
    assert documents[0]["distinct"] == documents[0]["histories"] == 20
    assert sum(documents[0]["verdicts"].values()) >= documents[0]["histories"]


def test_ctrl_c_ends_a_search_at_once(tmp_path: Path) -> None:
    """All processes end, 130 is the exit code, a line says how many were played, and no file is left."""
    with searching(tmp_path) as (search, started, made):
        search.send_signal(signal.SIGINT)
        out, err = search.communicate(timeout=DEADLINE_S)
        assert search.returncode == 130
        wait_until_gone(started, [made])
    assert re.search(r"^Stopped: [\d,]+ of 1,000,000 histories played, all right; seed 3$", err, re.M)
    assert out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_killed_search_leaves_no_process(tmp_path: Path) -> None:
    """After SIGKILL the workers end by themselves, and the files go away."""
    with searching(tmp_path) as (search, started, made):
        search.kill()
        wait_until_gone(started, [made])


def test_a_worker_that_dies_is_a_failure(tmp_path: Path) -> None:
    """A search ends with 1, names how the process ended, and writes the history that it played last."""
    with searching(tmp_path) as (search, started, made):
        os.kill(started[0].pid, signal.SIGKILL)
        out, _ = search.communicate(timeout=DEADLINE_S)
        wait_until_gone(started, [made])
    assert search.returncode == 1
    assert "the process that played it ended with code -9" in out
    (file,) = tmp_path.iterdir()
    assert file.name == "history-3.txt"
    History.parse(file.read_text())


# -- without the libraries -----------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [("greenlet",), ("hypothesis",), ("greenlet", "hypothesis")])
def test_the_command_names_what_is_not_installed(missing: tuple[str, ...]) -> None:
    """Without a library that only this command needs, it says what to install; the rest imports none."""
    script = (
        f"import sys; sys.modules.update(dict.fromkeys({missing!r})); sys.argv[0] = 'durability';"
        "import durability_lab.demo_command, durability_lab.matrix.matrix_command;"
        "import durability_lab.kernel_rig.drive_command, durability_lab.vm_rig.vm_command;"
        "import durability_server.server, durability_client.queries;"
        "import durability_client.run.run_command, durability_client.verify.verify_command;"
        "import durability_client.bench.bench_command;"
        "from durability_cli.main import main; main()"
    )
    found = subprocess.run(
        [sys.executable, "-c", script, "lab", "histories"],
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert found.returncode == 5, found.stderr
    names = " and ".join(missing)
    assert found.stderr == (
        f"durability: histories need {names}: type `make setup` in a copy of the repository,"
        " and use its `.venv/bin/durability`\n"
    )
