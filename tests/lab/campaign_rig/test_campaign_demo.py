"""`durability demo --campaign`: three drives, a bound for the honest one, and the cut at which each liar is
caught."""

from __future__ import annotations

import io
import random
import re

import pytest

from durability.campaign.log_entries import OutcomeWord
from durability.errors import EXIT_INTERNAL, EXIT_OK
from durability_lab.campaign_rig import campaign_demo as demo_module
from durability_lab.campaign_rig.campaign_demo import campaign_demo
from durability_lab.campaign_rig.demo_cuts import CutVerdict
from durability_lab.simulated_rig.virtual_time import Agenda
from tests.core.campaign.written_log import said, state_of, written_log


def _rows(text: str) -> dict[str, list[str]]:
    """The table, by drive."""
    rows = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    return {row[0]: row[1:] for row in rows if row[0] in demo_module.MODELS and len(row) > 1}


@pytest.mark.slow
async def test_campaign_demo_bounds_the_honest_drive_and_catches_the_liars() -> None:
    """For any seed, the demo makes 59 cuts per drive. The honest drive loses nothing, the early-acknowledging
    one loses data at each cut, and the output fits a screen of 80 by 24."""
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    out = io.StringIO()
    assert await campaign_demo(out, io.StringIO(), seed=seed) == EXIT_OK, out.getvalue()
    text = out.getvalue()
    rows = _rows(text)
    assert rows["honest"] == ["59", "59", "0", "0", "0", "5.0 %"]
    assert rows["early-ack"][:3] == ["59", "0", "59"]
    assert rows["flush-skipped"][0] == "59"
    first = re.search(r"flush-skipped: LOSS in \d+ of 59 cuts, first in cycle (\d+)", " ".join(text.split()))
    clean = int(first[1]) - 1 if first else 0  # one of some two hundred seeds skips no flush before a cut
    assert bool(first) == (rows["flush-skipped"][2] != "0")
    assert bool(clean) == ("flush-skipped passed " in text)
    assert "honest: no loss seen in 59 cuts: at most 5.0 % of cuts lose data (95 %)." in text
    assert f"Seed {seed}" in text
    assert len(text.splitlines()) < 24 and max(map(len, text.splitlines())) <= 80


@pytest.mark.slow
async def test_same_seed_gives_the_same_campaign() -> None:
    """Drives, cuts, switch and verdicts all follow from the seed. With this one, the drive that skips a flush
    now and then passes two cuts, and is caught at the third."""
    shown = []
    for _ in range(2):
        out = io.StringIO()
        assert await campaign_demo(out, io.StringIO(), seed=4, cuts=3) == EXIT_OK
        shown.append(out.getvalue())
    assert shown[0] == shown[1]
    assert _rows(shown[0])["flush-skipped"][:3] == ["3", "2", "1"]
    assert "flush-skipped: LOSS in 1 of 3 cuts, first in cycle 3" in " ".join(shown[0].split())
    assert "flush-skipped passed 2 cuts before that loss." in shown[0]


@pytest.mark.slow
async def test_campaign_demo_fails_where_a_verdict_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """A verdict that the drive's own log contradicts is exit code 1, and is named."""

    def contradicted(self: demo_module.DemoDrives, drive: str, run: str) -> object:
        self.verdicts[run] = CutVerdict(
            run=run,
            exit_code=0,
            verdict="durable",
            cut_class="power",
            reasons=(),
            at_risk_ms1000=1,
            defects=("the drive kept nothing",),
        )
        return look_up(self, drive, run)

    look_up = demo_module.DemoDrives.look_up
    monkeypatch.setattr(demo_module.DemoDrives, "look_up", contradicted)
    out = io.StringIO()
    assert await campaign_demo(out, io.StringIO(), seed=5, cuts=1) == EXIT_INTERNAL
    assert "the drive kept nothing" in out.getvalue()


def test_cycles_that_were_left_out_are_no_passed_cuts() -> None:
    """Only the cuts with a durable verdict count as passed before the first loss."""
    words: list[OutcomeWord] = ["durable", "nothing", "durable", "loss", "durable"]
    state = state_of(written_log("demo", [[said(word, number)] for number, word in enumerate(words, 1)]))
    out = io.StringIO()
    assert demo_module._conclude(state, demo_module.DemoDrives(Agenda(), seed=1), out) == EXIT_OK
    assert out.getvalue().startswith("d0 passed 2 cuts before that loss.\n")
