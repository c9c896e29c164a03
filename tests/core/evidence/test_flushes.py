"""What the flushes of a run say of its drives."""

from __future__ import annotations

from typing import Any

import pytest

from durability.evidence.flushes import leaf_flushes
from tests.core.evidence.memory_target import MakePlan, make_statistics, small
from tests.sample_facts import drive, facts

DIRECT = {"sync": "dsync", "direct": True}


@pytest.mark.parametrize(
    ("flushes", "fields", "plan", "said"),
    [
        (2000, {}, {}, ""),
        (1, {}, {}, ""),
        (None, {}, {}, "flushes unknown: this system does not count them"),
        (0, {}, {}, "no flush was sent, but 2,000 syncs were acknowledged"),
        (0, {"write_cache": "write through"}, {}, "so the run tests its power-loss protection"),
        (0, {"fua": True}, DIRECT, "no flush was sent, as expected: with O_DIRECT and a sync of each write"),
        (0, {"fua": True}, {**DIRECT, "target_kind": "device"}, "a layer above the drive withholds flushes"),
        (0, {"fua": True}, {"sync": "dsync"}, "a layer above the drive withholds flushes"),
        (0, {"fua": False}, DIRECT, "a layer above the drive withholds flushes"),
        (0, {"fua": True}, {**DIRECT, "workload": "rename"}, "a layer above the drive withholds flushes"),
    ],
)
def test_each_count_has_its_words(
    make_plan: MakePlan, flushes: int | None, fields: dict[str, Any], plan: dict[str, Any], said: str
) -> None:
    """No flush is a warning; its explanation is named: write-through, or FUA, which is not counted."""
    armed, statistics = (
        facts(drives=(drive(**fields),)),
        make_statistics(operations=(2000,), flushes={"sda": flushes}),
    )
    (leaf,) = leaf_flushes(small(make_plan, **plan), armed, statistics)
    assert (said in leaf.note) if said else not leaf.note
    assert leaf.none_sent == (flushes == 0)
    assert leaf.per_sync == (None if flushes is None else flushes / 2000)


def test_a_group_has_one_sync(make_plan: MakePlan) -> None:
    """Flushes are held against syncs, not against operations."""
    statistics = make_statistics(operations=(2000,), flushes={"sda": 500})
    (leaf,) = leaf_flushes(small(make_plan, group=4), facts(), statistics)
    assert (leaf.syncs, leaf.per_sync) == (500, 1.0)


def test_nothing_synced_needs_no_flush(make_plan: MakePlan) -> None:
    """In a run that was cut before its first sync, missing flushes are not reported."""
    (leaf,) = leaf_flushes(small(make_plan), facts(), make_statistics(operations=(0,), flushes={"sda": 0}))
    assert (leaf.note, leaf.per_sync, leaf.none_sent) == ("", None, False)


def test_a_run_that_sent_no_statistics(make_plan: MakePlan) -> None:
    """Without figures from the client everything is unknown."""
    (leaf,) = leaf_flushes(small(make_plan), facts(), None)
    assert (leaf.syncs, leaf.flushes, leaf.none_sent) == (None, None, False)
    assert leaf.note == "flushes unknown: no statistics of this run arrived"


@pytest.mark.parametrize(
    ("second", "flushes", "said"),
    [
        ({}, 0, [2000, 2000]),
        ({}, None, [2000, 2000]),
        ({"serial": "S2"}, 0, [2000, 0]),
        ({"wwid": "naa.2"}, 0, [2000, 0]),
        ({"wwid": ""}, 0, [2000, 0]),
        ({"serial": ""}, 0, [2000, 0]),
    ],
)
def test_paths_to_one_drive_count_together(
    make_plan: MakePlan, second: dict[str, Any], flushes: int | None, said: list[int | None]
) -> None:
    """Multipath sends all flushes on one path; of a mirror each drive must get its own, also in an adapter
    that gives all drives one serial and no world-wide name."""
    armed = facts(drives=(drive(wwid="naa.1"), drive(**{"name": "sdb", "wwid": "naa.1", **second})))
    statistics = make_statistics(operations=(2000,), flushes={"sda": 2000, "sdb": flushes})

    leaves = leaf_flushes(small(make_plan), armed, statistics)

    assert [leaf.flushes for leaf in leaves] == said
    assert [leaf.none_sent for leaf in leaves] == [count == 0 for count in said]
