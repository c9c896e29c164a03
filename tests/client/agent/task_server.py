"""The server as an agent sees it: a real one for runs, and one that says a task to each status."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from durability.campaign.definition.settings import Arm, DriveUnderTest
from durability.campaign.tasks import Condition, DriveStatus, DriveTask, Status, Task, TaskKind
from durability.errors import PeerError
from durability.formats.documents import from_value, to_value
from durability.protocol.messages import AgentStatus, AgentTask, Hello
from durability.protocol.state_machine import ServerProtocol
from durability.units import parse_address
from durability_client.link.endpoint import Endpoint
from durability_client.system.mounts import mounts
from durability_lab.kernel_rig.block_rig import BlockRig
from durability_lab.support.local_server import LocalServer, local_server
from durability_server.server import Server

DEADLINE_S = 150.0
WAIT = Task(kind="wait", number=0, campaign="", cycle=0, drives=(), ready_within_s=0.0)
ARM = Arm(
    name="one-writer",
    workload="overwrite",
    writers=1,
    sync=None,
    direct=False,
    group=1,
    record_size="4KiB",
    pattern="random",
    moment="load",
    cut_after_s=(0, 0),
    off_s=(0, 0),
    again_after_s=None,
    idle_s=1,
)
# What `durability agent` does, with a server that is reached at a local socket.
_AGENT = """
import asyncio, sys
from pathlib import Path
from durability_client.agent.agent_command import agent
from durability_client.link.endpoint import Endpoint
where, directory, *options = sys.argv[1:]
asyncio.run(agent(Endpoint(local=Path(where)), options=options, directory=Path(directory), out=sys.stdout))
"""


class TaskServer:
    """Answers each status with `task`. `status` is the newest, `asked` their number."""

    def __init__(self) -> None:
        self.task = WAIT
        self.status: Status | None = None
        self.asked = 0
        self.refusal = ""  # what every client is told instead of a welcome
        self.garbage = False  # whether the answer is no task
        self._news = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def start(self, path: Path) -> Endpoint:
        """Listen at the local socket `path`."""
        self._server = await asyncio.start_unix_server(self._serve, path)
        return Endpoint(local=path)

    async def stop(self) -> None:
        """Be gone."""
        assert self._server is not None
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """Reset every connection."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def until(self, holds: Callable[[Status], bool]) -> Status:
        """The first status from now on for which that holds. Raises AssertionError."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                while self.status is None or not holds(self.status):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"in vain: {self.status}") from None
        return self.status

    async def drive(self, state: str, name: str = "d1") -> DriveStatus:
        """The status of a drive once its part of the present task is in one of the states in `state`."""

        def holds(status: Status) -> bool:
            return status.task == self.task.number and any(
                one.drive == name and one.state in state.split() for one in status.drives
            )

        status = await self.until(holds)
        return next(one for one in status.drives if one.drive == name)

    async def do(self, task: Task, state: str = "done failed") -> DriveStatus:
        """Give a task; the status of its first drive once that is in one of the states."""
        self.task = task
        return await self.drive(state, task.drives[0].drive.name)

    async def begin(self, task: Task) -> DriveStatus:
        """Give the task of a run; the status of its first drive once it runs, or will not."""
        return await self.do(task, "armed failed ended")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = ServerProtocol()
        self._writers.add(writer)
        try:
            while data := await reader.read(1 << 16):
                for message in session.receive(data):
                    if isinstance(message, Hello):
                        assert message.purpose == "agent"
                        if self.refusal:
                            session.fail("authentication", self.refusal)
                        else:
                            session.welcome(server_id="s", name="b7", role="client")
                    if isinstance(message, AgentStatus):
                        self.status = from_value(Status, message.status)
                        self.asked += 1
                        self._news.set()
                        task = {"kind": "dance"} if self.garbage else to_value(self.task)
                        session.send(AgentTask(task=task))
                writer.write(session.outgoing())
                await writer.drain()
        except (OSError, PeerError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()


@asynccontextmanager
async def task_server(directory: Path) -> AsyncIterator[TaskServer]:
    """One that listens in `directory`, at `socket`."""
    server = TaskServer()
    await server.start(directory / "socket")
    try:
        yield server
    finally:
        await server.stop()


class AgentProcess:
    """An agent in a process of its own, which can be killed and started again. `directory` has its marks and
    mounts."""

    def __init__(self, directory: Path, options: Sequence[str] = ()) -> None:
        self.directory = directory / "agent"
        self._command = (
            sys.executable,
            "-c",
            _AGENT,
            str(directory / "socket"),
            str(self.directory),
            *options,
        )
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(*self._command)

    async def kill(self) -> None:
        """SIGKILL."""
        assert self.process is not None
        self.process.kill()
        await self.process.wait()

    async def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self.process is not None
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(DEADLINE_S):
            return await self.process.wait()


def options_of(lab: LocalServer) -> tuple[str, ...]:
    """With which an agent's commands find the server of `lab`."""
    return "--server", lab.address, "--credential", str(lab.credential)


