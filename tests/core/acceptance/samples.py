"""Evidence as a test wants it: a drive that passes everything, and what changes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from durability.acceptance.drive_evidence import (
    BenchEvidence,
    CampaignEvidence,
    CycleWord,
    DriveEvidence,
    campaign_proof,
    subject_of,
)
from durability.bench.catalogue import HELD, HELD_COMMIT, HELD_FILL, STANDARD
from durability.bench.cells import Cell
from durability.bench.decision.proof import Proof
from durability.bench.measurement import Latencies, Round
from durability.bench.result import CellRounds, Result
from durability.campaign.definition.settings import CutMoment
from durability.campaign.health import HealthRow
from durability.campaign.log_entries import OutcomeWord
from durability.campaign.results import INDEPENDENT, ArmResult, DriveResult, Tally
from durability.evidence.strength import upper_bound
from tests.core.bench.results import JUDGED, Device, drive, facts, latencies, simulate

HONEST = Device(write_ns=20_000, flush_ns=15_000, dirty_ns=500_000, dirty_bytes_per_s=400e6)
PLP = Device()
NO_FLUSH = Device(flushes=0.0)
ROW: dict[str, Any] = {
    "serial": "S4X-0001 7",
    "firmware": "1.0",
    "size_bytes": 1 << 40,
    "ready_s": 4.2,
    "power_cycles": 100,
    "unsafe_shutdowns": 50,
    "media_errors": 3,
    "spare_percent": 100,
    "used_percent": 7,
    "backup_failed": False,
    "capacitor_percent": 98,
    "commit_p50_us": 900.0,
    "commit_p99_us": 2100.0,
    "mount_s": 0.2,
    "repaired": False,
    "not_back": False,
}


def row(cycle: int, **changes: Any) -> HealthRow:
    """A row of health; the counter of unsafe shutdowns rises by one with each cycle."""
    values = {**ROW, "unsafe_shutdowns": 50 + cycle, "ready_s": 4.0 + (cycle * 7 % 5) / 10, **changes}
    return HealthRow(cycle=cycle, **values)


def rows(count: int, **last: Any) -> tuple[HealthRow, ...]:
    """The check's row and one for each cycle; `last` changes the last one."""
    every = [row(cycle) for cycle in range(count + 1)]
    return (*every[:-1], row(count, **last))


def campaign(
    cuts: int = 59,
    *,
    losses: int = 0,
    unknown: int = 0,
    cut_class: Any = "power",
    trouble: str = "",
    cause: Any = "inconclusive",
    back: bool = True,
    began: str = "2026-01-02T00:00:00Z",
    health: Sequence[HealthRow] | None = None,
    name: str = "shelf-3",
    moments: Sequence[CutMoment] = ("load",),
    shutdowns: Sequence[OutcomeWord] = (),
) -> CampaignEvidence:
    """A campaign of so many cuts, the losses in its last ones, then `unknown` cycles for `cause`. `trouble`:
    what its last cycle met; `back`: whether the drive was looked at after that; `moments`: of its cycles, in
    turn; `shutdowns`: outcomes of a further arm, which cuts after a clean shutdown."""
    known = cuts + unknown
    voided = unknown if cause not in INDEPENDENT else 0
    tally = _tally(cuts, losses, voided)
    words = ["durable"] * (cuts - losses) + ["loss"] * losses + ["nothing"] * unknown
    cycles = tuple(
        CycleWord(
            cycle=number,
            arm="one-writer",
            moment=moments[(number - 1) % len(moments)],
            word=word,  # type: ignore[arg-type]  # one of the three
            cause=cause if word == "nothing" else None,
            cut=cause not in INDEPENDENT or word != "nothing",
            back=back or number < known,
            trouble=trouble if number == known else "",
        )
        for number, word in enumerate(words, 1)
    )
    cycles += tuple(
        CycleWord(
            cycle=number, arm="s", moment="shutdown", word=word, cause=None, cut=True, back=True, trouble=""
        )
        for number, word in enumerate(shutdowns, known + 1)
    )
    lost = [one.cycle for one in cycles if one.word == "loss"]
    arms = [ArmResult(arm="one-writer", moment="load", tally=tally, kept=0, left_out=unknown)]
    if shutdowns:
        apart = _tally(len(shutdowns), shutdowns.count("loss"), 0)
        arms.append(
            ArmResult(arm="s", moment="shutdown", tally=apart, kept=shutdowns.count("kept"), left_out=0)
        )
    result = DriveResult(
        drive="ssd",
        machine="b",
        tally=tally,
        kept=sum(arm.kept for arm in arms),
        arms=tuple(arms),
        first_loss=(lost[0], "0123456789abcdef") if lost else None,
        first_loss_under_load=lost[0] if losses else None,
        left_out=(),
        left="",
    )
    return CampaignEvidence(
        name=name,
        state="ended: complete",
        began=began,
        ended="2026-01-03T00:00:00Z",
        cut_class=cut_class,
        planned=59,
        result=result,
        cycles=cycles,
        rows=rows(len(cycles)) if health is None else tuple(health),
    )


