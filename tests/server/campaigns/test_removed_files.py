"""The files of a `target` go at the end of its campaign: no verify may take that for a loss."""

from __future__ import annotations

from pathlib import Path

import pytest

from durability.errors import EXIT_ENVIRONMENT, RefusedError
from durability.formats.case import FILES_REMOVED, Case
from durability.protocol import messages
from durability.units import parse_run
from tests.server.campaigns.played_machine import Machine
from tests.server.campaigns.test_campaigns import begin, living, settings_of, until
from tests.server.conftest import Lab, Running

pytestmark = pytest.mark.slow  # each begins campaigns


async def exported(lab: Lab, running: Running, run: str) -> Case:
    """The run as an export has it."""
    client = await lab.connect(running.address, "query")
    case = await client.export(parse_run(run))
    await client.close()
    return case


async def refusal(lab: Lab, running: Running, run: str) -> RefusedError:
    """Why the server gives the run to no verify, of whatever release."""
    for end in (False, True):
        client = await lab.connect(running.address, "verify")
        with pytest.raises(RefusedError) as refused:
            await client.fetch(parse_run(run), lab.facts(serial="ssd", uuid="ssd"), end=end)
        await client.close()
    return refused.value


async def test_verify_after_the_files_of_a_run_were_removed_is_refused(
    lab: Lab, sqlite_url: str, power: Path
) -> None:
    """The agent is told to remove them once the campaign is over: from then on, and after a restart, the
    server says so to every verify. The verdict stays, and an export says it too."""
    running = await lab.start(sqlite_url)
    async with living(Machine(lab, running.address, power)) as machine:
        await begin(lab, running, settings_of(power, cuts=1))
        await until(lab, running, lambda state: state.state == "ended")
    (run,) = machine.armed
    for _ in range(2):
        refused = await refusal(lab, running, run)
        assert (refused.code, refused.exit_code) == ("run-ended", EXIT_ENVIRONMENT)
        assert f"files of run {run} were removed after its verdict by campaign trial" in str(refused)
        case = await exported(lab, running, run)
        assert case.events[-1].kind == FILES_REMOVED and case.events[-1].text == str(refused)
        assert [past.verdict for past in case.verdicts] == ["durable"]
        await running.server.stop()
        running = await lab.start(sqlite_url)


async def test_verify_before_the_end_and_of_runs_whose_files_stay_is_not_refused(
    lab: Lab, sqlite_url: str, power: Path
) -> None:
    """Target files are recorded as removed neither in a pause, nor after a loss, nor for a run before the
    last one. So `verify` is not refused."""
    running = await lab.start(sqlite_url)
    operator = await lab.connect(running.address, "operate", local=True)
    verdicts = {"ssd": ["durable", "loss", "loss", "loss", "loss"]}
    async with living(Machine(lab, running.address, power, verdicts=verdicts)) as machine:
        await begin(lab, running, settings_of(power, cuts=3, stop_at="end", off_s=(1.0, 1.0)))
        await until(lab, running, lambda state: len(state.cycles) == 2)
        await operator.ask(messages.SteerCampaign(name="trial", action="pause"), messages.Stored)
        await until(lab, running, lambda state: state.state == "paused")
        first = machine.armed[0]
        assert FILES_REMOVED not in [event.kind for event in (await exported(lab, running, first)).events]
        await operator.ask(messages.SteerCampaign(name="trial", action="resume"), messages.Stored)
        await until(lab, running, lambda state: state.state == "ended")
    for run in (first, machine.armed[-1]):
        client = await lab.connect(running.address, "verify")
        case = await client.fetch(parse_run(run), lab.facts(serial="ssd", uuid="ssd"), end=True)
        assert FILES_REMOVED not in [event.kind for event in case.events]
        await client.close()
