"""The benchmark on drives that are known: what it says of each, which no drive may talk it out of.

Nothing here depends on how fast anything is: what is injected (a delay, a stall, a bandwidth) is far above
what a busy machine adds, and only its consequences are asserted. `benchmarks/bench_on_drives.py` has the
figures.
"""

from __future__ import annotations

import random
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.drives import HONEST, LIAR, NO_FLUSH, Drive, Silent, measured_on, outcome_on
from durability.bench.catalogue import (
    CONTROLS,
    HEADLINE,
    PACED,
    PROBE,
    SEQUENTIAL,
    WRITE_CONTROL,
    sustained,
)
from durability.bench.cells import MIB, Cell
from durability.bench.compare import compare
from durability.bench.inflation import inflations
from durability.bench.plausibility import plausibility
from durability.bench.result import Result, decode, encode
from durability.bench.steady_state import OPERATIONS_MIN, Steady
from durability.bench.summary import disks_per_operation, summarise
from durability.errors import TargetError
from durability_lab.kernel_rig.block_rig import SIZE_BYTES, BlockRig
from durability_lab.support.loads import FileSystemName
from tests.loop_devices import add_partition, remove_partitions

pytestmark = pytest.mark.usefixtures("rig_machine")

SUSTAINED = sustained()[-4]
SEED = random.SystemRandom().getrandbits(32)
TRIES = 3  # a busy machine may stall in the middle of one
THROTTLED_TO = 30  # a thirtieth of its rate: less than a busy machine leaves it


@pytest.fixture(autouse=True)
def seed_that_a_failure_shows() -> None:
    """What is printed when the module is imported is not shown with a test that fails."""
    print(f"seed {SEED}")


def _flushes(result: Result, cell: Cell = HEADLINE) -> float | None:
    (disk,) = disks_per_operation(result.rounds_of(cell.name))
    return disk.flushes


@pytest.fixture(params=[LIAR, NO_FLUSH, "flush-ignored"], ids=["cache=unsafe", "fuamode=discard", "model"])
def liar(request: pytest.FixtureRequest) -> Iterator[BlockRig]:
    """A drive that acknowledges flushes and does nothing: two of nbdkit's, and the lab's own model."""
    rig = (
        BlockRig(request.param, None, seed=SEED) if isinstance(request.param, str) else Drive(*request.param)
    )
    with rig:
        yield rig


def test_a_liar_is_never_given_a_clean_bill(liar: BlockRig) -> None:
    """Drives that ignore flushes get one flush per commit, but the flushes take no time: they are called
    suspicious. With `fuamode=discard`, a filter below the loop device drops the flush, which only a cut
    shows."""
    result = measured_on(liar.target, CONTROLS, seconds=0.1, rounds=2, seed=SEED)
    assert _flushes(result) == pytest.approx(1, abs=0.02)
    found = plausibility(result)
    assert found.code in {"flush-no-media-work", "inconclusive"}, found
    assert "acknowledged data survive" in found.only_a_cut
    assert found.commands[0].startswith(f"durability run {liar.target}")


def test_an_honest_cache_does_work_at_a_flush() -> None:
    """Every flush reaches it, one per commit, and writes out what was written: more with more."""
    with Drive(*HONEST, "cache-min-block-size=1M", "--filter=delay", "delay-write=50ms") as drive:
        result = measured_on(drive.target, CONTROLS, seconds=0.1, rounds=1, seed=SEED)
    assert _flushes(result) == pytest.approx(1, abs=0.02)
    assert _flushes(result, WRITE_CONTROL) == pytest.approx(0, abs=0.02)
    found = plausibility(result)
    assert found.code == "volatile-cache", found
    assert "can still lose data" in found.only_a_cut


def test_a_drive_that_declares_no_volatile_cache_is_sent_no_flush() -> None:
    """Under a file system as well: that is the verdict, and that it rests on the drive's word."""
    with Drive(write_through=True, file_system="ext4") as drive:
        result = measured_on(drive.mount_point, CONTROLS, seconds=0.05, rounds=2, seed=SEED)
    assert _flushes(result) == 0
    found = plausibility(result)
    assert found.code == "no-flush-sent"
    assert any("declares that it has no volatile cache" in text for text in found.means)


