"""Statistics of a run survive the wire and are refused where they contradict themselves."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from durability import limits
from durability.errors import FormatError
from durability.formats.case import case_from_value, case_to_value
from durability.formats.histogram import Histogram
from durability.formats.plan import Plan
from durability.formats.run_statistics import (
    Conditions,
    DriveFlushes,
    Statistics,
    statistics_from_value,
    statistics_to_value,
)
from durability.protocol.messages import Progress, Stop, bytes_max_of, decode, encode
from tests.core.evidence.memory_target import make_case, make_statistics, small

SOME = make_statistics(operations=(30, 12), flushes={"sda": 42, "sdb": None})
CONDITIONS: Any = statistics_to_value(SOME)["conditions"]


def test_they_survive_the_wire() -> None:
    """Statistics in `Progress` and `Stop` reach the server unchanged."""
    value = statistics_to_value(SOME)
    for message in (Progress(statistics=value), Stop(frontiers=(30, 12), control=0, statistics=value)):
        received = decode(encode(message))
        assert isinstance(received, Progress | Stop)
        assert statistics_from_value(received.statistics, writers=2) == SOME
    assert (SOME.syncs(6), len(SOME.latencies())) == (7, 42)


def test_the_largest_fit_a_message() -> None:
    """All writers, every bucket in use, counts of any size and hundreds of drives are within the bound."""
    largest = Statistics(
        elapsed_s=1e9,
        operations=(limits.SEQ_MAX,) * limits.WRITERS_MAX,
        latency_ns={
            "buckets": list(range(Histogram.buckets())),
            "counts": [1 << 61] * Histogram.buckets(),
            "max": [1 << 61],
        },
        drives=tuple(DriveFlushes(name=f"nvme{number}n1", flushes=1 << 61) for number in range(500)),
        unsafe_shutdowns=(1 << 61,) * 500,
        conditions=Conditions(
            cpu_model="M" * 120,
            cpus=8192,
            governor="g" * 120,
            load=1e5,
            busy_percent=99.99,
            steal_percent=99.99,
        ),
    )
    body = encode(Progress(statistics=statistics_to_value(largest)))
    assert len(body) <= bytes_max_of(Progress)


def test_conditions_may_be_untold() -> None:
    """Statistics that say nothing of the machine are read, and have none."""
    value = statistics_to_value(SOME)
    told = value.pop("conditions")
    assert isinstance(told, dict) and told["governor"] == "powersave"
    assert statistics_from_value(value, writers=2) == replace(SOME, conditions=None)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"operations": (1,)}, "statistics of 1 writers, expected 2"),
        ({"operations": "many"}, "operations"),
        ({"operations": (1, -5)}, "statistics have -5 operations"),
        ({"operations": (limits.SEQ_MAX + 1, 1)}, "statistics have 9223372036854775808 operations"),
        ({"elapsed_s": None}, "elapsed_s"),
        ({"elapsed_s": -0.5}, "elapsed_s"),
        ({"elapsed_s": math.inf}, "elapsed_s"),
        ({"elapsed_s": math.nan}, "elapsed_s"),
        ({"latency_ns": {"buckets": [1], "counts": [], "max": [1]}}, "do not fit together"),
        ({"latency_ns": {}}, "a histogram has the fields"),
        ({"drives": [{"name": "sda"}]}, "drives.0.flushes"),
        ({"drives": [{"name": "sda", "flushes": "1" + "0" * 40}]}, "drives.0.flushes"),
        ({"drives": [{"name": "sda", "flushes": 10**40}]}, "drives.0.flushes"),
        ({"conditions": {**CONDITIONS, "cpus": "1" + "0" * 40}}, "conditions.cpus"),
        ({"conditions": {**CONDITIONS, "load": "nan"}}, "conditions.load"),
        ({"more": 1}, "more"),
    ],
)
def test_what_is_wrong_is_refused_by_name(change: dict[str, Any], problem: str) -> None:
    """A server does not keep for months what no verify can read."""
    with pytest.raises(FormatError, match=problem):
        statistics_from_value({**statistics_to_value(SOME), **change}, writers=2)


def test_a_case_has_them_or_none(make_plan: Callable[..., Plan]) -> None:
    """They come with the case; a case without them, as of a run that was cut at once, is a case as well."""
    case = make_case(small(make_plan), (100,))
    assert case_from_value(case_to_value(case)) == case
    value = case_to_value(replace(case, statistics=None))
    assert case_from_value(value).statistics is None
    del value["statistics"]
    assert case_from_value(value).statistics is None
    broken = {**statistics_to_value(SOME), "latency_ns": {}}
    with pytest.raises(FormatError, match="a histogram has the fields"):
        case_from_value({**value, "statistics": broken})
