"""What of a cycle counts: runs that were armed and cut, and verdicts whatever was found later."""

from __future__ import annotations

from dataclasses import replace

import pytest

from durability.campaign.assignments import run_claimed, without_run
from durability.campaign.log_entries import (
    Abandoned,
    Checked,
    CutDue,
    CycleBegan,
    CycleEnded,
    DriveCycle,
    DriveLeft,
    Ended,
    OutcomeWord,
    PauseAsked,
    Paused,
    Resumed,
    ShutdownDue,
)
from durability.campaign.results import DriveResult, results, sentence, tally
from durability.campaign.steps import Ask, LookUp
from durability.campaign.tasks import DriveStatus, Status, WorkState
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

# Runs that the machine may not name.


def test_run_that_is_refused_is_a_trouble_and_no_run() -> None:
    """The server does not know the run that an agent names: the drive's part has failed, with the reason, and
    the cycle ends."""
    told = begun()
    status = Status(
        boot_id="boot-1",
        machine_id="b",
        uptime_ns=1,
        virtualisation="none",
        software="",
        task=told.task().number,
        drives=(part("armed", run="not a run"),),
        campaign=told.state.plan.name,
    )
    assert list(run_claimed(told.state, "b", status)) == [("d0", "not a run")]
    (refused,) = without_run(status, "d0", "the agent named a run that is not its own").drives
    assert (refused.state, refused.trouble, refused.run) == ("failed", "agent", "")
    told.say(refused)
    assert told.state.cycle is not None and told.state.cycle.runs == {}
    given_up = told.note()
    assert isinstance(given_up, Abandoned) and given_up.cause == "not-armed"
    (mine,) = told.ended().drives
    assert (mine.word, mine.cause, mine.text) == (
        "nothing",
        "not-armed",
        "the agent named a run that is not its own",
    )


def test_one_run_is_not_the_cut_of_two_drives() -> None:
    """An agent names the same run for both of its drives: only one cut was judged."""
    told = begun(devices=("/dev/sdb", "/dev/sdc"))
    told.say(part("armed", run=RUN), part("armed", drive="d1", run=RUN))
    told.note()
    told.cut()
    told.say(boot="boot-2")
    told.say(part("done", run=RUN), part("done", drive="d1", run=RUN), boot="boot-2")
    told.judge(verdict="durable")
    assert [(mine.drive, mine.word) for mine in told.ended().drives] == [("d0", "durable"), ("d1", "nothing")]


def test_run_that_ended_before_it_was_heard_of_is_verified() -> None:
    """A run that ended before it was reported as armed is verified, so that the next one may begin. It does
    not count as a cut."""
    told = begun()
    told.say(part("ended", run=RUN, text="the agent was restarted"))
    given_up = told.note()
    assert isinstance(given_up, Abandoned)
    (mine,) = told.task().drives
    assert (told.task().kind, mine.run) == ("verify", RUN)
    told.say(part("done", run=RUN))
    told.judge(verdict="inconclusive", reasons=("session-closed", "cut-not-shown"))
    (said,) = told.ended().drives
    assert (said.word, said.cut) == ("nothing", False)


# Only what was armed counts.


def test_prefill_waits_for_every_drive() -> None:
    """One drive is at work and the other one not yet: no cut is due."""
    told = begun(devices=("/dev/sdb", "/dev/sdc"), moment="prefill")
    told.say(part("working"), part("working", drive="d1"))
    assert not any(isinstance(step, Ask) or "CutDue" in str(step) for step in told.steps())


def test_prefill_of_a_drive_that_did_not_begin_is_not_kept() -> None:
    """One drive is in use and does not begin, so its cycle is left out. The other drive's run is cut in its
    prefill and kept."""
    told = begun(devices=("/dev/sdb", "/dev/sdc"), moment="prefill")
    told.say(part("armed", run=RUN), part("failed", drive="d1", trouble="in-use", text="it is mounted"))
    assert isinstance(told.note(), CutDue)
    told.cut()
    told.say(boot="boot-2")
    assert [mine.run for mine in told.task().drives] == [RUN, ""]
    told.say(part("done", run=RUN), part("done", drive="d1"), boot="boot-2")
    told.judge(verdict="inconclusive", reasons=("not-armed", "nothing-at-risk"))
    kept, unfit = told.ended().drives
    assert (kept.word, kept.cut) == ("kept", True)
    assert (unfit.word, unfit.cause, unfit.text) == ("nothing", "drive", "it is mounted")
    first, second = results(told.state)
    assert (first.kept, first.arms[0].tally.cuts, second.kept, second.arms[0].left_out) == (1, 1, 0, 1)


