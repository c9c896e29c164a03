"""Cuts known of the drives that were measured, and which of them count as evidence for a result.

Two sets of facts are of the same drive if the serials agree and nothing shows that two drives share the
serial (rule 9). Results store serials as hashes, so other serials are hashed before the comparison.
A drive without a serial counts as the same only if the operator named the run or the campaign, and machine,
name, model and size agree. This module looks nothing up: a client asks the server, the server asks its store.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from durability import limits, plain_text
from durability.acceptance.cycle_under_way import with_cycle_under_way
from durability.acceptance.drive_evidence import campaign_proof
from durability.bench.decision.claims import Machine
from durability.bench.decision.proof import Proof, weightiest_proof
from durability.bench.decision.same_stack import BY_FUA, by_fua, measures_flush, unlike, withheld_flushes
from durability.bench.hashed_serials import HASHED, hashed, marks_of
from durability.bench.result import Result
from durability.campaign.campaign_state import CampaignState
from durability.campaign.cycles import arm_of
from durability.campaign.results import result_of_cycles
from durability.evidence.cut import CUT_CLASSES
from durability.evidence.drive_identity import are_two
from durability.evidence.strength import strength, strength_of_drive, unverified, weightiest
from durability.formats.case import PROVABLE_CUT_CLASSES, Case, PastVerdict
from durability.formats.facts import Drive, Facts, Host
from durability.formats.plan import Plan

_WEAKER = frozenset(PROVABLE_CUT_CLASSES) - {"power"}


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDrive:
    """A drive that was cut in one stack, and the result of these cuts."""

    facts: Facts  # facts of a run on the drive in this stack
    proof: Proof
    runs: frozenset[str]  # all runs of the campaign on the drive, or the one run
    is_campaign: bool
    # Runs of the run's series that have no outcome, newest last. () if no run but itself can be one.
    unanswered: tuple[str, ...] = ()
    machine: Machine | None = None  # the machine whose drive the campaign cut, None for a run


def known_of_run(case: Case) -> KnownDrive | None:
    """The cuts of a run's series as evidence on its drive. None if the run has no cut."""
    stands = weightiest(case.verdicts) or unverified(case.run, case.session_end, "")
    if case.armed is None or stands is None or stands.cut_class not in CUT_CLASSES:
        return None
    # A run without an outcome has a cut of unknown class, so cuts of weaker classes say nothing about it.
    others = _without_weaker_cuts(case)
    of_any = stands.cut_class == "none" and strength_of_drive((*others.series, stands)).left_out > 0
    counted = others if of_any else case
    found = strength(
        counted,
        cut_class=stands.cut_class,
        verdict=stands.verdict,
        at_risk_ms1000=stands.at_risk_ms1000,
        reasons=stands.reasons,
    )
    if not found.cuts and not found.left_out:
        return None
    source, plan = f"run {case.run}", Plan.decode(bytes.fromhex(case.plan))
    proof = Proof(
        cuts=found.cuts,
        losses=found.losses,
        bound=found.bound,
        cut_class="power" if of_any and not found.cuts else found.cut_class,
        source=source,
        lost_in=_lost_in(case.run, (stands, *counted.series)) if found.losses else "",
        unknown=found.left_out,
        by_fua=by_fua(case.armed, workload=plan.workload, sync=plan.sync, direct=plan.direct),
    )
    unanswered = tuple(one.run for one in (*counted.series, stands) if strength_of_drive((one,)).left_out)
    return KnownDrive(
        facts=case.armed,
        proof=proof,
        runs=frozenset({case.run}),
        is_campaign=False,
        unanswered=unanswered,
    )


def _lost_in(run: str, outcomes: Sequence[PastVerdict]) -> str:
    """Name the run that lost data, in words: `run`, whose outcome comes first in `outcomes`, else the oldest
    run with a loss in its series. "" if there was no loss."""
    own, *series = outcomes
    lost = run if own.verdict == "loss" else next((one.run for one in series if one.verdict == "loss"), "")
    return f"run {lost}" if lost else ""


