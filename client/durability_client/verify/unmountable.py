"""A file target whose file system does not mount: its files are gone, and its device identifies it.

This storage has no files, so a scan finds every acknowledged record missing. Drives, offset and UUID must
still show that the file system is the run's. The device itself must still answer, because a drive without
power fails a mount, too, and has lost no data. So the device is read, bypassing the page cache, after the
probe: at its start, its end and places between. This module writes nothing. `mount_probe` describes what its
mount may write.
"""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from durability.errors import TargetError, WrongTargetError
from durability.evidence.scan_report import ScanReport, empty_report
from durability.formats.case import Case
from durability.formats.facts import Drive, Facts, FileSystem, Host
from durability.formats.plan import Plan, TargetKind
from durability_client.target.discovery import collect
from durability_client.target.kernel_storage import KernelStorage
from durability_client.target.storage import DriveWatch, PresentDrive, TargetDirectory, TargetFile
from durability_client.verify.mount_probe import MountProbe, probe_mount
from durability_client.verify.scan.canary import Presence, presence_of
from durability_client.verify.scan.device_places import PlacesRead


def _version(host: Host) -> tuple[int, ...]:
    """The first two numbers of a machine's kernel release; () if the release does not start with two."""
    found = re.match(r"(\d+)\.(\d+)", host.release)
    return tuple(map(int, found.groups())) if found else ()


def _at(offset_bytes: int | None) -> str:
    return "at an unknown place" if offset_bytes is None else f"at byte {offset_bytes} of its drive"


