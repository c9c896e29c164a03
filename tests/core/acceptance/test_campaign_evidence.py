"""What a campaign's log says of a drive, as `accept` counts it: the cuts, and what was seen after them."""

from __future__ import annotations

import pytest

from durability.acceptance.criteria import KINDS
from durability.acceptance.decision import decide_on
from durability.acceptance.drive_evidence import CampaignEvidence, campaign_evidence, subject_of
from durability.acceptance.known_cuts import facts_of_check, known_of_campaign, runs_of
from durability.acceptance.profile import Criterion, DecisionWord, Profile
from durability.bench.hashed_serials import hashed
from durability.campaign.log_entries import (
    CutDue,
    OutcomeWord,
    PauseAsked,
    Paused,
    ShutdownDue,
    StillThere,
)
from durability.campaign.tasks import Condition
from durability.evidence.strength import upper_bound
from tests.core.acceptance.samples import campaign, evidence, row
from tests.core.bench.results import drive, facts
from tests.core.campaign.test_moments_and_supplies import two_machines
from tests.core.campaign.told_campaign import (
    OTHER_RUN,
    RUN,
    ToldCampaign,
    condition,
    judged,
    part,
    told_settings,
)

RUNS = ("00000000000000a1", "00000000000000a2")


def test_the_counts_of_a_proof_are_of_the_arms_that_lost() -> None:
    """Without a loss, a proof counts the cuts under load. After losses in another arm, it counts the cuts of
    that arm, and gives no common bound of arms with different questions."""
    kept: list[OutcomeWord] = ["kept"] * 5
    lost: list[OutcomeWord] = [*kept[:2], "loss", "loss", "loss"]
    for of, counts, bound in (
        (campaign(shutdowns=kept), (0, 59), upper_bound(0, 59)),
        (campaign(shutdowns=lost), (3, 5), upper_bound(3, 5)),
        (campaign(0, shutdowns=lost), (3, 5), upper_bound(3, 5)),
        (campaign(losses=1, shutdowns=lost), (4, 64), None),
    ):
        (proof,) = evidence(of).proofs
        assert ((proof.losses, proof.cuts), proof.bound) == (counts, bound)


def cycle(told: ToldCampaign, number: int, *, back: bool, found: Condition | None = None) -> None:
    """A cycle with one cut under load, after which its machine comes back or not."""
    run, boot = RUNS[number - 1], f"boot-{number + 2}"
    told.note()
    told.say(boot=f"boot-{number + 1}")
    told.say(part("armed", run=run, found=condition(unsafe=5 + number)), boot=f"boot-{number + 1}")
    assert isinstance(told.note(), CutDue)
    told.cut()
    if back:
        told.say(boot=boot)
        told.say(part("done", run=run, found=found or condition(unsafe=6 + number)), boot=boot)
        told.judge(verdict="durable")
    else:
        told.add(PauseAsked(stop=True), judged("d0", run, ""))
    while told.state.cycle is not None:
        told.note(later_s=121, silent_s=121)


def two_cycles(*, back: bool) -> CampaignEvidence:
    """A check, a cut after which all is well, and another one after which the machine comes back or not."""
    told = ToldCampaign()
    told.begin(told_settings())
    told.checked()
    cycle(told, 1, back=True)
    cycle(told, 2, back=back)
    return campaign_evidence(told.state, "d0")


def word(of: CampaignEvidence, kind: str) -> DecisionWord:
    """What a kind answers."""
    asked = Criterion(kind=kind, limit=None, cut_class="power", required=True, reason="Because.")
    return KINDS[kind].look(evidence(of), asked).word


def test_a_cut_counts_with_what_was_seen_after_it() -> None:
    """The machine came back from each cut: the drive was there, and its counter was read."""
    found = two_cycles(back=True)
    assert [(one.cycle, one.cut, one.was_seen) for one in found.cycles] == [(1, True, True), (2, True, True)]
    assert set(found.after_cuts(lambda row: row.unsafe_shutdowns)) == {1, 2}
    assert word(found, "always-there") == word(found, "counted-cuts") == "pass"


