"""The line that `serve` prints is the line to type."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = str(Path(sys.executable).with_name("durability"))
DEADLINE_S = 60


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate with its key in the same file."""
    key, file = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=lab"
    subprocess.run([*make.split(), "-keyout", key, "-out", file], check=True, capture_output=True)
    file.write_text(key.read_text() + file.read_text())
    return file


@pytest.mark.slow
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_the_line_works_as_printed(tmp_path: Path, certificate: Path, tls: bool) -> None:
    """A user with nothing but the printed line and a target gets a run, with TLS and a token file too."""
    server_home = os.environ | {"XDG_STATE_HOME": str(tmp_path / "server")}
    client_home = os.environ | {"XDG_STATE_HOME": str(tmp_path / "client")}
    serve = [COMMAND, "serve", "--listen", "127.0.0.1:0", "--token-file", str(tmp_path / "a token")]
    serve += ["--tls-cert", str(certificate)] if tls else []
    with subprocess.Popen(serve, env=server_home, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            server.stdout.readline()
            program, *arguments = shlex.split(server.stdout.readline().replace("TARGET", str(tmp_path / "t")))
            assert program == "durability"
            done = subprocess.run(
                [COMMAND, *arguments, "--size", "4MiB", "--duration", "0.2", "--force"],
                env=client_home,
                check=False,
                capture_output=True,
                text=True,
                timeout=DEADLINE_S,
            )
            assert done.returncode == 0, done.stderr
        finally:
            server.send_signal(signal.SIGTERM)
            assert server.wait(DEADLINE_S) == 0
