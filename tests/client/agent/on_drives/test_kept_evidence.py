"""A run without a verdict is evidence: nothing that the agent does for the next one may overwrite it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from durability.campaign.definition.settings import DriveUnderTest
from durability.campaign.tasks import DriveStatus, TaskKind
from durability.errors import EXIT_LOSS
from durability_client.agent import drives, earlier_runs, file_systems, same_drive
from durability_client.agent.agent_loop import agent_loop
from durability_client.agent.agent_paths import AgentPaths
from durability_client.agent.drive_work import Setting
from durability_client.agent.task_work import TaskWork
from durability_client.link.endpoint import Endpoint
from durability_client.system.processes import own_command
from durability_client.target import discovery
from durability_client.target.discovery import host_now
from durability_client.target.signatures import Signature
from durability_lab.support.local_server import LocalServer, local_server
from tests.client.agent.cut_campaign import CutCampaign, campaign_on, damage, of_campaign
from tests.client.agent.on_drives.test_wrong_drives import refused, tool
from tests.client.agent.task_server import (
    ARM,
    Tasks,
    TaskServer,
    drive_on,
    file_on,
    options_of,
    task_server,
    without_server,
)
from tests.loop_devices import one_partition

MakeLoop = Callable[..., Path]
MakeMount = Callable[..., tuple[Path, Path]]
SIZE_BYTES = 64 << 20


async def test_what_is_back_from_before_the_campaign_is_neither_mounted_nor_erased(
    tmp_path: Path, make_loop: MakeLoop
) -> None:
    """A drive with its content from before the campaign is not mounted or erased. Each task reports the run
    that the drive has lost."""
    device = make_loop(SIZE_BYTES)
    await tool("mkfs.ext4", "-q", device)
    before = device.read_bytes()
    async with campaign_on(tmp_path, drive_on(device)) as campaign:
        run = await campaign.cut(fresh=True)
        device.write_bytes(before)
        campaign.tasks.again = True
        verify = await campaign.server.do(campaign.tasks.make("verify", run=run))
        refused(
            verify, "in-use", f"the drive has lost run {run}, which has no verdict (`durability show {run}`)"
        )
        for fresh in (False, True):
            status = await campaign.begin(run=run, fresh=fresh)
            refused(status, "in-use", f"the drive has lost run {run}")
        assert device.read_bytes() == before
        assert await campaign.verdicts(run) == []


async def test_a_drive_that_is_back_at_an_earlier_file_system_of_the_campaign_gets_no_run(
    tmp_path: Path, make_loop: MakeLoop
) -> None:
    """A drive that shows an earlier file system of the campaign mounts, but the last run cannot be verified
    there. The agent begins no run and stores no verdict."""
    device = make_loop(SIZE_BYTES)
    async with campaign_on(tmp_path, drive_on(device)) as campaign:
        first = await campaign.cut(fresh=True)
        campaign.tasks.again = True
        verified = await campaign.server.do(campaign.tasks.make("verify", run=first))
        assert verified.state == "done", verified
        earlier = device.read_bytes()
        run = await campaign.cut(fresh=True)
        device.write_bytes(earlier)
        status = await campaign.begin(run=run)
        refused(status, "not-verified", f"is on the drive of run {run}, but on another file system")
        assert await campaign.verdicts(run) == []
        assert len(await campaign.verdicts(first)) == 1


@pytest.mark.parametrize("file_system", ["ext4", ""])
async def test_a_run_of_which_nobody_has_heard_is_verified_before_the_drive_is_begun_afresh(
    tmp_path: Path, make_loop: MakeLoop, file_system: str
) -> None:
    """If the agent never reported a run, the run is verified before a task makes the file system again."""
    async with campaign_on(tmp_path, drive_on(make_loop(SIZE_BYTES), file_system)) as campaign:
        run = await campaign.cut(fresh=True)
        again = await campaign.begin(fresh=True)
        assert again.state == "armed" and again.run != run, again
        assert again.text == f"first verified run {run}, which had no verdict: inconclusive"
        assert await campaign.verdicts(run) == ["inconclusive"]
        await campaign.release()


async def test_a_file_system_that_is_gone_is_not_judged_later_without_people(
    tmp_path: Path, make_loop: MakeLoop
) -> None:
    """If the file system is gone in a later boot, a person may have erased the drive. The agent gives no
    verdict and prints the `verify` command."""
    device = make_loop(SIZE_BYTES)
    async with campaign_on(tmp_path, drive_on(device)) as campaign:
        run = await campaign.cut(fresh=True)
        campaign.tasks.again = True
        await tool("wipefs", "--all", "--quiet", device)
        status = await campaign.begin(run=run)
        refused(status, "not-verified", f"`durability verify --device {device} --run {run}`")
        assert await campaign.verdicts(run) == []


async def test_a_file_system_that_a_cut_damaged_is_judged_before_the_next_run(
    tmp_path: Path, make_loop: MakeLoop
) -> None:
    """If the drive came back too late for its verify, a damaged file system of the campaign is judged before
    the next run. The task after that may make a new one."""
    device = make_loop(SIZE_BYTES)
    async with campaign_on(tmp_path, drive_on(device)) as campaign:
        run = await campaign.cut(fresh=True)
        campaign.tasks.again = True
        damage(device)
        status = await campaign.begin(run=run)
        refused(status, "unmountable", f"run {run} has its verdict")
        assert (status.exit_code, await campaign.verdicts(run)) == (EXIT_LOSS, ["loss"])
        again = await campaign.begin(fresh=True)
        assert again.state == "armed", again
        await campaign.release()


@asynccontextmanager
async def agent_within(directory: Path, lab: LocalServer) -> AsyncIterator[TaskServer]:
    """The server for the tasks of an agent in this process."""
    async with task_server(directory) as server:
        places = AgentPaths(directory / "agent")
        setting = Setting(places=places, options=options_of(lab), boot_id=host_now().boot_id)
        with places.held():

            async def off() -> None:
                raise AssertionError("no task is to shut down")

            work = TaskWork(setting, host_now(), power_off=off, say=print)
            loop = asyncio.create_task(agent_loop(Endpoint(local=directory / "socket"), work, print))
            try:
                yield server
            finally:
                loop.cancel()
                await work.close()


async def test_what_does_not_mount_for_another_reason_than_damage_is_not_made_anew(
    tmp_path: Path, make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the mount fails for another reason than damage, the run is reported as not verified, not as
    unmountable. Once the reason is gone, the run is verified."""
    monkeypatch.setattr(file_systems, "_UNSTEADY_S", 0.0)
    monkeypatch.setattr(earlier_runs, "BETWEEN_TRIES_S", 0.0)
    drive = drive_on(make_loop(SIZE_BYTES))
    async with local_server() as lab, agent_within(tmp_path, lab) as server:
        tasks = Tasks((drive,), ready_within_s=1.0)
        tasks.examined = (await server.do(tasks.make("examine"))).condition
        armed = await server.begin(tasks.make("run", fresh=True))
        assert armed.state == "armed", armed
        await server.do(tasks.make("release"))
        tasks.again = True
        tasks.drives = (replace(drive, mount_options="durability-none"),)
        for task in (tasks.make("verify", run=armed.run), tasks.make("run", run=armed.run)):
            status = await server.do(task, "armed failed ended done")
            refused(status, "not-verified", f"gave no verdict on run {armed.run}")
        tasks.drives = (drive,)
        later = await server.begin(tasks.make("run", run=armed.run))
        assert later.state == "armed" and later.text.startswith(f"first verified run {armed.run}"), later
        await server.do(tasks.make("release"))


