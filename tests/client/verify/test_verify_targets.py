"""Which target `verify` takes: the one of the run, another one, one that is missing or in use."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from durability.errors import (
    EXIT_ENVIRONMENT,
    EXIT_LOSS,
    EXIT_OK,
    RefusedError,
    SetupError,
    TargetBusyError,
    WrongTargetError,
)
from durability.evidence.judge import Attestation, Found
from durability.formats.case import Case
from durability.formats.facts import Facts
from durability.formats.plan import MAIN
from durability_client.target.kernel_storage import KernelStorage
from durability_client.verify.case_source import ServerCaseSource
from durability_client.verify.verify_command import VerifyOptions, examine
from tests.client.verify.targets import KnownStorage, lay_down
from tests.client.verify.verify_lab import ACKED, Lab, codes
from tests.core.evidence.memory_target import Disk, after_power_loss
from tests.sample_facts import drive, facts

pytestmark = pytest.mark.slow  # each starts a server and a scan


async def test_smaller_drive_is_loss(lab: Lab) -> None:
    """Every slot is right, and half of the drive is gone."""
    await lab.run()
    lab.now = replace(lab.now, drives=(drive(diskseq=1, unsafe_shutdowns=4, size_bytes=1 << 39),))

    document = await lab.verify()

    assert (document["exit"], codes(document)) == (EXIT_LOSS, ["device-smaller"])
    assert not any(document["findings"].values())


async def test_missing_file_is_loss_where_the_drive_is_the_runs(lab: Lab) -> None:
    """The server knows the run by drives, place and UUID; the file that is gone was lost."""
    await lab.run()
    lab.disk.files.clear()

    document = await lab.verify()

    assert (document["exit"], document["findings"]["truncated"]) == (EXIT_LOSS, 1024 + 2)


ELSEWHERE = facts(boot="boot-2", uuid="uuid-2", drives=(drive(serial="S2"),))
OTHER_DRIVE = facts(boot="boot-2", drives=(drive(serial="S2"),))
# Of a run in "uuid-1" at this place of this drive.
OTHER_FILE_SYSTEM = facts(boot="boot-2", uuid="uuid-2")


@pytest.mark.parametrize(
    ("now", "wanted", "line"),
    [
        (
            ELSEWHERE,
            "is not the target of run",
            "If it no longer mounts: `durability verify --device /dev/sda1",
        ),
        (
            OTHER_DRIVE,
            "is not the target of run",
            "If it no longer mounts: `durability verify --device /dev/sda1",
        ),
        (
            OTHER_FILE_SYSTEM,
            "is on the drive of run .* but on another file system: uuid-2, and the run was on uuid-1",
            "or the drive has lost all that was written since",
        ),
    ],
)
async def test_another_target_is_never_a_loss(lab: Lab, now: Facts, wanted: str, line: str) -> None:
    """A file system that is not mounted, another drive, or another file system in this place: exit 5, and
    the run is not ended."""
    await lab.run()
    lab.disk.files.clear()
    lab.now = now

    with pytest.raises(WrongTargetError, match=wanted) as caught:
        await lab.verify(run=lab.plan.run)
    assert line in str(caught.value)
    assert ("--device" in str(caught.value)) == (now is not OTHER_FILE_SYSTEM)

    assert caught.value.exit_code == EXIT_ENVIRONMENT
    assert (await lab.shown())["case"]["state"] != "ended"
    assert not (await lab.shown())["verdicts"]


async def test_volumes_of_one_drive_are_two_targets(lab: Lab) -> None:
    """Names of device mapper change with a boot; a run on one volume is not judged on another one."""

    def volume(letter: str, name: str) -> Facts:
        place: dict[str, Any] = {"path_in_file_system": "", "offset_bytes": None, "volume": f"LVM-{letter}"}
        return facts(kind="device", path=name, file_system=None, **place)

    first = replace(lab.plan, run=0xBB, seed=9)
    disk = Disk(first)
    disk.write_to(0, ACKED)
    lab.lose(5)  # the other volume's loss
    await lab.run(plan=first, armed=volume("b", "/dev/dm-0"))
    await lab.run(armed=volume("a", "/dev/dm-0"))
    (lab.directory / "b").mkdir()
    path = lay_down(disk, lab.directory / "b").path
    after_cut = replace(volume("b", "/dev/dm-0"), host=after_power_loss().host)
    lab.storage = KnownStorage(path, replace(after_cut, drives=after_power_loss().drives))

    document = await lab.verify()
    assert (document["exit"], document["run"]) == (EXIT_OK, f"{first.run:016x}")
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(WrongTargetError, match="the target is on the volume LVM-b, expected LVM-a"):
        await lab.verify(run=lab.plan.run)


async def test_facts_are_as_new_as_the_case(lab: Lab) -> None:
    """The start of this system is counted from the case, however long the drive and the server take."""
    await lab.run()
    storage = KnownStorage(lay_down(lab.disk, lab.directory).path, lab.now)
    took_ns: list[int] = []
    older_ns: list[int] = []

    class LateSource(ServerCaseSource):
        async def open(self, run: int, facts: Facts) -> Case | None:
            older_ns.append(facts.host.uptime_ns - lab.now.host.uptime_ns)
            began_ns = time.monotonic_ns()
            case = await super().open(run, facts)
            took_ns.append(time.monotonic_ns() - began_ns)
            return case

        async def end(self, run: int, found: Found, attestation: Attestation) -> Case | None:
            older_ns.append(found.facts.host.uptime_ns - lab.now.host.uptime_ns)
            return await super().end(run, found, attestation)

    options = VerifyOptions(target=storage.path, endpoint=lab.endpoint)
    await examine(options, storage, LateSource(lab.endpoint), lambda _: None)
    assert older_ns[0] == 0 and older_ns[-1] >= took_ns[0]


async def test_a_suspended_machine_ages_between_facts_and_case(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its uptime goes on while it sleeps. Without that time it would seem to have started later, and a run of
    this boot to have ended before."""
    await lab.run()
    storage = KnownStorage(lay_down(lab.disk, lab.directory).path, lab.now)
    slept_ns, clock = 0, time.clock_gettime_ns
    monkeypatch.setattr(
        time,
        "clock_gettime_ns",
        lambda which: clock(which) + (slept_ns if which == time.CLOCK_BOOTTIME else 0),
    )
    older_ns: list[int] = []

    class Suspended(ServerCaseSource):
        async def open(self, run: int, facts: Facts) -> Case | None:
            nonlocal slept_ns
            older_ns.append(facts.host.uptime_ns - lab.now.host.uptime_ns)
            case = await super().open(run, facts)
            slept_ns = 3600 * 10**9
            return case

        async def end(self, run: int, found: Found, attestation: Attestation) -> Case | None:
            older_ns.append(found.facts.host.uptime_ns - lab.now.host.uptime_ns)
            return await super().end(run, found, attestation)

    options = VerifyOptions(target=storage.path, endpoint=lab.endpoint)
    await examine(options, storage, Suspended(lab.endpoint), lambda _: None)
    assert older_ns[0] == 0 and older_ns[-1] >= slept_ns


async def test_target_in_use_is_refused(lab: Lab) -> None:
    """A target locked by another process is refused. `verify` releases its own lock."""
    await lab.run()
    other = KernelStorage(lay_down(lab.disk, lab.directory).path)
    other.lock()

    with pytest.raises(TargetBusyError):
        await lab.verify()
    other.unlock()
    assert (await lab.verify())["verdict"] == "durable", "the lock is given back"
    assert (await lab.verify())["verdict"] == "durable"


async def test_unknown_target_is_refused(lab: Lab) -> None:
    """A target that neither a superblock nor the server knows is refused."""
    lab.disk.files[MAIN] = bytearray(len(lab.disk.files[MAIN]))

    with pytest.raises(RefusedError) as caught:
        await lab.verify()
    assert caught.value.code == "run-unknown"
    with pytest.raises(SetupError, match="does not know run 000000000000002a"):
        await lab.verify(run=42)
