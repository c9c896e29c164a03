"""What a campaign does after a pause: the check, runs and their evidence are as the log says, whatever people
did meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from durability.campaign.log_entries import (
    Abandoned,
    Checked,
    CutDue,
    CycleBegan,
    CycleEnded,
    DriveReported,
    Ended,
    Happening,
    JudgedLate,
    NotBack,
    PauseAsked,
    Paused,
    Resumed,
    StillThere,
)
from durability.campaign.results import results
from durability.campaign.steps import Ask, LookUp, Note
from durability.campaign.tasks import Condition, DriveStatus, Trouble
from tests.core.campaign.campaign_world import World, log_of, settings_of, until, until_phase, words
from tests.core.campaign.told_campaign import (
    OTHER_RUN,
    RUN,
    ToldCampaign,
    condition,
    judged,
    part,
    told_settings,
)

MONTHS_LATER = "2027-04-01T00:00:00Z"
TWO = told_settings(machines=("b", "c"), devices=("/dev/sdb", "/dev/sdc"))


def pause(told: ToldCampaign) -> None:
    """An operator asks for a pause, and it begins."""
    told.add(PauseAsked(stop=False))
    while not isinstance(told.note(), Paused):
        pass


# The check.


@pytest.mark.parametrize(
    ("serial", "before", "after", "problem"),
    [
        ("S0", 6, 7, ""),  # switched off and on by hand in the pause
        ("S0", 6, 6, "stayed at 6"),  # the same, and the switch does not reach the drive
        ("S1", 9, 10, ""),  # exchanged in the pause
    ],
)
def test_check_that_was_broken_off_says_nothing(serial: str, before: int, after: int, problem: str) -> None:
    """The one that is made after the pause compares with what it found itself."""
    told = ToldCampaign()
    told.begin(told_settings())
    told.note()
    told.say()
    told.say(part("done", found=condition("S0", unsafe=5)))
    pause(told)
    told.add(Resumed())
    told.note()
    assert told.say(boot="boot-2").drives[0].serial == ""
    told.say(part("done", found=condition(serial, unsafe=before)), boot="boot-2")
    told.answers_to_check()
    told.cut()
    told.say(boot="boot-3")
    told.say(part("done", found=condition(serial, unsafe=after)), boot="boot-3")
    found = told.note()
    assert isinstance(found, Checked)
    assert problem in "; ".join(found.problems) and bool(found.problems) == bool(problem), found


@pytest.mark.parametrize(("after", "passes"), [(7, True), (6, False)])
def test_machine_that_was_cut_before_the_pause_is_cut_again(after: int, passes: bool) -> None:
    """The cut of a machine before the pause counts neither for it nor against it, so the machine is cut
    again."""
    told = ToldCampaign()
    told.begin(TWO)
    told.note()
    told.answers_to_check()
    for machine, drive in (("b", "d0"), ("c", "d1")):
        told.say(machine=machine)
        told.say(part("done", drive=drive, found=condition(drive)), machine=machine)
    told.cut(0)
    told.say(boot="boot-2")
    told.say(part("done", found=condition("d0", unsafe=6)), boot="boot-2")
    pause(told)
    told.add(Resumed())
    told.note()
    told.answers_to_check()
    for machine, drive, boot, unsafe in (("b", "d0", "boot-2", 6), ("c", "d1", "boot-1", 5)):
        told.say(machine=machine, boot=boot)
        told.say(part("done", drive=drive, found=condition(drive, unsafe=unsafe)), machine=machine, boot=boot)
    told.cut(0)
    told.say(boot="boot-3")
    told.say(part("done", found=condition("d0", unsafe=after)), boot="boot-3")
    assert (told.steps() == [Ask(1, "off")]) == passes


def paused_in_the_check() -> ToldCampaign:
    """A check whose machine did not come back from its cuts."""
    told = ToldCampaign()
    told.begin(told_settings(), check_only=True)
    told.note()
    told.say()
    told.say(part("done", found=condition()))
    told.cut()
    assert isinstance(told.note(later_s=121, silent_s=121), NotBack)
    told.cut()
    assert isinstance(told.note(later_s=121, silent_s=121), Paused)
    return told


@pytest.mark.parametrize("risen", [1, 2, 3])
def test_check_that_was_paused_is_made_again(risen: int) -> None:
    """A check that was paused is repeated. A person may have switched the machine meanwhile, so its counter
    neither passes nor fails the check."""
    told = paused_in_the_check()
    told.add(Resumed())
    told.say(boot="boot-2")
    told.say(part("done", found=condition(unsafe=5 + risen)), boot="boot-2")
    assert isinstance(told.note(), CycleEnded)
    again = told.note()
    assert isinstance(again, CycleBegan) and again.cycle == 0
    assert told.state.checked is None and not told.state.conditions


def test_check_that_was_stopped_in_a_pause_has_not_passed() -> None:
    """The campaign may begin only after another one."""
    told = paused_in_the_check()
    told.say(boot="boot-2")
    told.say(part("done", found=condition(unsafe=7)), boot="boot-2")
    told.add(PauseAsked(stop=True))
    while not isinstance(told.note(), Ended):
        pass
    assert not told.state.is_checked(told.state.plan, told.wall)


def test_wrong_outlet_is_not_cut_again_after_a_pause() -> None:
    """A machine that went on without power is found once."""
    told = paused_in_the_check()
    told.add(Resumed())
    told.say()
    told.say(part("done", found=condition()))
    found = [one for one in (told.note(), told.note()) if isinstance(one, Checked)]
    assert found and "kept running without a restart" in found[0].problems[0]
    assert told.state.cycle is None or told.state.cycle.still_there["b"]


def test_switching_by_hand_in_a_pause_of_the_check_fails_nothing() -> None:
    """The machine hangs in its boot during the check, and a person switches it off and on in the pause. The
    check still passes."""
    world = World(settings_of(drives=("b",), switches=1, cuts=1), counts=True)
    until_phase(world, "rest", cycle=0)
    world.machines["b"].cut_off = True
    until(world, Paused)
    world.switch_by_hand("b")
    assert world.finish() == "complete"
    (found,) = [one for one in log_of(world) if isinstance(one, Checked)]
    assert found.problems == () and words(world) == [["durable"]]


# Months.


def counted_once(wall: str = MONTHS_LATER) -> ToldCampaign:
    """A campaign with one durable cycle, which an operator paused. It is resumed at `wall`."""
    told = ToldCampaign()
    told.begin(told_settings())
    told.checked()
    told.note()
    told.say(boot="boot-2")
    told.say(part("armed", run=RUN, found=condition(unsafe=6)), boot="boot-2")
    told.note()
    told.cut()
    told.say(boot="boot-3")
    told.say(part("done", run=RUN, found=condition(unsafe=7)), boot="boot-3")
    told.judge(verdict="durable")
    assert told.ended().drives[0].word == "durable"
    pause(told)
    told.wall = wall
    told.add(Resumed())
    return told


def examined(told: ToldCampaign, before: Condition, after: Condition) -> None:
    """The check goes on to its end."""
    told.say(boot="boot-4")
    told.say(part("done", found=before), boot="boot-4")
    told.answers_to_check()
    if told.steps() == [Ask(0, "off")]:
        told.cut()
        told.say(boot="boot-5")
        told.say(part("done", found=after), boot="boot-5")


def test_campaign_that_was_paused_for_months_is_checked_again() -> None:
    """Switches and drives may have been moved. What was counted stays, and the next cycle has its number."""
    told = counted_once()
    again = told.note()
    assert isinstance(again, CycleBegan) and again.cycle == 0
    examined(told, condition(unsafe=40), condition(unsafe=41))
    found = told.note()
    assert isinstance(found, Checked) and found.problems == ()
    told.note()
    following = told.note()
    assert isinstance(following, CycleBegan) and following.cycle == 2
    (result,) = results(told.state)
    assert (result.tally.cuts, told.state.checked_at) == (1, "2027-01-01T00:00:00Z")
    told.say(boot="boot-5")
    assert [(mine.fresh, mine.again) for mine in told.task().drives] == [(False, True)]


def test_campaign_that_was_paused_for_weeks_goes_on() -> None:
    """Its last cut is not so old."""
    following = counted_once("2027-01-30T23:00:00Z").note()
    assert isinstance(following, CycleBegan) and following.cycle == 2


def test_cut_renews_the_check() -> None:
    """A campaign may take longer than a check holds; its cuts show the same."""
    told = counted_once("2027-01-20T00:00:00Z")
    told.note()
    told.say(boot="boot-3")
    told.say(part("armed", run=OTHER_RUN, found=condition(unsafe=7)), boot="boot-3")
    told.note()
    told.cut()
    told.say(boot="boot-4")
    told.say(part("done", run=OTHER_RUN, found=condition(unsafe=8)), boot="boot-4")
    told.judge(verdict="durable")
    told.ended()
    pause(told)
    told.wall = "2027-02-10T00:00:00Z"
    told.add(Resumed())
    following = told.note()
    assert isinstance(following, CycleBegan) and following.cycle == 3


@pytest.mark.parametrize(
    ("before", "problem"),
    [
        (condition("S9", unsafe=1), "it is another drive than the one that was examined first"),
        (replace(condition(unsafe=40), wwid="other"), "it is another drive"),
        (condition(unsafe=40), "its count of unsafe shutdowns stayed at 40"),
    ],
)
def test_check_that_fails_after_months_pauses_the_campaign(before: Condition, problem: str) -> None:
    """The counted cuts are of the drive that was there. The check is made again once people have looked."""
    told = counted_once()
    told.state.conditions["d0"] = replace(told.state.conditions["d0"], wwid="first")
    told.note()
    examined(told, before, before)
    found = told.note()
    assert isinstance(found, Checked) and problem in found.problems[0]
    told.note()
    paused = told.note()
    assert isinstance(paused, Paused) and paused.reason == f"the check failed: {found.problems[0]}"
    told.add(Resumed())
    again = told.note()
    assert isinstance(again, CycleBegan) and again.cycle == 0


def test_check_before_the_first_cycle_is_made_again_after_months() -> None:
    """Nothing was cut yet, so the drives that it finds are the campaign's."""
    told = ToldCampaign()
    told.begin(told_settings())
    told.checked()
    pause(told)
    told.wall = MONTHS_LATER
    told.add(Resumed())
    told.note()
    assert (told.task().kind, told.task().drives[0].serial) == ("examine", "")