def unanswered_run(run: str, facts: Facts) -> KnownDrive:
    """A run on the drives of `facts` that may have lost data and of which nothing else is known. The proof
    has one cut of unknown outcome."""
    source = f"run {run}"
    proof = Proof(cuts=0, losses=0, bound=None, cut_class="power", source=source, lost_in="", unknown=1)
    return KnownDrive(facts=facts, proof=proof, runs=frozenset({run}), is_campaign=False)


def _without_weaker_cuts(case: Case) -> Case:
    """The case without the other runs of its series whose cuts may have left the drive powered. Runs with a
    loss stay."""
    series = tuple(one for one in case.series if one.verdict == "loss" or one.cut_class not in _WEAKER)
    return replace(case, series=series)


def runs_of(state: CampaignState, drive: str) -> tuple[str, ...]:
    """Runs of a campaign on one of its drives, oldest first. Includes the run of the present cycle if that
    cycle counts."""
    mine = (past.of(drive) for past in with_cycle_under_way(state).cycles)
    return tuple(one.run for one in mine if one is not None and one.run)


def facts_of_check(state: CampaignState, drive: str) -> Facts | None:
    """Facts of a campaign's drive as its check found it, for a drive without an armed run. None if the check
    has no condition of the drive or the drive took part in no cycle."""
    found, machine = state.conditions.get(drive), state.machine_of(drive)
    cycles = with_cycle_under_way(state).cycles
    if found is None or not any(past.began.cycle and past.of(drive) for past in cycles):
        return None
    seen = state.checked_machines.get(machine)
    names = list(zip_longest(*(one.split(" + ") for one in (found.model, found.serial, found.firmware))))
    return Facts(
        host=Host(
            machine_id=seen.machine_id if seen is not None else "",
            boot_id=seen.boot_id if seen is not None else "",
            uptime_ns=0,
            kernel="Linux of unknown release",
            virtualisation=seen.virtualisation if seen is not None else "none",
            hostname=machine,
        ),
        path="",
        path_in_file_system="",
        kind="device",
        size_bytes=found.size_bytes,
        offset_bytes=None,
        file_system=None,
        layers=(),
        drives=tuple(
            Drive(
                name=drive,
                model=model or "",
                serial=serial or "",
                firmware=firmware or "",
                size_bytes=found.size_bytes if len(names) == 1 else 0,
                logical_block_bytes=512,
                physical_block_bytes=512,
                rotational=None,
                write_cache=None,
                fua=None,
                diskseq=found.diskseq,
                unsafe_shutdowns=found.unsafe_shutdowns,
                atomic_write_bytes=None,
                flushes=None,
                emulated=found.emulated,
            )
            for model, serial, firmware in names
        ),
        warnings=(),
    )


def facts_of_series(case: Case) -> dict[str, Facts]:
    """Facts for each run of a series, by run: all runs of a series have the same stack (rule 16). Empty if
    the run was never armed."""
    if case.armed is None:
        return {}
    return dict.fromkeys((case.run, *(one.run for one in case.series)), case.armed)


