"""`run` whole: a real server, real files, writer processes, and every way in which a run can end."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import multiprocessing
import os
import re
import resource
import signal
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from durability import limits
from durability.errors import (
    EXIT_OK,
    NOT_ACCEPTED,
    NOT_STARTED,
    DurabilityError,
    PeerError,
    RefusedError,
    SetupError,
    TargetError,
    UsageError,
)
from durability.evidence.identity import target_tag
from durability.formats.facts import Facts
from durability.formats.mixing import U64
from durability.formats.plan import MAIN, Plan, TargetKind
from durability.formats.record import parse
from durability.protocol.messages import CaseFile, Export, Fetch, Show, Shown
from durability_client.link.server_connection import connect
from durability_client.run.planning import RunOptions, check_options, make_plan
from durability_client.run.run_command import CLEAN_END, HANGING_PREFILL, RunSummary, run
from durability_client.system.processes import CONTEXT
from durability_client.target import safety_checks
from durability_client.target.kernel_storage import KernelStorage
from durability_client.target.storage import DriveLook
from durability_lab.drive.faults import Honest
from durability_lab.simulated_rig.simulated_storage import SimulatedDriveWatch, SimulatedStorage
from durability_server.server import Server
from durability_server.store import store as store_module
from tests import sample_facts
from tests.client.verify.targets import existing_plan, job_of, scanned
from tests.joined import NOWHERE, joined
from tests.opal_drives import LOCKED, opal_says
from tests.waiting import DEADLINE_S, until

pytestmark = pytest.mark.slow  # whole runs, of seconds each

SIZE_BYTES = 4 << 20


class Lines(io.StringIO):
    """The JSON lines of a run; waits for one of a state."""

    def __init__(self) -> None:
        super().__init__()
        self._written = asyncio.Event()

    def write(self, text: str) -> int:
        self._written.set()
        return super().write(text)

    @property
    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]

    async def until_under_way(self, task: asyncio.Task[RunSummary]) -> dict[str, Any]:
        """The first line after the start of the writers, which use up a small target's credit at once."""
        return await self.until(("running", "waiting for credit"), task)

    async def until(self, states: tuple[str, ...], task: asyncio.Task[RunSummary]) -> dict[str, Any]:
        """The first line that says one of `states`; what ended the run instead is raised."""
        while True:
            self._written.clear()
            for document in self.documents:
                if document["state"] in states:
                    return document
            written = asyncio.ensure_future(self._written.wait())
            await asyncio.wait({written, task}, return_when=asyncio.FIRST_COMPLETED)
            written.cancel()
            if task.done():
                raise AssertionError(f"ended before it was {states}: {task.result()}")


async def interrupted(task: asyncio.Task[RunSummary]) -> RunSummary:
    """The summary of a run that Ctrl-C stops; what ended it before is raised."""
    if not task.done():
        os.kill(os.getpid(), signal.SIGINT)
    return await task


class Lab:
    """A real server on a store of its own, and runs against it."""

    def __init__(self, directory: Path) -> None:
        self.store = directory / "store.sqlite"
        self.port = 0
        self.server: Server | None = None
        self.endpoint = NOWHERE
        self.lines = Lines()

    async def start(self) -> None:
        self.server = Server(store_url=f"sqlite:///{self.store}")
        host, self.port = await self.server.start("127.0.0.1", self.port, directory=None)
        credential = self.store.with_name("credential.json")
        self.endpoint = await joined(self.server, host, self.port, credential=credential)

    async def stop(self) -> None:
        if self.server is not None:
            await self.server.stop()
            self.server = None

    def options(self, **changes: Any) -> RunOptions:
        options = RunOptions(
            endpoint=self.endpoint,
            size_bytes=SIZE_BYTES,
            json=True,
            allow_shared_blocks=True,
            force=True,
        )
        return replace(options, **changes)

    def run(self, storage: Any, **changes: Any) -> asyncio.Task[RunSummary]:
        return asyncio.create_task(run(self.options(**changes), storage, self.lines))

    def both_acknowledge(self, *, control: bool = False) -> bool:
        """Whether the server has an acknowledgement of each writer of some run, and of its control arm."""
        assert self.server is not None
        return any(
            min(run.frontiers.acked) > 0 and (run.control > 0 or not control) for run in self.server.runs
        )

    async def stopped_run(self, storage: Any, *, until_control: bool = False, **changes: Any) -> RunSummary:
        """A run that Ctrl-C stops once each writer has acknowledged, and the control arm if wanted."""
        task = self.run(storage, **changes)
        await until(lambda: task.done() or self.both_acknowledge(control=until_control))
        return await interrupted(task)

    async def end(self, run_id: int) -> None:
        """End a run as verify does."""
        verify = await connect(self.endpoint, "verify")
        await verify.request(Fetch(run=run_id, facts={}, end=True), CaseFile)
        verify.close()

    async def case(self, run_id: int) -> dict[str, Any]:
        """The case that the server has of a run."""
        query = await connect(self.endpoint, "query")
        case = (await query.request(Export(run=run_id), CaseFile)).case
        query.close()
        return dict(case)

    @property
    def run_id(self) -> int:
        return int(self.lines.documents[-1]["run"], 16)


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    lab = Lab(tmp_path)
    await lab.start()
    yield lab
    await lab.stop()


