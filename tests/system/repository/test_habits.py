"""What the Makefile and the tests promise to whoever works here."""

from __future__ import annotations

import ast
import re
import subprocess

import pytest

from tests.places import ROOT, TESTS

MAKEFILE = (ROOT / "Makefile").read_text()
OF_OTHERS = {"help", "quick-tests"}  # the one prints the list, the other is a part of `quick`
FILES = sorted(TESTS.rglob("test_*.py"))


def test_help_lists_every_target() -> None:
    """`make help` has a line for each target that can be asked for, and for no other."""
    (phony,) = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.M)
    listed = re.findall(r"^\t@echo 'make ([a-z-]+) ", MAKEFILE, re.M)
    assert set(listed) == set(phony.split()) - OF_OTHERS


def test_figures_that_a_page_promises_are_printed() -> None:
    """Each documented test command with `-s` runs the tests in pytest's own process, so that their figures
    are printed."""
    pages = "".join(path.read_text() for path in (ROOT / "docs").rglob("*.md"))
    commands = [one for one in re.findall(r"`([^`]*make test T=[^`]*)`", pages) if re.search(r" -s\b", one)]
    assert commands
    for command in commands:
        dry = command.replace("make test", "make --dry-run test")
        done = subprocess.run(dry, shell=True, cwd=ROOT, capture_output=True, text=True, check=True)
        assert "-m pytest" in done.stdout and "--numprocesses" not in done.stdout


@pytest.mark.parametrize("folder", sorted({path.relative_to(TESTS).parts[0] for path in FILES}))
def test_every_test_says_what_it_shows(folder: str) -> None:
    """A test's docstring states the behaviour, in a sentence."""
    for path in FILES:
        if path.relative_to(TESTS).parts[0] != folder:
            continue
        tests = [
            node
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
        ]
        assert tests, path
        silent = [
            test.name for test in tests if not (ast.get_docstring(test) or "").rstrip().endswith((".", "?"))
        ]
        assert silent == [], path
