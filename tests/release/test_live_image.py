"""The parts of the live image, without building it. `test_live_boots` boots it."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import shutil
import subprocess
import tarfile
from contextlib import nullcontext
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from durability_client.live import live_command, stick
from durability_client.live.join_request import JoinRequest, from_file
from durability_client.live.this_machine import ThisMachine
from durability_lab.vm_rig import live_machine
from release.live import disc, early_boot, image
from release.live import system as live_system
from release.live.system import PACKAGES, System
from release.sources import Sources
from tests.places import ROOT
from tests.release.conftest import require
from tests.release.live_console import heard
from tests.release.live_page import listed_for_pxe
from tests.waiting import DEADLINE_S

ISO_VARIABLE = "DURABILITY_LIVE_ISO"
SOURCES = Sources(ROOT, 1_700_000_000)
FILES = ROOT / live_system.FILES
SYSTEM = FILES / "system/etc"
GENERATOR = Path("/usr/lib/systemd/systemd-network-generator")


def test_nothing_that_assembles_or_mounts_is_installed() -> None:
    """No md, LVM, multipath, iSCSI or automounter: what is not there cannot touch a drive."""
    strangers = {
        "mdadm",
        "lvm2",
        "multipath-tools",
        "open-iscsi",
        "udisks2",
        "autofs",
        "cryptsetup",
        "zfsutils",
    }
    assert not strangers & set(PACKAGES)
    assert {"smartmontools", "nvme-cli", "xfsprogs", "btrfs-progs", "e2fsprogs", "mtools"} <= set(PACKAGES)


def test_nothing_is_mounted_at_boot() -> None:
    """The table of file systems is empty, and what systemd might find by itself is switched off."""
    table = (SYSTEM / "fstab").read_text().splitlines()
    assert all(line.startswith("#") for line in table)
    options = disc.OPTIONS.split()
    assert {"systemd.gpt_auto=0", "systemd.swap=0", "fsck.mode=skip", "raid=noautodetect", "noresume"} <= set(
        options
    )


def test_units_that_write_by_themselves_are_masked() -> None:
    """Trims, checks, self-tests, other hosts' drives, and consoles that are the program's."""
    text = (FILES / "customise").read_text()
    masked = re.search(r"systemctl mask --quiet ((?:.*\\\n)*.*)\n", text)
    assert masked is not None
    units = set(masked[1].replace("\\", "").split())
    assert {
        "fstrim.timer",
        "smartmontools.service",
        "systemd-pstore.service",
        "nvmf-autoconnect.service",
    } <= units
    assert {"getty@tty1.service", "serial-getty@.service", "e2scrub_all.timer"} <= units


@pytest.mark.parametrize(
    ("module", "is_there"),
    [
        ("drivers/mtd/mtd.ko", True),  # network cards of Solarflare need it
        ("drivers/mtd/mtdblock.ko", False),
        ("drivers/net/ethernet/sfc/sfc.ko", True),
        ("drivers/net/wireless/ath/ath.ko", False),
    ],
)
def test_the_drivers_that_are_there(module: str, is_there: bool) -> None:
    """dpkg installs a file unless the last of its options that fits says no."""
    path = f"/lib/modules/6.1.0-1-amd64/kernel/{module}"
    fitting = [option for option in live_system.dpkg_options() if fnmatchcase(path, option.partition("=")[2])]
    assert (not fitting or fitting[-1].startswith("path-include=")) == is_there


# Modules by what they need, as modinfo prints them of a system.
MODULES = {
    **{f"drivers/there/{name}.ko": "" for name in live_system.DRIVERS if name not in ("sfc", "uas")},
    "drivers/usb/storage/uas.ko": "usb-storage",
    "drivers/net/ethernet/sfc/sfc.ko": "mtd,ptp",
    "drivers/net/card.ko": "my-bus",
    "drivers/ptp/ptp.ko": "",
    "drivers/mtd/mtd.ko": "",
    "drivers/bus/my_bus.ko.xz": "",
    "drivers/nvme/host/nvme-rdma.ko": "ib_core",
    "fs/ubifs/ubifs.ko": "ubi",
}


@pytest.mark.parametrize(
    ("changed", "refusal"),
    [
        ({}, ""),
        ({"drivers/mtd/mtd.ko": None}, r"drivers/net/ethernet/sfc/sfc\.ko needs mtd\."),
        ({"drivers/bus/my_bus.ko.xz": None}, r"drivers/net/card\.ko needs my_bus\."),
        ({"drivers/ptp/ptp.ko": "pps_core"}, r"drivers/net/ethernet/sfc/sfc\.ko needs pps_core\."),
        (
            {"drivers/usb/storage/uas.ko": "usb-storage,usb_core"},
            r"drivers/usb/storage/uas\.ko needs usb_core\.",
        ),
        ({"drivers/there/megaraid_sas.ko": None}, r"lacks the drivers megaraid_sas\."),
        (
            {"drivers/there/nvme.ko": None, "drivers/there/e1000e.ko": None},
            r"lacks the drivers e1000e, nvme\.",
        ),
        (dict.fromkeys(MODULES), r"lacks the drivers .*ahci.*nvme"),
    ],
)
def test_a_driver_that_is_missing_or_would_not_load_ends_the_build(
    changed: dict[str, str | None], refusal: str
) -> None:
    """All drivers that people need are there, and a missing one is named. A driver of drives or network cards
    finds what it needs, and what that needs in turn. File systems, and drives over InfiniBand, may lack
    something."""
    line = "filename:       /lib/modules/6.1.0-1-amd64/kernel/{}\ndepends:        {}\n".format
    there = {path: needed for path, needed in {**MODULES, **changed}.items() if needed is not None}
    with pytest.raises(ValueError, match=refusal) if refusal else nullcontext():
        live_system.require_modules("".join(line(*one) for one in there.items()))


def _part(begins: str, ends: str) -> str:
    """The lines of `customise` from one that begins so up to another: all of it would change this machine."""
    text = (FILES / "customise").read_text()
    return text[text.index(f"\n{begins}") : text.index(f"\n{ends}")]


@pytest.mark.parametrize("works", [True, False])
def test_a_module_of_the_boot_that_is_not_found_ends_the_build(works: bool, tmp_path: Path) -> None:
    """The system would not start without it. What several need is there once, before the first of them."""
    (tmp_path / "early/modules").mkdir(parents=True)
    for name in ("crc.ko", "loop.ko", "squashfs.ko", "overlay.ko"):
        (tmp_path / name).touch()
    says = f'echo "builtin x"; echo "insmod {tmp_path}/crc.ko"; echo "insmod {tmp_path}/$4.ko"'
    (tmp_path / "modprobe").write_text(f"#!/bin/sh\n{says if works else f'{says}; [ $4 != squashfs ]'}\n")
    (tmp_path / "modprobe").chmod(0o755)
    script = _part("number=10", "dpkg-query").replace("/early", str(tmp_path / "early"))
    done = subprocess.run(
        ["sh", "-euc", f"version=6.1.0\n{script}"],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        check=False,
    )
    assert (done.returncode == 0) == works
    if works:
        found = sorted(path.name for path in (tmp_path / "early/modules").iterdir())
        assert found == ["10-crc.ko", "10-loop.ko", "11-squashfs.ko", "12-overlay.ko"]


def test_the_package_sources_are_debians(tmp_path: Path) -> None:
    """The image has Debian's public package sources. The build machine's sources, which may contain a
    password, are removed."""
    etc = tmp_path / "etc"
    (etc / "apt/sources.list.d").mkdir(parents=True)
    for name in ("apt/sources.list", "apt/sources.list.d/0000debian.sources"):
        (etc / name).write_text("deb https://user:secret@mirror.example/debian bookworm main\n")
    (etc / "os-release").write_text("VERSION_CODENAME=bookworm\n")
    script = _part(". /etc/os-release", "# Nothing may touch").replace("/etc/", f"{etc}/")
    assert script.count(str(etc)) == 4
    subprocess.run(["sh", "-euc", script], check=True)
    (left,) = (path for path in (etc / "apt").rglob("*") if path.is_file())
    lines = left.read_text().splitlines()
    assert len(lines) == 3 and all(
        re.match(r"deb http://\w+\.debian\.org/\S+ bookworm", one) for one in lines
    )


def test_no_number_of_a_machine_is_in_the_image() -> None:
    """All live machines would be one to systemd, D-Bus and NVMe over networks, whose number may come from the
    machine that builds."""
    lines = re.findall(r"^rm -r?f ((?:.*\\\n)*.*)\n", (FILES / "customise").read_text(), re.MULTILINE)
    removed = {word for line in lines for word in line.replace("\\", "").split()}
    assert {
        "/etc/machine-id",
        "/var/lib/dbus/machine-id",
        "/etc/nvme/hostnqn",
        "/etc/nvme/hostid",
    } <= removed


@pytest.mark.parametrize("script", ["init", "customise"])
def test_the_scripts_are_shells(script: str) -> None:
    """A shell reads them to their end."""
    subprocess.run(["sh", "-n", FILES / script], check=True)


def test_the_menu_starts_by_itself() -> None:
    """Both entries load the same two files; no disk is named or searched."""
    text = disc.grub_config(SOURCES)
    assert "@" not in text and "search" not in text and text.count("initrd /live/initrd") == 2
    assert f"durability {SOURCES.version}" in text and "set timeout=3" in text
    assert "insmod all_video\nset gfxpayload=keep\n" in text  # else UEFI machines show nothing
    assert all(f"linux /live/vmlinuz {disc.OPTIONS}" in line for line in re.findall(r"linux .*", text))


def test_the_page_boots_by_pxe_with_the_options_of_the_menu() -> None:
    """The page's lines for GRUB have the kernel's options of the menu's first entry, and the code."""
    (ours,) = re.findall(r"linux (.*)", listed_for_pxe("grub/grub.cfg"))
    assert ours == f"/vmlinuz {disc.OPTIONS} quiet durability.join=192.0.2.7:7420,CODE"


