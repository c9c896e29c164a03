"""News that a server was giving when it died, news without its store, and commands that cannot be run."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from durability.campaign import delays
from durability.campaign.cycles import draw_cycle
from durability.campaign.log_entries import PauseAsked, Paused, Resumed, StrangerHeard
from durability.errors import RefusedError, StoreError
from durability.formats.case import Case
from durability_server.campaigns import campaign_task
from durability_server.campaigns.campaign_logs import CampaignLog
from durability_server.campaigns.campaign_task import CampaignTask
from durability_server.campaigns.notifications import News, require_program
from durability_server.store.store import Store
from durability_server.store.store_thread import StoreThread
from tests.core.campaign.test_entries import BEGAN
from tests.server.campaigns.test_unreadable_runs import _NoSwitches
from tests.waiting import until

NAME = "trial"


@asynccontextmanager
async def _begun(sqlite_url: str, told: Path) -> AsyncIterator[tuple[CampaignLog, Store, StoreThread]]:
    """The log of a begun campaign whose command appends its message to the file `told`."""
    await asyncio.to_thread(told.touch)
    store, thread = Store(sqlite_url), StoreThread()
    await thread.call(store.open)
    log = CampaignLog(NAME, store.campaigns, thread, boot_id="boot")
    began = replace(BEGAN, settings=replace(BEGAN.settings, notify=f"sh -c 'echo \"$0\" >> {told}'"))
    assert await log.begin(lambda _: began, home="here", after=0)
    try:
        yield log, store, thread
    finally:
        await thread.close(store.close)


@asynccontextmanager
async def _conducted(
    log: CampaignLog,
    store: Store,
    thread: StoreThread,
    *,
    claim: Callable[[], Awaitable[bool]],
    announce: Callable[[str, str], None],
) -> AsyncIterator[CampaignTask]:
    """The server's task that conducts the campaign, for the duration of the block."""

    async def case(run: int) -> Case:
        raise RefusedError("run-unknown", "none")

    async def still(run: int) -> bool:
        return True

    task = CampaignTask(
        log,
        _NoSwitches(),
        claim=claim,
        case=case,
        hold=lambda run: None,
        is_still=still,
        news=News(log, store.campaigns, thread, announce=announce),
        shared=True,
    )
    work = asyncio.create_task(task.work())
    try:
        yield task
    finally:
        work.cancel()
        await asyncio.wait([work])


async def test_only_the_last_news_come_twice(sqlite_url: str, tmp_path: Path) -> None:
    """After a restart the command is called again only for the last news, because it was already called for
    all earlier ones."""
    told, freed = tmp_path / "told", tmp_path / "freed"
    told.touch()
    slow = f"[ -e {freed} ] || case $0 in *two) sleep 1000;; esac"
    notify = f"sh -c 'echo ${{0##* }} >> {told}; {slow}'"
    store, thread = Store(sqlite_url), StoreThread()
    await thread.call(store.open)
    log = CampaignLog(NAME, store.campaigns, thread, boot_id="boot")
    began = replace(BEGAN, settings=replace(BEGAN.settings, notify=notify))
    assert await log.begin(lambda _: began, home="here", after=0)
    await log.add(lambda _: [StrangerHeard(machine="shelf", text=text) for text in ("one", "two", "three")])

    async def give(*expected: str) -> None:
        news = News(log, store.campaigns, thread, announce=lambda who, what: None)
        work = asyncio.create_task(news.work())
        await until(lambda: told.read_text().split() == list(expected))
        work.cancel()
        await asyncio.wait([work])

    await give("one", "two")
    freed.touch()
    await give("one", "two", "two", "three")
    await thread.close(store.close)


@pytest.mark.parametrize(
    "failure", [StoreError("its disk is full"), KeyError("its defect")], ids=["store", "defect"]
)
@pytest.mark.parametrize("paused", [False, True])
async def test_a_campaign_whose_steps_fail_for_long_calls_the_command(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paused: bool, failure: Exception
) -> None:
    """The store is away, or the tool has a defect, so no entry can say it: the command is called once for
    each failure. One that people paused has no step to take."""
    monkeypatch.setattr(campaign_task, "ALARM_S", 0.2)
    monkeypatch.setattr(campaign_task, "RETRY_S", 0.02)
    told = tmp_path / "told"
    away, tries = True, 0

    async def claim() -> bool:
        nonlocal tries
        tries += 1
        if away:
            raise failure
        return True

    async with _begun(sqlite_url, told) as (log, store, thread):
        if paused:
            await log.add(lambda _: [PauseAsked(stop=False), Paused(reason="")])
        async with _conducted(log, store, thread, claim=claim, announce=lambda who, what: None) as task:
            for count in (1, 2):
                before, away = tries, True
                await until(lambda before=before: tries > before + 50)  # type: ignore[misc]
                if not paused:
                    await until(lambda count=count: len(told.read_text().splitlines()) == count)  # type: ignore[misc]
                away = False
                await until(lambda: task._failing_ns is None)
            lines = told.read_text().splitlines()
            assert len(lines) == (0 if paused else 2), lines
            said = re.compile(r"campaign trial: no step could be taken for \d+ s: ")
            assert all(map(said.match, lines)), lines


async def test_work_that_lasts_for_long_calls_the_command_once(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drives that are made ready for much longer than usual may hang: people are told once, and once more if
    it lasts as long again after they resumed."""
    monkeypatch.setattr(campaign_task, "LOOK_S", 0.01)
    monkeypatch.setattr(delays, "LONG_S", 0.2)
    monkeypatch.setattr(delays, "LONG_CYCLES", 0.0)
    told, announced = tmp_path / "told", list[str]()
    tries = 0

    async def claim() -> bool:
        nonlocal tries
        tries += 1
        return True

    async with _begun(sqlite_url, told) as (log, store, thread):
        settings = BEGAN.settings
        drives = tuple(drive.name for drive in settings.drives)
        await log.add(lambda _: [draw_cycle(settings, 0, drives)])
        async with _conducted(
            log, store, thread, claim=claim, announce=lambda who, what: announced.append(what)
        ):
            for count in (1, 2):
                await until(lambda count=count: len(told.read_text().splitlines()) >= count)  # type: ignore[misc]
                before = tries
                await until(lambda before=before: tries > before + 20)  # type: ignore[misc]
                assert len(told.read_text().splitlines()) == count, told.read_text()
                await log.add(lambda _: [PauseAsked(stop=False), Paused(reason=""), Resumed()])
            said = "check: looking for the drives for 1 min, much longer than usual"
            assert all(line.startswith(f"campaign trial: {said}") for line in told.read_text().splitlines())
            assert sum(what.startswith(said) for what in announced) >= 2


def test_a_command_whose_program_is_not_there_is_refused(tmp_path: Path) -> None:
    """A news command whose program is missing or cannot be executed is refused, as a power command is.
    Otherwise a loss at night would be reported to no one."""
    require_program("")
    require_program("sh -c true")
    (tmp_path / "mail").write_text("")
    for command in ("/no/such/program now", f"{tmp_path}/mail"):
        with pytest.raises(RefusedError, match="there is no program /"):
            require_program(command)
