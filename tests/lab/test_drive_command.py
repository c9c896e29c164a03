"""`durability lab drive` refuses what cannot be, before it sets anything up."""

from __future__ import annotations

import io

import pytest

from durability.errors import UsageError
from durability_lab.drive_command import DriveOptions, drive


def options(size_bytes: int) -> DriveOptions:
    """An honest raw drive of this size."""
    return DriveOptions(model="honest", size_bytes=size_bytes, file_system=None, seed=1, directory=None)


@pytest.mark.parametrize("size_bytes", [0, 1000, 1 << 44, 1 << 80])
def test_size_that_no_drive_has_is_refused(size_bytes: int) -> None:
    """Not whole blocks, or more than a file can have."""
    with pytest.raises(UsageError, match="--size"):
        drive(options(size_bytes), commands=io.StringIO(), out=io.StringIO(), err=io.StringIO())


def test_closed_stdin_is_refused() -> None:
    """As of a service without one: nobody could ever cut the drive."""
    with pytest.raises(UsageError, match="stdin"):
        drive(options(1 << 20), commands=None, out=io.StringIO(), err=io.StringIO())
