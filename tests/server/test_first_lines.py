"""What `serve` prints first: where it listens, and what to type for a machine under test."""

from __future__ import annotations

import asyncio
import os
import pty
import resource
import shlex
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import insert

from durability.protocol import messages
from durability.protocol.join_code import parse_join_code
from durability.protocol.local_address import PORT, SYSTEM_DIRECTORY
from durability.units import parse_address
from durability_cli.main import _who_finds
from durability_server.server import Server
from durability_server.store import tables
from durability_server.store.client_store import INVITATIONS_MAX
from durability_server.store.store import Store
from tests.waiting import DEADLINE_S

if TYPE_CHECKING:
    from tests.server.conftest import Lab

COMMAND = str(Path(sys.executable).with_name("durability"))


@asynccontextmanager
async def _serving(lab: Lab, *options: str, file_bytes_max: int | None = None) -> AsyncIterator[list[str]]:
    """A server on a terminal of its own, and the lines that it printed by the one with what to type. It ends
    as one that is stopped in order, and leaves no socket."""
    ours, theirs = pty.openpty()
    limit = None
    if file_bytes_max is not None:
        limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (file_bytes_max, file_bytes_max))
    process = await asyncio.create_subprocess_exec(
        *(COMMAND, "serve", "--listen", "127.0.0.1:0", *options),
        env=os.environ | {"XDG_STATE_HOME": str(lab.directory.parent)},
        stdout=theirs,
        stderr=subprocess.PIPE,
        preexec_fn=limit,
    )
    os.close(theirs)
    logged = asyncio.create_task(process.communicate())
    try:
        said = b""
        async with asyncio.timeout(DEADLINE_S):
            while not any(word in said for word in (b"clients invite\r\n", b"durability join ")):
                try:
                    said += await asyncio.to_thread(os.read, ours, 1 << 16)
                except OSError:  # it has ended
                    raise AssertionError((said, await logged)) from None
            yield said.decode().splitlines()
            process.terminate()
            await logged
        assert process.returncode == 0
        assert not list(lab.directory.glob("*.socket"))
    finally:
        if process.returncode is None:
            process.kill()
            await logged
        os.close(ours)


def _use_up_the_codes(store_url: str) -> None:
    store = Store(store_url)
    store.open()
    row = {"role": "client", "name": "", "expires": 1 << 40, "created": "2026-01-01T00:00:00Z"}
    with store._database.transaction() as db:
        rows = [row | {"hash": number.to_bytes(32)} for number in range(INVITATIONS_MAX)]
        db.execute(insert(tables.invitations), rows)
    store.close()


@pytest.mark.slow
@pytest.mark.parametrize("is_full", [True, False])
async def test_a_server_that_can_give_no_code_serves(lab: Lab, sqlite_url: str, *, is_full: bool) -> None:
    """A server that can give no join code says why and what to type later. The cause is a full disk or too
    many open codes. Clients that have joined are served."""
    running = await lab.start(sqlite_url)
    member = lab.members[running.address]
    await running.server.stop()
    if not is_full:
        _use_up_the_codes(sqlite_url)
    limit = 4096 if is_full else None  # it has its key in a file of its memory, which is shorter
    async with _serving(lab, "--store", sqlite_url, file_bytes_max=limit) as (first, *lines):
        address = parse_address(first.split()[-1].rstrip("."))
        client = await lab.connect(address, "query", member=member)
        assert (await client.ask(messages.List(limit=1), messages.Listing)).rows == ()
        await client.close()
    why, later = lines
    assert why.startswith("There is no join code now: ")
    assert ("store.sqlite: " in why, "1000 join codes are unused" in why) == (is_full, not is_full)
    assert later == "Later, type here, as this user: durability clients invite"


_CANNOT_GET_READY = """
import asyncio, sys
from pathlib import Path
from durability.errors import StoreError
from durability_server.server import serve
async def ready(server, host, port):
    assert list(directory.iterdir())
    raise StoreError("not ready")
directory = Path(sys.argv[2])
try:
    asyncio.run(serve(listen="127.0.0.1:0", store_url=sys.argv[1], directory=directory, ready=ready))
except StoreError as error:
    print(error, list(directory.iterdir()))
"""


def test_a_server_that_cannot_get_ready_leaves_no_socket(sqlite_url: str, local_directory: Path) -> None:
    """A server that fails while it starts stops in order and leaves no socket."""
    command = [sys.executable, "-c", _CANNOT_GET_READY, sqlite_url, str(local_directory)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert ended.stdout == "not ready []\n", ended.stderr


async def test_the_line_names_only_users_whose_commands_find_the_server(lab: Lab) -> None:
    """The first lines name only users whose commands find the server. Commands of root look only in root's
    own state directory and in the system's."""
    process = await asyncio.create_subprocess_exec(
        *(COMMAND, "serve", "--listen", "127.0.0.1:0"),
        env=os.environ | {"XDG_STATE_HOME": str(lab.directory.parent)},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(DEADLINE_S):
            await process.stdout.readline()
            said = (await process.stdout.readline()).decode()
    finally:
        process.kill()
        await process.communicate()
    assert said == "To join a machine under test, type here, as this user: durability clients invite\n"
    assert _who_finds(Path(SYSTEM_DIRECTORY)) == "this user or root"


async def test_a_shell_takes_the_line_as_it_is(lab: Lab, sqlite_url: str) -> None:
    """A shell does not expand the join line, even with an address in brackets. The line for machines is not
    quoted, since it is not for a shell."""
    address = "[2001:db8::7]:7420"
    server = Server(store_url=sqlite_url, advertise=address)
    bound = await server.start("127.0.0.1", 0, directory=lab.directory)
    try:
        line = (await server.invite()).line
        assert " [" not in line
        *command, there, code = shlex.split(line)
        assert (command, there) == (["durability", "join"], address)
        parse_join_code(code)
        operator = await lab.connect(bound, "operate", local=True)
        asked = messages.InviteMachines(name="", machines=2, valid_s=3600)
        line = (await operator.ask(asked, messages.Invited)).line
        assert line.split()[-2] == address
        await operator.close()
    finally:
        await server.stop()


_SAYS_ITS_PORT = """
import asyncio, sys
from pathlib import Path
from durability.errors import DurabilityError, StoreError
from durability_server import server
async def ready(running, host, port):
    raise StoreError(str(port))
server.PORT = int(sys.argv[4])
try:
    serve = server.serve(listen=sys.argv[3], store_url=sys.argv[1], directory=Path(sys.argv[2]), ready=ready)
    asyncio.run(serve)
except DurabilityError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("listen", "is_usual"), [("127.0.0.1", True), ("127.0.0.1:0", False)])
def test_a_host_alone_listens_on_the_usual_port(
    sqlite_url: str, local_directory: Path, listen: str, *, is_usual: bool
) -> None:
    """A host without a port listens on the usual port, which is taken in this test. Port 0 selects a free
    port."""
    assert PORT == 7420
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-c", _SAYS_ITS_PORT, sqlite_url, str(local_directory), listen, str(port)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    refused = f"cannot listen on 127.0.0.1:{port}: Address already in use"
    assert ended.stdout.startswith(refused) is is_usual, ended
    assert is_usual or int(ended.stdout) not in (0, port)
