"""The JUnit report: what a CI system shows of a verdict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import get_args
from xml.etree import ElementTree

import pytest

from durability.errors import SetupError
from durability.evidence.judgement import FindingClass
from durability.evidence.outcome import Outcome
from durability.formats.case import PastVerdict
from durability.formats.plan import Plan
from durability_client.verify import junit
from tests.client.verify.outcomes import judged, partly_set_aside
from tests.sample_facts import facts

MakePlan = Callable[..., Plan]


def suite_of(outcome: Outcome, directory: Path) -> ElementTree.Element:
    """The suite as a CI system reads it."""
    path = directory / "report.xml"
    junit.write(outcome, path)
    (suite,) = ElementTree.parse(path).getroot()
    return suite


def results(suite: ElementTree.Element) -> dict[str | None, str]:
    """What each test case came to."""
    return {case.get("name"): case[0].tag if len(case) else "passed" for case in suite.iter("testcase")}


def test_durable_passes_everywhere(make_plan: MakePlan, tmp_path: Path) -> None:
    """A durable verdict is a suite of passes, one for each class that was looked for."""
    suite = suite_of(judged(make_plan), tmp_path)

    assert results(suite) == dict.fromkeys(("verdict", *get_args(FindingClass)), "passed")
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["11", "0", "0", "0"]


def test_loss_fails_with_its_examples(make_plan: MakePlan, tmp_path: Path) -> None:
    """The verdict and each class that was found fail; the message counts, the text names places."""
    suite = suite_of(judged(make_plan, findings={"lost": 3}), tmp_path)

    failed = {name for name, result in results(suite).items() if result == "failure"}
    assert failed == {"verdict", "lost"}
    failure = suite.find("testcase[@name='lost']/failure")
    assert failure is not None
    assert failure.get("message") == "3 lost"
    assert "writer 0 slot 7" in str(failure.text)


def test_findings_that_do_not_count_are_skipped(make_plan: MakePlan, tmp_path: Path) -> None:
    """Those that a later run explains, beside an earlier loss; and what an unfinished scan sets aside."""
    earlier = PastVerdict(run="0" * 16, verdict="loss", cut_class="power", at_risk_ms1000=1, wall="")
    later = judged(make_plan, findings={"lost": 3}, case={"verdicts": (earlier,), "superseded_by": "00ff"})
    aside = judged(make_plan, findings={"torn": 1, "unreadable": 2}, finished=False)

    explained, unfinished = results(suite_of(later, tmp_path)), results(suite_of(aside, tmp_path))
    assert (explained["verdict"], explained["lost"]) == ("failure", "skipped")
    assert [unfinished[name] for name in ("verdict", "torn", "unreadable")] == [
        "failure",
        "failure",
        "skipped",
    ]


def test_a_failure_counts_what_convicts(make_plan: MakePlan, tmp_path: Path) -> None:
    """A superblock does, though an older log may explain three slots of its class."""
    outcome = partly_set_aside(make_plan)

    failure = suite_of(outcome, tmp_path).find("testcase[@name='corrupt']/failure")
    assert failure is not None
    assert failure.get("message") == "1 corrupt; 3 more do not count, since the scan did not finish"


def test_inconclusive_is_an_error_and_no_pass(make_plan: MakePlan, tmp_path: Path) -> None:
    """A job that could not test the drive must not look like one that did."""
    suite = suite_of(judged(make_plan, now=facts(uptime_s=5000)), tmp_path)

    outcome = results(suite)
    assert outcome.pop("verdict") == "error"
    assert set(outcome.values()) == {"skipped"}
    assert [suite.get(name) for name in ("failures", "errors", "skipped")] == ["0", "1", "10"]


def test_characters_that_xml_cannot_hold_are_escaped(make_plan: MakePlan, tmp_path: Path) -> None:
    """A path may hold any byte; the report stays readable."""
    suite = suite_of(
        judged(make_plan, now=facts(uptime_s=5000, path="/mnt/\x1b\udc80\uffff & <file>")), tmp_path
    )

    target = suite.find("properties/property[@name='target']")
    assert target is not None
    assert target.get("value") == r"/mnt/\x1b\x80\uffff & <file>"


def test_report_that_cannot_be_written_is_said(make_plan: MakePlan, tmp_path: Path) -> None:
    """The message names the file."""
    with pytest.raises(SetupError, match=r"nowhere/report\.xml: a JUnit report cannot be written there"):
        junit.write(judged(make_plan), tmp_path / "nowhere" / "report.xml")


def test_only_an_earlier_report_is_replaced(make_plan: MakePlan, tmp_path: Path) -> None:
    """A job that keeps its directory gets the new report; a mistyped name costs no file."""
    report, other = tmp_path / "report.xml", tmp_path / "notes.xml"
    junit.write(judged(make_plan), report)
    junit.write(judged(make_plan), report)
    other.write_text("<notes/>")
    with pytest.raises(SetupError, match="exists and is not a JUnit report of this tool"):
        junit.write(judged(make_plan), other)
    assert other.read_text() == "<notes/>"
