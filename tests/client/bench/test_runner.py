"""A measurement from start to end: what is in its result, in what order, and what an early end leaves."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from durability.bench.catalogue import PROFILES, STANDARD, sustained
from durability.bench.cells import MIB, Cell
from durability.bench.result import decode, encode
from durability.errors import SetupError, TargetError, UsageError
from durability_client.bench.measure import workspace
from durability_client.bench.measure.job_processes import JobError
from durability_client.bench.runner import MeasuredResult, Options, _Entry, _rounds, measure
from durability_client.target.safety_checks import Consent
from tests.client.bench.quick_cells import SIZE_BYTES, tiny
from tests.loop_devices import shut_down

pytestmark = pytest.mark.slow  # whole measurements

CELLS = (
    tiny(rounds=3),
    tiny(sync="fsync", rounds=2),
    tiny(jobs=2, rounds=2),
    tiny(workload="append", pattern="sequential", file_state="fresh", block_bytes=2300),
    tiny(workload="create", pattern="sequential", sync="fsync", file_state="fresh"),
    tiny(file_state="sparse"),
    tiny(writes_per_sync=8),
    tiny(workload="flush", pattern="sequential"),
    tiny(place="memory"),
)


class Ear:
    """A listener that remembers, and does something when a round begins."""

    def __init__(self, at_round: Callable[[int], None] = lambda number: None) -> None:
        self.said: list[str] = []
        self.prepared: list[tuple[int, int]] = []
        self.measured: list[str] = []
        self._at_round = at_round

    def say(self, text: str) -> None:
        self.said.append(text)

    def preparing(self, done: int, total: int) -> None:
        self.prepared.append((done, total))

    def measuring(self, doing: str, done_s: float, left_s: float) -> None:
        assert done_s >= 0
        assert left_s >= 0
        doing = doing.partition(":")[0]  # without how long it has been waiting
        if self.measured[-1:] != [doing]:  # and not for what is told in the middle of a round
            self.measured.append(doing)
            self._at_round(len(self.measured))


def _options(path: Path, *cells: Cell, **changes: Any) -> Options:
    values: dict[str, Any] = {
        "target": path,
        "cells": cells or CELLS,
        "mode": "standard",
        "profile": "",
        "size_bytes": SIZE_BYTES,
        "seed": 7,
        "consent": Consent(),
        "show_serials": False,
        "fio": False,
        "idle_s": 0.01,
    }
    return Options(**{**values, **changes})


@pytest.fixture
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory, which must be empty at the end; nor may files be left in memory, here our own part."""
    directory = tmp_path / "target"
    directory.mkdir()
    with tempfile.TemporaryDirectory(dir=workspace.MEMORY, prefix="durability-test-") as memory:
        monkeypatch.setattr(workspace, "MEMORY", Path(memory))
        yield directory
        assert list(Path(memory).iterdir()) == []
    assert list(directory.iterdir()) == []


def test_a_measurement_has_every_round(clean: Path) -> None:
    """Each cell has its rounds, whole and in a result that can be written and read."""
    ear = Ear()
    outcome = measure(_options(clean), ear)
    result = outcome.result
    assert outcome.ending is None
    assert (result.complete, result.stopped, result.seed) == (True, "", 7)
    assert decode(encode(result)) == result
    assert Counter(result.order) == {
        index: cell.rounds for index, cell in enumerate(CELLS) if not result.cells[index].note
    }
    assert ear.prepared[-1][0] == ear.prepared[-1][1] > SIZE_BYTES
    for one in result.cells:
        assert one.note == "" or one.cell.file_state == "fresh"  # no fallocate; but for append and create
        for each in one.rounds:
            assert each.commits > 0
            assert each.seconds >= one.cell.seconds
            assert each.work is not None
            assert each.work.operations == each.operations
            assert (len(each.sync_ns) > 0) is one.cell.has_sync
            assert each.writes == each.commits * (
                0 if one.cell.workload == "flush" else max(1, one.cell.writes_per_sync)
            )
    assert result.before.busy_percent is not None
    assert result.after is not None
    starts = [round_.started_s for round_ in _in_order(outcome)]
    assert starts == sorted(starts)


def _in_order(outcome: MeasuredResult) -> Iterator[Any]:
    """The rounds in the order in which they were made."""
    taken: Counter[int] = Counter()
    for index in outcome.result.order:
        yield outcome.result.cells[index].rounds[taken[index]]
        taken[index] += 1


def test_the_path_is_where_it_was_measured(clean: Path) -> None:
    """If TARGET is a file in a directory, the result's path is that directory."""
    (clean / "target").touch()
    assert measure(_options(clean / "target", tiny()), Ear()).result.facts.path == str(clean)
    (clean / "target").unlink()
    assert measure(_options(clean, tiny()), Ear()).result.facts.path == str(clean)


