"""What the lab's tests share: whether this machine can host a drive under a real file system."""

from __future__ import annotations

import os

import pytest

from durability_lab import blockdev


@pytest.fixture(scope="session")
def rig_machine() -> None:
    """Skips where a block rig cannot be set up, unless DURABILITY_LAB_REQUIRED=1 says that it must."""
    problem = blockdev.missing("ext4") or blockdev.missing("xfs") or blockdev.missing("btrfs")
    if problem and os.environ.get("DURABILITY_LAB_REQUIRED") != "1":
        pytest.skip(problem)
    assert not problem, problem
