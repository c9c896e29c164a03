"""Runs whose cycle ended without a verdict: a loss that is found later counts; what stays open is said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from durability.acceptance.drive_evidence import campaign_evidence
from durability.campaign.health import health_rows
from durability.campaign.log_entries import (
    Checked,
    CutDue,
    CycleBegan,
    CycleEnded,
    DriveLeft,
    Ended,
    Entry,
    Happening,
    JudgedLate,
    PauseAsked,
    Paused,
    Resumed,
)
from durability.campaign.results import results, sentence
from durability.campaign.steps import LookUp
from durability.campaign.tasks import DriveStatus, DriveTask, Trouble
from durability_client.campaigns.campaign_junit import suites
from durability_client.campaigns.entry_lines import entry_line
from durability_server.campaigns.notifications import news_of
from tests.core.campaign.campaign_world import World, log_of, settings_of, until, until_phase
from tests.core.campaign.test_late_offs import UNJUDGED
from tests.core.campaign.test_long_pauses import after_first
from tests.core.campaign.told_campaign import (
    OTHER_RUN,
    RUN,
    ToldCampaign,
    begun,
    cut_under_load,
    judged,
    part,
    told_settings,
)

GONE = part("failed", trouble="missing", text="it is not there, for 120 s")


def back_too_late(told: ToldCampaign | None = None) -> ToldCampaign:
    """The first cut of a drive, which came back only after its time; the second cycle begins."""
    told = told or cut_under_load()
    told.say(boot="boot-2")
    told.say(replace(GONE, run=RUN), boot="boot-2")
    told.judge(verdict="")
    (said,) = told.ended().drives
    assert (said.word, said.cause, said.cut) == ("nothing", "drive", True)
    assert isinstance(told.note(), CycleBegan)
    told.say(boot="boot-2")
    return told


def begins_again(told: ToldCampaign, verdict: str, status: DriveStatus | None = None) -> None:
    """The next run is armed, or the drive's part is as `status` says; then the earlier run is looked up."""
    told.say(status or part("armed", run=OTHER_RUN), boot="boot-2")
    assert told.steps() == [LookUp("d0", RUN)]
    told.judge(verdict=verdict)
    assert told.steps() != [LookUp("d0", RUN)]


@pytest.mark.parametrize("stop_at", ["loss", "end"])
def test_loss_that_is_found_before_the_next_run_counts(stop_at: str) -> None:
    """In the cycle that was cut: in the sentence, in the report and for `accept`. With stop_at = "loss" the
    drive leaves at the end of the cycle under way."""
    told = ToldCampaign()
    told.begin(replace(told_settings(), stop_at=stop_at))  # type: ignore[arg-type]
    told.add(Checked(problems=()))
    told.note()
    told.say()
    told.say(part("armed", run=RUN))
    told.note()
    told.cut()
    begins_again(back_too_late(told), "loss")
    assert told.state.last is not None and isinstance(told.state.last.happening, JudgedLate)
    (result,) = results(told.state)
    assert sentence(result).startswith("LOSS in 1 of 1 cut, first in cycle 1: ")
    assert (result.first_loss, result.left_out, result.tally.unknown) == ((1, RUN), (), 0)
    assert campaign_evidence(told.state, "d0").cycles[0].word == "loss"
    case, _ = suites(told.state).iter("testcase")
    assert case.find("failure") is not None
    assert isinstance(told.note(), CutDue)
    told.cut()
    told.say(boot="boot-3")
    told.say(part("done", run=OTHER_RUN), boot="boot-3")
    told.judge(verdict="durable")
    assert told.ended().drives[0].word == "durable"
    then = told.note()
    if stop_at == "loss":
        assert then == DriveLeft(drive="d0", reason="loss in cycle 1")
    else:
        assert isinstance(then, CycleBegan)
        assert told.state.judged_cycles("d0") == 2


