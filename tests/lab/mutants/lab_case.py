"""What lab cases are made of: the tester's answer in one line, to a simulated cut, to what lies on a
target, or to what real writers left.

An answer is the verdict, the reasons of one that is no loss, and what was found:

    durable | loss; 2 lost, 1 torn | inconclusive: log-behind; 4 misdirected | exit 5: another target
"""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from durability.errors import TargetError, WrongTargetError
from durability.evidence.cut import CutClass
from durability.evidence.judge import Attestation, Found
from durability.evidence.outcome import Outcome
from durability.evidence.scan_report import Example
from durability.formats.case import Case, PastVerdict
from durability.formats.facts import Facts
from durability.formats.packing import Value
from durability.formats.plan import Plan
from durability.protocol.frontiers import Frontiers
from durability.units import parse_run
from durability_client.run.shared_state import Order, SharedState, WriterState
from durability_client.run.slot_writer import write_records
from durability_client.target.storage import Storage
from durability_client.target.target_files import TargetFiles
from durability_client.verify.verify_command import VerifyOptions, examine
from durability_lab.simulated_rig.simulation import replay
from tests.conftest import PLAN_FIELDS
from tests.core.evidence.memory_target import Disk, after_power_loss, make_case, small
from tests.lab.mutants.synced_files import Files, OpenFile
from tests.sample_facts import facts
from tests.waiting import DEADLINE_S

