"""Two sessions joined in memory agree under any split of the stream, and refuse all that is not legal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import cycle
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

import durability
from durability import limits
from durability.errors import AuthenticationError, DurabilityError, ProtocolError, RefusedError
from durability.protocol import messages
from durability.protocol.frame import FrameDecoder, frame
from durability.protocol.messages import (
    Accepted,
    Ack,
    ClientMessage,
    Credit,
    Failure,
    Hello,
    Message,
    Ping,
    Pong,
    ServerMessage,
    Stop,
    Welcome,
    decode,
    encode,
)
from durability.protocol.state_machine import (
    AT_ANY_TIME,
    HANDSHAKE,
    PURPOSES,
    READY,
    ClientProtocol,
    ServerProtocol,
)
from tests.core.protocol.conftest import welcome

Ends: TypeAlias = tuple[ClientProtocol, ServerProtocol]
MakeEnds: TypeAlias = Callable[..., Ends]
Samples: TypeAlias = dict[type[Message], Message]

SCRIPTS: dict[str, list[type[Message]]] = {
    "run": [
        messages.Register,
        messages.Accepted,
        messages.ArmRun,
        messages.Notice,
        messages.Armed,
        messages.Ack,
        messages.Ack,
        messages.Credit,
        messages.Ack,
        messages.Progress,
        messages.Credit,
        messages.Stop,
        messages.Stopped,
    ],
    "run after an error": [
        messages.Register,
        messages.Accepted,
        messages.ArmRun,
        messages.Armed,
        messages.Ack,
        messages.TargetFailed,
        messages.Stopped,
        messages.DriveSeen,
        messages.Stored,
    ],
    "verify": [
        messages.Fetch,
        messages.CaseFile,
        messages.Examine,
        messages.CaseFile,
        messages.Evidence,
        messages.Stored,
        messages.GiveVerdict,
        messages.Stored,
        messages.KeepResult,
        messages.ResultKept,
    ],
    "query": [
        messages.List,
        messages.Listing,
        messages.Export,
        messages.CaseFile,
        messages.Show,
        messages.Shown,
        messages.ListCampaigns,
        messages.CampaignNames,
        messages.ShowCampaign,
        messages.Campaign,
        messages.ListResults,
        messages.Listing,
        messages.FetchResult,
        messages.KeptResult,
        messages.ListClaims,
        messages.Listing,
    ],
    "agent": [messages.AgentStatus, messages.AgentTask, messages.AgentStatus, messages.AgentTask],
    "operate": [
        messages.ListClients,
        messages.Clients,
        messages.Invite,
        messages.Invited,
        messages.InviteMachines,
        messages.Invited,
        messages.Rename,
        messages.Stored,
        messages.Revoke,
        messages.Revoked,
        messages.StartCampaign,
        messages.Stored,
        messages.SteerCampaign,
        messages.Stored,
    ],
    "join": [messages.Join, messages.Joined],
}


def pieces(data: bytes, sizes: Iterator[int]) -> Iterator[bytes]:
    while data:
        size = next(sizes)
        yield data[:size]
        data = data[size:]


def exchange(
    client: ClientProtocol, server: ServerProtocol, sizes: Iterable[int] = (1 << 20,)
) -> list[Message]:
    """Carries bytes both ways, cut into pieces of `sizes`, until both ends are quiet; what came out there."""
    endless = cycle(sizes)
    received: list[Message] = []
    while True:
        to_server, to_client = client.outgoing(), server.outgoing()
        if not to_server and not to_client:
            return received
        for piece in pieces(to_server, endless):
            received += server.receive(piece)
        for piece in pieces(to_client, endless):
            received += client.receive(piece)


def failure_of(session: ClientProtocol | ServerProtocol) -> Failure:
    """The failure that a closed session leaves as the last frame to send."""
    assert session.closed
    *_, last = FrameDecoder(limits.FRAME_BYTES_HELLO_MAX).feed(session.outgoing())
    failure = decode(last)
    assert isinstance(failure, Failure)
    return failure


@pytest.mark.slow
@given(st.sampled_from(sorted(SCRIPTS)), st.lists(st.integers(1, 60), min_size=1, max_size=20))
def test_any_split_of_the_stream_gives_the_same_conversation(
    make_ends: MakeEnds, samples: Samples, purpose: str, sizes: list[int]
) -> None:
    """From the first byte to the last, every message arrives once, in order, however the network cuts."""
    client, server = make_ends(purpose.partition(" ")[0])
    client.start()
    (hello,) = exchange(client, server, sizes)
    assert isinstance(hello, Hello)
    assert (hello.purpose, hello.client, hello.secret) == (purpose.partition(" ")[0], "c1", b"s" * 32)
    welcome(server)
    assert exchange(client, server, sizes) == []
    assert client.authenticated and server.authenticated
    assert client.welcome.server_id == "server"
    assert (client.welcome.name, client.welcome.role) == ("shelf 3", "client")
    assert server.purpose == purpose.partition(" ")[0]
    for kind in SCRIPTS[purpose]:
        sender = client if issubclass(kind, ClientMessage) else server
        sender.send(samples[kind])
        client.send(Ping(sent_ns=1))
        server.send(Ping(sent_ns=2))
        received = exchange(client, server, sizes)
        assert [message for message in received if not isinstance(message, Pong)] == [samples[kind]]
        assert sorted(pong.sent_ns for pong in received if isinstance(pong, Pong)) == [1, 2]
    assert client.state == server.state


def test_messages_that_cross_are_legal_at_both_ends(make_open: MakeEnds, samples: Samples) -> None:
    """A credit, a notice or an armed that was on its way when the client stopped breaks nothing."""
    client, server = walked(make_open, samples, "run", [messages.Register, Accepted, messages.ArmRun])
    client.send(samples[Stop])
    server.send(samples[messages.Armed])
    server.send(samples[Credit])
    server.send(samples[messages.Notice])
    exchange(client, server)
    server.send(samples[messages.Credit])
    server.send(samples[messages.Stopped])
    assert exchange(client, server) == [samples[messages.Credit], samples[messages.Stopped]]
    assert client.state == server.state == "ended"
    assert not server.may_send(Credit)


@pytest.mark.parametrize("armed_before", [False, True])
def test_a_resumed_run_may_arm_or_go_on(make_open: MakeEnds, samples: Samples, armed_before: bool) -> None:
    """After a resume the client arms again where it heard no `Armed`, and else acknowledges at once."""
    client, server = make_open("run")
    client.send(samples[messages.Resume])
    exchange(client, server)
    server.send(samples[Accepted])
    server.send(samples[Credit])
    exchange(client, server)
    if not armed_before:
        client.send(samples[messages.ArmRun])
        server.send(samples[Credit])
        exchange(client, server)
        server.send(samples[messages.Armed])
        exchange(client, server)
    client.send(samples[Ack])
    assert exchange(client, server) == [samples[Ack]]
    assert client.state == server.state == "armed"


def test_a_client_that_is_not_known_hears_so(make_ends: MakeEnds) -> None:
    """The server ends the connection, and the client knows that it is not known."""
    client, server = make_ends()
    client.start()
    server.receive(client.outgoing())
    server.fail("authentication", "this server does not know this client")
    assert server.closed and not server.authenticated
    with pytest.raises(AuthenticationError, match="does not know this client"):
        client.receive(server.outgoing())
    assert client.closed and not client.authenticated
    assert client.outgoing() == b""


def test_nothing_is_heard_while_the_server_looks_who_it_is(make_ends: MakeEnds, samples: Samples) -> None:
    """A client that does not wait for its welcome is refused."""
    client, server = make_ends()
    client.start()
    server.receive(client.outgoing())
    with pytest.raises(ProtocolError, match="is not legal in state greeted"):
        server.receive(frame(encode(samples[messages.Ping])))


def test_a_client_of_another_version_is_told_which_versions_there_are(make_ends: MakeEnds) -> None:
    """The server names both versions to the peer and to its log, with the code `version`."""
    client, server = make_ends()
    client.start()
    client.outgoing()
    hello = Hello(versions=(7, 9), purpose="run", client="", secret=b"", software="durability 9.1")
    with pytest.raises(
        ProtocolError, match=r"this client \(durability 9.1\) speaks protocol 7 and 9, the server"
    ):
        server.receive(frame(encode(hello)))
    with pytest.raises(RefusedError, match=r"Upgrade the server's machine: .*durability-9\.1-py3") as refusal:
        client.receive(server.outgoing())
    assert refusal.value.code == "version"


def test_an_older_client_is_told_to_upgrade() -> None:
    """Where the client is the older one, the line installs the server's release on the client's machine."""
    client, server = (
        ClientProtocol("run", client="c1", secret=bytes(32), software="durability 0.0.9"),
        ServerProtocol(versions=(6, 5)),
    )
    client.start()
    with pytest.raises(ProtocolError):
        server.receive(client.outgoing())
    with pytest.raises(RefusedError, match="Upgrade the client's machine") as refusal:
        client.receive(server.outgoing())
    assert "durability 0.0.9" in str(refusal.value) and durability.__version__ in str(refusal.value)


def test_neighbours_speak_the_newest_version_that_both_know() -> None:
    """A newer server answers an older client in the client's version, and the other way round."""
    for spoken, offered, chosen in (((4, 3), (3,), 3), ((3,), (4, 3), 3), ((4, 3), (4, 3), 4)):
        client = ClientProtocol("query", client="c1", secret=bytes(32), software="x", versions=offered)
        server = ServerProtocol(versions=spoken)
        client.start()
        server.receive(client.outgoing())
        server.welcome(server_id="s", name="n", role="client")
        client.receive(server.outgoing())
        assert client.welcome.version == chosen


