"""Writers of names: what the directory holds when they acknowledge, in which order, and what stops them."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from durability.formats.mixing import U64
from durability.formats.plan import CONTROL, Plan
from durability.formats.versions import Versions
from durability_client.run.name_writer import group_max
from durability_client.run.shared_state import WriterState
from durability_client.target.kernel_storage import KernelDirectory, KernelFile, KernelStorage
from durability_client.target.storage import Buffer
from tests.client.run.thread_writers import ThreadWriters
from tests.client.verify.targets import job_of, scanned
from tests.core.evidence.memory_target import Disk, small
from tests.waiting import DEADLINE_S

MakePlan = Callable[..., Plan]
WORKLOADS = ("create", "rename", "unlink")


class TracedFile(KernelFile):
    """A real file that says when it is written and synced."""

    __slots__ = ("_say", "_suffix")

    def __init__(self, file: KernelFile, suffix: str, say: Callable[[str], None]) -> None:
        super().__init__(file._fd, sync=file._sync, direct=file.direct)
        self._suffix = suffix
        self._say = say

    def pwrite(self, buffer: Buffer, offset: int) -> None:
        self._say(f"write {self._suffix}")
        super().pwrite(buffer, offset)

    def sync(self) -> None:
        self._say(f"sync {self._suffix}")
        super().sync()


class TracedDirectory(KernelDirectory):
    """A real directory that says when it is synced."""

    __slots__ = ("_say",)

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        super().__init__(path)
        self._say = say

    def sync(self) -> None:
        self._say("sync directory")
        super().sync()


class TracedStorage(KernelStorage):
    """A real target that keeps in `steps` what its one writer does; `say` may fail a step."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.steps: list[str] = []

    def say(self, step: str) -> None:
        self.steps.append(step)

    def open(self, suffix: str, *, plan: Plan | None = None, create: bool = False) -> KernelFile:
        file = super().open(suffix, plan=plan, create=create)
        return file if plan is None else TracedFile(file, suffix, self.say)

    def open_directory(self) -> KernelDirectory:
        return TracedDirectory(self.path.parent, self.say)

    def rename(self, old_suffix: str, new_suffix: str) -> None:
        self.say(f"rename {old_suffix} {new_suffix}")
        super().rename(old_suffix, new_suffix)

    def unlink(self, suffix: str) -> None:
        self.say(f"unlink {suffix}")
        super().unlink(suffix)


class FailingStorage(TracedStorage):
    """Such a target that gives EIO at the n-th of a kind of step."""

    def __init__(self, path: Path, kind: str, number: int) -> None:
        super().__init__(path)
        self._kind, self._left = kind, number

    def say(self, step: str) -> None:
        super().say(step)
        self._left -= step.startswith(self._kind)
        if self._left == 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))


def names_plan(make_plan: MakePlan, workload: str, **changes: Any) -> Plan:
    """32 names of each writer, so that every name turns over often."""
    fields = {"record_bytes": 4096, "block_bytes": 4096, "slots": 32, "credit": 8, **changes}
    return small(make_plan, workload=workload, **fields)


def assert_holds(storage: KernelStorage, frontiers: list[int], plan: Plan) -> None:
    """The directory has exactly the names of the operations up to `frontiers`, each with all its bytes."""
    disk = Disk(plan)
    for writer, frontier in enumerate(frontiers):
        disk.write_to(writer, frontier)
    expected = {suffix: bytes(data) for suffix, data in disk.files.items() if suffix not in ("", CONTROL)}
    assert {
        suffix: storage.path_of(suffix).read_bytes() for suffix in storage.suffixes() if suffix != CONTROL
    } == expected


@pytest.mark.slow
@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize(
    "how",
    [
        {"sync": "fdatasync"},
        {"sync": "fsync", "group": 3, "credit": 6, "direct": True},
        {"sync": "dsync", "direct": True},
        {"sync": "rwf-dsync", "record_bytes": 512, "block_bytes": 512},
        {"group": 40, "credit": 80, "slots": 320},
    ],
)
def test_the_directory_holds_exactly_what_was_acknowledged(
    tmp_path: Path, memory_path: Path, make_plan: MakePlan, workload: str, how: dict[str, Any]
) -> None:
    """After a clean stop in the third pass names are there or gone, with contents, as the plan says."""
    plan = names_plan(make_plan, workload, writers=2, **how)
    storage = KernelStorage((tmp_path if plan.direct else memory_path) / "target")
    writers = ThreadWriters(plan, storage)
    writers.start(0, 1)

    def third_pass() -> bool:
        writers.shared.grant(tuple(writers.shared.frontiers()))
        return min(writers.shared.frontiers()) > 2 * plan.slots + 5

    writers.until(third_pass)
    frontiers = writers.finish()
    assert all(frontier % plan.group == 0 for frontier in frontiers)
    assert_holds(storage, frontiers, plan)


