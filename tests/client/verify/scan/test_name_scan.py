"""The scan of names in real directories: held against the scan by the book, and against damaged ones."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from durability import limits
from durability.evidence.name_oracle import NameOracle
from durability.evidence.observation import missing, whole
from durability.evidence.scan_report import ScanCounts, ScanReport
from durability.formats.plan import CONTROL, MAIN, Plan
from durability_client.target.kernel_storage import KernelFile, KernelStorage
from durability_client.verify.scan.scan_base import ScanListener
from durability_client.verify.scan.scan_child import scan_here
from tests.client.verify.targets import FailingStorage, job_of, lay_down, scanned, unreadable
from tests.core.evidence.memory_target import SECTOR, Disk, Found, scan, small

MakePlan = Callable[..., Plan]
WORKLOADS = ("create", "rename", "unlink")


def written(make_plan: MakePlan, workload: str, frontier: int, **changes: Any) -> Disk:
    """A directory in which all operations up to `frontier` are done, 32 names of two sectors to a writer."""
    disk = Disk(small(make_plan, **{"workload": workload, "slots": 32, **changes}))
    for writer in range(disk.plan.writers):
        disk.write_to(writer, frontier)
    return disk


def report_of(disk: Disk, directory: Path, *acked: int) -> ScanReport:
    report, _, _ = scanned(lay_down(disk, directory), job_of(disk.plan, acked or None))
    return report


def assert_by_the_book(report: ScanReport, found: Found) -> None:
    assert report.finished
    assert report.findings == found.findings
    assert report.checked == found.checked
    assert report.in_flight == found.in_flight
    assert report.in_flight_damaged == found.in_flight_damaged
    assert report.order_violations == found.order_violations
    # A log that is behind explains all findings or none, which is not for the book: see `test_old_logs`.
    explained = report.above_ceiling - found.above_ceiling
    assert explained in (0, sum(report.findings.values()))
    assert report.proven == found.oracle.proven
    assert report.newest_seen == found.oracle.newest_seen
    assert report.oldest_lost == found.oldest_lost
    assert report.prefill_lost == found.report().prefill_lost
    assert report.operations_lost == found.report().operations_lost


def steady(disk: Disk, acked: int) -> int:
    """A slot that holds a name which nothing in flight touches."""
    for slot in range(acked):
        newest = disk.newest(0, slot, acked)
        if f".0.{slot}" in disk.files and newest == disk.newest(0, slot, acked + disk.plan.credit):
            return slot
    raise AssertionError("everything is in flight")


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("frontier", [0, 20, 50, 90])
def test_intact_names_have_no_findings(
    make_plan: MakePlan, tmp_path: Path, workload: str, frontier: int
) -> None:
    """Every name that must be there is there and none that must not, in each pass, with a log or none."""
    disk = written(make_plan, workload, frontier, writers=2)

    report = report_of(disk, tmp_path, frontier, frontier)

    assert report.finished
    assert not report.findings
    assert report.checked == (min(frontier, 32) if workload == "create" else 32) * 2
    assert not report_of(disk, tmp_path).findings


@settings(
    max_examples=50,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
@given(data=st.data())
@pytest.mark.slow
def test_damage_is_counted_as_by_the_book(
    make_plan: MakePlan, memory_path: Path, data: st.DataObject
) -> None:
    """For any content of the directory, the scan's counts equal those of the oracle's bookkeeping."""
    workload = data.draw(st.sampled_from(WORKLOADS))
    group = data.draw(st.sampled_from([1, 4]))
    frontier = data.draw(st.integers(3, 30)) * 4
    disk = written(make_plan, workload, frontier, writers=data.draw(st.integers(1, 2)), group=group)
    for _ in range(data.draw(st.integers(0, 10))):
        writer = data.draw(st.integers(0, disk.plan.writers - 1))
        slot = data.draw(st.integers(0, frontier + 10))
        other = data.draw(st.integers(0, 31))
        temporary = data.draw(st.sampled_from(["", "", ".tmp"]))
        content = data.draw(
            st.one_of(
                st.none(),
                st.integers(0, frontier + 12).map(lambda seq: disk.record(writer, slot, seq)),  # noqa: B023 - drawn here
                st.just(disk.record(writer, other, 0)),
                st.integers(0, 1500).map(bytes),
                st.binary(min_size=SECTOR, max_size=SECTOR).map(
                    lambda noise: disk.record(writer, slot, 0)[:SECTOR] + noise  # noqa: B023
                ),
            )
        )
        disk.files.pop(f".{writer}.{slot}{temporary}", None)
        if content is not None:
            disk.files[f".{writer}.{slot}{temporary}"] = bytearray(content)
    acked = tuple(max(0, frontier - 4 * data.draw(st.integers(0, 2))) for _ in range(disk.plan.writers))
    for path in memory_path.iterdir():
        path.unlink()

    for known in (acked, ()):
        report = report_of(disk, memory_path, *known)

        assert_by_the_book(report, scan(disk, known or None))


DAMAGE: dict[str, tuple[Callable[[Disk, str, str], None], str]] = {
    "removed": (lambda disk, name, other: disk.files.__delitem__(name), "absent"),
    "swapped": (lambda disk, name, other: disk.files.__setitem__(name, disk.files[other]), "misdirected"),
    "cut short": (lambda disk, name, other: disk.files[name].__delitem__(slice(SECTOR, None)), "torn"),
    "empty": (lambda disk, name, other: disk.files[name].clear(), "torn"),
    "too long": (lambda disk, name, other: disk.files[name].extend(bytes(7)), "torn"),
    "zeroed": (lambda disk, name, other: disk.files.__setitem__(name, bytearray(1024)), "torn"),
    "garbled": (lambda disk, name, other: disk.files[name].__setitem__(700, 1), "corrupt"),
}


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("how", DAMAGE)
def test_damage_to_an_acknowledged_name_is_found(
    make_plan: MakePlan, tmp_path: Path, workload: str, how: str
) -> None:
    """A name that is gone, or holds another's, a part, nothing, zeros or noise, is called so."""
    acked = 60 if workload == "unlink" else 90  # within the second pass, and within the third
    disk = written(make_plan, workload, acked, pattern="sequential")
    slot = steady(disk, acked)
    others = [name for name in disk.files if name not in (MAIN, f".0.{slot}")]
    spoil, finding = DAMAGE[how]
    spoil(disk, f".0.{slot}", others[-1])

    report, examples, _ = scanned(lay_down(disk, tmp_path), job_of(disk.plan, (acked,)))

    assert report.findings == {finding: 1}
    (example,) = examples
    assert (example.judgement.slot, example.judgement.suffix) == (slot, f".0.{slot}")
    assert example.data == bytes(disk.files.get(f".0.{slot}", b""))[:1024]