def test_the_file_on_the_stick_is_all_comments() -> None:
    """The join file on the stick has only comments; its commented keys are exactly those that the program
    reads."""
    text = (FILES / disc.JOIN_FILE).read_text()
    assert from_file(text) == JoinRequest()
    assert (disc.JOIN_FILE, disc.LABEL) == (stick.NAME, stick.LABEL)
    assert (disc.JOIN_FILE, disc.LABEL) == (live_machine.JOIN_FILE, live_machine.LABEL)
    keys = set(re.findall(r"^# (\w+) = ", text, re.MULTILINE))
    assert keys == {"join", "name", "machine", "address", "gateway", "dns", "card"}


def test_the_first_program_comes_first(tmp_path: Path) -> None:
    """The memory file system has `init`, the modules in their order, and the system, byte for byte."""
    require("cpio")
    early = tmp_path / "early"
    (early / "modules").mkdir(parents=True)
    for name in ("11-squashfs.ko", "10-loop.ko"):
        (early / "modules" / name).write_text(name)
    (early / "busybox").write_text("busybox")
    system = tmp_path / "system"
    system.write_bytes(os.urandom(4097))
    made = early_boot.make(SOURCES, System(compressed=system, early=early), tmp_path / "initrd")
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    with made.open("rb") as archive:
        command = ["cpio", "--extract", "--quiet", "--nonmatching", "dev/console"]
        subprocess.run(command, cwd=unpacked, stdin=archive, check=True)
    assert (unpacked / "system.squashfs").read_bytes() == system.read_bytes()
    assert os.access(unpacked / "init", os.X_OK)
    assert sorted(path.name for path in (unpacked / "modules").iterdir()) == ["10-loop.ko", "11-squashfs.ko"]


