"""The pictures of a sheet: their captions say what the lines of the criteria say."""

from __future__ import annotations

from durability.acceptance.decision import Decision, decide_on
from durability.acceptance.drive_evidence import DriveEvidence
from durability.acceptance.profile import Criterion, Profile
from durability_client.acceptance.sheet_pictures import pictures
from tests.core.acceptance.samples import campaign, evidence


def _decided(of: DriveEvidence) -> Decision:
    asked = Criterion(kind="clean-cuts", limit=59, cut_class="power", required=True, reason="Because.")
    return decide_on(Profile(name="p", title="P", about="", criteria=(asked,)), of)


def _caption(of: DriveEvidence) -> str:
    return pictures(_decided(of))[0].caption


def test_a_switch_that_failed_is_no_cut_of_unknown_outcome() -> None:
    """It voids nothing, so the bound stays; a cut without an answer leaves none."""
    bounded = "59 clean cuts, 3 left out. At most 5.0 % of cuts may lose data. A square is a cycle."
    assert _caption(evidence(campaign(unknown=3, cause="switch"))) == bounded
    void = "59 clean cuts, 3 with unknown outcome. A square is a cycle."
    assert _caption(evidence(campaign(unknown=3))) == void


def test_the_bound_is_that_of_the_criterion() -> None:
    """Of several series the longest counts, and of the class that is asked for."""
    of = evidence(campaign(200, name="long"), campaign(5, name="short"), campaign(300, cut_class="os"))
    assert "At most 1.5 % of cuts may lose data" in _caption(of)
    (line,) = _decided(of).lines
    assert "at most 1.5 % of cuts may lose data" in line.figure
