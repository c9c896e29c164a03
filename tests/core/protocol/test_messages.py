"""Messages survive the wire unchanged, and nothing that is not exactly a message is read as one."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durability import limits, plain_text
from durability.errors import FormatError, ProtocolError
from durability.formats.documents import to_value
from durability.formats.facts import TargetWarning
from durability.formats.histogram import Histogram
from durability.formats.packing import pack
from durability.formats.run_statistics import DriveFlushes, Statistics
from durability.protocol import messages
from durability.protocol.messages import Ack, Message, decode, encode
from tests.sample_facts import drive, facts

seqs = st.lists(st.integers(0, limits.SEQ_MAX), min_size=1, max_size=limits.WRITERS_MAX).map(tuple)
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.text().map(plain_text.as_text)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text().map(plain_text.as_text), inner),
)
documents = st.dictionaries(st.text().map(plain_text.as_text), plain)
anything = st.recursive(
    st.text(st.characters()), lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner)
)


def test_every_kind_has_a_sample(samples: dict[type[Message], Message]) -> None:
    """The tests of this directory leave no kind out."""
    assert set(samples) == set(messages.KINDS)


def test_every_kind_survives_the_wire(samples: dict[type[Message], Message]) -> None:
    """Each kind comes back equal, and within its own longest length."""
    for kind, message in samples.items():
        body = encode(message)
        assert decode(body) == message
        assert messages.kind_of(body) is kind
        assert len(body) <= messages.bytes_max_of(kind) <= limits.FRAME_BYTES_MAX


@pytest.mark.slow
@given(seqs, st.integers(0, limits.SEQ_MAX))
def test_any_ack_survives_the_wire(frontiers: tuple[int, ...], control: int) -> None:
    """Any number of writers and any seqs come back."""
    ack = Ack(frontiers=frontiers, control=control)
    assert decode(encode(ack)) == ack


@pytest.mark.slow
@given(documents)
def test_any_document_survives_the_wire(document: dict[str, Any]) -> None:
    """Any JSON document arrives unchanged."""
    message = messages.ArmRun(facts=document)
    assert decode(encode(message)) == message


@pytest.mark.slow
@given(st.dictionaries(st.text(st.characters()), anything))
def test_any_strings_of_a_document_arrive_plain(document: dict[str, Any]) -> None:
    """Any strings can be sent in a document; they arrive as plain text."""
    received = decode(encode(messages.ArmRun(facts=document)))
    assert isinstance(received, messages.ArmRun)
    assert plain_text.is_text("".join(_strings(received.facts)))
    rows = decode(encode(messages.Listing(rows=(document, {}))))
    assert isinstance(rows, messages.Listing)
    assert rows.rows == (received.facts, {})


def _strings(value: Any) -> Iterator[str]:
    """All strings of a document, keys included."""
    if isinstance(value, str):
        yield value
    for part in (
        [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from _strings(part)


@pytest.mark.slow
@given(st.text(), st.booleans())
def test_any_words_can_be_reported(words: str, long: bool) -> None:
    """An error report never fails over its words: they are cut and made plain, and the rest arrives."""
    failure = messages.Failure(code="internal", text=words * (1000 if long else 1))
    body = encode(failure)
    received = decode(body)
    assert isinstance(received, messages.Failure)
    assert len(body) <= limits.FRAME_BYTES_HELLO_MAX
    assert plain_text.is_text(received.text)
    if plain_text.is_text(words) and not long and len(words) < 100:
        assert received.text == words


WRONG: list[tuple[list[Any], str]] = [
    ([0x15], "unknown message"),
    ([0x15, [1], 2, 3], "unknown message"),
    ([0x7F, [1], 2], "unknown message"),
    ([0x15, [], 0], "frontiers: expected 1 to 256 integers"),
    ([0x15, [1.0], 0], "frontiers: expected"),
    ([0x15, [True], 0], "frontiers: expected"),
    ([0x15, [-1], 0], "frontiers: expected"),
    ([0x15, [1 << 63], 0], "frontiers: expected"),
    ([0x15, [0] * 257, 0], "frontiers: expected"),
    ([0x15, {"0": 1}, 0], "frontiers: expected"),
    ([0x15, 7, 0], "frontiers: expected"),
    ([0x15, None, 0], "frontiers: expected"),
    ([0x15, [1], None], "control: expected an integer"),
    ([0x15, [1], False], "control: expected an integer"),
    ([0x15, [1], b"1"], "control: expected an integer"),
    (
        [0x01, [1], "Admin", "", bytes(32), ""],
        "purpose: expected a code of lower-case letters",
    ),
    ([0x01, [1], "run", "", bytes(33), ""], "secret: expected 0 to 32 bytes"),
    ([0x01, [1], "run", "", "x" * 32, ""], "secret: expected 0 to 32 bytes"),
    ([0x01, [1], "run", "", bytes(32), "a\nb"], "software: expected one line"),
    ([0x05, "Bad Code", ""], "code: expected a code"),
    ([0x05, "ok", "\x1b[2J"], "text: expected text"),
    ([0x05, "ok", "\u202egnp.exe"], "text: expected text"),
    ([0x05, "ok", b"bytes"], "text: expected text"),
    ([0x13, []], "facts: expected a map"),
    ([0x13, {"a": b"bytes"}], "facts: expected plain values"),
    ([0x13, {"a": "\x1b[2J"}], "facts: expected plain text"),
    ([0x13, {"a": ["\x9b2J"]}], "facts: expected plain text"),
    ([0x13, {"a": {"b\u202e": 1}}], "facts: expected plain text"),
    ([0x13, {"a": "\u200b"}], "facts: expected plain text"),
    ([0x31, [{}, {"label": "\u2066"}]], "rows: expected plain text"),
    ([0x13, {"a": [float("nan")]}], "facts: expected plain values"),
    ([0x31, [{}, 1]], "rows: expected maps only"),
    ([0x31, {}], "rows: expected at most"),
    ([0x10, 0, b"p", {}, bytes(32), "", False], "run: expected an integer from 1"),
    ([0x10, 1, b"", {}, bytes(32), "", False], "plan: expected 1 to 4096 bytes"),
    ([0x10, 1, b"p", {}, bytes(32), "", 0], "force: expected true or false"),
]


@pytest.mark.parametrize(("array", "problem"), WRONG)
def test_a_wrong_field_is_refused_by_name(array: list[Any], problem: str) -> None:
    """Every field must be there, of exactly its type and within its bounds."""
    with pytest.raises(ProtocolError, match=problem):
        decode(pack(array))


def nested(depth: int) -> dict[str, Any]:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return {"a": value}


def test_a_document_nested_too_deep_is_refused() -> None:
    """A document nested too deep is refused, so later recursion over it cannot fail."""
    assert decode(pack([0x13, nested(31)])) == messages.ArmRun(facts=nested(31))
    with pytest.raises(ProtocolError, match="nested at most 32 deep"):
        decode(pack([0x13, nested(32)]))
    with pytest.raises(ProtocolError):
        decode(pack([0x13, nested(500)]))


BROKEN = [
    b"",
    b"\x93",
    b"\x93\x15",
    b"\x93\x15\x91\x01",
    b"\x93\x15\x91\x01\x00\x00",
    b"\x93\x15\xdd\xff\xff\xff\xff\x00",
    b"\x93\x15\x91\xc1\x00",
    b"\x93\x15\xc7\x01\x05\x00\x00",
    b"\xdc\x00\x03\x15\x91\x01\x00",
    b"\x92\x13\x81\xc4\x01a\x00",
    b"\x92\x13\x81\x01\x00",
    b"\x92\x13\x81\xa1\xff\x00",
]


@pytest.mark.parametrize("body", BROKEN)
def test_what_is_no_array_of_plain_values_is_refused(body: bytes) -> None:
    """Truncation, trailing bytes, false lengths, extension types, keys that are no strings and bad UTF-8."""
    with pytest.raises(ProtocolError):
        decode(body)


@pytest.mark.slow
@given(st.data())
def test_any_truncation_or_extension_is_refused(
    samples: dict[type[Message], Message], data: st.DataObject
) -> None:
    """A body that lost its end, or gained one, is never read as a message."""
    body = encode(data.draw(st.sampled_from(list(samples.values()))))
    kept = data.draw(st.integers(0, len(body) - 1))
    for wrong in (body[:kept], body + data.draw(st.binary(min_size=1))):
        with pytest.raises(ProtocolError):
            decode(wrong)


@given(st.data())
def test_a_flipped_bit_gives_another_message_or_a_refusal(
    samples: dict[type[Message], Message], data: st.DataObject
) -> None:
    """Damage never raises anything but ProtocolError, and what is still read could have been sent."""
    body = bytearray(encode(data.draw(st.sampled_from(list(samples.values())))))
    bit = data.draw(st.integers(0, 8 * len(body) - 1))
    body[bit // 8] ^= 1 << bit % 8
    try:
        message = decode(bytes(body))
    except ProtocolError:
        return
    assert decode(encode(message)) == message


def test_a_message_longer_than_it_can_be_is_refused_before_it_is_decoded() -> None:
    """Two bytes and a length are enough to refuse it."""
    with pytest.raises(ProtocolError, match="Ack of 3000 bytes, at most"):
        messages.kind_of(b"\x93\x15" + bytes(2998))


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (Ack(frontiers=(-1,), control=0), "cannot send Ack: frontiers: expected"),
        (messages.Ping(sent_ns=1 << 63), "cannot send Ping: sent_ns: expected"),
        (
            messages.Hello(versions=(3,), purpose="run", client="", secret=b"", software="a\nb"),
            "software: expected",
        ),
        (messages.ArmRun(facts={"a": b"bytes"}), "facts: expected plain values"),
        (
            messages.ArmRun(facts={"a": "x" * limits.FACTS_BYTES_MAX}),
            "cannot send ArmRun: 524.* bytes",
        ),
    ],
)
def test_a_wrong_value_fails_where_it_was_made(message: Message, problem: str) -> None:
    """The sender hears of it, not the other machine."""
    with pytest.raises(FormatError, match=problem):
        encode(message)


@pytest.mark.parametrize("head", [b"\xdc\xff\xff", b"\xdd\x00\x01\x00\x00", b"\xde\xff\xff\xa0"])
def test_no_list_is_made_that_the_message_has_no_room_for(head: bytes) -> None:
    """msgpack makes a list as soon as it reads how long it is. 740 bytes of a stranger took 20 MB."""
    body = (b"\x96\x01" + head * 250)[:740]
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            decode(body)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1 << 20


def test_the_largest_documents_of_clients_have_room() -> None:
    """Facts of as many drives, layers and warnings as there may be, and statistics of as many writers and
    drives, with a commit in every bucket, have far fewer members than their messages take."""
    histogram = Histogram()
    histogram._counts[:] = 1 << 40
    largest = facts(
        drives=(drive(),) * limits.FACTS_DRIVES_MAX,
        layers=("layer",) * limits.FACTS_LAYERS_MAX,
        warnings=(TargetWarning(code="code", text="text"),) * limits.FACTS_WARNINGS_MAX,
    )
    statistics = Statistics(
        elapsed_s=1.0,
        operations=(1 << 40,) * limits.WRITERS_MAX,
        latency_ns=cast("dict[str, list[int]]", histogram.to_value()),
        drives=(DriveFlushes(name="sda", flushes=1),) * limits.FACTS_DRIVES_MAX,
        unsafe_shutdowns=(1,) * limits.FACTS_DRIVES_MAX,
    )
    arm = messages.ArmRun(facts=to_value(largest))
    progress = messages.Progress(statistics=to_value(statistics))
    assert (decode(encode(arm)), decode(encode(progress))) == (arm, progress)
    assert _elements(arm.facts) * 2 < limits.FACTS_ELEMENTS_MAX
    assert _elements(progress.statistics) * 1.5 < limits.STATISTICS_ELEMENTS_MAX


def _elements(value: Any) -> int:
    if isinstance(value, dict):
        value = [*value.values()]
    return 1 + len(value) + sum(map(_elements, value)) if isinstance(value, list) else 0


@pytest.mark.parametrize(
    ("kind", "rest"),
    [
        (messages.Ack, [[[{}] * 200] * 9, 1]),
        (messages.Evidence, [1, "name", [{}] * 2000]),
        (messages.ListClaims, [[{}] * 2000]),
        (messages.Progress, [{"maps": [[{}] * 4000] * 2}]),
        (messages.AgentStatus, [{"maps": [[{}] * 8000] * 2}]),
    ],
)
def test_a_message_has_no_more_members_than_its_fields_need(kind: type[Message], rest: list[Any]) -> None:
    """It is refused before most of them are decoded, since each may take a microsecond."""
    with pytest.raises(ProtocolError, match=f"broken {kind.__name__}: .*(too many maps|exceeds max)"):
        decode(pack([messages._BY_KIND[kind].code, *rest]))