# A pause before the runs.


def paused_in_run(said: DriveStatus) -> ToldCampaign:
    """A campaign of two machines: of the first drive this was said, and the second machine is not heard."""
    told = ToldCampaign()
    told.begin(TWO)
    told.note()
    told.answers_to_check()
    for machine, drive in (("b", "d0"), ("c", "d1")):
        told.say(machine=machine)
        told.say(part("done", drive=drive, found=condition(drive)), machine=machine)
    for number, (machine, drive) in enumerate((("b", "d0"), ("c", "d1"))):
        told.cut(number)
        told.say(machine=machine, boot="boot-2")
        told.say(part("done", drive=drive, found=condition(drive, unsafe=6)), machine=machine, boot="boot-2")
    for _ in range(3):
        told.note()
    told.say(said, boot="boot-2")
    assert isinstance(told.note(later_s=200, silent={"b": 0.0, "c": 200.0}), Paused)
    return told


@pytest.mark.parametrize("said", [part("working", text="prefill"), part("failed", trouble="not-made")])
def test_resumed_runs_have_another_number(said: DriveStatus) -> None:
    """An agent begins a run once for a number: with the same one it could only say that the run is over."""
    told = paused_in_run(said)
    cycle = told.state.cycle
    assert cycle is not None
    before = cycle.number
    assert told.task().number == 0
    told.add(Resumed())
    assert told.task().kind == "run" and told.task().number > before
    told.say(part("armed", run=RUN, found=condition("d0", unsafe=6)), boot="boot-2")
    told.say(
        part("armed", drive="d1", run=OTHER_RUN, found=condition("d1", unsafe=6)), machine="c", boot="boot-2"
    )
    assert isinstance(told.note(), CutDue)


