"""The account of histories counts the cuts and losses of a series again, and notices a wrong one or bound."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from durability.evidence import strength
from durability_lab.histories.series import untrue_bound
from durability_lab.histories.stored_verdicts import StoredVerdict, standing
from tests.lab.histories.test_deserved import LOADED, played
from tests.lab.mutants.mutation import without

LIAR = "early-ack:delay_ms=300"
RUN = (*LOADED, "cut", "boot")
Change = Callable[[], AbstractContextManager[None]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lines", "drive", "change", "wrong"),
    [
        (
            (*RUN, "verify", *RUN, "verify"),
            LIAR,
            without(
                strength._counted,
                'sum(any(past.verdict == "loss" for past in runs) for runs in ended)',
                "0",
            ),
            "a series of 2 cuts, 0 with a loss, and the verdicts that stand are of 2 cuts, 2 with",
        ),
        (
            (*RUN, "verify", *RUN, "verify"),
            "honest",
            without(strength._counted, "cuts = len(ended)", "cuts = 1"),
            "a series of 1 cuts, 0 with a loss, and the verdicts that stand are of 2 cuts",
        ),
        (
            (*RUN, *RUN, "verify"),
            "honest",
            without(strength._counted, "if cuts and not left_out", "if cuts"),
            "though a cut of the series may hide a loss",
        ),
        (
            (*RUN, "verify cut_after=7 loses=bit", *RUN, "verify"),
            "honest",
            without(
                strength._counted,
                'or (past.verdict == "inconclusive" and not HIDE_LOSSES.isdisjoint(past.reasons))',
                "",
            ),
            "though a cut of the series may hide a loss",
        ),
        (
            (*RUN, "verify"),
            "honest",
            without(strength._counted, "if cuts and not left_out", "if cuts > 1"),
            "no bound after 1 cuts that were all verified",
        ),
    ],
)
def test_a_wrong_series_is_noticed(lines: tuple[str, ...], drive: str, change: Change, wrong: str) -> None:
    """Every series is right, and without a part of the product it is not."""
    assert played(*lines, drive=drive).wrong == ()
    with change():
        found = played(*lines, drive=drive)
    assert any(wrong in one for one in found.wrong), found.wrong


@pytest.mark.slow
@pytest.mark.parametrize(
    "between",
    [
        ("copy", "verify", "server how=newest"),  # the verdict is lost with the store
        ("verify log=export",),  # and this one was never stored
        ("copy", *RUN, "verify", "server how=newest"),  # the store does not know the second run
        ("verify", "replace", *RUN, "verify"),  # another drive has a series of its own
        ("verify", "resize", *RUN, "verify"),
        ("run writers=3 size_kib=1024", "pass ms=400", "cut", "boot", "verify"),
    ],
)
@pytest.mark.parametrize(
    ("serials", "drive"), [("own", "honest"), ("own", LIAR), ("same", LIAR), ("none", LIAR)]
)
def test_a_series_is_what_the_store_knows_of_it(between: tuple[str, ...], serials: str, drive: str) -> None:
    """Verdicts that a restored store lost, exports, runs that it does not know, and other drives."""
    found = played(f"serials {serials}", "copy", *RUN, *between, *RUN, "verify", drive=drive)
    assert found.wrong == (), found.told


@pytest.mark.parametrize(
    ("cuts", "losses", "bound"),
    [
        (1, 0, 0.95),
        (30, 0, 0.0950338529),
        (2, 1, 0.9746794345),
        (10, 2, 0.506901313),
        (3, 3, 1.0),
        (0, 0, None),
    ],
)
def test_a_bound_is_that_of_its_losses(cuts: int, losses: int, bound: float | None) -> None:
    """So few losses are just as unlikely as the confidence says; any other bound is wrong."""
    told = {"cuts": cuts, "losses": losses, "bound": bound}
    assert not list(untrue_bound(told))
    if bound is not None:
        assert list(untrue_bound({**told, "bound": bound * 0.999}))
        assert list(untrue_bound({**told, "cuts": 0}))


def given(word: str, cut_class: str = "power", *codes: str) -> StoredVerdict:
    """A verdict with records at risk."""
    return StoredVerdict(word=word, cut_class=cut_class, at_risk=True, codes=frozenset(codes))


def test_the_weightiest_verdict_stands() -> None:
    """Loss, then durable by class, then one that lacked only other cuts; the newest of equals."""
    asked = given("inconclusive", "power", "too-few-cuts")
    plain, durable, weaker = (
        given("inconclusive", "power", "superseded"),
        given("durable"),
        given("durable", "os"),
    )
    loss, again = given("loss", "os", "findings"), given("loss", "none", "earlier-loss")
    by_reads = given("loss", "power", "findings", "unreadable-only")
    withdrawn = given("durable", "os", "loss-withdrawn")
    for verdicts, stands in (
        ([plain, asked], asked),
        ([asked, weaker], weaker),
        ([durable, weaker, asked, plain], durable),
        ([loss, durable], loss),
        ([loss, again], again),
        ([by_reads, durable], by_reads),
        ([by_reads, withdrawn, plain], withdrawn),
    ):
        assert standing(verdicts) == stands, verdicts
