"""What a campaign makes of cuts that are not under load, of machines with two supplies, and of machines that
stay away beside another one that was not cut."""

from __future__ import annotations

from dataclasses import replace

import pytest

from durability import limits
from durability.campaign.between_cycles import ENTRIES_KEPT
from durability.campaign.log_entries import (
    Abandoned,
    Checked,
    CutDue,
    CycleBegan,
    CycleEnded,
    Ended,
    NotBack,
    PauseAsked,
    Paused,
    ShutdownDue,
    StillThere,
    WritersHeld,
)
from durability.campaign.results import results
from durability.campaign.steps import Ask, LookUp, Note, UnlessStill, WaitFor, WhenStill
from durability.campaign.tasks import Condition
from tests.core.campaign.told_campaign import (
    OTHER_RUN,
    RUN,
    S,
    ToldCampaign,
    begun,
    condition,
    cut_under_load,
    judged,
    part,
    told_settings,
)


def judged_after(
    told: ToldCampaign,
    *,
    at_risk: int = 0,
    other_clock: bool = False,
    verdict: str,
    reasons: tuple[str, ...],
) -> str:
    """Word and cause of the drive, whose run gets this verdict after its machine has started again."""
    told.say(boot="boot-2")
    told.say(part("done", run=RUN), boot="boot-2")
    (look_up,) = told.steps()
    assert isinstance(look_up, LookUp)
    said = judged("d0", RUN, verdict, reasons=reasons)
    told.add(replace(said, at_risk_ms1000=at_risk, other_clock=other_clock))
    (drive,) = told.ended().drives
    return f"{drive.word} {drive.cause or ''}".strip()


@pytest.mark.parametrize(
    ("at_risk", "verdict", "reasons", "deserved"),
    [
        (0, "inconclusive", ("nothing-at-risk",), "kept"),
        (40, "durable", (), "nothing not-armed"),
        (40, "inconclusive", ("cut-class",), "nothing not-armed"),
        (40, "inconclusive", ("scan-unfinished",), "nothing inconclusive"),
        (40, "loss", ("findings",), "loss"),
    ],
)
def test_writers_that_still_had_credit_were_not_idle(
    at_risk: int, verdict: str, reasons: tuple[str, ...], deserved: str
) -> None:
    """A slow drive writes on for longer than `idle_s`: its cut says nothing of a drive at rest."""
    told = cut_under_load(moment="idle")
    assert judged_after(told, at_risk=at_risk, verdict=verdict, reasons=reasons) == deserved


@pytest.mark.parametrize(
    ("subject", "reasons", "deserved"),
    [
        ("machine", ("session-closed",), "nothing agent"),
        ("machine", ("session-closed", "scan-unfinished"), "nothing inconclusive"),
        ("drive", ("session-closed",), "nothing inconclusive"),
        ("machine", ("session-stopped", "nothing-at-risk"), "nothing agent"),
        ("machine", ("session-stopped", "unstable"), "nothing inconclusive"),
        ("drive", ("session-stopped",), "nothing inconclusive"),
        ("machine", ("session-server-down", "nothing-at-risk"), "nothing agent"),
        ("drive", ("session-server-down",), "nothing agent"),
        ("machine", ("session-server-down", "scan-unfinished"), "nothing inconclusive"),
    ],
)
def test_client_that_ended_just_before_the_cut(subject: str, reasons: tuple[str, ...], deserved: str) -> None:
    """The agent was killed or stopped, and its runs with it, too late for the next one to say so; or the
    server restarted. What a drive that was cut alone did to its client is not known."""
    told = cut_under_load(subject=subject)
    assert judged_after(told, verdict="inconclusive", reasons=reasons) == deserved


@pytest.mark.parametrize(
    ("other_clock", "reasons", "deserved"),
    [
        (True, ("nothing-at-risk",), "nothing agent"),
        (True, ("nothing-at-risk", "scan-unfinished"), "nothing inconclusive"),
        (True, ("findings",), "loss"),
        (False, ("nothing-at-risk",), "nothing inconclusive"),
    ],
)
def test_run_at_a_server_with_another_clock_voids_no_bound(
    other_clock: bool, reasons: tuple[str, ...], deserved: str
) -> None:
    """If the run's server has another clock than the server that asked the switches, no data is known to be
    at risk with any drive. This voids no bound, but a loss still counts."""
    told = cut_under_load()
    verdict = "loss" if deserved == "loss" else "inconclusive"
    found = judged_after(told, other_clock=other_clock, verdict=verdict, reasons=reasons)
    assert found == deserved
    (result,) = results(told.state)
    assert result.tally.unknown == (deserved == "nothing inconclusive")


