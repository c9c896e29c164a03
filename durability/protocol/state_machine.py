"""Sessions: one end of a connection as a state machine, without sockets, clocks or randomness.

The caller passes received data to `receive` and writes what `outgoing` returns. Both ends follow the same
tables below, from the same state by the same messages. So each end rejects a message that is not legal for
its purpose and state before it decodes the message. Heartbeats are answered here. After any error the session
is closed, and `outgoing` returns the `Failure` to send, if one can be sent.

    client                       server              states: start, greeted, ready
      | Hello       ------------>  |
      | <-----------     Welcome   |
      | messages of the purpose    |

This module does not judge the meaning of messages or the client's identity. `frontiers` checks frontiers; the
server checks runs and secrets. `secure_stream` protects the data in transit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

import durability
from durability import limits, releases
from durability.errors import AuthenticationError, DurabilityError, PeerError, ProtocolError, RefusedError
from durability.protocol import messages
from durability.protocol.frame import FrameDecoder, frame
from durability.protocol.messages import ClientMessage, Failure, Message, Ping, Pong, ServerMessage
from durability.protocol.older_documents import as_known

# Newest first. A version is a set of messages and of fields in the documents within them. To add a message or
# a field, put a new version in front. Keep the version before as long as its release must be supported.
PROTOCOL_VERSIONS = (4, 3)
_PINGS_MAX = 4096  # unanswered pings stored: minutes of silence, longer than any connection is kept

State: TypeAlias = str
Table: TypeAlias = Mapping[State, Mapping[type[Message], State]]

READY: State = "ready"

HANDSHAKE: Table = {
    "start": {messages.Hello: "greeted"},
    "greeted": {messages.Welcome: READY},
}

DECODED_LATER_BYTES = 1 << 10  # a longer message may take long to decode
# The content of these messages counts from their arrival, and they are so short that decoding is fast.
DECODED_AT_ONCE: tuple[type[Message], ...] = (messages.Ack, messages.Stop)

_ENDINGS: Mapping[type[Message], State] = {
    messages.Stop: "ending",
    messages.TargetFailed: "failing",
    messages.ClientFailed: "ending",
}

# Two messages in opposite directions may cross. So a message that the server sent stays legal in the state
# that the client's own message has led to meanwhile.
PURPOSES: Mapping[str, Table] = {
    "run": {
        READY: {messages.Register: "registering", messages.Resume: "resuming"},
        "registering": {messages.Accepted: "registered"},
        "registered": {messages.ArmRun: "arming", **_ENDINGS},
        "resuming": {messages.Accepted: "resumed"},
        "resumed": {messages.ArmRun: "arming", messages.Ack: "armed", messages.Credit: "resumed", **_ENDINGS},
        "arming": {messages.Armed: "armed", messages.Credit: "arming", **_ENDINGS},
        "armed": {messages.Ack: "armed", messages.Credit: "armed", messages.Progress: "armed", **_ENDINGS},
        "ending": {messages.Armed: "ending", messages.Credit: "ending", messages.Stopped: "ended"},
        "failing": {messages.Armed: "failing", messages.Credit: "failing", messages.Stopped: "failed"},
        "failed": {messages.DriveSeen: "looked"},
        "looked": {messages.Stored: "ended"},
        "ended": {},
    },
    "verify": {
        READY: {
            messages.Fetch: "fetching",
            messages.Examine: "fetching",
            messages.Evidence: "storing",
            messages.GiveVerdict: "storing",
            messages.KeepResult: "keeping",
        },
        "fetching": {messages.CaseFile: READY},
        "storing": {messages.Stored: READY},
        "keeping": {messages.ResultKept: READY},
    },
    "query": {
        READY: {
            messages.List: "listing",
            messages.Export: "exporting",
            messages.Show: "showing",
            messages.ListCampaigns: "listing-campaigns",
            messages.ShowCampaign: "showing-campaign",
            messages.ListResults: "listing",
            messages.FetchResult: "fetching-result",
            messages.ListClaims: "listing",
        },
        "listing": {messages.Listing: READY},
        "exporting": {messages.CaseFile: READY},
        "showing": {messages.Shown: READY},
        "listing-campaigns": {messages.CampaignNames: READY},
        "showing-campaign": {messages.Campaign: READY},
        "fetching-result": {messages.KeptResult: READY},
    },
    "agent": {
        READY: {messages.AgentStatus: "asking"},
        "asking": {messages.AgentTask: READY},
    },
    "operate": {
        READY: {
            messages.ListClients: "listing",
            messages.Invite: "inviting",
            messages.InviteMachines: "inviting",
            messages.Rename: "changing",
            messages.Revoke: "revoking",
            messages.StartCampaign: "changing",
            messages.SteerCampaign: "changing",
        },
        "listing": {messages.Clients: READY},
        "inviting": {messages.Invited: READY},
        "changing": {messages.Stored: READY},
        "revoking": {messages.Revoked: READY, messages.Stored: READY},  # `Stored`: from an earlier release
    },
    "join": {
        READY: {messages.Join: "joining", messages.JoinMachine: "joining"},
        "joining": {messages.Joined: "joined"},
        "joined": {},
    },
}

# Legal in every state after the handshake; a `Failure` is legal during it as well.
AT_ANY_TIME: Mapping[str, tuple[type[Message], ...]] = {
    purpose: (Ping, Pong, messages.Notice) if purpose == "run" else (Ping, Pong) for purpose in PURPOSES
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecoded(Message):
    """A message that was legal when it came, and that the caller decodes when there is time. The state of the
    session has already advanced."""

    kind: type[Message]
    body: bytes

    def decode(self) -> Message:
        """The message. Raises ProtocolError, after which the session must not continue."""
        return messages.decode(self.body)


class _Protocol:
    """The common part of both ends. `sends` and `receives` are the base classes of the messages in each
    direction."""

    def __init__(self, *, sends: type[Message], receives: type[Message], decoded_at_once_bytes: int) -> None:
        self._sends = sends
        self._receives = receives
        self._decoded_at_once_bytes = decoded_at_once_bytes
        self._decoder = FrameDecoder(limits.FRAME_BYTES_HELLO_MAX)
        self._outgoing = bytearray()
        self._table: Table = HANDSHAKE
        self._state: State = "start"
        self._pings: deque[int] = deque(maxlen=_PINGS_MAX)
        self._purpose = ""
        self._version = 0
        self._closed = False
        self.undelivered: list[Message] = []

    @property
    def state(self) -> State:
        """The name of the state in the tables of this module."""
        return self._state

    @property
    def purpose(self) -> str:
        """The client's purpose; "" on the server until `Hello` has come."""
        return self._purpose

    @property
    def authenticated(self) -> bool:
        """Whether the handshake is over: the server has welcomed the client."""
        return self._table is not HANDSHAKE

    @property
    def closed(self) -> bool:
        """Whether nothing more will be received or sent, except the bytes that `outgoing` still returns."""
        return self._closed

    @property
    def unfinished_bytes(self) -> int:
        """Bytes received of a message that is not complete yet."""
        return self._decoder.unfinished_bytes

    def outgoing(self) -> bytes:
        """The bytes to write now. Each byte is returned once."""
        data = bytes(self._outgoing)
        self._outgoing.clear()
        return data

    def may_send(self, kind: type[Message]) -> bool:
        """Whether a message of this kind is legal now."""
        legal = not self._closed and self.authenticated and self._after(kind, self._sends) is not None
        return legal and not self._is_too_new(kind)

    def _is_too_new(self, kind: type[Message]) -> bool:
        """Whether the peer's release does not have this kind of message."""
        return self.authenticated and messages.since(kind) > self._version

    def send(self, message: Message) -> None:
        """Queue `message`. A `Failure` closes the session. Raises RefusedError "version" if the peer's
        release does not have the message. Raises DurabilityError if the message is not legal now, and
        FormatError for a field beyond its bounds."""
        if isinstance(message, Failure):
            self.fail(message.code, message.text)
            return
        if self._is_too_new(type(message)):
            needed = messages.since(type(message))
            raise RefusedError("version", releases.too_old_for("this command", self._version, needed))
        if not self.may_send(type(message)):
            state = "closed" if self._closed else self._state
            raise DurabilityError(f"defect of this tool: {type(message).__name__} sent in state {state}")
        self._queue(message)
        if isinstance(message, Ping):
            self._pings.append(message.sent_ns)

    def send_encoded(self, kind: type[Message], body: bytes) -> None:
        """As `send`, for a message that `messages.encode` encoded to `body`, after `as_known`. Does nothing
        if it is not legal."""
        if self.may_send(kind):
            self._queue_encoded(kind, body)

    def fail(self, code: str, text: str) -> None:
        """Queue a `Failure` and close the session. Does nothing if it is closed already."""
        if not self._closed:
            self._outgoing += frame(messages.encode(Failure(code=code, text=text)))
            self._closed = True

    def receive(self, data: bytes | bytearray | memoryview) -> list[Message]:
        """Take in `data` and return the messages of the purpose, in order. They include `Pong`, and the
        `Hello` that the server must answer.

        Raises ProtocolError if the peer broke the protocol, AuthenticationError if the server does not know
        this client, and RefusedError with the peer's `Failure`. In that case, `undelivered` holds the
        messages that came before the error in the same `data`. On a closed session all data are ignored.
        """
        if self._closed:
            return []
        received: list[Message] = []
        try:
            for body in self._decoder.feed(data):
                message = self._accept(body)
                if message is not None:
                    received.append(message)
        except PeerError as error:
            self.undelivered = received
            self.fail("protocol", str(error))
            raise
        return received

    def _accept(self, body: bytes) -> Message | None:
        kind = messages.kind_of(body)
        if kind is Failure:
            self._closed = True
            self._refused(messages.decode(body))
        state = self._after(kind, self._receives)
        if state is None or self._is_too_new(kind):
            raise ProtocolError(f"{kind.__name__} is not legal in state {self._state}")
        if len(body) > self._decoded_at_once_bytes and self.authenticated and kind not in DECODED_AT_ONCE:
            self._state = state
            return Undecoded(kind=kind, body=body)
        message = messages.decode(body)
        self._state = state
        if self._table is HANDSHAKE:
            return self._shake_hands(message)
        if isinstance(message, Ping):
            self._queue(Pong(sent_ns=message.sent_ns))
            return None
        if isinstance(message, Pong) and (not self._pings or self._pings.popleft() != message.sent_ns):
            raise ProtocolError("Pong does not answer the oldest Ping")
        return message

    def _after(self, kind: type[Message], direction: type[Message]) -> State | None:
        """The state after a message of this kind in this direction; None if it is not legal."""
        one_way = issubclass(kind, ClientMessage | ServerMessage)
        if one_way and not issubclass(kind, direction):
            return None
        if kind in AT_ANY_TIME.get(self._purpose, ()) and self.authenticated:
            return self._state
        return self._table[self._state].get(kind)

    def _refused(self, failure: Message) -> None:
        assert isinstance(failure, Failure)
        if failure.code == "authentication":
            raise AuthenticationError(failure.text)
        here = f" (this machine has durability {durability.__version__})" if failure.code == "version" else ""
        raise RefusedError(failure.code, f"{failure.text}{here}")

    def as_known(self, message: Message) -> Message:
        """`message` with only the parts that the peer's release knows."""
        return as_known(message, self._version)

    def _queue(self, message: Message) -> None:
        """Queue a legal message, and advance the state."""
        self._queue_encoded(type(message), messages.encode(self.as_known(message)))

    def _queue_encoded(self, kind: type[Message], body: bytes) -> None:
        self._outgoing += frame(body)
        state = self._after(kind, self._sends)
        assert state is not None
        self._state = state

    def _open(self) -> None:
        """End the handshake: the table and the longer frames of the purpose apply from now on."""
        self._table = PURPOSES[self._purpose]
        kinds: Iterable[type[Message]] = (
            *AT_ANY_TIME[self._purpose],
            Failure,
            *(kind for legal in self._table.values() for kind in legal),
        )
        self._decoder.limit = max(
            messages.bytes_max_of(kind) for kind in kinds if not issubclass(kind, self._sends)
        )

    def _shake_hands(self, message: Message) -> Message | None:
        """Process a message of the handshake. Returns the message that the caller must know, or None."""
        raise NotImplementedError


