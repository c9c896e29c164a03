"""Messages between the two sides, each as one msgpack array `[code, field, field, ...]`.

    byte      0              1            2 ...
          +--------------+------------+--------------------------------+
          | 0x90 + count | code       | the fields, in the order below |
          +--------------+------------+--------------------------------+

Codes stay below 128 and the count (code and fields) below 16, so the first two bytes identify the message.
They are checked first: an unknown code, or a body longer than its message can be, is rejected before
anything is decoded. Then every field must be present, of exactly its type and within its limits. Otherwise a
ProtocolError names the field. `state_machine` decides when each message is legal.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, TypeAlias, TypeVar, get_args

from durability import limits
from durability.errors import FormatError, ProtocolError
from durability.formats.case import DRIVE_STATES, PROVABLE_CUT_CLASSES
from durability.formats.packing import ELEMENTS_MAX, Value, pack, unpack
from durability.protocol import auth, wire
from durability.protocol.wire import Field

Purpose: TypeAlias = Annotated[str, wire.code()]  # `state_machine.PURPOSES`; a newer client may know more
Role: TypeAlias = Annotated[str, wire.choice(*auth.ROLES)]
Secret: TypeAlias = Annotated[bytes, wire.octets(auth.SECRET_BYTES, auth.SECRET_BYTES)]
RunId: TypeAlias = Annotated[int, wire.integer(1, wire.U64_MAX)]
RunIdOrNone: TypeAlias = Annotated[int, wire.integer(0, wire.U64_MAX)]
Seq: TypeAlias = Annotated[int, wire.integer(0, limits.SEQ_MAX)]
Seqs: TypeAlias = Annotated[tuple[int, ...], wire.integers(0, limits.SEQ_MAX, limits.WRITERS_MAX)]
TimeNs: TypeAlias = Annotated[int, wire.integer(0, (1 << 63) - 1)]
Code: TypeAlias = Annotated[str, wire.code()]
Name: TypeAlias = Annotated[str, wire.name(limits.NAME_BYTES_MAX)]
Text: TypeAlias = Annotated[str, wire.text(limits.TEXT_BYTES_MAX)]
Count: TypeAlias = Annotated[int, wire.integer(0, (1 << 31) - 1)]
Names: TypeAlias = Annotated[tuple[str, ...], wire.names(limits.CAMPAIGNS_MAX, limits.CAMPAIGNS_MAX * 80)]
Marks: TypeAlias = Annotated[tuple[str, ...], wire.names(limits.MARKS_MAX, limits.MARKS_MAX * 50)]
Servers: TypeAlias = Annotated[tuple[str, ...], wire.names(limits.SERVERS_MAX, limits.SERVERS_BYTES_MAX)]
AttestedClass: TypeAlias = Annotated[str, wire.choice("", *PROVABLE_CUT_CLASSES)]
Flag: TypeAlias = Annotated[bool, wire.flag()]
Facts: TypeAlias = Annotated[
    Mapping[str, Value], wire.document(limits.FACTS_BYTES_MAX, limits.FACTS_ELEMENTS_MAX)
]
Statistics: TypeAlias = Annotated[
    Mapping[str, Value], wire.document(limits.STATISTICS_BYTES_MAX, limits.STATISTICS_ELEMENTS_MAX)
]
VerdictDocument: TypeAlias = Annotated[Mapping[str, Value], wire.document(limits.VERDICT_BYTES_MAX)]
Document: TypeAlias = Annotated[Mapping[str, Value], wire.document(limits.DOCUMENT_BYTES_MAX)]
ResultSummary: TypeAlias = Annotated[
    Mapping[str, Value], wire.document(limits.RESULT_SUMMARY_BYTES_MAX, limits.SUMMARY_ELEMENTS_MAX)
]
AgentDocument: TypeAlias = Annotated[
    Mapping[str, Value], wire.document(limits.AGENT_DOCUMENT_BYTES_MAX, limits.AGENT_ELEMENTS_MAX)
]
Documents: TypeAlias = Annotated[
    tuple[Mapping[str, Value], ...], wire.documents(limits.LISTING_ROWS_MAX, limits.DOCUMENT_BYTES_MAX)
]

T = TypeVar("T")


class Message:
    """Base of all messages."""

    __slots__ = ()


class ClientMessage(Message):
    """Only the client sends it."""

    __slots__ = ()


class ServerMessage(Message):
    """Only the server sends it."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """The encoding of one kind of message."""

    kind: type[Message]
    code: int
    names: tuple[str, ...]
    fields: tuple[Field, ...]
    bytes_max: int
    elements_max: int
    members_max: int
    since: int


_BY_KIND: dict[type[Message], _Layout] = {}
_BY_HEAD: dict[bytes, _Layout] = {}


def _wire(
    code: int, *, since: int = 3, members_max: int = limits.MEMBERS_FROM_CLIENT_MAX
) -> Callable[[type[T]], type[T]]:
    """Registers a message dataclass under `code`. Its annotations contain the checks of the fields. `since`:
    first protocol version that has the message. `members_max`: limit for a map or list that a client sends. A
    message of a release never changes; a new message is added instead."""

    def register(kind: type[T]) -> type[T]:
        assert issubclass(kind, Message)
        members = fields(kind)  # type: ignore[arg-type]  # every kind is a dataclass
        checks = tuple(get_args(member.type)[1] for member in members)
        head = bytes((0x91 + len(members), code))
        assert len(members) < 15 and code < 128 and code not in (layout.code for layout in _BY_KIND.values())
        layout = _Layout(
            kind=kind,
            code=code,
            names=tuple(member.name for member in members),
            fields=checks,
            bytes_max=min(len(head) + sum(check.bytes_max for check in checks), limits.FRAME_BYTES_MAX),
            elements_max=ELEMENTS_MAX
            if issubclass(kind, ServerMessage)
            else 2 + len(members) + sum(check.elements_max for check in checks),
            members_max=members_max if issubclass(kind, ClientMessage) else ELEMENTS_MAX,
            since=since,
        )
        _BY_KIND[kind] = _BY_HEAD[head] = layout
        return kind

    return register


# The handshake, and messages that any session may send at any time after it.


@_wire(0x01, members_max=limits.MEMBERS_OF_HELLO_MAX)
@dataclass(frozen=True, slots=True, kw_only=True)
class Hello(ClientMessage):
    """First frame of a connection: the protocol versions that the client speaks, its purpose, and its
    identity.

    No version changes this message or `Failure`, so that releases can refuse each other by name."""

    versions: Annotated[tuple[int, ...], wire.integers(1, 0xFFFF, 16)]
    purpose: Purpose
    client: Name
    # The client's secret; with the purpose "join" that of the code; empty on a local socket.
    secret: Annotated[bytes, wire.octets(0, auth.SECRET_BYTES)]
    software: Name


@_wire(0x02)
@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome(ServerMessage):
    """The session is open, with the chosen protocol version. `name` and `role`: as which the server knows the
    client. `servers`: addresses, HOST:PORT, of the other live servers on the same store."""

    version: Annotated[int, wire.integer(1, 0xFFFF)]
    server_id: Name
    name: Name
    role: Role
    servers: Servers


@_wire(0x05)
@dataclass(frozen=True, slots=True, kw_only=True)
class Failure(Message):
    """Why the sender closes the connection; no message follows. docs/reference/protocol.md lists `code`."""

    code: Code
    text: Text


@_wire(0x06)
@dataclass(frozen=True, slots=True, kw_only=True)
class Ping(Message):
    """Heartbeat. `sent_ns` is on the sender's own clock and is returned in the `Pong`."""

    sent_ns: TimeNs


