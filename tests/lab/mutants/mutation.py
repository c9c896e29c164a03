"""Mutation: one function or constant of the product made wrong for the time of a `with` block.

A function's code is compiled anew from its source with one piece of text replaced, and put into the same
function object, so it changes for whoever has imported it. Nothing on disk is touched.

A mutant that would change nothing must not pass for one that is noticed, so each is refused with
AssertionError once its text, its function or the reader of its constant is gone.
"""

from __future__ import annotations

import ast
import builtins
import dis
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from types import CodeType, FunctionType, ModuleType
from typing import TypeAlias

Change: TypeAlias = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A tester without one rule of evidence. `rule`: its number in docs/explanation/evidence.md;
    `taken_away`: what, in a sentence's words; `noticed_by`: the lab cases that must notice, with the wrong
    answer that each gets then; `change`: does it, for a `with` block."""

    name: str
    rule: int
    taken_away: str
    noticed_by: Mapping[str, str]
    change: Change


def without(target: object, old: str, new: str) -> Change:
    """`target`, a function or property, with `old` in its source, which must be there once, replaced by
    `new`."""
    return partial(_changed, target, lambda source: _with(source, old, new))


def answering(target: object, body: str) -> Change:
    """`target` with nothing but `body` in it."""
    return partial(_changed, target, lambda source: _with_body(source, body))


def together(*changes: Change) -> Change:
    """All of `changes` at once: for a fault that more than one place catches."""
    return partial(_together, changes)


@contextmanager
def _together(changes: Sequence[Change]) -> Iterator[None]:
    with ExitStack() as stack:
        for change in changes:
            stack.enter_context(change())
        yield


@contextmanager
def _changed(target: object, change: Callable[[str], str]) -> Iterator[None]:
    function = target.fget if isinstance(target, property) else target
    assert isinstance(function, FunctionType), f"{target} is no function"
    assert inspect.unwrap(function) is function, f"{target} is wrapped, so its source is not its own"
    source = textwrap.dedent(inspect.getsource(function))
    changed = change(source)
    assert _effect(changed) != _effect(source), f"the mutant is out of date: it changes nothing in\n{source}"
    before = function.__code__
    after = _compiled(function, changed)
    unknown = _globals_read(after) - set(function.__globals__) - set(vars(builtins))
    assert not unknown, f"the mutant is out of date: nothing is named {', '.join(unknown)} in\n{source}"
    function.__code__ = after
    try:
        yield
    finally:
        function.__code__ = before


def constant(module: ModuleType, name: str, value: object) -> Change:
    """The constant `name` of `module` with another value.

    A function of `module` must read it, and no other module may have a copy that would stay as it is.
    """
    return partial(_with_constant, module, name, value)


@contextmanager
def _with_constant(module: ModuleType, name: str, value: object) -> Iterator[None]:
    constant_name = f"{module.__name__}.{name}"
    assert hasattr(module, name), f"the mutant is out of date: {constant_name} is gone"
    before = getattr(module, name)
    assert before != value, f"the mutant is out of date: {constant_name} is {value!r} without it"
    read = _globals_read_by_functions(ast.parse(inspect.getsource(module)))
    assert name in read, f"the mutant is out of date: no function of its module reads {constant_name}"
    copies = _others_with(module, name, before)
    assert not copies, f"{constant_name} would stay as it is in {', '.join(copies)}"
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


def _with(source: str, old: str, new: str) -> str:
    assert source.count(old) == 1, f"the mutant is out of date: {old!r} stands not once in\n{source}"
    return source.replace(old, new)


def _effect(source: str) -> str:
    """What the function of `source` does: its code without comments, docstring and `pass`."""
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef)
    described = ast.get_docstring(definition) is not None
    return "\n".join(
        ast.unparse(line) for line in definition.body[described:] if not isinstance(line, ast.Pass)
    )


def _globals_read(code: CodeType) -> set[str]:
    """The names of module level that `code`, or a function or class in it, reads."""
    names = {step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}
    return names.union(*(_globals_read(inner) for inner in code.co_consts if isinstance(inner, CodeType)))


def _globals_read_by_functions(block: ast.Module | ast.ClassDef) -> set[str]:
    """The same of all functions and methods in `block`; what is read only at import is left out."""
    found = set[str]()
    for line in block.body:
        if isinstance(line, ast.FunctionDef | ast.AsyncFunctionDef):
            found |= _globals_read(_code_of(line, "<product>"))
        elif isinstance(line, ast.ClassDef):
            found |= _globals_read_by_functions(line)
    return found


def _others_with(module: ModuleType, name: str, value: object) -> list[str]:
    """The loaded modules of the product that imported `value` from `module` under its name."""
    return [
        other
        for other, loaded in sys.modules.items()
        if other.startswith("durability") and loaded is not module and vars(loaded).get(name) is value
    ]


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
    return _code_of(definition, f"<mutant of {function.__qualname__}>")


def _code_of(definition: ast.FunctionDef | ast.AsyncFunctionDef, place: str) -> CodeType:
    definition.decorator_list = []
    module = compile(ast.Module([definition], []), place, "exec")
    (code,) = (
        one for one in module.co_consts if isinstance(one, CodeType) and one.co_name == definition.name
    )
    return code
