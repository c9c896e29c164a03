"""Live pages of real servers, and browsers of a few lines."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from durability_server.server import Server
from durability_server.web.live_page import LivePage
from tests.waiting import DEADLINE_S


@dataclass
class Page:
    """A live page, where it is, and what it announced."""

    page: LivePage
    url: str
    told: list[tuple[str, str]]

    async def get(self, path: str = "/", **options: Any) -> requests.Response:
        """What it answers."""
        ask = requests.get
        return await asyncio.to_thread(ask, self.url + path.lstrip("/"), timeout=DEADLINE_S, **options)

    async def json(self, path: str) -> Any:
        """The document at `path`."""
        return (await self.get(path)).json()

    async def text_with(self, path: str, *wanted: str) -> str:
        """The page at `path` as soon as it has all of `wanted`: it is up to a second old."""
        text = ""
        try:
            async with asyncio.timeout(DEADLINE_S):
                while True:
                    text = (await self.get(path)).text
                    if all(one in text for one in wanted):
                        return text
                    await asyncio.sleep(0.1)
        except TimeoutError:
            pytest.fail(f"{path} has not all of {wanted}: {text}")

    async def metrics(self) -> str:
        """/metrics as soon as the store has answered it in time."""
        return await self.text_with("/metrics", "durability_store_up 1.0")

    async def stream(self, path: str = "/live", authorization: str = "") -> Stream:
        """A live part, as a browser takes it."""
        where = urlsplit(self.url)
        tls = None
        if where.scheme == "https":
            tls = ssl.create_default_context()
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        reader, writer = await asyncio.open_connection(where.hostname, where.port, ssl=tls, limit=1 << 22)
        shown = f"Authorization: {authorization}\r\n" if authorization else ""
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {where.netloc}\r\n{shown}\r\n".encode())
        return Stream(reader, writer)


@dataclass
class Stream:
    """A stream of events, from the line of its status on."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def status(self) -> int:
        """The status; the rest of the head is dropped."""
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), DEADLINE_S)
        return int(head.split()[1])

    async def event(self) -> dict[str, str]:
        """The next event, by id of its element. Raises IncompleteReadError at the end."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                line = await self.reader.readuntil(b"\n")
                if line.startswith(b"data: "):
                    found: dict[str, str] = json.loads(line[6:])
                    return found

    async def event_with(self, wanted: str) -> None:
        """Returns with the first event that has `wanted`."""
        while not any(wanted in part for part in (await self.event()).values()):
            pass


Show = Callable[..., Awaitable[Page]]


@pytest.fixture
async def show_page() -> AsyncIterator[Show]:
    """A function that shows the live page of a server, which reads the store at `store_url`."""
    pages: list[LivePage] = []

    async def show(server: Server, store_url: str, *, address: str = "127.0.0.1:0") -> Page:
        told: list[tuple[str, str]] = []
        page = LivePage(address, store_url=store_url, announce=lambda who, what: told.append((who, what)))
        pages.append(page)
        page.listen()
        url = await page.start(lambda: server.pulse)
        host = urlsplit(url)
        return Page(page=page, url=f"{host.scheme}://127.0.0.1:{host.port}/", told=told)

    yield show
    for page in pages:
        await page.close()
