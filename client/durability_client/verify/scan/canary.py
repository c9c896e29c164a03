"""The canary: checks that the target is still present, and that places that were readable still are.

An I/O error shows lost data only while the drive still returns data that it returned before. A drive that
lost power, dropped off its bus or was enumerated again answers every read with EIO, and so does a file system
that shut down. That is an unfinished scan, never lost data. So the canary remembers a few readable places and
reads them again, through new descriptors that bypass the page cache.

Missing data are lost only on a target that is present. A device whose node is gone, or that shows no
capacity, seems empty. So drives and length are noted when the target is recognised, and compared before
missing data count. This module does not judge the contents of any place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from durability import limits
from durability.formats.plan import MAIN
from durability_client.target.storage import PresentDrive, Storage
from durability_client.verify.scan.target_reader import Content, Reader, aligned_buffer

_FIRST = 2  # places kept from the beginning of the pass
_LATEST = 4
_SPREAD = 8  # places kept over the whole pass: 8 to 15 once more were seen


class DriveWentAwayError(Exception):
    """The target, which was readable before, went away. The message gives the evidence."""


@dataclass(frozen=True, slots=True)
class CanaryPlace:
    """A sector of the file TARGET + `suffix`, at byte `offset`."""

    suffix: str
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """State of a target that the system shows without a read."""

    drives: tuple[PresentDrive, ...]  # drives below the target
    main_bytes: int | None  # length of the main file or device; 0 if it is gone, None if unknown


def presence_of(storage: Storage) -> Presence:
    """The current presence of the target of `storage`."""
    try:
        main_bytes: int | None = storage.size(MAIN)
    except FileNotFoundError:
        main_bytes = 0
    except OSError:
        main_bytes = None
    return Presence(drives=storage.drives(), main_bytes=main_bytes)


class Canary:
    """Remembers some readable places of `storage`. For `block_bytes` and `tick` see `Reader`.

    `before`: presence of the target when it was recognised; None: the target is recognised now. `is_device`:
    the target of the run was a device, whose length is never 0.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        block_bytes: int,
        tick: Callable[[], None],
        before: Presence | None = None,
        is_device: bool = False,
    ) -> None:
        self._storage = storage
        self._block_bytes = block_bytes
        self._tick = tick
        self._before = presence_of(storage) if before is None else before
        self._is_device = is_device
        self._buffer = aligned_buffer(limits.SECTOR_BYTES)
        self._first: list[CanaryPlace] = []
        self._latest: deque[CanaryPlace] = deque(maxlen=_LATEST)
        self._spread: list[CanaryPlace] = []
        self._every = 1  # of this many places, one is kept in `_spread`
        self._seen = 0

    @property
    def known(self) -> bool:
        """Whether any place was readable."""
        return self._seen > 0

    def saw(self, suffix: str, offset: int, content: Content) -> None:
        """Remember the first readable sector of `content`, the result of a read from byte `offset`."""
        start = 0
        for span in content.unreadable:
            if span.start >= start + limits.SECTOR_BYTES:
                break
            start = span.end
        if start + limits.SECTOR_BYTES <= len(content.data):
            self.keep(CanaryPlace(suffix, offset + start))

    def keep(self, place: CanaryPlace) -> None:
        """Remember a readable place."""
        if len(self._first) < _FIRST:
            self._first.append(place)
        self._latest.append(place)
        if self._seen % self._every == 0:
            self._spread.append(place)
            if len(self._spread) == 2 * _SPREAD:
                self._spread = self._spread[::2]
                self._every *= 2
        self._seen += 1

    def require_drive(self, others: Iterable[CanaryPlace]) -> None:
        """Read the remembered places again. Raises DriveWentAwayError if a read fails, or if the drives or
        the target's length have changed.

        If no place is remembered yet, `others` are tried until one is readable.
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
        self.require_presence()

    def require_presence(self) -> None:
        """Raises DriveWentAwayError if the drives or the length differ from those at recognition, or if a
        device has no capacity."""
        now, before = presence_of(self._storage), self._before
        if now.drives != before.drives:
            raise DriveWentAwayError(
                "the drive went away while it was read: the kernel has enumerated it anew, or with another"
                " size"
            )
        if self._is_device and now.main_bytes == 0:
            raise DriveWentAwayError("the device is gone, or shows no capacity")
        if None not in (now.main_bytes, before.main_bytes) and now.main_bytes != before.main_bytes:
            raise DriveWentAwayError(
                f"the target went away while it was read: it has {now.main_bytes:,} bytes, and had"
                f" {before.main_bytes:,} when it was recognised"
            )

    def _places(self) -> Iterator[CanaryPlace]:
        yield from self._first
        yield from self._spread
        yield from self._latest

    def _fault(self, place: CanaryPlace) -> str:
        """Why `place` cannot be read now, or "" if it is readable."""
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
