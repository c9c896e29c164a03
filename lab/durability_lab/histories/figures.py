"""Checks the figures of a verdict: counts, records at risk, the loss window, the series.

Each figure is compared with the drive's promises and their times, or with a second reading of the target by
`reference_judge`. No code is shared with the code under test. Lost operations, lost prefill and losses of the
control arm must equal those of the second reading. Other figures are bounded on the side that matters:

    no more operations acknowledged than the drive promised
    no more operations lost than the drive broke promises for
    no more slots at risk than the drive promised shortly before the cut
    no more cuts in the series than there were
    the true loss lies within the loss window

`series` counts cuts and losses again.

Figures without known truth are not checked: removals leave no record, and an operation on files is not
acknowledged when its record is promised.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from durability.formats.plan import Plan
from durability_lab.histories.series import untrue_bound
from durability_lab.truth.reference_judge import SUPERBLOCK, Place, ReferenceJudge

_NS_PER_MS = 1_000_000
# The longest time, in total, between the promise of a record and the receipt of its acknowledgement and
# between the last frame and the cut. On a device: two syncs and a heartbeat; on a file system, the syncs of
# other writers too.
_DEVICE_NS = 80 * _NS_PER_MS
_FILE_NS = 250 * _NS_PER_MS
_WINDOWS_MS = (1, 10, 100, 1000)


@dataclass(slots=True)
class PromisedOperations:
    """The operations of one run that a drive accepted and promised."""

    # By writer and seq: when the drive first promised that record.
    first_ns: dict[tuple[int, int], int] = field(default_factory=dict)
    last_ns: dict[Place, int] = field(default_factory=dict)  # by place: when it last promised a record there
    written: dict[int, int] = field(default_factory=dict)  # by writer: seq of the newest accepted record

    def accept(self, writer: int, seq: int) -> None:
        """Note that the drive has accepted a record."""
        self.written[writer] = max(seq, self.written.get(writer, 0))

    def promise(self, writer: int, slot: int, seq: int, now_ns: int) -> None:
        """Note that the drive promises a record at `now_ns`."""
        self.first_ns.setdefault((writer, seq), now_ns)
        self.last_ns[writer, slot] = now_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureTruth:
    """The truth about the run of a verdict."""

    plan: Plan
    promised: PromisedOperations | None  # None if the promises were not recorded
    reference: ReferenceJudge | None  # a second reading by the same log; None if there is none to compare
    broken: int | None  # most slots that can have a broken promise for an operation; None if unknown
    cuts: int  # most cuts that a series may count
    cuts_ns: Sequence[int]  # times of the cuts on which a durable verdict may be based
    sound_ns: int | None  # time of the cut of a sound run; None for another run
    # Times of the cuts that may have ended the run, whatever else happened to it. Empty if no cut did, or if
    # a documented assumption applies to the run's end.
    ended_ns: Sequence[int]


def untrue(document: Mapping[str, Any], truth: FigureTruth) -> Iterator[str]:
    """A sentence for each wrong figure in the document of a `verify`."""
    yield from _untrue_counts(document, truth)
    if truth.reference is not None:
        yield from _recounted(document, truth, truth.reference)
    yield from _untrue_series(document["strength"], truth.cuts)
    if truth.promised is not None and not truth.plan.contract.by_name:
        yield from _untrue_risk(document, truth, truth.promised)
        yield from _untrue_window(document["loss_window"], truth, truth.promised)


def _untrue_counts(document: Mapping[str, Any], truth: FigureTruth) -> Iterator[str]:
    lost, control, plan = document["lost"], document["control"], truth.plan
    if truth.promised is not None and not plan.contract.absence_may_stall:  # else removals leave no record
        newest: dict[int, int] = {}
        for writer, seq in truth.promised.first_ns:
            newest[writer] = max(seq, newest.get(writer, 0))
        most = sum(newest.get(writer, 0) for writer in range(plan.writers))
        if document["acked"] > most:
            yield f"{document['acked']} operations acknowledged, and the drive promised {most}"
    if truth.promised is not None:
        written = truth.promised.written.get(plan.control_writer, 0)
        if control["completed"] > written:
            yield f"{control['completed']} writes of the control arm, and the drive had {written}"
    if truth.broken is not None and lost["operations"] > truth.broken:
        yield f"{lost['operations']} operations lost, and the drive broke promises in {truth.broken} slots"
    if control["lost"] > control["completed"]:
        yield f"{control['lost']} writes of the control arm lost, of {control['completed']}"
    if document["order_violations"] > sum(document["findings"].values()):
        yield f"{document['order_violations']} order violations, and fewer findings"


def _recounted(document: Mapping[str, Any], truth: FigureTruth, reference: ReferenceJudge) -> Iterator[str]:
    """A sentence for each count that differs from the second reading's."""
    lost, control, plan = document["lost"], document["control"], truth.plan
    prefill = [
        place
        for place, one in reference.wrong.items()  # a name that is back had no prefill
        if place[0] != SUPERBLOCK and not one.expected and one.finding != "resurrected"
    ]
    counted = {
        "lost operations": (lost["operations"], reference.lost_operations()),
        "lost prefill": (lost["prefill"], len(prefill)),
    }
    if truth.promised is not None:  # otherwise a kernel may write back unsynced data meanwhile
        true = reference.control_lost(control["completed"])
        counted["losses of the control arm"] = control["lost"], true
    if not plan.contract.needs_file:
        counted["checked slots"] = document["checked"], plan.writers * plan.slots
    for name, (said, there) in counted.items():
        if said != there:
            yield f"{said} {name}, and a second reading has {there}"


