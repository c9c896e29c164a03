"""Facts of real loop devices and file systems, and of other machines' /sys trees rebuilt in a directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from durability.evidence.identity import identify
from durability.formats.documents import from_value, to_value
from durability.formats.facts import Drive, Facts, FileSystem
from durability.formats.plan import Plan
from durability_client.system import block_devices, log_devices
from durability_client.system.mounts import Mount, mount_of, parse_mount
from durability_client.system.smart import counter_in
from durability_client.target import discovery
from durability_client.target.discovery import collect, uptime_ns
from durability_client.target.kernel_storage import KernelStorage
from durability_client.target.target_warnings import host_warnings, target_warnings
from tests import sample_facts
from tests.core.evidence.memory_target import make_case, small
from tests.loop_devices import looped

DRIVE = Drive(
    name="nvme0n1",
    model="Model",
    serial="S1",
    firmware="1",
    size_bytes=1 << 30,
    logical_block_bytes=512,
    physical_block_bytes=4096,
    rotational=False,
    write_cache="write back",
    fua=True,
    diskseq=1,
    unsafe_shutdowns=3,
    atomic_write_bytes=None,
    flushes=0,
    emulated=False,
)


def _codes(
    *,
    file_system: str = "ext4",
    options: str = "rw",
    drive: Drive = DRIVE,
    layers: tuple[str, ...] = (),
    path: str = "/data/target",
    mount_point: str = "/",
) -> list[str]:
    """Codes of the warnings for a set-up that gives rise to none but for what is named."""
    mounted = FileSystem(
        type=file_system, uuid="", source="", mount_point=mount_point, options=options, block_bytes=4096
    )
    found = target_warnings(
        path=path, file_system=mounted, layers=layers, drives=(drive,), virtualisation="none"
    )
    return [warning.code for warning in found]


def _tree(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")
    return root


def _link(root: Path, name: str, target: str) -> None:
    (root / "class" / "block").mkdir(parents=True, exist_ok=True)
    (root / "class" / "block" / name).symlink_to(root / target)


def _nvme(root: Path, name: str = "nvme0n1", serial: str = "S4EW12345") -> str:
    """A /sys tree of an NVMe drive with a partition that starts at sector 2048."""
    directory = f"devices/pci/{name}"
    _tree(
        root,
        {
            f"{directory}/size": "2048000",
            f"{directory}/diskseq": "7",
            f"{directory}/ro": "0",
            f"{directory}/stat": " ".join(str(number) for number in range(17)),
            f"{directory}/device/model": "Samsung SSD 980 PRO 1TB                 ",
            f"{directory}/device/serial": f"{serial}      ",
            f"{directory}/device/firmware_rev": "5B2QGXA7",
            f"{directory}/queue/logical_block_size": "512",
            f"{directory}/queue/physical_block_size": "4096",
            f"{directory}/queue/rotational": "0",
            f"{directory}/queue/write_cache": "write back",
            f"{directory}/queue/fua": "1",
            f"{directory}/queue/atomic_write_max_bytes": "131072",
            f"{directory}/{name}p1/partition": "1",
            f"{directory}/{name}p1/start": "2048",
        },
    )
    _link(root, name, directory)
    _link(root, f"{name}p1", f"{directory}/{name}p1")
    return name


def _stacked(root: Path, name: str, members: list[str], files: dict[str, str]) -> None:
    """An md or dm device over `members`."""
    directory = f"devices/virtual/{name}"
    _tree(root, {f"{directory}/{path}": content for path, content in files.items()})
    (root / directory / "slaves").mkdir(parents=True)
    for member in members:
        (root / directory / "slaves" / member).symlink_to(root / "class" / "block" / member)
    _link(root, name, directory)


def test_a_loop_device_is_a_drive_known_by_its_backing_file(make_loop: Callable[..., Path]) -> None:
    """A loop device is a leaf: its serial is the backing file, size and diskseq are the kernel's."""
    device = make_loop(8 << 20)
    facts = collect(device, "device")
    (drive,) = facts.drives
    backing = (Path("/sys/block") / device.name / "loop" / "backing_file").read_text().strip()
    assert drive.serial == f"loop:{backing}"
    assert facts.size_bytes == drive.size_bytes == 8 << 20
    assert drive.diskseq == int((Path("/sys/block") / device.name / "diskseq").read_text())
    assert facts.offset_bytes == 0
    assert facts.layers == (f"{device.name} (loop)",)
    assert facts.file_system is None
    assert facts.path_in_file_system == ""
    assert not drive.emulated
    assert "loop-device" in [warning.code for warning in facts.warnings]


def test_loop_devices_over_two_parts_of_a_file_are_two_drives(
    loop_machine: None, make_plan: Callable[..., Plan], tmp_path: Path
) -> None:
    """By their offsets, however they are attached; and neither is the target of the other's run."""
    (tmp_path / "image").write_bytes(bytes(8 << 20))
    half = str(4 << 20)
    with (
        looped(tmp_path / "image", "--sizelimit", half) as first,
        looped(tmp_path / "image", "--offset", half) as second,
        looped(tmp_path / "image", "--offset", half) as again,
    ):
        low, high, same = (collect(device, "device") for device in (first, second, again))
    assert low.drives[0].serial == f"loop:{tmp_path}/image"
    assert high.drives[0].serial == same.drives[0].serial == f"loop:{tmp_path}/image@{half}"
    case = make_case(small(make_plan), (1,), armed=high)
    assert identify(case, same, (None, None)).by is not None
    assert identify(case, low, (None, None)).by is None


