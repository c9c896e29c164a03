"""What is asked of a cut of rig C, on cuts made up: the verdict alone is not enough."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from durability.errors import EXIT_INCONCLUSIVE, EXIT_LOSS, EXIT_OK
from durability.formats.plan import Plan
from durability_lab.drive.drive_check import DriveCheck
from durability_lab.drive.drive_log import LABEL_BYTES, Broken
from durability_lab.matrix.cutting import vm_result
from durability_lab.matrix.graded_cut import GradedCut, judged
from durability_lab.matrix.matrix_cells import MatrixCell
from durability_lab.support.loads import Load
from durability_lab.vm_rig.vm_cycle import VmCut
from tests.core.evidence.memory_target import Disk, small

MakePlan = Callable[..., Plan]
ACKED = 100
DURABLE: Mapping[str, Any] = {
    "verdict": "durable",
    "cut": {"class": "os", "proof": ["another boot"], "attested": None},
    "at_risk": {"ms1000": 40},
    "findings": {},
    "reasons": [],
    "examples": [],
    "loss_window": None,
}
LOSS: Mapping[str, Any] = {**DURABLE, "verdict": "loss", "findings": {"lost": 3}}
UNDECIDED: Mapping[str, Any] = {
    **DURABLE,
    "verdict": "inconclusive",
    "reasons": [{"code": "cut-not-shown", "text": ""}],
}


@pytest.fixture
def disk(make_plan: MakePlan) -> Disk:
    """A target on which 100 operations were acknowledged."""
    disk = Disk(small(make_plan, target_kind="device"))
    disk.write_to(0, ACKED)
    return disk


def promise(disk: Disk, slot: int, seq: int) -> Broken:
    """The broken promise for the first sector of a version."""
    return Broken(offset=0, kind="older", promised=disk.record(0, slot, seq)[:LABEL_BYTES], found=b"")


def cut(disk: Disk, drive: str, document: Mapping[str, Any], *broken: Broken) -> VmCut:
    """A cut that ended with that document, after which those promises are broken."""
    codes = {"durable": EXIT_OK, "loss": EXIT_LOSS, "inconclusive": EXIT_INCONCLUSIVE}
    return VmCut(
        drive=drive,
        load=Load(),
        seed=1,
        cut_after=ACKED,
        plan=disk.plan,
        acked=(ACKED,),
        session_end="silence",
        drive_check=DriveCheck(flushes=ACKED, promised=999, broken=list(broken)),
        mounted=False,
        exit_code=codes[document["verdict"]],
        document=dict(document),
        seconds={},
        console="",
    )


def graded_cut(one: VmCut) -> GradedCut:
    """What the matrix makes of it."""
    document, truth = vm_result(one)
    cell = MatrixCell(rig="c", drive=one.drive, load=one.load, cuts=1)
    return judged(cell, 1, seed=1, document=document, truth=truth, duration_s=1.0)


def test_honest_drive_must_be_durable(disk: Disk) -> None:
    """Any other verdict on it is wrong."""
    assert not graded_cut(cut(disk, "honest", DURABLE)).wrong
    for document in (LOSS, UNDECIDED):
        assert graded_cut(cut(disk, "honest", document)).wrong


@pytest.mark.parametrize(
    "change",
    [
        {"cut": {**DURABLE["cut"], "class": "none"}},
        {"cut": {**DURABLE["cut"], "proof": []}},
        {"cut": {**DURABLE["cut"], "attested": "somebody's word"}},
        {"at_risk": {"ms1000": 0}},
    ],
    ids=str,
)
@pytest.mark.parametrize("drive", ["honest", "flush-ignored"])
def test_durable_takes_all_that_makes_it_so(disk: Disk, drive: str, change: Mapping[str, Any]) -> None:
    """Class os, proof, no attestation, records at risk, silence: for want of any it is wrong, also of a
    liar that broke nothing."""
    assert not graded_cut(cut(disk, drive, DURABLE)).wrong
    assert len(graded_cut(cut(disk, drive, {**DURABLE, **change})).defects) == 1
    assert graded_cut(replace(cut(disk, drive, DURABLE), session_end="closed")).wrong
    assert graded_cut(replace(cut(disk, drive, DURABLE), exit_code=EXIT_LOSS)).wrong


def test_liar_is_excused_by_what_need_not_be_there_only(disk: Disk) -> None:
    """A promise for a version that a newer one replaced explains the miss; one for the newest does not."""
    slot = disk.slot_of(0, ACKED - 1)
    explained = graded_cut(cut(disk, "flush-ignored", DURABLE, promise(disk, slot, 0)))
    assert (explained.grade, explained.wrong) == ("missed", False)
    assert explained.reason == "all broken promises: versions replaced by a newer one"
    missed = graded_cut(cut(disk, "flush-ignored", DURABLE, promise(disk, slot, ACKED - 1)))
    assert (missed.grade, missed.wrong) == ("missed", True)
    assert len(missed.defects) == 2, "neither the comparison's nor the cut's own is dropped"


def test_undecided_liar_is_a_miss_without_an_explanation(disk: Disk) -> None:
    """The machine was cut before the server's eyes: there is always a verdict."""
    assert graded_cut(cut(disk, "flush-ignored", UNDECIDED)).wrong


def test_loss_takes_a_broken_promise_and_counts_in_no_share(disk: Disk) -> None:
    """A loss is right only if the drive broke a promise. Its findings count in no share, because only the
    guest can read the places."""
    caught = graded_cut(cut(disk, "flush-ignored", LOSS, promise(disk, 3, disk.newest(0, 3, ACKED))))
    assert (caught.grade, caught.wrong) == ("right", False)
    assert (caught.classes["lost"].unjudged, caught.classes["lost"].precision) == (3, None)
    assert graded_cut(cut(disk, "flush-ignored", LOSS)).wrong
