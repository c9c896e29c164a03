"""What uses a device or a file: loop devices, mounts of other namespaces, swap, trees of other machines."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from durability_client.system.device_users import use_of_device, use_of_file, writer_of
from tests.loop_devices import add_partition, looped, wait_until_unused
from tests.waiting import wait_for

MakeLoop = Callable[..., Path]


def _use(device: Path) -> str:
    """What uses the device, in words; "" for nothing."""
    use = use_of_device(device.name)
    return "" if use is None else f"{use.name} is {use.text}; {use.remedy}"


def test_mount_points_of_any_name_are_read(make_loop: MakeLoop, tmp_path: Path) -> None:
    """Mount points are read even if their names have characters at which Python, but not the kernel, ends a
    line."""
    device, name = make_loop(), "a\x1c\x85\u2028\r\x0b\n- b\\040"
    with _mounted(device, tmp_path / name):
        use = use_of_device(device.name)
    assert use is not None and use.text == f"mounted at {tmp_path / name}"


@contextmanager
def _mounted(device: Path, directory: Path) -> Iterator[None]:
    subprocess.run(("mkfs.ext4", "-q", "-F", device), check=True)
    directory.mkdir()
    subprocess.run(("mount", device, directory), check=True)
    try:
        yield
    finally:
        subprocess.run(("umount", directory), check=True)


def test_an_unused_device_is_free(make_loop: MakeLoop, tmp_path: Path) -> None:
    """A device with a file system that is not in use is free, while another device that is mounted is
    named."""
    free, mounted = make_loop(), make_loop()
    subprocess.run(("mkfs.ext4", "-q", free), check=True)
    with _mounted(mounted, tmp_path / "mount"):
        assert _use(free) == ""
        assert f"{mounted.name} is mounted at {tmp_path / 'mount'}" in _use(mounted)
    wait_until_unused(mounted)


def test_a_device_behind_a_loop_device_is_in_use(make_loop: MakeLoop, tmp_path: Path) -> None:
    """Mounted or only attached, and from both sides: the kernel lets each be opened with O_EXCL."""
    below = make_loop()
    with looped(below) as above:
        os.close(os.open(below, os.O_RDWR | os.O_EXCL))
        assert f"{below.name} is behind the loop device {above}" in _use(below)
        assert _use(above) == ""
        with _mounted(above, tmp_path / "mount"):
            assert f"{below.name} is behind the loop device {above}" in _use(below)
        with _mounted(below, tmp_path / "other"):
            assert f"{below.name} is mounted at {tmp_path / 'other'}" in _use(above)
    wait_until_unused(below)


def test_two_loop_devices_over_one_file(make_loop: MakeLoop, tmp_path: Path) -> None:
    """A loop device is in use if an overlapping loop device over the same file is mounted."""
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(64 << 20)
    half = str(32 << 20)
    link = tmp_path / "link"
    os.link(image, link)
    with (
        looped(image, "--sizelimit", half) as first,
        looped(image, "--offset", half) as second,
        looped(link) as whole,
        _mounted(first, tmp_path / "mount"),
    ):
        assert _use(second) == ""
        assert f"{first.name} is mounted at" in _use(whole)
        assert "mounted at" in _use(first)
        use = use_of_file(image)
        assert use is not None and "behind the loop device" in use.text
    wait_for(lambda: use_of_file(image) is None, lambda: use_of_file(image))


def test_a_mount_in_another_namespace_is_found(make_loop: MakeLoop, tmp_path: Path) -> None:
    """A file system that only another process sees is named with that process."""
    device, directory = make_loop(), tmp_path / "mount"
    directory.mkdir()
    subprocess.run(("mkfs.ext4", "-q", device), check=True)
    script = 'mount "$0" "$1" && echo mounted && read -r _'
    command = ("unshare", "--mount", "--propagation", "private", "sh", "-c", script, device, directory)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "mounted\n"
        assert not os.path.ismount(directory)
        said = _use(device)
        process.communicate("\n")
    assert f"mounted at {directory} in the mount namespace of process" in said
    assert "nsenter --target" in said
    wait_until_unused(device)


def test_swap_is_in_use(make_loop: MakeLoop) -> None:
    """A device that is swap is named as such."""
    device = make_loop()
    subprocess.run(("mkswap", device), check=True, capture_output=True)
    subprocess.run(("swapon", device), check=True)
    try:
        assert f"{device.name} is used as swap; release it first (swapoff {device})" in _use(device)
    finally:
        subprocess.run(("swapoff", device), check=True)
    assert _use(device) == ""


def test_a_partition_and_its_disk(loop_machine: None, tmp_path: Path) -> None:
    """The disk of a mounted partition is in use, and each partition of a disk behind a loop device is."""
    image = tmp_path / "image"
    image.touch()
    os.truncate(image, 64 << 20)
    with looped(image, "--partscan") as disk:
        for number in (1, 2):  # this works without any partition table that the kernel can read
            add_partition(disk, number, number * 32768, 32768)
        parts = [Path(f"{disk}p1"), Path(f"{disk}p2")]
        assert [_use(one) for one in (disk, *parts)] == ["", "", ""]
        with _mounted(parts[0], tmp_path / "mount"):
            assert f"{parts[0].name} is mounted at" in _use(disk)
            assert _use(parts[1]) == ""
        with looped(parts[0]) as above:
            assert f"behind the loop device {above}" in _use(disk)
            assert _use(parts[1]) == ""
        with looped(disk) as above:
            assert f"behind the loop device {above}" in _use(parts[1])
    assert not any(one.exists() for one in parts)


@contextmanager
def _opened(path: Path, mode: str = "<>") -> Iterator[int]:
    """The id of another process that has `path` open, for writing too unless `mode` is "<"."""
    script = f'exec 3{mode}"$1"; echo; exec sleep 1000'
    with _child("sh", "-c", script, "-", path) as process:
        yield process


@contextmanager
def _child(*command: str | Path) -> Iterator[int]:
    """The id of a process that has printed a line; it is killed in the end."""
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"\n"
        try:
            yield process.pid
        finally:
            process.kill()


def _writer(name: str, **options: Path) -> str:
    """Who writes to the device, in words; "" for nobody."""
    use = writer_of(name, **options)
    return "" if use is None else f"{use.name} is {use.text}; {use.remedy}"


def test_a_program_that_writes_through_another_node_is_found(make_loop: MakeLoop, tmp_path: Path) -> None:
    """A container has a node of its own for the device, under any name. A reader is no obstacle."""
    device, free, other = make_loop(), make_loop(), tmp_path / "other"
    os.mknod(other, stat.S_IFBLK | 0o600, device.stat().st_rdev)
    for path in (device, other):
        with _opened(path) as process:
            expected = f"{device} is open for writing in process {process} (sleep); end that first"
            assert _writer(device.name) == expected
            assert _writer(free.name) == ""
        with _opened(path, "<"):
            assert _writer(device.name) == ""


def test_a_program_that_writes_to_the_disk_writes_to_its_partitions(
    loop_machine: None, tmp_path: Path
) -> None:
    """A virtual machine may have the whole disk of a partition. What has another partition does no harm."""
    image = tmp_path / "image"
    image.touch()
    os.truncate(image, 64 << 20)
    with looped(image, "--partscan") as disk:
        for number in (1, 2):
            add_partition(disk, number, number * 32768, 32768)
        parts = [Path(f"{disk}p1"), Path(f"{disk}p2")]
        with _opened(disk):
            assert all(f"{disk} is open for writing" in _writer(one.name) for one in (disk, *parts))
        with _opened(parts[1]):
            assert f"{parts[1]} is open for writing" in _writer(disk.name)
            assert f"{parts[1]} is open for writing" in _writer(parts[1].name)
            assert _writer(parts[0].name) == ""


def test_a_program_that_writes_to_the_same_bytes_is_found(make_loop: MakeLoop, tmp_path: Path) -> None:
    """The device below a loop device, and another one over a part of its range."""
    below, image = make_loop(), tmp_path / "image"
    image.touch()
    os.truncate(image, 64 << 20)
    half = str(32 << 20)
    with (
        looped(below) as above,
        looped(image, "--sizelimit", half) as first,
        looped(image, "--offset", half) as second,
        looped(image) as whole,
    ):
        with _opened(below):
            assert f"{below} is open for writing" in _writer(above.name)
        with _opened(first):
            assert f"{first} is open for writing" in _writer(whole.name)
            assert _writer(second.name) == ""


def test_a_program_that_writes_to_another_path_of_the_drive_is_found(
    make_loop: MakeLoop, tmp_path: Path
) -> None:
    """Another path has the same world-wide name; volumes of LVM and multipath have their drives below."""
    device = make_loop()
    number = device.stat().st_rdev
    _drive(tmp_path, "sdx", "naa.5000c500a1b2c3d4")
    _drive(tmp_path, "sdy", "naa.5000c500a1b2c3d4", number=number)
    _drive(tmp_path, "sdz", "naa.5000c500ffffffff")
    _drive(tmp_path, "dm-0", "", below="sdy")
    _drive(tmp_path, "dm-1", "", below="sdz")
    with _opened(device):
        for name, found in (("sdx", True), ("sdy", True), ("sdz", False), ("dm-0", True), ("dm-1", False)):
            assert ("/dev/sdy is open for writing" in _writer(name, sys=tmp_path)) == found, name


def test_a_program_that_closes_other_files_meanwhile_is_found(make_loop: MakeLoop) -> None:
    """A busy database opens and closes files while its descriptors are looked at."""
    device = make_loop()
    script = """if True:
        import os, sys
        many = [os.open("/dev/null", os.O_RDONLY) for _ in range(64)]
        os.open(sys.argv[1], os.O_RDWR)
        print(flush=True)
        while True:
            for one in many:
                os.close(one)
            many = [os.open("/dev/null", os.O_RDONLY) for _ in many]
    """
    with _child(sys.executable, "-c", script, device):
        assert all(_writer(device.name) for _ in range(5))


def _drive(
    root: Path,
    name: str,
    wwid: str,
    *,
    serial: str = "",
    holders: str = "",
    number: int | None = None,
    below: str = "",
) -> None:
    directory = root / "devices" / name
    (directory / "holders").mkdir(parents=True)
    (directory / "device").mkdir()
    (directory / "device" / "wwid").write_text(f"{wwid}\n")
    if serial:
        (directory / "device" / "serial").write_text(f"{serial}\n")
    if holders:
        (directory / "holders" / holders).touch()
    if number is not None:
        (directory / "dev").write_text(f"{os.major(number)}:{os.minor(number)}\n")
    if below:
        (directory / "dm").mkdir()
        (directory / "slaves").mkdir()
        (directory / "slaves" / below).touch()
    (root / "class" / "block").mkdir(parents=True, exist_ok=True)
    (root / "class" / "block" / name).symlink_to(directory)


@pytest.mark.parametrize(
    ("wwid", "in_use"), [("naa.5000c500a1b2c3d4", True), ("t10.ATA     QEMU HARDDISK  0001", False)]
)
def test_another_path_to_the_drive_is_in_use(tmp_path: Path, wwid: str, in_use: bool) -> None:
    """One path is a part of a multipath device, the other is free for the kernel; names that bridges make up
    are not believed."""
    _drive(tmp_path, "sdx", wwid)
    _drive(tmp_path, "sdy", wwid, holders="dm-7")
    _drive(tmp_path, "sdz", "naa.5000c500ffffffff", holders="dm-8")
    use = use_of_device("sdx", sys=tmp_path)
    assert (use is not None) == in_use
    assert use is None or (use.name, use.text) == ("sdy", "held by dm-7")


@pytest.mark.parametrize(
    ("serials", "in_use"),
    [(("S1", "S1"), True), (("S1", ""), True), (("", ""), True), (("S1", "S2"), False)],
)
def test_two_drives_of_one_world_wide_name_are_told_apart_by_serials(
    tmp_path: Path, serials: tuple[str, str], in_use: bool
) -> None:
    """Some makers gave one name to all drives of a model. A path that does not tell its serial may be one
    to the drive."""
    _drive(tmp_path, "sdx", "naa.5000c500a1b2c3d4", serial=serials[0])
    _drive(tmp_path, "sdy", "naa.5000c500a1b2c3d4", serial=serials[1], holders="dm-7")
    assert (use_of_device("sdx", sys=tmp_path) is not None) == in_use


@pytest.mark.parametrize("holder", ["md127", "dm-0"])
def test_a_member_of_an_array_or_volume_group_is_in_use(tmp_path: Path, holder: str) -> None:
    """The kernel names what holds it: md, or a volume of LVM."""
    _drive(tmp_path, "sdx", "naa.5000c500a1b2c3d4", holders=holder)
    use = use_of_device("sdx", sys=tmp_path)
    assert use is not None and (use.name, use.text) == ("sdx", f"held by {holder}")