@pytest.mark.parametrize(("words", "too_fast"), [((), True), (("--filter=delay", "delay-write=9ms"), False)])
def test_a_rotating_disk_is_held_against_its_platter(words: tuple[str, ...], too_fast: bool) -> None:
    """One that answers from memory is faster than its turns allow; one as slow as a turn is not. Without its
    turns the flag alone is in doubt."""
    for _ in range(TRIES if too_fast else 1):
        with Drive(*words, rotational=True) as drive:
            cells = (HEADLINE, SEQUENTIAL)
            result = measured_on(drive.target, cells, seconds=0.4, rounds=1, size_bytes=2 * MIB, seed=SEED)
        turning = tuple(replace(one, rpm=7200) for one in result.media)
        found = plausibility(replace(result, media=turning))
        if found.code != "inconclusive":
            break
    assert (found.code == "faster-than-media") == too_fast, found
    doubtful = any("the flag is doubtful" in reason for reason in plausibility(result).reasons)
    assert doubtful == too_fast, plausibility(result)


def _steadiness_of_a_throttled_drive(longer: float) -> Steady:
    how = {"size_bytes": 2 * MIB, "seed": SEED}
    with Drive() as drive:
        (fast,) = measured_on(drive.target, (HEADLINE,), seconds=0.5, rounds=1, **how).cells[0].rounds
        fast_s = longer * max(2.0, 1.5 * OPERATIONS_MIN / fast.rate)
        timer = threading.Timer(fast_s, drive.throttle, (int(fast.rate / THROTTLED_TO * 4096 * 8),))
        listener = Silent(when_measuring=timer.start)
        result = measured_on(drive.target, (SUSTAINED,), seconds=2.5 * fast_s, listener=listener, **how)
        timer.join()
    return summarise(result.cells[0]).steady


def test_a_throttled_drive_is_not_steady() -> None:
    """A drive that slows down during the measurement is reported as not steady, with its remaining rate. A
    busy machine may hide the slowdown, so the measurement is repeated and made longer."""
    for longer in (1, 2, 4, 4):
        found = _steadiness_of_a_throttled_drive(longer)
        if found.last_third is not None and found.last_third < 0.8:
            break
    assert found.word == "NOT STEADY", found
    assert found.last_third is not None and found.last_third < 0.8
    assert "the last third ran at" in found.reason


def test_a_stall_once_a_second_shows_where_commits_are_due() -> None:
    """A quarter of all commits were due while the drive stalled, so that many are late in the open loop. The
    closed loop made one in each stall, and shows it in its maximum."""
    with Drive() as drive, drive.stalling(every_s=1.0, for_s=0.3):
        result = measured_on(
            drive.target, (HEADLINE, PACED), seconds=2.5, rounds=1, size_bytes=2 * MIB, seed=SEED
        )
    closed, paced = (summarise(one).commit for one in result.cells)
    assert closed.p50 is not None and paced.p95 is not None and closed.most is not None
    assert paced.p95 > 100e6, paced
    assert closed.most > 200e6, closed
    assert paced.p95 > 4 * closed.p50, (closed, paced)


def test_a_slower_drive_is_slower_by_what_was_injected() -> None:
    """A write of 200 ms against one of 50 ms: a quarter of the rate and a little more, for what both have; in
    so many rounds that one or two which a busy machine holds up decide nothing."""
    results = []
    for delay_ms in (50, 200):
        with Drive("--filter=delay", f"delay-write={delay_ms}ms") as drive:
            how = {"seconds": 1.0, "rounds": 9, "size_bytes": MIB, "seed": SEED}
            results.append((f"{delay_ms} ms", measured_on(drive.target, (HEADLINE,), **how)))
    (row,) = compare(results).rows
    (against,) = row.against
    assert against.ratio is not None
    assert against.ratio.shows_difference, against.text
    assert 0.15 < against.ratio.value < 0.6, against.text


def test_unlike_runs_on_drives_are_compared_with_a_warning() -> None:
    """Another size, another length of round, a quick run: each is named once, beside the ratio."""
    with Drive() as drive:
        how = {"seconds": 0.02, "rounds": 1, "seed": SEED}
        one = measured_on(drive.target, (HEADLINE,), size_bytes=2 * MIB, **how)
        larger = measured_on(drive.target, (HEADLINE,), size_bytes=4 * MIB, **how)
    longer = replace(one.cells[0], cell=replace(one.cells[0].cell, seconds=1.0))
    for other, words in (
        (larger, "the size of the files differs: 2 MiB in a, 4 MiB in b"),
        (replace(one, cells=(longer,)), "the same cells were measured for 0 s in a, 1 s in b"),
        (replace(one, mode="quick"), "b: a quick run"),
    ):
        found = compare([("a", one), ("b", other)])
        assert found.refusals == () and sum(words in text for text in found.warnings) == 1, found.warnings
        assert found.rows[0].against[0].ratio is not None


