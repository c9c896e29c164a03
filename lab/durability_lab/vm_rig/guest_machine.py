"""The machine under test of rig C: QEMU with a drive that can lose power, and the plug of both.

    media (a file) <- nbdkit: the drive <- NBD <- QEMU: NVMe or SATA, a network card, a kernel <- the client

`unplug` sends one SIGKILL to the process group of QEMU and nbdkit: machine and drive are gone in the same
instant, with the guest's memory and the drive's cache, and nothing says goodbye. `boot` starts both anew on
the same media. What the guest is about (see `guest/job`) it reports by lines on a serial port; what its
kernel and programs say goes to its console, which is kept.

Emulated without KVM, which is not to be had inside most virtual machines: a boot takes seconds.

Refuses to guess: a missing package or privilege is a SetupError that names it. Nothing of a machine outlives
its `with` block, nor, because of `cleanup`, the process that set it up.
"""

from __future__ import annotations

import asyncio
import compileall
import os
import platform
import shutil
import signal
import site
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Self

from durability.errors import SetupError
from durability_lab.drive.drive_check import DriveCheck, check_drive
from durability_lab.support.cleanup import PID_SUFFIX, Cleanup, in_memory, watched
from durability_lab.vm_rig import guest_kernel, initramfs, network
from durability_lab.vm_rig.guest_programs import (
    DRIVES,
    QEMU,
    Bus,
    GuestDrive,
    drive_command,
    machine_command,
)
from durability_lab.vm_rig.network import GUEST, GuestNetwork

FILE_TARGET: Final = Path("/durability-guest/drive/target")  # in the guest, as `guest/job` has it
# What `guest/init` lays over the host's root. The host's other mounts are seen: QEMU follows them.
_GUESTS_OWN = ("/dev", "/proc", "/run", "/sys", "/durability-guest")
SIZE_BYTES = 128 << 20
_GUEST_PACKAGES = ("durability", "durability_cli", "durability_client")  # what its commands import
_TOOLS = {QEMU: "qemu-system-x86", "nbdkit": "nbdkit", "mkfs.ext4": "e2fsprogs", "modprobe": "kmod"}
_REPORTS = ("-chardev", "stdio,id=reports,signal=off", "-serial", "chardev:reports")
DEADLINE_S = 300.0  # for what takes seconds on an idle machine
_START_S = 20.0
_POLL_S = 0.002
_REPORT_BYTES_MAX = 4 << 20  # a verdict's document is below 1 MiB
_CONSOLE_LINES = 40  # of it, in messages


def missing() -> str:
    """What this machine lacks for rig C, as a sentence; "" where nothing is missing."""
    if platform.machine() != "x86_64":
        return f"the guest runs this machine's own programs, which must be x86_64, not {platform.machine()}"
    if problem := network.missing() or _unseen_python():
        return problem
    for tool, package in _TOOLS.items():
        if shutil.which(tool) is None:
            return f"{tool} not found: install {package}"
    if subprocess.run(("nbdkit", "python", "--dump-plugin"), capture_output=True, check=False).returncode:
        return "nbdkit has no Python plugin: install nbdkit-plugin-python"
    try:
        initramfs.busybox()
        guest_kernel.find()
    except SetupError as error:
        return str(error)
    return ""


def python_settings() -> dict[str, str]:
    """The guest's settings that give it this process's Python and modules. No virtual environment, nor what
    the folders `python_sites` have done whenever Python starts: both are slow on an emulated processor."""
    return {
        "python": _base_python(),
        "python_path": os.pathsep.join(_python_path()),
        "python_sites": os.pathsep.join(site.getsitepackages([sys.base_prefix])),
    }


def _base_python() -> str:
    return str(getattr(sys, "_base_executable", sys.executable))


def _python_path() -> list[str]:
    """Where this process imports from, in this order, then where what a guest runs lies."""
    packages = [str(Path(directory).parent) for directory in _package_directories()]
    paths = dict.fromkeys([*map(os.path.abspath, sys.path), *packages])
    return [path for path in paths if Path(path).exists()]


