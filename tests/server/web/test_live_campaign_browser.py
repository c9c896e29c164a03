"""A campaign of two machines on the live page, in a real browser: while it goes on, the page shows what `runs
--json`, `show --json`, `campaign status --json` and `campaign show --json` print."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, TextIO

import pytest

from durability.campaign.campaign_state import CampaignState
from durability.campaign.definition.settings import DriveUnderTest, Power
from durability.campaign.progress import hours
from durability.campaign.results import DriveResult, sentence
from durability.evidence.strength import weightiest
from durability.formats.case import case_from_value
from durability.formats.documents import from_value
from durability.plain_text import owner_label
from durability.protocol.local_address import socket_name
from durability.units import duration, parse_run, percent_at_most
from durability_client import queries
from durability_client.campaigns import campaign_command
from durability_client.link.endpoint import Endpoint
from tests import chromium
from tests.server.campaigns.played_machine import Machine, switch
from tests.server.campaigns.test_campaigns import begin, living, settings_of, until
from tests.server.conftest import Lab
from tests.server.web.conftest import Page, Show
from tests.waiting import DEADLINE_S

pytestmark = pytest.mark.slow

CUTS = 3
DASH = "\u2013"
# The figures of a drive's health: name on the page, key in JSON, text of a value.
HEALTH: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("time to ready", "ready_s", lambda value: duration(value * 1e9)),
    ("mount with replay", "mount_s", lambda value: duration(value * 1e9)),
    ("commit p50", "commit_p50_us", lambda value: duration(value * 1e3)),
    ("commit p99", "commit_p99_us", lambda value: duration(value * 1e3)),
    ("unsafe shutdowns", "unsafe_shutdowns", lambda value: f"{value:,}"),
    ("media errors", "media_errors", lambda value: f"{value:,}"),
    ("spare blocks", "spare_percent", lambda value: f"{value} %"),
    ("wear", "used_percent", lambda value: f"{value} %"),
    ("capacitor health", "capacitor_percent", lambda value: f"{value} %"),
)

# Each table by its name, a row by the names of its columns; the tiles; the panels; and by the heading of each
# drive's health, its pictures: name, newest value, range.
_SEEN = """
(() => {
  const text = (one) => one.textContent.replace(/\\s+/g, " ").trim();
  const rows = (table) => {
    const names = [...table.querySelectorAll("thead th")].map(text);
    return [...table.querySelectorAll("tbody tr")].map((row) =>
      Object.fromEntries([...row.cells].map((cell, number) => [names[number], text(cell)])));
  };
  const tables = [...document.querySelectorAll("#live .scroll")];
  const health = [...document.querySelectorAll("#live h2")].filter((one) => /^Health of /.test(text(one)));
  const pictures = (heading) => {
    let one = heading.nextElementSibling;
    while (one && !one.matches("h2, .lines")) one = one.nextElementSibling;
    if (!one || one.matches("h2")) return [];
    return [...one.querySelectorAll("figcaption")].map((caption) => [...caption.children].map(text));
  };
  return JSON.stringify({
    tables: Object.fromEntries(tables.map((one) => [one.getAttribute("aria-label"), rows(one)])),
    tiles: [...document.querySelectorAll("#live .tile")].map((one) => [...one.children].map(text)),
    panels: [...document.querySelectorAll("#live .panel")].map(text),
    health: Object.fromEntries(health.map((one) => [text(one), pictures(one)])),
    opened: performance.timeOrigin,
  });
})()
"""


@dataclass(frozen=True, slots=True)
class Commands:
    """What the commands print as JSON for the operator of the server at `endpoint`."""

    endpoint: Endpoint

    async def runs(self) -> Any:
        """`durability runs --json`."""
        chosen = queries.ChosenRuns(limit=100)
        return await _printed(lambda out: queries.runs(self.endpoint, chosen, each=False, json=True, out=out))

    async def show(self, run: str) -> Any:
        """`durability show RUN --json`."""
        number = parse_run(run)
        return await _printed(lambda out: queries.show(self.endpoint, number, json=True, out=out))

    async def status(self) -> Any:
        """`durability campaign status --json`: the newest campaign."""
        status = await _printed(lambda out: campaign_command.status(self.endpoint, None, json=True, out=out))
        (campaign,) = status["campaigns"]
        return campaign

    async def campaign(self, name: str) -> Any:
        """`durability campaign show NAME --json`."""
        return await _printed(
            lambda out: campaign_command.show(
                self.endpoint, name, log=False, health=False, json=True, out=out
            )
        )


async def _printed(command: Callable[[TextIO], Awaitable[None]]) -> Any:
    out = io.StringIO()
    await command(out)
    return json.loads(out.getvalue())


@dataclass(frozen=True, slots=True)
class Overlook:
    """The pages in a browser beside the commands."""

    browser: chromium.Browser
    page: Page
    commands: Commands

    async def open(self, path: str) -> None:
        """Load a page, in place of the one before."""
        await asyncio.to_thread(self.browser.open, self.page.url + path)

    async def agrees(self, path: str) -> dict[str, Any]:
        """What the open page shows, as soon as it is what the commands print; it is not loaded again."""
        missing: list[str] = []
        opened = 0.0
        try:
            async with asyncio.timeout(DEADLINE_S):
                while True:
                    expected = await self._expected(path)
                    seen: dict[str, Any] = json.loads(await asyncio.to_thread(self.browser.evaluate, _SEEN))
                    opened = opened or seen["opened"]
                    assert seen["opened"] == opened
                    missing = _missing(seen, expected)
                    if not missing:
                        return seen
                    await asyncio.sleep(0.1)
        except TimeoutError:
            pytest.fail("\n".join([f"/{path} does not show:", *missing]))

    async def _expected(self, path: str) -> dict[str, Any]:
        match path.split("/"):
            case ["campaigns", name]:
                return _of_campaign(await self.commands.status(), await self.commands.campaign(name))
            case ["runs", run]:
                return _of_run(await self.commands.show(run))
        return _of_all(await self.commands.runs(), await self.commands.status())


def _missing(seen: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """What is expected and not seen: rows of tables by the cells that are named, no more and no fewer rows,
    tiles, and how panels begin."""
    missing = []
    nothing: dict[str, str] = {}
    for name, rows in expected["tables"].items():
        shown = seen["tables"].get(name, [])
        missing += [f"{name}: {row}" for row in shown[len(rows) :]]
        for row, one in zip_longest(rows, shown[: len(rows)], fillvalue=nothing):
            missing += [f"{name}: {key} {row[key]!r} in {one}" for key in row if one.get(key) != row[key]]
    missing += [f"tile {tile}" for tile in expected["tiles"] if tile not in seen["tiles"]]
    panels = seen["panels"]
    missing += [one for one in expected["panels"] if not any(panel.startswith(one) for panel in panels)]
    health = expected.get("health", {})
    if seen["health"] != health:
        missing.append(f"health {health} in {seen['health']}")
    return missing


def _of_all(runs: Mapping[str, Any], campaign: Mapping[str, Any]) -> dict[str, Any]:
    drives = runs["drives"]
    live = [run for run in runs["runs"] if run["session_end"] == "live"]
    lost = [drive for drive in drives if drive["losses"]]
    return {
        "tiles": [
            [str(len(live)), "live run" if len(live) == 1 else "live runs"],
            [str(len(drives)), "drives"],
            [str(len(lost)), "lost data"],
        ],
        "panels": [],
        "tables": {
            "Drives": list(map(_drive, drives)),
            "Campaigns": [
                {
                    "campaign": campaign["name"],
                    "what it does": campaign["doing"],
                    "time left": _left(campaign),
                    "what it says": "".join(_sentences(campaign)),
                }
            ],
            "Runs": [
                {
                    "run": run["run"],
                    "state": run["state"],
                    "session": run["session_end"],
                    "verdict": _word(run["verdict"]),
                    "acknowledged": f"{run['acked']:,}",
                    "machine": run["host"],
                    "target": run["path"],
                    "label": run["label"],
                    "registered (UTC)": _when(run["registered"]),
                }
                for run in runs["runs"]
            ],
        },
    }


def _drive(row: Mapping[str, Any]) -> dict[str, str]:
    bound = row["bound"]
    return {
        "drive": row["model"],
        "serial": row["serial"],
        "machine": row["host"],
        "client": owner_label(row["client"], row["client_name"]),
        "cuts": str(row["cuts"]),
        "clean": str(row["cuts"] - row["losses"]),
        "loss": str(row["losses"]),
        "left out": str(row["left_out"]),
        "at most": _bound(bound) + (row["cut_class"] if bound is not None else ""),
        "last verdict": _word(row["verdict"]),
        "newest run": row["run"],
    }


def _of_campaign(status: Mapping[str, Any], shown: Mapping[str, Any]) -> dict[str, Any]:
    entries = [(entry["wall"], entry["happening"]) for entry in shown["entries"]]
    over = [one for one in entries if one[1]["kind"] == "cycle-ended" and one[1]["cycle"]]
    to_do = [CUTS - result["tally"]["cuts"] for result in status["results"] if not result["left"]]
    left = max(to_do) if status["state"] != "ended" else 0
    rows: list[dict[str, str]] = []
    for result in status["results"]:
        rows.append(_cuts(result) | {"drive": result["drive"], "arm": "all under load"})
        rows += [_cuts(arm) | {"drive": "", "arm": arm["arm"]} for arm in result["arms"]]
    return {
        "tiles": [
            [status["state"], status["doing"]],
            [f"{len(over)} over, {left} left", "cycles"],
            [_left(status), "time left"],
        ],
        "panels": [
            *_sentences(status),
            *(one["text"] for drive in shown["health"] for one in drive["warnings"]),
        ],
        "health": {
            f"Health of {drive['drive']}, by cycle": _pictures(drive["rows"])
            for drive in shown["health"]
            if drive["rows"]
        },
        "tables": {"Cuts": rows, **({"Newest cycles": list(map(_cycle, reversed(over)))} if over else {})},
    }


def _pictures(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Name, newest value and range of each figure of a drive's health that is known in a cycle."""
    found = []
    for name, key, shown in HEALTH:
        values = [row[key] for row in rows]
        known = [value for value in values if value is not None]
        if known:
            ends = [shown(min(known)), shown(max(known))]
            newest = shown(values[-1]) if values[-1] is not None else DASH
            found.append([name, newest, " to ".join(dict.fromkeys(ends))])
    return found


