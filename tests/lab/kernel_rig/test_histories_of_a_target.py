"""What became of a target before and after its cut: second runs, drives that shrink, file systems that no
longer mount, questions asked twice. The product's own commands on a real kernel.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from durability.errors import EXIT_ENVIRONMENT, EXIT_INCONCLUSIVE, EXIT_LOSS
from durability.protocol.messages import List, Listing
from durability_client.link.server_connection import connect
from durability_lab.kernel_rig.block_rig import BlockRig
from durability_lab.kernel_rig.cycle import (
    ATTESTATION,
    CommandAnswer,
    cycle,
    power_on,
    powered,
    running,
    verify,
)
from durability_lab.support.loads import Load
from durability_lab.support.local_server import LocalServer, local_server
from tests.lab.kernel_rig.under_load import again_after_a_standstill, codes, require_durable

pytestmark = [pytest.mark.usefixtures("rig_machine"), pytest.mark.timeout(900)]

EXT4 = Load(file_system="ext4")
RAW = Load(file_system=None)
LIAR = "flush-ignored:kept=0,torn=0,cache_bytes=67108864"  # all that was written since power-on is gone


async def _run_and_cut(lab: LocalServer, rig: BlockRig, load: Load) -> str:
    """The id of a run on the rig's target that a cut ended; the drive has power again, and is mounted."""
    async with running(lab, rig.target, load, acked=500) as client:
        await asyncio.to_thread(rig.cut)
        await client.end()
    mounted = await power_on(rig)
    assert mounted or rig.file_system is None
    return client.run


async def _attested(lab: LocalServer, rig: BlockRig, *options: str) -> CommandAnswer:
    return await verify(lab, rig.target, "--attest-cut", ATTESTATION, *options)


async def _listed(lab: LocalServer, run: str) -> Any:
    """The verdict of `run` in `durability runs`."""
    place = lab.endpoint
    with closing(await connect(place, "query")) as connection:
        rows = (await connection.request(List(limit=50), Listing)).rows
    return next(row["verdict"] for row in rows if row["run"] == run)


async def _become(rig: BlockRig, drive: str) -> None:
    """The drive behaves as `drive` from its next power-on, which is now."""
    await asyncio.to_thread(rig.cut)
    rig.drive = drive
    await power_on(rig)


def _erase_start(device: Path) -> None:
    """Write zeros over the first MiB: the file system's superblock."""
    with device.open("r+b") as file:
        file.write(bytes(1 << 20))


@pytest.mark.parametrize("load", [EXT4, RAW], ids=str)
@again_after_a_standstill
async def test_second_run_on_a_drive_that_ignores_flushes_is_loss(load: Load, seed: int) -> None:
    """The cut takes the second run's superblock; that of the first, durable, run does not hide it."""
    async with local_server() as lab, powered(BlockRig("honest", load.file_system, seed=seed)) as rig:
        first = await _run_and_cut(lab, rig, load)
        require_durable(await _attested(lab, rig))
        await _become(rig, LIAR)
        second = await _run_and_cut(lab, rig, load)
        answer = await _attested(lab, rig)
        older = await _attested(lab, rig, "--run", first)
        assert (await _listed(lab, first), await _listed(lab, second)) == ("durable", "loss")
    assert (answer.exit_code, answer.document["run"]) == (EXIT_LOSS, second), answer
    assert "findings" in codes(answer)
    assert (older.exit_code, "superseded" in codes(older)) == (EXIT_INCONCLUSIVE, True), older
    assert any(f"--run {second}" in reason["text"] for reason in older.document["reasons"])


@pytest.mark.parametrize("load", [EXT4, RAW], ids=str)
@again_after_a_standstill
async def test_drive_that_rolls_back_before_the_second_run_is_loss(load: Load, seed: int) -> None:
    """The whole drive is what it was before the second run; nothing on it tells of that run."""
    async with local_server() as lab, powered(BlockRig("honest", load.file_system, seed=seed)) as rig:
        await _run_and_cut(lab, rig, load)
        require_durable(await _attested(lab, rig))
        await asyncio.to_thread(rig.cut)
        media = rig.mount_point.parent / "media"
        before = media.with_name("before")
        shutil.copyfile(media, before)
        await power_on(rig)
        async with running(lab, rig.target, load, acked=500) as client:
            await asyncio.to_thread(rig.cut)
            await client.end()
        shutil.copyfile(before, media)
        await power_on(rig)
        answer = await _attested(lab, rig)
    assert (answer.exit_code, answer.document["run"]) == (EXIT_LOSS, client.run), answer