@pytest.fixture
def storage(tmp_path: Path) -> KernelStorage:
    return KernelStorage(tmp_path / "target")


async def test_a_run_that_is_stopped(
    lab: Lab, storage: KernelStorage, capsys: pytest.CaptureFixture[str]
) -> None:
    """At its end the server has exactly the frontiers that the target holds, and the figures. The last lines
    say that this was no test of the drive."""
    summary = await lab.stopped_run(storage, until_control=True, writers=2)
    plan = existing_plan(storage)
    assert plan is not None and plan.run == summary.run
    assert min(summary.frontiers) > 0 and summary.control > 0
    case = await lab.case(summary.run)
    assert (case["state"], case["session_end"], case["tainted"]) == ("stopped", "stop", "")
    assert tuple(case["frontiers"]) == summary.frontiers and case["control"] == summary.control
    for writer, frontier in enumerate(summary.frontiers):
        extent = plan.extent(writer)
        with storage.path.open("rb") as file:
            file.seek(extent.offset_bytes)
            sectors = parse(file.read(extent.slots * extent.record_bytes))
        expected = plan.schedule(writer).newest_at(np.arange(plan.slots, dtype=U64), frontier)
        assert sectors.intact.all()
        assert sectors.seq.tolist() == np.repeat(expected, plan.record_bytes // 512).tolist()
    assert 0 < len(summary.latencies) <= sum(summary.frontiers)
    query = await connect(lab.endpoint, "query")
    shown = await query.request(Show(run=summary.run), Shown)
    query.close()
    assert json.dumps(shown.document)
    assert capsys.readouterr().err.endswith(f"\n{CLEAN_END}\n")


async def test_the_lines_for_programs(lab: Lab, storage: KernelStorage) -> None:
    """stdout has one JSON document per second with the documented keys; after --duration the last one says
    stopped."""
    summary = await lab.run(storage, duration_s=1.2)
    assert summary.exit_code == EXIT_OK and summary.elapsed_s >= 1.2
    documents = lab.lines.documents
    assert documents[-1]["state"] == "stopped"
    assert documents[-1]["acked"] == sum(summary.frontiers)
    assert [document["state"] for document in documents].count("stopped") == 1
    for document in documents:
        assert list(document)[:7] == [
            "schema",
            "run",
            "elapsed_s",
            "acked",
            "rate",
            "latency_us",
            "unconfirmed",
        ]
        assert document["schema"] == "durability.run/1" and set(document["latency_us"]) == {
            "p50",
            "p99",
            "max",
        }


@pytest.mark.parametrize(
    "how",
    [
        {"workload": "append", "record_bytes": 512, "group": 5},
        {"sync": "dsync", "direct": True, "pattern": "sequential"},
        {"sync": "rwf-dsync", "writers": 3, "control": False},
    ],
)
async def test_other_workloads_and_sync_methods(
    lab: Lab, storage: KernelStorage, how: dict[str, Any]
) -> None:
    """Append with rotation, and writes that sync themselves, run as overwrite with fdatasync does."""
    summary = await lab.stopped_run(storage, **how)
    case = await lab.case(summary.run)
    assert tuple(case["frontiers"]) == summary.frontiers and min(summary.frontiers) > 0
    assert case["tainted"] == ""


@pytest.mark.parametrize("workload", ["create", "rename", "unlink"])
async def test_a_run_on_names(lab: Lab, memory_path: Path, workload: str) -> None:
    """The server has the frontiers that the directory holds; the commits have latencies, one for each."""
    storage = KernelStorage(memory_path / "target")
    summary = await lab.stopped_run(storage, workload=workload, writers=2, group=3)
    plan = existing_plan(storage)
    assert plan is not None and min(summary.frontiers) > 0
    case = await lab.case(summary.run)
    assert tuple(case["frontiers"]) == summary.frontiers
    assert (case["session_end"], case["tainted"]) == ("stop", "")
    assert 0 < len(summary.latencies) <= sum(summary.frontiers) // plan.group
    report, _, _ = scanned(storage, job_of(plan, summary.frontiers))
    assert (report.finished, report.findings, report.proven) == (True, {}, summary.frontiers)


async def test_what_is_no_io_error_is_not_reported_as_one(lab: Lab, memory_path: Path) -> None:
    """A stranger's file where a name belongs ends the run as the client's failure: no trace of a cut."""
    storage = KernelStorage(memory_path / "target")
    task = lab.run(storage, workload="create")
    line = await lab.lines.until_under_way(task)
    storage.path_of(f".0.{line['acked'] + 5000}").write_text("mine")
    with pytest.raises(TargetError, match=r"File exists.*not an I/O error and not a cut"):
        await task
    case = await lab.case(lab.run_id)
    assert case["session_end"] == "client-error"


async def test_a_name_that_is_missing_is_reported_as_an_io_error(lab: Lab, memory_path: Path) -> None:
    """Who removed it is not known: a drive may have lost it, or have gone away with its file system. If its
    drives answer, it was no cut all the same."""
    storage = KernelStorage(memory_path / "target")
    task = lab.run(storage, workload="unlink")
    await lab.lines.until_under_way(task)
    while not task.done():
        for suffix in storage.suffixes():
            if suffix:
                storage.path_of(suffix).unlink(missing_ok=True)
        await asyncio.sleep(0)
    with pytest.raises(TargetError, match="No such file or directory") as failed:
        await task
    assert "not an I/O error" not in str(failed.value)
    assert (await lab.case(lab.run_id))["session_end"] == "target-error"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_a_signal_is_a_clean_stop(
    lab: Lab, storage: KernelStorage, number: signal.Signals, code: int
) -> None:
    """Ctrl-C and SIGTERM stop the run in order; the exit code is the signal's."""
    before = signal.getsignal(number)
    task = lab.run(storage)
    await lab.lines.until_under_way(task)
    os.kill(os.getpid(), number)
    summary = await task
    assert summary.exit_code == code
    assert (await lab.case(summary.run))["session_end"] == "stop"
    assert signal.getsignal(number) is before


class Interrupting(KernelStorage):
    """A target during whose prefill somebody presses Ctrl-C."""

    def open_bulk(self, suffix: str, *, create: bool = False, direct: bool = True) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return super().open_bulk(suffix, create=create, direct=direct)


async def test_a_signal_during_prefill_ends_the_run_before_it_is_armed(lab: Lab, tmp_path: Path) -> None:
    """Ctrl-C before arming leaves a run that never acknowledged anything, and exit code 130."""
    with pytest.raises(Exception, match="before the run was armed") as interrupted:
        await lab.run(Interrupting(tmp_path / "target"), size_bytes=64 << 20)
    assert getattr(interrupted.value, "exit_code", None) == 130
    case = await lab.case(int(existing_plan(KernelStorage(tmp_path / "target")).run))  # type: ignore[union-attr]
    assert (case["state"], case["armed"], case["session_end"]) == ("stopped", None, "stop")


class Hanging(KernelStorage):
    """A target whose drive does not answer the prefill until the test says so."""

    begun, answer = threading.Event(), threading.Event()

    def open_bulk(self, suffix: str, *, create: bool = False, direct: bool = True) -> Any:
        self.begun.set()
        assert self.answer.wait(DEADLINE_S)
        return super().open_bulk(suffix, create=create, direct=direct)


async def test_a_second_signal_during_a_write_that_hangs_says_why_the_run_waits(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The target stays locked until the write ends, since another run would write there too."""
    storage, said = Hanging(tmp_path / "target"), ""

    async def until_said(text: str) -> None:
        nonlocal said
        while text not in said:
            await asyncio.sleep(0)
            said += capsys.readouterr().err

    task = lab.run(storage)
    await asyncio.to_thread(storage.begun.wait, DEADLINE_S)
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(until_said(HANGING_PREFILL), DEADLINE_S)
    with pytest.raises(TargetError, match="another run or verify holds it"):
        KernelStorage(storage.path).lock()
    storage.answer.set()
    with pytest.raises(DurabilityError, match="before the run was armed"):
        await asyncio.wait_for(task, DEADLINE_S)
    assert (said + capsys.readouterr().err).count(HANGING_PREFILL) == 1


class InterruptedLater(KernelStorage):
    """A target that is being filled for the third time when somebody presses Ctrl-C."""

    fills = 0

    def open_bulk(self, suffix: str, *, create: bool = False, direct: bool = True) -> Any:
        self.fills += suffix == MAIN
        if self.fills == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return super().open_bulk(suffix, create=create, direct=direct)


@pytest.mark.parametrize("workload", ["overwrite", "append", "rename"])
async def test_a_run_that_only_fills_its_target_is_never_armed(
    lab: Lab, tmp_path: Path, workload: str
) -> None:
    """It fills its target again and again, so a cut meets that however fast the drive is."""
    storage = InterruptedLater(tmp_path / "target")
    with pytest.raises(Exception, match="before the run was armed"):
        await lab.run(storage, workload=workload, prefill_only=True)
    plan = existing_plan(KernelStorage(storage.path))
    assert plan is not None
    case = await lab.case(plan.run)
    assert (case["state"], case["armed"], storage.fills) == ("stopped", None, 3)


class Unlocked(KernelStorage):
    """A target that tells whether it was written to after its lock was given back, which fails then."""

    is_free = was_written_late = False

    def open_bulk(self, suffix: str, *, create: bool = False, direct: bool = True) -> Any:
        if self.is_free:
            self.was_written_late = True
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        return super().open_bulk(suffix, create=create, direct=direct)

    def unlock(self) -> None:
        super().unlock()
        self.is_free = True


async def test_a_run_that_only_fills_its_target_ends_with_the_servers_word(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """When verify takes the run away, nothing is written any more, and the command says who ended it."""
    monkeypatch.setattr(limits, "SILENCE_NS", 0)
    task = lab.run(Unlocked(tmp_path / "target"), prefill_only=True)
    await lab.lines.until(("prefill",), task)
    await lab.end(lab.run_id)
    with pytest.raises(RefusedError):
        await asyncio.wait_for(task, DEADLINE_S)
    assert f"{NOT_ACCEPTED} (run-ended)" in capsys.readouterr().err


class FullDisk(Lines):
    """A disk for the JSON lines that takes none."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


async def test_a_prefill_is_over_before_its_target_is_free(lab: Lab, tmp_path: Path) -> None:
    """If a prefill's output cannot be written, the run ends only after the filling thread has ended."""
    threads = ThreadPoolExecutor()
    asyncio.get_running_loop().set_default_executor(threads)
    storage, lab.lines = Unlocked(tmp_path / "target"), FullDisk()
    with pytest.raises(DurabilityError, match="No space left"):
        await lab.run(storage, prefill_only=True)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor())  # for the server
    threads.shutdown()  # waits for what is under way
    assert storage.is_free and not storage.was_written_late


class Unstarted(KernelStorage):
    """A target for which, just before its writers are started, the process that starts them may open no
    more files."""

    def open(self, suffix: str, *, plan: Plan | None = None, create: bool = False) -> Any:
        if plan is not None:
            first = CONTEXT.Process(target=int)
            first.start()
            first.join()
            pid = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, 0))
        return super().open(suffix, plan=plan, create=create)


