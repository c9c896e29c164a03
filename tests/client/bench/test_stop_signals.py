"""A measurement that is ended early, or whose terminal goes: what was measured is kept, and nothing stays."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from durability.bench.result import decode, encode
from tests.core.bench.results import Device, simulate

COMMAND = str(Path(sys.executable).with_name("durability"))
DEADLINE_S = 120
LONG = ("--force", "--size", "64MiB", "--only", "headline", "--only", "fdatasync-memory", "--wait", "0")
SHORT = ("--force", "--size", "64MiB", "--only", "fdatasync-memory", "--quick", "--wait", "0")

pytestmark = pytest.mark.slow  # each starts the program and measures


@pytest.fixture
def shown(tmp_path: Path) -> Path:
    """A result to show."""
    path = tmp_path / "shown.json"
    path.write_bytes(encode(simulate(Device())))
    return path


def _read_until(terminal: int, text: bytes) -> bytes:
    seen = b""
    while text not in seen:
        ready, _, _ = select.select([terminal], [], [], DEADLINE_S)
        assert ready, seen
        seen += os.read(terminal, 65536)
    return seen


def _read_rest(terminal: int) -> bytes:
    seen = b""
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            return seen
        if not data:
            return seen
        seen += data


def _interrupted(
    environment: dict[str, str],
    place: Path,
    output: Path,
    first: signal.Signals,
    later: tuple[signal.Signals, ...] = (),
) -> subprocess.CompletedProcess[str]:
    """A measurement that gets a signal once it has measured something, as the terminal shows, and others
    once it says that it ends."""
    terminal, theirs = os.openpty()
    arguments = [COMMAND, "bench", str(place), *LONG, "-o", str(output)]
    with subprocess.Popen(
        arguments, env=environment, stdout=subprocess.PIPE, stderr=theirs, text=True, start_new_session=True
    ) as process:
        os.close(theirs)
        seen = _read_until(terminal, b"2/5")
        process.send_signal(first)
        for number in later:
            seen += _read_until(terminal, b"ended early") if b"ended early" not in seen else b""
            process.send_signal(number)
        assert process.stdout is not None
        seen += _read_rest(terminal)
        out = process.stdout.read()
    os.close(terminal)
    return subprocess.CompletedProcess(arguments, process.returncode, out, seen.decode())


def _check_partial(output: Path) -> None:
    result = decode(output.read_bytes())
    assert not result.complete
    assert result.stopped
    assert 0 < len(result.order) < sum(one.cell.rounds for one in result.cells)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_keeps_what_was_measured(
    environment: dict[str, str], place: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """Ctrl-C, SIGTERM and a hangup end with 128 + the signal, a partial result, and no file left."""
    output = tmp_path / "partial.json"
    done = _interrupted(environment, place, output, number)
    assert done.returncode == 128 + number, done.stderr
    assert "the result is partial" in done.stderr
    _check_partial(output)
    assert "partial" in done.stdout


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_who_is_impatient_loses_nothing(
    environment: dict[str, str], place: Path, tmp_path: Path, second: signal.Signals
) -> None:
    """Signals after the first, while files are being removed, change nothing."""
    output = tmp_path / "partial.json"
    done = _interrupted(environment, place, output, signal.SIGINT, (second, second))
    assert done.returncode == 128 + signal.SIGINT, done.stderr
    _check_partial(output)


def test_a_terminal_that_is_closed_keeps_what_was_measured(
    environment: dict[str, str], place: Path, tmp_path: Path
) -> None:
    """If the terminal of all three streams closes, `bench` ends with SIGHUP's exit code, and the partial
    result is in its file."""
    output = tmp_path / "partial.json"
    process, terminal = os.forkpty()
    if process == 0:
        os.execve(COMMAND, [COMMAND, "bench", str(place), *LONG, "-o", str(output)], environment)
    _read_until(terminal, b"2/5")
    os.close(terminal)
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 128 + signal.SIGHUP
    _check_partial(output)


def test_a_killed_measurement_is_cleared_away_by_the_next(
    environment: dict[str, str], place: Path, tmp_path: Path
) -> None:
    """After a SIGKILL the files are still there; the next measurement removes them and says so."""
    killed = _interrupted(environment, place, tmp_path / "never.json", signal.SIGKILL)
    assert killed.returncode == -signal.SIGKILL
    (left,) = place.iterdir()
    done = subprocess.run(
        [COMMAND, "bench", place, *SHORT], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"removed {left}, left over by a measurement that was killed" in done.stderr


@pytest.mark.parametrize("closing", ["2>/dev/full", "2>&-", ">&- 2>&-", "<&- 2>&-"])
def test_who_cannot_be_told_how_far_it_is_still_gets_the_result(
    environment: dict[str, str], place: Path, tmp_path: Path, closing: str
) -> None:
    """Without a stderr, or with one that is full, and even without stdout, the result is in its file."""
    output = tmp_path / "result.json"
    script = f'exec "$@" {closing}'
    arguments = ["sh", "-c", script, "sh", COMMAND, "bench", str(place), *SHORT, "-o", str(output)]
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert decode(output.read_bytes()).complete


@pytest.mark.parametrize("command", ["bench --show A --html PAGE", "compare A A --html PAGE"])
@pytest.mark.parametrize("code", [141, 5], ids=["a reader that left", "a full disk"])
def test_a_page_is_made_whoever_reads_the_table(
    environment: dict[str, str], shown: Path, tmp_path: Path, command: str, code: int
) -> None:
    """A reader that leaves early ends with 141, a full disk behind stdout with 5; the page is there."""
    page = tmp_path / "page.html"
    named = {"A": str(shown), "PAGE": str(page)}
    if code == 141:
        reading, writing = os.pipe()
        os.close(reading)
    else:
        writing = os.open("/dev/full", os.O_WRONLY)
    done = subprocess.run(
        [COMMAND, *(named.get(word, word) for word in command.split())],
        env=environment,
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_jobs_never_hear_what_ends_programs() -> None:
    """Jobs and the process that starts them have SIGINT, SIGTERM and SIGHUP blocked from their first
    moment."""
    program = (
        "import signal\n"
        "from durability_client.system.processes import CONTEXT, starting\n"
        "with starting():\n"
        "    process = CONTEXT.Process(target=print, daemon=True)\n"
        "    process.start()\n"
        "    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])\n"
        "    process.join()\n"
        "assert blocked >= {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}, blocked\n"
        "assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=DEADLINE_S)
