"""A run without a verdict is evidence: nothing that the agent does for the next one may overwrite it."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from durability.errors import EXIT_LOSS
from durability.units import parse_run
from durability_client import queries
from durability_client.agent import drive_work, file_systems
from durability_client.agent.agent_loop import agent_loop
from durability_client.agent.agent_paths import AgentPaths
from durability_client.agent.drive_work import Setting
from durability_client.agent.task_work import TaskWork
from durability_client.link.endpoint import Endpoint
from durability_client.target.discovery import host_now
from durability_lab.support.local_server import LocalServer, local_server
from tests.client.agent.on_drives.test_wrong_drives import refused, tool
from tests.client.agent.task_server import (
    AgentProcess,
    Tasks,
    TaskServer,
    drive_on,
    options_of,
    task_server,
    with_both_servers,
)

MakeLoop = Callable[..., Path]
SIZE_BYTES = 64 << 20


async def cut(server: TaskServer, agent: AgentProcess, tasks: Tasks, *, fresh: bool) -> str:
    """A run that was armed when its machine went down; its id. The machine is up again, and nothing is
    mounted."""
    armed = await server.do(tasks.make("run", fresh=fresh), "armed failed ended")
    assert armed.state == "armed", armed
    await agent.kill()
    (agent.directory / "runs" / f"nightly+d1+{tasks.number}").unlink()  # as a boot does
    server.status = None
    await agent.start()
    assert (await server.do(tasks.make("examine"))).state == "done"
    return armed.run


async def verdicts(lab: LocalServer, run: str) -> list[str]:
    """Those that the server has of a run."""
    out = io.StringIO()
    await queries.show(lab.endpoint, parse_run(run), json=True, out=out)
    return [one["verdict"] for one in json.loads(out.getvalue())["verdicts"]]


async def test_what_is_back_from_before_the_campaign_is_neither_mounted_nor_erased(
    tmp_path: Path, make_loop: MakeLoop
) -> None:
    """Somebody put it back, or the drive has lost the whole file system with the run on it: each task says
    so, with the run's name."""
    device = make_loop(SIZE_BYTES)
    async with with_both_servers(tmp_path) as (server, agent, lab):
        await tool("mkfs.ext4", "-q", device)
        before = device.read_bytes()
        tasks = Tasks((drive_on(device),), ready_within_s=1.0)
        tasks.examined = (await server.do(tasks.make("examine"))).condition
        run = await cut(server, agent, tasks, fresh=True)
        device.write_bytes(before)
        tasks.again = True
        verify = await server.do(tasks.make("verify", run=run))
        refused(
            verify, "in-use", f"the drive has lost run {run}, which has no verdict (`durability show {run}`)"
        )
        for fresh in (False, True):
            status = await server.do(tasks.make("run", run=run, fresh=fresh), "armed failed ended")
            refused(status, "in-use", f"the drive has lost run {run}")
        assert device.read_bytes() == before
        assert await verdicts(lab, run) == []


async def test_a_drive_that_is_back_at_an_earlier_file_system_of_the_campaign_gets_no_run(
    tmp_path: Path, make_loop: MakeLoop
) -> None:
    """It mounts, and holds an earlier run: the last one is to be verified there, which cannot tell."""
    device = make_loop(SIZE_BYTES)
    async with with_both_servers(tmp_path) as (server, agent, lab):
        tasks = Tasks((drive_on(device),), ready_within_s=1.0)
        tasks.examined = (await server.do(tasks.make("examine"))).condition
        first = await cut(server, agent, tasks, fresh=True)
        tasks.again = True
        verified = await server.do(tasks.make("verify", run=first))
        assert verified.state == "done", verified
        earlier = device.read_bytes()
        run = await cut(server, agent, tasks, fresh=True)
        device.write_bytes(earlier)
        status = await server.do(tasks.make("run", run=run), "armed failed ended")
        refused(status, "not-verified", f"is on the drive of run {run}, but on another file system")
        assert await verdicts(lab, run) == []
        assert len(await verdicts(lab, first)) == 1


@pytest.mark.parametrize("file_system", ["ext4", ""])
async def test_a_run_of_which_nobody_has_heard_is_verified_before_the_drive_is_begun_afresh(
    tmp_path: Path, make_loop: MakeLoop, file_system: str
) -> None:
    """The machine restarted by itself just after the run was armed, in the first cycle: the campaign knows of
    none, and has the file system made anew."""
    async with with_both_servers(tmp_path) as (server, agent, lab):
        tasks = Tasks((drive_on(make_loop(SIZE_BYTES), file_system),), ready_within_s=1.0)
        tasks.examined = (await server.do(tasks.make("examine"))).condition
        run = await cut(server, agent, tasks, fresh=True)
        again = await server.do(tasks.make("run", fresh=True), "armed failed ended")
        assert again.state == "armed" and again.run != run, again
        assert again.text == f"first verified run {run}, which had no verdict: inconclusive"
        assert await verdicts(lab, run) == ["inconclusive"]
        await server.do(tasks.make("release"))


