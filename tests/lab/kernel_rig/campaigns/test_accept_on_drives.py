"""`accept` from end to end: a server, a campaign of real cuts on drives of the kernel, and real results."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.drives import measured_on
from durability.bench.catalogue import HEADLINE, HELD
from durability.bench.cells import MIB
from durability.bench.result import encode
from durability.errors import EXIT_INCONCLUSIVE, EXIT_LOSS, EXIT_OK
from durability_lab.campaign_rig.lab_campaign_command import TIMES
from durability_lab.kernel_rig.real_campaign import RealCampaign, real_campaign
from tests.lab.kernel_rig.campaigns.campaign_steps import log_of, over, require_load, start
from tests.lab.kernel_rig.under_load import again_after_a_standstill

pytestmark = [pytest.mark.usefixtures("rig_machine"), pytest.mark.slow]
CUTS = 2
MODELS = {"honest": "honest", "liar": "flush-ignored"}
CELLS = (HEADLINE, *HELD)
PROFILE = """
[profile]
title = "A drive of the lab"

[[criterion]]
kind = "clean-cuts"
limit = 2
reason = "The campaign of the test makes two cuts."

[[criterion]]
kind = "always-there"
reason = "It must come back."

[[criterion]]
kind = "commit-rate"
limit = 1
reason = "It must commit at all."

[[criterion]]
kind = "filled-share"
limit = 99
required = false
reason = "Nothing is filled in half a second."
"""

# More than any drive gives. Two kinds never refuse, because a longer load may show more.
DEMANDS = {
    "commit-p99": (0.0001, "refuse"),
    "commit-rate": (1e9, "refuse"),
    "held-share": (1000, "refuse"),
    "held-for": (86_400, "not shown"),
    "unsynced-rate": (1e9, "refuse"),
    "filled-rate": (1e9, "refuse"),
    "filled-share": (100, "not shown"),
}


def _measure(campaign: RealCampaign, directory: Path) -> dict[str, Path]:
    """A short benchmark of each drive, with hashed serials, as `bench --accept` keeps it."""
    files = {}
    for seed, (name, drive) in enumerate(zip(MODELS, campaign.drives.drives, strict=True)):
        result = measured_on(drive.path, CELLS, seed=seed, seconds=0.5, size_bytes=16 * MIB)
        files[name] = directory / f"{name}.json"
        files[name].write_bytes(encode(result))
    return files


async def _demand_too_much(campaign: RealCampaign, result: Path) -> None:
    """Each criterion says of the measured rates what it must."""
    criteria = (
        f'[[criterion]]\nkind = "{kind}"\nlimit = {limit}\nreason = "No drive has it."\n'
        for kind, (limit, _) in DEMANDS.items()
    )
    profile = result.with_suffix(".toml")
    profile.write_text('[profile]\ntitle = "More than any drive gives"\n' + "".join(criteria))
    answer = await campaign.durability("accept", str(profile), "--bench", str(result), "--json")
    assert answer.exit_code == EXIT_LOSS, answer
    assert _words(json.loads(answer.out), 0) == {kind: word for kind, (_, word) in DEMANDS.items()}


def _words(document: dict[str, Any], drive: int) -> dict[str, str]:
    return {line["kind"]: line["word"] for line in document["drives"][drive]["criteria"]}


@pytest.mark.timeout(1000)
@again_after_a_standstill
async def test_a_drive_is_taken_or_refused_by_what_was_shown(tmp_path: Path) -> None:
    """`accept` passes the honest drive for what two cuts can show, and fails it on criteria above its
    measured rates. It refuses the lying drive, alone and together with the honest one. It finds evidence by
    the drive's serial."""
    profile, strict, report = tmp_path / "lab.toml", tmp_path / "strict.toml", tmp_path / "report.html"
    profile.write_text(PROFILE)
    async with real_campaign(list(MODELS.values()), seed=23) as campaign:
        files = _measure(campaign, tmp_path)
        for path in files.values():
            kept = await campaign.durability("bench", "--show", str(path), "--keep")
            assert kept.exit_code == EXIT_OK, kept.err
        campaign.write_file(campaign=f"cuts = {CUTS}\nseed = 7\n{TIMES}", file_system="ext4")
        await start(campaign)
        state = await over(campaign)
        assert state.reason == "complete", await log_of(campaign)
        require_load(state)

        words = ("accept", str(profile), "--bench", str(files["honest"]), "--json", "-o", str(report))
        honest = await campaign.durability(*words)
        assert honest.exit_code == EXIT_OK, f"{honest.out}\n{await log_of(campaign)}"
        document = json.loads(honest.out)
        assert document == json.loads(report.with_suffix(".json").read_text())
        assert _words(document, 0) == {
            "clean-cuts": "pass",
            "always-there": "pass",
            "commit-rate": "pass",
            "filled-share": "not shown",
        }
        sha256 = document.pop("sha256")
        canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
        assert hashlib.sha256(canonical.encode()).hexdigest() == sha256
        assert sha256 in report.read_text()
        assert document["drives"][0]["evidence"]["campaigns"][0]["name"] == campaign.name

        strict.write_text(PROFILE.replace("limit = 2", "limit = 59"))
        stricter = await campaign.durability("accept", str(strict), "--bench", str(files["honest"]))
        assert stricter.exit_code == EXIT_INCONCLUSIVE, stricter
        assert "2 cuts without a loss: at most 78 % of cuts may lose" in stricter.out
        first, *_, last = stricter.out.splitlines()
        assert first == last and first.startswith("NOT SHOWN "), stricter.out

        await _demand_too_much(campaign, files["honest"])

        liar = await campaign.durability("accept", str(profile), "--bench", str(files["liar"]))
        assert liar.exit_code == EXIT_LOSS and liar.out.startswith("REFUSE    clean-cuts: "), liar
        assert f"of campaign {campaign.name}" in liar.out

        both = await campaign.durability(
            "accept", str(profile), "--campaign", campaign.name, "--json", "-o", str(report)
        )
        assert both.exit_code == EXIT_LOSS, both
        document = json.loads(both.out)
        assert [one["decision"] for one in document["drives"]] == ["pass", "refuse"]
        assert all("stored result" in one["evidence"]["results"][0]["name"] for one in document["drives"])
        assert report.read_text().count('class="sheet') == 3, "a summary, and a sheet for each drive"

        serial = document["drives"][1]["subject"]["serial"]
        found = await campaign.durability("accept", str(profile), "--drive", serial, "--json")
        (by_serial,) = json.loads(found.out)["drives"]
        assert found.exit_code == EXIT_LOSS and by_serial == document["drives"][1]

        machine = ("--server", campaign.address, "--credential", str(campaign.credential("b")))
        own = await campaign.durability("accept", str(profile), "--bench", str(files["liar"]), *machine)
        assert own.exit_code == EXIT_LOSS, "its client is not shown campaigns, and sees its own runs"
        hidden = await campaign.durability("accept", str(profile), "--campaign", campaign.name, *machine)
        assert hidden.exit_code != EXIT_OK and "join as viewer" in hidden.err, hidden