def test_restored_names_are_resurrected_and_stale(make_plan: MakePlan, tmp_path: Path) -> None:
    """A removed name that is back is found, also one that no rule asks for; and so is an older version."""
    created = written(make_plan, "create", 90)
    created.put(0, 3, created.record(0, 3, 4))
    unlinked = written(make_plan, "unlink", 20, pattern="sequential")
    unlinked.put(0, 5, unlinked.record(0, 5, 0))
    renamed = written(make_plan, "rename", 40, pattern="sequential")
    renamed.put(0, 2, renamed.record(0, 2, 3))

    found = []
    for disk, acked in ((created, 90), (unlinked, 20), (renamed, 40)):
        directory = tmp_path / disk.plan.workload
        directory.mkdir()
        found.append(report_of(disk, directory, acked).findings)

    assert found == [{"resurrected": 1}, {"resurrected": 1}, {"stale": 1}]


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_name_of_an_earlier_run_that_is_back_is_no_prefill(
    make_plan: MakePlan, tmp_path: Path, workload: str
) -> None:
    """`run` removed it before it was armed: no operation of this run made or removed it."""
    disk = written(make_plan, workload, 30)
    earlier = Disk(replace(disk.plan, run=disk.plan.run + 1, slots=64))
    disk.files[".0.55"] = bytearray(earlier.record(0, 55, 56 if workload == "create" else 0))

    report = report_of(disk, tmp_path, 30)

    assert_by_the_book(report, scan(disk, (30,)))
    assert report.findings == {"resurrected": 1}
    assert (report.operations_lost, report.prefill_lost, report.earlier_names_back) == (0, 0, 1)


