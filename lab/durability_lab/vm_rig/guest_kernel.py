"""The guest's Linux kernel: one that this machine has anyway, or one that `lab/guest-kernel` fetched.

A kernel is a directory `root` in Debian's layout, with `boot/vmlinuz-VERSION` and `lib/modules/VERSION`. It
must have the drivers that the guest needs (`guest/modules`), built in or as modules. The newest such kernel
is taken; kernels of this machine come first. A kernel need not be installed.

This module fetches nothing; the error of `find` names the command to run.
"""

from __future__ import annotations

import lzma
import re
import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

from durability.errors import SetupError

GUEST_FILES = Path(__file__).with_name("guest")
_XZ_MAGIC = b"\xfd7zXZ\0"
# ELF note of type 18 (XEN_ELFNOTE_PHYS32_ENTRY), named "Xen": the kernel can be started without its loader.
_DIRECT_ENTRY_NOTE = struct.pack("<I", 18) + b"Xen\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestKernel:
    """A kernel that the guest can use. `modules`: the files to load, in this order."""

    version: str
    root: Path
    modules: tuple[Path, ...]

    @property
    def loader(self) -> Path:
        """The kernel as a boot loader uses it: compressed, with its own loader to unpack it."""
        return self.root / "boot" / f"vmlinuz-{self.version}"

    def bare(self) -> bytes | None:
        """The unpacked kernel if QEMU can start it without its loader, otherwise None.

        An emulated loader takes several seconds to unpack the kernel; Python takes one.
        """
        packed = self.loader.read_bytes()
        start = packed.find(_XZ_MAGIC)
        if start < 0:
            return None
        kernel = lzma.LZMADecompressor().decompress(packed[start:])
        return kernel if kernel.startswith(b"\x7fELF") and _DIRECT_ENTRY_NOTE in kernel else None


def cache() -> Path:
    """The directory for kernels of `lab/guest-kernel`; each is a directory named after its version."""
    return user_cache_path("durability") / "guest-kernel"


def find(machine: Path = Path("/")) -> GuestKernel:
    """The kernel to use. `machine`: root of this machine's own kernels. Raises SetupError with the remedy."""
    fetched = [path for path in cache().glob("*") if not path.name.startswith(".")]
    for roots in ([machine], fetched):
        found = [(version, root) for root in roots for version in _versions(root)]
        for version, root in sorted(found, key=lambda each: _order(each[0]), reverse=True):
            modules = _modules(version, root)
            if modules is not None:
                return GuestKernel(version=version, root=root, modules=modules)
    raise SetupError(
        f"no kernel for a guest: neither /boot nor {cache()} has one with the modules {' '.join(_wanted())}."
        " Run lab/guest-kernel in a copy of this repository (make packages does), which fetches Debian's;"
        " or install linux-image-amd64"
    )


def read_module(path: Path) -> bytes:
    """The module, unpacked. Raises SetupError if its compression is unknown or cannot be unpacked here."""
    match path.suffix:
        case ".ko":
            return path.read_bytes()
        case ".xz":
            return lzma.decompress(path.read_bytes())
        case ".zst" if shutil.which("zstd") is not None:
            return subprocess.run(("zstd", "-dcq", str(path)), capture_output=True, check=True).stdout
        case ".zst":
            raise SetupError(f"zstd not found, but {path} is compressed with it: install zstd")
    raise SetupError(f"{path}: expected a module named .ko, .ko.xz or .ko.zst")


def _wanted() -> list[str]:
    return (GUEST_FILES / "modules").read_text().split()


def _versions(root: Path) -> list[str]:
    """The versions with both a kernel and a list of modules."""
    prefix = "vmlinuz-"
    versions = [path.name.removeprefix(prefix) for path in (root / "boot").glob(f"{prefix}*")]
    return [version for version in versions if (root / "lib/modules" / version / "modules.dep").is_file()]


def _order(version: str) -> list[tuple[int, str]]:
    """A sort key that puts 6.1.0-10 after 6.1.0-9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.findall(r"\d+|\D+", version)]


def _modules(version: str, root: Path) -> tuple[Path, ...] | None:
    """The module files to load for the guest, in order; None if the kernel lacks a wanted module."""
    files: dict[Path, None] = {}
    for name in _wanted():
        done = subprocess.run(
            ("modprobe", "--dirname", str(root), "--set-version", version, "--show-depends", name),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode != 0:
            return None
        for line in done.stdout.splitlines():  # "insmod FILE [OPTIONS]", or "builtin NAME"
            kind, _, rest = line.partition(" ")
            if kind == "insmod":
                files[Path(rest.split(" ")[0])] = None
    return tuple(files)
