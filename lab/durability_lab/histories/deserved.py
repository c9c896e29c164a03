"""What a verdict deserves, by the truth about a history: what the drive promised and broke, when
something really lost its power, and what anybody did to the target.

It shares no code with the judge. A loss must rest on a promise that the drive broke, or on what someone did
to the target that looks the same; durable must rest on a cut that happened, of that class, within a second of
a promise to that run, and on a target that a second reading in the plainest way (`reference_judge`) finds
whole. All else is inconclusive, and one that the facts would have allowed to be more is counted as missed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from durability.formats.plan import Plan
from durability.units import parse_run
from durability_client.target.storage import Storage
from durability_client.verify.target_reader import block_bytes_of
from durability_lab.drive.drive_log import Broken
from durability_lab.histories.steps import History
from durability_lab.histories.world import Answer, Cut
from durability_lab.truth.reference_judge import Label, ReferenceJudge

_AT_RISK_NS = 1_000_000_000  # what the judge calls at risk
_STRENGTH = {"os": ("guest", "machine", "drive"), "vm": ("machine", "drive"), "power": ("machine", "drive")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """What one answer was worth. `word`: the verdict, or "none". `wrong`: why it is wrong, or "". `limit`:
    the documented assumption under which it is right, or "". `missed`: the verdict that the facts allowed."""

    word: str
    wrong: str = ""
    limit: str = ""
    missed: str = ""
    reasons: tuple[str, ...] = ()


class Known(Protocol):
    """What a world knows of its history. `armed`: the runs that the server armed on the drive as it is;
    `ended_unheard`: those that stopped writing in a dead network; `failed_with_power`: those whose drive
    failed everything, with power; `shrunk`: someone made the drive smaller; `renamed`: someone gave the
    target another name; `forgotten`: the server's store is an earlier one. `unheard_ns`: the
    most that may lie between a promise and the receipt of its acknowledgement, and between the last frame
    and the cut, together."""

    history: History
    cuts: list[Cut]
    armed: list[int]
    ended_unheard: set[int]
    failed_with_power: set[int]
    shrunk: bool
    renamed: bool
    forgotten: bool
    unheard_ns: int

    @property
    def plans(self) -> Mapping[int, Plan]:
        """Of the runs on the drive, in order."""

    @property
    def reachable(self) -> bool:
        """Whether the target can be read."""

    def promised_ns(self) -> Mapping[int, int]:
        """By run, when the drive last promised an operation."""

    def broken(self) -> Sequence[Broken]:
        """The promises that the drive does not keep, or did not."""

    def smaller(self, run: int) -> bool:
        """Whether the drive has power, and is smaller than it was when the run was armed."""

    def target(self) -> Storage:
        """The target as it can be read now."""


def grade(world: Known, answer: Answer) -> Grade:
    """Compare one answer with the truth."""
    document = answer.document
    if document is None:
        return Grade(word="none", reasons=(answer.why.partition(":")[0],))
    run = parse_run(document["run"])
    word = document["verdict"]
    reasons = tuple(reason["code"] for reason in document["reasons"])
    broken = _broken(world, run)
    smaller = world.smaller(run)
    earlier = "earlier-loss" in reasons
    if word == "loss":
        true = broken or smaller or run in answer.smaller or world.shrunk or earlier
        return Grade(
            word=word, reasons=reasons, wrong="" if true else "loss, and no promise to the run was broken"
        )
    wrong = ""
    armed = [one for one in world.plans if one in world.armed or one in world.promised_ns()]
    # A target with another name does not show whether it rolled back or was put there.
    order = list(world.plans)
    passed_over = run in order and armed and order.index(run) < order.index(armed[-1])
    if not (answer.older or world.forgotten or (world.renamed and word == "inconclusive")) and passed_over:
        wrong = "an older run was judged, although the drive is known for a newer armed one"
    damaged = _damaged(world, answer, run)
    deserved = _qualifying(world, run, document["cut"]["class"])
    if word == "durable":
        limit = ""
        if damaged:
            wrong = f"durable, and the target is damaged: {damaged}"
        elif smaller:
            wrong = "durable, and the drive is smaller than it was"
        elif not deserved:
            limit = _limit(world, answer, run)
            wrong = wrong or ("" if limit else "durable, and no such cut met load")
        return Grade(word=word, reasons=reasons, wrong=wrong, limit=limit)
    missed = (
        "loss"
        if broken and damaged
        else "durable"
        if answer.attested and _qualifying(world, run, "power")
        else ""
    )
    return Grade(word=word, reasons=reasons, wrong=wrong, missed="" if answer.older else missed)


def _broken(world: Known, run: int) -> bool:
    """Whether the drive broke a promise to the run: for a record of a writer, or a superblock."""
    plan = world.plans.get(run)
    if plan is None:
        return False
    for one in world.broken():
        if not one.promised and world.history.target == "file":
            return True  # the file system's own: it may have lost any file with it
        place = Label.of(one.promised).place(plan) if one.promised else None
        if place is not None and place[0] != plan.control_writer:
            return True
    return False


def _damaged(world: Known, answer: Answer, run: int) -> str:
    """What a plain second reading finds wrong with the target of the run, "" for nothing."""
    plan = world.plans.get(run)
    if plan is None or answer.case is None or not world.reachable:
        return ""
    try:
        target = world.target()
        block_bytes = block_bytes_of(target.facts())
        reference = ReferenceJudge(plan, answer.case.frontiers, target, block_bytes=block_bytes)
    except OSError:
        return ""
    return ", ".join(f"{place} {wrong.finding}" for place, wrong in list(reference.wrong.items())[:3])


def _qualifying(world: Known, run: int, cut_class: str) -> bool:
    """Whether something of that class was cut while the run made the drive promise."""
    return any(_met(world, cut, run) and cut.what in _STRENGTH.get(cut_class, ()) for cut in world.cuts)


def _met(world: Known, cut: Cut, run: int) -> bool:
    """Whether the cut came so soon after a promise to the run that a loss of it would be one at risk."""
    return run in cut.promised_ns and cut.at_ns - cut.promised_ns[run] <= _AT_RISK_NS + world.unheard_ns


def _limit(world: Known, answer: Answer, run: int) -> str:
    """The documented assumption that makes a durable right that the truth does not."""
    if run in world.ended_unheard:
        return "stopped writing in a dead network"
    if run in world.failed_with_power:
        return "a drive without a link looks dead"
    silent = [cut.at_ns for cut in world.cuts if cut.what == "guest" and _met(world, cut, run)]
    if silent and any(cut.what != "guest" and cut.at_ns > silent[0] for cut in world.cuts):
        return "the system died before the power went"
    false = answer.step["attest"] == "false"
    if false and not world.history.counters and any(_met(world, cut, run) for cut in world.cuts):
        return "a false attestation"
    return ""


def listing(world: Known, answers: list[Answer], listed: dict[int, str]) -> Iterator[str]:
    """Where `runs` does not show the weightiest verdict that was stored."""
    weight = {"loss": 3, "durable": 2, "inconclusive": 1}
    best: dict[int, str] = {}
    for answer in answers:
        if answer.document is None or answer.exported:
            continue
        run, word = parse_run(answer.document["run"]), answer.document["verdict"]
        if weight[word] > weight.get(best.get(run, ""), 0):
            best[run] = word
    for run, word in best.items():
        if run in listed and listed[run] != word:
            yield f"`runs` shows {listed[run] or 'nothing'}, though the weightiest verdict was {word}"