def known_of_campaign(state: CampaignState, drive: str, facts: Mapping[str, Facts]) -> list[KnownDrive]:
    """Evidence of a campaign on one of its drives, one item for each stack that was cut. `facts`: by run. A
    cycle without facts counts for every stack if it has a loss or no outcome, else for none. The present
    cycle counts once its power went off."""
    state = with_cycle_under_way(state)
    stacks: list[tuple[Facts, set[int]]] = []
    of_any: set[int] = set()
    for past in state.cycles:
        mine = past.of(drive)
        if mine is None:
            continue
        cut = facts.get(mine.run)
        if cut is None:
            of_any |= {past.began.cycle} if mine.word in ("loss", "nothing") else set()
            continue
        same = (own for known, own in stacks if not unlike(known, cut) and not unlike(cut, known))
        if (cycles := next(same, None)) is not None:
            cycles.add(past.began.cycle)
        else:
            stacks.append((cut, {past.began.cycle}))
    runs, machine = frozenset(runs_of(state, drive)), machine_that_was_cut(state, drive)
    known = []
    for cut, own in stacks:
        result = result_of_cycles(state, drive, own | of_any)
        proof = campaign_proof(state.plan.name, state.plan.cut_class, result)
        if proof is not None:
            proof = replace(proof, by_fua=_are_by_fua(state, drive, cut, own))
            known.append(KnownDrive(facts=cut, proof=proof, runs=runs, is_campaign=True, machine=machine))
    return known


def machine_that_was_cut(state: CampaignState, drive: str) -> Machine:
    """The machine of a drive, with the client that the check found. The campaign goes on only with that
    client."""
    name = state.machine_of(drive)
    seen = state.checked_machines.get(name)
    return Machine(name=name, client="" if seen is None else seen.client)


def _are_by_fua(state: CampaignState, drive: str, cut: Facts, cycles: Collection[int]) -> bool:
    """Whether the commits of all these cuts under load were made by FUA. One arm with flushes makes this
    false: a drive that ignores flushes loses data at nearly every cut, so that arm would have shown it."""
    counted = [
        arm
        for past in state.cycles
        if past.began.cycle in cycles
        and (mine := past.of(drive)) is not None
        and mine.word != "nothing"
        and (arm := arm_of(state.plan, past.began.cycle)).moment == "load"
    ]
    return bool(counted) and all(
        by_fua(cut, workload=arm.workload, sync=arm.sync, direct=arm.direct) for arm in counted
    )


def beside_campaigns(runs: Iterable[KnownDrive], told: Collection[str]) -> list[KnownDrive]:
    """Evidence of single runs in addition to campaigns that contain the runs `told`. A campaign knows why it
    left cuts out, and the series of its runs does not. So runs of a campaign do not count as runs without an
    outcome. The proof names the newest other run without an outcome."""
    found = []
    for one in runs:
        open_runs = one.unanswered or tuple(one.runs)
        others = [run for run in open_runs if run not in told]
        if one.proof.bound is not None or one.proof.losses:
            found.append(one)
        elif others:
            unknown = one.proof.unknown - len(open_runs) + len(others)
            proof = replace(one.proof, unknown=unknown, source=f"run {others[-1]}")
            found.append(replace(one, proof=proof, unanswered=tuple(others)))
    return found


def clean_series(runs: Iterable[KnownDrive], measured: Sequence[Result]) -> list[KnownDrive]:
    """The series without a loss that criteria need, from single runs, for the results `measured`.

    Keeps the first series with unanswered cuts of each class: that series voids the bound of its class and of
    weaker classes. A series whose stack sent no flush voids nothing, so it is kept apart from the others.
    Keeps the longest other series of each class and stack: a durable run ends a series of earlier runs, so
    shorter series count the same cuts."""
    void: dict[tuple[str, bool], KnownDrive] = {}
    longest: dict[tuple[str, str], KnownDrive] = {}
    for one in runs:
        proof = held_against(one.proof, one.facts, measured)
        if proof.losses:
            continue
        if proof.bound is None:
            void.setdefault((proof.cut_class, proof.withheld), one)
            continue
        kind = (proof.cut_class, proof.but)
        if kind not in longest or proof.cuts > longest[kind].proof.cuts:
            longest[kind] = one
    return [*void.values(), *longest.values()]


