"""Run `durability bench` on known drives: makes the tables of docs/explanation/bench-on-drives.md.

The drives are made by nbdkit's filters (see `drives`) and by the lab's models; one is this machine's own
disk. This needs root on Linux and the lab's packages, and takes eight minutes.

    python benchmarks/bench_on_drives.py [--directory DIR] [--only PART ...] [--seeds 20] [--seed N]
"""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Literal

from drives import HONEST, LIAR, NO_FLUSH, Drive, Silent, measured_on

from durability.bench.catalogue import (
    CONTROLS,
    HEADLINE,
    PACED,
    PROBE,
    sustained,
)
from durability.bench.cells import MIB
from durability.bench.compare import compare
from durability.bench.inflation import inflations
from durability.bench.plausibility import controls_of, plausibility
from durability.bench.result import CellRounds, Result
from durability.bench.summary import summarise
from durability.units import duration
from durability_lab.kernel_rig.block_rig import BlockRig

SUSTAINED = sustained()[-2]
SLOW_CACHE = (*HONEST, "cache-min-block-size=1M", "--filter=delay", "delay-write=1ms")
SLOW_BYTES = 2 * MIB  # size of files on drives whose writes take milliseconds
DELAYS_MS = (0, 2, 4)


def _milliseconds(time_ms: int) -> tuple[str, ...]:
    return ("--filter=delay", f"delay-write={time_ms}ms") if time_ms else ()


def plausibilities(directory: Path, seed: int) -> None:
    """Flushes per commit and control times of each drive, and its plausibility."""
    rows: list[tuple[str, Callable[[], AbstractContextManager[BlockRig | None]], bool]] = [
        ("this machine's disk", nullcontext, False),
        ("cache, flush honoured (nbdkit)", lambda: Drive(*HONEST), False),
        ("cache, flush honoured (model)", lambda: BlockRig("honest", None, seed=seed), False),
        ("cache over 1 ms a write (nbdkit)", lambda: Drive(*SLOW_CACHE), False),
        ("cache=unsafe", lambda: Drive(*LIAR), False),
        ("fuamode=discard", lambda: Drive(*NO_FLUSH), False),
        ("flush ignored (model)", lambda: BlockRig("flush-ignored", None, seed=seed), False),
        ("declares write through", lambda: Drive(write_through=True), False),
        ("rotates, answers from memory", lambda: Drive(rotational=True), False),
        ("rotates, 9 ms a write", lambda: Drive(*_milliseconds(9), rotational=True), True),
    ]
    print(f"{'drive':32} {'flushes':>7} {'W':>9} {'F0':>9} {'C':>9} {'F(64 MiB)':>9}  called")
    for name, make, slow in rows:
        with make() as rig:
            target = rig.target if rig else directory
            cells = CONTROLS[:-1] if slow else CONTROLS
            result = measured_on(
                target, cells, seed=seed, size_bytes=SLOW_BYTES if slow else 64 * MIB, idle_s=1.0
            )
        found, said = controls_of(result), plausibility(result)
        flushes = max((count for _, count in found.flushes if count is not None), default=None)
        longest = found.ladder[-1][1] if found.ladder else None
        times = [_time(value) for value in (found.write_ns, found.flush_ns, found.commit_ns, longest)]
        counted = "-" if flushes is None else f"{flushes:.2f}"
        print(f"{name:32} {counted:>7} {' '.join(f'{time:>9}' for time in times)}  {said.headline}")


def steadiness(directory: Path, seed: int) -> None:
    """One committing writer for 20 s, with and without a throttle after 10 s."""
    cell = replace(SUSTAINED, seconds=20.0, warmup_s=2.0)
    for name, bits_per_s in (("left alone", 0), ("throttled after 10 s", 6_000_000)):
        with Drive() as drive:
            timer = threading.Timer(cell.warmup_s + 10.0, drive.throttle, (bits_per_s,))
            listener = Silent(when_measuring=timer.start if bits_per_s else None)
            result = measured_on(drive.target, (cell,), size_bytes=SLOW_BYTES, listener=listener, seed=seed)
        found = summarise(result.cells[0]).steady
        print(f"{name:24} {found.word}: {found.reason}")