_ALSO = {
    "order_violations": "out of order",
    "collateral": "collateral",
    "in_flight_damaged": "damaged in flight",
}
Tell = Callable[[Outcome], str]
Before = Callable[[Files, SharedState, str, int, OpenFile | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabCase:
    """Something done to a drive, and the answer that the drive deserves. `done` is for people."""

    name: str
    done: str
    expected: str
    answer: Callable[[], str]


CASES: dict[str, LabCase] = {}


def lab_case(expected: str) -> Callable[[Callable[[], str]], Callable[[], str]]:
    """Makes a case of a function that answers; its name and its docstring are the case's."""

    def register(function: Callable[[], str]) -> Callable[[], str]:
        name = function.__name__.replace("_", "-")
        assert name not in CASES and function.__doc__
        CASES[name] = LabCase(
            name=name, done=" ".join(function.__doc__.split()), expected=expected, answer=function
        )
        return function

    return register


# -- cuts in virtual time ------------------------------------------------------------------------------------


def simulated(name: str) -> str:
    """The answer on a cut of rig A, `seed=NUMBER SCENARIO`; classes only, and whether the truth agrees."""
    result = replay(name)
    answer = _said(result.document, counts=False)
    if result.truth.defects:
        return f"{answer}; not the truth: {result.truth.defects[0]}"
    return answer


# -- what lies on a target -----------------------------------------------------------------------------------


def plan_of(**changes: Any) -> Plan:
    """One writer with 64 slots of two sectors and eight operations of credit, any field by keyword."""
    return small(lambda **fields: Plan(**{**PLAN_FIELDS, **fields}), **changes)


def disk_of(plan: Plan, *acked: int) -> Disk:
    """What an honest drive holds after so many operations of each writer."""
    return copy.deepcopy(_disk_of(plan, acked))


def past(verdict: str, **changes: Any) -> PastVerdict:
    """An earlier verdict on a cut of class power with records at risk."""
    fields: dict[str, Any] = {"run": "1", "cut_class": "power", "at_risk_ms1000": 5, "wall": "", **changes}
    return PastVerdict(verdict=verdict, **fields)


@cache
def _disk_of(plan: Plan, acked: tuple[int, ...]) -> Disk:
    disk = Disk(plan)
    for writer, frontier in enumerate(acked):
        disk.write_to(writer, frontier)
    return disk


class _CaseInHand:
    """A `CaseSource` with one case; with `newest`, the newest run on the target is that of another.
    `at_end` is called when the run is ended, the target being recognised."""

    def __init__(self, case: Case | None, newest: Case | None, at_end: Callable[[], None]) -> None:
        self._case = case
        self._newest = newest
        self._at_end = at_end

    async def end(self, run: int, found: Found, attestation: Attestation) -> Case | None:
        """As `open`, after what is to happen then."""
        self._at_end()
        return await self.open(run, found.facts)

    async def open(self, run: int, facts: Facts) -> Case | None:
        if self._newest is not None and run in (0, parse_run(self._newest.run)):
            return self._newest
        return self._case

    async def close(self, run: int, document: dict[str, Value], examples: Sequence[Example]) -> str:
        """Store nothing."""
        return ""


def judged(
    target: Disk | Files | Storage,
    case: Case | None,
    *,
    newest: Case | None = None,
    now: Facts | None = None,
    attested: str | None = None,
    min_cuts: int = 1,
    require_cut: CutClass = "power",
    tell: Tell | None = None,
    at_end: Callable[[], None] = lambda: None,
) -> str:
    """The answer of `verify` on `target`, after a power loss unless `now` says otherwise; `tell` adds.
    `newest`: the newest run on the target that the server knows, if it is not that of `case`.
    `at_end` is called between recognising the target and the scan."""
    files = Files.of(target, now or after_power_loss()) if isinstance(target, Disk) else target
    storage = files.storage if isinstance(files, Files) else files
    options = VerifyOptions(target=None, attest_cut=attested, min_cuts=min_cuts, require_cut=require_cut)
    try:
        source = _CaseInHand(case, newest, at_end)
        outcome = asyncio.run(examine(options, storage, source, lambda _: None))
    except WrongTargetError:
        return "exit 5: another target"
    except TargetError:
        return "exit 5: not to be judged"
    assert "a defect of this tool" not in outcome.report.failure, outcome.report.failure
    answer = _said(outcome.document(), counts=True)
    return f"{answer}; {tell(outcome)}" if tell else answer


def at_risk(outcome: Outcome) -> str:
    """How many records were at risk."""
    risk = outcome.at_risk
    return f"at risk {risk.ms1}, {risk.ms10}, {risk.ms100}, {risk.ms1000}"


def loss_window(outcome: Outcome) -> str:
    """How far back what was lost goes."""
    window = outcome.window
    return (
        "no window" if window is None else f"{window.ms_min:g} to {window.ms_max:g} ms, {window.operations}"
    )


def bound(outcome: Outcome) -> str:
    """What the series says."""
    series = outcome.verdict.strength
    return f"{series.cuts} cuts, " + ("no bound" if series.bound is None else f"below {series.bound:.3f}")


def control_lost(outcome: Outcome) -> str:
    """What the control arm lost."""
    return f"control arm {outcome.report.control_lost} lost"


def warnings(outcome: Outcome) -> str:
    """The codes of what is to be told beside the verdict."""
    subject: Any = outcome.document()["subject"]
    return "warnings " + (", ".join(one["code"] for one in subject["warnings"]) or "none")


def _said(document: Mapping[str, Any], *, counts: bool) -> str:
    codes = [reason["code"] for reason in document["reasons"] if reason["code"] != "findings"]
    found = [f"{count} {name}" if counts else name for name, count in document["findings"].items() if count]
    for key, words in _ALSO.items():
        if document[key]:
            found.append(f"{document[key]} {words}" if counts else words)
    answer = str(document["verdict"]) + (f": {', '.join(codes)}" if codes else "")
    return answer + (f"; {', '.join(found)}" if found else "")


# -- real writers --------------------------------------------------------------------------------------------


class _Orders(SharedState):
    """A shared that grants whatever is asked for, or nothing, and ends a writer that would have to wait."""

    def __init__(self, plan: Plan, heard: Frontiers, *, grants: bool) -> None:
        super().__init__(plan.writers)
        self._heard = heard
        self._grants = grants

    def set_state(self, writer: int, state: WriterState) -> None:
        super().set_state(writer, state)
        if state == WriterState.OUT_OF_CREDIT and self._grants:
            self._heard.advance(self.frontiers())
            self._heard.granted(self._heard.acked)
            self.grant(self._heard.grants)
        elif state == WriterState.OUT_OF_CREDIT:
            self.halt()


def written(plan: Plan, before: Before, *, grants: bool = False) -> str:
    """The answer after the product's writer 0 has run on the smallest honest file system, which was cut.

    `before` is called before each step, see `Files`; the run ends when it cuts, or with the writer's credit
    unless the server `grants` more. The server receives the last frontier.
    """
    files, heard = Files(facts()), Frontiers(plan)
    TargetFiles(files.storage, plan).create()

    def watch(shared: SharedState) -> None:
        files.watch(lambda kind, number, file: before(files, shared, kind, number, file))

    shared = let_write(plan, files.storage, heard, grants=grants, watch=watch)
    files.cut()
    files.power_on()
    files.now = after_power_loss()
    return untouched_by_the_cut(files, plan, heard, shared)


def let_write(
    plan: Plan,
    storage: Storage,
    heard: Frontiers,
    *,
    grants: bool = False,
    watch: Callable[[SharedState], None] = lambda _: None,
) -> SharedState:
    """Let the product's writer 0 run to its end on `storage`, passing its shared state to `watch` first."""
    shared = _Orders(plan, heard, grants=grants)
    shared.give_order(Order.GO)
    watch(shared)
    writer = threading.Thread(target=write_records, args=(plan, 0, storage, shared), daemon=True)
    writer.start()
    writer.join(DEADLINE_S)
    assert not writer.is_alive()
    failure = shared.first_failure()
    assert failure is None or failure.errno, failure
    return shared


def untouched_by_the_cut(files: Files, plan: Plan, heard: Frontiers, shared: SharedState) -> str:
    """The answer on `files` as they are after the cut; the server had received the writer's last frontier."""
    heard.advance(shared.frontiers())
    return judged(files, make_case(plan, heard.acked, tainted=heard.tainted, grants=heard.grants))