STEPS = {
    "create": ["write .0.{0}", "write .0.{1}", "sync .0.{0}", "sync .0.{1}", "sync directory"],
    "rename": [
        "write .0.{0}.tmp",
        "write .0.{1}.tmp",
        "sync .0.{0}.tmp",
        "sync .0.{1}.tmp",
        "rename .0.{0}.tmp .0.{0}",
        "rename .0.{1}.tmp .0.{1}",
        "sync directory",
    ],
    "unlink": ["unlink .0.{0}", "unlink .0.{1}", "sync directory"],
}


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_group_is_its_files_then_one_directory_sync(
    memory_path: Path, make_plan: MakePlan, workload: str
) -> None:
    """Files are synced before they are renamed, and names before they are acknowledged, all of a group."""
    plan = names_plan(make_plan, workload, group=2)
    storage = TracedStorage(memory_path / "target")
    writers = ThreadWriters(plan, storage)
    writers.start(0)
    writers.until(lambda: writers.shared.state(0) == WriterState.OUT_OF_CREDIT)
    writers.finish()
    first, second = Versions(plan).slots_of(0, np.array([1, 2], dtype=U64)).tolist()
    steps = [step.format(first, second) for step in STEPS[workload]]
    assert storage.steps[: len(steps)] == steps
    assert storage.steps.count("sync directory") == plan.credit // plan.group


@pytest.mark.parametrize("workload", ["create", "unlink"])
def test_a_name_is_made_and_removed_in_turn(memory_path: Path, make_plan: MakePlan, workload: str) -> None:
    """`create` removes its oldest name before it makes one too many; `unlink` makes again what it removed."""
    plan = names_plan(make_plan, workload, pattern="sequential")
    storage = TracedStorage(memory_path / "target")
    writers = ThreadWriters(plan, storage)
    writers.start(0)

    def second_pass() -> bool:
        writers.shared.grant(tuple(writers.shared.frontiers()))
        return writers.shared.frontiers()[0] > plan.slots

    writers.until(second_pass)
    writers.finish()
    made = ".0.32" if workload == "create" else ".0.0"
    at = storage.steps.index(f"write {made}")
    assert storage.steps[at : at + 3] == [f"write {made}", f"sync {made}", "sync directory"]
    assert (storage.steps[at - 1] == "unlink .0.0") == (workload == "create")
    assert not any(step.startswith("unlink .0.0") for step in storage.steps[at:])


@pytest.mark.parametrize("workload", ["rename", "unlink"])
def test_a_group_may_have_the_same_name_twice(memory_path: Path, make_plan: MakePlan, workload: str) -> None:
    """Where one pass ends and the next begins on the same name within a group, both operations are done."""
    last = 34
    plan = next(
        plan
        for plan in (
            names_plan(make_plan, workload, slots=last, group=4, seed=seed) for seed in range(1, 500)
        )
        if len(set(plan.schedule(0).slot_of(np.array([last, last + 1], dtype=U64)).tolist())) == 1
    )
    storage = KernelStorage(memory_path / "target")
    writers = ThreadWriters(plan, storage)
    writers.start(0)

    def past_the_end() -> bool:
        writers.shared.grant(tuple(writers.shared.frontiers()))
        return writers.shared.frontiers()[0] > 2 * last + 4

    writers.until(past_the_end)
    assert_holds(storage, writers.finish(), plan)


@pytest.mark.parametrize(
    ("workload", "kind", "number", "frontier", "seq"),
    [
        ("create", "write", 3, 2, 3),
        ("create", "sync .", 5, 4, 6),
        ("rename", "sync directory", 2, 2, 4),
        ("rename", "rename", 2, 0, 2),
        ("unlink", "unlink", 7, 6, 7),
        ("unlink", "sync directory", 1, 0, 2),
    ],
)
def test_the_first_error_ends_the_writer(  # noqa: PLR0917 - the parameters of a matrix
    memory_path: Path, make_plan: MakePlan, workload: str, kind: str, number: int, frontier: int, seq: int
) -> None:
    """Whichever step fails, its group is not acknowledged, nothing is retried, and the shared state says
    why."""
    storage = FailingStorage(memory_path / "target", kind, number)
    writers = ThreadWriters(names_plan(make_plan, workload, group=2), storage)
    writers.start(0)
    assert writers.join() == [frontier]
    failure = writers.shared.first_failure()
    assert failure is not None and (failure.errno, failure.seq) == (errno.EIO, seq)
    assert sum(step.startswith(kind) for step in storage.steps) == number
    assert storage.steps[-1].startswith(kind)


