"""The scan of real files: held against the scan by the book, and against drives that fail on reading."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from durability import limits
from durability.evidence.scan_report import ScanReport
from durability.formats.mixing import U64
from durability.formats.plan import CONTROL, MAIN, Plan
from durability_client.target.kernel_storage import KernelFile, KernelStorage
from durability_client.target.storage import PresentDrive, WritableBuffer
from durability_client.verify.scan.canary import presence_of
from durability_client.verify.scan.read_chunks import bytes_around, pieces_around
from durability_client.verify.scan.scan_base import ScanJob, ScanListener
from durability_client.verify.scan.scan_child import scan_here
from durability_client.verify.scan.target_reader import CHUNK_BYTES
from tests.client.verify.targets import FailingFile, FailingStorage, job_of, lay_down, scanned, unreadable
from tests.core.evidence.memory_target import SECTOR, Disk, Found, scan, small

MakePlan = Callable[..., Plan]
IN_FLIGHT = 101  # the operation after those of `written`
SILENT = ScanListener(tick=lambda: None, progress=lambda _: None, example=lambda _: None)


def report_of(disk: Disk, directory: Path, acked: tuple[int, ...] | None) -> ScanReport:
    report, _, _ = scanned(lay_down(disk, directory), job_of(disk.plan, acked))
    return report


def assert_by_the_book(report: ScanReport, found: Found) -> None:
    assert report.finished
    assert report.findings == found.findings
    assert report.in_flight_damaged == found.in_flight_damaged
    assert report.order_violations == found.order_violations
    assert report.collateral == found.collateral
    assert report.above_ceiling == found.above_ceiling
    assert report.proven == found.oracle.proven
    assert report.newest_seen == found.oracle.newest_seen
    assert report.oldest_lost == found.oldest_lost
    assert report.prefill_lost == found.report().prefill_lost
    assert report.operations_lost == found.report().operations_lost


@pytest.fixture
def written(make_plan: MakePlan) -> Disk:
    """An intact target: 100 operations on 64 slots, all of them on the disk."""
    disk = Disk(small(make_plan))
    disk.write_to(0, 100)
    return disk


def test_intact_target_has_no_findings(written: Disk, tmp_path: Path) -> None:
    """Every slot of an intact target is checked, and none is a finding."""
    report = report_of(written, tmp_path, (100,))

    assert report.finished
    assert not report.findings
    assert report.checked == 64
    assert report.in_flight == 8


@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
@given(data=st.data())
@pytest.mark.slow
def test_damage_is_counted_as_by_the_book(make_plan: MakePlan, tmp_path: Path, data: st.DataObject) -> None:
    """For any content of the disk, the scan's counts equal those of the oracle's bookkeeping."""
    writers = data.draw(st.integers(1, 2))
    plan = small(make_plan, writers=writers, group=data.draw(st.sampled_from([1, 4])))
    disk = Disk(plan)
    for writer in range(writers):
        disk.write_to(writer, data.draw(st.integers(60, 110)))
    for _ in range(data.draw(st.integers(0, 12))):
        writer, slot = data.draw(st.integers(0, writers - 1)), data.draw(st.integers(0, 63))
        content = data.draw(
            st.one_of(
                st.integers(0, 120).map(lambda seq: disk.record(writer, slot, seq)),  # noqa: B023 - drawn here
                st.integers(0, 63).map(lambda other: disk.get(writer, other)),  # noqa: B023
                st.binary(min_size=1024, max_size=1024),
                st.just(bytes(1024)),
            )
        )
        first = data.draw(st.integers(0, 1))
        disk.put(writer, slot, content[first * SECTOR :][: data.draw(st.sampled_from([SECTOR, 1024]))], first)
    if data.draw(st.booleans()):
        del disk.files[MAIN][data.draw(st.integers(limits.SUPERBLOCK_BYTES, len(disk.files[MAIN]))) :]
        expected_superblock = len(disk.files[MAIN]) < plan.main_bytes
    else:
        expected_superblock = False
    acked = tuple(data.draw(st.integers(10, 25)) * 4 for _ in range(writers))

    report = report_of(disk, tmp_path, acked)

    found = scan(disk, acked)
    findings = found.findings
    findings["truncated"] += expected_superblock
    assert report.findings == +findings
    assert report.proven == found.oracle.proven
    assert report.oldest_lost == found.oldest_lost
    assert report.in_flight_damaged == found.in_flight_damaged
    assert report.order_violations == found.order_violations
    assert report.above_ceiling == found.above_ceiling


@pytest.mark.parametrize(("acked", "cut_off"), [(40, 4), (64, 4), (100, 4), (130, 2)])
def test_append_is_counted_as_by_the_book(
    make_plan: MakePlan, tmp_path: Path, acked: int, cut_off: int
) -> None:
    """Growing files are scanned generation by generation, with a lost tail and a torn record."""
    disk = Disk(small(make_plan, workload="append"))
    disk.write_to(0, acked)
    disk.put(0, disk.slot_of(0, acked - 9), bytes(SECTOR))
    suffix, offset, _ = disk.versions.place(0, disk.slot_of(0, acked - 3))
    del disk.files[suffix][offset + SECTOR :]

    report = report_of(disk, tmp_path, (acked,))

    assert_by_the_book(report, scan(disk, (acked,)))
    assert report.findings["truncated"] == cut_off


@pytest.mark.slow
def test_all_that_a_log_lacks_beyond_the_log_of_the_server_is_out_of_order(
    make_plan: MakePlan, tmp_path: Path
) -> None:
    """A later file proves the records that its own has lost, also those that are only counted."""
    plan = small(make_plan, workload="append", record_bytes=512, block_bytes=512, credit=512, slots=2048)
    disk = Disk(plan)
    disk.write_to(0, 2100)
    del disk.files[".0.0"][1700 * 512 :]

    report = report_of(disk, tmp_path, (1800,))

    assert report.findings == {"truncated": 348}
    assert report.order_violations == 248
    assert_by_the_book(report, scan(disk, (1800,)))


def test_a_removed_log_file_that_is_back_is_resurrected(make_plan: MakePlan, tmp_path: Path) -> None:
    """A generation whose removal a later rotation made durable must not exist; the one after it may."""
    disk = Disk(small(make_plan, workload="append"))
    disk.write_to(0, 200)
    disk.files[".0.0"] = bytearray()
    disk.files[".0.1"] = bytearray(disk.record(0, 64, 65))

    storage = lay_down(disk, tmp_path)
    report, examples, _ = scanned(storage, job_of(disk.plan, (200,)))

    assert_by_the_book(report, scan(disk, (200,)))
    assert report.findings == {"resurrected": 1}
    assert [example.judgement.suffix for example in examples] == [".0.0"]


@pytest.mark.slow
def test_missing_file_is_truncated_throughout(written: Disk, tmp_path: Path) -> None:
    """A target that is gone lacks every slot and both superblocks."""
    written.files.clear()

    report, examples, _ = scanned(lay_down(written, tmp_path), job_of(written.plan, (100,)))

    assert report.findings == {"truncated": 64 + 2}
    assert (report.operations_lost, report.prefill_lost, report.superblocks_lost) == (64, 0, 2)
    assert report.oldest_lost == scan(written, (100,)).oldest_lost
    assert report.newest_lost == (100,)
    assert len(examples) == 66


@pytest.mark.slow
def test_many_absent_slots_are_counted_without_looking_at_each(make_plan: MakePlan, tmp_path: Path) -> None:
    """A file cut short by a million slots costs no more than its examples."""
    plan = small(make_plan, slots=1 << 20, credit=8, record_bytes=512, block_bytes=512)
    acked = plan.slots - 1000  # in a random order, so that slots which hold the prefill lie anywhere
    storage = lay_down(Disk(small(make_plan)), tmp_path)
    os.truncate(storage.path, 0)

    report, examples, _ = scanned(storage, job_of(plan, (acked,)))

    assert report.findings == {"truncated": plan.slots + 2}
    assert (report.oldest_lost, report.newest_lost) == ((1,), (acked,))
    assert (report.operations_lost, report.prefill_lost, report.superblocks_lost) == (acked, 1000, 2)
    assert len(examples) == limits.EXAMPLES_FIRST + limits.EXAMPLES_LAST


def test_without_a_log_the_target_testifies_against_itself(written: Disk, tmp_path: Path) -> None:
    """Plan and target alone show a slot that lacks what newer slots prove to be acknowledged."""
    slot = written.slot_of(0, 90)
    written.put(0, slot, written.record(0, slot, written.newest(0, slot, 89)))

    report = report_of(written, tmp_path, None)

    assert report.findings == {"lost": 1}
    assert report.proven == (99,)


def test_damaged_superblock_is_a_finding(written: Disk, tmp_path: Path) -> None:
    """One flipped bit in the second copy, which no slot covers, is found."""
    offset = written.plan.superblock_offsets[1] + 5000
    written.files[MAIN][offset] ^= 1

    assert report_of(written, tmp_path, (100,)).findings == {"corrupt": 1}


def test_superblock_of_another_run_is_lost(written: Disk, make_plan: MakePlan, tmp_path: Path) -> None:
    """An earlier run's superblock where this run's was synced is a lost write."""
    earlier = Disk(small(make_plan, run=5))
    written.files[MAIN][: limits.SUPERBLOCK_BYTES] = earlier.files[MAIN][: limits.SUPERBLOCK_BYTES]

    assert report_of(written, tmp_path, (100,)).findings == {"lost": 1}


def test_control_arm_is_counted_and_never_a_finding(make_plan: MakePlan, tmp_path: Path) -> None:
    """The control arm's losses are counted apart from the findings (rule 15)."""
    plan = small(make_plan, control_slots=16)
    disk = Disk(plan)
    for seq in range(1, 7):
        disk.put(plan.control_writer, seq - 1, disk.record(plan.control_writer, seq - 1, seq))
    storage = lay_down(disk, tmp_path)

    report, _, _ = scanned(storage, job_of(plan, (0,), control=10))
    assert (report.control_lost, report.findings) == (4, {})

    os.truncate(storage.path_of(CONTROL), 3 * plan.control_record_bytes)
    report, _, _ = scanned(storage, job_of(plan, (0,), control=10))
    assert (report.control_lost, report.findings) == (7, {})