def place_of(kind: str, make_loop: MakeLoop, make_mount: MakeMount) -> tuple[DriveUnderTest, Path]:
    """A drive without a file system of its own, a raw device or a target on one; and the path of its runs."""
    if kind == "raw":
        device = make_loop(SIZE_BYTES)
        return drive_on(device, ""), device
    target = make_mount()[1] / "t"
    return file_on(target), target


async def by_hand(lab: LocalServer, target: Path, run: str) -> None:
    """Somebody has the run verified."""
    await tool_of(own_command("verify", str(target), *options_of(lab), "--run", run))


async def tool_of(command: Sequence[str]) -> None:
    """Run a command, whatever its exit code."""
    process = await asyncio.create_subprocess_exec(*command)
    await process.wait()


def erase(target: Path) -> None:
    """Remove the files of a target, or write zeros to the beginning of a device."""
    if target.is_block_device():
        with target.open("r+b") as device:
            device.write(bytes(1 << 20))
        return
    for file in target.parent.glob(f"{target.name}*"):
        file.unlink()


@pytest.mark.parametrize("kind", ["raw", "target"])
async def test_a_run_that_people_judged_is_not_judged_again(
    tmp_path: Path, make_loop: MakeLoop, make_mount: MakeMount, kind: str
) -> None:
    """A run was verified by hand, and then its drive was erased. The task still names the run, but the agent
    does not verify it again, which would give a loss."""
    drive, target = place_of(kind, make_loop, make_mount)
    async with campaign_on(tmp_path, drive) as campaign:
        run = await campaign.cut(fresh=kind == "raw")
        campaign.tasks.again = True
        await by_hand(campaign.lab, target, run)
        erase(target)
        status = await campaign.begin(run=run)
        assert (status.state, status.text) == ("armed", ""), status
        assert await campaign.verdicts(run) == ["inconclusive"]
        await campaign.release()


