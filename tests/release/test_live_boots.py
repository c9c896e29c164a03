"""Boots of the live image that DURABILITY_LIVE_ISO names, from its disc and by PXE; skipped without it."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from durability.errors import EXIT_OK
from durability.protocol.local_address import socket_name
from durability.protocol.messages import Invited, InviteMachines
from durability_client.link.endpoint import Endpoint
from durability_client.link.server_connection import connect
from durability_lab.campaign_rig.lab_campaign_command import CampaignOptions, campaign
from durability_lab.vm_rig.guest_programs import QEMU
from durability_lab.vm_rig.live_machine import Firmware, LiveImage, boot_command, network_boot_command
from durability_server.server import Server
from tests.release import tempting_drive
from tests.release.conftest import require
from tests.release.live_console import heard
from tests.release.live_page import listed_for_pxe

ISO_VARIABLE = "DURABILITY_LIVE_ISO"
MEMORY_MIB = 2048  # what the page asks for
HOST = "10.0.2.2"  # this machine, for a guest with a network of QEMU's own
# Drives by their serials, and QEMU's devices for each: NVMe, SATA, and a volume of a RAID controller.
DRIVES = {
    "NVME-T1": ("nvme,drive={id},serial={serial}",),
    "SATA-T2": ("ide-hd,drive={id},bus=ide.1,serial={serial}",),
    "RAID-T3": ("megasas-gen2,id=raid", "scsi-hd,drive={id},bus=raid.0,serial={serial}"),
}

pytestmark = pytest.mark.slow


@pytest.fixture
def iso() -> Path:
    """The image that is asked for."""
    named = os.environ.get(ISO_VARIABLE)
    if not named:
        pytest.skip(f"THE LIVE IMAGE WAS NOT BOOTED: {ISO_VARIABLE}=FILE asks for it (an hour)")
    require(QEMU, "mformat", "mkswap", "mkfs.ext4", "debugfs", "grub-mknetdir")
    return Path(named).resolve()


@dataclass(frozen=True, slots=True)
class Joinable:
    """A server in this process, a code for machines, and what the server announced."""

    port: int
    code: str
    announced: asyncio.Queue[str]


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[Joinable]:
    """A server that a machine can join."""
    announced: asyncio.Queue[str] = asyncio.Queue()
    server = Server(
        store_url=f"sqlite:///{directory}/store",
        announce=lambda who, what: announced.put_nowait(f"{who}  {what}"),
    )
    _, port = await server.start("127.0.0.1", 0, directory=directory)
    try:
        socket = directory / socket_name(port)
        async with asyncio.timeout(60):
            with closing(await connect(Endpoint(local=socket), "operate")) as connection:
                asked = InviteMachines(name="", machines=1, valid_s=3600)
                code = (await connection.request(asked, Invited)).line.split()[-1]
        yield Joinable(port, code, announced)
    finally:
        await server.stop()


@asynccontextmanager
async def started(
    command: list[str], directory: Path
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A machine that runs, and its serial console; QMP is at the socket `qmp`."""
    console = directory / "console"
    qemu = await asyncio.create_subprocess_exec(
        *command,
        *("-chardev", f"socket,id=console,path={console},server=on,wait=off", "-serial", "chardev:console"),
        *("-qmp", f"unix:{directory}/qmp,server=on,wait=off"),
    )
    try:
        yield await _connected(console)
    finally:
        qemu.kill()
        await qemu.wait()


