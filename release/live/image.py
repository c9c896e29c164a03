"""Makes the live image: the ISO, and the pair of files for PXE."""

from __future__ import annotations

import shutil
from pathlib import Path

from release.deb import Debian
from release.live import disc, early_boot, system
from release.sources import Sources

PROGRAMS = ("mmdebstrap", "mksquashfs", "grub-mkrescue", "xorriso", "mformat", "mcopy")
# What GRUB boots by: BIOS and UEFI. Without one of them the disc boots by the other alone.
PLATFORMS = (Path("/usr/lib/grub/i386-pc"), Path("/usr/lib/grub/x86_64-efi"))


def require_tools() -> None:
    """Raises FileNotFoundError if a program, or a platform or a licence of GRUB, is missing."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    missing += [str(platform) for platform in PLATFORMS if not platform.is_dir()]
    missing += [str(licence) for licence in disc.LICENCES.values() if not licence.is_file()]
    if missing:
        raise FileNotFoundError(f"the live image needs {', '.join(missing)}: run `make packages`")


def make(sources: Sources, debian: Debian, package: Path, directory: Path, out: Path) -> tuple[Path, ...]:
    """Make kernel, memory file system, ISO and the list of Debian's packages in `out`; `directory` is new.

    `package`: this tool's for that Debian. Raises CalledProcessError, and FileNotFoundError for a missing
    program.
    """
    require_tools()
    made = system.make(sources, debian, package, directory)
    stem = f"durability-{sources.version}-live"
    kernel, packages = out / f"{stem}.vmlinuz", out / f"{stem}.packages.txt"
    shutil.copy(made.early / "vmlinuz", kernel)
    packages.write_text((made.early / "packages").read_text("utf-8") + disc.packages(sources), "utf-8")
    initrd = early_boot.make(sources, made, out / f"{stem}.initrd")
    iso = disc.make(sources, kernel, initrd, out / f"{stem}.iso")
    shutil.rmtree(directory)
    return iso, kernel, initrd, packages
