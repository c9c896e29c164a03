"""The collector of a run, from the drive's own counter to the page of `verify` and `show`."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from durability.errors import TargetError
from durability.formats.case import Case, case_from_value
from durability.formats.plan import Plan
from durability.protocol.messages import CaseFile, Export
from durability_client import queries
from durability_client.link.server_connection import connect
from durability_client.run.planning import RunOptions
from durability_client.run.run_command import RunSummary, run
from durability_client.run.shared_state import SharedState
from durability_client.run.statistics_collector import StatisticsCollector
from durability_client.target.kernel_storage import KernelStorage
from durability_client.verify.verify_command import VerifyOptions, verify
from durability_lab.drive.faults import Honest
from durability_lab.simulated_rig.simulated_storage import SimulatedStorage
from durability_lab.support.local_server import LocalServer, local_server
from durability_server.runs.run import Run
from tests.sample_facts import drive, facts
from tests.waiting import DEADLINE_S

SIZE_BYTES = 4 << 20


def options(lab: LocalServer, **changes: Any) -> RunOptions:
    made = RunOptions(endpoint=lab.endpoint, size_bytes=SIZE_BYTES, destroy_data=True)
    return replace(made, **changes)


async def case_of(lab: LocalServer, run_id: int) -> Case:
    """The case that the server has of a run."""
    asker = await connect(lab.endpoint, "query")
    case = case_from_value((await asker.request(Export(run=run_id), CaseFile)).case)
    asker.close()
    return case


async def until_counted(lab: LocalServer, path: Path, task: asyncio.Task[RunSummary]) -> Run:
    """The run of `task`, once the server has figures of operations of it."""
    async with asyncio.timeout(DEADLINE_S):
        while (live := lab.live_run(path)) is None or not (
            live.statistics and any(live.statistics.operations)
        ):
            assert not task.done(), task.result()
            await asyncio.sleep(0)
    return live


async def test_flushes_of_a_real_drive_reach_verdict_and_page(
    make_mount: Callable[..., tuple[Path, Path]],
) -> None:
    """A file system on a loop device flushes it for every sync: case, document, page and `show` say so."""
    device, directory = make_mount("ext4")
    async with local_server() as lab:
        target = KernelStorage(directory / "target")
        task = asyncio.create_task(run(options(lab, sync="fdatasync"), target, io.StringIO()))
        await until_counted(lab, target.path, task)
        os.kill(os.getpid(), signal.SIGINT)
        summary = await task
        statistics = (await case_of(lab, summary.run)).statistics
        answer, page, shown = io.StringIO(), io.StringIO(), io.StringIO()
        wanted = VerifyOptions(target=directory / "target", endpoint=lab.endpoint)
        await verify(replace(wanted, json=True), out=answer)
        await verify(wanted, out=page)
        await queries.show(lab.endpoint, summary.run, json=False, out=shown)
    assert statistics is not None
    assert statistics.operations == summary.frontiers
    assert len(statistics.latencies()) == len(summary.latencies) > 0
    assert [one.name for one in statistics.drives] == [device.name]
    flushes = statistics.drives[0].flushes
    assert flushes is not None and flushes >= sum(summary.frontiers)
    subject = json.loads(answer.getvalue())["subject"]
    assert (subject["syncs"], subject["drives"][0]["flushes"]) == (sum(summary.frontiers), flushes)
    assert subject["drives"][0]["flushes_per_sync"] >= 1
    for text in (page.getvalue(), shown.getvalue()):
        assert f"{device.name}: " in text and " per sync (" in text
        assert re.search("commits +p50 .* max ", text)
        assert re.search(r"rate +[0-9.,e+]+ per second, in ", text)
        assert re.search(r"processor +\d+ x ", text)


@pytest.mark.slow
async def test_the_account_of_a_run_outlives_its_drive() -> None:
    """While the run goes on the server has its figures, so a cut takes at most the last second of them."""
    storage = SimulatedStorage(Honest(), seed=1)
    async with local_server() as lab:
        task = asyncio.create_task(run(options(lab), storage, io.StringIO()))
        live = await until_counted(lab, storage.path, task)
        before = live.statistics
        assert before is not None
        storage.cut()
        with pytest.raises(TargetError):
            await task
        case = await case_of(lab, live.id)
    assert case.session_end == "target-error"
    assert sum(before.operations) > 0 and len(before.latencies()) > 0
    assert case.statistics is not None
    assert sum(case.statistics.operations) >= sum(before.operations)
    assert case.statistics.drives[0].flushes == sum(case.statistics.operations)


class Counting(KernelStorage):
    """Files on a drive whose counter the test sets."""

    count: int | None = 0

    def flushes(self, drive: str) -> int | None:
        return self.count


@pytest.mark.parametrize(("now", "since"), [(107, 7), (100, 0), (None, None), (3, None)])
def test_flushes_are_counted_since_arming(
    make_plan: Callable[..., Plan], tmp_path: Path, now: int | None, since: int | None
) -> None:
    """Flushes are counted since arming. A counter that fell belongs to a drive that was enumerated again, so
    it gives no count."""
    storage = Counting(tmp_path / "target")
    collector = StatisticsCollector(make_plan(), storage, SharedState(3))
    collector.armed(facts(drives=(drive(flushes=100),)))
    storage.count = now
    (flushed,) = collector.statistics(1.0).drives
    assert (flushed.name, flushed.flushes) == ("sda", since)


def test_latencies_of_all_seconds_are_kept(make_plan: Callable[..., Plan], tmp_path: Path) -> None:
    """The line shows a second, the server gets the whole; commits are counted once."""
    plan, shared = make_plan(group=2), SharedState(3)
    collector = StatisticsCollector(plan, KernelStorage(tmp_path / "target"), shared)
    for commits in (3, 5):
        for commit in range(commits):
            shared.words[shared.ring_index(0) + commit] = 1000
        shared.words[shared.frontier_index(0)] = commits * plan.group
        collector.digest()
        collector.digest()
        collector.next_second()
    assert len(collector.second) == 0
    statistics = collector.statistics(2.0)
    assert (statistics.operations, statistics.syncs(plan.group)) == ((10, 0), 5)
    assert len(statistics.latencies()) == 5
