"""`durability campaign`: checks, begins, steers, shows and exports campaigns.

The server stores a campaign as a log. This side reads the log and computes the state with the core, so both
sides have the same state. A campaign begins only after the operator has seen which data it destroys and how
long it takes.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from durability import plain_text
from durability.campaign.campaign_state import CampaignState
from durability.campaign.definition.campaign_file import read_campaign
from durability.campaign.definition.settings import Power, Settings
from durability.campaign.progress import took_s
from durability.errors import EXIT_ENVIRONMENT, EXIT_OK, FormatError, RefusedError, SetupError, UsageError
from durability.formats.documents import to_json, to_value
from durability.protocol.messages import (
    CampaignNames,
    ListCampaigns,
    Show,
    Shown,
    StartCampaign,
    SteerCampaign,
    Stored,
)
from durability.units import parse_run
from durability_client.campaigns import campaign_junit, campaign_text
from durability_client.campaigns.campaign_results import (
    health_to_value,
    losses_so_far_to_value,
    results_to_value,
)
from durability_client.campaigns.entry_lines import entry_line
from durability_client.campaigns.health_text import bars_for
from durability_client.link.campaign_log import FetchedLog, fetch_log, read_log
from durability_client.link.endpoint import Endpoint
from durability_client.link.questions import Questions
from durability_client.link.server_connection import Connection, connect
from durability_client.system import output_files
from durability_client.system.terminal import confirmed, fitted, print_json

STATUS_SCHEMA = "durability.campaigns/1"
CAMPAIGN_SCHEMA = "durability.campaign/1"
LOOK_S = 1.0
_EXPORT = "an export of a campaign"
_MISSING = frozenset({"run-unknown", "bad-request"})  # "bad-request": the server cannot read the row
_SECRET = "_file"
_BY_OLD_AGENTS = (
    "Agents of release 0.1 made this check: they do not note which file systems the drives hold. So the"
    " campaign begins with another check, which cuts again. Upgrade the agents before you answer."
)


async def check(endpoint: Endpoint, path: Path, *, yes: bool, out: TextIO, err: TextIO) -> int:
    """Check the campaign of the file `path`, with one cut, and print the events. Returns the exit code.
    Raises UsageError, SetupError, PeerError."""
    settings = read_file(path)
    print(fitted(campaign_text.what_check_does(settings), err, indent=0), file=err)
    _require_yes(campaign_text.CHECK_QUESTION, yes=yes)
    with closing(await connect(endpoint, "operate")) as connection:
        await connection.request(_start(settings, check_only=True), Stored)
    log = await _follow(endpoint, settings.name, err)
    problems = log.state.checked.problems if log.state.checked is not None else (log.state.reason,)
    for line in campaign_text.checked(log.state, problems):
        print(fitted(line, out, indent=4), file=out)
    return EXIT_ENVIRONMENT if problems else EXIT_OK


async def start(endpoint: Endpoint, path: Path, *, yes: bool, out: TextIO, err: TextIO) -> int:
    """Begin the campaign of the file `path`, and wait for its check if it begins with one. Returns the exit
    code.

    At a terminal the check is made first, so that the operator sees which drives will be used. Raises like
    `check`.
    """
    settings = read_file(path)
    before = await _state_before(endpoint, settings)
    is_checked = before.is_checked(settings, datetime.now(UTC).isoformat())
    if before.checked is not None and before.check_says_less:
        print(fitted(campaign_text.CHECK_SAYS_LESS.format(name=settings.name), err, indent=0), file=err)
    if not yes and not is_checked:
        print(fitted(campaign_text.CHECK_FIRST.format(name=settings.name), err, indent=0), file=err)
        if await check(endpoint, path, yes=False, out=err, err=err) != EXIT_OK:
            return EXIT_ENVIRONMENT
        before = await _state_before(endpoint, settings)
        is_checked = not before.check_says_less
        if not is_checked:
            print(fitted(_BY_OLD_AGENTS, err, indent=0), file=err)
    print(fitted(campaign_text.what_start_does(settings, before), err, indent=2), file=err)
    _require_yes(campaign_text.START_QUESTION, yes=yes)
    with closing(await connect(endpoint, "operate")) as connection:
        await connection.request(_start(settings, check_only=False), Stored)
    log = await _follow(endpoint, settings.name, err, until=lambda state: not state.is_to_be_checked)
    problems = log.state.checked.problems if log.state.checked is not None else (log.state.reason,)
    if problems or not is_checked:
        to = out if problems else err
        for line in campaign_text.checked(log.state, problems):
            print(fitted(line, to, indent=4), file=to)
    if problems:
        return EXIT_ENVIRONMENT
    print(fitted(campaign_text.BEGUN.format(name=settings.name), out, indent=2), file=out)
    return EXIT_OK


async def _state_before(endpoint: Endpoint, settings: Settings) -> CampaignState:
    """State of the campaign before it begins. Raises RefusedError if it must not begin, PeerError."""
    with closing(await connect(endpoint, "query")) as connection:
        names = (await connection.request(ListCampaigns(), CampaignNames)).names
        if settings.name not in names:
            return CampaignState()
        state = (await fetch_log(connection, settings.name)).state
    state.require_may_begin()
    return state


async def steer(endpoint: Endpoint, name: str, action: str, *, out: TextIO) -> None:
    """Pause, resume, stop or adopt a campaign. Raises RefusedError, PeerError."""
    with closing(await connect(endpoint, "operate")) as connection:
        await connection.request(SteerCampaign(name=name, action=action), Stored)
    print(campaign_text.AFTER[action].format(name=name), file=out)


async def status(endpoint: Endpoint, name: str | None, *, json: bool, out: TextIO) -> None:
    """Write the progress of campaigns to `out`: of the campaign `name`, or without a name of all that have
    not ended and of the newest one. Raises RefusedError, PeerError."""
    with closing(await connect(endpoint, "query")) as connection:
        names = (await connection.request(ListCampaigns(), CampaignNames)).names
        logs = [await _readable_log(connection, one) for one in ((name,) if name is not None else names)]
    if name is None:
        newest = logs[-1:]
        logs = [log for log in logs if log.state.state != "ended" or log in newest]
    if json:
        shown = [{**_status_value(log), "note": log.note} for log in logs]
        print_json({"schema": STATUS_SCHEMA, "campaigns": shown}, out)
        return
    if not logs:
        print("no campaign has begun: `durability campaign start FILE`", file=out)
    for number, log in enumerate(logs):
        if number:
            print(file=out)
        if log.note:
            print(fitted(f"campaign {log.name}: {log.note}", out, indent=2), file=out)
        lines = campaign_text.status(log.state, log.silent_s, took_s=took_s(log.entries))
        for line in (*lines, *campaign_text.warnings(log.state)):
            print(fitted(line, out, indent=2), file=out)


def _status_value(log: FetchedLog) -> dict[str, Any]:
    return campaign_text.status_value(log.state, log.silent_s, took_s=took_s(log.entries))


async def show(endpoint: Endpoint, name: str, *, log: bool, health: bool, json: bool, out: TextIO) -> None:
    """Write a campaign to `out`. `log`: with all entries of its log. `health`: with the health of each drive
    after each cycle. Raises RefusedError, PeerError."""
    with closing(await connect(endpoint, "query")) as connection:
        read = await fetch_log(connection, name)
    if json:
        print_json(_value(read), out)
        return
    took = took_s(read.entries)
    for line in campaign_text.page(read.state, read.silent_s, took_s=took, bars=bars_for(out), health=health):
        print(fitted(line, out, indent=2), file=out)
    if log:
        print(file=out)
        for entry in read.entries:
            print(plain_text.as_line(entry_line(entry)), file=out)


async def export(
    endpoint: Endpoint, name: str, *, output: Path | None, junit: Path | None, out: TextIO, err: TextIO
) -> None:
    """Write a campaign with the cases and verdicts of all its runs to the file `output`, or to `out`, and a
    JUnit report to `junit`.

    If the server lacks a run or cannot read it, the export contains the reason, and `err` gets a message.
    Raises like `show`, and SetupError if a file cannot be written.
    """
    if output is not None:
        output_files.check_new(output, _EXPORT)
    with closing(Questions(endpoint)) as questions:
        read = await fetch_log(questions, name)
        runs, missing = {}, {}
        for run in _runs(read.state):
            try:
                runs[run] = dict((await questions.request(Show(run=parse_run(run)), Shown)).document)
            except RefusedError as error:
                if error.code not in _MISSING:
                    raise
                missing[run] = str(error)
                print(fitted(f"the export lacks run {run}: {error}", err, indent=2), file=err)
    document = {**_value(read), "runs": runs, "missing_runs": missing}
    if junit is not None:
        campaign_junit.write(read.state, junit)
    if output is None:
        print_json(document, out)
    else:
        output_files.create(output, f"{to_json(document)}\n".encode(), _EXPORT)


def read_file(path: Path) -> Settings:
    """The settings in the file `path`. Relative paths in it are relative to its directory. Raises UsageError,
    SetupError."""
    try:
        data = path.read_bytes()
        text = data.decode()
    except OSError as error:
        raise SetupError(f"cannot read the campaign file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not a text in UTF-8: {error}") from error
    seed = int.from_bytes(hashlib.sha256(data).digest()[:6], "big")  # the same for `check` and `start`
    try:
        settings = read_campaign(text, name=path.stem, seed=seed)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    directory = path.absolute().parent
    return replace(settings, power=tuple(_with_whole_paths(power, directory) for power in settings.power))


def _with_whole_paths(power: Power, directory: Path) -> Power:
    whole = {
        key: str(directory / value) if key.endswith(_SECRET) else value
        for key, value in power.options.items()
    }
    return replace(power, options=whole)


def _start(settings: Settings, *, check_only: bool) -> StartCampaign:
    return StartCampaign(settings=to_value(settings), check_only=check_only)


def _require_yes(question: str, *, yes: bool) -> None:
    if not yes and not confirmed(question):
        raise UsageError("nothing was begun: answer yes at a terminal, or add --yes")


async def _readable_log(connection: Connection, name: str) -> FetchedLog:
    """A log, as far as it can be read. An unreadable log gets a note, so that others are still shown. Raises
    RefusedError, PeerError."""
    log = FetchedLog(name=name)
    try:
        await read_log(connection, log)
    except FormatError as error:
        log.note = log.note or f"its log cannot be read: {error}"
    return log


async def _follow(
    endpoint: Endpoint, name: str, err: TextIO, *, until: Callable[[CampaignState], bool] = lambda _: False
) -> FetchedLog:
    """Print the events of a campaign until it has ended or is paused, or until `until` returns True."""
    log = FetchedLog(name=name)
    told = 0
    with closing(await connect(endpoint, "query")) as connection:
        while True:
            await read_log(connection, log)
            began = max(
                (number for number, entry in enumerate(log.entries) if entry.happening.kind == "began"),
                default=0,
            )
            for entry in log.entries[max(told, began) :]:
                print(plain_text.as_line(entry_line(entry)), file=err, flush=True)
            told = len(log.entries)
            if log.state.state != "running" or until(log.state):
                return log
            await asyncio.sleep(LOOK_S)


def _value(log: FetchedLog) -> dict[str, object]:
    return {
        "schema": CAMPAIGN_SCHEMA,
        "name": log.name,
        "state": log.state.state,
        "reason": log.state.reason,
        "results": results_to_value(log.state),
        "losses_so_far": losses_so_far_to_value(log.state),
        "health": health_to_value(log.state),
        "entries": [to_value(entry) for entry in log.entries],
    }


def _runs(state: CampaignState) -> tuple[str, ...]:
    """The runs of all cycles, in order, with those of the present cycle."""
    past = [mine.run for past in state.cycles for mine in past.drives if mine.run]
    return (*past, *(state.cycle.runs.values() if state.cycle is not None else ()))
