"""The grade of a cut: what the truth can explain, and what nobody may excuse; most on real cuts of rig A."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from durability.evidence import verdict
from durability_lab.matrix.graded_cut import KEPT, GradedCut, judged
from durability_lab.matrix.matrix_cells import MatrixCell
from durability_lab.simulated_rig.scenario import Scenario
from durability_lab.simulated_rig.simulation import simulate
from durability_lab.truth.comparison import Truth
from tests.lab.mutants.mutants_of_reading import FINDINGS_ARE_NO_LOSS
from tests.lab.mutants.mutation import Change, without

LOAD = Scenario(slots=256, rate=500.0)
SILENCE = {"verdict": "inconclusive", "reasons": [{"code": "scan-unfinished"}], "findings": {}}
INTACT = Truth(
    promised=999,
    broken=0,
    damaged=0,
    agreed={},
    false={},
    missed={},
    unjudged={},
    unclaimed={},
    defects=(),
)


def trial_of(drive: str, document: Mapping[str, Any], truth: Truth | None) -> GradedCut:
    """The grade of a cut of that drive."""
    cell = MatrixCell(rig="a", drive=drive, load=LOAD, cuts=1)
    whole = {"loss_window": None, **document}
    return judged(cell, 1, seed=1, document=whole, truth=truth, duration_s=0.1)


def cut_of(drive: str, seed: int) -> GradedCut:
    """The same of a real cut."""
    result = simulate(replace(LOAD, model=drive), seed=seed)
    return trial_of(drive, result.document, result.truth)


@pytest.mark.parametrize("drive", ["flush-ignored", "rollback"])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (FINDINGS_ARE_NO_LOSS, "durable, with "),
        (without(verdict._log_reasons, "elif case.tainted:", "elif True:"), "inconclusive: tainted, with "),
        (without(verdict._log_reasons, "if scan.above_ceiling:", "if True:"), "inconclusive: log-behind"),
    ],
    ids=["no loss", "always tainted", "log always behind"],
)
@pytest.mark.slow
def test_tester_that_never_says_loss_is_wrong(drive: str, change: Change, said: str, seed: int) -> None:
    """All its findings may be true: a liar that it has found out, and passes, is no explained miss."""
    assert cut_of(drive, seed).grade == "right"
    with change():
        one = cut_of(drive, seed)
    assert (one.grade, one.wrong, one.defects) == ("missed", True, ())
    assert one.reason.startswith(said)


@pytest.mark.parametrize("said", ["durable", "inconclusive"])
def test_miss_of_a_drive_that_kept_its_word_is_explained(said: str) -> None:
    """Nothing was found and nothing broken: whether it was called durable or left open, the reason is one."""
    reasons = [{"code": "nothing-at-risk"}] if said == "inconclusive" else []
    document = {"verdict": said, "reasons": reasons, "findings": {"lost": 0}}
    one = trial_of("flush-skipped", document, INTACT)
    assert (one.grade, one.wrong, one.reason) == ("missed", False, KEPT)


def test_miss_of_what_nobody_could_know_is_explained() -> None:
    """With each reason of the truth, and the verdict's own."""
    document = {"verdict": "inconclusive", "reasons": [{"code": "nothing-at-risk"}], "findings": {}}
    one = trial_of("shorn", document, replace(INTACT, broken=2, damaged=2, unclaimed={"unheard": 2}))
    assert (one.grade, one.wrong) == ("missed", False)
    assert one.reason.startswith("all broken promises: promises newer than")
    assert one.reason.endswith("; inconclusive: nothing-at-risk")


@pytest.mark.parametrize("drive", ["unreadable", "flush-ignored"])
def test_scan_that_did_not_end_explains_no_miss(drive: str) -> None:
    """Every read of these drives returns, with data or an error: who does not read on has a defect."""
    one = trial_of(drive, SILENCE, replace(INTACT, broken=3, damaged=3, unclaimed={"unread": 3}))
    assert (one.grade, one.wrong) == ("missed", True)
    assert "did not finish" in one.defects[0]


def test_drive_whose_reads_hang_is_not_read_to_its_end() -> None:
    """Inconclusive is right for a drive whose reads hang, and loss is wrong. Durable is right only if the
    drive kept its promises."""
    unread = replace(INTACT, broken=3, damaged=3, unclaimed={"unread": 3})
    assert (trial_of("hanging", SILENCE, unread).grade, trial_of("hanging", SILENCE, unread).wrong) == (
        "right",
        False,
    )
    loss = {"verdict": "loss", "reasons": [{"code": "findings"}], "findings": {"lost": 3}}
    for findings in ({"lost": 3}, {}):
        assert trial_of("hanging", {**loss, "findings": findings}, unread).wrong
    durable = {"verdict": "durable", "reasons": [], "findings": {}}
    assert not trial_of("hanging", durable, INTACT).wrong


def test_miss_without_an_account_is_never_explained() -> None:
    """A miss on nbdkit's filter is always wrong, because the filter has no drive log."""
    document = {"verdict": "durable", "reasons": [], "findings": {}}
    one = trial_of("filter-amnesiac", document, None)
    assert (one.grade, one.wrong) == ("missed", True)