@pytest.mark.parametrize("file_system", ["ext4", "btrfs", None])
def test_a_drive_that_goes_away_ends_with_what_was_measured(file_system: FileSystemName | None) -> None:
    """I/O errors in the middle: a sentence with the error, every whole round kept and marked as partial."""
    with BlockRig("honest", file_system, seed=SEED) as rig:
        place = rig.mount_point if file_system else rig.target
        listener = _Cutting(rig.cut, after=3)
        outcome = outcome_on(
            place, (HEADLINE,), seconds=0.05, rounds=50, size_bytes=2 * MIB, listener=listener, seed=SEED
        )
    assert isinstance(outcome.ending, TargetError)
    assert str(place) in str(outcome.ending)
    result = outcome.result
    assert not result.complete and result.stopped == str(outcome.ending)
    assert 0 < len(result.order) < 50
    assert decode(encode(result)) == result


class _Cutting(Silent):
    """Takes the power away once some rounds have begun."""

    def __init__(self, cut: Callable[[], None], *, after: int) -> None:
        super().__init__()
        self._cut = cut
        self._doings: set[str] = set()
        self._after = after

    def measuring(self, doing: str, done_s: float, left_s: float) -> None:
        self._doings.add(doing)
        if len(self._doings) > self._after:
            self._after = 1 << 30
            self._cut()


@pytest.mark.parametrize(
    ("file_system", "options", "flagged"),
    [("btrfs", "compress-force=zstd", {"half", "zeros"}), ("ext4", "defaults", set())],
)
def test_what_never_reaches_the_drive_is_seen(
    file_system: FileSystemName, options: str, flagged: set[str]
) -> None:
    """A compressing file system writes less of what compresses, and is flagged; another writes all of it."""
    with Drive(file_system=file_system) as drive:
        subprocess.run(("mount", "-o", f"remount,{options}", drive.mount_point), check=True)
        result = measured_on(drive.mount_point, PROBE, seconds=0.05, rounds=5, size_bytes=16 * MIB, seed=SEED)
    probed = inflations(result.cells)
    saved = {one.cell.data for one in probed if one.written is not None and one.written.value < 0.9}
    assert saved == flagged, probed
    assert {one.cell.data for one in probed if one.inflated} >= flagged, probed


def test_a_partition_is_counted_at_its_drive() -> None:
    """Flushes of a file system on a partition are counted at the partition's drive."""
    with Drive() as drive, ExitStack() as stack:
        sectors = SIZE_BYTES // 512 - 2048
        stack.callback(remove_partitions, Path(drive.loop))
        add_partition(Path(drive.loop), 1, 2048, sectors)
        partition = Path(f"{drive.loop}p1")
        now = "lazy_itable_init=0,lazy_journal_init=0"  # or the kernel writes its tables while we count
        subprocess.run(("mkfs.ext4", "-q", "-E", now, partition), check=True)
        subprocess.run(("mount", partition, drive.mount_point), check=True)
        stack.callback(subprocess.run, ("umount", drive.mount_point), check=True)
        cells = (HEADLINE, WRITE_CONTROL)
        result = measured_on(drive.mount_point, cells, seconds=0.1, rounds=1, size_bytes=2 * MIB, seed=SEED)
    names = (partition.name, Path(drive.loop).name)
    assert [layer.split()[0] for layer in result.facts.layers] == list(names)
    for cell, flushes in ((HEADLINE, 1), (WRITE_CONTROL, 0)):
        (one,) = result.rounds_of(cell.name)
        (disk,) = disks_per_operation([one])
        assert disk.name == names[1]
        assert disk.flushes == pytest.approx(flushes, abs=0.05 + 2 / one.operations)
        # 4 KiB, and of all together some of the journal.
        assert disk.write_kib is not None and 3.9 <= disk.write_kib <= 4.1 + 1024 / one.operations


def test_this_machines_disk_gets_a_flush_for_each_commit_or_it_is_unknown(tmp_path: Path) -> None:
    """A drive with a volatile cache gets at least one flush per commit. If other programs use it too much,
    the number is unknown."""
    result = measured_on(tmp_path, (HEADLINE,), seconds=0.1, rounds=1, size_bytes=2 * MIB, seed=SEED)
    volatile = {drive.name for drive in result.facts.drives if drive.write_cache == "write back"}
    counted = [disk for disk in disks_per_operation(result.rounds_of(HEADLINE.name)) if disk.name in volatile]
    most = max((disk.flushes for disk in counted if disk.flushes is not None), default=None)
    assert most is None or most >= 0.9, counted  # of a mirror or a stripe not each drive need be written
