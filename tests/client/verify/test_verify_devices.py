"""`verify --device`, and devices that die, are wiped, or whose file systems do not mount."""

from __future__ import annotations

import io
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from durability.errors import (
    EXIT_ENVIRONMENT,
    EXIT_LOSS,
    TargetError,
    WrongTargetError,
)
from durability.evidence.identity import identify
from durability.evidence.judge import Attestation, Found
from durability.evidence.outcome import Outcome
from durability.formats.case import Case
from durability.formats.facts import Facts, Host
from durability.formats.plan import MAIN, Plan
from durability_client.target.discovery import host_now
from durability_client.target.kernel_storage import KernelStorage
from durability_client.verify.case_source import ServerCaseSource
from durability_client.verify.mount_probe import MountProbe
from durability_client.verify.unmountable import UnmountableStorage
from durability_client.verify.verify_command import VerifyOptions, examine, verify
from tests.client.verify.targets import lay_down
from tests.client.verify.verify_lab import ACKED, Lab, codes
from tests.core.evidence.memory_target import Disk, make_case, small
from tests.joined import NOWHERE
from tests.opal_drives import LOCKED, MBR_ENABLED, SUPPORTED, opal_says
from tests.sample_facts import drive, facts

MakePlan = Callable[..., Plan]
MakeMount = Callable[..., tuple[Path, Path]]
GROUP_INODES, GROUP_BYTES = 32768, 128 << 20  # of the groups of an ext4 with blocks of 4 KiB
ENVIRONMENT = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}
# What is missing where the drive of an I/O error is as it was, and can be read in the boot of the run.
ANSWERED = ["cut-not-shown", "nothing-at-risk"]
pytestmark = pytest.mark.slow  # each starts a server and a scan


async def test_device_that_loses_its_capacity_before_it_is_read_is_no_loss(
    lab: Lab, make_plan: MakePlan, make_loop: Callable[..., Path]
) -> None:
    """A drive drops off once it has been recognised: unfinished, and the next pass may still be durable."""
    device = make_loop(2 << 20)
    backing = backing_of(device)
    lab.plan = small(make_plan, target_kind="device", slots=1024, credit=256)
    lab.disk = Disk(lab.plan)
    lab.disk.write_to(0, ACKED)
    content = bytes(lab.disk.files[MAIN])
    content += bytes((2 << 20) - len(content))
    device.write_bytes(content)
    await lab.run(armed=KernelStorage(device).facts())

    def resize(size_bytes: int) -> None:
        os.truncate(backing, size_bytes)
        subprocess.run(["losetup", "--set-capacity", device], check=True, env=ENVIRONMENT)

    class DroppingSource(ServerCaseSource):
        async def end(self, run: int, found: Found, attestation: Attestation) -> Case | None:
            resize(0)
            return await super().end(run, found, attestation)

    async def examined(source: ServerCaseSource) -> Outcome:
        options = VerifyOptions(target=device, endpoint=lab.endpoint)
        outcome = await examine(options, KernelStorage(device), source, lambda _: None)
        await source.close(lab.plan.run, outcome.document(), outcome.examples)
        return outcome

    outcome = await examined(DroppingSource(lab.endpoint))
    assert (outcome.verdict.word, outcome.report.finished) == ("inconclusive", False)
    assert not outcome.report.findings
    resize(2 << 20)
    with device.open("r+b") as file:
        file.write(content)
    outcome = await examined(ServerCaseSource(lab.endpoint))
    assert (outcome.report.finished, outcome.report.checked) == (True, 1024)
    assert [reason.code for reason in outcome.verdict.reasons] == ANSWERED


@pytest.mark.parametrize("flags", [LOCKED, MBR_ENABLED])
async def test_a_locked_drive_is_no_loss(make_mount: MakeMount, flags: int) -> None:
    """A drive that locked itself at the cut shows nothing, or a boot program. Nothing is read or mounted."""
    device, directory = make_mount("ext4")
    system("umount", directory)
    for options in (
        VerifyOptions(target=device, endpoint=NOWHERE),
        VerifyOptions(target=None, device=device, run=1, endpoint=NOWHERE),
    ):
        with (
            opal_says(SUPPORTED | flags),
            pytest.raises(TargetError, match=rf"drive {device.name} is locked \(OPAL\)") as caught,
        ):
            await verify(options)
        assert caught.value.exit_code == EXIT_ENVIRONMENT
        assert str(caught.value).endswith("unlock it first, then verify")
    system("mount", device, directory)
    with opal_says(SUPPORTED | flags), pytest.raises(TargetError, match=f"drive {device.name} is locked"):
        await verify(VerifyOptions(target=directory / "target", endpoint=NOWHERE))


