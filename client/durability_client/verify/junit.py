"""A JUnit report of one verify, for CI systems.

The report has a test case for the verdict and one for each class of finding. An inconclusive verdict is an
error, never a pass: a job that could not test the drive must not look like one that did. Classes whose
findings do not count are reported as skipped.
"""

from __future__ import annotations

from pathlib import Path
from typing import get_args
from xml.etree import ElementTree

from durability import plain_text
from durability.evidence.judgement import FindingClass
from durability.evidence.outcome import Outcome
from durability_client.system import output_files


def write(outcome: Outcome, path: Path) -> None:
    """Write the report of `outcome` to `path`, and replace an earlier report. Raises SetupError."""
    root = suites(outcome)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    output_files.replace(path, text, "a JUnit report", _is_report)


def _is_report(head: bytes) -> bool:
    return b'<testsuite name="durability"' in head


def suites(outcome: Outcome) -> ElementTree.Element:
    """The report as an XML element."""
    cases = [_verdict_case(outcome), *(_finding_case(outcome, name) for name in get_args(FindingClass))]
    seconds = f"{outcome.duration_s:.3f}"
    attributes = {"name": "durability", "tests": str(len(cases)), "time": seconds}
    for kind in ("failure", "error", "skipped"):
        plural = kind if kind == "skipped" else f"{kind}s"
        attributes[plural] = str(sum(case.find(kind) is not None for case in cases))
    cases[0].set("time", seconds)
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(root, "testsuite", attributes)
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in _properties(outcome):
        ElementTree.SubElement(properties, "property", {"name": name, "value": plain_text.as_line(value)})
    suite.extend(cases)
    return root


def _properties(outcome: Outcome) -> list[tuple[str, str]]:
    return [
        ("run", f"{outcome.plan.run:016x}"),
        ("target", outcome.facts.path),
        ("cut", outcome.cut.cut_class),
        ("checked", str(outcome.report.checked)),
        ("at_risk_ms1000", str(outcome.at_risk.ms1000)),
    ]


def _verdict_case(outcome: Outcome) -> ElementTree.Element:
    case, verdict = _case("verdict"), outcome.verdict
    reasons = "\n".join(reason.text for reason in verdict.reasons)
    if verdict.word == "loss":
        _result(case, "failure", verdict.headline, reasons)
    elif verdict.word == "inconclusive":
        _result(case, "error", verdict.headline, reasons)
    return case


def _finding_case(outcome: Outcome, name: FindingClass) -> ElementTree.Element:
    case, count = _case(name), outcome.report.findings.get(name, 0)
    counts = outcome.report.convicting.get(name, 0) if outcome.verdict.by_findings else 0
    if outcome.verdict.word == "inconclusive":
        _result(case, "skipped", f"the verdict is inconclusive; {count} {name} found", "")
    elif count and not counts:
        _result(case, "skipped", f"{count} {name} found, which do not count", "")
    elif count:
        texts = [judgement.text for judgement in outcome.findings if judgement.finding == name]
        others = f"; {count - counts} more do not count, since the scan did not finish"
        message = f"{counts} {name}{others if count > counts else ''}"
        _result(case, "failure", message, "\n".join(texts))
    return case


def _case(name: str) -> ElementTree.Element:
    return ElementTree.Element("testcase", {"classname": "durability.verify", "name": name})


def _result(case: ElementTree.Element, kind: str, message: str, text: str) -> None:
    message = plain_text.as_line(message)
    attributes = {"message": message} if kind == "skipped" else {"message": message, "type": kind}
    ElementTree.SubElement(case, kind, attributes).text = plain_text.as_text(text) or None
