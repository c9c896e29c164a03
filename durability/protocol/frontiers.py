"""Frontiers: the acknowledgements that a run reports, compared with its grants (rules 2 and 4).

A frontier is the seq up to which every operation of a writer was acknowledged. It moves by whole groups. A
writer may issue up to its last grant plus the plan's credit, so an honest client cannot report more. A report
that breaks these rules moves no frontier of that writer: a frontier that is too low costs evidence, but one
that is too high invents a loss. The report also taints the run, which can no longer be judged durable.
"""

from __future__ import annotations

from collections.abc import Sequence

from durability.errors import ProtocolError
from durability.formats.plan import Plan


class Frontiers:
    """The frontiers of one run as the server has them. `acked` and `grants` are per writer, in seqs.
    `tainted` is the first broken rule as a sentence, or ""."""

    __slots__ = ("_credit", "_group", "acked", "grants", "tainted")

    def __init__(self, plan: Plan, acked: Sequence[int] = ()) -> None:
        """`acked`: the durable frontiers of a run that continues, each of which is a grant; empty for a new
        run."""
        self._group = plan.group
        self._credit = plan.credit
        self.acked = tuple(acked) or (0,) * plan.writers
        self.grants = self.acked
        self.tainted = ""

    def advance(self, frontiers: Sequence[int]) -> bool:
        """Apply a cumulative report. Returns whether any frontier rose. The frontier of a writer whose report
        breaks a rule stays unchanged. Raises ProtocolError if the number of writers differs from the
        plan's."""
        reported = self._counted(frontiers, "Ack")
        if reported == self.acked:
            return False
        before = self.acked
        self.acked = tuple(
            self._advanced(writer, old, new)
            for writer, (old, new) in enumerate(zip(before, reported, strict=True))
        )
        return self.acked != before

    def granted(self, frontiers: Sequence[int]) -> None:
        """Record that these frontiers were made durable and are now sent as `Credit`. Raises ProtocolError
        for a wrong number of writers."""
        durable = self._counted(frontiers, "Credit")
        self.grants = tuple(map(max, self.grants, durable))

    def _advanced(self, writer: int, old: int, new: int) -> int:
        ceiling = self.grants[writer] + self._credit
        if new < old:
            problem = f"fell from {old} to {new}"
        elif new % self._group:
            problem = f"is {new}, which is not a whole number of groups of {self._group}"
        elif new > ceiling:
            problem = f"is {new}, beyond the grant of {self.grants[writer]} and the credit of {self._credit}"
        else:
            return new
        self.tainted = self.tainted or f"the reported frontier of writer {writer} {problem}"
        return old

    def _counted(self, frontiers: Sequence[int], what: str) -> tuple[int, ...]:
        if len(frontiers) != len(self.acked):
            raise ProtocolError(f"{what} of {len(frontiers)} writers in a run of {len(self.acked)}")
        return tuple(frontiers)
