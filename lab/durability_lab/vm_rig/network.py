"""A separate network of the lab, in which a machine can fall silent.

    the guest's network card -- tap device -- the server's socket
                                |--- a network namespace ---|

QEMU's user-mode network closes its sockets when QEMU is killed. The server would then see a FIN, which a
machine that loses power never sends. Behind a tap device, the guest's own kernel speaks TCP, and stops when
the guest is dead. The namespace keeps the addresses apart from other networks of this machine.

One thread lives in the namespace, with its child processes and its sockets, which any thread may use
afterwards. The kernel removes the namespace when the thread, the sockets and the children are gone, for any
reason.

This process's own network is not changed.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Self, TypeVar

from durability.errors import SetupError
from durability_lab.support import privileges

SERVER: Final = "192.0.2.1"  # addresses for documentation, RFC 5737
GUEST: Final = "192.0.2.2"
TAP: Final = "tap0"
_TUN = Path("/dev/net/tun")
_CLONE_NEWNET = 0x40000000  # linux/sched.h
_DEADLINE_S = 20.0

T = TypeVar("T")


def missing() -> str:
    """What this machine lacks for such a network, as a sentence; "" if nothing is missing."""
    if shutil.which("ip") is None:
        return "ip not found: install iproute2"
    return privileges.missing(
        "a network of the lab's own", capabilities=("CAP_SYS_ADMIN", "CAP_NET_ADMIN"), devices=(_TUN,)
    )


class GuestNetwork:
    """The network, for the duration of a `with` statement. Raises SetupError if it cannot be set up."""

    def __enter__(self) -> Self:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="durability-network")
        try:
            self.call(_enter_namespace)
        except BaseException:
            self._thread.shutdown()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()

    def call(self, act: Callable[[], T]) -> T:
        """Run `act` in the namespace and wait for its result; processes that it starts live there."""
        return self._thread.submit(act).result()

    def listener(self) -> socket.socket:
        """A socket bound to a free port of the server's address."""
        return self.call(_bind)


def _enter_namespace() -> None:
    """Put this thread into a new namespace with a tap device. The thread cannot leave the namespace again, so
    it must be used for nothing else."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET) != 0:
        why = os.strerror(ctypes.get_errno())
        raise SetupError(f"cannot create a network namespace: {why}")
    _ip("tuntap", "add", "dev", TAP, "mode", "tap")
    _ip("address", "add", f"{SERVER}/24", "dev", TAP)
    _ip("link", "set", TAP, "up")
    _ip("link", "set", "lo", "up")  # a connection from the server's address to itself


def _bind() -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind((SERVER, 0))
    return listener


def _ip(*arguments: str) -> None:
    command = ("ip", *arguments)
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", timeout=_DEADLINE_S, check=False
    )
    if done.returncode != 0:
        raise SetupError(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()}")
