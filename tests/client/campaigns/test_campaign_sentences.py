"""What a campaign says of itself, and of a drive in one sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from durability.campaign.campaign_state import CampaignState
from durability.campaign.log_entries import (
    Began,
    Entry,
    Happening,
    PauseAsked,
    Paused,
    PowerAsked,
    PowerCameBack,
    PowerWentOff,
    WritersHeld,
)
from durability.campaign.progress import cycles_left
from durability.campaign.results import ArmResult, DriveResult, Tally, results, sentence
from durability_client.campaigns.campaign_text import checked, page, status, status_value, what_start_does
from durability_client.campaigns.entry_lines import entry_line
from tests.core.campaign.campaign_world import World, settings_of
from tests.core.campaign.told_campaign import RUN, ToldCampaign, begun, condition, part, told_settings

CLEAN = Tally(cuts=59, losses=0, unknown=0, bound=0.0495, bound_if_lost=None, low=None, high=None)


def result(*arms: ArmResult, left: str = "") -> DriveResult:
    """A drive that lost nothing in 59 cuts under load."""
    return DriveResult(
        drive="ssd",
        machine="b",
        tally=CLEAN,
        kept=0,
        arms=arms,
        first_loss=None,
        first_loss_under_load=None,
        left_out=(),
        left=left,
    )


def test_a_loss_at_idle_is_said_beside_the_bound() -> None:
    """The bound is of the cuts under load, and no loss of another arm stays unsaid."""
    lost = Tally(cuts=12, losses=1, unknown=0, bound=0.34, bound_if_lost=None, low=0.0021, high=0.38)
    arm = ArmResult(arm="still", moment="idle", tally=lost, kept=11, left_out=0)
    assert sentence(result(arm, left="loss in cycle 60")) == (
        "no loss seen in 59 cuts: at most 5.0 % of cuts lose data (95 %). LOSS in 1 of 12 cuts of arm still"
        " (idle). It is no longer tested: loss in cycle 60."
    )


def test_arms_without_a_loss_add_nothing() -> None:
    """An arm without a loss adds nothing to the sentence about the drive."""
    kept = Tally(cuts=12, losses=0, unknown=0, bound=0.22, bound_if_lost=None, low=None, high=None)
    arm = ArmResult(arm="still", moment="idle", tally=kept, kept=12, left_out=0)
    assert sentence(result(arm)) == "no loss seen in 59 cuts: at most 5.0 % of cuts lose data (95 %)."


def test_what_will_be_erased_is_said_by_its_kinds() -> None:
    """The UUIDs by which the agent knows contents again are no help to who decides."""
    told = ToldCampaign()
    told.begin(told_settings(), check_only=True)
    told.checked(found=replace(condition("S7"), holds="gpt 1:vfat=1A2B-3C4D 2:ext4=0b1c"))
    assert ", holds gpt 1:vfat 2:ext4)" in what_start_does(told_settings(), told.state)


@pytest.mark.parametrize(
    ("moments", "said"),
    [
        (
            ("load",),
            "9 cuts for each drive, about 33 min; seed 1. Without a loss they show that at most 29 % of",
        ),
        (
            ("load", "idle", "shutdown"),
            "9 cuts for each drive, 3 of them under load, about 34 min; seed 1. Without a loss those show"
            " that at most 64 % of",
        ),
    ],
)
def test_what_the_cuts_would_show_is_of_those_under_load(moments: tuple[str, ...], said: str) -> None:
    """The others are not in that bound."""
    last = what_start_does(told_settings(moments=moments), CampaignState()).splitlines()[-1]
    assert last == f"{said} cuts lose data (95 % confidence)."


def test_few_cuts_are_of_the_first_arms() -> None:
    """Two cuts do not come to the arm that rests for days."""
    settings = told_settings(moments=("load",) * 3)
    rest = replace(settings.arms[2], off_s=(86_400.0, 172_800.0))
    long = replace(settings, arms=(*settings.arms[:2], rest))
    assert "2 cuts for each drive, about 7 min;" in what_start_does(replace(long, cuts=2), CampaignState())
    assert "9 cuts for each drive, about 108 h 32 min;" in what_start_does(long, CampaignState())


def test_cuts_that_are_not_under_load_promise_no_bound() -> None:
    """There is nothing to say of cuts under load."""
    last = what_start_does(told_settings(moment="prefill"), CampaignState()).splitlines()[-1]
    assert last == "9 cuts for each drive, 0 of them under load, about 33 min; seed 1."


@pytest.mark.parametrize("losses", [0, 1])
def test_cuts_that_are_not_under_load_have_a_verdict(losses: int) -> None:
    """Where all cuts so far were others, the sentence says so."""
    none = Tally(cuts=0, losses=0, unknown=0, bound=None, bound_if_lost=None, low=None, high=None)
    arm = ArmResult(arm="still", moment="idle", tally=replace(CLEAN, losses=losses), kept=58, left_out=0)
    said = sentence(replace(result(arm), tally=none, kept=58))
    lost = " LOSS in 1 of 59 cuts of arm still (idle)." if losses else ""
    assert said == f"no cut under load with a verdict; 58 kept.{lost}"
    assert sentence(replace(result(), tally=none)) == "no cut with a verdict yet."


def test_a_check_has_no_time_left() -> None:
    """A check of a campaign shows no time left, because the campaign's duration is not the check's."""
    told = ToldCampaign()
    told.begin(told_settings(), check_only=True)
    told.note()
    told.say()
    assert cycles_left(told.state) == 0
    assert status_value(told.state, {}, took_s=None)["left_s"] is None
    said = list(status(told.state, {}, took_s=None))
    assert said[0] == "campaign told: check: looking for the drives"
    assert not any("time left" in line for line in said)


@pytest.mark.parametrize(("stop", "then"), [(False, "pauses"), (True, "ends")])
def test_a_pause_under_way_is_said(stop: bool, then: str) -> None:
    """While a campaign is about to pause or end, its status says so, and no time that is left."""
    state = CampaignState()
    told: list[Happening] = [Began(settings=settings_of(), check_only=False), PauseAsked(stop=stop)]
    for number, happening in enumerate(told, 1):
        state.apply(Entry(number=number, at_ns=number, boot_id="boot", wall="", happening=happening))
    said = list(status(state, {}, took_s=None))
    assert said[1] == f"it {then} as soon as its machines are on and its file systems unmounted"
    assert not any("time left" in line for line in said)
    assert status_value(state, {}, took_s=None)["left_s"] is None
    state.apply(Entry(number=3, at_ns=3, boot_id="boot", wall="", happening=Paused(reason="")))
    assert not any("as soon as" in line for line in status(state, {}, took_s=None))


def test_losses_by_arm_have_their_interval() -> None:
    """If a drive loses data in only one arm, that arm is listed with the interval of its loss rate."""
    world = World(settings_of(drives=("b",), switches=1, arms=("load", "again"), cuts=4, stop_at="end"))
    world.words = ["durable", "loss", "durable", "loss"]
    assert world.finish() == "complete"
    lines = list(page(world.server.state, {}, took_s=None, bars="12345678", health=False))
    told = lines[lines.index("Losses by arm, and how many cuts lose data (95 % confidence):") + 1 :]
    arm = next(one for one in results(world.server.state)[0].arms if one.tally.losses)
    assert told[0] == f"  d0, arm {arm.arm}: 2 of 2 cuts, 15 % to 100 %"
    assert not told[1].startswith("  d0, arm")


def test_the_time_left_is_a_value() -> None:
    """The JSON of `status` has the time left in seconds."""
    state = CampaignState()
    state.apply(
        Entry(
            number=1,
            at_ns=1,
            boot_id="boot",
            wall="",
            happening=Began(settings=settings_of(), check_only=False),
        )
    )
    (arm,) = settings_of().arms
    assert status_value(state, {}, took_s={arm.name: 100.0})["left_s"] == 100.0 * settings_of().cuts


@pytest.mark.parametrize("reason", ["", "machine b did not come back"])
def test_a_check_that_was_paused_did_not_fail(reason: str) -> None:
    """It says what to type, and that the campaign still has its machines."""
    told = ToldCampaign()
    told.begin(told_settings(), check_only=True)
    told.note()
    told.say()
    told.add(PauseAsked(stop=False), Paused(reason=reason))
    assert list(checked(told.state, (told.state.reason,))) == [
        f"Check paused: {reason or 'an operator asked for it'}.",
        "  No other campaign can have b before this one ends.",
        "  `durability campaign resume told` makes the check again, `... stop told` ends it.",
    ]


def test_a_machine_without_power_is_not_said_to_be_silent() -> None:
    """Its long rest is on purpose; in its boot after that the silence is said again."""
    told = begun()
    told.say(part("armed", run=RUN))
    told.note()
    silent_s = {"b": 86_400.0}
    said = f"machine b has not reported for {silent_s['b']:.0f} s"
    assert said in status(told.state, silent_s, took_s=None)
    told.add(PowerAsked(switch=0, operation="off"), PowerWentOff(asked_ns=1, confirmed_ns=2, runs=(RUN,)))
    assert said not in status(told.state, silent_s, took_s=None)
    told.add(PowerAsked(switch=0, operation="on"), PowerCameBack())
    assert said in status(told.state, silent_s, took_s=None)


@pytest.mark.parametrize(
    ("in_s", "line"), [(0.0, "writers get no more credit"), (10.0, "writers get no credit; cut in 10.0 s")]
)
def test_writers_that_are_held_are_not_said_to_have_stopped(in_s: float, line: str) -> None:
    """A log that began before they were waited for has the time of the cut although they may still write."""
    held = WritersHeld(in_s=in_s)
    entry = Entry(number=3, at_ns=3, boot_id="boot", wall="2026-11-28T05:00:00Z", happening=held)
    assert entry_line(entry) == f"2026-11-28T05:00:00Z  {line}"
