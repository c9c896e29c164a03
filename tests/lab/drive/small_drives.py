"""What tests of drives share: small drives of each model, and requests that a seed draws."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from durability_lab.drive import faults
from durability_lab.drive.drive import Drive, HangingReadError
from durability_lab.drive.drive_log import DriveLog
from durability_lab.drive.media import Media, SparseMedia

SIZE_BYTES = 256 << 10
HONEST = ("write-through", "honest", "honest:cache_bytes=4096", "honest:kept=0.0,torn=1.0")
# So strong that a small drive shows them within a few requests.
LIARS = (
    "flush-ignored:cache_bytes=8192",
    "early-ack:delay_ms=5",
    "flush-skipped",
    "partial-flush:cache_bytes=65536,parts=2",
    "fua-ignored",
    "flush-below:cache_bytes=16384",
    "shorn:chance=0.5",
    "misdirected:chance=0.3",
    "neighbour-flip",
    "rollback:interval_ms=20",
    "partial-rollback:interval_ms=20,share=0.5",
    "unreadable:share=0.3,region_bytes=1024",
    "hanging:share=0.3,region_bytes=1024",
    "smaller:share=0.5",
    "empty",
)
DEAD = "dead"  # which has one life only


@dataclass
class Clock:
    """A clock that somebody else moves on."""

    now_s: float = 100.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Host:
    """Sends a drive of `spec` what `seed` draws; knows what it wrote and, by the book, what was promised.

    `legal`: what each sector may hold after a cut. None in `newest`: a cut has decided it.
    """

    spec: str
    seed: int
    sector_bytes: int = 512
    media: Media = field(default_factory=lambda: SparseMedia(SIZE_BYTES))
    drive_log: DriveLog | None = None
    newest: list[bytes | None] = field(init=False)
    legal: list[set[bytes]] = field(init=False)

    def __post_init__(self) -> None:
        self.clock = Clock()
        self.chance = random.Random(f"{self.spec} {self.seed}")
        self.drive = Drive(
            self.media,
            faults.parse(self.spec),
            seed=self.seed,
            sector_bytes=self.sector_bytes,
            clock=self.clock,
            drive_log=self.drive_log,
        )
        self.sectors = SIZE_BYTES // self.sector_bytes
        self.newest = [bytes(self.sector_bytes)] * self.sectors
        self.legal = [{bytes(self.sector_bytes)} for _ in range(self.sectors)]

    def work(self, requests: int) -> None:
        """Writes of a sector to 16 KiB, a tenth with FUA; a flush after a third of them; time passes."""
        for _ in range(requests):
            count = self.chance.randint(1, (16 << 10) // self.sector_bytes)
            first = self.chance.randrange(self.drive.size_bytes // self.sector_bytes - count + 1)
            self.write(first, count, fua=self.chance.random() < 0.1)
            if self.chance.random() < 0.3:
                self.flush()
            self.clock.now_s += self.chance.random() * 0.002

    def write(self, first: int, count: int, *, fua: bool = False) -> None:
        """Write random bytes to some sectors."""
        size = self.sector_bytes
        data = self.chance.randbytes(count * size)
        self.drive.write(first * size, data, fua=fua)
        for sector in range(first, first + count):
            version = data[(sector - first) * size : (sector - first + 1) * size]
            self.newest[sector] = version
            self.legal[sector] = {version} if fua else self.legal[sector] | {version}

    def flush(self) -> None:
        """Flush; from now on only the newest is legal where it was written since the power came."""
        self.drive.flush()
        for sector, version in enumerate(self.newest):
            if version is not None:
                self.legal[sector] = {version}

    def cut(self) -> None:
        """The power goes and comes back."""
        self.drive.cut()
        self.drive.power_on()
        self.newest = [None] * self.sectors

    def found(self) -> list[bytes | None]:
        """What each sector holds now; None where it cannot be read."""
        contents: list[bytes | None] = []
        for sector in range(self.sectors):
            try:
                contents.append(self.drive.peek(sector * self.sector_bytes, self.sector_bytes))
            except (OSError, HangingReadError):
                contents.append(None)
        return contents

    def broken(self) -> set[int]:
        """The sectors that are not what they may be."""
        return {
            number
            for number, (found, legal) in enumerate(zip(self.found(), self.legal, strict=True))
            if found not in legal
        }
