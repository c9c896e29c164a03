"""Cause: why a commit takes longer in one result than in another, as far as the controls show.

W is a direct write and C is the same write with its sync (see `plausibility`), so C - W is the cost of the
flush. The difference between two values of C is split into write and flush. No cause is named if a control is
missing or disturbed, or if the rounds are few or overlap. Nor is it named if the difference is small, or if
the rates do not show it. The flush of a drive that got no flush is not blamed. A property of both drives
explains nothing.
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

TIMES_MIN = 1.2  # a cause is named only if the slower commit takes at least this multiple of the faster one
SHARE_MIN = 0.5  # share of the difference from which on the flush is named as the cause, else the write


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of two results. Times are medians in nanoseconds."""

    label: str
    write_ns: float  # W
    flush_ns: float | None  # F0, None if not measured
    commit_ns: float  # C
    w_range: tuple[float, float]  # lowest and highest median of a round of W
    c_range: tuple[float, float]  # lowest and highest median of a round of C
    code: Code  # verdict on the plausibility
    proof: Proof | None


def cause(
    first: tuple[str, Result, Proof | None],
    other: tuple[str, Result, Proof | None],
    ratio: Ratio | None = None,
) -> str:
    """The cause of the difference between two results, as a sentence. Each result comes with its label and
    its proof. `ratio`: commits per second of `other` divided by those of `first`, None if not measured. The
    sentence is "" if the figures show no cause, or if `ratio` does not show the difference."""
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
    # If no flush was sent, the controls do not show why the sync takes long.
    return "" if slow.code == "no-flush-sent" else said


def _side(label: str, result: Result, proof: Proof | None) -> Side | None:
    controls, code = controls_of(result), plausibility(result).code
    if not controls.write_ns or not controls.commit_ns:
        return None
    # If no flush was sent, W and C are still valid: then doubts about F0 and the flush counts do not matter.
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
    """Why the flush is expensive on one side and cheap on the other, if the plausibility verdicts differ."""
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