def test_rounds_are_shuffled_by_the_seed() -> None:
    """Each pass has a round of each cell that has one left, in an order that the seed fixes; what is held for
    long comes last, and the other engine's round right beside."""
    cells = [tiny(block_bytes=512 * number, rounds=3 if number < 5 else 2) for number in range(1, 9)]
    cells.append(replace(tiny(), group="sustained", rounds=1))
    entries = [_Entry(cell, "durability") for cell in cells] + [_Entry(cells[0], "fio")]
    order = list(_rounds(entries, 1))
    assert order == list(_rounds(entries, 1)) != list(_rounds(entries, 2))
    assert order[-1] == (8, 0)
    assert Counter(order) == {
        (index, number): 1 for index, entry in enumerate(entries) for number in range(entry.cell.rounds)
    }
    passes = [number for _, number in order[:-1]]
    assert passes == sorted(passes)
    assert [index for index, number in order if number == 0] != [
        index for index, number in order if number == 1
    ]
    for number in range(3):
        ours, theirs = order.index((0, number)), order.index((9, number))
        assert theirs - ours == (1 if number % 2 == 0 else -1)


@pytest.mark.parametrize("ending", [KeyboardInterrupt(), SystemExit(143)], ids=["Ctrl-C", "SIGTERM"])
def test_an_early_end_keeps_whole_rounds(clean: Path, ending: BaseException) -> None:
    """After an early end, the complete rounds are in a result marked as partial, and the files are
    removed."""

    def end(number: int) -> None:
        if number == 4:
            raise ending

    outcome = measure(_options(clean, tiny(rounds=9)), Ear(end))
    assert outcome.ending is ending
    assert not outcome.result.complete
    assert outcome.result.stopped
    assert len(outcome.result.order) == len(outcome.result.cells[0].rounds) == 3
    assert decode(encode(outcome.result)) == outcome.result


