"""What the first page and /metrics say of drives and live runs, read from a store without a page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from durability_server.store.store import Store
from durability_server.web.campaign_watch import CampaignWatch
from durability_server.web.metrics import metrics
from durability_server.web.readings import Overview, overview
from durability_server.web.watch import Watch
from tests.server.store.conftest import StoreFixture

if TYPE_CHECKING:
    from tests.server.conftest import Lab

SHOWN = 2


@pytest.fixture
def filled(sqlite_url: str, lab: Lab) -> Iterator[StoreFixture]:
    """An open store, in which no server that is over has left a run live."""
    store = Store(sqlite_url)
    store.open()
    store.mark_left_live()
    yield StoreFixture(store, lab)
    store.close()


def _begin(filled: StoreFixture, run: int, serial: str, session_end: str) -> None:
    facts = filled.lab.facts(serial=serial, uuid=f"of {serial}")
    filled.register(run, facts=facts, force=True)
    filled.arm(run, facts=facts)
    filled.save(run, session_end=session_end)


def _overview(filled: StoreFixture) -> Overview:
    return overview(filled.store, CampaignWatch(filled.store.campaigns), {}, SHOWN)


def test_all_live_runs_are_counted(filled: StoreFixture) -> None:
    """However few of them are shown, by machine too; not those that a server left that is over."""
    for run in range(1, SHOWN + 3):
        _begin(filled, run, f"S{run}", "live")
    _begin(filled, 9, "S9", "stop")
    seen = _overview(filled)
    assert (len(seen.live), seen.live_count) == (SHOWN, SHOWN + 2)
    (machine,) = seen.machines
    assert (machine.state, machine.text) == ("writing", f"{SHOWN + 2} live")
    text = metrics(seen, Watch(filled.store), 1).decode()
    assert f"\ndurability_live_runs {SHOWN + 2}.0\n" in text


def test_a_run_that_a_dead_server_left_is_not_live(sqlite_url: str, filled: StoreFixture) -> None:
    """It takes no place of those that are shown."""
    _begin(filled, 1, "S1", "live")
    filled.store.close()
    filled.store = Store(sqlite_url)
    filled.store.open()
    assert filled.store.live_runs(SHOWN) == () and filled.store.live_by_host() == {}


def test_a_cut_that_nobody_verified_is_no_verdict(filled: StoreFixture) -> None:
    """A drive that was cut and never verified is not `verified` after a run on it that was stopped."""
    _begin(filled, 1, "S1", "silence")
    _begin(filled, 2, "S1", "stop")
    (drive,) = _overview(filled).drives
    assert drive.row["verdict"] == "unverified"
    assert (drive.state, drive.text) == ("cut", "an earlier run may have met a cut and was not verified")
    filled.judge(1, "durable")
    (drive,) = _overview(filled).drives
    assert drive.state == "verified"
