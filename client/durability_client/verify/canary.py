"""The canary: places of the target that read well in this pass, read again when others do not.

An I/O error says that a place is lost only while the drive still gives back what it gave before. A drive that
lost its power, dropped off its bus or was enumerated anew, and a file system that shut down, answer every
read with EIO; that is an unfinished scan, never lost data. So a few places are remembered, and read again
through new descriptors past the page cache. Refuses to judge what was found at any place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from durability import limits
from durability_client.target.storage import Storage
from durability_client.verify.target_reader import Content, Reader, aligned_buffer

_FIRST = 2  # places kept from the beginning of the pass
_LATEST = 4
_SPREAD = 8  # places kept over the whole pass, at least half as many once there were so many


class DriveWentAwayError(Exception):
    """What could be read of the target can be read no longer; the message says how that shows."""


@dataclass(frozen=True, slots=True)
class Place:
    """A sector of the file TARGET + `suffix`, at byte `offset`."""

    suffix: str
    offset: int


class Canary:
    """Knows some places of `storage` that read well. `block_bytes` and `tick` as of `Reader`."""

    def __init__(self, storage: Storage, *, block_bytes: int, tick: Callable[[], None]) -> None:
        self._storage = storage
        self._block_bytes = block_bytes
        self._tick = tick
        self._drives = storage.drives()
        self._buffer = aligned_buffer(limits.SECTOR_BYTES)
        self._first: list[Place] = []
        self._latest: deque[Place] = deque(maxlen=_LATEST)
        self._spread: list[Place] = []
        self._every = 1  # one of so many places is kept in `_spread`
        self._seen = 0

    @property
    def known(self) -> bool:
        """Whether any place has read well."""
        return self._seen > 0

    def saw(self, suffix: str, offset: int, content: Content) -> None:
        """Take in what a read from byte `offset` gave: its first sector that read well is such a place."""
        start = 0
        for span in content.unreadable:
            if span.start >= start + limits.SECTOR_BYTES:
                break
            start = span.end
        if start + limits.SECTOR_BYTES <= len(content.data):
            self.keep(Place(suffix, offset + start))

    def keep(self, place: Place) -> None:
        """Take in a place that read well."""
        if len(self._first) < _FIRST:
            self._first.append(place)
        self._latest.append(place)
        if self._seen % self._every == 0:
            self._spread.append(place)
            if len(self._spread) == 2 * _SPREAD:
                self._spread = self._spread[::2]
                self._every *= 2
        self._seen += 1

    def require_drive(self, others: Iterable[Place]) -> None:
        """Read the places again. Raises DriveWentAwayError if one fails, or the drives are others by now.

        `others` are looked at if no place has read well yet, up to the first that does.
        """
        if not self.known:
            good = next((place for place in others if not self._fault(place)), None)
            if good is None:
                raise DriveWentAwayError("no block of the target that was tried could be read")
            self.keep(good)
        self._storage.drop_caches_below()
        for place in dict.fromkeys(self._places()):
            fault = self._fault(place)
            if fault:
                raise DriveWentAwayError(
                    f"the drive went away while it was read: TARGET{place.suffix} offset {place.offset} read"
                    f" well before, and now gives {fault}"
                )
        if self._storage.drives() != self._drives:
            raise DriveWentAwayError(
                "the drive went away while it was read: the kernel has enumerated it anew, or with another"
                " size"
            )

    def _places(self) -> Iterator[Place]:
        yield from self._first
        yield from self._spread
        yield from self._latest

    def _fault(self, place: Place) -> str:
        """What is wrong with reading `place` now, "" for nothing."""
        try:
            with Reader(
                self._storage, place.suffix, block_bytes=self._block_bytes, tick=self._tick
            ) as reader:
                content = reader.read(self._buffer, place.offset, limits.SECTOR_BYTES)
        except OSError as error:
            self._tick()
            return error.strerror or str(error)
        if content.unreadable:
            return "an I/O error"
        return "" if len(content.data) == limits.SECTOR_BYTES else "the end of the file"