def _tally(cuts: int, losses: int, unknown: int) -> Tally:
    return Tally(
        cuts=cuts,
        losses=losses,
        unknown=unknown,
        bound=upper_bound(losses, cuts) if cuts and not unknown else None,
        bound_if_lost=None,
        low=None,
        high=None,
    )


def held_round(cell: Cell, per_second: float, *, falls_to: float = 1.0, seconds: int = 30) -> Round:
    """A load held for so many seconds, whose rate falls to that share after a third of it."""
    one = simulate(HONEST, cells=(replace(cell, rounds=1),)).cells[0].rounds[0]
    counts = [int(per_second * (1.0 if at < seconds / 3 else falls_to)) for at in range(seconds)]
    total = sum(counts)
    kept: Latencies = latencies([1e9 * 0.9 / per_second] * total) if cell == HELD_COMMIT else one.commit_ns
    return replace(
        one,
        seconds=float(seconds),
        commits=total,
        writes=total,
        commit_ns=kept if cell == HELD_COMMIT else latencies([1e6] * total),
        sync_ns=replace(one.sync_ns, gaps=(), counts=(), max_ns=0),
        bin_s=1.0,
        bins=tuple(counts),
    )


RATES = {cell.name: rate for cell, rate in zip(HELD, (2000.0, 900.0, 4000.0, 500.0), strict=True)}


@cache
def _base(device: Device) -> Result:
    return simulate(
        device, cells=(*JUDGED, *(one for one in STANDARD if one.name.endswith("16jobs-overwritten")))
    )


def accept_result(
    device: Device = HONEST,
    *,
    falls_to: float = 1.0,
    free_bytes: int = 12 << 30,
    reserved_bytes: int | None = 0,
    rates: dict[str, float] | None = None,
    without: Sequence[Cell] = (),
    **changes: Any,
) -> Result:
    """A result of `bench --accept` with the cells that verdicts need and its held loads."""
    base = _base(device)
    per_second = RATES | (rates or {})
    held = [
        CellRounds(
            cell=cell,
            engine="durability",
            engine_version="0.1.0",
            rounds=(held_round(cell, per_second[cell.name], falls_to=falls_to),),
            note="",
        )
        for cell in HELD
        if cell not in without
    ]
    cells = (*base.cells, *held)
    before = replace(
        base.before,
        used_bytes=1 << 30,
        size_bytes=(1 << 30) + free_bytes,
        reserved_bytes=reserved_bytes,
    )
    order = (*base.order, *range(len(base.cells), len(cells)))
    return replace(base, mode="accept", cells=cells, order=order, before=before, **changes)


def measured(result: Result | None = None, name: str = "ssd.json") -> BenchEvidence:
    """A result with its file."""
    return BenchEvidence(name=name, sha256="ab" * 32, result=accept_result() if result is None else result)


def evidence(
    *campaigns: CampaignEvidence,
    results: Sequence[BenchEvidence] = (),
    runs: Sequence[Proof] = (),
    firmware: Sequence[str] = (),
) -> DriveEvidence:
    """Evidence of these parts. `firmware`: of further facts."""
    found = [one.result.facts for one in results] or [facts()]
    found += [facts(drives=(drive(firmware=one),)) for one in firmware]
    every = [one for each in campaigns for one in each.rows]
    proofs = [campaign_proof(one.name, one.cut_class, one.result) for one in campaigns]
    return DriveEvidence(
        subject=subject_of(found, every),
        facts=tuple(found),
        campaigns=tuple(campaigns),
        proofs=(*(one for one in proofs if one is not None), *runs),
        results=tuple(results),
    )


FILL = HELD_FILL
