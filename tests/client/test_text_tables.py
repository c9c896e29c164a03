"""Tables fit the terminal that they are printed on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from durability_client.text_tables import table

ROWS = [
    {
        "model": "Samsung SSD 980 PRO with Heatsink 1TB",
        "serial": "S6WSNS0T123456",
        "cuts": "59",
        "word": "durable",
    },
    {"model": "X", "serial": "", "cuts": "0", "word": ""},
]
COLUMNS = ("model", "serial", "cuts", "word")


def test_a_table_is_as_wide_as_its_cells() -> None:
    """Without a terminal nothing is cut; a cell without a value is a dash, a zero is a zero."""
    assert list(table(COLUMNS, ROWS)) == [
        "model                                  serial          cuts  word",
        "Samsung SSD 980 PRO with Heatsink 1TB  S6WSNS0T123456  59    durable",
        "X                                      -               0     -",
    ]


def test_the_widest_column_is_cut() -> None:
    """The others keep all that they have."""
    assert list(table(COLUMNS, ROWS, width=50)) == [
        "model                serial          cuts  word",
        "Samsung SSD 980 PR…  S6WSNS0T123456  59    durable",
        "X                    -               0     -",
    ]


def test_characters_that_take_two_columns_are_counted_as_two() -> None:
    """Else all that follows in their row would be elsewhere."""
    rows = [{"host": "サーバー", "cuts": "1"}, {"host": "b", "cuts": "2"}]
    assert list(table(("host", "cuts"), rows)) == ["host      cuts", "サーバー  1", "b         2"]


@given(width=st.integers(1, 100))
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """No line of a table is wider than the terminal, if each column can have a few characters."""
    least = 8 + 8 + 4 + 7 + 3 * 2
    lines = list(table(COLUMNS, ROWS, width=width))
    assert max(map(len, lines)) <= max(width, least)
