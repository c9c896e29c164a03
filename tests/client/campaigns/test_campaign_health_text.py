"""The health of a campaign's drives as an operator sees it."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest

from durability.campaign.campaign_state import CampaignState, PastCycle
from durability.campaign.cycles import draw_cycle
from durability.campaign.definition.campaign_file import read_campaign
from durability.campaign.log_entries import Judged
from durability.campaign.tasks import Condition, DriveStatus
from durability_client.campaigns.campaign_results import health_to_value
from durability_client.campaigns.health_text import BARS_MAX, DIGITS, bars_for, bars_of, health_text
from durability_client.text_tables import BARS

COLUMNS = 80
FILE = """
[campaign]
machine = "b"
cuts = 299
[power]
tasmota = "192.0.2.31"
cut_class = "power"
[[drive]]
name = "ssd"
target = "/mnt/t"
"""
CONDITION = Condition(
    model="EXAMPLE",
    serial="S1",
    firmware="1.0",
    size_bytes=1 << 40,
    diskseq=1,
    emulated=False,
    ready_s=8.5,
    power_cycles=100_000,
    unsafe_shutdowns=99_000,
    media_errors=0,
    spare_percent=100,
    used_percent=3,
    backup_failed=False,
    capacitor_percent=None,
)
SILENT = replace(
    CONDITION,
    serial="",
    firmware="",
    size_bytes=0,
    ready_s=None,
    power_cycles=None,
    unsafe_shutdowns=None,
    media_errors=None,
    spare_percent=None,
    used_percent=None,
    backup_failed=None,
)


def state_of(count: int, condition: Any, /) -> CampaignState:
    """A campaign after its check and `count` cycles. `condition`: of its drive after a cycle, by number."""
    state = CampaignState()
    state.settings = read_campaign(FILE, name="trial", seed=1)
    for number in range(count + 1):
        status = DriveStatus(
            drive="ssd",
            state="done",
            trouble="",
            text="",
            run="",
            exit_code=0,
            condition=condition(number),
            mount_s=0.012 if number else None,
            repaired=False,
        )
        judged = Judged(
            drive="ssd",
            run="1",
            verdict="durable",
            cut_class="power",
            reasons=(),
            at_risk_ms1000=5,
            commit_p50_us=80.0,
            commit_p99_us=1234.5,
        )
        state.cycles.append(
            PastCycle(
                began=draw_cycle(state.settings, number, ("ssd",)),
                drives=(),
                judged={"ssd": judged} if number else {},
                statuses={"ssd": status},
                wall="2027-01-01T00:00:00+00:00",
            )
        )
    return state


def lines_of(state: CampaignState, *, bars: str = BARS, whole: bool = False) -> list[str]:
    """The lines of all drives."""
    return list(health_text(state, bars=bars, whole=whole))


def after(number: int) -> Condition:
    """A drive whose counters rise, and that becomes slower."""
    return replace(
        CONDITION,
        ready_s=8.5 + number / 10,
        power_cycles=100_000 + number,
        unsafe_shutdowns=99_000 + number,
        media_errors=3 if number >= 200 else 0,
    )


def test_299_cycles_are_a_line_for_each_value_and_the_warnings() -> None:
    """Range, median and bars fit into 80 columns, and each warning is a sentence."""
    lines = lines_of(state_of(299, after))
    assert max(len(line) for line in lines if "warning: " not in line) <= COLUMNS
    assert lines[0] == "health of ssd (serial S1, firmware 1.0, 299 cycles)"
    assert lines[1].split() == ["value", "least", "median", "most", "by", "cycle"]
    ready = next(line for line in lines if "time to ready" in line)
    assert ready == "  time to ready             8.5 s    23.4 s   38.4 s   ▂▃▃▃▄▄▄▅▅▆▆▆▇▇▇███"
    rise = next(line for line in lines if "unsafe shutdowns" in line)
    assert rise.split()[-4:] == ["1", "1", "1", "█" * BARS_MAX]
    assert "commit p50                80 µs    80 µs    80 µs    " + "█" * BARS_MAX in lines[4]
    assert "  not known: capacitors" in lines
    assert lines[-2:] == [
        "  warning: its media errors rose from 0 to 3, first in cycle 200",
        "  warning: its time to ready grew from 13.4 s to 33.5 s (medians of the first and the last third of"
        " its cycles)",
    ]


def test_the_whole_table_has_a_row_for_each_cycle() -> None:
    """The table has a row for each cycle and fits into 80 columns, even with six-digit counters."""
    lines = lines_of(state_of(299, after), whole=True)
    table = lines[lines.index("") + 1 :]
    assert len(table) == 1 + 300 and max(map(len, table)) <= COLUMNS
    assert table[1].split()[:5] == ["check", "8.5", "-", "-", "-"]
    assert table[-1].split() == [
        *("299", "38.4", "0.012", "0.08", "1.23", "100299", "99299", "3", "100", "%", "1", "TiB")
    ]


def test_a_drive_without_counters_says_so() -> None:
    """The client's own measurements of a drive without counters are shown, and the counters are listed as not
    known."""
    lines = lines_of(state_of(3, lambda _: SILENT), whole=True)
    assert lines[0] == "health of ssd (3 cycles)"
    assert [line.split("  ")[1] for line in lines[2:5]] == ["time to mount", "commit p50", "commit p99"]
    assert lines[5].startswith("  not known: time to ready, power cycles, unsafe shutdowns, media errors")
    assert not any("warning" in line for line in lines)


def test_a_campaign_that_knows_nothing_yet_says_so() -> None:
    """Before the check is over there are no rows; an agent may also say nothing of a drive."""
    assert lines_of(state_of(-1, after)) == ["health of ssd: nothing is known yet"]
    nothing = lines_of(state_of(2, lambda _: None), whole=True)
    assert nothing[0] == "health of ssd (2 cycles)"
    assert health_to_value(state_of(-1, after)) == [{"drive": "ssd", "rows": [], "warnings": []}]


@pytest.mark.parametrize(
    ("failed", "said"),
    [
        (lambda _: None, "not said"),
        (lambda number: None if number == 3 else False, "works"),
        (lambda number: number >= 2, "failed, first in cycle 2"),
        (lambda number: number == 0, "failed, first in the check"),
    ],
)
def test_the_drives_word_on_its_power_loss_protection(failed: Any, said: str) -> None:
    """It works, it has failed since a cycle, or the drive says nothing of it."""
    lines = lines_of(state_of(3, lambda number: replace(CONDITION, backup_failed=failed(number))))
    assert f"  power-loss protection: {said}" in lines


def test_strings_of_a_drive_are_plain() -> None:
    """A serial and a firmware that would move a terminal's cursor or begin a new line are escaped."""

    def hostile(number: int) -> Condition:
        return replace(CONDITION, serial="S\x1b[2J", firmware=f"1.{number}\nhealth of ssd: \u202efine")

    lines = lines_of(state_of(2, hostile), whole=True)
    assert lines[0] == (
        "health of ssd (serial S\\x1b[2J, firmware 1.2\\nhealth of ssd: \\u202efine, 2 cycles)"
    )
    assert all(line.isprintable() for line in lines)
    assert sum("it came back with firmware" in line for line in lines) == 2