def test_a_machine_that_never_came_back_shows_nothing_of_its_drive() -> None:
    """If the machine does not come back, its status from before the cut does not count as seen after the
    cut."""
    found = two_cycles(back=False)
    assert [(one.word, one.cause, one.cut, one.was_seen) for one in found.cycles] == [
        ("durable", None, True, True),
        ("nothing", "no-verdict", True, False),
    ]
    assert set(found.after_cuts(lambda row: row.unsafe_shutdowns)) == {1}
    for kind in ("always-there", "capacity-kept"):
        assert word(found, kind) == "not shown"


def armed(told: ToldCampaign, number: int) -> None:
    """A cycle begins, and its run is armed."""
    told.note()
    told.say(boot=f"boot-{number + 1}")
    run, boot = RUNS[number - 1], f"boot-{number + 1}"
    told.say(part("armed", run=run, found=condition(unsafe=5 + number)), boot=boot)
    assert isinstance(told.note(), CutDue)


def after_a_cut(*, clean: int) -> ToldCampaign:
    """A campaign with so many clean cuts, whose machine is not heard after the next one."""
    told = ToldCampaign()
    told.begin(told_settings())
    told.checked()
    for number in range(1, clean + 1):
        cycle(told, number, back=True)
    armed(told, clean + 1)
    told.cut()
    return told


def decided(of: CampaignEvidence) -> dict[str, DecisionWord]:
    """The word of each kind that is asked about a campaign, and of the whole."""
    asked = [
        Criterion(kind=kind, limit=limit, cut_class="power", required=True, reason="Because.")
        for kind, limit in (("clean-cuts", 1.0), ("always-there", None), ("media-errors", 0.0))
    ]
    profile = Profile(name="p", title="P", about="", criteria=tuple(asked))
    found = decide_on(profile, evidence(of))
    return {one.criterion.kind: one.word for one in found.lines} | {"whole": found.word}


@pytest.mark.parametrize("paused", [False, True])
def test_a_cut_of_the_cycle_under_way_counts_without_an_outcome(*, paused: bool) -> None:
    """Its machine may never come back, and the campaign stay paused in it: what its earlier cuts showed is
    not all that is known of the drive."""
    told = after_a_cut(clean=1)
    if paused:
        told.add(Paused(reason="machine b did not come back within 120 s"))
    assert told.state.cycle is not None
    found = campaign_evidence(told.state, "d0")
    assert [(one.cycle, one.word, one.cut, one.was_seen, one.under_way) for one in found.cycles] == [
        (1, "durable", True, True, False),
        (2, "nothing", True, False, True),
    ]
    assert (found.result.tally.cuts, found.result.tally.unknown, found.result.tally.bound) == (1, 1, None)
    assert found.result.left_out[0][2].startswith("the cycle is not over")
    assert set(decided(found).values()) == {"not shown"}
    asked = Criterion(kind="always-there", limit=None, cut_class="power", required=True, reason="Because.")
    said = KINDS["always-there"].look(evidence(found), asked)
    assert (
        said.figure
        == "it was not seen after 1 of 2 cuts, first in cycle 2 of campaign told, which is not over"
    )
    assert told.state.cycle is not None and len(told.state.cycles) == 2, "the campaign itself goes on"


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("clean", [0, 1])
def test_a_drive_that_is_gone_refuses_before_its_cycle_is_over(clean: int, *, at_once: bool) -> None:
    """The agent says that it is missing, and the campaign is paused in that cycle; also in its first one, and
    if the agent says so before it has heard of its next task."""
    told = after_a_cut(clean=clean)
    boot = f"boot-{clean + 3}"
    if not at_once:
        told.say(boot=boot)
    told.say(part("failed", trouble="missing", text="/dev/sdb is not there"), boot=boot)
    told.add(Paused(reason="drives have to be looked at"))
    assert told.state.cycle is not None
    found = campaign_evidence(told.state, "d0")
    assert found.cycles[-1].trouble == "/dev/sdb is not there"
    assert decided(found)["always-there"] == decided(found)["whole"] == "refuse"
    assert facts_of_check(told.state, "d0") is not None, "the campaign is evidence of its drive"


