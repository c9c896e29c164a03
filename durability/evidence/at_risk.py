"""What the cut could have cost: records at risk and the loss window (rules 12 to 14).

A cut tests a drive only if it met writes that a volatile cache could still have held. All times are those of
the server's receipts; the time of the cut is known only as an interval. Refuses to compare times of two boots
of the server.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from durability.formats.case import Case, Receipt
from durability.formats.mixing import U64
from durability.formats.plan import Plan
from durability.formats.versions import Versions

WINDOWS_MS = (1, 10, 100, 1000)
_MS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AtRisk:
    """How many slots' newest operation was acknowledged within 1, 10, 100, 1000 ms of the last receipt. Only
    slots whose loss would show; an operation of `create` counts once, as the name that it makes. `stalled`:
    writers that may have waited for credit before the cut, and so are not counted."""

    ms1: int
    ms10: int
    ms100: int
    ms1000: int
    stalled: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossWindow:
    """How far back acknowledged data are gone: in ms before the cut, and in acknowledged operations."""

    ms_min: float
    ms_max: float
    operations: int


def at_risk(case: Case, plan: Plan, *, newest_seen: Sequence[int]) -> AtRisk:
    """Rule 13. `newest_seen`: per writer, the newest operation that the target shows to have been done."""
    stalled = _stalled(case, plan, newest_seen)
    running = [writer for writer in range(plan.writers) if writer not in stalled]
    versions = Versions(plan)
    counts = [
        sum(_exposed(versions, plan, writer, since[writer], case.frontiers[writer]) for writer in running)
        for since in (_frontiers_before(case, plan, window * _MS) for window in WINDOWS_MS)
    ]
    return AtRisk(ms1=counts[0], ms10=counts[1], ms100=counts[2], ms1000=counts[3], stalled=stalled)


def _stalled(case: Case, plan: Plan, newest_seen: Sequence[int]) -> tuple[int, ...]:
    """The writers that may have waited for credit. Which grant was the last to arrive need not be known."""
    whole_groups = plan.credit // plan.group * plan.group
    possible = case.credits or (case.grants,)
    limits = [[grants[writer] + whole_groups for grants in possible] for writer in range(plan.writers)]
    # Of a writer that waited, all may have been acknowledged: then the target shows nothing newer.
    newest = [max(seen, acked) for seen, acked in zip(newest_seen, case.frontiers, strict=True)]
    return tuple(
        writer for writer, seen in enumerate(newest) if seen in limits[writer] or seen >= limits[writer][-1]
    )


def _last_sign_ns(case: Case) -> int:
    """When the load was last seen to go on: the last frame of any kind. After an I/O error of the target
    frames go on without load, so there it is the last acknowledgement."""
    if case.session_end == "target-error" and case.timeline:
        return case.timeline[-1].at_ns
    return case.last_receipt_ns


def _frontiers_before(case: Case, plan: Plan, window_ns: int) -> tuple[int, ...]:
    """The frontiers of the newest kept receipt more than `window_ns` older than the last sign of load."""
    if not case.timeline:
        return case.frontiers
    start = _last_sign_ns(case) - window_ns
    position = bisect_left(case.timeline, start, key=lambda receipt: receipt.at_ns)
    return case.timeline[position - 1].frontiers if position else (0,) * plan.writers


def _exposed(versions: Versions, plan: Plan, writer: int, since: int, acked: int) -> int:
    """Slots whose newest possible operation lies in (since, acked]: no later one can hide its loss."""
    first = max(since, acked - 2 * plan.slots) + 1  # two passes visit every slot at least once
    seqs = np.arange(first, acked + 1, dtype=U64)
    if not len(seqs):
        return 0
    newest = versions.newest(writer, versions.slots_of(writer, seqs), acked + plan.credit)
    return int(np.count_nonzero(newest == seqs))


def cut_interval_ns(case: Case) -> tuple[int, int]:
    """When the cut was, earliest and latest, on the clock of the receipts (rule 14)."""
    earliest = _last_sign_ns(case) - case.rtt_max_ns
    return earliest, case.last_receipt_ns + max(case.heartbeat_ns + case.rtt_max_ns, case.gap_max_ns)


def loss_window(case: Case, *, proven: Sequence[int], oldest_lost: Sequence[int | None]) -> LossWindow | None:
    """The cut less the receipt of the oldest lost acknowledgement, over all writers. `oldest_lost`: per
    writer the first acknowledged operation that was found lost, None if none was. None where nothing is lost,
    or no cut ended the session."""
    lost = [(writer, seq) for writer, seq in enumerate(oldest_lost) if seq is not None]
    if not lost or case.session_end not in ("silence", "target-error"):
        return None
    earliest, latest = cut_interval_ns(case)
    received = [_received_ns(case, writer, seq, latest) for writer, seq in lost]
    first = min(_position(case.timeline, writer, seq) for writer, seq in lost)
    before = sum(case.timeline[first - 1].frontiers) if first else 0
    return LossWindow(
        ms_min=max(0, earliest - min(late for _, late in received)) / _MS,
        ms_max=max(0, latest - min(early for early, _ in received)) / _MS,
        operations=sum(proven) - before,
    )


def _position(timeline: Sequence[Receipt], writer: int, seq: int) -> int:
    """The first receipt that covers `seq` of `writer`; the length of the timeline if none does."""
    return bisect_left(timeline, seq, key=lambda receipt: receipt.frontiers[writer])


def _received_ns(case: Case, writer: int, seq: int, latest: int) -> tuple[int, int]:
    """When the acknowledgement of `seq` was received, earliest and latest; by the cut where it never was."""
    position = _position(case.timeline, writer, seq)
    late = case.timeline[position].at_ns if position < len(case.timeline) else latest
    if position:
        return case.timeline[position - 1].at_ns, late
    # Not before the armed event; the time of one in an earlier boot of the server may be later than `late`.
    armed = [event.at_ns for event in case.events if event.kind == "armed"]
    return min(armed[0], late) if armed else late, late