def _cycle(ended: tuple[str, Mapping[str, Any]]) -> dict[str, str]:
    wall, cycle = ended
    drives = (
        " ".join(filter(None, (f"{one['drive']}: {_word(one['word'])}", one["run"], one["text"])))
        for one in cycle["drives"]
    )
    return {"cycle": str(cycle["cycle"]), "over (UTC)": _when(wall), "drives": "; ".join(drives)}


def _of_run(shown: Mapping[str, Any]) -> dict[str, Any]:
    case = shown["case"]
    end, state = case["session_end"], case["state"]
    word = weightiest(case_from_value(case).verdicts)
    return {
        "tiles": [
            ["live", state] if end == "live" else [state, f"session: {end}"],
            [f"{sum(case['frontiers']):,}", "operations acknowledged"],
            [_word(word.verdict) if word is not None else DASH, "verdict that counts"],
        ],
        "panels": [
            f"Verdict: {_word(verdict['verdict'])} class of the cut{verdict['cut']['class']}"
            for verdict in shown["verdicts"]
        ],
        "tables": {
            "Events": [
                {"when (UTC)": _when(event["wall"]), "what": event["kind"], "text": event["text"]}
                for event in reversed(case["events"])
            ]
        },
    }


def _cuts(counted: Mapping[str, Any]) -> dict[str, str]:
    """The counts of a drive or of one of its arms. `left_out` are the cycles of the one, a number of the
    other."""
    tally, left_out = counted["tally"], counted["left_out"]
    return {
        "cuts": str(tally["cuts"]),
        "clean": str(tally["cuts"] - tally["losses"]),
        "loss": str(tally["losses"]),
        "kept": str(counted["kept"]),
        "left out": str(left_out if isinstance(left_out, int) else len(left_out)),
        "at most": _bound(tally["bound"]),
    }