def test_a_drive_that_is_gone_before_the_next_cut_refuses() -> None:
    """It came back after the last cut, and not to the next run."""
    told = ToldCampaign()
    told.begin(told_settings())
    told.checked()
    cycle(told, 1, back=True)
    told.note()
    told.say(boot="boot-3")
    told.say(part("failed", trouble="missing", text="/dev/sdb is not there"), boot="boot-3")
    assert told.state.cycle is not None
    assert decided(campaign_evidence(told.state, "d0"))["always-there"] == "refuse"


def test_a_cycle_whose_power_is_on_is_no_cut_yet() -> None:
    """A campaign that goes on as it should keeps what it has shown."""
    told = ToldCampaign()
    told.begin(told_settings())
    told.checked()
    cycle(told, 1, back=True)
    armed(told, 2)
    found = campaign_evidence(told.state, "d0")
    assert len(found.cycles) == 1 and set(decided(found).values()) == {"pass"}
    assert runs_of(told.state, "d0") == RUNS[:1]


def test_a_comparison_counts_the_cycle_under_way() -> None:
    """It voids the bound of the stack that its run was on, and its run is one of the campaign's."""
    told = after_a_cut(clean=1)
    assert runs_of(told.state, "d0") == RUNS
    (known,) = known_of_campaign(told.state, "d0", dict.fromkeys(RUNS, facts()))
    assert known.proof.text == "no loss in 1 cut, 1 other with unknown outcome"
    assert known.runs == set(RUNS)
    (first,) = known_of_campaign(after_a_cut(clean=0).state, "d0", {RUNS[0]: facts()})
    assert first.proof.text == "1 cut with unknown outcome"


def test_a_verdict_that_is_there_counts_before_the_cycle_is_over() -> None:
    """Another machine of the campaign may be the one that does not come back."""
    for verdict, words in (("durable", "pass"), ("loss", "refuse")):
        told = after_a_cut(clean=0)
        told.say(boot="boot-3")
        told.say(part("done", run=RUNS[0], found=condition(unsafe=7)), boot="boot-3")
        told.judge(verdict=verdict)
        assert told.state.cycle is not None
        assert decided(campaign_evidence(told.state, "d0"))["clean-cuts"] == words


def shut_down(told: ToldCampaign, number: int) -> None:
    """A cycle whose power goes after a clean shutdown, at which the drive's counter stays."""
    run, boot, found = RUNS[number - 1], f"boot-{number + 1}", condition(unsafe=5 + number)
    told.note()
    told.say(boot=boot)
    told.say(part("armed", run=run, found=found), boot=boot)
    assert isinstance(told.note(), CutDue)
    assert isinstance(told.note(later_s=100), ShutdownDue)
    told.say(part("done", run=run, found=found), boot=boot)
    told.cut()
    told.say(boot=f"boot-{number + 2}")
    told.say(part("done", run=run, found=found), boot=f"boot-{number + 2}")
    told.judge(verdict="inconclusive", reasons=("session-stopped", "nothing-at-risk"))
    told.ended()


def test_a_clean_shutdown_is_no_cut_that_a_counter_must_count() -> None:
    """Beside a cut under load the drive's counter need not rise at it; alone it shows nothing of the counter,
    and the drive was still seen after it."""
    told = ToldCampaign()
    told.begin(told_settings(moments=("load", "shutdown")))
    told.checked()
    cycle(told, 1, back=True)
    shut_down(told, 2)
    both = campaign_evidence(told.state, "d0")
    assert [(one.moment, one.word, one.cut) for one in both.cycles] == [
        ("load", "durable", True),
        ("shutdown", "kept", True),
    ]
    assert word(both, "counted-cuts") == word(both, "always-there") == "pass"
    told = ToldCampaign()
    told.begin(told_settings(moment="shutdown"))
    told.checked()
    shut_down(told, 1)
    assert word(campaign_evidence(told.state, "d0"), "counted-cuts") == "not shown"


