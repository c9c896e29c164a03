"""Jobs as processes: together, told of errors, and gone when they should be."""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from durability.bench.cells import MIB, Cell
from durability_client.bench.measure.job import JobTask
from durability_client.bench.measure.job_processes import JobError, Jobs
from tests.client.bench.quick_cells import tiny
from tests.places import ROOT
from tests.waiting import DEADLINE_S


def _tasks(cell: Cell, directory: Path) -> list[JobTask]:
    paths = [directory / f"file{number}" for number in range(cell.jobs)]
    for path in paths:
        path.write_bytes(bytes(MIB))
    return [
        JobTask(cell=cell, path=str(path), offset_bytes=0, span_bytes=MIB, seed=number)
        for number, path in enumerate(paths)
    ]


def test_jobs_work_at_the_same_time(tmp_path: Path) -> None:
    """All begin at one moment, none before the others are ready, and each ends after its time."""
    cell = tiny(jobs=3)
    with Jobs() as jobs:
        jobs.open(_tasks(cell, tmp_path))
        start_ns, stretches = jobs.run(cell.jobs, seconds=0.02)
        jobs.close(cell.jobs, sync=True)
    assert len(stretches) == 3
    for stretch in stretches:
        assert stretch.recorded.ended_ns >= start_ns + 20_000_000
        assert len(stretch.recorded.commits) > 0
        assert stretch.user_us + stretch.system_us > 0


def test_processes_are_used_again(tmp_path: Path) -> None:
    """A cell of fewer jobs uses those that are there, and nothing of the cell before is left in them."""
    with Jobs() as jobs:
        for cell in (tiny(jobs=2), tiny(), tiny(jobs=2, data="zeros")):
            jobs.open(_tasks(cell, tmp_path))
            _, stretches = jobs.run(cell.jobs, seconds=0.002)
            jobs.close(cell.jobs, sync=True)
            assert len(stretches) == cell.jobs
    assert not any((tmp_path / "file1").read_bytes())


def test_an_error_is_told_and_the_others_live_on(tmp_path: Path) -> None:
    """A job that cannot open its file says why; after that the processes can be used for another cell."""
    cell = tiny(jobs=2)
    with Jobs() as jobs:
        tasks = _tasks(cell, tmp_path)
        (tmp_path / "file1").unlink()
        with pytest.raises(JobError, match="No such file") as caught:
            jobs.open(tasks)
        assert caught.value.errno == errno.ENOENT
        jobs.close(cell.jobs, sync=False)
        jobs.open(_tasks(cell, tmp_path))
        assert len(jobs.run(cell.jobs, seconds=0.001)[1]) == 2


def test_an_error_while_working_is_told(tmp_path: Path) -> None:
    """A full device is an error with its number and the system's words."""
    task = JobTask(cell=tiny(), path="/dev/full", offset_bytes=0, span_bytes=MIB, seed=1)
    with Jobs() as jobs:
        jobs.open([task])
        with pytest.raises(JobError, match="No space left") as caught:
            jobs.run(1, seconds=1.0)
        assert caught.value.errno == errno.ENOSPC


def test_a_killed_job_is_noticed(tmp_path: Path) -> None:
    """A job whose process is killed does not keep the others waiting: it is an error that says so."""
    with Jobs() as jobs:
        jobs.open(_tasks(tiny(), tmp_path))
        pid = jobs._processes[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(JobError, match="was killed by SIGKILL: memory may be short"):
            jobs.run(1, seconds=30.0)


def test_who_watches_hears_of_long_rounds(tmp_path: Path) -> None:
    """The watch function is called twice a second while jobs work, long before they are done."""

    class SeenError(Exception):
        pass

    working = False

    def look() -> None:
        if working:
            raise SeenError

    with Jobs(look) as jobs:
        jobs.open(_tasks(tiny(), tmp_path))
        working = True
        with pytest.raises(SeenError):
            jobs.run(1, seconds=600.0)


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    """At the end of the `with` block every process is gone, also one that was still working."""
    with Jobs() as jobs:
        jobs.open(_tasks(tiny(jobs=2), tmp_path))
        processes = list(jobs._processes)
    assert len(processes) == 2
    assert not any(process.is_alive() for process in processes)


@pytest.mark.slow
def test_jobs_end_with_their_parent(tmp_path: Path) -> None:
    """When the process that started them is killed, jobs end by themselves, in the middle of a long round."""
    (tmp_path / "file").write_bytes(bytes(MIB))
    program = textwrap.dedent(
        f"""
        import threading, time
        from durability_client.bench.measure.job import JobTask
        from durability_client.bench.measure.job_processes import Jobs
        from tests.client.bench.quick_cells import tiny

        if __name__ == "__main__":
            path = {str(tmp_path / "file")!r}
            task = JobTask(cell=tiny(), path=path, offset_bytes=0, span_bytes=1 << 20, seed=1)
            jobs = Jobs()
            jobs.open([task])
            threading.Thread(target=jobs.run, args=(1,), kwargs={{"seconds": 600.0}}, daemon=True).start()
            print(jobs._processes[0].pid, flush=True)
            time.sleep(600)
        """
    )
    root = ROOT
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": f"{root}:{root / 'client'}"},
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        job = os.pidfd_open(pid)
        parent.kill()
    try:
        ready, _, _ = select.select([job], [], [], DEADLINE_S)
        assert ready, "the job outlives its parent"
    finally:
        os.close(job)
