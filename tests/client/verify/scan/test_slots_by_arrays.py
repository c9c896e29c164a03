"""Slots that are judged by arrays: the same counts, findings and examples as one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from durability import limits
from durability.evidence.judgement import Judgement
from durability.evidence.observation import Observation
from durability.evidence.record_rows import Rows
from durability.evidence.scan_report import Example, ScanReport
from durability.evidence.slot_oracle import LogOracle, SlotOracle
from durability.formats.mixing import Words
from durability.formats.plan import Plan
from durability_client.target.storage import Storage
from durability_client.verify.scan.scan_base import ScanListener
from durability_client.verify.scan.slot_scan import LogScan, SlotScan
from tests.client.verify.targets import job_of
from tests.core.evidence.memory_target import SECTOR, Disk, small
from tests.lab.truth.disk_storage import PassingErrors

MakePlan = Callable[..., Plan]


class _OneByOne:
    """An oracle that calls no row plain, so that each slot is judged by itself."""

    def classify(self, writer: int, slots: Words, words: Words) -> Rows:
        rows: Rows = super().classify(writer, slots, words)  # type: ignore[misc]
        return replace(rows, plain=rows.plain & False)

    def rows_in_flight(self, writer: int) -> Rows | None:
        return None

    def odd_in_flight(self) -> Iterator[Observation]:
        yield from self.in_flight()  # type: ignore[attr-defined]


class SlotsOneByOne(_OneByOne, SlotOracle):
    pass


class LogsOneByOne(_OneByOne, LogOracle):
    pass


def scanned(
    disk: Disk,
    acked: tuple[int, ...] | None,
    errors: dict[tuple[str, int], int],
    flips: dict[tuple[str, int], int],
    *,
    one_by_one: bool,
) -> tuple[ScanReport, list[Example], list[Judgement]]:
    examples: list[Example] = []
    findings: list[Judgement] = []
    listener = ScanListener(
        tick=lambda: None, progress=lambda _: None, example=examples.append, finding=findings.append
    )
    storage = cast(Storage, PassingErrors(disk, errors=errors, flips=flips))
    job = job_of(disk.plan, acked)
    if disk.plan.workload == "append":
        log = LogsOneByOne(disk.plan, acked) if one_by_one else None
        return LogScan(storage, job, listener, log).run(), examples, findings
    slots = SlotsOneByOne(disk.plan, acked) if one_by_one else None
    return SlotScan(storage, job, listener, slots).run(), examples, findings


def in_order(judgements: list[Judgement]) -> list[Judgement]:
    return sorted(judgements, key=lambda one: (one.writer, one.slot, one.text))


def kept(examples: list[Example]) -> list[tuple[str, int, int, str, bytes]]:
    return sorted(
        (one.kind, one.judgement.writer, one.judgement.slot, one.judgement.text, one.data) for one in examples
    )


def disks(data: st.DataObject, make_plan: MakePlan) -> Disk:
    """A target with all kinds of content in some slots."""
    fields: dict[str, Any] = {
        "workload": data.draw(st.sampled_from(["overwrite", "append"])),
        "writers": data.draw(st.integers(1, 2)),
        "group": data.draw(st.sampled_from([1, 4])),
        "record_bytes": 2048,
        "block_bytes": data.draw(st.sampled_from([2048, 4096])),
        "slots": 32,
    }
    plan = small(make_plan, **fields)
    disk = Disk(plan)
    other = Disk(small(make_plan, **fields, run=5))
    stranger = Disk(small(make_plan, **fields, target=9))
    frontiers = [data.draw(st.integers(20, 110)) for _ in range(plan.writers)]
    for writer, frontier in enumerate(frontiers):
        disk.write_to(writer, frontier)
    for _ in range(data.draw(st.integers(0, 30))):
        writer = data.draw(st.integers(0, plan.writers - 1))
        last = 31 if plan.workload == "overwrite" else frontiers[writer] + 10
        slot, elsewhere = data.draw(st.integers(0, last)), data.draw(st.integers(0, last))
        seq = slot + 1
        if plan.workload == "overwrite":
            seq = disk.newest(writer, slot, data.draw(st.integers(0, 130)))
        source = data.draw(st.sampled_from([disk, disk, other, stranger]))
        content = data.draw(
            st.sampled_from(
                [
                    source.record(writer, slot, seq),
                    source.record(writer, slot, seq),
                    disk.record(writer, elsewhere, seq),
                    bytes(2048),
                    b"\xa5" * 2048,
                ]
            )
        )
        first = data.draw(st.integers(0, 3))
        length = data.draw(st.sampled_from([1, 2, 4]))
        piece = bytearray(content[first * SECTOR : (first + length) * SECTOR])
        if data.draw(st.integers(0, 4)) == 0:
            piece[data.draw(st.integers(0, len(piece) - 1))] ^= 1
        disk.put(writer, slot, bytes(piece), first)
    return disk


@pytest.mark.slow
@settings(
    max_examples=200,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
@given(data=st.data())
def test_arrays_and_single_slots_come_to_the_same(make_plan: MakePlan, data: st.DataObject) -> None:
    """Random damage of each kind, errors that stay or go away, wrong bits of a first reading: reports,
    findings and examples are equal, with a log and without."""
    disk = disks(data, make_plan)
    plan = disk.plan
    places = [
        (suffix, data.draw(st.integers(0, len(content) // SECTOR)) * SECTOR)
        for suffix, content in disk.files.items()
        for _ in range(data.draw(st.sampled_from([0, 0, 1, 4])))
    ]
    errors = {place: data.draw(st.sampled_from([1, 1 << 20])) for place in places[::2]}
    flips = {place: 1 for place in places[1::2] if place not in errors}
    for acked in (tuple(data.draw(st.integers(4, 27)) * 4 for _ in range(plan.writers)), None):
        report, examples, findings = scanned(disk, acked, errors, flips, one_by_one=False)
        expected_report, expected_examples, expected = scanned(disk, acked, errors, flips, one_by_one=True)

        assert report == expected_report
        assert in_order(findings) == in_order(expected)
        assert kept(examples) == kept(expected_examples)


@pytest.mark.slow
def test_first_and_last_examples_are_kept_of_many(make_plan: MakePlan) -> None:
    """The first 64 and the last 64 of many lost slots are kept as examples, with their bytes."""
    disk = Disk(small(make_plan, slots=2000, record_bytes=SECTOR, block_bytes=SECTOR, pattern="sequential"))
    assert disk.plan.credit == 8

    report, examples, findings = scanned(disk, (1992,), {}, {}, one_by_one=False)

    assert report.findings == {"lost": 1992}
    assert len(findings) == 1992
    slots = [example.judgement.slot for example in examples]
    assert slots == [*range(64), *range(1992 - 64, 1992)]
    assert all(example.data == disk.get(0, example.judgement.slot) for example in examples)
    assert len(slots) == limits.EXAMPLES_FIRST + limits.EXAMPLES_LAST


def test_fewer_examples_of_long_records_are_kept(
    make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first and the last of a kind have so many bytes at most: a server has room for all kinds."""
    disk = Disk(small(make_plan, slots=200, record_bytes=SECTOR, block_bytes=SECTOR, pattern="sequential"))
    monkeypatch.setattr(limits, "EXAMPLES_BYTES_MAX", 5 * SECTOR + 1)
    _, examples, findings = scanned(disk, (192,), {}, {}, one_by_one=False)
    assert len(findings) == 192
    slots = [example.judgement.slot for example in examples]
    assert slots == [*range(5), *range(192 - 5, 192)]
    monkeypatch.setattr(limits, "EXAMPLES_BYTES_MAX", 1)
    _, examples, _ = scanned(disk, (192,), {}, {}, one_by_one=False)
    assert [example.judgement.slot for example in examples] == [0, 191]
