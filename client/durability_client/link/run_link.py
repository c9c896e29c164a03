"""The link of a run to its server, which outlives its connections.

It reconnects without limit and with growing pauses, shows with the run's secret that it is the same process,
and sends again what the server has not confirmed. A server that no longer knows this client is tried without
limit too, and `trouble` says what to do: it may have been started by mistake on another store, and giving up
would cost the run. It refuses to go on once the server says that the run is no longer this
client's. It goes on at any server of the store: at the one that it had, else at the next that answers, also
if that was started after the run.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from durability.errors import (
    AuthenticationError,
    PeerError,
    ProtocolError,
    RefusedError,
)
from durability.formats.packing import Value
from durability.protocol import auth
from durability.protocol.messages import (
    Accepted,
    Ack,
    Armed,
    ArmRun,
    ClientFailed,
    Credit,
    DriveSeen,
    Notice,
    Progress,
    Register,
    Resume,
    Stop,
    Stopped,
    Stored,
    TargetFailed,
)
from durability_client.link.endpoint import Endpoint
from durability_client.link.server_connection import CONNECT_TIMEOUT_S, Connection, connect, later_servers

_BACKOFF_S = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # pauses between attempts; the last one repeats
# The run is over, belongs to another process, or is one too many: trying again cannot help.
FINAL_CODES = frozenset({"fenced", "run-ended", "run-unknown", "version", "bad-request", "quota"})

Ending = Stop | TargetFailed | ClientFailed


class RunLink:
    """The session of one run, over as many connections as it takes.

    `on_grants` and `on_notice` are called with what the server says. `trouble` is "" while connected, else
    what is wrong, for people. `ended` is set, and `final` holds the reason, once the server will not have
    this run back.
    """

    def __init__(
        self, *, on_grants: Callable[[tuple[int, ...]], None], on_notice: Callable[[Notice], None]
    ) -> None:
        self._endpoint: Endpoint | None = None
        self._on_grants = on_grants
        self._on_notice = on_notice
        self._connection: Connection | None = None
        self._run = 0
        self._secret = secrets.token_bytes(auth.SECRET_BYTES)
        self._arm: ArmRun | None = None
        self._ack: Ack | None = None
        self._ending: Ending | None = None
        self._drive_seen: Callable[[], DriveSeen] | None = None
        self._stop_sent = False
        self._armed = asyncio.Event()
        self._stopped = asyncio.Event()
        self._stored = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._attempt = 0  # to get on, since the server last confirmed something
        self.ended = asyncio.Event()
        self.final: PeerError | None = None
        self.trouble = ""

    @property
    def rtt_ns(self) -> int:
        """The latest heartbeat's round trip, 0 while there is none."""
        return self._connection.rtt_ns if self._connection is not None else 0

    async def connect(self, endpoint: Endpoint) -> None:
        """The first connection; not tried twice. Raises PeerError."""
        self._endpoint = endpoint
        self._connection = await connect(endpoint, "run")
        self._endpoint = self._connection.endpoint

    async def register(
        self, *, run: int, plan: bytes, facts: Mapping[str, Value], label: str, force: bool
    ) -> None:
        """Make the run known; from here on the link keeps itself up. Raises PeerError."""
        assert self._connection is not None
        self._run = run
        register = Register(
            run=run,
            plan=plan,
            facts=facts,
            secret=self._secret,
            label=label,
            force=force,
        )
        await self._connection.request(register, Accepted)
        self._keeper = asyncio.create_task(self._keep())
        self._keeper.add_done_callback(self._kept)

    def _kept(self, keeper: asyncio.Task[None]) -> None:
        """A defect of this tool ends the run; without an end the writers would wait for credit for ever."""
        if not keeper.cancelled() and (error := keeper.exception()) is not None:
            self.final = PeerError(f"the link to the server failed, a defect of this tool: {error!r}")
            self.ended.set()

    async def arm(self, facts: Mapping[str, Value]) -> None:
        """Ask for the run to be armed until the server has it durably. Raises PeerError where the run is
        over."""
        self._arm = ArmRun(facts=facts)
        self._say(self._arm)
        await self._until(self._armed)

    def acknowledge(self, frontiers: tuple[int, ...], control: int) -> bool:
        """Send an ack if the network takes it at once; False says to come again with newer frontiers."""
        connection = self._connection
        if connection is None or not connection.session.may_send(Ack) or connection.backlog_bytes:
            return False
        self._ack = Ack(frontiers=frontiers, control=control)
        connection.send(self._ack)
        return True

    def report(self, statistics: Mapping[str, Value]) -> None:
        """Send statistics where the network takes them at once; else the next ones say the same and more."""
        connection = self._connection
        if connection is not None and connection.session.may_send(Progress) and not connection.backlog_bytes:
            connection.send(Progress(statistics=statistics))

    async def finish(self, ending: Ending) -> None:
        """End the run and wait until the server has it durably. Raises PeerError where the run is over. After
        `TargetFailed` the link stays up for `tell`."""
        self._ending = ending
        self._say(ending)
        await self._until(self._stopped)

    async def tell(self, drive_seen: Callable[[], DriveSeen]) -> None:
        """Say after `TargetFailed` what was seen of the drives, and wait until the server has it durably.
        `drive_seen` makes the message anew each time it is sent. Raises PeerError where the run is over."""
        self._drive_seen = drive_seen
        self._say_drive_seen()
        await self._until(self._stored)

    async def close(self) -> None:
        """Give the connection back; the run is ended only by `finish`."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait({self._keeper})
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _say(self, message: ArmRun | Ending) -> None:
        connection = self._connection
        if connection is not None and connection.session.may_send(type(message)):
            self._send(connection, message)

    def _say_drive_seen(self) -> None:
        """At once where the server has confirmed `TargetFailed` on this connection; else once it has."""
        connection = self._connection
        if self._drive_seen is not None and connection is not None and connection.session.may_send(DriveSeen):
            connection.send(self._drive_seen())

    def _send(self, connection: Connection, message: ArmRun | Ending) -> None:
        self._stop_sent |= isinstance(message, Stop)
        connection.send(message)

    async def _until(self, event: asyncio.Event) -> None:
        await _first_of(event.wait(), self.ended.wait())
        if not event.is_set():
            raise self.final or PeerError("the link to the server was closed")

    async def _keep(self) -> None:
        """Read what the server says; when the connection is lost, make another. Ends with the run."""
        while True:
            try:
                if self._connection is None:
                    self._connection = await self._resume()
                self.trouble = ""
                await self._listen(self._connection)
                return
            except RefusedError as error:
                self.trouble = str(error)
                self._try_another()
                if error.code == "run-ended" and self._stop_sent:
                    self._stopped.set()  # the answer was lost, but the run is as ended as `Stop` wants it
                    return
                if error.code in FINAL_CODES:
                    self.final = error
                    self.ended.set()
                    return
            except AuthenticationError:
                # What the server says is no help here: who joins anew is another client, without this run.
                self.trouble = (
                    f"{self._endpoint} no longer knows this client, or has revoked it; start it on its"
                    " earlier store to continue the run, or stop the run"
                )
            except PeerError as error:
                self.trouble = str(error)
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            await asyncio.sleep(_BACKOFF_S[min(self._attempt, len(_BACKOFF_S) - 1)])
            self._attempt += 1

    def _try_another(self) -> None:
        """The server with which the run was, or would have been, is tried last."""
        assert self._endpoint is not None
        addresses = self._endpoint.addresses
        self._endpoint = replace(self._endpoint, addresses=(*addresses[1:], *addresses[:1]))

    async def _resume(self) -> Connection:
        """A new connection that the server accepted into the run, and on which the unconfirmed was said
        again."""
        assert self._endpoint is not None
        # A run that goes on writes no file: the disk may hang, and a sync may flush the drive under test.
        connection = await connect(self._endpoint, "run", remember=False)
        self._endpoint = connection.endpoint
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                accepted = await connection.request(Resume(run=self._run, secret=self._secret), Accepted)
        except TimeoutError:
            connection.close()
            raise PeerError(
                f"the server at {self._endpoint} did not answer when the run tried to resume; check that its"
                " database answers and its machine is not overloaded. The run keeps trying"
            ) from None
        except BaseException:
            connection.close()
            raise
        self._on_grants(accepted.grants)
        # What was said on the old connection may not have arrived; said twice, it costs nothing.
        if self._arm is not None and not self._armed.is_set():
            if self._ending is None:  # else it may be refused again, and the end would not be heard
                self._send(connection, self._arm)
        elif self._ack is not None and not isinstance(self._ending, Stop):
            connection.send(self._ack)  # a stopped run takes no more of them, and `Stop` says all of it
        if self._ending is not None:
            self._send(connection, self._ending)
        return connection

    async def _listen(self, connection: Connection) -> None:
        """Act on what comes until the server has confirmed the end of the run. Meanwhile learn of other
        servers."""
        with later_servers(connection):
            try:
                await self._act(connection)
            finally:
                self._endpoint = connection.endpoint

    async def _act(self, connection: Connection) -> None:
        while True:
            message = await connection.receive()
            match message:
                case Credit():
                    self._attempt = 0
                    self._on_grants(message.grants)
                case Notice():
                    self._on_notice(message)
                case Armed():
                    self._attempt = 0
                    self._armed.set()
                case Stopped():
                    self._stopped.set()
                    if not isinstance(self._ending, TargetFailed):
                        return
                    self._say_drive_seen()
                case Stored():
                    self._stored.set()
                    return
                case _:
                    raise ProtocolError(f"{type(message).__name__} is not valid during a run")


async def _first_of(*waits: Awaitable[object]) -> None:
    """Wait for the first of `waits`; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