@_wire(0x07)
@dataclass(frozen=True, slots=True, kw_only=True)
class Pong(Message):
    """Answers a `Ping` at once."""

    sent_ns: TimeNs


# Purpose `run`.


@_wire(0x10)
@dataclass(frozen=True, slots=True, kw_only=True)
class Register(ClientMessage):
    """A new run. A later `Resume` must prove `secret`. `force` overrides "unverified-run"."""

    run: RunId
    plan: Annotated[bytes, wire.octets(1, limits.PLAN_BYTES_MAX)]
    facts: Facts
    secret: Secret
    label: Name
    force: Flag


@_wire(0x11)
@dataclass(frozen=True, slots=True, kw_only=True)
class Resume(ClientMessage):
    """Continues the same run on a new connection. `secret` is that of `Register`."""

    run: RunId
    secret: Secret


@_wire(0x12)
@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted(ServerMessage):
    """The run now belongs to this connection. `frontiers` and `grants` are per writer, as stored durably on
    the server."""

    run: RunId
    frontiers: Seqs
    grants: Seqs


@_wire(0x13)
@dataclass(frozen=True, slots=True, kw_only=True)
class ArmRun(ClientMessage):
    """The target is prefilled and synced. `facts`: the present facts."""

    facts: Facts


@_wire(0x14)
@dataclass(frozen=True, slots=True, kw_only=True)
class Armed(ServerMessage):
    """The server has stored durably that the run is armed: seq 1 may be issued."""


