"""Results of strangers: whatever is in the file, it is refused by name, or every way of showing it works."""

from __future__ import annotations

import copy
import io
import json
import math
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from rich.console import Console

from durability import limits, plain_text
from durability.bench.catalogue import PROBE, QUICK
from durability.bench.compare import compare
from durability.bench.json_documents import comparison_document, summary_document
from durability.bench.result import Result, decode, encode
from durability.errors import FormatError
from durability.formats.documents import FINITE_MAX, to_json
from durability_client.bench.report import comparison_screen, html_page, one_screen, terminal_tables
from tests.core.bench.results import Device, simulate

Path_ = tuple[str | int, ...]

RESULT = simulate(Device(dirty_bytes_per_s=1e9), cells=(*QUICK, *PROBE), rounds=5)
DOCUMENT: dict[str, Any] = json.loads(encode(RESULT))
EVIL = "\x1b[2J\x1b[31mevil"
NUMBERS: list[object] = [0, 1, -1, 0.5, 1e-9, 5e-324, 1e9, FINITE_MAX, 1.7e308, float("inf"), float("nan")]
NUMBERS += [limits.COUNT_MAX, limits.COUNT_MAX + 1, (1 << 62) - 1, 1 << 62, 1 << 64, 10**400, True, None]
TEXTS = [
    "",
    EVIL,
    "\ud800",
    "\u202egnp",
    "[bold]x[/]",
    "<script>",
    "x" * 4096,
    "x" * 5000,
    "\0",
    "a\nb",
    "fio",
]
VALUES = st.sampled_from([*NUMBERS, *TEXTS, [], {}, [0], [[]], {"": 0}])