def _package_directories() -> list[str]:
    directories: list[str] = []
    for package in _GUEST_PACKAGES:
        spec = find_spec(package)
        assert spec is not None and spec.submodule_search_locations, f"{package} is not installed"
        directories += spec.submodule_search_locations
    return directories


def _unseen_python() -> str:
    """A sentence about a part of this process's Python that the guest sees as something else; or ""."""
    for path in (_base_python(), sys.base_prefix, *_python_path()):
        for own in _GUESTS_OWN:
            if any(Path(each).is_relative_to(own) for each in (path, os.path.realpath(path))):
                return (
                    f"the guest does not see {path}, because it has its own {own}: install Python elsewhere"
                )
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What every boot of every machine starts from: the kernel's file, and the archive it unpacks first."""

    kernel: Path
    initramfs: bytes


def make_image(directory: Path) -> Image:
    """Find the kernel and put it into `directory`, ready to be started. Raises SetupError."""
    kernel = guest_kernel.find()
    bare = kernel.bare()
    path = kernel.loader
    if bare is not None:
        path = directory / "vmlinux"
        path.write_bytes(bare)
    return Image(kernel=path, initramfs=initramfs.base(kernel))


def compile_bytecode() -> None:
    """Have the bytecode of what a guest runs lie beside it: the guest cannot keep what it compiles."""
    for directory in _package_directories():
        compileall.compile_dir(directory, quiet=2)


