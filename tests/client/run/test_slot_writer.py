"""Writers: what is on the target when they acknowledge, and when they must not acknowledge."""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from durability.errors import TargetBusyError
from durability.formats.mixing import U64
from durability.formats.plan import Extent, Plan
from durability.formats.record import parse
from durability_client.run.shared_state import SharedState, WriterFailure, WriterState
from durability_client.run.slot_writer import write_records
from durability_client.target.kernel_storage import KernelFile, KernelStorage
from durability_client.target.storage import Buffer
from tests.client.run.thread_writers import ThreadWriters
from tests.waiting import DEADLINE_S

MakePlan = Callable[..., Plan]


class Gate(KernelFile):
    """A real file that counts its calls and runs `before_sync(commit)` before each sync."""

    __slots__ = ("before_sync", "syncs", "writes")

    def __init__(self, file: KernelFile, before_sync: Callable[[int], None]) -> None:
        super().__init__(file._fd, sync=file._sync, direct=file.direct)
        self.before_sync = before_sync
        self.writes = self.syncs = 0

    def pwrite(self, buffer: Buffer, offset: int) -> None:
        super().pwrite(buffer, offset)
        self.writes += 1

    def sync(self) -> None:
        self.before_sync(self.syncs)
        super().sync()
        self.syncs += 1


class GatedStorage(KernelStorage):
    """A real target whose writers' files are gates, kept in `gates`."""

    def __init__(self, path: Path, before_sync: Callable[[int], None] = lambda commit: None) -> None:
        super().__init__(path)
        self.before_sync = before_sync
        self.gates: list[Gate] = []

    def open(self, suffix: str, *, plan: Plan | None = None, create: bool = False) -> KernelFile:
        file = super().open(suffix, plan=plan, create=create)
        if plan is None:
            return file
        self.gates.append(Gate(file, self.before_sync))
        return self.gates[-1]


def newest_seqs(plan: Plan, path: Path, writer: int) -> list[int]:
    """The seq that each slot of an overwrite writer holds, all of its sectors intact and in place."""
    extent = plan.extent(writer)
    with path.open("rb") as file:
        file.seek(extent.offset_bytes)
        sectors = parse(file.read(extent.slots * extent.record_bytes))
    per_record = plan.record_bytes // 512
    assert sectors.intact.all() and (sectors.writer == writer).all() and (sectors.run == plan.run).all()
    seqs = sectors.seq.reshape(-1, per_record)
    assert (seqs == seqs[:, :1]).all()
    assert (sectors.slot.reshape(-1, per_record) == np.arange(plan.slots)[:, None]).all()
    return [int(seq) for seq in seqs[:, 0]]


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["random", "sequential"])
@pytest.mark.parametrize(
    "how",
    [
        {"sync": "fdatasync"},
        {"sync": "fsync", "group": 7, "direct": True},
        {"sync": "dsync", "direct": True},
        {"sync": "rwf-dsync"},
        {"sync": "fdatasync", "record_bytes": 1536, "slots": 700},  # batches of 682 of 1024 slots ahead
    ],
)
def test_the_target_holds_exactly_what_was_acknowledged(
    tmp_path: Path, make_plan: MakePlan, pattern: str, how: dict[str, object]
) -> None:
    """After a clean stop every slot of every writer holds the newest record up to its frontier."""
    plan = make_plan(pattern=pattern, **{"slots": 64, "credit": 16, "control_slots": 0, **how})
    writers = ThreadWriters(plan, KernelStorage(tmp_path / "target"))
    writers.start(0, 1)

    def two_passes() -> bool:
        writers.shared.grant(tuple(writers.shared.frontiers()))
        return min(writers.shared.frontiers()) > 2 * plan.slots

    writers.until(two_passes)
    frontiers = writers.finish()
    for writer, frontier in enumerate(frontiers):
        assert frontier % plan.group == 0
        found = newest_seqs(plan, tmp_path / "target", writer)
        assert found == plan.schedule(writer).newest_at(np.arange(plan.slots, dtype=U64), frontier).tolist()


def test_a_writer_without_credit_waits_and_goes_on(tmp_path: Path, make_plan: MakePlan) -> None:
    """Nothing beyond the grant plus the credit is issued, and whole groups only; a grant sets it free."""
    plan = make_plan(writers=1, slots=400, group=3, credit=100, control_slots=0)
    storage = GatedStorage(tmp_path / "target")
    writers = ThreadWriters(plan, storage)
    writers.start(0)
    writers.until(lambda: writers.shared.state(0) == WriterState.OUT_OF_CREDIT)
    assert (writers.shared.frontiers(), storage.gates[0].writes) == ([99], 99)
    writers.shared.grant((50,))
    writers.until(lambda: writers.shared.frontiers() == [150])
    writers.until(lambda: writers.shared.state(0) == WriterState.OUT_OF_CREDIT)
    assert (writers.finish(), storage.gates[0].writes) == ([150], 150)
    assert writers.shared.state(0) == WriterState.DONE