@pytest.mark.parametrize("verdict", ["durable", "inconclusive"])
def test_late_verdict_without_a_loss_changes_nothing(verdict: str) -> None:
    """The drive did not come back in time, which is a word on the drive."""
    told = back_too_late()
    begins_again(told, verdict)
    (result,) = results(told.state)
    assert sentence(result) == "no cut with a verdict yet."
    assert (result.left_out[0][1], result.tally.unknown) == ("drive", 1)
    assert not told.state.unjudged


def until_next_run(told: ToldCampaign) -> DriveTask:
    """The cycle under way ends, and the next one begins, after a pause if there is one; the drive's part of
    that."""
    happening: Happening | None = None
    while not isinstance(happening, CycleBegan):
        if isinstance(happening, Paused):
            told.add(Resumed())
        if any(isinstance(step, LookUp) for step in told.steps()):
            told.judge(verdict="durable")
        happening = told.note()
    return told.say(boot="boot-3").drives[0]


NOT_BEGUN = part("failed", trouble="not-begun", text="cannot create target: Structure needs cleaning")


def test_repair_before_a_run_that_does_not_begin_has_the_file_system_made_anew() -> None:
    """If the file system was repaired before a run that did not begin, and the earlier run has its verdict,
    the next cycles make a new file system."""
    told = after_first(part("failed", trouble="missing", text="why"), verdict="")
    assert (told.task().drives[0].run, told.task().drives[0].fresh) == (RUN, False)
    told.say(replace(NOT_BEGUN, repaired=True), boot="boot-3")
    told.judge(verdict="durable")
    for _ in range(3):
        assert until_next_run(told).fresh
        told.say(NOT_BEGUN, boot="boot-3")


def test_repair_that_is_said_before_a_pause_is_remembered() -> None:
    """A repair that was reported before a pause is remembered. After the pause the run's task has another
    number, and its agent does not mount for the earlier run."""
    told = after_first(part("failed", trouble="missing", text="why"), verdict="")
    told.say(part("working"), boot="boot-3")
    told.say(replace(part("working", text="mounting"), repaired=True), boot="boot-3")
    before = told.task().number
    assert isinstance(told.note(later_s=121, silent_s=121), Paused)  # its machine is not heard
    told.add(Resumed())
    told.judge(verdict="durable")
    assert told.task().kind == "run" and told.task().number > before
    told.say(NOT_BEGUN, boot="boot-3")
    assert until_next_run(told).fresh
    assert [past.began.cycle for past in told.state.cycles if past.statuses["d0"].repaired] == [2]


def test_run_is_looked_up_again_once_the_next_one_is_armed() -> None:
    """The drive's part failed before the earlier run was verified; the agent was restarted and did both."""
    told = back_too_late()
    begins_again(told, "", part("failed", trouble="agent", text="a defect"))
    told.say(part("armed", run=OTHER_RUN), boot="boot-2")
    assert told.steps() == [LookUp("d0", RUN)]
    told.judge(verdict="loss")
    assert results(told.state)[0].tally.losses == 1


def test_drive_that_is_away_for_a_cycle_keeps_its_run() -> None:
    """Its evidence still lies there: the verdict is looked up in the cycle in which it is back."""
    told = back_too_late()
    begins_again(told, "", GONE)
    told.note()
    told.ended()
    left = told.note()
    assert isinstance(left, Paused), left
    told.add(Resumed())
    told.judge(verdict="")
    assert isinstance(told.note(), CycleBegan)
    told.say(boot="boot-2")
    begins_again(told, "loss")
    assert results(told.state)[0].first_loss == (1, RUN)


def test_loss_that_people_found_before_the_end_counts() -> None:
    """A loss counts if the last run is verified by hand in a pause and the campaign is then stopped."""
    told = cut_under_load()
    told.say(boot="boot-2")
    told.add(PauseAsked(stop=False))
    told.say(replace(GONE, run=RUN), boot="boot-2")
    told.judge(verdict="")
    told.ended()
    assert told.note() == Paused(reason="")
    told.add(PauseAsked(stop=True))
    assert told.steps() == [LookUp("d0", RUN)]
    told.judge(verdict="loss")
    assert told.note() == Ended(reason="stopped")
    assert results(told.state)[0].tally.losses == 1


