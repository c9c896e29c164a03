"""The matrix: its cells, the log of its cuts and its reports; with cuts made and graded, and with invented
ones."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from durability.errors import EXIT_INTERNAL, EXIT_OK, FormatError, UsageError
from durability.formats.documents import to_json, to_value
from durability.formats.plan import WRITE_THROUGH_METHODS
from durability.formats.workloads import registry
from durability_lab.drive import faults
from durability_lab.matrix import detection_page, matrix_report
from durability_lab.matrix.cut_log import CutLog, Header, seed_of
from durability_lab.matrix.cut_workers import CutRequest, workers
from durability_lab.matrix.cutting import Cutter
from durability_lab.matrix.detection_curves import early_ack_scenarios, flush_skipped_scenarios
from durability_lab.matrix.graded_cut import Agreement, GradedCut
from durability_lab.matrix.matrix_cells import MatrixCell, digest, long_cells, quick_cells
from durability_lab.matrix.matrix_command import MatrixOptions, choose, pending
from durability_lab.simulated_rig.scenario import Scenario
from durability_lab.support.loads import FileSystemName, Load
from durability_lab.truth import expected_verdict
from tests.places import DOCS

HONEST = MatrixCell(rig="a", drive="honest", load=Scenario(slots=256, rate=500.0), cuts=3)
LIAR = MatrixCell(rig="a", drive="flush-ignored", load=Scenario(writers=2, slots=256, rate=250.0), cuts=2)
AGAIN = "--only 'CELL'"
HEADER = Header(seed=7, options="--quick", cells="0123")


def graded_cut(cell: MatrixCell, number: int = 1, *, broken: int | None = 8, **changes: object) -> GradedCut:
    """A graded cut as it must be."""
    honest = cell.drive == "honest"
    right = GradedCut(
        cell=cell.name,
        number=number,
        seed=cell.seed(7, number),
        honest=honest,
        expected="durable" if honest else "loss",
        verdict="durable" if honest else "loss",
        grade="right",
        promised=1000,
        broken=0 if honest else broken,
        lost=0 if honest else 4,
        window_ms=None if honest else 2.5,
        window_operations=None if honest else 9,
        classes={} if honest else {"lost": Agreement(agreed=4)},
        duration_s=0.1,
    )
    return replace(right, **changes)  # type: ignore[arg-type] # each test names fields of GradedCut


def words(page: str) -> str:
    """A page without its line breaks."""
    return " ".join(page.split())


NO_SHARES = {"precision": None, "recall": None}
FALSE_ALARM = graded_cut(HONEST, 2, verdict="loss", grade="false alarm", reason="loss: findings")
UNFOUND = {"verdict": "durable", "grade": "missed", "lost": 0, "window_ms": None, "window_operations": None}
EXPLAINED = graded_cut(LIAR, 2, **UNFOUND, reason="the drive kept every promise", broken=0, classes={})
UNEXPLAINED = graded_cut(LIAR, 2, **UNFOUND, reason="durable", broken=None, classes={})
UNSAID = graded_cut(LIAR, 2, verdict="durable", grade="missed", reason="durable, with 4 findings")
AT_ODDS = graded_cut(
    LIAR, 2, defects=("writer 0 slot 3: a promise is broken (older), and nothing is claimed",)
)


@pytest.mark.parametrize("cells", [quick_cells(), long_cells()], ids=["quick", "long"])
def test_cells_have_names_of_their_own(cells: list[MatrixCell]) -> None:
    """No two cells share a name, and every drive model is among them on rig a."""
    assert len({cell.name for cell in cells}) == len(cells)
    assert {cell.drive.partition(":")[0] for cell in cells if cell.rig == "a"} == set(faults.CATALOGUE)


def test_long_matrix_is_long_enough() -> None:
    """The long matrix has at least 1,000 cuts of honest drives on rigs A and B, 50 of each lying drive under
    loads that show its fault, 20 on rig C, and both curves."""
    cells = long_cells()
    honest = [cell for cell in cells if expected_verdict.is_honest(cell.drive)]
    assert sum(cell.cuts for cell in honest if cell.rig != "c") >= 1000
    assert {cell.drive.partition(":")[0] for cell in cells} == {*faults.CATALOGUE, *expected_verdict.FILTERS}
    for drive in {cell.drive for cell in cells if not expected_verdict.is_honest(cell.drive)}:
        cuts = sum(cell.cuts for cell in cells if cell.drive == drive and can_lie(cell))
        assert cuts >= 50, drive
    assert sum(cell.cuts for cell in cells if cell.rig == "c") >= 20
    points = [cell for cell in cells if cell.curve is not None]
    assert len(points) == len([*early_ack_scenarios(), *flush_skipped_scenarios()])
    loads = [cell.load for cell in cells if cell.rig == "b" and cell.drive == "rollback"]
    under_liars = [load for load in loads if isinstance(load, Load)]
    assert {load.workload for load in under_liars} == set(registry.WORKLOADS)
    assert {load.file_system for load in under_liars} == {None, *get_args(FileSystemName)}
    assert any(load.writers > 1 and load.group > 1 for load in under_liars)
    assert any(load.sync == "dsync" and load.direct for load in under_liars)


def can_lie(cell: MatrixCell) -> bool:
    """Whether the drive is told what it lies about: FUA is sent on rig a alone, and with `dsync`."""
    if cell.drive == "fua-ignored":
        return isinstance(cell.load, Scenario) and cell.load.sync in WRITE_THROUGH_METHODS
    return cell.rig != "c"


def test_cuts_are_interleaved_and_their_seeds_are_their_own() -> None:
    """One cut of each cell comes before the second of any, and no two of a matrix have the same seed."""
    log = CutLog(HEADER, None)
    requests = pending([HONEST, LIAR], log, MatrixOptions())
    assert [(request.cell, request.number) for request in requests] == [
        (HONEST, 1),
        (LIAR, 1),
        (HONEST, 2),
        (LIAR, 2),
        (HONEST, 3),
    ]
    assert len({request.cell.seed(7, request.number) for request in requests}) == 5
    assert HONEST.seed(7, 1) != HONEST.seed(8, 1)
    log.add(graded_cut(LIAR, 1))
    assert len(pending([HONEST, LIAR], log, MatrixOptions())) == 4
    assert [request.number for request in pending([HONEST], log, MatrixOptions(cut=2, seed=7))] == [2]


def test_only_takes_the_cell_of_that_name_or_all_that_contain_it() -> None:
    """A whole name is that cell alone, a part every cell that has it; where none has, all are named."""
    name = "b honest ext4 overwrite x1 fdatasync"
    assert [cell.name for cell in choose(MatrixOptions(only=name))] == [name]
    several = choose(MatrixOptions(only="honest ext4 overwrite", rigs=("b",), cuts=7))
    assert len(several) > 1
    assert {cell.cuts for cell in several} == {7}
    with pytest.raises(UsageError, match="a honest slots=512 rate=1000"):
        choose(MatrixOptions(only="dishonest", quick=True))


def test_the_documented_line_that_repeats_a_cut_names_one_cell() -> None:
    """The example of the how-to page has the whole name of a cell, and a number that the cell has."""
    page = (DOCS / "how-to/check-the-tester.md").read_text()
    found = re.search(r"^durability lab matrix --only '(.+)' --seed (\d+) --cut (\d+)$", page, re.M)
    assert found is not None
    only, seed, cut = found.groups()
    assert [cell.name for cell in choose(MatrixOptions(only=only, seed=int(seed), cut=int(cut)))] == [only]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (MatrixOptions(cut=1), "give its --seed"),
        (MatrixOptions(cut=1, seed=1, state=Path("state")), "remove --state"),
        (MatrixOptions(cut=51, seed=1, only="a honest slots=512 rate=1000"), "--cut 51: .* has 50 cuts"),
        (MatrixOptions(cut=4, seed=1, cuts=3), "has 3 cuts"),
        (MatrixOptions(quick=True, rigs=("c",)), "--quick has no cuts on rig c"),
        (MatrixOptions(quick=True, rigs=("a", "c")), "--quick has no cuts on rig c"),
    ],
    ids=str,
)
def test_options_at_odds_are_refused(options: MatrixOptions, complaint: str) -> None:
    """One cut again needs its matrix's seed, belongs in no state file and must be one of the cell's; no rig
    that was asked for is left out in silence."""
    with pytest.raises(UsageError, match=complaint):
        choose(options)


def test_claims_that_nobody_compared_count_in_no_share() -> None:
    """They stand apart in document, page and table; precision and recall are of the rest."""
    unread = graded_cut(LIAR, 2, classes={"lost": Agreement(unjudged=7)})
    partly = graded_cut(LIAR, classes={"lost": Agreement(agreed=3, missed=1, unjudged=5)})
    document = matrix_report.document([LIAR], [partly, unread], seed=7, options="")
    lost = {"agreed": 3, "false": 0, "missed_places": 1, "unjudged": 12, "precision": 1.0, "recall": 0.75}
    assert document["classes"] == {"lost": lost}
    page = words(detection_page.markdown([LIAR], [partly, unread], seed=7, options="", again=AGAIN))
    assert "exclude 12 claims not compared place by place:" in page
    assert "| `lost` | 3 | 0 | 1 | 100 % | 75 % | 12 |" in page
    alone = matrix_report.document([LIAR], [unread], seed=7, options="")["classes"]
    assert alone == {"lost": {**lost, "agreed": 0, "missed_places": 0, "unjudged": 7} | NO_SHARES}


def test_log_goes_on_where_it_was(tmp_path: Path) -> None:
    """A resumed log has the earlier cuts. An incomplete last line is removed, and the next line is
    complete."""
    path = tmp_path / "cuts"
    with CutLog(HEADER, path) as log:
        log.add(graded_cut(HONEST))
    torn = to_json(to_value(graded_cut(LIAR))).encode()
    path.write_bytes(path.read_bytes() + torn[: len(torn) // 2])
    assert seed_of(path) == 7
    with CutLog(HEADER, path) as log:
        assert log.graded_cuts == [graded_cut(HONEST)]
        log.add(FALSE_ALARM)
    with CutLog(HEADER, path) as log:
        assert log.graded_cuts == [graded_cut(HONEST), FALSE_ALARM]


def test_log_of_another_matrix_is_refused(tmp_path: Path) -> None:
    """Other options, seed or cells: the file is named, with what differs, and stays as it is."""
    path = tmp_path / "cuts"
    with CutLog(HEADER, path):
        pass
    before = path.read_bytes()
    others = [replace(HEADER, seed=8), replace(HEADER, options=""), replace(HEADER, cells="4567")]
    for other, word in zip(others, ("seed", "options", "cells"), strict=True):
        with pytest.raises(UsageError, match=f"another matrix \\({word}"), CutLog(other, path):
            pass
    assert path.read_bytes() == before


def test_file_that_is_no_log_is_refused(tmp_path: Path) -> None:
    """A file of something else is named with the line that does not fit, and stays as it is."""
    path = tmp_path / "cuts"
    path.write_text("dear diary\n")
    with pytest.raises(FormatError, match=f"{path}:1"), CutLog(HEADER, path):
        pass
    with pytest.raises(FormatError, match=f"{path}:1"):
        seed_of(path)
    assert path.read_text() == "dear diary\n"


def test_log_has_one_writer(tmp_path: Path) -> None:
    """A second matrix on the same file is refused while the first goes on."""
    path = tmp_path / "cuts"
    with CutLog(HEADER, path), pytest.raises(UsageError, match="another matrix"), CutLog(HEADER, path):
        pass


def test_digest_tells_cells_apart() -> None:
    """Another number of cuts, or another cell, is another matrix."""
    assert digest([HONEST, LIAR]) != digest([HONEST])
    assert digest([HONEST]) != digest([replace(HONEST, cuts=4)])


@pytest.mark.parametrize(
    "wrong",
    [FALSE_ALARM, UNEXPLAINED, UNSAID, AT_ODDS],
    ids=["false alarm", "miss", "findings and no loss", "at odds"],
)
def test_what_must_not_be_fails_the_matrix(wrong: GradedCut) -> None:
    """A false alarm, a miss without a reason, or of what was found, a finding at odds with the truth: exit 1,
    with the seed."""
    graded_cuts = [graded_cut(HONEST), graded_cut(LIAR), wrong]
    assert matrix_report.exit_code(graded_cuts) == EXIT_INTERNAL
    document = matrix_report.document([HONEST, LIAR], graded_cuts, seed=7, options="")
    assert document["wrong"] == [to_value(wrong)]
    page = detection_page.markdown([HONEST, LIAR], graded_cuts, seed=7, options="", again=AGAIN)
    assert f"| {wrong.cell} #2 | {wrong.seed} |" in page


def test_explained_miss_is_counted_and_told() -> None:
    """A liar that this time kept its word is no defect of the tester: exit 0, and the reason is told."""
    graded_cuts = [graded_cut(HONEST), graded_cut(LIAR), EXPLAINED]
    assert matrix_report.exit_code(graded_cuts) == EXIT_OK
    document = json.loads(to_json(matrix_report.document([HONEST, LIAR], graded_cuts, seed=7, options="")))
    assert document["totals"]["missed"] == 1
    assert document["misses"][0]["reason"] == EXPLAINED.reason
    row = next(row for row in document["rows"] if row["drive"] == LIAR.drive)
    assert (row["cuts"], row["right"], row["broke"], row["smallest_loss"]) == (2, 1, 1, 4)
    page = detection_page.markdown([HONEST, LIAR], graded_cuts, seed=7, options="", again=AGAIN)
    assert f"| {LIAR.name} | {EXPLAINED.reason} | 2 ({EXPLAINED.seed}) |" in page
    assert "| 1/2 (50 %) | 1/1 (100 %) | 4 places, 9 ops, 2.5 ms | 4 | 0 | 100 % | 100 % |" in page
    assert "1 were caught and 1 were not: in 1 of these the drive kept every promise, in 0 " in words(page)


def test_fewest_operations_and_shortest_time_are_each_the_least_of_all_cuts() -> None:
    """Few operations of a slow writer are a long time, and a short time has many of a fast one; what was not
    called a loss has no part in either."""
    few = graded_cut(LIAR, 1, window_operations=2, window_ms=80.0)
    short = graded_cut(LIAR, 2, window_operations=50, window_ms=3.0)
    unsaid = replace(UNSAID, window_operations=1, window_ms=0.5)
    graded_cuts = [few, short, unsaid]
    row = next(
        iter(json.loads(to_json(matrix_report.document([LIAR], graded_cuts, seed=7, options="")))["rows"])
    )
    assert (row["shortest_window_operations"], row["shortest_window_ms"]) == (2, 3.0)
    page = detection_page.markdown([LIAR], graded_cuts, seed=7, options="", again=AGAIN)
    assert "4 places, 2 ops, 3.0 ms" in page


def test_page_shows_each_workload_on_each_file_system() -> None:
    """The page counts, per file system and workload, durable cuts of honest drives, and caught, broken and
    all cuts of lying drives. Rig A is not in this table."""
    rename = Load(file_system="btrfs", workload="rename")
    honest = MatrixCell(rig="b", drive="honest", load=rename, cuts=1)
    liar = MatrixCell(rig="b", drive="flush-ignored", load=replace(rename, writers=4), cuts=2)
    raw = MatrixCell(rig="b", drive="flush-ignored", load=Load(), cuts=1)
    graded_cuts = [
        graded_cut(HONEST),
        graded_cut(honest),
        graded_cut(liar),
        replace(EXPLAINED, cell=liar.name),
        graded_cut(raw),
    ]
    page = detection_page.markdown([HONEST, honest, liar, raw], graded_cuts, seed=7, options="", again=AGAIN)
    assert "| B | btrfs | `rename` | 1/1 | 1 | 1 | 2 |" in page
    assert "| B | raw device | `overwrite` |  | 1 | 1 | 1 |" in page
    assert "File systems" not in detection_page.markdown(
        [HONEST], graded_cuts[:1], seed=7, options="", again=AGAIN
    )


def test_points_of_curves_stand_in_no_row() -> None:
    """A drive's row is of its cells; the points of a curve have their table, with an interval."""
    scenario = next(early_ack_scenarios())
    load = replace(scenario, model="honest")
    point = MatrixCell(rig="a", drive=scenario.model, load=load, cuts=2, curve="early-ack")
    graded_cuts = [
        graded_cut(point),
        graded_cut(point, 2, verdict="durable", grade="missed", reason="so it is", broken=0),
    ]
    assert matrix_report.rows([point], graded_cuts, by_cell=False) == []
    assert "| 1 ms | 50 %, 1.2 % to 98.7 % (50 %) |" in detection_page.markdown(
        [point], graded_cuts, seed=7, options="", again=AGAIN
    )