@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("guest_machine")
@pytest.mark.parametrize("firmware", ["bios", "uefi"])
async def test_a_boot_leaves_a_drive_as_it_was(iso: Path, firmware: Firmware, tmp_path: Path) -> None:
    """From boot to agent, the live system sends no write and no flush to tempting drives: NVMe, SATA, and
    behind a RAID controller. It lists each with its serial and ignores its join file. The code is typed at
    the serial console."""
    async with serving(tmp_path) as server:
        command = boot_command(LiveImage(iso=iso, firmware=firmware), memory_mib=MEMORY_MIB)
        command += ["-netdev", "user,id=network"]
        before = {}
        for serial, devices in DRIVES.items():
            drive = tmp_path / serial
            tempting_drive.make(drive, elsewhere=f"192.0.2.99:7420 {server.code}")
            before[serial] = hashlib.sha256(drive.read_bytes()).digest()
            command += ["-drive", f"if=none,id={serial},format=raw,file={drive}"]
            for device in devices:
                command += ["-device", device.format(id=serial, serial=serial)]
        async with started(command, tmp_path) as (reader, writer):
            said = await heard(reader, "Type HOST:PORT CODE")
            writer.write(f"{HOST}:{server.port} {server.code}\r".encode())
            unseen = (serial for serial in DRIVES if serial not in said)
            said += await heard(reader, f"connected to the server at {HOST}", *unseen)
            counts = await _counts(tmp_path / "qmp")
    assert "192.0.2.99" not in said
    for serial in DRIVES:
        done = counts[serial]
        assert done["rd_operations"] > 0, serial
        assert (done["wr_operations"], done["flush_operations"], done["unmap_operations"]) == (0, 0, 0), (
            serial
        )
        assert hashlib.sha256((tmp_path / serial).read_bytes()).digest() == before[serial], serial


@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("guest_machine")
@pytest.mark.parametrize("firmware", ["bios", "uefi"])
async def test_the_pair_boots_by_pxe(iso: Path, firmware: Firmware, tmp_path: Path) -> None:
    """With the page's lines, a machine without any drive gets kernel and system by TFTP and joins by the
    kernel's command line."""
    async with serving(tmp_path) as server:
        tftp = tmp_path / "tftp"
        loader = _network_directory(iso, tftp, firmware)
        menu = listed_for_pxe("grub/grub.cfg").replace(
            "192.0.2.7:7420,CODE", f"{HOST}:{server.port},{server.code}"
        )
        assert server.code in menu
        (tftp / "grub/grub.cfg").write_text(menu)
        command = network_boot_command(firmware, memory_mib=MEMORY_MIB)
        command += ["-netdev", f"user,id=network,tftp={tftp},bootfile={loader}"]
        async with started(command, tmp_path) as (reader, _):
            said = await heard(reader, f"connected to the server at {HOST}")
        assert server.announced.get_nowait().endswith("  joined as client")
    assert server.code not in said


def _network_directory(iso: Path, tftp: Path, firmware: Firmware) -> str:
    """Lay out what TFTP serves by the page's commands; the boot loader's path there."""
    script = listed_for_pxe("grub-mknetdir").replace("/srv/tftp", str(tftp))
    for name in ("vmlinuz", "initrd"):
        script = script.replace(f"durability-VERSION-live.{name}", str(iso.with_suffix(f".{name}")))
    tftp.mkdir()
    subprocess.run(["sh", "-euc", script], check=True, capture_output=True)
    tag = "tag:uefi" if firmware == "uefi" else "tag:!uefi"
    (loader,) = re.findall(rf"^dhcp-boot={tag},(.*)$", listed_for_pxe("dhcp-range"), re.MULTILINE)
    assert (tftp / loader).is_file()
    return str(loader)


async def _connected(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to a socket of QEMU's, once it is there."""
    while True:
        with suppress(OSError):
            return await asyncio.open_unix_connection(path)
        await asyncio.sleep(0.1)


async def _counts(path: Path) -> dict[str, dict[str, int]]:
    """What QEMU counted of the requests of each of the drives."""
    reader, writer = await _connected(path)
    writer.write(b'{"execute": "qmp_capabilities"} {"execute": "query-blockstats"}')
    while True:
        answer = json.loads(await reader.readline())
        if isinstance(found := answer.get("return"), list):
            writer.close()
            return {one["device"]: one["stats"] for one in found if one.get("device") in DRIVES}


@pytest.mark.timeout(7200)
@pytest.mark.usefixtures("campaign_machine")
@pytest.mark.parametrize("firmware", ["bios", "uefi"])
async def test_a_campaign_on_the_live_image(
    iso: Path, firmware: Firmware, capsys: pytest.CaptureFixture[str]
) -> None:
    """Power is cut again and again, the machine boots from the disc and joins by its stick, and each drive
    gets what it deserves."""
    options = CampaignOptions(
        models=("honest", "flush-ignored"),
        cuts=int(os.environ.get("DURABILITY_LIVE_CUTS", "2")),
        seed=5,
        rig="c",
        live=LiveImage(iso=iso, firmware=firmware),
    )
    with capsys.disabled(), io.StringIO() as out:
        assert await campaign(options, out=out, err=sys.stderr) == EXIT_OK
