"""The command lines of the README and of the documentation are ones that the program takes."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from typer._click.exceptions import BadOptionUsage, MissingParameter, NoArgsIsHelpError, UsageError

from durability_cli.main import app
from tests.places import DOCS, ROOT

PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
FENCED = re.compile(r"^ *```\w*\n(.*?)^ *```", re.M | re.S)
SPAN = re.compile(r"`([^`]+)`")
# What stands before the name: a prompt, another command on the same line, a path.
TYPED = re.compile(r"(?:^|&& |\$\()\s*(?:[AB][$#] +)?(?:sudo +)?(?:[\w./-]*/)?durability +(?=[a-z])(.*)")
ENDS = ("#", "&&", "||", "|", ">", "<", "2>", "&", ";")
NUMBERS = {"N", "NUMBER", "SEED"}  # for a number that the reader chooses


def lines_of(page: Path) -> tuple[list[str], list[str]]:
    """What follows the program's name in each command line of a page, and in each mention in a sentence."""
    text = page.read_text("utf-8").replace("\\\n", " ")
    blocks = [line for block in FENCED.findall(text) for line in block.splitlines() if "-->" not in line]
    spans = [span.replace("\n", " ") for span in SPAN.findall(FENCED.sub("", text))]
    lines, mentions = (
        [match[1] for line in typed if (match := TYPED.search(line))] for typed in (blocks, spans)
    )
    return lines, mentions


def words_of(line: str) -> list[str]:
    """The words of one command, up to what the shell takes for itself."""
    words = shlex.split(line.replace("…", ""), comments=True)
    end = next((place for place, word in enumerate(words) if word in ENDS), len(words))
    return ["7" if word in NUMBERS else word for word in words[:end]]


@cache
def program() -> Any:
    """The program, as one command."""
    return typer.main.get_command(app)


def parse(line: str) -> None:
    """Read a line as the program does, but do nothing. Raises UsageError for what it refuses."""
    command, words, context = program(), words_of(line), None
    while True:
        context = command.make_context("durability", words, parent=context)
        words = [*context._protected_args, *context.args]
        if not words or not hasattr(command, "commands"):
            return
        _, command, words = command.resolve_command(context, words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_names_commands_that_can_be_typed(page: Path) -> None:
    """Each line has a command that exists, with options and numbers of options that it takes."""
    wrong = []
    lines, mentions = lines_of(page)
    for line in dict.fromkeys([*lines, *mentions]):
        try:
            parse(line)
        except (MissingParameter, NoArgsIsHelpError, BadOptionUsage) as error:
            if line in lines:  # a sentence may leave out what a reader must add
                wrong.append(f"{line}: {error.format_message()}")
        except UsageError as error:
            wrong.append(f"{line}: {error.format_message()}")
    assert wrong == []


def test_lines_are_found() -> None:
    """In all pages together, and with the prompt of a machine."""
    assert sum(len(lines) for lines, _ in map(lines_of, PAGES)) > 60
    assert "join 192.0.2.7:7420 CODE" in lines_of(ROOT / "README.md")[0]


@pytest.mark.parametrize(
    "line", ["run /t --slots-of-mine", "campain", "run", "clients invte", "run /t --group x"]
)
def test_a_wrong_line_is_seen(line: str) -> None:
    """An option, a command and a number that no command takes; an argument that is missing."""
    with pytest.raises(UsageError):
        parse(line)
