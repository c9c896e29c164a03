"""The name oracle: which names may exist after a cut, with which contents, and what is wrong with other
names.

This implements rules 6 to 8 of docs/explanation/evidence.md for `create`, `rename` and `unlink`, whose slots
are files of one record each. Legal content follows from two things: the newest event <= A' of a slot, and the
events in (A', ceiling], which may have been in flight. An event puts a version under the name, or removes the
name. Call the methods in this order:

1. `survey` the files that belong to no slot: the temporaries of `rename`. Their sectors prove operations too.
2. Look up every slot in `slots_to_check`, and `screen` what was found. The names that it calls wrong have the
   same legal content whatever A' becomes: `judge_all` them at once. Look up the slots in flight again that
   showed no whole version (`without_version`), and call `prove_again`.
3. `judge_all` what `in_flight()` returns, with the proven frontiers (A').
4. `note_findings` with what was wrong. `done_beyond` returns how many of the findings a log that is behind
   explains.

Without a server's log (`acked` None), the operations in flight are unlimited. Then `survey` every name before
step 2. A name of `rename` must still hold one whole version that is no older than the target proves to be
acknowledged. A name of `create` that was certainly put is whole or gone; one that was certainly removed is
gone. For `unlink`, nothing is certain. This module does not decide a verdict, and looks up nothing itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from durability import limits
from durability.evidence.judgement import FindingClass, Judgement, describe, version_name
from durability.evidence.observation import EARLIER_RUN, NO_SEQ, Observation, SectorState, Span
from durability.evidence.proven_operations import (
    CLASS_OF_STATE,
    GONE,
    UNSEEN,
    Faults,
    ProvenOperations,
    first_of,
)
from durability.formats.mixing import U64, Words
from durability.formats.plan import Name, Plan, parse_name

MISSING = -1  # the length of a file that is not there
# Findings that operations beyond the ceiling may cause: see `NameOracle.note_findings`.
MAY_BE_EXPLAINED: Final[frozenset[FindingClass]] = frozenset(
    {"absent", "torn", "corrupt", "misdirected", "foreign", "resurrected"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundNames:
    """The content found under a number of names of one writer. Row i is slot `slots[i]`; slots are
    ascending."""

    writer: int
    slots: Words
    # Shape (n,): bytes of each file, as far as it was read; MISSING if the name does not exist.
    lengths: NDArray[np.int64]
    words: Words  # shape (n, record words): first record of each file, meaningless after the file's length
    # By row, the numbers of the sectors whose reads failed; they count as part of the length.
    unreadable: Mapping[int, Collection[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Screened:
    """The result of `NameOracle.screen`."""

    wrong: list[Observation]  # observations to be judged now
    # Observations without a whole version, of slots in flight; `in_flight()` returns them later.
    pending: list[Observation]
    checked: int  # number of names that exist or were compared with an operation


@dataclass(frozen=True, slots=True)
class _Legal:
    """Legal contents under one frontier: arrays by slot.

    A version beyond `newest` is legal, because it comes from one of the events in flight. The events "beyond"
    are those after `newest` that can have been issued.
    """

    newest: Words  # newest event up to the frontier; 0 for the prefill or no event
    holds: NDArray[np.bool_]  # `newest` puts a version
    removal: NDArray[np.bool_]  # events beyond may remove the name
    # Events beyond may remove the name only if operations were issued that cannot be read.
    hidden_removal: NDArray[np.bool_]
    rewrite: NDArray[np.bool_]  # events beyond may make the name anew, so that any content is legal
    in_flight: NDArray[np.bool_]  # there are events beyond

    def absent(self, number: int) -> bool:
        """Whether the name in row `number` may be absent."""
        return bool(~self.holds[number] | self.removal[number] | self.rewrite[number])


class NameOracle(ProvenOperations):
    """Judges one run's names. A' (`proven`) and the newest versions seen rise as observations come in."""

    def __init__(self, plan: Plan, acked: Sequence[int] | None) -> None:
        super().__init__(plan, acked)
        self._absent: list[Words] = [np.empty(0, dtype=U64)] * plan.writers  # slots of findings
        self._odd_names: list[Words] = [np.empty(0, dtype=U64)] * plan.writers

    def slots_to_check(self, writer: int, listed: Words) -> Words:
        """The slots whose names must be looked up, ascending: those that the rules require, and `listed`.
        `listed`: the slots whose names the directory lists, in any order. For `create`, the rules require the
        slots that were not removed before A, up to the ceiling; without a log, none. For other workloads they
        require all slots."""
        asked = range(self.plan.slots)
        if self.plan.contract.endless:
            oldest = max(0, self.acked[writer] - self.plan.slots)
            asked = range(oldest, self.ceiling(writer)) if self.logged else range(0)
        return np.union1d(listed, np.arange(asked.start, asked.stop, dtype=U64))

    def screen(self, lookup: FoundNames) -> Screened:
        """Raise A' by the names found. Keep the observations of slots in flight, and return the names that
        must be judged."""
        writer, slots = lookup.writer, lookup.slots
        held, observed = self._held_and_odd(lookup)
        whole_ones = held[held < GONE]
        if len(whole_ones):
            self._prove(writer, int(whole_ones.max()))
        positions, in_flight = self._in_flight_positions(writer, slots)
        self._held[writer][positions[in_flight]] = held[in_flight]
        self._see_removals(writer, slots[in_flight & (held == GONE)])
        for observation in observed.values():
            self.prove_by(observation)
        suspect = ~self._plainly_legal(writer, slots, held) & ~in_flight
        touched = self._versions.newest(writer, slots, self.acked[writer]) > 0
        accountable = touched | (held != GONE) | self._versions.prefilled(writer, slots)
        return Screened(
            wrong=[self._observed(lookup, held, observed, int(row)) for row in np.flatnonzero(suspect)],
            pending=[one for row, one in observed.items() if in_flight[row]],
            checked=int(np.count_nonzero(accountable)),
        )

    def observe_all(self, lookup: FoundNames) -> list[Observation]:
        """The observation of each name in `lookup`, in order."""
        held, observed = self._held_and_odd(lookup)
        return [self._observed(lookup, held, observed, row) for row in range(len(lookup.slots))]

    def _observed(
        self, lookup: FoundNames, held: Words, observed: Mapping[int, Observation], row: int
    ) -> Observation:
        if row in observed:
            return observed[row]
        return self._observation(lookup.writer, int(lookup.slots[row]), held[row])

    def _held_and_odd(self, lookup: FoundNames) -> tuple[Words, dict[int, Observation]]:
        """The whole version that each name holds (GONE: no name; UNSEEN: neither), and by row the
        observations of UNSEEN names."""
        record_bytes = self.plan.record_bytes
        gone = lookup.lengths == MISSING
        full = lookup.lengths == record_bytes
        full[list(lookup.unreadable)] = False
        held = np.where(gone, GONE, UNSEEN)
        rows = np.flatnonzero(full)
        claimed, same = self._whole_versions(lookup.writer, lookup.slots[rows], lookup.words[rows])
        held[rows[same]] = claimed[same]
        observed = self._blank_rows(lookup, rows[~same])
        for row in np.flatnonzero(held == UNSEEN).tolist():
            if row not in observed:
                observed[row] = self._observe_row(lookup, row)
        return held, observed

    def _blank_rows(self, lookup: FoundNames, rows: NDArray[np.intp]) -> dict[int, Observation]:
        """Observations of those of `rows`, full records, that are all zeros or damaged throughout."""
        slots = lookup.slots[rows]
        found = self.classify(lookup.writer, slots, lookup.words[rows])
        other = ~found.plain | found.earlier | found.foreign | (found.lowest != NO_SEQ)
        states: tuple[tuple[SectorState, NDArray[np.bool_]], ...] = (
            ("zero", ~other & ~found.damaged),
            ("damaged", ~other & ~found.zeros),
        )
        return {
            int(rows[number]): Observation(
                writer=lookup.writer,
                slot=int(slots[number]),
                spans=(Span(state=state, sectors=self._sectors),),
            )
            for state, chosen in states
            for number in np.flatnonzero(chosen)
        }

    def _observe_row(self, lookup: FoundNames, row: int) -> Observation:
        length = int(lookup.lengths[row])
        data = lookup.words[row].tobytes()[:length]
        seen = self.observe(lookup.writer, int(lookup.slots[row]), data, lookup.unreadable.get(row, ()))
        excess = length - self.plan.record_bytes
        if excess <= 0:
            return seen
        after = Span(state="excess", sectors=-(-excess // limits.SECTOR_BYTES))
        return replace(seen, spans=(*seen.spans, after))

    def _see_removals(self, writer: int, slots: Words) -> None:
        """Record the newest removals that can have made `slots` absent. Absence proves nothing. But a writer
        that may have got that far may have had to wait there (rule 12)."""
        if not (self.plan.contract.absence_may_stall and len(slots)):
            return
        ceiling = self.ceiling(writer)
        # The last complete pass may have removed names that the next pass has not made yet.
        for frontier in (ceiling, ceiling // self.plan.slots * self.plan.slots):
            latest = self._versions.newest(writer, slots, frontier)
            done = latest[self._versions.removals(writer, slots, latest)]
            if len(done):
                self._may_be_done[writer] = max(self._may_be_done[writer], int(done.max()))

    # -- a log that is behind ------------------------------------------------------------------------------

    def may_be_behind(self, listed: Iterable[Name]) -> bool:
        """Whether the log may be so far behind that it explains findings, judged only by the names that the
        directory lists. The records of all names must be read to know it. A writer that always makes new
        names has made some beyond the ceiling in that case."""
        contract = self.plan.contract
        if not self.logged or contract.whole_at_all_times:
            return False
        if not contract.endless:
            return True
        return any(not name.temporary and name.number >= self.ceiling(name.writer) for name in listed)

    def may_have_removed(self) -> bool:
        """Whether operations beyond the ceiling may have removed names, even if no name beyond it is listed.
        A writer that always makes new names removes the old one first, and the cut may come between the
        removal and the new name."""
        return self.logged and self.plan.contract.endless

    def note_findings(self, writer: int, absent: Words, odd: Words) -> None:
        """Record findings of distinct slots: names that are absent but must exist, and names that hold no
        version of any age. No other finding can come from a later operation."""
        self._absent[writer] = np.append(self._absent[writer], absent)
        self._odd_names[writer] = np.append(self._odd_names[writer], odd)

    def done_beyond(self) -> int:
        """How many findings may come from operations beyond the ceiling. Removals leave no proof, but
        operations are done in order. So all operations up to some later one are done, except perhaps in that
        operation's group and the next group. The findings of a writer that does not fit this are not
        explained."""
        if self.plan.contract.whole_at_all_times:
            return 0
        return sum(self._explained(writer) for writer in range(self.plan.writers))

    def _explained(self, writer: int) -> int:
        """The same number for one writer."""
        versions, absent, odd = self._versions, self._absent[writer], self._odd_names[writer]
        found = np.append(absent, odd)
        if not len(found):
            return 0
        if self._is_after_a_removing_pass(writer):
            return len(found)
        following = versions.following(writer, found, versions.newest(writer, found, self._proven[writer]))
        removing = versions.removals(writer, found, following)
        making = self._makes_up_to(writer, max(self.ceiling(writer), *following[removing].tolist(), 0))
        if making is None:
            return 0
        removed = removing[: len(absent)] & np.isin(absent, making, invert=True)
        return int(np.count_nonzero(removed) + np.count_nonzero(np.isin(found, making)))

    def _is_after_a_removing_pass(self, writer: int) -> bool:
        """Whether the only names left are those that the first operations of the next pass are just making.
        The log may be any number of passes older."""
        if not self.plan.contract.absence_may_stall or len(self._odd_names[writer]) > 2 * self.plan.group:
            return False
        slots = np.arange(self.plan.slots, dtype=U64)
        in_flight = self.in_flight_slots(writer)
        known = np.isin(slots, in_flight) | self._legal(writer, slots, self._proven[writer]).holds
        gone = np.isin(slots, np.append(self._absent[writer], self._odd_names[writer]))
        gone |= np.isin(slots, in_flight[self._held[writer] == GONE])
        return not (known & ~gone).any()

    def _makes_up_to(self, writer: int, least: int) -> Words | None:
        """The slots whose names are just being made, if all names are as operations up to some operation
        leave them. That operation is `least` or later. None if there is no such operation."""
        versions, in_flight, last = self._versions, self.in_flight_slots(writer), least
        gone = np.union1d(self._absent[writer], in_flight[self._held[writer] == GONE])
        odd = np.union1d(self._odd_names[writer], in_flight[self._held[writer] == UNSEEN])
        while last <= self.ceiling(writer) + 2 * self.plan.slots:
            before = (last - 1) // self.plan.group * self.plan.group
            under_way = np.arange(before + 1, before + 2 * self.plan.group + 1, dtype=U64)
            touched = versions.slots_of(writer, under_way)
            making = touched[~versions.removals(writer, touched, under_way)]
            beyond = versions.touched(writer, np.arange(self.ceiling(writer) + 1, last + 1, dtype=U64))
            slots = np.union1d(in_flight, beyond)
            # A name that was made beyond the ceiling has a record that shows this, or is gone.
            known = np.isin(slots, in_flight) | self._legal(writer, slots, self._proven[writer]).holds
            absent = np.isin(slots, gone) | ~known
            latest = versions.newest(writer, slots, last)
            made = absent & ~versions.removals(writer, slots, latest) & np.isin(slots, making, invert=True)
            if not made.any():
                # Names that are being made but hold an older version were never removed.
                held = self._held[writer]
                begun = np.union1d(odd, in_flight[(held > before) & (held < GONE)])
                left = slots[~absent & ~np.isin(slots, np.intersect1d(making, begun))]
                removed = versions.removals(writer, left, versions.newest(writer, left, before))
                return None if removed.any() else making
            last = int(versions.following(writer, slots[made], latest[made]).max())
        return None

    # -- judging -------------------------------------------------------------------------------------------

    def _plainly_legal(self, writer: int, slots: Words, held: Words) -> NDArray[np.bool_]:
        legal = self._legal(writer, slots, self._proven[writer])
        newest = legal.holds & (held >= legal.newest)
        absent: NDArray[np.bool_] = ~legal.holds | legal.removal | legal.rewrite
        return np.where(held == GONE, absent, newest & (held <= U64(self.ceiling(writer))))

    def _legal(self, writer: int, slots: Words, frontier: int) -> _Legal:
        """Legal contents if all operations up to `frontier` were acknowledged."""
        versions, ceiling = self._versions, U64(self.ceiling(writer))
        # An endless writer removes one name for each name that it makes. The new name shows how far it got.
        shown = self.plan.contract.endless
        last_removal = U64(self.last_issued(writer)) if shown else ceiling
        last_hidden = U64(self.last_hidden(writer)) if shown else ceiling
        newest = versions.newest(writer, slots, frontier)
        holds = ~versions.removals(writer, slots, newest)
        holds &= (newest > 0) | versions.prefilled(writer, slots)
        # A slot has at most two events in flight, because slots >= 4 credits. Without a log the number is
        # unlimited, and two events include one of each kind.
        first = versions.following(writer, slots, newest)
        second = versions.following(writer, slots, first)
        removal = np.zeros(len(slots), dtype=np.bool_)
        hidden_removal, rewrite = removal.copy(), removal.copy()
        for event in (first, second):
            takes_away = versions.removals(writer, slots, event)
            removal |= (event <= last_removal) & takes_away
            hidden_removal |= (event > last_removal) & (event <= last_hidden) & takes_away
            rewrite |= (event <= ceiling) & ~takes_away
        return _Legal(
            newest=newest,
            holds=holds,
            removal=removal,
            hidden_removal=hidden_removal,
            rewrite=rewrite & (not self.plan.contract.whole_at_all_times),
            in_flight=first <= ceiling,
        )

    def _judge_writer(self, writer: int, observations: Sequence[Observation]) -> Iterator[Judgement]:
        slots = np.array([observation.slot for observation in observations], dtype=U64)
        proven = self._legal(writer, slots, self._proven[writer])
        logged = self._legal(writer, slots, self.acked[writer])
        found = [self._faults(observation, proven, number) for number, observation in enumerate(observations)]
        lost = self._oldest_lost(writer, slots, proven.newest, found)
        for number, (observation, faults) in enumerate(zip(observations, found, strict=True)):
            wrong = faults.finding is not None
            expected = int(proven.newest[number])
            yield self._judgement(
                observation,
                faults,
                expected=expected,
                in_flight=bool(proven.in_flight[number]),
                order_violation=wrong and self._faults(observation, logged, number).finding is None,
                collateral=False,
                text=describe(
                    observation,
                    place=f"name .{writer}.{observation.slot}",
                    expected=self._expected(expected, holds=bool(proven.holds[number])),
                    finding=faults.finding,
                ),
                oldest_lost=lost[number],
            )

    def _expected(self, newest: int, *, holds: bool) -> str:
        if holds:
            return version_name(newest) + (" or newer" if self.plan.contract.whole_at_all_times else "")
        if newest:
            return f"no such name since seq {newest}"
        return "no such name yet" if self.plan.contract.endless else "no such name"

    def _faults(self, observation: Observation, legal: _Legal, number: int) -> Faults:
        """What is wrong with row `number` of `legal`."""
        if not self.prefilled:  # without a known prefill, nothing need exist yet
            return Faults(None, False, False, None)
        if observation.missing:
            finding: FindingClass = "unreadable" if legal.hidden_removal[number] else "absent"
            return Faults(None if legal.absent(number) else finding, False, False, None)
        if any(
            self._is_writer(span.writer) and span.seq > self.ceiling(span.writer)
            for span in observation.spans
        ):
            return Faults(None, False, True, None)
        if legal.rewrite[number]:
            return Faults(None, observation.whole_version is None, False, None)
        newest = int(legal.newest[number])
        if legal.holds[number]:
            return self._faults_of_content(observation, newest)
        return self._faults_of_presence(observation, newest)

    def _faults_of_presence(self, observation: Observation, newest: int) -> Faults:
        """What is wrong with a name that must not exist since `newest`, or that was never allowed to exist
        (`newest` 0). Only `create` makes such names. So in other workloads the name is a foreign file, if no
        run made it."""
        if not newest and self._may_be_begun(observation.writer, observation.slot):
            return Faults(None, False, True, None)
        seqs = [seq for seq in map(self._outdated, observation.spans) if seq is not None]
        if newest or EARLIER_RUN in seqs:  # names of earlier runs were durably removed before this run
            return Faults("resurrected", False, False, min(seqs, default=None))
        endless = self.plan.contract.endless
        if endless and any(span.state == "stray" for span in observation.spans):
            return Faults("misdirected", False, False, None)
        return Faults(None, False, False, None, endless)

    def _may_be_begun(self, writer: int, slot: int) -> bool:
        """Whether a log that is behind by less than a group allows that this name beyond the ceiling is just
        being made. Then the name may show anything, and nothing shows a later operation. Later names are
        never made first."""
        return self.plan.contract.endless and slot < self.ceiling(writer) + self.plan.group

    def may_make(self, suffix: str) -> bool:
        """As for any plan, and also the names that operations make."""
        name = parse_name(suffix)
        contract = self.plan.contract
        if name is None or not self._is_writer(name.writer):
            return super().may_make(suffix)
        if name.temporary:
            return contract.whole_at_all_times and name.number < self.plan.slots
        return name.number < self.plan.slots or self._may_be_begun(name.writer, name.number)

    def _faults_of_content(self, observation: Observation, newest: int) -> Faults:
        """What is wrong with a name that must hold version `newest`, or a newer one in full."""
        found: set[FindingClass] = set()
        outdated: list[int] = []
        for span in observation.spans:
            seq = self._outdated(span)
            if seq is not None and seq >= newest:
                continue
            if seq is not None:
                outdated.append(seq)
            else:
                found.add(CLASS_OF_STATE.get(span.state, "torn"))
        oldest = min(outdated, default=None)
        if not found and len(observation.spans) == 1:
            return Faults(None if oldest is None else "stale", False, False, oldest)
        return Faults(first_of({*found, "torn"}), False, False, oldest)