def backing_of(device: Path) -> str:
    """The file under a loop device."""
    return Path(f"/sys/block/{device.name}/loop/backing_file").read_text().strip()


async def verify_device(lab: Lab, device: Path) -> int:
    options = VerifyOptions(
        target=None, endpoint=lab.endpoint, run=lab.plan.run, device=device, attest_cut="pulled", json=True
    )
    out = io.StringIO()
    code = await verify(options, out=out)
    assert json.loads(out.getvalue())["findings"]["truncated"] == 1024 + 2
    return code


def facts_while_mounted(device: Path, directory: Path) -> Facts:
    """The facts of a target in a new file system on `device`, which is unmounted again."""
    directory.mkdir()
    for command in (["mkfs.ext4", "-q", str(device)], ["mount", str(device), str(directory)]):
        subprocess.run(command, check=True, env=ENVIRONMENT)
    known = KernelStorage(directory / "target").facts()
    subprocess.run(["umount", directory], check=True, env=ENVIRONMENT)
    return known


async def test_file_system_that_does_not_mount_is_loss(lab: Lab, make_loop: Callable[..., Path]) -> None:
    """`--device`: a destroyed file system is loss on the run's own drive, and exit 5 on another one."""
    device = make_loop()
    await lab.run(armed=facts_while_mounted(device, lab.directory / "mount"))
    with pytest.raises(TargetError, match="mount it, and verify the target at its path"):
        await verify_device(lab, device)
    with pytest.raises(WrongTargetError, match="the drives are"):
        await verify_device(lab, make_loop())
    with device.open("r+b") as file:
        file.write(bytes(8 << 20))

    assert await verify_device(lab, device) == EXIT_LOSS


async def test_names_in_a_file_system_that_does_not_mount_are_absent(
    lab: Lab, make_plan: MakePlan, make_loop: Callable[..., Path]
) -> None:
    """`--device`: of a destroyed file system every name that was acknowledged is gone."""
    lab.plan = small(make_plan, workload="rename", slots=1024, credit=256)
    device = make_loop()
    await lab.run(armed=facts_while_mounted(device, lab.directory / "mount"))
    with device.open("r+b") as file:
        file.write(bytes(8 << 20))
    options = VerifyOptions(
        target=None, endpoint=lab.endpoint, run=lab.plan.run, device=device, attest_cut="pulled", json=True
    )
    out = io.StringIO()

    assert await verify(options, out=out) == EXIT_LOSS

    findings = json.loads(out.getvalue())["findings"]
    assert (findings["absent"], findings["truncated"]) == (1024, 2)


def system(*command: str | Path) -> None:
    """Run a program of the system."""
    subprocess.run(command, check=True, env=ENVIRONMENT)


async def run_in_file_system(lab: Lab, device: Path) -> Path:
    """Make a run on a new file system of `device`, on which its target lies; the path while it is mounted."""
    directory = lab.directory / "mount"
    armed = facts_while_mounted(device, directory)
    system("mount", device, directory)
    target = lay_down(lab.disk, directory).path
    system("umount", directory)
    await lab.run(armed=armed)
    return target


async def verdict_of_device(lab: Lab, device: Path) -> tuple[str, list[str]]:
    """The word and the reasons of `verify --device`."""
    options = VerifyOptions(
        target=None, endpoint=lab.endpoint, run=lab.plan.run, device=device, attest_cut="pulled", json=True
    )
    out = io.StringIO()
    await verify(options, out=out, err=lab.said)
    document = json.loads(out.getvalue())
    return document["verdict"], codes(document)


async def verdict_once_mounted(lab: Lab, device: Path, target: Path) -> list[str]:
    """The reasons of `verify` on the target, where the file system mounts again."""
    system("mount", device, target.parent)
    try:
        options = VerifyOptions(target=target, endpoint=lab.endpoint, run=lab.plan.run, json=True)
        out = io.StringIO()
        await verify(options, out=out, err=lab.said)
    finally:
        system("umount", target.parent)
    document = json.loads(out.getvalue())
    assert not any(document["findings"].values())
    return codes(document)


@pytest.mark.parametrize("resized", [False, True])
async def test_device_that_dies_while_it_is_probed_is_no_loss(
    lab: Lab, make_loop: Callable[..., Path], resized: bool
) -> None:
    """`--device`: a drive without power fails blkid and mount, and may show no capacity any more."""
    device = make_loop()
    target = await run_in_file_system(lab, device)
    backing = backing_of(device)
    kept = read_and_cut(backing, 0)
    if resized:
        system("losetup", "--set-capacity", device)

    word, reasons = await verdict_of_device(lab, device)

    assert word == "inconclusive"
    assert "scan-unfinished" in reasons
    put_back(backing, kept)
    system("losetup", "--set-capacity", device)
    assert await verdict_once_mounted(lab, device, target) == ANSWERED