class ClientProtocol(_Protocol):
    """The client's end. `purpose`: the client's purpose. `client` and `secret`: the client's, as in `Hello`.
    `versions`: the protocol versions that the client speaks."""

    def __init__(
        self,
        purpose: str,
        *,
        client: str,
        secret: bytes,
        software: str,
        versions: tuple[int, ...] = PROTOCOL_VERSIONS,
    ) -> None:
        super().__init__(
            sends=ClientMessage, receives=ServerMessage, decoded_at_once_bytes=limits.FRAME_BYTES_MAX
        )
        self._purpose = purpose
        self._hello = messages.Hello(
            versions=versions, purpose=purpose, client=client, secret=secret, software=software
        )
        self._welcome: messages.Welcome | None = None

    @property
    def welcome(self) -> messages.Welcome:
        """The server's `Welcome`. Only valid after the session is `authenticated`."""
        assert self._welcome is not None
        return self._welcome

    def start(self) -> None:
        """Queue the first frame."""
        self._queue(self._hello)

    def _shake_hands(self, message: Message) -> None:
        assert isinstance(message, messages.Welcome)
        if message.version not in self._hello.versions:
            raise ProtocolError(f"protocol version {message.version} was chosen, which was not offered")
        self._welcome = message
        self._version = message.version
        self._open()


