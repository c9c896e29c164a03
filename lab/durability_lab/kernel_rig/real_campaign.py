"""A campaign of real parts on one machine: server, agent, commands, and drives that lose their power.

`durability serve`, its power controller, `durability agent` and its children are separate processes, as on
two machines. The operator's commands are processes too. `[power]` has three commands, which switch the drives
of the kernel rig (`switched_drives`). Every process can therefore be killed and started again at any time.

All files lie in one directory in memory, which is removed with the block, or with this process. This module
reads the campaign's log, as operators do, and does not judge.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import chain
from pathlib import Path

from durability_lab.kernel_rig.block_rig import BlockRig
from durability_lab.kernel_rig.switched_drives import SwitchedDrive, SwitchedDrives
from durability_lab.support.cleanup import in_memory, watched_directory
from durability_lab.support.operated_campaign import CampaignProcess, ModelDrive, OperatedCampaign

DRIVE_BYTES = 384 << 20  # enough for each file system; the media are sparse
TARGET_SIZE = "8MiB"


class RealCampaign(OperatedCampaign):
    """Server, agents and drives; make it with `real_campaign`.

    `machines`: the drives of each machine under test. `address`: where the server listens. `namespace`: the
    agents' network namespace, "" for that of this process.
    """

    def __init__(
        self,
        directory: Path,
        machines: Mapping[str, Sequence[SwitchedDrive]],
        *,
        store: str,
        address: str,
        namespace: str,
        web: bool,
    ) -> None:
        tested = [
            ModelDrive(name=drive.path.name, model=drive.model, machine=machine, device=drive.path)
            for machine, drives in machines.items()
            for drive in drives
        ]
        super().__init__(
            directory,
            name="rig-b",
            drives=tested,
            size=TARGET_SIZE,
            store=store,
            listen=address,
            web=web,
        )
        self.drives = SwitchedDrives([*chain.from_iterable(machines.values())], directory / "switch")
        self.agents = {
            machine: CampaignProcess(directory, f"agent-of-{machine}", self.environment, namespace=namespace)
            for machine in self.machines
        }

    @property
    def agent(self) -> CampaignProcess:
        """The agent, if there is one machine under test."""
        (agent,) = self.agents.values()
        return agent

    def start_agents(self) -> None:
        """Start the agent of each machine under test."""
        for machine, agent in self.agents.items():
            words = ["--server", self.address, "--credential", str(self.credential(machine))]
            agent.start("agent", *words, "--directory", str(self.directory / f"agent-{machine}"))

    def power(self) -> str:
        """The lines of `[power]`: three commands, and what they switch."""
        commands = [f"{one} = '''{self.drives.command(one)}'''" for one in ("on", "off", "status")]
        return "\n".join([*commands, 'cut_class = "power"', 'cuts = "drive"'])


@asynccontextmanager
async def real_campaign(
    models: Sequence[str],
    *,
    seed: int,
    machines: Sequence[str] = ("b",),
    store: str = "",
    address: str = "127.0.0.1:0",
    namespace: str = "",
    web: bool = False,
    make_rig: type[BlockRig] = BlockRig,
) -> AsyncIterator[RealCampaign]:
    """Server, agents and a drive of each model, `drive-1` and so on, for the duration of the block.

    The drives are divided equally among the `machines`. `store`: URL of the server's store, "" for a file in
    memory. `address`: where the server listens. `web`: whether it has a live page. `namespace`: the agents'
    network namespace, "" for that of this process. `make_rig`: the class of each drive's parts. Raises
    SetupError.
    """
    with watched_directory("durability-lab-", within=in_memory() or Path("/dev")) as directory:
        drives = [
            SwitchedDrive(
                model,
                directory / f"drive-{number}",
                seed=seed + number,
                size_bytes=DRIVE_BYTES,
                make_rig=make_rig,
            )
            for number, model in enumerate(models, 1)
        ]
        each = len(drives) // len(machines)
        of = {machine: drives[n * each : (n + 1) * each] for n, machine in enumerate(machines)}
        campaign = RealCampaign(directory, of, store=store, address=address, namespace=namespace, web=web)
        async with campaign.drives.listening():
            try:
                await campaign.start_server()
                await campaign.join()
                campaign.start_agents()
                yield campaign
            finally:
                for agent in campaign.agents.values():
                    await asyncio.to_thread(agent.end)
                await asyncio.to_thread(campaign.server.end)
