"""A frontier rises by whole groups within its credit; every other report moves nothing and taints the run."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durability.errors import ProtocolError
from durability.formats.plan import Plan
from durability.protocol.frontiers import Frontiers

MakePlan = Callable[..., Plan]


@pytest.fixture
def frontiers(make_plan: MakePlan) -> Frontiers:
    """Two writers, groups of 4, a credit of 100."""
    return Frontiers(make_plan(writers=2, group=4, credit=100))


def test_a_report_within_the_credit_raises_the_frontiers(frontiers: Frontiers) -> None:
    """Up to grant and credit exactly, each writer for itself; a repeated report says nothing new."""
    assert frontiers.acked == frontiers.grants == (0, 0)
    assert frontiers.advance((4, 100))
    assert not frontiers.advance((4, 100))
    assert (frontiers.acked, frontiers.tainted) == ((4, 100), "")


def test_a_grant_lets_the_frontier_rise_further(frontiers: Frontiers) -> None:
    """Credit counts from the last grant, and grants never fall."""
    frontiers.advance((4, 100))
    frontiers.granted((4, 96))
    frontiers.granted((4, 40))
    assert frontiers.grants == (4, 96)
    assert frontiers.advance((104, 196))
    assert frontiers.tainted == ""


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        ((8, 104), "writer 1 is 104, beyond the grant of 0 and the credit of 100"),
        ((8, 6), "writer 1 is 6, which is not a whole number of groups of 4"),
        ((8, 0), "writer 1 fell from 4 to 0"),
    ],
)
def test_a_report_that_breaks_a_rule_taints_and_moves_only_the_others(
    frontiers: Frontiers, report: tuple[int, int], reason: str
) -> None:
    """A frontier is never put where an honest client could not have been."""
    frontiers.advance((4, 4))
    assert frontiers.advance(report)
    assert frontiers.acked == (8, 4)
    assert reason in frontiers.tainted
    first = frontiers.tainted
    frontiers.advance((9, 4))
    assert frontiers.tainted == first


def test_a_report_of_other_writers_is_no_report(frontiers: Frontiers) -> None:
    """The number of writers is the plan's."""
    with pytest.raises(ProtocolError, match="Ack of 3 writers in a run of 2"):
        frontiers.advance((4, 4, 4))
    assert frontiers.acked == (0, 0)


def test_a_run_that_goes_on_has_credit_from_what_was_durable(make_plan: MakePlan) -> None:
    """After a restart the durable frontiers are grants: all of them were or are sent to the client."""
    frontiers = Frontiers(make_plan(writers=2, group=4, credit=100), (40, 80))
    assert frontiers.grants == frontiers.acked == (40, 80)
    assert frontiers.advance((140, 180))
    assert frontiers.tainted == ""


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 400), st.booleans()), max_size=60))
def test_no_sequence_of_reports_breaks_the_invariants(
    make_plan: MakePlan, reports: list[tuple[int, int, bool]]
) -> None:
    """Frontiers never fall, stay whole groups and never pass grant and credit; untainted means all were
    legal."""
    frontiers = Frontiers(make_plan(writers=2, group=4, credit=100))
    taken = []
    for one, two, commit in reports:
        before, grants = frontiers.acked, frontiers.grants
        moved = frontiers.advance((one, two))
        assert moved == (frontiers.acked != before)
        assert all(old <= new for old, new in zip(before, frontiers.acked, strict=True))
        assert all(new % 4 == 0 for new in frontiers.acked)
        assert all(new <= grant + 100 for new, grant in zip(frontiers.acked, grants, strict=True))
        taken.append(frontiers.acked == (one, two))
        if commit:
            frontiers.granted(frontiers.acked)
    assert all(taken) == (frontiers.tainted == "")