def test_a_loop_device_attached_anew_has_a_higher_diskseq(make_loop: Callable[..., Path]) -> None:
    """Detaching and attaching, which is what a drive that lost power looks like, raises diskseq."""
    device = make_loop()
    before = collect(device, "device").drives[0]
    subprocess.run(["/usr/sbin/losetup", "-d", str(device)], check=True)
    # At any number: whoever looks for a free one may have taken that of before.
    attach = ["/usr/sbin/losetup", "--find", "--show", before.serial.removeprefix("loop:")]
    attached = subprocess.run(attach, check=True, capture_output=True, text=True).stdout.strip()
    after = collect(Path(attached), "device").drives[0]
    assert before.diskseq is not None
    assert after.diskseq is not None
    assert after.diskseq > before.diskseq
    assert after.serial == before.serial


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])
def test_a_file_is_found_on_its_file_system_and_drive(
    make_mount: Callable[..., tuple[Path, Path]], kind: str
) -> None:
    """Type, UUID, options, block size, mount point, place within it, and the drive below, on real mounts."""
    device, directory = make_mount(kind, options="noatime", mkfs=("-b", "4096") if kind == "ext4" else ())
    path = directory / "sub" / "target"
    path.parent.mkdir()
    path.write_bytes(bytes(12345))
    facts = collect(path, "file")
    file_system = facts.file_system
    assert file_system is not None
    assert (file_system.type, file_system.mount_point) == (kind, str(directory))
    assert file_system.source == str(device)
    assert file_system.block_bytes == 4096
    assert "noatime" in file_system.options.split(",")
    assert facts.path_in_file_system == "sub/target"
    assert facts.size_bytes == 12345
    assert facts.layers == (f"{device.name} (loop)",)
    blkid = ["/usr/sbin/blkid", "-p", "-o", "value", "-s", "UUID", str(device)]
    assert file_system.uuid == subprocess.check_output(blkid, text=True).strip()


def test_the_place_in_the_file_system_survives_a_bind_mount(
    make_mount: Callable[..., tuple[Path, Path]], tmp_path: Path
) -> None:
    """Through a bind mount of a directory the same file has the same place and UUID."""
    _, directory = make_mount()
    (directory / "sub").mkdir()
    other = tmp_path / "other place"
    other.mkdir()
    subprocess.run(["mount", "--bind", str(directory / "sub"), str(other)], check=True)
    try:
        direct, bound = collect(directory / "sub" / "t", "file"), collect(other / "t", "file")
        assert bound.path_in_file_system == direct.path_in_file_system == "sub/t"
        assert bound.file_system is not None
        assert direct.file_system is not None
        assert bound.file_system.mount_point == str(other)
        assert bound.file_system.uuid == direct.file_system.uuid
    finally:
        subprocess.run(["umount", str(other)], check=True)


def test_a_missing_file_gets_the_facts_of_where_it_would_be(tmp_path: Path) -> None:
    """A target that is gone has no size, and the file system of its nearest existing parent."""
    facts = collect(tmp_path / "gone" / "target", "file")
    here = collect(tmp_path, "file")
    assert facts.size_bytes == 0
    assert facts.file_system == here.file_system
    assert facts.path_in_file_system == f"{here.path_in_file_system}/gone/target"


def test_facts_of_this_machine_cross_the_wire_unchanged(tmp_path: Path) -> None:
    """Real facts survive the document codec, and name machine, boot and uptime."""
    facts = collect(tmp_path / "target", "file")
    assert from_value(Facts, to_value(facts)) == facts
    assert facts.host.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert 0 < facts.host.uptime_ns <= time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    assert facts.host.virtualisation
    assert facts.host.kernel.startswith("Linux ")


def test_a_partition_of_an_nvme_drive(tmp_path: Path) -> None:
    """The layers lead from the partition to the drive, with the partition's offset in bytes."""
    _nvme(tmp_path)
    stack = block_devices.stack_of(("nvme0n1p1",), sys=tmp_path)
    assert stack.layers == ("nvme0n1p1 (partition)", "nvme0n1 (drive)")
    assert stack.leaves == ("nvme0n1",)
    assert stack.offset_bytes == 2048 * 512
    assert block_devices.stack_of(("nvme0n1",), sys=tmp_path).offset_bytes == 0
    assert block_devices.partitions_of("nvme0n1", sys=tmp_path) == ["nvme0n1p1"]
    drive = block_devices.drive("nvme0n1", sys=tmp_path)
    assert (drive.model, drive.serial, drive.firmware) == ("Samsung SSD 980 PRO 1TB", "S4EW12345", "5B2QGXA7")
    assert (drive.size_bytes, drive.physical_block_bytes, drive.atomic_write_bytes) == (
        2048000 * 512,
        4096,
        131072,
    )
    assert (drive.rotational, drive.write_cache, drive.fua) == (False, "write back", True)
    assert (drive.diskseq, drive.flushes, drive.emulated) == (7, 15, False)