@pytest.mark.parametrize("verdict", [("durable", ()), ("inconclusive", ("nothing-at-risk",))])
def test_prefill_that_was_over_is_left_out(verdict: tuple[str, tuple[str, ...]]) -> None:
    """The run had been armed when the power went, so it was no cut in the prefill."""
    told = cut_under_load(moment="prefill")
    told.say(boot="boot-2")
    told.say(part("done", run=RUN), boot="boot-2")
    told.judge(verdict=verdict[0], reasons=verdict[1])
    (said,) = told.ended().drives
    assert (said.word, said.cause) == ("nothing", "not-armed")


def test_run_that_ended_while_others_went_on_was_not_cut() -> None:
    """The power goes for the sake of the other drive: the one whose run had ended before is not counted as
    clean."""
    told = begun(devices=("/dev/sdb", "/dev/sdc"))
    told.say(part("armed", run=RUN), part("armed", drive="d1", run=OTHER_RUN))
    told.note()
    told.say(part("ended", run=RUN, text="it was killed"), part("armed", drive="d1", run=OTHER_RUN))
    told.cut()
    told.say(boot="boot-2")
    told.say(part("done", run=RUN), part("done", drive="d1", run=OTHER_RUN), boot="boot-2")
    told.judge(verdict="durable")
    ended, cut = told.ended().drives
    assert (ended.word, ended.cause) == ("nothing", "agent")
    assert ended.text == "its run ended before the cut: it was killed"
    assert cut.word == "durable"


@pytest.mark.parametrize("others", [False, True])
def test_drive_that_dies_under_load_is_a_word_on_the_drive(others: bool) -> None:
    """A drive that fails with its power on is left out with cause `drive` and its error. After two such
    cycles it is no longer tested; without other drives, the campaign pauses."""
    told = begun(devices=("/dev/sdb", "/dev/sdc") if others else ("/dev/sdb",))
    for cycle in (1, 2):
        run, other = f"{cycle:016x}", part("armed", drive="d1", run=f"{cycle:015x}f")
        told.say(part("armed", run=run), *((other,) if others else ()), boot=f"boot-{cycle}")
        told.note()
        ended = part("ended", run=run, text="the run ended")
        told.say(ended, *((other,) if others else ()), boot=f"boot-{cycle}")
        boot = f"boot-{cycle}"
        if others:
            told.cut()
            boot = f"boot-{cycle + 1}"
            told.say(boot=boot)
        else:
            assert isinstance(told.note(), Abandoned)
        verified = part("done", drive="d1", run=other.run)
        told.say(part("done", run=run), *((verified,) if others else ()), boot=boot)
        told.judge(verdict="inconclusive", reasons=("session-client-error",), target_error="write: EIO")
        said = told.ended().drives[0]
        assert (said.word, said.cause) == ("nothing", "drive")
        assert said.text == "it failed under load, with its power on: write: EIO"
        if cycle == 1:
            told.note()
            told.say(boot=boot)
    left = told.note()
    assert isinstance(left, DriveLeft if others else Paused) and "EIO" in left.reason


def test_campaign_pauses_if_no_drive_is_fit() -> None:
    """The campaign pauses after two cycles in which no drive could be tested; no drive leaves. After the
    pause, each drive has two cycles again."""
    told = begun(devices=("/dev/sdb", "/dev/sdc"))
    for _ in range(2):
        for _ in range(2):
            missing = (part("failed", drive=drive, trouble="missing", text="gone") for drive in ("d0", "d1"))
            told.say(*missing)
            assert isinstance(told.note(), Abandoned)
            assert {mine.cause for mine in told.ended().drives} == {"drive"}
            then = told.note()
        assert isinstance(then, Paused)
        assert then.reason == "no drive could be tested in the last 2 cycles: gone"
        told.add(Resumed())
        assert isinstance(told.note(), CycleBegan)


def test_machine_that_is_not_back_shows_nothing() -> None:
    """If the campaign is stopped while a machine is away, a verdict on its run does not count as the outcome
    of this cut."""
    told = cut_under_load(moment="idle")
    told.add(PauseAsked(stop=True))
    assert told.steps_after_looks(later_s=121, silent_s=121) == [LookUp("d0", RUN)]
    told.add(judged("d0", RUN, "inconclusive", reasons=("nothing-at-risk",)))
    over = told.note(silent_s=121)
    assert isinstance(over, CycleEnded)
    (said,) = over.drives
    assert (said.word, said.cause, said.cut) == ("nothing", "no-verdict", True)
    assert said.text == "machine b did not come back"


