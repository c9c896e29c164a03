"""Cause: why one result's commit takes longer than another's, as far as the controls tell.

W is a direct write, C the same write and its sync (see `plausibility`), so C - W is what the flush costs. The
difference of two C is split into the write and the flush. Refuses to name a cause where a control is missing
or disturbed, where the rounds are few or overlap, where the difference is small, or where the rates do not
show it; to blame the flush of a drive that got none; and to explain a difference by what both have.
"""

from __future__ import annotations

from dataclasses import dataclass

from durability.bench.catalogue import COMMIT_CONTROL, WRITE_CONTROL
from durability.bench.decision.proof import Proof
from durability.bench.intervals import APART_ROUNDS_MIN, Ratio
from durability.bench.plausibility import (
    REACHES,
    Code,
    control_times,
    controls_of,
    doubts,
    more_written,
    plausibility,
    signed_duration,
)
from durability.bench.result import Result
from durability.units import duration, multiple

TIMES_MIN = 1.2  # one commit to the other: less is not worth a cause
SHARE_MIN = 0.5  # of the difference, for a part to be its cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of two results: W, F0 and C in nanoseconds, medians, F0 None if not measured; `w_range` and
    `c_range`: of the rounds' medians of W and C."""

    label: str
    write_ns: float
    flush_ns: float | None
    commit_ns: float
    w_range: tuple[float, float]
    c_range: tuple[float, float]
    code: Code
    proof: Proof | None


def cause(
    first: tuple[str, Result, Proof | None],
    other: tuple[str, Result, Proof | None],
    ratio: Ratio | None = None,
) -> str:
    """The sentence on two results, each with its label and what cuts said; "" if the figures carry none, or
    if `ratio` does not show that difference: commits per second of `other` as a share of those of `first`, if
    it was measured."""
    sides = [side for one in (first, other) if (side := _side(*one)) is not None]
    if len(sides) < 2 or (ratio is not None and not ratio.is_shown):
        return ""
    fast, slow = sorted(sides, key=lambda side: side.commit_ns)
    if ratio is not None and (ratio.value > 1) != (fast is sides[1]):
        return ""
    times = slow.commit_ns / fast.commit_ns
    if times < TIMES_MIN or fast.c_range[1] >= slow.c_range[0]:
        return ""
    difference_ns = slow.commit_ns - fast.commit_ns
    write_ns = slow.write_ns - fast.write_ns
    share = (difference_ns - write_ns) / difference_ns
    took = f"{duration(slow.commit_ns)} against {duration(fast.commit_ns)}"
    head = f"A commit of {slow.label} takes {multiple(times)} times as long as one of {fast.label} ({took})"
    wrote = f"{duration(slow.write_ns)} against {duration(fast.write_ns)}"
    if share < SHARE_MIN:
        if fast.w_range[1] >= slow.w_range[0]:
            return ""
        part = f"{min(1.0, 1 - share):.0%}"
        return f"{head}: {part} of the difference is the write itself ({wrote}), not the flush"
    although = ""
    if slow.w_range[1] < fast.w_range[0]:
        although = f", although the write alone of {slow.label} is faster ({wrote})"
    part = "all" if share >= 1 else f"{share:.0%}"
    said = f"{head}: {part} of the difference is the flush{_explained(fast, slow)}{although}"
    # The sync of one that got no flush takes its time for a reason that the controls do not know.
    return "" if slow.code == "no-flush-sent" else said


def _side(label: str, result: Result, proof: Proof | None) -> Side | None:
    controls, code = controls_of(result), plausibility(result).code
    if not controls.write_ns or not controls.commit_ns:
        return None
    # Without a flush W and C still are what they are; F0 and the counts of flushes are not looked at.
    held_back = controls.write_share is not None and controls.write_share < REACHES
    disturbed = held_back or more_written(controls) is not None
    if disturbed or (code != "no-flush-sent" and doubts(controls)):
        return None
    if any(len(result.rounds_of(cell.name)) < APART_ROUNDS_MIN for cell in (WRITE_CONTROL, COMMIT_CONTROL)):
        return None
    ranges = {one.symbol: (one.least_ns, one.most_ns) for one in control_times(result)}
    return Side(
        label=label,
        write_ns=controls.write_ns,
        flush_ns=controls.flush_ns,
        commit_ns=controls.commit_ns,
        w_range=ranges["W"],
        c_range=ranges["C"],
        code=code,
        proof=proof,
    )


def _explained(fast: Side, slow: Side) -> str:
    """What makes the flush dear on one side and cheap on the other, where the plausibility tells these."""
    if fast.code == slow.code:
        return ""
    parts = []
    if fast.code == "flush-no-media-work":
        assert fast.flush_ns is not None, "the verdict rests on it"
        times = f"{signed_duration(fast.commit_ns - fast.write_ns)} against {duration(fast.flush_ns)}"
        why = "a protected cache, or an ignored flush"
        if fast.proof is not None and fast.proof.word == "proven":
            why = "and its cuts lost nothing"
        elif fast.proof is not None and fast.proof.word == "lost data":
            why = "and its cuts lost data"
        parts.append(f"costs {fast.label} about as much as an empty flush, {times} ({why})")
    elif fast.code == "no-flush-sent":
        parts.append(f"is not sent to {fast.label}")
    if slow.code == "volatile-cache":
        parts.append(f"{slow.label} pays in full, since it empties a volatile cache")
    return f", which {' and '.join(parts)}" if parts else ""
