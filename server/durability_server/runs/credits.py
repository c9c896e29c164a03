"""Credits of a run that may have been the last to reach its client: where a writer may have had to wait.

A credit that was sent is not one that arrived. When the network dies, the server still commits what it
received last but no grant arrives, and the writers stop at an older limit; so `verify` must know every
limit at which they may have stopped (rule 12). Refuses to keep more than that: a credit that is known to have
arrived makes the older ones forgotten. A client that does not show what arrives gets no more of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import cast

from durability.formats.packing import pack, pack_list, unpack

IN_DOUBT_MAX = 1000  # five times what an honest client has under way
GRANTS_IN_DOUBT_MAX = 64 << 10  # of all writers: they are saved with each commit
# With more its run is not taken up again: what was durable then is one more each time.
IN_DOUBT_RESUMED_MAX = 2 * IN_DOUBT_MAX


class Credits:
    """Times at which credits were sent, in ns, with their grants; the oldest one arrived."""

    def __init__(self, sent: Sequence[tuple[int, tuple[int, ...]]]) -> None:
        self._sent = deque(sent)
        self._packed = deque(map(_packed, sent))  # once: each commit needs all of them

    @property
    def grants(self) -> tuple[tuple[int, ...], ...]:
        """The grants of each, oldest first."""
        return tuple(grants for _, grants in self._sent)

    def __len__(self) -> int:
        return len(self._sent)

    @property
    def may_grow(self) -> bool:
        """Whether grants may be raised: not while so many credits may not have arrived."""
        writers = len(self._sent[-1][1])
        return len(self._sent) <= min(IN_DOUBT_MAX, GRANTS_IN_DOUBT_MAX // writers)

    def add(self, at_ns: int, grants: tuple[int, ...]) -> None:
        """A credit is sent; one that says nothing new is passed over."""
        if grants != self._sent[-1][1]:
            self._sent.append((at_ns, grants))
            self._packed.append(_packed(self._sent[-1]))

    def begin_anew(self, at_ns: int) -> None:
        """The connection is another one from `at_ns` on, perhaps with another clock: which of the earlier
        credits arrived is not known before a later one has."""
        self._sent = deque((at_ns, grants) for _, grants in self._sent)
        self._packed = deque(map(_packed, self._sent))

    def forget(self, arrived_ns: int) -> None:
        """What was sent by `arrived_ns` has arrived."""
        while len(self._sent) > 1 and self._sent[1][0] <= arrived_ns:
            self._sent.popleft()
            self._packed.popleft()

    def pack(self) -> bytes:
        """As bytes for the store."""
        return pack_list(self._packed)

    @classmethod
    def unpack(cls, data: bytes | None, *, newest: tuple[int, ...]) -> Credits:
        """What `pack` wrote, None for nothing, and `newest`: what is durable now was or is granted."""
        sent = _unpacked(data)
        if not sent or sent[-1][1] != newest:
            sent.append((sent[-1][0] if sent else 0, newest))
        return cls(sent)


def newest_sent(data: bytes | None) -> tuple[int, ...]:
    """The grants of the newest credit that `pack` wrote, () for none."""
    sent = _unpacked(data)
    return sent[-1][1] if sent else ()


def _unpacked(data: bytes | None) -> list[tuple[int, tuple[int, ...]]]:
    stored = cast("list[tuple[int, list[int]]]", unpack(data)) if data else []
    return [(at_ns, tuple(grants)) for at_ns, grants in stored]


def _packed(credit: tuple[int, tuple[int, ...]]) -> bytes:
    at_ns, grants = credit
    return pack([at_ns, list(grants)])
