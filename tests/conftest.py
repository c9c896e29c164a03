"""What tests of several packages share: plans, property tests without a clock, a terminal's signals, a
browser, and whether this machine can host a drive under a real file system, or a guest."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from durability import limits
from durability.evidence.identity import target_tag
from durability.formats.plan import Plan
from durability_lab.kernel_rig import block_rig
from durability_lab.vm_rig import guest_campaign
from durability_lab.vm_rig import guest_machine as machine
from tests import chromium, sample_facts
from tests.waiting import DEADLINE_S

# What whoever starts the tests says of their terminal is not said of those that the tests make.
for _name in ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
    os.environ.pop(_name, None)

# A machine that others use too makes any example slow now and then; the suite's own timeout bounds a hang.
settings.register_profile(
    "shared-machine", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("shared-machine")

PLAN_FIELDS: dict[str, Any] = {
    "run": 0x0123456789ABCDEF,
    "seed": 0xFEDCBA9876543210,
    "target": target_tag(sample_facts.facts()),
    "target_kind": "file",
    "workload": "overwrite",
    "pattern": "random",
    "record_bytes": 4096,
    "writers": 2,
    "slots": 1000,
    "group": 1,
    "credit": 250,
    "sync": "fdatasync",
    "direct": False,
    "block_bytes": 4096,
    "control_slots": 16,
    "control_interval_us": 5000,
}
# Who uses one of these needs root or a package of the lab.
LAB_FIXTURES = {
    "browser",
    "campaign_machine",
    "fence_agents",
    "guest_machine",
    "loop_machine",
    "nbdkit",
    "postgresql",
    "prometheus",
    "release_machine",
    "rig_machine",
    "root",
    "shells_and_man",
    "small_disk",
}


def pytest_configure() -> None:
    """Have commands that tests start hear Ctrl-C and a hangup: a shell's background jobs are started with the
    one ignored, those of nohup with the other."""
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files first that take minutes, so that none is left alone at the end, and mark each test that
    uses a fixture of the lab, before `-m` looks at marks."""
    items.sort(key=lambda item: _turn(item.path))
    for item in items:
        if not LAB_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker("lab")


def _turn(path: Path) -> int:
    """When a file's tests are to run."""
    turns = (
        "vm_rig/test_campaign",
        "kernel_rig/test_kernel_rig",
        "release/",
        "vm_rig/",
        "agent/on_drives/",
        "kernel_rig/",
        "lab/",
        "server/",
    )
    return next((turn for turn, part in enumerate(turns) if part in path.as_posix()), len(turns))


def pytest_collection_finish() -> None:
    """Leave what collection made out of each later garbage collection: it lives as long as the process."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def signal_handlers() -> Iterator[None]:
    """Each test leaves the handlers of signals as they were: runs that one process has at the same time, as
    only tests have them, put back each other's."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def patient_handshakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """No handshake with a server of this process is given up because the machine stands still."""
    monkeypatch.setattr(limits, "HANDSHAKE_TIMEOUT_S", DEADLINE_S)


@pytest.fixture(scope="session")
def make_plan() -> Callable[..., Plan]:
    """A function that makes a valid plan, any field of it given by keyword."""

    def make(**changes: Any) -> Plan:
        return Plan(**{**PLAN_FIELDS, **changes})

    return make


@pytest.fixture(scope="session")
def rig_machine() -> None:
    """Skips where a block rig cannot be set up, unless DURABILITY_LAB_REQUIRED=1 says that it must."""
    _require(block_rig.missing("ext4") or block_rig.missing("xfs") or block_rig.missing("btrfs"))


@pytest.fixture(scope="session")
def guest_machine() -> None:
    """The same for a virtual machine with a drive that loses power."""
    _require(machine.missing())


@pytest.fixture(scope="session")
def campaign_machine() -> None:
    """The same for a virtual machine behind a BMC."""
    _require(guest_campaign.missing())


def _require(problem: str) -> None:
    if problem and os.environ.get("DURABILITY_LAB_REQUIRED") != "1":
        pytest.skip(problem)
    assert not problem, problem


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Browser]:
    """A browser for the tests of a module; without one they are skipped, or fail if
    DURABILITY_LAB_REQUIRED=1 asks for it."""
    problem = chromium.missing()
    if problem and os.environ.get("DURABILITY_LAB_REQUIRED") != "1":
        pytest.skip(problem)
    assert not problem, problem
    with chromium.browser(tmp_path_factory.mktemp("chromium")) as found:
        yield found