async def test_a_file_system_that_is_gone_is_not_judged_later_without_people(
    tmp_path: Path, make_loop: MakeLoop
) -> None:
    """Somebody may have erased the drive meanwhile: the agent says what to type."""
    device = make_loop(SIZE_BYTES)
    async with with_both_servers(tmp_path) as (server, agent, lab):
        tasks = Tasks((drive_on(device),), ready_within_s=1.0)
        tasks.examined = (await server.do(tasks.make("examine"))).condition
        run = await cut(server, agent, tasks, fresh=True)
        tasks.again = True
        await tool("wipefs", "--all", "--quiet", device)
        status = await server.do(tasks.make("run", run=run), "armed failed ended")
        refused(status, "not-verified", f"`durability verify --device {device} --run {run}`")
        assert await verdicts(lab, run) == []


async def test_a_file_system_that_a_cut_damaged_is_judged_before_the_next_run(
    tmp_path: Path, make_loop: MakeLoop
) -> None:
    """Its drive came back too late for the verify of its cycle. It is still recognised as the campaign's, so
    its device is judged; the next task may have it made anew."""
    device = make_loop(SIZE_BYTES)
    async with with_both_servers(tmp_path) as (server, agent, lab):
        tasks = Tasks((drive_on(device),), ready_within_s=1.0)
        tasks.examined = (await server.do(tasks.make("examine"))).condition
        run = await cut(server, agent, tasks, fresh=True)
        tasks.again = True
        with device.open("r+b") as file:
            file.seek(4096)
            file.write(b"\xff" * 4096)  # where its groups are
        status = await server.do(tasks.make("run", run=run), "armed failed ended")
        refused(status, "unmountable", f"run {run} has its verdict")
        assert (status.exit_code, await verdicts(lab, run)) == (EXIT_LOSS, ["loss"])
        again = await server.do(tasks.make("run", fresh=True), "armed failed ended")
        assert again.state == "armed", again
        await server.do(tasks.make("release"))


@asynccontextmanager
async def agent_within(directory: Path, lab: LocalServer) -> AsyncIterator[TaskServer]:
    """The server for the tasks of an agent in this process."""
    async with task_server(directory) as server:
        places = AgentPaths(directory / "agent")
        setting = Setting(places=places, options=options_of(lab), boot_id=host_now().boot_id)
        with places.held():

            async def off() -> None:
                raise AssertionError("no task is to shut down")

            work = TaskWork(setting, host_now(), power_off=off, say=print)
            loop = asyncio.create_task(agent_loop(Endpoint(local=directory / "socket"), work, print))
            try:
                yield server
            finally:
                loop.cancel()
                await work.close()


async def test_what_does_not_mount_for_another_reason_than_damage_is_not_made_anew(
    tmp_path: Path, make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a kernel that lacks a module: verify says that this proves no damage, so the run is not
    verified yet, rather than its file system unmountable. Once the reason is gone, it is verified."""
    monkeypatch.setattr(file_systems, "_UNSTEADY_S", 0.0)
    monkeypatch.setattr(drive_work, "BETWEEN_TRIES_S", 0.0)
    drive = drive_on(make_loop(SIZE_BYTES))
    async with local_server() as lab, agent_within(tmp_path, lab) as server:
        tasks = Tasks((drive,), ready_within_s=1.0)
        tasks.examined = (await server.do(tasks.make("examine"))).condition
        armed = await server.do(tasks.make("run", fresh=True), "armed failed ended")
        assert armed.state == "armed", armed
        await server.do(tasks.make("release"))
        tasks.again = True
        tasks.drives = (replace(drive, mount_options="durability-none"),)
        for task in (tasks.make("verify", run=armed.run), tasks.make("run", run=armed.run)):
            status = await server.do(task, "armed failed ended done")
            refused(status, "not-verified", f"gave no verdict on run {armed.run}")
        tasks.drives = (drive,)
        later = await server.do(tasks.make("run", run=armed.run), "armed failed ended")
        assert later.state == "armed" and later.text.startswith(f"first verified run {armed.run}"), later
        await server.do(tasks.make("release"))