def test_release_names_a_run_only_once_the_campaign_is_over() -> None:
    """A release in a pause names no run, because other runs may be made by hand on the same path
    meanwhile."""
    told = begun()
    told.say(part("armed", run=RUN))
    told.note()
    told.cut()
    told.say(boot="boot-2")
    told.say(part("done", run=RUN), boot="boot-2")
    told.judge(verdict="durable")
    told.add(PauseAsked(stop=False))
    told.ended()
    assert isinstance(told.note(), Paused)
    assert [(told.task().kind, mine.run) for mine in told.task().drives] == [("release", "")]
    told.add(PauseAsked(stop=True))
    assert isinstance(told.note(), Ended)
    assert [(told.task().kind, mine.run) for mine in told.task().drives] == [("release", RUN)]


def test_prefill_whose_drive_hangs_in_its_mount_is_not_kept() -> None:
    """People stop the campaign as the mount never ends: the drive did not come back, and that voids the bound
    of the arm."""
    told = cut_under_load(moment="prefill")
    told.say(boot="boot-2")
    told.say(part("working", run=RUN, text="mounting"), boot="boot-2")
    assert isinstance(told.note(later_s=3 * 86_400), Paused)
    told.add(PauseAsked(stop=True))
    (look_up,) = told.steps(later_s=3 * 86_400)
    assert isinstance(look_up, LookUp)
    told.add(judged("d0", RUN, ""))
    over = told.note(later_s=3 * 86_400)
    assert isinstance(over, CycleEnded)
    assert [(mine.word, mine.cause) for mine in over.drives] == [("nothing", "no-verdict")]
    assert results(told.state)[0].arms[0].tally.unknown == 1


def test_runs_do_not_write_on_while_a_machine_is_missing() -> None:
    """One run is armed and the other machine is away: the campaign pauses, but lets the run end first."""
    told = begun(machines=("b", "c"), devices=("/dev/sdb", "/dev/sdc"))
    told.say(part("armed", run=RUN))
    given_up = told.note(later_s=200, silent={"b": 0.0, "c": 200.0})
    assert isinstance(given_up, Abandoned) and given_up.cause == "agent"
    assert told.task().kind == "verify"
    told.say(part("done", run=RUN))
    told.judge(verdict="durable")
    paused = told.note(later_s=200, silent={"b": 0.0, "c": 400.0})
    assert isinstance(paused, Paused)
    assert paused.reason.startswith("machine c has not asked for its task for 120 s")


def test_no_run_begins_in_a_pause() -> None:
    """A machine that comes back in a pause gets no run, since no cut would end it. After `resume`, the run
    begins."""
    told = begun()
    assert isinstance(told.note(later_s=200, silent_s=200), Paused)
    assert told.say(boot="boot-2").kind == "wait"
    cycle = told.state.cycle
    assert cycle is not None
    assert told.say(part("armed", run=RUN), boot="boot-2", task=cycle.number).kind == "wait"
    assert not cycle.runs
    told.add(Resumed())
    task = told.say(boot="boot-2")
    assert (task.kind, [mine.drive.name for mine in task.drives]) == ("run", ["d0"])


def test_no_file_system_is_made_once_the_cut_is_due() -> None:
    """Once the cut is due, a missing drive that has returned gets no task. An armed report of a run begun
    before still counts."""
    told = begun(devices=("/dev/sdb", "/dev/sdc", "/dev/sdd"))
    gone = part("failed", drive="d2", trouble="missing", text="it is not there")
    told.say(part("armed", run=RUN), part("armed", drive="d1", run=OTHER_RUN), gone)
    assert [mine.drive.name for mine in told.task().drives] == ["d0", "d1", "d2"]
    assert isinstance(told.note(), CutDue)
    assert (told.task().kind, [mine.drive.name for mine in told.task().drives]) == ("run", ["d0", "d1"])
    told.say(part("armed", run=RUN), part("armed", drive="d2", run="00000000000000cc"))
    assert told.state.cycle is not None and told.state.cycle.runs["d2"] == "00000000000000cc"


