"""Only the machine that was checked is heard, in its newest boot, and only about its task."""

from __future__ import annotations

import pytest

from durability.campaign.assignments import Speaker
from durability.campaign.log_entries import (
    Checked,
    Entry,
    NotBack,
    Paused,
    PowerAnswered,
    PowerAsked,
    StrangerHeard,
)
from tests.core.campaign.told_campaign import (
    B_ANEW,
    NEW_YEAR,
    RUN,
    ToldCampaign,
    begun,
    condition,
    part,
    told_settings,
    with_check,
)


@pytest.mark.parametrize(
    ("machine_id", "speaker", "why"),
    [
        ("another", None, "another machine than the one that was checked answers as b"),
        ("b", B_ANEW, "b has joined again since it was checked"),
        ("b", Speaker(client="client-b", is_server=True), "runs on the server's own machine"),
    ],
)
def test_another_machine_is_not_heard(machine_id: str, speaker: Speaker | None, why: str) -> None:
    """It gets no task, it is said once, and it is the reason of the pause."""
    told = with_check()
    for _ in range(3):
        task = told.say(boot="boot-9", machine_id=machine_id, speaker=speaker)
        assert (task.kind, task.number) == ("wait", 0)
    assert isinstance(told.state.last.happening if told.state.last else None, StrangerHeard)
    before = told.state.number
    told.say(boot="boot-9", machine_id=machine_id, speaker=speaker)
    assert told.state.number == before
    paused = told.note(later_s=121, silent_s=121)
    assert isinstance(paused, Paused)
    assert paused.reason.startswith("machine b is not heard: ") and why in paused.reason


def test_agent_on_the_machine_that_conducts_is_not_heard_by_another_server() -> None:
    """It speaks to another server of the store, which runs elsewhere: a cut would end the one that asks the
    switches. The machine that conducts may have been restarted since the campaign began."""
    told = ToldCampaign()
    told.begin(told_settings())
    told.note()
    assert told.say(boot="server").kind == "wait"
    assert told.state.strangers["b"][0].startswith("the agent of b runs on the server's own machine")
    for happening in (
        PowerAsked(switch=0, operation="check"),
        PowerAnswered(switch=0, operation="check", outcome="on", text="", began_ns=1, ended_ns=2),
    ):
        boot = f"anew-{happening.kind}"
        entry = Entry(number=told.state.number + 1, at_ns=1, boot_id=boot, wall=NEW_YEAR, happening=happening)
        told.state.apply(entry)
        assert told.say(boot=boot).kind == "wait"
    assert told.say(boot="boot-1").kind == "examine"


def test_agent_on_the_machine_that_conducts_tests_a_drive_that_is_cut_alone() -> None:
    """The machine keeps its power."""
    told = ToldCampaign()
    told.begin(told_settings(subject="drive"))
    told.note()
    assert told.say(boot="server").kind == "examine"


def test_two_strangers_are_each_said_once() -> None:
    """They ask in turn, once a second, and the log does not grow with it."""
    told = with_check()
    numbers = []
    for _ in range(3):
        told.say(boot="boot-8", machine_id="another")
        told.say(boot="boot-9", speaker=B_ANEW)
        numbers.append(told.state.number)
    assert numbers[1:] == numbers[:-1]


def test_another_machine_after_the_cut_of_the_check_is_not_heard() -> None:
    """The check examined one machine, and after the cut another answers under its name. It is not heard,
    because the switch may not feed it."""
    told = ToldCampaign()
    told.begin(told_settings(), check_only=True)
    told.note()
    told.say()
    told.say(part("done", found=condition()))
    told.cut()
    task = told.say(boot="boot-9", machine_id="another")
    assert task.kind == "wait"
    paused = told.note(later_s=121, silent_s=121)
    assert isinstance(paused, Paused) and paused.reason.startswith("machine b is not heard: another machine")


@pytest.mark.parametrize("still_there", [False, True])
def test_stranger_is_why_a_machine_is_not_back_only_if_heard_since(still_there: bool) -> None:
    """A copy was on for a moment before the cut; or it goes on asking after it."""
    told = with_check()
    told.say(boot="boot-9", machine_id="another")
    told.say(part("armed", run=RUN), boot="boot-2")
    told.say(boot="boot-9", machine_id="another")
    told.note()
    told.cut()
    if still_there:
        told.say(boot="boot-9", machine_id="another")
    found = told.note(later_s=121, silent_s=121)
    assert isinstance(found, Paused if still_there else NotBack)


def test_machine_that_joined_anew_is_bound_by_the_next_check() -> None:
    """A drive is cut alone, so its machine has the same boot before and after."""
    told = ToldCampaign()
    told.begin(told_settings(subject="drive"), check_only=True)
    told.note()
    told.say()
    told.say(part("done", found=condition()))
    told.add(Checked(problems=("something",)))
    told.note()
    told.note()
    told.begin(told_settings(subject="drive"), check_only=True)
    told.note()
    assert told.say(speaker=B_ANEW).kind == "examine"
    told.say(part("done", found=condition()), speaker=B_ANEW)
    assert told.state.checked_machines["b"].client == B_ANEW.client
    assert told.say(speaker=Speaker(client="client-b")).kind == "wait"


def test_status_of_an_earlier_boot_gets_no_task() -> None:
    """A copy of the machine, or a message that came late, must not begin the run of the newest boot."""
    told = begun()
    told.say(boot="boot-2")
    assert told.say(boot="boot-1").kind == "wait"
    assert told.say(boot="boot-2").kind == "run"


@pytest.mark.parametrize("campaign", ["another", ""])
def test_status_of_another_campaign_is_not_believed(campaign: str) -> None:
    """Its task has the same number by chance."""
    told = begun()
    told.say(part("armed", run=RUN), campaign=campaign)
    assert told.state.cycle is not None
    assert told.state.cycle.runs == {}
    told.say(part("armed", run=RUN))
    assert told.state.cycle.runs == {"d0": RUN}
