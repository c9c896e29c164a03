"""The campaign whose output docs/how-to/run-a-campaign.md shows: the page's own file, played in virtual time.

Log, state, steps, tasks, results and texts are the product's; switch, machine and drive are the lab's. The
same page gives the same output. `python -m tests.system.guide_campaign` prints the blocks for the page.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from random import Random
from unittest.mock import patch

from durability.campaign.campaign_state import CampaignState
from durability.campaign.definition.campaign_file import read_campaign
from durability.campaign.definition.settings import Settings
from durability.campaign.log_entries import Entry, Judged, entry_from_value
from durability.campaign.progress import took_s
from durability.campaign.tasks import Condition, DriveTask
from durability_client.campaigns import campaign_text
from durability_client.campaigns.entry_lines import entry_line
from durability_client.system.terminal import fitted
from durability_client.text_tables import BARS
from durability_lab.campaign_rig.memory_server import MemoryServer
from durability_lab.campaign_rig.played_machine import Durations, PlayedMachine
from durability_lab.campaign_rig.played_switch import PlayedController, PlayedSwitch
from durability_lab.simulated_rig.virtual_time import Agenda, S
from durability_server.campaigns.notifications import news_of
from tests.places import ROOT

PAGE = ROOT / "docs/how-to/run-a-campaign.md"
TEXT = PAGE.read_text(encoding="utf-8")
FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.M | re.S)
BLOCKS = [(kind, textwrap.dedent(text)) for _, kind, text in FENCED.findall(TEXT)]
FILES = [text for kind, text in BLOCKS if kind == "toml"]
BEGIN = datetime(2027, 3, 1, 20, 0, tzinfo=UTC)
WITHIN_S = 30 * 86_400
PACE = Durations(boot_s=35.0, prepare_s=12.0, verify_s=9.0, mount_s=0.041)


class GuideDrives:
    """One drive that counts its cuts. `words`: what the judge says, one after the other, then durable.
    `gone`: it is not there. `serial`: of the one that is."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.cuts = 0
        self.gone = False
        self.serial = "S0EXAMPLE"
        self._draw = Random(1)
        self._runs = 0

    def condition(self, drive: str) -> Condition | None:
        """What the drive says of itself."""
        if self.gone:
            return None
        return Condition(
            model="EXAMPLE",
            serial=self.serial,
            firmware="1.4",
            size_bytes=1_000_204_886_016,
            diskseq=1 + self.cuts,
            emulated=False,
            ready_s=round(self._draw.uniform(2.9, 3.6), 2),
            power_cycles=212 + self.cuts,
            unsafe_shutdowns=37 + self.cuts,
            media_errors=0,
            spare_percent=100,
            used_percent=3,
            backup_failed=None,
            capacitor_percent=None,
            holds="gpt",
        )

    def begin(self, part: DriveTask) -> str:
        """A run begins."""
        self._runs += 1
        return hashlib.sha256(f"{part.drive.name} {self._runs}".encode()).hexdigest()[:16]

    def armed(self, drive: str) -> None:
        """Nothing is to be done."""

    def lose_power(self, drive: str) -> None:
        """Nothing is to be done: the switch counts the cuts."""

    def stop(self, drive: str) -> None:
        """Nothing is to be done."""

    def verify(self, part: DriveTask) -> None:
        """Nothing is to be done."""

    def verified(self, part: DriveTask) -> int:
        """The verify was done."""
        return 0

    def look_up(self, drive: str, run: str) -> Judged:
        """The verdict."""
        word = self.words.pop(0) if self.words else "durable"
        return Judged(
            drive=drive,
            run=run,
            verdict=word,
            cut_class="power",
            reasons=("nothing-at-risk",) if word == "inconclusive" else (),
            at_risk_ms1000=900,
            commit_p50_us=self._draw.uniform(410, 440),
            commit_p99_us=self._draw.uniform(1500, 2100),
        )


