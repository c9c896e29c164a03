"""The lab's cases on this machine's own kernel: files whose system calls do what they do when a drive goes
away, a target that somebody else still has, and one that this system cannot show.

What a kernel does on a drive that fails, or says of a file system, is put in place of single calls; the files
and the locks are real.
"""

from __future__ import annotations

import asyncio
import errno
import io
import os
import resource
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from durability.errors import TargetBusyError, TargetError
from durability.formats.documents import to_json, to_value
from durability.formats.facts import Facts
from durability.formats.plan import Plan
from durability.protocol.frontiers import Frontiers
from durability_client.target.kernel_storage import KernelStorage
from durability_client.target.target_files import TargetFiles
from durability_client.verify.mount_probe import MountProbe, cause_of
from durability_client.verify.unmountable import UnmountableStorage
from durability_client.verify.verify_command import VerifyOptions, verify
from tests.client.verify.targets import KnownStorage
from tests.core.evidence.memory_target import after_power_loss, make_case
from tests.encryption import ABSENT, kernel_says
from tests.lab.mutants.drive_cases import ACKED
from tests.lab.mutants.lab_case import judged, lab_case, let_write, plan_of, untouched_by_the_cut
from tests.lab.mutants.synced_files import Files
from tests.sample_facts import facts

FATAL = 20  # the record with which something happens
Failing = Callable[[Plan], AbstractContextManager[None]]


def kept_by_the_kernel(plan: Plan, failing: Failing) -> str:
    """The answer after writer 0 has run on this machine's files, which `failing` makes fail: all of it is
    there after the cut but what the kernel itself has dropped."""
    heard = Frontiers(plan)
    with tempfile.TemporaryDirectory() as name:
        storage = KernelStorage(Path(name, "target"))
        TargetFiles(storage, plan).create()
        with ExitStack() as stack:  # the shared state is made before anything fails
            shared = let_write(plan, storage, heard, watch=lambda _: stack.enter_context(failing(plan)))
        found = {path.name.removeprefix("target"): path.read_bytes() for path in Path(name).iterdir()}
    return untouched_by_the_cut(Files.holding(found, after_power_loss()), plan, heard, shared)


@lab_case("durable")
def write_that_was_cut_short() -> str:
    """The file may not grow beyond the middle of the 20th record: the kernel writes half, and says so."""
    return kept_by_the_kernel(plan_of(workload="append", slots=256, credit=64), _no_larger)


@contextmanager
def _no_larger(plan: Plan) -> Iterator[None]:
    most = FATAL * plan.record_bytes - plan.record_bytes // 2
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@lab_case("durable")
def sync_behind_a_commit_that_failed() -> str:
    """The commit that had the 20th record's length fails under somebody else: the sync finds nothing to do
    and returns success, the length is dropped, and the file system takes no change any more."""
    return kept_by_the_kernel(plan_of(workload="append", slots=256, credit=64), _no_more_changes)


@contextmanager
def _no_more_changes(plan: Plan) -> Iterator[None]:
    sync, change = os.fdatasync, os.utime
    syncs = 0

    def fdatasync(fd: int) -> None:
        nonlocal syncs
        syncs += 1
        if syncs == FATAL:
            os.ftruncate(fd, (FATAL - 1) * plan.record_bytes)
        else:
            sync(fd)

    def utime(fd: int) -> None:
        if syncs >= FATAL:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        change(fd)

    with patch.object(os, "fdatasync", fdatasync), patch.object(os, "utime", utime):
        yield


@lab_case("exit 5: held")
def target_that_a_run_still_has() -> str:
    """Verify is called while the client that writes to the target still has it."""
    plan = plan_of()
    with tempfile.TemporaryDirectory() as name:
        export = Path(name, "export")
        export.write_text(to_json(to_value(make_case(plan, (0,)))))
        client = KernelStorage(Path(name, "target"))
        client.lock(create=True)
        try:
            TargetFiles(client, plan).create()
            options = VerifyOptions(target=client.path, from_export=export)
            code = asyncio.run(verify(options, out=io.StringIO(), err=io.StringIO()))
        except TargetBusyError as error:
            assert "another run or verify holds it" in str(error)
            return "exit 5: held"
        finally:
            client.unlock()
    return f"judged, exit code {code}"


@lab_case("exit 5: not to be judged")
def target_in_a_directory_that_is_locked() -> str:
    """Nobody has logged in since the boot, so the kernel lacks the key of the target's directory."""
    with tempfile.TemporaryDirectory() as name, kernel_says(ABSENT):
        storage = KnownStorage(Path(name, "target"), after_power_loss())
        return judged(storage, make_case(plan_of(), (ACKED,)))


class _Unmountable(UnmountableStorage):
    """A device whose file system a kernel does not mount, in the words of its mount(8): a real file."""

    def __init__(self, device: Path, words: str, release: str) -> None:
        io_error, refused = cause_of(f"ext4 on /dev/sda1 does not mount with ro: mount: /tmp/x: {words}")
        probe = MountProbe(
            type="ext4", uuid="uuid-1", mounts=False, text=words, io_error=io_error, refused=refused
        )
        super().__init__(device, probe)
        self._release = release

    def facts(self) -> Facts:
        now = facts(boot="boot-2", uptime_s=30, kind="device", file_system=None)
        return replace(now, host=replace(now.host, kernel=f"Linux {self._release} x86_64"))


def _not_mounted(words: str, release: str) -> str:
    """The answer of `verify --device` on the kernel `release`, after a run on 6.12."""
    armed = facts()
    armed = replace(armed, host=replace(armed.host, kernel="Linux 6.12.48+deb13-amd64 x86_64"))
    with tempfile.TemporaryDirectory() as name:
        device = Path(name, "device")
        device.write_bytes(bytes(1 << 20))
        try:
            storage = _Unmountable(device, words, release)
        except TargetError:
            return "exit 5: not to be judged"
        return judged(storage, make_case(plan_of(), (ACKED,), armed=armed))


@lab_case("loss; 66 truncated")
def file_system_that_is_damaged() -> str:
    """The file system does not mount, and the kernel says that it is damaged."""
    return _not_mounted("mount(2) system call failed: Structure needs cleaning.", "6.16.3")


@lab_case("loss; 66 truncated")
def file_system_that_the_kernel_of_the_run_refuses() -> str:
    """The kernel that the run was made on does not take the file system any more."""
    return _not_mounted("wrong fs type, bad option, bad superblock on /dev/sda1.", "6.12.48+deb13-amd64")


@lab_case("exit 5: not to be judged")
def file_system_that_a_kernel_of_another_build_refuses() -> str:
    """A kernel of another vendor, although later, lacks a feature that the file system has."""
    return _not_mounted("wrong fs type, bad option, bad superblock on /dev/sda1.", "6.16.3-vendor")


@lab_case("exit 5: not to be judged")
def file_system_that_an_older_kernel_takes_for_damaged() -> str:
    """A rescue system's kernel is older than the file system's features, and says that it is damaged."""
    return _not_mounted("mount(2) system call failed: Structure needs cleaning.", "6.1.0-32-amd64")


@lab_case("exit 5: not to be judged")
def file_system_that_a_small_system_does_not_mount() -> str:
    """The kernel of the run has too little memory for the mount."""
    return _not_mounted("mount(2) system call failed: Cannot allocate memory.", "6.12.48+deb13-amd64")
