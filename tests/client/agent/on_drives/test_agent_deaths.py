"""An agent that is killed, stopped or given other tasks, in each state."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from durability.campaign.tasks import DriveStatus, Task, TaskKind
from durability.errors import EXIT_INCONCLUSIVE
from durability.units import format_address
from durability_client.agent.agent_loop import agent_loop
from durability_client.agent.agent_paths import AgentPaths
from durability_client.agent.drive_work import Setting
from durability_client.agent.task_work import TaskWork
from durability_client.link.endpoint import Endpoint
from durability_client.system.mounts import mounts
from durability_client.target.discovery import host_now
from durability_lab.kernel_rig.cycle import powered
from durability_lab.support.local_server import LocalServer, join_server, local_server
from durability_server.runs.run import Run
from durability_server.server import Server
from tests.client.agent.on_drives.test_agent_on_drives import Bench, bench, mounted
from tests.client.agent.task_server import (
    Tasks,
    agent_process,
    by_name,
    drive_on,
    options_of,
    rig_of,
    task_server,
    with_both_servers,
)
from tests.waiting import until, wait_for

pytestmark = pytest.mark.usefixtures("rig_machine")
MakeLoop = Callable[..., Path]


def programs() -> Iterator[tuple[int, list[str], list[str]]]:
    """Each process, but for agents: its id, the words of its command line, its open files."""
    for entry in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208 - names
        with suppress(OSError):  # it ended
            words = Path("/proc", entry, "cmdline").read_bytes().decode(errors="replace").split("\0")
            files = [os.readlink(file) for file in Path("/proc", entry, "fd").iterdir()]  # noqa: PTH115 - texts
            if "agent_command" not in " ".join(words):
                yield int(entry), words, files


def programs_on(directory: Path) -> list[str]:
    """The command lines of processes that name `directory`, or have a file in it open."""
    found = ((words, files) for _, words, files in programs())
    return [
        " ".join(words) for words, files in found if any(str(directory) in text for text in (*words, *files))
    ]


async def test_a_killed_agent_takes_its_run_along(tmp_path: Path) -> None:
    """SIGKILL of the agent ends its run at once. The next agent reports the run as ended and does not begin a
    second one."""
    async with bench(tmp_path, "honest", "ext4", seed=1) as b:
        run = await b.armed()
        live = b.live_run()
        await b.agent.kill()
        wait_for(lambda: not programs_on(b.agent.directory))
        b.server.status = None
        await b.agent.start()
        status = await b.server.drive("ended armed failed")
        assert (status.state, status.run) == ("ended", run), status
        assert "restarted" in status.text and live.session_end != "live"
        verified = await b.server.do(b.tasks.make("verify", run=run))
        assert (verified.state, verified.exit_code) == ("done", EXIT_INCONCLUSIVE), verified
        await b.armed()


async def test_a_run_that_was_stopped_in_a_pause_begins_again(tmp_path: Path, make_loop: MakeLoop) -> None:
    """In a pause the agent has no task and unmounts the drive. Afterwards the same task reports that its run
    is over, and a new task number begins a new run."""
    async with with_both_servers(tmp_path) as (server, agent, _):
        tasks = Tasks((drive_on(make_loop(64 << 20)),))
        task = tasks.make("run", fresh=True)
        first = await server.begin(task)
        assert first.state == "armed", first
        assert mounted(agent)
        server.task = replace(task, kind="wait", number=0, drives=())
        await server.until(lambda status: status.task == 0)
        await until(lambda: not mounted(agent))
        over = await server.begin(task)
        assert (over.state, over.run) == ("ended", first.run), over
        assert over.text == "the run of this task is over: the agent was restarted, or had another task since"
        again = await server.begin(tasks.make("run"))
        assert again.state == "armed" and again.run != first.run, again
        await server.do(tasks.make("release"))


@pytest.mark.parametrize("file_system", ["ext4", ""])
async def test_a_run_of_which_a_killed_agent_had_not_heard_is_named(tmp_path: Path, file_system: str) -> None:
    """If an agent is killed before its run reported an id, the next agent reads the id from the target. It
    does not mistake the previous run for it."""
    async with bench(tmp_path, "honest", file_system, seed=12) as b:
        before = await b.armed()
        await b.server.do(b.tasks.make("verify", run=before))
        run = await b.armed(fresh=False)
        await b.agent.kill()
        wait_for(lambda: not programs_on(b.agent.directory))
        mark = b.agent.directory / "runs" / f"nightly+d1+{b.tasks.number}"
        for told, expected in (({"before": before}, run), ({"before": run}, "")):
            mark.write_text(json.dumps(told))  # as it was before the run had said its id
            b.server.status = None
            await b.agent.start()
            status = await b.server.drive("ended armed failed")
            assert (status.state, status.run) == ("ended", expected), status
            await b.agent.kill()
            if file_system:
                break  # the mount is gone with the first answer


@pytest.mark.parametrize("step", ["waiting", "making", "mounting", "armed", "verifying"])
async def test_an_agent_that_is_killed_in_a_step_finds_its_way(tmp_path: Path, step: str) -> None:
    """SIGKILL as soon as a step is said, or a later one, and another agent: the run is begun or said to have
    ended, it is verified, the next one begins, and nothing is left mounted."""
    async with bench(tmp_path, "honest", "ext4", seed=13) as b:

        async def killed_in(task: Task) -> DriveStatus:
            b.server.task = task
            await b.server.until(
                lambda status: (
                    status.task == task.number
                    and any(one.text.startswith(step) or one.state != "working" for one in status.drives)
                )
            )
            await b.agent.kill()
            wait_for(lambda: not programs_on(b.agent.directory))
            b.server.status = None
            await b.agent.start()
            return await b.server.drive("armed ended done failed")

        if step == "verifying":
            run = await b.armed()
        else:
            status = await killed_in(b.tasks.make("run", fresh=True))
            assert status.state in ("armed", "ended"), status
            run = status.run
        task = b.tasks.make("verify", run=run)
        status = await (killed_in(task) if step == "verifying" else b.server.do(task))
        assert (status.state, status.run, status.trouble) == ("done", run, ""), status
        await b.armed(fresh=False)
        assert (await b.server.do(b.tasks.make("release"))).state == "done"
        assert not mounted(b.agent) and not programs_on(b.agent.directory)


async def test_a_killed_agent_verifies_again(tmp_path: Path) -> None:
    """An agent that is killed while it waits for the drive, and while it verifies, comes to the verdict after
    all, with the time of the first mount and with the repair that the kernel told of then."""
    async with bench(tmp_path, "honest", "ext4", seed=2) as b:
        run = await b.armed()
        b.rig.cut()
        await b.server.drive("ended")
        b.server.task = b.tasks.make("verify", run=run)
        await b.server.until(lambda _: not mounted(b.agent))
        await b.agent.kill()
        await b.agent.start()
        await b.return_()
        first = await b.server.until(
            lambda status: any(one.mount_s is not None or one.state == "failed" for one in status.drives)
        )
        says = f"<4>EXT4-fs warning (device {b.rig.device.name}): checksum invalid\n"
        Path("/dev/kmsg").write_text(says)  # noqa: ASYNC240 - in memory
        await b.agent.kill()
        wait_for(lambda: not programs_on(b.agent.directory))
        b.server.status = None
        await b.agent.start()
        status = await b.server.drive("done failed")
        assert (status.state, status.exit_code) == ("done", EXIT_INCONCLUSIVE), status
        assert status.mount_s == first.drives[0].mount_s
        assert status.repaired and "checksum invalid" in status.text, status
        assert status.condition is not None and status.condition.ready_s is not None
        assert not mounted(b.agent)


async def test_a_killed_agent_leaves_what_the_next_one_releases(tmp_path: Path, make_loop: MakeLoop) -> None:
    """An agent that is killed while it makes and mounts a file system, at moments drawn from a seed, leaves
    nothing that keeps the next one from doing so, or from leaving the machine as it was."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    async with with_both_servers(tmp_path) as (server, agent, _):
        tasks = Tasks((drive_on(make_loop(384 << 20)),))
        for _ in range(4):
            server.task = tasks.make("run", fresh=True)
            await server.drive("working armed ended")
            await asyncio.sleep(chance.uniform(0, 1.5))
            await agent.kill()
            server.status = None
            await agent.start()
        status = await server.drive("armed ended failed")
        assert status.state in ("armed", "ended"), status
        run = await server.do(tasks.make("run", fresh=True), "armed ended failed")
        assert run.state == "armed", run
        await agent.kill()
        server.status = None
        await agent.start()
        assert (await server.do(tasks.make("release"))).state == "done"
        assert not mounted(agent) and not programs_on(agent.directory)