def test_cycle_in_which_a_run_was_over_before_the_pause_is_left_out() -> None:
    """Its evidence is verified, and no other run begins over it."""
    told = paused_in_run(part("ended", run=RUN, text="the agent was restarted"))
    told.add(Resumed())
    assert told.task("b").kind == told.task("c").kind == "wait"
    given_up = told.note()
    assert isinstance(given_up, Abandoned)
    assert (given_up.cause, given_up.text) == ("agent", "a run had ended before the campaign was paused")
    assert (told.task("b").kind, told.task("b").drives[0].run) == ("verify", RUN)


def test_cycle_that_was_paused_for_months_is_left_out() -> None:
    """No run begins before the check."""
    told = paused_in_run(part("working"))
    told.wall = MONTHS_LATER
    told.add(Resumed())
    assert told.task("b").kind == "wait"
    given_up = told.note()
    assert isinstance(given_up, Abandoned) and given_up.cause == "operator"
    assert isinstance(told.note(), CycleEnded)
    again = told.note()
    assert isinstance(again, CycleBegan) and again.cycle == 0


def test_no_run_begins_in_a_campaign_that_is_stopped_in_its_pause() -> None:
    """An agent that asks before the cycle is given up makes no file system."""
    told = paused_in_run(part("working"))
    told.add(PauseAsked(stop=True))
    assert told.task("b").kind == "wait"