@pytest.mark.parametrize(("verdict", "calls"), [("loss", True), ("durable", False), ("", None)])
def test_late_verdict_is_told(verdict: str, calls: bool | None) -> None:
    """The command is called for a loss. The log has each look."""
    late = JudgedLate(cycle=3, judged=judged("d0", RUN, verdict))
    entry = Entry(number=9, at_ns=1, boot_id="server", wall="2027", happening=late)
    said = [] if calls is None else [(f"cycle 3: d0: {verdict} (run {RUN}), judged after its cycle", calls)]
    assert list(news_of(entry, set())) == said
    word = verdict or "none"
    assert entry_line(entry) == f"2027  cycle 3: d0: verdict {word} on run {RUN}, after its cycle"


def test_log_that_an_earlier_release_wrote_goes_on() -> None:
    """It had the power cut without a look at the earlier run; that comes at the end of the cycle."""
    told = back_too_late()
    told.say(part("armed", run=OTHER_RUN), boot="boot-2")
    told.add(CutDue(in_s=5.0))
    told.cut()
    told.say(boot="boot-3")
    told.say(part("done", run=OTHER_RUN), boot="boot-3")
    assert told.steps() == [LookUp("d0", OTHER_RUN)]
    told.judge(verdict="durable")
    assert told.steps() == [LookUp("d0", RUN)]
    told.judge(verdict="loss")
    assert told.ended().drives[0].word == "durable"
    assert told.note() == DriveLeft(drive="d0", reason="loss in cycle 1")


@pytest.mark.parametrize(
    ("stop_at", "stops", "again", "then"),
    [
        ("loss", False, ["d0"], DriveLeft),
        ("end", False, ["d0", "d1"], CycleBegan),
        ("end", True, ["d0", "d1", "d2"], Ended),
    ],
)
def test_loss_that_people_find_while_other_drives_are_verified_counts(
    stop_at: str, stops: bool, again: list[str], then: type[Happening]
) -> None:
    """The look at its run came hours before the end of the cycle, and is made once more before anything
    else. One that came just before the end is not."""
    runs = {f"d{number}": f"{number:016x}" for number in range(3)}
    told = ToldCampaign()
    settings = told_settings(devices=("/dev/sdb", "/dev/sdc", "/dev/sdd"))
    told.begin(replace(settings, stop_at=stop_at))  # type: ignore[arg-type]
    told.add(Checked(problems=()))
    told.note()
    told.say()
    told.say(*(part("armed", drive=drive, run=run) for drive, run in runs.items()))
    told.note()
    told.cut()
    told.say(boot="boot-2")
    for drive, run in runs.items():
        told.say(replace(GONE, drive=drive, run=run), boot="boot-2")
        assert told.steps() == [LookUp(drive, run)]
        told.judge(verdict="")
        assert drive == "d2" or not any(isinstance(step, LookUp) for step in told.steps())
    if stops:
        told.add(PauseAsked(stop=True))
    told.ended()
    for drive in again:
        assert told.steps()[0] == LookUp(drive, runs[drive])
        found = judged(drive, runs[drive], "loss" if drive == "d0" else "")
        told.add(told.state.verdict_entry(found))
    assert isinstance(told.note(), then)
    assert [result.tally.losses for result in results(told.state)] == [1, 0, 0]


def test_a_campaign_finds_the_loss_of_a_drive_that_came_back_late() -> None:
    """With all parts: the drive is there again for the next cycle, whose agent verifies first."""
    world = World(settings_of(drives=("b",), switches=1, cuts=3, stop_at="loss"))
    until_phase(world, "rest")
    world.gone.add("d0")
    world.words = ["loss"]
    until(world, CycleEnded, count=2)
    world.gone.clear()
    assert world.finish() == "no drive is left to test"
    assert any(isinstance(one, JudgedLate) for one in log_of(world)), world.story()
    assert results(world.server.state)[0].tally.losses == 1