def _sentences(status: Mapping[str, Any]) -> list[str]:
    found = [from_value(DriveResult, result) for result in status["results"]]
    return [f"{result.drive}: {sentence(result)}" for result in found]


def _bound(bound: float | None) -> str:
    return percent_at_most(bound) if bound is not None else DASH


def _left(status: Mapping[str, Any]) -> str:
    return f"about {hours(status['left_s'])}" if status["left_s"] is not None else DASH


def _word(verdict: str) -> str:
    return "LOSS" if verdict == "loss" else verdict


def _when(wall: str) -> str:
    return f"{wall[:10]} {wall[11:19]}"


async def test_a_campaign_of_two_machines(
    lab: Lab, sqlite_url: str, show_page: Show, browser: chromium.Browser, tmp_path: Path
) -> None:
    """In each cycle, while the switch waits and both machines write, and at the end: drives, runs, counts,
    bounds, verdicts and cycles are those of the commands. A page that stays open follows the cut."""
    running = await lab.start(sqlite_url, readers=True)
    page = await show_page(running.server, sqlite_url)
    local = lab.directory / socket_name(running.address[1])
    overlook = Overlook(browser, page, Commands(Endpoint(local=local)))
    other = await lab.join(running.address, (await running.server.invite()).line, name="other")
    power, gate = tmp_path / "power", tmp_path / "gate"
    power.write_text("on\n")
    settings = settings_of(
        power, machines=("test", "other"), drives=(_drive_of("test"), _drive_of("other")), cuts=CUTS
    )
    settings = replace(settings, power=(_turnstile(power, gate),))
    lossy = {"other-ssd": ["durable", "loss"]}
    machines = (
        Machine(lab, running.address, power, host="host-a"),
        Machine(lab, running.address, power, host="host-b", member=other, verdicts=lossy),
    )
    async with living(machines[0]), living(machines[1]):
        gate.touch()  # for the check
        await begin(lab, running, settings)
        follows = ""  # the page that is open since the cycle before
        for cycle in range(1, CUTS + 1):
            await until(lab, running, partial(_waits_for_its_cut, cycle=cycle))
            if follows:
                await overlook.agrees(follows)
            run = machines[0].armed[-1]
            pages = ["", "campaigns/trial", f"runs/{run}"]
            for path in pages[cycle:] + pages[:cycle]:
                await overlook.open(path)
                seen = await overlook.agrees(path)
                assert browser.complaints == []
                if not path:
                    writing = [
                        drive["machine"] for drive in seen["tables"]["Drives"] if "writing" in drive["state"]
                    ]
                    assert sorted(writing) == (["host-a", "host-b"] if cycle < CUTS else ["host-a"])
                follows = path
            gate.touch()
        await until(lab, running, lambda state: state.state == "ended")
        await overlook.agrees(follows)
        for path in ("", "campaigns/trial", f"runs/{machines[1].armed[-1]}"):
            await overlook.open(path)
            seen = await overlook.agrees(path)
            if path.startswith("campaigns"):
                assert all(len(pictures) >= 5 for pictures in seen["health"].values())
                assert len(seen["health"]) == len(machines)
    (runs, campaign) = await overlook.commands.runs(), await overlook.commands.status()
    assert sorted(drive["losses"] for drive in runs["drives"]) == [0, 1]
    assert campaign["reason"] == "complete"


def _drive_of(machine: str) -> DriveUnderTest:
    return DriveUnderTest(
        name=f"{machine}-ssd",
        machine=machine,
        device="",
        file_system="",
        mount_options="",
        target="/mnt/t",
        size="",
    )


def _turnstile(power: Path, gate: Path) -> Power:
    """A switch that waits for the file `gate` before it goes off, and takes it away: each file lets one cut
    pass."""
    waits = f"until mv {gate} {gate}.used 2>&-; do sleep 0.05; done; "
    return replace(switch(power, before_off=waits), timeout_s=600.0)


def _waits_for_its_cut(state: CampaignState, *, cycle: int) -> bool:
    return state.cycle is not None and state.cycle.began.cycle == cycle and state.cycle.phase == "off"
