"""Counters of power losses are read again while a run writes, and never what a cut may have counted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from durability.formats.facts import Drive
from durability.formats.plan import Plan
from durability_client.run.power_loss_counters import EVERY_NS, STOOD_STILL_NS, THREAD, PowerLossCounters
from durability_client.run.shared_state import SharedState
from durability_client.run.statistics_collector import StatisticsCollector
from durability_client.target.kernel_storage import KernelStorage
from tests.sample_facts import drive, facts

SECOND_NS = 1_000_000_000


def wait_for_answers() -> None:
    """Until the drives have answered that were asked."""
    for thread in threading.enumerate():
        if thread.name == THREAD:
            thread.join()


class Read:
    """Two drives, of which the second has no counter, and a clock."""

    def __init__(self, answer: int | None) -> None:
        self.now_ns = 0
        self.answer = answer
        self.asked: list[str] = []
        bare = drive(name="sdb", unsafe_shutdowns=None)
        self.counters = PowerLossCounters((drive(), bare), self.read, clock_ns=lambda: self.now_ns)

    def read(self, asked: Drive) -> int | None:
        self.asked.append(asked.name)
        return self.answer

    def next_second(self, after_ns: int = SECOND_NS) -> tuple[int | None, ...]:
        self.now_ns += after_ns
        self.counters.next_second()
        wait_for_answers()
        return self.counters.newest


def test_counters_are_read_once_a_minute() -> None:
    """And only those that could be read at arming."""
    drives = Read(4)
    for _ in range(EVERY_NS // SECOND_NS - 1):
        assert drives.next_second() == (3, None)
    assert drives.asked == []
    assert drives.next_second() == (4, None)
    drives.next_second()
    assert drives.asked == ["sda"]


def test_counters_are_read_after_the_machine_stood_still() -> None:
    """It may have slept, and its drives lost their power meanwhile."""
    drives = Read(4)
    assert drives.next_second(STOOD_STILL_NS) == (3, None)
    assert drives.next_second(STOOD_STILL_NS + 1) == (4, None)


@pytest.mark.parametrize("answer", [None, 2])
def test_a_drive_that_does_not_answer_keeps_its_counter(answer: int | None) -> None:
    """So does one that says less than before, which no counter does."""
    assert Read(answer).next_second(EVERY_NS) == (3, None)


def test_drives_without_counters_are_not_asked() -> None:
    """Nothing is reported of them either."""
    drives = Read(4)
    drives.counters = PowerLossCounters(
        (drive(unsafe_shutdowns=None),), drives.read, clock_ns=lambda: drives.now_ns
    )
    assert (drives.next_second(EVERY_NS), drives.asked) == ((), [])


def test_a_run_reports_what_it_read_last(make_plan: Callable[..., Plan], tmp_path: Path) -> None:
    """With its statistics, which the server keeps."""
    collector = StatisticsCollector(make_plan(), KernelStorage(tmp_path / "target"), SharedState(3))
    assert collector.statistics(1.0).unsafe_shutdowns == ()
    collector.armed(facts(drives=(drive(), drive(name="sdb", unsafe_shutdowns=None))))
    assert collector.statistics(1.0).unsafe_shutdowns == (3, None)


def test_a_drive_that_came_anew_is_not_believed(tmp_path: Path) -> None:
    """It may have counted the very cut, and its name may be another drive's."""
    storage = KernelStorage(tmp_path / "target")
    assert storage.unsafe_shutdowns(replace(drive(name="no-such-drive"), diskseq=None)) is None
    assert storage.unsafe_shutdowns(drive(name="no-such-drive")) is None