async def test_an_agent_that_is_told_to_end_stops_its_runs_in_order(tmp_path: Path) -> None:
    """SIGTERM has the server confirm the end of the run, and unmounts."""
    async with bench(tmp_path, "honest", "xfs", seed=3) as b:
        await b.armed()
        live = b.live_run()
        assert await b.agent.stop() == 0
        assert live.session_end == "stop"
        assert not mounted(b.agent) and not programs_on(b.agent.directory)


async def test_there_is_one_agent(tmp_path: Path) -> None:
    """A second agent on the same directory refuses to begin, and the first goes on."""
    async with task_server(tmp_path) as server, agent_process(tmp_path) as agent:
        await server.until(lambda _: True)
        first = agent.process
        await agent.start()
        assert agent.process is not None
        assert await agent.process.wait() != 0
        agent.process = first
        asked = server.asked
        await server.until(lambda _: server.asked > asked + 1)


async def test_tasks_that_change_in_the_middle_of_everything(tmp_path: Path, make_loop: MakeLoop) -> None:
    """If tasks change at random times, the last one is done, and the agent leaves the machine clean."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    async with with_both_servers(tmp_path) as (server, agent, lab):
        tasks = Tasks((drive_on(make_loop(384 << 20)), drive_on(make_loop(384 << 20), "", name="d2")))
        run = "0123456789abcdef"
        for _ in range(25):
            kind: TaskKind = chance.choice(("run", "run", "verify", "examine", "release", "wait"))
            server.task = tasks.make(kind, fresh=True, run=run if kind == "verify" else "")
            tasks.ready_within_s = chance.choice((0.0, 2.0))
            asked = server.asked + chance.randrange(1, 8)
            await server.until(lambda _, asked=asked: server.asked >= asked)  # type: ignore[misc]
        tasks.ready_within_s = 60.0
        for name in ("d1", "d2"):
            server.task = tasks.make("run", fresh=True) if name == "d1" else server.task
            assert (await server.drive("armed failed ended", name)).state == "armed", server.status
        server.task = tasks.make("release")
        for name in ("d1", "d2"):
            assert (await server.drive("done failed", name)).state == "done", server.status
        assert not mounted(agent) and not programs_on(agent.directory)
        assert "live" not in {one.session_end for one in lab.server.runs}


async def test_a_machine_is_shut_down_after_its_runs(tmp_path: Path, make_loop: MakeLoop) -> None:
    """Before the machine is shut down its run has ended in order, and nothing is mounted."""
    found: list[tuple[str, bool]] = []
    live: list[Run] = []
    async with local_server() as lab, task_server(tmp_path) as server:
        places = AgentPaths(tmp_path / "agent")
        setting = Setting(places=places, options=options_of(lab), boot_id=host_now().boot_id)

        async def off() -> None:
            is_mounted = any(str(tmp_path) in mount.mount_point for mount in mounts())
            found.extend((run.session_end, is_mounted) for run in live)

        with places.held():
            work = TaskWork(setting, host_now(), power_off=off, say=print)
            loop = asyncio.create_task(agent_loop(Endpoint(local=tmp_path / "socket"), work, print))
            tasks = Tasks((drive_on(make_loop(384 << 20)),))
            armed = await server.do(tasks.make("run", fresh=True), "armed ended failed")
            assert armed.state == "armed", armed
            live = [run for run in lab.server.runs if run.session_end == "live"]
            prepared = await server.do(tasks.make("shutdown"))
            assert (prepared.state, prepared.run) == ("done", armed.run), prepared
            await until(lambda: bool(found))
            assert found == [("stop", False)]
            loop.cancel()
            await work.close()


async def test_a_run_whose_drive_kept_its_power_is_stopped(tmp_path: Path) -> None:
    """A run that still has operations acknowledged when it is to be verified was not cut: it is stopped in
    order and verified all the same."""
    async with bench(tmp_path, "honest", "ext4", seed=9) as b:
        run = await b.armed()
        live = b.live_run()
        status = await b.server.do(b.tasks.make("verify", run=run))
        assert (status.state, status.exit_code) == ("done", EXIT_INCONCLUSIVE), status
        assert live.session_end == "stop"


async def test_a_run_that_is_killed_has_ended(tmp_path: Path) -> None:
    """A run that was killed is reported as ended, with a shell's exit code for the signal (137)."""
    async with bench(tmp_path, "honest", "", seed=10) as b:
        run = await b.armed()
        for process, words, _ in programs():
            if "run" in words and str(b.lab.credential) in words:
                os.kill(process, signal.SIGKILL)
        status = await b.server.drive("ended failed")
        assert (status.state, status.run, status.exit_code) == ("ended", run, 137), status


