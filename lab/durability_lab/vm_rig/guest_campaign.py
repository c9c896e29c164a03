"""A campaign of rig C, without simulated parts: only third-party programs, and this product as installed.

    durability serve -> controller -> fence_ipmilan -> ipmitool -> ipmi_sim -> chassis -> QEMU and its drives
          ^                                                                                      |
          +------------------------ durability agent, run, verify <----- a kernel boots <--------+

All programs live in a separate network of the lab (`network`), so the machine falls silent when it is cut.
The class of a cut is `vm`: the drives keep what their models keep when they are killed.

This module reads the campaign's log and does not judge. Nothing of a rig is left after its block, or after
this process.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from durability.errors import SetupError
from durability_lab.support import bmc as bmcs
from durability_lab.support.bmc import Bmc
from durability_lab.support.cleanup import PID_SUFFIX, in_memory, watched_directory
from durability_lab.support.operated_campaign import ModelDrive, OperatedCampaign
from durability_lab.vm_rig import guest_machine, live_machine
from durability_lab.vm_rig.guest_machine import Image, compile_bytecode, make_image
from durability_lab.vm_rig.guest_programs import Bus, GuestDrive
from durability_lab.vm_rig.live_machine import LiveImage
from durability_lab.vm_rig.network import SERVER, GuestNetwork
from durability_lab.vm_rig.switched_machine import SwitchedMachine

MACHINE = "guest"
TARGET_SIZE = "4MiB"  # on an emulated machine, a larger target takes long to fill and to verify
_BY_ID = Path("/dev/disk/by-id")  # in the guest; `guest/job` or udev makes the names in it
_UDEV_NAMES: Mapping[Bus, str] = {"nvme": "nvme-QEMU_NVMe_Ctrl", "sata": "ata-QEMU_HARDDISK"}
_LOOK_S = 0.1
_PASSWORD_FILE = "bmc.password"


def missing() -> str:
    """What this machine lacks for the rig, as a sentence; "" if nothing is missing."""
    return guest_machine.missing() or bmcs.missing()


class GuestCampaign(OperatedCampaign):
    """A server, a BMC, and a machine with drives; make it with `guest_campaign`. `request_s`: longest
    duration of a request to the BMC."""

    def __init__(
        self, directory: Path, network: GuestNetwork, drives: Sequence[tuple[ModelDrive, GuestDrive]]
    ) -> None:
        super().__init__(
            directory,
            name="rig-c",
            drives=[tested for tested, _ in drives],
            size=TARGET_SIZE,
            store=f"sqlite:///{directory}/store.sqlite",
            listen=f"{SERVER}:0",
            within=network.call,
        )
        password = secrets.token_hex(8)
        password_file = directory / _PASSWORD_FILE
        password_file.touch(mode=0o600)
        password_file.write_text(password)
        self.request_s = 60.0
        self.guest = SwitchedMachine(directory, [drive for _, drive in drives])
        bmc_directory = directory / "bmc"
        bmc_directory.mkdir()
        self.bmc = Bmc(bmc_directory, chassis=self.guest.chassis, password=password)
        self._bmc_process = directory / f"bmc{PID_SUFFIX}"  # process id for the cleanup
        self._network = network

    def power(self) -> str:
        """The lines of `[power]`: a fence agent that asks the BMC."""
        options = [f"{key} = {json.dumps(value)}" for key, value in self.bmc.options.items()]
        own = [f'password_file = "{_PASSWORD_FILE}"', f"timeout_s = {self.request_s}", 'cut_class = "vm"']
        return "\n".join(['fence = "fence_ipmilan"', *options, *own])

    async def start_bmc(self) -> None:
        """Start the BMC, for the first time or after `kill_bmc`."""
        await asyncio.to_thread(self._network.call, self.bmc.start)
        self._bmc_process.write_text(f"{self.bmc.process_id}\n")

    def kill_bmc(self) -> None:
        """Kill the BMC with SIGKILL."""
        self.bmc.kill()
        self._bmc_process.unlink(missing_ok=True)

    async def replug_machine(self) -> None:
        """Cut the machine's power and restore it."""
        await asyncio.to_thread(self._network.call, self.guest.unplug)
        await asyncio.to_thread(self._network.call, self.guest.plug_in)

    async def until_console(self, holds: Callable[[str], bool]) -> None:
        """Wait until `holds` is true for the machine's console output of all boots."""
        while not holds(self.guest.console):  # noqa: ASYNC110 - a file that QEMU writes
            await asyncio.sleep(_LOOK_S)

    async def start_machine(self, image: Image) -> None:
        """Install the image with the joined machine's credential and switch on; the boot begins."""
        self.guest.install(image, credential=self.credential(MACHINE).read_text().strip())
        await asyncio.to_thread(self._network.call, self.guest.plug_in)

    async def start_live(self, image: LiveImage) -> None:
        """Insert disc and stick, switch the machine on, and wait until it has joined."""
        stick = self.directory / "stick"

        def make(server: str, code: str) -> None:
            live_machine.make_stick(stick, server=server, code=code, name=MACHINE)

        await self.join_by_stick(make)
        self.guest.insert(image, stick=stick)
        await asyncio.to_thread(self._network.call, self.guest.plug_in)
        await self.until_joined()

    def end(self) -> None:
        """Kill the server, the BMC and the machine."""
        self.server.kill()
        self.kill_bmc()
        self.guest.close()


@asynccontextmanager
async def guest_campaign(
    models: Sequence[str], *, seed: int, bus: Bus = "sata", live: LiveImage | None = None
) -> AsyncIterator[GuestCampaign]:
    """A rig whose machine is booting, with a drive of each model, at most six: `drive-1` and so on.

    A file system needs the bus "sata" (see `guest_programs`). `live`: the machine boots this image, and has
    joined when the block begins. Raises SetupError if this machine lacks a requirement.
    """
    problem = await asyncio.to_thread(missing) or (live_machine.missing(live) if live else "")
    if problem:
        raise SetupError(f"cannot set up the virtual machine: {problem}")
    with (
        watched_directory("durability-vm-", within=in_memory()) as directory,
        GuestNetwork() as network,
        ExitStack() as stack,
    ):
        drives = [
            _drive(number, model, bus, seed + number, live=live is not None)
            for number, model in enumerate(models, 1)
        ]
        campaign = GuestCampaign(directory, network, drives)
        stack.callback(campaign.end)
        await campaign.start_server()
        await campaign.start_bmc()
        if live is None:
            await campaign.join()
            await asyncio.to_thread(compile_bytecode)
            await campaign.start_machine(await asyncio.to_thread(make_image, directory))
        else:
            await campaign.start_live(live)
        yield campaign


def _drive(number: int, model: str, bus: Bus, seed: int, *, live: bool) -> tuple[ModelDrive, GuestDrive]:
    serial = f"LAB{uuid.uuid4().hex[:12].upper()}"
    place = _BY_ID / (f"{_UDEV_NAMES[bus]}_{serial}" if live else serial)
    tested = ModelDrive(name=f"drive-{number}", model=model, machine=MACHINE, device=place)
    drive = GuestDrive(model=model, bus=bus, file_system=bus == "sata", serial=serial, seed=seed)
    return tested, drive