def test_each_group_has_one_sync(tmp_path: Path, make_plan: MakePlan) -> None:
    """With --group N there is one sync per N writes."""
    plan = make_plan(writers=1, slots=400, group=10, credit=100, control_slots=0)
    storage = GatedStorage(tmp_path / "target")
    writers = ThreadWriters(plan, storage)
    writers.start(0)
    writers.until(lambda: writers.shared.frontiers() == [100])
    writers.finish()
    assert (storage.gates[0].writes, storage.gates[0].syncs) == (100, 10)


def test_an_error_of_the_sync_is_not_acknowledged_and_not_retried(
    tmp_path: Path, make_plan: MakePlan
) -> None:
    """The first failing sync ends the writer: its frontier stays, errno and seq are in the shared state."""

    def fail_fourth(commit: int) -> None:
        if commit == 3:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    storage = GatedStorage(tmp_path / "target", fail_fourth)
    writers = ThreadWriters(make_plan(writers=1, control_slots=0), storage)
    writers.start(0)
    assert writers.join() == [3]
    failure = writers.shared.first_failure()
    assert failure is not None and (failure.errno, failure.seq, failure.writer) == (errno.EIO, 4, 0)
    assert (storage.gates[0].syncs, storage.gates[0].writes) == (3, 4)
    assert writers.shared.state(0) == WriterState.FAILED


def test_a_sync_that_returns_after_another_writers_error_is_not_acknowledged(
    tmp_path: Path, make_plan: MakePlan
) -> None:
    """A writer inside a sync when the target fails elsewhere ends without publishing that sync."""
    inside, go_on = threading.Event(), threading.Event()

    def wait_in_third(commit: int) -> None:
        if commit == 2:
            inside.set()
            assert go_on.wait(DEADLINE_S)

    writers = ThreadWriters(
        make_plan(writers=2, control_slots=0), GatedStorage(tmp_path / "target", wait_in_third)
    )
    writers.start(0)
    assert inside.wait(DEADLINE_S)
    writers.shared.fail(WriterFailure(at_ns=1, writer=1, errno=errno.EIO, seq=1, text="elsewhere"))
    go_on.set()
    assert writers.join() == [2, 0]
    assert writers.shared.state(0) == WriterState.DONE


def test_a_defect_of_the_writer_is_told_from_an_error_of_the_target(
    tmp_path: Path, make_plan: MakePlan
) -> None:
    """An exception that is no OSError halts the run as a crash of this tool, errno 0."""

    def crash(commit: int) -> None:
        raise ZeroDivisionError("in the tool")

    writers = ThreadWriters(make_plan(writers=1, control_slots=0), GatedStorage(tmp_path / "target", crash))
    writers.start(0)
    assert writers.join() == [0]
    failure = writers.shared.first_failure()
    assert failure is not None and (failure.errno, failure.text) == (0, "ZeroDivisionError: in the tool")
    assert writers.shared.state(0) == WriterState.CRASHED


class Unusable(Plan):
    """A plan for which no writer can be made: it needs more memory than there is."""

    def extent(self, writer: int, number: int = 0) -> Extent:
        raise MemoryError("no room for the records")


def test_a_writer_that_cannot_be_made_says_so(tmp_path: Path, make_plan: MakePlan) -> None:
    """An error before a writer runs ends the run like a later error, with the error's text."""
    shared = SharedState(2)
    arguments = (Unusable(**asdict(make_plan())), 1, KernelStorage(tmp_path / "target"), shared)
    writer = threading.Thread(target=write_records, args=arguments)  # blocks the signals of its thread
    writer.start()
    writer.join()
    failure = shared.first_failure()
    assert failure is not None and shared.halted and shared.state(1) == WriterState.CRASHED
    assert (failure.writer, failure.errno, failure.seq) == (1, 0, 0)
    assert failure.text == "MemoryError: no room for the records"