@pytest.mark.parametrize(
    ("moment", "cut_class", "deserved"),
    [
        ("load", "power", "durable"),
        ("load", "vm", "nothing inconclusive"),
        ("load", "os", "nothing inconclusive"),
        ("load", "", "nothing inconclusive"),
        ("prefill", "os", "kept"),
    ],
)
def test_durable_of_a_weaker_class_does_not_count(moment: str, cut_class: str, deserved: str) -> None:
    """Under load, a durable verdict of a weaker class than the campaign's does not count. In a prefill, data
    count as kept without that class."""
    told = cut_under_load(moment=moment)
    told.say(boot="boot-2")
    told.say(part("done", run=RUN), boot="boot-2")
    reasons = ("not-armed", "nothing-at-risk") if moment == "prefill" else ()
    told.add(replace(judged("d0", RUN, "durable", reasons=reasons), cut_class=cut_class))
    (said,) = told.ended().drives
    assert f"{said.word} {said.cause or ''}".strip() == deserved


@pytest.mark.parametrize(
    ("reasons", "deserved"),
    [
        (("session-stopped", "attestation-contradicted", "cut-class", "nothing-at-risk"), "kept"),
        (("session-stopped", "cut-class", "nothing-at-risk"), "kept"),
        (("session-stopped", "attestation-contradicted", "scan-unfinished"), "nothing inconclusive"),
    ],
)
def test_drive_that_counts_no_normal_end_is_kept(reasons: tuple[str, ...], deserved: str) -> None:
    """After a clean shutdown its count of unsafe shutdowns stays, and rightly."""
    told = begun(moment="shutdown")
    told.say(part("armed", run=RUN))
    assert isinstance(told.note(), CutDue)
    assert isinstance(told.note(later_s=100), ShutdownDue)
    told.say(part("done"))
    told.cut()
    assert judged_after(told, verdict="inconclusive", reasons=reasons) == deserved


def attached(diskseq: int | None, *, unsafe: int | None = None) -> Condition:
    """What a drive says of itself after the cut; before it was attached first."""
    return replace(condition(unsafe=unsafe), diskseq=diskseq)


def test_cut_in_the_prefill_is_kept() -> None:
    """The verdict has what such a run has: it was never armed, and no facts at arming show a cut."""
    told = cut_under_load(moment="prefill")
    reasons = ("not-armed", "cut-not-shown", "nothing-at-risk")
    assert judged_after(told, verdict="inconclusive", reasons=reasons) == "kept"


@pytest.mark.parametrize(
    ("subject", "before", "after", "deserved"),
    [
        ("drive", condition(unsafe=None), attached(2), "kept"),
        ("drive", condition(unsafe=None), attached(1), "nothing not-a-cut"),
        ("drive", condition(unsafe=None), attached(None), "nothing not-a-cut"),
        ("drive", condition(unsafe=None), None, "nothing not-a-cut"),
        ("drive", condition(unsafe=5), attached(1, unsafe=6), "kept"),
        ("drive", condition(unsafe=5), attached(2, unsafe=5), "nothing not-a-cut"),
        ("machine", condition(unsafe=5), attached(1, unsafe=5), "nothing not-a-cut"),
        ("machine", condition(unsafe=5), attached(1, unsafe=6), "kept"),
        ("machine", condition(unsafe=None), attached(1), "kept"),
        ("machine", None, None, "kept"),
    ],
)
@pytest.mark.parametrize("judge", [True, False])
def test_prefill_counts_only_if_the_drive_was_cut(
    subject: str, before: Condition | None, after: Condition | None, deserved: str, judge: bool
) -> None:
    """The verdict compares no facts of a run that was never armed, so a welded relay would make cuts of all
    its cycles."""
    told = begun(moment="prefill", subject=subject)
    told.say(part("armed", run=RUN, found=before))
    told.note()
    told.cut()
    boot = "boot-1" if subject == "drive" else "boot-2"
    told.say(boot=boot)
    told.say(part("done", run=RUN, found=after), boot=boot)
    reasons = ("not-armed", "cut-not-shown", "nothing-at-risk") if judge else ()
    told.judge(verdict="inconclusive" if judge else "", reasons=reasons)
    (said,) = told.ended().drives
    assert f"{said.word} {said.cause or ''}".strip() == deserved


def test_drive_that_is_new_as_its_machine_restarted_was_not_cut() -> None:
    """The relay did nothing, and the machine crashed meanwhile."""
    told = begun(moment="prefill", subject="drive")
    told.say(part("armed", run=RUN, found=condition(unsafe=None)))
    told.note()
    told.cut()
    told.say(boot="boot-2")
    told.say(part("done", run=RUN, found=attached(2)), boot="boot-2")
    told.judge(verdict="inconclusive", reasons=("not-armed", "cut-not-shown", "nothing-at-risk"))
    assert [mine.cause for mine in told.ended().drives] == ["not-a-cut"]