@pytest.mark.parametrize(
    ("offset", "physical", "misaligned"),
    [
        ("0", "4096", False),
        ("512", "4096", True),
        ("-1", "4096", True),
        ("4096", "4096", False),
        ("-1", "512", False),
        (None, "4096", False),
    ],
)
def test_a_device_that_begins_within_a_physical_block_is_misaligned(
    tmp_path: Path, offset: str | None, physical: str, *, misaligned: bool
) -> None:
    """The kernel says so of a volume and of a partition; a drive with blocks of 512 bytes has none to
    miss."""
    _nvme(tmp_path)
    partition = {"alignment_offset": offset} if offset is not None else {}
    _stacked(tmp_path, "dm-0", ["nvme0n1p1"], {"queue/physical_block_size": physical, **partition})
    assert block_devices.is_misaligned("dm-0", sys=tmp_path) is misaligned
    _tree(tmp_path, {"class/block/nvme0n1/queue/physical_block_size": physical})
    _tree(tmp_path, {f"class/block/nvme0n1p1/{name}": text for name, text in partition.items()})
    assert block_devices.is_misaligned("nvme0n1p1", sys=tmp_path) is misaligned


def test_a_device_is_found_by_serial_and_offset(tmp_path: Path) -> None:
    """Names change with a reboot; the drive's serial and the partition's start do not."""
    _nvme(tmp_path, "nvme0n1", "B")
    _nvme(tmp_path, "nvme1n1", "A")
    _stacked(tmp_path, "dm-0", ["nvme1n1p1"], {"dm/uuid": "LVM-abcdef"})
    assert block_devices.device_at("A", 2048 * 512, sys=tmp_path) == Path("/dev/nvme1n1p1")
    assert block_devices.device_at("A", 0, sys=tmp_path) == Path("/dev/nvme1n1")
    assert block_devices.device_at("A", 512, sys=tmp_path) is None
    assert block_devices.device_at("C", 0, sys=tmp_path) is None
    _nvme(tmp_path, "nvme2n1", "A")
    assert block_devices.device_at("A", 0, sys=tmp_path) is None


def test_a_device_whose_node_lies_in_a_directory_is_found(tmp_path: Path) -> None:
    """The kernel's name has a `!` for each `/` of the node below /dev."""
    _nvme(tmp_path, "etherd!e0.0", "A")
    assert block_devices.device_at("A", 0, sys=tmp_path) == Path("/dev/etherd/e0.0")
    assert block_devices.device_at("A", 2048 * 512, sys=tmp_path) == Path("/dev/etherd/e0.0p1")


def test_a_mirror_under_a_logical_volume_resolves_to_both_drives(tmp_path: Path) -> None:
    """LVM over md over partitions: each layer is named once, both drives are found, no offset is."""
    _nvme(tmp_path, "nvme0n1", "A")
    _nvme(tmp_path, "nvme1n1", "B")
    _stacked(tmp_path, "md0", ["nvme0n1p1", "nvme1n1p1"], {"md/level": "raid1"})
    _stacked(tmp_path, "dm-0", ["md0"], {"dm/uuid": "LVM-abcdef"})
    stack = block_devices.stack_of(("dm-0",), sys=tmp_path)
    assert stack.layers == (
        "dm-0 (dm lvm)",
        "md0 (md raid1)",
        "nvme0n1p1 (partition)",
        "nvme1n1p1 (partition)",
        "nvme0n1 (drive)",
        "nvme1n1 (drive)",
    )
    assert stack.leaves == ("nvme0n1", "nvme1n1")
    assert stack.offset_bytes is None
    assert [block_devices.drive(name, sys=tmp_path).serial for name in stack.leaves] == ["A", "B"]
    assert "layers" in _codes(layers=stack.layers)


def test_an_external_log_adds_its_drive(tmp_path: Path) -> None:
    """A log on another drive adds that drive behind the file system's own. Place and volume are those of the
    file system alone."""
    _nvme(tmp_path, "nvme0n1", "A")
    _nvme(tmp_path, "nvme1n1", "B")
    stack = block_devices.stack_of(("nvme0n1p1",), beside=("nvme1n1p1",), sys=tmp_path)
    assert stack.leaves == ("nvme0n1", "nvme1n1")
    assert (stack.offset_bytes, stack.volume) == (2048 * 512, "")
    assert "nvme1n1p1 (partition)" in stack.layers
    whole = block_devices.stack_of(("nvme0n1p1",), beside=("nvme1n1",), sys=tmp_path)
    assert (whole.leaves, whole.offset_bytes) == (stack.leaves, stack.offset_bytes)
    same = block_devices.stack_of(("nvme0n1p1",), beside=("nvme0n1",), sys=tmp_path)
    assert (same.leaves, same.offset_bytes) == (("nvme0n1",), 2048 * 512)


def _mounted(file_system: str, options: str = "rw") -> Mount:
    return Mount(
        id=1, device_number=(8, 1), root="/", mount_point="/m", type=file_system, source="", options=options
    )


def test_the_log_and_realtime_devices_of_xfs_are_in_its_options(tmp_path: Path) -> None:
    """By any path that leads to them; one that leads nowhere is not known."""
    number = Path("/dev/null").stat().st_rdev
    (tmp_path / "devices/sdb1").mkdir(parents=True)
    (tmp_path / "dev/block").mkdir(parents=True)
    (tmp_path / f"dev/block/{os.major(number)}:{os.minor(number)}").symlink_to(tmp_path / "devices/sdb1")

    def beside(options: str, file_system: str = "xfs") -> tuple[tuple[str, ...], bool]:
        return log_devices.beside(_mounted(file_system, options), ("sda1",), sys=tmp_path, proc=tmp_path)

    assert beside("rw,logbufs=8,logbsize=32k") == ((), True)
    assert beside("rw,logdev=/dev/null,noquota") == (("sdb1",), True)
    assert beside("rw,logdev=/dev/null,rtdev=/nowhere") == (("sdb1",), False)
    assert beside("rw,logdev=/dev/null", "btrfs") == ((), True)