def failing(written: Disk, directory: Path, bad: dict[int, int]) -> FailingStorage:
    return FailingStorage(lay_down(written, directory).path, bad=bad)


def test_io_error_is_narrowed_to_its_sector(written: Disk, tmp_path: Path) -> None:
    """Only the record whose sector fails is unreadable, however large the read was."""
    slot = written.slot_of(0, 60)
    _, offset, _ = written.versions.place(0, slot)
    storage = failing(written, tmp_path, unreadable(offset + SECTOR))

    report, examples, _ = scanned(storage, job_of(written.plan, (100,)))

    assert report.findings == {"unreadable": 1}
    assert (examples[0].judgement.slot, examples[0].judgement.offset) == (slot, offset)
    assert examples[0].data == written.get(0, slot)[:SECTOR] + bytes(SECTOR)


def test_unreadable_sector_of_a_slot_in_flight_is_damage_only(written: Disk, tmp_path: Path) -> None:
    """Where a write may have been in flight an I/O error is counted, and is not loss (rule 7)."""
    _, offset, _ = written.versions.place(0, written.slot_of(0, IN_FLIGHT))
    storage = failing(written, tmp_path, unreadable(offset))

    report, examples, _ = scanned(storage, job_of(written.plan, (100,)))

    assert (report.findings, report.in_flight_damaged) == ({}, 1)
    assert [example.kind for example in examples] == ["in_flight_damaged"]
    assert not examples[0].is_finding


