"""Who may read the live page: on loopback whoever is on the machine, elsewhere a viewer over TLS."""

from __future__ import annotations

import asyncio
import base64
from contextlib import suppress

import pytest
import requests
import urllib3

from durability.protocol import messages
from tests.server.conftest import Lab, Member
from tests.server.web.conftest import Page, Show
from tests.waiting import DEADLINE_S

pytestmark = pytest.mark.slow  # each starts the process of a page


def _basic(member: Member) -> str:
    return "Basic " + base64.b64encode(f"{member.client}:{member.secret.hex()}".encode()).decode()


async def _invited(lab: Lab, address: tuple[str, int], role: str) -> Member:
    operator = await lab.connect(address, "operate", local=True)
    invited = await operator.ask(messages.Invite(role=role, name=role), messages.Invited)
    return await lab.join(address, invited.line, name=role)


async def _status(page: Page, **headers: str) -> int:
    urllib3.disable_warnings()
    ask = requests.get
    answer = await asyncio.to_thread(ask, page.url, headers=headers, verify=False, timeout=DEADLINE_S)
    return answer.status_code


async def test_beyond_loopback_only_viewers_over_tls(lab: Lab, store_url: str, show_page: Show) -> None:
    """No credential, a wrong one, a client's: 401. A viewer's and an operator's: 200, until it is revoked,
    which ends its streams. Who does not speak TLS gets nothing."""
    running = await lab.start(store_url, readers=True)
    page = await show_page(running.server, store_url, address="0.0.0.0:0")
    assert page.url.startswith("https://")
    viewer = await _invited(lab, running.address, "viewer")
    operator = await _invited(lab, running.address, "operator")
    wrong = Member(fingerprint=b"", client=viewer.client, secret=b"x" * 32)
    nobody = Member(fingerprint=b"", client="nobody", secret=b"x" * 32)
    assert await _status(page) == 401
    for shown in ("Basic", "Basic ???", "Basic " + "A" * 5000, "Bearer x", _basic(wrong), _basic(nobody)):
        assert await _status(page, Authorization=shown) == 401
    assert await _status(page, Authorization=_basic(lab.members[running.address])) == 401
    assert await _status(page, Authorization=_basic(viewer)) == 200
    assert await _status(page, Authorization=_basic(operator)) == 200
    with pytest.raises(requests.ConnectionError):
        await asyncio.to_thread(requests.get, page.url.replace("https", "http"), timeout=DEADLINE_S)

    stream = await page.stream(authorization=_basic(viewer))
    assert await stream.status() == 200
    asks = await lab.connect(running.address, "operate", local=True)
    await asks.ask(messages.Revoke(client=viewer.client), messages.Revoked)
    assert await _status(page, Authorization=_basic(viewer)) == 401
    with suppress(asyncio.IncompleteReadError):
        while True:
            await stream.event()


async def test_on_loopback_other_sites_cannot_read(lab: Lab, sqlite_url: str, show_page: Show) -> None:
    """A name of another's that leads here is refused, and so is what a page of another site asks for; a link
    may lead here. Every answer forbids the browser to load anything from elsewhere."""
    running = await lab.start(sqlite_url, readers=True)
    page = await show_page(running.server, sqlite_url)
    assert await _status(page) == 200
    for host, status in (
        ("localhost:9999", 200),
        ("[::1]:7421", 200),
        ("127.0.0.2", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example:7421", 421),
        ("", 421),
    ):
        assert await _status(page, Host=host) == status, host
    cross = {"Sec-Fetch-Site": "cross-site"}
    assert await _status(page, **cross, **{"Sec-Fetch-Mode": "cors"}) == 403
    assert await _status(page, **cross, **{"Sec-Fetch-Mode": "no-cors"}) == 403
    assert await _status(page, **cross, **{"Sec-Fetch-Mode": "navigate"}) == 200
    assert await _status(page, **{"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}) == 200
    for path in ("/", "/nothing", "/runs/zz", "/metrics", "/static/style.css", "/static/..%2fpages.py"):
        answer = await page.get(path)
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert answer.status_code == (200 if path in ("/", "/metrics", "/static/style.css") else 404), path
    refused = await asyncio.to_thread(requests.post, page.url, timeout=DEADLINE_S)
    assert refused.status_code == 405
