"""The process of the live page: it dies and is started again, ends with the server, and delays nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import requests

from durability.errors import SetupError
from durability.units import format_run
from durability_server.web import live_page, page_listener
from durability_server.web.live_page import LivePage
from durability_server.web.page_exchange import Pulse
from tests.server.conftest import Lab
from tests.server.web.conftest import Page, Show, Stream
from tests.waiting import until, wait_for

if TYPE_CHECKING:
    from durability_lab.support.postgresql import PostgreSQL

pytestmark = pytest.mark.slow  # each starts the process of a page

COMMAND = str(Path(sys.executable).with_name("durability"))
BROWSERS = 50


def test_a_server_without_a_page_loads_nothing_for_it() -> None:
    """A server without a live page does not import the page's libraries."""
    needs = "{'starlette', 'uvicorn', 'prometheus_client', 'anyio', 'h11', 'jinja2'}"
    code = f"import durability_server.server, sys; print({needs} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"


async def test_a_page_that_dies_is_started_again(
    lab: Lab, sqlite_url: str, show_page: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line says so; acknowledgements go on meanwhile; the new process answers at the same address."""
    monkeypatch.setattr(live_page, "_AGAIN_S", (0.1, 60.0))
    running = await lab.start(sqlite_url, readers=True)
    page = await show_page(running.server, sqlite_url)
    client = await lab.connect(running.address)
    await client.begin(lab.plan(), lab.facts())
    first = page.page.process
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await client.acknowledge(5, 6)
    await until(lambda: page.page.process not in (None, first))
    await page.text_with("/", "11 operations acknowledged")
    assert [(who, what[:24]) for who, what in page.told] == [("live page", "its process ended (-9); ")]


async def test_a_page_that_hangs_is_started_again(
    lab: Lab, sqlite_url: str, show_page: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says nothing for a while, and is ended."""
    running = await lab.start(sqlite_url, readers=True)
    page = await show_page(running.server, sqlite_url)
    first = page.page.process
    assert first is not None
    os.kill(first, signal.SIGSTOP)
    monkeypatch.setattr(live_page, "_AGAIN_S", (0.1, 0.1))
    with monkeypatch.context() as impatient:  # on a busy machine any may be silent so long, also the next one
        impatient.setattr(live_page, "_SILENT_S", 1.5)
        impatient.setattr(live_page, "_END_S", 0.1)
        await until(lambda: page.page.process not in (None, first))
    assert "hung" in page.told[0][1]
    await page.text_with("/", "No run was armed yet")


def _serve(state: Path, *options: str) -> subprocess.Popen[str]:
    """A server as a person starts it."""
    return subprocess.Popen(
        [COMMAND, "serve", "--listen", "127.0.0.1:0", *options],
        env=os.environ | {"XDG_STATE_HOME": str(state)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _page_of(server: subprocess.Popen[str]) -> str:
    """The address that it prints of its page."""
    assert server.stdout is not None
    for line in server.stdout:
        if line.startswith("Live page: "):
            return line.split()[-1]
    raise AssertionError(server.stderr.read() if server.stderr is not None else "")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_page_ends_with_the_server(local_directory: Path, number: signal.Signals) -> None:
    """After `serve` ends for any reason, the page's address no longer accepts connections."""
    with _serve(local_directory.parent, "--web", "127.0.0.1:0") as server:
        port = int(_page_of(server).rstrip("/").rpartition(":")[2])
        socket.create_connection(("127.0.0.1", port)).close()
        server.send_signal(number)
        server.communicate()

    def is_gone() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) != 0

    wait_for(is_gone)
    assert server.returncode == (0 if number != signal.SIGKILL else -signal.SIGKILL)


def test_an_address_in_use_is_an_error(local_directory: Path) -> None:
    """It names the address and the option, and no store is made."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with _serve(local_directory.parent, "--web", address) as server:
            _, errors = server.communicate()
    assert server.returncode == 5
    assert f"cannot show the live page on {address}: Address already in use. Give --web" in errors.replace(
        "\n  ", " "
    )
    assert not (local_directory / "server.sqlite").exists()


async def test_a_store_that_cannot_be_read_ends_the_start(tmp_path: Path) -> None:
    """The page's own message says why, and the start fails."""
    page = LivePage("127.0.0.1:0", store_url=f"sqlite:///{tmp_path / 'none.sqlite'}", announce=print)
    page.listen()
    with pytest.raises(SetupError, match="the live page ended as it started"):
        await page.start(Pulse)
    assert not (tmp_path / "none.sqlite").exists()


@pytest.mark.usefixtures("no_silence")
async def test_many_browsers_while_a_run_goes(lab: Lab, sqlite_url: str, show_page: Show) -> None:
    """Fifty streams are open, and some are not read. Each acknowledgement is granted, and all streams that
    are read get the newest count. A stream that ends frees its place."""
    running = await lab.start(sqlite_url, readers=True)
    page = await show_page(running.server, sqlite_url)
    client = await lab.connect(running.address)
    await client.begin(lab.plan(), lab.facts())
    streams = await asyncio.gather(*(page.stream() for _ in range(BROWSERS)))
    assert {await stream.status() for stream in streams} == {200}
    reading = streams[: BROWSERS // 2]
    for number in range(1, 21):
        await client.acknowledge(number, number)
    await asyncio.gather(*(stream.event_with("40 operations acknowledged") for stream in reading))
    metrics = (await page.get("/metrics")).text
    assert float(_value(metrics, "durability_page_connections")) >= BROWSERS
    for stream in streams:
        stream.writer.transport.abort()
    await _connections_fall_to(page, 3)


async def test_a_store_that_cannot_be_read(lab: Lab, postgresql: PostgreSQL, show_page: Show) -> None:
    """Each page that is open says so, and so do its metrics and what is loaded; all that ends with it."""
    url = postgresql.new_database()
    running = await lab.start(url, readers=True)
    page = await show_page(running.server, url)
    client = await lab.connect(running.address)
    await client.begin(lab.plan(run=5), lab.facts())
    paths = ("/live", f"/runs/{format_run(5)}/live")
    streams = [await page.stream(path) for path in paths]
    for stream in streams:
        await stream.event_with("acknowledged")
    postgresql.stop()
    try:
        for stream in (*streams, await page.stream(paths[1])):
            await stream.event_with("The store fails, so what follows may be old: postgresql:")
        assert _value((await page.get("/metrics")).text, "durability_store_up") == "0.0"
        assert "postgresql:" in (await page.get()).text
        results = await page.get("/results", headers={"accept": "text/html"})
        assert (results.status_code, results.headers.get("refresh")) == (503, "10"), results.text
        assert "<h1>Not available now</h1>" in results.text and "postgresql:" in results.text
    finally:
        await asyncio.to_thread(postgresql.start)
    for stream in streams:
        while (await stream.event()).get("trouble") != "":
            pass
    await page.metrics()


async def test_streams_and_connections_are_bounded(lab: Lab, sqlite_url: str, show_page: Show) -> None:
    """One stream too many is refused with a sentence; of idle connections only so many are kept, and those
    end by themselves, so that there is room again."""
    running = await lab.start(sqlite_url, readers=True)
    page = await show_page(running.server, sqlite_url)
    streams = [await page.stream() for _ in range(128)]
    assert {await stream.status() for stream in streams} == {200}
    assert await (await page.stream()).status() == 503
    idle = [await _connect(page) for _ in range(page_listener.CONNECTIONS_MAX)]
    closed = [asyncio.get_running_loop().create_task(_closed(stream)) for stream in idle]
    await until(lambda: sum(one.done() for one in closed) >= len(streams))
    for stream in (*idle, *streams):
        stream.writer.transport.abort()
    assert "No run was armed yet" in await _first_answer(page)


async def _first_answer(page: Page) -> str:
    """The page as soon as there is room: what comes before the process has seen the others end, it closes."""
    async with asyncio.timeout(60):
        while True:
            with suppress(requests.ConnectionError):
                return (await page.get()).text
            await asyncio.sleep(0.1)


async def _connect(page: Page) -> Stream:
    host, port = page.url.split("/")[2].split(":")
    return Stream(*await asyncio.open_connection(host, int(port)))


async def _closed(stream: Stream) -> None:
    with suppress(ConnectionError):
        assert await stream.reader.read(1) == b""


def _value(metrics: str, name: str) -> str:
    return next(line.split()[-1] for line in metrics.splitlines() if line.startswith(f"{name} "))


async def _connections_fall_to(page: Page, count: int) -> None:
    async with asyncio.timeout(60):
        while True:
            if float(_value((await page.get("/metrics")).text, "durability_page_connections")) <= count:
                return
            await asyncio.sleep(0.1)
