"""A log that is older than the target: an export taken during the run, or a restored server's store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from durability.evidence.scan_report import ScanReport
from durability.formats.plan import Plan
from durability_client.verify.scan import read_chunks
from tests.core.evidence.memory_target import ENDLESS, SECTOR, Disk, small
from tests.lab.truth.disk_storage import scanned

pytestmark = pytest.mark.slow  # scans a target for each of many logs

MakePlan = Callable[..., Plan]
PATTERNS = st.sampled_from(["sequential", "random"])
WORKLOADS = ("overwrite", "append", "create", "rename", "unlink")


@dataclass(frozen=True, slots=True)
class Writer:
    """What a writer did: groups `done` and synced, operations of the next one `under_way`, counted from 1;
    how many of the newest groups are `missing` in the log; and what a name holds that is just being `made`,
    or a slot whose write is just under way: the first one of that group that is not there yet."""

    done: int
    under_way: frozenset[int]
    missing: int
    made: bytes | None = None


# Stands for an older record, in a new file whose blocks were used before; in a slot, for the first sector.
OLD = b"old"
# Also where a pass of 32 slots ends, or three.
DONE = st.one_of(st.integers(0, 80), st.sampled_from([8, 24, 32, 96]))
MADE = st.sampled_from([None, b"", b"\x55" * SECTOR, OLD])
WRITERS = st.builds(Writer, DONE, st.frozensets(st.integers(1, 4)), st.integers(0, 96), MADE)
BORDER = [Writer(32, frozenset(), 8, b""), Writer(32, frozenset(), 19, b"\x55" * SECTOR)]


@pytest.fixture(autouse=True)
def _short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a scan tell after every few slots what it has found so far."""
    monkeypatch.setattr(read_chunks, "CHUNK_BYTES", 4 << 10)


@pytest.mark.parametrize("workload", WORKLOADS)
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(writers=st.lists(WRITERS, min_size=2, max_size=2), group=st.sampled_from([1, 4]), pattern=PATTERNS)
@example(writers=[Writer(32, frozenset(), 32), Writer(0, frozenset(), 0)], group=1, pattern="random")
@example(writers=[Writer(74, frozenset(), 11), Writer(0, frozenset(), 0)], group=1, pattern="random")
@example(writers=BORDER, group=1, pattern="random")
@example(writers=[Writer(0, frozenset(), 0), Writer(32, frozenset(), 9, b"")], group=1, pattern="random")
@example(writers=[Writer(96, frozenset(), 47), Writer(3, frozenset(), 2)], group=1, pattern="sequential")
@example(writers=[Writer(99, frozenset(), 95, b""), Writer(0, frozenset(), 0)], group=1, pattern="random")
@example(writers=[Writer(5, frozenset({1, 4}), 5), Writer(9, frozenset(), 0)], group=4, pattern="random")
@example(writers=[Writer(25, frozenset(), 2, b""), Writer(0, frozenset(), 0)], group=4, pattern="random")
@example(writers=[Writer(25, frozenset({1}), 2, OLD), Writer(0, frozenset(), 0)], group=4, pattern="random")
@example(writers=[Writer(50, frozenset(), 8, OLD), Writer(0, frozenset(), 0)], group=1, pattern="random")
@example(writers=[Writer(50, frozenset(), 9, OLD), Writer(0, frozenset(), 0)], group=1, pattern="random")
@example(writers=[Writer(50, frozenset(), 8), Writer(0, frozenset(), 0)], group=1, pattern="random")
@example(writers=[Writer(50, frozenset({1}), 2), Writer(9, frozenset(), 2)], group=4, pattern="random")
def test_log_of_any_age_is_never_a_loss(
    make_plan: MakePlan, workload: str, writers: list[Writer], group: int, pattern: str
) -> None:
    """An honest target that is complete, with some of the last group, against any prefix of its log."""
    pattern = "sequential" if workload in ENDLESS else pattern
    slots = 34 if workload == "append" else 32  # so that a group may begin a file that it does not fill
    _check(small(make_plan, workload=workload, slots=slots, group=group, writers=2, pattern=pattern), writers)


