"""What the lab's tests share: whether this machine can host a drive under a real file system, or a guest."""

from __future__ import annotations

import os

import pytest

from durability_lab.kernel_rig import block_rig
from durability_lab.vm_rig import guest_machine as machine


@pytest.fixture(scope="session")
def rig_machine() -> None:
    """Skips where a block rig cannot be set up, unless DURABILITY_LAB_REQUIRED=1 says that it must."""
    _require(block_rig.missing("ext4") or block_rig.missing("xfs") or block_rig.missing("btrfs"))


@pytest.fixture(scope="session")
def guest_machine() -> None:
    """The same for a virtual machine with a drive that loses power."""
    _require(machine.missing())


def _require(problem: str) -> None:
    if problem and os.environ.get("DURABILITY_LAB_REQUIRED") != "1":
        pytest.skip(problem)
    assert not problem, problem
