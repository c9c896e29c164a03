"""Compare the rates of `durability bench` with those of fio, and the cost per operation of both tools.

The cells that fio supports (headline, fsync, O_DIRECT with O_DSYNC, 16 KiB, 4 jobs) are measured by both in
one run on the same files. Rounds alternate in shuffled order and are compared in pairs, because a drive's
rate drifts by more than the difference. On tmpfs, a sync costs nothing, so the time of an operation is that
of system calls and the tool.

    python benchmarks/bench_vs_fio.py [--directory DIR] [--rounds 5] [--seconds 3] [--seed N]
"""

from __future__ import annotations

import argparse
import os
import secrets
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from durability.bench.catalogue import HEADLINE, STANDARD
from durability.bench.cells import Cell
from durability.bench.result import Result
from durability_client.bench.progress_bar import Bar
from durability_client.bench.runner import Options, measure
from durability_client.target.safety_checks import Consent

LOWEST, HIGHEST = 0.95, 1.05  # aim for the median of the paired ratios


def measured(directory: Path, cells: Sequence[Cell], *, size_bytes: int, seed: int) -> Result:
    """Measure `cells` with both tools, in files in `directory`."""
    options = Options(
        target=directory,
        cells=tuple(cells),
        mode="standard",
        profile="",
        size_bytes=size_bytes,
        seed=seed,
        consent=Consent(),
        show_serials=False,
        fio=True,
    )
    with Bar(sys.stderr) as bar:
        outcome = measure(options, bar)
    if outcome.ending is not None:
        raise outcome.ending
    return outcome.result


def ratios(result: Result, cell: Cell) -> list[float]:
    """The ratio of our rate to fio's for each round, also printed."""
    ours, theirs = result.rounds_of(cell.name), result.rounds_of(cell.name, "fio")
    pairs = []
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        pairs.append(one.rate / other.rate)
        print(
            f"{cell.name:40} round {number + 1}  bench {one.rate:9,.0f}/s  fio {other.rate:9,.0f}/s"
            f"  ratio {pairs[-1]:.3f}"
        )
    return pairs


def main() -> int:
    """Measure each cell with both tools in turns, and print the ratios; returns 1 if one misses the aim."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--directory", type=Path, default=Path("/var/tmp"), help="on the drive to be measured"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--size", type=int, default=64 << 20, help="bytes that the jobs of a cell share")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"seed {arguments.seed}, load {load:.1f}")
    if load > 0.5:
        print("the machine is not idle: ratios will scatter", file=sys.stderr)
    times = {"seconds": arguments.seconds, "warmup_s": 0.2, "rounds": arguments.rounds}
    cells = [replace(cell, **times) for cell in STANDARD if cell.fio]
    how = {"size_bytes": arguments.size, "seed": arguments.seed}
    result = measured(arguments.directory, cells, **how)
    medians = {cell.name: statistics.median(ratios(result, cell)) for cell in cells}
    memory = measured(Path("/dev/shm"), [replace(HEADLINE, **times)], **how)
    print()
    for name, ratio in medians.items():
        print(f"{name:40} {ratio:.3f} of fio{'' if LOWEST <= ratio <= HIGHEST else '  (!)'}")
    for engine in ("durability", "fio"):
        per_operation = statistics.median(1e6 / one.rate for one in memory.rounds_of(HEADLINE.name, engine))
        print(f"tmpfs, {engine}: {per_operation:.2f} us per write and sync")
    return 0 if all(LOWEST <= ratio <= HIGHEST for ratio in medians.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
