"""Programs of one release as a person uses them: commands with a home of their own, without an installation.

What freezes a release, and the tests that use a frozen one, share it. Only durability's own packages come
from `code`, those that it needs from this environment.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_START = "import sys; from durability_cli.main import main; sys.argv[0] = 'durability'; main()"
_LIMIT_S = 240  # of one command on a loaded machine


@dataclass(frozen=True)
class Programs:
    """The commands of the release whose packages lie in `code` (None: in the environment of `python`), on a
    machine of which `home` has all that they keep. `starts`: the words that start one that is installed
    in another way."""

    code: Path | None
    home: Path
    python: Path = Path(sys.executable)
    starts: tuple[str | Path, ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        """Of each command: nothing of the user who runs it."""
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("DURABILITY", "XDG"))
        }
        path = {} if self.code is None else {"PYTHONPATH": str(self.code)}
        home = {"HOME": str(self.home), "XDG_STATE_HOME": str(self.home / "state"), "NO_COLOR": "1"}
        return kept | path | home | {"DURABILITY_CREDENTIAL": str(self.credential), "COLUMNS": "200"}

    @property
    def credential(self) -> Path:
        """The file that `join` writes."""
        return self.home / "credential.json"

    @property
    def store(self) -> Path:
        """The store of a server on this machine."""
        return self.home / "state" / "durability" / "server.sqlite"

    def command(self, *words: str | Path) -> list[str]:
        """The words of a command."""
        return [str(word) for word in (*(self.starts or (self.python, "-c", _START)), *words)]

    def run(self, *words: str | Path, ends: int = 0) -> str:
        """What a command prints on stdout. Raises AssertionError unless it exits with `ends`."""
        done = subprocess.run(
            self.command(*words),
            cwd=self.home,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            check=False,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
        )
        assert done.returncode == ends, f"{words}: exit code {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout if ends in (0, 3, 4) else done.stderr

    def json(self, *words: str | Path, ends: int = 0) -> Any:
        """The document that a command prints."""
        return json.loads(self.run(*words, "--json", ends=ends))

    @contextmanager
    def started(self, *words: str | Path, together: bool = False) -> Iterator[subprocess.Popen[str]]:
        """A command that runs in a group of its own; it is killed at the end unless it has ended. `together`:
        its stdout has its stderr as well."""
        with (
            (self.home / "stderr").open("a") as errors,
            subprocess.Popen(
                self.command(*words),
                cwd=self.home,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if together else errors,
                text=True,
                start_new_session=True,
            ) as process,
        ):
            try:
                yield process
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)

    @contextmanager
    def serving(self) -> Iterator[Server]:
        """A server on this machine, at a port of its own; it stops cleanly at the end."""
        with self.started("serve", "--listen", "127.0.0.1:0") as process:
            first = line_of(process, lambda line: line.startswith("Listening on "))
            yield Server(process, re.sub(r"^Listening on |\.$", "", first.strip()))
            process.terminate()
            assert process.wait(_LIMIT_S) == 0, (self.home / "stderr").read_text()

    def operate(self, *words: str | Path) -> str:
        """What a command prints that the operator types on the server's machine."""
        environment = self.environment
        del environment["DURABILITY_CREDENTIAL"]
        return subprocess.run(
            self.command(*words),
            cwd=self.home,
            env=environment,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            timeout=_LIMIT_S,
        ).stdout

    def join(self, server: Programs, name: str) -> None:
        """Make this machine a client of the server that runs on that one."""
        words = re.search(r"durability join (\S+) (\S+)", server.operate("clients", "invite", "--name", name))
        assert words is not None
        self.run("join", *words.groups())


@dataclass(frozen=True)
class Server:
    """A server that runs, and its address."""

    process: subprocess.Popen[str]
    address: str


def line_of(process: subprocess.Popen[str], wanted: Callable[[str], bool]) -> str:
    """The next line of a command's stdout that is wanted."""
    assert process.stdout is not None
    for line in process.stdout:
        if wanted(line):
            return line
    raise AssertionError(f"{process.args!r} ended with {process.wait()}")


def write_until_silent(client: Programs, server: Server, target: Path, *, label: str) -> str:
    """A run whose machine stops in the middle, as one without power does; then its processes are gone.
    Returns the run's id. The target has all that was acknowledged."""
    options = ("--size", "192K", "--no-control", "--force", "--label", label, "--json")
    with ExitStack() as stack:
        process = stack.enter_context(client.started("run", target, *options))
        line = json.loads(line_of(process, lambda line: json.loads(line).get("acked", 0) > 100))
        os.killpg(process.pid, signal.SIGSTOP)
        line_of(server.process, lambda said: f"run {line['run']} lost" in said)
        os.killpg(process.pid, signal.SIGKILL)
    return str(line["run"])