class GuideCampaign:
    """A campaign of the page, from its beginning. `after_on`: called each time after the power came back."""

    def __init__(self, settings: Settings, *, pace: Durations = PACE, check_only: bool = False) -> None:
        self.agenda = Agenda()
        self.drives = GuideDrives()
        self.after_on: Callable[[], None] = lambda: None
        self.switch = PlayedSwitch(go=self._go, answer_s=lambda: 0.3)
        controller = PlayedController(self.agenda, [self.switch])
        self.server = MemoryServer(self.agenda, controller, self.drives.look_up)
        (machine,) = settings.machines
        names = [drive.name for drive in settings.drives]
        self.machine = PlayedMachine(
            self.agenda, self.server, machine, drives=self.drives, names=names, pace=pace
        )
        self.machine.boot()
        self.server.start()
        self.server.begin(settings, check_only=check_only)

    @property
    def state(self) -> CampaignState:
        """The campaign."""
        return self.server.state

    def until(self, holds: Callable[[CampaignState], bool]) -> None:
        """Let time pass until something holds."""
        while not holds(self.state):
            assert self.agenda.now_ns < WITHIN_S * S, self.state.reason
            self.agenda.step()

    def until_cycle(self, cycle: int, phase: str) -> None:
        """Let time pass until a cycle is in a phase."""
        self.until(
            lambda state: (
                state.cycle is not None and (state.cycle.began.cycle, state.cycle.phase) == (cycle, phase)
            )
        )

    def until_still(self) -> None:
        """Let time pass until it is over or paused."""
        self.until(lambda state: state.state != "running")

    @property
    def entries(self) -> list[Entry]:
        """The log, with the time of day."""
        entries = map(entry_from_value, self.server.log)
        return [replace(entry, wall=wall_at(entry.at_ns)) for entry in entries]

    def _go(self, on: bool) -> None:
        if on:
            self.machine.switch_on()
            self.after_on()
        else:
            self.drives.cuts += 1
            self.machine.switch_off()


def wall_at(at_ns: int) -> str:
    """Date and time as the server writes them."""
    at = BEGIN + timedelta(milliseconds=at_ns // 1_000_000)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def settings_of(text: str) -> Settings:
    """The campaign of a file of the page, as `ssd.toml`."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")
    return read_campaign(text, name="ssd", seed=seed)


class _Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_screen(lines: Iterable[str], *, indent: int = 2) -> list[str]:
    """Lines as a terminal of 80 columns has them."""
    with patch.dict(os.environ, COLUMNS="80"):
        return [row for line in lines for row in fitted(line, _Screen(), indent=indent).splitlines() or [""]]


@cache
def blocks() -> tuple[str, ...]:
    """What the page shows as output, in its order."""
    settings = settings_of(FILES[0])
    status, show = _status_and_show(settings)
    return _check(settings), _failed_check(settings), _start(settings), status, _news(settings), show


def _check(settings: Settings) -> str:
    played = GuideCampaign(settings, check_only=True)
    played.until_still()
    assert played.state.checked is not None
    return _text(
        "A$ durability campaign check ssd.toml",
        *on_screen([campaign_text.what_check_does(settings)], indent=0),
        f"{campaign_text.CHECK_QUESTION} y",
        *map(entry_line, played.entries),
        *on_screen(campaign_text.checked(played.state, played.state.checked.problems), indent=4),
    )


def _failed_check(settings: Settings) -> str:
    """The switch is that of something else."""
    played = GuideCampaign(settings, check_only=True)
    played.switch.manner = "lies"
    played.until_still()
    assert played.state.checked is not None
    return _text(*on_screen(campaign_text.checked(played.state, played.state.checked.problems), indent=4))


def _checked(settings: Settings) -> CampaignState:
    played = GuideCampaign(settings, check_only=True)
    played.until_still()
    return played.state


def _start(settings: Settings) -> str:
    return _text(
        "A$ durability campaign start ssd.toml",
        *on_screen([campaign_text.what_start_does(settings, _checked(settings))]),
        f"{campaign_text.START_QUESTION} y",
        *on_screen([campaign_text.BEGUN.format(name=settings.name)]),
    )


def _status_and_show(settings: Settings) -> tuple[str, str]:
    """An operator paused the campaign in cycle 17; `status` was typed in cycle 24, `show` at the end."""
    played = GuideCampaign(settings)
    played.until_cycle(17, "load")
    played.server.pause()
    played.until_still()
    played.server.resume()
    played.until_cycle(24, "load")
    now = campaign_text.status(played.state, {}, took_s=took_s(played.entries))
    status = _text("A$ durability campaign status", *on_screen(now))
    played.until_still()
    page = campaign_text.page(played.state, {}, took_s=took_s(played.entries), bars=BARS, health=False)
    return status, _text("A$ durability campaign show ssd", *on_screen(page))


def _news(settings: Settings) -> str:
    """The machine hangs after the cut of cycle 9; the drive loses data in cycle 23."""
    played = GuideCampaign(settings)
    played.drives.words = [*["durable"] * 22, "loss"]
    played.until_cycle(9, "off")
    hangs = [True]

    def hang_once() -> None:
        if hangs:
            hangs.clear()
            played.machine.hangs = True
            played.machine.reset()

    played.after_on = hang_once
    played.until_still()
    lost = set[str]()
    news = (text for entry in played.entries for text, matters in news_of(entry, lost) if matters)
    return _text(*(f"campaign {settings.name}: {text}" for text in news))


def _text(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


def main() -> None:
    """Print the blocks."""
    for block in blocks():
        print(f"```\n{block}```\n")


if __name__ == "__main__":
    main()