@pytest.mark.parametrize(
    ("counts", "expected"),
    [((7, 8, 8, 9), "pass"), ((7, 8, 9, 10), "pass"), ((7, 8, 9, 9), "not shown"), ((7, 7, 8, 8), "refuse")],
)
def test_a_rise_after_a_shutdown_stands_for_no_cut_under_load(
    counts: tuple[int, ...], expected: DecisionWord
) -> None:
    """A drive may count that end too: its counter must rise again at the next cut."""
    health = [row(at, unsafe_shutdowns=count) for at, count in enumerate(counts)]
    assert word(campaign(3, moments=("load", "shutdown"), health=health), "counted-cuts") == expected


def test_a_cut_after_a_shutdown_that_nobody_saw_the_end_of_is_unread() -> None:
    """The counter's next rise may be of either, so it proves neither."""
    found = campaign(3, moments=("load", "shutdown"), health=[row(at) for at in (0, 1, 3)])
    asked = Criterion(kind="counted-cuts", limit=None, cut_class="power", required=True, reason="Because.")
    said = KINDS["counted-cuts"].look(evidence(found), asked)
    assert (said.word, said.figure) == (
        "not shown",
        "the counter was not read before and after 1 of 2 cuts, without 1 after a clean shutdown",
    )


def test_a_cut_beside_a_machine_that_was_not_cut_counts() -> None:
    """A cut of one machine counts although another machine of the campaign was at the wrong outlet and kept
    running."""
    told = two_machines()
    told.cut()
    told.add(StillThere(machine="b", text="machine b kept running without a restart"))
    told.say(part("done", run=RUN))
    told.say(machine="c", boot="boot-2")
    told.say(part("done", drive="d1", run=OTHER_RUN), machine="c", boot="boot-2")
    told.judge(verdict="durable")
    told.ended()
    assert [(one.word, one.cut, one.was_seen) for one in campaign_evidence(told.state, "d1").cycles] == [
        ("durable", True, True)
    ]
    assert [one.cut for one in campaign_evidence(told.state, "d0").cycles] == [False]


@pytest.mark.parametrize("hidden", [False, True])
def test_each_drive_of_a_mirror_has_its_own_serial(*, hidden: bool) -> None:
    """A boot between the result and the last cycle may have swapped their names; the page that is signed has
    model, serial and firmware in one order."""
    serials = [hashed(one) if hidden else one for one in ("C-1", "S-2")]
    one = drive(name="sda", model="CRUCIAL", serial=serials[0], firmware="M3")
    other = drive(name="sdb", model="SAMSUNG", serial=serials[1], firmware="2B")
    last = row(1, serial="S-2 + C-1", firmware="2B + M3")
    for order, expected in (
        ((one, other), ("CRUCIAL + SAMSUNG", "C-1 + S-2", "M3 + 2B")),
        ((other, one), ("SAMSUNG + CRUCIAL", "S-2 + C-1", "2B + M3")),
    ):
        found = subject_of((facts(drives=order),), (row(0, serial="C-1 + S-2", firmware="M3 + 2B"), last))
        assert (found.model, found.serial, found.firmware) == expected
    found = subject_of((facts(drives=(one, other)), facts(drives=(other, one))), ())
    assert (found.serial, found.firmware) == (" + ".join(serials), "M3 + 2B")


def test_drives_that_share_a_serial_stay_in_their_order() -> None:
    """Nothing says which is which."""
    both = [drive(name=name, serial="0000", firmware=name) for name in ("sda", "sdb")]
    found = subject_of((facts(drives=tuple(both)),), (row(0, serial="0000 + 0000", firmware="sdb + sda"),))
    assert (found.serial, found.firmware) == ("0000 + 0000", "sdb + sda")
