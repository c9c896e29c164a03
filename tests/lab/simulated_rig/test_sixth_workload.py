"""A workload is one object and its registration: here is a sixth, in this file alone, and rig A runs it."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from durability.errors import EXIT_LOSS, EXIT_OK
from durability.evidence.judgement import FindingClass
from durability.formats.mixing import U64, Words
from durability.formats.plan import Plan
from durability.formats.schedule import Schedule
from durability.formats.workloads.registry import WORKLOADS
from durability.formats.workloads.workload import Workload
from durability_lab.simulated_rig.scenario import Scenario
from durability_lab.simulated_rig.simulation import CutResult, replay, simulate
from tests.conftest import PLAN_FIELDS

CUTS = 4
LIAR = "flush-ignored:cache_bytes=65536"  # which keeps what is older than its cache


class _Backwards(Schedule):
    """Each pass in the opposite order: its last slot first."""

    def slot_of(self, seqs: Words) -> Words:
        return U64(self.slots - 1) - super().slot_of(seqs)

    def seq_in_pass(self, slots: Words, passes: Words) -> Words:
        return super().seq_in_pass(U64(self.slots - 1) - slots, passes)


class _Rewind(Workload):
    """Overwrites its slots from the last one to the first."""

    __slots__ = ()

    def schedule(self, *, seed: int, writer: int, slots: int, shuffled: bool) -> Schedule:
        return _Backwards(seed=seed, writer=writer, slots=slots, shuffled=shuffled)


class _Forgetful(_Rewind):
    """The same, wrongly told: as if no operation had ever been acknowledged."""

    __slots__ = ()

    def newest(self, schedule: Schedule, slots: Words, frontier: int) -> Words:
        return np.zeros_like(slots)


SIXTH = _Rewind(name="rewind", summary="overwrite from the end", layout="region")
WRONG = _Forgetful(name="forgetful", summary="overwrite from the end", layout="region")


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The workloads of this file are known for the time of a test."""
    for one in (SIXTH, WRONG):
        monkeypatch.setitem(WORKLOADS, one.name, one)


def cuts(model: str, **load: str | int) -> list[CutResult]:
    """Some cuts of that drive under the sixth workload, none of which may be judged wrongly."""
    scenario = Scenario(model=model, workload=SIXTH.name, **load)  # type: ignore[arg-type]
    results = [simulate(scenario, seed=seed) for seed in range(CUTS)]
    for result in results:
        assert result.truth.defects == (), result.name
        assert "workload=rewind" in result.name
    return results


def test_a_plan_of_a_sixth_workload_is_a_plan_like_any_other() -> None:
    """It is kept as its name, and its slots are visited in the workload's own order."""
    plan = Plan(**{**PLAN_FIELDS, "workload": "rewind", "pattern": "sequential"})
    assert Plan.decode(plan.encode()) == plan
    assert plan.contract is SIXTH
    assert plan.schedule(0).slot_of(np.array([1, 2, 1001], dtype=U64)).tolist() == [999, 998, 999]
    assert plan.schedule(plan.control_writer).slot_of(np.array([1], dtype=U64)).tolist() == [0]


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["random", "sequential"])
@pytest.mark.parametrize("writers", [1, 3])
def test_an_honest_drive_under_a_sixth_workload_is_durable(pattern: str, writers: int) -> None:
    """Written, cut, scanned and judged, without a line about it anywhere else."""
    results = cuts("honest", pattern=pattern, writers=writers, rate=1000)
    assert {result.exit_code for result in results} == {EXIT_OK}
    for result in results:
        subject = result.document["subject"]
        assert isinstance(subject, dict)
        assert subject["workload"] == "rewind"


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["random", "sequential"])
def test_a_drive_that_ignores_flushes_loses_under_a_sixth_workload(pattern: str) -> None:
    """Each cut is a loss, and the reference judge has each place, class and operation as the tester has
    it."""
    for result in cuts(LIAR, pattern=pattern, rate=1000):
        assert result.exit_code == EXIT_LOSS
        agreed = result.truth.agreed
        assert agreed["lost"] > 0
        assert result.document["findings"] == {name: agreed.get(name, 0) for name in get_args(FindingClass)}


def test_a_cut_under_a_sixth_workload_can_be_made_again() -> None:
    """Its name says the workload too."""
    result = simulate(Scenario(workload=SIXTH.name), seed=1)
    assert result.name == "seed=1 workload=rewind"
    assert replay(result.name) == result


def test_the_reference_judge_does_not_ask_the_workload() -> None:
    """A wrong object makes the tester miss what the drive lost, and the comparison tells."""
    result = simulate(Scenario(model=LIAR, workload=WRONG.name, rate=1000), seed=1)
    assert result.exit_code != EXIT_LOSS
    assert result.truth.missed["lost"] > 0
    assert any(defect.endswith("nothing is claimed") for defect in result.truth.defects)
