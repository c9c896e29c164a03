"""The simulated drive behind the client's own interface: as a target it is a device that can be cut."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import pytest

from durability import limits
from durability.errors import TargetBusyError
from durability.formats.plan import Plan
from durability.formats.record import read_superblock
from durability_client.target.storage import Storage
from durability_client.target.target_files import TargetFiles
from durability_lab.drive.drive import Model
from durability_lab.drive.faults import CATALOGUE, Dead, FlushIgnored, Honest, WriteThrough
from durability_lab.simulated_rig.simulated_storage import SimulatedStorage

HONEST = Honest()
PLAN = Plan(
    run=7,
    seed=9,
    target=3,
    target_kind="device",
    workload="overwrite",
    pattern="random",
    record_bytes=4096,
    writers=2,
    slots=64,
    group=1,
    credit=16,
    sync="fdatasync",
    direct=True,
    block_bytes=512,
    control_slots=16,
    control_interval_us=1000,
)


def as_storage(model: Model = HONEST, seed: int = 1) -> tuple[Storage, SimulatedStorage]:
    """The same storage twice: as the client sees it, which mypy checks, and as the lab does."""
    simulated = SimulatedStorage(model, seed=seed, size_bytes=4 << 20)
    return simulated, simulated


@pytest.mark.parametrize("model", [HONEST, WriteThrough()], ids=lambda model: model.spec)
def test_prepared_target_survives_the_cut_of_an_honest_drive(model: Model) -> None:
    """Superblocks and prefill that the client synced are there after the cut."""
    storage, drive = as_storage(model)
    TargetFiles(storage, PLAN).create()
    drive.cut()
    drive.power_on()
    file = storage.open("")
    for offset in PLAN.superblock_offsets:
        block = bytearray(limits.SUPERBLOCK_BYTES)
        assert file.pread_into(block, offset) == len(block)
        assert read_superblock(block) == PLAN


def test_liar_loses_a_synced_write() -> None:
    """On a liar, a write that the client synced can be gone after the cut."""
    lost = []
    for seed in range(20):
        storage, drive = as_storage(FlushIgnored(), seed)
        file = storage.open("", plan=PLAN)
        file.pwrite(b"\1" * 4096, 8192)
        file.sync()
        drive.cut()
        drive.power_on()
        after = bytearray(4096)
        storage.open("").pread_into(after, 8192)
        lost.append(after != b"\1" * 4096)
    assert any(lost)
    assert not all(lost)


@pytest.mark.parametrize("kind", CATALOGUE.values(), ids=lambda kind: kind.name)
def test_after_the_cut_every_operation_is_an_io_error(kind: type[Model]) -> None:
    """Reads, writes and syncs of files that were open, and of new ones, raise EIO until power is back; of a
    drive that the cut killed, for good."""
    storage, drive = as_storage(kind())
    file = storage.open("", plan=PLAN)
    drive.cut()
    for opened in (file, storage.open("")):
        operations: list[Callable[[], object]] = [
            partial(opened.pwrite, bytes(512), 0),
            partial(opened.pread_into, bytearray(512), 0),
            opened.sync,
        ]
        for operation in operations:
            with pytest.raises(OSError, match="power") as caught:
                operation()
            assert caught.value.errno == errno.EIO
    drive.power_on()
    with pytest.raises(OSError, match="dead") if kind is Dead else nullcontext():
        storage.open("", plan=PLAN).pwrite(bytes(512), 0)


def test_facts_show_the_cut_as_a_new_enumeration_of_the_same_drive() -> None:
    """The serial stays and the diskseq rises, which is what proves a cut of the drive alone."""
    storage, drive = as_storage()
    before = storage.facts().drives[0]
    drive.cut()
    drive.power_on()
    after = storage.facts().drives[0]
    assert before.serial == after.serial
    assert before.diskseq is not None
    assert after.diskseq is not None
    assert after.diskseq > before.diskseq


def test_facts_count_the_flushes_that_reached_the_drive() -> None:
    """Each sync of the client is one flush of the drive, also on a drive that ignores it."""
    storage, _ = as_storage(FlushIgnored())
    file = storage.open("", plan=PLAN)
    for _ in range(3):
        file.sync()
    assert storage.facts().drives[0].flushes == 3


def test_reads_end_where_the_drive_does() -> None:
    """A read across the end gives what is there, one beyond it nothing, as on a block device."""
    storage, _ = as_storage()
    file = storage.open("")
    assert file.pread_into(bytearray(4096), file.size() - 512) == 512
    assert file.pread_into(bytearray(4096), file.size()) == 0


def test_target_is_held_by_one_user_at_a_time() -> None:
    """A second lock is refused until the first is given back."""
    storage, _ = as_storage()
    storage.lock()
    with pytest.raises(TargetBusyError):
        storage.lock()
    storage.unlock()
    storage.lock()
