"""A drive with more partitions than an entry of a campaign's log can tell of in full is the same drive."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from durability.campaign.assignments import bounded
from durability.campaign.definition.settings import DriveUnderTest
from durability.campaign.tasks import Condition, DriveStatus, DriveTask, Status, Task
from durability_client.agent import same_drive
from durability_client.agent.drives import DriveError, FoundDrive
from durability_client.target.signatures import Signature

DRIVE = DriveUnderTest(
    name="ssd",
    machine="b",
    device="/dev/disk/by-id/x",
    file_system="ext4",
    mount_options="",
    target="",
    size="",
)
FOUND = FoundDrive(name="sdz", leaves=("sdz",), serial="S1", diskseqs=(1,))
CONDITION = Condition(
    model="m",
    serial="S1",
    firmware="1",
    size_bytes=10**12,
    diskseq=1,
    emulated=False,
    ready_s=None,
    power_cycles=None,
    unsafe_shutdowns=None,
    media_errors=None,
    spare_percent=None,
    used_percent=None,
    backup_failed=None,
    capacitor_percent=None,
)


def partitions(count: int, *, first: int = 1) -> dict[str, tuple[Signature, ...]]:
    """A partition table, and a file system in each of so many partitions."""
    own = {
        str(number): (Signature("ext4", str(uuid.UUID(int=number))),)
        for number in range(first, first + count)
    }
    return {"": (Signature("gpt", ""),), **own}


def task_after_check(contents: same_drive.Contents) -> Task:
    """The task for a run, with what the server kept of the check."""
    said = DriveStatus(
        drive="ssd",
        state="done",
        trouble="",
        text="",
        run="",
        exit_code=None,
        condition=replace(CONDITION, holds=same_drive.contents_text(contents)),
        mount_s=None,
        repaired=False,
    )
    status = Status(
        boot_id="1", machine_id="2", uptime_ns=1, virtualisation="none", software="", task=1, drives=(said,)
    )
    (kept,) = bounded(status).drives
    part = DriveTask(
        drive=DRIVE,
        arm=None,
        run="",
        serial="S1",
        fresh=True,
        cut_class="power",
        label="",
        examined=kept.condition,
    )
    return Task(kind="run", number=1, campaign="c", cycle=1, drives=(part,), ready_within_s=1.0)


@pytest.mark.parametrize("count", [0, 1, 44, 45, 128, 255])
def test_partitions_that_the_check_found_are_not_new(count: int) -> None:
    """However many there are; one that came since is."""
    task = task_after_check(contents := partitions(count))
    (mine,) = task.drives
    same_drive.check_contents(task, mine, FOUND, contents)
    with pytest.raises(DriveError, match=f"holds {count + 1}:ext4=.*, which was not there"):
        same_drive.check_contents(task, mine, FOUND, partitions(count + 1))


def test_a_drive_with_many_partitions_is_known_by_them() -> None:
    """A drive without a serial must carry all partitions that the check found. After an erasure it must carry
    the remaining ones."""
    nameless = replace(FOUND, serial="")
    task = task_after_check(contents := partitions(60))
    (mine,) = task.drives
    same_drive.check_contents(task, mine, nameless, contents)
    erased = same_drive.erased(mine, partitions(2))
    same_drive.check_contents(task, erased, nameless, partitions(2))
    for others in (partitions(59), partitions(60, first=2)):
        with pytest.raises(DriveError, match="does not carry"):
            same_drive.check_contents(task, mine, nameless, others)