async def test_a_system_that_starts_no_process_is_not_the_targets_fault(lab: Lab, tmp_path: Path) -> None:
    """If no process can be started, the error is a SetupError with a remedy and a fixed beginning, which a
    campaign's agent recognises."""
    with pytest.raises(SetupError) as raised:
        await asyncio.wait_for(lab.run(Unstarted(tmp_path / "target")), DEADLINE_S)
    assert not isinstance(raised.value, TargetError)
    assert str(raised.value).startswith(NOT_STARTED) and "ulimit" in str(raised.value)
    plan = existing_plan(KernelStorage(tmp_path / "target"))
    assert plan is not None
    case = await lab.case(plan.run)
    assert (case["armed"], case["session_end"]) == (None, "client-error")
    await lab.stopped_run(KernelStorage(tmp_path / "target"))  # once it can


class Unwatched(KernelStorage):
    """A target whose drives cannot be watched, since that takes a process."""

    def watch_drives(self, armed: Facts) -> Any:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


async def test_a_process_that_cannot_watch_the_drives_is_not_the_targets_fault(
    lab: Lab, tmp_path: Path
) -> None:
    """If the process that watches the drives cannot be started, the error is a SetupError and not the
    target's fault."""
    with pytest.raises(SetupError, match=f"^{NOT_STARTED}: Resource temporarily unavailable"):
        await lab.run(Unwatched(tmp_path / "target"))


