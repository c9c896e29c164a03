"""What the cut could have cost: records at risk and the loss window (rules 12 to 14).

A cut tests a drive only if it met writes that a volatile cache could still have held. So what is at risk is
counted back from the last moment at which the drive must be assumed to have had power. All times are those of
the server's receipts; the time of the cut is known only as an interval. Refuses to compare times of two boots
of the server, and to guess a moment that the evidence does not give.
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

# Why it is not known until when the drive had power, by what was seen of it after the target's I/O error.
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
    """How many slots' newest operation was acknowledged within 1, 10, 100, 1000 ms of the last moment at
    which the drive must be assumed to have had power. Only slots whose loss would show; an operation of
    `create` counts once, as the name that it makes. `stalled`: writers that may have waited for credit before
    the cut, and so are not counted. `unknown`: why that moment is not known, so that nothing is counted."""

    ms1: int
    ms10: int
    ms100: int
    ms1000: int
    stalled: tuple[int, ...]
    unknown: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossWindow:
    """How far back acknowledged data are gone: in ms before the cut, and in acknowledged operations. `ms_max`
    None: it is not known, and `operations` is the most that it can be."""

    ms_min: float
    ms_max: float | None
    operations: int


def at_risk(case: Case, plan: Plan, *, may_be_done: Sequence[int]) -> AtRisk:
    """Rule 13. `may_be_done`: per writer, the newest operation that the target may show, be it by an absent
    name."""
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
    """The writers that may have waited for credit. Which grant was the last to arrive need not be known."""
    whole_groups = plan.credit // plan.group * plan.group
    possible = case.credits or (case.grants,)
    limits = [[grants[writer] + whole_groups for grants in possible] for writer in range(plan.writers)]
    # Of a writer that waited, all may have been acknowledged: then the target shows nothing newer.
    newest = [max(seen, acked) for seen, acked in zip(may_be_done, case.frontiers, strict=True)]
    return tuple(
        writer for writer, seen in enumerate(newest) if seen in limits[writer] or seen >= limits[writer][-1]
    )


def last_power_ns(case: Case) -> int | None:
    """The last moment at which the drive must be assumed to have had power, None where it is not known.

    It is the last frame of any kind, because the machine had power then. A client that ended with an I/O
    error of the target outlived that moment: it is the error where the drive was then seen dead, since until
    then the drive may have hung and drained its cache. Where it was not seen dead it may have had power for
    any time after the last frame. The log of a power controller tells what the client could not: it had power
    until the controller was asked, must be assumed to have had it until off was confirmed, and
    had none after that, unless the drive itself shows that it had. A drive that is cut alone leaves its
    client alive: one that did not see it dead fell silent for another reason, and says nothing of the drive.
    Where that log has another clock, it may have had power for any time.
    """
    if case.off_by_another_clock:
        return None
    seen_ns, off = _last_seen_ns(case), off_as_seen(case)
    if off is None:
        return seen_ns
    unexplained = off.subject == "drive" and _drive_seen(case) != "dead"
    if seen_ns is None or unexplained or seen_ns + _allowance_ns(case) < off.asked_ns:
        return off.confirmed_ns
    # An allowance that grew by an outage must not hide that the power was on until the controller was asked.
    return min(max(seen_ns, off.asked_ns), off.confirmed_ns)


def _last_seen_ns(case: Case) -> int | None:
    """The last moment with power as the client showed it."""
    if case.session_end != "target-error":
        return case.last_receipt_ns
    if case.target_error is None or case.target_error.drive != "dead":
        return None
    return case.target_error.at_ns


def _allowance_ns(case: Case) -> int:
    """How long a client that has power may say nothing, as the server sees it."""
    return max(case.heartbeat_ns + case.rtt_max_ns, case.gap_max_ns)


def _unknown(case: Case) -> str:
    """Why the last moment of power is not known."""
    return _OTHER_CLOCK if case.off_by_another_clock else _UNKNOWN[_drive_seen(case)]


def _drive_seen(case: Case) -> DriveState:
    return "unseen" if case.target_error is None else case.target_error.drive


def frontiers_at(case: Case, plan: Plan, at_ns: int) -> tuple[int, ...]:
    """What may have been acknowledged by `at_ns`, per writer: the frontiers of the newest kept receipt before
    it, and those that came late and may be older. The receipt that brought those need not be kept."""
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
    """Slots whose newest possible operation lies in (since, acked]: no later one can hide its loss."""
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
    """When the cut was, earliest and latest, on the clock of the receipts (rule 14); None where that is not
    known, or only the earliest. After an I/O error the drive may have been dead since its last
    acknowledgement, unless it answered later; and that may have come late."""
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
    """When the cut was as the client showed it, earliest and latest; None if nobody saw for how long its
    machine had power."""
    earliest = case.last_receipt_ns
    if case.held_up and case.last_receipt_ns <= case.held_up[-1].until_ns:  # the last frame came late
        earliest = min(earliest, case.held_up[-1].from_ns)
    # A client that stood still says nothing of its drive, which may have lost its power alone meanwhile.
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
    """How long the last frame may have been under way. A run whose first heartbeat was not answered has no
    round trip; but it was armed before the cut."""
    if case.rtt_max_ns:
        return case.rtt_max_ns
    armed = [event.at_ns for event in case.events if event.kind == "armed"]
    return max(0, case.last_receipt_ns - armed[-1]) if armed else 0


def _last_sign(case: Case) -> str:
    """What was seen last of a client that fell silent: that its kernel is alive, that the server ended then,
    or neither."""
    kinds = (KERNEL_ALIVE, LOST_SIGHT, "heard-again", "session")
    return next((one.kind for one in reversed(case.events) if one.kind in kinds), "")


def loss_window(case: Case, *, proven: Sequence[int], oldest_lost: Sequence[int | None]) -> LossWindow | None:
    """The cut less the receipt of the oldest lost acknowledgement, over all writers. `oldest_lost`: per
    writer the first acknowledged operation that was found lost, None if none was. None where nothing is lost,
    or no cut ended the session, or the time of the cut is not known."""
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
    """The first receipt that covers `seq` of `writer`; the length of the timeline if none does."""
    return bisect_left(timeline, seq, key=lambda receipt: receipt.frontiers[writer])


def _received_ns(case: Case, writer: int, seq: int, latest: int | None) -> tuple[int | None, int | None]:
    """When the acknowledgement of `seq` was received, earliest and latest; by the cut where it never was, of
    which nobody may know the `latest`. It is not older than the frame before it, which may have come late.
    What has the time 0 came before this clock began, nobody knows when: the earliest is None then."""
    position = _position(case.timeline, writer, seq)
    late = case.timeline[position].at_ns if position < len(case.timeline) else latest
    if late == 0:
        began_ns = _clock_began_ns(case)
        late = began_ns if latest is None else min(began_ns, latest)
    early = sent_ns(case, case.timeline[position - 1]) if position else _first_ns(case, late or 0)
    return early or None, late


def _first_ns(case: Case, late: int) -> int:
    """When the first acknowledgements were received, at the earliest: not before the run was armed. 0 if that
    was before this clock began, or nobody knows."""
    kinds = [event.kind for event in case.events if event.kind in ("armed", REBOOT)]
    if REBOOT in kinds[kinds.index("armed") if "armed" in kinds else 0 :]:
        return 0
    armed = [event.at_ns for event in case.events if event.kind == "armed"]  # the oldest events are not kept
    first = sent_ns(case, case.timeline[0]) if case.timeline else late if armed else 0
    return min([first, *armed])


def _clock_began_ns(case: Case) -> int:
    """The first moment that is known of the server's clock after a restart of its machine, or a move of the
    run to another one."""
    restarts = [event.at_ns for event in case.events if event.kind == REBOOT]
    received = (one.at_ns for one in case.timeline if one.at_ns)
    return restarts[-1] if restarts else next(received, case.last_receipt_ns)