@_wire(0x15)
@dataclass(frozen=True, slots=True, kw_only=True)
class Ack(ClientMessage):
    """Per writer: the target acknowledged every operation up to this seq. `control`: writes that the control
    arm completed. Cumulative, so an ack that is lost or merged into a later one costs nothing."""

    frontiers: Seqs
    control: Seq


@_wire(0x16)
@dataclass(frozen=True, slots=True, kw_only=True)
class Credit(ServerMessage):
    """Per writer: the frontier that is durable on the server. A writer may issue up to this frontier +
    plan.credit."""

    grants: Seqs


@_wire(0x17)
@dataclass(frozen=True, slots=True, kw_only=True)
class Notice(ServerMessage):
    """A message for the person at the client; the session continues."""

    code: Code
    text: Text


@_wire(0x18)
@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFailed(ClientMessage):
    """The target failed at `seq` of `writer`; all writers stopped. `errno` is that of the client's system.
    The client stays connected to look at the drives, see `DriveSeen`."""

    errno: Annotated[int, wire.integer(0, 0xFFFF)]
    writer: Annotated[int, wire.integer(0, limits.WRITERS_MAX)]
    seq: Seq
    text: Text


@_wire(0x19)
@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFailed(ClientMessage):
    """The client ends for a reason other than the target."""

    text: Text


@_wire(0x1A)
@dataclass(frozen=True, slots=True, kw_only=True)
class Stop(ClientMessage):
    """A clean end: the last frontiers, and the last statistics as in `Progress`, or an empty map."""

    frontiers: Seqs
    control: Seq
    statistics: Statistics


@_wire(0x1B)
@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped(ServerMessage):
    """Answers `Stop`, `TargetFailed` or `ClientFailed` after it is durable."""


@_wire(0x1C)
@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(ClientMessage):
    """Statistics of the run so far, sent every second: a `run_statistics.Statistics` as a value. The newest
    message counts."""

    statistics: Statistics


@_wire(0x1D)
@dataclass(frozen=True, slots=True, kw_only=True)
class DriveSeen(ClientMessage):
    """State of the drives after `TargetFailed`, as in `case.DriveState`; `text` is for people.
    `error_age_us`: time from the target's error to the sending of this message."""

    error_age_us: Annotated[int, wire.integer(0, limits.ERROR_AGE_US_MAX)]
    drive: Annotated[str, wire.choice(*DRIVE_STATES)]
    text: Text


# Purpose `verify`.


@_wire(0x20)
@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch(ClientMessage):
    """Asks for the case of `run`. With `run` 0, asks for the newest armed run on the target that `facts`
    describe. `end` ends the run on the server: its session is fenced and its frontiers are final."""

    run: RunIdOrNone
    facts: Facts
    end: Flag