@pytest.mark.parametrize("kind", ["raw", "target"])
async def test_a_run_that_is_gone_is_not_judged_later_without_people(
    tmp_path: Path, make_loop: MakeLoop, make_mount: MakeMount, kind: str
) -> None:
    """If an unverified run is gone from the drive, the agent names the verify command and begins no run.
    After that verify by hand, which gives loss, the next run begins."""
    drive, target = place_of(kind, make_loop, make_mount)
    async with campaign_on(tmp_path, drive) as campaign:
        run = await campaign.cut(fresh=kind == "raw")
        campaign.tasks.again = True
        erase(target)
        for _ in range(2):
            status = await campaign.begin(run=run)
            refused(status, "not-verified", f"`durability verify {target} --run {run}`")
            assert f"run {run} has no verdict, and it is not recognised on {target}" in status.text
            assert await campaign.verdicts(run) == []
        await by_hand(campaign.lab, target, run)
        assert await campaign.verdicts(run) == ["loss"]
        status = await campaign.begin(run=run)
        assert status.state == "armed", status
        await campaign.release()


async def test_a_drive_that_is_put_to_use_while_its_last_run_is_asked_for_is_not_erased(
    tmp_path: Path, make_loop: MakeLoop
) -> None:
    """A raw drive that was put to use while the agent waited for the server is not erased."""
    device = make_loop(SIZE_BYTES)
    async with campaign_on(tmp_path, drive_on(device, "")) as campaign:
        first = campaign.tasks.make("run", fresh=True)
        by_hand = replace(first, drives=(replace(first.drives[0], label="by hand"),))
        run = await campaign.server.begin(by_hand)
        assert run.state == "armed", run
        await campaign.server.do(campaign.tasks.make("examine"))
        again = campaign.tasks.make("run", fresh=True)
        async with without_server(campaign.server, campaign.lab, again) as come_back:
            with device.open("r+b") as file:
                file.seek(1 << 10)
                file.write(bytes(4 << 10))
            await tool("mkfs.ext4", "-q", device)
            before = device.read_bytes()
            await come_back()
            status = await campaign.server.drive("armed failed ended")
            refused(status, "in-use", "was not touched")
            assert device.read_bytes() == before


async def second(campaign: CutCampaign, kind: TaskKind, *, file_system: str) -> DriveStatus:
    """What the agent says of a task of another campaign on the drive, whose data may go."""
    changes: dict[str, Any] = {"file_system": file_system}
    campaign.tasks.drives = tuple(replace(one, **changes) for one in campaign.tasks.drives)
    task = of_campaign(campaign.tasks.make(kind, fresh=kind == "run"), "second")
    return await campaign.server.do(task, "armed ended done failed")


async def second_is_refused(campaign: CutCampaign, *, file_system: str, words: Sequence[str]) -> None:
    """Assert that both its check and its first run say these, and change nothing on the drive."""
    device = Path(campaign.tasks.drives[0].device)
    before = await asyncio.to_thread(device.read_bytes)
    for kind in ("examine", "run"):
        status = await second(campaign, kind, file_system=file_system)
        refused(status, "in-use", "which is not of this campaign and has no verdict; it was not touched")
        assert all(one in status.text for one in words), status.text
        campaign.tasks.examined = status.condition
    assert await asyncio.to_thread(device.read_bytes) == before