@pytest.mark.parametrize("restarts", [True, False])
def test_runs_do_not_write_on_while_another_drive_is_not_ready(restarts: bool) -> None:
    """One run is armed. The other machine restarts again and again, or works at its drive for two days: the
    run ends, and is verified, before people are asked."""
    told = begun(machines=("b", "c"), devices=("/dev/sdb", "/dev/sdc"))
    told.say(part("armed", run=RUN))
    told.say(part("working", drive="d1"), machine="c")
    for boot in range(2, 12) if restarts else ():
        told.say(machine="c", boot=f"boot-{boot}")
    given_up = told.note(later_s=0 if restarts else 2 * 86_400 + 1)
    assert isinstance(given_up, Abandoned) and given_up.cause == "agent"
    assert told.task().kind == "verify"
    told.say(part("done", run=RUN))
    told.judge(verdict="durable")
    if restarts:
        paused = told.note()
        assert isinstance(paused, Paused)
        assert paused.reason == "machine c has started more than 8 times in this cycle"


def test_stop_in_a_pause_waits_no_longer_for_what_had_its_time() -> None:
    """The campaign paused as its verify did not end in two days; days later an operator stops it, and it ends
    with what is known, and says which run has no verdict."""
    told = cut_under_load()
    told.say(boot="boot-2")
    told.say(part("working", run=RUN, text="mounting"), boot="boot-2")
    assert isinstance(told.note(later_s=3 * 86_400), Paused)
    told.now_ns += 5 * 86_400 * 1_000_000_000
    told.add(PauseAsked(stop=True))
    told.judge(verdict="")
    assert [(mine.cause, mine.cut) for mine in told.ended().drives] == [("no-verdict", True)]
    ended = told.note()
    assert isinstance(ended, Ended) and ended.reason.startswith(f"stopped; run {RUN} of d0 has no verdict: ")


# What was to be shut down, and was not.


def shut_down() -> ToldCampaign:
    """Two drives of two machines, which are to shut down."""
    told = begun(machines=("b", "c"), devices=("/dev/sdb", "/dev/sdc"), moment="shutdown")
    told.say(part("armed", run=RUN))
    told.say(part("armed", drive="d1", run=OTHER_RUN), machine="c")
    told.note()
    assert isinstance(told.note(later_s=100), ShutdownDue)
    return told


def verified(told: ToldCampaign, verdict: str) -> list[tuple[str, str | None]]:
    """Word and cause of each drive, whose run gets the verdict after the cut."""
    told.cut()
    for machine, drive, run in (("b", "d0", RUN), ("c", "d1", OTHER_RUN)):
        told.say(boot="boot-2", machine=machine)
        told.say(part("done", drive=drive, run=run), boot="boot-2", machine=machine)
    told.judge(verdict=verdict, reasons=("nothing-at-risk",) if verdict == "inconclusive" else ())
    return [(mine.word, mine.cause) for mine in told.ended().drives]


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (None, "agent"),
        (part("working", text="stopping the run"), "no-verdict"),
        (part("failed", trouble="missing", text="it does not answer"), "drive"),
        (part("failed", trouble="agent", text="a defect"), "no-verdict"),
    ],
)
@pytest.mark.parametrize("verdict", ["durable", "inconclusive", "loss"])
def test_machine_that_was_not_shut_down_is_left_out(
    said: DriveStatus | None, cause: str, verdict: str
) -> None:
    """It was cut while it was at work, so nothing is kept by a normal end; a loss counts all the same, and so
    does the other machine's drive."""
    told = shut_down()
    told.say(part("done", drive="d1"), machine="c")
    if said is not None:
        told.say(said)
    assert not any(isinstance(step, Ask) for step in told.steps(later_s=250, silent_s=1))
    assert all(isinstance(step, Ask) for step in told.steps(later_s=301, silent_s=100))
    first, second = verified(told, verdict)
    assert first == (("loss", None) if verdict == "loss" else ("nothing", cause))
    assert second == ({"inconclusive": "kept"}.get(verdict, verdict), None)


def test_machine_that_goes_on_after_its_shutdown_leaves_the_cycle_out() -> None:
    """Its drives were left in order, and its power off did not work: it is still heard. The other machine,
    which is off, starts again with its power."""
    told = shut_down()
    told.say(part("done"))
    told.say(part("done", drive="d1"), machine="c")
    given_up = told.note(later_s=301, silent_s=1)
    assert isinstance(given_up, Abandoned) and given_up.cause == "agent"
    assert given_up.text == "machine b was to shut down, and was heard after that"
    assert all(isinstance(step, Ask) for step in told.steps(later_s=301, silent_s=1))
    assert verified(told, "inconclusive") == [("nothing", "agent")] * 2


