"""A run that the server has armed, and of which the campaign never heard: its machine restarted just before.
No task names it, so where a drive has lost it nothing but the server tells of it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from durability.errors import EXIT_LOSS
from durability_client.system.processes import own_command
from durability_lab.support.local_server import LocalServer
from tests.client.agent.cut_campaign import campaign_on, damage, of_campaign
from tests.client.agent.on_drives.test_kept_evidence import SIZE_BYTES, by_hand, tool_of
from tests.client.agent.on_drives.test_wrong_drives import refused
from tests.client.agent.task_server import drive_on, options_of, without_server

MakeLoop = Callable[..., Path]


@contextmanager
def mounted_at(device: Path, directory: Path) -> Iterator[Path]:
    """The device's file system, where somebody mounts it."""
    directory.mkdir(exist_ok=True)
    subprocess.run(["mount", device, directory], check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", directory], check=True)


def lose(device: Path, what: str, directory: Path) -> None:
    """The drive has lost its beginning, or all files of the run."""
    if what == "files":
        with mounted_at(device, directory):
            for file in directory.glob("target*"):
                file.unlink()
        return
    with device.open("r+b") as drive:
        drive.write(bytes(4 << 20))


async def judged_by_hand(device: Path, what: str, lab: LocalServer, run: str, directory: Path) -> None:
    """Somebody types what the agent says."""
    if what == "file system":
        command = ("verify", "--device", str(device), *options_of(lab), "--run", run)
        await tool_of(own_command(*command))
    elif what == "files":
        with mounted_at(device, directory):
            await by_hand(lab, directory / "target", run)
    else:
        await by_hand(lab, device, run)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("file system", "no file system of this campaign is recognised on {0}. If nobody erased that, type"),
        ("files", "it is not in the file system on {0}. If nobody erased that, mount {0} at DIRECTORY and"),
        ("raw", "it is not recognised on {0}. If nobody erased that, type `durability verify {0} --run"),
    ],
)
async def test_a_drive_that_has_lost_an_unheard_run_is_left_as_it_is(
    tmp_path: Path, make_loop: MakeLoop, what: str, words: str
) -> None:
    """A drive that has lost a run that was never reported is not changed, since it is evidence. Once the run
    has been verified by hand, the next run begins."""
    device = make_loop(SIZE_BYTES)
    async with campaign_on(tmp_path, drive_on(device, "" if what == "raw" else "ext4")) as campaign:
        run = await campaign.cut(fresh=True)
        lose(device, what, tmp_path / "m")
        before = device.read_bytes()
        status = await campaign.begin(fresh=True)
        refused(status, "not-verified", f"run {run} has no verdict, and {words.format(device)}")
        assert what == "files" or device.read_bytes() == before
        assert await campaign.verdicts(run) == []
        await judged_by_hand(device, what, campaign.lab, run, tmp_path / "m")
        assert await campaign.verdicts(run) == ["loss"]
        status = await campaign.begin(fresh=True)
        assert (status.state, status.text) == ("armed", ""), status
        await campaign.release()


async def test_a_run_of_another_campaign_is_not_asked_for(tmp_path: Path, make_loop: MakeLoop) -> None:
    """People have given that one up, and erased its drive for this one."""
    device = make_loop(SIZE_BYTES)
    async with campaign_on(tmp_path, drive_on(device, "")) as campaign:
        await campaign.cut(fresh=True)
        lose(device, "raw", tmp_path)
        task = of_campaign(campaign.tasks.make("run", fresh=True), "second")
        status = await campaign.server.begin(task)
        assert (status.state, status.text) == ("armed", ""), status
        await campaign.server.do(of_campaign(campaign.tasks.make("release"), "second"))


async def test_a_drive_that_is_erased_while_its_server_is_away_has_no_loss(
    tmp_path: Path, make_loop: MakeLoop
) -> None:
    """Only the server knew of a run on a damaged file system. The owner erased the drive while the server was
    away. The agent gives no verdict and prints the `verify` command."""
    device = make_loop(SIZE_BYTES)
    async with campaign_on(tmp_path, drive_on(device)) as campaign:
        run = await campaign.cut(fresh=True)
        damage(device)
        again = campaign.tasks.make("run", fresh=True)
        async with without_server(campaign.server, campaign.lab, again) as come_back:
            with device.open("r+b") as file:
                file.write(bytes(SIZE_BYTES))
            await come_back()
            status = await campaign.server.drive("armed failed ended")
            refused(status, "not-verified", f"`durability verify --device {device} --run {run}`")
            assert await campaign.verdicts(run) == []
            assert not any(device.read_bytes())


async def test_a_verify_that_people_made_is_not_made_again(tmp_path: Path, make_loop: MakeLoop) -> None:
    """In a pause while the agent was to verify: they erased the drive after that, and restarted its machine,
    which has its task still."""
    device = make_loop(SIZE_BYTES)
    async with campaign_on(tmp_path, drive_on(device, "")) as campaign:
        run = await campaign.cut(fresh=True)
        lose(device, "raw", tmp_path)
        await by_hand(campaign.lab, device, run)
        assert await campaign.verdicts(run) == ["loss"]
        campaign.tasks.again = True
        status = await campaign.server.do(campaign.tasks.make("verify", run=run))
        assert (status.state, status.exit_code, status.text) == ("done", EXIT_LOSS, ""), status
        assert await campaign.verdicts(run) == ["loss"]