def test_a_temporary_testifies_and_is_nothing_else(make_plan: MakePlan, tmp_path: Path) -> None:
    """A temporary file of `rename` proves that the groups before its operation were acknowledged. The file
    itself is not a finding."""
    disk = written(make_plan, "rename", 40)
    slot = disk.slot_of(0, 42)
    disk.files[f".0.{slot}.tmp"] = bytearray(disk.record(0, slot, 42))
    disk.files[".0.1.tmp"] = bytearray(b"short")

    report = report_of(disk, tmp_path, 40)

    assert report.proven == (41,)
    assert report.findings == {"stale": 1}, "41 is missing, and 42 says that it was acknowledged"
    assert report.order_violations == 1


def test_a_version_beyond_the_ceiling_is_counted_wherever_it_lies(
    make_plan: MakePlan, tmp_path: Path
) -> None:
    """In a name or a temporary, what was never allowed to be written means that the log is behind."""
    disk = written(make_plan, "rename", 40, record_bytes=SECTOR, block_bytes=SECTOR)
    for seq, temporary in ((49, ""), (50, ".tmp")):
        slot = disk.slot_of(0, seq)
        disk.files[f".0.{slot}{temporary}"] = bytearray(disk.record(0, slot, seq))

    assert report_of(disk, tmp_path, 40).above_ceiling == 2


class UnopenableStorage(KernelStorage):
    """A directory in which some names cannot even be opened."""

    def __init__(self, path: Path, errors: dict[str, int]) -> None:
        super().__init__(path)
        self._errors = errors

    def _open_reader(self, path: Path) -> KernelFile:
        code = self._errors.get(path.name.removeprefix(self.path.name), 0)
        if code:
            raise OSError(code, os.strerror(code), str(path))
        return super()._open_reader(path)


@pytest.mark.parametrize(
    ("code", "finding"),
    [(errno.EBADMSG, "absent"), (errno.EUCLEAN, "absent"), (errno.EIO, "unreadable")],
)
def test_a_name_that_does_not_open_is_gone_or_unreadable(
    make_plan: MakePlan, tmp_path: Path, code: int, finding: str
) -> None:
    """Metadata that fail their checks are as good as gone; an I/O error of the name is an I/O error."""
    disk = written(make_plan, "rename", 40)
    slot = steady(disk, 40)
    storage = UnopenableStorage(lay_down(disk, tmp_path).path, {f".0.{slot}": code})

    report, _, _ = scanned(storage, job_of(disk.plan, (40,)))

    assert report.findings == {finding: 1}


def test_a_drive_that_went_away_ends_the_scan(make_plan: MakePlan, tmp_path: Path) -> None:
    """An error that is not the medium's is no finding: the scan is unfinished and says why."""
    disk = written(make_plan, "rename", 40)
    storage = UnopenableStorage(lay_down(disk, tmp_path).path, {".0.7": errno.ENODEV})
    listener = ScanListener(tick=lambda: None, progress=lambda _: None, example=lambda _: None)

    report = scan_here(storage, job_of(disk.plan, (40,)), listener)

    assert not report.finished
    assert "No such device" in report.failure