async def test_file_system_that_does_not_mount_for_io_errors_may_be_withdrawn(
    lab: Lab, make_loop: Callable[..., Path]
) -> None:
    """`--device`: a part of the device cannot be read. It is a loss, until a pass reads everything."""
    device = make_loop()
    target = await run_in_file_system(lab, device)
    backing = backing_of(device)
    kept = read_and_cut(backing, 8 << 20)

    assert await verdict_of_device(lab, device) == ("loss", ["findings", "unreadable-only"])

    put_back(backing, kept)
    assert await verdict_once_mounted(lab, device, target) == [*ANSWERED, "loss-withdrawn"]


@pytest.mark.parametrize(
    ("workload", "suffix", "reasons"),
    [
        ("append", MAIN, ["findings", "unreadable-only"]),
        ("append", ".0.0", ["findings", "unreadable-only"]),
        ("overwrite", MAIN, ["cut-not-shown", "scan-unfinished", "nothing-checked"]),
    ],
)
async def test_a_file_whose_inode_cannot_be_read(  # noqa: PLR0917
    lab: Lab,
    make_mount: MakeMount,
    make_plan: MakePlan,
    workload: str,
    suffix: str,
    reasons: list[str],
) -> None:
    """If a file's inode cannot be read, its records are unreadable, but only if another file can be read and
    shows that the drive is there."""
    device, top = make_mount(mkfs=("-b", "4096", "-O", "^flex_bg"))  # inodes lie in the groups of directories
    lab.plan = small(make_plan, workload=workload, slots=1024, credit=256)
    lab.disk = Disk(lab.plan)
    lab.disk.write_to(0, ACKED)
    target = target_with_far_inode(lab.disk, top, suffix)
    await lab.run(armed=KernelStorage(target).facts())
    system("mount", "-o", "remount,ro", top)
    rest = cut_last_group(device)
    with pytest.raises(OSError, match="Input/output error"):
        target.with_name(target.name + suffix).stat()

    lab.storage = KernelStorage(target)
    assert await reasons_of_verify(lab) == reasons

    put_last_group_back(device, rest)
    withdrawn = ["loss-withdrawn"] if "findings" in reasons else []
    assert await reasons_of_verify(lab) == ["cut-not-shown", *withdrawn]


async def reasons_of_verify(lab: Lab) -> list[str]:
    """Without what a busy machine causes: a client that reports its error late has nothing at risk."""
    return [code for code in codes(await lab.verify()) if code != "nothing-at-risk"]


def target_with_far_inode(disk: Disk, top: Path, suffix: str) -> Path:
    """Lay a target down with all in the first two groups of the ext4, but for the inode of one file; the path
    of the target."""
    last = 2 * GROUP_INODES
    near, far = directory_between(top, 0, last), directory_between(top, last, sys.maxsize)
    (far / "file").touch()
    os.link(far / "file", near / f"target{suffix}")
    return lay_down(disk, near).path


def directory_between(top: Path, first: int, end: int) -> Path:
    """A new directory with an inode from `first` on, before `end`; ext4 spreads them over its groups."""
    for number in range(100):
        directory = top / f"{first}-{number}"
        directory.mkdir()
        if first <= directory.stat().st_ino < end:
            return directory
    raise AssertionError("no directory lies there")


def cut_last_group(device: Path) -> bytes:
    """What the last group of the ext4 holds, from now on unreadable."""
    with Path(backing_of(device)).open("r+b") as file:
        file.seek(2 * GROUP_BYTES)
        rest = file.read()
        file.truncate(2 * GROUP_BYTES)
    Path("/proc/sys/vm/drop_caches").write_text("3")
    return rest


def put_last_group_back(device: Path, rest: bytes) -> None:
    """Let it be read again."""
    with Path(backing_of(device)).open("ab") as file:
        file.write(rest)
    Path("/proc/sys/vm/drop_caches").write_text("3")


def read_and_cut(backing: str, size_bytes: int) -> bytes:
    """What the file under a loop device holds; beyond `size_bytes` the device gives EIO from now on."""
    os.sync()
    kept = Path(backing).read_bytes()
    os.truncate(backing, size_bytes)
    Path("/proc/sys/vm/drop_caches").write_text("1")
    return kept