@pytest.mark.parametrize("group", [1, 7])
def test_a_log_rotates_to_a_new_file_and_never_has_more_than_three(
    tmp_path: Path, make_plan: MakePlan, group: int
) -> None:
    """Append goes on in the next generation when a file is full; the records are where the plan says."""
    plan = make_plan(
        workload="append", pattern="sequential", writers=1, slots=64, credit=14, group=group, control_slots=0
    )
    storage = KernelStorage(tmp_path / "target")
    writers = ThreadWriters(plan, storage)
    writers.start(0)

    def past_four_files() -> bool:
        writers.shared.grant(tuple(writers.shared.frontiers()))
        assert len(storage.suffixes()) <= 3
        return writers.shared.frontiers()[0] > 4 * plan.slots + 10

    writers.until(past_four_files)
    (frontier,) = writers.finish()
    last = frontier // plan.slots
    assert storage.suffixes()[-1] in (f".0.{last}", f".0.{last - 1}")
    for generation in range(last - 1, last + 1):
        extent = plan.extent(0, generation)
        file = tmp_path / f"target{extent.suffix}"
        expected = np.arange(extent.first_slot, min(extent.first_slot + plan.slots, frontier))
        sectors = parse(file.read_bytes()[: len(expected) * plan.record_bytes])
        assert sectors.intact.all()
        assert sectors.seq.tolist() == np.repeat(expected + 1, plan.record_bytes // 512).tolist()


def test_the_control_arm_writes_at_its_pace_and_never_syncs(tmp_path: Path, make_plan: MakePlan) -> None:
    """Completed control writes are published one by one, no faster than the interval, without a sync."""
    plan = make_plan(control_slots=8, control_interval_us=2000)
    writers = ThreadWriters(plan, GatedStorage(tmp_path / "target"))
    began = time.monotonic()
    writers.start(plan.control_writer)
    writers.until(lambda: writers.shared.frontiers()[plan.control_writer] >= 20)
    completed = writers.finish()[plan.control_writer]
    assert completed - 1 <= (time.monotonic() - began) / 0.002
    sectors = parse((tmp_path / "target.control").read_bytes())
    expected = plan.schedule(plan.control_writer).newest_at(np.arange(8, dtype=U64), completed)
    assert sectors.seq[:: plan.control_record_bytes // 512].tolist() == expected.tolist()


ORPHANS = """
import sys
from durability.formats.plan import Plan
from durability_client.run.writer_processes import WriterProcesses
from durability_client.run.shared_state import Order
from durability_client.target.kernel_storage import KernelStorage
from durability_client.target.target_files import TargetFiles

if __name__ == "__main__":
    plan = Plan.decode(bytes.fromhex(sys.argv[2]))
    storage = KernelStorage(sys.argv[1])
    storage.lock(create=True)
    TargetFiles(storage, plan).create()
    writers = WriterProcesses(plan, storage)
    writers.start()
    writers.shared.give_order(Order.GO)
    while min(writers.shared.frontiers()) < 1:
        pass
    print(*(member.pid for member in writers._members), flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
def test_a_target_is_held_until_the_last_writer_is_gone(tmp_path: Path, make_plan: MakePlan) -> None:
    """The client is killed while its drive keeps a writer waiting: the target is still held."""
    script, target = tmp_path / "orphans.py", tmp_path / "target"
    script.write_text(ORPHANS)
    plan = make_plan(credit=20, slots=100, control_slots=0)
    command = [sys.executable, str(script), str(target), plan.encode().hex()]
    client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    writers = [os.pidfd_open(int(pid)) for pid in client.stdout.readline().split()]
    for writer in writers:  # as one that waits for its drive
        signal.pidfd_send_signal(writer, signal.SIGSTOP)
    client.kill()
    client.wait()
    storage = KernelStorage(target)
    with pytest.raises(TargetBusyError, match="another run or verify holds it"):
        storage.lock()
    for writer in writers:
        signal.pidfd_send_signal(writer, signal.SIGKILL)
        assert select.select([writer], [], [], DEADLINE_S)[0]
        os.close(writer)
    storage.lock()
    storage.unlock()
    client.communicate()


@pytest.mark.slow
def test_writers_do_not_outlive_the_process_that_started_them(tmp_path: Path, make_plan: MakePlan) -> None:
    """When the client is killed, its writers stop by themselves, one that waits for credit included."""
    script = tmp_path / "orphans.py"
    script.write_text(ORPHANS)
    plan = make_plan(credit=20, slots=100, control_slots=0)
    command = [sys.executable, str(script), str(tmp_path / "target"), plan.encode().hex()]
    client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    writers = [os.pidfd_open(int(pid)) for pid in client.stdout.readline().split()]
    assert len(writers) == 2
    client.send_signal(signal.SIGKILL)
    client.communicate()
    for writer in writers:
        assert select.select([writer], [], [], DEADLINE_S)[0], "a writer outlived its client"
        os.close(writer)
