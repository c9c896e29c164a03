"""The agent on real drives that lose their power, with a real server for its runs."""

from __future__ import annotations

import asyncio
import io
import json
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from durability.campaign.tasks import DriveStatus, Task
from durability.errors import EXIT_ENVIRONMENT, EXIT_INCONCLUSIVE, EXIT_LOSS, NOT_STORED
from durability.units import parse_run
from durability_client import queries
from durability_client.agent.run_child import TRIES
from durability_client.system.mounts import mounts
from durability_lab.kernel_rig.block_rig import BlockRig
from durability_lab.kernel_rig.cycle import powered
from durability_lab.support.local_server import LocalServer, local_server
from durability_server.runs.run import Run
from durability_server.store import store
from durability_server.store.database import Database
from tests.client.agent.task_server import (
    AgentProcess,
    DeviceLink,
    Tasks,
    TaskServer,
    agent_process,
    by_name,
    drive_on,
    file_on,
    options_of,
    rig_of,
    task_server,
    with_both_servers,
    without_server,
)
from tests.client.target.test_signatures import _make

pytestmark = pytest.mark.usefixtures("rig_machine")
ACKED = 300
REFUSE = "CREATE TRIGGER refuse BEFORE INSERT ON verdicts BEGIN SELECT RAISE(ABORT, 'no room'); END"
MakeLoop = Callable[..., Path]
MakeMount = Callable[..., tuple[Path, Path]]


@dataclass
class Bench:
    """A drive under test with its agent and both servers."""

    lab: LocalServer
    server: TaskServer
    agent: AgentProcess
    rig: BlockRig
    link: DeviceLink
    tasks: Tasks

    @property
    def target(self) -> Path:
        return self.agent.directory / "mnt" / "nightly+d1" / "target"

    async def armed(self, *, fresh: bool = True) -> str:
        """Begin a run and wait for some acknowledgements; its id."""
        status = await self.server.begin(self.tasks.make("run", fresh=fresh))
        assert status.state == "armed", status
        target = self.target if self.tasks.drives[0].file_system else Path(self.rig.loop)
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        assert await self.lab.until_acked(target, ACKED, never)
        return status.run

    def live_run(self) -> Run:
        """The run that writes now."""
        run = self.lab.live_run(self.target if self.tasks.drives[0].file_system else Path(self.rig.loop))
        assert run is not None
        return run

    async def return_(self) -> None:
        """Give the drive its power back. It has no name meanwhile: its loop device may be another test's."""
        self.link.path.unlink(missing_ok=True)
        await asyncio.to_thread(self.rig.power_on)
        self.link.point(Path(self.rig.loop))


@asynccontextmanager
async def bench(
    tmp_path: Path, model: str, file_system: str, *, seed: int, ready_within_s: float = 60.0
) -> AsyncIterator[Bench]:
    async with (
        local_server() as lab,
        task_server(tmp_path) as server,
        powered(rig_of(model, seed=seed)) as rig,
        agent_process(tmp_path, options_of(lab)) as agent,
    ):
        with by_name(rig.device) as link:
            tasks = Tasks((drive_on(link.path, file_system),), ready_within_s=ready_within_s)
            yield Bench(lab, server, agent, rig, link, tasks)


def mounted(agent: AgentProcess) -> bool:
    """Whether anything of the agent is mounted."""
    return any(str(agent.directory) in mount.mount_point for mount in mounts())


@pytest.mark.parametrize("file_system", ["ext4", "xfs", ""])
async def test_a_drive_is_cut_alone_and_comes_back(tmp_path: Path, file_system: str) -> None:
    """Examine, run, cut of the drive, verify on what returned, run again, release: each is done and said."""
    async with bench(tmp_path, "honest", file_system, seed=1) as b:
        status = await b.server.do(b.tasks.make("examine"))
        assert status.state == "done", status
        assert status.condition is not None and status.condition.size_bytes == 384 << 20
        for fresh in (True, False):
            run = await b.armed(fresh=fresh)
            (found,) = [one.options for one in mounts() if str(b.agent.directory) in one.mount_point] or [""]
            assert ("noinit_itable" in found) == (file_system == "ext4"), found  # runs alone write the drive
            b.rig.cut()
            ended = await b.server.drive("ended failed")
            assert (ended.state, ended.run, ended.exit_code) == ("ended", run, EXIT_ENVIRONMENT), ended
            assert status.condition is not None
            diskseq = status.condition.diskseq
            await b.return_()  # for which the dead mount must have gone
            status = await b.server.do(b.tasks.make("verify", run=run))
            assert (status.state, status.run, status.trouble) == ("done", run, ""), status
            assert status.exit_code == EXIT_INCONCLUSIVE, status  # nobody attested the cut
            assert status.condition is not None and status.condition.diskseq != diskseq
            assert status.condition.ready_s is not None and not status.repaired
            assert (status.mount_s is not None) == bool(file_system)
        await b.armed(fresh=True)
        live = b.live_run()
        status = await b.server.do(b.tasks.make("release"))
        assert (status.state, status.exit_code) == ("done", 143), status
        assert live.session_end == "stop"
        assert not mounted(b.agent)


