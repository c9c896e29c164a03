"""Cuts at random over the drive model, judged by the book and held against what is known to have happened.

The oracle is given what it has in the field, the plan, a log that lags and the bytes; this test knows,
besides, every sector that was ever written and every operation that the drive acknowledged.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from durability.errors import EXIT_LOSS, EXIT_OK
from durability.plan import MAIN, Plan
from durability_lab.drive import HONEST, LIAR, WRITE_THROUGH, Behaviour, Drive, SparseMedia
from tests.conftest import PLAN_FIELDS
from tests.core.evidence import SECTOR, Disk, Found, codes, judge, make_case, scan

CUTS = 60  # of each drive
Sector = tuple[int, int, int]  # writer, slot, seq


@dataclass
class Cut:
    """A run of a random plan on a drive of some behaviour, which ends with the power somewhere in a write."""

    behaviour: Behaviour
    chance: random.Random
    plan: Plan = field(init=False)
    disk: Disk = field(init=False)
    drive: Drive = field(init=False)
    written: dict[bytes, Sector] = field(init=False, default_factory=dict)
    issued: list[int] = field(init=False)
    acked: list[int] = field(init=False)  # by the drive
    received: list[int] = field(init=False)  # by the server
    granted: list[int] = field(init=False)  # and come back to the client

    def __post_init__(self) -> None:
        chance = self.chance
        group = chance.choice((1, 1, 2, 3))
        credit = 2 * group * chance.randint(1, 4)
        record_bytes = SECTOR * chance.choice((1, 2, 4))
        changes = {
            "writers": chance.randint(1, 3),
            "pattern": chance.choice(("random", "sequential")),
            "record_bytes": record_bytes,
            "block_bytes": record_bytes,
            "group": group,
            "credit": credit,
            "slots": 4 * credit + chance.randint(0, 40),
            "control_slots": 0,
        }
        self.plan = Plan(**{**PLAN_FIELDS, **changes})
        self.disk = Disk(self.plan)
        image = self.disk.files[MAIN]
        media = SparseMedia(len(image))
        media.write(0, bytes(image))
        self.drive = Drive(media, self.behaviour, seed=chance.getrandbits(32))
        for writer in range(self.plan.writers):
            for slot in range(self.plan.slots):
                self._remember((writer, slot, 0))
        self.issued, self.acked, self.received, self.granted = ([0] * self.plan.writers for _ in range(4))

    def run(self) -> None:
        """Work for a random while, then lose the power in the midst of a group; power is back at the end."""
        for _ in range(self.chance.randint(1, 4 * self.plan.slots)):
            writer = self.chance.randrange(self.plan.writers)
            self._hear(self.chance.randrange(self.plan.writers))
            if self.acked[writer] + self.plan.group <= self.granted[writer] + self.plan.credit:
                self._write(writer, self.plan.group)
                self.drive.flush()
                self.acked[writer] = self.issued[writer]
        for writer in range(self.plan.writers):  # each may be anywhere between its first write and its flush
            if self.acked[writer] + self.plan.group <= self.granted[writer] + self.plan.credit:
                self._write(writer, self.chance.randint(0, self.plan.group))
        self.drive.cut()
        self.drive.power_on()
        self.disk.files[MAIN] = bytearray(self.drive.read(0, self.drive.size_bytes))

    def sectors(self, writer: int, slot: int) -> list[Sector | None]:
        """What each sector of a slot is now; None for what nobody wrote."""
        data = self.disk.get(writer, slot)
        return [self.written.get(data[start : start + SECTOR]) for start in range(0, len(data), SECTOR)]

    def proven(self) -> list[int]:
        """Rule 6 in the plainest words: what the log has, or anything on the disk was issued after."""
        proven = list(self.received)
        for writer, slot in self.places():
            for sector in self.sectors(writer, slot):
                assert sector is not None
                proven[writer] = max(proven[writer], (sector[2] - 1) // self.plan.group * self.plan.group)
        return proven

    def places(self) -> Iterator[tuple[int, int]]:
        return ((writer, slot) for writer in range(self.plan.writers) for slot in range(self.plan.slots))

    def wrong(self, frontiers: list[int]) -> set[tuple[int, int]]:
        """The slots with a sector older than the newest version up to `frontiers`, or of another place."""
        found = set()
        for writer, slot in self.places():
            newest = self.disk.newest(writer, slot, frontiers[writer])
            for sector in self.sectors(writer, slot):
                if sector is None or sector[:2] != (writer, slot) or sector[2] < newest:
                    found.add((writer, slot))
        return found

    def _hear(self, writer: int) -> None:
        """The server hears late, and grants later still."""
        if self.chance.random() < 0.5:
            self.granted[writer] = self.received[writer]
        if self.chance.random() < 0.7:
            lag = self.chance.randint(0, 2) * self.plan.group
            self.received[writer] = max(self.received[writer], self.acked[writer] - lag)

    def _write(self, writer: int, count: int) -> None:
        for seq in range(self.issued[writer] + 1, self.issued[writer] + count + 1):
            slot = self.disk.slot_of(writer, seq)
            self._remember((writer, slot, seq))
            offset = self.disk.versions.place(writer, slot)[1]
            self.drive.write(offset, self.disk.record(writer, slot, seq))
            self.issued[writer] = seq

    def _remember(self, sector: Sector) -> None:
        data = self.disk.record(*sector)
        for start in range(0, len(data), SECTOR):
            self.written[data[start : start + SECTOR]] = sector


def _small_cache(behaviour: Behaviour) -> Behaviour:
    """The liar's cache would hold a whole run of this size, so nothing would be left of it."""
    return Behaviour(
        name="small liar",
        volatile=True,
        honours_flush=behaviour.honours_flush,
        cache_bytes=16 << 10,
        kept=0.4,
        torn=0.2,
    )


