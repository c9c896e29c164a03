"""`verify` of a run whose files its campaign removed after the verdict: an error that says so, no loss."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from durability.errors import EXIT_ENVIRONMENT, EXIT_LOSS, TargetError
from durability.formats.case import FILES_REMOVED
from durability.formats.plan import MAIN, Plan
from tests.client.verify.targets import KnownStorage, lay_down
from tests.client.verify.verify_lab import Lab
from tests.core.evidence.memory_target import Disk, small

pytestmark = pytest.mark.slow  # each starts a server and a scan
WHY = "its files were removed after its verdict by campaign trial"


def note_removal(export: Path) -> None:
    """The export is of a time after the removal."""
    case = json.loads(export.read_text())
    removal = {"at_ns": 1, "wall": "2027-01-01T00:00:00Z", "kind": FILES_REMOVED, "text": WHY}
    export.write_text(json.dumps({**case, "events": [*case["events"], removal]}))


@pytest.mark.parametrize("left", ["all", "main", "nothing"])
async def test_an_export_that_knows_of_the_removal_makes_no_verdict(
    lab: Lab, make_plan: Callable[..., Plan], left: str
) -> None:
    """The agent may have been killed before the first file went, or before the last one, which names the
    run."""
    lab.plan = small(make_plan, workload="append", slots=1024, credit=256)
    lab.disk = Disk(lab.plan)
    lab.disk.write_to(0, 100)
    await lab.run()
    export = await lab.export()
    storage = lab.storage = KnownStorage(lay_down(lab.disk, lab.directory).path, lab.now)
    for suffix in (*storage.suffixes(), MAIN):
        if left == "nothing" or (left == "main" and suffix != MAIN):
            storage.unlink(suffix)
    if left != "all":
        assert (await lab.verify(from_export=export, endpoint=None, run=lab.plan.run))["exit"] == EXIT_LOSS
    note_removal(export)

    with pytest.raises(TargetError, match=WHY) as refused:
        await lab.verify(from_export=export, endpoint=None, run=lab.plan.run)

    assert refused.value.exit_code == EXIT_ENVIRONMENT
