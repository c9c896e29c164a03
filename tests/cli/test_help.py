"""The help of the commands: complete, grouped, readable at 80 columns, the same in docs/reference/cli.md."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, get_args

import pytest
from typer.testing import CliRunner

from durability.campaign.definition.campaign_file import CUTS
from durability.campaign.server_time import SILENT_AFTER_S
from durability.formats.workloads.registry import WORKLOADS
from durability.units import parse_size
from durability_cli import accept_commands, lab_options
from durability_cli.main import GROUPS, app
from durability_cli.options import BYTES_EPILOG, ServerOptions
from durability_client.acceptance import profiles
from durability_client.bench import bench_command
from durability_lab.campaign_rig import lab_campaign_command
from durability_lab.histories import histories_command
from durability_lab.matrix import matrix_cells
from durability_lab.support import loads
from durability_lab.vm_rig import vm_command
from durability_server.web import live_page
from tests.cli.help_page import commands, connects, sections
from tests.places import REFERENCE

DOCUMENTATION = REFERENCE / "cli.md"
COMMANDS = {name: (command, context) for name, command, context in commands()}


@cache
def help_of(name: str) -> str:
    """What `durability NAME --help` prints in 80 columns."""
    return CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "80"}).stdout


def options_of(name: str) -> dict[str, Any]:
    """The parameters of a command by name."""
    return {one.name: one for one in COMMANDS[name][0].params}


@pytest.mark.parametrize("heading", sections())
def test_the_documentation_has_the_help_texts(heading: str) -> None:
    """The reference has each command with its help, and each option with name, metavar, default and help.

    If a help text has changed, `python -m tests.cli.help_page` prints what to paste.
    """
    found = re.search(
        rf"^### {re.escape(heading)}\n(.*?)(?=^##|\Z)", DOCUMENTATION.read_text("utf-8"), re.M | re.S
    )
    assert found, f"{DOCUMENTATION} has no section {heading}"
    missing = [line for line in sections()[heading].splitlines() if line not in found[1].splitlines()]
    assert missing == [], f"paste into {DOCUMENTATION}:\n" + "\n".join(missing)
    assert sections()[heading] in found[1], (
        f"{DOCUMENTATION}, {heading}: lines in another order, or options gone"
    )


def test_the_commands_are_in_groups() -> None:
    """`durability --help` lists each command once, with its whole first sentence, under the headings."""
    text = help_of("")
    listed = [name for names in GROUPS.values() for name in names]
    assert sorted(listed) == sorted({name.split()[0] for name in COMMANDS})
    position = -1
    for title, names in GROUPS.items():
        for line in (f"{title}:", *(f"  {name} " for name in names)):
            assert text.find(f"\n{line}") > position, line
            position = text.find(f"\n{line}")
    for name in listed:
        assert re.search(rf"^  {name} +\S.*\.$", text, re.M), f"{name}: help is cut short"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_help(name: str) -> None:
    """Each command and option has a help sentence and a metavar of a word, not of a type of the program."""
    text = help_of(name)
    for parameter in options_of(name).values():
        assert re.fullmatch(r"\S.*\.", parameter.help or ""), parameter.name
    assert re.search(r"(?i)<(int|float|text|path|integer)|\b(INTEGER|FLOAT|PATH)\b", text) is None
    assert (" BYTES" in text.replace(BYTES_EPILOG, "")) == (BYTES_EPILOG in text)
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("name", COMMANDS)
def test_numbers_are_explained_in_words(name: str) -> None:
    """No help shows a variable that the reader does not know: typer states a range as 1<=x<=256."""
    assert re.search(r"\bx[<>]=|[<>]=?x\b", help_of(name)) is None


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("run", "/t", "--writers", "257"), "257 is out of range: type 1 to 256"),
        (("run", "/t", "--group", "0"), "0 is out of range: type 1 to 4096"),
        (("bench", "/t", "--seed", "-1"), "-1 is out of range: type 0 or more"),
        (("bench", "/t", "--seed", "a"), "'a' is not a whole number"),
        (("bench", "/t", "--wait", "-0.5"), "-0.5 is out of range: type 0 or more"),
        (("bench", "/t", "--wait", "nan"), "nan is out of range: type 0 or more"),
        (("bench", "/t", "--wait", "soon"), "'soon' is not a number of seconds"),
    ],
    ids=str,
)
def test_numbers_out_of_range_are_refused(words: tuple[str, ...], why: str) -> None:
    """The message names the option, what was typed and what may be typed."""
    ended = CliRunner().invoke(app, words, env={"COLUMNS": "120"})
    assert ended.exit_code == 2
    assert f"Invalid value for '{words[2]}': {why}" in " ".join(ended.output.split())


def test_groups_have_their_own_help() -> None:
    """A group with options is in the documentation, and `--help` shows all of its docstring."""
    for group in ("agent", "campaign", "clients"):
        command, _ = COMMANDS[group]
        assert "\n\n" in command.help, group
        assert " ".join(command.help.split()) in " ".join(help_of(group).split()), group


def test_connection_options_are_the_same_everywhere() -> None:
    """Each command that connects to a server has all connection options, with the same texts and defaults."""
    names = [name for name, (command, _) in COMMANDS.items() if connects(command)]
    assert sorted(names) == [
        "accept",
        "bench",
        "compare",
        "export",
        "results",
        "run",
        "runs",
        "show",
        "verify",
    ]
    assert set(ServerOptions.__dataclass_fields__) == {"server", "credential"}
    for field in ServerOptions.__dataclass_fields__:
        texts = {
            (one.help, one.metavar, one.default, one.show_default, tuple(one.opts))
            for one in (options_of(name)[field] for name in names)
        }
        assert len(texts) == 1, field


def test_choices_are_those_of_what_they_are_for() -> None:
    """The command line's own lists of choices equal those of the lab and of `accept`, which it does not
    import for help."""
    assert get_args(lab_options.FileSystem) == get_args(loads.FileSystemName)
    assert get_args(get_args(lab_options.GuestFileSystem)[0]) == get_args(vm_command.GuestFileSystem)
    assert tuple(one.value for one in lab_options.Rig) == get_args(matrix_cells.Rig)
    assert accept_commands.PROFILES == profiles.SHIPPED


def test_defaults_are_those_of_what_they_are_for() -> None:
    """The defaults that the command line shows equal those of the code, which it does not import for help."""

    def default(command: str, option: str) -> str:
        return str(options_of(command)[option].show_default)

    sizes = {parse_size(size) for size in re.findall(r"\d+[MG]iB", default("bench", "size"))}
    assert sizes == {bench_command.SIZE_BYTES, bench_command.SIZE_ACCEPT_BYTES}
    sizes = {parse_size(size) for size in re.findall(r"\d+[MG]iB", default("run", "size"))}
    assert sizes == {workload.default_size_bytes for workload in WORKLOADS.values()}
    assert float(default("bench", "wait")) == bench_command.WAIT_S
    assert int(default("lab histories", "count")) == histories_command.COUNT
    for command, option, models in (
        ("lab vm", "drives", vm_command.VmOptions().drives),
        ("lab campaign", "models", lab_campaign_command.CampaignOptions().models),
    ):
        assert default(command, option) == " and ".join(models)
    assert f"port {live_page.PORT} unless" in str(options_of("serve")["web"].help)
    assert f"have not reported for more than {SILENT_AFTER_S:g} s" in DOCUMENTATION.read_text("utf-8")
    assert f"each drive {CUTS} times" in str(options_of("demo")["campaign"].help)


@pytest.mark.parametrize("words", [[], ["lab"], ["campaign"]], ids=str)
def test_a_command_that_is_missing_shows_the_help(words: list[str]) -> None:
    """The commands of the group are listed, one on each line."""
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 2
    shown = ended.output
    assert "Usage: " in shown and "\\n" not in shown and len(shown.splitlines()) > 5, shown
