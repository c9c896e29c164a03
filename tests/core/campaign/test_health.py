"""The health of a drive: what changed for the worse is a warning, and noise is none."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durability.campaign.health import HealthRow, HealthWarning, health_rows, health_warnings, rises
from durability.campaign.log_entries import NotBack, Paused
from durability_client.campaigns.campaign_text import page, warnings
from durability_client.text_tables import BARS
from tests.core.campaign.campaign_world import World, settings_of, until, until_phase, words

ROW: dict[str, Any] = {
    "serial": "S1",
    "firmware": "1.0",
    "size_bytes": 1 << 40,
    "ready_s": 1.0,
    "power_cycles": 10,
    "unsafe_shutdowns": 5,
    "media_errors": 0,
    "spare_percent": 100,
    "used_percent": 1,
    "backup_failed": False,
    "capacitor_percent": 100,
    "commit_p50_us": 100.0,
    "commit_p99_us": 500.0,
    "mount_s": 0.2,
    "repaired": False,
    "not_back": False,
}


KNOWN = ("serial", "firmware", "repaired", "not_back")  # never None


def rows_of(count: int = 30, /, **figures: Callable[[int], Any]) -> list[HealthRow]:
    """Rows of an unchanged drive, some figures as functions of the cycle."""
    return [
        HealthRow(**{**ROW, **{name: figure(cycle) for name, figure in figures.items()}}, cycle=cycle)
        for cycle in range(count)
    ]


def codes(rows: list[HealthRow]) -> list[str]:
    """What is warned of."""
    return [warning.code for warning in health_warnings(rows)]


def test_unchanged_drive_has_no_warnings() -> None:
    """A drive with unchanged or unknown values has no warnings."""
    assert codes(rows_of()) == []
    assert codes([]) == []
    unknown = {name: (lambda _: None) for name in ROW if name not in KNOWN}
    assert codes(rows_of(**unknown)) == []


def test_drives_in_another_order_came_back_with_their_firmware() -> None:
    """After a boot the members of a mirror may have each other's names."""
    assert codes(rows_of(firmware=lambda at: ("1.0 + 1.1", "1.1 + 1.0")[at % 2])) == []


@pytest.mark.parametrize(
    ("figure", "values", "code", "cycle", "said"),
    [
        ("backup_failed", (False, True), "backup-failed", 7, "power-loss protection is broken"),
        ("size_bytes", (1 << 40, 8 << 20), "smaller", 7, "8,388,608 bytes, and 1,099,511,627,776 before"),
        ("firmware", ("1.0", "1.1"), "firmware", 7, "firmware 1.1 in cycle 7, and had 1.0 before"),
        ("media_errors", (0, 3), "media-errors", 7, "rose from 0 to 3, first in cycle 7"),
        ("spare_percent", (100, 99), "spare", 7, "fell from 100 % to 99 %"),
        ("capacitor_percent", (100, 90), "capacitors", 7, "fell from 100 % to 90 %"),
    ],
)
def test_change_for_the_worse_is_a_warning(
    *, figure: str, values: tuple[Any, Any], code: str, cycle: int, said: str
) -> None:
    """It names the cycle, and what was before."""
    (warning,) = health_warnings(rows_of(**{figure: lambda number: values[number >= cycle]}))
    assert (warning.code, warning.cycle) == (code, cycle)
    assert said in warning.text


def test_changes_for_the_better_are_no_warnings() -> None:
    """A drive that came back with its whole capacity, and a measurement that varies by some points."""
    assert codes(rows_of(capacitor_percent=lambda cycle: 97 + cycle % 4)) == []
    assert codes(rows_of(media_errors=lambda cycle: 5)) == []
    assert codes(rows_of(size_bytes=lambda cycle: (1 << 40) + cycle)) == []


@pytest.mark.parametrize(
    ("value", "warned"),
    [
        (
            lambda cycle: 8 if not cycle else 5 * (cycle >= 20),
            "rose by 5 in all, first in cycle 20; the last value is 5",
        ),
        (lambda cycle: 7 * (cycle == 9), "rose by 7 in all, first in cycle 9; the last value is 0"),
        (
            lambda cycle: 3 if cycle < 5 else 9 if cycle < 9 else 8,
            "rose by 6 in all, first in cycle 5; the last value is 8",
        ),
        (lambda cycle: 30 - cycle, ""),
    ],
)
def test_errors_that_come_after_others_went_are_warned_of(value: Callable[[int], int], warned: str) -> None:
    """A count of media errors falls when sectors are rewritten. Each later rise is new errors, and gives a
    warning."""
    texts = [warning.text for warning in health_warnings(rows_of(media_errors=value))]
    assert texts == ([f"its media errors {warned}"] if warned else [])


