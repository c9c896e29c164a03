"""The verdict that is expected for each kind of drive."""

from __future__ import annotations

from durability.evidence.verdict import VerdictWord
from durability_lab.drive import faults

UNREAD = ("hanging", "dead")  # models whose drives cannot be read to the end after a cut
# The commands print one of these two about all their verdicts.
AS_EXPECTED = "Each verdict is the expected one for its drive."
NOT_AS_EXPECTED = "A verdict is not the expected one for its drive. This is a defect of the tool."
FILTERS = {"filter-honest": "writeback", "filter-amnesiac": "unsafe"}  # modes of nbdkit's cache filter


def is_honest(drive: str) -> bool:
    """Whether `drive` (a model's spec, or one of FILTERS) keeps its promises. Raises ValueError if `drive`
    is neither."""
    return drive == "filter-honest" if drive in FILTERS else faults.parse(drive).honest


def expected_of(drive: str) -> VerdictWord:
    """The expected verdict for a drive. A drive that cannot be read to its end proves neither loss nor
    durability."""
    if is_honest(drive):
        return "durable"
    return "inconclusive" if drive.partition(":")[0] in UNREAD else "loss"
