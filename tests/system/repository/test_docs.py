"""The documentation holds together: links lead somewhere, pages can be found, and named files exist."""

from __future__ import annotations

import lzma
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.places import ROOT, TESTS

DOCS = ROOT / "docs"
INDEX = DOCS / "README.md"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
FENCED = re.compile(r"^(```|~~~).*?^\1", re.M | re.S)
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)")
HEADING = re.compile(r"^#{1,6} +(.+?)(?: +#+)?$", re.M)
FILE = re.compile(r"(?<![\w/.~$-])(?:benchmarks|docs|lab|release|tests)/[\w./-]*\w")
CODE = ("benchmarks", "cli", "client", "durability", "lab", "release", "server", "tests")
KINDS = {"how-to", "reference", "explanation"}
COLUMNS_MAX = 125
KEPT_RELEASES = sorted(one for one in (TESTS / "artefacts").iterdir() if one.is_dir())


def _prose(page: Path) -> str:
    """The page without blocks of code."""
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def _links(page: Path) -> list[str]:
    """Targets of the page's links and images that lead to files or headings of this repository."""
    text = re.sub(r"`[^`\n]*`", "", _prose(page))
    return [link for link in LINK.findall(text) if not re.match(r"[a-z][a-z+.-]*:", link)]


def _anchors(page: Path) -> Iterator[str]:
    """The fragments under which GitHub shows the page's headings."""
    seen: dict[str, int] = {}
    for heading in HEADING.findall(_prose(page)):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        count = seen.get(slug, 0)
        seen[slug] = count + 1
        yield f"{slug}-{count}" if count else slug


def _leads_to(page: Path, link: str) -> tuple[Path, str]:
    """The file that a link of the page names, and the fragment."""
    path, _, fragment = link.partition("#")
    return ((page.parent / path).resolve() if path else page), fragment


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    """Each relative link names a file of the repository, and its fragment a heading there."""
    broken = []
    for link in _links(page):
        path, fragment = _leads_to(page, link)
        if (
            not path.is_relative_to(ROOT)
            or not path.exists()
            or (fragment and fragment not in _anchors(path))
        ):
            broken.append(link)
    assert broken == []


def test_every_page_is_reachable_from_the_index() -> None:
    """Each page below docs can be reached by links from docs/README.md."""
    reached, waiting = set(), [INDEX]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            targets = [_leads_to(page, link)[0] for link in _links(page)]
            waiting += [path for path in targets if path.suffix == ".md" and path.is_file()]
    assert [_name(page) for page in DOCS.rglob("*.md") if page not in reached] == []


def test_every_page_is_listed_in_the_index_under_its_kind() -> None:
    """docs/README.md links each page itself, and each page lies in the folder of a kind."""
    listed = {_leads_to(INDEX, link)[0] for link in _links(INDEX)}
    pages = [page for page in DOCS.rglob("*.md") if page != INDEX]
    assert [_name(page) for page in pages if page not in listed] == []
    assert {page.parent.name for page in pages} == KINDS


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    """Each path to tests, scripts, lab or documentation that a page names, in prose or in a command,
    exists."""
    named = set(FILE.findall(page.read_text(encoding="utf-8")))
    assert {path for path in named if not (ROOT / path).exists()} == set()


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_lines_are_wrapped(page: Path) -> None:
    """No line of prose is wider than 125 columns; rows of tables and addresses of links may be."""
    prose = [LINK.sub("]", line) for line in _prose(page).splitlines() if not line.startswith(("|", "["))]
    assert [line for line in prose if len(line) > COLUMNS_MAX] == []


def test_every_page_that_the_code_names_exists() -> None:
    """Comments, messages and tests name files below docs by paths that exist."""
    named = {
        path
        for folder in CODE
        for file in (ROOT / folder).rglob("*.py")
        for path in re.findall(r"(?<![\w/])docs/[\w./-]+\.(?:md|json|png)", file.read_text(encoding="utf-8"))
    }
    assert named and {path for path in named if not (ROOT / path).exists()} == set()


def _constant(programs: tarfile.TarFile, file: str, assignment: str) -> str:
    """The number that `assignment` gives in a file of kept programs."""
    member = programs.extractfile(file)
    assert member is not None
    found = re.search(rf"^{assignment}\D*(\d+)", member.read().decode(), re.M)
    assert found is not None
    return found.group(1)


@pytest.mark.parametrize("release", KEPT_RELEASES, ids=lambda one: one.name)
def test_the_changelog_says_of_a_kept_release_what_its_programs_speak_and_store(release: Path) -> None:
    """The section of a release whose programs are kept has their newest protocol and their store's format."""
    _, heading, rest = (ROOT / "CHANGELOG.md").read_text().partition(f"\n## {release.name} ")
    section = " ".join(rest.partition("\n## ")[0].split())
    with lzma.open(release / "programs.tar.xz") as data, tarfile.open(fileobj=data) as programs:
        protocol = _constant(programs, "durability/protocol/state_machine.py", "PROTOCOL_VERSIONS =")
        store = _constant(programs, "durability_server/store/tables.py", "STORE_FORMAT =")
    assert heading and f"protocol {protocol}, store format {store}," in section
