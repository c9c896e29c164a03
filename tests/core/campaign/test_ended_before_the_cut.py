"""Runs that were over when the power went: a clean end is no cut, whatever the arm asks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from durability.campaign.log_entries import (
    Checked,
    CycleEnded,
    DriveCycle,
    Entry,
    MachineSeen,
    PowerAsked,
    PowerCameBack,
    PowerWentOff,
    WritersHeld,
)
from durability.campaign.results import results
from tests.core.campaign.campaign_world import World, settings_of, until_phase, words
from tests.core.campaign.told_campaign import (
    RUN,
    S,
    ToldCampaign,
    condition,
    judged,
    part,
    told_settings,
)

STOPPED = "the run had been stopped before the power went"
CLOSED = "the run's client had ended before the power went"
PERHAPS = (
    "machine b restarted, and it is not known whether before or after the power of the drive went: perhaps"
    " its run met no cut"
)


def said_of(
    moment: str, reasons: tuple[str, ...], *, subject: str = "machine"
) -> tuple[ToldCampaign, DriveCycle]:
    """What a cycle says of a drive without a counter, whose run ended as the reasons of its verdict say."""
    told = ToldCampaign()
    told.begin(replace(told_settings(moment=moment, subject=subject), cut_class="vm"))
    told.add(Checked(problems=()))
    told.note()
    told.say()
    told.say(part("armed", run=RUN, found=condition(unsafe=None)))
    told.note()
    if moment == "idle":
        told.add(WritersHeld(in_s=0.0), WritersHeld(in_s=10.0))
    told.cut()
    boot = "boot-2" if subject == "machine" else "boot-1"
    told.say(boot=boot)
    told.say(part("done", run=RUN, found=condition(unsafe=None, diskseq=2)), boot=boot)
    told.add(replace(judged("d0", RUN, "inconclusive", reasons=reasons), cut_class="vm"))
    (said,) = told.ended().drives
    return told, said


@pytest.mark.parametrize(("code", "text"), [("session-stopped", STOPPED), ("session-closed", CLOSED)])
@pytest.mark.parametrize("moment", ["load", "idle", "prefill"])
def test_machine_that_ended_its_run_in_order_was_not_cut(moment: str, code: str, text: str) -> None:
    """If the machine shut down cleanly, or the agent was killed before the switch was asked, the cycle does
    not count. The drive's bound stays valid."""
    never_armed = ("not-armed",) if moment == "prefill" else ()
    told, said = said_of(moment, (code, "nothing-at-risk", *never_armed))
    assert (said.word, said.cause, said.text) == ("nothing", "agent", text)
    (arm,) = results(told.state)[0].arms
    assert (arm.tally.cuts, arm.tally.unknown, arm.tally.bound, arm.kept) == (0, 0, None, 0)


@pytest.mark.parametrize("code", ["session-stopped", "session-closed"])
@pytest.mark.parametrize("moment", ["idle", "prefill"])
def test_what_hides_behind_an_end_in_order_voids_the_bound(moment: str, code: str) -> None:
    """A target that cannot be read may be the drive's doing."""
    told, said = said_of(moment, (code, "scan-unfinished"))
    assert (said.word, said.cause) == ("nothing", "inconclusive")
    assert results(told.state)[0].arms[0].tally.unknown == 1


@pytest.mark.parametrize(
    ("moment", "reasons"),
    [
        ("idle", ("nothing-at-risk", "cut-not-shown")),
        ("prefill", ("not-armed", "nothing-at-risk")),
        ("shutdown", ("session-stopped", "nothing-at-risk")),
        ("shutdown", ("session-closed", "nothing-at-risk", "cut-not-shown")),
    ],
)
def test_what_the_arm_itself_brings_about_is_kept(moment: str, reasons: tuple[str, ...]) -> None:
    """A shutdown stops the run; a run that ended in silence has only nothing at risk."""
    told, said = said_of(moment, reasons)
    assert (said.word, results(told.state)[0].kept) == ("kept", 1)


@pytest.mark.parametrize("code", ["session-stopped", "session-closed"])
@pytest.mark.parametrize("moment", ["idle", "prefill"])
def test_run_on_a_drive_that_is_cut_alone_may_end_in_order(moment: str, code: str) -> None:
    """Its agent lives on, and stops a run in its prefill after the cut."""
    never_armed = ("not-armed",) if moment == "prefill" else ()
    _, said = said_of(moment, (code, "nothing-at-risk", *never_armed), subject="drive")
    assert said.word == "kept"


def test_run_in_its_prefill_that_had_ended_before_the_switch_was_asked_is_not_kept() -> None:
    """Its drive is cut alone, so an end in order alone tells nothing; its agent said it before."""
    told = ToldCampaign()
    told.begin(replace(told_settings(moment="prefill", subject="drive"), cut_class="vm"))
    told.add(Checked(problems=()))
    told.note()
    told.say()
    told.say(part("armed", run=RUN, found=condition(unsafe=None)))
    told.note()
    told.say(part("ended", run=RUN, text="it was killed"))
    told.cut()
    told.say(part("done", run=RUN, found=condition(unsafe=None, diskseq=2)))
    codes = ("session-closed", "not-armed", "nothing-at-risk")
    told.add(replace(judged("d0", RUN, "inconclusive", reasons=codes), cut_class="vm"))
    (said,) = told.ended().drives
    assert (said.word, said.cause, said.text) == (
        "nothing",
        "agent",
        "its run ended before the cut: it was killed",
    )


