"""`durability demo`: the right verdict on each of its drives, and an exit code that would say otherwise."""

from __future__ import annotations

import io
import random
from dataclasses import replace

import pytest

from durability.errors import EXIT_INTERNAL, EXIT_OK
from durability_lab import demo as demo_module


async def test_demo_gives_each_drive_the_verdict_it_deserves() -> None:
    """Whatever the seed, two drives are durable and the liar is a loss."""
    seed = random.SystemRandom().getrandbits(32)
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