def test_an_unreadable_sector_is_damage_only_where_a_name_is_made(
    make_plan: MakePlan, tmp_path: Path
) -> None:
    """An I/O error in the second sector of every name is a finding, but for names that were being made."""
    disk = written(make_plan, "create", 20)
    disk.write(0, 21, 22)
    storage = FailingStorage(lay_down(disk, tmp_path).path, bad=unreadable(SECTOR))
    (tmp_path / "target").unlink()  # the errors are by offset, and would be the superblocks' as well

    report, examples, _ = scanned(storage, job_of(disk.plan, (20,)))

    assert report.proven == (21,), "the first sector of 22 says so"
    assert (report.findings, report.in_flight_damaged) == ({"truncated": 2, "unreadable": 21}, 1)
    assert examples[2].data == disk.get(0, 0)[:SECTOR] + bytes(SECTOR)


def test_what_is_right_when_read_again_is_unstable(make_plan: MakePlan, tmp_path: Path) -> None:
    """A bit that flips in the first read only is no finding."""
    disk = written(make_plan, "create", 40)
    storage = FailingStorage(lay_down(disk, tmp_path).path, flips={700: 1})

    report, examples, _ = scanned(storage, job_of(disk.plan, (40,)))

    assert (report.findings, report.unstable) == ({}, 1)
    assert [example.kind for example in examples] == ["unstable"]


class UnlistableStorage(KernelStorage):
    """A directory that gives its names, but cannot be listed."""

    def suffixes(self) -> tuple[str, ...]:
        raise OSError(errno.EBADMSG, os.strerror(errno.EBADMSG))


def test_a_directory_that_cannot_be_listed_is_judged_as_far_as_it_can_be(
    make_plan: MakePlan, tmp_path: Path
) -> None:
    """Names are found by name; without a list of them the scan stays unfinished, and never durable."""
    disk = written(make_plan, "rename", 40)
    disk.remove(0, steady(disk, 40))
    storage = UnlistableStorage(lay_down(disk, tmp_path).path)
    listener = ScanListener(tick=lambda: None, progress=lambda _: None, example=lambda _: None)

    report = scan_here(storage, job_of(disk.plan, (40,)), listener)

    assert not report.finished
    assert report.findings == {"absent": 1}


def test_a_directory_that_is_gone_lacks_every_name(make_plan: MakePlan, tmp_path: Path) -> None:
    """Nothing is there: each name that was acknowledged is absent, the superblocks are truncated."""
    disk = written(make_plan, "rename", 40)
    storage = KernelStorage(tmp_path / "no" / "target")

    report, _, _ = scanned(storage, job_of(disk.plan, (40,)))

    assert report.findings == {"absent": 32, "truncated": 2}
    assert report.oldest_lost == (min(disk.newest(0, slot, 40) for slot in range(32)),)
    assert report.newest_lost == (40,)


def test_an_operation_that_lost_both_its_names_is_lost_once(make_plan: MakePlan, tmp_path: Path) -> None:
    """A drive that lost the last ten operations of `create` lacks ten names; ten removed ones are back."""
    report = report_of(written(make_plan, "create", 90), tmp_path, 100)

    assert report.findings == {"absent": 10, "resurrected": 10}
    assert (report.operations_lost, report.prefill_lost) == (10, 0)


@pytest.mark.parametrize("first", ["unreadable", "resurrected"])
def test_a_name_that_is_set_aside_takes_no_lost_operation_off(make_plan: MakePlan, first: str) -> None:
    """The new name of an operation was unreadable and the old name is back. The operation is lost, whichever
    of the two is found first."""
    plan = small(make_plan, workload="create", slots=32)
    made, removed = missing(0, 99, 2), whole(0, 67, 68, 2)
    oracle, counts = NameOracle(plan, (100,)), ScanCounts(plan)
    unreadable = replace(oracle.judge(made), finding="unreadable")
    found = [unreadable, oracle.judge(removed)]
    for judgement in found if first == "unreadable" else found[::-1]:
        counts.convict(judgement)

    none = {"proven": (0,), "newest_seen": (0,), "may_be_done": (0,)}
    assert counts.findings == {"unreadable": 1, "resurrected": 1}
    assert [counts.report(**none, finished=done).operations_lost for done in (False, True)] == [1, 1]


