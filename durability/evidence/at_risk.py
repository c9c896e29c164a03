"""What the cut could have cost: records at risk and the loss window (rules 12 to 14).

A cut tests a drive only if it met writes that a volatile cache could still have held. So records at risk are
counted back from the last moment at which the drive must be assumed to have had power. All times are the
server's receipt times. The time of the cut is known only as an interval. This module does not compare times
of two boots of the server, and does not estimate a time that the evidence does not give.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from durability.evidence.cut import off_as_seen, sent_ns
from durability.formats.case import (
    KERNEL_ALIVE,
    LOST_SIGHT,
    REBOOT,
    TRACES_OF_A_CUT,
    Case,
    DriveState,
    Receipt,
)
from durability.formats.mixing import U64
from durability.formats.plan import Plan
from durability.formats.versions import Versions

WINDOWS_MS = (1, 10, 100, 1000)
_MS = 1_000_000

# Why the time at which the drive lost power is unknown, by the drive's state after the target's I/O error.
_UNKNOWN: Mapping[DriveState, str] = {
    "answered": "the drive still answered after the I/O error, so its power went at an unknown later time",
    "silent": "after the I/O error a read of the drive did not return, so its power went at an unknown time",
    "unseen": "the client did not see the drive after the I/O error, so its power went at an unknown time",
}

_OTHER_CLOCK = (
    "the switch was logged on another machine or in another boot than the run, so the time from the last"
    " frame to the cut is unknown"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AtRisk:
    """Number of slots whose newest operation was acknowledged within 1, 10, 100, 1000 ms before the last
    moment with power. That is the last moment at which the drive must be assumed to have had power. Only
    slots whose loss would show are counted. An operation of `create` counts once, as the name that it
    makes."""

    ms1: int
    ms10: int
    ms100: int
    ms1000: int
    # Writers that may have waited for credit before the cut; their slots are not counted.
    stalled: tuple[int, ...]
    unknown: str = ""  # why that moment is unknown, in which case nothing is counted; "" if it is known


@dataclass(frozen=True, slots=True, kw_only=True)
class LossWindow:
    """How far back acknowledged data are gone: in ms before the cut, and in acknowledged operations. `ms_max`
    is None if the longest time is unknown. `operations` is an upper bound then."""

    ms_min: float
    ms_max: float | None
    operations: int


def at_risk(case: Case, plan: Plan, *, may_be_done: Sequence[int]) -> AtRisk:
    """The records at risk (rule 13). `may_be_done`: per writer, the newest operation that the target may
    show. An absent name can be how it shows."""
    stalled = _stalled(case, plan, may_be_done)
    power_ns = last_power_ns(case)
    if power_ns is None:
        return AtRisk(ms1=0, ms10=0, ms100=0, ms1000=0, stalled=stalled, unknown=_unknown(case))
    running = [writer for writer in range(plan.writers) if writer not in stalled]
    versions = Versions(plan)
    counts = [
        sum(_exposed(versions, plan, writer, since[writer], case.frontiers[writer]) for writer in running)
        for since in (frontiers_at(case, plan, power_ns - window * _MS) for window in WINDOWS_MS)
    ]
    return AtRisk(ms1=counts[0], ms10=counts[1], ms100=counts[2], ms1000=counts[3], stalled=stalled)


def _stalled(case: Case, plan: Plan, may_be_done: Sequence[int]) -> tuple[int, ...]:
    """The writers that may have waited for credit. It need not be known which grant was the last to
    arrive."""
    whole_groups = plan.credit // plan.group * plan.group
    possible = case.credits or (case.grants,)
    limits = [[grants[writer] + whole_groups for grants in possible] for writer in range(plan.writers)]
    # All operations of a waiting writer may have been acknowledged. Then the target shows nothing newer.
    newest = [max(seen, acked) for seen, acked in zip(may_be_done, case.frontiers, strict=True)]
    return tuple(
        writer for writer, seen in enumerate(newest) if seen in limits[writer] or seen >= limits[writer][-1]
    )


def last_power_ns(case: Case) -> int | None:
    """The last moment at which the drive must be assumed to have had power, or None if it is unknown.

    Without a controller's log, this is the last frame of any kind, because the machine had power then. A
    client that ended with an I/O error of the target was still alive after that moment. If the drive was then
    found dead, the moment is the time of the error, because until then the drive may have hung and drained
    its cache. If the drive was not found dead, it may have had power for any time after the last frame, so
    the moment is unknown.

    The log of a power controller adds two limits. The drive had power until the controller was asked, and had
    none after off was confirmed, unless the drive itself shows that it had. The moment is the confirmation if
    the client does not show it, or fell silent too early. A cut of the drive alone leaves its client alive.
    So a client that did not find such a drive dead fell silent for another reason, and the confirmation
    counts here, too. If the controller's log has another clock, the moment is unknown.
    """
    if case.off_by_another_clock:
        return None
    seen_ns, off = _last_seen_ns(case), off_as_seen(case)
    if off is None:
        return seen_ns
    unexplained = off.subject == "drive" and _drive_seen(case) != "dead"
    if seen_ns is None or unexplained or seen_ns + _allowance_ns(case) < off.asked_ns:
        return off.confirmed_ns
    # An outage can enlarge the allowance. That must not hide that power was on until the controller was
    # asked.
    return min(max(seen_ns, off.asked_ns), off.confirmed_ns)


def _last_seen_ns(case: Case) -> int | None:
    """The last moment with power that the client's frames or its error report show; None if they show
    none."""
    if case.session_end != "target-error":
        return case.last_receipt_ns
    if case.target_error is None or case.target_error.drive != "dead":
        return None
    return case.target_error.at_ns


def _allowance_ns(case: Case) -> int:
    """The longest time for which the server may receive nothing from a client that has power."""
    return max(case.heartbeat_ns + case.rtt_max_ns, case.gap_max_ns)


def _unknown(case: Case) -> str:
    """Why the last moment with power is unknown."""
    return _OTHER_CLOCK if case.off_by_another_clock else _UNKNOWN[_drive_seen(case)]


def _drive_seen(case: Case) -> DriveState:
    return "unseen" if case.target_error is None else case.target_error.drive


def frontiers_at(case: Case, plan: Plan, at_ns: int) -> tuple[int, ...]:
    """The frontiers that may have been acknowledged by `at_ns`, per writer. They combine the newest stored
    receipt before `at_ns` with frontiers that came late and may be older. The receipt that brought late
    frontiers need not be stored."""
    if not case.timeline:
        return case.frontiers
    at_ns = max(1, at_ns)  # a receipt of an earlier boot of the server has the time 0
    position = bisect_left(case.timeline, at_ns, key=lambda receipt: receipt.at_ns)
    frontiers = case.timeline[position - 1].frontiers if position else (0,) * plan.writers
    for held in case.held_up:
        if held.from_ns <= at_ns:
            frontiers = tuple(map(max, frontiers, held.frontiers))
    return frontiers


def _exposed(versions: Versions, plan: Plan, writer: int, since: int, acked: int) -> int:
    """How many slots have their newest possible operation in (since, acked]. No later operation can hide the
    loss of these."""
    ceiling = acked + plan.credit
    gone = acked - 2 * plan.slots  # two passes visit every slot at least once
    if plan.contract.layout == "log":  # the older files may be removed already
        gone = (ceiling // plan.slots - 1) * plan.slots
    first = max(since, gone, 0) + 1
    seqs = np.arange(first, acked + 1, dtype=U64)
    if not len(seqs):
        return 0
    newest = versions.newest(writer, versions.slots_of(writer, seqs), ceiling)
    return int(np.count_nonzero(newest == seqs))


def cut_interval_ns(case: Case) -> tuple[int, int | None] | None:
    """The earliest and latest time of the cut, on the clock of the receipts (rule 14). The interval is None
    if unknown; its latest time alone can be None too. After an I/O error, the drive may have been dead since
    its last acknowledgement, unless it answered later. That acknowledgement may itself have come late."""
    power_ns = last_power_ns(case)
    if power_ns is None:
        return None
    off = off_as_seen(case)
    if off is not None and power_ns == off.confirmed_ns:
        return off.asked_ns, power_ns
    earliest, latest = _seen_interval_ns(case, power_ns)
    if off is None:
        return earliest, latest
    latest = off.confirmed_ns if latest is None else min(latest, off.confirmed_ns)
    return min(max(earliest, off.asked_ns), latest), latest


def _seen_interval_ns(case: Case, power_ns: int) -> tuple[int, int | None]:
    """The earliest and latest time of the cut as the client showed it. The latest is None if the server lost
    sight of the client, so that it is unknown how long the client's machine had power."""
    earliest = case.last_receipt_ns
    if case.held_up and case.last_receipt_ns <= case.held_up[-1].until_ns:  # the last frame came late
        earliest = min(earliest, case.held_up[-1].from_ns)
    # A client that stood still says nothing about its drive. The drive alone may have lost power meanwhile.
    seen = _last_sign(case) if case.session_end == "silence" else ""
    if case.timeline and (
        seen in (KERNEL_ALIVE, LOST_SIGHT) or (case.failed and _drive_seen(case) != "answered")
    ):
        earliest = sent_ns(case, case.timeline[-1])
    earliest -= _flight_ns(case)
    if case.session_end == "target-error":
        return earliest, max(power_ns, earliest)
    return earliest, None if seen == LOST_SIGHT else power_ns + _allowance_ns(case)