async def second_begins(campaign: CutCampaign, *, file_system: str) -> None:
    """Assert that its check passes, and its first run begins."""
    examined = await second(campaign, "examine", file_system=file_system)
    assert examined.state == "done", examined
    campaign.tasks.examined = examined.condition
    armed = await second(campaign, "run", file_system=file_system)
    assert armed.state == "armed", armed
    await second(campaign, "release", file_system=file_system)


@pytest.mark.parametrize(
    ("had", "gets", "remedy"),
    [
        ("", "", "verify"),
        ("", "", "erase"),
        ("ext4", "ext4", "verify"),
        ("ext4", "ext4", "erase"),
        ("", "ext4", "erase"),
        ("ext4", "", "verify"),
    ],
)
async def test_a_run_of_another_campaign_is_not_overwritten(
    tmp_path: Path, make_loop: MakeLoop, had: str, gets: str, remedy: str
) -> None:
    """A run of another campaign is not overwritten by the check or by the first run. The refusal names the
    commands to verify that run and to erase it; after either, the campaign begins."""
    device = make_loop(SIZE_BYTES)
    async with campaign_on(tmp_path, drive_on(device, had)) as campaign:
        run = await campaign.cut(fresh=True)
        place = tmp_path / "agent/mnt/nightly+d1"
        target = place / "target" if had else device
        erase: tuple[str | Path, ...] = ("wipefs", "--all", device)
        if not had:
            erase = ("dd", "if=/dev/zero", f"of={device}", "bs=1M", "count=1")
        await second_is_refused(
            campaign,
            file_system=gets,
            words=(
                f"{device} {'may carry' if had else 'carries'} run {run} (label campaign test)",
                f"type `durability verify {target} --run {run}`",
                f"mount its file system at {place} and type" if had else "To verify that run, type",
                f"`{' '.join(map(str, erase))}`",
            ),
        )
        assert await campaign.verdicts(run) == []
        if remedy == "erase":
            await tool(*erase)
        elif had:
            place.mkdir()
            await tool("mount", device, place)
            await by_hand(campaign.lab, target, run)
            await tool("umount", place)
        else:
            await by_hand(campaign.lab, target, run)
        assert len(await campaign.verdicts(run)) == (remedy == "verify")
        await second_begins(campaign, file_system=gets)


@pytest.mark.parametrize("file_system", ["", "ext4"])
@pytest.mark.parametrize("end", ["stopped", "not armed"])
async def test_a_run_of_another_campaign_that_needs_no_verdict_is_no_obstacle(
    tmp_path: Path, make_loop: MakeLoop, file_system: str, end: str
) -> None:
    """A run of another campaign that was stopped, or that acknowledged no record, does not prevent a new
    run."""
    arm = ARM if end == "stopped" else replace(ARM, moment="prefill")
    size = "8MiB" if end == "stopped" else "32MiB"
    drive = drive_on(make_loop(SIZE_BYTES), file_system, size=size)
    async with campaign_on(tmp_path, drive, arm=arm) as campaign:
        if end == "stopped":
            assert (await campaign.begin(fresh=True)).state == "armed"
            await campaign.release()
        else:
            await campaign.cut(fresh=True)
        await second_begins(campaign, file_system=file_system)


def test_a_run_lies_on_the_part_of_a_drive_that_it_wrote_to(make_loop: MakeLoop) -> None:
    """A drive with a serial holds the runs on its partitions. A partition does not hold runs on other
    partitions. A raw run is known only from the start of its device."""
    with one_partition(make_loop(SIZE_BYTES)) as part:
        partition = drives.find(drive_on(part), "")
        whole = drives.find(drive_on(Path(f"/dev/{partition.leaves[0]}")), "")
        contents = {"": (Signature("ext4", "0b1c"),)}
        assert whole.device is not None and partition.device is not None
        facts = discovery.collect(whole.device, "device")
        start = discovery.collect(partition.device, "device").offset_bytes
        assert start and facts.offset_bytes == 0
        beyond = start + 2 * SIZE_BYTES
        cases: tuple[tuple[Literal["file", "device"], int | None, bool, bool], ...] = (
            ("device", 0, False, False),
            ("device", start, False, True),
            ("file", 0, False, True),
            ("file", start, True, True),
            ("file", beyond, False, False),
            ("file", None, True, True),
        )
        for kind, offset, on_part, on_whole in cases:
            one = replace(facts, kind=kind, offset_bytes=offset)
            found = [same_drive.may_lie_on(drive, contents, one) for drive in (partition, whole)]
            assert found == [on_part, on_whole], (kind, offset)
            elsewhere = replace(one, drives=(replace(one.drives[0], serial="S2"),))
            assert not same_drive.may_lie_on(whole, contents, elsewhere)


