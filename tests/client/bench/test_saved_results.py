"""Results in the state directory: each has a file of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from durability.bench.result import encode
from durability_client.bench import saved_results
from tests.core.bench.results import JUDGED, Device, simulate


def test_a_measurement_that_ends_at_the_same_moment_takes_no_result_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name was free when it was chosen, and is taken when the file is made."""
    result = simulate(Device(), cells=JUDGED[:1])
    taken, free = tmp_path / "taken.json", tmp_path / "free.json"
    names = iter((taken, free))
    taken.write_text("another's")
    monkeypatch.setattr(saved_results, "default_path", lambda _: next(names))
    assert saved_results.save_by_default(result) == free
    assert free.read_bytes() == encode(result) and taken.read_text() == "another's"