def _flight_ns(case: Case) -> int:
    """The longest time for which the last frame may have been in transit. A run whose first heartbeat was not
    answered has no round-trip time, but it was armed before the cut."""
    if case.rtt_max_ns:
        return case.rtt_max_ns
    armed = [event.at_ns for event in case.events if event.kind == "armed"]
    return max(0, case.last_receipt_ns - armed[-1]) if armed else 0


def _last_sign(case: Case) -> str:
    """The kind of the newest event that shows the client's state: its kernel was alive, the server ended
    then, the client was heard again, or a new session began. "" if there is no such event."""
    kinds = (KERNEL_ALIVE, LOST_SIGHT, "heard-again", "session")
    return next((one.kind for one in reversed(case.events) if one.kind in kinds), "")


def loss_window(case: Case, *, proven: Sequence[int], oldest_lost: Sequence[int | None]) -> LossWindow | None:
    """The time from the receipt of the oldest lost acknowledgement to the cut, over all writers.
    `oldest_lost`: per writer, the first acknowledged operation that was found lost, or None. Returns None if
    nothing is lost, if no cut ended the session, or if the time of the cut is unknown."""
    lost = [(writer, seq) for writer, seq in enumerate(oldest_lost) if seq is not None]
    interval = cut_interval_ns(case)
    if not lost or interval is None or case.session_end not in TRACES_OF_A_CUT:
        return None
    earliest, latest = interval
    received = [_received_ns(case, writer, seq, latest) for writer, seq in lost]
    first = min(_position(case.timeline, writer, seq) for writer, seq in lost)
    before = sum(case.timeline[first - 1].frontiers) if first else 0
    known = [early for early, _ in received if early is not None]
    latest_known = [late for _, late in received if late is not None]
    longest_ns = max(0, latest - min(known)) if latest is not None and len(known) == len(received) else None
    return LossWindow(
        ms_min=max(0, earliest - min(latest_known, default=earliest)) / _MS,
        ms_max=longest_ns / _MS if longest_ns is not None else None,
        operations=sum(proven) - before,
    )