def test_a_purpose_of_a_newer_release_is_refused_by_name(make_ends: MakeEnds) -> None:
    """A client that comes for what this server does not know is told to upgrade the server."""
    client, server = make_ends()
    client.start()
    client.outgoing()
    hello = Hello(versions=(4, 3), purpose="web", client="", secret=b"", software="durability 9.1")
    with pytest.raises(ProtocolError, match="does not know the purpose 'web'"):
        server.receive(frame(encode(hello)))
    with pytest.raises(RefusedError, match=r"durability-9\.1-py3") as refusal:
        client.receive(server.outgoing())
    assert refusal.value.code == "version"


def test_a_version_that_was_not_offered_is_refused(make_ends: MakeEnds) -> None:
    """A server cannot choose what the client does not speak."""
    client, _ = make_ends()
    client.start()
    chosen = Welcome(version=9, server_id="x", name="", role="client", servers=())
    with pytest.raises(ProtocolError, match="protocol version 9 was chosen, which was not offered"):
        client.receive(frame(encode(chosen)))


def paths(purpose: str) -> dict[str, list[type[Message]]]:
    """For each state of a purpose a shortest list of messages that leads there from READY."""
    found: dict[str, list[type[Message]]] = {READY: []}
    todo = [READY]
    for state in todo:
        for kind, after in PURPOSES[purpose][state].items():
            if after not in found:
                found[after] = [*found[state], kind]
                todo.append(after)
    assert set(found) == set(PURPOSES[purpose])
    return found


