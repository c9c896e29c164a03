"""Namespaces of one NVMe drive are known as one drive."""

from __future__ import annotations

from pathlib import Path

from durability_client.system.block_devices import nvme_drive_of


def test_namespaces_of_one_drive_share_its_name(tmp_path: Path) -> None:
    """They have the subsystem and the serial of their controller. Other drives have none, or another, or are
    behind a network, where an array has many drives."""
    for name, directory, serial, transport in (
        ("nvme0n1", "nvme0", "S1", "pcie"),
        ("nvme0n2", "nvme0", "S1", "pcie"),
        ("nvme1n1", "nvme1", "S2", "pcie"),
        ("nvme2n1", "nvme2", "S3", "tcp"),
        ("sda", "0:0:0:0", "", ""),
    ):
        device = tmp_path / "devices" / directory
        device.mkdir(parents=True, exist_ok=True)
        if serial:
            (device / "serial").write_text(f"{serial}   \n")
            (device / "transport").write_text(f"{transport}\n")
            (device / "subsysnqn").write_text("nqn.2014.08.org.nvmexpress:x\n")
        block = tmp_path / "class" / "block" / name
        block.mkdir(parents=True)
        (block / "device").symlink_to(device)
    first, second, other, far, disk = (
        nvme_drive_of(name, sys=tmp_path) for name in ("nvme0n1", "nvme0n2", "nvme1n1", "nvme2n1", "sda")
    )
    assert first == second == "nqn.2014.08.org.nvmexpress:x S1"
    assert other not in ("", first) and far == disk == ""
