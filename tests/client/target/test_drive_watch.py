"""What reads of a run's drives show after an I/O error: an answer of any, or the death of all."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from durability.formats.case import DriveState
from durability.formats.facts import Facts
from durability_client.target import drive_watch
from durability_client.target.discovery import collect
from durability_client.target.drive_reader import NO_DATA
from durability_client.target.drive_watch import KernelDriveWatch, conclude
from tests.loop_devices import looped, shut_down
from tests.sample_facts import drive, facts
from tests.waiting import DEADLINE_S

LOOK_S = 0.3


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch waits until its process has begun and read for `LOOK_S`, however long that takes."""
    monkeypatch.setattr(drive_watch, "_GRACE_S", DEADLINE_S)


def device(*names: str) -> Facts:
    """A device target on these drives, of which this machine has none."""
    return facts(kind="device", file_system=None, drives=tuple(drive(name=name) for name in names))


def look(path: Path, armed: Facts) -> tuple[DriveState, str]:
    """What a watch of `path` sees, and says."""
    watch = KernelDriveWatch(path, armed)
    try:
        found = watch.look(LOOK_S)
    finally:
        watch.close()
    return found.drive, found.text


@pytest.mark.parametrize(
    ("codes", "refused", "seen"),
    [
        ({"sda": 0}, "", "answered"),
        ({"sda": errno.EIO, "sdb": 0}, "", "answered"),
        ({"sdb": 0}, "", "answered"),
        ({"sda": errno.ENODATA, "sdb": errno.EIO}, "", "answered"),
        ({"sda": 0}, "sdb cannot be read: Permission denied", "answered"),
        ({"sda": errno.EIO, "sdb": errno.EIO}, "", "dead"),
        ({"sda": errno.ENODEV, "sdb": NO_DATA}, "", "dead"),
        ({"sda": errno.EIO}, "", "silent"),
        ({}, "", "silent"),
        ({"sda": errno.EIO, "sdb": errno.EIO}, "sdc cannot be read: Permission denied", "unseen"),
        ({"sda": errno.EIO, "sdb": errno.EINVAL}, "", "unseen"),
    ],
)
def test_one_answer_is_an_answer_and_death_takes_all(
    codes: dict[str, int], refused: str, seen: DriveState
) -> None:
    """A drive that refuses a read itself has power; one that was not seen may have it."""
    found = conclude(("sda", "sdb"), codes, refused=refused, timeout_s=3)
    assert found.drive == seen
    assert found.text


def test_no_known_drives_are_unseen() -> None:
    """A network file system has none."""
    assert conclude((), {}, refused="", timeout_s=3).drive == "unseen"


def test_a_device_whose_drives_cannot_be_opened_is_read_itself(tmp_path: Path) -> None:
    """It answers; one that has shrunk to nothing, as a device that is gone, is dead."""
    path = tmp_path / "device"
    path.write_bytes(bytes(1 << 20))
    assert look(path, device("no-such-drive"))[0] == "answered"
    path.write_bytes(b"")
    seen, text = look(path, device("no-such-drive"))
    assert (seen, "every read failed for 0.3 s" in text) == ("dead", True)


def test_a_file_whose_drives_cannot_be_opened_is_unseen(tmp_path: Path) -> None:
    """The file says nothing of its drive; the watch says from the start that it cannot look."""
    path = tmp_path / "target"
    path.write_bytes(bytes(1 << 20))
    watch = KernelDriveWatch(path, facts(drives=(drive(name="no-such-drive"),)))
    assert "no-such-drive cannot be read: No such file" in watch.blind
    assert watch.look(LOOK_S).drive == "unseen"
    watch.close()


def test_a_loop_device_whose_file_system_refuses_is_no_dead_drive(
    make_mount: Callable[..., tuple[Path, Path]],
) -> None:
    """A loop device is not a dead drive when only the file system below it fails, because the drive below
    still answers."""
    below, directory = make_mount("ext4")
    (directory / "image").write_bytes(bytes(1 << 20))
    with looped(directory / "image") as device:
        armed = collect(device, "device")
        watch = KernelDriveWatch(device, armed)
        assert [one.name for one in armed.drives] == [device.name]
        shut_down(directory)
        found = watch.look(LOOK_S)
        watch.close()
    assert (found.drive, found.text) == ("answered", f"{below.name} still answers reads")


def test_a_reading_process_that_ends_has_seen_nothing(tmp_path: Path) -> None:
    """Nothing is concluded from reads that were never made."""
    path = tmp_path / "device"
    path.write_bytes(bytes(1 << 20))
    watch = KernelDriveWatch(path, device())
    assert watch._process is not None
    watch._process.kill()
    watch._process.wait()
    found = watch.look(LOOK_S)
    watch.close()
    assert (found.drive, "ended" in found.text) == ("unseen", True)
