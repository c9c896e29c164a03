"""Strict, bounded encoding of plain values as msgpack. Only this module imports msgpack.

Extension types, timestamps and trailing bytes are rejected. A decoded value consists only of None, bool, int,
float, str, bytes, list, and dict with string keys.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

import msgpack

from durability.errors import FormatError

ELEMENTS_MAX = 4 << 20
_SMALL_BYTES = 1 << 10  # shorter data are decoded without counting; that takes under a millisecond

Value: TypeAlias = "bool | int | float | str | bytes | Sequence[Value] | Mapping[str, Value] | None"


def pack(value: Value) -> bytes:
    """`value` as msgpack bytes. Raises FormatError if msgpack cannot hold it (for example an int beyond 64
    bits)."""
    try:
        packed = msgpack.packb(value, use_bin_type=True, strict_types=False)
    except (TypeError, ValueError, OverflowError) as error:
        raise FormatError(f"cannot encode a value as msgpack: {error}") from error
    if not isinstance(packed, bytes):
        raise FormatError("cannot encode a value as msgpack: no bytes came back")
    return packed


def pack_list(packed: Collection[bytes]) -> bytes:
    """A list of values that are already `packed`, as msgpack bytes."""
    return b"".join((msgpack.Packer().pack_array_header(len(packed)), *packed))


def list_head(count: int) -> bytes:
    """The first bytes of a list of `count` members."""
    head: bytes = msgpack.Packer().pack_array_header(count)
    return head


def pack_members(members: Sequence[int]) -> bytes:
    """These numbers as members of a list. Its `list_head` is written before them."""
    return pack(members)[len(list_head(len(members))) :]


def unpack(
    data: bytes | bytearray | memoryview, *, elements_max: int = ELEMENTS_MAX, members_max: int = ELEMENTS_MAX
) -> Value:
    """The single value that `data` holds completely. Raises FormatError for anything else. Also raises it for
    more than `elements_max` maps, lists and members of them, because one byte of data can become an object of
    a hundred bytes. `members_max`: limit for one map or list."""
    count = _Count(elements_max)
    # msgpack allocates a list of the length in its head before it has read the first member.
    members_max = min(members_max, elements_max, len(data))
    small = len(data) <= _SMALL_BYTES  # counting is not worth its cost for the short, frequent messages
    try:
        value: Value = msgpack.unpackb(
            data,
            raw=False,
            strict_map_key=True,
            object_pairs_hook=_string_keys if small else count.pairs,
            list_hook=None if small else count.members,
            ext_hook=_refuse_extension,
            max_array_len=members_max,
            max_map_len=members_max,
        )
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise FormatError(f"{len(data)} bytes are not one msgpack value: {error}") from error
    return value


class _Count:
    """Counts maps, lists and their members while they are decoded, up to `left`."""

    __slots__ = ("_left",)

    def __init__(self, left: int) -> None:
        self._left = left

    def pairs(self, pairs: list[tuple[str | bytes, Value]]) -> dict[str, Value]:
        """Count a map that has been decoded."""
        self._take(len(pairs))
        return _string_keys(pairs)

    def members(self, members: list[Value]) -> list[Value]:
        """Count a list that has been decoded."""
        self._take(len(members))
        return members

    def _take(self, members: int) -> None:
        self._left -= 1 + members
        if self._left < 0:
            raise ValueError("too many maps, lists and members of them")


def _string_keys(pairs: list[tuple[str | bytes, Value]]) -> dict[str, Value]:
    checked = {}
    for key, value in pairs:
        if not isinstance(key, str):  # msgpack's own strict_map_key lets bytes through
            raise ValueError(f"map key {key!r:.40} is not a string")
        checked[key] = value
    return checked


def _refuse_extension(code: int, data: bytes) -> None:
    raise ValueError(f"extension type {code} of {len(data)} bytes is not allowed")
