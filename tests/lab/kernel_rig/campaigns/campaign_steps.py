"""What tests of campaigns of real parts do and hold in common."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from durability.campaign.campaign_state import CampaignState
from durability.campaign.log_entries import Cause, CycleBegan, CycleEnded, Entry, PowerWentOff
from durability.campaign.results import DriveResult, results
from durability.errors import EXIT_OK
from durability.evidence.verdict import REASONS
from durability_lab.kernel_rig.real_campaign import RealCampaign
from tests.lab.kernel_rig.under_load import StandstillError

DEADLINE_S = 800
NOTHING_AT_RISK = REASONS["nothing-at-risk"]


async def start(campaign: RealCampaign) -> None:
    """Start it as operators do; it begins with its check."""
    await campaign.do("start", str(campaign.file), "--yes")


async def reach(campaign: RealCampaign, holds: Callable[[CampaignState], bool]) -> CampaignState:
    """The state as soon as `holds`; fails with the logs after too long."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            return await campaign.until(holds)
    except TimeoutError:
        pytest.fail(await log_of(campaign))


async def over(campaign: RealCampaign) -> CampaignState:
    """The state once the campaign runs no more."""
    return await reach(campaign, lambda state: state.state != "running")


def in_phase(phase: str, cycle: int) -> Callable[[CampaignState], bool]:
    """Whether that cycle is in that phase; fails where the campaign runs no more."""

    def holds(state: CampaignState) -> bool:
        assert state.state == "running", (state.state, state.reason)
        now = state.cycle
        return now is not None and (now.began.cycle, now.phase) == (cycle, phase)

    return holds


async def assert_is_counted_right(campaign: RealCampaign) -> CampaignState:
    """The whole log, after these were found to agree: the log's cycles, the switch's count of cuts, the words
    of the cycles, and the verdicts that the server has of the runs."""
    entries = await campaign.entries()
    state = CampaignState()
    for entry in entries:
        state.apply(entry)
    began, ended = numbers_of(entries, CycleBegan), numbers_of(entries, CycleEnded)
    log = await log_of(campaign)
    assert began == list(range(len(began))) and ended == began[: len(ended)], log
    offs = sum(isinstance(entry.happening, PowerWentOff) for entry in entries)
    assert campaign.drives.cuts == offs, log
    exported = await campaign.campaign("export", campaign.name)
    assert exported.exit_code == EXIT_OK, exported.err
    runs = json.loads(exported.out)["runs"]
    for past in state.cycles:
        for mine in past.drives:
            judged = past.judged.get(mine.drive)
            assert (judged is not None) == bool(mine.run), log
            if judged is not None:
                verdicts = [one["verdict"] for one in runs[mine.run]["case"]["verdicts"]]
                assert (judged.verdict in verdicts) if judged.verdict else not verdicts, log
                assert (mine.word == "loss") == ("loss" in verdicts), log
                if mine.word == "durable":
                    assert mine.cut and set(verdicts) == {"durable"} and judged.cut_class == "power", log
    return state


def not_counted(result: DriveResult) -> list[tuple[int, Cause]]:
    """Cycle and cause of what a drive's result leaves out, but for cuts at which a busy machine had no record
    at risk: those say nothing, and rightly."""
    return [(cycle, cause) for cycle, cause, text in result.left_out if text != NOTHING_AT_RISK]


def idle_cuts(result: DriveResult) -> int:
    """How many cuts of a drive met no record at risk, see `not_counted`."""
    return len(result.left_out) - len(not_counted(result))


def require_load(state: CampaignState) -> None:
    """For what is to be said of campaigns without such cuts: raises StandstillError where there was one."""
    if any(map(idle_cuts, results(state))):
        raise StandstillError(results(state))


def numbers_of(entries: list[Entry], kind: type[CycleBegan | CycleEnded]) -> list[int]:
    """The cycles of the entries of that kind, in the log's order."""
    return [one.happening.cycle for one in entries if isinstance(one.happening, kind)]


async def log_of(campaign: RealCampaign) -> str:
    """The campaign's log and those of its processes, for a failure."""
    shown = await campaign.campaign("show", campaign.name, "--log")
    logs = [part.log.read_text() for part in (*campaign.agents.values(), campaign.server)]
    return "\n".join([shown.out, shown.err, *logs])