async def test_a_loss_is_found_and_its_files_stay(tmp_path: Path) -> None:
    """A drive that ignores flushes loses; a verify that is repeated finds the files still there."""
    async with bench(tmp_path, "flush-ignored", "ext4", seed=2) as b:
        status = await cut_and_verified(b)
        assert status.exit_code == EXIT_LOSS, await shown(b, status.run)
        again = await b.server.do(b.tasks.make("verify", run=status.run))
        assert (again.exit_code, again.trouble) == (EXIT_LOSS, status.trouble), again


async def shown(b: Bench, run: str) -> str:
    """What the server shows of a run."""
    out = io.StringIO()
    await queries.show(b.lab.endpoint, parse_run(run), json=True, out=out)
    return out.getvalue()


async def cut_and_verified(b: Bench) -> DriveStatus:
    """The status after a cut under load, the drive's return and a verify."""
    run = await b.armed()
    b.rig.cut()
    await b.server.drive("ended")
    b.server.task = b.tasks.make("verify", run=run)
    await b.server.drive("working")
    await b.return_()
    return await b.server.drive("done failed")


async def test_a_drive_that_never_returns_is_missing(tmp_path: Path) -> None:
    """The verify fails if the drive is not ready within the allowed time, and no file system stays
    mounted."""
    async with bench(tmp_path, "honest", "ext4", seed=3) as b:
        run = await b.armed()
        b.rig.cut()
        await b.server.drive("ended")
        status = await b.server.do(b.tasks.make("verify", run=run, ready_within_s=3.0))
        assert (status.state, status.trouble) == ("failed", "missing"), status
        assert not mounted(b.agent)
        await b.return_()
        later = await b.server.do(b.tasks.make("verify", run=run))
        assert (later.state, later.exit_code) == ("done", EXIT_INCONCLUSIVE), later


@pytest.mark.parametrize("file_system", ["ext4", "xfs"])
async def test_a_file_system_that_is_gone_is_a_loss(tmp_path: Path, file_system: str) -> None:
    """If the file system does not mount, the agent verifies the device and reports `unmountable`."""
    async with bench(tmp_path, "honest", file_system, seed=4) as b:
        run = await b.armed()
        b.rig.cut()
        await b.server.drive("ended")
        b.link.path.unlink()
        b.server.task = b.tasks.make("verify", run=run)
        await b.server.until(lambda _: not mounted(b.agent))
        await asyncio.to_thread(b.rig.power_on)
        with open(b.rig.loop, "r+b") as device:  # noqa: PTH123, ASYNC230 - a device in memory
            for at in range(0, 384, 2):
                device.seek(at << 20)
                device.write(bytes(1 << 20))
        b.link.point(Path(b.rig.loop))
        status = await b.server.drive("done failed")
        assert (status.state, status.trouble) == ("done", "unmountable"), status
        assert status.exit_code == EXIT_LOSS and status.condition is not None
        assert (await b.server.do(b.tasks.make("release"))).state == "done"


async def test_a_drive_that_hangs_does_not_silence_the_agent(tmp_path: Path) -> None:
    """While every request of the drive waits, the agent answers; after the cut the drive is verified."""
    async with (
        local_server() as lab,
        task_server(tmp_path) as server,
        powered(rig_of("honest", seed=5, disturbed=True)) as rig,
        agent_process(tmp_path, options_of(lab)) as agent,
    ):
        with by_name(rig.device) as link:
            b = Bench(lab, server, agent, rig, link, Tasks((drive_on(link.path),)))
            run = await b.armed()
            await asyncio.to_thread(rig.stop_answering)
            server.task = b.tasks.make("verify", run=run)
            await b.server.drive("working")
            asked = server.asked
            await server.until(lambda _: server.asked > asked + 5)
            assert (await server.drive("working done failed")).state == "working"
            rig.cut()
            await server.until(lambda _: not mounted(agent))
            await b.return_()
            status = await server.drive("done failed")
            assert (status.state, status.exit_code) == ("done", EXIT_INCONCLUSIVE), status


