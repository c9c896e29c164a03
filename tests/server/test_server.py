"""Starting a server, and refusing to."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from durability.errors import SetupError, StoreError
from durability_server.runs import committer
from durability_server.server import Server
from tests.waiting import DEADLINE_S

if TYPE_CHECKING:
    from tests.server.conftest import Lab


async def test_a_port_that_is_taken_is_named(lab: Lab, sqlite_url: str) -> None:
    """A server that cannot listen says where and why, and gives its store free."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = Server(store_url=sqlite_url)
        with pytest.raises(SetupError, match=f"127.0.0.1:{port}"):
            await server.start("127.0.0.1", port, directory=None)
    await lab.start(sqlite_url)


_LISTEN = """
import asyncio, sys
from durability_server.connections.listener import Listener
async def listen():
    print(Listener(None).open(sys.argv[1], 0, None)[0])
asyncio.run(listen())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can have a network of its own")
@pytest.mark.skipif(not all(map(shutil.which, ("unshare", "ip"))), reason="needs unshare and ip")
def test_a_server_listens_on_a_link_local_address() -> None:
    """In the zone that is named with it."""
    address = "fe80::7%lo"
    steps = f"""
        ip link set lo up
        ip address add fe80::7/64 dev lo nodad
        exec "{sys.executable}" -c '{_LISTEN}' '{address}'
    """
    command = ["unshare", "--net", "sh", "-ec", steps]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.stdout.strip() == address, done.stderr


async def test_a_store_in_use_is_refused(lab: Lab, sqlite_url: str) -> None:
    """A second server on the same SQLite file does not start; the first goes on."""
    running = await lab.start(sqlite_url)
    with pytest.raises(StoreError, match="another server"):
        await lab.start(sqlite_url)
    asker = await lab.connect(running.address, "query")
    assert asker.session.welcome.server_id


async def test_a_server_keeps_its_name(lab: Lab, store_url: str) -> None:
    """Clients that come back can tell that it is the same server: its id lies in the store."""
    names = []
    for _ in range(2):
        running = await lab.start(store_url)
        names.append((await lab.connect(running.address, "query")).session.welcome.server_id)
        await running.server.stop()
    assert names[0] == names[1] != ""


async def test_a_server_keeps_its_certificate(lab: Lab, store_url: str) -> None:
    """A client that has joined still accepts the server after a restart on another port."""
    running = await lab.start(store_url)
    member = lab.members[running.address]
    await running.server.stop()
    running = await lab.start(store_url)
    client = await lab.connect(running.address, "query", member=member)
    assert client.session.welcome.name == "test"


@pytest.mark.slow
async def test_a_server_says_when_nothing_tries_to_save(
    lab: Lab, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`works` is true while no data waits to be saved, or while saving is tried. Otherwise it is false, which
    the service manager learns."""
    running = await lab.start(sqlite_url)
    client = await lab.connect(running.address)
    await client.begin(lab.plan(), lab.facts())
    await client.acknowledge(1, 1)
    assert running.server.works
    monkeypatch.setattr(committer, "STUCK_S", 0.2)
    work = running.server._registry.committer
    async with asyncio.timeout(DEADLINE_S):
        while running.server.works:
            work._not_before_s = asyncio.get_running_loop().time() + 3600
            await asyncio.sleep(0.01)
    work._urgent.set()
    await client.acknowledge(2, 2)
    assert running.server.works


_WITH_A_DEFECT = """
import asyncio, sys
from pathlib import Path
from durability_server.server import serve
async def ready(server, host, port):
    committer = server._registry.committer
    committer._urgent = None  # which no code does
    committer._changed.set()
asyncio.run(serve(listen="127.0.0.1:0", store_url=sys.argv[1], directory=Path(sys.argv[2]), ready=ready))
"""


@pytest.mark.slow
def test_a_defect_of_the_committer_ends_the_process(sqlite_url: str, local_directory: Path) -> None:
    """A server whose committer fails cannot grant credit, so its process ends and its supervisor can start it
    again."""
    command = [sys.executable, "-c", _WITH_A_DEFECT, sqlite_url, str(local_directory)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert ended.returncode == 1
    assert "the server cannot go on" in ended.stderr
    assert "a defect of the server has ended it" in ended.stderr
