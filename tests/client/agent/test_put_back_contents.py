"""What was on a drive before a campaign's first run is there again: somebody put it back, or the drive lost
all that was written since."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from durability.campaign.tasks import DriveTask, Task
from durability_client.agent import same_drive
from durability_client.agent.drives import DriveError, FoundDrive
from durability_client.target.signatures import Signature
from tests.client.agent.on_drives.test_wrong_drives import condition
from tests.client.agent.task_server import Tasks, drive_on

BEFORE = str(uuid.UUID(int=1))
WHOLE = {"": (Signature("ext4", BEFORE),)}
IN_PARTITION = {"": (Signature("gpt", ""), Signature("PMBR", "")), "1": (Signature("ext4", BEFORE),)}
DRIVE = FoundDrive(name="nvme0n1", leaves=("nvme0n1",), serial="S1", diskseqs=(1,))
NAMELESS = replace(DRIVE, serial="")
RUN = "00000000000000aa"


def task_for(contents: same_drive.Contents, *, again: bool, run: str = "") -> tuple[Task, DriveTask]:
    """A task for a run on a drive on which the check found that."""
    examined = replace(condition(), holds=same_drive.contents_text(contents))
    tasks = Tasks((drive_on("/dev/nvme0n1"),), examined=examined, again=again)
    task = tasks.make("run", run=run)
    return task, task.drives[0]


@pytest.mark.parametrize("contents", [WHOLE, IN_PARTITION])
@pytest.mark.parametrize("found", [DRIVE, NAMELESS])
def test_what_the_check_found_may_go_only_before_the_first_run(
    contents: same_drive.Contents, found: FoundDrive
) -> None:
    """Later the device has a file system of the campaign, or nothing that is recognised."""
    task, mine = task_for(contents, again=False)
    same_drive.check_contents(task, mine, found, contents)
    task, mine = task_for(contents, again=True)
    with pytest.raises(DriveError, match="not touched") as refusal:
        same_drive.check_contents(task, mine, found, contents)
    assert refusal.value.trouble == ("in-use" if found is DRIVE else "wrong-drive")
    own = {"": (Signature("ext4", same_drive.new_uuid(task, mine)),)}
    same_drive.check_contents(task, mine, found, own)
    with pytest.raises(DriveError, match="not touched"):
        same_drive.check_contents(task, mine, found, {**contents, "": (*own[""], *contents[""])})


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ("", ("`durability campaign show nightly`", "wipefs --all /dev/nvme0n1")),
        (RUN, (f"run {RUN}, which has no verdict", f"`durability show {RUN}`", "begin another campaign")),
    ],
)
def test_a_drive_that_is_back_at_an_earlier_time_is_left_as_it_is(run: str, words: tuple[str, ...]) -> None:
    """A drive with earlier content may have rolled back or been put back. The refusal explains both and names
    the run that may be lost; it then suggests no command to erase the drive."""
    task, mine = task_for(WHOLE, again=True, run=run)
    with pytest.raises(DriveError, match="this campaign did not make") as refusal:
        same_drive.check_contents(task, mine, DRIVE, WHOLE)
    assert all(one in str(refusal.value) for one in (*words, "leave it as it is"))
    assert ("wipefs" in str(refusal.value)) == (not run)


def test_a_raw_drive_is_known_by_what_the_check_found() -> None:
    """A campaign makes nothing there that could tell; a run that is not forced refuses what it recognises."""
    examined = replace(condition(), holds="gpt")
    task = Tasks((drive_on("/dev/nvme0n1", ""),), examined=examined, again=True).make("run")
    same_drive.check_contents(task, task.drives[0], DRIVE, {"": (Signature("gpt", ""),)})
