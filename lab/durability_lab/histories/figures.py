"""Whether the figures beside a verdict are true: counts, records at risk, the loss window, the series.

Each is compared with what the drive promised and when, or with a second reading of the target
(`reference_judge`), and shares no code with what made it. Exact where the truth is: lost operations, lost
prefill and losses of the control arm are as many as a second reading has. Else bounded on the side that
matters: no more may be acknowledged, lost or at risk than the drive promised, broke and promised lately; no
more cuts may be counted than there were; and the true loss lies within the loss window. `series` counts
cuts and losses again.

Refuses to say anything of what it does not know: removals leave no record, and an operation on names is not
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
# At most between the promise of a record and the receipt of its acknowledgement, and between the last frame
# and the cut, together: on a device two syncs and a heartbeat; on a file system those of other writers too.
_DEVICE_NS = 80 * _NS_PER_MS
_FILE_NS = 250 * _NS_PER_MS
_WINDOWS_MS = (1, 10, 100, 1000)


@dataclass(slots=True)
class PromisedOperations:
    """What a drive promised of one run. `first_ns`: by writer and seq, when it first promised that record;
    `last_ns`: by place, when it last promised one there. `written`: by writer, the newest record that it has
    accepted."""

    first_ns: dict[tuple[int, int], int] = field(default_factory=dict)
    last_ns: dict[Place, int] = field(default_factory=dict)
    written: dict[int, int] = field(default_factory=dict)

    def accept(self, writer: int, seq: int) -> None:
        """The drive has accepted a record."""
        self.written[writer] = max(seq, self.written.get(writer, 0))

    def promise(self, writer: int, slot: int, seq: int, now_ns: int) -> None:
        """The drive promises one."""
        self.first_ns.setdefault((writer, seq), now_ns)
        self.last_ns[writer, slot] = now_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureTruth:
    """What is known of the run of a verdict. `promised`: see there; None where nobody noted it. `reference`:
    a second reading by the same log, of a target that was read to its end; None where there is none.
    `broken`: how many slots have a broken promise of an operation at most; None where it is not known.
    `cuts`: how often anything was cut, or made smaller. `cuts_ns`: those that may be behind a durable
    verdict. `sound_ns`: the cut of a run to which nothing else happened, None for another run. `ended_ns`:
    each cut that may have ended a run, whatever else happened to it; none if none did, or if its end is one
    of a documented assumption."""

    plan: Plan
    promised: PromisedOperations | None
    reference: ReferenceJudge | None
    broken: int | None
    cuts: int
    cuts_ns: Sequence[int]
    sound_ns: int | None
    ended_ns: Sequence[int]


def untrue(document: Mapping[str, Any], truth: FigureTruth) -> Iterator[str]:
    """Each figure of the document of a `verify` that is not true, as a sentence."""
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
    """What a second reading has another number of."""
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
    if truth.promised is not None:  # else a kernel may write back meanwhile what nobody synced
        true = reference.control_lost(control["completed"])
        counted["losses of the control arm"] = control["lost"], true
    if not plan.contract.needs_file:
        counted["checked slots"] = document["checked"], plan.writers * plan.slots
    for name, (said, there) in counted.items():
        if said != there:
            yield f"{said} {name}, and a second reading has {there}"


def _untrue_series(strength: Mapping[str, Any], cuts: int) -> Iterator[str]:
    """A cut counts once at most, and those that count bound the next one as rule 16 says."""
    if strength["losses"] > strength["cuts"] or strength["cuts"] > cuts:
        yield f"a series of {strength['cuts']} cuts, {strength['losses']} with a loss, after {cuts} cuts"
    yield from untrue_bound(strength)


def _slack_ns(plan: Plan) -> int:
    return _DEVICE_NS if plan.target_kind == "device" else _FILE_NS


def _untrue_risk(
    document: Mapping[str, Any], truth: FigureTruth, promised: PromisedOperations
) -> Iterator[str]:
    """No more slots are at risk than were promised that shortly before the cut."""
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
    """The oldest loss lies within the window, and no fewer operations were acknowledged since, by one of the
    moments of the cut."""
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
    behind: dict[int, int] = {}  # by writer, the oldest operation that is known to be lost
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
