"""A campaign of one drive whose runs are cut: what its agent then does with them."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from durability.campaign.definition.settings import Arm, DriveUnderTest
from durability.campaign.tasks import DriveStatus, Task
from durability.units import parse_run
from durability_client import queries
from durability_lab.support.local_server import LocalServer
from tests.client.agent.task_server import ARM, AgentProcess, Tasks, TaskServer, with_both_servers


@dataclass
class CutCampaign:
    """The drive of `tasks` was examined by `agent`, which has its tasks from `server`; `lab` has its runs."""

    server: TaskServer
    agent: AgentProcess
    lab: LocalServer
    tasks: Tasks

    async def begin(self, *, run: str = "", fresh: bool = False) -> DriveStatus:
        """Give the task of a run, and return the status of the drive once that runs or is refused."""
        return await self.server.begin(self.tasks.make("run", run=run, fresh=fresh))

    async def cut(self, *, fresh: bool) -> str:
        """A run that was armed when its machine went down; its id. The machine is up again, and nothing is
        mounted."""
        armed = await self.begin(fresh=fresh)
        assert armed.state == "armed", armed
        await self.restart()
        assert (await self.server.do(self.tasks.make("examine"))).state == "done"
        return armed.run

    async def restart(self) -> None:
        """The machine goes down and is up again: the agent has forgotten the run of its task."""
        await self.agent.kill()
        (self.agent.directory / "runs" / f"nightly+d1+{self.tasks.number}").unlink()
        self.server.status = None
        await self.agent.start()

    async def release(self) -> None:
        """End the run, and let go of the drive."""
        await self.server.do(self.tasks.make("release"))

    async def verdicts(self, run: str) -> list[str]:
        """Those that the server has of a run."""
        out = io.StringIO()
        await queries.show(self.lab.endpoint, parse_run(run), json=True, out=out)
        return [one["verdict"] for one in json.loads(out.getvalue())["verdicts"]]


@asynccontextmanager
async def campaign_on(
    directory: Path, drive: DriveUnderTest, *, ready_within_s: float = 1.0, arm: Arm = ARM
) -> AsyncIterator[CutCampaign]:
    """A campaign whose drive was examined."""
    async with with_both_servers(directory) as (server, agent, lab):
        tasks = Tasks((drive,), ready_within_s=ready_within_s, arm=arm)
        tasks.examined = (await server.do(tasks.make("examine"))).condition
        yield CutCampaign(server, agent, lab, tasks)


def of_campaign(task: Task, name: str) -> Task:
    """The task as one of another campaign."""
    return replace(task, campaign=name, drives=tuple(replace(one, label=f"{name} 1") for one in task.drives))


def damage(device: Path) -> None:
    """Spoil an ext4 file system so that it does not mount, and is still recognised."""
    with device.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 4096)  # where its groups are