class UnmountableStorage:
    """The target in the file system on `device`, which did not mount according to `probe`."""

    kind: TargetKind = "file"

    def __init__(self, device: Path, probe: MountProbe, before: Presence | None = None) -> None:
        self.path = device
        self.device = KernelStorage(device)
        self._probe = probe
        self._before = presence_of(self.device) if before is None else before

    @classmethod
    def on(cls, device: Path) -> UnmountableStorage:
        """Probe `device` and make its storage. Raises TargetError if its file system mounts, or if a mount
        cannot be tried.
        """
        before = presence_of(KernelStorage(device))
        probe = probe_mount(device)
        if probe.mounts:
            raise TargetError(f"{probe.text}: mount it, and verify the target at its path, without --device")
        return cls(device, probe, before)

    def as_shown(self, report: ScanReport, plan: Plan, places: PlacesRead) -> ScanReport:
        """The scan's `report`, corrected by the reads of `places` on the device.

        The report becomes empty if the device went away since before the probe, or if no place could be read.
        If any read failed, here or in the probe, I/O errors may be the only cause of the findings: then
        `by_errors` is set.
        """
        if places.presence != self._before or not places.presence.main_bytes:
            why = "the kernel has enumerated its drive anew, or shows another size"
            return empty_report(plan, failure=f"{self.path} went away while it was examined: {why}")
        if not places.read:
            return empty_report(plan, failure=f"no block of {self.path} that was tried could be read")
        return replace(report, by_errors=self._probe.io_error or bool(places.failed))

    @property
    def why(self) -> str:
        """Text for people about the mount that was tried."""
        return self._probe.text

    def flushes(self, drive: str) -> int | None:
        """The current value of `Drive.flushes` for `drive`, from the kernel's counters."""
        return self.device.flushes(drive)

    def unsafe_shutdowns(self, drive: Drive) -> int | None:
        """The current power-loss counter of `drive`."""
        return self.device.unsafe_shutdowns(drive)

    def drives(self) -> tuple[PresentDrive, ...]:
        """The drives below the device, as the kernel shows them now."""
        return self.device.drives()

    def drop_caches_below(self) -> None:
        """Drop the caches below the device."""
        self.device.drop_caches_below()

    def facts(self) -> Facts:
        """Facts of the device itself, without a file system."""
        return collect(self.path, "device")

    def facts_as_target_of(self, case: Case, found: Facts) -> Facts:
        """Convert `found`, the facts of the device, to facts of the file that was on it.

        A UUID that is missing, as after the loss of the superblock, is taken from `case`; a different UUID
        stays and contradicts the run. Raises
        WrongTargetError if the device is, or may be, another part of the drive. Raises TargetError if the run
        was not on a file system, or if the kernel may be the reason that the file system does not mount. The
        drives of an external log cannot be found from here, so the facts do not contain them.
        """
        armed = case.armed
        if armed is None or armed.file_system is None:
            raise TargetError(f"run {case.run} was not on a file system; verify the device itself")
        if armed.offset_bytes != found.offset_bytes:
            raise WrongTargetError(
                f"{self.path} starts {_at(found.offset_bytes)}; the file system of run {case.run} started"
                f" {_at(armed.offset_bytes)}"
            )
        same_volume = bool(found.volume) and found.volume == armed.volume
        if not self._probe.uuid and found.offset_bytes is None and not same_volume:
            raise WrongTargetError(
                f"{self._probe.text}, and it is on layers ({', '.join(found.layers)}), so neither an offset"
                f" nor the volume's UUID shows that it is the device of run {case.run}"
            )
        self._require_kernel_of(armed.host, found.host)
        file_system = FileSystem(
            type=self._probe.type or armed.file_system.type,
            uuid=self._probe.uuid or armed.file_system.uuid,
            source=str(self.path),
            mount_point="",
            options="",
            block_bytes=armed.file_system.block_bytes,
        )
        return replace(
            found,
            kind="file",
            path=armed.path,
            path_in_file_system=armed.path_in_file_system,
            file_system=file_system,
        )

    def _require_kernel_of(self, armed: Host, now: Host) -> None:
        """Raises TargetError if the kernel of `now` may not support the file system that the kernel of
        `armed` had mounted. A later release supports all that an earlier one does, unless it was built with
        other options: so if the kernel refused the file system, `now` must have the same kernel."""
        older = _version(now) < _version(armed)
        if not self._probe.type or not (older or (self._probe.refused and now.kernel != armed.kernel)):
            return
        wanted = f"Linux {armed.release}" + ("" if self._probe.refused else " or later")
        raise TargetError(
            f"{self._probe.text}. This is Linux {now.release}, and the run was made on Linux {armed.release}:"
            f" another kernel may not know all features of this file system. Verify on {wanted}"
        )

    def exists(self, suffix: str) -> bool:
        """Always False: no file can be looked up."""
        return False

    def suffixes(self) -> tuple[str, ...]:
        """Always empty: the directory cannot be listed."""
        return ()

    def size(self, suffix: str) -> int:
        """Raises FileNotFoundError, as for any file that is gone."""
        self._miss(suffix)

    def lock(self, *, create: bool = False) -> None:
        """Lock the device. Raises TargetBusyError."""
        self.device.lock()

    def unlock(self) -> None:
        """Unlock the device."""
        self.device.unlock()

    def open(self, suffix: str, *, plan: Plan | None = None, create: bool = False) -> TargetFile:
        """Raises FileNotFoundError, as for any file that is gone."""
        self._miss(suffix)

    def open_bulk(self, suffix: str, *, create: bool = False, direct: bool = True) -> TargetFile:
        """Raises UnsupportedOperation: nothing is ever written here."""
        self._refuse()

    def unlink(self, suffix: str) -> None:
        """Raises UnsupportedOperation: nothing is ever written here."""
        self._refuse()

    def rename(self, old_suffix: str, new_suffix: str) -> None:
        """Raises UnsupportedOperation: nothing is ever written here."""
        self._refuse()

    def open_directory(self) -> TargetDirectory:
        """Raises UnsupportedOperation: there is no directory."""
        self._refuse()

    def sync_directory(self, *, ancestors: bool = False) -> None:
        """Raises UnsupportedOperation: there is no directory."""
        self._refuse()

    def watch_drives(self, armed: Facts) -> DriveWatch:
        """Raises UnsupportedOperation: no run writes here."""
        self._refuse()

    @staticmethod
    def _miss(suffix: str) -> NoReturn:
        raise FileNotFoundError(f"TARGET{suffix} is in a file system that does not mount")

    @staticmethod
    def _refuse() -> NoReturn:
        raise io.UnsupportedOperation("there are no files in a file system that does not mount")
