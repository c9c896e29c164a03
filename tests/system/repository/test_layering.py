"""The layers stay apart: the core is pure, each side knows only the core, and no imports go round.

import-linter holds the layers within each package (pyproject.toml).
"""

from __future__ import annotations

import ast
import configparser
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.places import ROOT

FOLDERS = {
    "durability": ROOT / "durability",
    "durability_cli": ROOT / "cli/durability_cli",
    "durability_server": ROOT / "server/durability_server",
    "durability_client": ROOT / "client/durability_client",
    "durability_lab": ROOT / "lab/durability_lab",
}
RELEASE = {"release": ROOT / "release"}  # ships nothing; prints what users install from the help texts
MAY_IMPORT = {  # of our packages, besides itself
    "durability": set[str](),
    "durability_cli": {"durability", "durability_server", "durability_client", "durability_lab"},
    "durability_server": {"durability"},
    "durability_client": {"durability"},
    "durability_lab": {"durability", "durability_server", "durability_client"},
}
PURE_STANDARD_LIBRARY = {
    "stat",
    "__future__",
    "abc",
    "array",
    "base64",
    "bisect",
    "collections",
    "copy",
    "dataclasses",
    "datetime",  # but for its clock: see EFFECTS
    "difflib",
    "enum",
    "errno",
    "functools",
    "hashlib",
    "heapq",
    "hmac",
    "ipaddress",
    "itertools",
    "json",
    "math",
    "operator",
    "re",
    "shlex",
    "statistics",
    "struct",
    "sys",
    "textwrap",
    "tomllib",
    "types",
    "typing",
    "zlib",
}
PURE_OTHERS = {"msgpack", "numpy", "pydantic", "xxhash"}
WITHOUT_SOCKETS = {"durability.protocol.secure_stream": {"ssl"}}  # TLS in memory: no socket is made there
CONSTANTS_OF_SYS = {"sys.byteorder", "sys.maxsize"}
EFFECTS = {
    "open",
    "print",
    "input",
    "exec",
    "eval",
    "breakpoint",
    "__import__",
    "datetime.now",
    "datetime.today",
    "datetime.utcnow",
    "date.today",
    "np.random",
    "np.memmap",
    "np.fromfile",
}
THE_JUDGES = {  # what `durability.evidence.judge` alone puts together
    "durability.evidence.at_risk": {"at_risk", "loss_window"},
    "durability.evidence.cut": {"assess"},
    "durability.evidence.verdict": {"decide"},
}
IMPORTERS = {  # of a library, the modules or packages that may
    "msgpack": {"durability.formats.packing"},
    "pydantic": {"durability.formats.documents"},
    "typer": {"durability_cli", "release.man_pages", "release.completions"},
}


@cache
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def _modules(package: str) -> list[Path]:
    return sorted((FOLDERS | RELEASE)[package].rglob("*.py"))


@cache
def _imports(tree: ast.AST) -> tuple[tuple[str, int], ...]:
    """Dotted names that `tree` imports, with the line."""
    return tuple(_imported(tree))


