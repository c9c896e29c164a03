"""A JUnit report of a campaign: a test suite for each drive, a test case for each cycle and for the bound.

A loss is a failure, also in a cycle that is not over. A cut that voids the bound is an error. Other cycles
without a result are skipped. A drive without a loss and without a bound is an error, so it never passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from durability import plain_text
from durability.campaign.campaign_state import CampaignState
from durability.campaign.cycles import arm_of
from durability.campaign.log_entries import DriveCycle
from durability.campaign.results import DriveResult, is_unknown, losses_so_far, results, sentence
from durability_client.system import output_files

_LOST = "acknowledged data were lost"
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
    for result in results(state):
        cases = [*_cycle_cases(state, result.drive), _bound_case(state, result)]
        attributes = {
            "name": "durability campaign",
            "package": result.drive,
            "tests": str(len(cases)),
        }
        for kind in ("failure", "error", "skipped"):
            plural = kind if kind == "skipped" else f"{kind}s"
            attributes[plural] = str(sum(case.find(kind) is not None for case in cases))
        ElementTree.SubElement(root, "testsuite", attributes).extend(cases)
    return root


def _cycle_cases(state: CampaignState, drive: str) -> Iterator[ElementTree.Element]:
    for past in state.cycles:
        if past.began.cycle and (mine := past.of(drive)):
            yield _cycle_case(state, past.began.cycle, mine)
    for loss in losses_so_far(state):
        if loss.drive == drive:
            case = _case(drive, f"{_name(state, loss.cycle, loss.run)}, not over")
            yield _with(case, "failure", _LOST)


def _cycle_case(state: CampaignState, cycle: int, mine: DriveCycle) -> ElementTree.Element:
    case = _case(mine.drive, _name(state, cycle, mine.run))
    if mine.word == "loss":
        _with(case, "failure", f"{_LOST}: {mine.text}".rstrip(": "))
    elif mine.word == "nothing":
        _with(case, "error" if is_unknown(mine) else "skipped", f"{mine.cause}: {mine.text}")
    return case


def _bound_case(state: CampaignState, result: DriveResult) -> ElementTree.Element:
    """Without arms under load nothing is bounded: then one cycle with the word "kept" is enough."""
    case = _case(result.drive, "bound")
    is_under_load = any(arm.moment == "load" for arm in state.plan.arms)
    has_result = result.tally.bound is not None if is_under_load else bool(result.kept)
    if result.first_loss is None and not has_result:
        _with(case, "error", sentence(result))
    return case


def _name(state: CampaignState, cycle: int, run: str) -> str:
    return f"cycle {cycle} ({arm_of(state.plan, cycle).name}, run {run or 'none'})"


def _case(drive: str, name: str) -> ElementTree.Element:
    return ElementTree.Element("testcase", {"classname": f"durability.{drive}", "name": name})


def _with(case: ElementTree.Element, kind: str, message: str) -> ElementTree.Element:
    """The test case with this result."""
    ElementTree.SubElement(case, kind, {"message": plain_text.as_line(message)})
    return case