async def test_another_drive_at_the_place_is_left_alone(tmp_path: Path, make_loop: MakeLoop) -> None:
    """A drive with another serial is not verified, mounted or written to."""
    async with bench(tmp_path, "honest", "ext4", seed=6) as b:
        examined = await b.server.do(b.tasks.make("examine"))
        assert examined.condition is not None and examined.condition.serial
        b.tasks.serial = examined.condition.serial
        other = make_loop(384 << 20)
        b.link.point(other)
        run = await b.server.do(b.tasks.make("run", fresh=True, ready_within_s=1.0))
        verify = await b.server.do(b.tasks.make("verify", run="0123456789abcdef", ready_within_s=1.0))
        for status in (run, verify):
            assert (status.state, status.trouble) == ("failed", "wrong-drive"), status
            assert examined.condition.serial in status.text
        assert not any(other.read_bytes())
        b.link.point(b.rig.device)
        await b.armed()


async def test_several_drives_go_side_by_side(tmp_path: Path, make_loop: MakeLoop) -> None:
    """A missing drive does not delay the runs on the other drives, and each of those runs is stopped in
    order."""
    drives = (
        drive_on(make_loop(384 << 20)),
        drive_on("/dev/durability-none", name="d2"),
        drive_on(make_loop(384 << 20), "", name="d3"),
    )
    async with with_both_servers(tmp_path) as (server, agent, lab):
        tasks = Tasks(drives, ready_within_s=5.0)
        server.task = tasks.make("run", fresh=True)
        assert (await server.drive("failed", "d2")).trouble == "missing"
        runs = {(await server.drive("armed", name)).run for name in ("d1", "d3")}
        assert len(runs) == 2
        server.task = tasks.make("release")
        for name in ("d1", "d2", "d3"):
            assert (await server.drive("done", name)).state == "done"
        assert not mounted(agent)
        assert {run.session_end for run in lab.server.runs} <= {"stop"}


async def test_a_file_system_of_the_users_gets_a_file(tmp_path: Path, make_mount: MakeMount) -> None:
    """A target file in the user's file system stays until a release names its run. A release refuses to
    remove a file that is not a target."""
    _, directory = make_mount()
    target = directory / "t"
    async with with_both_servers(tmp_path) as (server, _, _):
        tasks = Tasks((file_on(target),))
        assert (await server.do(tasks.make("examine"))).state == "done"
        run = await server.begin(tasks.make("run"))
        assert run.state == "armed", run
        assert (await server.do(tasks.make("release"))).state == "done"
        assert target.exists()
        assert (await server.do(tasks.make("release", run=run.run))).state == "done"
        assert sorted(one.name for one in directory.iterdir()) == ["lost+found"]
        target.write_bytes(b"somebody's")
        kept = await server.do(tasks.make("release", run=run.run))
        assert (kept.state, kept.trouble) == ("failed", "agent"), kept
        assert target.read_bytes() == b"somebody's"


async def test_a_verdict_that_is_not_stored_is_made_again(tmp_path: Path) -> None:
    """While the store refuses the verdict, the agent reports this and keeps trying. The task is done when the
    verdict is stored."""
    async with bench(tmp_path, "honest", "", seed=4) as b:
        run = await b.armed()
        b.rig.cut()
        await b.server.drive("ended")
        await b.return_()
        with closing(sqlite3.connect(b.lab.credential.parent / "store.sqlite", timeout=60)) as store:
            store.execute(REFUSE)
            b.server.task = b.tasks.make("verify", run=run)
            await b.server.until(lambda status: any(NOT_STORED in one.text for one in status.drives))
            store.execute("DROP TRIGGER refuse")
        status = await b.server.drive("done failed")
        assert (status.state, status.text) == ("done", ""), status