def test_unreadable_superblock_is_a_finding(written: Disk, tmp_path: Path) -> None:
    """It was synced before the run, so an I/O error that repeats is loss."""
    report, examples, _ = scanned(failing(written, tmp_path, unreadable(1024)), job_of(written.plan, (100,)))

    assert report.findings == {"unreadable": 1}
    assert "superblock" in examples[0].judgement.text


def test_file_that_ends_within_its_first_record(make_plan: MakePlan, tmp_path: Path) -> None:
    """A growing file with less than one record is short by what was acknowledged, and no more."""
    disk = Disk(small(make_plan, workload="append"))
    disk.write_to(0, 3)
    del disk.files[".0.0"][SECTOR + 7 :]

    report = report_of(disk, tmp_path, (2,))

    assert report.findings == {"truncated": 2}


class DyingStorage(FailingStorage):
    """Files on a drive that is enumerated anew once its drives have been asked for so often."""

    def __init__(self, path: Path, *, bad: dict[int, int], changes_after: int) -> None:
        super().__init__(path, bad=bad)
        self._left = changes_after

    def drives(self) -> tuple[PresentDrive, ...]:
        self._left -= 1
        return (PresentDrive(name="sda", size_bytes=1 << 30, diskseq=1 if self._left >= 0 else 2),)


