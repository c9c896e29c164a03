"""Disturbances: named by what the system shows, and waited for within bounds."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from durability.bench.result_warnings import IDLE_PER_S_MAX
from durability_client.bench.measure.cost_meter import Meter, Spent
from durability_client.bench.measure.disturbances import Settled, disturbances, wait_until_idle
from durability_client.system.block_devices import DiskCounters
from durability_client.system.other_programs import Program, kernel_threads
from durability_client.target.kernel_storage import KernelStorage
from tests import sample_facts
from tests.core.bench.results import facts
from tests.waiting import DEADLINE_S, wait_for

MakeLoop = Callable[..., Path]
WRITES = 64  # that a noise makes at a time


def _alone(writes: int, seconds: float = 1.0, *, kib_each: int = 4) -> Spent:
    counters = DiskCounters(reads=0, writes=writes, write_kib=kib_each * writes, flushes=0)
    return Spent(seconds=seconds, kernel_us=None, disks={"sda": counters})


def _thread(proc: Path, name: str) -> None:
    directory = proc / "812"
    directory.mkdir()
    (directory / "stat").write_text(f"812 ({name}) S 2 0 0\n")


@pytest.mark.parametrize(
    ("kind", "thread", "kib", "named"),
    [
        ("ext4", "ext4lazyinit", 512, True),
        ("ext4", "ext4lazyinit", 0, False),  # it writes another file system, on another drive
        ("ext4", "ext4lazyinit", 4, False),  # so it does here, and one file of ours was written back
        ("ext4", "jbd2/sda-8", 512, False),
        ("xfs", "ext4lazyinit", 512, False),
    ],
)
def test_a_new_ext4_is_named(tmp_path: Path, kind: str, thread: str, kib: int, *, named: bool) -> None:
    """The kernel's thread lives, the target is on ext4 and its drive gets whole tables: wait, or remake
    it."""
    _thread(tmp_path, thread)
    where = facts(file_system=sample_facts.file_system(type=kind))
    found = list(disturbances(where, _alone(1, kib_each=kib), None, proc=tmp_path, sys=tmp_path))
    assert [one.code for one in found] == (["new-file-system"] if named else [])
    assert not named or "lazy_itable_init=0" in found[0].text


def test_an_array_that_is_copied_is_named(tmp_path: Path) -> None:
    """An md array below the target that is resyncing is reported as a disturbance; an idle array is not."""
    for name, action in (("md0", "resync"), ("md1", "idle")):
        (tmp_path / "block" / name / "md").mkdir(parents=True)
        (tmp_path / "block" / name / "md" / "sync_action").write_text(f"{action}\n")
    where = facts(layers=("md0 (md raid1)", "md1 (md raid1)", "sda (drive)"))
    (found,) = disturbances(where, _alone(0), None, proc=tmp_path, sys=tmp_path)
    assert (found.code, found.text) == ("resync", "md0 does a resync: wait until it has ended")


def test_the_program_that_wrote_the_most_is_named(tmp_path: Path) -> None:
    """A busy drive has its requests and, if known, a name; a few requests are none."""
    writer = Program(pid=4321, name="postgres", written_bytes=12_300_000)
    (found,) = disturbances(facts(), _alone(300), writer, proc=tmp_path, sys=tmp_path)
    assert found.code == "busy-drive"
    assert found.text == (
        "sda got 300 requests per second from other programs before the first round;"
        " postgres (pid 4321) wrote the most, 12.3 MB/s"
    )
    (nameless,) = disturbances(facts(), _alone(300), None, proc=tmp_path, sys=tmp_path)
    assert nameless.text.endswith("before the first round")
    assert list(disturbances(facts(), _alone(5), writer, proc=tmp_path, sys=tmp_path)) == []


class Ear:
    """Remembers what it is told, and does something when it hears that a drive is waited for."""

    def __init__(self, when_waiting: Callable[[], None] = lambda: None) -> None:
        self.said: list[str] = []
        self.left: list[float] = []
        self._when_waiting = when_waiting

    def say(self, text: str) -> None:
        self.said.append(text)

    def measuring(self, doing: str, done_s: float, left_s: float) -> None:
        assert doing == "waiting for an idle drive" and done_s >= 0
        self.left.append(left_s)
        self._when_waiting()


class Noise:
    """A program that writes to a drive all the time, until it is told to stop."""

    def __init__(self, drive: Path) -> None:
        self._stop = threading.Event()
        self._written = 0
        self.mark()
        self._thread = threading.Thread(target=self._write, args=(drive,))
        self._thread.start()

    def _write(self, drive: Path) -> None:
        flags = ("bs=4k", f"count={WRITES}", "oflag=direct", "status=none")
        command = ("dd", "if=/dev/zero", f"of={drive}", *flags)
        while not self._stop.is_set():
            subprocess.run(command, check=True)
            self._written += WRITES

    def mark(self) -> None:
        """What is written from now on counts for `heard`."""
        self._before, self._since_s = self._written, time.monotonic()

    def heard(self, look: Callable[[], Settled]) -> Settled:
        """What `look` finds. If the machine stood still, so that far fewer than usual were written since the
        last mark, it looks again."""
        deadline_s = time.monotonic() + DEADLINE_S
        while True:
            self.mark()
            settled = look()
            per_s = (self._written - self._before) / (time.monotonic() - self._since_s)
            if self._stop.is_set() or per_s > 2 * IDLE_PER_S_MAX:
                return settled
            assert time.monotonic() < deadline_s, per_s

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


@pytest.mark.slow
def test_a_busy_drive_is_waited_for_until_it_is_idle(memory_drive: Path) -> None:
    """Others write, and stop while they are waited for: nothing is left of it but two sentences."""
    noise = Noise(memory_drive)
    ear = Ear(noise.stop)
    where, meter = KernelStorage(memory_drive).facts(), Meter([memory_drive.name])
    settled = noise.heard(lambda: wait_until_idle(meter, where, ear, idle_s=0.3, wait_s=DEADLINE_S))
    noise.stop()
    assert settled.disturbances == ()
    assert ear.said[0].startswith(f"waiting for an idle drive, 60 s at most: {memory_drive.name} got ")
    assert ear.said[1].startswith("the drive was idle after") and len(ear.said) == 2
    assert ear.left and all(left > 0 for left in ear.left)


@pytest.mark.slow
def test_a_drive_that_stays_busy_is_measured_after_the_time_given(memory_drive: Path) -> None:
    """The wait ends, the disturbance is kept and told; with 0 nothing is waited for, and nothing is told."""
    noise = Noise(memory_drive)
    where, meter = KernelStorage(memory_drive).facts(), Meter([memory_drive.name])
    try:
        ear, silent = Ear(noise.mark), Ear()
        settled = noise.heard(lambda: wait_until_idle(meter, where, ear, idle_s=0.3, wait_s=6))
        at_once = noise.heard(lambda: wait_until_idle(meter, where, silent, idle_s=0.3, wait_s=0))
    finally:
        noise.stop()
    assert [one.code for one in settled.disturbances] == ["busy-drive"]
    assert ear.said[-1].endswith("--wait SECONDS waits longer")
    assert [one.code for one in at_once.disturbances] == ["busy-drive"] and silent.said == []


@pytest.mark.slow
def test_the_kernel_writes_a_new_ext4(make_loop: MakeLoop, tmp_path: Path) -> None:
    """A file system that mkfs left without tables is named while the thread of the kernel writes them."""
    device, directory = make_loop(64 << 30), tmp_path / "new"
    directory.mkdir()
    subprocess.run(("mkfs.ext4", "-q", "-E", "lazy_itable_init=1", device), check=True)
    slowly = "init_itable=200"  # it waits 200 times as long as a table takes: it is not soon over
    subprocess.run(("mount", "-o", slowly, device, directory), check=True)
    try:
        where, meter = KernelStorage(directory / "file").facts(), Meter([device.name])
        named: list[str] = []

        def is_named() -> bool:
            named[:] = [one.code for one in disturbances(where, meter.leave_alone(0.3), None)]
            return "new-file-system" in named

        wait_for(is_named, lambda: f"{named}, and the thread lives: {'ext4lazyinit' in kernel_threads()}")
    finally:
        subprocess.run(("umount", directory), check=True)