class ServerProtocol(_Protocol):
    """The server's end. `receive` returns the client's `Hello`; the caller authenticates the client, and
    answers with `welcome` or `fail`. `versions`: the protocol versions that the server speaks, newest first.
    Messages longer than `decoded_at_once_bytes` are returned `Undecoded`, except those in
    `DECODED_AT_ONCE`."""

    def __init__(
        self,
        versions: tuple[int, ...] = PROTOCOL_VERSIONS,
        *,
        decoded_at_once_bytes: int = limits.FRAME_BYTES_MAX,
    ) -> None:
        super().__init__(
            sends=ServerMessage, receives=ClientMessage, decoded_at_once_bytes=decoded_at_once_bytes
        )
        self._versions = versions

    def welcome(self, *, server_id: str, name: str, role: str, servers: tuple[str, ...] = ()) -> None:
        """Open the session with the client that the server knows as `name`. `servers`: addresses of the other
        servers on its store."""
        welcome = messages.Welcome(
            version=self._version,
            server_id=server_id,
            name=name,
            role=role,
            servers=servers,
        )
        self._queue(welcome)
        self._open()

    def _shake_hands(self, message: Message) -> Message:
        assert isinstance(message, messages.Hello)
        self._version = self._negotiate(message)
        if message.purpose not in PURPOSES:
            self._refuse(releases.unknown_purpose(message.purpose, message.software))
        self._purpose = message.purpose
        return message

    def _negotiate(self, hello: messages.Hello) -> int:
        common = [version for version in self._versions if version in hello.versions]
        if not common:
            self._refuse(releases.no_common_version(hello.software, hello.versions, self._versions))
        return common[0]

    def _refuse(self, text: str) -> NoReturn:
        self.fail("version", text)
        raise ProtocolError(text)
