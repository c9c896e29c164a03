"""Makes one cut of a cell on the cell's rig, and grades it.

Resources that later cuts can use again (a server, the virtual machine's network and image) are made at first
use and kept. The matrix decides which cuts are made, and when.
"""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Self, TypeAlias

from durability.errors import SetupError
from durability_lab.kernel_rig import cycle
from durability_lab.matrix.graded_cut import GradedCut, judged
from durability_lab.matrix.matrix_cells import MatrixCell
from durability_lab.simulated_rig.scenario import Scenario
from durability_lab.simulated_rig.simulation import simulate
from durability_lab.support.loads import Load
from durability_lab.support.local_server import LocalServer, local_server
from durability_lab.truth.comparison import Claims, LogAlone, Truth, compare
from durability_lab.vm_rig import vm_cycle

Result: TypeAlias = tuple[dict[str, Any], Truth | None]  # the document of `verify --json`, and the truth


class Cutter:
    """Makes cuts, one at a time. Use it in an `async with` statement, whose end removes all resources."""

    def __init__(self) -> None:
        self._kept = AsyncExitStack()
        self._lab: LocalServer | None = None
        self._site: vm_cycle.Site | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._kept.aclose()

    async def make(self, cell: MatrixCell, number: int, seed: int) -> GradedCut:
        """Make cut `number` of `cell` with `seed`, and grade it. Raises SetupError if there is no verdict."""
        began_s = time.monotonic()
        rigs = {"a": self._simulate, "b": self._block_device, "c": self._machine}
        document, truth = await rigs[cell.rig](cell, seed)
        if not document:
            raise SetupError(f"{cell.name}: `verify` gave no verdict")
        duration_s = time.monotonic() - began_s
        return judged(cell, number, seed=seed, document=document, truth=truth, duration_s=duration_s)

    async def _simulate(self, cell: MatrixCell, seed: int) -> Result:
        assert isinstance(cell.load, Scenario)
        result = simulate(replace(cell.load, model=cell.drive), seed=seed)
        return dict(result.document), result.truth

    async def _block_device(self, cell: MatrixCell, seed: int) -> Result:
        assert isinstance(cell.load, Load)
        if self._lab is None:
            self._lab = await self._kept.enter_async_context(local_server())
        outcome = await cycle.cycle(self._lab, cell.drive, cell.load, seed=seed)
        if not outcome.answer.document:
            raise SetupError(f"`verify` ended with {outcome.answer.exit_code}: {outcome.answer.said}")
        return outcome.answer.document, outcome.truth

    async def _machine(self, cell: MatrixCell, seed: int) -> Result:
        assert isinstance(cell.load, Load)
        if self._site is None:
            self._site = await self._kept.enter_async_context(vm_cycle.site())
        return vm_result(await vm_cycle.cut(self._site, cell.drive, cell.load, seed=seed))


def vm_result(cut: vm_cycle.VmCut) -> Result:
    """The document and the truth of a cut on rig C. Each shortcoming of the cut is a defect. The drive is
    inside the guest, so the reference judge cannot read it."""
    log = LogAlone(plan=cut.plan, acked=cut.acked)
    claims = Claims.of_document(cut.document)
    truth = compare(claims, log, cut.plan, cut.drive_check.broken, promised=cut.drive_check.promised)
    return cut.document, replace(truth, defects=(*truth.defects, *cut.shortcomings))