@pytest.mark.parametrize("changes_after", [1, 2])
def test_drive_that_was_enumerated_anew_ends_the_scan(
    written: Disk, tmp_path: Path, changes_after: int
) -> None:
    """An I/O error counts if the drive is the same after it, and again at the end of the scan."""
    _, offset, _ = written.versions.place(0, written.slot_of(0, 60))
    path = lay_down(written, tmp_path).path
    storage = DyingStorage(path, bad=unreadable(offset), changes_after=changes_after)

    report = scan_here(storage, job_of(written.plan, (100,)), SILENT)

    assert not report.finished
    assert "enumerated it anew" in report.failure
    assert report.findings == ({} if changes_after == 1 else {"unreadable": 1})
    storage = DyingStorage(path, bad=unreadable(offset), changes_after=3)
    report = scan_here(storage, job_of(written.plan, (100,)), SILENT)
    assert (report.finished, report.findings) == (True, {"unreadable": 1})


@pytest.mark.parametrize("workload", ["overwrite", "append", "rename"])
def test_drive_that_is_dead_from_the_beginning_is_no_loss(
    make_plan: MakePlan, tmp_path: Path, workload: str
) -> None:
    """Every read fails: nothing has read well in this pass, so nothing is known to be lost."""
    disk = Disk(small(make_plan, workload=workload))
    disk.write_to(0, 60)
    everywhere = unreadable(*range(0, 1 << 18, SECTOR))
    storage = FailingStorage(lay_down(disk, tmp_path).path, bad=everywhere)

    report = scan_here(storage, job_of(disk.plan, (60,)), SILENT)

    assert (report.finished, report.findings) == (False, {})
    assert "no block of the target" in report.failure


@pytest.mark.parametrize("workload", ["overwrite", "append", "rename"])
@pytest.mark.parametrize("empty", [False, True])
def test_target_that_goes_away_before_the_first_read_is_no_loss(
    make_plan: MakePlan, tmp_path: Path, workload: str, empty: bool
) -> None:
    """If the target disappears or becomes empty after it was recognised, the scan is unfinished. If it was
    recognised in that state, the missing records are lost."""
    disk = Disk(small(make_plan, workload=workload))
    disk.write_to(0, 60)
    storage = lay_down(disk, tmp_path)
    job = replace(job_of(disk.plan, (60,)), before=presence_of(storage))
    for suffix in disk.files:
        os.truncate(storage.path_of(suffix), 0) if empty else storage.unlink(suffix)

    report = scan_here(storage, job, SILENT)

    assert (report.finished, report.findings) == (False, {})
    assert "the target went away" in report.failure
    report = scan_here(storage, replace(job, before=presence_of(storage)), SILENT)
    assert report.finished, "a target that was recognised so is a loss"
    assert report.findings