def test_an_end_before_anything_leaves_nothing(clean: Path) -> None:
    """Ctrl-C in the first round is passed on, and the files are gone."""

    def end(number: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(_options(clean), Ear(end))


def _fill(directory: Path) -> None:
    """Take all the room that there is."""
    with (directory / "theirs").open("ab", buffering=0) as file:
        before = -1
        while before != (before := os.fstat(file.fileno()).st_size):
            with pytest.raises(OSError, match="No space"):
                while True:
                    file.write(bytes(MIB))
            os.fsync(file)  # which gives back what was removed and not free yet


def test_a_target_that_fills_up_ends_with_a_sentence(
    make_mount: Callable[..., tuple[Path, Path]],
) -> None:
    """When others take the room while we measure, what was measured is kept and the reason given."""
    _, directory = make_mount("ext4")

    # A round finds room if it writes no more than the one before it, whose file goes late: so there are many.
    cells = (tiny(rounds=100, file_state="sparse", block_bytes=64 << 10, seconds=0.05),)
    outcome = measure(
        _options(directory, *cells), Ear(lambda number: _fill(directory) if number >= 2 else None)
    )
    assert isinstance(outcome.ending, TargetError)
    assert "is full (No space left on device): free some space, or lower --size" in str(outcome.ending)
    assert 1 <= len(outcome.result.order) < 100
    assert sorted(path.name for path in directory.iterdir()) == ["lost+found", "theirs"]


def test_a_full_target_ends_also_where_files_are_made(make_mount: Callable[..., tuple[Path, Path]]) -> None:
    """A fresh file for which there is no room any more: earlier rounds are kept, and the place is named."""
    _, directory = make_mount("ext4")

    fresh = tiny(rounds=9, file_state="fresh")
    outcome = measure(
        _options(directory, fresh), Ear(lambda number: _fill(directory) if number == 3 else None)
    )
    assert str(outcome.ending) == (
        f"{directory}: {fresh.name}: the target is full (No space left on device):"
        " free some space, or lower --size"
    )
    assert isinstance(outcome.ending, TargetError)
    assert len(outcome.result.order) == 2
    assert outcome.result.stopped == str(outcome.ending)
    assert decode(encode(outcome.result)) == outcome.result


def test_a_target_that_is_gone_between_rounds(make_mount: Callable[..., tuple[Path, Path]]) -> None:
    """The log of an appending cell cannot be made any more: what was measured is kept, with the reason."""
    _, directory = make_mount("ext4")
    append = tiny(rounds=9, workload="append", pattern="sequential", file_state="fresh")
    outcome = measure(
        _options(directory, append), Ear(lambda number: shut_down(directory) if number == 4 else None)
    )
    assert isinstance(outcome.ending, TargetError)
    words = f"{directory}: {append.name}: I/O error of the target: "
    assert str(outcome.ending).startswith(words)
    assert len(outcome.result.order) == 3
    assert decode(encode(outcome.result)) == outcome.result


class _InRound(Ear):
    """Does something in the middle of the second round; of a later one, where a machine that stood still was
    told nothing in the middle of that."""

    def __init__(self, act: Callable[[], None]) -> None:
        super().__init__()
        self._act = act
        self._begun = 0
        self._acted = False

    def measuring(self, doing: str, done_s: float, left_s: float) -> None:
        super().measuring(doing, done_s, left_s)
        begun, self._begun = self._begun, len(self.measured)
        if begun == self._begun > 1 and not self._acted:
            self._acted = True
            self._act()


def test_what_comes_first_is_told(make_mount: Callable[..., tuple[Path, Path]]) -> None:
    """A target that is gone in the middle of a round fails the job, then the removal of its files: the job's
    error is the one that is told."""
    _, directory = make_mount("ext4")
    long = replace(
        tiny(workload="append", pattern="sequential", file_state="fresh", seconds=30.0), group="sustained"
    )
    listener = _InRound(lambda: shut_down(directory))
    outcome = measure(_options(directory, tiny(), long), listener)
    assert isinstance(outcome.ending, TargetError)
    assert isinstance(outcome.ending.__cause__, JobError)
    assert f"{directory}: {long.name}: I/O error of the target: " in str(outcome.ending)
    assert len(outcome.result.order) == 1
    assert any("could not be removed" in text for text in listener.said)


def test_a_round_stays_whose_files_cannot_be_removed(make_mount: Callable[..., tuple[Path, Path]]) -> None:
    """A round's result is kept even if its file cannot be removed afterwards."""
    _, directory = make_mount("ext4")

    def attribute(change: str) -> None:
        (own,) = directory.glob("durability-bench-*")
        subprocess.run(("chattr", change, own), check=True)

    append = tiny(workload="append", pattern="sequential", file_state="fresh", rounds=9, seconds=1.0)
    listener = _InRound(lambda: attribute("+i"))
    outcome = measure(_options(directory, append), listener)
    attribute("-i")
    assert isinstance(outcome.ending, TargetError)
    assert "not permitted" in str(outcome.ending)
    assert len(outcome.result.order) == len(outcome.result.cells[0].rounds) == len(listener.measured) > 1


def test_every_cell_of_every_set_can_be_measured(clean: Path) -> None:
    """Each of them on files, for a moment: none is refused but for what this target does not have."""
    named = {cell.name: cell for cells in (STANDARD, sustained(), *PROFILES.values()) for cell in cells}
    short = tuple(replace(cell, seconds=0.01, warmup_s=0.0, rounds=1) for cell in named.values())
    result = measure(_options(clean, *short, size_bytes=64 * MIB), Ear()).result
    assert result.complete
    for one in result.cells:
        lacking = "fallocate" in one.note or "O_DIRECT" in one.note or "tmpfs" in one.note
        assert len(one.rounds) == (0 if lacking else 1), (one.cell.name, one.note)
        for each in one.rounds:
            assert each.operations > 0


def test_it_says_when_it_began(clean: Path) -> None:
    """Not when it ended: `created` is before the first round."""
    rounds: list[datetime] = []
    outcome = measure(
        _options(clean, tiny(seconds=1.1)), Ear(lambda number: rounds.append(datetime.now(UTC)))
    )
    assert datetime.fromisoformat(outcome.result.created) <= rounds[0]


def test_what_a_target_does_not_have_is_noted(make_loop: Callable[..., Path]) -> None:
    """A device has no names: such cells have no rounds and a note, and the result is complete."""
    device = make_loop(8 * MIB)
    cells = (tiny(), tiny(file_state="sparse", rounds=3))
    outcome = measure(_options(device, *cells, consent=Consent(destroy_data=True)), Ear())
    assert outcome.result.complete
    assert [one.note for one in outcome.result.cells] == ["", "needs a file system, but TARGET is a device"]
    assert [len(one.rounds) for one in outcome.result.cells] == [1, 0]
    with pytest.raises(TargetError, match="no cell could be measured: needs a file system"):
        measure(_options(device, cells[1], consent=Consent(destroy_data=True)), Ear())


def test_a_target_without_direct_writes_is_no_error(clean: Path) -> None:
    """EINVAL for O_DIRECT is a thing that the file system does not have; other cells are measured."""
    unaligned = tiny(direct=True, block_bytes=700)
    outcome = measure(_options(clean, tiny(), unaligned), Ear())
    assert outcome.ending is None
    assert "O_DIRECT" in outcome.result.cells[1].note
    assert len(outcome.result.cells[0].rounds) == 1


def test_serials_are_hashed_unless_asked(clean: Path) -> None:
    """The result identifies this machine only if the user asks for that; otherwise the values are hashed."""
    hidden = measure(_options(clean, tiny()), Ear()).result
    shown = measure(_options(clean, tiny(), show_serials=True), Ear()).result
    assert (hidden.serials, shown.serials) == ("hashed", "shown")
    if shown.facts.host.machine_id:
        assert hidden.facts.host.machine_id != shown.facts.host.machine_id


def test_serials_are_hashed_in_what_is_said_of_errors(
    make_mount: Callable[..., tuple[Path, Path]], tmp_path: Path
) -> None:
    """The target as it was typed, which may be another name of it, is in no part of the result."""
    uuid = "6b1f0a52-3c7e-4f7d-9c55-0d6c7b3a9e11"
    _, directory = make_mount("ext4", mkfs=("-U", uuid))
    typed = tmp_path / uuid
    typed.symlink_to(directory)
    fresh = tiny(rounds=9, file_state="fresh")
    ear = Ear(lambda number: _fill(directory) if number == 3 else None)
    outcome = measure(_options(typed, fresh), ear)
    assert uuid in str(outcome.ending)
    assert outcome.result.stopped.endswith(f": {fresh.name}: {outcome.result.cells[0].note}")
    assert uuid.encode() not in encode(outcome.result)


@pytest.mark.parametrize("fio", [False, True], ids=["alone", "with fio"])
def test_a_target_whose_name_is_no_text_has_a_result(tmp_path: Path, fio: bool) -> None:
    """Its bytes are in the result as escapes, also in what is said of an error that names it."""
    directory = tmp_path / os.fsdecode(b"odd\xff")
    directory.mkdir()

    def interrupt(number: int) -> None:
        if number == 3:
            raise TargetError(f"{directory}: gone")

    try:
        result = measure(_options(directory, tiny(rounds=3, fio=True), fio=fio), Ear(interrupt)).result
    except TargetError:
        raise
    except SetupError:
        pytest.skip("no fio is installed")
    assert result.facts.path == str(tmp_path / "odd\\xff")
    assert result.stopped == f"{tmp_path}/odd\\xff: gone"
    assert {one.engine for one in result.cells if one.rounds} == (
        {"durability", "fio"} if fio else {"durability"}
    )
    assert decode(encode(result)) == result
    assert list(directory.iterdir()) == []


def test_too_little_room_is_refused_before(clean: Path) -> None:
    """Sizes are checked before anything is made."""
    with pytest.raises(UsageError, match="too small"):
        measure(_options(clean, tiny(jobs=16)), Ear())
    with pytest.raises(TargetError, match="MiB needed"):
        measure(_options(clean, tiny(), size_bytes=1 << 50), Ear())


def test_fio_says_the_same_beside(clean: Path) -> None:
    """With fio asked for, the cells that it can measure have rounds of its own, with rates and syncs."""
    cells = (
        tiny(fio=True, seconds=0.05, rounds=2),
        tiny(sync="dsync", direct=True, fio=True),
        tiny(sync="fsync"),
    )
    try:
        result = measure(_options(clean, *cells, fio=True), Ear()).result
    except SetupError:
        pytest.skip("no fio is installed")
    ours, theirs = ([one for one in result.cells if one.engine == engine] for engine in ("durability", "fio"))
    assert [one.cell.name for one in theirs] == [cell.name for cell in cells[:2]]
    assert len(ours) == 3
    for one in theirs:
        assert one.engine_version.startswith("fio-")
        assert len(one.rounds) == one.cell.rounds
        for each in one.rounds:
            assert each.commits == each.writes > 0
            assert len(each.commit_ns) == 0
            assert each.work is not None
            assert each.work.system_us is not None
    for each in theirs[0].rounds:  # none, where the time was over between a write and its sync
        assert len(each.sync_ns) in (0, each.commits)
    assert decode(encode(result)) == result


def test_an_absent_fio_is_named(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is measured, with what to install."""
    monkeypatch.setattr("durability_client.bench.measure.fio.find_tool", lambda name: None)
    with pytest.raises(SetupError, match=r"fio is not installed; install it \(Debian: apt-get install fio\)"):
        measure(_options(clean, fio=True), Ear())


def test_an_error_of_fio_is_passed_on(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fio that cannot do what it is asked to ends the measurement with its own words."""
    monkeypatch.setattr(
        "durability_client.bench.measure.fio.options", lambda cell: iter(["--ioengine=no-such-engine"])
    )
    try:
        outcome = measure(_options(clean, tiny(fio=True), fio=True), Ear())
    except SetupError as error:
        if not isinstance(error, TargetError):
            pytest.skip("no fio is installed")
        raise
    assert isinstance(outcome.ending, TargetError)
    assert "no-such-engine" in str(outcome.ending)
    assert len(outcome.result.order) == 1
