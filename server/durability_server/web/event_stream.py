"""The live parts of a page as server-sent events. Each part is sent to a browser whenever it has changed.

The parts are made once for all browsers. While they cannot be made, for example because the store cannot be
read, the part "trouble" says so. Each page has an element with that id. A slow browser gets the newest parts
and skips older ones, so only one event is kept for it. A browser that reads nothing for a while is closed.
Beyond `STREAMS_MAX` streams are refused: the page still shows everything, but does not update.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import TypeAlias

from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from durability.errors import DurabilityError
from durability_server.web.page_listener import PageListener
from durability_server.web.watch import LOOK_S, Topic

# Markup by the id of its element.
Parts: TypeAlias = dict[str, str]

STREAMS_MAX = 128  # streams open at a time
_TAKEN_S = 30.0  # time for a browser to read an event
_QUIET_S = 10.0  # without a change an empty event then shows that the connection works; see live.js
_ANSWER_S = 10.0  # time for the store to answer
_LOOKS_PER_CHECK = 3  # looks at the parts per check whether the reader may still read
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    (b"connection", b"close"),  # closed once the response ends
]


class EventStream:
    """The response to a request for live parts. `trouble` returns markup that says why the parts may be old.
    Its argument is the reason why they cannot be made, "" if they can. `may_go_on` returns whether the reader
    may still read them."""

    def __init__(
        self,
        parts: Topic[Parts],
        listener: PageListener,
        *,
        trouble: Callable[[str], str],
        may_go_on: Callable[[], Awaitable[bool]],
    ) -> None:
        self._parts = parts
        self._listener = listener
        self._trouble = trouble
        self._may_go_on = may_go_on

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI response."""
        client = tuple(scope["client"] or ("", 0))
        streams = self._listener.streams
        if len(streams) >= STREAMS_MAX:
            text = f"{STREAMS_MAX} pages are open and live; reload this one to see more.\n"
            await PlainTextResponse(text, 503, {"retry-after": "30"})(scope, receive, send)
            return
        streams.add(client)
        try:
            await self._send(receive, send)
        except TimeoutError:
            self._listener.abort(client)
            await _gone(receive)
        finally:
            streams.discard(client)

    async def _send(self, receive: Receive, send: Send) -> None:
        async def say(message: Message) -> None:
            async with asyncio.timeout(_TAKEN_S):
                await send(message)

        await say({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        loop = asyncio.get_running_loop()
        gone = loop.create_task(_gone(receive))
        try:
            last: Parts = {}
            said_s = loop.time()
            looks = 0
            while not gone.done():
                parts = await self._look(check=looks % _LOOKS_PER_CHECK == 0)
                if parts is None:
                    break
                new = {name: part for name, part in parts.items() if part != last.get(name)}
                last |= new
                if new or loop.time() - said_s >= _QUIET_S:
                    event = _event(tuple(new.items()))
                    await say({"type": "http.response.body", "body": event, "more_body": True})
                    said_s = loop.time()
                looks += 1
                await asyncio.wait([gone], timeout=LOOK_S)
            await say({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            gone.cancel()

    async def _look(self, *, check: bool) -> Parts | None:
        """The parts, or only why they cannot be made. None if the reader may no longer see them."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                if check and not await self._may_go_on():
                    return None
                parts = await self._parts.get()
            return {**parts, "trouble": self._trouble("")}
        except TimeoutError:
            why = f"it has not answered for {_ANSWER_S:.0f} s"
        except DurabilityError as error:
            why = str(error)
        return {"trouble": self._trouble(why)}


@lru_cache(maxsize=64)
def _event(parts: tuple[tuple[str, str], ...]) -> bytes:
    """An event with these parts. Its bytes are cached for all browsers."""
    return f"data: {json.dumps(dict(parts))}\n\n".encode()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
