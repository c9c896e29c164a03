"""The command line as scripts see it: exit codes, streams, JSON, and the page that documents them."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import typer

from durability.errors import EXIT_ENVIRONMENT
from durability.evidence.identity import LOG_UNKNOWN
from durability.evidence.outcome import NO_FLUSH
from durability.evidence.verdict import REASONS
from durability_cli import main
from durability_client.target import target_warnings
from tests.joined import credential_of_nobody
from tests.places import REFERENCE
from tests.waiting import DEADLINE_S

DOCUMENTATION = REFERENCE / "cli.md"
COMMAND = str(Path(sys.executable).with_name("durability"))
COMMANDS = (
    "serve",
    "join",
    "clients",
    "run",
    "verify",
    "device",
    "runs",
    "show",
    "export",
    "demo",
    "bench",
    "compare",
)
LAB_COMMANDS = ("lab matrix", "lab drive", "lab vm")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment in which nothing of this user's own server is found."""
    own = {"XDG_STATE_HOME": tmp_path / "state", "DURABILITY_CREDENTIAL": tmp_path / "credential.json"}
    return os.environ | {name: str(path) for name, path in own.items()} | {"COLUMNS": "200"}


def _durability(environment: dict[str, str], *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, *(str(argument) for argument in arguments)],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


@pytest.fixture
def server(environment: dict[str, str]) -> Iterator[str]:
    """The address of a `durability serve` on loopback with its store in a directory of its own."""
    with subprocess.Popen(
        [COMMAND, "serve", "--listen", "127.0.0.1:0"], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.fullmatch(r"Listening on (\S+)\.\n", line)
            assert found, line
            yield found[1]
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(DEADLINE_S) == 0


@pytest.mark.slow
def test_help_and_version_are_answers(environment: dict[str, str]) -> None:
    """Asked for, help and version go to stdout and succeed, without colour or markup."""
    for option in ("--help", "--version"):
        done = _durability(environment, option)
        assert (done.returncode, done.stderr) == (0, "")
        assert "\x1b" not in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("unknown",),
        ("run",),
        ("run", "t", "--unknown"),
        ("run", "t", "--size", "1XB"),
        ("run", "t", "--writers", "0"),
        ("run", "t", "--sync", "hope"),
        ("run", "t", "--server", "two words"),
        ("run", "t", "--sync", "dsync", "--group", "2"),
        ("run", "t", "--workload", "append", "--pattern", "random"),
        ("run", "t", "--duration", "-1"),
        ("verify",),
        ("verify", "t", "--run", "12"),
        ("run", "t", "--sync", "fullfsync"),
        ("verify", "t", "--cut-class", "os"),
        ("verify", "t", "--require-cut", "none"),
        ("show", "12"),
        ("serve", "--listen", "7420"),
        ("serve", "--store", "mysql://x/y"),
        ("run", ""),
        ("verify", ""),
        ("bench", ""),
        ("compare", "", ""),
    ],
    ids=" ".join,
)
def test_what_cannot_be_is_a_usage_error(
    environment: dict[str, str], tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """A command line that contradicts itself or the documentation ends with 2, a message and no traceback."""
    credential_of_nobody(Path(environment["DURABILITY_CREDENTIAL"]))
    in_place = [str(tmp_path / "t") if argument == "t" else argument for argument in arguments]
    done = _durability(environment, *in_place)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "t").exists()


@pytest.mark.slow
def test_a_missing_server_is_the_environments_fault(environment: dict[str, str], tmp_path: Path) -> None:
    """A command ends with 5 and names what is missing, if no server was joined or none listens."""
    path = tmp_path / "credential.json"
    done = _durability(environment, "runs")
    assert done.returncode == 5
    assert f"this machine has no server ({path} does not exist)" in done.stderr
    assert "durability join" in done.stderr
    credential_of_nobody(path)
    done = _durability(environment, "runs")
    assert done.returncode == 5
    assert (
        "cannot connect to 127.0.0.1:1: Connection refused; check that `durability serve` runs" in done.stderr
    )
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_credential_that_others_can_read_is_refused(environment: dict[str, str], tmp_path: Path) -> None:
    """A credential that others can read, or that `join` did not write, is refused with 5. For the first, the
    message gives the `chmod` command."""
    path = tmp_path / "credential.json"
    credential_of_nobody(path)
    path.chmod(0o644)
    done = _durability(environment, "runs", "--credential", path)
    assert done.returncode == 5
    assert f"chmod 600 {path}" in done.stderr
    path.write_text("{}")
    path.chmod(0o600)
    done = _durability(environment, "runs", "--credential", path)
    assert done.returncode == 5
    assert "is not a credential that `durability join` wrote" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("given", ["token-file", "tls-ca", "tls-fingerprint", "tls-cert", "tls-key"])