def test_repairs_are_counted() -> None:
    """A file system that needs more than its replay; the check is none of the cycles."""
    (warning,) = health_warnings(rows_of(10, repaired=lambda cycle: cycle in (3, 6)))
    assert warning.text == "its file system had to be repaired in 2 of 9 cycles, first in cycle 3"


@pytest.mark.parametrize(
    ("cycles", "said"),
    [
        ((3, 6), "in 2 of 9 cycles, first in cycle 3"),
        ((0,), "in the check"),
        ((0, 9), "in the check and in 1 of 9 cycles, first in cycle 9"),
    ],
)
def test_machines_that_are_not_back_are_counted(cycles: tuple[int, ...], said: str) -> None:
    """A machine that boots only once it is switched off and on again is a warning of its own."""
    (warning,) = health_warnings(rows_of(10, not_back=lambda cycle: cycle in cycles))
    assert (warning.code, warning.cycle) == ("not-back", cycles[0])
    assert warning.text == f"its machine did not come back by itself {said}"


@pytest.mark.parametrize(
    ("figure", "code"),
    [("ready_s", "slow-ready"), ("mount_s", "slow-mount"), ("commit_p99_us", "slow-commits")],
)
def test_time_that_grows_is_a_warning(*, figure: str, code: str) -> None:
    """Though each value varies by half of itself, and some are far out."""
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    draw = random.Random(seed)

    def grows(cycle: int) -> float:
        outlier = 20.0 if draw.random() < 0.05 else 1.0
        return (1 + cycle / 20) * draw.uniform(0.75, 1.25) * outlier

    (warning,) = health_warnings(rows_of(59, **{figure: grows}))
    assert warning.code == code


def noise_of(draw: random.Random, spread: float) -> Callable[[int], float]:
    """Values without a trend."""
    return lambda _: draw.lognormvariate(0.0, spread)


def test_noise_is_no_warning() -> None:
    """Health values that vary without a trend give no warning: at most one of 300 campaigns may have one by
    chance."""
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    warned = 0
    for _ in range(300):
        count = draw.choice((12, 20, 59))
        spread = draw.choice((0.05, 0.5, 1.5))
        noise = noise_of(draw, spread)
        figures = dict.fromkeys(("ready_s", "mount_s", "commit_p99_us"), noise)
        warned += bool(codes(rows_of(count, **figures)))
    assert warned <= 1  # expected: less than 300 · 3 · 1e-4


def test_one_slow_cycle_and_few_cycles_are_no_trend() -> None:
    """A trend needs a dozen cycles, and more than one of them."""
    assert codes(rows_of(59, ready_s=lambda cycle: 30.0 if cycle == 58 else 1.0)) == []
    assert codes(rows_of(11, ready_s=lambda cycle: 1.0 + cycle)) == []
    assert codes(rows_of(12, ready_s=lambda cycle: 1.0 + cycle)) == ["slow-ready"]


@pytest.mark.slow
@given(st.lists(st.floats(0, 1e18), max_size=1000))
def test_rises_takes_any_values(values: list[float]) -> None:
    """Equal ones, huge ones, none; and what rises does not also fall."""
    assert not (rises(values) and rises(values[::-1]))


def test_rows_are_of_the_cycles_that_are_over() -> None:
    """The check and each cycle, with what the drive said after its cut."""
    world = World(settings_of(cuts=3))
    assert world.finish() == "complete"
    rows = health_rows(world.server.state, "d1")
    assert [row.cycle for row in rows] == [0, 1, 2, 3]
    assert [row.commit_p99_us for row in rows] == [None, 200.0, 200.0, 200.0]
    cycles = [row.power_cycles for row in rows if row.power_cycles is not None]
    assert cycles == sorted(set(cycles))
    assert health_warnings(rows) == ()


def test_machine_that_boots_only_at_the_second_off_is_warned_of() -> None:
    """Its cycle is durable, and only its own drives are warned of. A resume after a pause forgets nothing."""
    world = World(settings_of(drives=("b", "c"), own=True, cuts=3))
    until_phase(world, "rest", cycle=2)
    world.machines["b"].hangs = True
    until(world, NotBack)
    until_phase(world, "rest", cycle=2)
    world.machines["b"].hangs = True
    until(world, Paused)
    world.machines["b"].hangs = False
    world.machines["b"].reset()
    world.server.resume()
    assert world.finish() == "complete"
    assert words(world) == [["durable", "durable"]] * 3
    warned = {name: health_warnings(health_rows(world.server.state, name)) for name in ("d0", "d1")}
    text = "its machine did not come back by itself in 1 of 3 cycles, first in cycle 2"
    assert warned == {"d0": (HealthWarning(code="not-back", cycle=2, text=text),), "d1": ()}
    shown = "\n".join(page(world.server.state, {}, took_s=None, bars=BARS, health=False))
    assert f"warning: {text}" in shown
    assert list(warnings(world.server.state)) == [f"d0: warning: {text}"]
