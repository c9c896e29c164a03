"""Reads that fail or give a wrong bit, and do not when they are repeated: no honest drive is convicted."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence

import pytest

from durability.evidence.judgement import Judgement
from durability.evidence.scan_report import ScanReport
from durability.formats.plan import Plan
from tests.core.evidence.memory_target import ENDLESS, SECTOR, Disk, small
from tests.lab.truth.disk_storage import PassingErrors, scanned, scanned_from

MakePlan = Callable[..., Plan]
Places = Iterable[tuple[str, int]]
WORKLOADS = ("overwrite", "append", "create", "rename", "unlink")
ACKED = 100
GARBAGE = b"\xa5" * 1024
FOR_GOOD = 1 << 20


def sectors(disk: Disk, *seqs: int) -> Iterator[tuple[str, int]]:
    """The sectors of what these operations of the first writer put."""
    for seq in seqs:
        suffix, offset, record_bytes = disk.versions.place(0, disk.slot_of(0, seq))
        yield from ((suffix, offset + begin) for begin in range(0, record_bytes, SECTOR))


def after_errors(
    disk: Disk, acked: Sequence[int], places: Places, *, times: int = 1
) -> tuple[list[Judgement], ScanReport]:
    """A scan for which so many readings of `places` fail."""
    return scanned_from(PassingErrors(disk, errors=dict.fromkeys(places, times)), disk, acked)


def honest(plan: Plan, shown: int) -> Disk:
    """What a drive kept that had acknowledged the operations up to `shown`: of the next one, garbage."""
    disk = Disk(plan)
    disk.write_to(0, shown)
    if not plan.contract.by_name:
        disk.put(0, disk.slot_of(0, shown + 1), GARBAGE[: plan.record_bytes])
    return disk


@pytest.mark.parametrize("times", [1, 2, FOR_GOOD])
@pytest.mark.parametrize("workload", ["overwrite", "create"])
def test_what_fails_at_first_does_not_hide_how_far_a_writer_got(
    make_plan: MakePlan, workload: str, times: int
) -> None:
    """Operations newer than the log that can be read only at the second try still prove how far the writer
    got. If they can never be read, the findings are only `unreadable`, which a later complete pass
    withdraws."""
    disk = honest(small(make_plan, workload=workload), ACKED + 5)
    hidden = sectors(disk, *range(ACKED + 1, ACKED + 6))

    findings, report = after_errors(disk, (ACKED,), hidden, times=times)

    assert report.finished
    assert report.failed_reads
    assert {one.finding for one in findings} == (set() if times == 1 else {"unreadable"})
    if times == 1:
        assert report.newest_seen == (ACKED + 5,)
        assert report.unstable == 4, "the last one was in flight"
        assert report.in_flight_damaged == 1 + (workload == "overwrite")


def test_a_wrong_bit_does_not_hide_how_far_a_writer_got(make_plan: MakePlan) -> None:
    """The newest record had a wrong bit when it was read first. Nothing else shows that its group ended."""
    disk = honest(small(make_plan, record_bytes=SECTOR, block_bytes=SECTOR), ACKED + 1)
    (suffix, offset), *_ = sectors(disk, ACKED + 1)

    storage = PassingErrors(disk, flips={(suffix, offset + 100): 1})
    findings, report = scanned_from(storage, disk, (ACKED,))

    assert not findings
    assert (report.newest_seen, report.in_flight_damaged, report.unstable) == ((ACKED + 1,), 2, 0)


def test_a_read_that_fails_excuses_only_what_it_may_hide(make_plan: MakePlan) -> None:
    """Damage to the operation after an unreadable one is only `unreadable`, because it may have been in
    flight. Damage to the operation after that is `corrupt`. If the unreadable slot is read later and lacks
    the operation, both are `corrupt`."""
    disk = Disk(small(make_plan))
    disk.write_to(0, ACKED)
    disk.put(0, disk.slot_of(0, ACKED + 2), GARBAGE)
    disk.put(0, disk.slot_of(0, ACKED + 3), GARBAGE)

    findings, report = scanned(disk, (ACKED,), [*sectors(disk, ACKED + 1)])

    assert {disk.slot_of(0, ACKED + 2): "unreadable", disk.slot_of(0, ACKED + 3): "corrupt"} == {
        one.slot: one.finding for one in findings
    }
    assert report.in_flight_damaged == 1
    findings, report = after_errors(disk, (ACKED,), sectors(disk, ACKED + 1))
    assert report.findings == {"corrupt": 2}, "it was read in the end, and is not there"


def test_a_group_hides_behind_any_of_its_operations(make_plan: MakePlan) -> None:
    """One operation of a group cannot be read. The group may have been acknowledged, although the others are
    not there: they may lie under the next group, which was in flight. Then the drive lost what it cannot give
    back."""
    plan = small(make_plan, slots=128, group=3, credit=24, pattern="random")
    disk = Disk(plan)
    disk.write_to(0, 99)
    for seq in range(103, 106):
        disk.put(0, disk.slot_of(0, seq), GARBAGE)

    findings, _ = scanned(disk, (99,), [*sectors(disk, 101)])
    assert [one.finding for one in findings] == ["unreadable"] * 3
    findings, _ = scanned(disk, (99,))
    assert [one.finding for one in findings] == ["corrupt"] * 3


@pytest.mark.parametrize("workload", ["overwrite", "create"])
def test_loss_is_found_behind_an_error_that_goes_away(make_plan: MakePlan, workload: str) -> None:
    """An acknowledged version has given way to an older one, in a slot with a write in flight; for a name, a
    sector of it is gone. The first reading fails, which alone is excused."""
    plan = small(make_plan, workload=workload)
    disk = Disk(plan)
    disk.write_to(0, ACKED)
    slot = disk.slot_of(0, ACKED + 1) if workload == "overwrite" else ACKED - plan.slots
    newest = disk.newest(0, slot, ACKED)
    if workload == "overwrite":
        disk.put(0, slot, disk.record(0, slot, disk.newest(0, slot, newest - 1)))
    else:
        disk.put(0, slot, bytes(SECTOR))

    findings, report = after_errors(disk, (ACKED,), sectors(disk, newest))

    assert [one.finding for one in findings] == ["lost" if workload == "overwrite" else "torn"]
    assert (report.in_flight_damaged, report.unstable) == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("workload", WORKLOADS)
def test_no_error_that_goes_away_is_a_loss(make_plan: MakePlan, workload: str) -> None:
    """Honest drives that keep some of a group in flight; reads of them fail up to twice, or flip a bit once.
    What fails twice may count as `unreadable`, and no more."""
    seed = random.SystemRandom().getrandbits(32)
    for number in range(40):
        chance = random.Random(f"{seed} {number}")
        disk, acked = _honest_at_random(make_plan, workload, chance)
        places = [
            (suffix, offset) for suffix, data in disk.files.items() for offset in range(0, len(data), SECTOR)
        ]
        if chance.random() < 0.7:
            places = [*sectors(disk, *range(acked[0] + 1, acked[0] + disk.plan.credit + 1))]
        places = [*dict.fromkeys(places)]  # an operation may be on a slot of another
        chance.shuffle(places)
        failing = chance.choice([0, 5, len(places) // 2, len(places)])
        errors = {place: chance.choice([1, 1, 2]) for place in places[:failing]}
        flips = {(suffix, offset + 77): 1 for suffix, offset in places[failing : failing + 9]}
        findings, _ = scanned_from(PassingErrors(disk, errors=errors, flips=flips), disk, acked)
        assert not [one for one in findings if one.finding != "unreadable"], (seed, number)


def _honest_at_random(
    make_plan: MakePlan, workload: str, chance: random.Random
) -> tuple[Disk, tuple[int, ...]]:
    """A disk with groups of which the log does not know, and a part of the next one."""
    group = chance.choice([1, 1, 3])
    size = SECTOR * chance.choice([1, 2])
    plan = small(
        make_plan,
        workload=workload,
        group=group,
        credit=8 * group,
        slots=32 * group + chance.randrange(9),
        record_bytes=size,
        block_bytes=size,
        pattern="sequential" if workload in ENDLESS else chance.choice(["random", "sequential"]),
    )
    disk = Disk(plan)
    done = chance.randrange(60) * group
    disk.write_to(0, done)
    for seq in range(done + 1, done + 1 + group):
        torn = not plan.contract.needs_file and chance.random() < 0.5
        if torn:
            disk.put(0, disk.slot_of(0, seq), GARBAGE[:size])
        elif chance.random() < 0.5:
            disk.write(0, seq)
    return disk, (max(0, done - group * chance.randrange(8)),)
