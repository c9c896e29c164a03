"""What the first page and /metrics say of drives and live runs, read from a store without a page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from durability.campaign.log_entries import Began, CutDue, DriveReported, Entry, MachineSeen, PowerAsked
from durability.campaign.tasks import Trouble
from durability_server.store.client_store import Client, Invitation
from durability_server.store.store import Store
from durability_server.web.campaign_watch import CampaignWatch, WatchedCampaign, vanished
from durability_server.web.metrics import metrics
from durability_server.web.readings import Overview, _machines, campaign_view, missing_text, overview
from durability_server.web.watch import Watch
from tests.client.bench.test_cut_verdicts import keep_log
from tests.core.campaign.told_campaign import ToldCampaign, condition, part, told_settings
from tests.core.campaign.written_log import said, written_log
from tests.server.store.conftest import StoreFixture

if TYPE_CHECKING:
    from tests.server.conftest import Lab

SHOWN = 2
WALL = "2026-01-01T00:00:00Z"


@pytest.fixture
def filled(sqlite_url: str, lab: Lab) -> Iterator[StoreFixture]:
    """An open store, in which no server that is over has left a run live."""
    store = Store(sqlite_url)
    store.open()
    store.mark_left_live()
    yield StoreFixture(store, lab)
    store.close()


def _begin(filled: StoreFixture, run: int, serial: str, session_end: str, client: str = "") -> None:
    facts = filled.lab.facts(serial=serial, uuid=f"of {serial}")
    filled.register(run, facts=facts, force=True, client=client)
    filled.arm(run, facts=facts)
    filled.save(run, session_end=session_end)


def _join(filled: StoreFixture, client: str, name: str) -> None:
    hash_ = client.encode().ljust(32)
    invitation = Invitation(hash=hash_, role="client", name="", expires=10)
    filled.store.clients.invite(invitation, wall=WALL, now=1)
    filled.store.clients.join(hash_, Client(id=client, name=name, role="client", hash=b"h"), wall=WALL, now=1)


def _overview(filled: StoreFixture) -> Overview:
    return overview(filled.store, CampaignWatch(filled.store.campaigns), {}, SHOWN)


@pytest.mark.slow
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


def test_a_machine_is_the_client_that_joined(filled: StoreFixture) -> None:
    """Two clones with one host name are two machines, under their own names, and the operator's is a third.
    One that is in a campaign stands there once, and its series in /metrics have the label of its drive's."""
    for run, name in enumerate(("db1", "db2"), 1):
        _join(filled, f"c{run}", name)
        _begin(filled, run, f"S{run}", "live" if run == 1 else "silence", client=f"c{run}")
    _begin(filled, 3, "S3", "live")
    keep_log(filled.store, written_log("c", [], {"d0": condition("S2")})[:-1])  # it goes on
    campaign = CampaignWatch(filled.store.campaigns)
    (machine,) = campaign.read()[0].state.plan.machines
    filled.store.clients.rename("c2", machine)
    seen = overview(filled.store, campaign, {"c": {machine: 0.5}}, SHOWN)
    host = filled.lab.facts().host.hostname
    assert {(one.name, one.hosts, one.state, one.text) for one in seen.machines} == {
        ("db1", (host,), "writing", "1 live"),
        (machine, (host,), "heard", "in campaign c"),
        (host, (), "writing", "1 live"),
    }
    text = metrics(seen, Watch(filled.store), 1).decode()
    assert f'durability_machine_silent_seconds{{campaign="c",client="{machine}"}} 0.5' in text
    assert f'durability_drive_runs{{client="{machine}",machine="{host}",' in text


def test_a_machine_that_fills_its_first_target_has_the_name_that_it_joined_with(filled: StoreFixture) -> None:
    """A machine of a campaign whose only run is not armed yet has no known drive. The overview lists it once,
    under its joined name."""
    keep_log(filled.store, written_log("c", [], {"d0": condition("S2")})[:-1])  # it goes on
    campaign = CampaignWatch(filled.store.campaigns)
    (name,) = campaign.read()[0].state.plan.machines
    _join(filled, "c1", name)
    facts = filled.lab.facts()
    filled.register(1, facts=facts, client="c1")
    filled.save(1, session_end="live")
    (machine,) = overview(filled.store, campaign, {"c": {name: 0.5}}, SHOWN).machines
    assert (machine.name, machine.state, machine.text) == (name, "writing", "1 live")