def test_the_units_that_are_changed_exist() -> None:
    """The agent's unit has its drop-in. The live program's unit starts the program, without a limit on
    restarts."""
    assert (SYSTEM / f"systemd/system/{live_command.AGENT}.d/live.conf").is_file()
    unit = (SYSTEM / "systemd/system/durability-live.service").read_text()
    assert "ExecStart=/usr/bin/durability agent live\n" in unit
    assert "\nStartLimitIntervalSec=0\n" in unit.partition("[Service]")[0]  # else systemd gives up


def test_an_address_that_was_given_comes_before_dhcp(tmp_path: Path) -> None:
    """systemd-networkd takes the first file that matches a card, by name: the stick's, then those that
    systemd writes for `ip=` on the kernel's command line, then the image's own."""
    (own,) = (SYSTEM / "systemd/network").iterdir()
    text = own.read_text()
    assert "DHCP=yes" in text and "ClientIdentifier=mac" in text
    command_line = {"90-eno1.network", "91-default.network"}
    if GENERATOR.exists():
        for card in ("", "eno1"):
            words = f"ip=192.0.2.20::192.0.2.1:255.255.255.0::{card}:off"
            subprocess.run([GENERATOR, f"--root={tmp_path}", words], check=True)
        assert {file.name for file in tmp_path.rglob("*.network")} == command_line
    names = [live_command.NETWORK.name, *sorted(command_line), own.name]
    assert names == sorted(names)


