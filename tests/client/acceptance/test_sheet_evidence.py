"""The evidence that a sheet lists, in sentences."""

from __future__ import annotations

from dataclasses import replace

from durability.acceptance.drive_evidence import DriveEvidence, campaign_proof
from durability.bench.decision.proof import Proof
from durability_client.acceptance.sheet import listed
from durability_client.acceptance.sheet_pictures import pictures
from tests.client.acceptance.test_sheet_pictures import decided
from tests.core.acceptance.samples import campaign, evidence, measured

RUN = Proof(
    cuts=9,
    losses=1,
    bound=None,
    cut_class="os",
    source="run 00000000000000aa",
    lost_in="run 00000000000000aa",
    unknown=2,
    but="with nobarrier",
)
NOT_NAMED = "It was not named and counts only against the drive."


def _not_named(losses: int) -> DriveEvidence:
    """A clean campaign that was named, and another one, `old`, of which only the proof counts."""
    old = campaign(40, losses=losses, name="old")
    proof = campaign_proof(old.name, old.cut_class, old.result)
    assert proof is not None
    return evidence(campaign(name="good"), runs=[proof], results=[measured()])


def test_losses_of_every_arm_are_listed() -> None:
    """A campaign's sentence counts the cuts and losses of all its arms, as its planned cuts do."""
    (said,) = listed(evidence(campaign(54, shutdowns=["kept", "loss", "loss", "kept", "loss"])))
    assert "59 of 59 cuts of class power, 3 with a loss, 0 left out" in said


def test_a_campaign_that_was_not_named_and_refuses_is_listed_first() -> None:
    """The sheet names the campaign whose loss refuses the drive. The caption says that it is not drawn."""
    of = _not_named(losses=2)
    assert decided(of).word == "refuse"
    old, good, result = listed(of)
    assert old == f"Campaign old: 40 cuts of class power, 2 with a loss. {NOT_NAMED}"
    assert good.startswith("Campaign good (ended: complete): 59 of 59 cuts")
    assert result.startswith("ssd.json: bench")
    caption = pictures(decided(of))[0].caption
    assert caption == "59 clean cuts. Not drawn: 1 campaign that was not named. A square is a cycle."


def test_a_campaign_that_was_not_named_and_saw_the_drive_fail_is_listed_once() -> None:
    """Its cuts and losses are in one sentence, even if it also has a proof."""
    of = replace(_not_named(losses=2), against=(campaign(40, losses=2, trouble="it is gone", name="old"),))
    old, good, _ = listed(of)
    assert old.startswith("Campaign old (ended: complete): 40 of 59 cuts of class power, 2 with a loss")
    assert old.endswith(NOT_NAMED) and NOT_NAMED not in good
    assert "Not drawn: 1 campaign that was not named." in pictures(decided(of))[0].caption


def test_series_of_single_runs_are_listed() -> None:
    """With their class, losses, cuts of unknown outcome, and the difference of their stack."""
    of = evidence(runs=[RUN])
    counts = "9 cuts of class os, 1 with a loss, 2 with unknown outcome, with nobarrier"
    assert listed(of) == (f"Series of run 00000000000000aa: {counts}.",)
    assert pictures(decided(of))[0].caption == "Not drawn: 1 series of single runs."
    both = replace(of, against=(campaign(name="old"),))
    drawn = "Not drawn: 1 campaign that was not named and 1 series of single runs."
    assert pictures(decided(both))[0].caption == drawn


def test_many_campaigns_hide_none_that_speaks_against_the_drive() -> None:
    """Only the first campaigns are listed, those that were not named before the others."""
    many = (campaign(name=f"good-{number}") for number in range(40))
    runs = [
        *_not_named(losses=1).proofs[1:],
        *(replace(RUN, source=f"run {number:016x}") for number in range(9)),
    ]
    said = listed(evidence(*many, runs=runs))
    assert said[0].startswith("Campaign old: ") and said[8].startswith("33 more campaigns: ")
    assert said[-1] == "1 more series: the JSON file beside this page has all."
