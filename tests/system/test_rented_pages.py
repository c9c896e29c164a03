"""The pages on rented disks and servers agree with the product: commands, options, campaign files."""

from __future__ import annotations

import re
import shlex

import pytest

from durability.campaign.definition.campaign_file import read_campaign
from tests.cli.help_page import commands
from tests.places import DOCS

PAGES = {name: (DOCS / f"how-to/test-a-rented-{name}.md").read_text() for name in ("disk", "server")}
COMMANDS = {name: command for name, command, _ in commands()}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
TYPED = [
    (page, line.partition("$ ")[2] or line.partition("# ")[2])
    for page, text in PAGES.items()
    for _, block in BLOCK.findall(text)
    for line in block.splitlines()
    if re.match(r"[AB][$#] ", line)
]
PROGRAMS = {"durability", "mkfs.ext4", "mkdir", "mount", "umount", "smartctl"}


@pytest.mark.parametrize(("page", "line"), TYPED, ids=[line for _, line in TYPED])
def test_every_line_is_a_command_with_these_options(page: str, line: str) -> None:
    """Each line is a command of this tool with known options, or a program that every system has."""
    program, *words = shlex.split(line)
    assert program in PROGRAMS
    if program != "durability":
        return
    name = max(
        (name for name in COMMANDS if f"{' '.join(words)} ".startswith(f"{name} ")), key=len, default=""
    )
    assert name, line
    known = {option for one in COMMANDS[name].params for option in one.opts}
    assert {word for word in words if re.match(r"--?[a-z]", word)} <= known, line


@pytest.mark.parametrize(("page", "cut_class"), [("disk", "vm"), ("server", "power")])
def test_campaign_files_are_read(page: str, cut_class: str) -> None:
    """The page's campaign file has the expected class of cut, and names the drive as the commands on the page
    do."""
    (text,) = (block for kind, block in BLOCK.findall(PAGES[page]) if kind == "toml")
    campaign = read_campaign(text, name="example", seed=1)
    assert campaign.cut_class == cut_class
    (drive,) = campaign.drives
    assert f"B# durability device {drive.device}\n" in PAGES[page]