def places(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    """The path to each value, those of a list only to the first few, since many are alike."""
    yield path
    parts: Any = value.items() if isinstance(value, dict) else ()
    parts = list(enumerate(value))[:2] if isinstance(value, list) else parts
    for name, part in parts:
        yield from places(part, (*path, name))


PLACES = [path for path in places(DOCUMENT) if path]
CELL_PLACES = sorted({path[2:] for path in PLACES if path[:1] == ("cells",) and len(path) > 2}, key=str)


def holder(document: Any, path: Path_) -> Any:
    """What holds the last step of `path`; an empty dict where another change took it away."""
    try:
        for step in path[:-1]:
            document = document[step]
    except (KeyError, IndexError, TypeError):
        return {}
    if isinstance(document, list) and path[-1] in range(len(document)):
        return document
    return document if isinstance(document, dict) else {}


def put(document: Any, path: Path_, value: object) -> None:
    """Another value at `path`."""
    holder(document, path)[path[-1]] = copy.deepcopy(value)


def drop(document: Any, path: Path_) -> None:
    """No value at `path` any more."""
    with suppress(KeyError):
        del holder(document, path)[path[-1]]


def finite(value: Any) -> bool:
    """Whether no number of a JSON value is infinite or none."""
    if isinstance(value, dict):
        return all(map(finite, value.values()))
    if isinstance(value, list | tuple):
        return all(map(finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def show_in_every_way(result: Result) -> None:
    """As all commands do; numpy's warnings of overflows and divisions are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = io.StringIO()
        console = Console(file=out, width=160)
        document = summary_document(result)
        assert finite(document)
        out.write(to_json(document))
        terminal_tables.show_result(result, console)
        one_screen.show_screen(result, console)
        compared = compare([("one", result), ("two", result)])
        assert finite(comparison_document(compared))
        terminal_tables.show_comparison(compared, console)
        comparison_screen.show_comparison_screen(compared, console)
        pages = html_page.result_page(result), html_page.comparison_page(compared, [result, result])
    for text in (out.getvalue().replace(to_json(document), ""), *pages):
        text.encode()
        assert "\x1b" not in text


def check(document: Any) -> Result | None:
    """What a reader makes of the document: None where it is refused, in one plain line."""
    try:
        result = decode(json.dumps(document).encode())
    except FormatError as error:
        said = str(error)
        assert plain_text.is_line(said) and len(said) < 600, said
        return None
    show_in_every_way(result)
    return result


@settings(max_examples=120)
@given(st.lists(st.tuples(st.sampled_from(PLACES), VALUES), min_size=1, max_size=3))
@pytest.mark.slow
def test_a_result_with_other_values_is_refused_or_shown(changes: list[tuple[Path_, object]]) -> None:
    """Numbers at their extremes, strange texts, values of another type, empty lists."""
    document = copy.deepcopy(DOCUMENT)
    for path, value in changes:
        note(f"{path}: {value!r:.80}")
        put(document, path, value)
    check(document)


@settings(max_examples=120)
@given(st.sampled_from(CELL_PLACES), VALUES, st.booleans())
@pytest.mark.slow
def test_a_result_with_one_value_in_every_cell_is_refused_or_shown(
    path: Path_, value: object, every: bool
) -> None:
    """The same in each cell, and in each of its rounds: what is derived of them all cannot overflow."""
    document = copy.deepcopy(DOCUMENT)
    for cell in document["cells"]:
        put(cell, path, value)
        for number in range(len(cell["rounds"]) if every and isinstance(cell["rounds"], list) else 0):
            put(cell, ("rounds", number, *path[2:]), value)
    check(document)


@settings(max_examples=60)
@given(st.lists(st.sampled_from(PLACES), max_size=2), st.text(min_size=1, max_size=200))
@pytest.mark.slow
def test_a_result_with_fewer_or_more_keys_is_refused(paths: list[Path_], key: str) -> None:
    """A result with missing or unknown keys is refused, and the message prints no key raw."""
    document = copy.deepcopy(DOCUMENT)
    for path in paths:
        drop(document, path)
    put(document, (key,), 1)
    if key not in DOCUMENT:
        assert check(document) is None


def zeroed(one: dict[str, Any]) -> None:
    empty: dict[str, Any] = {"gaps": [], "counts": [], "max_ns": 0}
    one.update(commits=0, writes=0, reads=0, commit_ns=empty, sync_ns=empty, read_ns=empty)


def most(one: dict[str, Any]) -> None:
    full = {"gaps": [100], "counts": [limits.COUNT_MAX], "max_ns": 100}
    one.update(commits=limits.COUNT_MAX, writes=limits.COUNT_MAX, reads=limits.COUNT_MAX)
    one.update(dict.fromkeys(("commit_ns", "sync_ns", "read_ns"), full))
    one.update(bins=[limits.COUNT_MAX] * 20, bin_s=1e-9, seconds=1e-9)


def stalled(one: dict[str, Any]) -> None:
    none: dict[str, Any] = {"gaps": [], "counts": [], "max_ns": 0}
    one.update(commits=10_000, commit_ns=none, sync_ns=none, bins=[0] * 20)


@pytest.mark.slow
@pytest.mark.parametrize("change", [zeroed, most, stalled])
@pytest.mark.parametrize("rounds", [1, 5])
@pytest.mark.parametrize("which", ["first", "last", "every"])
def test_rounds_at_their_bounds_are_shown(change: Any, rounds: int, which: str) -> None:
    """Nothing done, as much as can be written down, or nothing done in any whole bin."""
    document = copy.deepcopy(DOCUMENT)
    cells = {"first": slice(0, 1), "last": slice(1, None), "every": slice(None)}[which]
    for cell in document["cells"]:
        del cell["rounds"][rounds:]
    document["order"] = [index for index in range(len(document["cells"])) for _ in range(rounds)]
    for cell in document["cells"][cells]:
        for one in cell["rounds"]:
            change(one)
            one["work"]["operations"] = 1 if one["commits"] else 0
    assert check(document) is not None


@pytest.mark.parametrize(
    ("path", "value", "match"),
    [
        (("cells",), [], "there are no cells"),
        ((EVIL,), 1, r"\\x1b\[2J\\x1b\[31mevil: "),
        (("cells", 0, EVIL), 1, r"cells\.0\.\\x1b"),
        (("k" * 5000,), 1, r"k{59}…: "),
        (("cells", 0, "rounds", 0, "seconds"), 5e-324, r"a round: 5e-324 seconds"),
        (("cells", 0, "rounds", 0, "bin_s"), 5e-324, r"in bins of 5e-324"),
        (("cells", 0, "rounds", 0, "commits"), limits.COUNT_MAX + 1, r"rounds\.0\.commits: "),
        (("cells", 0, "rounds", 0, "commit_ns", "counts"), [limits.COUNT_MAX, 1], r"latencies: "),
        (("cells", 0, "rounds", 0, "work", "user_us"), 1.7e308, r"work\.user_us: "),
        (("idle", 0, "seconds"), 5e-324, r"idle drive sda: "),
        (("facts", "drives", 0, "size_bytes"), 10**400, r"facts\.drives\.0\.size_bytes: "),
    ],
)
def test_the_message_is_plain_and_names_the_field(path: Path_, value: object, match: str) -> None:
    """Extreme values are refused where they stand, and a terminal can print what is said of them."""
    document = copy.deepcopy(DOCUMENT)
    if path[-1] == "counts":
        document["cells"][0]["rounds"][0]["commit_ns"] = {"gaps": [5, 1], "counts": value, "max_ns": 6}
    else:
        put(document, path, value)
    with pytest.raises(FormatError, match=match) as caught:
        decode(json.dumps(document).encode())
    assert str(caught.value).isprintable() and len(str(caught.value)) < 400
