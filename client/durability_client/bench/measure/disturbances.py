"""Disturbances: finds other users of the drives to be measured, and waits until they have finished.

Figures that include the work of other programs are not the drive's. So this module waits for a busy drive, up
to the caller's time limit. Then the drive is measured anyway, and the result gets a warning about the
disturbance. Other programs are never stopped.

    new-file-system  ext4lazyinit, a thread of the kernel, writes the tables of an ext4 made without them
    resync           md copies, checks or reshapes an array below the target
    busy-drive       another program uses the drive; the one that wrote the most is named
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from durability.bench.result_warnings import busy_drives
from durability.formats.facts import Facts, TargetWarning
from durability_client.bench.measure.cost_meter import Meter, Spent, idle_of
from durability_client.system.block_devices import SYS
from durability_client.system.other_programs import PROC, Program, busiest, kernel_threads, programs

_LAZY_INIT = "ext4lazyinit"
# One thread does this for all file systems. While it works, it writes one table after another, each of 512
# KiB or more by default. The writeback of a file, or a commit of the journal, writes less.
_TABLES_KIB_PER_S = 128


class WaitListener(Protocol):
    """Gets the progress of the wait for a drive."""

    def say(self, text: str) -> None:
        """Gets a message for people."""

    def measuring(self, doing: str, done_s: float, left_s: float) -> None:
        """Gets the current activity, the seconds since its start, and the most seconds left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """Activity of the idle drives in the last interval, and its disturbances."""

    alone: Spent
    disturbances: tuple[TargetWarning, ...]


def wait_until_idle(
    meter: Meter, facts: Facts, listener: WaitListener, *, idle_s: float, wait_s: float
) -> Settled:
    """Measure idle intervals of `idle_s` until there is no disturbance, or until `wait_s` have passed. With
    `wait_s` 0, measures one interval."""
    began_s, told = time.monotonic(), False
    while True:
        before = programs()
        alone = meter.leave_alone(idle_s)
        found = tuple(disturbances(facts, alone, busiest(before, programs())))
        waited_s = time.monotonic() - began_s
        if not found or waited_s >= wait_s:
            break
        if not told:
            told = True
            listener.say(f"waiting for an idle drive, {wait_s:.0f} s at most: {_listed(found)}")
        listener.measuring("waiting for an idle drive", waited_s, wait_s - waited_s)
    if told and found:
        listener.say(f"measuring a busy drive after {waited_s:.0f} s; --wait SECONDS waits longer")
    elif told:
        listener.say(f"the drive was idle after {waited_s:.0f} s")
    return Settled(alone=alone, disturbances=found)


def disturbances(
    facts: Facts, alone: Spent, writer: Program | None, *, proc: Path = PROC, sys: Path = SYS
) -> Iterator[TargetWarning]:
    """Other users of the target's drives in the interval `alone`. `writer`: the program that wrote the
    most."""
    idle = idle_of(alone)
    if (
        facts.file_system is not None
        and facts.file_system.type == "ext4"
        and any((one.write_kib or 0) >= _TABLES_KIB_PER_S * one.seconds > 0 for one in idle)
        and _LAZY_INIT in kernel_threads(proc=proc)
    ):
        yield TargetWarning(
            code="new-file-system",
            text=f"{_LAZY_INIT} writes the tables of a new ext4 file system: wait until it has ended, or make"
            " the file system with mkfs.ext4 -E lazy_itable_init=0,lazy_journal_init=0",
        )
    for name, action in _arrays(facts, sys):
        yield TargetWarning(code="resync", text=f"{name} does a {action}: wait until it has ended")
    for name, per_s in busy_drives(idle).items():
        yield TargetWarning(
            code="busy-drive",
            text=f"{name} got {per_s:.0f} requests per second from other programs before the first round"
            + _who(writer, alone.seconds),
        )


def _who(writer: Program | None, seconds: float) -> str:
    if writer is None:
        return ""
    rate = writer.written_bytes / max(seconds, 1e-9) / 1e6
    return f"; {writer.name} (pid {writer.pid}) wrote the most, {rate:.3g} MB/s"


def _arrays(facts: Facts, sys: Path) -> Iterator[tuple[str, str]]:
    """The md arrays below the target that are being copied, checked or reshaped, each with the action."""
    for layer in facts.layers:
        name = layer.partition(" ")[0]
        with suppress(OSError):
            action = (sys / "block" / name / "md" / "sync_action").read_text().strip()
            if action not in ("idle", "frozen", ""):
                yield name, action


def _listed(found: tuple[TargetWarning, ...]) -> str:
    return "; ".join(one.text for one in found)