@pytest.mark.parametrize(
    ("journals", "task", "thread", "expected"),
    [
        (("sda1-8", "sdc1"), "7", "jbd2/sda1-8", ((), True)),
        (("sdb1", "sdb10-8", "sdc1-8"), "7", "jbd2/sdb1", (("sdb1",), True)),
        (("nvme10n1p12", "sdc1-8"), "7", "jbd2/nvme10n1p", (("nvme10n1p12",), True)),
        (("nvme10n1p12", "nvme10n1p13"), "7", "jbd2/nvme10n1p", ((), False)),
        (("sdb1",), "7", "bash", ((), False)),
        (("sdb1",), "8", "jbd2/sdb1", ((), False)),
        (("sdb1",), "<none>", "", ((), True)),
        ((), None, "", ((), True)),
    ],
)
def test_the_external_journal_of_ext4_is_that_of_its_thread(
    tmp_path: Path, journals: tuple[str, ...], task: str | None, thread: str, expected: object
) -> None:
    """The names of journals and of the thread are the kernel's; older ones cut the latter. What cannot be
    found is not known; a kernel that says nothing has no external journal."""
    for name in ("sda1", "sdb1", "nvme10n1p12", "nvme10n1p13"):
        (tmp_path / "class/block" / name).mkdir(parents=True)
    for name in journals:
        (tmp_path / "fs/jbd2" / name).mkdir(parents=True)
    _tree(tmp_path, {"7/comm": thread} | ({"fs/ext4/sda1/journal_task": task} if task else {}))
    found = log_devices.beside(_mounted("ext4"), ("sda1",), sys=tmp_path, proc=tmp_path)
    assert found == expected


@pytest.mark.parametrize(
    ("names", "volume"),
    [
        (("dm-0",), "LVM-abcdef"),
        (("dm-1",), f"CRYPT-LUKS2-{'0f' * 16}"),
        (("dm-2",), ""),
        (("dm-3",), ""),
        (("md0",), "md-3aaa0122-29827cfa-5331ad66-ca767371"),
        (("md0p1",), "md-3aaa0122-29827cfa-5331ad66-ca767371 at 1048576"),
        (("nvme0n1p1",), ""),
        (("nvme0n1", "dm-0"), ""),
    ],
)
def test_volumes_are_told_apart_by_what_the_kernel_calls_them(
    tmp_path: Path, names: tuple[str, ...], volume: str
) -> None:
    """A volume is identified by its device-mapper or md UUID and the place within it, without the name under
    which it was opened."""
    _nvme(tmp_path)
    uuids = ("LVM-abcdef", f"CRYPT-LUKS2-{'0f' * 16}-data", "CRYPT-PLAIN-data", "")
    for number, uuid in enumerate(uuids):
        _stacked(tmp_path, f"dm-{number}", ["nvme0n1"], {"dm/uuid": uuid})
    array = {"md/uuid": "3aaa0122-29827cfa-5331ad66-ca767371", "md0p1/partition": "1", "md0p1/start": "2048"}
    _stacked(tmp_path, "md0", ["nvme0n1"], array)
    _link(tmp_path, "md0p1", "devices/virtual/md0/md0p1")
    assert block_devices.stack_of(names, sys=tmp_path).volume == volume


def test_a_link_is_found_that_leads_to_a_device_after_a_restart(tmp_path: Path) -> None:
    """One that people can read, if there is one; none for a device without a link."""
    device, other = tmp_path / "dm-0", tmp_path / "dm-1"
    for name in ("dm-uuid-LVM-abc", "dm-name-vg-a", "wwn-0x5"):
        (tmp_path / name).symlink_to(device)
    assert block_devices.link_to(device, links=tmp_path) == tmp_path / "dm-name-vg-a"
    assert block_devices.link_to(other, links=tmp_path) is None


def test_the_path_that_was_typed_is_kept(tmp_path: Path) -> None:
    """A link leads to the target after a restart, when its own name may be another's."""
    (tmp_path / "link").symlink_to(tmp_path / "target")
    assert KernelStorage(tmp_path / "link").facts().named == str(tmp_path / "link")
    assert KernelStorage(tmp_path / "target").facts().named == ""


def test_a_file_is_known_whatever_its_path(tmp_path: Path) -> None:
    """A renamed file is itself; a copy in its place is another, also with the inode that has become free."""
    path = tmp_path / "target"
    path.write_bytes(b"target")
    found = mount_of(path)
    if found is None or found.type not in ("ext4", "xfs", "btrfs"):
        assert collect(path, "file").file_id == ""
        return
    known = collect(path, "file").file_id
    assert known
    path = path.rename(tmp_path / "renamed")
    assert collect(path, "file").file_id == known
    copies = {known}
    for _ in range(3):
        path.unlink()
        path.write_bytes(b"target")
        copies.add(collect(path, "file").file_id)
    assert len(copies) == 4
    assert collect(tmp_path, "file").file_id == collect(tmp_path / "gone", "file").file_id == ""


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])
def test_a_file_is_known_after_it_was_mounted_again(
    make_mount: Callable[..., tuple[Path, Path]], kind: str
) -> None:
    """A file keeps its id after another mount. Its copy in a snapshot has the same inode but another id."""
    device, directory = make_mount(kind)
    path = directory / "target"
    path.write_bytes(b"target")
    known = collect(path, "file").file_id
    assert known
    if kind == "btrfs":
        command = ["btrfs", "subvolume", "snapshot", str(directory), str(directory / "snapshot")]
        subprocess.run(command, check=True, capture_output=True)
        copy = directory / "snapshot" / "target"
        assert copy.stat().st_ino == path.stat().st_ino
        assert collect(copy, "file").file_id != known
    subprocess.run(["umount", str(directory)], check=True)
    subprocess.run(["mount", str(device), str(directory)], check=True)
    assert collect(path, "file").file_id == known