def cycle_of(told: ToldCampaign, number: int, *, contradicted: bool = False, restarts: bool = False) -> None:
    """A cycle of an arm under load or with a shutdown: as it should be, or its cut is contradicted by a
    counter, or its machine restarts before it."""
    run, boots = f"{number:016x}", (f"boot-{2 * number}", f"boot-{2 * number + 1}")
    assert isinstance(told.note(), CycleBegan)
    told.say(boot=boots[0])
    told.say(part("armed", run=run), boot=boots[0])
    assert isinstance(told.note(), CutDue)
    if restarts:
        told.say(boot=boots[1])
        assert isinstance(told.note(), Abandoned)
    else:
        if isinstance(told.steps(later_s=100)[0], Note):
            assert isinstance(told.note(later_s=100), ShutdownDue)
            told.say(part("done"), boot=boots[0])
        told.cut()
        told.say(boot=boots[1])
    told.say(part("done", run=run), boot=boots[1])
    reasons = ("attestation-contradicted",) if contradicted else ("session-stopped", "nothing-at-risk")
    told.judge(verdict="inconclusive", reasons=reasons)
    told.ended()


@pytest.mark.parametrize(("between", "word"), [("shutdown", "kept"), ("load", "nothing")])
def test_what_shows_no_cut_does_not_hide_those_that_were_none(between: str, word: str) -> None:
    """The switch only resets its machine, as the drive's counter tells under load. A cycle with a shutdown
    cannot show that, nor can one whose machine restarts before its cut."""
    told = ToldCampaign()
    told.begin(told_settings(moments=("load", between, "load")))
    told.add(Checked(problems=()))
    cycle_of(told, 1, contradicted=True)
    cycle_of(told, 2, restarts=between == "load")
    cycle_of(told, 3, contradicted=True)
    assert [past.drives[0].word for past in told.state.cycles] == ["nothing", word, "nothing"]
    paused = told.note()
    assert isinstance(paused, Paused)
    assert paused.reason.startswith("the last 2 cuts did not remove power: d0: ")


