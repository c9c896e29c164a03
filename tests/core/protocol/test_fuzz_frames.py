"""A hundred thousand malformed frames against decoder and sessions: each is refused as such and nothing
grows."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest

from durability import limits
from durability.errors import PeerError
from durability.protocol.frame import FrameDecoder, frame
from durability.protocol.messages import (
    Accepted,
    Armed,
    ArmRun,
    ClientMessage,
    Message,
    Register,
    decode,
    encode,
)
from durability.protocol.state_machine import ClientProtocol, ServerProtocol

Ends: TypeAlias = tuple[ClientProtocol, ServerProtocol]

SEED = 20240607
MALFORMED = 100_000
FRAMES_LEFT_MAX = 20  # answers to what happened to be well-formed, and one failure
INTERESTING = (
    0x00,
    0x7F,
    0x80,
    0x8F,
    0x90,
    0x9F,
    0xA0,
    0xC0,
    0xC1,
    0xC4,
    0xC6,
    0xC7,
    0xD9,
    0xDB,
    0xDC,
    0xDD,
    0xDF,
    0xFF,
)


def malformed_streams(bodies: list[bytes], rng: random.Random) -> Iterator[bytes]:
    """Endless frames that are wrong somewhere: in their length, in their first bytes, or deep inside."""
    while True:
        body = bytearray(rng.choice(bodies))
        match rng.randrange(6):
            case 0:
                yield rng.randbytes(rng.randrange(4, 64))
            case 1:
                yield rng.randrange(1 << 10, 1 << 32).to_bytes(4, "big") + bytes(body)
            case 2:
                for _ in range(rng.randrange(1, 4)):
                    body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
                yield frame(bytes(body))
            case 3:
                body[rng.randrange(len(body))] = rng.choice(INTERESTING)
                yield frame(bytes(body))
            case 4:
                yield frame(
                    bytes(body[: rng.randrange(1, len(body) + 1)]) + rng.randbytes(rng.randrange(1, 9))
                )
            case _:
                yield frame(bytes(body[:2]) + rng.randbytes(rng.randrange(1, 40)))


@pytest.mark.slow
def test_malformed_frames_are_refused_as_such(
    make_ends: Callable[..., Ends], make_open: Callable[..., Ends], samples: dict[type[Message], Message]
) -> None:
    """Only PeerError ever comes out; then the session is closed, holds one failure to send, and is deaf."""
    rng = random.Random(SEED)
    streams = malformed_streams([encode(message) for message in samples.values()], rng)
    for refused in range(0, MALFORMED, 2):
        # Most are strangers; every eighth connection is a peer that is known, some in the midst of a
        # run.
        if refused % 16:
            ends = make_ends()
        else:
            ends = make_open(rng.choice(("run", "verify", "query")))
            if ends[0].purpose == "run" and rng.randrange(2):
                begin_run(*ends, samples)
        for session in ends:
            session.outgoing()
            refuse_one(session, streams)
            assert session.receive(rng.randbytes(50)) == [], f"seed {SEED}, after {refused} frames"


def begin_run(client: ClientProtocol, server: ServerProtocol, samples: dict[type[Message], Message]) -> None:
    for kind in (Register, Accepted, ArmRun, Armed):
        source, sink = (client, server) if issubclass(kind, ClientMessage) else (server, client)
        source.send(samples[kind])
        sink.receive(source.outgoing())


def refuse_one(session: ClientProtocol | ServerProtocol, streams: Iterator[bytes]) -> None:
    """Feeds `session` malformed frames until it refuses one; a few of them happen to be well-formed."""
    while True:
        data = next(streams)
        try:
            session.receive(data)
        except PeerError as error:
            assert session.closed
            # An answer to a frame before may be in front; the failure comes last.
            out = list(FrameDecoder(limits.FRAME_BYTES_HELLO_MAX).feed(session.outgoing()))
            assert all(isinstance(decode(body), Message) for body in out), f"{data.hex()}: {error}"
            assert len(out) <= FRAMES_LEFT_MAX, f"seed {SEED}: {data.hex()}: {error}"
            return
