"""fio: what it is asked, what its report must hold, and that a row of ours is what fio itself printed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from durability.bench.catalogue import CLASSIC, PROFILES
from durability.bench.cells import MIB, Cell, make_cell
from durability.bench.decision.classic import classic_rows, sync_cost
from durability.bench.figures import against_fio
from durability.bench.json_documents import summary_document
from durability.bench.result import Result, decode, encode
from durability.bench.summary import summarise
from durability.errors import SetupError, TargetError
from durability_client.bench.measure import fio
from durability_client.bench.measure.fio import Fio, ReportError, UnlikeError, options, round_of_report
from durability_client.bench.measure.job import JobTask
from durability_client.bench.runner import Options, measure
from durability_client.system.programs import find_tool
from durability_client.target.safety_checks import Consent
from tests.waiting import DEADLINE_S, wait_for

COMMAND = str(Path(sys.executable).with_name("durability"))
SIZE_BYTES = 64 * MIB
PERCENTILE_ERROR = 0.02  # fio's buckets and ours: each at most 1/64 and 1/128 of a value

needs_fio = pytest.mark.skipif(find_tool("fio") is None, reason="no fio is installed")


class Silent:
    """A listener that hears nothing."""

    def say(self, text: str) -> None:
        pass

    def preparing(self, done: int, total: int) -> None:
        pass

    def measuring(self, doing: str, done_s: float, left_s: float) -> None:
        pass


def _short(cell: Cell, **changes: Any) -> Cell:
    values = {name: getattr(cell, name) for name in Cell.__slots__}
    return Cell(**{**values, "seconds": 0.05, "warmup_s": 0.0, "rounds": 1, **changes})


def _measured(place: Path, *cells: Cell) -> Result:
    wanted = Options(
        target=place,
        cells=cells,
        mode="standard",
        profile="classic",
        size_bytes=SIZE_BYTES,
        seed=3,
        consent=Consent(force=True),
        show_serials=False,
        fio=True,
        idle_s=0.01,
    )
    return measure(wanted, Silent()).result


@pytest.fixture
def heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory in which each report of the real fio is kept, as fio printed it."""
    reports = tmp_path / "reports"
    reports.mkdir()
    program = tmp_path / "fio"
    program.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = --version ] && exec {find_tool("fio")} --version\n'
        f'{find_tool("fio")} "$@" > {reports}/$$.json && cat {reports}/$$.json\n'
    )
    program.chmod(0o755)
    monkeypatch.setattr("durability_client.bench.measure.fio.find_tool", lambda name: str(program))
    yield reports


@needs_fio
@pytest.mark.slow
def test_a_classic_row_is_what_fio_itself_printed(place: Path, heard: Path) -> None:
    """IOPS, bytes per second and percentiles of every classic cell, compared with fio's JSON of that run."""
    cells = [_short(cell) for row in CLASSIC for cell in (row.read, row.write)]
    synced = _short(CLASSIC[-1].synced)
    result = _measured(place, *cells, synced)
    printed = {_key(report): report["jobs"][0] for path in heard.iterdir() if (report := _json(path))}
    assert len(printed) == len(cells)
    for one in result.cells:
        if one.engine != "fio":
            continue
        found = summarise(one)
        direction = "read" if one.cell.workload == "read" else "write"
        theirs = printed[(one.cell.block_bytes, one.cell.depth, one.cell.pattern == "random", direction)]
        part = theirs[direction]
        assert found.rate is not None and found.bytes_per_s is not None
        assert found.operations == part["total_ios"] > 0
        assert found.rate.median == pytest.approx(part["iops"], rel=1e-6)
        assert found.bytes_per_s.median == pytest.approx(part["bw_bytes"], rel=1e-3)  # fio's: a whole number
        latency = found.read if direction == "read" else found.commit
        assert latency.samples == part["total_ios"]
        assert latency.most == pytest.approx(part["lat_ns"]["max"], rel=PERCENTILE_ERROR)
        if latency.p50 is not None:
            assert latency.p50 == pytest.approx(part["lat_ns"]["percentile"]["50.000000"], rel=0.04)
    _on_the_page(result)


