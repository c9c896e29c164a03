"""Block sizes of layers below a target: recordsize, volblocksize and cluster_size, from the layers' programs.

A write that is smaller than such a block makes the layer rewrite a whole block. Only sizes that a layer
itself reports are listed. A guest cannot see the image or dataset of its host, so none is listed there. The
block sizes of the mounted file system and of the drives are among the facts.

    recordsize     the ZFS dataset of the file system, or of the file behind a loop device: zfs get
    volblocksize   a ZFS volume: zfs get
    cluster_size   the image behind a device of qemu-nbd: qemu-img info
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from durability.bench.result import LayerBlock
from durability.errors import FormatError
from durability.formats import documents
from durability.formats.facts import Facts
from durability_client.system import block_devices
from durability_client.system.block_devices import SYS
from durability_client.system.mounts import Mount, mount_of
from durability_client.system.other_programs import PROC
from durability_client.system.programs import output_of

_ZVOLS = Path("/dev/zvol")
_OPEN_FILES_MAX = 64
Ask = Callable[..., str]  # runs a program with arguments and returns its output


def layer_blocks(
    facts: Facts, *, sys: Path = SYS, proc: Path = PROC, zvols: Path = _ZVOLS, ask: Ask = output_of
) -> tuple[LayerBlock, ...]:
    """The block sizes of the layers in `facts`, the nearest layer first; () if no layer reports one."""
    found: list[LayerBlock | None] = []
    if facts.file_system is not None and facts.file_system.type == "zfs":
        found.append(_of_zfs("recordsize", facts.file_system.source, ask))
    for layer in facts.layers:
        name = layer.partition(" ")[0]
        if name.startswith("zd"):
            volume = _volume_of(name, zvols)
            found.append(_of_zfs("volblocksize", volume, ask) if volume else None)
        elif name.startswith("nbd"):
            found += [_of_image(image, ask) for image in _images_of(name, sys, proc)]
        elif (backing := block_devices.backing_file(name, sys=sys)) is not None:
            found.append(_of_mount(mount_of(backing), ask))
    return tuple(dict.fromkeys(one for one in found if one is not None))


def _of_mount(mount: Mount | None, ask: Ask) -> LayerBlock | None:
    return None if mount is None or mount.type != "zfs" else _of_zfs("recordsize", mount.source, ask)


def _of_zfs(what: str, dataset: str, ask: Ask) -> LayerBlock | None:
    """A property of a dataset or volume in bytes; None if zfs is missing or reports none."""
    said = ask("zfs", "get", "-Hp", "-o", "value", what, dataset)
    if not said.isdecimal() or len(said) > 18 or not int(said):
        return None
    return LayerBlock(what=what, of=dataset, block_bytes=int(said))


def _volume_of(name: str, zvols: Path) -> str:
    """The ZFS volume whose device is `name`; "" if none is."""
    for directory, _, files in os.walk(zvols):
        for file in files:
            link = Path(directory) / file
            if link.is_symlink() and link.readlink().name == name:
                return str(link.relative_to(zvols))
    return ""


def _images_of(name: str, sys: Path, proc: Path) -> Iterator[Path]:
    """The files opened by the program that serves the network block device `name`."""
    with suppress(OSError, ValueError):
        server = proc / str(int((sys / "class" / "block" / name / "pid").read_text()))
        links = sorted((server / "fd").iterdir(), key=lambda link: int(link.name))
        files = (link.readlink() for link in links[:_OPEN_FILES_MAX])
        yield from dict.fromkeys(file for file in files if file.is_file())


def _of_image(image: Path, ask: Ask) -> LayerBlock | None:
    """The cluster size of an image; None if qemu-img is missing or reports none."""
    with suppress(FormatError):
        # -U: the image is in use; it is only read.
        said = documents.from_json(ask("qemu-img", "info", "-U", "--output=json", str(image)) or "null")
        size = said.get("cluster-size") if isinstance(said, dict) else None
        if type(size) is int and 0 < size < 1 << 62:
            return LayerBlock(what="cluster_size", of=str(image), block_bytes=size)
    return None
