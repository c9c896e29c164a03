"""The machine under test of rig C: QEMU with a drive that can lose power, and the power cut of both.

    media (a file) <- nbdkit: the drive <- NBD <- QEMU: NVMe or SATA, a network card, a kernel <- the client

`unplug` sends one SIGKILL to the process group of QEMU and nbdkit. Machine and drive end at the same time,
with the guest's memory and the drive's cache, and close no connection. `boot` starts both again on the same
media. The guest reports its progress (see `guest/job`) by lines on a serial port. The output of its kernel
and programs goes to its console, which is kept.

The machine is emulated without KVM, which is not available inside most virtual machines. A boot takes
seconds.

A missing package or privilege is a SetupError that names it. Nothing of a machine is left after its `with`
block. `cleanup` removes it if the process that set it up is killed.
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

FILE_TARGET: Final = Path("/durability-guest/drive/target")  # in the guest, the same as in `guest/job`
# `guest/init` mounts these over the host's root. The guest sees the host's other mounts: QEMU follows them.
_GUESTS_OWN = ("/dev", "/proc", "/run", "/sys", "/durability-guest")
SIZE_BYTES = 128 << 20
_GUEST_PACKAGES = ("durability", "durability_cli", "durability_client")  # imported by the guest's commands
_TOOLS = {QEMU: "qemu-system-x86", "nbdkit": "nbdkit", "mkfs.ext4": "e2fsprogs", "modprobe": "kmod"}
_REPORTS = ("-chardev", "stdio,id=reports,signal=off", "-serial", "chardev:reports")
DEADLINE_S = 300.0  # for steps that take seconds on an idle machine
_START_S = 20.0
_POLL_S = 0.002
_REPORT_BYTES_MAX = 4 << 20  # a verdict's document is below 1 MiB
_CONSOLE_LINES = 40  # last lines of the console that messages show


def missing() -> str:
    """What this machine lacks for rig C, as a sentence; "" if nothing is missing."""
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
    """The guest's settings that give it this process's Python and modules.

    The guest uses no virtual environment, and does not run the start-up code of the folders `python_sites`:
    both are slow on an emulated processor.
    """
    return {
        "python": _base_python(),
        "python_path": os.pathsep.join(_python_path()),
        "python_sites": os.pathsep.join(site.getsitepackages([sys.base_prefix])),
    }


def _base_python() -> str:
    return str(getattr(sys, "_base_executable", sys.executable))


def _python_path() -> list[str]:
    """This process's import path, in order, then the folders of the guest's packages."""
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
    """A sentence if the guest cannot see a part of this process's Python at its path; otherwise ""."""
    for path in (_base_python(), sys.base_prefix, *_python_path()):
        for own in _GUESTS_OWN:
            if any(Path(each).is_relative_to(own) for each in (path, os.path.realpath(path))):
                return (
                    f"the guest does not see {path}, because it has its own {own}: install Python elsewhere"
                )
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """The start of every boot of every machine: the kernel's file, and the archive that it unpacks first."""

    kernel: Path
    initramfs: bytes


def make_image(directory: Path) -> Image:
    """Find the kernel and make the image; an unpacked kernel goes into `directory`. Raises SetupError."""
    kernel = guest_kernel.find()
    bare = kernel.bare()
    path = kernel.loader
    if bare is not None:
        path = directory / "vmlinux"
        path.write_bytes(bare)
    return Image(kernel=path, initramfs=initramfs.base(kernel))


def compile_bytecode() -> None:
    """Compile the packages that a guest runs: the guest's root is read-only, so it cannot save bytecode."""
    for directory in _package_directories():
        compileall.compile_dir(directory, quiet=2)


class GuestMachine:
    """One machine with one drive, at first without power; the guest runs this process's Python.

    `settings`: more settings of the guest, see `guest/job`. Each machine's drive has a serial of its own, so
    that two machines are never mistaken for one.
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
        """The guest's console output of all boots."""
        logs = sorted(self._directory.glob("console.*"))
        return "".join(log.read_text(errors="replace") for log in logs)

    async def boot(self, *, setup: bool) -> None:
        """Switch machine and drive on. `setup`: the drive is new; the guest prepares it and starts the
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
        """Cut the power of machine and drive now, if there is any.

        This runs in the network's thread. It therefore comes after a `boot` that was cancelled while it was
        starting programs in that thread.
        """
        self._network.call(self._stop)
        self._close_reports()

    def drive_check(self) -> DriveCheck:
        """The check of the drive's promises. Call it after `unplug` and before `boot`."""
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
        """The guest's next report: its first word, which must be one of `words`, and the rest. Raises
        SetupError if no report or another one arrives."""
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
        """An error with `what` and the end of the console."""
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
        """Start drive and machine in one process group, that of the drive."""
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
        """Send one signal to both at once, and wait until they are gone."""
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
        """The stderr output of the program `name`."""
        return (self._directory / f"{name}.log").read_text(errors="replace").strip()
