"""What was made of a device or file after a run had tested it is recognised, and needs --force."""

from __future__ import annotations

import struct
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from durability.errors import NotOursError
from durability.formats.plan import Plan
from durability_client.target.kernel_storage import KernelStorage
from durability_client.target.safety_checks import Consent, check_contents, check_path
from durability_client.target.signatures import signature_of
from durability_client.target.target_files import TargetFiles
from durability_lab.kernel_rig.block_rig import without_loop_mounts
from tests.loop_devices import add_partition, looped

MakeLoop = Callable[..., Path]
MakePlan = Callable[..., Plan]
DESTROY = Consent(destroy_data=True)
FORCE = Consent(destroy_data=True, force=True)
_PROGRAMS = {  # none discards what was there, as on a drive without TRIM
    "swap": ("mkswap", "-q"),
    "ext4": ("mkfs.ext4", "-q", "-F", "-E", "nodiscard"),
    "xfs": ("mkfs.xfs", "-q", "-f", "-K"),
    "btrfs": ("mkfs.btrfs", "-q", "-f", "-K"),
}


def _write(device: Path, parts: dict[int, bytes]) -> None:
    with device.open("r+b") as file:
        for offset, data in parts.items():
            file.seek(offset)
            file.write(data)


def _mbr(kind: int) -> bytes:
    return bytes(446) + struct.pack("<B3xB3xII", 0, kind, 1, 4096) + bytes(48) + b"\x55\xaa"


def _gpt(device: Path) -> dict[int, bytes]:
    """A table without partitions: the protective MBR, the header and its copy at the end, by the offset."""
    last = _sectors(device) - 1
    entries = bytes(128 * 128)
    parts = {0: _mbr(0xEE)}
    for at, other, table in ((1, last, 2), (last, 1, last - 32)):
        body = struct.pack("<IQQQQ16sQIII", 0, at, other, 34, last - 33, bytes(range(16)), table, 128, 128, 0)
        body = body[:-4] + struct.pack("<I", zlib.crc32(entries))
        head = b"EFI PART" + struct.pack("<II", 0x10000, 92)
        check = zlib.crc32(head + bytes(4) + body)
        parts |= {at * 512: head + struct.pack("<I", check) + body, table * 512: entries}
    return parts


def _lvm(device: Path) -> dict[int, bytes]:
    """The label of a physical volume, in sector 1, with LVM's own CRC."""
    body = struct.pack("<I8s", 32, b"LVM2 001") + b"a" * 32 + struct.pack("<Q", _sectors(device) * 512)
    body += bytes(512 - 20 - len(body))
    return {512: b"LABELONE" + struct.pack("<QI", 1, ~zlib.crc32(body, 0x0A685930) & 0xFFFFFFFF) + body}


def _zfs(device: Path) -> dict[int, bytes]:
    """The uberblocks of the two labels at the end, as when the beginning of a pool's disk was overwritten."""
    size = _sectors(device) * 512 // (256 << 10) * (256 << 10)
    uberblock = struct.pack("<QQQQQ", 0x00BAB10C, 5000, 1, 2, 3)
    labels = (size - (512 << 10), size - (256 << 10))
    return {label + (128 << 10) + number * 1024: uberblock for label in labels for number in range(8)}


def _sectors(device: Path) -> int:
    return int(Path("/sys/class/block", device.name, "size").read_text())


def _make(device: Path, kind: str) -> None:
    """Put the device to other use, with as little writing as that program does."""
    tables = {"gpt": _gpt, "LVM2_member": _lvm, "zfs_member": _zfs}
    if kind in tables:
        _write(device, tables[kind](device))
    elif kind == "dos":
        _write(device, {0: _mbr(0x83)})
    else:
        subprocess.run(
            (*without_loop_mounts(), *_PROGRAMS[kind], str(device)), check=True, capture_output=True
        )


@pytest.mark.parametrize("kind", ["gpt", "dos", "swap", "LVM2_member", "zfs_member", "ext4", "xfs", "btrfs"])
def test_a_tested_device_that_was_put_to_other_use_needs_force(
    make_loop: MakeLoop, make_plan: MakePlan, kind: str
) -> None:
    """A run's superblocks and records that are left do not make it ours."""
    device = make_loop(384 << 20)
    storage = KernelStorage(device)
    plan = make_plan(target_kind="device", slots=20_000)
    TargetFiles(storage, plan).create()
    check_path(device, DESTROY)
    _make(device, kind)
    with pytest.raises(NotOursError, match=f"carries {kind}.* erase it with wipefs .* or add --force"):
        check_path(device, DESTROY)
    check_path(device, FORCE)


def test_the_copy_of_a_gpt_at_the_end_counts(make_loop: MakeLoop, make_plan: MakePlan) -> None:
    """A run overwrote the beginning of a disk with --force: what is left can still restore its partitions."""
    device = make_loop(64 << 20)
    _make(device, "gpt")
    TargetFiles(KernelStorage(device), make_plan(target_kind="device")).create()
    with pytest.raises(NotOursError, match=r"carries gpt \(its copy at the end\)"):
        check_path(device, DESTROY)
    subprocess.run(("wipefs", "--all", "--quiet", device), check=True)
    check_path(device, DESTROY)


def test_what_a_run_leaves_is_no_signature(make_loop: MakeLoop, make_plan: MakePlan) -> None:
    """The data of a run are never taken for a signature, at several sizes and seeds."""
    for run in range(1, 9):
        plan = make_plan(target_kind="device", run=run, seed=run * 7919, slots=1000)
        for rest in (0, 1 << 20):
            device = make_loop(plan.main_bytes + rest)
            TargetFiles(KernelStorage(device), plan).create()
            assert signature_of(device) == "", f"run {run}, {rest} bytes behind it"


def test_an_empty_partition_is_empty(loop_machine: None, tmp_path: Path) -> None:
    """The partition's own entries in blkid's output are not a signature; the partition table of the disk
    is."""
    image = tmp_path / "image"
    image.write_bytes(_mbr(0x83) + bytes(8 << 20))
    with looped(image, "--partscan") as disk:
        if not Path(f"{disk}p1").exists():  # the kernel reads no such tables
            add_partition(disk, 1, 1, 4096)
        tags = subprocess.run(("blkid", "-p", f"{disk}p1"), check=True, capture_output=True, text=True).stdout
        assert "PART_ENTRY" in tags
        check_path(Path(f"{disk}p1"), DESTROY)
        with pytest.raises(NotOursError, match="carries dos"):
            check_path(disk, DESTROY)


@pytest.mark.slow
def test_a_tested_file_that_was_put_to_other_use_is_refused(tmp_path: Path, make_plan: MakePlan) -> None:
    """Swap was made in it, or other data lie where the superblocks were; --force changes nothing."""
    path = tmp_path / "target"
    storage = KernelStorage(path)
    TargetFiles(storage, make_plan(slots=20_000)).create()
    check_path(path, DESTROY)
    check_contents(storage)
    _make(path, "swap")
    with pytest.raises(
        NotOursError, match="carries swap, expected a file of this tool only; name another file"
    ):
        check_path(path, FORCE)
    path.unlink()
    plan = make_plan()
    TargetFiles(storage, plan).create()
    with path.open("r+b") as file:  # records are left in the first 64 KiB, no superblock is
        records = file.read()[next(iter(plan.extents())).offset_bytes :][: 64 << 10]
        for offset in plan.superblock_offsets:
            file.seek(offset)
            file.write(records)
    with pytest.raises(NotOursError, match="exists and was not written by this tool"):
        check_contents(storage)
