"""The account of histories notices figures that are not true, of each kind, and each in the direction that
matters; verdicts may be right beside them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from durability.evidence import at_risk, strength
from durability.evidence.outcome import Outcome
from durability.evidence.proven_operations import ProvenOperations
from durability.evidence.scan_report import ScanCounts, ScanReport
from tests.lab.histories.test_deserved import LOADED, played
from tests.lab.mutants.mutation import without

pytestmark = pytest.mark.slow

CUT = ("cut", "boot", "verify")
LIAR = "early-ack:delay_ms=300"
Change = Callable[[], AbstractContextManager[None]]


@pytest.mark.parametrize(
    ("drive", "change", "wrong"),
    [
        (
            LIAR,
            without(
                ScanReport.operations_lost,
                "sum(self.convicting.values()) - apart",
                "sum(self.convicting.values()) + 1",
            ),
            "lost operations, and a second reading has",
        ),
        (
            LIAR,
            without(ScanReport.prefill_lost, 'self._convicting_apart("prefill")', "1"),
            "1 lost prefill, and a second reading has 0",
        ),
        (
            "honest",
            without(ScanCounts.report, "control_lost=self.control_lost", "control_lost=1"),
            "1 losses of the control arm, and a second reading has",
        ),
        (
            "honest",
            without(ScanCounts.report, "checked=self.checked", "checked=self.checked - 1"),
            "checked slots, and a second reading has",
        ),
        (
            "honest",
            without(Outcome.document, "sum(case.frontiers) if", "1000 + sum(case.frontiers) if"),
            "operations acknowledged, and the drive promised",
        ),
        (
            "honest",
            without(at_risk.at_risk, "power_ns - window * _MS", "power_ns - 100 * window * _MS"),
            "at risk within 10 ms, and the drive promised",
        ),
        (
            LIAR,
            without(at_risk.loss_window, "late for _, late in", "late - 500_000_000 for _, late in"),
            "ms at least, and the oldest is of",
        ),
        (
            LIAR,
            without(at_risk.loss_window, "longest_ns / _MS if", "0.0 if"),
            "ms at most, and one is of",
        ),
        (
            LIAR,
            without(at_risk.loss_window, "sum(proven) - before", "1"),
            "operations since the oldest loss, and there are",
        ),
        (
            LIAR,
            without(at_risk.loss_window, "sum(proven) - before", "sum(proven)"),
            "operations since the oldest loss, and there are",
        ),
        (
            "misdirected:chance=0.05",  # damage and losses, of which the oldest is damage
            without(
                ProvenOperations._oldest_lost,
                "faults.finding is None",
                'faults.found is None and faults.finding != "absent"',
            ),
            "operations since the oldest loss, and there are",
        ),
        (
            "honest",
            without(strength._counted, "cuts = len(ended)", "cuts = 1 + len(ended)"),
            "a series of 2 cuts, 0 with a loss, after 1 cuts",
        ),
    ],
)
def test_a_figure_that_is_not_true_is_noticed(drive: str, change: Change, wrong: str) -> None:
    """After a plain cut under load every figure is right, and without a part of the product it is not."""
    assert played(*LOADED, *CUT, drive=drive).wrong == ()
    with change():
        found = played(*LOADED, *CUT, drive=drive)
    assert any(wrong in one for one in found.wrong), found.wrong


@pytest.mark.parametrize(
    ("how", "rule", "instead"),
    [
        ("restarted", "early or None", "early or late"),
        ("moved", "if late == 0:", "if False:"),
    ],
)
def test_a_loss_window_over_a_restart_of_the_server_is_compared(how: str, rule: str, instead: str) -> None:
    """Its machine was restarted, or the store moved to another one, whose clock is far ahead: what came
    before has no time."""
    steps = ("run size_kib=1024", "pass ms=4000", f"server how={how}", "pass ms=1500", *CUT)
    assert played(*steps, drive="flush-ignored").wrong == ()
    with without(at_risk._received_ns, rule, instead)():
        found = played(*steps, drive="flush-ignored")
    assert any("a loss of" in one for one in found.wrong), found.wrong