def test_the_control_arm_is_counted_beside_names(make_plan: MakePlan, tmp_path: Path) -> None:
    """The control arm's losses are counted apart from the findings (rule 15)."""
    disk = written(make_plan, "create", 10, control_slots=16)
    storage = lay_down(disk, tmp_path)

    report, _, _ = scanned(storage, job_of(disk.plan, (10,), control=10))
    assert (report.control_lost, report.findings) == (10, {})

    storage.path_of(CONTROL).unlink()
    report, _, _ = scanned(storage, job_of(disk.plan, (10,), control=10))
    assert (report.control_lost, report.findings) == (10, {})


@pytest.mark.slow
def test_examples_and_progress_of_many_names(make_plan: MakePlan, tmp_path: Path) -> None:
    """The first and last of many findings are kept with their bytes; progress ends at the total."""
    disk = written(make_plan, "unlink", 0, slots=400)
    for slot in range(400):
        disk.files[f".0.{slot}"] = bytearray(SECTOR)

    report, examples, told = scanned(lay_down(disk, tmp_path), job_of(disk.plan, (0,)))

    slots = [example.judgement.slot for example in examples if example.is_finding]
    assert report.findings["torn"] == 400, "a name that is taken away in flight is whole or gone"
    assert len(slots) == limits.EXAMPLES_FIRST + limits.EXAMPLES_LAST
    assert slots[:64] == sorted(slots[:64]) and slots[63] < 80
    assert all(example.data == bytes(SECTOR) for example in examples)
    ends = [progress for progress in told if progress.phase == "all names"]
    assert (ends[-1].done, ends[-1].total) == (400 * 1024, 400 * 1024)


def test_the_scan_writes_nothing(make_plan: MakePlan, tmp_path: Path) -> None:
    """Names, bytes and modification times are as they were."""
    disk = written(make_plan, "unlink", 40)
    storage = lay_down(disk, tmp_path)

    def seen() -> dict[str, tuple[bytes, int]]:
        return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.iterdir()}

    before = seen()
    scanned(storage, job_of(disk.plan, (30,)))

    assert seen() == before


def test_files_of_others_are_not_looked_at(make_plan: MakePlan, tmp_path: Path) -> None:
    """Files that only look like names of this run, of another writer or beyond its slots, say nothing."""
    disk = written(make_plan, "rename", 40)
    for suffix in (".5.0", ".0.99", ".00.1", ".0.1.tmp.tmp", ".9.9.tmp"):
        disk.files[suffix] = bytearray(b"mine")

    assert not report_of(disk, tmp_path, 40).findings


@pytest.mark.parametrize(("workload", "behind"), [("create", False), ("create", True), ("unlink", False)])
def test_a_scan_that_breaks_off_counts_what_nothing_later_explains(
    make_plan: MakePlan, tmp_path: Path, workload: str, *, behind: bool
) -> None:
    """Names are absent, and one is damaged, as if the log were behind. Of `create` no name beyond the ceiling
    shows that it is, so the damage counts; of `unlink` only the rest of the names would."""
    disk = written(make_plan, workload, 90 if behind else 40)
    disk.put(0, 20, b"\x55" * SECTOR)
    for slot in range(21, 30):
        disk.remove(0, slot)
    reports: list[ScanReport] = []
    listener = ScanListener(
        tick=lambda: None, progress=lambda one: reports.append(one.report), example=lambda _: None
    )

    scan_here(lay_down(disk, tmp_path), job_of(disk.plan, (40,)), listener)

    unfinished = [report for report in reports if report.findings.get("absent")]
    assert unfinished
    counts = workload == "create" and not behind
    assert all(bool(report.convicting) == counts for report in unfinished)
    assert not any("absent" in report.convicting for report in unfinished)
    assert all((report.oldest_lost[0] is not None) == counts for report in unfinished)
