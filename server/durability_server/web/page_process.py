"""The process of the live page. It reads its settings and the server's pulse from stdin, and answers
browsers.

    python -m durability_server.web.page_process

It ends at the end of its input, even if its event loop hangs. Once a second it reports on stdout that it is
alive. It has a lower priority than the server, so that it does not delay acknowledgements. It opens the store
for reading only.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import threading
from contextlib import suppress

import uvicorn

from durability.errors import DurabilityError
from durability_server import log_lines
from durability_server.access.server_identity import ServerIdentity
from durability_server.store.store import Store
from durability_server.web.page_exchange import ALIVE, PULSE_S, PageSettings, pulse_of, settings_of
from durability_server.web.page_listener import PageListener
from durability_server.web.pages import application
from durability_server.web.watch import Watch

log = logging.getLogger(__name__)

_STDOUT = 1
_NICE = 10


def main() -> None:
    """Works until the end of the input."""
    log_lines.set_up()
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # else each bad request is logged
    with suppress(OSError):
        os.nice(_NICE)
    try:
        asyncio.run(_serve(settings_of(sys.stdin.buffer.readline())))
    except DurabilityError as error:
        log.error("the live page: %s", error)
        sys.exit(error.exit_code)


async def _serve(settings: PageSettings) -> None:
    store = Store(settings.store_url, mode="reader")
    watch = Watch(store)
    await watch.open()
    tls = None
    if not settings.open:
        key, certificate = await watch.ask(store.known_identity)
        tls = ServerIdentity(key=key, certificate=certificate).context()
    listener = PageListener(socket.socket(fileno=settings.descriptor), tls)
    app = application(watch, settings, listener)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        http="h11",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=15,
    )
    config.load()
    server = uvicorn.Server(config)
    loop = asyncio.get_running_loop()
    threading.Thread(target=_hear, args=(watch, loop), daemon=True).start()
    tasks = [
        loop.create_task(_say_alive()),
        loop.create_task(watch.sample_for_ever()),
        loop.create_task(listener.take(config, server)),
    ]
    for task in tasks:
        task.add_done_callback(_end_with)
    await server.serve(sockets=[])
    for task in tasks:
        task.cancel()


def _end_with(task: asyncio.Task[None]) -> None:
    """Ends the process after a defect in a task: the page would show old data. The server starts a new
    process."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("the live page ends, a defect of this tool: %r", error)
        logging.shutdown()  # the line is written by a thread
        os._exit(1)


def _hear(watch: Watch, loop: asyncio.AbstractEventLoop) -> None:
    """Reads the server's pulse until the server has gone, and then ends the process at once."""
    for line in sys.stdin.buffer:
        pulse = pulse_of(line)
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(watch.feel, pulse)
    os._exit(0)


async def _say_alive() -> None:
    os.set_blocking(_STDOUT, False)
    while True:
        with suppress(BlockingIOError, BrokenPipeError):
            os.write(_STDOUT, ALIVE)
        await asyncio.sleep(PULSE_S)


if __name__ == "__main__":
    main()