# What people judged, and what nobody can.


@pytest.mark.parametrize("pause", [False, True])
def test_verdict_that_people_made_is_known_before_the_next_cycle(pause: bool) -> None:
    """A verdict made by hand is looked up before the next cycle, with or without a pause. The next task then
    does not ask for that run, whose drive may be erased."""
    told = back_too_late()
    begins_again(told, "", part("failed", trouble="not-verified", text="no run is on it"))
    told.note()
    told.ended()
    if pause:
        told.add(Paused(reason="by hand"), Resumed())
    assert told.steps() == [LookUp("d0", RUN)]
    told.judge(verdict="durable")
    assert isinstance(told.note(), CycleBegan)
    assert [(mine.run, mine.fresh) for mine in told.say(boot="boot-2").drives] == [("", False)]
    assert not any(isinstance(step, LookUp) for step in told.steps())
    assert results(told.state)[0].tally.losses == 0


def test_verdict_that_people_made_in_the_pause_of_a_cycle_is_looked_up_at_once() -> None:
    """The task of the cycle goes on after it, with another number."""
    told = back_too_late()
    assert told.task().drives[0].run == RUN
    told.say(part("working"), boot="boot-2")
    told.add(Paused(reason="machine c is not heard"), Resumed())
    assert told.steps() == [LookUp("d0", RUN)]
    told.judge(verdict="durable")
    assert told.task().drives[0].run == ""


def test_verdict_before_a_restart_of_the_machine_is_looked_up_after_it() -> None:
    """After a restart the campaign looks up the earlier run's verdict. The agent may have verified it and
    begun the next run, so naming it again would look for it on the wrong run."""
    told = back_too_late()
    told.say(part("working", text="verifying"), boot="boot-2")
    assert not any(isinstance(step, LookUp) for step in told.steps())
    told.say(boot="boot-3")
    assert told.steps() == [LookUp("d0", RUN)]
    told.judge(verdict="durable")
    assert told.task().drives[0].run == ""


@pytest.mark.parametrize("trouble", ["not-verified", "unmountable"])
def test_run_that_was_never_armed_does_not_keep_its_drive(trouble: Trouble) -> None:
    """A run cut in its prefill that has no verdict does not hold up its drive. A file system that does not
    mount is made again."""
    told = ToldCampaign()
    told.begin(told_settings(moment="prefill"))
    told.checked()
    told.note()
    told.say(boot="boot-2")
    told.say(part("armed", run=RUN), boot="boot-2")
    told.note()
    told.cut()
    told.say(boot="boot-3")
    told.say(part("failed", trouble=trouble, text="no facts", run=RUN), boot="boot-3")
    told.add(replace(judged("d0", RUN, ""), armed=False))
    told.ended()
    assert told.state.unjudged == {}
    assert isinstance(told.note(), CycleBegan)
    (mine,) = told.say(boot="boot-3").drives
    assert (mine.run, mine.fresh) == ("", trouble == "unmountable")


def test_run_that_an_earlier_release_waited_for_is_let_go() -> None:
    """Its log does not say that the run was never armed; the next look does."""
    told = back_too_late()
    told.add(Paused(reason=""), Resumed())
    told.add(JudgedLate(cycle=1, judged=replace(judged("d0", RUN, ""), armed=False)))
    assert told.state.unjudged == {}
    assert told.task().drives[0].run == ""


def test_verdict_on_an_earlier_run_is_none_of_the_cycle_under_way() -> None:
    """Two servers looked it up at once, and the second one added it when it was no longer late."""
    told = back_too_late()
    begins_again(told, "durable")
    told.add(judged("d0", RUN, "durable"))
    told.note()
    told.cut()
    told.say(boot="boot-3")
    told.say(part("failed", trouble="agent", text="a defect", run=OTHER_RUN), boot="boot-3")
    assert told.steps() == [LookUp("d0", OTHER_RUN)]
    told.judge(verdict="loss")
    assert told.ended().drives[0].word == "loss"