class GuestMachine:
    """One machine with one drive, at first without power. `settings`: more of the guest's, see `guest/job`;
    the guest runs this process's Python.

    `serial` is the drive's; each machine has another, so that no two are taken for one.
    """

    def __init__(
        self,
        image: Image,
        network: GuestNetwork,
        *,
        drive: str,
        bus: Bus,
        file_system: bool,
        seed: int,
        settings: Mapping[str, str],
    ) -> None:
        serial = f"LAB{uuid.uuid4().hex[:12].upper()}"
        self.drive = drive
        self.boots = 0
        self._image = image
        self._network = network
        self._drive = GuestDrive(model=drive, bus=bus, file_system=file_system, serial=serial, seed=seed)
        self._settings = {
            **settings,
            **python_settings(),
            "file_system": "ext4" if file_system else "none",
            "drive": str(DRIVES[bus]),
            "guest_address": GUEST,
            "machine_id": uuid.uuid4().hex,
        }
        self._nbdkit: subprocess.Popen[bytes] | None = None
        self._qemu: subprocess.Popen[bytes] | None = None
        self._reports: asyncio.StreamReader | None = None
        self._transport: asyncio.BaseTransport | None = None

    def __enter__(self) -> Self:
        self._directory = Path(tempfile.mkdtemp(prefix="durability-vm-", dir=in_memory()))
        self._cleanup = Cleanup(self._directory)
        with self._media.open("wb") as file:
            file.truncate(SIZE_BYTES)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.unplug()
        finally:
            self._cleanup.dismiss()

    @property
    def console(self) -> str:
        """All that the guest wrote to its console, in all its boots."""
        logs = sorted(self._directory.glob("console.*"))
        return "".join(log.read_text(errors="replace") for log in logs)

    async def boot(self, *, setup: bool) -> None:
        """Give machine and drive power. `setup`: the drive is new, the guest prepares it and starts the
        client. Raises SetupError."""
        self.boots += 1
        values = {**self._settings, "setup": "yes" if setup else ""}
        self._initramfs.write_bytes(self._image.initramfs + initramfs.settings(values))
        await asyncio.to_thread(self._network.call, self._start)
        assert self._qemu is not None and self._qemu.stdout is not None
        loop = asyncio.get_running_loop()
        reports = asyncio.StreamReader(limit=_REPORT_BYTES_MAX)
        self._transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reports), self._qemu.stdout
        )
        self._reports = reports

    def unplug(self) -> None:
        """Take the power from machine and drive, now; nothing if they have none. In the network's thread, so
        after a `boot` that was cancelled while that thread was at it."""
        self._network.call(self._stop)
        self._close_reports()

    def drive_check(self) -> DriveCheck:
        """Which promises the drive kept. Call it after `unplug`, before `boot`."""
        assert self._nbdkit is None, "the drive has power: unplug it first"
        return check_drive(
            media=self._media,
            drive_log=self._drive_log,
            drive=self.drive,
            seed=self._drive.seed,
            sector_bytes=self._drive.sector_bytes,
            cuts=self.boots,
        )

    async def report(self, *words: str) -> tuple[str, str]:
        """The guest's next report, its first word, which must be one of `words`, and the rest. Raises
        SetupError where none comes or another does."""
        assert self._reports is not None, "no machine to report: boot first"
        try:
            async with asyncio.timeout(DEADLINE_S):
                line = (await self._reports.readline()).decode()
        except TimeoutError:
            raise self.failure(f"the guest reported nothing for {DEADLINE_S:.0f} s") from None
        if not line.endswith("\n"):
            raise self.failure(f"the guest ended before it reported {' or '.join(words)}")
        word, _, rest = line.strip().partition(" ")
        if word not in words:
            raise self.failure(f"expected the guest to report {' or '.join(words)}, found: {line.strip()}")
        return word, rest

    def failure(self, what: str) -> SetupError:
        """An error that says `what`, and the end of the console."""
        said = [f"QEMU says: {self._log('qemu')}"] if self._log("qemu") else []
        lines = self.console.strip().splitlines()[-_CONSOLE_LINES:]
        return SetupError("\n".join((f"{what}; the end of its console:", *lines, *said)))

    @property
    def _drive_log(self) -> Path:
        return self._directory / "drive_log"

    @property
    def _media(self) -> Path:
        return self._directory / "media"

    @property
    def _initramfs(self) -> Path:
        return self._directory / "initramfs"

    def _start(self) -> None:
        """Start drive and machine in one process group, the drive's."""
        socket = self._directory / f"nbd.{self.boots}.sock"
        ready = self._directory / f"nbdkit.{self.boots}.ready"
        drive = drive_command(
            self._drive, media=self._media, drive_log=self._drive_log, socket=socket, ready=ready
        )
        self._nbdkit = self._program("nbdkit", [*drive, f"cuts={self.boots - 1}"], group=0)
        deadline = time.monotonic() + _START_S
        while not ready.exists():
            if self._nbdkit.poll() is not None or time.monotonic() > deadline:
                raise SetupError(f"nbdkit does not listen: {self._log('nbdkit')}")
            time.sleep(_POLL_S)
        console = self._directory / f"console.{self.boots}"
        machine = machine_command(self._image.kernel, self._initramfs, console, [(self._drive, socket)])
        self._qemu = self._program("qemu", [*machine, *_REPORTS], group=self._nbdkit.pid)

    def _stop(self) -> None:
        """One signal to both at once, and wait until they are gone."""
        if self._nbdkit is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._nbdkit.pid, signal.SIGKILL)
        for program in (self._qemu, self._nbdkit):
            if program is not None:
                program.wait()
        for file in self._directory.glob(f"*{PID_SUFFIX}"):
            file.unlink()
        self._nbdkit = self._qemu = None

    def _close_reports(self) -> None:
        if self._transport is not None:
            self._transport.close()
        self._transport = self._reports = None

    def _program(self, name: str, command: list[str], *, group: int) -> subprocess.Popen[bytes]:
        """Start a program that the cleanup process kills if this process dies."""
        with (self._directory / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                watched(self._directory, name, command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                process_group=group,
            )

    def _log(self, name: str) -> str:
        """What the program `name` said."""
        return (self._directory / f"{name}.log").read_text(errors="replace").strip()