def _json(path: Path) -> dict[str, Any]:
    text = path.read_text()
    found: dict[str, Any] = json.loads(text[text.index("{") :])
    return found


def _key(report: dict[str, Any]) -> tuple[int, int, bool, str]:
    asked = {**report.get("global options", {}), **report["jobs"][0]["job options"]}
    order = asked["rw"]
    direction = "read" if order.endswith("read") else "write"
    return int(asked["bs"]), int(asked["iodepth"]), order.startswith("rand"), direction


def _on_the_page(result: Result) -> None:
    """The rows of the screen have the same figures, and the last line is their ratio."""
    rows = classic_rows(result)
    assert [row.label for row in rows] == [one.label for one in CLASSIC]
    last = rows[-1]
    assert last.write is not None and last.write.rate is not None
    assert last.synced is not None and last.synced.rate is not None
    assert last.kept == last.synced.rate.median / last.write.rate.median
    assert sync_cost(rows).startswith("with a sync after each write, RND4K Q1T1 keeps ")
    document: Any = summary_document(result)
    assert document["classic"][3]["write"]["rate"]["median"] == last.write.rate.median
    assert document["sync_cost"] == sync_cost(rows)


@needs_fio
@pytest.mark.slow
def test_published_loads_are_measured_by_fio(place: Path, heard: Path) -> None:
    """Reads and writes with syncs, and 16 writes in flight with a sync each, which no loop of ours makes. A
    fio that syncs after reads too has no rounds of the first."""
    mixed = _short(next(cell for cell in PROFILES["consumer-vs-datacenter"] if cell.workload == "mix"))
    deep = _short(next(cell for cell in PROFILES["dedicated-server"] if cell.depth > 1), seconds=0.2)
    assert mixed.fio and deep.only_fio
    result = _measured(place, mixed, deep)
    theirs = {one.cell.name: one for one in result.cells if one.engine == "fio"}
    assert {one.cell.name for one in result.cells if one.engine == "durability"} == {mixed.name}
    (of_deep,) = theirs[deep.name].rounds
    assert of_deep.writes > 0 and len(of_deep.commit_ns) == 0
    if theirs[mixed.name].note:
        assert "syncs after reads too" in theirs[mixed.name].note
        assert not theirs[mixed.name].rounds
        return
    (of_mix,) = theirs[mixed.name].rounds
    assert of_mix.operations == of_mix.reads + of_mix.writes > 0
    assert len(of_mix.read_ns) == of_mix.reads
    printed = [report["jobs"][0] for path in heard.iterdir() if (report := _json(path))]
    (job,) = (one for one in printed if one["read"]["total_ios"])
    assert sum(job["sync"]["lat_ns"]["bins"].values()) <= of_mix.writes + mixed.jobs


def test_what_fio_is_asked(place: Path) -> None:
    """Engine, depth, direction and sync of each kind of cell."""
    deep = next(cell for cell in PROFILES["dedicated-server"] if cell.depth > 1)
    mixed = PROFILES["consumer-vs-datacenter"][0]
    assert {"--ioengine=libaio", "--iodepth=32", "--rw=randread", "--direct=1"} <= {*options(CLASSIC[2].read)}
    assert {"--ioengine=libaio", "--iodepth=1", "--rw=write"} <= {*options(CLASSIC[1].write)}
    assert not any("sync" in option for option in options(CLASSIC[1].write))
    assert {"--ioengine=posixaio", "--iodepth=16", "--fsync=1", "--rw=randwrite"} <= {*options(deep)}
    assert {"--ioengine=psync", "--rw=randrw", "--rwmixread=60", "--fdatasync=1"} <= {*options(mixed)}


