"""The file on a stick with the settings to join.

The file is on a FAT file system with the label DURABILITY, on a USB stick or memory card, and is read without
a mount. Other drives are ignored, because contents of a tested drive must not choose this machine's server.
"""

from __future__ import annotations

from pathlib import Path

from durability.errors import TargetError, UsageError
from durability_client.live.join_request import FILE_BYTES_MAX, JoinRequest, from_file
from durability_client.system import block_devices
from durability_client.system.programs import run_tool

LABEL = "DURABILITY"
NAME = "durability-join.txt"
_UDEV = Path("/run/udev/data")
_WANTED = frozenset({f"E:ID_FS_LABEL={LABEL}", "E:ID_FS_TYPE=vfat"})


def find(*, sys: Path = block_devices.SYS, udev: Path = _UDEV) -> list[Path]:
    """The devices with such a file system, sorted by name."""
    found = []
    for entry in udev.glob("b*:*"):
        try:
            lines = set(entry.read_text(errors="replace").splitlines())
        except OSError:
            continue
        major, _, minor = entry.name.removeprefix("b").partition(":")
        name = block_devices.name_of((int(major), int(minor)), sys=sys) if lines >= _WANTED else None
        if name is not None and _is_stick(name, sys):
            found.append(block_devices.node_of(name))
    return sorted(found)


def read(device: Path) -> JoinRequest:
    """The settings in the file on the device. Raises TargetError and UsageError, both naming the device."""
    done = run_tool("mtype", "-i", str(device), f"::{NAME}")
    if done.returncode:
        raise TargetError(f"{NAME} on {device}: {done.stderr.strip() or 'cannot be read'}")
    if len(done.stdout) > FILE_BYTES_MAX:
        raise UsageError(f"{NAME} on {device} is longer than {FILE_BYTES_MAX} bytes")
    try:
        return from_file(done.stdout)
    except UsageError as error:
        raise UsageError(f"{NAME} on {device}: {error}") from error


def _is_stick(name: str, sys: Path) -> bool:
    whole = sys / "class/block" / block_devices.whole_of(name, sys=sys)
    try:
        removable = (whole / "removable").read_text().strip() == "1"
    except OSError:
        removable = False
    return removable or "/usb" in str(whole.resolve())
