"""What happens to a drive behind nbdkit: requests that fail, a cut at a read, and when it made promises."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from durability.formats.mixing import U64
from durability.formats.plan import Plan
from durability.formats.record import Stamper, superblock
from durability_lab.drive.drive_events import LASTING, NOT, ONCE, DriveEvents, TimedDriveLog

MakePlan = Callable[..., Plan]


@pytest.fixture
def events(tmp_path: Path) -> DriveEvents:
    """Events in a file of their own."""
    return DriveEvents(str(tmp_path / "events"))


def record(plan: Plan, *, seq: int) -> bytes:
    """The first record of the plan's first writer, of this operation."""
    extent = plan.extent(0)
    out = np.empty((1, plan.record_bytes // 512, 64), dtype=U64)
    slots, seqs = np.array([0], dtype=U64), np.array([seq], dtype=U64)
    Stamper(plan).stamp_extent(out, extent, slots=slots, seqs=seqs)
    return out.tobytes()


def test_next_request_fails_or_every_one_does(events: DriveEvents) -> None:
    """One failure is for one request, of any kind; a lasting one ends when that is said."""
    events.request(read=True)
    events.happen(failing=ONCE)
    with pytest.raises(OSError, match="failed") as failure:
        events.request(read=False)
    assert failure.value.errno == errno.EIO
    events.request(read=False)
    events.happen(failing=LASTING)
    for _ in range(3):
        with pytest.raises(OSError, match="failed"):
            events.request(read=True)
    events.happen(failing=NOT)
    events.request(read=True)


def test_power_goes_at_a_read(tmp_path: Path) -> None:
    """The process ends by SIGKILL at the read that was asked for, and writes do not count."""
    script = (
        "import sys; from durability_lab.drive.drive_events import DriveEvents\n"
        "events = DriveEvents(sys.argv[1]); events.happen(reads=3)\n"
        "for read in (True, False, False, True, True, True):\n"
        "    print('request', flush=True); events.request(read=read)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "events")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.count("request")) == (-signal.SIGKILL, 5), done.stderr


@pytest.mark.parametrize("volatile", [True, False])
def test_promises_are_noted_by_run_and_writer(
    volatile: bool, tmp_path: Path, events: DriveEvents, make_plan: MakePlan
) -> None:
    """The flush after an operation promises it, or without a volatile cache its write; prefill never is."""
    log = TimedDriveLog(str(tmp_path / "log"), events, volatile=volatile)
    other = DriveEvents(str(tmp_path / "events"))  # as the lab has it, in another process
    plan = make_plan()
    log.wrote(0, superblock(plan, 0))
    log.wrote(4096, record(plan, seq=0))
    log.flushed()
    assert other.promised_ns() == {}
    began_ns = time.monotonic_ns()
    assert 0 < other.flushed_ns <= began_ns
    log.wrote(4096, bytes(512) + record(plan, seq=1))
    assert bool(other.promised_ns()) is not volatile
    log.flushed()
    assert list(other.promised_ns()) == [(plan.run, 0)]
    first_ns = other.promised_ns()[plan.run, 0]
    assert began_ns <= first_ns <= time.monotonic_ns()
    log.flushed()
    assert other.promised_ns() == {(plan.run, 0): first_ns}
    log.close()