def test_values_for_programs_are_rows_and_warnings() -> None:
    """Keys are those of the rows; a warning has its code and cycle."""
    (ssd,) = health_to_value(state_of(299, after))
    assert isinstance(ssd, dict)
    rows, warnings = ssd["rows"], ssd["warnings"]
    assert isinstance(rows, list) and isinstance(warnings, list)
    assert len(rows) == 300
    assert isinstance(rows[-1], dict) and rows[-1]["unsafe_shutdowns"] == 99_299
    assert [(one["code"], one["cycle"]) for one in warnings if isinstance(one, dict)] == [
        ("media-errors", 200),
        ("slow-ready", 299),
    ]


@pytest.mark.parametrize(
    ("values", "drawn"),
    [
        ([], ""),
        ([None, None], ""),
        ([5.0], "█"),
        ([0.0, 7.0], "▁█"),
        ([0.0, None, 3.5, 7.0], "▁ ▅█"),
        ([9.5, 10.0, 9.6], "███"),
        ([-5.0, 0.0], "▁▁"),
        ([1.0, -5.0], "█▁"),
        ([1.0] * 150 + [9.0] + [1.0] * 149, "▁" * 9 + "█" + "▁" * 8),
        ([9.0] * 150 + [1.0] + [9.0] * 149, "█" * 9 + "▁" + "█" * 8),
        ([None] * 100 + [1.0] * 100, " " * 9 + "█" * 9),
    ],
)
def test_bars_hide_no_value_that_stands_out(values: list[float | None], drawn: str) -> None:
    """One slow cycle of 300 is seen, as is one low value."""
    assert bars_of(values, BARS) == drawn


def test_a_terminal_without_bars_gets_digits() -> None:
    """The heading says what they mean."""
    ascii_only = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert bars_for(ascii_only) == DIGITS
    assert bars_for(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")) == bars_for(io.StringIO()) == BARS
    lines = lines_of(state_of(299, after), bars=DIGITS)
    assert lines[1].endswith("by cycle, 1 to 8")
    assert next(line for line in lines if "time to ready" in line).endswith("233344455666777888")
    assert max(len(line) for line in lines if "warning" not in line) <= COLUMNS
