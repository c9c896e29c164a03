"""The privileges of this process: root in a container often has fewer than root elsewhere.

The user id alone is not trusted. The effective capabilities are read, and each device is opened, since a
container may lack a device, or have its node but deny its use.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypeAlias

Capability: TypeAlias = Literal["CAP_NET_ADMIN", "CAP_SYS_ADMIN"]
_BITS: dict[Capability, int] = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21}  # linux/capability.h
_STATUS = Path("/proc/thread-self/status")
_MACHINES_USERS = "user:[4026531837]"  # PROC_USER_INIT_INO of linux/proc_ns.h
_ELSEWHERE = "run it outside of this container, or in a privileged one"


def missing(
    what: str, *, capabilities: Iterable[Capability], devices: Iterable[Path], over_machine: bool = False
) -> str:
    """The first requirement that `what` lacks here, as a sentence; "" if nothing is missing.

    `over_machine`: the capabilities must hold for the whole machine, not only for a user namespace, as those
    of root in a rootless container.
    """
    if os.geteuid() != 0:
        return f"{what} needs root: run as root"
    if over_machine and str(Path("/proc/self/ns/user").readlink()) != _MACHINES_USERS:
        return f"{what} needs root of the whole machine, not of a user namespace: {_ELSEWHERE}"
    effective = _effective()
    for capability in capabilities:
        if not effective >> _BITS[capability] & 1:
            return f"{what} needs {capability}, which root lacks here: {_ELSEWHERE}"
    for device in devices:
        try:
            os.close(os.open(device, os.O_RDWR | os.O_CLOEXEC))
        except FileNotFoundError:
            return f"{what} needs {device}, which does not exist: load its kernel module, or {_ELSEWHERE}"
        except OSError as error:
            return f"{what} needs {device}, which cannot be opened ({error.strerror}): {_ELSEWHERE}"
    return ""


def _effective() -> int:
    """The effective capabilities of this thread, one bit each."""
    for line in _STATUS.read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "CapEff":
            return int(value, 16)
    raise AssertionError(f"{_STATUS} has no CapEff")