@pytest.mark.slow
async def test_cut_of_rig_a_can_be_made_again(seed: int) -> None:
    """The same cell, number and seed of the matrix give the same graded cut, but for the time that it
    took."""
    async with Cutter() as cutter:
        for cell in (HONEST, LIAR):
            first, second = [await cutter.make(cell, 1, cell.seed(seed, 1)) for _ in range(2)]
            assert replace(first, duration_s=0) == replace(second, duration_s=0)
            assert first.grade == "right"
            assert not first.wrong


@pytest.mark.slow
async def test_worker_that_dies_fails_its_cut_and_no_other(seed: int) -> None:
    """A worker that is killed at work is a failure of that cut; the next one is made by another process."""
    endless = replace(HONEST, load=Scenario(operations=(10**9, 10**9), rate=500.0))
    async with workers(1) as (worker,):
        await worker.make(CutRequest(cell=HONEST, number=1, seed=seed))
        cut = asyncio.create_task(worker.make(CutRequest(cell=endless, number=1, seed=seed)))
        await asyncio.sleep(0)
        assert worker.process is not None
        worker.process.kill()
        failure = await cut
        again = await worker.make(CutRequest(cell=HONEST, number=2, seed=seed))
    assert (failure.grade, failure.wrong) == ("failed", True)
    assert "-9" in failure.reason
    assert again.grade == "right"


