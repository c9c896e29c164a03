"""Which of a drive's single runs `accept` keeps, and what its criteria then say of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from durability.acceptance.criteria import KINDS
from durability.acceptance.kinds import Finding
from durability.acceptance.known_cuts import KnownDrive
from durability.acceptance.profile import Criterion
from durability.bench.decision.proof import Proof
from durability.evidence.cut import CutClass
from durability.evidence.strength import upper_bound
from durability.formats.facts import Facts
from durability_client.acceptance.gather import _Drive, _worth_telling
from tests.core.acceptance.samples import accept_result, campaign, measured
from tests.core.bench.results import drive, facts

NEW = facts(drives=(drive(firmware="2.0"),))
OLD = facts(drives=(drive(firmware="1.0"),))
Runs = list[KnownDrive]


def series(
    number: int,
    cuts: int,
    cut_class: CutClass = "power",
    *,
    unknown: int = 0,
    of: Facts = NEW,
    losses: int = 0,
) -> KnownDrive:
    """The series that ends with the run of this number."""
    run = f"{number:016x}"
    proof = Proof(
        cuts=cuts,
        losses=losses,
        bound=None if unknown else upper_bound(losses, cuts),
        cut_class=cut_class,
        source=f"run {run}",
        lost_in=f"run {run}" if losses else "",
        unknown=unknown,
    )
    return KnownDrive(facts=of, proof=proof, runs=frozenset({run}), is_campaign=False)


def with_runs(runs: Runs) -> _Drive:
    """A drive of firmware 2.0 that was measured, with what is kept of these runs."""
    found = _Drive(facts=[NEW], results=[measured(replace(accept_result(), facts=NEW))])
    found.proofs += [(one.facts, one.proof) for one in _worth_telling(found, runs, set())]
    return found


def clean_cuts(runs: Runs, cut_class: CutClass = "power") -> Finding:
    """What the criterion says of these runs."""
    asked = Criterion(kind="clean-cuts", limit=59, cut_class=cut_class, required=True, reason="Because.")
    return KINDS["clean-cuts"].look(with_runs(runs).evidence(), asked)


CLEAN = series(1, 59)
UNANSWERED = series(2, 10, unknown=2)
UNANSWERED_OS = series(3, 5, "os", unknown=1)


@pytest.mark.parametrize(
    ("runs", "cut_class", "word"),
    [
        ([UNANSWERED_OS, UNANSWERED, CLEAN], "power", "not shown"),
        ([UNANSWERED, UNANSWERED_OS, CLEAN], "power", "not shown"),
        ([UNANSWERED_OS, CLEAN], "power", "pass"),
        ([UNANSWERED, CLEAN], "power", "not shown"),
        ([series(4, 5, "vm", unknown=1), UNANSWERED_OS, CLEAN], "power", "pass"),
        ([UNANSWERED_OS, series(4, 5, "vm", unknown=1), CLEAN], "vm", "not shown"),
    ],
)
def test_no_series_hides_unanswered_cuts_of_a_stronger_class(
    runs: Runs, cut_class: CutClass, word: str
) -> None:
    """Unanswered cuts of a class void the bound of that class, whatever series of a weaker class is newer."""
    found = clean_cuts(runs, cut_class)
    assert found.word == word, found
    if word == "not shown":
        assert "with unknown outcome, so nothing is bounded" in found.figure


@pytest.mark.parametrize(
    ("runs", "says"),
    [
        ([series(5, 80, "os"), CLEAN], "59 cuts without a loss: at most 5.0 %"),
        ([series(5, 70, of=OLD), CLEAN], "59 cuts without a loss: at most 5.0 %"),
        ([series(5, 70, of=OLD), series(6, 80, "os"), CLEAN, series(7, 58)], "59 cuts without a loss"),
    ],
)
def test_no_longer_series_hides_the_one_that_counts(runs: Runs, says: str) -> None:
    """More cuts of a weaker class, or of another stack, are beside the question."""
    for order in (runs, runs[::-1]):
        found = clean_cuts(order)
        assert found.word == "pass" and says in found.figure, found


def test_of_series_that_are_alike_the_longest_is_kept() -> None:
    """Each durable run ends a series that holds the earlier ones: telling all would count cuts again."""
    runs = [series(60 - cuts, cuts) for cuts in range(59, 0, -1)]
    assert [proof.cuts for _, proof in with_runs(runs).proofs] == [59]


def test_beside_a_campaign_only_a_loss_of_single_runs_is_kept() -> None:
    """The campaign has its own cuts; a loss that it does not tell of still refuses."""
    lost = series(8, 3, losses=1)
    found = _Drive(facts=[NEW], campaigns=[campaign()])
    assert _worth_telling(found, [UNANSWERED, CLEAN, lost], set()) == [lost]
    assert clean_cuts([UNANSWERED, CLEAN, lost]).word == "refuse"
