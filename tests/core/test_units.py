"""Sizes, addresses and run ids as typed on a command line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durability.errors import UsageError
from durability.evidence.strength import interval, upper_bound
from durability.units import (
    counted,
    duration,
    format_address,
    format_run,
    format_size,
    is_loopback,
    multiple,
    network_of,
    parse_address,
    parse_run,
    parse_size,
    percent,
    percent_at_least,
    percent_at_most,
    ratio_text,
)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("512", 512),
        ("4096B", 4096),
        ("4KiB", 4096),
        ("64 MiB", 64 << 20),
        ("1GiB", 1 << 30),
        (" 2TiB ", 2 << 40),
        ("4K", 4096),
        ("4G", 4 << 30),
        ("4GB", 4 * 10**9),
        ("4KB", 4000),
    ],
)
def test_a_size_is_a_number_with_a_unit(text: str, size_bytes: int) -> None:
    """Each documented form of a size means that many bytes."""
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "4k", "4kb", "1gb", "1.5GiB", "-1", "GiB", "1GiB2", "1PB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    """A size with another unit, or that is none, is a usage error that names the units."""
    with pytest.raises(UsageError, match="KiB"):
        parse_size(text)


@pytest.mark.slow
@given(
    st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).map(str),
    st.integers(min_value=0, max_value=65535),
)
def test_addresses_round_trip(host: str, port: int) -> None:
    """Any IPv4 or IPv6 address and port is read back as it was printed."""
    assert parse_address(format_address(host, port)) == (host, port)


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("a name", "a name"),
    ],
)
def test_a_host_of_ipv6_has_one_network(address: str, network: str) -> None:
    """All IPv6 addresses of a /64 count as one network."""
    assert network_of(address) == network


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host:",
        ":7420",
        "7420",
        "::1:7420",
        "::1",
        "fe80::1%eth0",
        "host:65536",
        "two words",
        "host:74 20",
        "a..b:1",
        "a" * 64,
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    """An address without a host, or without brackets around IPv6, is a usage error, with an example."""
    with pytest.raises(UsageError, match=r"HOST:PORT.*\[fe80::1%eth0\]:7420"):
        parse_address(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("host", ("host", 7420)),
        ("192.0.2.7", ("192.0.2.7", 7420)),
        ("[::1]", ("::1", 7420)),
        ("[fe80::1%eth0]", ("fe80::1%eth0", 7420)),
        ("h:1", ("h", 1)),
    ],
)
def test_a_host_alone_has_the_port_that_is_usual(text: str, expected: tuple[str, int]) -> None:
    """An address without a port gets the usual port of a server."""
    assert parse_address(text, port=7420) == expected


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.0.2.7", False),
        ("disk-lab", False),
    ],
)
def test_only_addresses_of_this_machine_are_loopback(host: str, loopback: bool) -> None:
    """All addresses, a foreign one and any name but localhost count as reachable from outside."""
    assert is_loopback(host) is loopback


@given(st.integers(min_value=1, max_value=(1 << 64) - 1))
def test_run_ids_round_trip(run: int) -> None:
    """Any run id is read back as it was printed."""
    assert parse_run(format_run(run)) == run


@pytest.mark.parametrize("text", ["", "12", "0x00000000000000", "g" * 16, "0" * 17])
def test_a_text_that_is_no_run_id_is_refused(text: str) -> None:
    """Anything but 16 hexadecimal digits is a usage error that says where to find them."""
    with pytest.raises(UsageError, match="durability runs"):
        parse_run(text)


def test_counts_are_words() -> None:
    """One thing is singular, all other numbers plural, regular unless told otherwise."""
    counts = [counted(1, "slot"), counted(0, "slot"), counted(2000, "loss", "losses")]
    assert counts == ["1 slot", "0 slots", "2,000 losses"]


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (91_234, "91.2 µs"),
        (999_600, "1 ms"),
        (2_100_000, "2.1 ms"),
        (12_000_000_000, "12 s"),
        (1_234_000_000_000, "1,234 s"),
    ],
)
def test_times_for_people(nanoseconds: int, text: str) -> None:
    """Three digits and the unit that fits."""
    assert duration(nanoseconds) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"), [(512, "512 bytes"), (4096, "4 KiB"), (64 << 20, "64 MiB"), (3 << 39, "1.5 TiB")]
)
def test_sizes_for_people(size_bytes: int, text: str) -> None:
    """The largest unit that fits, which `parse_size` reads where it is a whole number."""
    assert format_size(size_bytes) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0.0 %"), (0.00997, "1.0 %"), (0.0495, "5.0 %"), (0.0996, "10 %"), (0.95, "95 %"), (1.0, "100 %")],
)
def test_a_share_has_two_digits(share: float, text: str) -> None:
    """Never a dot without a digit after it."""
    assert percent(share) == text


@pytest.mark.parametrize(
    ("share", "at_least", "at_most"),
    [
        (0.0, "0.0 %", "0.0 %"),
        (0.01, "1.0 %", "1.0 %"),
        (0.010036, "1.0 %", "1.1 %"),
        (0.05034, "5.0 %", "5.1 %"),
        (0.09911, "9.9 %", "10 %"),
        (0.000999, "0.099 %", "0.10 %"),
        (1 - 0.05, "95 %", "95 %"),
        (0.9901, "99 %", "100 %"),
        (1.0, "100 %", "100 %"),
    ],
)
def test_a_bound_is_rounded_away_from_what_was_shown(share: float, at_least: str, at_most: str) -> None:
    """With as many digits as any share."""
    assert (percent_at_least(share), percent_at_most(share)) == (at_least, at_most)


@pytest.mark.slow
def test_no_bound_reads_smaller_than_it_is() -> None:
    """An upper bound is never rounded down, and a lower one never up. Usual bounds read 5.0 % and 1.0 %."""
    for cuts in (*range(1, 120), *range(120, 1001, 20)):
        bound = upper_bound(0, cuts)
        assert float(percent_at_most(bound).rstrip(" %")) >= 100 * bound - 1e-9, cuts
        low, high = interval(1, cuts)
        assert float(percent_at_least(low).rstrip(" %")) <= 100 * low + 1e-9, cuts
        assert float(percent_at_most(high).rstrip(" %")) >= 100 * high - 1e-9, cuts
    texts = [percent_at_most(upper_bound(0, cuts)) for cuts in (58, 59, 297, 299)]
    assert texts == ["5.1 %", "5.0 %", "1.1 %", "1.0 %"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.00233, "0.00233"),
        (0.0521, "0.0521"),
        (0.0999, "0.10"),
        (0.5, "0.50"),
        (0.99972, "0.9997"),
        (1.0, "1.00"),
        (1.003, "1.003"),
        (431.5789, "431.58"),
    ],
)
def test_a_ratio_is_neither_zero_nor_one_by_rounding(value: float, text: str) -> None:
    """One that rounds to 1 would say that nothing differs."""
    assert ratio_text(value) == text


def test_a_multiple_has_two_digits_where_it_is_small() -> None:
    """Small multiples have two digits, and large ones have no exponent."""
    assert [multiple(value) for value in (1.096, 2.24, 9.96, 16.6, 293.1, 12345.6)] == [
        "1.1",
        "2.2",
        "10",
        "17",
        "293",
        "12,346",
    ]
