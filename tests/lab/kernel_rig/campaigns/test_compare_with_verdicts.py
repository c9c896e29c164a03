"""`compare` before and after a campaign of real cuts: the sentence changes with what the cuts showed."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from benchmarks.drives import HONEST, LIAR, Drive, measured_on
from durability.bench.catalogue import COMMIT_CONTROL, CONTROLS, FLUSH_CONTROL, HEADLINE, WRITE_CONTROL
from durability.bench.cells import MIB
from durability.bench.decision.cause import cause
from durability.bench.result import encode
from durability.campaign.results import results
from durability.errors import EXIT_OK, EXIT_USAGE
from durability_lab.campaign_rig.lab_campaign_command import TIMES
from durability_lab.kernel_rig.real_campaign import RealCampaign, real_campaign
from tests.lab.kernel_rig.campaigns.campaign_steps import log_of, over, require_load, start
from tests.lab.kernel_rig.under_load import again_after_a_standstill

pytestmark = [pytest.mark.usefixtures("rig_machine"), pytest.mark.slow]
CUTS = 2
TRIES = 3  # a busy machine may stall in the middle of one
MODELS = {"honest": "honest", "protected": "write-through", "liar": "flush-ignored"}
CELLS = (HEADLINE, WRITE_CONTROL, COMMIT_CONTROL, FLUSH_CONTROL)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Where the result of each drive is kept."""
    return {name: tmp_path / f"{name}.json" for name in MODELS}


def _measure(campaign: RealCampaign, files: dict[str, Path]) -> None:
    """A short benchmark of each drive, with hashed serials, as `bench` keeps it."""
    for seed, (drive, path) in enumerate(zip(campaign.drives.drives, files.values(), strict=True)):
        result = measured_on(drive.path, CELLS, seed=seed, seconds=0.05, size_bytes=4 * MIB)
        assert result.serials == "hashed"
        path.write_bytes(encode(result))


async def _compared(campaign: RealCampaign, *words: str | Path) -> dict[str, Any]:
    done = await campaign.durability("compare", *map(str, words), "--json")
    assert done.exit_code == EXIT_OK, done
    document: dict[str, Any] = json.loads(done.out)
    return document


@pytest.mark.timeout(1000)
@again_after_a_standstill
async def test_the_sentence_changes_with_the_cuts(files: dict[str, Path]) -> None:
    """Before: no choice and a caveat for each pair. After: never the liar; the others are not proven yet."""
    async with real_campaign(list(MODELS.values()), seed=21) as campaign:
        _measure(campaign, files)
        for first, other in combinations(files.values(), 2):
            before = await _compared(campaign, first, other)
            assert before["proofs"] == [None, None] and before["cells"], before
            assert before["answers"][0].startswith("Do not choose yet: ")
            assert before["answers"][0].endswith("neither is proven. Cut the power of both 59 times.")
            assert "a drive that ignores flushes looks fast" in before["caveat"]

        campaign.write_file(campaign=f"cuts = {CUTS}\nseed = 7\n{TIMES}", file_system="ext4")
        await start(campaign)
        state = await over(campaign)
        assert state.reason == "complete", await log_of(campaign)
        require_load(state)
        liar = results(state)[list(MODELS).index("liar")]
        assert liar.first_loss is not None, await log_of(campaign)
        lost = f"lost data in cycle {liar.first_loss[0]} of campaign {campaign.name}"

        for named in ((), ("--verdict-of", campaign.name)):
            pair = await _compared(campaign, files["honest"], files["liar"], *named)
            assert pair["answers"][0].startswith(
                f"Do not take liar: it {lost}. honest has only 2 of the 59 cuts needed"
            )
            assert f"The rate of liar is worth nothing, since it {lost}" in pair["caveat"]
            assert [one["word"] for one in pair["proofs"]] == ["too few cuts", "lost data"]
        pair = await _compared(campaign, files["honest"], files["protected"])
        assert "neither is proven: honest has only 2 of the 59 cuts needed" in pair["answers"][0]
        assert [one["text"] for one in pair["proofs"]] == ["no loss in 2 cuts; 59 are needed"] * 2
        run = liar.first_loss[1]
        by_run = await _compared(campaign, files["protected"], files["liar"], "--verdict-of", run)
        assert by_run["proofs"][0] is None
        assert by_run["proofs"][1]["text"] == f"lost data in run {run}"

        machine = ("--server", campaign.address, "--credential", campaign.credential("b"))
        own = await _compared(campaign, files["honest"], files["liar"], *machine)
        assert [one["word"] for one in own["proofs"]] == ["too few cuts", "lost data"], "of its own runs"

        screen = await campaign.durability("compare", str(files["honest"]), str(files["liar"]))
        assert screen.out.startswith("answer  Do not take liar: it lost data in cycle ")
        others = [str(files["honest"]), str(files["protected"])]
        refused = await campaign.durability("compare", *others, "--verdict-of", run)
        assert refused.exit_code == EXIT_USAGE and "the results are of" in refused.err
        unknown = await campaign.durability("compare", *others, "--verdict-of", "no-such-campaign")
        assert unknown.exit_code != EXIT_OK and "no-such-campaign" in unknown.err


def test_the_cause_is_the_flush() -> None:
    """A volatile cache that is slow to empty against one that ignores flushes, and one that needs none: what
    is injected is what the sentence names."""
    how: dict[str, Any] = {"seconds": 0.1, "rounds": 3, "seed": 3}
    for _ in range(TRIES):
        with Drive(*HONEST, "cache-min-block-size=1M", "--filter=delay", "delay-write=50ms") as drive:
            honest = measured_on(drive.target, CONTROLS, **how)
        with Drive(*LIAR) as drive:
            liar = measured_on(drive.target, CONTROLS, **how)
        said = cause(("honest", honest, None), ("liar", liar, None))
        if said.startswith("A commit of honest takes "):
            break
    with Drive(write_through=True) as drive:
        protected = measured_on(drive.target, CONTROLS, **how)
    assert said.startswith("A commit of honest takes ") and "of the difference is the flush" in said, said
    assert "honest pays in full, since it empties a volatile cache" in said
    said = cause(("protected", protected, None), ("honest", honest, None))
    assert "the flush, which is not sent to protected and honest pays in full" in said
