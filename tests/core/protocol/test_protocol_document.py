"""docs/reference/protocol.md and the code agree on messages, states and failure codes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from durability.protocol import messages
from durability.protocol.state_machine import HANDSHAKE, PURPOSES
from tests.places import ROOT


@pytest.fixture(scope="module")
def text() -> str:
    """The document."""
    return (ROOT / "docs/reference/protocol.md").read_text(encoding="utf-8")


def test_every_message_is_listed_with_its_code(
    text: str, samples: dict[type[messages.Message], messages.Message]
) -> None:
    """One row per kind, and no other; the code is the second byte of its messages."""
    rows = re.findall(r"^\| `0x([0-9a-f]{2})` \| `(\w+)`", text, re.MULTILINE)
    assert {(int(code, 16), name) for code, name in rows} == {
        (messages.encode(samples[kind])[1], kind.__name__) for kind in messages.KINDS
    }


def test_every_message_is_listed_with_its_sender(text: str) -> None:
    """The third column says who may send it."""
    rows = re.findall(r"^\| `0x[0-9a-f]{2}` \| `(\w+)` \| (\w+)", text, re.MULTILINE)
    for kind in messages.KINDS:
        one_way = "client" if issubclass(kind, messages.ClientMessage) else "server"
        both = not issubclass(kind, messages.ClientMessage | messages.ServerMessage)
        assert (kind.__name__, "both" if both else one_way) in rows


def test_every_state_is_in_the_diagram(text: str) -> None:
    """A state that the tables know is one that the reader can find."""
    diagram = text.split("## States")[1].split("```")[1]
    for table in (HANDSHAKE, *PURPOSES.values()):
        assert set(table) <= set(re.findall(r"[\w-]*\w", diagram))


def failure_codes(tree: ast.AST) -> Iterator[str]:
    """The literal codes that a module fails or refuses with."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            value: ast.expr | None = node.args[0] if name in ("fail", "RefusedError") else None
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = node.value if node.targets[0].id == "code" else None
        else:
            value = None
        for part in ast.walk(value) if value else ():
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                yield part.value


@pytest.mark.slow
def test_every_failure_code_is_listed(text: str) -> None:
    """The table lists exactly the failure codes that the server can send."""
    sources = [ROOT / "durability/protocol/state_machine.py", *(ROOT / "server").rglob("*.py")]
    used = {
        code for source in sources for code in failure_codes(ast.parse(source.read_text(encoding="utf-8")))
    }
    listed = re.findall(r"^\| `([a-z-]+)` \|", text.split("## Failure codes")[1], re.MULTILINE)
    assert set(listed) == used
