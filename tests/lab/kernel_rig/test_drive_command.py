"""`durability lab drive` refuses what cannot be, before it sets anything up."""

from __future__ import annotations

import io
import re

import pytest

from durability.campaign.definition.settings import LEAST_BYTES
from durability.errors import UsageError
from durability_lab.kernel_rig.drive_command import DriveOptions, check, drive
from durability_lab.support.loads import FileSystemName
from durability_lab.truth.expected_verdict import FILTERS


def options(
    size_bytes: int, model: str = "honest", file_system: FileSystemName | None = None
) -> DriveOptions:
    """An honest raw drive of this size, unless something else is said."""
    return DriveOptions(model=model, size_bytes=size_bytes, file_system=file_system, seed=1, directory=None)


@pytest.mark.parametrize("size_bytes", [0, 1000, 1 << 44, 1 << 80])
def test_size_that_no_drive_has_is_refused(size_bytes: int) -> None:
    """Not whole blocks, or more than a file can have."""
    with pytest.raises(UsageError, match="--size"):
        drive(options(size_bytes), commands=io.StringIO(), out=io.StringIO(), err=io.StringIO())


@pytest.mark.parametrize(
    ("file_system", "size_bytes", "least"),
    [("ext4", 4096, "8 MiB"), ("xfs", 100 << 20, "300 MiB"), ("btrfs", 108 << 20, "109 MiB")],
)
def test_size_that_a_file_system_does_not_take_is_refused(
    file_system: FileSystemName, size_bytes: int, least: str
) -> None:
    """Before anything is set up, with the least that it takes."""
    with pytest.raises(UsageError, match=f"too small for {file_system}, which needs at least {least}"):
        check(options(size_bytes, file_system=file_system))
    check(options(LEAST_BYTES[file_system], file_system=file_system))


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("nope", "unknown drive model 'nope': `durability lab drive --list` lists the models"),
        ("filter-honest:kept=1", "filter-honest is a filter of nbdkit and takes no parameters"),
        ("early-ack:delay_s=1", "early-ack has no parameter 'delay_s'; it has cache_bytes"),
    ],
)
def test_drive_that_there_is_not_is_refused(model: str, said: str) -> None:
    """An unknown name, and a parameter that the drive does not have; the filters are drives as well."""
    with pytest.raises(UsageError, match=re.escape(said)):
        check(options(1 << 20, model))
    for drive_of_nbdkit in FILTERS:
        check(options(1 << 20, drive_of_nbdkit))


def test_closed_stdin_is_refused() -> None:
    """A closed stdin, as in a service, is refused, because the drive could not be controlled."""
    with pytest.raises(UsageError, match="stdin"):
        drive(options(1 << 20), commands=None, out=io.StringIO(), err=io.StringIO())
