"""A JUnit report of a campaign: a test suite for each drive, a test case for each cycle.

A cycle without a result is skipped, with its cause, and never passed. A loss is a failure.
"""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from durability import plain_text
from durability.campaign.campaign_state import CampaignState, PastCycle
from durability.campaign.cycles import arm_of
from durability.campaign.log_entries import DriveCycle
from durability_client.system import output_files

_SUITE = b'<testsuite name="durability campaign"'


def write(state: CampaignState, path: Path) -> None:
    """Write the report to `path`, and replace an earlier one. Raises SetupError."""
    root = suites(state)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    output_files.replace(path, text, "a JUnit report", lambda head: _SUITE in head)


def suites(state: CampaignState) -> ElementTree.Element:
    """The report as an XML element."""
    root = ElementTree.Element("testsuites", {"name": f"campaign {state.plan.name}"})
    for drive in state.plan.drives:
        cycles = [(past, mine) for past in state.cycles if past.began.cycle and (mine := past.of(drive.name))]
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            {
                "name": "durability campaign",
                "package": drive.name,
                "tests": str(len(cycles)),
                "failures": str(sum(mine.word == "loss" for _, mine in cycles)),
                "errors": "0",
                "skipped": str(sum(mine.word == "nothing" for _, mine in cycles)),
            },
        )
        suite.extend(_case(state, past, mine) for past, mine in cycles)
    return root


def _case(state: CampaignState, past: PastCycle, mine: DriveCycle) -> ElementTree.Element:
    arm = arm_of(state.plan, past.began.cycle).name
    name = f"cycle {past.began.cycle} ({arm}, run {mine.run or 'none'})"
    case = ElementTree.Element("testcase", {"classname": f"durability.{mine.drive}", "name": name})
    text = plain_text.as_line(mine.text)
    if mine.word == "loss":
        ElementTree.SubElement(
            case, "failure", {"message": f"acknowledged data were lost: {text}".rstrip(": ")}
        )
    elif mine.word == "nothing":
        ElementTree.SubElement(case, "skipped", {"message": f"{mine.cause}: {text}"})
    return case