def test_a_run_on_a_drive_without_a_serial_is_known_by_its_file_system(make_mount: MakeMount) -> None:
    """On a drive without a serial, only the file system's UUID tells whether a file run lies there. A raw run
    is known from the start of its device."""
    device, directory = make_mount()
    facts = discovery.collect(directory / "t", "file")
    assert facts.file_system is not None
    nameless = replace(drives.find(drive_on(device), ""), serial="")
    known = Signature("ext4", facts.file_system.uuid)
    for contents, lies in (({"": (), "1": (known,)}, True), ({"": (Signature("ext4", "0b1c"),)}, False)):
        assert same_drive.may_lie_on(nameless, contents, facts) == lies
    unknown = replace(facts, file_system=replace(facts.file_system, uuid=""))
    for other in (unknown, discovery.collect(device, "device")):
        assert not same_drive.may_lie_on(nameless, {"": (Signature("gpt", ""),)}, other)


async def test_a_run_that_was_never_armed_keeps_no_file_system(tmp_path: Path, make_loop: MakeLoop) -> None:
    """A run that was cut in its prefill has nothing to verify, so a damaged file system is made again in the
    next cycle."""
    device = make_loop(SIZE_BYTES)
    prefill = replace(ARM, moment="prefill")
    async with campaign_on(tmp_path, drive_on(device, size="32MiB"), arm=prefill) as campaign:
        run = await campaign.cut(fresh=True)
        campaign.tasks.again = True
        damage(device)
        later = await campaign.begin(run=run)
        refused(later, "unmountable", "does not mount")
        status = await campaign.server.do(campaign.tasks.make("verify", run=run))
        assert (status.state, status.trouble) in (("done", "unmountable"), ("failed", "unmountable")), status
        again = await campaign.begin(fresh=True)
        assert again.state == "armed", again
        await campaign.release()


async def test_an_unheard_run_on_a_damaged_file_system_is_judged_before_it_is_made_anew(
    tmp_path: Path, make_loop: MakeLoop
) -> None:
    """The agent verifies a run that only the server knows of before it makes the damaged file system
    again."""
    device = make_loop(SIZE_BYTES)
    async with campaign_on(tmp_path, drive_on(device)) as campaign:
        run = await campaign.cut(fresh=True)
        damage(device)
        again = await campaign.begin(fresh=True)
        assert again.state == "armed" and again.run != run, again
        assert again.text == f"first verified run {run}, which had no verdict: loss"
        assert (await campaign.verdicts(run), again.trouble, again.exit_code) == (["loss"], "", None)
        await campaign.release()


async def test_a_repair_that_is_seen_before_the_next_run_is_said(tmp_path: Path, make_loop: MakeLoop) -> None:
    """The mount for the earlier run is the one that finds the damage."""
    device = make_loop(SIZE_BYTES)
    async with campaign_on(tmp_path, drive_on(device)) as campaign:
        run = await campaign.cut(fresh=True)
        campaign.tasks.again = True
        await tool("debugfs", "-w", "-R", "set_super_value error_count 3", device)
        again = await campaign.begin(run=run)
        assert (again.state, again.repaired) == ("armed", True), again
        assert "its file system had to be repaired: " in again.text
        await campaign.release()


async def test_a_run_over_one_that_was_judged_is_verified_too(tmp_path: Path, make_loop: MakeLoop) -> None:
    """The machine restarted after the first run was verified and a second run was armed. The task names the
    first run again; the agent verifies the second run before it begins a third."""
    async with campaign_on(tmp_path, drive_on(make_loop(SIZE_BYTES), "")) as campaign:
        first = await campaign.cut(fresh=True)
        campaign.tasks.again = True
        armed = await campaign.begin(run=first)
        assert armed.text.startswith(f"first verified run {first}"), armed
        await campaign.restart()
        third = await campaign.begin(run=first)
        assert third.state == "armed" and third.run not in (first, armed.run), third
        assert third.text == f"first verified run {armed.run}, which had no verdict: inconclusive"
        assert [len(await campaign.verdicts(run)) for run in (first, armed.run)] == [1, 1]
        await campaign.release()