@pytest.mark.slow
def test_the_disc_names_its_boot_loader(tmp_path: Path) -> None:
    """GRUB, which is not of the system's packages, is listed in its version, and its licence is on the
    disc."""
    require(*image.PROGRAMS, "dpkg-query")
    image.require_tools()
    for name in ("vmlinuz", "initrd"):
        (tmp_path / name).write_text(name)
    iso = disc.make(SOURCES, tmp_path / "vmlinuz", tmp_path / "initrd", tmp_path / "live.iso")
    to = tmp_path / "licences"
    command = ["xorriso", "-osirrox", "on", "-indev", str(iso), "-extract", "/licences", str(to)]
    subprocess.run(command, check=True, capture_output=True)
    listed = dict(line.split("\t") for line in disc.packages(SOURCES).splitlines())
    assert set(listed) == {"grub-common", "grub-pc-bin", "grub-efi-amd64-bin"} and all(listed.values())
    found = {path.name for path in to.iterdir()}
    assert found == {f"{name}.txt" for name in listed} | {"GPL-3.txt"}
    assert "GNU GRUB" in (to / "grub-pc-bin.txt").read_text("utf-8")
    assert "GENERAL PUBLIC LICENSE" in (to / "GPL-3.txt").read_text("utf-8")


def test_the_files_of_the_image_are_roots(tmp_path: Path) -> None:
    """Another user with the umask 077 builds the same: networkd, which is not root, reads its file."""
    etc = tmp_path / live_system.FILES / "system/etc"
    shutil.copytree(SYSTEM, etc)
    for path in (etc, *etc.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
        if os.geteuid() == 0:
            os.chown(path, 1000, 1000)
    private = live_system.added(Sources(tmp_path, SOURCES.committed_at_s), tmp_path / "private.tar")
    usual = live_system.added(SOURCES, tmp_path / "usual.tar")
    assert private.read_bytes() == usual.read_bytes()
    with tarfile.open(usual) as archive:
        found = {member.name: (member.uid, member.gid, member.mode) for member in archive}
    assert found["etc"] == found["etc/systemd/network"] == (0, 0, 0o755)
    assert found["etc/systemd/network/95-durability.network"] == (0, 0, 0o644)


async def test_the_program_outlives_what_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ip` cannot be run, the journal has a line of 100 kB, the credential is torn: the console says what it
    can, and goes on."""
    (tmp_path / "credential.json").write_text("{")
    (tmp_path / "credential.json").chmod(0o600)
    journal = tmp_path / "journalctl"
    journal.write_text("#!/bin/sh\nhead -c 100000 /dev/zero | tr '\\0' x; echo; echo after the long line\n")
    journal.chmod(0o755)
    monkeypatch.setattr("durability_client.system.programs.PROGRAM_PLACES", str(tmp_path))
    monkeypatch.setattr(live_command, "credential_path", lambda: tmp_path / "credential.json")
    master, slave = pty.openpty()
    monkeypatch.setattr(live_command, "names", lambda: [os.ttyname(slave).removeprefix("/dev/")])
    reader = asyncio.StreamReader()
    machine = ThisMachine(key="k", id="i" * 32, name="live-1", description="a machine")
    with os.fdopen(master, "rb", buffering=0) as terminal, os.fdopen(slave):
        protocol = asyncio.StreamReaderProtocol(reader)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, terminal)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(live_command.Live(machine, JoinRequest()).run())
            # Of the credential only its first 60 columns: the console may cut the rest.
            async with asyncio.timeout(DEADLINE_S):
                await heard(reader, "after the long line", "no address yet", f"         {tmp_path}"[:60])
            task.cancel()