READ = CLASSIC[3].read
MIXED = make_cell("mix", "", workload="mix", read_percent=60, fio=True)


def _report(**changes: Any) -> dict[str, Any]:
    """A report of two reads and a write of 4 KiB; `changes` by path, "read.runtime" for one."""
    part = {"total_ios": 2, "io_bytes": 8192, "runtime": 10, "lat_ns": {"bins": {"5000": 1, "7000": 1}}}
    job: dict[str, Any] = {
        "error": 0,
        "job_runtime": 10,
        "usr_cpu": 1.5,
        "sys_cpu": 2,
        "read": part,
        "write": {"total_ios": 1, "io_bytes": 4096, "runtime": 10, "lat_ns": {"bins": {"5000": 1}}},
        "sync": {"total_ios": 0, "lat_ns": {"bins": {}}},
    }
    report = json.loads(json.dumps({"jobs": [job]}))
    for path, value in changes.items():
        *steps, last = path.split(".")
        holder = report["jobs"][0]
        for step in steps:
            holder = holder[step]
        holder[last] = value
    return dict(report)


def test_a_report_is_read_as_it_stands() -> None:
    """Counts, times and latencies, of a cell that reads and of one that does both."""
    found, user_us, system_us = round_of_report(READ, _report())
    assert (found.reads, found.writes, found.seconds, len(found.read_ns)) == (2, 0, 0.01, 2)
    assert (user_us, system_us) == (150.0, 200.0)
    both, _, _ = round_of_report(MIXED, _report())
    assert (both.reads, both.commits, both.operations) == (2, 1, 3)


@pytest.mark.parametrize(
    ("counted", "bins", "jobs", "alike"),
    [
        (0, {}, 1, True),
        (2, {"5000": 2}, 1, True),  # one of its own for each job
        (3, {"5000": 3}, 1, False),
        (0, {"5000": 2, "7000": 1}, 1, False),  # of fdatasync there are only latencies
        (3, {}, 1, False),
        (3, {"5000": 3}, 2, True),
        (4, {"5000": 4}, 2, False),
    ],
)
def test_syncs_after_reads_are_another_workload(
    counted: int, bins: dict[str, int], jobs: int, alike: bool
) -> None:
    """A mix with more syncs than its one write and its jobs explain is not what this tool measures."""
    report = _report(**{"sync.total_ios": counted, "sync.lat_ns.bins": bins})
    cell = make_cell("mix", "", workload="mix", read_percent=60, jobs=jobs, fio=True)
    if alike:
        assert round_of_report(cell, report)[0].reads == 2
    else:
        syncs = max(counted, sum(bins.values()))
        with pytest.raises(UnlikeError, match=f"syncs after reads too \\(syncs: {syncs}, writes: 1\\)"):
            round_of_report(cell, report)
    for other in (make_cell("commit", "", fio=True), _short(MIXED, sync="none", writes_per_sync=0)):
        assert round_of_report(other, report)[0].writes == 1


