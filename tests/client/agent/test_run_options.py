"""The options with which the agent starts a run are options of `durability run`."""

from __future__ import annotations

from dataclasses import replace

import pytest
import typer

from durability.campaign.definition.campaign_file import read_campaign
from durability.campaign.definition.settings import Arm, CutMoment, DriveUnderTest
from durability.campaign.tasks import DriveTask
from durability.units import parse_size
from durability_cli.main import app
from durability_client.agent.run_child import run_options

FILE = """
[campaign]
machine = "b"
[power]
fence = "fence_ipmilan"
cut_class = "power"
[[drive]]
device = "/dev/disk/by-id/nvme-EXAMPLE"
file_system = "ext4"
"""
DEFAULTS = read_campaign(FILE, name="ssd", seed=7)
(ONE,) = read_campaign(FILE + "[[arm]]\nrecord_size = '16KiB'\n", name="ssd", seed=7).arms


@pytest.mark.parametrize("arm", [*DEFAULTS.arms, ONE], ids=lambda arm: arm.name)
def test_run_takes_the_options_of_an_arm(arm: Arm) -> None:
    """Options missing in the campaign file are left to the defaults of `run`; no empty option is passed."""
    (drive,) = DEFAULTS.drives
    options = run_options(_task(drive, arm))
    run = typer.main.get_command(app).commands["run"]  # type: ignore[attr-defined]
    context = run.make_context("run", ["/mnt/target", *options])
    assert parse_size(context.params["record_size"]) == (16384 if arm is ONE else 4096)
    assert (context.params["workload"], context.params["writers"]) == (arm.workload, arm.writers)


@pytest.mark.parametrize("moment", ["load", "prefill"])
def test_a_run_that_is_cut_in_its_prefill_stays_in_it(moment: CutMoment) -> None:
    """A fast drive would be full before the power goes."""
    (drive,) = DEFAULTS.drives
    options = run_options(_task(drive, replace(ONE, moment=moment)))
    assert ("--prefill-only" in options) == (moment == "prefill")


def _task(drive: DriveUnderTest, arm: Arm) -> DriveTask:
    return DriveTask(drive=drive, arm=arm, run="", serial="", fresh=False, cut_class="power", label="ssd 1")
