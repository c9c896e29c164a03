"""The facts of a target as lines for people."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from durability.formats.facts import TargetWarning
from durability.formats.plan import Plan
from durability.formats.run_statistics import Conditions
from durability_client.descriptions import describe, describe_commits
from tests.core.evidence.memory_target import make_statistics
from tests.sample_facts import drive, facts, file_system

FACTS = facts(
    path="/mnt/disk/target",
    size_bytes=3 << 30,
    file_system=file_system(source="/dev/nvme0n1p1", mount_point="/mnt/disk", options="rw,nobarrier"),
    layers=("nvme0n1p1 (partition)", "nvme0n1 (drive)"),
    drives=(drive(name="nvme0n1", model="EXAMPLE 990", firmware="F7", fua=True, unsafe_shutdowns=17),),
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


def test_the_price_of_a_commit_has_what_the_sample_supports(make_plan: Callable[..., Plan]) -> None:
    """1,000 commits have a p99 and no p99.9; the rate is of syncs, and of a group's operations beside it."""
    statistics = make_statistics(operations=(1000,), flushes={"sda": 1000})
    rows = dict(describe_commits(make_plan(group=5), statistics))
    assert rows["commits"] == "p50 1 ms, p95 1 ms, p99 1 ms, max 1 ms"
    assert rows["rate"] == "20 per second, 100 operations per second, in 10.0 s"
    conditions = Conditions(
        cpu_model="", cpus=1, governor="", load=None, busy_percent=None, steal_percent=None
    )
    untold = replace(statistics, elapsed_s=0.0, conditions=conditions)
    assert dict(describe_commits(make_plan(), untold))["processor"] == "1 x unknown"
    assert "rate" not in dict(describe_commits(make_plan(), untold))
    assert "processor" not in dict(describe_commits(make_plan(), replace(untold, conditions=None)))
