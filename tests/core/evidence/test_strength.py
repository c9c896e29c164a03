"""The bounds are those of the textbook, and runs that were left out void them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durability.evidence.drive_identity import enumerations
from durability.evidence.strength import (
    HIDE_LOSSES,
    at_most_probability,
    interval,
    strength,
    strength_of_drive,
    upper_bound,
    weightiest,
)
from durability.formats.case import PastVerdict
from tests.core.evidence.memory_target import MakePlan, apart, make_case, small
from tests.sample_facts import drive, facts


@pytest.mark.parametrize(("cuts", "percent"), [(5, 45), (10, 26), (30, 9.5), (59, 5), (299, 1)])
def test_no_loss_in_n_cuts(cuts: int, percent: float) -> None:
    """The figures that the field quotes for 95 %."""
    assert upper_bound(0, cuts) * 100 == pytest.approx(percent, rel=0.02)
    assert upper_bound(0, cuts) == pytest.approx(1 - 0.05 ** (1 / cuts))


@pytest.mark.parametrize(("losses", "cuts", "bound"), [(1, 10, 0.39416), (2, 20, 0.28262), (5, 10, 0.77756)])
def test_bounds_with_losses(losses: int, cuts: int, bound: float) -> None:
    """One-sided Clopper-Pearson, as tables have it."""
    assert upper_bound(losses, cuts) == pytest.approx(bound, abs=1e-4)


@pytest.mark.slow
@given(data=st.data(), cuts=st.integers(1, 3000))
def test_the_bound_is_where_the_probability_falls_to_five_percent(data: st.DataObject, cuts: int) -> None:
    """At the bound, so few losses or fewer have a probability of 5 %."""
    losses = data.draw(st.integers(0, cuts))
    bound = upper_bound(losses, cuts)
    assert losses / cuts <= bound <= 1
    if losses < cuts:
        assert math.isclose(at_most_probability(losses, cuts, bound), 0.05, rel_tol=1e-6)


def test_all_lost_or_no_cut_bounds_nothing() -> None:
    """No cut at all says nothing, and impossible counts are refused."""
    assert upper_bound(0, 0) == upper_bound(7, 7) == 1.0
    with pytest.raises(ValueError, match="are impossible"):
        upper_bound(3, 2)


def past(
    verdict: str, cut_class: str = "power", at_risk: int = 10, reasons: tuple[str, ...] = ()
) -> PastVerdict:
    """An earlier verdict, of this run or another one of the series."""
    return PastVerdict(
        run="0" * 16,
        verdict=verdict,
        cut_class=cut_class,
        at_risk_ms1000=at_risk,
        wall="",
        reasons=reasons,
    )


@pytest.mark.parametrize(
    ("given", "number"),
    [
        ((), None),
        ((past("inconclusive"), past("inconclusive", "os")), 1),
        ((past("durable"), past("inconclusive")), 0),
        ((past("durable", "os"), past("durable"), past("durable", "vm")), 1),
        ((past("durable"), past("durable")), 1),
        ((past("loss"), past("durable"), past("loss", "none"), past("durable")), 2),
        ((past("inconclusive", reasons=("too-few-cuts",)), past("inconclusive", reasons=("superseded",))), 0),
        ((past("inconclusive", reasons=("cut-class",)), past("durable", "os")), 1),
        ((past("loss", reasons=("unreadable-only",)), past("durable")), 0),
        ((past("loss", reasons=("unreadable-only",)), past("durable", reasons=("loss-withdrawn",))), 1),
        ((past("loss", reasons=("findings",)), past("durable", reasons=("loss-withdrawn",))), 0),
        (
            (
                past("loss", reasons=("unreadable-only",)),
                past("loss", reasons=("earlier-loss",)),
                past("inconclusive", reasons=("loss-withdrawn", "cut-not-shown")),
                past("durable"),
            ),
            3,
        ),
        ((past("durable", reasons=("loss-withdrawn",)), past("loss", reasons=("unreadable-only",))), 1),
        (
            (
                past("loss", reasons=("findings", "unreadable-only", "unstable")),
                past("loss", reasons=("earlier-loss", "earlier-unstable")),
                past("inconclusive", reasons=("earlier-unstable", "loss-withdrawn")),
            ),
            2,
        ),
        (
            (
                past("inconclusive", reasons=("too-few-cuts", "loss-withdrawn")),
                past("inconclusive", reasons=("superseded",)),
            ),
            0,
        ),
    ],
)
def test_the_weightiest_verdict_stands(given: tuple[PastVerdict, ...], number: int | None) -> None:
    """Loss unless it was withdrawn, then durable by class of cut, then inconclusive; the newest of equals."""
    told = tuple(replace(one, wall=str(at)) for at, one in enumerate(given))
    assert weightiest(told) == (None if number is None else told[number])


def test_a_run_counts_with_its_weightiest_verdict(make_plan: MakePlan) -> None:
    """A question that this pass cannot answer takes nothing from what an earlier pass has shown."""
    case = make_case(small(make_plan), (10,), series=apart(past("durable")), verdicts=(past("durable"),))
    series = strength(
        case, cut_class="none", verdict="inconclusive", at_risk_ms1000=0, reasons=("superseded",)
    )
    assert (series.cuts, series.losses, series.left_out) == (2, 0, 0)


def test_a_series_counts_like_cuts_only(make_plan: MakePlan) -> None:
    """Other classes, idle cuts and inconclusive runs are not counted; this run is."""
    others = (past("durable"), past("durable", "os"), past("durable", at_risk=0), past("inconclusive"))
    case = make_case(small(make_plan), (10,), series=apart(*others))
    series = strength(case, cut_class="power", verdict="durable", at_risk_ms1000=5)
    assert (series.cuts, series.losses, series.left_out) == (2, 0, 0)
    assert series.bound == pytest.approx(upper_bound(0, 2))


def test_a_loss_of_a_lesser_cut_counts(make_plan: MakePlan) -> None:
    """Losses of weaker cuts, or without a cut, count as losses in the series."""
    case = make_case(small(make_plan), (10,), series=apart(past("loss", "os"), past("loss", "none", 0)))
    series = strength(case, cut_class="power", verdict="durable", at_risk_ms1000=5)
    assert (series.cuts, series.losses) == (3, 2)


@pytest.mark.parametrize(
    ("verdict", "cuts", "losses"), [("inconclusive", 3, 0), ("loss", 4, 1)], ids=["stopped", "lost"]
)
def test_a_run_without_a_cut_leaves_its_series_as_it_is(
    make_plan: MakePlan, verdict: str, cuts: int, losses: int
) -> None:
    """The series of a run without a cut keeps the cuts of its strongest verified class. A loss of this run
    counts in it."""
    others = (past("durable"), past("durable"), past("durable"), past("durable", "os"))
    case = make_case(small(make_plan), (10,), series=apart(*others))
    series = strength(case, cut_class="none", verdict=verdict, at_risk_ms1000=5)
    assert (series.cut_class, series.cuts, series.losses) == ("power", cuts, losses)
    assert series.bound == upper_bound(losses, cuts)


def of_drives(verdict: str, *enumerations: str) -> PastVerdict:
    """A verdict on a run that was made on these enumerations of its drives."""
    return replace(past(verdict), enumerations=enumerations)


@pytest.mark.parametrize(
    ("series", "cuts", "losses"),
    [
        ((of_drives("durable", "a"),) * 5, 1, 0),
        ((of_drives("durable", "a"), of_drives("loss", "a"), of_drives("loss", "a")), 1, 1),
        ((of_drives("durable", "a"), of_drives("durable", "b"), of_drives("loss", "b")), 2, 1),
        # A mirror of which one drive was attached anew while its runs went on.
        ((of_drives("durable", "a", "b"), of_drives("durable", "a", "c")), 1, 0),
        ((of_drives("loss", "a"), of_drives("loss", "b"), of_drives("durable", "a", "b")), 1, 1),
        # A server of an earlier release does not say it: they may all have met one cut, also a known one.
        ((past("durable"), past("durable")), 1, 0),
        ((past("durable"), of_drives("durable", "a"), past("durable")), 1, 0),
        ((past("loss"), of_drives("durable", "a"), past("durable")), 2, 1),
    ],
)
def test_runs_that_one_cut_ended_are_one(series: tuple[PastVerdict, ...], cuts: int, losses: int) -> None:
    """However many runs were made at the same time; it lost if one of them did."""
    counted = strength_of_drive(series)
    assert (counted.cuts, counted.losses, counted.left_out) == (cuts, losses, 0)
    assert counted.bound == upper_bound(losses, cuts)


def test_this_run_shares_its_cut_with_the_series(make_plan: MakePlan) -> None:
    """Its enumerations are in its own facts, also where its verdict that stands came from a server that did
    not say them."""
    armed = facts()
    beside = replace(past("durable"), enumerations=enumerations(armed))
    case = make_case(small(make_plan), (10,), armed=armed, series=(beside,), verdicts=(past("durable"),))
    assert strength(case, cut_class="power", verdict="durable", at_risk_ms1000=5).cuts == 1
    later = replace(case, armed=facts(drives=(drive(diskseq=10),)))
    assert strength(later, cut_class="power", verdict="durable", at_risk_ms1000=5).cuts == 2


@pytest.mark.parametrize(
    ("verdict", "reasons"), [("unverified", ()), *(("inconclusive", (code,)) for code in sorted(HIDE_LOSSES))]
)
def test_runs_that_were_left_out_void_the_bound(
    make_plan: MakePlan, verdict: str, reasons: tuple[str, ...]
) -> None:
    """A cut that was not verified, or not completely, may have lost data. Such cuts are counted, and there is
    no bound."""
    left_out = replace(past(verdict, "none", 0), reasons=reasons)
    case = make_case(small(make_plan), (10,), series=(left_out,))
    series = strength(case, cut_class="power", verdict="durable", at_risk_ms1000=5)
    assert (series.bound, series.left_out, series.cuts) == (None, 1, 1)


@pytest.mark.parametrize(
    ("count", "cuts", "low", "high"), [(0, 50, 0.0, 0.0711), (50, 50, 0.9289, 1.0), (10, 100, 0.0490, 0.1762)]
)
def test_interval_is_that_of_clopper_and_pearson(count: int, cuts: int, low: float, high: float) -> None:
    """Values of the tables."""
    assert interval(count, cuts) == pytest.approx((low, high), abs=1e-4)


def test_unknown_cuts_widen_the_interval() -> None:
    """Each of them may have been a loss, or none."""
    low, high = interval(1, 19, unknown=40)
    assert low == interval(1, 59)[0] and high == interval(41, 59)[1]