def test_repair_that_is_seen_before_the_next_run_counts() -> None:
    """A repair counts in the cycle in which it was seen, because the mount for the earlier run made it. Then
    the file system is made again."""
    told = ToldCampaign()
    told.begin(told_settings())
    told.checked()
    told.note()
    told.say(boot="boot-2")
    told.say(part("armed", run=RUN), boot="boot-2")
    told.note()
    told.cut()
    told.say(boot="boot-3")
    told.say(replace(GONE, run=RUN), boot="boot-3")
    told.judge(verdict="")
    told.ended()
    told.note()
    told.say(boot="boot-3")
    told.say(replace(part("armed", run=OTHER_RUN), repaired=True), boot="boot-3")
    told.judge(verdict="durable")
    told.note()
    told.cut()
    told.say(boot="boot-4")
    told.say(part("done", run=OTHER_RUN), boot="boot-4")
    told.judge(verdict="durable")
    told.ended()
    assert [row.repaired for row in health_rows(told.state, "d0")] == [False, False, True]
    told.note()
    assert told.say(boot="boot-4").drives[0].fresh


# What has no verdict at the end.


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, UNJUDGED.removeprefix("; ").removesuffix("`")),
        (
            {"file_system": ""},
            f"run {RUN} of d0 has no verdict: on b, type `durability verify /dev/sdb --run {RUN}",
        ),
        (
            {"file_system": "", "device": "", "target": "/mnt/my disk/t"},
            f"run {RUN} of d0 has no verdict: on b, type `durability verify '/mnt/my disk/t' --run {RUN}",
        ),
    ],
)
def test_run_without_a_verdict_is_named_at_the_end(changes: dict[str, str], line: str) -> None:
    """With what to type for it, for the campaign's class of cuts."""
    told = ToldCampaign()
    settings = told_settings()
    drive = replace(settings.drives[0], **changes)  # type: ignore[arg-type]
    told.begin(replace(settings, cut_class="vm", drives=(drive,)))
    told.add(Checked(problems=()))
    told.note()
    told.say()
    told.say(part("armed", run=RUN))
    told.note()
    told.cut()
    back_too_late(told)
    told.add(PauseAsked(stop=True))
    told.note()
    told.ended()
    told.judge(verdict="")
    assert told.note() == Ended(reason=f"stopped; {line} --require-cut vm`")


def test_run_without_a_verdict_is_named_as_its_drive_leaves() -> None:
    """The other drive goes on: the news and the sentence say what to type."""
    told = begun(devices=("/dev/sdb", "/dev/sdc"))
    for cycle, first in ((1, part("armed", run=RUN)), (2, GONE)):
        run = f"{cycle:016x}"
        told.say(first, part("armed", drive="d1", run=run), boot=f"boot-{cycle}")
        if cycle == 2:
            told.judge(verdict="")
        assert isinstance(told.note(), CutDue)
        told.cut()
        told.say(boot=f"boot-{cycle + 1}")
        told.say(replace(GONE, run=first.run), part("done", drive="d1", run=run), boot=f"boot-{cycle + 1}")
        for drive, looked_up in (("d0", first.run), ("d1", run)):
            told.add(*([judged(drive, looked_up, "durable" if drive == "d1" else "")] if looked_up else ()))
        told.ended()
        if cycle == 2:
            told.judge(verdict="")
        left = told.note()
        told.say(boot=f"boot-{cycle + 1}")
    reason = f"it is not there, for 120 s{UNJUDGED}"
    assert left == DriveLeft(drive="d0", reason=reason)
    assert sentence(results(told.state)[0]).endswith(f" It is no longer tested: {reason}.")
    entry = Entry(number=9, at_ns=1, boot_id="server", wall="2027", happening=left)
    assert list(news_of(entry, set())) == [(f"d0 is no longer tested: {reason}", True)]


def test_end_of_a_check_names_no_run() -> None:
    """There is none."""
    told = ToldCampaign()
    told.begin(told_settings(), check_only=True)
    told.checked()
    assert told.note() == Ended(reason="checked")