def test_log_of_an_earlier_release_keeps_the_number_of_its_runs() -> None:
    """Its server had not given them another one: what is under way goes on."""
    told = paused_in_run(part("working"))
    cycle = told.state.cycle
    assert cycle is not None
    before = cycle.number
    told.add(Resumed())
    armed = part("armed", run=RUN, found=condition("d0", unsafe=6))
    told.add(DriveReported(machine="b", task=before, what="run", status=armed))
    assert told.task("b").number == before


# Evidence.


def after_first(*said: DriveStatus, verdict: str) -> ToldCampaign:
    """A campaign in its second cycle; of the drive this was said after its first cut."""
    told = ToldCampaign()
    told.begin(told_settings())
    told.checked()
    told.note()
    assert told.say(boot="boot-2").drives[0].fresh
    told.say(part("armed", run=RUN, found=condition(unsafe=6)), boot="boot-2")
    told.note()
    told.cut()
    told.say(boot="boot-3")
    told.say(*said, boot="boot-3")
    told.judge(verdict=verdict)
    told.ended()
    told.note()
    told.say(boot="boot-3")
    return told


@pytest.mark.parametrize("trouble", ["missing", "not-verified", "agent", "in-use", "wrong-drive"])
def test_run_whose_verify_failed_is_not_erased(trouble: Trouble) -> None:
    """Its agent verifies it before the next run: without `fresh` nothing is made or forced."""
    told = after_first(part("failed", trouble=trouble, text="why"), verdict="")
    assert [(mine.fresh, mine.again, mine.run) for mine in told.task().drives] == [(False, True, RUN)]


def test_run_with_a_verdict_is_not_verified_before_the_next_one() -> None:
    """The task to run names none then."""
    assert after_first(part("done", run=RUN), verdict="durable").task().drives[0].run == ""


def test_run_on_a_repaired_file_system_is_verified_before_that_is_made_anew() -> None:
    """The file system may go once the run has its verdict."""
    failed = replace(part("failed", trouble="not-verified", text="why"), repaired=True)
    assert not after_first(failed, verdict="").task().drives[0].fresh
    done = replace(part("done", run=RUN), repaired=True)
    assert after_first(done, verdict="durable").task().drives[0].fresh


def test_file_system_that_does_not_mount_is_made_anew_once_its_run_is_judged() -> None:
    """Its device was judged in its place."""
    assert after_first(part("done", run=RUN, trouble="unmountable"), verdict="durable").task().drives[0].fresh
    late = after_first(part("failed", trouble="unmountable", text="unknown type"), verdict="")
    late.add(JudgedLate(cycle=1, judged=judged("d0", RUN, "inconclusive")))
    assert late.task().drives[0].fresh


def test_file_system_that_does_not_mount_stays_while_its_run_is_not_judged() -> None:
    """A file system that does not mount is kept as long as its run has no verdict, also in later cycles: the
    cause need not be damage."""
    told = after_first(part("failed", trouble="unmountable", text="unknown type"), verdict="")
    for _ in range(3):
        assert [(mine.fresh, mine.run) for mine in told.task().drives] == [(False, RUN)]
        told.say(part("failed", trouble="unmountable", text="unknown type"), boot="boot-3")
        told.judge(verdict="")
        now = None
        while not isinstance(now, CycleBegan):
            if isinstance(now, Paused):
                told.add(Resumed())
            if isinstance(told.steps()[0], LookUp):
                told.judge(verdict="")
            now = told.note()


def until_entry(told: ToldCampaign, wanted: type[Happening], unjudged: str) -> None:
    """The campaign goes on to such an entry. Every run that is looked up is durable, but for `unjudged`."""
    happening: Happening | None = None
    while not isinstance(happening, wanted):
        step = told.steps()[0]
        if isinstance(step, LookUp):
            found = judged(step.drive, step.run, "" if step.run == unjudged else "durable")
            happening = told.state.verdict_entry(found)
        else:
            assert isinstance(step, Note), step
            happening = step.happening
        told.add(happening)