def test_a_token_is_refused_by_name(environment: dict[str, str], given: str) -> None:
    """An option of earlier releases ends with the line to type."""
    done = _durability(environment, "runs", f"--{given}", "durability.token")
    assert done.returncode == 2
    assert (
        "tokens and certificates are no longer given by hand" in done.stderr
        and "durability clients invite" in done.stderr
    )


@pytest.mark.slow
def test_an_unusable_target_is_named(environment: dict[str, str], tmp_path: Path, server: str) -> None:
    """A directory and a file that is not ours end `run` with 5, and the file keeps its bytes.

    `verify` refuses a directory as well.
    """
    precious = tmp_path / "precious"
    precious.write_text("not ours\n" * 1000)
    for target in (tmp_path, precious):
        done = _durability(environment, "run", target, "--server", server)
        assert done.returncode == 5
        assert str(target) in done.stderr
    done = _durability(environment, "verify", tmp_path, "--server", server)
    assert done.returncode == 5
    assert f"{tmp_path} is a directory; name a file in it" in done.stderr
    assert precious.read_text() == "not ours\n" * 1000


@pytest.mark.slow
def test_a_defect_is_short_unless_asked(environment: dict[str, str]) -> None:
    """An unforeseen exception ends with 1 and one line; with DURABILITY_TRACEBACK=1 it says where."""
    script = (
        "import durability_cli.main as cli\n"
        "@cli.app.command()\n"
        "def fail() -> None:\n"
        "    raise ZeroDivisionError('so it goes')\n"
        "cli.main()\n"
    )
    for traceback in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", script, "fail"],
            env=environment | {"DURABILITY_TRACEBACK": traceback},
            check=False,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        assert done.returncode == 1
        assert "so it goes" in done.stderr
        assert ("Traceback" in done.stderr) is (traceback == "1")


@pytest.mark.slow
def test_an_error_moves_no_cursor(environment: dict[str, str], tmp_path: Path) -> None:
    """Control characters of what an error quotes are escaped."""
    done = _durability(environment, "bench", "--show", tmp_path / "\x1b[2Jnone")
    assert done.returncode == EXIT_ENVIRONMENT
    assert r"\x1b[2Jnone" in done.stderr
    assert "\x1b" not in done.stderr