def unsearchable(facts: Facts) -> str:
    """Why a search for cuts of the drives of `facts` is impossible, as a sentence. "" if it is possible."""
    marks = marks_of(facts)
    if not facts.drives:
        why = "no drive below it is known"
    elif not marks:
        nameless = next(one for one in facts.drives if not marks_of(replace(facts, drives=(one,))))
        why = f"{plain_text.as_line(nameless.name)} has no serial of its own"
    elif len(marks) > limits.MARKS_MAX:
        why = f"{len(marks)} drives are too many to be looked for"
    else:
        return ""
    return f"{why}, so its cuts cannot be found on the server"


def proof_beside(
    result: Result, known: Iterable[KnownDrive], *, named: bool, disputed: str = ""
) -> Proof | None:
    """The proof from `known` that counts for `result`, None if none does. Cuts of the same drive in another
    stack count only if they lost data or have no outcome. `disputed`: claims against the drive by clients
    whose runs do not count. Such a claim may be about this drive, so it keeps the drive from being proven."""
    mine = [one for one in known if same_drives(one.facts, result.facts, named=named)]
    campaigns = [one for one in mine if one.is_campaign]
    told = frozenset[str]().union(*(one.runs for one in campaigns))
    counting = [*campaigns, *beside_campaigns((one for one in mine if not one.is_campaign), told)]
    proof = weightiest_proof([held_against(one.proof, one.facts, [result]) for one in counting])
    return replace(proof, disputed=disputed) if proof is not None and proof.word == "proven" else proof


def machines_of(known: Iterable[KnownDrive], facts: Facts) -> frozenset[Machine]:
    """Machines with a drive of these facts that a campaign in `known` cut."""
    return frozenset(
        one.machine for one in known if one.machine and same_drives(one.facts, facts, named=False)
    )


def held_against(proof: Proof, cut: Facts, measured: Sequence[Result]) -> Proof:
    """`proof`, from cuts of the stack `cut`, with the reason why it does not prove all results `measured`."""
    stacks = [one.facts for one in measured]
    but = next(filter(None, (unlike(cut, one) for one in stacks)), "")
    # A proof without a bound voids the bound of other cuts, whether its own commits were flushed or by FUA.
    if not but and proof.by_fua and proof.bound is not None and any(map(measures_flush, measured)):
        but = BY_FUA
    return replace(proof, but=but, withheld=is_withheld(cut, stacks))


def is_withheld(cut: Facts, measured: Sequence[Facts]) -> bool:
    """Whether a loss in the stack `cut` says nothing about any of the measured stacks."""
    return bool(measured) and all(withheld_flushes(cut, one) for one in measured)


def same_drives(theirs: Facts, ours: Facts, *, named: bool) -> bool:
    """Whether both facts are of the same drives. `named`: the user said so. That is enough for drives without
    a serial of their own if machine, name, model, size and the reported serial agree."""
    if not ours.drives or len(theirs.drives) != len(ours.drives):
        return False
    marks, others = marks_of(ours), marks_of(theirs)
    if marks and others:
        return marks == others and not _are_two(theirs, ours)
    return named and _as_named(theirs) == _as_named(ours)


def _are_two(theirs: Facts, ours: Facts) -> bool:
    """Whether two drives with the same serial are different drives, in whichever order they were seen. A
    drive that has lost capacity is the same drive: `unlike` then says why its cuts prove less."""
    their, our = _by_mark(theirs), _by_mark(ours)
    pairs = [(their[one], our[one]) for one in their]
    return any(are_two(one, other) and are_two(other, one) for one, other in pairs)


def _by_mark(facts: Facts) -> dict[frozenset[str], Drive]:
    """The drives by their marks. A model that contains a hashed serial is dropped, since it is unknown."""
    return {
        marks_of(replace(facts, drives=(one,))): replace(one, model="") if HASHED in one.model else one
        for one in facts.drives
    }


def _as_named(facts: Facts) -> tuple[str, frozenset[tuple[str, str, int, str]]]:
    drives = ((drive.name, drive.model, drive.size_bytes, hashed(drive.serial)) for drive in facts.drives)
    return hashed(facts.host.machine_id), frozenset(drives)