def _looked_for(name: str, machine: str, client: str, trouble: Trouble) -> list[Entry]:
    """The log of a campaign that goes on, and whose agent, of this client, looks for the drive S1."""
    *log, _, _ = written_log(name, [[said("durable", 1)]], {"d0": condition("S1")})
    status = part("failed" if trouble else "done", trouble=trouble, text="d0 is not there" if trouble else "")
    log.append(
        replace(
            log[-1],
            number=len(log) + 1,
            happening=DriveReported(machine=machine, task=5, what="run", status=status),
        )
    )
    for at, one in enumerate(log):
        if isinstance(one.happening, Began):
            settings = told_settings(name=name, machines=(machine,), devices=("/dev/disk/by-id/ata-d0",))
            log[at] = replace(one, happening=replace(one.happening, settings=settings))
        elif isinstance(one.happening, MachineSeen):
            log[at] = replace(one, happening=replace(one.happening, machine=machine, client=client))
        elif isinstance(one.happening, DriveReported):
            log[at] = replace(one, happening=replace(one.happening, machine=machine))
    return log


@pytest.mark.parametrize("client", ["c1", ""])
def test_a_drive_vanished_from_the_machine_that_was_cut(filled: StoreFixture, client: str) -> None:
    """If two clients claim one serial, the drive vanished from the client that the campaign cut, even if
    renamed since. A log of release 0.1 has only the name. A later campaign that finds the drive ends the
    alarm."""
    for run, name in enumerate(("renamed", "b"), 1):
        _join(filled, f"c{run}", name)
        _begin(filled, run, "S1", "silence", client=f"c{run}")
        filled.judge(run, "durable")
    keep_log(filled.store, _looked_for("c", "b", client, "missing"))
    owner = "renamed" if client else "b"

    def gone() -> dict[str, str]:
        seen = _overview(filled)
        shown = {one.owner: one.text for one in seen.drives if one.state == "vanished"}
        text = metrics(seen, Watch(filled.store), 1).decode()
        series = r'^durability_drive_vanished\{client="(\w+)",.*\} 1\.0$'
        assert re.findall(series, text, re.MULTILINE) == list(shown)
        return shown

    assert gone() == {owner: "d0 is not there"}
    keep_log(filled.store, _looked_for("d", owner, "c1" if client else "c2", ""), "d")
    assert gone() == {}


@pytest.mark.parametrize("order", ["S1 + S9", "S9 + S1"])
def test_a_vanished_mirror_is_found_in_any_order_of_its_drives(order: str) -> None:
    """The row of its drives has them sorted; the kernel found them in one order or the other."""
    log = written_log("c", [[said("durable", 1)]], {"d0": condition(order)})
    status = part("failed", trouble="missing", text="d0 is not there")
    reported = DriveReported(machine="b", task=5, what="run", status=status)
    campaign = WatchedCampaign("c")
    for entry in (*log[:-2], replace(log[-1], number=len(log) - 1, happening=reported)):
        campaign.state.apply(entry)
    gone = vanished((campaign,))
    row = {"client": "", "client_name": "b", "serial": "S1 + S9"}
    assert missing_text(row, None, gone, alone=True) == "d0 is not there"


@pytest.mark.parametrize(("is_off", "subject"), [(False, "machine"), (True, "machine"), (True, "drive")])
def test_a_machine_that_is_off_on_purpose_is_not_silent(
    filled: StoreFixture, *, is_off: bool, subject: str
) -> None:
    """A machine that a campaign switched off is not shown as silent, as in `campaign status`, nor in
    /metrics. A machine keeps its power while its drives are cut alone."""
    told = ToldCampaign()
    told.begin(told_settings(subject=subject))
    told.checked()
    told.note()
    told.say(part("armed", run="00000000000000a1"), boot="boot-2")
    assert isinstance(told.note(), CutDue)
    if is_off:
        told.add(PowerAsked(switch=0, operation="off"))
    campaign = WatchedCampaign("c", state=told.state)
    (machine,) = told.state.plan.machines
    silent_s = {"c": {machine: 60.0}}
    (shown,) = _machines((), (), {}, (campaign,), silent_s, names={})
    assert shown.state == ("heard" if is_off and subject == "machine" else "silent")
    view = campaign_view(campaign, silent_s["c"])
    assert view.dark == ({machine} if is_off and subject == "machine" else set())
    seen = Overview(drives=(), machines=(), campaigns=(view,), runs=(), live=(), live_count=0)
    text, labels = metrics(seen, Watch(filled.store), 1).decode(), f'{{campaign="c",client="{machine}"}}'
    assert f"\ndurability_machine_silent_seconds{labels} {0.0 if view.dark else 60.0}\n" in text
    assert f"\ndurability_machine_without_power{labels} {float(is_off)}\n" in text


def test_a_run_that_a_dead_server_left_is_not_live(sqlite_url: str, filled: StoreFixture) -> None:
    """A run that a dead server left live is not counted or listed as live."""
    _begin(filled, 1, "S1", "live")
    filled.store.close()
    filled.store = Store(sqlite_url)
    filled.store.open()
    assert filled.store.live_runs(SHOWN) == () and filled.store.live_by_client() == {}


@pytest.mark.slow
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
