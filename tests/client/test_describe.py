"""The facts of a target as lines for people."""

from __future__ import annotations

from dataclasses import replace

from durability.facts import Drive, Facts, FileSystem, Host, TargetWarning
from durability_client.describe import describe

FACTS = Facts(
    host=Host(
        machine_id="m", boot_id="b", uptime_ns=1, kernel="Linux 6.1", virtualisation="none", hostname="b"
    ),
    path="/mnt/disk/target",
    path_in_file_system="target",
    kind="file",
    size_bytes=3 << 30,
    offset_bytes=1 << 20,
    file_system=FileSystem(
        type="ext4",
        uuid="aaaa-bbbb",
        source="/dev/nvme0n1p1",
        mount_point="/mnt/disk",
        options="rw,nobarrier",
        block_bytes=4096,
    ),
    layers=("nvme0n1p1 (partition)", "nvme0n1 (drive)"),
    drives=(
        Drive(
            name="nvme0n1",
            model="EXAMPLE 990",
            serial="S1",
            firmware="F7",
            size_bytes=1 << 40,
            logical_block_bytes=512,
            physical_block_bytes=4096,
            rotational=False,
            write_cache="write back",
            fua=True,
            diskseq=9,
            unsafe_shutdowns=17,
            atomic_write_bytes=None,
            flushes=4,
            emulated=False,
        ),
    ),
    warnings=(TargetWarning(code="nobarrier", text="the file system sends the drive no flush"),),
)


def test_every_fact_that_a_verdict_rests_on_is_shown() -> None:
    """Drive, firmware, cache, counter, layers, file system and options can all be read off the lines."""
    text = "\n".join(describe(FACTS))
    for fact in (
        "/mnt/disk/target (file, 3 GiB)",
        "ext4 on /mnt/disk",
        "rw,nobarrier",
        "nvme0n1p1 (partition) > nvme0n1 (drive)",
        "EXAMPLE 990, serial S1, firmware F7",
        "not rotating",
        "512/4096",
        "write back, FUA, unsafe shutdowns: 17",
        "warning: the file system sends the drive no flush [nobarrier]",
    ):
        assert fact in text


def test_what_the_system_does_not_say_is_unknown() -> None:
    """Missing facts are printed as unknown and never as no."""
    drive = replace(
        FACTS.drives[0], model="", rotational=None, write_cache=None, fua=None, unsafe_shutdowns=None
    )
    text = "\n".join(describe(replace(FACTS, drives=(drive,), layers=(), file_system=None)))
    for fact in (
        "layers       unknown",
        "model unknown",
        "media unknown",
        "write cache: unknown, FUA unknown, unsafe shutdowns: unknown",
    ):
        assert fact in text
