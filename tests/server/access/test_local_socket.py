"""The local socket lets in the user who runs the server, and root."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from durability.protocol.local_address import socket_name
from tests.waiting import DEADLINE_S

if TYPE_CHECKING:
    from tests.server.conftest import Lab

NOBODY = 65534

_CONNECT = """
import os, socket, sys
from contextlib import suppress
from durability.errors import RefusedError
from durability.protocol.state_machine import ClientProtocol
path, user = sys.argv[1], int(sys.argv[2])
os.setgroups([]); os.setgid(user); os.setuid(user)
session = ClientProtocol("operate", client="", secret=b"", software="durability test")
session.start()
with socket.socket(socket.AF_UNIX) as server:
    server.connect(path)
    with suppress(BrokenPipeError):  # the server may have closed the connection already
        server.sendall(session.outgoing())
    try:
        while not session.authenticated:
            data = server.recv(1 << 16)
            assert data, "the server closed the connection and said nothing"
            session.receive(data)
        print("let in")
    except RefusedError as error:
        print(error.code, error)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    ("user", "said"),
    [
        (0, "let in"),
        (NOBODY, "forbidden the local socket is for the user who runs the server, and root"),
    ],
)
async def test_another_user_is_no_operator(lab: Lab, sqlite_url: str, user: int, said: str) -> None:
    """A user other than root and the server's own is refused, even if the permissions of directory and socket
    let that user connect."""
    running = await lab.start(sqlite_url)
    path = lab.directory / socket_name(running.address[1])
    for place in (path, path.parent, path.parent.parent):
        place.chmod(0o777)
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", _CONNECT, str(path), str(user)],
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert done.stdout == f"{said}\n", done.stderr