def _cut(behaviour: Behaviour, number: int, seed: int) -> tuple[Cut, Found]:
    cut = Cut(behaviour, random.Random(f"{seed} {number}"))
    cut.run()
    return cut, scan(cut.disk, tuple(cut.received))


@pytest.fixture
def seed() -> int:
    """Another seed in every session, printed when a test fails."""
    value = random.SystemRandom().getrandbits(32)
    print(f"seed {value}")
    return value


@pytest.mark.parametrize("behaviour", [HONEST, WRITE_THROUGH], ids=lambda drive: drive.name)
def test_honest_drive_never_has_a_finding(behaviour: Behaviour, seed: int) -> None:
    """Whatever the moment, the lag of the log and the tears: nothing is found, and A' overshoots nothing."""
    for number in range(CUTS):
        cut, found = _cut(behaviour, number, seed)
        assert not found.wrong, (number, found.wrong[0].text)
        assert found.above_ceiling == found.oracle.above_ceiling == 0, number
        assert list(found.oracle.testified) == cut.proven(), number
        for testified, acked in zip(found.oracle.testified, cut.acked, strict=True):
            assert testified <= acked, number
        verdict = judge(make_case(cut.plan, tuple(cut.received), grants=tuple(cut.granted)), cut.plan, found)
        assert verdict.word != "loss", (number, codes(verdict))


@pytest.mark.parametrize("model", [_small_cache, lambda liar: liar], ids=["small cache", "large cache"])
def test_findings_on_a_liar_are_the_truth(model: Callable[[Behaviour], Behaviour], seed: int) -> None:
    """Exactly the slots that lack what is proven to be acknowledged are found, and it was acknowledged."""
    losses = 0
    for number in range(CUTS):
        cut, found = _cut(model(LIAR), number, seed)
        reported = {(judgement.writer, judgement.slot) for judgement in found.wrong}
        assert reported == cut.wrong(cut.proven()), number
        assert reported <= cut.wrong(cut.acked), number
        assert {judgement.finding for judgement in found.wrong} <= {"lost", "torn"}, number
        verdict = judge(make_case(cut.plan, tuple(cut.received), grants=tuple(cut.granted)), cut.plan, found)
        assert (verdict.exit_code == EXIT_LOSS) == bool(reported), (number, codes(verdict))
        assert verdict.exit_code != EXIT_OK or not cut.wrong(cut.received), number
        losses += bool(reported)
    assert losses > CUTS // 2, "most cuts of a liar lose something, or this test shows nothing"
