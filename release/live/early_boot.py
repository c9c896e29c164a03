"""The memory file system that the kernel starts with: `init`, what it needs, and the whole system as a file.

Because the boot loader brings the system, nothing has to be looked for on disks, and BIOS, UEFI and PXE boot
the same two files.
"""

from __future__ import annotations

import stat
from pathlib import Path

from durability_lab.vm_rig.initramfs import ArchiveEntry, archive
from release.live.system import FILES, System
from release.sources import Sources

_DIRECTORIES = ("bin", "dev", "image", "memory", "modules", "proc", "sys", "system")


def make(sources: Sources, system: System, to: Path) -> Path:
    """Write the archive to the file `to`."""
    modules = sorted((system.early / "modules").iterdir())
    entries = [
        *(ArchiveEntry(name=name, mode=stat.S_IFDIR | 0o755) for name in _DIRECTORIES),
        ArchiveEntry(name="dev/console", mode=stat.S_IFCHR | 0o600, device=(5, 1)),
        _file("bin/busybox", system.early / "busybox", mode=0o755),
        _file("init", sources.directory / FILES / "init", mode=0o755),
        *(_file(f"modules/{path.name}", path, mode=0o644) for path in modules),
        _file("system.squashfs", system.compressed, mode=0o644),
    ]
    to.write_bytes(archive(entries))
    return to


def _file(name: str, path: Path, *, mode: int) -> ArchiveEntry:
    return ArchiveEntry(name=name, mode=stat.S_IFREG | mode, data=path.read_bytes())
