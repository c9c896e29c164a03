"""Which runs a verdict is due of: those that were cut under load, and to which nothing else happened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from durability.evidence import verdict
from durability.formats.plan import Plan
from durability_lab.histories.simulated.history_truth import HistoryTruth
from durability_lab.histories.sound_runs import SoundRuns
from durability_lab.histories.steps import Step
from tests.lab.histories.test_deserved import LOADED, played
from tests.lab.mutants.mutation import answering

MakePlan = Callable[..., Plan]

MS = 1_000_000
NOW_NS = 5_000 * MS


def cut(runs: SoundRuns, make_plan: MakePlan, what: str = "machine", **changes: Any) -> set[int]:
    """Cut under load, but for the changes: the sound runs after it."""
    plan = make_plan(credit=changes.pop("credit", 64), group=1, run=changes.pop("run", make_plan().run))
    load = {"heard": True, "at_ns": NOW_NS, "begun_ns": NOW_NS - 400 * MS, "promised_ns": NOW_NS - MS}
    runs.cut(what, plan, **load | changes)
    return runs.sound & {plan.run}


@pytest.mark.parametrize("what", ["machine", "drive"])
def test_a_run_that_is_cut_under_load_is_sound(make_plan: MakePlan, what: str) -> None:
    """A run that is cut under load stays sound through later steps that do not affect it."""
    runs = SoundRuns()
    run = make_plan().run
    runs.step(Step("pass"), [run], client_alive=True)
    assert cut(runs, make_plan, what) == {run}
    for kind in ("boot", "verify", "reboot", "kill", "pass"):
        runs.step(Step(kind), [run], client_alive=False)
    assert runs.sound == {run}


@pytest.mark.parametrize(
    "changes",
    [
        {"what": "guest"},
        {"heard": False},
        {"begun_ns": None},
        {"begun_ns": NOW_NS - 100 * MS},
        {"promised_ns": NOW_NS - 60 * MS},
        {"credit": 16},
    ],
)
def test_a_cut_without_known_load_makes_no_run_sound(make_plan: MakePlan, changes: dict[str, Any]) -> None:
    """A run is not sound if only the operating system ended, or if it is not known that a writer wrote."""
    assert cut(SoundRuns(), make_plan, **changes) == set()


@pytest.mark.parametrize("kind", ["error", "hang", "network", "server", "run", "kill", "stop"])
def test_whatever_else_happens_spoils_a_run(make_plan: MakePlan, kind: str) -> None:
    """Before its cut, and, but for a client that is gone, after it."""
    run = make_plan().run
    before, after = SoundRuns(), SoundRuns()
    before.step(Step(kind), [run], client_alive=True)
    assert cut(before, make_plan) == set()
    assert cut(after, make_plan) == {run}
    after.step(Step(kind), [run], client_alive=True)
    assert after.sound == set()


@pytest.mark.parametrize(("second", "sound"), [("drive", True), ("guest", False), ("machine", False)])
def test_a_machine_that_goes_before_its_client_told_of_its_drive(
    make_plan: MakePlan, second: str, *, sound: bool
) -> None:
    """A run is not sound if its machine is cut before the client has reported the loss of its drive. This was
    found by hand: the rule said that durable was due."""
    runs = SoundRuns()
    assert cut(runs, make_plan, "drive")
    assert bool(cut(runs, make_plan, second)) is sound


def test_a_drive_that_dies_just_before_its_machine_owes_nothing() -> None:
    """The client still looks whether the drive answers: all that is known of the drive is an error."""
    found = played(*LOADED, "cut what=drive", "pass ms=1500", "cut", "boot", "verify")
    assert [grade.word for grade in found.grades] == ["inconclusive"] * 2
    assert found.wrong == ()


def test_only_the_first_boot_after_a_run_owes_its_verdict(make_plan: MakePlan) -> None:
    """The machine's next start leaves sound only what was made since the one before."""
    runs = SoundRuns()
    older, newer = make_plan().run, make_plan().run + 1
    cut(runs, make_plan)
    runs.machine_starts([older])
    assert runs.sound == {older}
    cut(runs, make_plan, run=newer)
    runs.machine_starts([older, newer])
    assert runs.sound == {newer}
    assert cut(runs, make_plan) == set()


@pytest.mark.slow
@pytest.mark.parametrize(("code", "wrong"), [("session-closed", True), ("nothing-at-risk", False)])
def test_a_cut_whose_load_is_not_known_still_owes_a_verdict(code: str, *, wrong: bool) -> None:
    """On a busy machine a writer may have waited for its server, so a tester that says so, and no more, is
    not wrong; any other reason is. Both are counted as missed."""
    undecided = answering(verdict._session_reasons, f"yield _reason('{code}')")
    unknown = answering(HistoryTruth.load_known, "return False")
    with undecided(), unknown():
        found = played(*LOADED)
    assert [grade.reasons for grade in found.grades] == [(code,)]
    assert [bool(grade.wrong) for grade in found.grades] == [wrong]
    assert [grade.missed for grade in found.grades] == ["durable"]
