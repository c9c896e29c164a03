"""Mutation: one function or constant of the product made wrong for the time of a `with` block.

A function's code is compiled anew from its source with one piece of text replaced, and put into the same
function object, so it changes for whoever has imported it. Nothing on disk is touched.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from types import CodeType, FunctionType, ModuleType
from typing import TypeAlias

Change: TypeAlias = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A tester without one rule of evidence. `rule`: its number in docs/explanation/evidence.md;
    `taken_away`: what, in a sentence's words; `noticed_by`: the lab cases that must notice; `change`: does
    it, for a `with` block."""

    name: str
    rule: int
    taken_away: str
    noticed_by: tuple[str, ...]
    change: Change


def without(target: object, old: str, new: str) -> Change:
    """`target`, a function or property, with `old` in its source, which must be there once, replaced by
    `new`."""
    return partial(_changed, target, lambda source: _with(source, old, new))


def answering(target: object, body: str) -> Change:
    """`target` with nothing but `body` in it."""
    return partial(_changed, target, lambda source: _with_body(source, body))


@contextmanager
def _changed(target: object, change: Callable[[str], str]) -> Iterator[None]:
    function = target.fget if isinstance(target, property) else target
    assert isinstance(function, FunctionType), f"{target} is no function"
    before = function.__code__
    function.__code__ = _compiled(function, change(textwrap.dedent(inspect.getsource(function))))
    try:
        yield
    finally:
        function.__code__ = before


def constant(module: ModuleType, name: str, value: object) -> Change:
    """The constant `name` of `module` with another value."""
    return partial(_with_constant, module, name, value)


@contextmanager
def _with_constant(module: ModuleType, name: str, value: object) -> Iterator[None]:
    before = getattr(module, name)
    assert before != value
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


def _with(source: str, old: str, new: str) -> str:
    assert source.count(old) == 1, f"the mutant is out of date: {old!r} stands not once in\n{source}"
    return source.replace(old, new)


def _with_body(source: str, body: str) -> str:
    tree = ast.parse(source)
    (definition,) = tree.body
    assert isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef)
    definition.body = ast.parse(body).body
    return ast.unparse(tree)


def _compiled(function: FunctionType, source: str) -> CodeType:
    """The code of `function` from another source; the definition itself is never run."""
    tree = ast.parse(source)
    (definition,) = tree.body
    assert isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef)
    definition.decorator_list = []
    module = compile(tree, f"<mutant of {function.__qualname__}>", "exec")
    (code,) = (
        one for one in module.co_consts if isinstance(one, CodeType) and one.co_name == function.__name__
    )
    return code