def test_first_half_unreadable_is_a_finding(written: Disk, tmp_path: Path) -> None:
    """Nothing has read well when the first slots fail, but the rest of the target is found to read."""
    extent = written.plan.extent(0)
    half = unreadable(*range(0, extent.offset_of(32), SECTOR))
    storage = failing(written, tmp_path, half)

    report = scan_here(storage, job_of(written.plan, (100,)), SILENT)

    assert report.finished
    assert report.findings["unreadable"] + report.in_flight_damaged == 32 + 1


def test_error_of_the_link_ends_the_scan(written: Disk, tmp_path: Path) -> None:
    """A drive that went away has not lost its data: that is an error of the scan."""
    _, offset, _ = written.versions.place(0, 10)
    storage = failing(written, tmp_path, {offset: errno.ENODEV})

    with pytest.raises(OSError, match="the drive gives an error"):
        scanned(storage, job_of(written.plan, (100,)))


@pytest.mark.parametrize(("seq", "kind"), [(60, "unstable"), (IN_FLIGHT, "in_flight_damaged")])
def test_what_is_right_when_read_again_is_unstable(
    written: Disk, tmp_path: Path, seq: int, kind: str
) -> None:
    """A bit that the next read does not flip is no finding; it is damage where a write was in flight."""
    _, offset, _ = written.versions.place(0, written.slot_of(0, seq))
    storage = FailingStorage(lay_down(written, tmp_path).path, flips={offset + 100: 1})

    report, examples, _ = scanned(storage, job_of(written.plan, (100,)))

    assert not report.findings
    assert [example.kind for example in examples] == [kind]


class _WearingStorage(KernelStorage):
    """Real files on such a drive: what was read of the sector at `start` once is not read again."""

    def __init__(self, path: Path, start: int) -> None:
        super().__init__(path)
        self._start = start
        self._seen = False

    def open(self, suffix: str, *, plan: Plan | None = None, create: bool = False) -> KernelFile:
        storage, file = self, super().open(suffix, plan=plan, create=create)

        class Wearing(FailingFile):
            def pread_into(self, buffer: WritableBuffer, offset: int) -> int:
                if offset <= storage._start < offset + len(buffer):
                    if storage._seen:
                        raise OSError(errno.EIO, "the drive gives an error")
                    storage._seen = True
                return super().pread_into(buffer, offset)

        return Wearing(file, {}, {})


@pytest.mark.parametrize(("seq", "finding"), [(60, "lost"), (IN_FLIGHT + 2, "corrupt")])
def test_an_error_at_the_second_look_does_not_hide_what_the_first_saw(
    written: Disk, tmp_path: Path, seq: int, finding: str
) -> None:
    """A wrong record that cannot be read again stays a finding of its own class. It does not become a loss by
    read errors, which a later pass may withdraw, and it is not excused as in flight."""
    slot = written.slot_of(0, seq)
    older = written.record(0, slot, written.newest(0, slot, 59))
    written.put(0, slot, older if finding == "lost" else b"\xa5" * 1024)
    _, offset, _ = written.versions.place(0, slot)
    storage = _WearingStorage(lay_down(written, tmp_path).path, offset)

    report, examples, _ = scanned(storage, job_of(written.plan, (100,)))

    assert report.findings == {finding: 1}
    assert not report.by_errors
    assert [example.judgement.slot for example in examples if example.is_finding] == [slot]


