"""The walk-through of the README: the line that `serve` prints is typed once, and no command needs more."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.waiting import DEADLINE_S

COMMAND = str(Path(sys.executable).with_name("durability"))

pytestmark = pytest.mark.slow


@contextmanager
def serving(home: Path) -> Iterator[str]:
    """A server on a terminal of its own; what it printed there until it had printed a line to type."""
    ours, theirs = pty.openpty()
    command = [COMMAND, "serve", "--listen", "127.0.0.1:0"]
    environment = os.environ | {"XDG_STATE_HOME": str(home)}
    with subprocess.Popen(command, env=environment, stdout=theirs, stderr=subprocess.DEVNULL) as server:
        os.close(theirs)
        try:
            said = b""
            while b"durability join" not in said or not said.endswith(b"\n"):
                said += os.read(ours, 1 << 16)
            yield said.decode()
        finally:
            server.send_signal(signal.SIGTERM)
            assert server.wait(DEADLINE_S) == 0
            os.close(ours)


def typed(home: Path, line: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """What comes of a line that a user types, whose files are in `home`."""
    _, *arguments = line.split()
    return subprocess.run(
        [COMMAND, *arguments],
        env=os.environ
        | {"XDG_STATE_HOME": str(home), "DURABILITY_CREDENTIAL": str(home / "credential.json")}
        | variables,
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


def test_the_line_is_typed_once(tmp_path: Path) -> None:
    """After it, `run`, `verify` and `runs` need no option for the server; the line does not work again."""
    with serving(tmp_path / "server") as said:
        found = re.search(r"durability join 127\.0\.0\.1:\d+ [0-9A-Z-]{47}(?=\s)", said)
        assert found, said
        client = tmp_path / "client"
        joined = typed(client, f"{found[0]} --name b7")
        assert (joined.returncode, joined.stderr) == (0, "")
        assert " as b7 (client)" in joined.stdout
        target = tmp_path / "target"
        ran = typed(client, f"durability run {target} --size 4M --duration 0.5 --force")
        assert ran.returncode == 0, ran.stderr
        listed = typed(client, "durability runs --all")
        assert str(target) in listed.stdout
        verified = typed(client, f"durability verify {target}")
        assert verified.returncode == 4, verified.stderr
        again = typed(tmp_path / "other", found[0])
        assert again.returncode == 5
        assert "was used at" in again.stderr


def test_on_the_servers_machine_nothing_is_typed(tmp_path: Path) -> None:
    """The server's user is the operator on its machine, and sees all runs and clients without joining."""
    home = tmp_path / "server"
    with serving(home):
        target = tmp_path / "target"
        ran = typed(home, f"durability run {target} --size 4M --duration 0.5 --force")
        assert ran.returncode == 0, ran.stderr
        assert str(target) in typed(home, "durability runs --all").stdout
        invited = typed(home, "durability clients invite --role viewer --name office")
        assert re.search(r"durability join 127\.0\.0\.1:\d+ \S{47}\n", invited.stdout)
        listed = typed(home, "durability clients")
        assert re.search(r"office +viewer +invited", listed.stdout)


def test_a_client_is_renamed_and_revoked(tmp_path: Path) -> None:
    """By its name, on the server's machine. What was revoked is told what to type; an operator may join from
    elsewhere and see all."""
    server, client, office = (tmp_path / name for name in ("server", "client", "office"))
    with serving(server) as said:
        line = re.search(r"durability join 127\.0\.0\.1:\d+ \S{47}", said)
        assert line and typed(client, f"{line[0]} --name b7").returncode == 0
        renamed = typed(server, "durability clients rename b7 rack-3")
        assert renamed.returncode == 0, renamed.stderr
        assert re.search(r"rack-3 +client +", typed(server, "durability clients").stdout)
        invited = typed(server, "durability clients invite --role operator --name office")
        line = re.search(r"durability join 127\.0\.0\.1:\d+ \S{47}", invited.stdout)
        assert line and typed(office, line[0]).returncode == 0
        assert "rack-3" in typed(office, "durability clients").stdout
        revoked = typed(office, "durability clients revoke rack-3")
        assert revoked.returncode == 0, revoked.stderr
        refused = typed(client, "durability runs --all")
        assert refused.returncode == 5 and "durability clients invite" in refused.stderr


def test_the_environment_names_another_server(tmp_path: Path) -> None:
    """DURABILITY_SERVER comes before the address that `join` stored."""
    with serving(tmp_path / "server") as said:
        line = re.search(r"durability join (127\.0\.0\.1:\d+) \S{47}", said)
        client = tmp_path / "client"
        assert line and typed(client, line[0]).returncode == 0
        assert typed(client, "durability runs --all").returncode == 0
        elsewhere = typed(client, "durability runs --all", DURABILITY_SERVER="127.0.0.1:1")
        assert elsewhere.returncode == 5 and "127.0.0.1:1" in elsewhere.stderr
        assert typed(client, "durability runs --all", DURABILITY_SERVER=line[1]).returncode == 0