def test_a_sata_drive_has_its_serial_from_the_vital_product_data(tmp_path: Path) -> None:
    """A SCSI drive without a serial file gives it in VPD page 0x80, and its WWN otherwise."""
    _tree(
        tmp_path,
        {
            "devices/sda/device/vendor": "ATA     ",
            "devices/sda/device/model": "INTEL SSDSC2KB96",
            "devices/sda/device/rev": "0132",
            "devices/sda/device/wwid": "naa.55cd2e414f000000",
            "devices/sda/queue/rotational": "1",
        },
    )
    _link(tmp_path, "sda", "devices/sda")
    assert block_devices.drive("sda", sys=tmp_path).serial == "naa.55cd2e414f000000"
    (tmp_path / "devices/sda/device/vpd_pg80").write_bytes(b"\x00\x80\x00\x14  PHYF000000000000AA")
    drive = block_devices.drive("sda", sys=tmp_path)
    assert (drive.serial, drive.model, drive.firmware) == ("PHYF000000000000AA", "INTEL SSDSC2KB96", "0132")
    assert drive.rotational is True
    assert (drive.write_cache, drive.fua, drive.diskseq, drive.flushes) == (None, None, None, None)


def test_namespaces_of_one_drive_are_told_apart(tmp_path: Path) -> None:
    """They share the serial of their controller, and each begins at byte 0: a run on one is not one on the
    other."""
    for nsid in (1, 2):
        name = f"nvme0n{nsid}"
        _tree(tmp_path, {f"devices/{name}/device/serial": "S1EX01  ", f"devices/{name}/nsid": str(nsid)})
        _link(tmp_path, name, f"devices/{name}")
    serials = [block_devices.drive(name, sys=tmp_path).serial for name in ("nvme0n1", "nvme0n2")]
    assert serials == ["S1EX01", "S1EX01/2"]


@pytest.mark.parametrize(
    ("files", "wwid"),
    [
        ({}, ""),
        ({"wwid": "eui.0025385b01400001"}, "eui.0025385b01400001"),
        ({"device/wwid": "naa.55cd2e414f000000", "device/serial": "S1"}, "naa.55cd2e414f000000"),
        ({"device/wwid": "naa.5000000000000001"}, ""),
        ({"wwid": "eui.0000000000000000"}, ""),
        ({"device/wwid": "t10.ATA     QEMU HARDDISK   QM00001"}, ""),
        ({"device/cid": "1b534d3030303030101a2b3c4d0123", "device/serial": "0x1a2b3c4d"}, "1b5"),
    ],
)
def test_a_drive_has_a_world_wide_name_of_its_own(tmp_path: Path, files: dict[str, str], wwid: str) -> None:
    """Beside its serial; not one that others have too. A memory card has its CID."""
    _tree(tmp_path, {"devices/d/size": "8", **{f"devices/d/{name}": text for name, text in files.items()}})
    _link(tmp_path, "d", "devices/d")
    found = block_devices.drive("d", sys=tmp_path)
    assert found.wwid.startswith(wwid) and bool(found.wwid) == bool(wwid)
    assert found.serial == files.get("device/serial", found.serial)


@pytest.mark.parametrize(
    ("name", "vendor", "model", "emulated"),
    [
        ("vda", "0x1af4", "", True),
        ("sda", "QEMU", "QEMU HARDDISK", True),
        ("sda", "VMware", "Virtual disk", True),
        ("sda", "Msft", "Virtual Disk", True),
        ("sda", "ATA", "Virtual HD", True),
        ("nvme0n1", "", "VMware Virtual NVMe Disk", True),
        ("sda", "IET", "VIRTUAL-DISK", True),
        ("sda", "Dell", "VIRTUAL DISK", False),
        ("sdb", "DELL", "MD Virtual Disk", False),
        ("nvme0n1", "", "Amazon Elastic Block Store", True),
        ("nvme0n1", "", "QEMU NVMe Ctrl", True),
        ("nvme0n1", "", "nvme_card-pd", True),
        ("sda", "DO", "Volume", True),
        ("sda", "Linode", "Volume", True),
        ("nvme0n1", "", "KINGSTON SKC3000S1024G", False),
    ],
)
def test_emulated_drives_are_known(
    tmp_path: Path, name: str, vendor: str, model: str, emulated: bool
) -> None:
    """Drives that a hypervisor makes up are marked, so that their counters prove nothing."""
    _tree(tmp_path, {f"devices/{name}/device/vendor": vendor, f"devices/{name}/device/model": model})
    _link(tmp_path, name, f"devices/{name}")
    assert block_devices.drive(name, sys=tmp_path).emulated is emulated


def _ata(row: dict[str, object]) -> dict[str, object]:
    return {"ata_smart_attributes": {"table": [row]}}


