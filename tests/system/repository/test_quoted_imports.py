"""Programs that stand in strings and pages import what there is: no type checker reads them."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.places import ROOT

OURS = r"(?:durability(?:_(?:cli|client|lab|server))?|tests)(?:\.\w+)*"
IMPORT = re.compile(rf"\bfrom ({OURS}) import \(?([\w, ]+)|\bimport ({OURS})(?!\w)")
FOLDERS = ("durability", "cli", "server", "client", "lab", "tests", "benchmarks", "release")
TEXTS = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "lab/durability_lab/vm_rig/guest/job"]
)


def _strings(path: Path) -> Iterator[str]:
    """All strings of a module, docstrings too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _imported(text: str) -> Iterator[tuple[str, str]]:
    """Each module, and each name that `text` imports from it; "" for the module itself."""
    for module, names, alone in IMPORT.findall(text):
        yield from ((module, name.split(" as ")[0].strip()) for name in names.split(",") if name.strip())
        if alone:
            yield alone, ""


def _is_there(module: str, name: str) -> bool:
    try:
        found = importlib.import_module(module)
    except ImportError:
        return False
    if not name or hasattr(found, name):
        return True
    try:
        importlib.import_module(f"{module}.{name}")
    except ImportError:
        return False
    return True


def _missing(text: str) -> list[str]:
    return [f"{module}: {name}" for module, name in _imported(text) if not _is_there(module, name)]


@pytest.mark.parametrize("folder", FOLDERS)
def test_programs_in_strings_import_what_there_is(folder: str) -> None:
    """Each name that a string of a module imports from our packages exists."""
    paths = sorted(set((ROOT / folder).rglob("*.py")) - {Path(__file__)})
    missing = {
        str(path.relative_to(ROOT)): found for path in paths if (found := _missing("\n".join(_strings(path))))
    }
    assert paths and missing == {}


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_pages_import_what_there_is(path: Path) -> None:
    """Each name that a page or a script imports from our packages exists."""
    assert _missing(path.read_text()) == []


def test_a_name_that_is_gone_is_seen() -> None:
    """Modules, their names, several at a time and with another name."""
    assert _missing("from durability.units import parse_size, gone") == ["durability.units: gone"]
    assert _missing("import durability.gone") == ["durability.gone: "]
    assert _missing("from durability_cli.main import main; main()") == []
    assert _missing("from durability.formats import plan as p, nothing") == ["durability.formats: nothing"]