def test_unstable_superblock_is_no_finding(written: Disk, tmp_path: Path) -> None:
    """The superblock is read again as well."""
    storage = FailingStorage(lay_down(written, tmp_path).path, flips={100: 1})

    report, _, _ = scanned(storage, job_of(written.plan, (100,)))

    assert (report.findings, report.unstable) == ({}, 1)


@pytest.mark.slow
def test_examples_are_the_first_and_the_last(make_plan: MakePlan, tmp_path: Path) -> None:
    """The first 64 and the last 64 of many findings of a class are kept, with their bytes."""
    disk = Disk(small(make_plan, slots=400))
    disk.write_to(0, 400)
    idle = set(range(400)) - {disk.slot_of(0, seq) for seq in range(393, 401)}
    for slot in idle:
        disk.put(0, slot, bytes(1024))

    report, examples, _ = scanned(lay_down(disk, tmp_path), job_of(disk.plan, (392,)))

    slots = [example.judgement.slot for example in examples if example.is_finding]
    wrong = report.findings["corrupt"]
    assert wrong == 392
    assert len(slots) == 128
    assert slots == sorted(slots)
    assert slots[63] < 80
    assert slots[64] > 320
    assert all(example.data == bytes(1024) for example in examples)


def test_records_off_the_blocks_are_read_all_the_same(make_plan: MakePlan, tmp_path: Path) -> None:
    """Records of three sectors start at no page boundary, yet O_DIRECT reads find them intact."""
    disk = Disk(small(make_plan, record_bytes=1536, block_bytes=512, writers=2))
    disk.write_to(0, 70)
    disk.write_to(1, 90)

    report = report_of(disk, tmp_path, (70, 90))

    assert (report.findings, report.checked) == ({}, 128)


@pytest.mark.slow
def test_slots_in_flight_are_read_first_where_they_are_few(make_plan: MakePlan, tmp_path: Path) -> None:
    """Rule 8's order: their testimony is in before the pass; each phase tells how far it is."""
    disk = Disk(small(make_plan, slots=4096, credit=2))
    disk.write_to(0, 102)

    report, _, told = scanned(lay_down(disk, tmp_path), job_of(disk.plan, (100,)))

    assert [progress.phase for progress in told] == ["in flight", "in flight", "all slots", "all slots"]
    assert told[0].report.checked == 0
    assert told[1].report.proven == report.proven == (101,)
    assert [(progress.done, progress.total) for progress in told[1:]] == [
        (2048, 2048),
        (CHUNK_BYTES, 4 << 20),
        (4 << 20, 4 << 20),
    ]


def test_scan_writes_nothing(written: Disk, tmp_path: Path) -> None:
    """Bytes and modification times of the target are as they were."""
    storage = lay_down(written, tmp_path)
    before = (storage.path.read_bytes(), storage.path.stat().st_mtime_ns)

    scanned(storage, ScanJob(plan=written.plan, acked=(90,), control_completed=0, block_bytes=512))

    assert (storage.path.read_bytes(), storage.path.stat().st_mtime_ns) == before


@pytest.mark.slow
@given(
    slots=st.sets(st.integers(0, 99_999), min_size=1, max_size=60), record_bytes=st.sampled_from([512, 4096])
)
def test_pieces_around_slots_hold_them_all(make_plan: MakePlan, slots: set[int], record_bytes: int) -> None:
    """Every slot is wanted by one piece, in order; no piece exceeds a chunk; the sum of them is foretold."""
    extent = make_plan(writers=1, slots=100_000, record_bytes=record_bytes).extent(0)
    wanted = np.array(sorted(slots), dtype=U64)

    pieces = list(pieces_around(extent, wanted))

    assert [slot for piece in pieces for slot in piece.wanted_slots.tolist()] == sorted(slots)
    assert all(piece.length <= CHUNK_BYTES for piece in pieces)
    assert bytes_around(extent, wanted) == sum(piece.length for piece in pieces)
