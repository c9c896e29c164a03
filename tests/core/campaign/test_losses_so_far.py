"""A loss in a cycle that is not over: it may last for days, and the loss is told at once, and once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from durability.campaign.log_entries import CycleEnded, Entry, Happening, Judged, Paused, Resumed
from durability.campaign.results import LossSoFar, losses_so_far, results
from durability_client.campaigns.campaign_command import _runs
from durability_client.campaigns.campaign_junit import suites
from durability_client.campaigns.campaign_text import page, status, status_value
from durability_server.campaigns.notifications import news_of
from tests.core.campaign.test_moments_and_supplies import two_machines
from tests.core.campaign.told_campaign import OTHER_RUN, RUN, ToldCampaign, judged, part
from tests.core.campaign.written_log import said

UNREADABLE = ("findings", "unreadable-only")
TOLD = (f"d0: loss (run {RUN}), its cycle is not over", True)


def away(*reasons: str) -> ToldCampaign:
    """Two machines are cut together. The drive of one is verified: loss. The other machine does not boot, and
    the campaign is paused."""
    told = two_machines()
    told.cut()
    told.say(boot="boot-2")
    told.say(part("done", run=RUN), boot="boot-2")
    told.judge(verdict="loss", reasons=reasons)
    told.add(Paused(reason="machine c did not come back"))
    assert told.state.cycle is not None
    return told


def over(told: ToldCampaign) -> None:
    """The other machine boots after all, and the cycle ends."""
    told.add(Resumed())
    told.judge(verdict="loss", reasons=("findings",))
    told.say(machine="c", boot="boot-2")
    told.say(part("done", drive="d1", run=OTHER_RUN), machine="c", boot="boot-2")
    told.judge(verdict="durable")
    told.ended()


@pytest.mark.parametrize(
    ("reasons", "final", "what"),
    [
        (("findings",), True, "lost data"),
        (UNREADABLE, False, "has unreadable data, a loss unless a later verify reads them"),
    ],
)
def test_a_loss_before_the_end_of_its_cycle_is_shown(reasons: Sequence[str], final: bool, what: str) -> None:
    """In the status, on the page, in JSON and in the report for CI. The table counts it after the cycle."""
    told = away(*reasons)
    state = told.state
    assert losses_so_far(state) == (LossSoFar(cycle=1, drive="d0", run=RUN, final=final),)
    line = f"cycle 1, not over: d0 {what} (`durability show {RUN}`)"
    assert line in status(state, {}, took_s=None)
    assert line in page(state, {}, took_s=None, bars="12345678", health=False)
    value = status_value(state, {}, took_s=None)
    assert value["losses_so_far"] == [{"cycle": 1, "drive": "d0", "run": RUN, "final": final}]
    suite, other = suites(state)
    assert [(case.get("name"), *(one.tag for one in case)) for case in suite] == [
        (f"cycle 1 (0, run {RUN}), not over", "failure"),
        ("bound", "error"),
    ]
    assert (suite.get("failures"), other.get("failures")) == ("1", "0")
    assert [result.tally.losses for result in results(state)] == [0, 0]

    over(told)
    assert losses_so_far(state) == ()
    assert not any("not over" in one for one in status(state, {}, took_s=None))
    assert [result.tally.losses for result in results(state)] == [1, 0]


def test_runs_of_a_cycle_that_is_not_over_are_exported() -> None:
    """Each once, also after the end of the cycle."""
    told = away("findings")
    assert _runs(told.state) == (RUN, OTHER_RUN)
    over(told)
    assert _runs(told.state) == (RUN, OTHER_RUN)


def news(happenings: Sequence[Happening]) -> list[tuple[str, bool]]:
    """What a server tells of them."""
    lost = set[str]()
    entries = (
        Entry(number=number, at_ns=number, boot_id="server", wall="2027", happening=one)
        for number, one in enumerate(happenings, 1)
    )
    return [one for entry in entries for one in news_of(entry, lost)]


def test_a_loss_calls_the_command_before_the_end_of_its_cycle_and_once() -> None:
    """A pause has verdicts looked up again, and the end of the cycle repeats the loss: neither calls it."""
    loss = judged("d0", RUN, "loss", reasons=("findings",))
    ended = CycleEnded(cycle=1, drives=(said("loss", 0xAA), said("durable", 0xBB, drive="d1")))
    assert news([loss, loss, ended]) == [
        TOLD,
        (f"cycle 1: d0: loss (run {RUN})", False),
        (f"cycle 1: d1: durable (run {OTHER_RUN})", False),
    ]


@pytest.mark.parametrize(
    "before",
    [
        judged("d0", RUN, "loss", reasons=UNREADABLE),
        judged("d0", RUN, "inconclusive"),
        judged("d0", RUN, ""),
        judged("d1", OTHER_RUN, "durable"),
    ],
)
def test_a_loss_that_may_be_withdrawn_calls_the_command_at_the_end_of_its_cycle(before: Judged) -> None:
    """Data that only could not be read may be read by a later verify. Other verdicts tell nothing."""
    ended = CycleEnded(cycle=1, drives=(said("loss", 0xAA),))
    assert news([before, ended]) == [(f"cycle 1: d0: loss (run {RUN})", True)]