def test_drive_that_vanishes_in_its_prefill_was_not_cut() -> None:
    """It is there again before it is cut alone, with no run on it. Found by a random campaign."""
    alone = settings_of(drives=("b", "b"), switches=1, subject="drive", arms=("prefill",), cuts=1)
    world = World(replace(alone, stop_at="loss"))
    until_phase(world, "run")
    for drive in ("d0", "d1"):
        world.vanish(drive)
        world.advance(5.0)
        world.gone.discard(drive)
    assert world.finish() == "complete"
    assert words(world)[0][1] == "nothing"


def test_machine_that_restarts_before_its_drive_is_cut_alone_ended_the_run() -> None:
    """The drive counted the power loss, but no run was under way by then: the machine crashes while the
    switch is asked, before that has done it. Found by a random campaign."""
    alone = settings_of(drives=("b",), switches=1, subject="drive", arms=("prefill",), cuts=1)
    world = World(alone, counts=True)
    until_phase(world, "off")
    world.machines["b"].crash()
    assert world.finish() == "complete"
    assert words(world) == [["nothing"], ["kept"]]
    (first, _) = (past for past in world.server.state.cycles if past.began.cycle)
    assert first.drives[0].text == PERHAPS


def restarted(*, up_s: float, server: str = "server") -> ToldCampaign:
    """A campaign whose drive is cut alone: asked for at 100 s, off at 110 s. The machine starts anew, and is
    heard at 130 s, after so long, in this boot of the server's machine."""
    told = ToldCampaign()
    told.begin(replace(told_settings(moment="idle", subject="drive"), cut_class="vm"))
    told.add(Checked(problems=()))
    told.note()
    told.say()
    told.say(part("armed", run=RUN, found=condition(unsafe=None)))
    told.note()
    told.now_ns = 99 * S
    told.add(PowerAsked(switch=0, operation="off"))
    told.now_ns = 110 * S
    told.add(PowerWentOff(asked_ns=100 * S, confirmed_ns=110 * S, runs=(RUN,)))
    told.add(PowerAsked(switch=0, operation="on"), PowerCameBack())
    told.now_ns = 129 * S
    seen = MachineSeen(
        machine="b",
        boot_id="boot-2",
        machine_id="b",
        uptime_s=up_s,
        virtualisation="none",
        software="",
        client="client-b",
    )
    number = told.state.number + 1
    told.state.apply(Entry(number=number, at_ns=130 * S, boot_id=server, wall=told.wall, happening=seen))
    told.booted_ns["b", "boot-2"] = int((130 - up_s) * S)
    told.say(part("done", run=RUN, found=condition(unsafe=None, diskseq=2)), boot="boot-2")
    told.add(replace(judged("d0", RUN, "inconclusive", reasons=("nothing-at-risk",)), cut_class="vm"))
    return told


@pytest.mark.parametrize(
    ("up_s", "server", "text"),
    [
        (31.0, "server", "machine b restarted before the power of the drive went"),
        (29.0, "server", PERHAPS),
        (21.0, "server", PERHAPS),
        (19.0, "server", None),
        (31.0, "its next boot", PERHAPS),
        (1.0, "its next boot", PERHAPS),
    ],
)
def test_restart_of_a_machine_is_not_blamed_before_the_switch_was_asked(
    up_s: float, server: str, text: str | None
) -> None:
    """A cycle is left out if the machine restarted before the switch was asked, or possibly before it was
    off: during the request, or by the clock of another server boot. A later restart does not matter."""
    (said,) = restarted(up_s=up_s, server=server).ended().drives
    expected = ("kept", None, "") if text is None else ("nothing", "agent", text)
    assert (said.word, said.cause, said.text) == expected


def test_machine_that_is_heard_again_before_its_run_is_known_to_be_cut_is_left_out() -> None:
    """It was up again before the switch confirmed that it is off: it panicked, or restarted by itself."""
    told = ToldCampaign()
    told.begin(replace(told_settings(moment="idle", subject="drive"), cut_class="vm"))
    told.add(Checked(problems=()))
    told.note()
    told.say()
    told.say(part("armed", run=RUN, found=condition(unsafe=None)))
    told.note()
    told.add(PowerAsked(switch=0, operation="off"))
    told.now_ns += 30 * S
    told.say(boot="boot-2", up_s=10.0)
    told.add(PowerWentOff(asked_ns=told.now_ns - 31 * S, confirmed_ns=told.now_ns, runs=(RUN,)))
    told.add(PowerAsked(switch=0, operation="on"), PowerCameBack())
    told.say(part("done", run=RUN, found=condition(unsafe=None, diskseq=2)), boot="boot-2")
    told.add(replace(judged("d0", RUN, "inconclusive", reasons=("nothing-at-risk",)), cut_class="vm"))
    (said,) = told.ended().drives
    assert (said.word, said.cause, said.text) == ("nothing", "agent", PERHAPS)


def test_cycle_that_an_earlier_release_ended_keeps_what_it_said() -> None:
    """Its log has the word of each cycle, and is read as it stands."""
    told = restarted(up_s=31.0, server="its next boot")
    kept = DriveCycle(drive="d0", word="kept", cause=None, text="", run=RUN, cut=True)
    told.add(CycleEnded(cycle=1, drives=(kept,)))
    assert results(told.state)[0].kept == 1