@asynccontextmanager
async def agent_process(directory: Path, options: Sequence[str] = ()) -> AsyncIterator[AgentProcess]:
    """An agent for the time of a block."""
    agent = AgentProcess(directory, options)
    await agent.start()
    try:
        yield agent
    finally:
        assert agent.process is not None
        if agent.process.returncode is None:
            await agent.stop()
        for mount in mounts():  # of an agent that was killed by a test that failed
            if mount.mount_point.startswith(str(agent.directory)):
                subprocess.run(["umount", "--lazy", mount.mount_point], check=False)  # noqa: ASYNC221 - it is quick


@asynccontextmanager
async def with_both_servers(directory: Path) -> AsyncIterator[tuple[TaskServer, AgentProcess, LocalServer]]:
    """An agent with a server for its tasks and one for its runs. The agent ends first."""
    async with (
        local_server() as lab,
        task_server(directory) as server,
        agent_process(directory, options_of(lab)) as agent,
    ):
        yield server, agent, lab


@asynccontextmanager
async def without_server(
    server: TaskServer, lab: LocalServer, task: Task
) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """The server of `lab` is gone, and the agent has begun `task` in vain. Call what this gives, and another
    server has its address and its store."""
    address = parse_address(lab.address)
    await lab.server.stop()
    server.task = task
    await server.until(lambda status: any("cannot connect to" in one.text for one in status.drives))
    again = Server(store_url=f"sqlite:///{lab.credential.parent}/store.sqlite")

    async def come_back() -> None:
        await again.start(*address, directory=None)

    try:
        yield come_back
    finally:
        await again.stop()


@contextmanager
def by_name(device: Path) -> Iterator[DeviceLink]:
    """A link below /dev that goes on to mean a drive whose kernel's name changes."""
    link = DeviceLink(Path(f"/dev/durability-test-{os.getpid()}-{device.name}"))
    link.point(device)
    try:
        yield link
    finally:
        link.path.unlink(missing_ok=True)


@dataclass(frozen=True)
class DeviceLink:
    path: Path

    def point(self, device: Path) -> None:
        new = self.path.with_name(f"{self.path.name}.new")
        new.unlink(missing_ok=True)
        new.symlink_to(device)
        new.replace(self.path)


def rig_of(model: str, *, seed: int, disturbed: bool = False) -> BlockRig:
    """A drive that can lose its power, without a file system: the agent makes that."""
    rig = BlockRig(model, None, seed=seed, disturbed=disturbed)
    rig.sector_bytes = 4096  # what file systems rely on
    return rig


@dataclass
class Tasks:
    """Makes tasks with rising numbers for the drives of a campaign."""

    drives: tuple[DriveUnderTest, ...]
    serial: str = ""
    ready_within_s: float = 60.0
    arm: Arm = ARM
    number: int = field(default=0)
    examined: Condition | None = None
    again: bool = False

    def make(self, kind: TaskKind, *, run: str = "", fresh: bool = False, **changes: object) -> Task:
        self.number += 1
        drives = tuple(
            DriveTask(
                drive=drive,
                arm=self.arm if kind == "run" else None,
                run=run,
                serial=self.serial,
                fresh=fresh,
                cut_class="power",
                label="campaign test",
                examined=self.examined,
                again=self.again,
            )
            for drive in (self.drives if kind != "wait" else ())
        )
        task = Task(
            kind=kind,
            number=self.number,
            campaign="nightly",
            cycle=1,
            drives=drives,
            ready_within_s=self.ready_within_s,
        )
        return replace(task, **changes)  # type: ignore[arg-type]


def drive_on(
    device: Path | str, file_system: str = "ext4", *, name: str = "d1", size: str = "8MiB"
) -> DriveUnderTest:
    """A drive whose file system the agent makes, "" for none."""
    return DriveUnderTest(
        name=name,
        machine="b7",
        device=str(device),
        file_system=file_system,  # type: ignore[arg-type]
        mount_options="",
        target="",
        size=size,
    )


def file_on(target: Path, *, name: str = "d1") -> DriveUnderTest:
    """A drive whose target is a file in a file system that is there."""
    return DriveUnderTest(
        name=name, machine="b7", device="", file_system="", mount_options="", target=str(target), size="8MiB"
    )