async def test_a_verify_waits_for_a_server_that_is_away(tmp_path: Path) -> None:
    """A verify that cannot reach its server is not a result. The agent completes it when the server is
    back."""
    first, second = (Server(store_url=f"sqlite:///{tmp_path}/store.sqlite") for _ in range(2))
    host, port = await first.start("127.0.0.1", 0, directory=None)
    lab = LocalServer(server=first, address=format_address(host, port), credential=tmp_path / "c.json")
    await join_server(await first.invite(), lab.address, lab.credential)
    async with (
        task_server(tmp_path) as server,
        powered(rig_of("honest", seed=11)) as rig,
        agent_process(tmp_path, options_of(lab)) as agent,
    ):
        with by_name(rig.device) as link:
            b = Bench(lab, server, agent, rig, link, Tasks((drive_on(link.path),)))
            run = await b.armed()
            rig.cut()
            await server.drive("ended")
            await first.stop()
            server.task = b.tasks.make("verify", run=run)
            await b.return_()
            failed = await server.until(
                lambda one: one.task == b.tasks.number and one.drives[0].exit_code == 5
            )
            assert failed.drives[0].state == "working", failed
            server.cut()
            await second.start(host, port, directory=None)
            status = await server.drive("done failed")
            assert (status.state, status.exit_code) == ("done", EXIT_INCONCLUSIVE), status
    await second.stop()
