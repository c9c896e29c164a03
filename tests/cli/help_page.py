"""Parts of docs/reference/cli.md that repeat the help texts: each command's help and a table of its options.

`python -m tests.cli.help_page` prints them all, and with names of commands ("run", "lab vm") only theirs, to
be pasted into the page.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from textwrap import fill
from typing import Any

import typer

from durability_cli.main import app
from durability_cli.options import ServerOptions

CONNECTION = "Options of commands that connect to a server"
_SHARED = {field.name for field in fields(ServerOptions)}
_ALSO = (
    f"It also takes the [{CONNECTION[0].lower()}{CONNECTION[1:]}](#{CONNECTION.lower().replace(' ', '-')})."
)
_HEADER = "| option | default | meaning |\n|---|---|---|"
_COLUMNS = 118


def commands(
    command: Any = None, name: str = "", parent: typer.Context | None = None
) -> Iterator[tuple[str, Any, Any]]:
    """Each command that can be typed: its name after `durability`, the command, its context.

    Groups of commands are among them if they have parameters.
    """
    command = command if command is not None else typer.main.get_command(app)
    context = command.make_context(name, [], parent=parent, resilient_parsing=True)
    inner = getattr(command, "commands", None)
    if name and (inner is None or command.params):
        yield name, command, context
    if inner is None:
        return
    for word, one in inner.items():
        yield from commands(one, f"{name} {word}".strip(), context)


@cache
def sections() -> dict[str, str]:
    """The generated text of each section of the page, by its heading."""
    found = {}
    for name, command, context in commands():
        is_client = connects(command)
        own = [one for one in command.params if not is_client or one.name not in _SHARED]
        arguments = [one.make_metavar(context, usage=True) for one in own if not _is_option(one)]
        heading = f"`{' '.join([name, *(text.strip('{}') for text in arguments)])}`"
        text = "\n\n".join(_wrapped(paragraph) for paragraph in command.help.split("\n\n"))
        found[heading] = f"{text}\n\n{_table(own, context)}" + (f"\n\n{_ALSO}" if is_client else "")
        if name == "run":
            shared = [one for one in command.params if one.name in _SHARED]
            found[CONNECTION] = _table(shared, context)
    return found


def connects(command: Any) -> bool:
    """Whether a command has the options of `ServerOptions`, which the page describes once for all of them."""
    return not hasattr(command, "commands") and {one.name for one in command.params} >= _SHARED


def _is_option(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "option")


def _wrapped(paragraph: str) -> str:
    return fill(" ".join(paragraph.split()), _COLUMNS, break_on_hyphens=False, break_long_words=False)


def _table(parameters: list[Any], context: Any) -> str:
    if not parameters:
        return "No options."
    rows = [f"| {_name(one, context)} | {_default(one)} | {one.help} |" for one in parameters]
    return "\n".join([_HEADER, *rows])


def _name(parameter: Any, context: Any) -> str:
    if not _is_option(parameter):
        return f"`{parameter.make_metavar(context)}`"
    *short, long = parameter.opts
    if not parameter.is_flag:
        long += " " + parameter.make_metavar(context).strip("<>").replace("|", r"\|")
    return ", ".join(f"`{text}`" for text in (*short, long, *parameter.secondary_opts))


def _default(parameter: Any) -> str:
    if isinstance(parameter.show_default, str):
        return parameter.show_default
    if parameter.required:
        return "required"
    if getattr(parameter, "is_flag", False):
        return "on" if parameter.default else "off"
    if parameter.default not in (None, ""):
        return f"`{parameter.default}`"
    return "none" if _is_option(parameter) else "optional"


def main() -> None:
    """Print the sections that the command line names, by default all of them."""
    wanted = sys.argv[1:]
    for heading, text in sections().items():
        if not wanted or any(heading.startswith((f"`{name}`", f"`{name} ")) for name in wanted):
            print(f"### {heading}\n\n{text}\n")


if __name__ == "__main__":
    main()
