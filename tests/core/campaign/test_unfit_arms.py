"""Arms that cannot run on a drive: the check is told of one that needs names; no drive leaves for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from durability.campaign.definition.settings import Settings
from durability.campaign.log_entries import (
    Abandoned,
    Checked,
    CycleBegan,
    CycleEnded,
    DriveLeft,
    Paused,
    Resumed,
)
from durability.campaign.tasks import Trouble
from tests.core.campaign.told_campaign import ToldCampaign, part, told_settings

WHY = "vfat without a journal may lose names and lengths in a cut"


def on_file_systems(*targets: str, workloads: tuple[str, ...]) -> Settings:
    """Drives that are targets in file systems of the user's, and an arm for each workload."""
    settings = told_settings(devices=tuple(f"/dev/{at}" for at in range(len(targets))))
    drives = zip(settings.drives, targets, strict=True)
    (arm,) = settings.arms
    return replace(
        settings,
        drives=tuple(replace(one, device="", file_system="", target=target) for one, target in drives),
        arms=tuple(replace(arm, name=one, workload=one) for one in workloads),
    )


def cycle(told: ToldCampaign, number: int, *unfit: str, trouble: Trouble = "not-begun") -> CycleEnded:
    """A cycle in which the runs on the drives `unfit` do not begin, and the others are cut and durable."""
    began = told.note()
    assert isinstance(began, CycleBegan) and began.cycle == number
    boot = 1 + sum(len(boots) - 1 for boots in told.state.boots.values())
    told.say(boot=f"boot-{boot}")
    runs = {drive: f"{number:x}{drive[1:]}".rjust(16, "0") for drive in began.drives if drive not in unfit}
    failed = [part("failed", drive=drive, trouble=trouble, text=WHY) for drive in unfit]
    told.say(
        *failed, *(part("armed", drive=drive, run=run) for drive, run in runs.items()), boot=f"boot-{boot}"
    )
    if not isinstance(told.note(), Abandoned):
        told.cut()
        told.say(boot=f"boot-{boot + 1}")
        told.say(
            *(part("done", drive=drive, run=runs.get(drive, "")) for drive in began.drives),
            boot=f"boot-{boot + 1}",
        )
        told.judge(verdict="durable")
    return told.ended()


@pytest.mark.parametrize("others", [False, True])
def test_drive_stays_for_arms_that_can_run(others: bool) -> None:
    """Two arms in a row cannot run on its file system: their cycles are left out with the reason."""
    targets = ("/mnt/a/t", "/mnt/b/t") if others else ("/mnt/a/t",)
    told = ToldCampaign()
    told.begin(on_file_systems(*targets, workloads=("overwrite", "append", "rename")))
    told.add(Checked(problems=()))
    for number in range(1, 8):
        unfit = () if number % 3 == 1 else ("d0",)
        mine = cycle(told, number, *unfit).drives[0]
        assert (mine.word, mine.text) == (("nothing", WHY) if unfit else ("durable", ""))
    assert not told.state.left


@pytest.mark.parametrize("trouble", ["not-begun", "missing"])
def test_drive_that_no_run_begins_on_leaves(trouble: Trouble) -> None:
    """A drive on which no run begins leaves the campaign, whatever the arms."""
    told = ToldCampaign()
    told.begin(on_file_systems("/mnt/a/t", "/mnt/b/t", workloads=("overwrite", "append", "rename")))
    told.add(Checked(problems=()))
    first = 1
    if trouble == "missing":
        cycle(told, 1)
        first = 2
    for number in (first, first + 1):
        cycle(told, number, "d0", trouble=trouble)
    assert told.note() == DriveLeft(drive="d0", reason=WHY)


def test_drive_on_which_an_arm_no_longer_runs_leaves() -> None:
    """Each arm has given a result before: the drive has changed."""
    told = ToldCampaign()
    told.begin(on_file_systems("/mnt/a/t", workloads=("overwrite", "append")))
    told.add(Checked(problems=()))
    for number in range(1, 5):
        cycle(told, number, *(("d0",) if number > 2 else ()))
    assert isinstance(told.note(), Paused)


# The check.


@pytest.mark.parametrize(
    ("workloads", "named"),
    [(("overwrite", "rename", "append"), "rename"), (("overwrite",), None)],
)
def test_check_is_told_of_an_arm_that_needs_names(workloads: tuple[str, ...], named: str | None) -> None:
    """The check of a target file names an arm that needs names, in a field that agents of every release know.
    A file system that the agent makes supports names, so its drive gets no arm."""
    told = ToldCampaign()
    settings = on_file_systems("/mnt/a/t", "/mnt/b/t", workloads=workloads)
    made = replace(settings.drives[1], target="", device="/dev/sdb", file_system="ext4")
    told.begin(replace(settings, drives=(settings.drives[0], made)))
    told.note()
    task = told.say()
    assert task.kind == "examine"
    assert [one.arm.name if one.arm is not None else None for one in task.drives] == [named, None]
    told.say(part("failed", trouble="not-begun", text=WHY), part("done", drive="d1"))
    told.answers_to_check()
    found = told.note()
    assert found == Checked(problems=(f"drive d0: {WHY}",))


def test_check_after_a_cut_is_told_of_no_arm() -> None:
    """An earlier release began the campaign on such a file system, and its file cannot be changed any more:
    the check must not fail for ever. The runs of that arm say why they do not begin."""
    told = ToldCampaign()
    told.begin(on_file_systems("/mnt/a/t", workloads=("overwrite", "append")))
    told.add(Checked(problems=()))
    cycle(told, 1)
    told.add(Paused(reason=""))
    told.wall = "2027-03-01T00:00:00Z"
    told.add(Resumed())
    began = told.note()
    assert isinstance(began, CycleBegan) and began.cycle == 0
    task = told.say(boot="boot-2")
    assert (task.kind, task.drives[0].arm) == ("examine", None)


def test_a_run_is_told_of_its_own_arm() -> None:
    """The task of a run has the arm of its cycle."""
    told = ToldCampaign()
    told.begin(on_file_systems("/mnt/a/t", workloads=("overwrite", "append")))
    told.add(Checked(problems=()))
    told.note()
    task = told.say()
    assert task.drives[0].arm == told.state.plan.arms[0]