class Unanswering(KernelStorage):
    """A target whose drive does not answer when a writer opens it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Unanswering, (self.path,)

    def open(self, suffix: str, *, plan: Plan | None = None, create: bool = False) -> Any:
        if multiprocessing.parent_process() is not None:
            threading.Event().wait()
        return super().open(suffix, plan=plan, create=create)


async def started_writer(task: asyncio.Task[RunSummary]) -> int:
    """The process of a writer that waits for the drive, once there is one."""

    def writers() -> list[int]:
        named = [one for one in multiprocessing.active_children() if one.name == "durability-writer-0"]
        return [one.pid for one in named if one.pid]

    await until(lambda: task.done() or bool(writers()))
    assert not task.done()
    return writers()[0]


async def test_a_writer_that_is_killed_before_it_is_ready_ends_the_run(lab: Lab, tmp_path: Path) -> None:
    """A run does not wait for a writer that is gone."""
    task = lab.run(Unanswering(tmp_path / "target"), control=False)
    os.kill(await started_writer(task), signal.SIGKILL)
    with pytest.raises(TargetError, match=r"cannot be prepared: its process was killed .* free memory"):
        await asyncio.wait_for(task, DEADLINE_S)
    plan = existing_plan(KernelStorage(tmp_path / "target"))
    assert plan is not None
    case = await lab.case(plan.run)
    assert (case["armed"], case["session_end"]) == (None, "client-error")


async def test_a_writer_that_is_killed_is_no_defect_and_no_cut(lab: Lab, tmp_path: Path) -> None:
    """A writer that the system kills for its memory ends the run, which says what was acknowledged and what
    to do."""
    target = tmp_path / "target"
    task = lab.run(KernelStorage(target), control=False)
    writer = await started_writer(task)
    await until(lambda: task.done() or lab.both_acknowledge())
    os.kill(writer, signal.SIGKILL)
    with pytest.raises(TargetError) as raised:
        await asyncio.wait_for(task, DEADLINE_S)
    said = str(raised.value)
    assert re.search(r"writer 0 failed at operation \d+: its process was killed \(SIGKILL\)", said), said
    assert re.search(
        r"after [1-9]\d* acknowledged operations, the server has them all\. This was not an", said
    )
    assert said.endswith("not a cut: fix it and run again") and "defect" not in said, said
    plan = existing_plan(KernelStorage(target))
    assert plan is not None
    assert (await lab.case(plan.run))["session_end"] == "client-error"


async def test_a_signal_ends_a_run_whose_writers_wait_for_the_drive(lab: Lab, tmp_path: Path) -> None:
    """Ctrl-C ends a run that cannot be armed, since the drive does not answer its writers."""
    task = lab.run(Unanswering(tmp_path / "target"))
    await started_writer(task)
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(DurabilityError, match="before the run was armed") as interrupted:
        await asyncio.wait_for(task, DEADLINE_S)
    assert interrupted.value.exit_code == 130


class FailsWriters(SimulatedStorage):
    """A drive that fails when a writer opens it."""

    def open(self, suffix: str, *, plan: Plan | None = None, create: bool = False) -> Any:
        if threading.current_thread().name.startswith("durability-writer"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().open(suffix, plan=plan, create=create)


async def test_an_error_before_the_run_is_armed_is_one_of_its_preparation(lab: Lab) -> None:
    """An I/O error when a writer opens the target ends the run before it acknowledged anything."""
    with pytest.raises(TargetError, match=r"cannot be prepared: .*Errno 5"):
        await lab.run(FailsWriters(Honest(), seed=1))


class Bufferless(KernelStorage):
    """A target on a file system that has no O_DIRECT."""

    def open(self, suffix: str, *, plan: Plan | None = None, create: bool = False) -> Any:
        if plan is not None and plan.direct:
            raise UsageError("its file system does not support O_DIRECT; remove --direct")
        return super().open(suffix, plan=plan, create=create)


async def test_a_file_system_without_o_direct_is_a_usage_error(lab: Lab, tmp_path: Path) -> None:
    """--direct where there is none is refused as such, and not as a writer's failure."""
    with pytest.raises(UsageError, match="remove --direct"):
        await lab.run(Bufferless(tmp_path / "target"), direct=True)