def _imported(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative imports are not used here"
            yield str(node.module), node.lineno
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def _name_of(path: Path) -> str:
    """The dotted name of a module of ours, or of a package for its `__init__`."""
    (folder,) = (folder for folder in (FOLDERS | RELEASE).values() if path.is_relative_to(folder))
    parts = path.relative_to(folder.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports_among(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Which modules each of `sources` imports of these, at any depth and for type checking too."""
    return {
        module: {name for name, _ in _imports(_parsed(source)) if name in sources}
        for module, source in sources.items()
    }


def _in_circles(graph: Mapping[str, set[str]]) -> set[str]:
    """The modules that lead to themselves."""
    found = set[str]()
    for module in graph:
        reached, ahead = set[str](), [module]
        while ahead:
            new = graph[ahead.pop()] - reached
            reached |= new
            ahead.extend(new)
        if module in reached:
            found.add(module)
    return found


def _has_effect(name: str) -> bool:
    if name.startswith("sys."):
        return name not in CONSTANTS_OF_SYS
    return name in EFFECTS


def _identify(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", _modules("durability"), ids=_identify)
def test_core_imports_only_what_is_pure(path: Path) -> None:
    """A core module imports the core, pure parts of the standard library and four libraries without I/O."""
    allowed = (
        PURE_STANDARD_LIBRARY | PURE_OTHERS | {"durability"} | WITHOUT_SOCKETS.get(_name_of(path), set())
    )
    impure = [
        f"line {line}: {name}"
        for name, line in _imports(_parsed(path.read_text()))
        if name.partition(".")[0] not in allowed or name.startswith("numpy.random")
    ]
    assert impure == []


@pytest.mark.parametrize("path", _modules("durability"), ids=_identify)
def test_core_calls_nothing_with_an_effect(path: Path) -> None:
    """A core module does not open files, print, evaluate text or draw from numpy's random numbers."""
    effects = [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(_parsed(path.read_text()))
        if isinstance(node, ast.Name | ast.Attribute) and _has_effect(ast.unparse(node))
    ]
    assert effects == []


@pytest.mark.parametrize("package", FOLDERS)
def test_packages_know_only_the_layers_below(package: str) -> None:
    """The core knows neither side, the sides do not know each other, and the lab knows no commands."""
    foreign = set(FOLDERS) - MAY_IMPORT[package] - {package}
    for path in _modules(package):
        found = [
            f"{_identify(path)}:{line}: {name}"
            for name, line in _imports(_parsed(path.read_text()))
            if name.partition(".")[0] in foreign
        ]
        assert found == []


@pytest.mark.parametrize("path", _modules("durability_cli"), ids=_identify)
def test_command_line_imports_the_sides_only_where_a_command_needs_them(path: Path) -> None:
    """No side is imported at the head of these, so that `--help` is quick and a client needs no server."""
    tree = _parsed(path.read_text())
    head = ast.Module([node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)], [])
    sides = set(FOLDERS) - {"durability", "durability_cli"}
    assert [name for name, _ in _imports(head) if name.partition(".")[0] in sides] == []


def test_no_imports_go_round() -> None:
    """No module needs another that needs it, not even for its types: each can be read after its imports."""
    sources = {_name_of(path): path.read_text() for package in FOLDERS for path in _modules(package)}
    graph = _imports_among(sources)
    assert {name.partition(".")[0] for name in graph if graph[name]} == set(FOLDERS)
    assert _in_circles(graph) == set()


@pytest.mark.parametrize("library", IMPORTERS)
def test_some_libraries_are_wrapped(library: str) -> None:
    """Each of these libraries is wrapped by one module, where its strictness and bounds are kept.

    Typer is by the package of the command line; the release also prints pages and completions with it.
    """
    importers = {
        _name_of(path)
        for package in FOLDERS | RELEASE
        for path in _modules(package)
        if any(name.partition(".")[0] == library for name, _ in _imports(_parsed(path.read_text())))
    }
    owners = tuple(f"{owner}." for owner in IMPORTERS[library])
    assert importers
    assert {name for name in importers if not f"{name}.".startswith(owners)} == set()


def test_drives_of_the_lab_need_no_dependency() -> None:
    """The contract of import-linter that keeps libraries from them names each dependency of setup.cfg."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (drives,) = (one for one in contracts if one.get("source_modules") == ["durability_lab.drive"])
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = setup["options.extras_require"]
    wanted = "\n".join((setup["options"]["install_requires"], extras["postgresql"], extras["lab"]))
    libraries = {
        canonicalize_name(Requirement(line).name).replace("-", "_")
        for line in wanted.splitlines()
        if line.strip()
    }
    assert len(libraries) > 10
    assert libraries - set(drives["forbidden_modules"]) == set()


def _of_the_judge(tree: ast.AST) -> Iterator[str]:
    """What `tree` imports of the judge's: one of its functions, or a module that has one, whole."""
    functions = {f"{module}.{name}" for module, names in THE_JUDGES.items() for name in (*names, "*")}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name for name in names if name in functions or name in THE_JUDGES)


def test_only_the_judge_concludes() -> None:
    """The client, the server and the lab take the cut, the risk, the loss window and the verdict only from
    the judge."""
    found = {
        _identify(path): set(_of_the_judge(_parsed(path.read_text())))
        for package in FOLDERS
        for path in _modules(package)
    }
    importers = {path: names for path, names in found.items() if names}
    functions = {f"{module}.{name}" for module, names in THE_JUDGES.items() for name in names}
    assert importers == {"durability/evidence/judge.py": functions}


@pytest.mark.parametrize(
    "source",
    [
        "from durability.evidence.verdict import REASONS, decide",
        "from durability.evidence.cut import assess as look",
        "from durability.evidence import at_risk",
        "from durability.evidence.at_risk import *",
        "import durability.evidence.verdict",
        "def f():\n    from durability.evidence.at_risk import loss_window",
    ],
)
def test_a_judge_beside_the_judge_is_seen(source: str) -> None:
    """However it is imported; types, constants and the judge itself are for everybody."""
    assert len(list(_of_the_judge(_parsed(source)))) == 1
    allowed = "from durability.evidence.verdict import REASONS\nfrom durability.evidence.judge import judge"
    assert list(_of_the_judge(_parsed(allowed))) == []


def test_core_sees_what_it_looks_for() -> None:
    """The walk finds imports at any depth, so that an empty result means something."""
    source = "def f():\n    if True:\n        import socket\n        from os import path\n"
    assert [name for name, _ in _imports(_parsed(source))] == ["socket", "os", "os.path"]


def test_a_circle_is_seen() -> None:
    """By a package's name, in a function or for types only; what only leads to a circle is not in it."""
    sources = {
        "p": "",
        "p.a": "if TYPE_CHECKING:\n    from p import b\n",
        "p.b": "def f():\n    from p.c import x\n",
        "p.c": "import p.a\n",
        "p.above": "from p import a\n",
        "p.below": "import json\n",
    }
    assert _in_circles(_imports_among(sources)) == {"p.a", "p.b", "p.c"}