@pytest.mark.parametrize(
    ("document", "count"),
    [
        ({"nvme_smart_health_information_log": {"unsafe_shutdowns": 42}}, 42),
        (
            _ata({"id": 174, "name": "Unexpect_Power_Loss_Ct", "raw": {"value": 7}}),
            7,
        ),
        (_ata({"id": 192, "name": "Unsafe_Shutdown_Count", "raw": {"value": 8}}), 8),
        (_ata({"id": 192, "name": "Power-Off_Retract_Count", "raw": {"value": 9}}), None),
        (_ata({"id": 235, "name": "POR_Recovery_Count", "raw": {"value": 9}}), None),
        (_ata({"id": 12, "name": "Unsafe_Shutdown_Count", "raw": {"value": 9}}), None),
        ({"ata_smart_attributes": {"table": "nonsense"}}, None),
        ({"smartctl": {"exit_status": 2}}, None),
        ([], None),
        (None, None),
    ],
)
def test_the_unsafe_shutdown_counter_of_smartctl(document: object, count: int | None) -> None:
    """Only a counter that means power lost without warning counts, and nonsense is no counter."""
    assert counter_in(document) == count


@pytest.mark.parametrize(
    ("place", "on_usb"),
    [
        ("pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0/block", False),
        ("pci0000:00/0000:00:14.0/usb2/2-1/2-1:1.0/host6/target6:0:0/6:0:0:0/block", True),
    ],
)
def test_the_counter_of_a_drive_on_usb_is_no_evidence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, *, on_usb: bool
) -> None:
    """It loses its supply at each clean power-off too. A drive on SATA that smartctl says the same of has a
    counter."""
    said = json.dumps(_ata({"id": 174, "name": "Unexpect_Power_Loss_Ct", "raw": {"value": 7}}))
    tools = tmp_path / "tools"
    _tree(tools, {"smartctl": f"#!/bin/sh\necho '{said}'"})
    (tools / "smartctl").chmod(0o755)
    monkeypatch.setattr("durability_client.system.programs.PROGRAM_PLACES", str(tools))
    _tree(tmp_path, {f"devices/{place}/sda/device/model": "INTEL SSDSC2KB96"})
    _link(tmp_path, "sda", f"devices/{place}/sda")
    assert block_devices.is_on_usb("sda", sys=tmp_path) is on_usb
    assert block_devices.unsafe_shutdowns_of("sda", sys=tmp_path) == (None if on_usb else 7)
    assert block_devices.drive("sda", sys=tmp_path).unsafe_shutdowns == (None if on_usb else 7)


@pytest.mark.parametrize(("serial", "other", "may"), [("A", "A", True), ("A", "B", False), ("A", "", True)])
def test_drives_of_one_world_wide_name_may_be_one(
    tmp_path: Path, serial: str, other: str, *, may: bool
) -> None:
    """Two paths to a drive have one serial as well. Without a name, nothing says that they are one drive."""
    for name, number in (("sda", serial), ("sdb", other)):
        _tree(tmp_path, {f"devices/{name}/device/wwid": "naa.55cd2e414f000000"})
        _tree(tmp_path, {f"devices/{name}/device/serial": number} if number else {})
        _link(tmp_path, name, f"devices/{name}")
    assert block_devices.may_be_one_drive("sda", "sdb", sys=tmp_path) is may
    for name in ("sda", "sdb"):
        (tmp_path / "devices" / name / "device" / "wwid").unlink()
    assert not block_devices.may_be_one_drive("sda", "sdb", sys=tmp_path)


@pytest.mark.parametrize(
    ("zoned", "managed"), [("host-managed", True), ("host-aware", False), ("none", False)]
)
def test_a_drive_that_takes_only_sequential_writes_is_known(
    tmp_path: Path, zoned: str, *, managed: bool
) -> None:
    """A host-managed zoned drive is recognised, also by its partitions. A host-aware drive accepts any
    write."""
    name = _nvme(tmp_path)
    _tree(tmp_path, {f"devices/pci/{name}/queue/zoned": zoned})
    found = [block_devices.is_host_managed(one, sys=tmp_path) for one in (name, f"{name}p1")]
    assert found == [managed, managed]


@pytest.mark.parametrize(
    ("file_system", "options", "code"),
    [
        ("ext4", "rw,nobarrier", "nobarrier"),
        ("ext3", "rw,barrier=0", "nobarrier"),
        ("f2fs", "rw,fsync_mode=nobarrier", "nobarrier"),
        ("ext4", "rw,data=writeback", "data-writeback"),
        ("ext4", "rw,no-journal", "no-journal"),
        ("ext2", "rw", "no-journal"),
        ("vfat", "rw", "no-journal"),
        ("ntfs", "rw", "no-journal"),
        ("ntfs3", "rw", "no-journal"),
        ("fuseblk", "rw", "no-journal"),
        ("hfsplus", "rw", "no-journal"),
        ("hfs", "rw", "no-journal"),
        ("udf", "rw", "no-journal"),
        ("affs", "rw", "no-journal"),
        ("ext4", "rw,sync", "mounted-sync"),
        ("xfs", "ro,norecovery", "no-recovery"),
        ("ext4", "ro,noload", "no-recovery"),
        ("btrfs", "ro,rescue=nologreplay,space_cache=v2", "no-recovery"),
        ("btrfs", "ro,rescue=usebackuproot:nologreplay", "no-recovery"),
        ("btrfs", "ro,rescue=all", "no-recovery"),
        ("btrfs", "ro,nologreplay", "no-recovery"),
        ("f2fs", "ro,disable_roll_forward", "no-recovery"),
        ("zfs", "ro,xattr", "no-recovery"),
        ("jfs", "ro,relatime", "no-recovery"),
        ("tmpfs", "rw", "memory-file-system"),
        ("ramfs", "rw", "memory-file-system"),
        ("overlay", "rw,volatile", "overlay-volatile"),
        ("overlay", "rw", "overlay"),
        ("nfs4", "rw", "network-file-system"),
        ("cifs", "rw", "network-file-system"),
        ("9p", "rw", "network-file-system"),
        ("fuse.sshfs", "rw", "fuse-file-system"),
        ("fuseblk", "rw", "fuse-file-system"),
        ("zfs", "rw,sync=disabled", "zfs-sync-disabled"),
    ],
)
def test_file_systems_that_weaken_a_verdict_are_named(file_system: str, options: str, code: str) -> None:
    """Each file system or option of the false-pass list gives its warning, with a sentence."""
    assert code in _codes(file_system=file_system, options=options)