async def test_file_of_another_run_over_the_target_is_no_loss(seed: int) -> None:
    """An earlier run's file is given the name of a later run's target: nothing was lost by the drive."""
    async with local_server() as lab, powered(BlockRig("honest", "ext4", seed=seed)) as rig:
        other = rig.target.with_name("other")
        for target in (other, other, rig.target):
            async with running(lab, target, EXT4, acked=200) as client:
                client.process.terminate()
                await client.end()
            if target == other and not rig.target.exists():
                shutil.copyfile(other, rig.target.with_name("copy"))
        rig.target.with_name("copy").rename(rig.target)
        answer = await _attested(lab, rig)
        assert answer.exit_code == EXIT_INCONCLUSIVE, answer
        answer = await _attested(lab, rig, "--run", client.run)
    assert (answer.exit_code, "superseded" in codes(answer)) == (EXIT_INCONCLUSIVE, True), answer


@again_after_a_standstill
async def test_question_asked_differently_changes_nothing(seed: int) -> None:
    """More cuts, another class, a later run on the target: the run stays durable in the listing."""
    async with local_server() as lab, powered(BlockRig("honest", "ext4", seed=seed)) as rig:
        first = await _run_and_cut(lab, rig, EXT4)
        require_durable(await _attested(lab, rig))
        require_durable(await verify(lab, rig.target))  # what was attested need not be said again
        more = await _attested(lab, rig, "--min-cuts", "10")
        lesser = await verify(lab, rig.target, "--attest-cut", "it crashed", "--cut-class", "os")
        assert [more.exit_code, lesser.exit_code] == [EXIT_INCONCLUSIVE] * 2
        assert more.document["requirements"] == {"cut": "power", "min_cuts": 10}
        second = await _run_and_cut(lab, rig, EXT4)
        older = await _attested(lab, rig, "--run", first)
        assert "superseded" in codes(older), older
        assert await _listed(lab, first) == "durable"
        newer = await _attested(lab, rig, "--min-cuts", "2")
        require_durable(newer)
        assert newer.document["strength"]["cuts"] == 2, newer
        assert await _listed(lab, second) == "durable"


async def test_drive_that_comes_back_at_half_its_size_is_loss(seed: int) -> None:
    """The target lies whole in the half that is left; the other half is gone."""
    async with local_server() as lab:
        outcome = await cycle(lab, "smaller:share=0.5", RAW, seed=seed, moments=range(200, 800))
    answer = outcome.answer
    assert (answer.exit_code, codes(answer)) == (EXIT_LOSS, ["device-smaller"]), answer
    assert not any(answer.document["findings"].values())
    assert outcome.truth is not None
    assert outcome.truth.defects == ()


async def test_file_system_that_does_not_mount_names_the_line(seed: int) -> None:
    """Exit 5 with the whole command for such a target, and that command gives the verdict."""
    async with local_server() as lab, powered(BlockRig("honest", "ext4", seed=seed)) as rig:
        at_arming = rig.loop
        async with running(lab, rig.target, EXT4, acked=500) as client:
            await asyncio.to_thread(rig.cut)
            await client.end()
        await asyncio.to_thread(rig.power_on)
        await asyncio.to_thread(_erase_start, rig.device)
        for options in ((), ("--run", client.run)):
            answer = await verify(lab, rig.target, *options)
            assert answer.exit_code == EXIT_ENVIRONMENT, answer
            line = re.search(r"`durability verify (--device [^`]*)`", answer.said)
            assert line is not None, answer
            words = shlex.split(line[1])
            # Another test may take the name of the loop device meanwhile, and then the rig gets another one;
            # as long as both are attached to its file, nothing tells which is the drive.
            device = at_arming if "is its name at arming" in " ".join(answer.said.split()) else rig.loop
            assert words == ["--device", device, "--run", client.run]
        words[1] = rig.loop
        answer = await verify(lab, rig.target, *words, "--attest-cut", ATTESTATION)
    assert (answer.exit_code, answer.document["verdict"]) == (EXIT_LOSS, "loss"), answer
