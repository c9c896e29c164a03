"""The scan of names: looks up every name that must, may or must not exist, and counts the judgements.

The order is: list of the directory; temporary files of `rename`, which may prove operations; superblocks;
every name that the rules require or the directory lists; control arm; names in flight without a whole
version, a second time; names of earlier runs. Names that were in flight are judged after the second lookup,
with the frontiers that are proven by then. Without a log, all listed names are read for proof before any is
judged.
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
_TRIED = 16  # names to try if no place was readable
_BATCH = 4096  # observations judged at a time


class NameScan(ScanBase):
    """One scan of a target whose slots are files."""

    def __init__(self, storage: Storage, job: ScanJob, listener: ScanListener) -> None:
        self._oracle = NameOracle(job.plan, job.acked)
        super().__init__(storage, job, listener, self._oracle)
        self._names = NameLookup(storage, job.plan, block_bytes=job.block_bytes, tick=listener.tick)
        self._rooms = [self._names.buffer() for _ in range(_BUFFERS)]
        self._second_room = self._names.buffer()  # for second lookups, while reads fill the other buffers
        self._listed: list[Name] = []

    def run(self) -> ScanReport:
        """List the directory, read temporary files, then every name that may exist, and judge."""
        self._listed = listed = self._list()
        if self._unlisted is not None or self._oracle.may_be_behind(listed):
            self._counts.provisional |= MAY_BE_EXPLAINED
        elif self._oracle.may_have_removed():
            self._counts.provisional |= {"absent"}
        writers = range(self._plan.writers)
        self._counts.in_flight = sum(len(self._oracle.in_flight_slots(writer)) for writer in writers)
        self._look_at("in flight", self._requests_for(listed, temporary=True), self._survey)
        if self._oracle.logged:  # records in temporary files are judged nowhere else
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
        """Requests for all listed names, or for all listed temporary names."""
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
        """Compare names with the rules. Names in flight are judged at the end."""
        screened = self._oracle.screen(lookup)
        self._counts.checked += screened.checked
        for observation in screened.pending:
            self._keep_odd(observation.writer, observation.slot, _content(lookup, observation.slot))
        self._settle(screened.wrong, [_content(lookup, observation.slot) for observation in screened.wrong])

    def _look_in_flight_up_again(self) -> None:
        """Look up again the names in flight that held no whole version.

        This happens before any of them is judged. A name that was unreadable for a moment may prove
        operations, and the other names are judged by the proven operations.
        """
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
        """Judge the observations of names in flight, after everything has been read."""
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
        """Look up names of one writer again; `suspects` ascend by slot. `seen`: the first observations. A
        second observation that equals the first keeps its judgement."""
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
        """Visit the contents of the names of `requests`, while the next names are looked up."""
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
        """Give the canary one name of `lookup` whose first sector is readable."""
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
    """The slots of the writer's names, or of its temporary names, ascending."""
    slots = (name.number for name in listed if (name.writer, name.temporary) == (writer, temporary))
    return np.array(sorted(slots), dtype=U64)


def _content(lookup: FoundNames, slot: int) -> bytes:
    """The data read from one name of `lookup`, at most a record."""
    return _data(lookup, int(np.searchsorted(lookup.slots, U64(slot))))


def _data(lookup: FoundNames, row: int) -> bytes:
    return bytes(lookup.words[row].tobytes()[: max(0, int(lookup.lengths[row]))])


def _slots_of(judgements: Iterable[Judgement]) -> Words:
    return np.array([one.slot for one in judgements], dtype=U64)
