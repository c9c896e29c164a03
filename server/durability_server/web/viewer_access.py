"""Access to the live page.

On loopback every user of the machine may read it, but no page of another site may. The host name in the
request must be this machine's, because another name may be made to resolve to this machine (DNS rebinding).
From another site only a click may lead here. On other addresses TLS is required. Each request then needs a
credential that `durability join` has stored for a viewer: the client's id and its secret. An unknown client
and a wrong secret get the same message.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
from collections.abc import Awaitable, Callable

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from durability.errors import StoreError
from durability.protocol import auth
from durability.protocol.auth import Role
from durability.units import is_loopback
from durability_server.store.client_store import Client

VIEWERS: frozenset[Role] = frozenset({"viewer", "operator"})
HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self';"
    " img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
AGAIN = {"refresh": "10"}  # seconds until a browser repeats a failed request
_REALM = 'Basic realm="durability: id and secret of a viewer", charset="UTF-8"'
_UNKNOWN = (
    "The user name is the id of a viewer or operator, the password its secret. Both are in the file\n"
    "credential.json that `durability join` wrote (client and secret). For another one, type\n"
    "`durability clients invite --role viewer` on the server's machine.\n"
)

Find = Callable[[str], Awaitable[Client | None]]


class ViewerAccess:
    """Passes permitted requests on to `app`. `find` returns a client by its id. None means that the page is
    on loopback and open. `host`: the address to which the page is bound."""

    def __init__(self, app: ASGIApp, *, find: Find | None, host: str) -> None:
        self._app = app
        self._find = find
        self._host = host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application."""
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                more = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", ()), *more]
            await send(message)

        refused = await self._refused(Headers(scope=scope))
        await (refused or self._app)(scope, receive, send_with_headers)

    async def _refused(self, headers: Headers) -> Response | None:
        if self._find is None:
            return _refused_on_loopback(headers, self._host)
        try:
            known = await is_viewer(self._find, headers.get("authorization", ""))
        except StoreError as error:
            return PlainTextResponse(f"The store cannot be read: {error}\n", 503, AGAIN)
        if known:
            return None
        return PlainTextResponse(_UNKNOWN, 401, {"WWW-Authenticate": _REALM})


async def is_viewer(find: Find, authorization: str) -> bool:
    """Whether an `Authorization` header has the credential of a viewer or operator. Raises StoreError."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic" or len(encoded) > 1024:
        return False
    try:
        name, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
        secret = bytes.fromhex(password)
    except (binascii.Error, ValueError):
        return False
    client = await find(name)
    shown = auth.client_hash(secret)
    return client is not None and auth.equal(client.hash, shown) and client.role in VIEWERS


def _refused_on_loopback(headers: Headers, host: str) -> Response | None:
    asked = _host_of(headers.get("host", ""))
    if not (asked == host or is_loopback(asked)):
        return PlainTextResponse(
            "This page is for this machine only, and is reached as localhost or by its address.\n", 421
        )
    other = headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
    if other and headers.get("sec-fetch-mode") != "navigate":
        return PlainTextResponse("Pages of other sites may not read this one.\n", 403)
    return None


def _host_of(header: str) -> str:
    """The host in a `Host` header, without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    host = header.rpartition(":")[0] if ":" in header else header
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.lower()