def test_a_file_of_somebody_else_is_not_written_to(memory_path: Path, make_plan: MakePlan) -> None:
    """A name that appears where the next one belongs ends the run, and keeps its content."""
    plan = names_plan(make_plan, "create")
    writers = ThreadWriters(plan, KernelStorage(memory_path / "target"))
    writers.start(0)
    writers.until(lambda: writers.shared.state(0) == WriterState.OUT_OF_CREDIT)
    (memory_path / "target.0.9").write_text("mine")
    writers.shared.grant((8,))
    assert writers.join() == [9]
    failure = writers.shared.first_failure()
    assert failure is not None and failure.errno == errno.EEXIST
    assert (memory_path / "target.0.9").read_text() == "mine"


@pytest.mark.parametrize(("method", "flag"), [("dsync", os.O_DSYNC), ("osync", os.O_SYNC), ("fsync", 0)])
def test_every_file_is_opened_by_the_plans_sync_method(
    memory_path: Path, make_plan: MakePlan, method: str, flag: int
) -> None:
    """Where each write syncs itself, that holds for each file that is made."""
    flags: list[int] = []

    class Storage(KernelStorage):
        def open(self, suffix: str, *, plan: Plan | None = None, create: bool = False) -> KernelFile:
            file = super().open(suffix, plan=plan, create=create)
            flags.append(fcntl.fcntl(file._fd, fcntl.F_GETFL))
            return file

    writers = ThreadWriters(names_plan(make_plan, "rename", sync=method), Storage(memory_path / "target"))
    writers.start(0)
    writers.until(lambda: writers.shared.state(0) == WriterState.OUT_OF_CREDIT)
    writers.finish()
    assert len(flags) == 8
    assert {value & os.O_SYNC for value in flags} == {flag}


@pytest.mark.slow
def test_a_group_fits_the_descriptors_that_a_process_may_have() -> None:
    """The limit on groups follows the system's limit on open files."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert group_max() < hard or hard == resource.RLIM_INFINITY
    program = (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200))\n"
        "from durability_client.run import name_writer\n"
        "name_writer._allow_descriptors(name_writer.group_max())\n"
        "print(name_writer.group_max(), resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split(maxsplit=1) == ["136", "(200, 200)\n"]


CLIENT = """
import sys
from durability.formats.plan import Plan
from durability_client.run.writer_processes import WriterProcesses
from durability_client.run.shared_state import Order
from durability_client.target.kernel_storage import KernelStorage
from durability_client.target.target_files import TargetFiles

if __name__ == "__main__":
    plan = Plan.decode(bytes.fromhex(sys.argv[2]))
    storage = KernelStorage(sys.argv[1])
    TargetFiles(storage, plan).create()
    writers = WriterProcesses(plan, storage)
    writers.start()
    writers.shared.give_order(Order.GO)
    while min(writers.shared.frontiers()) < int(sys.argv[3]):
        pass
    print(*writers.shared.frontiers(), flush=True)
    print(*(member.pid for member in writers._members), flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("group", [1, 5])
def test_a_writer_that_is_killed_leaves_what_it_acknowledged(
    memory_path: Path, make_plan: MakePlan, workload: str, group: int
) -> None:
    """SIGKILL of the writers at any step leaves names that are legal, and all that was acknowledged."""
    plan = names_plan(make_plan, workload, writers=2, slots=2000, credit=500, group=group)
    script = memory_path / "client.py"
    script.write_text(CLIENT)
    storage = KernelStorage(memory_path / "target")
    command = [sys.executable, str(script), str(storage.path), plan.encode().hex(), "50"]
    client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    acked = tuple(int(frontier) for frontier in client.stdout.readline().split())
    writers = [os.pidfd_open(int(pid)) for pid in client.stdout.readline().split()]
    for writer in writers:
        signal.pidfd_send_signal(writer, signal.SIGKILL)
        assert select.select([writer], [], [], DEADLINE_S)[0]
        os.close(writer)
    client.kill()
    client.communicate()
    report, examples, _ = scanned(storage, job_of(plan, acked))
    assert report.finished
    assert not report.findings, [example.judgement.text for example in examples]
    assert report.above_ceiling == 0
    assert all(found >= known for found, known in zip(report.proven, acked, strict=True))
