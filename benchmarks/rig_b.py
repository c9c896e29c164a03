"""The whole matrix of rig B, as a table: real file systems over honest drives and liars, a power cut of each.

    sudo python benchmarks/rig_b.py [--seed N] [--rounds N] [--only TEXT]

Needs root and the packages that `make packages` installs; takes about five minutes. Each row is one cut: run
under load, SIGKILL of the drive after the given number of acknowledged operations, power on, `durability
verify`. The exit code is 0 only if every honest drive was found durable and every other one a loss.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import time

from durability.errors import DurabilityError
from durability_lab.blockdev import DriveName
from durability_lab.loopback import Loopback, loopback
from durability_lab.scenarios import Load, Outcome, cycle, is_honest, matrix

HEADINGS = (
    "drive",
    "load",
    "cut after",
    "acked",
    "checked",
    "at risk 1/10/100/1000 ms",
    "found",
    "verdict",
    "s",
)
WIDTHS = (15, 34, 9, 7, 8, 25, 26, 12, 5)


def main() -> int:
    """Run the matrix; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=secrets.randbits(32), help="of the cuts; printed")
    parser.add_argument("--rounds", type=int, default=1, help="how often to go through the matrix")
    parser.add_argument("--only", default="", help="only rows whose drive and load contain this text")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    cells = [
        (drive, load)
        for _ in range(arguments.rounds)
        for drive, load in matrix()
        if arguments.only in f"{drive} {load}"
    ]
    return asyncio.run(run_cells(cells, seed=arguments.seed))


async def run_cells(cells: list[tuple[DriveName, Load]], *, seed: int) -> int:
    """One cut per cell, one line per cut, then the count."""
    print_row(HEADINGS)
    tally = {True: [0, 0], False: [0, 0]}  # honest or not: cuts, and how many were judged right
    async with loopback() as lab:
        for number, (drive, load) in enumerate(cells):
            right = await run_cell(lab, drive, load, seed=seed + number)
            counts = tally[is_honest(drive)]
            counts[0] += 1
            counts[1] += right
    print(f"honest drives: {tally[True][0]} cuts, {tally[True][1]} found durable")
    print(f"other drives: {tally[False][0]} cuts, {tally[False][1]} found a loss")
    return 0 if all(cuts == found for cuts, found in tally.values()) else 1


async def run_cell(lab: Loopback, drive: DriveName, load: Load, *, seed: int) -> bool:
    """One cut and its line; whether the verdict is right."""
    began = time.monotonic()
    try:
        outcome = await cycle(lab, drive, load, seed=seed)
    except DurabilityError as error:
        print_row((drive, str(load)))
        print(f"    seed {seed}: no verdict: {error}")
        return False
    print_outcome(outcome, time.monotonic() - began)
    if not outcome.as_expected:
        print(f"    seed {seed}: exit code {outcome.answer.exit_code}: {outcome.answer.said}")
        print(f"    {outcome.answer.document.get('reasons')}")
    return outcome.as_expected


def print_outcome(outcome: Outcome, seconds: float) -> None:
    """The line of one cut."""
    document = outcome.answer.document
    findings = document.get("findings", {})
    found = " ".join(f"{name} {count}" for name, count in findings.items() if count)
    print_row(
        (
            outcome.drive,
            str(outcome.load),
            str(outcome.cut_after),
            str(document.get("acked", "")),
            str(document.get("checked", "")),
            "/".join(str(count) for count in document.get("at_risk", {}).values()),
            found or "-",
            document.get("verdict", "none") + ("" if outcome.as_expected else " (!)"),
            f"{seconds:.1f}",
        )
    )


def print_row(cells: tuple[str, ...]) -> None:
    """One line of the table, at once: a cut takes seconds."""
    print(
        "  ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=False)).rstrip(), flush=True
    )


if __name__ == "__main__":
    sys.exit(main())
