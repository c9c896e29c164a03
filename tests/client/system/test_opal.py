"""Whether a self-encrypting drive is locked: what the kernel's flags mean."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from durability_client.system.opal import is_locked
from tests.opal_drives import (
    LOCKED,
    LOCKING_ENABLED,
    LOCKING_SUPPORTED,
    MBR_DONE,
    MBR_ENABLED,
    SUPPORTED,
    opal_says,
)

OPAL = SUPPORTED | LOCKING_SUPPORTED
IN_USE = OPAL | LOCKING_ENABLED


@pytest.mark.parametrize(
    ("flags", "locked"),
    [
        (0, False),
        (OPAL, False),
        (IN_USE, False),
        (IN_USE | LOCKED, True),
        (IN_USE | MBR_ENABLED, True),
        (IN_USE | MBR_ENABLED | MBR_DONE, False),
        (IN_USE | MBR_DONE, False),
        (IN_USE | LOCKED | MBR_ENABLED, True),
        (IN_USE | LOCKED | MBR_ENABLED | MBR_DONE, True),
    ],
)
def test_a_locked_range_or_a_shadow_is_a_lock(
    make_loop: Callable[..., Path], flags: int, *, locked: bool
) -> None:
    """A drive that only could lock itself is not locked."""
    device = make_loop(1 << 20)
    with opal_says(flags):
        assert is_locked(device.name) is locked


def test_a_drive_that_cannot_be_asked_says_nothing(make_loop: Callable[..., Path]) -> None:
    """A drive that has no such lock, or that is gone, is no locked drive."""
    assert not is_locked(make_loop(1 << 20).name)
    assert not is_locked("nvme99n1")