def test_a_mix_that_fio_syncs_otherwise_has_no_rounds_of_fio(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first round that did not show it goes too, so no ratio is printed. The note says what to install."""
    reports = {"first": 2, "later": 3}
    for name, syncs in reports.items():
        report = _report(**{"sync.lat_ns.bins": {"5000": syncs}})
        (tmp_path / name).write_text(json.dumps(report))
    program = tmp_path / "fio"
    program.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && exec echo fio-3.33\n'
        f"cd {tmp_path}; cat first 2> /dev/null || cat later; rm -f first; echo >> calls\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr("durability_client.bench.measure.fio.find_tool", lambda name: str(program))
    result = _measured(place, _short(MIXED, rounds=3))
    ours, theirs = result.cells
    assert (len(ours.rounds), ours.note) == (3, "")
    assert (theirs.engine, theirs.rounds) == ("fio", ())
    assert theirs.note == "fio syncs after reads too (syncs: 3, writes: 1); install fio 3.38 or later"
    assert (tmp_path / "calls").read_text() == "\n\n"  # no third round of it is made
    assert not [*against_fio(result)]
    assert result.complete and decode(encode(result)) == result


@pytest.mark.parametrize(
    ("path", "value", "match"),
    [
        ("read", None, r"read: expected an object"),
        ("read.total_ios", "2", r"total_ios: expected a count, found '2'"),
        ("read.total_ios", True, r"total_ios: expected a count"),
        ("read.total_ios", -1, r"total_ios: expected a count"),
        ("read.total_ios", 3, r"read\.io_bytes: 8192 in 3 calls of 4096 bytes"),
        ("read.io_bytes", 8191, r"read\.io_bytes: 8191 in 2 calls"),
        ("read.runtime", None, r"runtime: expected a count, found None"),
        ("read.runtime", 0, r"runtime: 0 ms"),
        ("read.lat_ns", [], r"lat_ns: expected an object"),
        ("read.lat_ns.bins", [1], r"read\.lat_ns\.bins: expected counts"),
        ("read.lat_ns.bins", {"-5": 1}, r"read\.lat_ns\.bins: expected counts"),
        ("read.lat_ns.bins", {"5": 1.5}, r"5: expected a count"),
        ("read.lat_ns.bins", {"5": 1 << 50}, r"latencies, at most"),
        ("usr_cpu", "much", r"usr_cpu: expected a number, found 'much'"),
        ("usr_cpu", float("nan"), r"usr_cpu: expected a number"),
        ("job_runtime", -1, r"job_runtime: expected a number"),
    ],
)
def test_a_report_that_lacks_a_figure_is_refused(path: str, value: object, match: str) -> None:
    """The message names the field and what stood there."""
    with pytest.raises(ReportError, match=match):
        round_of_report(READ, _report(**{path: value}))


@pytest.mark.parametrize("report", [{}, {"jobs": []}, {"jobs": [{}, {}]}, {"jobs": [3]}, {"jobs": {}}])
def test_a_report_of_no_group_is_refused(report: dict[str, Any]) -> None:
    """All jobs are one group in it, or it is not the report that was asked for."""
    with pytest.raises(ReportError, match="jobs: expected one group"):
        round_of_report(READ, report)


@pytest.mark.parametrize(
    ("script", "error", "words"),
    [
        ("echo '{\"jobs\": [{}]}'", SetupError, "its report cannot be read: read: expected an object"),
        ("echo not JSON", TargetError, "fio ended with code 0: not JSON"),
        ("printf '\\033[31mred' >&2; exit 3", TargetError, "fio ended with code 3: "),
        ("yes '{' | head -c 9000; exit 1", TargetError, "fio ended with code 1"),
        ('echo \'{"jobs": [{"error": 5}]}\'; exit 1', TargetError, "code 1: Input/output error"),
    ],
    ids=["empty group", "words", "escape", "no end", "an error"],
)
def test_a_program_that_is_not_fio_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, error: type[Exception], words: str
) -> None:
    """A program that is not fio is refused with one short plain message, no matter what it prints."""
    program = tmp_path / "fio"
    program.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec echo fio-3.99\n{script}\n')
    program.chmod(0o755)
    monkeypatch.setattr("durability_client.bench.measure.fio.find_tool", lambda name: str(program))
    task = JobTask(cell=READ, path=str(tmp_path / "file"), offset_bytes=0, span_bytes=MIB, seed=1)
    with pytest.raises(error, match=re.escape(words)) as raised:
        Fio().run(READ, [task])
    assert "\x1b" not in str(raised.value) and len(str(raised.value)) < 400


@needs_fio
@pytest.mark.slow
def test_ctrl_c_in_a_round_of_fio_leaves_no_file_and_no_process(
    environment: dict[str, str], place: Path, tmp_path: Path
) -> None:
    """The first interrupt ends fio with its jobs, and the directory is empty when the command ends."""
    output = tmp_path / "result.json"
    arguments = [COMMAND, "bench", str(place), "--profile", "classic", "--engine", "fio", "--force"]
    arguments += ["--size", "64MiB", "--only", "classic", "--wait", "0", "-o", str(output)]
    with subprocess.Popen(
        arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        wait_for(lambda: bool(_jobs_in(place)))
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130
    assert not list(place.iterdir()), said.decode()
    wait_for(lambda: not _jobs_in(place))  # what was killed may take a moment


def test_ctrl_c_while_fio_is_being_started_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt while fio is being started leaves no fio process, whichever thread gets the signal. A fio
    left alive would create the removed directory again."""
    program = tmp_path / "fio"
    program.write_text('#!/bin/sh\n[ "$1" = --version ] && exec echo fio-3.99\nsleep 1000 & wait\n')
    program.chmod(0o755)
    monkeypatch.setattr("durability_client.bench.measure.fio.find_tool", lambda name: str(program))
    task = JobTask(cell=READ, path=str(tmp_path / "file"), offset_bytes=0, span_bytes=MIB, seed=1)
    engine = Fio()
    read = os.read
    interrupted: list[int] = []

    def read_after_a_signal(fd: int, length: int, /) -> bytes:
        if not interrupted:  # Popen waits here for the exec of the process that it has forked
            interrupted.append(fd)
            os.kill(os.getpid(), signal.SIGINT)
        return read(fd, length)

    monkeypatch.setattr(os, "read", read_after_a_signal)
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    before = set(fio._children(os.getpid()))
    print(signal.getsignal(signal.SIGINT), signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    try:
        with pytest.raises(KeyboardInterrupt):
            engine.run(READ, [task])
        left = set(fio._children(os.getpid())) - before
        for process in left:
            os.kill(process, signal.SIGKILL)
        assert not left
    finally:
        over.set()
        other.join()
    assert interrupted


@pytest.mark.slow
def test_a_job_that_is_being_forked_is_ended_too(tmp_path: Path) -> None:
    """A process that forks without pause is killed at forty moments.

    If its stop is not waited for, the jobs of some rounds live on.
    """
    job = f"--ioengine= {tmp_path}"
    child = f"os.setsid(), os.execlp('sleep', {job!r}, '1000')"
    script = f"import os\nwhile True:\n    os.fork() or ({child})\n"
    for _ in range(40):
        with subprocess.Popen([sys.executable, "-c", script], start_new_session=True) as forker:
            while not fio._children(forker.pid):
                pass
            fio._kill_with_jobs(forker.pid)
    try:
        wait_for(lambda: not _jobs_in(tmp_path), lambda: f"{len(_jobs_in(tmp_path))} jobs live on")
    finally:
        for left in _jobs_in(tmp_path):
            os.kill(int(left), signal.SIGKILL)


def _jobs_in(place: Path) -> list[str]:
    """The processes of fio that work in `place`."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            arguments = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if b"--ioengine=" in arguments and os.fsencode(place) in arguments:
            found.append(entry.name)
    return found


@pytest.mark.slow
def test_fio_is_watched_and_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watcher is called while fio runs. A fio that does not end in time is killed with its jobs."""
    program = tmp_path / "fio"
    program.write_text('#!/bin/sh\n[ "$1" = --version ] && exec echo fio-3.99\nsleep 1000 & wait\n')
    program.chmod(0o755)
    monkeypatch.setattr("durability_client.bench.measure.fio.find_tool", lambda name: str(program))
    monkeypatch.setattr("durability_client.bench.measure.fio._GRACE_S", 0.9)
    task = JobTask(cell=_short(READ), path=str(tmp_path / "file"), offset_bytes=0, span_bytes=MIB, seed=1)
    heard: list[float] = []
    with pytest.raises(TargetError, match="fio did not end within 3 s"):
        Fio().run(task.cell, [task], lambda: heard.append(time.monotonic()))
    assert heard