@pytest.mark.parametrize("group", [1, 4])
def test_log_that_is_one_credit_behind_is_never_a_loss(make_plan: MakePlan, group: int) -> None:
    """The newest operation of `unlink` is the last one that the log allows, and a name of the next is just
    being made: in each of three passes."""
    plan = small(make_plan, workload="unlink", slots=32, group=group, writers=2, pattern="sequential")
    for done in range(3 * plan.slots // group):
        for made in (b"", b"\x55" * SECTOR):
            behind = Writer(done, frozenset(), plan.credit // group, made)
            _check(plan, [Writer(0, frozenset(), 0), behind])


@pytest.mark.parametrize("group", [1, 4])
@pytest.mark.parametrize("behind", range(3))
def test_removals_without_the_names_that_they_make_room_for_are_never_a_loss(
    make_plan: MakePlan, group: int, behind: int
) -> None:
    """A writer of `create` removes a name before it makes another, and the cut may come between the two."""
    plan = small(make_plan, workload="create", slots=32, group=group)
    for done in range(plan.slots, 3 * plan.slots, group):
        for removed in range(1, group + 1):
            disk = Disk(plan)
            disk.write_to(0, done)
            for seq in range(done + 1, done + 1 + removed):
                disk.remove(0, seq - 1 - plan.slots)
            _check_scan(disk, [done - plan.credit - behind * group])


def _check(plan: Plan, writers: list[Writer]) -> None:
    disk, group = Disk(plan), plan.group
    for number, writer in enumerate(writers):
        frontier = writer.done * group
        disk.write_to(number, frontier)
        disk.write(number, *(frontier + seq for seq in sorted(writer.under_way) if seq <= group))
        _make(
            disk, number, frontier + next(seq for seq in range(1, 6) if seq not in writer.under_way), writer
        )

    _check_scan(disk, [max(0, one.done - one.missing) * group for one in writers], writers)


def _check_scan(disk: Disk, acked: list[int], writers: list[Writer] | None = None) -> None:
    parts: list[ScanReport] = []
    findings, report = scanned(disk, acked, on_progress=lambda progress: parts.append(progress.report))

    assert not findings or report.above_ceiling, (writers or acked, findings[0].text)
    for part in parts:  # the drive may go away at any moment
        assert not part.convicting or part.above_ceiling, (writers or acked, part.convicting)
        assert part.oldest_lost == (None,) * disk.plan.writers or part.above_ceiling, part.oldest_lost


def _make(disk: Disk, number: int, seq: int, writer: Writer) -> None:
    """Begin to make a name, or a file of a log: the old one may be gone, and it may hold anything. Or damage
    the slot of a write, unless nothing would show that the log does not know it ("An old log that ends
    exactly at the credit" in docs/explanation/limits.md)."""
    workload, slots, group = disk.plan.workload, disk.plan.slots, disk.plan.group
    if workload == "append" and writer.made is not None:
        for first in range(seq, (writer.done + 1) * group + 1):
            if (first - 1) % slots == 0:
                disk.write(number, *range(seq, first))  # a full file is synced before the next is made
                disk.remove(number, (first - 1) // slots - 2)
                disk.files[f".{number}.{(first - 1) // slots}"] = _content(disk, number, seq, writer.made)
    if workload == "overwrite" and writer.made is not None and (seq - 1) // group == writer.done:
        ceiling = max(0, writer.done - writer.missing) * group + disk.plan.credit
        slot, last = disk.slot_of(number, seq), writer.done * group
        if seq <= ceiling or (last > ceiling and slot != disk.slot_of(number, last)):
            new = disk.record(number, slot, seq)[:SECTOR]
            disk.put(
                number, slot, new if writer.made == OLD else writer.made or bytes(disk.plan.record_bytes)
            )
    makes = workload == "create" or (workload == "unlink" and (seq - 1) // slots % 2)
    if makes and (seq - 1) // group == writer.done:
        slot = disk.slot_of(number, seq)
        disk.remove(number, slot - slots if workload == "create" else slot)
        if writer.made is not None:
            disk.files[f".{number}.{slot}"] = _content(disk, number, seq, writer.made)


def _content(disk: Disk, number: int, seq: int, made: bytes) -> bytearray:
    """What a file that is just being made holds; nothing of the old that `unlink` may have had there."""
    if made != OLD:
        return bytearray(made)
    if disk.plan.workload == "unlink" or seq <= 2:
        return bytearray()
    return bytearray(disk.record(number, seq - 3, seq - 2))


def test_files_of_a_log_beyond_the_ceiling_are_read(make_plan: MakePlan) -> None:
    """Files of generations above the log's ceiling are read. They show that the log is behind, even if other
    files are lost."""
    disk = Disk(small(make_plan, workload="append"))
    disk.write_to(0, 600)

    findings, report = scanned(disk, (100,))

    assert {finding.finding for finding in findings} == {"truncated"}
    assert report.above_ceiling == 2


@pytest.mark.parametrize("content", [b"", bytes(4 * SECTOR), b"\xa5" * SECTOR])
def test_file_of_a_log_beyond_the_ceiling_testifies_without_a_record(
    make_plan: MakePlan, content: bytes
) -> None:
    """A writer makes a file only when it may write to it, so its name is enough."""
    disk = Disk(small(make_plan, workload="append"))
    disk.write_to(0, 100)
    disk.files[".0.4"] = bytearray(content)

    assert scanned(disk, (100,))[1].above_ceiling == 1


@pytest.mark.parametrize("lost", [False, True])
def test_file_that_is_made_before_credit_for_it_does_not_testify(make_plan: MakePlan, *, lost: bool) -> None:
    """Credit may end where a file does: the writer has made the next one, and waits."""
    disk = Disk(small(make_plan, workload="append", credit=16))
    disk.write_to(0, 64)
    disk.files[".0.1"] = bytearray()
    if lost:
        disk.put(0, 10, bytes(disk.plan.record_bytes))

    findings, report = scanned(disk, (48,))

    assert (len(findings), report.above_ceiling) == (lost, 0)


def test_a_lost_name_is_not_one_that_a_later_pass_makes(make_plan: MakePlan) -> None:
    """A missing name is absent and not one that a later pass would make, because the names beside it are
    unchanged."""
    disk = Disk(small(make_plan, workload="unlink", slots=36, group=4, pattern="sequential"))
    disk.write_to(0, 39)

    findings, report = scanned(disk, (40,))

    assert [finding.finding for finding in findings] == ["absent"]
    assert report.above_ceiling == 0


def test_file_of_an_earlier_run_does_not_testify(make_plan: MakePlan) -> None:
    """A file of an earlier run proves nothing about this run's log."""
    disk, earlier = (Disk(small(make_plan, workload="append", run=run)) for run in (6, 5))
    disk.write_to(0, 100)
    earlier.write_to(0, 300)
    disk.files[".0.4"] = earlier.files[".0.4"]

    assert scanned(disk, (100,))[1].above_ceiling == 0


@pytest.mark.parametrize("kept", [20, 30])
def test_names_that_no_later_removal_explains_are_lost(make_plan: MakePlan, kept: int) -> None:
    """Names are absent as later operations would remove them, but one of those operations was not done."""
    disk = Disk(small(make_plan, workload="unlink", pattern="sequential"))
    disk.write(0, *(seq for seq in range(1, 41) if seq != kept))

    findings, report = scanned(disk, (10,))

    assert {finding.finding for finding in findings} == {"absent"}
    assert report.above_ceiling == 0
