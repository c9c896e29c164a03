"""The link of a run to its server. The link survives the loss of connections.

The link reconnects without limit, with growing pauses. It uses the run's secret to prove that it is the same
process, and sends unconfirmed messages again. It also keeps trying a server that no longer knows this client,
and `trouble` says what to do: the server may have been started on the wrong store by mistake, and giving up
would lose the run. The link ends when the server says that the run does not belong to this client any more.

The link can continue at any server of the store: at the last one, else at another one that answers, also if
that server was started after the run.
"""

from __future__ import annotations

import asyncio
import random
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
# The run is over, belongs to another process, or exceeds a quota, for example: trying again cannot help.
FINAL_CODES = frozenset({"fenced", "run-ended", "run-unknown", "version", "bad-request", "quota"})

Ending = Stop | TargetFailed | ClientFailed


class RunLink:
    """The session of one run, over any number of connections.

    `on_grants` and `on_notice` get the server's grants and notices. `trouble` is "" while connected, else the
    problem as text for people. When the run cannot continue at the server, `ended` is set and `final` holds
    the reason.
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
        self._attempt = 0  # reconnections since the server last confirmed something
        self.ended = asyncio.Event()
        self.final: PeerError | None = None
        self.trouble = ""

    @property
    def rtt_ns(self) -> int:
        """Round-trip time of the latest heartbeat; 0 without a connection or heartbeat."""
        return self._connection.rtt_ns if self._connection is not None else 0

    async def connect(self, endpoint: Endpoint) -> None:
        """Make the first connection, in one attempt. Raises PeerError."""
        self._endpoint = endpoint
        self._connection = await connect(endpoint, "run")
        self._endpoint = self._connection.endpoint

    async def register(
        self, *, run: int, plan: bytes, facts: Mapping[str, Value], label: str, force: bool
    ) -> None:
        """Register the run. From then on the link reconnects by itself. Raises PeerError."""
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
        """End the run if the link failed by a defect of this tool. Otherwise the writers would wait for
        credit for ever."""
        if not keeper.cancelled() and (error := keeper.exception()) is not None:
            self.final = PeerError(f"the link to the server failed, a defect of this tool: {error!r}")
            self.ended.set()

    async def arm(self, facts: Mapping[str, Value]) -> None:
        """Arm the run and wait until the server has stored that durably. Raises PeerError after its end."""
        self._arm = ArmRun(facts=facts)
        self._say(self._arm)
        await self._until(self._armed)

    def acknowledge(self, frontiers: tuple[int, ...], control: int) -> bool:
        """Send an ack if the network can take it at once. Returns False if not: call again with newer
        frontiers."""
        connection = self._connection
        if connection is None or not connection.session.may_send(Ack) or connection.backlog_bytes:
            return False
        self._ack = Ack(frontiers=frontiers, control=control)
        connection.send(self._ack)
        return True

    def report(self, statistics: Mapping[str, Value]) -> None:
        """Send statistics if the network can take them at once. If not, the next ones include them."""
        connection = self._connection
        if connection is not None and connection.session.may_send(Progress) and not connection.backlog_bytes:
            connection.send(Progress(statistics=statistics))

    async def finish(self, ending: Ending) -> None:
        """End the run and wait until the server has stored that durably. Raises PeerError if the run is
        already over. After `TargetFailed` the link stays open for `tell`."""
        self._ending = ending
        self._say(ending)
        await self._until(self._stopped)

    async def tell(self, drive_seen: Callable[[], DriveSeen]) -> None:
        """After `TargetFailed`, report the observed state of the drives, and wait until the server has stored
        it durably. `drive_seen` makes a new message for each transmission. Raises PeerError if the run is
        over."""
        self._drive_seen = drive_seen
        self._say_drive_seen()
        await self._until(self._stored)

    async def close(self) -> None:
        """Close the connection. Only `finish` ends the run."""
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
        """Send the drives' state, if the server has confirmed `TargetFailed` on this connection. If not,
        `_act` calls this again after the confirmation."""
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
        """Handle the server's messages, and reconnect after a lost connection. Ends with the run."""
        while True:
            try:
                if self._connection is None:
                    self._connection = await self._resume()
                self.trouble = ""
                await self._listen(self._connection)
                return
            except RefusedError as error:
                self.trouble = str(error)
                self._reorder(refused=True)
                if error.code == "run-ended" and self._stop_sent:
                    self._stopped.set()  # the answer was lost, but `Stop` has ended the run
                    return
                if error.code in FINAL_CODES:
                    self.final = error
                    self.ended.set()
                    return
            except AuthenticationError:
                # The server advises to join again, which does not help: that makes another client.
                self.trouble = (
                    f"{self._endpoint} no longer knows this client, or has revoked it; start it on its"
                    " earlier store to continue the run, or stop the run"
                )
            except PeerError as error:
                self.trouble = str(error)
                self._reorder(refused=False)
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            await asyncio.sleep(_BACKOFF_S[min(self._attempt, len(_BACKOFF_S) - 1)])
            self._attempt += 1

    def _reorder(self, *, refused: bool) -> None:
        """Try the current server first, or last if it has refused the run. The others come in random order,
        so that the runs of one server do not all go to the same other one."""
        assert self._endpoint is not None
        here, others = self._endpoint.addresses[:1], list(self._endpoint.addresses[1:])
        random.shuffle(others)
        addresses = (*others, *here) if refused else (*here, *others)
        self._endpoint = replace(self._endpoint, addresses=addresses)

    async def _resume(self) -> Connection:
        """Connect again, resume the run and send unconfirmed messages again. Raises PeerError."""
        assert self._endpoint is not None
        # A run must not write files while it runs: the disk may hang, and a sync may flush the tested drive.
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
        # Messages on the old connection may not have arrived. A second copy does no harm.
        if self._arm is not None and not self._armed.is_set():
            if self._ending is None:  # otherwise a refusal of `ArmRun` might keep the ending from being read
                self._send(connection, self._arm)
        elif self._ack is not None and not isinstance(self._ending, Stop):
            connection.send(self._ack)  # not after `Stop`, which includes the frontiers
        if self._ending is not None:
            self._send(connection, self._ending)
        return connection

    async def _listen(self, connection: Connection) -> None:
        """Handle messages until the server has confirmed the end of the run. Meanwhile learn the addresses of
        other servers."""
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
