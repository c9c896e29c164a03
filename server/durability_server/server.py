"""The server: listens, keeps the store open, and ends in an orderly way.

`Server` is one running server. `serve` runs one until a signal stops it. Network connections use TLS. Without
TLS there is only the local socket.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from durability.errors import DurabilityError, SetupError
from durability.protocol import messages
from durability.protocol.local_address import PORT
from durability.protocol.secure_stream import PlainStream, SecureStream
from durability.units import format_address, parse_address
from durability_server import clock, log_lines
from durability_server.access.authentication import Authentication
from durability_server.access.client_requests import ClientRequests
from durability_server.access.local_socket import LocalSocket
from durability_server.access.server_identity import ServerIdentity, new_identity
from durability_server.access.state_directory import address_for_others
from durability_server.announcements import Announce, HeldBack, silence
from durability_server.campaigns.campaigns import Campaigns
from durability_server.connections.client_connection import ClientConnection, Services
from durability_server.connections.connection_manager import ConnectionManager
from durability_server.connections.listener import Listener
from durability_server.connections.turns import Turns
from durability_server.power.controller import Controller
from durability_server.runs.requests import Requests
from durability_server.runs.result_requests import KeptResults
from durability_server.runs.run import Run
from durability_server.runs.run_registry import Registry
from durability_server.runs.session import Session
from durability_server.short_collections import ShortCollections
from durability_server.store.store import Store
from durability_server.store.store_thread import StoreThread
from durability_server.web.live_page import WHO as PAGE
from durability_server.web.live_page import LivePage
from durability_server.web.page_exchange import Pulse

POWER_DIRECTORY = "power"  # directory in the state directory with the locks of switches
GRACE_S = 2.0  # time for connections to take their output when the server ends

_SWITCH_S = 0.0005  # longest time for which a query of the store keeps the GIL from the waiting event loop

log = logging.getLogger(__name__)


class Server:
    """One server on one store. `start`, then `stop` (a second call does nothing). It cannot be started
    again."""

    def __init__(
        self,
        *,
        store_url: str,
        announce: Announce = silence,
        advertise: str | None = None,
        readers: bool = False,
    ) -> None:
        """`advertise`: the address, HOST or HOST:PORT, at which other machines reach this server, if it
        differs from the listening address. `readers`: other processes of this user may read the store. Raises
        UsageError."""
        self._announce = announce
        self._advertise = None if advertise is None else parse_address(advertise)
        self._store = Store(store_url, mode="with readers" if readers else "alone")
        self._thread = StoreThread()
        self._manager = ConnectionManager()
        self._registry = Registry(self._store, self._thread, boot_id=clock.read_boot_id())
        self._requests = Requests(self._store, self._thread, self._registry, announce=announce)
        self._controller: Controller | None = None
        self._campaigns: Campaigns | None = None
        self._listener = Listener(self._admit)
        self._local: LocalSocket | None = None
        self._admitted: set[asyncio.Task[None]] = set()
        self.page = ""  # address of the live page, for people
        self._tasks: list[asyncio.Task[None]] = []
        self.on_defect: Callable[[], None] = lambda: None
        self.is_defect = False  # whether a defect has ended a task that the server needs

    @property
    def works(self) -> bool:
        """Whether received data are being saved, or attempts to save them are made."""
        return not self._registry.committer.is_stuck

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._manager)

    @property
    def others(self) -> tuple[str, ...]:
        """Addresses of the other live servers on the store."""
        return self._registry.leases.others

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs in memory, for reading only, by observers in this process."""
        return self._registry.runs

    @property
    def sessions(self) -> tuple[Session, ...]:
        """The sessions of these runs, for reading only, by observers in this process."""
        return self._registry.sessions

    @property
    def is_readable(self) -> bool:
        """Whether other processes can read the store. On a full disk there may be no room for the shared
        files."""
        return self._store.is_readable

    @property
    def pulse(self) -> Pulse:
        """State of this server that a live page beside it cannot read from the store."""
        committer = self._registry.committer
        return Pulse(
            commits=committer.commits,
            commits_ns=committer.commits_ns,
            failure=committer.failure or "",
            silent_s={} if self._campaigns is None else self._campaigns.silent_s,
        )

    async def start(
        self, host: str, port: int, *, directory: Path | None, listener: socket.socket | None = None
    ) -> tuple[str, int]:
        """Opens the store and listens; port 0 picks any free port. `directory`: the directory of the local
        socket, None for no socket. `listener`: a bound socket in place of `host` and `port`. Returns the
        address. Raises StoreError and SetupError."""
        try:
            await self._open_store(directory)
            bound = self._listener.open(host, port, listener)
            where = self._address(*bound)
            self._client_requests.where = where
            await self._live(where)
            if directory is not None:
                await self._listen_locally(directory, bound[1])
        except (SetupError, OSError):
            self._listener.close()
            await self._close_store()
            raise
        self._begin_work()
        log.info("listening on %s, store %s", format_address(*bound), self._store.name)
        return bound

    async def start_locally(self, directory: Path, port: int) -> None:
        """Like `start`, but only on the local socket. Only the lab's histories use it, because they have
        their own network."""
        try:
            await self._open_store(directory)
            await self._live("")  # without an address, because no other server reaches it
            await self._listen_locally(directory, port)
        except (SetupError, OSError):
            await self._close_store()
            raise
        self._begin_work()

    async def invite(self) -> messages.Invited:
        """A join code for a client. Raises RefusedError and StoreError."""
        return await self._client_requests.invite("client", "")

    async def stop(self) -> None:
        """Stops accepting connections, makes all received data durable, and closes."""
        if not self._tasks:
            return
        watch, work, leases = self._tasks
        self._tasks = []
        self._listener.close()
        if self._local is not None:
            self._local.close()
        watch.cancel()
        if self._campaigns is not None and self._controller is not None:
            await self._campaigns.close()
            await self._controller.close()
        await self._manager.close(GRACE_S)
        self._services.turns.close()
        self._registry.committer.close()
        await work
        self._registry.close()
        self._registry.leases.close()
        await leases
        await self._registry.leases.end()
        with suppress(asyncio.CancelledError):
            await watch
        await self._close_store()
        log.info("stopped")

    async def _open_store(self, directory: Path | None) -> None:
        migrated = await self._thread.call(self._store.open)
        if migrated is not None:
            log.warning("%s: %s", self._store.name, migrated)
            self._announce("store", str(migrated))
        key, certificate = await self._thread.call(self._store.identity, _new_identity)
        identity = ServerIdentity(key=key, certificate=certificate)
        self._tls = identity.context()
        self._client_requests = ClientRequests(
            self._store,
            self._thread,
            fingerprint=identity.fingerprint,
            on_revoked=self._manager.revoke,
            announce=self._announce,
        )
        self._controller = Controller((directory or Path()) / POWER_DIRECTORY)
        self._campaigns = Campaigns(
            self._store,
            self._thread,
            self._controller,
            case=self._requests.case,
            hold=self._registry.hold,
            is_still=self._registry.is_still,
            boot_id=clock.read_boot_id(),
            announce=self._announce,
        )
        self._requests.campaign_of = self._campaigns.campaign_of
        self._requests.removal_of = self._campaigns.removal_of
        self._client_requests.campaign_with = self._campaigns.campaign_with
        self._services = Services(
            server_id=self._store.server_id,
            authentication=Authentication(self._store, self._thread),
            client_requests=self._client_requests,
            campaigns=self._campaigns,
            requests=self._requests,
            kept_results=KeptResults(self._store, self._thread),
            turns=Turns(),
            encode=self._encode,
            others=lambda: self.others,
        )
        self._registry.leases.on_revoked = self._end_revoked

    def _address(self, host: str, port: int) -> str:
        if self._advertise is None:
            return address_for_others(host, port)
        advertised, advertised_port = self._advertise
        return format_address(advertised, advertised_port or port)

    async def _end_revoked(self) -> None:
        """Ends connections of clients that any server has revoked. Raises StoreError."""
        self._manager.revoke(await self._thread.look_up(self._store.clients.revoked))

    async def _live(self, address: str) -> None:
        """Announces this server to the others, and marks the live runs of servers that have ended."""
        await self._registry.leases.begin(address)
        failure = await self._thread.call(self._store.mark_left_live)
        if failure is not None:
            self._registry.committer.begin_without(failure)

    async def _encode(self, message: messages.Message) -> bytes:
        return await self._thread.ask(messages.encode, message)

    async def _listen_locally(self, directory: Path, port: int) -> None:
        self._local = LocalSocket(directory, port)
        if not await self._local.listen(self._local_connection):
            log.warning("another server answers on %s: commands here do not find this one", self._local.path)

    def _begin_work(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._manager.watch()),
            loop.create_task(self._registry.committer.work()),
            loop.create_task(self._registry.leases.work()),
        ]
        for task in self._tasks:
            task.add_done_callback(self._ended)
        if self._local is not None and self._campaigns is not None:  # else no operator here may begin one
            self._campaigns.begin()

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.critical("a defect of this tool: the server cannot go on", exc_info=error)
            self.is_defect = True
            self.on_defect()

    async def _close_store(self) -> None:
        await self._thread.close(self._store.close)

    def _local_connection(self) -> ClientConnection:
        return ClientConnection(self._services, self._manager, PlainStream(), local=True)

    def _admit(self, accepted: socket.socket, began: Callable[[], None]) -> Callable[[], None]:
        stream = SecureStream.server_end(self._tls)
        connection = ClientConnection(self._services, self._manager, stream, local=False, began=began)

        async def connect() -> None:
            try:
                await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, accepted)
            except OSError:
                accepted.close()
                began()

        task = asyncio.get_running_loop().create_task(connect())
        self._admitted.add(task)
        task.add_done_callback(self._admitted.discard)
        return connection.abort


