"""The scan of names: looks up every name that must, may or must not be there, and counts what the oracle
says of it.

The order: what the directory lists; the temporaries of `rename`, for what they prove; superblocks; every name
that the rules ask for or the directory lists; the control arm; names in flight without a whole version again;
at last the verdict on names that were in flight, under the proven frontiers. Without a log every listed name
is read for proof before any is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby, islice

import numpy as np

from durability import limits
from durability.evidence.judgement import Judgement
from durability.evidence.name_oracle import MAY_BE_EXPLAINED, FoundNames, NameOracle
from durability.evidence.observation import Observation
from durability.evidence.scan_report import ScanReport
from durability.formats.mixing import U64, Words
from durability.formats.plan import Name, parse_name
from durability_client.target.storage import Storage
from durability_client.verify.scan.canary import CanaryPlace
from durability_client.verify.scan.name_lookup import LookupRequest, NameLookup
from durability_client.verify.scan.scan_base import Phase, ScanBase, ScanJob, ScanListener, Suspect
from durability_client.verify.scan.target_reader import read_ahead

_BUFFERS = 8
_TRIED = 16  # names, where nothing has read well
_BATCH = 4096  # observations judged at a time


class NameScan(ScanBase):
    """One scan of a target whose slots are files."""

    def __init__(self, storage: Storage, job: ScanJob, listener: ScanListener) -> None:
        self._oracle = NameOracle(job.plan, job.acked)
        super().__init__(storage, job, listener, self._oracle)
        self._names = NameLookup(storage, job.plan, block_bytes=job.block_bytes, tick=listener.tick)
        self._rooms = [self._names.buffer() for _ in range(_BUFFERS)]
        self._second_room = self._names.buffer()  # the others are being read into meanwhile
        self._listed: list[Name] = []

    def run(self) -> ScanReport:
        """List the directory, read names in flight first, then every name that may be there, and judge."""
        self._listed = listed = self._list()
        if self._unlisted is not None or self._oracle.may_be_behind(listed):
            self._counts.provisional |= MAY_BE_EXPLAINED
        elif self._oracle.may_have_removed():
            self._counts.provisional |= {"absent"}
        writers = range(self._plan.writers)
        self._counts.in_flight = sum(len(self._oracle.in_flight_slots(writer)) for writer in writers)
        self._look_at("in flight", self._requests_for(listed, temporary=True), self._survey)
        if self._oracle.logged:  # what lies in temporaries is judged nowhere else
            self._counts.above_ceiling += self._oracle.above_ceiling
        else:
            self._look_at("survey", self._requests_for(listed, temporary=False), self._survey)
        self._check_superblocks()
        requests = [
            request
            for writer in writers
            for request in self._names.requests(
                writer, self._oracle.slots_to_check(writer, _slots(listed, writer, temporary=False))
            )
        ]
        self._look_at("all names", requests, self._check)
        self._read_control()
        self._look_in_flight_up_again()
        self._judge_in_flight()
        self._look_for_earlier_names()
        self._counts.settle_out_of_reach(self._oracle.done_beyond() if self._oracle.logged else 0)
        return self._finish()

    # -- phases --------------------------------------------------------------------------------------------

    def _list(self) -> list[Name]:
        """The names of this run's writers that the directory lists."""
        suffixes = self._suffixes()
        self._listener.tick()
        names = filter(None, map(parse_name, suffixes))
        return [name for name in names if name.writer < self._plan.writers]

    def _requests_for(self, listed: Sequence[Name], *, temporary: bool) -> list[LookupRequest]:
        """Requests for all names that are listed, or all temporaries."""
        return [
            request
            for writer in range(self._plan.writers)
            for request in self._names.requests(
                writer, _slots(listed, writer, temporary=temporary), temporary=temporary
            )
        ]

    def _survey(self, lookup: FoundNames) -> None:
        self._oracle.survey(lookup.words)

    def _check(self, lookup: FoundNames) -> None:
        """Hold names against the rules; those in flight are judged at the end."""
        screened = self._oracle.screen(lookup)
        self._counts.checked += screened.checked
        for observation in screened.pending:
            self._keep_odd(observation.writer, observation.slot, _content(lookup, observation.slot))
        self._settle(screened.wrong, [_content(lookup, observation.slot) for observation in screened.wrong])

    def _look_in_flight_up_again(self) -> None:
        """Look the names in flight up again that gave no whole version. Before any of them is judged: what
        could not be read for a moment may prove operations, and the others are judged by those."""
        odd = {(one.writer, one.slot): one for one in self._oracle.without_version()}

        def compare(lookup: FoundNames) -> None:
            for row, second in enumerate(self._oracle.observe_all(lookup)):
                self._compare(odd[second.writer, second.slot], second, _data(lookup, row))

        requests = [
            request
            for writer in range(self._plan.writers)
            for request in self._names.requests(
                writer, np.array(sorted(slot for other, slot in odd if other == writer), dtype=U64)
            )
        ]
        self._look_at("judging", requests, compare)

    def _judge_in_flight(self) -> None:
        """Judge what was seen of names in flight, now that all has been read."""
        observations = self._unchanged(self._oracle.in_flight())
        while batch := list(islice(observations, _BATCH)):
            self._settle(batch, [self._odd.get((one.writer, one.slot), b"") for one in batch])
            self._tell()
        self._judge_changed()

    # -- second look ---------------------------------------------------------------------------------------

    def _settle(self, observations: Sequence[Observation], data: Sequence[bytes]) -> None:
        suspects = self._sort_out(self._oracle.judge_all(observations), data)
        suspects.sort(key=lambda suspect: (suspect.judgement.writer, suspect.judgement.slot))
        seen = {(one.writer, one.slot): one for one in observations}
        for writer, group in groupby(suspects, key=lambda suspect: suspect.judgement.writer):
            self._look_again(writer, list(group), seen)

    def _look_again(
        self, writer: int, suspects: Sequence[Suspect], seen: Mapping[tuple[int, int], Observation]
    ) -> None:
        """Look names of one writer up again; `suspects` ascend by slot. `seen`: what was observed of them;
        what is observed again is judged as before."""
        slots = np.array([suspect.judgement.slot for suspect in suspects], dtype=U64)
        before = iter(suspects)
        for request in self._names.requests(writer, slots):
            lookup = self._names.look_up(request, self._second_room)
            others = [one for one in self._oracle.observe_all(lookup) if one != seen[writer, one.slot]]
            changed = {judgement.slot: judgement for judgement in self._oracle.judge_all(others)}
            pairs = []
            for row, slot in enumerate(lookup.slots.tolist()):
                first = next(before)
                pairs.append((first, Suspect(changed.get(slot, first.judgement), _data(lookup, row))))
            self._require_drive(chain.from_iterable(pairs))
            for first, second in pairs:
                self._conclude(first, second)
            found = [second.judgement for _, second in pairs if second.judgement.finding]
            odd = [one for one in found if one.finding != "absent" and one.found_seq is None]
            absent = [one for one in found if one.finding == "absent"]
            self._oracle.note_findings(writer, _slots_of(absent), _slots_of(odd))

    # -- reading -------------------------------------------------------------------------------------------

    def _look_at(
        self, phase: Phase, requests: Sequence[LookupRequest], visit: Callable[[FoundNames], None]
    ) -> None:
        """Visit what the names of `requests` hold, while the next ones are looked up."""
        record_bytes = self._plan.record_bytes
        self._begin(phase, sum(len(request.slots) for request in requests) * record_bytes)
        for lookup, request in zip(
            read_ahead(requests, self._names.look_up, self._rooms), requests, strict=True
        ):
            self._note_readable(lookup, temporary=request.temporary)
            visit(lookup)
            self._done += len(lookup.slots) * record_bytes
            self._tell()

    def _note_readable(self, lookup: FoundNames, *, temporary: bool) -> None:
        """Have the canary know one name of `lookup` that read well, at least its first sector."""
        self._doubted |= bool(lookup.unreadable)
        for row in np.flatnonzero(lookup.lengths >= limits.SECTOR_BYTES):
            if 0 not in lookup.unreadable.get(int(row), ()):
                name = Name(lookup.writer, int(lookup.slots[row]), temporary)
                self._canary.keep(CanaryPlace(name.suffix, 0))
                return

    def _places(self) -> Iterator[CanaryPlace]:
        yield from super()._places()
        listed = self._listed
        for number in range(0, len(listed), max(1, len(listed) // _TRIED)):
            yield CanaryPlace(listed[number].suffix, 0)


def _slots(listed: Iterable[Name], writer: int, *, temporary: bool) -> Words:
    """The slots of the writer's names, or of its temporaries, ascending."""
    slots = (name.number for name in listed if (name.writer, name.temporary) == (writer, temporary))
    return np.array(sorted(slots), dtype=U64)


def _content(lookup: FoundNames, slot: int) -> bytes:
    """What was read of one name of `lookup`, at most a record."""
    return _data(lookup, int(np.searchsorted(lookup.slots, U64(slot))))


def _data(lookup: FoundNames, row: int) -> bytes:
    return bytes(lookup.words[row].tobytes()[: max(0, int(lookup.lengths[row]))])


def _slots_of(judgements: Iterable[Judgement]) -> Words:
    return np.array([one.slot for one in judgements], dtype=U64)
