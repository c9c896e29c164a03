"""The manual pages: one for the command and one for each of its subcommands, made from the help texts.

The page of the command itself also has the exit codes and the files, as docs/reference/cli.md lists them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer

import durability
from durability_cli.main import app

REFERENCE = Path(__file__).parents[1] / "docs/reference/cli.md"
_TABLES = {"EXIT STATUS": "Exit codes", "ENVIRONMENT AND FILES": "Environment and files"}


@dataclass(frozen=True, slots=True)
class Page:
    """A command that has a page: its words, and what the command line knows of it."""

    words: tuple[str, ...]
    command: Any
    context: Any

    @property
    def name(self) -> str:
        """The name of the page: words joined as programs of several commands do it."""
        return "-".join(self.words)

    @property
    def inner(self) -> dict[str, Any]:
        """The subcommands by name; empty if there are none."""
        return getattr(self.command, "commands", {})


def pages(page: Page | None = None) -> Iterator[Page]:
    """Each command and group of commands, the whole first."""
    if page is None:
        command: Any = typer.main.get_command(app)
        page = Page(("durability",), command, command.make_context("durability", [], resilient_parsing=True))
    yield page
    for word, command in page.inner.items():
        context = command.make_context(word, [], parent=page.context, resilient_parsing=True)
        yield from pages(Page((*page.words, word), command, context))


def text(page: Page, *, date: str) -> str:
    """The page in roff; `date` is that of the sources, as YYYY-MM-DD."""
    version = f"durability {durability.__version__}"
    lines = [
        f'.TH "{escaped(page.name.upper())}" "1" "{date}" "{version}" "User Commands"',
        ".SH NAME",
        rf"{escaped(page.name)} \- {_prose(page.command.get_short_help_str(200).rstrip('.'))}",
        ".SH SYNOPSIS",
        _synopsis(page),
        ".SH DESCRIPTION",
        *_paragraphs(page.command.help),
    ]
    arguments = [one for one in page.command.params if one.param_type_name == "argument"]
    options = [one for one in page.command.params if one.param_type_name == "option"]
    for title, parameters in (("ARGUMENTS", arguments), ("OPTIONS", options)):
        records = [record for one in parameters if (record := one.get_help_record(page.context))]
        lines += _section(title, [(_term(name), _prose(meaning)) for name, meaning in records])
    commands = [
        (_bold(f"{page.name}-{word}(1)"), _prose(command.get_short_help_str(200)))
        for word, command in page.inner.items()
    ]
    lines += _section("COMMANDS", commands)
    if len(page.words) == 1:
        lines += [".SH NOTES", *_paragraphs(page.command.epilog)]
        for title, heading in _TABLES.items():
            lines += _section(title, [(_prose(name), _prose(meaning)) for name, meaning in _table(heading)])
    elif page.command.epilog:
        lines += [".SH NOTES", *_paragraphs(page.command.epilog)]
    if len(page.words) > 1:
        lines += [".SH SEE ALSO", _bold("-".join(page.words[:-1]) + "(1)")]
    return "\n".join(lines) + "\n"


def write(directory: Path, *, written_at_s: int) -> list[Path]:
    """Write all pages to `directory`, dated by a time since the epoch, and return their files."""
    date = datetime.fromtimestamp(written_at_s, UTC).date().isoformat()
    directory.mkdir(parents=True, exist_ok=True)
    files = []
    for page in pages():
        files.append(file := directory / f"{page.name}.1")
        file.write_text(text(page, date=date), "utf-8")
    return files


def _synopsis(page: Page) -> str:
    usage = " ".join(page.command.collect_usage_pieces(page.context))
    return f"{_bold(' '.join(page.words))} {escaped(usage)}"


def _section(title: str, entries: list[tuple[str, str]]) -> list[str]:
    """A heading with a list of terms and their meanings; nothing if there are none."""
    lines = [f".SH {title}"] if entries else []
    for term, meaning in entries:
        lines += [".TP", term, meaning]
    return lines


def _term(name: str) -> str:
    """Names of options in bold, what they take as it is."""
    return re.sub(
        r"(?<![^ ,/])(?:\\-){1,2}[a-z](?:[a-z]|\\-)*", lambda found: _bold_as_is(found[0]), escaped(name)
    )


def _paragraphs(help_text: str) -> list[str]:
    parts = [_prose(" ".join(part.split())) for part in help_text.split("\n\n")]
    return [line for part in parts for line in (".PP", part)][1:]


def _table(heading: str) -> list[tuple[str, str]]:
    """The rows of the table below a heading of the reference."""
    section = re.search(rf"^## {heading}\n(.*?)^## ", REFERENCE.read_text("utf-8"), re.M | re.S)
    assert section, f"{REFERENCE} has no section {heading}"
    _, *rows = re.findall(r"^\| (.*?) \| (.*) \|$", section[1], re.M)
    assert rows, f"the section {heading} of {REFERENCE} has no table"
    return rows


def _prose(markdown: str) -> str:
    """A sentence of help or of the reference: code and emphasis in bold, links as their words."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown)
    return re.sub(
        r"`([^`]*)`|\*\*([^*]*)\*\*", lambda found: _bold_as_is(found[1] or found[2]), escaped(words)
    )


def _bold(words: str) -> str:
    return _bold_as_is(escaped(words))


def _bold_as_is(escaped: str) -> str:
    return rf"\fB{escaped}\fP"


def escaped(words: str) -> str:
    r"""`words` so that roff prints them as they are: `-` is an option's, `.` and `'` begin no request."""
    plain = words.replace("\\", r"\e").replace("-", r"\-").replace("~", r"\(ti").replace("^", r"\(ha")
    plain = plain.replace("→", r"\(->").replace("…", "...")
    return rf"\&{plain}" if plain.startswith((".", "'")) else plain