async def test_a_run_that_finds_no_server_is_begun_when_there_is_one(
    tmp_path: Path, make_loop: MakeLoop
) -> None:
    """The drive is not to blame for it: the agent says what is missing, and tries again."""
    async with with_both_servers(tmp_path) as (server, agent, lab):
        tasks = Tasks((drive_on(make_loop(256 << 20), size="16MiB"),))
        async with without_server(server, lab, tasks.make("run", fresh=True)) as come_back:
            await come_back()
            status = await server.drive("armed failed ended")
            assert status.state == "armed", status
            await server.do(tasks.make("release"))
            assert not mounted(agent)


def no_room(_: Database) -> tuple[int, int]:
    """What a server's disk has left that takes no run any more."""
    return 40 << 20, 100 << 30


async def test_a_drive_that_is_put_to_use_while_the_server_takes_no_run_is_not_erased(
    tmp_path: Path, make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A raw drive is looked at again before each try of its run: its owner may not know that one is due."""
    device = make_loop(64 << 20)
    monkeypatch.setattr(Database, "room", no_room)
    async with with_both_servers(tmp_path) as (server, _, _):
        tasks = Tasks((drive_on(device, "", size="16MiB"),))
        tasks.examined = (await server.do(tasks.make("examine"))).condition
        server.task = tasks.make("run", fresh=True)
        await server.until(lambda status: any("make room there" in one.text for one in status.drives))
        await asyncio.to_thread(subprocess.run, ("mkfs.ext4", "-q", device), check=True)
        before = device.read_bytes()
        status = await server.drive("armed failed ended")
        assert (status.state, status.trouble) == ("failed", "in-use"), status
        assert "was not touched" in status.text
        assert device.read_bytes() == before


async def test_what_was_erased_and_put_back_while_the_server_takes_no_run_is_not_erased(
    tmp_path: Path, make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check found the file system, and the agent erased it for the run. If the owner puts it back, the
    agent does not erase it again."""
    device = make_loop(64 << 20)
    await asyncio.to_thread(subprocess.run, ("mkfs.ext4", "-q", device), check=True)
    before = device.read_bytes()
    monkeypatch.setattr(Database, "room", no_room)
    async with with_both_servers(tmp_path) as (server, _, _):
        tasks = Tasks((drive_on(device, "", size="16MiB"),))
        tasks.examined = (await server.do(tasks.make("examine"))).condition
        server.task = tasks.make("run", fresh=True)
        await server.until(lambda status: any("make room there" in one.text for one in status.drives))
        device.write_bytes(before)
        status = await server.drive("armed failed ended")
        assert (status.state, status.trouble) == ("failed", "in-use"), status
        assert device.read_bytes() == before


async def test_a_raw_drive_that_carried_a_partition_table_is_tested_again(
    tmp_path: Path, make_loop: MakeLoop
) -> None:
    """A run does not overwrite the backup of the GPT at the end of the drive. The next run, which does not
    use force, must still begin."""
    device = make_loop(64 << 20)
    _make(device, "gpt")
    async with with_both_servers(tmp_path) as (server, _, _):
        tasks = Tasks((drive_on(device, "", size="8MiB"),))
        tasks.examined = (await server.do(tasks.make("examine"))).condition
        assert tasks.examined is not None and "gpt" in tasks.examined.holds
        run = await server.begin(tasks.make("run", fresh=True))
        assert run.state == "armed", run
        verified = await server.do(tasks.make("verify", run=run.run))
        assert verified.state == "done", verified
        tasks.again = True
        later = await server.begin(tasks.make("run"))
        assert later.state == "armed", later
        await server.do(tasks.make("release"))


@pytest.mark.parametrize("label", ["campaign test 3", "by hand"])
async def test_a_run_that_was_never_verified_is_verified_before_the_next_one(
    tmp_path: Path, make_mount: MakeMount, label: str
) -> None:
    """After a restart of the machine, the agent first verifies its own unverified run, then begins the next
    one. It never forces another run onto the target. A run that was begun by hand is not verified: the task
    fails."""
    _, directory = make_mount()
    async with with_both_servers(tmp_path) as (server, agent, lab):
        tasks = Tasks((file_on(directory / "t"),))
        first = tasks.make("run")
        run = await server.begin(labelled(first, label))
        assert run.state == "armed", run
        await agent.kill()
        (agent.directory / "runs" / f"nightly+d1+{tasks.number}").unlink()  # as a boot does
        server.status = None
        await agent.start()
        later = await server.begin(labelled(tasks.make("run"), "campaign test 4"))
        out = io.StringIO()
        await queries.show(lab.endpoint, parse_run(run.run), json=True, out=out)
        verdicts = json.loads(out.getvalue())["verdicts"]
        if label == "by hand":
            assert (later.state, later.trouble, verdicts) == ("failed", "agent", []), later
            assert f"holds run {run.run}" in later.text and "verify it first" in later.text
            return
        assert later.state == "armed" and later.run != run.run and later.exit_code is None, later
        assert later.text == f"first verified run {run.run}, which had no verdict: inconclusive"
        assert len(verdicts) == 1
        await server.do(tasks.make("release"))


@pytest.mark.parametrize("file_system", ["ext4", ""])
async def test_a_run_without_a_verdict_on_a_device_is_verified_before_the_next_one(
    tmp_path: Path, make_loop: MakeLoop, file_system: str
) -> None:
    """A run on a device without a verdict is verified before the next run, which keeps the file system. A
    check in between accepts the device and changes nothing."""
    async with with_both_servers(tmp_path) as (server, agent, _):
        tasks = Tasks((drive_on(make_loop(64 << 20), file_system),))
        tasks.examined = (await server.do(tasks.make("examine"))).condition
        run = await server.begin(tasks.make("run", fresh=True))
        assert run.state == "armed", run
        await agent.kill()
        (agent.directory / "runs" / f"nightly+d1+{tasks.number}").unlink()  # as a boot does
        server.status = None
        await agent.start()
        tasks.again = True
        examined = await server.do(tasks.make("examine"))
        assert (examined.state, examined.trouble) == ("done", ""), examined
        later = await server.begin(tasks.make("run"))
        assert later.state == "armed" and later.run != run.run, later
        assert later.text == f"first verified run {run.run}, which had no verdict: inconclusive"
        await server.do(tasks.make("release"))


def labelled(task: Task, label: str) -> Task:
    """The task with that label for its runs."""
    return replace(task, drives=tuple(replace(one, label=label) for one in task.drives))


async def test_a_run_waits_for_room_on_the_servers_disk(
    tmp_path: Path, make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drive is not to blame: the agent says what is missing, tries longer than for a server that is away,
    and begins the run once the server takes it."""
    asked: list[Database] = []

    def room(database: Database) -> tuple[int, int]:
        asked.append(database)
        return no_room(database)

    async with with_both_servers(tmp_path) as (server, _, _):
        tasks = Tasks((drive_on(make_loop(256 << 20), size="16MiB"),))
        with monkeypatch.context() as full:
            full.setattr(Database, "room", room)
            server.task = tasks.make("run", fresh=True)
            await server.until(
                lambda status: len(asked) > TRIES or any(one.state != "working" for one in status.drives)
            )
            assert server.status is not None and "make room there" in server.status.drives[0].text
        status = await server.drive("armed failed ended")
        assert status.state == "armed", status


async def test_a_run_that_the_server_refuses_is_not_the_drives_fault(
    tmp_path: Path, make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the client has its maximum number of runs, the agent reports its own failure and leaves no file
    system mounted."""
    monkeypatch.setattr(store, "RUNS_OF_CLIENT_MAX", 0)
    async with with_both_servers(tmp_path) as (server, agent, _):
        tasks = Tasks((drive_on(make_loop(256 << 20), size="16MiB"),))
        status = await server.begin(tasks.make("run", fresh=True))
        assert (status.state, status.trouble) == ("failed", "agent"), status
        assert "the maximum of one client" in status.text
        assert not mounted(agent)


async def test_a_run_that_cannot_begin_says_why(tmp_path: Path, make_loop: MakeLoop) -> None:
    """A run that the client refuses has not begun, in its own words."""
    async with with_both_servers(tmp_path) as (server, agent, _):
        tasks = Tasks((drive_on(make_loop(64 << 20), size="60MiB"),))
        status = await server.begin(tasks.make("run", fresh=True))
        assert (status.state, status.trouble) == ("failed", "not-begun"), status
        assert "free" in status.text and "durability:" not in status.text
        assert not mounted(agent)
        small = Tasks((drive_on(make_loop(64 << 20), size="1GiB"),), number=tasks.number)
        status = await server.do(small.make("examine"))
        assert (status.state, status.trouble) == ("failed", "too-small"), status
        await server.do(tasks.make("release"))
        assert not mounted(agent)
