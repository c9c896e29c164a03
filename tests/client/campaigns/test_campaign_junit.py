"""The JUnit report of a campaign: what a CI system shows of its cycles and of the bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args
from xml.etree import ElementTree

import pytest

from durability.campaign.log_entries import Began, Cause, Checked, CycleEnded, DriveCycle, Ended, OutcomeWord
from durability.campaign.results import INDEPENDENT
from durability_client.campaigns.campaign_junit import suites
from tests.core.campaign.told_campaign import ToldCampaign, told_settings
from tests.core.campaign.written_log import said, state_of, written_log

CLEAN, LOSS = said("durable", 1), said("loss", 2)


def left_out(cause: Cause, *, cut: bool) -> DriveCycle:
    """A cycle that was not counted."""
    return replace(said("nothing", 3), cause=cause, text="why", cut=cut)


def suite_of(*cycles: DriveCycle) -> ElementTree.Element:
    """The suite of the only drive."""
    (suite,) = suites(state_of(written_log("ssd", [[one] for one in cycles])))
    return suite


def tags(suite: ElementTree.Element) -> list[str]:
    """The result of each test case, "" for a pass. The suite's counts must be those of its cases."""
    found = [case[0].tag if len(case) else "" for case in suite]
    counts = {key: int(suite.get(key, "-1")) for key in ("tests", "failures", "errors", "skipped")}
    assert counts == {
        "tests": len(found),
        "failures": found.count("failure"),
        "errors": found.count("error"),
        "skipped": found.count("skipped"),
    }
    assert suite[-1].get("name") == "bound"
    return found


@pytest.mark.parametrize("cause", get_args(Cause))
@pytest.mark.parametrize("cut", [False, True])
def test_a_cut_that_voids_the_bound_is_an_error(cause: Cause, *, cut: bool) -> None:
    """A cut with an unknown outcome may hide a loss, so neither it nor the bound passes. Other cycles that
    are not counted are skipped."""
    suite = suite_of(CLEAN, left_out(cause, cut=cut))
    voids = cut and cause not in INDEPENDENT
    assert tags(suite) == (["", "error", "error"] if voids else ["", "skipped", ""])
    assert suite[1][0].get("message") == f"{cause}: why"
    if voids:
        assert "so there is no bound" in suite[2][0].get("message", "")


@pytest.mark.parametrize(
    ("cycles", "found"),
    [
        ([CLEAN], ["", ""]),
        ([CLEAN, LOSS], ["", "failure", ""]),
        ([LOSS, left_out("drive", cut=True)], ["failure", "error", ""]),
        ([left_out("operator", cut=False)], ["skipped", "error"]),
    ],
)
def test_a_drive_without_a_loss_and_without_a_bound_does_not_pass(
    cycles: Sequence[DriveCycle], found: Sequence[str]
) -> None:
    """After a loss, the loss says enough."""
    assert tags(suite_of(*cycles)) == found


def test_a_failed_check_is_an_error_for_each_drive() -> None:
    """No cycle began, so nothing else would say that the drives were not tested."""
    told = ToldCampaign()
    told.begin(told_settings(devices=("/dev/sdb", "/dev/sdc")))
    told.note()
    told.add(Checked(problems=("machine b kept running",)), CycleEnded(cycle=0, drives=()))
    assert told.note() == Ended(reason="the check failed")
    for suite in suites(told.state):
        assert tags(suite) == ["error"]
        assert suite[0][0].get("message") == "no cut with a verdict yet."


@pytest.mark.parametrize(("word", "found"), [("kept", ["", ""]), ("nothing", ["skipped", "error"])])
def test_arms_that_bound_nothing_pass_if_all_was_kept(word: OutcomeWord, found: list[str]) -> None:
    """A campaign of cuts in the prefill alone has no bound, but an outcome."""
    log = list(written_log("ssd", [[said(word, 1)]]))
    began = Began(settings=told_settings(moment="prefill"), check_only=False)
    log[0] = replace(log[0], happening=began)
    (suite,) = suites(state_of(log))
    assert tags(suite) == found