def walked(make_open: MakeEnds, samples: Samples, purpose: str, path: list[type[Message]]) -> Ends:
    client, server = make_open(purpose)
    for kind in path:
        (client if issubclass(kind, ClientMessage) else server).send(samples[kind])
        exchange(client, server)
    return client, server


EVERY_STATE = [(purpose, state) for purpose in PURPOSES for state in PURPOSES[purpose]]


@pytest.mark.parametrize(("purpose", "state"), EVERY_STATE)
def test_what_is_not_legal_in_a_state_is_refused(
    make_open: MakeEnds, samples: Samples, purpose: str, state: str
) -> None:
    """In every state of every purpose, a kind that the tables do not name closes the session with
    `protocol`."""
    path = paths(purpose)[state]
    for kind, message in samples.items():
        for end, base in enumerate((ServerMessage, ClientMessage)):
            session = walked(make_open, samples, purpose, path)[end]
            assert session.state == state
            directed = issubclass(kind, base) or not issubclass(kind, ClientMessage | ServerMessage)
            legal = directed and (kind in PURPOSES[purpose][state] or kind in AT_ANY_TIME[purpose])
            if kind in (Failure, Pong):
                continue
            if legal:
                session.receive(frame(encode(message)))
                assert not session.closed
            else:
                with pytest.raises(ProtocolError, match=r"is not legal in state|bytes was announced"):
                    session.receive(frame(encode(message)))
                assert failure_of(session).code == "protocol"


@pytest.mark.parametrize("kind", [kind for kind in messages.KINDS if kind not in (Hello, Failure)])
def test_nothing_but_a_hello_opens_a_connection(
    make_ends: MakeEnds, samples: Samples, kind: type[Message]
) -> None:
    """An unauthenticated peer can say nothing that is acted on."""
    _, server = make_ends()
    with pytest.raises(ProtocolError, match="is not legal in state start"):
        server.receive(frame(encode(samples[kind])))
    assert failure_of(server).code == "protocol"
    assert set(HANDSHAKE["start"]) == {Hello}


def test_an_illegal_message_is_refused_before_it_is_decoded(make_open: MakeEnds) -> None:
    """A message that is illegal in the present state is refused before its body is decoded."""
    _, server = make_open("run")
    with pytest.raises(ProtocolError, match="Ack is not legal in state ready"):
        server.receive(frame(b"\x93\x15\xc1"))


