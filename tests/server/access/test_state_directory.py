"""The address that a server tells others, on machines with networks of one kind."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys

import pytest

from durability_server.access.state_directory import address_for_others

_IPV4, _IPV6 = "192.0.2.7", "2001:db8::7"
_PRINT = (
    "from durability_server.access.state_directory import address_for_others;"
    " print(*(address_for_others(host, 7420) for host in ('0.0.0.0', '::')))"
)
_OWN_NAME = f"{socket.gethostname()}:7420"


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        ((), [_OWN_NAME, _OWN_NAME]),
        ((_IPV4,), [f"{_IPV4}:7420", f"{_IPV4}:7420"]),
        ((_IPV6,), [_OWN_NAME, f"[{_IPV6}]:7420"]),  # a server on 0.0.0.0 has no address of IPv6
        ((_IPV4, _IPV6), [f"{_IPV4}:7420", f"{_IPV4}:7420"]),
    ],
)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can have a network of its own")
@pytest.mark.skipif(not all(map(shutil.which, ("unshare", "ip"))), reason="needs unshare and ip")
def test_the_address_that_others_reach(addresses: tuple[str, ...], expected: list[str]) -> None:
    """The one that this machine uses itself, of a family on which the server listens; else its name."""
    steps = ["ip link set lo up"]
    for address in addresses:
        # An address of IPv6 is no source of a route as long as the kernel looks whether others have it too.
        flags = " nodad" if ":" in address else ""
        steps += [f"ip address add {address} dev lo{flags}", f"ip route add default dev lo src {address}"]
    steps.append(f'exec "{sys.executable}" -c "{_PRINT}"')
    command = ["unshare", "--net", "sh", "-ec", "\n".join(steps)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.stdout.split() == expected, done.stderr


def test_an_address_that_was_named_is_told() -> None:
    """With brackets where it has colons."""
    assert address_for_others("::1", 7420) == "[::1]:7420"
    assert address_for_others("b.example.org", 7420) == "b.example.org:7420"