@pytest.mark.slow
def test_stdout_without_room_is_named(environment: dict[str, str]) -> None:
    """An answer that cannot be written is exit 5 and a sentence that says of what."""
    buffered = {name: value for name, value in environment.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [COMMAND, "--version"], env=buffered, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == EXIT_ENVIRONMENT
    assert done.stderr == "durability: stdout cannot be written: No space left on device\n"


@pytest.mark.slow
def test_a_reader_that_leaves_is_no_defect(environment: dict[str, str], tmp_path: Path) -> None:
    """With stdout closed by its reader a command ends with 141 and says nothing."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    with subprocess.Popen(
        [COMMAND, "device", str(tmp_path / "t"), "--json"],
        env=environment,
        stdout=write_end,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        os.close(write_end)
        _, errors = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, errors) == (141, "")


@pytest.mark.slow
@pytest.mark.parametrize("arguments", ["--help", "--version", "run --help"])
def test_a_reader_of_help_may_leave(environment: dict[str, str], arguments: str) -> None:
    """A help command whose reader closes the pipe ends with 141 and without an error message, as other
    commands do."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    unbuffered = environment | {"PYTHONUNBUFFERED": "1"}
    done = subprocess.run(
        [COMMAND, *arguments.split()],
        env=unbuffered,
        stdout=write_end,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.slow
def test_a_stderr_that_takes_nothing_holds_nobody_up(environment: dict[str, str]) -> None:
    """A pipe that is full and does not wait, as another program can leave a terminal."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    with suppress(BlockingIOError):
        while True:
            os.write(write_end, bytes(65536))
    done = subprocess.run(
        [COMMAND, "nosuch"], env=environment, stderr=write_end, timeout=DEADLINE_S, check=False
    )
    os.close(write_end)
    os.close(read_end)
    assert done.returncode == 2


def test_no_target_gets_the_number_of_a_stream(environment: dict[str, str]) -> None:
    """With all streams closed, they are open in every process that comes of this one, to nowhere."""
    program = (
        "import os, sys\n"
        "from durability_cli import streams as cli_streams\n"
        "from durability_client.system.processes import CONTEXT, starting\n"
        "def look(path):\n"
        "    with open(path, 'w') as file:\n"
        "        file.write(' '.join(os.readlink(f'/proc/self/fd/{fd}') for fd in range(3)))\n"
        "if __name__ == '__main__':\n"
        "    cli_streams.prepare()\n"
        "    with starting():\n"
        "        process = CONTEXT.Process(target=look, args=(sys.argv[1],))\n"
        "        process.start()\n"
        "    process.join()\n"
    )
    with tempfile.TemporaryDirectory() as directory:
        script, seen = Path(directory, "program.py"), Path(directory, "seen")
        script.write_text(program)
        closing = 'exec "$@" <&- >&- 2>&-'
        command = ("sh", "-c", closing, "sh", sys.executable, str(script), str(seen))
        subprocess.run(command, env=environment, check=True, timeout=DEADLINE_S)
        assert seen.read_text() == "/dev/null /dev/null /dev/null"


def _documents(text: str) -> list[dict[str, Any]]:
    documents = [json.loads(line) for line in text.splitlines()]
    for document in documents:
        assert next(iter(document)) == "schema"
    return documents


@pytest.mark.slow
def test_a_run_from_start_to_export(environment: dict[str, str], tmp_path: Path, server: str) -> None:
    """run, runs, show, export and verify speak the documented JSON; a clean stop is inconclusive, exit 4."""
    target = tmp_path / "target"
    small = ("--size", "4MiB", "--duration", "1.5", "--label", "of a test", "--json")
    done = _durability(environment, "run", target, "--force", "--server", server, *small)
    assert done.returncode == 0, done.stderr
    lines = _documents(done.stdout)
    assert {line["schema"] for line in lines} == {"durability.run/1"}
    assert list(lines[-1]) == _documented("`run --json`")
    assert lines[-1]["state"] == "stopped"
    assert lines[-1]["acked"] > 0
    run = lines[-1]["run"]

    assert run in _durability(environment, "runs", "--all", "--server", server).stdout
    (listing,) = _documents(_durability(environment, "runs", "--server", server, "--json").stdout)
    assert listing["runs"][0]["run"] == run
    assert "of a test" in _durability(environment, "show", run, "--server", server).stdout
    (shown,) = _documents(_durability(environment, "show", run, "--server", server, "--json").stdout)
    assert shown["case"]["run"] == run

    exported = tmp_path / "case.json"
    assert _durability(environment, "export", run, "--server", server, "-o", exported).returncode == 0
    attested = ("--attest-cut", "none was made", "--json")
    for source in (("--server", server), ("--from-export", exported)):
        done = _durability(environment, "verify", target, *source, *attested)
        assert done.returncode == 4, done.stderr
        (verdict,) = _documents(done.stdout)
        assert list(verdict) == _documented("`verify --json`")
        assert verdict["verdict"] == "inconclusive"
        assert {reason["code"] for reason in verdict["reasons"]} <= set(REASONS)
    page = _durability(environment, "show", run, "--server", server).stdout
    assert "stands       inconclusive, cut: none, of " in page
    assert "asked for: a cut of class power, 1 verified cut" in page


@pytest.mark.slow
def test_a_target_may_have_a_name_that_is_no_text(
    environment: dict[str, str], tmp_path: Path, server: str
) -> None:
    """A target whose name is not valid UTF-8 can be written and verified. The output shows its name with
    escapes."""
    target = Path(os.fsdecode(bytes(tmp_path / "odd") + b"\xfe"))
    done = _durability(
        environment, "run", target, "--force", "--server", server, "--size", "4MiB", "--duration", "0.5"
    )
    assert done.returncode == 0, done.stderr
    done = _durability(environment, "verify", target, "--server", server, "--json")
    assert done.returncode == 4, done.stderr
    assert json.loads(done.stdout)["subject"]["path"].endswith("odd\\xfe")


@pytest.mark.slow
def test_a_failed_export_leaves_an_earlier_one_alone(
    environment: dict[str, str], tmp_path: Path, server: str
) -> None:
    """An export never replaces a file, and one that the server refuses makes none; both end with 5."""
    kept, new = tmp_path / "case.json", tmp_path / "new.json"
    kept.write_text("an earlier export")
    for output, words in (
        (kept, f"{kept} exists, so it is not overwritten; name another file"),
        (new, "no run 0123456789abcdef"),
    ):
        done = _durability(environment, "export", "0123456789abcdef", "--server", server, "-o", output)
        assert done.returncode == 5
        assert words in done.stderr
    assert kept.read_text() == "an earlier export"
    assert not new.exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_a_run_cleanly(
    environment: dict[str, str], tmp_path: Path, server: str, number: signal.Signals
) -> None:
    """Ctrl-C or SIGTERM while records are written ends with 128 + the signal, after a clean stop."""
    with subprocess.Popen(
        [COMMAND, "run", str(tmp_path / "target"), "--force", "--server", server, "--size", "4MiB", "--json"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        states, told = [], False
        for line in process.stdout:
            states.append(json.loads(line)["state"])
            if not told and states[-1] in (
                "running",
                "waiting for credit",
            ):  # a small target has little of it
                process.send_signal(number)
                told = True
        assert process.wait(DEADLINE_S) == 128 + number
    assert states[-1] == "stopped"


def _section(title: str) -> str:
    found = re.search(rf"^##+ {re.escape(title)}\n(.*?)(?=^##|\Z)", DOCUMENTATION.read_text(), re.M | re.S)
    assert found, f"docs/reference/cli.md has no section {title!r}"
    return found[1]


def _documented(title: str) -> list[str]:
    """The names in the first column of the table in a section of docs/reference/cli.md, in its order."""
    cells = re.findall(r"^\| (`[^|]+`) \|", _section(title), re.M)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def test_every_reason_is_documented() -> None:
    """docs/reference/cli.md lists the reason codes of a verdict, all of them and no others."""
    assert set(_documented("Reasons")) == set(REASONS)


def test_every_warning_is_documented() -> None:
    """docs/reference/cli.md lists the codes that warnings are made with, all of them and no others."""
    pairs = [
        node.elts
        for node in ast.walk(ast.parse(Path(target_warnings.__file__).read_text()))
        if isinstance(node, ast.Tuple) and len(node.elts) == 2
    ]
    codes = {code.value for code, _ in pairs if isinstance(code, ast.Constant)}
    assert codes
    assert set(_documented("Warnings")) == codes | {NO_FLUSH, LOG_UNKNOWN}


def test_no_path_is_left_to_the_library() -> None:
    """Whose word on one that cannot be read is another exit code, and not one sentence."""

    def parameters(command: Any) -> Iterator[Any]:
        yield from command.params
        for inner in getattr(command, "commands", {}).values():
            yield from parameters(inner)

    found = list(parameters(typer.main.get_command(main.app)))
    assert {"target", "output", "state"} <= {parameter.name for parameter in found}
    assert [parameter.name for parameter in found if hasattr(parameter.type, "readable")] == []


@pytest.mark.parametrize("command", COMMANDS + LAB_COMMANDS)
@pytest.mark.slow
def test_every_option_is_documented(environment: dict[str, str], command: str) -> None:
    """docs/reference/cli.md names each option that `--help` shows."""
    documented = DOCUMENTATION.read_text()
    options = set(re.findall(r"--[a-z][a-z-]+", _durability(environment, *command.split(), "--help").stdout))
    assert {option for option in options - {"--help", "--control"} if f"`{option}" not in documented} == set()
