"""The canary: whether the target is still there, and what read well in this pass still does.

An I/O error says that a place is lost only while the drive still gives back what it gave before. A drive that
lost its power, dropped off its bus or was enumerated anew, and a file system that shut down, answer every
read with EIO; that is an unfinished scan, never lost data. So a few places are remembered, and read again
through new descriptors past the page cache.

What is missing is lost only on a target that is there. One whose device lost its node, or shows no capacity
any more, seems empty. So drives and length are noted when the target is recognised, and compared before
anything that is missing counts. Refuses to judge what was found at any place.
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
_SPREAD = 8  # places kept over the whole pass, at least half as many once there were so many


class DriveWentAwayError(Exception):
    """What could be read of the target can be read no longer; the message says how that shows."""


@dataclass(frozen=True, slots=True)
class CanaryPlace:
    """A sector of the file TARGET + `suffix`, at byte `offset`."""

    suffix: str
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """What the system shows of a target without a read: the drives below, and the length of the main file or
    device, 0 where it is gone, None where the system does not say."""

    drives: tuple[PresentDrive, ...]
    main_bytes: int | None


def presence_of(storage: Storage) -> Presence:
    """What the system shows of the target of `storage` now."""
    try:
        main_bytes: int | None = storage.size(MAIN)
    except FileNotFoundError:
        main_bytes = 0
    except OSError:
        main_bytes = None
    return Presence(drives=storage.drives(), main_bytes=main_bytes)


class Canary:
    """Knows some places of `storage` that read well. `block_bytes` and `tick` as of `Reader`.

    `before`: the target when it was recognised, None: it is recognised now. `is_device`: the run was made on
    a device, which is never without length.
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
            self.keep(CanaryPlace(suffix, offset + start))

    def keep(self, place: CanaryPlace) -> None:
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

    def require_drive(self, others: Iterable[CanaryPlace]) -> None:
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
        self.require_presence()

    def require_presence(self) -> None:
        """Raises DriveWentAwayError if the target is not as it was when it was recognised: other drives, or
        another length, or a device without any."""
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