@_wire(0x21)
@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFile(ServerMessage):
    """A case as `case.case_to_value` makes it."""

    case: Document


@_wire(0x22)
@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence(ClientMessage):
    """Raw bytes to store with the run under `name`. Stored evidence is never replaced."""

    run: RunId
    name: Name
    data: Annotated[bytes, wire.octets(0, limits.EVIDENCE_BYTES_MAX)]


@_wire(0x23)
@dataclass(frozen=True, slots=True, kw_only=True)
class Stored(ServerMessage):
    """The client's request has been stored durably."""


@_wire(0x24)
@dataclass(frozen=True, slots=True, kw_only=True)
class GiveVerdict(ClientMessage):
    """The document of a verify, as `verify --json` prints it."""

    run: RunId
    document: VerdictDocument


@_wire(0x27, since=4)
@dataclass(frozen=True, slots=True, kw_only=True)
class Examine(ClientMessage):
    """Ends `run` on the server, as `Fetch` with `end`, and asks for its case: `verify` is about to read the
    target that `facts` describe. The server stores the information that is new (`case.Look`)."""

    run: RunId
    facts: Facts
    answers: Flag  # whether a superblock of the run could be read on the target
    attested: Text  # the operator's statement about the cut, "" if there is none
    cut_class: AttestedClass  # class that the operator named, "" if none


@_wire(0x25, since=4)
@dataclass(frozen=True, slots=True, kw_only=True)
class KeepResult(ClientMessage):
    """A benchmark result to store, with `body` and `summary` as `bench.kept_result` makes them. A result that
    is stored already is not stored again. Stored results are never replaced."""

    summary: ResultSummary
    body: Annotated[bytes, wire.octets(1, limits.EVIDENCE_BYTES_MAX)]


@_wire(0x26, since=4)
@dataclass(frozen=True, slots=True, kw_only=True)
class ResultKept(ServerMessage):
    """The result is durable. `result` is the server's name for it."""

    result: Name


# Purpose `query`.


@_wire(0x30)
@dataclass(frozen=True, slots=True, kw_only=True)
class List(ClientMessage):
    """Asks for the newest `limit` runs, or for the `limit` drives with the newest runs. `drive`: a part of
    the drive's model or serial. `host`: a part of the machine's name. "" matches any."""

    limit: Annotated[int, wire.integer(1, limits.LISTING_ROWS_MAX)]
    by: Annotated[str, wire.choice("run", "drive")] = "run"
    drive: Name = ""
    host: Name = ""


@_wire(0x31)
@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(ServerMessage):
    """One row per run, or per drive, newest first."""

    rows: Documents


@_wire(0x32)
@dataclass(frozen=True, slots=True, kw_only=True)
class Export(ClientMessage):
    """Asks for the present case of a run, without ending the run."""

    run: RunId


@_wire(0x33)
@dataclass(frozen=True, slots=True, kw_only=True)
class Show(ClientMessage):
    """Asks for everything that is stored about a run."""

    run: RunId


@_wire(0x34)
@dataclass(frozen=True, slots=True, kw_only=True)
class Shown(ServerMessage):
    """The complete run: `case`, `verdicts`, and names and sizes of the `evidence`."""

    document: Document


@_wire(0x35)
@dataclass(frozen=True, slots=True, kw_only=True)
class ListCampaigns(ClientMessage):
    """Asks for the names of all campaigns."""


@_wire(0x36)
@dataclass(frozen=True, slots=True, kw_only=True)
class ShowCampaign(ClientMessage):
    """Asks for the entries of a campaign's log after entry number `after`."""

    name: Name
    after: Count


@_wire(0x37)
@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign(ServerMessage):
    """The next entries of a campaign's log, as `campaign.log_entries.entry_to_value` makes them. An empty
    list means that there are no more."""

    entries: Documents
    silent_s: Document  # per machine, seconds since its agent was last heard
    note: Text  # why the server cannot conduct the campaign; "" if it can


