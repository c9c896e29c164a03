"""Print the answers of `compare` for three drives before and after a campaign of power cuts, as Markdown.

    python benchmarks/compare_after_cuts.py --seed 7 --cuts 59

One drive has a volatile cache, honours flushes and takes `DELAY` for each write from its cache to its media,
like a consumer drive. One has no volatile cache, like a drive with power-loss protection. One ignores
flushes. Each is measured with the same cells. Then a real campaign (server, agent and operator's commands as
processes) cuts their power under load. This needs root and the packages of the lab. Ratios and sentences are
printed exactly as the command gave them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from itertools import combinations
from pathlib import Path
from typing import Any

from drives import measured_on

from durability.bench.catalogue import CONTROLS, HEADLINE
from durability.bench.cells import MIB
from durability.bench.result import encode
from durability_lab.campaign_rig.lab_campaign_command import TIMES
from durability_lab.kernel_rig.block_rig import BlockRig
from durability_lab.kernel_rig.real_campaign import RealCampaign, real_campaign

DELAY = "delay-write=5ms"
CONSUMER = "filter-honest"  # nbdkit's cache filter, because the delay must be below the cache
MODELS = {"consumer": CONSUMER, "protected": "write-through", "liar": "flush-ignored"}


class _Rig(BlockRig):
    """The parts of a drive of the lab; `CONSUMER` takes `DELAY` for each write to its media."""

    def _drive_command(self) -> tuple[str, ...]:
        cache, *rest = super()._drive_command()
        return (cache, "--filter=delay", *rest, DELAY) if self.drive == CONSUMER else (cache, *rest)


def main() -> None:
    """Measure, compare, cut, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--cuts", type=int, default=59)
    options = parser.parse_args()
    asyncio.run(_run(options.seed, options.cuts))


async def _run(seed: int, cuts: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        files = {name: Path(directory) / f"{name}.json" for name in MODELS}
        async with real_campaign(list(MODELS.values()), seed=seed, make_rig=_Rig) as campaign:
            for drive, path in zip(campaign.drives.drives, files.values(), strict=True):
                result = measured_on(drive.path, CONTROLS, seed=seed, seconds=1.0, size_bytes=64 * MIB)
                path.write_bytes(encode(result))
            print("| drives | campaign | commits per second of the second drive | answer | cause | caveat |")
            print("|---|---|---|---|---|---|")
            await _compare(campaign, files, "before")
            campaign.write_file(campaign=f"cuts = {cuts}\nseed = {seed}\n{TIMES}")
            began_s = time.monotonic()
            await campaign.do("start", str(campaign.file), "--yes")
            state = await campaign.until(lambda one: one.state != "running")
            print(
                f"campaign: {state.reason} after {time.monotonic() - began_s:.0f} s",
                file=sys.stderr,
                flush=True,
            )
            await _compare(campaign, files, "after")


async def _compare(campaign: RealCampaign, files: dict[str, Path], when: str) -> None:
    """Print a row for each pair of drives."""
    for (one, first), (two, other) in combinations(files.items(), 2):
        done = await campaign.durability("compare", str(first), str(other), "--json")
        found: dict[str, Any] = json.loads(done.out)
        (headline,) = (cell for cell in found["cells"] if cell["name"] == HEADLINE.name)
        row = (
            f"{one}, {two}",
            when,
            headline["against_first"][0]["text"],
            found["answers"][0],
            found["causes"][0] or "none",
            found["caveat"] or "none",
        )
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