async def test_an_error_of_the_target_is_reported_to_both(lab: Lab) -> None:
    """When the drive loses power under the client, the server hears of the I/O error and the person does."""
    drive = SimulatedStorage(Honest(), seed=1)
    task = lab.run(drive, writers=2)
    await lab.lines.until_under_way(task)
    await until(lambda: task.done() or lab.both_acknowledge())
    drive.cut()
    with pytest.raises(TargetError, match="Errno 5") as failed:
        await task
    assert "acknowledged operations" in str(failed.value)
    assert "does not answer" in str(failed.value) and "run `durability verify`" in str(failed.value)
    case = await lab.case(lab.run_id)
    assert case["session_end"] == "target-error"
    assert case["target_error"]["drive"] == "dead"
    # The last acknowledgements may be on their way when the target fails.
    assert case["timeline"][0]["at_ns"] <= case["target_error"]["at_ns"] <= case["last_receipt_ns"]
    assert min(case["frontiers"]) > 0 and case["tainted"] == ""


async def test_a_drive_that_lives_on_after_an_error_is_reported_to_both(lab: Lab) -> None:
    """One request fails and reads are answered: it was no cut, and the server knows it."""
    drive = SimulatedStorage(Honest(), seed=1)
    task = lab.run(drive)
    await lab.lines.until_under_way(task)
    drive.fail_once()
    with pytest.raises(TargetError, match="still answers reads") as failed:
        await task
    assert "this was not a power cut" in str(failed.value)
    case = await lab.case(lab.run_id)
    assert (case["session_end"], case["target_error"]["drive"]) == ("target-error", "answered")


