"""A place for the credential that `join` leaves: for root, `join` without a path writes to /etc."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_credential(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The credential of the machine that runs the tests is neither read nor replaced."""
    monkeypatch.setattr("durability_client.link.credential._SYSTEM", tmp_path / "etc")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
