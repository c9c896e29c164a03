"""The file that says how to join: on which devices it is looked for, and how it is read."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from durability.errors import TargetError, UsageError
from durability.protocol.join_code import JoinCode
from durability_client.live import stick

CODE = str(JoinCode(secret=b"0123456789", fingerprint=b"abcdefghijklm"))
LABELLED = "S:disk/by-label/DURABILITY\nE:ID_FS_LABEL=DURABILITY\nE:ID_FS_TYPE=vfat\n"


def plugged(root: Path, name: str, number: str, *, place: str, removable: str, text: str = LABELLED) -> None:
    """A device in trees as /sys and udev's database."""
    device = root / "sys/devices" / place / name
    device.mkdir(parents=True)
    (device / "removable").write_text(f"{removable}\n")
    for directory, link in (("sys/class/block", name), ("sys/dev/block", number)):
        (root / directory).mkdir(parents=True, exist_ok=True)
        (root / directory / link).symlink_to(device)
    (root / "udev").mkdir(exist_ok=True)
    (root / "udev" / f"b{number}").write_text(text)


def test_only_sticks_with_the_label_are_looked_at(tmp_path: Path) -> None:
    """Only a removable or USB drive with the label can set the server that the machine obeys. A drive under
    test cannot, even with this label."""
    plugged(tmp_path, "sda", "8:0", place="pci0/usb1", removable="0")
    plugged(tmp_path, "sdb", "8:16", place="pci0/ata1", removable="1")
    plugged(tmp_path, "sdc", "8:32", place="pci0/ata2", removable="0")
    plugged(tmp_path, "nvme0n1", "259:0", place="pci0/nvme0", removable="0")
    plugged(tmp_path, "sdd", "8:48", place="pci0/usb2", removable="1", text="E:ID_FS_LABEL=PHOTOS\n")
    other = LABELLED.replace("vfat", "ext4")
    plugged(tmp_path, "sde", "8:64", place="pci0/usb3", removable="1", text=other)
    found = stick.find(sys=tmp_path / "sys", udev=tmp_path / "udev")
    assert found == [Path("/dev/sda"), Path("/dev/sdb")]


def test_the_file_is_read_without_a_mount(tmp_path: Path) -> None:
    """A stick without the file, and a file with a mistake, are named; not a byte of the stick changes."""
    if shutil.which("mformat") is None:
        pytest.skip("mtools is not installed")
    image = tmp_path / "stick"
    image.write_bytes(bytes(1440 << 10))
    subprocess.run(["mformat", "-i", image, "-f", "1440", "-v", stick.LABEL, "::"], check=True)
    with pytest.raises(TargetError, match=r"durability-join\.txt on .*stick: "):
        stick.read(image)
    text = tmp_path / "text"
    for content, server in ((f"join = 192.0.2.1:7420 {CODE}\n", "192.0.2.1:7420"), ("server = b\n", None)):
        text.write_text(content)
        subprocess.run(["mcopy", "-o", "-i", image, text, f"::{stick.NAME}"], check=True)
        before = image.read_bytes()
        if server:
            assert stick.read(image).server == server
        else:
            with pytest.raises(UsageError, match=r"durability-join\.txt on .*stick: line 1"):
                stick.read(image)
        assert image.read_bytes() == before
