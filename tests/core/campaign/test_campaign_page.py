"""docs/reference/campaign-file.md and the reader of campaign files agree on keys, values and defaults."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import get_args

import pytest

from durability.campaign.definition import campaign_file, settings
from durability.campaign.definition.campaign_file import read_campaign
from durability.campaign.definition.settings import Settings
from durability.errors import UsageError
from durability.formats.plan import Pattern, SyncMethod
from durability.formats.workloads.registry import WORKLOADS
from durability.limits import GROUP_MAX, WRITERS_MAX
from tests.places import REFERENCE

TEXT = (REFERENCE / "campaign-file.md").read_text(encoding="utf-8")
POWER = (REFERENCE / "power-switches.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```toml\n(.*?)^```", TEXT, re.M | re.S)
TABLES = ("campaign", "drive", "arm")
LEAST = (
    '[campaign]\nmachine = "b"\n[power]\ntasmota = "h"\ncut_class = "power"\n[[drive]]\ntarget = "/mnt/t"\n'
)


def section(heading: str) -> str:
    """The text below a heading of the page, up to the next one of the second level."""
    (found,) = re.findall(rf"^## `{re.escape(heading)}`\n(.*?)(?=^## |\Z)", TEXT, re.M | re.S)
    return str(found)


def rows(table: str) -> dict[str, list[str]]:
    """The cells of a table's rows that describe keys, by key."""
    heading = "[campaign]" if table == "campaign" else f"[[{table}]]"
    return {
        cells[0]: cells[1:]
        for line in re.findall(r"^\| (`\w+` \|.*)\|$", section(heading), re.M)
        if len(cells := [cell.strip().strip("`") for cell in line.split("|")]) == 5
    }


def known(table: str) -> set[str]:
    """The keys of a table, as its refusal of an unknown one lists them."""
    lines = {"campaign": "[campaign]", "drive": "[[drive]]", "arm": "[[arm]]"}
    text = LEAST if f"{lines[table]}\n" in LEAST else f"{LEAST}{lines[table]}\n"
    with pytest.raises(UsageError) as refused:
        read_campaign(text.replace(f"{lines[table]}\n", f"{lines[table]}\nqqqqqqqq = 1\n"), name="x", seed=1)
    found = re.search(r"It knows (.*)$", str(refused.value))
    assert found, refused.value
    return set(found[1].split(", "))


@pytest.mark.parametrize("table", TABLES)
def test_the_page_has_every_key_and_no_other(table: str) -> None:
    """The documentation page lists exactly the keys that the campaign file's reader knows."""
    assert set(rows(table)) == known(table)


def test_keys_of_all_switches_are_on_their_page() -> None:
    """This page leads to the page of switches for them, which has each."""
    assert "(power-switches.md)" in section("[power]")
    for key in ("fence", "tasmota", "shelly", "on", "off", "status", "timeout_s", "machine", "cut_class"):
        assert re.search(rf"^\| .*`{key}`", POWER, re.M), key


@pytest.mark.parametrize("text", EXAMPLES, ids=range(len(EXAMPLES)))
def test_examples_are_read(text: str) -> None:
    """Each example is a whole campaign file, and says what it seems to."""
    campaign = read_campaign(text, name="example", seed=1)
    document = tomllib.loads(text)
    assert len(campaign.drives) == len(document["drive"])
    assert len(campaign.arms) == len(document.get("arm", campaign.arms))


def defaults() -> Iterator[tuple[str, str, str]]:
    """Table, key and the default that the page must state."""
    yield "campaign", "cuts", str(campaign_file.CUTS)
    yield "campaign", "stop_at", '"loss"'
    yield "campaign", "cut_after_s", interval(campaign_file.CUT_AFTER_S)
    yield "campaign", "off_s", interval(campaign_file.OFF_S)
    yield "campaign", "boot_within_s", f"{campaign_file.BOOT_WITHIN_S:g}"
    yield "campaign", "ready_within_s", f"{campaign_file.READY_WITHIN_S:g}"
    yield "arm", "idle_s", f"{campaign_file.IDLE_S:g}"


def interval(pair: tuple[float, float]) -> str:
    """As people type it."""
    return f"[{pair[0]:g}, {pair[1]:g}]"


@pytest.mark.parametrize(("table", "key", "default"), list(defaults()))
def test_defaults_are_on_the_page(table: str, key: str, default: str) -> None:
    """The defaults on the page are those of the campaign file's reader."""
    assert rows(table)[key][1] == default


def test_the_file_without_arms_has_the_set_on_the_page() -> None:
    """Names and order of the default arms are those of the table."""
    listed = re.findall(r"^\| `([a-z-]+)` \|", TEXT.split("## The default set")[1], re.M)
    assert listed == [arm.name for arm in read_campaign(LEAST, name="x", seed=1).arms]


def test_choices_are_on_the_page() -> None:
    """Moments, workloads, file systems and sync methods are listed with each value, and with no other."""
    choices = {
        ("arm", "moment"): get_args(settings.CutMoment),
        ("arm", "workload"): tuple(WORKLOADS),
        ("drive", "file_system"): tuple(filter(None, get_args(settings.FileSystem))),
        ("arm", "sync"): get_args(SyncMethod),
        ("arm", "pattern"): get_args(Pattern),
        ("campaign", "stop_at"): get_args(settings.StopAt),
    }
    for (table, key), values in choices.items():
        assert re.findall(r'"([\w-]+)"', rows(table)[key][0]) == list(values), key
    moments = re.findall(
        r"^\| `(\w+)` \|", TEXT.split("### Moments")[1].split("###")[0].split("These")[0], re.M
    )
    assert tuple(moments[1:]) == get_args(settings.CutMoment)


def test_bounds_are_on_the_page() -> None:
    """The largest numbers of cuts, machines, drives, arms and switches are those of the settings."""
    assert f"1 to {settings.CUTS_MAX:,}" in rows("campaign")["cuts"]
    assert f"1 to {settings.MACHINES_MAX} names" in rows("campaign")["machines"]
    assert f"at most {settings.DRIVES_MAX}." in section("[[drive]]")
    assert f"at most {settings.ARMS_MAX}." in section("[[arm]]")
    assert f"At most {settings.SWITCHES_MAX} tables" in section("[power]")
    assert f"1 to {WRITERS_MAX}" in rows("arm")["writers"]
    assert f"1 to {GROUP_MAX}" in rows("arm")["group"]


def test_a_drive_is_named_after_its_path() -> None:
    """The default name of a drive is the last part of its path."""
    campaign: Settings = read_campaign(LEAST.replace("/mnt/t", "/mnt/disk/t/"), name="x", seed=1)
    assert [drive.name for drive in campaign.drives] == ["t"]
