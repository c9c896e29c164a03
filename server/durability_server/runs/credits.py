"""Credits of a run that may have been the last to reach its client, so that a writer had to wait at them.

A credit that was sent may not have arrived. When the network fails, the server still commits what it received
last, but no grant arrives. The writers then stop at an older limit, so `verify` must know every limit at
which they may have stopped (rule 12). Older credits are forgotten once a newer one is known to have arrived.
A client gets no more credits while it does not show which have arrived.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import cast

from durability.formats.packing import pack, pack_list, unpack

IN_DOUBT_MAX = 1000  # credits in doubt; five times what an honest client has under way
GRANTS_IN_DOUBT_MAX = 64 << 10  # grants of all writers in those credits, because each commit saves them
# A run with more credits in doubt cannot be resumed, because each resume adds one.
IN_DOUBT_RESUMED_MAX = 2 * IN_DOUBT_MAX


class Credits:
    """Credits in doubt: their send times in ns and their grants. The oldest one has arrived."""

    def __init__(self, sent: Sequence[tuple[int, tuple[int, ...]]]) -> None:
        self._sent = deque(sent)
        self._packed = deque(map(_packed, sent))  # packed only once: each commit needs all of them

    @property
    def grants(self) -> tuple[tuple[int, ...], ...]:
        """The grants of each credit, oldest first."""
        return tuple(grants for _, grants in self._sent)

    def __len__(self) -> int:
        return len(self._sent)

    @property
    def may_grow(self) -> bool:
        """Whether grants may rise: false while too many credits are in doubt."""
        writers = len(self._sent[-1][1])
        return len(self._sent) <= min(IN_DOUBT_MAX, GRANTS_IN_DOUBT_MAX // writers)

    def add(self, at_ns: int, grants: tuple[int, ...]) -> None:
        """A credit is sent. It is ignored if its grants equal those of the previous one."""
        if grants != self._sent[-1][1]:
            self._sent.append((at_ns, grants))
            self._packed.append(_packed(self._sent[-1]))

    def begin_anew(self, at_ns: int) -> None:
        """A new connection, perhaps of a client with another clock, starts at `at_ns`. Which earlier credits
        arrived is not known until a later one has arrived."""
        self._sent = deque((at_ns, grants) for _, grants in self._sent)
        self._packed = deque(map(_packed, self._sent))

    def forget(self, arrived_ns: int) -> None:
        """The credits sent by `arrived_ns` have arrived, so those before the newest of them are forgotten."""
        while len(self._sent) > 1 and self._sent[1][0] <= arrived_ns:
            self._sent.popleft()
            self._packed.popleft()

    def pack(self) -> bytes:
        """The credits as bytes for the store."""
        return pack_list(self._packed)

    @classmethod
    def unpack(cls, data: bytes | None, *, newest: tuple[int, ...]) -> Credits:
        """Reads what `pack` wrote, None for no credits. Adds `newest`, the durable frontiers, because they
        are or were granted."""
        sent = _unpacked(data)
        if not sent or sent[-1][1] != newest:
            sent.append((sent[-1][0] if sent else 0, newest))
        return cls(sent)


def newest_sent(data: bytes | None) -> tuple[int, ...]:
    """The grants of the newest credit in packed `data`, () for none."""
    sent = _unpacked(data)
    return sent[-1][1] if sent else ()


def _unpacked(data: bytes | None) -> list[tuple[int, tuple[int, ...]]]:
    stored = cast("list[tuple[int, list[int]]]", unpack(data)) if data else []
    return [(at_ns, tuple(grants)) for at_ns, grants in stored]


def _packed(credit: tuple[int, tuple[int, ...]]) -> bytes:
    at_ns, grants = credit
    return pack([at_ns, list(grants)])