@pytest.mark.slow
async def test_cut_that_takes_too_long_fails(seed: int) -> None:
    """The process that makes it is killed, the limit is told, and another process makes the next one."""
    endless = replace(HONEST, load=Scenario(operations=(10**9, 10**9), rate=500.0))
    async with workers(1) as (worker,):
        failure = await worker.make(CutRequest(cell=endless, number=1, seed=seed), deadline_s=0.0)
        again = await worker.make(CutRequest(cell=HONEST, number=1, seed=seed))
    assert (failure.grade, failure.wrong) == ("failed", True)
    assert "ended with code -9 after 0 s without an answer" in failure.reason
    assert again.grade == "right"


@pytest.mark.slow
async def test_cut_that_cannot_be_made_is_a_failure() -> None:
    """A drive that is refused is a graded cut with the reason in it, and the worker goes on."""
    impossible = replace(HONEST, load=Scenario(operations=(1, 1), slots=1))
    async with workers(1) as (worker,):
        failure = await worker.make(CutRequest(cell=impossible, number=1, seed=1))
        assert failure.grade == "failed"
        assert failure.reason
        assert (await worker.make(CutRequest(cell=HONEST, number=1, seed=1))).grade == "right"


@pytest.mark.usefixtures("rig_machine")
@pytest.mark.parametrize("file_system", [None, "ext4"], ids=str)
async def test_cut_of_rig_b_is_held_against_the_truth(file_system: FileSystemName | None, seed: int) -> None:
    """A lying drive under a real kernel is caught, and its drive log confirms the findings. Places on a raw
    device are all compared. If a paused machine lets the drive lose nothing, the cut is repeated."""
    cell = MatrixCell(rig="b", drive="early-ack:delay_ms=1000", load=Load(file_system=file_system), cuts=3)
    async with Cutter() as cutter:
        for number in (1, 2, 3):
            one = await cutter.make(cell, number, cell.seed(seed, number))
            if one.grade != "missed" or one.broken:
                break
    assert (one.grade, one.wrong) == ("right", False), one
    assert one.broken
    assert sum(found.agreed + found.unjudged for found in one.classes.values()) == one.lost
    if file_system is None:
        assert sum(found.agreed for found in one.classes.values()) == one.lost


@pytest.mark.usefixtures("rig_machine")
async def test_claims_against_a_drive_without_an_account_are_not_judged(seed: int) -> None:
    """Claims about nbdkit's filter are not judged, because the filter has no drive log."""
    cell = MatrixCell(rig="b", drive="filter-amnesiac", load=Load(), cuts=1)
    async with Cutter() as cutter:
        one = await cutter.make(cell, 1, cell.seed(seed, 1))
    assert (one.grade, one.broken, one.wrong) == ("right", None, False), one
    assert sum(found.unjudged for found in one.classes.values()) == one.lost > 0
    assert not any(found.agreed for found in one.classes.values())
