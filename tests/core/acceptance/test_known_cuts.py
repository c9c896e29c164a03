"""What a campaign says beside a result: each stack that it cut counts apart, and so does a loss (rule 16)."""

from __future__ import annotations

from dataclasses import replace

from durability.acceptance.criteria import KINDS
from durability.acceptance.known_cuts import KnownDrive, held_against, known_of_campaign, proof_beside
from durability.acceptance.profile import Criterion
from durability.bench.result import Result
from durability.campaign.log_entries import DriveCycle
from durability.formats.facts import Facts
from tests.core.acceptance.samples import evidence
from tests.core.bench.results import Device, drive, facts, simulate
from tests.core.campaign.written_log import said, state_of, written_log

ON = facts()
OFF = facts(drives=(drive(write_cache="write through"),))
CUTS = 59


def measured(stack: Facts) -> Result:
    """A benchmark of that stack."""
    return replace(simulate(Device()), facts=stack)


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
    held = tuple(held_against(one.proof, one.facts, [ON]) for one in known)
    found = KINDS["clean-cuts"].look(replace(evidence(), proofs=held), CLEAN)
    assert (found.word, found.figure) == (
        "not shown",
        f"1 cut without a loss: at most 95 % of cuts may lose data (95 % confidence), not counting {apart}",
    )
    every = proof_beside(measured(ON), campaign([ON] * CUTS), named=False)
    assert every is not None and every.text == "proven in 59 cuts"


CLEAN = Criterion(kind="clean-cuts", limit=CUTS, cut_class="power", required=True, reason="Because.")


def test_a_loss_is_held_against_the_stack_that_lost() -> None:
    """The write cache was off in the first cycle and on when a cut lost data: no other run's facts dismiss
    the loss, and no later campaign clears it."""
    known = [*campaign([OFF, *[ON] * 29], lost=30), *campaign([ON] * CUTS, name="later")]
    proof = proof_beside(measured(ON), known, named=False)
    assert proof is not None and proof.text == "lost data in cycle 30 of campaign c"
    held = tuple(held_against(one.proof, one.facts, [ON]) for one in known)
    assert KINDS["clean-cuts"].look(replace(evidence(), proofs=held), CLEAN).word == "refuse"
    mirrored = campaign([ON, *[OFF] * 29], lost=30)
    lost = proof_beside(measured(ON), mirrored, named=False)
    assert lost is not None and lost.word == "too few cuts", "with the cache off no flush was sent"


def test_a_cycle_whose_run_nobody_knows_counts_against_each_stack() -> None:
    """It lost data in any of them; a clean one is a clean cut of none."""
    cycles = [said("durable", 1), said("durable", 2), said("loss", 3), said("durable", 4)]
    known = of_cycles(cycles, [ON, OFF])
    assert [(one.proof.cuts, one.proof.losses) for one in known] == [(2, 1), (2, 1)]
    assert of_cycles(cycles, []) == []
