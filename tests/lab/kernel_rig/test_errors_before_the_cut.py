"""Histories with an I/O error before the cut, or a drive that hangs.

What a drive had time to drain was not at risk, and no verdict may rest on it.
"""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from durability.errors import EXIT_INCONCLUSIVE
from durability.formats.case import DriveState
from durability.units import parse_run
from durability_client.queries import export
from durability_client.target import drive_watch
from durability_client.target.kernel_storage import KernelStorage
from durability_lab.kernel_rig.block_rig import BlockRig
from durability_lab.kernel_rig.cycle import (
    ATTESTATION,
    CommandAnswer,
    StartedRun,
    power_on,
    powered,
    running,
    verify,
)
from durability_lab.support.loads import Load
from durability_lab.support.local_server import LocalServer, local_server
from tests.lab.kernel_rig.under_load import codes
from tests.waiting import DEADLINE_S, wait_for

pytestmark = [pytest.mark.usefixtures("rig_machine"), pytest.mark.timeout(900)]

DRAIN_MS = 500  # the drive has on media what it acknowledged so long ago
HANG_S = 4.0  # longer than what is acknowledged is at risk
LATE = f"early-ack:delay_ms={DRAIN_MS}"
OPERATIONS = 300
LOADS = [
    Load(file_system=None),
    Load(file_system="ext4"),
    Load(file_system="ext4", workload="append", writers=4),
    Load(file_system="ext4", workload="create"),
]


def disturbed(drive: str, load: Load, seed: int) -> BlockRig:
    """A rig whose drive can fail and hang."""
    return BlockRig(drive, load.file_system, seed=seed, disturbed=True)


async def drained(rig: BlockRig) -> None:
    """Power stays on until the drive has destaged all that it has acknowledged."""
    await asyncio.to_thread(wait_for, rig.has_drained)


async def rebooted(lab: LocalServer, run: str, target: Path) -> str:
    """The case of a run as it would be if the machine had been restarted a minute after the last frame."""
    peer = lab.endpoint
    out = io.StringIO()
    await export(peer, parse_run(run), output=None, out=out)
    case = json.loads(out.getvalue())
    case["armed"]["host"]["boot_id"] = "the boot before"
    uptime_ns = KernelStorage(target).facts().host.uptime_ns
    case["now_ns"] = case["last_receipt_ns"] + uptime_ns + 60_000_000_000
    return json.dumps(case)


async def failed_once(rig: BlockRig, client: StartedRun) -> CommandAnswer:
    """What the client says after a write of its target has failed; the drive lives on."""
    with rig.failing():
        return await client.end()


def seen(
    path: Path, act: Callable[[], None], *, within_s: float = 5.0, grace_s: float = DEADLINE_S
) -> DriveState:
    """What a watch that was begun before `act` sees of the drive at `path` after it. Its reader counts
    `within_s` from when it has begun, which may take a busy machine up to `grace_s`."""
    with patch.object(drive_watch, "_GRACE_S", grace_s):
        watch = KernelStorage(path).watch_drives(KernelStorage(path).facts())
        try:
            act()
            return watch.look(within_s).drive
        finally:
            watch.close()


def test_look_tells_a_dead_drive_from_one_that_answers_or_hangs(seed: int) -> None:
    """Past the page cache, and past the name that another drive may have by then."""
    with disturbed("honest", Load(file_system=None), seed) as rig:
        assert seen(rig.device, lambda: None) == "answered"
        with rig.failing():
            assert seen(rig.device, lambda: None) == "answered"
        assert seen(rig.device, rig.stop_answering, within_s=1.0, grace_s=1.0) == "silent"
        rig.cut()
        assert seen(rig.device, lambda: None) == "dead"
        rig.power_on()
        assert seen(rig.device, rig.cut) == "dead"


@pytest.mark.parametrize("load", LOADS, ids=str)
async def test_drive_that_lives_on_after_an_error_has_nothing_at_risk(load: Load, seed: int) -> None:
    """One write fails, the client ends, the drive drains, and only then the power goes: inconclusive."""
    async with (
        local_server() as lab,
        powered(disturbed(LATE, load, seed)) as rig,
    ):
        async with running(lab, rig.target, load, acked=OPERATIONS) as client:
            said = (await failed_once(rig, client)).said
        await drained(rig)
        rig.cut()
        assert await power_on(rig) or load.file_system is None
        answer = await verify(lab, rig.target, "--run", client.run, "--attest-cut", ATTESTATION)
    assert answer.exit_code == EXIT_INCONCLUSIVE, answer
    assert codes(answer) == ["nothing-at-risk"], answer
    assert answer.document["at_risk"]["ms1000"] == 0
    assert "still answered after the I/O error" in answer.document["reasons"][0]["text"]
    assert "still answers" in said


@pytest.mark.parametrize("load", LOADS[:2], ids=str)
async def test_drive_that_hangs_before_it_dies_has_nothing_at_risk(load: Load, seed: int) -> None:
    """The drive answers no request while it drains; then it alone loses power, and the stuck write fails."""
    async with (
        local_server() as lab,
        powered(disturbed(LATE, load, seed)) as rig,
    ):
        async with running(lab, rig.target, load, acked=OPERATIONS) as client:
            await asyncio.to_thread(rig.stop_answering)
            await asyncio.sleep(HANG_S)
            await drained(rig)
            rig.cut()
            said = (await client.end()).said
        assert await power_on(rig) or load.file_system is None
        answer = await verify(lab, rig.target, "--run", client.run, "--attest-cut", ATTESTATION)
    assert answer.exit_code == EXIT_INCONCLUSIVE, answer
    assert codes(answer) == ["nothing-at-risk"], answer
    assert "does not answer" in said


async def test_clean_reboot_after_an_error_is_no_cut(tmp_path: Path, seed: int) -> None:
    """One write fails, and the machine is restarted in order: another boot proves no cut of any class."""
    load = Load(file_system="ext4")
    async with (
        local_server() as lab,
        powered(disturbed("honest", load, seed)) as rig,
    ):
        async with running(lab, rig.target, load, acked=OPERATIONS) as client:
            await failed_once(rig, client)
        case = tmp_path / "case"
        case.write_text(await rebooted(lab, client.run, rig.target))
        answer = await verify(lab, rig.target, "--from-export", str(case), "--require-cut", "os")
    assert answer.exit_code == EXIT_INCONCLUSIVE, answer
    assert codes(answer) == ["cut-not-shown", "nothing-at-risk"], answer
    assert answer.document["cut"] == {"class": "none", "proof": [], "attested": None}