def _untrue_series(strength: Mapping[str, Any], cuts: int) -> Iterator[str]:
    """A sentence if the series counts too many cuts or losses, or its bound does not follow rule 16."""
    if strength["losses"] > strength["cuts"] or strength["cuts"] > cuts:
        yield f"a series of {strength['cuts']} cuts, {strength['losses']} with a loss, after {cuts} cuts"
    yield from untrue_bound(strength)


def _slack_ns(plan: Plan) -> int:
    return _DEVICE_NS if plan.target_kind == "device" else _FILE_NS


def _untrue_risk(
    document: Mapping[str, Any], truth: FigureTruth, promised: PromisedOperations
) -> Iterator[str]:
    """A sentence for each window with more slots at risk than the drive promised in it before the cut."""
    moments = truth.cuts_ns if truth.sound_ns is None else (truth.sound_ns,)
    if not moments:
        return
    for window_ms in _WINDOWS_MS:
        within_ns = window_ms * _NS_PER_MS + _slack_ns(truth.plan)
        most = max(
            sum(
                place[0] < truth.plan.writers and at_ns - last_ns <= within_ns
                for place, last_ns in promised.last_ns.items()
            )
            for at_ns in moments
        )
        said = document["at_risk"][f"ms{window_ms}"]
        if said > most:
            yield f"{said} at risk within {window_ms} ms, and the drive promised {most} slots so lately"


def _untrue_window(
    window: Mapping[str, Any] | None, truth: FigureTruth, promised: PromisedOperations
) -> Iterator[str]:
    """Sentences if no possible time of the cut fits the loss window and its number of operations."""
    if window is None or truth.reference is None:
        return
    wrong = [
        list(_untrue_since(window, truth.plan, truth.reference, promised, cut_ns))
        for cut_ns in truth.ended_ns
    ]
    if wrong and all(wrong):
        yield from wrong[0]


def _untrue_since(
    window: Mapping[str, Any],
    plan: Plan,
    reference: ReferenceJudge,
    promised: PromisedOperations,
    cut_ns: int,
) -> Iterator[str]:
    slack_ms = _slack_ns(plan) / _NS_PER_MS
    longest_ms = math.inf if window["ms_max"] is None else window["ms_max"] + slack_ms
    ages_ms: list[float] = []
    behind: dict[int, int] = {}  # by writer: the oldest operation that is known to be lost
    for (writer, _), oldest, _ in reference.losses():
        ages_ms.append((cut_ns - promised.first_ns.get((writer, oldest), 0)) / _NS_PER_MS)
        behind[writer] = min(oldest, behind.get(writer, oldest))
    if not ages_ms or window["ms_min"] > max(ages_ms):
        yield f"a loss of {window['ms_min']} ms at least, and the oldest is of {max(ages_ms, default=0)} ms"
    since = 0
    for writer, oldest in behind.items():
        age_ms = (cut_ns - promised.first_ns.get((writer, oldest), 0)) / _NS_PER_MS
        if age_ms > longest_ms:
            yield f"a loss of {window['ms_max']} ms at most, and one is of {age_ms} ms"
        since += reference.proven[writer] - oldest + 1
    most = sum(
        writer < plan.writers and (cut_ns - at_ns) / _NS_PER_MS <= longest_ms
        for (writer, _), at_ns in promised.first_ns.items()
    )
    if not since <= window["operations"] <= most:
        yield f"{window['operations']} operations since the oldest loss, and there are {since} to {most}"