@pytest.mark.parametrize(
    ("path", "mount_point", "warned"),
    [
        ("/tmp/t", "/", True),
        ("/var/tmp/a/t", "/var", True),
        ("/tmp/t", "/tmp", True),
        ("/tmp/disk/t", "/tmp/disk", False),
        ("/tmpfiles/t", "/", False),
        ("/home/tmp/t", "/home", False),
    ],
)
def test_a_directory_that_is_emptied_at_boot_is_named(path: str, mount_point: str, *, warned: bool) -> None:
    """By systemd or another one; what is mounted below it is left alone."""
    assert ("emptied-at-boot" in _codes(path=path, mount_point=mount_point)) is warned


def test_an_honest_set_up_gives_no_warning() -> None:
    """A journalled file system on a real drive with a readable counter is nothing to warn of."""
    assert _codes(options="rw,relatime,data=ordered") == []
    assert _codes(file_system="xfs", options="rw,attr2,inode64") == []
    assert _codes(file_system="btrfs", options="ro,rescue=usebackuproot") == []


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"write_cache": "write through"}, "write-through"),
        ({"unsafe_shutdowns": None}, "no-shutdown-counter"),
        ({"emulated": True}, "emulated-drive"),
        ({"name": "nbd0"}, "network-drive"),
        ({"name": "zram0"}, "memory-drive"),
        ({"name": "loop3"}, "loop-device"),
        ({"model": "AVAGO MR9361-8i"}, "raid-controller"),
        ({"model": "DELL PERC H730"}, "raid-controller"),
        ({"model": "Dell VIRTUAL DISK"}, "raid-controller"),
    ],
)
def test_drives_that_weaken_a_verdict_are_named(change: dict[str, object], code: str) -> None:
    """Each kind of drive that a verdict can mislead about gives its warning."""
    drive = from_value(Drive, {**to_value(DRIVE), **change})
    assert code in _codes(drive=drive)


def test_flushes_that_the_kernel_counts_elsewhere_are_unknown(tmp_path: Path) -> None:
    """Paths of dm-multipath, and drives of NVMe's own multipath, count none of theirs. Others do."""
    path, alone, head = (_nvme(tmp_path, f"nvme{number}n1") for number in range(3))
    for held, by, uuid in ((path, "dm-0", "mpath-3600"), (alone, "dm-1", "LVM-abc")):
        _stacked(tmp_path, by, [held], {"dm/uuid": uuid})
        holders = tmp_path / "class" / "block" / held / "holders"
        holders.mkdir()
        (holders / by).symlink_to(tmp_path / "class" / "block" / by)
    subsystem = _tree(tmp_path / "devices" / "nvme-subsys2", {"model": "M"})
    device = tmp_path / "class" / "block" / head / "device"
    device.rename(device.with_name("was"))
    device.symlink_to(subsystem)

    assert [block_devices.drive(name, sys=tmp_path).flushes for name in (path, alone, head)] == [
        None,
        15,
        None,
    ]
    counters = block_devices.counters_of(path, sys=tmp_path)
    assert counters is not None and (counters.writes, counters.flushes) == (4, None)


def test_a_hypervisors_disk_is_no_raid_controllers() -> None:
    """Both may be called virtual disk."""
    drive = from_value(Drive, {**to_value(DRIVE), "model": "Msft Virtual Disk", "emulated": True})
    assert "raid-controller" not in _codes(drive=drive)


def test_virtual_machines_and_unknown_drives_are_named() -> None:
    """A hypervisor, and a target below which no drive was found, give their warnings."""
    found = target_warnings(
        path="", file_system=None, layers=(), drives=(), virtualisation="kvm", is_whole=False
    )
    assert [warning.code for warning in found] == ["drives-unknown", "log-unknown", "virtual-machine"]


@pytest.mark.parametrize(
    ("ids", "own_boot_id", "codes"),
    [
        (("machine", "boot"), False, []),
        (("", "boot"), False, ["no-machine-id"]),
        (("machine", ""), False, ["no-machine-id"]),
        (("", ""), False, ["no-machine-id"]),
        (("machine", "boot"), True, ["own-boot-id"]),
        (("", "boot"), True, ["no-machine-id", "own-boot-id"]),
    ],
)
def test_a_system_whose_restart_cannot_be_shown_is_named(
    ids: tuple[str, str], codes: list[str], *, own_boot_id: bool
) -> None:
    """A machine without ids, as in many containers, and a container whose boot is not that of its machine."""
    host = sample_facts.host(machine_id=ids[0], boot_id=ids[1])
    found = host_warnings(host, own_boot_id=own_boot_id)
    assert [warning.code for warning in found] == codes
    for warning in found[:1] if codes[:1] == ["no-machine-id"] else ():
        assert f"no {'boot' if ids[0] else 'machine'} id" in warning.text
        assert ("systemd-machine-id-setup" in warning.text) == (not ids[0])