def fresh_in(*cycles: tuple[DriveStatus, DriveStatus, str]) -> list[bool]:
    """Of each cycle what is said of a drive before and after the cut, and which run has no verdict by then;
    nothing is amiss with the other drive. Whether each makes a file system, and the one after them."""
    told, both = ToldCampaign(), ("d0", "d1")
    told.begin(told_settings(devices=("/dev/sdb", "/dev/sdc")))
    told.note()
    told.say()
    told.say(*(part("done", drive=drive, found=condition(drive)) for drive in both))
    told.cut()
    told.say(boot="boot-2")
    told.say(*(part("done", drive=drive, found=condition(drive, unsafe=6)) for drive in both), boot="boot-2")
    until_entry(told, CycleBegan, "")
    fresh = [told.say(boot="boot-2").drives[0].fresh]
    for number, (before, after, unjudged) in enumerate(cycles, start=2):
        other = part("armed", drive="d1", run=f"{number:016x}")
        told.say(before, other, boot=f"boot-{number}")
        until_entry(told, CutDue, unjudged)
        told.cut()
        boot = f"boot-{number + 1}"
        told.say(boot=boot)
        told.say(after, replace(other, state="done"), boot=boot)
        until_entry(told, CycleBegan, unjudged)
        fresh.append(told.say(boot=boot).drives[0].fresh)
    return fresh


ARMED, DONE = part("armed", run=RUN), part("done", run=RUN)
WITHOUT_RUN = part("done")
MISSING = part("failed", trouble="missing", text="it is not there, for 120 s")
AGAIN = (replace(ARMED, run=OTHER_RUN), replace(DONE, run=OTHER_RUN), "")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (replace(DONE, repaired=True), (MISSING, WITHOUT_RUN, "")),
        (replace(DONE, trouble="unmountable"), (MISSING, WITHOUT_RUN, "")),
        (DONE, (part("failed", trouble="unmountable", text="bad superblock"), MISSING, "")),
        (DONE, (part("failed", trouble="not-begun", text="why"), replace(WITHOUT_RUN, repaired=True), "")),
    ],
    ids=["repaired", "unmountable", "unmountable-before-the-cut", "repaired-without-a-run"],
)
def test_file_system_is_made_anew_though_other_drives_were_cut_meanwhile(
    first: DriveStatus, second: tuple[DriveStatus, DriveStatus, str]
) -> None:
    """No run began on it in their cycle. It is made once."""
    assert fresh_in((ARMED, first, ""), second, AGAIN)[2:] == [True, False]


def test_file_system_is_made_anew_after_a_run_that_began_on_what_was_repaired() -> None:
    """After a run on a repaired file system that was kept because an earlier run had no verdict, only the
    next cycle makes a new file system."""
    gone = replace(MISSING, run=RUN)
    repaired = (part("failed", trouble="agent", text="a defect"), replace(WITHOUT_RUN, repaired=True), RUN)
    last = (part("armed", run="00000000000000cc"), part("done", run="00000000000000cc"), "")
    assert fresh_in((ARMED, gone, RUN), repaired, AGAIN, last) == [True, False, False, True, False]


def test_pause_before_a_run_does_not_erase_the_drive() -> None:
    """The file system of the cycle before is used again: each is made once."""
    told = after_first(part("done", run=RUN), verdict="durable")
    told.say(part("working", text="mounting"), boot="boot-3")
    pause(told)
    told.add(Resumed())
    told.note()
    assert (told.task().kind, told.task().drives[0].fresh) == ("run", False)


def test_file_system_that_a_pause_kept_from_being_made_is_made() -> None:
    """If a pause interrupts the making of a new file system, the file system is made after the pause."""
    told = after_first(part("done", run=RUN, trouble="unmountable"), verdict="loss")
    told.say(part("working", text="making ext4"), boot="boot-3")
    pause(told)
    told.add(Resumed())
    told.note()
    # A loss ends the test of the drive, so the fold alone is asked.
    assert told.state.begins_afresh(told.state.plan.drives[0])


def test_run_on_a_new_file_system_is_not_erased_for_an_older_one() -> None:
    """The file system of the first cycle did not mount; that of the second holds a run without a verdict."""
    told = after_first(part("done", run=RUN, trouble="unmountable"), verdict="durable")
    assert told.task().drives[0].fresh
    told.say(part("armed", run=OTHER_RUN, found=condition(unsafe=7)), boot="boot-3")
    told.note()
    told.cut()
    told.say(boot="boot-4")
    told.say(part("failed", trouble="missing", text="it is not there"), boot="boot-4")
    told.judge(verdict="")
    told.ended()
    told.note()
    told.say(boot="boot-4")
    assert not told.task().drives[0].fresh


def test_drive_that_is_late_keeps_its_evidence() -> None:
    """With all parts: it comes back only after its verify has failed."""
    world = World(settings_of(drives=("b", "b"), switches=1, cuts=2))
    until_phase(world, "rest")
    world.gone.add("d0")
    until(world, CycleEnded, 2)
    world.gone.clear()
    assert world.finish() == "complete"
    assert words(world)[0] == ["nothing", "durable"]
    assert not any(isinstance(one, StillThere) for one in log_of(world))
