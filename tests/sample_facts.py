"""Facts of a machine and its drive for tests: a file on ext4 on a SATA disk. Tests change what they need."""

from __future__ import annotations

from typing import Any

from durability.formats.facts import Drive, Facts, FileSystem, Host


def drive(**changes: Any) -> Drive:
    """A SATA disk with a volatile cache, any field changed by keyword."""
    fields: dict[str, Any] = {
        "name": "sda",
        "model": "Disk",
        "serial": "S1",
        "firmware": "1.0",
        "size_bytes": 1 << 40,
        "logical_block_bytes": 512,
        "physical_block_bytes": 4096,
        "rotational": False,
        "write_cache": "write back",
        "fua": False,
        "diskseq": 9,
        "unsafe_shutdowns": 3,
        "atomic_write_bytes": None,
        "flushes": 100,
        "emulated": False,
    }
    return Drive(**{**fields, **changes})


def file_system(**changes: Any) -> FileSystem:
    """An ext4 on the disk's first partition, any field changed by keyword."""
    fields: dict[str, Any] = {
        "type": "ext4",
        "uuid": "uuid-1",
        "source": "/dev/sda1",
        "mount_point": "/mnt",
        "options": "rw",
        "block_bytes": 4096,
    }
    return FileSystem(**{**fields, **changes})


def host(**changes: Any) -> Host:
    """A machine that is not virtual, any field changed by keyword."""
    fields: dict[str, Any] = {
        "machine_id": "machine",
        "boot_id": "boot-1",
        "uptime_ns": 1000 * 10**9,
        "kernel": "6.1.0",
        "virtualisation": "none",
        "hostname": "host",
    }
    return Host(**{**fields, **changes})


def facts(
    *,
    boot: str = "boot-1",
    uptime_s: float = 1000,
    machine: str = "machine",
    virtualisation: str = "none",
    uuid: str = "uuid-1",
    drives: tuple[Drive, ...] | None = None,
    **changes: Any,
) -> Facts:
    """The facts of a file on ext4 on one disk, any field changed by keyword."""
    fields: dict[str, Any] = {
        "host": host(
            machine_id=machine, boot_id=boot, uptime_ns=int(uptime_s * 1e9), virtualisation=virtualisation
        ),
        "path": "/mnt/target",
        "path_in_file_system": "target",
        "kind": "file",
        "size_bytes": 1 << 30,
        "offset_bytes": 1 << 20,
        "file_system": file_system(uuid=uuid),
        "layers": ("sda1", "sda"),
        "drives": (drive(),) if drives is None else drives,
        "warnings": (),
    }
    return Facts(**{**fields, **changes})