def test_no_cycle_begins_that_the_log_may_not_have_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The campaign ends before a cycle whose entries might not fit in the log; otherwise its result could be
    lost and the power stay off."""
    told = cut_under_load()
    monkeypatch.setattr(limits, "CAMPAIGN_ENTRIES_MAX", told.state.number + ENTRIES_KEPT)
    assert judged_after(told, verdict="durable", reasons=()) == "durable"
    over = told.note()
    assert isinstance(over, Ended) and "almost the maximum" in over.reason


def two_machines() -> ToldCampaign:
    """Two machines with a switch and an armed run each."""
    told = begun(machines=("b", "c"), devices=("/dev/sdb", "/dev/sdc"))
    told.say(part("armed", run=RUN))
    told.say(part("armed", drive="d1", run=OTHER_RUN), machine="c")
    assert isinstance(told.note(), CutDue)
    return told


def test_machine_that_stays_away_is_not_excused_by_another_one() -> None:
    """The outlet of b is a wrong one, and b goes on. Of c nothing is heard since its switch confirmed the
    off: its drive may keep it from its start, so the outcome of its cut is unknown."""
    told = two_machines()
    told.cut()
    told.add(StillThere(machine="b", text="machine b kept running"))
    told.say(part("done", run=RUN))
    told.add(PauseAsked(stop=True))
    silent = {"b": 0.0, "c": 2000.0}
    while isinstance(step := told.steps_after_looks(later_s=2000, silent=silent)[0], LookUp):
        told.add(judged(step.drive, step.run, "durable" if step.drive == "d0" else ""))
    over = told.note(later_s=2000, silent=silent)
    assert isinstance(over, CycleEnded)
    first, second = over.drives
    assert (first.word, first.cause, first.cut) == ("nothing", "not-a-cut", False)
    assert (second.word, second.cause, second.cut) == ("nothing", "no-verdict", True)
    assert results(told.state)[1].tally.unknown == 1


def test_machine_that_went_on_as_well_was_not_cut() -> None:
    """Both outlets are wrong ones; c is heard after b, without a new boot."""
    told = two_machines()
    told.cut()
    told.add(StillThere(machine="b", text="machine b kept running"))
    told.say(part("done", run=RUN))
    told.say(part("done", drive="d1", run=OTHER_RUN), machine="c")
    told.judge(verdict="durable")
    assert [(mine.cause, mine.cut) for mine in told.ended().drives] == [("not-a-cut", False)] * 2


def test_one_of_two_supplies_keeps_a_machine_going() -> None:
    """Machine c has a supply of its own beside the one that it shares with b. b does not come back, and is
    switched off once more: c goes on meanwhile, and its cut of before counts."""
    settings = told_settings(machines=("b", "c"), devices=("/dev/sdb", "/dev/sdc"))
    told = ToldCampaign()
    told.begin(replace(settings, power=(replace(settings.power[0], machine="b c"), settings.power[1])))
    told.add(Checked(problems=()))
    told.note()
    told.say()
    told.say(machine="c")
    told.say(part("armed", run=RUN))
    told.say(part("armed", drive="d1", run=OTHER_RUN), machine="c")
    assert isinstance(told.note(), CutDue)
    told.cut()
    told.say(machine="c", boot="boot-2")
    told.say(part("working", drive="d1", run=OTHER_RUN), machine="c", boot="boot-2")
    told.add(NotBack(machine="b"))
    told.cut(0)
    assert told.task("c").kind == "verify"
    told.now_ns += 10_000_000_000
    told.say(part("done", drive="d1", run=OTHER_RUN), machine="c", boot="boot-2")
    told.say(boot="boot-2")
    told.say(part("done", run=RUN), boot="boot-2")
    told.judge(verdict="durable")
    assert [(mine.word, mine.cut) for mine in told.ended().drives] == [("durable", True)] * 2


def test_writers_that_never_stop_are_not_cut_at_idle() -> None:
    """The power goes `idle_s` after the last of them has stopped, however long that takes; after an hour it
    stays on. A run that is over holds nothing up."""
    told = begun(moment="idle", devices=("/dev/sdb", "/dev/sdc"))
    told.say(part("armed", run=RUN), part("armed", drive="d1", run=OTHER_RUN))
    assert isinstance(told.note(), CutDue)
    assert told.note(later_s=100) == WritersHeld(in_s=0)
    told.say(part("armed", run=RUN), part("ended", drive="d1", run=OTHER_RUN))
    stopped = WritersHeld(in_s=10)
    assert told.steps(later_s=3500) == [WhenStill((RUN,), stopped)]
    (late,) = told.steps(later_s=3700)
    assert isinstance(late, Note) and isinstance(late.happening, Abandoned)
    told.add(stopped)
    held = WritersHeld(in_s=0)
    assert told.steps(later_s=9) == [UnlessStill((RUN,), held), WaitFor(1.0)]
    assert told.steps(later_s=10) == [UnlessStill((RUN,), held), Ask(0, "off")]
    told.add(held)  # it came back to a server, with new credit
    assert told.steps(later_s=3500) == [WhenStill((RUN,), stopped)]


@pytest.mark.parametrize("idle_s", [10.0, 7200.0])
def test_writers_that_come_back_again_and_again_are_not_held_without_end(idle_s: float) -> None:
    """The writers must stop within an hour from when they were first held, plus one idle time, even if runs
    come back again and again."""
    told = ToldCampaign()
    settings = told_settings(moment="idle")
    (arm,) = settings.arms
    told.begin(replace(settings, arms=(replace(arm, idle_s=idle_s),)))
    told.add(Checked(problems=()))
    told.note()
    told.say()
    told.say(part("armed", run=RUN))
    assert isinstance(told.note(), CutDue)
    told.now_ns += 200 * S
    began_ns = told.now_ns
    told.add(WritersHeld(in_s=0))
    back_s = 0.9 * idle_s
    for _ in range(2000):
        (step,) = told.steps(later_s=3)
        if isinstance(step, Note):
            break
        assert step == WhenStill((RUN,), WritersHeld(in_s=idle_s))
        told.now_ns += 3 * S
        told.add(step.happening)
        assert told.steps(later_s=back_s)[0] == UnlessStill((RUN,), WritersHeld(in_s=0))
        told.now_ns += int(back_s * S)
        told.add(WritersHeld(in_s=0))
    given_up = told.note(later_s=3)
    assert isinstance(given_up, Abandoned) and "still wrote after" in given_up.text
    assert 3600 + idle_s <= (told.now_ns - began_ns) / S <= 3600 + 2 * idle_s + 60


def test_each_server_holds_the_writers_before_their_credit_is_looked_at() -> None:
    """An idle cut waits 2 s for all servers to hold the writers, because the stored credit may be older than
    that."""
    told = begun(moment="idle")
    told.say(part("armed", run=RUN))
    told.note()
    told.note(later_s=100)
    assert told.steps(later_s=1.5) == [WaitFor(0.5)]
    assert told.steps(later_s=2) == [WhenStill((RUN,), WritersHeld(in_s=10))]
