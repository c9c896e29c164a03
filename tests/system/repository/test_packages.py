"""What setup.cfg ships is what the tree holds."""

from __future__ import annotations

import configparser
import re

import pytest

from durability import __version__
from tests.places import ROOT


@pytest.fixture(scope="module")
def metadata() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _packages_in_tree() -> dict[str, str]:
    """Dotted name of every package in the tree, with its folder."""
    found = {}
    for top in (ROOT, ROOT / "cli", ROOT / "server", ROOT / "client", ROOT / "lab"):
        for marker in top.glob("durability*/**/__init__.py"):
            folder = marker.parent
            found[".".join(folder.relative_to(top).parts)] = str(folder.relative_to(ROOT))
    return found


def test_every_package_is_listed(metadata: configparser.ConfigParser) -> None:
    """The list of packages equals the tree: nothing is left out of the wheel, nothing is invented."""
    assert sorted(_lines(metadata["options"]["packages"])) == sorted(_packages_in_tree())


def test_every_package_is_mapped_to_its_folder(metadata: configparser.ConfigParser) -> None:
    """`package_dir` names, for each package, the folder that holds it under the same name."""
    lines = [line.partition("=") for line in _lines(metadata["options"]["package_dir"])]
    mapped = {name.strip(): folder.strip() for name, _, folder in lines}
    assert mapped == {name: folder for name, folder in _packages_in_tree().items() if "." not in name}


def test_every_package_is_typed() -> None:
    """Each top-level package carries the marker that tells type checkers to read its annotations."""
    for name, folder in _packages_in_tree().items():
        assert "." in name or (ROOT / folder / "py.typed").is_file(), f"{name} has no py.typed"


def test_the_version_has_one_source(metadata: configparser.ConfigParser) -> None:
    """setup.cfg takes the version from the package, and the changelog has an entry for it."""
    assert metadata["metadata"]["version"] == "attr: durability.__version__"
    assert f"\n## {__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_test_files_have_names_of_their_own() -> None:
    """No two test files share a name, which pytest's importlib mode and mypy both need."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(names) == len(set(names))


def _rows_of_the_map() -> dict[str, set[str]]:
    """The modules in each row of the map in docs/explanation/architecture.md, by the package of the row; the
    paragraph before a table is the row of the whole package. What stands in parentheses says what they do."""
    page = (ROOT / "docs/explanation/architecture.md").read_text().partition("\n## Modules\n")[2]
    rows = {}
    for part in re.split(r"^(?=\*\*`)", page, flags=re.MULTILINE)[1:]:
        (top,) = re.findall(r"\A\*\*`(\w+)`\*\*", part)
        paragraphs = part.split("\n\n")
        rows[top] = _names(paragraphs[0].partition("**,")[2].partition(":")[2])
        for line in paragraphs[1].splitlines()[2:] if len(paragraphs) > 1 else ():
            heading, modules = line.strip("| ").split(" | ")
            folder = re.match(r"`([\w/]+)`", heading)
            assert folder is not None, line
            rows[f"{top}.{folder[1].replace('/', '.')}"] = _names(modules)
    return rows


def _names(text: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", re.sub(r"\([^()]*\)", "", text)))


def test_every_module_is_on_the_map() -> None:
    """docs/explanation/architecture.md names, in the row of each package, its modules and no others.

    A package without a row stands in the row of the one around it, with its modules behind its name.
    """
    rows = _rows_of_the_map()
    expected: dict[str, set[str]] = {row: set() for row in rows}
    for package, folder in _packages_in_tree().items():
        around, _, name = package.rpartition(".")
        modules = {path.stem for path in (ROOT / folder).glob("*.py")} - {"__init__"}
        expected[package if package in rows else around] |= modules
        if package not in rows:
            expected[around].add(name)
    assert rows == expected