def _new_identity() -> tuple[bytes, bytes]:
    identity = new_identity()
    return identity.key, identity.certificate


async def serve(
    *,
    listen: str,
    store_url: str,
    directory: Path,
    ready: Callable[[Server, str, int], Awaitable[None]] | None = None,
    announce: Announce = silence,
    advertise: str | None = None,
    web: str | None = None,
    listening: Callable[[Callable[[], bool]], AbstractAsyncContextManager[Any]] = nullcontext,
) -> None:
    """Runs a server on `listen`, HOST or HOST:PORT, until SIGTERM or SIGINT, with its local socket in
    `directory`. Port 0 picks any free port. `advertise` is as in `Server`. `web`: address of the live page,
    None for none. `ready` gets the server and its address, and `announce` gets events. `listening` is entered
    once clients can connect, and left when the server begins to stop. Its argument returns whether the server
    works. Raises UsageError, SetupError or StoreError if the server cannot start, and DurabilityError if a
    defect ends it. The store is then consistent, as after any death of a server."""
    host, port = parse_address(listen, port=PORT)
    lines = log_lines.set_up()
    raise_file_limit()
    sys.setswitchinterval(_SWITCH_S)
    held_back = HeldBack(announce)
    stop = asyncio.Event()
    collections = ShortCollections()
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, stop.set)
    try:
        async with _live_page(web, store_url, held_back) as page:
            server = Server(
                store_url=store_url, announce=held_back, advertise=advertise, readers=page is not None
            )
            server.on_defect = stop.set
            bound = await server.start(host, port, directory=directory)
            try:
                await _start_page(page, server, held_back)
                collections.begin()
                if ready is not None:
                    await ready(server, *bound)
            except DurabilityError:
                await server.stop()
                raise
            held_back.release()
            async with listening(lambda: server.works):
                await stop.wait()
        if server.is_defect:
            raise DurabilityError("a defect of the server has ended it: its log says more. Start it again")
        await server.stop()
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
        collections.end()
        lines.flush()  # before the command prints why it ends


@asynccontextmanager
async def _live_page(web: str | None, store_url: str, announce: Announce) -> AsyncIterator[LivePage | None]:
    """The live page at the address `web`. It is bound before anything else starts, and closed at the end.
    Raises UsageError and SetupError."""
    if web is None:
        yield None
        return
    page = LivePage(web, store_url=store_url, announce=announce)
    page.listen()
    try:
        yield page
    finally:
        await page.close()


async def _start_page(page: LivePage | None, server: Server, announce: Announce) -> None:
    if page is None:
        return
    if not server.is_readable:
        await page.close()
        announce(
            PAGE,
            "it is left out: the store's disk has no room for what it needs to read the store beside the"
            " server. Make room, and start the server again",
        )
        return
    server.page = await page.start(lambda: server.pulse)


def raise_file_limit() -> None:
    """Raises the limit of open files, because each connection needs a descriptor and the default is low."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
