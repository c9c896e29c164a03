"""What bounds a drive, from other machines' /sys trees rebuilt in a directory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from durability.formats.facts import Drive
from durability_client.bench.measure.hardware_bounds import medium, rpm_in

DRIVE = Drive(
    name="sda",
    model="",
    serial="",
    firmware="",
    size_bytes=1 << 40,
    logical_block_bytes=512,
    physical_block_bytes=4096,
    rotational=False,
    write_cache="write back",
    fua=False,
    diskseq=1,
    unsafe_shutdowns=None,
    atomic_write_bytes=None,
    flushes=0,
    emulated=False,
)
ROTATING = replace(DRIVE, rotational=True)


def _machine(sys: Path, device: str, files: dict[str, str | bytes]) -> None:
    """A tree in which the drive sda is the device at `device`, with `files` below devices/."""
    (sys / "devices" / device).mkdir(parents=True)
    for name, text in files.items():
        path = sys / "devices" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    (sys / "class/block/sda").mkdir(parents=True)
    (sys / "class/block/sda/device").symlink_to(sys / "devices" / device)


@pytest.mark.parametrize(
    ("device", "files", "bytes_per_s", "link"),
    [
        (
            "pci0/0000:00:17.0/ata1/host0/target0/0:0:0:0",
            {
                "pci0/0000:00:17.0/ata1/link1/ata_link/link1/sata_spd": "6.0 Gbps\n",
                "pci0/0000:00:17.0/current_link_speed": "8.0 GT/s PCIe\n",
                "pci0/0000:00:17.0/current_link_width": "2\n",
            },
            600_000_000,
            "SATA 6.0 Gbps",
        ),
        (
            "pci0/0000:01:00.0/nvme/nvme0",
            {
                "pci0/0000:01:00.0/current_link_speed": "16.0 GT/s PCIe\n",
                "pci0/0000:01:00.0/current_link_width": "4\n",
            },
            7_876_923_076,
            "PCIe 16.0 GT/s x4",
        ),
        (
            "pci0/0000:02:00.0/usb2/2-1/2-1:1.0/host1/target1/1:0:0:0",
            {
                "pci0/0000:02:00.0/usb2/2-1/speed": "5000\n",
                "pci0/0000:02:00.0/usb2/2-1/bMaxPower": "0mA\n",
                "pci0/0000:02:00.0/current_link_speed": "8.0 GT/s PCIe\n",
                "pci0/0000:02:00.0/current_link_width": "4\n",
            },
            500_000_000,
            "USB 5000 Mbit/s",
        ),
        ("pci0/0000:03:00.0/virtio0", {"pci0/0000:03:00.0/current_link_speed": "Unknown\n"}, None, ""),
    ],
    ids=["sata", "nvme", "usb", "none"],
)
def test_the_link_is_the_nearest_that_is_known(
    tmp_path: Path, device: str, files: dict[str, str | bytes], bytes_per_s: int | None, link: str
) -> None:
    """A SATA drive hangs on its SATA link, not on the controller's PCIe; unknown stays unknown."""
    _machine(tmp_path, device, files)
    found = medium(DRIVE, sys=tmp_path)
    assert (found.name, found.link_bytes_per_s, found.link) == ("sda", bytes_per_s, link)


def test_an_emulated_drive_has_no_link(tmp_path: Path) -> None:
    """An emulated drive's link speed is ignored, because the emulator makes it up."""
    _machine(
        tmp_path,
        "pci0/ctrl/nvme0",
        {"pci0/ctrl/current_link_speed": "2.5 GT/s PCIe", "pci0/ctrl/current_link_width": "1"},
    )
    assert medium(replace(DRIVE, emulated=True), sys=tmp_path).link_bytes_per_s is None


@pytest.mark.parametrize(("rate", "rpm"), [(7200, 7200), (15000, 15000), (1, 0), (0, None), (0xFFFF, None)])
def test_a_drive_tells_how_fast_it_turns(tmp_path: Path, rate: int, rpm: int | None) -> None:
    """The medium rotation rate of the block device characteristics, where it is a rate or says "none"."""
    page = bytes((0, 0xB1, 0, 0x3C)) + rate.to_bytes(2, "big") + bytes(58)
    _machine(tmp_path, "scsi/0:0:0:0", {"scsi/0:0:0:0/vpd_pgb1": page})
    assert medium(ROTATING, sys=tmp_path).rpm == rpm
    assert medium(DRIVE, sys=tmp_path).rpm is None


@pytest.mark.parametrize(
    ("document", "rpm"),
    [
        ({"rotation_rate": 7200}, 7200),
        ({"rotation_rate": 0}, 0),
        ({"rotation_rate": 1}, None),
        ({"rotation_rate": "7200 rpm"}, None),
        ({}, None),
        ([], None),
        (None, None),
    ],
)
def test_the_turns_that_smartctl_tells(document: object, rpm: int | None) -> None:
    """It says 0 of an SSD, also of one whose bridge calls it rotating; nonsense is no rate."""
    assert rpm_in(document) == rpm


def test_a_drive_without_a_device_has_no_medium(tmp_path: Path) -> None:
    """A loop device has nothing of the kind."""
    found = medium(replace(ROTATING, name="no-such-drive"), sys=tmp_path)
    assert (found.rpm, found.link_bytes_per_s) == (None, None)