@pytest.mark.slow
def test_a_boot_id_that_is_mounted_over_the_kernels_is_seen(loop_machine: None, tmp_path: Path) -> None:
    """LXC and systemd-nspawn give each container one, as here a mount namespace has it."""
    own = tmp_path / "boot_id"
    own.write_text("c0ffee00-0000-4000-8000-000000000000\n")
    program = (
        "from pathlib import Path\n"
        "from durability_client.target.discovery import collect\n"
        f"facts = collect(Path('{tmp_path}/target'), 'file')\n"
        "print(facts.host.boot_id, *(warning.code for warning in facts.warnings))"
    )
    mount = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"'
    command = ("unshare", "--mount", "sh", "-c", mount, str(own), sys.executable, "-c", program)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    boot_id, *codes = done.stdout.split()
    assert boot_id == own.read_text().strip()
    assert "own-boot-id" in codes
    assert "own-boot-id" not in [warning.code for warning in collect(tmp_path / "target", "file").warnings]


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({}, ""),
        ({"compatible": b"raspberrypi,4-model-b\0brcm,bcm2711\0"}, ""),
        ({"compatible": b"linux,dummy-virt\0"}, "qemu"),
        ({"compatible": b"qemu,pseries\0"}, "qemu"),
        ({"compatible": b"linux,dummy-virt\0", "hypervisor/compatible": b"linux,kvm\0"}, "kvm"),
        ({"hypervisor/compatible": b"xen,xen-4.17\0xen,xen\0"}, "xen-4.17"),
    ],
)
def test_a_device_tree_tells_of_a_hypervisor(tmp_path: Path, files: dict[str, bytes], name: str) -> None:
    """The device tree names the hypervisor, as on ARM machines, which have no processor flag for it."""
    (tmp_path / "hypervisor").mkdir()
    for path, data in files.items():
        (tmp_path / path).write_bytes(data)
    assert discovery.hypervisor_of_device_tree(tmp_path) == name


@pytest.mark.slow
def test_eatmydata_in_the_environment_is_seen() -> None:
    """A process started with libeatmydata in LD_PRELOAD is warned of it."""
    program = (
        "from durability_client.target.target_warnings import target_warnings\n"
        "no = {'file_system': None, 'layers': (), 'drives': (), 'virtualisation': 'none'}\n"
        "print(target_warnings(path='', **no)[-1].code)"
    )
    environment = {
        **os.environ,
        "LD_PRELOAD": "libeatmydata.so",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "eatmydata"


def test_a_journal_less_ext4_is_seen(make_mount: Callable[..., tuple[Path, Path]]) -> None:
    """An ext4 made without a journal is told from one with a journal, on real mounts."""
    _, with_journal = make_mount()
    _, without = make_mount(mkfs=("-O", "^has_journal"))
    for directory, expected in ((with_journal, False), (without, True)):
        codes = [warning.code for warning in collect(directory / "target", "file").warnings]
        assert ("no-journal" in codes) is expected


def test_nobarrier_is_seen_on_a_real_mount(make_mount: Callable[..., tuple[Path, Path]]) -> None:
    """An ext4 that is mounted with nobarrier gives the warning."""
    _, directory = make_mount(options="nobarrier")
    assert "nobarrier" in [warning.code for warning in collect(directory / "target", "file").warnings]


def test_a_small_block_size_is_the_file_systems_own(make_mount: Callable[..., tuple[Path, Path]]) -> None:
    """The block size of an ext4 made with 1 KiB blocks is 1 KiB."""
    _, directory = make_mount(mkfs=("-b", "1024"))
    file_system = collect(directory / "target", "file").file_system
    assert file_system is not None
    assert file_system.block_bytes == 1024


def test_a_mount_that_hides_another_is_the_one_found(
    make_mount: Callable[..., tuple[Path, Path]],
) -> None:
    """If two file systems are mounted on one directory, the target lies on the upper one."""
    _, directory = make_mount()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(directory)], check=True)
    try:
        mount = mount_of(directory / "target")
        assert mount is not None
        assert mount.type == "tmpfs"
    finally:
        subprocess.run(["umount", str(directory)], check=True)


def test_mountinfo_with_optional_fields_and_escapes() -> None:
    """Optional fields, octal escapes and both lists of options are read as proc(5) describes them."""
    mount = parse_mount(
        "36 35 98:0 /mnt1 /a\\040b rw,noatime master:1 shared:2 - ext3 /dev/root\\134x rw,errors=continue"
    )
    assert (mount.id, mount.device_number, mount.root) == (36, (98, 0), "/mnt1")
    assert (mount.mount_point, mount.type, mount.source) == ("/a b", "ext3", "/dev/root\\x")
    assert mount.options == "rw,noatime,errors=continue"


def test_uptime_is_read_before_what_a_drive_may_hold_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`verify` counts the start of the system from the moment at which it asked for the facts."""
    asked_ns: list[int] = []

    def looked_up(path: Path) -> Mount | None:
        asked_ns.append(uptime_ns())
        return mount_of(path)

    monkeypatch.setattr(discovery, "mount_of", looked_up)
    assert collect(tmp_path / "target", "file").host.uptime_ns <= asked_ns[0]