class SlowWatch(SimulatedDriveWatch):
    """A look that ends when the test says so."""

    begun, end = threading.Event(), threading.Event()

    def look(self, timeout_s: float) -> DriveLook:
        self.begun.set()
        assert self.end.wait(DEADLINE_S)
        return super().look(timeout_s)


class SlowlySeen(SimulatedStorage):
    """A simulated drive with such a watch."""

    def watch_drives(self, armed: Facts) -> SlowWatch:
        return SlowWatch(self._drive)


async def test_what_was_seen_of_a_drive_survives_the_loss_of_the_connection(lab: Lab) -> None:
    """The server goes away while the client looks at its drive; a new one hears of all of it."""
    drive = SlowlySeen(Honest(), seed=1)
    task = lab.run(drive)
    await lab.lines.until_under_way(task)
    drive.cut()
    await asyncio.to_thread(SlowWatch.begun.wait, DEADLINE_S)
    await lab.stop()
    await lab.start()
    SlowWatch.end.set()
    with pytest.raises(TargetError, match="the server has them all"):
        await task
    case = await lab.case(lab.run_id)
    assert (case["session_end"], case["target_error"]["drive"]) == ("target-error", "dead")


async def test_a_run_outlives_its_server(lab: Lab, storage: KernelStorage) -> None:
    """While the server is away the run says so; with a new one on the store it goes on and stops cleanly."""
    task = lab.run(storage)
    await lab.lines.until_under_way(task)
    await lab.stop()
    await lab.lines.until(("reconnecting",), task)
    await lab.start()
    lab.lines.seek(0)
    lab.lines.truncate()
    before = (await lab.lines.until_under_way(task))["acked"]
    os.kill(os.getpid(), signal.SIGINT)
    summary = await task
    assert sum(summary.frontiers) >= before
    case = await lab.case(summary.run)
    assert tuple(case["frontiers"]) == summary.frontiers
    assert (case["session_end"], case["tainted"]) == ("stop", "")


