"""Sizes, addresses, times and run ids as people type and read them.

Ambiguous input is rejected: an IPv6 address without brackets.
"""

from __future__ import annotations

import ipaddress
import math
import re
import shlex
from collections.abc import Callable

from durability.errors import UsageError

# As in the coreutils: K and KiB are 1024, KB is 1000.
_BYTES_PER_UNIT: dict[str, int] = {"": 1, "B": 1} | {
    f"{prefix}{suffix}": base**power
    for power, prefix in enumerate("KMGT", 1)
    for suffix, base in (("", 1024), ("iB", 1024), ("B", 1000))
}
_SIZE = re.compile(r"(\d+)\s*([A-Za-z]*)")
_ADDRESS = re.compile(r"(?:\[(?P<bracketed>[^\[\]]+)\]|(?P<plain>[^:\[\]\s]+))(?::(?P<port>\d{1,5}))?")
_TENTH = 0.0995  # from here on, a share rounds to at least 10 % and needs no decimals
_RUN = re.compile(r"[0-9a-fA-F]{16}")


def parse_size(text: str) -> int:
    """The bytes of a size such as "4096", "4K", "4KiB" or "1 GB". Raises UsageError."""
    match = _SIZE.fullmatch(text.strip())
    if not match or match[2] not in _BYTES_PER_UNIT:
        raise UsageError(
            f"{text!r} is not a size: give a whole number of bytes, or one with a unit of K, M, G, T or KiB"
            " to TiB (1024), or KB to TB (1000)"
        )
    return int(match[1]) * _BYTES_PER_UNIT[match[2]]


def parse_address(text: str, *, port: int = 0) -> tuple[str, int]:
    """Host and port of "HOST:PORT", "[IPV6]:PORT" or a host alone, which gets `port`. Port 0 means any free
    port. Raises UsageError."""
    match = _ADDRESS.fullmatch(text)
    host = match["bracketed"] or match["plain"] if match else ""
    if not match or text.isdecimal() or int(match["port"] or 0) > 65535 or not _is_host(host):
        raise UsageError(
            f"{text!r} is not an address: give HOST or HOST:PORT, with an IPv6 address and its zone in"
            " brackets, as in [2001:db8::7]:7420 or [fe80::1%eth0]:7420"
        )
    return host, int(match["port"] or port)


def is_address(text: str) -> bool:
    """Whether `parse_address` accepts it, and it has a port."""
    try:
        return parse_address(text)[1] > 0
    except UsageError:
        return False


def _is_host(text: str) -> bool:
    """Whether the text is valid as a host name: no part is empty, or longer than 63 characters."""
    try:
        text.encode("idna")
    except UnicodeError:
        return False
    return True


def format_address(host: str, port: int) -> str:
    """The address as `parse_address` reads it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def network_of(address: str) -> str:
    """The network to which an address belongs: an IPv4 address itself, or the /64 of an IPv6 address, all of
    which one host may have. Text that is not an address is returned unchanged."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, 64), strict=False))


def is_loopback(host: str) -> bool:
    """Whether `host` can only mean this machine. A name other than localhost is not looked up, and the result
    is False."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def parse_run(text: str) -> int:
    """The run id in `text`: 16 hexadecimal digits, as every command prints it. Raises UsageError."""
    if not _RUN.fullmatch(text):
        raise UsageError(
            f"{text!r} is not a run: give the 16 hexadecimal digits that `durability runs --all` prints"
        )
    return int(text, 16)


def format_run(run: int) -> str:
    """The run id as `parse_run` reads it."""
    return f"{run:016x}"


def verify_device_line(device: str = "DEVICE", run: str = "RUN") -> str:
    """The command to type for a target whose file system, on `device`, no longer mounts."""
    return f"`durability verify --device {shlex.quote(device)} --run {run}`"


def few_digits(number: float) -> str:
    """A number as people read it: whole from 100 on, else with three digits."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def percent(share: float) -> str:
    """A share with two digits; a large share without decimals: "0.98 %", "5.0 %", "63 %"."""
    return f"{100 * share:#.2g} %" if share < _TENTH else f"{100 * share:.0f} %"


def percent_at_most(share: float) -> str:
    """A share that is an upper bound, in the style of `percent`, but rounded up: "5.1 %" for 0.05034. A bound
    that reads smaller than it is would claim more than was shown."""
    return _percent_beside(share, math.ceil)


def percent_at_least(share: float) -> str:
    """A share that is a lower bound, in the style of `percent`, but rounded down."""
    return _percent_beside(share, math.floor)


def _percent_beside(share: float, rounding: Callable[[float], int]) -> str:
    value = 100 * share
    decimals = max(0, 1 - math.floor(math.log10(value))) if value else 1
    # Remove the float's rounding error first: 0.95 is 95 %, not above it.
    rounded = rounding(round(value * 10**decimals, 8)) / 10**decimals
    return f"{rounded:#.2g} %" if rounded < 10 else f"{rounded:.0f} %"


def table_percent(share: float) -> str:
    """A share in a table, with one decimal; a large share without decimals: "0.9%", "5.0%", "63%"."""
    return f"{share:.1%}" if share < _TENTH else f"{share:.0%}"


def counted(number: int, one: str, many: str = "") -> str:
    """A number with its noun: "1 writer", "2,000 writers". `many` is the plural if it needs more than an
    s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def format_size(size_bytes: int) -> str:
    """A size as people read it: four digits and a unit."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size_bytes >= _BYTES_PER_UNIT[unit]:
            return f"{size_bytes / _BYTES_PER_UNIT[unit]:.4g} {unit}"
    return f"{size_bytes} bytes"


def duration(nanoseconds: float) -> str:
    """A time as people read it: three digits and a unit."""
    for unit, factor in (("s", 10**9), ("ms", 10**6), ("µs", 10**3)):
        value = nanoseconds / factor
        if value >= 1000:
            return f"{value:,.0f} {unit}"
        if value >= 0.9995:
            return f"{value:.3g} {unit}"
    return f"{nanoseconds:.3g} ns"


def ratio_text(value: float) -> str:
    """A ratio with two decimals; with more if it would otherwise read 0, or read 1 although it is not 1."""
    if value < 0.0995:
        return few_digits(value)
    texts = (f"{value:.{digits}f}" for digits in range(2, 7))
    return next((text for text in texts if float(text) != 1), f"{value:.2f}")


def multiple(value: float) -> str:
    """A factor, with two digits if it is below 10: "2.2", "17", "1,234"."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
