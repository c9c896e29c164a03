"""`durability demo`: the right verdict on each of its drives, and an exit code that would say otherwise."""

from __future__ import annotations

import io
import random
from dataclasses import replace
from typing import Any

import pytest

from durability.errors import EXIT_INTERNAL, EXIT_OK
from durability_lab import demo_command as demo_module
from durability_lab.drive.drive import Model
from durability_lab.support.local_server import LocalServer

pytestmark = pytest.mark.slow  # each is a whole demo


async def test_demo_gives_each_drive_the_verdict_it_deserves() -> None:
    """For any seed, two drives of the demo are durable and the lying one is a loss."""
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    out = io.StringIO()
    assert await demo_module.demo(out, seed=seed) == EXIT_OK, out.getvalue()
    rows = [line for line in out.getvalue().splitlines() if line.rstrip().endswith(("durable", "loss"))]
    assert [row.split()[-2:] for row in rows] == [
        ["durable", "durable"],
        ["durable", "durable"],
        ["loss", "loss"],
    ]
    assert f"Seed {seed}" in out.getvalue()


async def test_demo_fails_where_a_verdict_is_not_the_expected_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A liar that passes, or an honest drive that fails, is a defect of the tool and exit code 1."""
    wrong = replace(demo_module.EXHIBITS[0], expected="loss")
    monkeypatch.setattr(demo_module, "EXHIBITS", (wrong,))
    out = io.StringIO()
    assert await demo_module.demo(out) == EXIT_INTERNAL
    assert "(!)" in out.getvalue()


async def test_cut_that_met_nobody_at_work_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers that wait for the server put nothing at risk, so the demo cuts once more, and says so."""
    cycle, documents = demo_module._cycle, []

    async def idle_at_first(lab: LocalServer, model: Model, *, seed: int) -> dict[str, Any]:
        documents.append(await cycle(lab, model, seed=seed))
        idle = {"verdict": "inconclusive", "reasons": [{"code": "nothing-at-risk", "text": ""}]}
        return documents[-1] | (idle if len(documents) == 1 else {})

    monkeypatch.setattr(demo_module, "_cycle", idle_at_first)
    out = io.StringIO()
    assert await demo_module.demo(out) == EXIT_OK, out.getvalue()
    assert len(documents) >= len(demo_module.EXHIBITS) + 1
    assert "no writer was writing at the cut, so it proves nothing: cut 2" in out.getvalue()