def test_server_that_was_away_waits_for_silence_before_it_switches_off() -> None:
    """It was killed while the machines shut down: when it is back, soon or late, it does not know yet whether
    they are off."""
    told = shut_down()
    told.say(part("done"))
    told.say(part("done", drive="d1"), machine="c")
    assert not any(isinstance(step, Ask) for step in told.steps(later_s=400, silent_s=10, up_s=10))
    assert all(isinstance(step, Ask) for step in told.steps(later_s=111, silent_s=61, up_s=61))


# Cuts whose outcome is not known.


def test_interval_of_the_rate_has_the_cuts_whose_outcome_is_not_known() -> None:
    """One loss in 19 cuts, and 40 more that said nothing: they may all have lost data, or none."""

    def cuts(word: OutcomeWord, count: int) -> list[DriveCycle]:
        cause = "no-verdict" if word == "nothing" else None
        one = DriveCycle(drive="d0", word=word, cause=cause, text="", run="", cut=True)  # type: ignore[arg-type]
        return [one] * count

    known = tally([*cuts("loss", 1), *cuts("durable", 18)])
    found = tally([*cuts("loss", 1), *cuts("durable", 18), *cuts("nothing", 40)])
    assert (found.cuts, found.losses, found.unknown) == (19, 1, 40)
    assert found.low == tally([*cuts("loss", 1), *cuts("durable", 58)]).low
    assert found.high == tally([*cuts("loss", 41), *cuts("durable", 18)]).high
    assert known.low is not None and found.low is not None and found.low < known.low
    assert known.high is not None and found.high is not None and found.high > known.high
    result = DriveResult(
        drive="d0",
        machine="b",
        tally=found,
        kept=0,
        arms=(),
        first_loss=(1, RUN),
        first_loss_under_load=1,
        left_out=(),
        left="",
    )
    assert sentence(result) == (
        "LOSS in 1 of 19 cuts, first in cycle 1, and the outcome of 40 more cuts is not known:"
        " 0.042 % to 81 % of cuts lose data (95 %)."
    )


def test_sentence_names_the_first_loss_that_it_counts() -> None:
    """One loss at idle in cycle 1, which is counted apart, and one under load in cycle 2."""
    told = ToldCampaign()
    told.begin(replace(told_settings(moments=("idle", "load")), stop_at="end"))
    told.add(Checked(problems=()))
    for cycle in (1, 2):
        run, boot = f"{cycle:016x}", f"boot-{cycle}"
        told.note()
        told.say(boot=boot)
        told.say(part("armed", run=run), boot=boot)
        told.note()
        told.cut()
        told.say(boot=f"boot-{cycle + 1}")
        told.say(part("done", run=run), boot=f"boot-{cycle + 1}")
        told.judge(verdict="loss")
        told.ended()
    (result,) = results(told.state)
    assert sentence(result).startswith("LOSS in 1 of 1 cut, first in cycle 2: ")
    assert result.first_loss == (1, f"{1:016x}")


# What a verdict may not hide.


@pytest.mark.parametrize("first", ["", "inconclusive"])
@pytest.mark.parametrize("second", ["done", "failed"])
def test_loss_that_a_second_verify_found_counts(first: str, second: WorkState) -> None:
    """The drive went away in its first verify, whose verdict was looked up while another machine still boots.
    After a restart it is verified again: that verdict is looked up too, though the agent fails after it."""
    told = begun(machines=("b", "c"), devices=("/dev/sdb", "/dev/sdc"))
    told.say(part("armed", run=RUN))
    told.say(part("armed", drive="d1", run=OTHER_RUN), machine="c")
    told.note()
    told.cut()
    told.say(boot="boot-2")
    failed = part("failed", run=RUN, trouble="in-use", text="it cannot be unmounted")
    told.say(failed, boot="boot-2")
    told.judge(verdict=first)
    told.say(boot="boot-3")
    told.say(part("done", run=RUN) if second == "done" else failed, boot="boot-3")
    told.judge(verdict="loss")
    told.say(boot="boot-2", machine="c")
    told.say(part("done", drive="d1", run=OTHER_RUN), boot="boot-2", machine="c")
    told.judge(verdict="durable")
    assert [mine.word for mine in told.ended().drives] == ["loss", "durable"]