@_wire(0x3A)
@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignNames(ServerMessage):
    """The names of all campaigns, in the order in which they began."""

    names: Names


@_wire(0x3B, since=4)
@dataclass(frozen=True, slots=True, kw_only=True)
class ListResults(ClientMessage):
    """Asks for the newest `limit` stored benchmark results; a `Listing` answers. A result matches if one of
    its drives does, by `drive` or by `identity`. "" matches any."""

    limit: Annotated[int, wire.integer(1, limits.LISTING_ROWS_MAX)]
    drive: Name = ""  # part of the model or serial of a drive
    identity: Name = ""  # hash of a drive's serial
    host: Name = ""  # part of the machine's name


@_wire(0x3C, since=4)
@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResult(ClientMessage):
    """Asks for a complete stored result."""

    result: Name


@_wire(0x3D, since=4)
@dataclass(frozen=True, slots=True, kw_only=True)
class KeptResult(ServerMessage):
    """A stored result: its row of the listing, and its body."""

    row: Document
    body: Annotated[bytes, wire.octets(1, limits.EVIDENCE_BYTES_MAX)]


@_wire(0x3E, since=4)
@dataclass(frozen=True, slots=True, kw_only=True)
class ListClaims(ClientMessage):
    """Asks which clients have runs on a target with exactly these drives, and for their verdicts. A `Listing`
    answers, with one row per client. `drives`: the drives' marks, as `bench.hashed_serials` makes them."""

    drives: Marks


# Purpose `agent`.


@_wire(0x38)
@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStatus(ClientMessage):
    """The present and past work of a machine's agent: a `campaign.tasks.Status` as a value."""

    status: AgentDocument


@_wire(0x39)
@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTask(ServerMessage):
    """The next work of the agent: a `campaign.tasks.Task` as a value. It answers each `AgentStatus`."""

    task: AgentDocument


# Purpose `operate`.


@_wire(0x40)
@dataclass(frozen=True, slots=True, kw_only=True)
class ListClients(ClientMessage):
    """Asks for all clients and open invitations."""


@_wire(0x41)
@dataclass(frozen=True, slots=True, kw_only=True)
class Clients(ServerMessage):
    """One row per client or open invitation, in the order in which they were invited."""

    rows: Documents


@_wire(0x42)
@dataclass(frozen=True, slots=True, kw_only=True)
class Invite(ClientMessage):
    """Asks for a join code; `name` "" leaves the name to the client."""

    role: Role
    name: Name


@_wire(0x43)
@dataclass(frozen=True, slots=True, kw_only=True)
class Invited(ServerMessage):
    """`line`: the command to type on the machine that joins. `expires`: when the code expires, ISO 8601."""

    line: Name
    expires: Name


@_wire(0x44)
@dataclass(frozen=True, slots=True, kw_only=True)
class Rename(ClientMessage):
    """Gives a client another name. `client` is its id or its name."""

    client: Name
    name: Name


@_wire(0x45)
@dataclass(frozen=True, slots=True, kw_only=True)
class Revoke(ClientMessage):
    """Makes a client or an open invitation unknown. `client` is its id or its name."""

    client: Name


@_wire(0x46)
@dataclass(frozen=True, slots=True, kw_only=True)
class StartCampaign(ClientMessage):
    """Begins a campaign, or with `check_only` its check. `settings`: a
    `campaign.definition.settings.Settings` as a value."""

    settings: AgentDocument
    check_only: Flag


@_wire(0x47)
@dataclass(frozen=True, slots=True, kw_only=True)
class SteerCampaign(ClientMessage):
    """Pauses, resumes or stops a campaign. "adopt" makes this server conduct a campaign of a server on
    another machine."""

    name: Name
    action: Annotated[str, wire.choice("pause", "resume", "stop", "adopt")]


