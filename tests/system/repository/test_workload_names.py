"""Only a workload's own module knows it by name: everybody else asks its object."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from durability.formats.workloads.registry import WORKLOADS
from durability_cli import lab_options, options
from tests.places import ROOT

SOURCES = ("durability", "cli", "client", "server", "lab")
EXEMPT = {
    "durability/formats/workloads": "the workloads themselves",
    "durability/bench": "the benchmark's cells have workloads of their own, some of them called the same",
    "client/durability_client/bench": "what measures these cells",
    "lab/durability_lab/truth/reference_judge.py": "the reference judge is independent on purpose",
}


def _is_exempt(path: Path) -> bool:
    name = path.relative_to(ROOT).as_posix()
    return any(name == place or name.startswith(f"{place}/") for place in EXEMPT)


def _is_name(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value in WORKLOADS


def _told_apart_by_name(tree: ast.AST) -> Iterator[str]:
    """Comparisons with a workload's name or of a `.workload`, cases that are one, collections of names."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, comparators=others):
                of_plan = any(
                    isinstance(one, ast.Attribute) and one.attr == "workload" for one in (left, *others)
                )
                found = of_plan or any(map(_is_name, (left, *others)))
            case ast.MatchValue(value=value):
                found = _is_name(value)
            case ast.Tuple(elts=members) | ast.List(elts=members) | ast.Set(elts=members):
                found = any(map(_is_name, members))
            case ast.Dict(keys=keys):
                found = any(map(_is_name, keys))
            case _:
                continue
        if found:
            yield f"line {node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("folder", SOURCES)
def test_no_module_tells_workloads_apart_by_name(folder: str) -> None:
    """A sixth workload would be forgotten there."""
    paths = [path for path in sorted((ROOT / folder).rglob("*.py")) if not _is_exempt(path)]
    told = {
        str(path.relative_to(ROOT)): found
        for path in paths
        if (found := list(_told_apart_by_name(ast.parse(path.read_text()))))
    }
    assert paths and told == {}


def test_what_is_exempt_is_there() -> None:
    """An exemption ends with what it was made for."""
    for place in EXEMPT:
        assert (ROOT / place).exists(), place


@pytest.mark.parametrize(
    "source",
    [
        "if plan.workload == other: pass",
        "if name != 'append': pass",
        "if 'create' == name: pass",
        "if name in ('rename', 'unlink'): pass",
        "NAMES = frozenset({'create', 'rename'})",
        "TABLE = {'overwrite': 1}",
        "match name:\n    case 'unlink': pass",
    ],
)
def test_it_sees_what_it_looks_for(source: str) -> None:
    """An empty result means something."""
    assert list(_told_apart_by_name(ast.parse(source)))


@pytest.mark.parametrize("option", [options.Workload, lab_options.GuestWorkload])
def test_the_command_line_offers_what_there_is(option: object) -> None:
    """The choices of --workload are the registered workloads, in their order, and its help explains each."""
    names, explained = get_args(option)
    assert get_args(names) == tuple(WORKLOADS)
    assert f": {', '.join(one.summary for one in WORKLOADS.values())}." in explained.help
