"""What a campaign says beside a result: each stack that it cut counts apart, and so does a loss (rule 16)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from durability.acceptance.criteria import KINDS
from durability.acceptance.drive_evidence import BenchEvidence
from durability.acceptance.known_cuts import (
    KnownDrive,
    held_against,
    known_of_campaign,
    known_of_run,
    machines_of,
    proof_beside,
)
from durability.acceptance.profile import Criterion
from durability.bench.catalogue import STANDARD
from durability.bench.result import Result
from durability.campaign.definition.settings import Arm
from durability.campaign.log_entries import DriveCycle, MachineSeen
from durability.formats.case import PastVerdict
from durability.formats.facts import Facts
from durability.formats.plan import SyncMethod
from tests import sample_facts
from tests.core.acceptance.samples import evidence
from tests.core.bench.results import Device, drive, facts, simulate
from tests.core.campaign.told_campaign import condition
from tests.core.campaign.written_log import said, state_of, written_log
from tests.core.evidence.memory_target import MakePlan, apart, make_case, small

ON = facts()
OFF = facts(drives=(drive(write_cache="write through"),))
CUTS = 59
BENCH = simulate(Device())


def measured(stack: Facts) -> Result:
    """A benchmark of that stack."""
    return replace(BENCH, facts=stack)


def campaign(stacks: list[Facts], *, lost: int = 0, name: str = "c") -> list[KnownDrive]:
    """A campaign with a cut of each of these stacks, of which one lost data."""
    runs = range(1, len(stacks) + 1)
    return of_cycles([said("loss" if run == lost else "durable", run) for run in runs], stacks, name=name)


def of_cycles(cycles: list[DriveCycle], stacks: list[Facts], *, name: str = "c") -> list[KnownDrive]:
    """A campaign with these cycles; the runs are of these stacks, as far as anybody knows."""
    state = state_of(written_log(name, [[one] for one in cycles]))
    known = {one.run: stack for one, stack in zip(cycles, stacks, strict=False)}
    return known_of_campaign(state, "d0", known)


def test_cuts_of_another_stack_are_not_counted() -> None:
    """A write cache that was on until the first power cut only: one cut of the measured stack, not 59. Both
    say how many were of the other one; a result with the cache off has 58 of its own."""
    known = campaign([ON, *[OFF] * (CUTS - 1)])
    proof = proof_beside(measured(ON), known, named=False)
    apart = "58 cuts of campaign c with the write cache off, not on"
    assert proof is not None and proof.word == "too few cuts"
    assert proof.text == f"no loss in 1 cut, but {apart}"
    other = proof_beside(measured(OFF), known, named=False)
    assert other is not None and other.text == (
        "no loss in 58 cuts, but 1 cut of campaign c with the write cache on, not off"
    )
    held = tuple(held_against(one.proof, one.facts, [measured(ON)]) for one in known)
    found = KINDS["clean-cuts"].look(replace(evidence(), proofs=held), CLEAN)
    assert (found.word, found.figure) == (
        "not shown",
        f"1 cut without a loss: at most 95 % of cuts may lose data (95 % confidence), not counting {apart}",
    )
    every = proof_beside(measured(ON), campaign([ON] * CUTS), named=False)
    assert every is not None and every.text == "proven in 59 cuts"


@pytest.mark.parametrize(("client", "of_release"), [("aa" * 8, "0.2"), ("", "0.1")])
def test_a_campaign_knows_its_machine_by_the_clients_id(client: str, of_release: str) -> None:
    """Names change, and others take them. A log of release 0.1 has no id, so there the name has to do."""
    log = written_log("c", [[said("durable", 1)]], {"d0": condition()})
    log = tuple(
        replace(one, happening=replace(one.happening, client=client))
        if isinstance(one.happening, MachineSeen)
        else one
        for one in log
    )
    known = known_of_campaign(state_of(log), "d0", {f"{1:016x}": ON})
    (machine,) = machines_of(known, ON)
    assert machine.is_of(client or "cc" * 8, "b")
    assert machine.is_of("aa" * 8, "renamed") == (of_release == "0.2")
    assert machine.is_of("bb" * 8, "b") == (of_release == "0.1")
    assert not machine.is_of("bb" * 8, client or "other"), "an id is no name"
    assert not machine.is_of("", ""), "nor is the operator a client"
    assert machines_of(known, facts(drives=(drive(serial="S9"),))) == frozenset()


CLEAN = Criterion(kind="clean-cuts", limit=CUTS, cut_class="power", required=True, reason="Because.")


def arms(*syncs: SyncMethod) -> list[Arm]:
    """Arms that differ in their sync; `dsync` writes past the page cache, as the default one does."""
    (arm,) = state_of(written_log("c", [[said("durable", 1)]])).plan.arms
    return [replace(arm, name=one, sync=one, direct=one == "dsync") for one in syncs]


def cut_by(of_arms: list[Arm], stack: Facts = ON, *, lost: int = 0) -> list[KnownDrive]:
    """A campaign of 59 cuts with these arms, which take turns; a cut lost data."""
    runs = range(1, CUTS + 1)
    state = state_of(written_log("c", [[said("loss" if run == lost else "durable", run)] for run in runs]))
    state.settings = replace(state.plan, arms=tuple(of_arms))
    return known_of_campaign(state, "d0", {f"{run:016x}": stack for run in runs})


BY_FUA = "no loss in 59 cuts, but by FUA, not by a flush"
PROVEN = "proven in 59 cuts"


@pytest.mark.parametrize(
    ("stack", "syncs", "text"),
    [
        (ON, ["dsync"], BY_FUA),
        (ON, ["fdatasync"], PROVEN),
        (ON, ["fdatasync", "fsync", "dsync"], PROVEN),  # as the default arms: two of three send flushes
        (ON, ["osync"], PROVEN),
        (facts(drives=(drive(fua=False),)), ["dsync"], PROVEN),
        (facts(drives=(drive(fua=None),)), ["dsync"], PROVEN),
        (OFF, ["dsync"], PROVEN),  # it gets neither, by whatever sync
        (facts(kind="device", file_system=None), ["dsync"], PROVEN),
        (facts(file_system=sample_facts.file_system(type="btrfs")), ["dsync"], PROVEN),
    ],
)
def test_cuts_by_fua_alone_prove_no_flush(stack: Facts, syncs: list[SyncMethod], text: str) -> None:
    """A firmware may keep what FUA writes and ignore the flush: its cuts settle no benchmark of flushes."""
    known, result = cut_by(arms(*syncs), stack), measured(stack)
    proof = proof_beside(result, known, named=False)
    assert proof is not None and proof.text == text
    held = tuple(held_against(one.proof, one.facts, [result]) for one in known)
    beside = replace(evidence(results=[BenchEvidence(name="a", sha256="", result=result)]), proofs=held)
    for kind in (CLEAN, PLAUSIBLE):
        assert KINDS[kind.kind].look(beside, kind).word == ("pass" if text == PROVEN else "not shown")


PLAUSIBLE = Criterion(kind="plausible", limit=None, cut_class="power", required=True, reason="Because.")


def test_cuts_by_fua_prove_commits_by_fua() -> None:
    """Nothing else was measured. A loss counts against every commit."""
    (cell,) = (one for one in STANDARD if one.sync == "dsync" and one.direct)
    fua_only = replace(simulate(Device(), cells=[cell]), facts=ON)
    proof = proof_beside(fua_only, cut_by(arms("dsync")), named=False)
    assert proof is not None and proof.text == PROVEN
    lost = proof_beside(measured(ON), cut_by(arms("dsync"), lost=7), named=False)
    assert lost is not None and lost.word == "lost data"
    assert lost.text == "lost data in cycle 7 of campaign c (by FUA, not by a flush)"


def test_cuts_by_fua_without_an_outcome_leave_flushes_unproven() -> None:
    """A cut of a dsync arm without an outcome keeps the drive from being proven, for flushes too."""
    state = state_of(written_log("hung", [[replace(said("nothing", 1), cut=True)]]))
    state.settings = replace(state.plan, arms=tuple(arms("dsync")))
    hung = known_of_campaign(state, "d0", {f"{1:016x}": ON})
    proof = proof_beside(measured(ON), [*cut_by(arms("fdatasync")), *hung], named=False)
    assert proof is not None
    assert proof.text == "no loss in 59 cuts, but 1 cut of campaign hung with unknown outcome"


def test_a_loss_is_held_against_the_stack_that_lost() -> None:
    """The write cache was off in the first cycle and on when a cut lost data: no other run's facts dismiss
    the loss, and no later campaign clears it."""
    known = [*campaign([OFF, *[ON] * 29], lost=30), *campaign([ON] * CUTS, name="later")]
    proof = proof_beside(measured(ON), known, named=False)
    assert proof is not None and proof.text == "lost data in cycle 30 of campaign c"
    held = tuple(held_against(one.proof, one.facts, [measured(ON)]) for one in known)
    assert KINDS["clean-cuts"].look(replace(evidence(), proofs=held), CLEAN).word == "refuse"
    mirrored = campaign([ON, *[OFF] * 29], lost=30)
    lost = proof_beside(measured(ON), mirrored, named=False)
    assert lost is not None and lost.word == "too few cuts", "with the cache off no flush was sent"


def verdict(word: str, cut_class: str = "power", *reasons: str) -> PastVerdict:
    """A verdict on another run of a series."""
    return PastVerdict(
        run="0" * 16, verdict=word, cut_class=cut_class, at_risk_ms1000=9, wall="", reasons=reasons
    )


UNVERIFIED = verdict("unverified", "none")
NO_CUT = (verdict("inconclusive", "none", "no-cut"),)


@pytest.mark.parametrize(
    ("given", "series", "text"),
    [
        ((), [], "1 cut with unknown outcome"),
        ((), [UNVERIFIED], "2 cuts with unknown outcome"),
        ((), [verdict("durable", "os")], "1 cut with unknown outcome"),
        (
            (),
            [verdict("durable", "vm"), verdict("inconclusive", "os", "superseded")],
            "1 cut with unknown outcome",
        ),
        ((), [verdict("durable")], "no loss in 1 cut, 1 other with unknown outcome"),
        (
            (),
            [verdict("durable"), verdict("durable", "os")],
            "no loss in 1 cut, 1 other with unknown outcome",
        ),
        ((), [verdict("loss", "os")], f"lost data in run {0:016x}"),
        (NO_CUT, [verdict("durable", "os")], "no loss in 1 cut of class os: the drive kept its power"),
        (NO_CUT, [verdict("durable", "os"), UNVERIFIED], "1 cut with unknown outcome"),
    ],
)
def test_a_run_without_an_outcome_may_have_met_a_power_cut(
    make_plan: MakePlan, given: tuple[PastVerdict, ...], series: list[PastVerdict], text: str
) -> None:
    """Weaker clean cuts of the series do not count for a run without an outcome, but losses do. A run without
    a cut has the outcome of the others."""
    case = make_case(small(make_plan, run=1), (10,), verdicts=given, series=apart(*series))
    known = known_of_run(case)
    assert known is not None and known.proof.text == text


OWN, BY_HAND = (replace(UNVERIFIED, run=f"{number:016x}") for number in (6, 77))  # of 59 runs, and another


@pytest.mark.parametrize(
    ("run", "given", "series", "unknown"),
    [
        (5, (verdict("durable"),), [OWN], ""),
        (5, (verdict("durable"),), [BY_HAND], BY_HAND.run),
        (5, (verdict("durable"),), [OWN, BY_HAND], BY_HAND.run),
        (77, (verdict("durable"),), [OWN], ""),
        (77, (), [verdict("durable"), OWN], BY_HAND.run),
    ],
)
def test_a_campaign_answers_for_its_own_runs_of_a_series_alone(
    make_plan: MakePlan, run: int, given: tuple[PastVerdict, ...], series: list[PastVerdict], unknown: str
) -> None:
    """A campaign explains only its own runs of a series. Any other run without a verdict has an unknown
    outcome, whichever run of the series the server names."""
    case = make_case(small(make_plan, run=run), (10,), verdicts=given, series=apart(*series))
    one = known_of_run(case)
    assert one is not None
    proof = proof_beside(measured(one.facts), [*campaign([one.facts] * CUTS), one], named=False)
    void = f"no loss in 59 cuts, but 1 cut of run {unknown} with unknown outcome"
    assert proof is not None and proof.text == (void if unknown else PROVEN)


def test_the_run_that_lost_data_is_named_and_not_the_one_that_was_asked_for(make_plan: MakePlan) -> None:
    """The series of a durable run has a loss in another one."""
    lost = replace(verdict("loss"), run=f"{8:016x}")
    for given, series, number in (
        ((verdict("durable"),), [verdict("durable"), lost], 8),
        ((verdict("loss"),), [verdict("durable")], 9),
    ):
        known = known_of_run(make_case(small(make_plan, run=9), (10,), verdicts=given, series=apart(*series)))
        assert known is not None and known.proof.text == f"lost data in run {number:016x}"


def test_a_cycle_whose_run_nobody_knows_counts_against_each_stack() -> None:
    """It lost data in any of them; a clean one is a clean cut of none."""
    cycles = [said("durable", 1), said("durable", 2), said("loss", 3), said("durable", 4)]
    known = of_cycles(cycles, [ON, OFF])
    assert [(one.proof.cuts, one.proof.losses) for one in known] == [(2, 1), (2, 1)]
    assert of_cycles(cycles, []) == []