def stalls(directory: Path, seed: int) -> None:
    """A stall of 100 ms in every second, in the closed loop and with paced commits."""
    for name, delay_ms, stalling in (
        ("fast", 0, False),
        ("fast", 0, True),
        ("2 ms", 2, False),
        ("2 ms", 2, True),
    ):
        with ExitStack() as stack:
            drive = stack.enter_context(Drive(*_milliseconds(delay_ms)))
            if stalling:
                stack.enter_context(drive.stalling(every_s=1.0, for_s=0.1))
            cells = (HEADLINE,) if delay_ms else (HEADLINE, PACED)
            seconds = 35.0 if delay_ms else 12.0
            result = measured_on(
                drive.target, cells, seconds=seconds, rounds=1, size_bytes=SLOW_BYTES, seed=seed
            )
        for one in result.cells:
            print(f"{name:5} {'stalls' if stalling else 'no stalls':10} {_latencies(one)}")


def inflation(directory: Path, seed: int, seeds: int) -> None:
    """Probes flagged on a file system that compresses, and false flags on one that does not."""
    mounts: tuple[tuple[Literal["btrfs", "ext4"], str, int], ...] = (
        ("btrfs", "compress-force=zstd", 1),
        ("ext4", "defaults", seeds),
    )
    for file_system, options, count in mounts:
        flags = 0
        with Drive(file_system=file_system) as drive:
            subprocess.run(("mount", "-o", f"remount,{options}", drive.mount_point), check=True)
            for number in range(count):
                result = measured_on(drive.mount_point, PROBE, size_bytes=16 * MIB, seed=seed + number)
                found = inflations(result.cells)
                flags += sum(one.inflated for one in found)
                if count == 1:
                    for one in found:
                        flagged = "flagged" if one.inflated else "not flagged"
                        print(f"{file_system} {options}: {flagged}: {one.text}")
        if count > 1:
            print(f"{file_system}: {flags} of {count * (len(PROBE) - 1)} probes flagged, {count} seeds")


def comparison(directory: Path, seed: int) -> None:
    """Drives whose writes take 2 ms and 4 ms: the expected ratio and the measured one."""
    results: list[tuple[str, Result]] = []
    for delay_ms in DELAYS_MS:
        with Drive(*_milliseconds(delay_ms)) as drive:
            results.append((f"{delay_ms} ms", measured_on(drive.target, CONTROLS, seed=seed)))
    own_ms, *_ = (1000 / _rate(result.cells[0]) for _, result in results)
    expected = (DELAYS_MS[1] + own_ms) / (DELAYS_MS[2] + own_ms)
    print(f"a commit without a delay takes {own_ms:.2f} ms: {expected:.2f} expected")
    for row in compare(results[1:]).rows:
        print(f"{row.cell.name:52} {row.against[0].text}")


def _time(value: float | None) -> str:
    return "-" if value is None else duration(value)


def _rate(measured: CellRounds) -> float:
    """Commits per second, the median of the rounds."""
    rate = summarise(measured).rate
    assert rate is not None, f"{measured.cell.name} was not measured"
    return rate.median


def _latencies(measured: CellRounds) -> str:
    found = summarise(measured)
    commit = found.commit
    times = (("p50", commit.p50), ("p99", commit.p99), ("p99.9", commit.p99_9), ("max", commit.most))
    words = "  ".join(f"{name} {_time(value):>8}" for name, value in times)
    return f"{'paced' if measured.cell.pace_us else 'closed':7} {_rate(measured):7,.0f}/s  {words}"


def main() -> int:
    """Print each part, or those of --only; returns the exit code."""
    parts: dict[str, Callable[[Path, int], None]] = {
        "plausibility": plausibilities,
        "steady": steadiness,
        "stalls": stalls,
        "inflation": lambda directory, seed: inflation(directory, seed, seeds),
        "compare": comparison,
    }
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="on this machine's disk")
    parser.add_argument("--only", choices=list(parts), action="append", help="may be repeated")
    parser.add_argument("--seeds", type=int, default=20, help="of runs on a file system without compression")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    arguments = parser.parse_args()
    seeds: int = arguments.seeds
    print(f"seed {arguments.seed}, load {os.getloadavg()[0]:.1f}")
    for name, part in parts.items():
        if not arguments.only or name in arguments.only:
            print(f"\n{name}: {part.__doc__ or inflation.__doc__}", flush=True)
            part(arguments.directory, arguments.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
