"""A campaign whose file was changed forgets the drives of the earlier file: none of them is overwritten."""

from __future__ import annotations

from durability.campaign.happenings import (
    Checked,
    CycleEnded,
)
from tests.core.campaign.told_campaign import (
    RUN,
    ToldCampaign,
    begun,
    condition,
    part,
    told_settings,
)


def test_changed_file_forgets_the_drives_of_the_one_before() -> None:
    """The check found a drive that is mounted; the file is changed to another device: the agent must not look
    for the old drive's serial, and make its file system there."""
    told = ToldCampaign()
    told.begin(told_settings(devices=("/dev/sdb",)), check_only=True)
    told.note()
    told.say()
    told.say(part("failed", trouble="in-use", text="it is mounted", found=condition("OLD")))
    told.add(Checked(problems=("drive d0: it is mounted",)))
    assert isinstance(told.note(), CycleEnded)
    told.note()
    told.begin(told_settings(devices=("/dev/sdc",)), check_only=True)
    told.note()
    (mine,) = told.task().drives
    assert (mine.drive.device, mine.serial, mine.fresh) == ("/dev/sdc", "", False)


def test_changed_file_forgets_a_check_that_passed() -> None:
    """Its drive was found and cut; the file names another device now: it is checked anew, from nothing."""
    told = ToldCampaign()
    told.begin(told_settings(devices=("/dev/sdb",)), check_only=True)
    assert told.checked(found=condition("OLD")).problems == ()
    told.note()
    told.begin(told_settings(devices=("/dev/sdc",)))
    told.note()
    (mine,) = told.task().drives
    assert (told.task().kind, mine.serial) == ("examine", "")


def test_drive_that_was_not_examined_gets_no_file_system() -> None:
    """Without a word of the check on a drive, what lies on it may not go."""
    told = begun()
    (mine,) = told.task().drives
    assert (told.task().kind, mine.fresh) == ("run", False)


def test_drive_that_the_check_found_gets_its_file_system() -> None:
    """The first run makes it, on the drive with the serial that the check found."""
    told = ToldCampaign()
    told.begin(told_settings(), check_only=True)
    told.checked(found=condition("S7"))
    told.note()
    told.begin(told_settings())
    told.note()
    (mine,) = told.task().drives
    assert (told.task().kind, mine.serial, mine.fresh) == ("run", "S7", True)


def test_drive_whose_first_run_did_not_begin_gets_its_first_run_afresh() -> None:
    """Its agent did not reach the server in the first cycle: what it holds may still go."""
    told = ToldCampaign()
    told.begin(told_settings(devices=("/dev/sdb", "/dev/sdc")))
    told.note()
    for boot in ("boot-1", "boot-2"):
        if boot == "boot-2":
            told.cut()
        told.say(boot=boot)
        parts = (part("done", drive=drive, found=condition(drive, unsafe=None)) for drive in ("d0", "d1"))
        told.say(*parts, boot=boot)
    for _ in range(3):
        told.note()
    failed = part("failed", drive="d1", trouble="agent", text="it could not reach the server")
    told.say(part("armed", run=RUN), failed, boot="boot-2")
    told.note()
    told.cut()
    told.say(boot="boot-3")
    told.say(part("done", run=RUN), part("done", drive="d1"), boot="boot-3")
    told.judge(verdict="durable")
    told.ended()
    told.note()
    assert [(mine.fresh, mine.again) for mine in told.task().drives] == [(False, True), (True, False)]
