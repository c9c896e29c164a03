"""The manual pages: one for each command, complete, and without a complaint of what reads them."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from release import man_pages
from release.man_pages import Page

PAGES = {page.name: page for page in man_pages.pages()}
WRITTEN_AT_S = 1_700_000_000


def _shown(file: Path) -> str:
    """What `man` prints of the page, in lines that are not broken."""
    done = subprocess.run(
        ["man", "--warnings", "--local-file", file],
        env=os.environ | {"MANWIDTH": "1000", "LC_ALL": "C.UTF-8", "MAN_KEEP_FORMATTING": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return re.sub(r" +", " ", done.stdout.replace("\u2010", "-"))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of all pages."""
    directory = tmp_path_factory.mktemp("man")
    man_pages.write(directory, written_at_s=WRITTEN_AT_S)
    return directory


def test_each_command_has_a_page(written: Path) -> None:
    """There is a page for the command, for each group of commands and for each command of a group."""
    names = {file.name for file in written.iterdir()}
    assert {"durability.1", "durability-run.1", "durability-lab.1", "durability-lab-vm.1"} <= names
    assert names == {f"{name}.1" for name in PAGES}


def test_no_reader_complains(written: Path, shells_and_man: None) -> None:
    """groff and mandoc have no warning for any manual page."""
    for file in written.iterdir():
        _shown(file)
        lint = ["mandoc", "-T", "lint", "-W", "warning", str(file)]
        done = subprocess.run(lint, check=False, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, ""), file.name


@pytest.mark.parametrize("name", ["durability", "durability-run", "durability-lab-vm", "durability-agent"])
def test_a_page_has_all_that_the_help_has(name: str, written: Path, shells_and_man: None) -> None:
    """Each option with its metavar and help, each argument, each subcommand and all of the description."""
    page: Page = PAGES[name]
    shown = _shown(written / f"{name}.1")
    for parameter in page.command.params:
        option, meaning = parameter.get_help_record(page.context)
        assert option in shown
        assert re.sub(r" +", " ", meaning.replace("`", "")) in shown
    for word in page.inner:
        assert f"{name}-{word}(1)" in shown
    assert " ".join(page.command.help.split("\n\n")[0].split()) in shown


def test_the_first_page_has_exit_codes_and_files(written: Path, shells_and_man: None) -> None:
    """Every row of the reference's tables is on it, the first and the last included."""
    shown = _shown(written / "durability.1")
    for text in (
        "0 success. verify: durable.",
        "141 the reader closed stdout",
        "$XDG_STATE_HOME/durability/",
        "COLUMNS",
    ):
        assert re.search(rf"(?m)^ *{re.escape(text)}".replace(r"\ ", r"\s+"), shown), text


def test_the_date_is_that_of_the_sources(written: Path) -> None:
    """Two builds of one commit write the same pages."""
    assert '"2023-11-14"' in (written / "durability.1").read_text("utf-8").splitlines()[0]


def test_words_of_roff_are_printed_as_they_are(shells_and_man: None, tmp_path: Path) -> None:
    """A help text may begin with a dot or a quote, and have backslashes, dashes and tildes."""
    page = tmp_path / "odd.1"
    odd = r".TH is no request, ~/x\n is a path, 'quoted' and --dashed^2"
    page.write_text(f'.TH "ODD" "1" "2027-01-15" "odd" "odd"\n.SH NAME\n{man_pages.escaped(odd)}\n')
    assert odd in _shown(page)
