"""Frames come out as they went in however the stream is cut, and a bad length stops the stream at once."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durability.errors import ProtocolError
from durability.protocol.frame import LENGTH_BYTES, FrameDecoder, frame


def cut(stream: bytes, places: list[int]) -> Iterator[bytes]:
    edges = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return (stream[start:end] for start, end in pairwise(edges))


@pytest.mark.slow
@given(st.lists(st.binary(min_size=1, max_size=300), max_size=8), st.lists(st.integers(0, 4000)))
def test_any_split_of_the_stream_gives_the_same_frames(bodies: list[bytes], places: list[int]) -> None:
    """Where the network cuts the stream does not matter."""
    stream = b"".join(map(frame, bodies))
    decoder = FrameDecoder(300)
    received = [body for piece in cut(stream, places) for body in decoder.feed(piece)]
    assert received == bodies
    assert list(decoder.feed(frame(b"next"))) == [b"next"]


@given(st.binary(min_size=1, max_size=300), st.integers(1, 303))
def test_a_truncated_frame_is_withheld(body: bytes, missing: int) -> None:
    """No part of a frame comes out before all of it is there."""
    whole = frame(body)
    decoder = FrameDecoder(300)
    assert list(decoder.feed(whole[: max(0, len(whole) - missing)])) == []


@pytest.mark.parametrize("length", [0, 101, 1 << 31, (1 << 32) - 1])
def test_a_length_out_of_bounds_is_refused_from_its_four_bytes_alone(length: int) -> None:
    """A frame length out of bounds is refused at once; the body and later bytes are not kept."""
    decoder = FrameDecoder(100)
    with pytest.raises(ProtocolError, match=f"a frame of {length} bytes was announced"):
        list(decoder.feed(length.to_bytes(LENGTH_BYTES, "big")))
    later = bytes(1 << 20)
    tracemalloc.start()
    for _ in range(10):
        with pytest.raises(ProtocolError):
            list(decoder.feed(later))
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < len(later)


def test_frames_before_a_bad_length_come_out() -> None:
    """A bad length spoils what follows it, not what came before."""
    decoder = FrameDecoder(100)
    bodies = decoder.feed(frame(b"good") + b"\xff\xff\xff\xff")
    assert next(bodies) == b"good"
    with pytest.raises(ProtocolError):
        next(bodies)


def test_the_limit_may_rise_between_two_frames_of_one_read() -> None:
    """A longer frame right behind the one that raised the limit is not held against the old limit."""
    decoder = FrameDecoder(4)
    received = []
    for body in decoder.feed(frame(b"open") + frame(b"a longer frame")):
        received.append(body)
        decoder.limit = 100
    assert received == [b"open", b"a longer frame"]