def test_a_defect_of_this_side_is_not_sent(make_open: MakeEnds, samples: Samples) -> None:
    """Sending what is not legal raises, queues nothing and leaves the session as it was."""
    client, server = make_open("run")
    with pytest.raises(DurabilityError, match="Ack sent in state ready"):
        client.send(samples[Ack])
    with pytest.raises(DurabilityError, match="Ack sent in state ready"):
        server.send(samples[Ack])
    assert client.outgoing() == server.outgoing() == b""
    assert (client.state, client.closed, client.may_send(messages.Register)) == (READY, False, True)


def test_nothing_can_be_sent_before_the_handshake_is_over(make_ends: MakeEnds, samples: Samples) -> None:
    """Before the end of the handshake, no message of a purpose and no heartbeat can be sent."""
    client, server = make_ends()
    assert not client.may_send(Ping) and not server.may_send(Ping)
    with pytest.raises(DurabilityError, match="Hello sent in state start"):
        client.send(samples[Hello])


def test_a_failure_ends_both_ends(make_open: MakeEnds, samples: Samples) -> None:
    """The peer raises its code and text; neither end says or hears anything after it."""
    client, server = make_open("verify")
    server.send(Failure(code="run-live", text="run 1 is live: stop it first"))
    with pytest.raises(DurabilityError, match="sent in state closed"):
        server.send(samples[Ping])
    server.fail("internal", "a second failure says nothing")
    with pytest.raises(RefusedError, match="run 1 is live: stop it first") as refusal:
        client.receive(server.outgoing())
    assert refusal.value.code == "run-live"
    assert client.closed and server.closed
    assert client.receive(frame(b"\xff")) == server.receive(b"\xff" * 5000) == []
    assert client.outgoing() == server.outgoing() == b""


@pytest.mark.parametrize("together", [False, True])
def test_what_came_before_an_error_is_not_lost(make_open: MakeEnds, samples: Samples, together: bool) -> None:
    """Whether the network joined an answer and the failure behind it makes no difference."""
    client, server = make_open("verify")
    client.send(samples[messages.GiveVerdict])
    exchange(client, server)
    server.send(samples[messages.Stored])
    answer = server.outgoing()
    server.fail("internal", "gone")
    failure = server.outgoing()
    received = [] if together else client.receive(answer)
    with pytest.raises(RefusedError):
        client.receive(answer + failure if together else failure)
    assert received + client.undelivered == [samples[messages.Stored]]


def test_a_pong_that_answers_nothing_is_refused(make_open: MakeEnds) -> None:
    """A round trip cannot be made up."""
    client, server = make_open("run")
    server.send(Ping(sent_ns=5))
    server.send(Ping(sent_ns=6))
    client.receive(server.outgoing())
    assert server.receive(client.outgoing()) == [Pong(sent_ns=5), Pong(sent_ns=6)]
    with pytest.raises(ProtocolError, match="Pong does not answer"):
        server.receive(frame(encode(Pong(sent_ns=6))))


def test_before_authentication_frames_are_small(make_ends: MakeEnds) -> None:
    """A stranger's frame above the small limit is refused from its length alone."""
    _, server = make_ends()
    with pytest.raises(ProtocolError, match=f"1 to {limits.FRAME_BYTES_HELLO_MAX} are allowed here"):
        server.receive((limits.FRAME_BYTES_HELLO_MAX + 1).to_bytes(4, "big"))
    assert failure_of(server).code == "protocol"


@pytest.mark.parametrize(
    ("purpose", "longest"),
    [
        ("run", messages.Register),
        ("verify", messages.KeepResult),
        ("query", messages.ListClaims),
        ("agent", messages.AgentStatus),
        ("operate", messages.StartCampaign),
        ("join", Failure),
    ],
)
def test_after_authentication_frames_are_as_long_as_the_role_needs(
    make_open: MakeEnds, purpose: str, longest: type[Message]
) -> None:
    """The server accepts frames only up to the longest message of the peer's purpose."""
    _, server = make_open(purpose)
    length = messages.bytes_max_of(longest)
    assert server.receive(length.to_bytes(4, "big")) == []
    _, server = make_open(purpose)
    with pytest.raises(ProtocolError, match="was announced"):
        server.receive((length + 1).to_bytes(4, "big"))


def test_the_first_message_may_follow_the_welcome_in_one_read(
    make_open: MakeEnds, make_ends: MakeEnds
) -> None:
    """The limit rises with the handshake's last frame, not with the next read."""
    reference, _ = make_open("run")
    client, server = make_ends("run")
    client.start()
    server.receive(client.outgoing())
    welcome(server)
    client.receive(server.outgoing())
    facts = {"path": "x" * 5000}
    reference.send(messages.Register(run=1, plan=b"p", facts=facts, secret=bytes(32), label="", force=False))
    assert len(server.receive(client.outgoing() + reference.outgoing())) == 1
