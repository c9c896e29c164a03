"""Cuts count beside a result only if firmware, file system and the options that guard a commit agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from durability.bench.decision.same_stack import guarding, unlike, withheld_flushes
from durability.bench.hashed_serials import hashed
from durability.formats.facts import Facts
from tests import sample_facts
from tests.core.bench.results import drive, facts


def on(options: str = "rw,relatime", *, kind: str = "ext4", **changes: Any) -> Facts:
    """Facts of a directory on this file system, or of a device if `kind` is ""."""
    mounted = sample_facts.file_system(type=kind, options=options) if kind else None
    return facts(file_system=mounted, drives=(drive(**changes),))


def through(*layers: str) -> Facts:
    """Facts of a directory above these layers."""
    return replace(on(), layers=layers)


OFF = on(write_cache="write through")
UNKNOWN = on(write_cache=None)
MIRROR = replace(on(), drives=(drive(firmware="1.0"), drive(firmware="2.0")))


@pytest.mark.parametrize(
    ("cut", "measured", "words"),
    [
        (on(), on("rw,noatime,noinit_itable,errors=remount-ro"), ""),
        (on("rw,data=ordered,logbufs=8,logbsize=32k"), on(), ""),
        (on("rw,subvol=/@log", kind="btrfs"), on("rw,discard=async,subvol=/", kind="btrfs"), ""),
        (on(), on("rw,nobarrier"), "not with nobarrier"),
        (on("rw,barrier=0"), on("rw,data=writeback"), "with barrier=0 and not with data=writeback"),
        (on(), on(kind="xfs"), "on ext4, not on xfs"),
        (on(kind=""), on(), "on the device, not on ext4"),
        (on(), on(kind=""), ""),
        (on(firmware="1.0"), on(firmware="2.0"), "of firmware 1.0, not 2.0"),
        (on(firmware=""), on(firmware="2.0"), "of firmware unnamed, not 2.0"),
        (
            MIRROR,
            replace(MIRROR, drives=(drive(firmware=""),) * 2),
            "of firmware 1.0 + 2.0, not unnamed + unnamed",
        ),
        (on(size_bytes=5000), on(size_bytes=6000), "of 5,000 bytes, not 6,000 bytes"),
        (on(size_bytes=0), on(), ""),
        (OFF, on(), "with the write cache off, not on"),
        (on(), on(write_cache=None), "with the write cache on, not in an unknown state"),
        (
            through("dm-0 (dm crypt)", "sda2 (partition)", "sda (drive)"),
            through("dm-7 (dm crypt)", "nvme0n1 (drive)"),
            "",
        ),
        (through("dm-0 (dm crypt)"), through("sda1 (partition)"), "with dm crypt"),
        (through("loop0 (loop)"), through("md0 (md raid1)", "dm-0 (dm lvm)"), "not with dm lvm,md raid1"),
        (on("rw,nobarrier"), on(kind="xfs"), "on ext4, not on xfs and with nobarrier"),
        (on("rw,nobarrier"), on(kind=""), "with nobarrier"),
        (on("rw,data=journal"), on(kind=""), ""),
        (on("rw,logdev=/dev/sdb1", kind="xfs"), on("rw,logdev=/dev/sdc1,rtdev=/dev/sdd", kind="xfs"), ""),
        (on("rw,journal_path=/dev/sdb1"), on("rw,journal_dev=0x811"), ""),
    ],
)
def test_what_differs_is_said(cut: Facts, measured: Facts, words: str) -> None:
    """Options of access and names, defaults that are said, and names of devices make no other stack."""
    assert unlike(cut, measured) == words


@pytest.mark.parametrize("serial", [str, hashed])
def test_drives_in_another_order_are_the_same_drives(serial: Callable[[str], str]) -> None:
    """The members of a mirror may change names at a boot. In any order, and with hidden serials, they are the
    same drives, and new firmware is still reported."""
    members = [("S-1", "1.0", 5000), ("S-2", "2.0", 6000), ("S-3", "1.0", 7000)]
    drives = tuple(drive(serial=one, firmware=of, size_bytes=size) for one, of, size in members)
    cut, back = replace(on(), drives=drives), tuple(reversed(drives))
    back = tuple(replace(one, serial=serial(one.serial)) for one in back)
    assert unlike(cut, replace(on(), drives=back)) == ""
    newer = replace(on(), drives=tuple(replace(one, firmware="2.0") for one in back))
    assert unlike(cut, newer).endswith("not 2.0 + 2.0 + 2.0")


@pytest.mark.parametrize(
    ("cut", "measured", "withheld"),
    [
        (on("rw,nobarrier"), on(), True),
        (on("rw,nobarrier"), on("rw,nobarrier"), False),
        (on("rw,nobarrier"), on(kind=""), True),
        (on("rw,data=writeback"), on(), False),
        (OFF, on(), True),
        (OFF, OFF, False),
        (on(), OFF, False),
        (on("rw,nobarrier", write_cache="write through"), OFF, False),
        (on("rw,nobarrier"), OFF, False),
        (OFF, UNKNOWN, False),
        (on(firmware="1.0"), on(firmware="2.0"), False),
    ],
)
def test_a_stack_that_sends_no_flush_says_nothing_of_one_that_does(
    cut: Facts, measured: Facts, withheld: bool
) -> None:
    """A mount without barriers, or a drive that is said to have no volatile cache."""
    assert withheld_flushes(cut, measured) == withheld


def test_options_that_guard_a_commit() -> None:
    """The mount options of several file systems that affect a commit are recognised, and `rw` is not one of
    them."""
    options = (
        "rw,journal_async_commit,noauto_da_alloc,nodatacow,notreelog,wsync,norecovery,fsync_mode=nobarrier"
    )
    assert guarding(options) == frozenset(options.split(",")) - {"rw"}
