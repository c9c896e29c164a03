"""What the rigs say where root may do less than it seems: in processes that really may do less."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from durability.errors import EXIT_ENVIRONMENT

pytestmark = pytest.mark.usefixtures("rig_machine", "guest_machine")

COMMAND = (str(Path(sys.executable).with_name("durability")), "lab")
DRIVE, MACHINE = ("drive", "honest"), ("vm", "honest")
EMPTY_DEV = "mount -t tmpfs -o nodev none /dev"


def without(capability: str) -> tuple[str, ...]:
    """Run what follows as root without it, as in a container with Docker's usual capabilities."""
    return ("setpriv", f"--bounding-set=-{capability}")


def after(script: str) -> tuple[str, ...]:
    """Run what follows with mounts of its own, which `script` has changed."""
    return ("unshare", "--mount", "sh", "-ec", f'{script}; exec "$@"', "sh")


@pytest.mark.parametrize(
    ("confined", "command", "lacks"),
    [
        (without("sys_admin"), DRIVE, "CAP_SYS_ADMIN"),
        (without("sys_admin"), MACHINE, "CAP_SYS_ADMIN"),
        (without("net_admin"), MACHINE, "CAP_NET_ADMIN"),
        (("unshare", "--user", "--map-root-user"), DRIVE, "root of the whole machine"),
        (after(EMPTY_DEV), DRIVE, "/dev/fuse, which does not exist"),
        (after(f"{EMPTY_DEV}; mknod /dev/fuse c 10 229"), DRIVE, "/dev/fuse, which cannot be opened"),
        (after(EMPTY_DEV), MACHINE, "/dev/net/tun, which does not exist"),
        (after("mount -o remount,ro,bind /sys /sys"), DRIVE, "/sys is mounted read-only"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_root_lacks_is_named(confined: tuple[str, ...], command: tuple[str, ...], lacks: str) -> None:
    """It ends with 5 and a sentence that names what is lacking and what to do; nothing is set up."""
    done = subprocess.run(
        (*confined, *COMMAND, *command),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (EXIT_ENVIRONMENT, ""), done.stderr
    assert lacks in done.stderr
    assert "container" in done.stderr
