"""docs/how-to/run-a-campaign.md agrees with the product: files, commands, outputs, reasons, numbers."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from durability.campaign import between_cycles, campaign_state, delays
from durability.campaign.campaign_state import CampaignState
from durability.campaign.definition import campaign_file
from durability.campaign.definition.campaign_file import read_campaign
from durability.campaign.progress import expected_cycle_s
from durability.evidence.strength import upper_bound
from durability.units import percent_at_most
from durability_server.campaigns import notifications
from tests.cli.help_page import commands
from tests.system.guide_campaign import (
    BLOCKS,
    FILES,
    PACE,
    TEXT,
    GuideCampaign,
    blocks,
    settings_of,
)

COLUMNS = 80
COMMANDS = {name: command for name, command, _ in commands()}
TYPED = sorted(
    {line.partition("$ ")[2] or line.partition("# ")[2] for _, text in BLOCKS for line in text.splitlines()
     if re.match(r"[AB][$#] durability ", line)}
    | set(re.findall(r"`(durability [^`]*)`", TEXT))
)  # fmt: skip
REASONS = [
    cells[0]
    for line in TEXT.split("| reason | look at |")[1].split("\n\n")[0].splitlines()[2:]
    if (cells := [cell.strip() for cell in line.strip("|").split("|")])
]


@pytest.mark.parametrize("text", FILES, ids=range(len(FILES)))
def test_files_are_read(text: str) -> None:
    """Each campaign file in the guide is complete. A file that cuts guests or rented machines with commands
    has the cut class "vm"."""
    campaign = read_campaign(text, name="example", seed=1)
    assert campaign.cut_class == ("vm" if campaign.power[0].kind == "commands" else "power")
    assert [drive.file_system for drive in campaign.drives] == ["ext4"]


@pytest.mark.parametrize("line", TYPED)
def test_commands_exist_with_their_options(line: str) -> None:
    """Each command on the page is a command of the tool and takes the options shown."""
    words = shlex.split(line)[1:]
    name = max(
        (name for name in COMMANDS if f"{' '.join(words)} ".startswith(f"{name} ")), key=len, default=""
    )
    group = any(known.startswith(f"{' '.join(words)} ") for known in COMMANDS)
    assert name or group, line
    known = {option for one in COMMANDS[name].params for option in one.opts} if name else set()
    assert {word for word in words if word.startswith("-")} <= known


@pytest.mark.slow
def test_outputs_are_those_of_a_campaign() -> None:
    """The guide's outputs are exactly those of its own campaign file, within 80 columns (`python -m
    tests.system.guide_campaign` prints them)."""
    shown = [
        text
        for kind, text in BLOCKS
        if not kind and any(not re.match(r"[AB][$#] ", line) for line in text.splitlines())
    ]
    assert shown == list(blocks())
    assert max(len(line) for text in shown for line in text.splitlines()) <= COLUMNS


def _not_asked() -> GuideCampaign:
    played = _played("run")
    played.machine.cut_off = True
    return played


def _not_back() -> GuideCampaign:
    played = _played("load")

    def hang() -> None:
        played.machine.hangs = True
        played.machine.reset()

    played.after_on = hang
    return played


def _not_heard() -> GuideCampaign:
    played = _not_asked()
    played.server.hear("b", replace(played.machine.said[-1][0], machine_id="another", boot_id="another"))
    return played


def _is_heard_anew(boot_id: str, state: CampaignState) -> bool:
    return state.state != "running" or state.machines["b"].boot_id != boot_id


def _restarts() -> GuideCampaign:
    played = _played("back")
    while played.state.state == "running":
        newest = played.state.machines["b"].boot_id
        played.until(partial(_is_heard_anew, newest))
        played.machine.crash()
    return played


def _silent() -> GuideCampaign:
    played = _played("back")
    played.until(lambda _: played.machine.tasks[-1].kind == "verify")
    played.machine.cut_off = True
    return played


def _slow() -> GuideCampaign:
    return GuideCampaign(settings_of(FILES[0]), pace=replace(PACE, verify_s=7 * 86_400.0))


def _stays_off() -> GuideCampaign:
    played = _played("rest")
    played.switch.manner = "fails"
    return played


def _not_cut() -> GuideCampaign:
    played = _played("load")
    played.switch.manner = "lies"
    return played


def _unfit() -> GuideCampaign:
    played = _played("run")
    played.drives.gone = True
    return played


def _says_nothing() -> GuideCampaign:
    played = _played("load")
    played.drives.words = ["inconclusive"] * 5
    return played


def _paused() -> GuideCampaign:
    played = _played("load")
    played.server.pause()
    return played


def _checked_again() -> GuideCampaign:
    """The check has become old in the pause, and somebody has put another drive there."""
    played = _paused()
    played.until_still()
    played.drives.serial = "S1EXAMPLE"
    played.server.resume()
    return played


def _played(phase: str) -> GuideCampaign:
    """The page's campaign up to a phase of its first cycle."""
    played = GuideCampaign(settings_of(FILES[0]))
    played.until_cycle(1, phase)
    return played


PAUSES: dict[str, Callable[[], GuideCampaign]] = {
    "none": _paused,
    "machine … has not asked for its task for …": _not_asked,
    "machine … is not heard: …": _not_heard,
    "machine … did not come back within …": _not_back,
    "machine … has started … times in this cycle": _restarts,
    "machine … fell silent while it verified": _silent,
    "drives did not … within … hours": _slow,
    "the power cannot be switched on again: …": _stays_off,
    "the last 2 cuts did not remove power: …": _not_cut,
    "no drive could be tested in the last 2 cycles: …": _unfit,
    "5 cycles in a row gave no result for any drive: …": _says_nothing,
    "the check failed: …": _checked_again,
}


def test_the_table_has_each_reason() -> None:
    """The guide's table lists exactly the reasons that the tests below show to pause a campaign."""
    assert set(REASONS) == set(PAUSES) and len(REASONS) == len(PAUSES)


@pytest.mark.parametrize("row", PAUSES)
def test_reasons_are_those_of_the_table(row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason of a pause begins like exactly one row of the table."""
    monkeypatch.setattr(delays, "WORK_WITHIN_S", 2 * 3600.0)  # of two days, to save time
    monkeypatch.setattr(campaign_state, "CHECK_HOLDS_DAYS", 0)  # a pause of any length
    played = PAUSES[row]()
    played.until_still()
    assert played.state.state == "paused"
    reason = played.state.reason or "none"
    like = [one for one in REASONS if re.match(re.escape(one).replace("…", ".+"), reason)]
    assert like == [row], reason


def test_bounds_are_those_of_the_cuts() -> None:
    """The table, the head of the page, and the words for one cut."""
    cuts, shares = (
        [cell.strip() for cell in line.strip("|").split("|")[1:]]
        for line in re.findall(r"^\| (?:cuts without a loss|share of cuts).*$", TEXT, re.M)
    )
    assert shares == [percent_at_most(upper_bound(0, int(count))) for count in cuts]
    assert cuts[-2:] == [str(campaign_file.CUTS), "299"]
    assert upper_bound(0, 1) == pytest.approx(0.95)


def test_numbers_of_the_text_are_those_of_the_code() -> None:
    """How long news may take, when a campaign pauses, what a long one takes."""
    text = " ".join(TEXT.split())
    assert f"for at most {notifications.COMMAND_S:.0f} s" in text
    assert between_cycles.NOT_CUTS_MAX == 2 and "after two such cycles the campaign pauses" in text
    assert between_cycles.DRIVE_TROUBLES_MAX == 2 and "could not be tested in two cycles in a row" in text
    assert between_cycles.EMPTY_CYCLES_MAX == 5 and "five cycles in a row gave no result for it" in text
    long_h = 299 * expected_cycle_s(settings_of(FILES[0])) / 3600
    assert f"that takes about {long_h:.0f} hours" in text
    assert f"Keep `off_s` at {campaign_file.OFF_S[0]:.0f} s or more" in text