@_wire(0x48, since=4)
@dataclass(frozen=True, slots=True, kw_only=True)
class InviteMachines(ClientMessage):
    """Asks for a code that joins up to `machines` machines, each of them again after every boot, for
    `valid_s` seconds. `name` as in `Invite`."""

    name: Name
    machines: Annotated[int, wire.integer(1, limits.MACHINES_OF_CODE_MAX)]
    valid_s: Annotated[int, wire.integer(1, limits.MACHINE_CODE_S_MAX)]


@_wire(0x49, since=4)
@dataclass(frozen=True, slots=True, kw_only=True)
class Revoked(ServerMessage):
    """A client or an invitation has become unknown. `campaigns`: the campaigns that have not ended and have a
    revoked machine."""

    campaigns: Names


# Purpose `join`.


@_wire(0x50)
@dataclass(frozen=True, slots=True, kw_only=True)
class Join(ClientMessage):
    """Uses up the code. `name` is this machine's name, unless the invitation gives another one."""

    name: Name


@_wire(0x51)
@dataclass(frozen=True, slots=True, kw_only=True)
class Joined(ServerMessage):
    """The new client's id and secret, and the name and role by which the server knows it."""

    client: Name
    secret: Secret
    name: Name
    role: Role


@_wire(0x52, since=4)
@dataclass(frozen=True, slots=True, kw_only=True)
class JoinMachine(ClientMessage):
    """Joins a machine that stores no credential. With a code for machines, it becomes the same client as
    before. `machine` distinguishes it from other machines with the same code."""

    name: Name
    machine: Name


KINDS: tuple[type[Message], ...] = tuple(_BY_KIND)


def since(kind: type[Message]) -> int:
    """The first version of the protocol that has messages of this kind."""
    return _BY_KIND[kind].since


def bytes_max_of(kind: type[Message]) -> int:
    """The longest body that a message of this kind can have."""
    return _BY_KIND[kind].bytes_max


def encode(message: Message) -> bytes:
    """`message` as a frame body. Raises FormatError, naming the field, for a field beyond its limits."""
    layout = _BY_KIND[type(message)]
    array = [layout.code]
    for name, field in zip(layout.names, layout.fields, strict=True):
        try:
            array.append(field.write(getattr(message, name)))
        except ValueError as error:
            raise FormatError(f"cannot send {layout.kind.__name__}: {name}: {error}") from error
    body = pack(array)
    if len(body) > layout.bytes_max:
        raise FormatError(
            f"cannot send {layout.kind.__name__}: {len(body)} bytes, at most {layout.bytes_max} are allowed"
        )
    return body


def kind_of(body: bytes) -> type[Message]:
    """The kind of message in `body`, from its first two bytes; nothing else is decoded. Raises ProtocolError
    for a message that does not exist, or is longer than its kind can be."""
    return _layout_of(body).kind


def decode(body: bytes) -> Message:
    """The message in `body`. Raises ProtocolError that names the problem."""
    layout = _layout_of(body)
    try:
        array = unpack(body, elements_max=layout.elements_max, members_max=layout.members_max)
    except FormatError as error:
        raise ProtocolError(f"broken {layout.kind.__name__}: {error}") from error
    assert isinstance(array, list)
    arguments = {}
    for name, field, value in zip(layout.names, layout.fields, array[1:], strict=True):
        try:
            arguments[name] = field.read(value)
        except ValueError as error:
            raise ProtocolError(f"wrong {layout.kind.__name__}: {name}: {error}") from error
    return layout.kind(**arguments)


def _layout_of(body: bytes) -> _Layout:
    layout = _BY_HEAD.get(body[:2])
    if layout is None:
        raise ProtocolError(f"unknown message: its first bytes are {body[:2].hex()}")
    if len(body) > layout.bytes_max:
        raise ProtocolError(
            f"{layout.kind.__name__} of {len(body)} bytes, at most {layout.bytes_max} are allowed"
        )
    return layout
