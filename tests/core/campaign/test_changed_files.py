"""A campaign whose file was changed, or whose check is made anew, forgets the drives of the earlier one: none
of them is overwritten, and none is taken for the drive that is cut."""

from __future__ import annotations

from dataclasses import replace

import pytest

from durability.campaign.health import health_rows, health_warnings
from durability.campaign.log_entries import (
    Checked,
    CycleEnded,
    Ended,
    PauseAsked,
    Paused,
    Resumed,
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
    """If the file names another device after a check has passed, the new drive is checked from the start."""
    told = ToldCampaign()
    told.begin(told_settings(devices=("/dev/sdb",)), check_only=True)
    assert told.checked(found=condition("OLD")).problems == ()
    told.note()
    told.begin(told_settings(devices=("/dev/sdc",)))
    told.note()
    (mine,) = told.task().drives
    assert (told.task().kind, mine.serial) == ("examine", "")


@pytest.mark.parametrize("same_path", [False, True])
def test_health_begins_with_the_check_of_the_drive_that_is_cut(same_path: bool) -> None:
    """A drive's health begins with its own check. Size and errors of another drive that was checked under the
    same name do not count."""
    was = replace(condition("OLD"), size_bytes=2 * 10**12, firmware="9", media_errors=50)
    told = ToldCampaign()
    told.begin(told_settings(devices=("/dev/sdb" if same_path else "/dev/sdc",)), check_only=True)
    assert told.checked(found=was).problems == ()
    told.note()
    told.begin(told_settings(), check_only=True)
    assert told.checked(found=replace(condition("NEW"), media_errors=12), boot=2).problems == ()
    told.note()
    told.begin(told_settings())  # which drops no check that holds
    told.note()
    told.say(boot="boot-3")
    told.say(part("armed", run=RUN, found=condition("NEW", unsafe=6)), boot="boot-3")
    told.note()
    told.cut()
    told.say(boot="boot-4")
    after = replace(condition("NEW", unsafe=7), media_errors=40)
    told.say(part("done", run=RUN, found=after), boot="boot-4")
    told.judge(verdict="durable")
    told.ended()
    rows = health_rows(told.state, "d0")
    assert [(row.cycle, row.serial) for row in rows] == [(0, "NEW"), (1, "NEW")]
    assert [warning.text for warning in health_warnings(rows)] == [
        "its media errors rose from 12 to 40, first in cycle 1"
    ]


def test_pause_of_a_check_that_was_dropped_hides_no_cycle() -> None:
    """A new campaign after a stopped check begins with no cycles and no resumptions, although the check was
    resumed once."""
    told = ToldCampaign()
    told.begin(told_settings(), check_only=True)
    told.note()
    told.add(PauseAsked(stop=False))
    told.note()
    assert isinstance(told.note(), Paused)
    told.add(Resumed(), PauseAsked(stop=True))
    assert isinstance(told.note(), Ended)
    assert told.state.resumed == 1
    told.begin(told_settings())
    assert (told.state.resumed, told.state.cycles) == (0, [])


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