def _position(timeline: Sequence[Receipt], writer: int, seq: int) -> int:
    """The index of the first receipt that covers `seq` of `writer`; the length of the timeline if there is
    none."""
    return bisect_left(timeline, seq, key=lambda receipt: receipt.frontiers[writer])


def _received_ns(case: Case, writer: int, seq: int, latest: int | None) -> tuple[int | None, int | None]:
    """The earliest and latest time at which the acknowledgement of `seq` was received. If no receipt covers
    `seq`, `latest` (the latest time of the cut, None if unknown) is the latest time. An acknowledgement is
    not older than the frame before it, which may itself have come late. A receipt time of 0 means that the
    receipt came before the server's current clock began. The earliest time is None if it is unknown."""
    position = _position(case.timeline, writer, seq)
    late = case.timeline[position].at_ns if position < len(case.timeline) else latest
    if late == 0:
        began_ns = _clock_began_ns(case)
        late = began_ns if latest is None else min(began_ns, latest)
    early = sent_ns(case, case.timeline[position - 1]) if position else _first_ns(case, late or 0)
    return early or None, late


def _first_ns(case: Case, late: int) -> int:
    """The earliest time at which the first acknowledgements can have been received: not before the run was
    armed. 0 if that was before this clock began, or if it is unknown."""
    kinds = [event.kind for event in case.events if event.kind in ("armed", REBOOT)]
    if REBOOT in kinds[kinds.index("armed") if "armed" in kinds else 0 :]:
        return 0
    armed = [event.at_ns for event in case.events if event.kind == "armed"]  # the oldest events are not kept
    first = sent_ns(case, case.timeline[0]) if case.timeline else late if armed else 0
    return min([first, *armed])


def _clock_began_ns(case: Case) -> int:
    """The first known moment of the server's clock after its machine restarted, or after the run moved to
    another server."""
    restarts = [event.at_ns for event in case.events if event.kind == REBOOT]
    received = (one.at_ns for one in case.timeline if one.at_ns)
    return restarts[-1] if restarts else next(received, case.last_receipt_ns)
