"""Makes the live image: the ISO, and the pair of files for PXE."""

from __future__ import annotations

import shutil
from pathlib import Path

from release.deb import Debian
from release.live import disc, early_boot, system
from release.sources import Sources

PROGRAMS = ("mmdebstrap", "mksquashfs", "grub-mkrescue", "xorriso", "mformat", "mcopy")


def make(sources: Sources, debian: Debian, package: Path, directory: Path, out: Path) -> tuple[Path, ...]:
    """Make kernel, memory file system, ISO and the list of Debian's packages in `out`; `directory` is new.

    `package`: this tool's for that Debian. Raises CalledProcessError, and ValueError for a missing program.
    """
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        raise ValueError(f"the live image needs {', '.join(missing)}: run `make packages`")
    made = system.make(sources, debian, package, directory)
    stem = f"durability-{sources.version}-live"
    kernel, packages = out / f"{stem}.vmlinuz", out / f"{stem}.packages.txt"
    shutil.copy(made.early / "vmlinuz", kernel)
    shutil.copy(made.early / "packages", packages)
    initrd = early_boot.make(made, out / f"{stem}.initrd")
    iso = disc.make(sources, kernel, initrd, out / f"{stem}.iso")
    shutil.rmtree(directory)
    return iso, kernel, initrd, packages
