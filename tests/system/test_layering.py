"""The layers stay apart: the core is pure, and each side knows only the core."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.places import ROOT

FOLDERS = {
    "durability": ROOT / "durability",
    "durability_cli": ROOT / "cli/durability_cli",
    "durability_server": ROOT / "server/durability_server",
    "durability_client": ROOT / "client/durability_client",
    "durability_lab": ROOT / "lab/durability_lab",
}
MAY_IMPORT = {  # of our packages, besides itself
    "durability": set[str](),
    "durability_server": {"durability"},
    "durability_client": {"durability"},
    "durability_lab": {"durability", "durability_server", "durability_client"},
}
PURE_STANDARD_LIBRARY = {
    "__future__",
    "abc",
    "array",
    "base64",
    "bisect",
    "collections",
    "copy",
    "dataclasses",
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
    "struct",
    "sys",
    "textwrap",
    "types",
    "typing",
    "zlib",
}
PURE_OTHERS = {"msgpack", "numpy", "pydantic", "xxhash"}
CONSTANTS_OF_SYS = {"sys.byteorder", "sys.maxsize"}
EFFECTS = {
    "open",
    "print",
    "input",
    "exec",
    "eval",
    "breakpoint",
    "__import__",
    "np.random",
    "np.memmap",
    "np.fromfile",
}
THE_JUDGES = {  # what `durability.evidence.judge` alone puts together
    "durability.evidence.at_risk": {"at_risk", "loss_window"},
    "durability.evidence.cut": {"assess"},
    "durability.evidence.verdict": {"decide"},
}
COMMAND_LINE = sorted(FOLDERS["durability"].glob("cli*.py"))
IMPORTERS = {  # of a library, the modules that may
    "msgpack": {"packing"},
    "pydantic": {"documents"},
    "typer": {path.stem for path in COMMAND_LINE} - {"cli_streams"},
}


def _modules(package: str) -> list[Path]:
    return sorted(FOLDERS[package].rglob("*.py"))


def _core() -> list[Path]:
    return [path for path in _modules("durability") if path not in COMMAND_LINE]


def _imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Dotted names that `tree` imports, with the line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative imports are not used here"
            yield str(node.module), node.lineno
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def _has_effect(name: str) -> bool:
    if name.startswith("sys."):
        return name not in CONSTANTS_OF_SYS
    return name in EFFECTS


def _identify(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", _core(), ids=_identify)
def test_core_imports_only_what_is_pure(path: Path) -> None:
    """A core module imports the core, pure parts of the standard library and four libraries without I/O."""
    allowed = PURE_STANDARD_LIBRARY | PURE_OTHERS | {"durability"}
    impure = [
        f"line {line}: {name}"
        for name, line in _imports(ast.parse(path.read_text()))
        if name.partition(".")[0] not in allowed or name.startswith(("numpy.random", "durability_cli.main"))
    ]
    assert impure == []


@pytest.mark.parametrize("path", _core(), ids=_identify)
def test_core_calls_nothing_with_an_effect(path: Path) -> None:
    """A core module does not open files, print, evaluate text or draw from numpy's random numbers."""
    effects = [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Name | ast.Attribute) and _has_effect(ast.unparse(node))
    ]
    assert effects == []


@pytest.mark.parametrize("package", FOLDERS)
def test_packages_know_only_the_layers_below(package: str) -> None:
    """The core knows neither side, the sides do not know each other, and only the lab may use all."""
    foreign = set(FOLDERS) - MAY_IMPORT[package] - {package}
    for path in _modules(package):
        if path in COMMAND_LINE:
            continue
        found = [
            f"{_identify(path)}:{line}: {name}"
            for name, line in _imports(ast.parse(path.read_text()))
            if name.partition(".")[0] in foreign
        ]
        assert found == []


@pytest.mark.parametrize("path", COMMAND_LINE, ids=_identify)
def test_command_line_imports_the_sides_only_where_a_command_needs_them(path: Path) -> None:
    """No side is imported at the head of these, so that `--help` is quick and a client needs no server."""
    tree = ast.parse(path.read_text())
    head = ast.Module([node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)], [])
    sides = set(FOLDERS) - {"durability"}
    assert [name for name, _ in _imports(head) if name.partition(".")[0] in sides] == []


@pytest.mark.parametrize("library", IMPORTERS)
def test_some_libraries_are_wrapped(library: str) -> None:
    """Each of these libraries is wrapped by one module, where its strictness and bounds are kept.

    Typer is by the modules of the command line.
    """
    importers = {
        path.stem
        for package in FOLDERS
        for path in _modules(package)
        if any(name.partition(".")[0] == library for name, _ in _imports(ast.parse(path.read_text())))
    }
    assert importers == IMPORTERS[library]


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
    """Neither side nor the lab takes cut, risk, loss window or verdict from anywhere but the judge."""
    found = {
        _identify(path): set(_of_the_judge(ast.parse(path.read_text())))
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
    assert len(list(_of_the_judge(ast.parse(source)))) == 1
    allowed = "from durability.evidence.verdict import REASONS\nfrom durability.evidence.judge import judge"
    assert list(_of_the_judge(ast.parse(allowed))) == []


def test_core_sees_what_it_looks_for() -> None:
    """The walk finds imports at any depth, so that an empty result means something."""
    source = "def f():\n    if True:\n        import socket\n        from os import path\n"
    assert [name for name, _ in _imports(ast.parse(source))] == ["socket", "os", "os.path"]