async def test_a_run_that_the_server_ended_stops(
    lab: Lab, storage: KernelStorage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """When verify takes the run away, the writers stop and the command says who ended it."""
    task = lab.run(storage)
    run_id = int((await lab.lines.until_under_way(task))["run"], 16)
    monkeypatch.setattr(limits, "SILENCE_NS", 0)
    await lab.end(run_id)
    with pytest.raises(RefusedError):
        await task
    assert NOT_ACCEPTED not in capsys.readouterr().err


class Watched(KernelStorage):
    """A target whose drives are looked at for the first time, which is just before the run is armed."""

    look: Callable[[], None]

    def watch_drives(self, armed: Facts) -> Any:
        self.look()
        return super().watch_drives(armed)


async def test_a_run_that_the_server_ends_before_it_is_armed_was_not_accepted(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who reads the output knows that the target is not to blame."""
    monkeypatch.setattr(limits, "SILENCE_NS", 0)
    storage, loop = Watched(tmp_path / "target"), asyncio.get_running_loop()
    storage.look = lambda: asyncio.run_coroutine_threadsafe(
        lab.end(int(existing_plan(KernelStorage(tmp_path / "target")).run)),  # type: ignore[union-attr]
        loop,
    ).result()
    with pytest.raises(RefusedError):
        await lab.run(storage)
    assert f"{NOT_ACCEPTED} (run-ended)" in capsys.readouterr().err


async def test_a_run_that_cannot_be_stored_says_so_and_begins_once_it_can(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's disk filled up during the prefill."""

    def fill() -> None:
        monkeypatch.setattr(store_module, "KEPT_BYTES_MAX", 1 << 60)
        monkeypatch.setattr(store_module, "KEPT_SHARE", 1)

    storage = Watched(tmp_path / "target")
    storage.look = fill
    task = lab.run(storage)
    await until(lambda: task.done() or any("make room there" in one["detail"] for one in lab.lines.documents))
    assert {one["state"] for one in lab.lines.documents} == {"prefill"}
    monkeypatch.undo()
    await lab.lines.until_under_way(task)
    await interrupted(task)


async def test_an_unverified_run_is_not_overwritten(
    lab: Lab, storage: KernelStorage, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that ended in a cut and was never verified keeps its target, unless forced."""
    drive = SimulatedStorage(Honest(), seed=2)
    task = lab.run(drive)
    await lab.lines.until_under_way(task)
    drive.cut()
    with pytest.raises(TargetError):
        await task
    drive.power_on()
    with pytest.raises(RefusedError) as refused:
        await lab.run(drive, force=False)
    assert refused.value.code == "unverified-run"
    assert f"{NOT_ACCEPTED} (unverified-run)" in capsys.readouterr().err


async def test_nothing_is_written_without_a_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where no server answers, the target is not even created."""
    with pytest.raises(PeerError):
        await run(
            RunOptions(endpoint=NOWHERE, size_bytes=SIZE_BYTES, force=True),
            KernelStorage(tmp_path / "target"),
            io.StringIO(),
        )
    assert not (tmp_path / "target").exists()
    assert NOT_ACCEPTED in capsys.readouterr().err


async def test_a_drive_that_is_locked_is_not_written(make_loop: Callable[..., Path]) -> None:
    """Its writes would fail, or reach only the range that is not locked. No server is asked."""
    device = make_loop(SIZE_BYTES)
    options = RunOptions(endpoint=NOWHERE, size_bytes=SIZE_BYTES, destroy_data=True)
    with opal_says(LOCKED), pytest.raises(TargetError, match=rf"{device.name} is locked \(OPAL\).*then run"):
        await run(options, KernelStorage(device), io.StringIO())
    assert not any(device.read_bytes())


async def test_the_target_is_free_again_after_a_run(lab: Lab, storage: KernelStorage) -> None:
    """The lock is held while the run lasts and given back at its end."""
    task = lab.run(storage)
    await lab.lines.until_under_way(task)
    with pytest.raises(TargetError):
        KernelStorage(storage.path).lock()
    await interrupted(task)
    other = KernelStorage(storage.path)
    other.lock()
    other.unlock()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"group": 2, "sync": "dsync"}, "--sync dsync syncs each write, so it allows no --group 2"),
        ({"workload": "append", "pattern": "random"}, "append is always sequential"),
        ({"workload": "create", "pattern": "random"}, "create is always sequential"),
        ({"record_bytes": 1000}, "--record-size is 1000 bytes"),
        ({"record_bytes": 2 << 20}, "--record-size"),
        ({"duration_s": 0.0}, "--duration"),
        ({"label": "two\nlines"}, "--label"),
        ({"label": os.fsdecode(b"no UTF-8: \xff")}, "--label"),
        ({"label": 257 * "x"}, "--label"),
    ],
)
def test_options_that_contradict_each_other(changes: dict[str, Any], message: str) -> None:
    """They are refused in the words of the command line, before anything is touched."""
    options = RunOptions(endpoint=NOWHERE)
    check_options(options)
    with pytest.raises(UsageError, match=message):
        check_options(replace(options, **changes))


