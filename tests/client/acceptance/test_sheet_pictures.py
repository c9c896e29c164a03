"""The pictures of a sheet: their captions say what the lines of the criteria say."""

from __future__ import annotations

from dataclasses import replace

from durability.acceptance.decision import Decision, decide_on
from durability.acceptance.drive_evidence import DriveEvidence
from durability.acceptance.profile import Criterion, Profile
from durability.evidence.strength import upper_bound
from durability_client.acceptance.sheet_pictures import pictures
from tests.core.acceptance.samples import campaign, evidence


def decided(of: DriveEvidence) -> Decision:
    """The decision by one criterion, 59 clean cuts."""
    asked = Criterion(kind="clean-cuts", limit=59, cut_class="power", required=True, reason="Because.")
    return decide_on(Profile(name="p", title="P", about="", criteria=(asked,)), of)


def _caption(of: DriveEvidence) -> str:
    return pictures(decided(of))[0].caption


def test_a_switch_that_failed_is_no_cut_of_unknown_outcome() -> None:
    """A failed switch does not void the bound, and its cycles count as left out. A cut with unknown outcome
    voids the bound."""
    bounded = "59 clean cuts, 3 left out. At most 5.0 % of cuts may lose data. A square is a cycle."
    assert _caption(evidence(campaign(unknown=3, cause="switch"))) == bounded
    void = "59 clean cuts, 3 with unknown outcome. A square is a cycle."
    assert _caption(evidence(campaign(unknown=3))) == void


def test_the_count_beside_the_bound_is_of_the_cuts_that_it_rests_on() -> None:
    """Beside the bound, the caption counts cuts under load as clean and cuts at other moments as kept.
    Unanswered cuts at other moments have unknown outcome and are not left out."""
    both = campaign(60, moments=("load", "load", "idle"))
    cycles = [replace(one, word="kept") if one.cycle == 3 else one for one in both.cycles]
    hung = replace(both.cycles[2], word="nothing", cause="no-verdict")
    (load,) = both.result.arms
    load = replace(load, tally=replace(load.tally, cuts=40, bound=upper_bound(0, 40)))
    idle = replace(load, moment="idle", tally=replace(load.tally, cuts=20, unknown=2, bound=None))
    result = replace(both.result, tally=load.tally, arms=(load, idle))
    of = evidence(replace(both, result=result, cycles=(*cycles, hung, hung)))
    assert _caption(of) == (
        "40 clean cuts, 20 kept, 2 with unknown outcome. At most 7.3 % of cuts may lose data. A square is a"
        " cycle."
    )


def test_the_bound_is_that_of_the_criterion() -> None:
    """The caption has the same bound as the criterion. It comes from the longest series of the requested cut
    class."""
    of = evidence(campaign(200, name="long"), campaign(5, name="short"), campaign(300, cut_class="os"))
    assert "At most 1.5 % of cuts may lose data" in _caption(of)
    (line,) = decided(of).lines
    assert "at most 1.5 % of cuts may lose data" in line.figure


def test_a_disputed_series_bounds_nothing() -> None:
    """If a claim of another client keeps the criterion from passing, the caption has no bound."""
    said = "1 loss in runs of lab that are left out"
    of = replace(evidence(campaign()), disputed=said)
    assert _caption(of) == f"59 clean cuts. No bound is given: {said}. A square is a cycle."
    (line,) = decided(of).lines
    assert said in line.figure and line.word == "not shown"
