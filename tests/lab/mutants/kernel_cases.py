"""The lab's cases on this machine's own kernel: files whose system calls do what they do when a drive goes
away, and a target that somebody else still has.

What a kernel does on a drive that fails is put in place of single calls; the files and the locks are real.
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
from pathlib import Path
from unittest.mock import patch

from durability.errors import TargetBusyError
from durability.formats.documents import to_json, to_value
from durability.formats.plan import Plan
from durability.protocol.frontiers import Frontiers
from durability_client.target.kernel_storage import KernelStorage
from durability_client.target.target_files import TargetFiles
from durability_client.verify.verify_command import VerifyOptions, verify
from tests.core.evidence.memory_target import after_power_loss, make_case
from tests.lab.mutants.lab_case import lab_case, let_write, plan_of, untouched_by_the_cut
from tests.lab.mutants.synced_files import Files

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