def test_loss_that_people_found_in_a_pause_counts() -> None:
    """The agent's verify was killed without a verdict. If a person verifies the run by hand while the
    campaign pauses, that loss counts."""
    told = begun(machines=("b", "c"), devices=("/dev/sdb", "/dev/sdc"))
    told.say(part("armed", run=RUN))
    told.say(part("armed", drive="d1", run=OTHER_RUN), machine="c")
    told.note()
    told.cut()
    told.say(boot="boot-2")
    told.say(part("failed", run=RUN, trouble="not-verified", text="verify was killed"), boot="boot-2")
    told.judge(verdict="")
    told.add(Paused(reason="machine c did not come back"), Resumed())
    told.say(boot="boot-2", machine="c")
    told.say(part("done", drive="d1", run=OTHER_RUN), boot="boot-2", machine="c")
    for step in told.steps():
        assert isinstance(step, LookUp)
        told.add(judged(step.drive, step.run, "loss" if step.drive == "d0" else "durable"))
    assert [mine.word for mine in told.ended().drives] == ["loss", "durable"]


@pytest.mark.parametrize("by_hand", [True, False])
def test_loss_that_was_withdrawn_within_the_cycle_is_none(by_hand: bool) -> None:
    """A loss by unreadable data alone that a later verify in the same cycle withdraws is not a loss."""
    told = begun(machines=("b", "c"), devices=("/dev/sdb", "/dev/sdc"))
    told.say(part("armed", run=RUN))
    told.say(part("armed", drive="d1", run=OTHER_RUN), machine="c")
    told.note()
    told.cut()
    told.say(boot="boot-2")
    failed = part("failed", run=RUN, trouble="in-use", text="it cannot be unmounted")
    told.say(part("done", run=RUN) if by_hand else failed, boot="boot-2")
    told.judge(verdict="loss", reasons=("findings", "unreadable-only"))
    if by_hand:
        told.add(Paused(reason="machine c did not come back"), Resumed())
    else:
        told.say(boot="boot-3")
        told.say(part("done", run=RUN), boot="boot-3")
    told.say(boot="boot-2", machine="c")
    told.say(part("done", drive="d1", run=OTHER_RUN), boot="boot-2", machine="c")
    told.judge(verdict="durable", reasons=("loss-withdrawn",))
    assert [mine.word for mine in told.ended().drives] == ["durable", "durable"]


@pytest.mark.parametrize(
    ("reasons", "cause"),
    [
        (("attestation-contradicted",), "not-a-cut"),
        (("attestation-contradicted", "nothing-at-risk", "cut-not-shown"), "not-a-cut"),
        (("attestation-contradicted", "scan-unfinished"), "inconclusive"),
        (("attestation-contradicted", "nothing-checked"), "inconclusive"),
        (("attestation-contradicted", "unstable"), "inconclusive"),
    ],
)
def test_unreadable_target_is_not_hidden_by_a_contradicted_cut(reasons: tuple[str, ...], cause: str) -> None:
    """A drive that cannot be read voids its bound, even if the cut is contradicted."""
    told = cut_under_load()
    told.say(boot="boot-2")
    told.say(part("done", run=RUN), boot="boot-2")
    told.judge(verdict="inconclusive", reasons=reasons)
    (said,) = told.ended().drives
    assert (said.word, said.cause) == ("nothing", cause)
    (result,) = results(told.state)
    assert result.tally.unknown == (cause == "inconclusive")


@pytest.mark.parametrize("moment", ["idle", "shutdown", "prefill"])
def test_kept_counts_in_the_bound_of_its_arm(moment: str) -> None:
    """One cycle kept and one lost are one loss in two cuts."""
    told = begun(moment=moment)
    for cycle, (verdict, reasons) in enumerate(
        [("inconclusive", ("not-armed", "nothing-at-risk")), ("loss", ("findings",))], 1
    ):
        run = f"{cycle:016x}"
        told.say(part("armed", run=run), boot=f"boot-{cycle}")
        told.note()
        told.cut()
        told.say(boot=f"boot-{cycle + 1}")
        told.say(part("done", run=run), boot=f"boot-{cycle + 1}")
        told.judge(verdict=verdict, reasons=reasons)
        told.ended()
        if cycle == 1:
            told.note()
            told.say(boot="boot-2")
    (result,) = results(told.state)
    (arm,) = result.arms
    assert (arm.kept, arm.tally.cuts, arm.tally.losses, arm.left_out) == (1, 2, 1, 0)
    assert result.tally.cuts == 0  # which is of cuts under load