@pytest.fixture
def facts(tmp_path: Path) -> Facts:
    return KernelStorage(tmp_path / "target").facts()


@pytest.mark.parametrize("size_bytes", [1 << 20, 64 << 20, 1 << 30, 4 << 40])
@pytest.mark.parametrize("kind", ["file", "device"])
@pytest.mark.parametrize("group", [1, 16])
def test_the_plan_fits_the_size_that_was_asked_for(
    facts: Facts, size_bytes: int, kind: TargetKind, group: int
) -> None:
    """Superblocks, slots and, on a device, the control arm stay within --size, and use nearly all of it."""
    options = RunOptions(endpoint=NOWHERE, size_bytes=size_bytes, group=group, writers=1)
    plan = make_plan(options, facts, kind)
    assert size_bytes * 0.9 <= plan.main_bytes <= size_bytes
    assert plan.credit % group == 0 and plan.credit <= limits.CREDIT_MAX


def test_a_size_too_small_for_its_writers_is_refused(facts: Facts) -> None:
    """The message says how many records there would be and how many are needed."""
    options = RunOptions(endpoint=NOWHERE, size_bytes=1 << 20, writers=64)
    with pytest.raises(UsageError, match=r"3 records.*at least 8 are needed"):
        make_plan(options, facts, "file")


@pytest.mark.parametrize("workload", ["append", "create", "rename", "unlink"])
def test_names_need_a_file(facts: Facts, workload: str) -> None:
    """A log cannot grow on a device, and a device has no names."""
    options = RunOptions(endpoint=NOWHERE, workload=workload)
    with pytest.raises(UsageError, match=f"{workload} needs a file"):
        make_plan(options, facts, "device")


@pytest.mark.parametrize("workload", ["create", "rename", "unlink"])
def test_names_are_fewer_unless_a_size_is_given(facts: Facts, workload: str) -> None:
    """64 MiB of names where nothing is said; each takes its record in whole blocks, and its inode."""
    options = RunOptions(endpoint=NOWHERE, workload=workload, record_bytes=512)
    plan = make_plan(options, facts, "file")
    each = safety_checks.name_bytes(512, facts)
    assert (64 << 20) * 0.99 <= plan.slots * each <= 64 << 20
    larger = make_plan(replace(options, size_bytes=1 << 30, writers=4), facts, "file")
    assert (1 << 30) * 0.99 <= 4 * larger.slots * each <= 1 << 30
    assert larger.pattern == ("sequential" if workload == "create" else "random")
    with pytest.raises(UsageError, match=f"files, with their metadata, of {each} bytes"):
        make_plan(replace(options, size_bytes=1 << 20, writers=64), facts, "file")


def test_a_group_of_names_fits_the_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """More files than the process may have open at once are refused; of writes in place no file is."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, 100))
    options = RunOptions(endpoint=NOWHERE, workload="rename", group=37)
    with pytest.raises(UsageError, match=r"--group 37 with --workload .* may have 36"):
        check_options(options)
    check_options(replace(options, group=36))
    check_options(replace(options, workload="overwrite"))


def test_no_two_runs_are_alike(facts: Facts) -> None:
    """Run and seed are fresh each time; the tag of the target stays."""
    options = RunOptions(endpoint=NOWHERE)
    plans = [make_plan(options, facts, "file") for _ in range(3)]
    assert len({plan.run for plan in plans}) == len({plan.seed for plan in plans}) == 3
    assert len({plan.target for plan in plans}) == 1


def test_the_drive_of_a_log_makes_no_other_target() -> None:
    """The same target has one tag, whether the external log of its file system was found or not."""
    log = sample_facts.drive(name="sdb", serial="LOG")
    assert target_tag(sample_facts.facts(drives=(sample_facts.drive(), log))) == target_tag(
        sample_facts.facts()
    )
    assert target_tag(sample_facts.facts(drives=(log,))) != target_tag(sample_facts.facts())
