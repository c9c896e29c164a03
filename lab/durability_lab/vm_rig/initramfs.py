"""The guest's initial memory file system: archives that its kernel unpacks, with the `/init` that it runs.

    base       /init, /job, /bin/busybox, /dev/console, /modules/NN-NAME.ko          the same for every boot
    settings   /settings, shell variables                                            for one boot

Both are cpio archives in the format "newc" (initramfs/buffer-format in the kernel's documentation). Each file
has a header of 6 + 13 · 8 ASCII characters (magic, then hexadecimal numbers), its name and its bytes, both
padded to four. The kernel unpacks one archive after another. They are not compressed, because unpacking is
slow on an emulated processor.

A busybox that needs a dynamic loader is refused: the archive has no loader.
"""

from __future__ import annotations

import shlex
import shutil
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from durability.errors import SetupError
from durability_lab.vm_rig.guest_kernel import GUEST_FILES, GuestKernel, read_module

_LOADER = b"ld-linux"  # a dynamically linked program names its loader near its beginning
_HEAD_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveEntry:
    """A file, a directory or a device of the archive; `mode` has its type as in `stat`."""

    name: str
    mode: int
    data: bytes = b""
    device: tuple[int, int] = (0, 0)


def archive(entries: Iterable[ArchiveEntry]) -> bytes:
    """The archive of `entries`; a directory must come before its content."""
    parts = [_member(number, entry) for number, entry in enumerate(entries, start=1)]
    return b"".join(parts) + _member(0, ArchiveEntry(name="TRAILER!!!", mode=0))


def base(kernel: GuestKernel) -> bytes:
    """The archive that is the same for every boot. Raises SetupError."""
    directories = [ArchiveEntry(name=name, mode=stat.S_IFDIR | 0o755) for name in ("bin", "dev", "modules")]
    console = ArchiveEntry(name="dev/console", mode=stat.S_IFCHR | 0o600, device=(5, 1))
    programs = [
        ArchiveEntry(name=name, mode=stat.S_IFREG | 0o755, data=data)
        for name, data in (
            ("bin/busybox", busybox().read_bytes()),
            ("init", (GUEST_FILES / "init").read_bytes()),
            ("job", (GUEST_FILES / "job").read_bytes()),
        )
    ]
    modules = [
        ArchiveEntry(
            name=f"modules/{number:02d}-{path.name.partition('.')[0]}.ko",
            mode=stat.S_IFREG | 0o644,
            data=read_module(path),
        )
        for number, path in enumerate(kernel.modules)
    ]
    return archive([*directories, console, *programs, *modules])


def settings(values: Mapping[str, str]) -> bytes:
    """The archive with the file `/settings`, which sets each name of `values` in a shell."""
    text = "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())
    return archive([ArchiveEntry(name="settings", mode=stat.S_IFREG | 0o600, data=text.encode())])


def busybox() -> Path:
    """The guest's first program. Raises SetupError if there is no statically linked busybox."""
    found = shutil.which("busybox")
    if found is None:
        raise SetupError("busybox not found: install busybox-static")
    with Path(found).open("rb") as file:
        if _LOADER in file.read(_HEAD_BYTES):
            raise SetupError(f"{found} is linked dynamically and cannot run alone: install busybox-static")
    return Path(found)


def _member(number: int, entry: ArchiveEntry) -> bytes:
    name = entry.name.encode() + b"\0"
    major, minor = entry.device
    fields = (number, entry.mode, 0, 0, 1, 0, len(entry.data), 0, 0, major, minor, len(name), 0)
    header = b"070701" + b"".join(b"%08x" % field for field in fields)
    return _padded(header + name) + _padded(entry.data)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
