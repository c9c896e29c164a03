"""Two judges that share no code say the same of any target: the scan with its oracle, the reference judge."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from durability.formats.plan import MAIN, Plan
from durability_lab.truth.comparison import Claims
from durability_lab.truth.reference_judge import Place
from tests.conftest import PLAN_FIELDS
from tests.core.evidence.memory_target import SECTOR, Disk
from tests.lab.truth.disk_storage import reference_on, scanned

TARGETS = 25  # of each workload
WORKLOADS: tuple[str, ...] = ("overwrite", "append", "create", "rename", "unlink")
PLACES_DAMAGED_MOST = 12


class Target:
    """A target of a random plan after a run, with the damage that chance does to it."""

    def __init__(self, workload: str, chance: random.Random) -> None:
        self.chance = chance
        self.plan = _plan(workload, chance)
        self.disk = Disk(self.plan)
        plan = self.plan
        self.acked = [
            chance.randint(0, 3 * plan.slots) // plan.group * plan.group for _ in range(plan.writers)
        ]
        self.done = [frontier + chance.randint(0, plan.credit) for frontier in self.acked]
        for writer, frontier in enumerate(self.done):
            self.disk.write_to(writer, frontier)
        self.completed = chance.randint(0, 3 * plan.control_slots)
        for seq in range(1, self.completed + chance.randint(1, 2)) if plan.control_slots else ():
            slot = self.disk.slot_of(plan.control_writer, seq)
            self.disk.put(plan.control_writer, slot, self.disk.record(plan.control_writer, slot, seq))
        self.bad: set[tuple[str, int]] = set()
        damages: list[Callable[[], None]] = [
            self.older,
            self.sector,
            self.stray,
            self.foreign,
            self.cut_short,
            self.remove,
            self.superblock,
            self.newer,
            self.bring_back,
            self.larger_run,
            self.temporary,
            self.unreadable,
            self.control_arm,
        ]
        for _ in range(chance.randint(0, PLACES_DAMAGED_MOST)):
            chance.choice(damages)()

    def place(self) -> Place:
        """A slot that an operation worked on lately, or any."""
        writer = self.chance.randrange(self.plan.writers)
        newest = self.done[writer]
        if newest and self.chance.random() < 0.8:
            return writer, self.disk.slot_of(writer, self.chance.randint(max(1, newest - 20), newest))
        return writer, self.chance.randrange(self.plan.slots)

    def version(self, place: Place, frontier: int) -> bytes | None:
        """The slot's bytes as of an operation up to `frontier`; None where it has none then."""
        newest = self.disk.newest(*place, self.chance.randint(0, max(0, frontier)))
        versions = self.disk.versions
        if not versions.is_version(*place, newest):
            return None
        return self.disk.record(*place, newest)

    def lay(self, place: Place, data: bytes) -> None:
        """Put `data` there, whole or some of its sectors, if there is a file."""
        if self.disk.versions.place(*place)[0] not in self.disk.files and self.chance.random() < 0.7:
            return
        if self.chance.random() < 0.5:
            self.disk.put(*place, data)
            return
        sector = self.chance.randrange(len(data) // SECTOR)
        self.disk.put(*place, data[sector * SECTOR : (sector + 1) * SECTOR], sector)

    def older(self) -> None:
        place = self.place()
        data = self.version(place, self.done[place[0]])
        if data is not None:
            self.lay(place, data)

    def sector(self) -> None:
        self.lay(self.place(), self.chance.choice((bytes(1), b"\xa5")) * self.plan.record_bytes)

    def stray(self) -> None:
        home = self.place()
        data = self.version(home, self.done[home[0]])
        if data is not None:
            self.lay(self.place(), data)

    def foreign(self) -> None:
        others = (replace(self.plan, run=77), replace(self.plan, target=77))
        place = self.place()
        disk = Disk(self.chance.choice(others))
        home = place if self.chance.random() < 0.5 else self.place()
        seq = home[1] + 1 if self.plan.workload in ("append", "create") else 0
        self.lay(place, disk.record(*home, seq))

    def cut_short(self) -> None:
        if self.chance.random() < 0.3:
            suffix, offset, _ = self.disk.versions.place(*self.place())
            if suffix in self.disk.files:
                del self.disk.files[suffix][offset + self.chance.randrange(self.plan.record_bytes) :]

    def remove(self) -> None:
        suffix = self.disk.versions.place(*self.place())[0]
        if suffix != MAIN and (self.plan.contract.by_name or self.chance.random() < 0.1):
            self.disk.files.pop(suffix, None)

    def superblock(self) -> None:
        offset = self.chance.choice(self.plan.superblock_offsets)
        self.disk.files[MAIN][offset + 1000 : offset + 1001] = b"!"

    def newer(self) -> None:
        """A version that was never allowed: the log is behind."""
        if self.chance.random() < 0.2:
            writer = self.chance.randrange(self.plan.writers)
            self.disk.write(writer, self.acked[writer] + self.plan.credit + self.chance.randint(1, 8))

    def bring_back(self) -> None:
        """A name, or a file of a log, that was removed is there again."""
        if self.plan.workload not in ("append", "create"):
            return
        writer = self.chance.randrange(self.plan.writers)
        slot = self.chance.randrange(max(1, self.done[writer]))
        self.disk.put(writer, slot, self.disk.record(writer, slot, slot + 1))

    def larger_run(self) -> None:
        """A name that no operation of the plan made is there: an earlier run's, or with other content."""
        if not self.plan.contract.by_name:
            return
        writer = self.chance.randrange(self.plan.writers)
        slot = max(self.plan.slots, self.done[writer]) + self.chance.randrange(99)
        earlier = Disk(replace(self.plan, run=77)).record(writer, slot, 0)
        other = self.version(self.place(), self.done[writer]) or b"mine"
        data = self.chance.choice((earlier, earlier, other))
        self.disk.files[f".{writer}.{slot}"] = bytearray(data[SECTOR * self.chance.choice((0, 0, 1)) :])
        if self.chance.random() < 0.2:
            self.bad.add((f".{writer}.{slot}", 0))

    def temporary(self) -> None:
        place = self.place()
        data = self.version(place, self.done[place[0]])
        if self.plan.workload == "rename" and data is not None:
            self.disk.files[f"{self.disk.versions.place(*place)[0]}.tmp"] = bytearray(data)

    def control_arm(self) -> None:
        """A slot of the control arm is older, newer, damaged or unreadable in part, or its file ends."""
        if not self.plan.control_slots:
            return
        place = self.plan.control_writer, self.chance.randrange(self.plan.control_slots)
        suffix, offset, record_bytes = self.disk.versions.place(*place)
        first = self.chance.randrange(record_bytes // SECTOR)
        version = self.disk.record(
            *place, self.disk.newest(*place, self.chance.randint(0, self.completed + 9))
        )
        what = self.chance.randrange(8)
        if what == 0:
            self.bad.add((suffix, offset + SECTOR * first))
        elif what == 1 and self.chance.random() < 0.3:
            del self.disk.files[suffix][offset + SECTOR * first :]
        elif what < 4:
            self.disk.put(*place, self.chance.choice((bytes(SECTOR), b"\xa5" * SECTOR)), first)
        else:
            self.disk.put(*place, version[SECTOR * first :], first)

    def unreadable(self) -> None:
        suffix, offset, _ = self.disk.versions.place(*self.place())
        self.bad.add((suffix, offset + SECTOR * self.chance.randrange(self.plan.record_bytes // SECTOR)))


def _plan(workload: str, chance: random.Random) -> Plan:
    group = chance.choice((1, 1, 3))
    credit = 2 * group * chance.randint(1, 3)
    record_bytes = SECTOR * chance.choice((1, 2, 4))
    endless = workload in ("append", "create")
    changes: dict[str, Any] = {
        "workload": workload,
        "target_kind": "file",
        "writers": chance.randint(1, 3),
        "pattern": "sequential" if endless else chance.choice(("random", "sequential")),
        "record_bytes": record_bytes,
        "block_bytes": record_bytes,
        "group": group,
        "credit": credit,
        "slots": 4 * credit + chance.randint(0, 20),
        "control_slots": chance.choice((0, 6)),
    }
    return Plan(**{**PLAN_FIELDS, **changes})


@pytest.mark.slow
@pytest.mark.parametrize("workload", WORKLOADS)
def test_two_judges_agree_on_any_damage(workload: str) -> None:
    """Class, operation expected and operation found are the same for every slot, superblock and file, and the
    numbers of lost operations and of lost writes of the control arm."""
    seed = random.SystemRandom().getrandbits(32)
    found = 0
    for number in range(TARGETS):
        target = Target(workload, random.Random(f"{seed} {number}"))
        reference = reference_on(target.disk, target.acked, target.bad)
        findings, report = scanned(target.disk, target.acked, target.bad, control=target.completed)
        claims = Claims.of_scan(findings, report)
        assert reference.wrong == claims.places, (seed, number)
        assert reference.proven == claims.proven, (seed, number)
        assert claims.counts.total() == len(claims.places), (seed, number)
        assert report.operations_lost == reference.lost_operations(), (seed, number)
        assert report.control_lost == reference.control_lost(target.completed), (seed, number)
        found += len(reference.wrong)
    assert found > TARGETS // 2, "or this shows nothing"