def put_back(backing: str, kept: bytes) -> None:
    """The device can be read again, and is as it was."""
    Path(backing).write_bytes(kept)
    Path("/proc/sys/vm/drop_caches").write_text("1")


async def test_wiped_device_on_layers_is_not_recognised(lab: Lab) -> None:
    """`--device`: without a UUID, and through layers, another volume of the same drives looks the same."""
    case = make_case(lab.plan, (ACKED,), armed=facts(offset_bytes=None))
    probe = MountProbe(type="", uuid="", mounts=False, text="no file system is recognised on /dev/dm-1")
    storage = UnmountableStorage(Path("/dev/dm-1"), probe)

    with pytest.raises(WrongTargetError, match="shows that it is the device of run"):
        storage.facts_as_target_of(case, facts(kind="device", file_system=None, offset_bytes=None))

    volume: dict[str, Any] = {"offset_bytes": None, "volume": "LVM-a"}
    case = make_case(lab.plan, (ACKED,), armed=facts(**volume))
    found = storage.facts_as_target_of(case, facts(kind="device", file_system=None, **volume))
    assert identify(case, found, ()).by == "hardware"


WITH_LOG = (drive(), drive(name="sdb", serial="LOG"))


@pytest.mark.parametrize(
    ("armed", "recognised"),
    [
        ({"drives": WITH_LOG}, True),
        ({"drives": (drive(),)}, True),
        ({"drives": WITH_LOG, "offset_bytes": 0}, False),
        ({"drives": WITH_LOG, "offset_bytes": None}, False),
        ({"drives": WITH_LOG[1:]}, False),
    ],
)
async def test_wiped_device_is_recognised_without_the_drive_of_its_log(
    lab: Lab, armed: dict[str, Any], *, recognised: bool
) -> None:
    """`--device`: a file system without a superblock names no external log. Its own place must be known."""
    case = make_case(lab.plan, (ACKED,), armed=facts(**armed))
    probe = MountProbe(type="", uuid="", mounts=False, text="no file system is recognised on /dev/sda1")
    storage = UnmountableStorage(Path("/dev/sda1"), probe)
    device = facts(kind="device", file_system=None)
    if not recognised and armed["drives"] == WITH_LOG:
        with pytest.raises(WrongTargetError, match="started at"):
            storage.facts_as_target_of(case, device)
        return
    identity = identify(case, storage.facts_as_target_of(case, device), ())
    assert (identity.by, identity.missing) == ("hardware" if recognised else None, ())


REFUSED = MountProbe(type="ext4", uuid="uuid-1", mounts=False, text="ext4 does not mount", refused=True)


DAMAGED = replace(REFUSED, refused=False)


def by_kernel(release: str) -> Host:
    """This machine with a kernel of another release, in the words of `host_now`."""
    now = host_now()
    assert now.kernel == f"Linux {now.release}"
    return replace(now, kernel=now.kernel.replace(platform.release(), release))


@pytest.mark.parametrize(
    ("probe", "armed", "now", "judged"),
    [
        (DAMAGED, "6.12.48+deb13-amd64", "6.1.0-56-amd64", False),
        (DAMAGED, "6.12.48+deb13-amd64", "6.12.30+deb13-amd64", True),
        (DAMAGED, "4.18.0-553.el8", "5.10.0-30-amd64", True),
        (REFUSED, "6.12.48+deb13-amd64", "6.1.0-56-amd64", False),
        (REFUSED, "4.18.0-553.el8", "5.10.0-30-amd64", False),
        (REFUSED, "6.12.48+deb13-amd64", "6.12.48-vendor", False),
        (REFUSED, "6.12.48+deb13-amd64", "6.12.48+deb13-amd64", True),
        (replace(REFUSED, type="", refused=False), "6.12.48+deb13-amd64", "6.1.0-56-amd64", True),
    ],
)
async def test_file_system_that_another_kernel_does_not_mount_is_no_loss(
    lab: Lab, probe: MountProbe, armed: str, now: str, *, judged: bool
) -> None:
    """`--device`: a rescue system's kernel may not know a feature of the file system. If the kernel says that
    it is damaged, an earlier one is not believed; if it only refuses it, none but that of the run is."""
    case = make_case(lab.plan, (ACKED,), armed=facts(host=by_kernel(armed)))
    storage = UnmountableStorage(Path("/dev/sda1"), probe)
    found = facts(kind="device", file_system=None, host=by_kernel(now))
    if judged:
        assert storage.facts_as_target_of(case, found).file_system is not None
        return
    with pytest.raises(TargetError, match=f"Verify on Linux {re.escape(armed)}"):
        storage.facts_as_target_of(case, found)
