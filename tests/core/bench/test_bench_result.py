"""Result files: the format does not move, comes back as it went, and nothing else is taken for one."""

from __future__ import annotations

import copy
import json
import types
import typing
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durability import limits
from durability.bench.json_documents import summary_document
from durability.bench.plausibility import plausibility
from durability.bench.result import Result, decode, encode
from durability.bench.summary import summarise
from durability.errors import FormatError
from durability.formats.facts import Facts
from tests.core.bench.results import JUDGED, Device, simulate
from tests.places import DOCS, VECTORS

RESULTS = sorted(VECTORS.glob("bench-v*.json"))
FIRST = (VECTORS / "bench-v1-partial.json").read_bytes()
SECOND = (VECTORS / "bench-v2-classic.json").read_bytes()
GOLDEN = (VECTORS / "bench-v3-reserved.json").read_bytes()
Path_ = tuple[str | int, ...]


def leaves(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    """The path to each value that holds no other."""
    parts: Any = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    if not parts:
        yield path
    for name, part in parts:
        yield from leaves(part, (*path, name))


def changed(path: Path_, value: object) -> bytes:
    """The golden file with another value at `path`."""
    document = copy.deepcopy(json.loads(GOLDEN))
    holder = document
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    return json.dumps(document).encode()


WRONG: list[object] = [None, -1, -0.5, "x", [], {}, [1], float("nan"), float("inf"), 1 << 70, True]
LEAVES = list(leaves(json.loads(GOLDEN)))


@pytest.mark.parametrize("vector", RESULTS, ids=lambda path: path.name)
def test_files_of_earlier_releases_are_read_and_written_the_same(vector: Path) -> None:
    """To the byte, but for what an older version of the format does not have."""
    data = vector.read_bytes()
    written = encode(decode(data))
    schema = json.loads(data)["schema"]
    if schema == "durability.bench/3":
        assert written == data
        return
    older = json.loads(written)
    assert older["before"].pop("reserved_bytes") is None and older["after"] is None
    if schema == "durability.bench/1":
        assert older.pop("layer_blocks") == [] and {one["cell"].pop("depth") for one in older["cells"]} == {1}
    assert {**older, "schema": schema} == json.loads(data)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"layer_blocks": []}, r"layer_blocks: version 1 has no such field"),
        ({"cells": 3}, r"cells: "),
        ({"cells": [3]}, r"cells\.0: "),
        ({"cells": [{"cell": None}]}, r"cells\.0\."),
        ({"cells": [{"cell": {"depth": 2}}]}, r"depth: version 1 has no such field"),
        ({"before": {"reserved_bytes": 0}}, r"before: reserved_bytes: versions before 3 have no such field"),
        ({"before": 3}, r"before: "),
    ],
)
def test_a_file_of_the_first_version_is_held_to_that_version(change: dict[str, Any], match: str) -> None:
    """Fields that came later are refused in it, and what is broken is named."""
    with pytest.raises(FormatError, match=match):
        decode(json.dumps({**json.loads(FIRST), **change}).encode())


def test_a_file_of_the_second_version_is_held_to_that_version() -> None:
    """Files of version 2 are validated as version 2, also their `after` state; `reserved_bytes` is then
    None."""
    document = json.loads(SECOND)
    after = decode(json.dumps({**document, "after": document["before"]}).encode()).after
    assert after is not None and after.reserved_bytes is None
    later = {**document["before"], "reserved_bytes": 0}
    with pytest.raises(FormatError, match=r"after: reserved_bytes: versions before 3 have no such field"):
        decode(json.dumps({**document, "after": later}).encode())


def test_what_the_classic_file_says_does_not_change() -> None:
    """Three reads of 1 MiB in 1.002 s, 8 in flight, by fio alone."""
    result = decode(GOLDEN)
    *_, read = (summarise(one) for one in result.cells)
    assert (read.cell.depth, read.cell.only_fio, read.operations) == (8, True, 3)
    assert read.bytes_per_s is not None and round(read.bytes_per_s.median) == 3_139_449
    assert (read.read.samples, read.read.most, read.commit.samples) == (3, 9_000_000, 0)
    assert result.layer_blocks[0].block_bytes == 128 << 10


def test_what_the_first_file_says_does_not_change() -> None:
    """Figures that are derived from the golden vector, by hand."""
    result = decode(FIRST)
    assert (result.mode, result.seed, result.order, result.complete) == (
        "standard",
        20261121,
        (0, 3, 1, 0),
        False,
    )
    headline, flush, append, fio = (summarise(one) for one in result.cells)
    assert headline.rate is not None and (headline.rate.least, headline.rate.most) == (40.0, 80.0)
    assert (headline.commit.samples, headline.commit.most, headline.commit.p50) == (8, 380_014, None)
    assert flush.commit.p50 == 42_239  # 42,000 at most 1/128 too high
    assert (append.rate, append.note, fio.engine) == (None, "needs a file system", "fio")
    assert headline.disks[0].flushes == 1.05 and headline.cpu_us == 6.5
    assert plausibility(result).code == "inconclusive"


def test_a_result_comes_back_as_it_went() -> None:
    """And one file of a whole run stays small."""
    result = simulate(Device())
    data = encode(result)
    assert decode(data) == result
    assert len(data) < 1 << 20


def test_what_is_said_of_errors_is_cut_where_it_could_not_be_read_again() -> None:
    """A path is nearly as long as a text may be, and escapes make it longer."""
    result = simulate(Device(), cells=JUDGED[:1], rounds=1, complete=False, stopped="x" * 5000)
    result = replace(result, cells=(replace(result.cells[0], note="y" * 5000),))
    kept = decode(encode(result))
    assert kept.stopped == "x" * 4095 + "…"
    assert kept.cells[0].note == "y" * 4095 + "…"
    assert decode(encode(kept)) == kept


@given(st.integers(0, len(GOLDEN) - 2))
def test_a_truncated_file_is_refused(length: int) -> None:
    """Wherever it was cut off."""
    with pytest.raises(FormatError):
        decode(GOLDEN[:length])


@pytest.mark.slow
@given(
    st.sampled_from(LEAVES),
    st.sampled_from([None, -1, -0.5, "x", [], {}, [1], float("nan"), float("inf"), 1 << 70, True]),
)
def test_a_wrong_value_is_refused_or_fits_its_field(path: Path_, value: object) -> None:
    """Any value in a field gives either a FormatError or a result that is encoded unchanged."""
    try:
        result = decode(changed(path, value))
    except FormatError as error:
        assert str(error)
    else:
        assert decode(encode(result)) == result
        summary_document(result)


@pytest.mark.parametrize(
    ("path", "value", "match"),
    [
        (("seed",), -1, r"seed: "),
        (("seed",), 1.5, r"seed: "),
        (("size_bytes",), "big", r"size_bytes: "),
        (("duration_s",), float("nan"), r"duration_s: .*finite"),
        (("duration_s",), float("inf"), r"duration_s: .*finite"),
        (("before", "steal_percent"), -1, r"before\.steal_percent: "),
        (("mode",), "slow", r"mode: "),
        (("complete",), "yes", r"complete: "),
        (("cells", 0, "rounds", 0, "writes"), -1, r"cells\.0\.rounds\.0\.writes: "),
        (
            ("cells", 0, "rounds", 1, "commit_ns", "counts", 0),
            -3,
            r"cells\.0\.rounds\.1\.commit_ns\.counts\.0: ",
        ),
        (("cells", 0, "rounds", 0, "bins", 1), True, r"cells\.0\.rounds\.0\.bins\.1: "),
        (("cells", 0, "rounds", 0, "work", "disks", 0, "flushes"), -1, r"disks\.0\.flushes: "),
        (("cells", 0, "rounds", 0, "commits"), 5, r"a round: 5 commits and 4 latencies"),
        (("cells", 0, "rounds", 0, "seconds"), 0, r"a round: 0\.0 seconds"),
        (("cells", 0, "cell", "jobs"), 0, r"jobs is 0, not 1 to 64"),
        (("cells", 0, "cell", "jobs"), "4", r"cells\.0\.cell\.jobs: "),
        (("cells", 0, "engine"), "dd", r"cells\.0\.engine: "),
        (("cells", 3, "engine"), "durability", r"the cell '4k-random-fdatasync-overwritten' is there twice"),
        (("order", 0), 9, r"the order of rounds"),
        (("order",), [0, 0, 1], r"the order of rounds"),
        (("facts", "host", "kernel"), None, r"facts\.host\.kernel: "),
        (("more",), 1, r"more: "),
        (("schema",), "durability.bench/4", r"version '4'; this program reads '1' to '3'"),
        (("layer_blocks", 0, "block_bytes"), 0, r"recordsize of tank/data: 0 bytes"),
        (("cells", 4, "cell", "depth"), 0, r"depth is 0, not 1 to 1024"),
        (("cells", 4, "cell", "sync"), "fsync", r"0 writes to a sync \(fsync\)"),
        (("schema",), "durability.verify/1", r"not the result of a benchmark but 'durability\.verify/1'"),
        (("schema",), 1, r"there is no 'durability\.bench/3' at its head"),
    ],
)
def test_the_message_names_the_field(path: Path_, value: object, match: str) -> None:
    """And what was found there."""
    with pytest.raises(FormatError, match=match):
        decode(changed(path, value))


@pytest.mark.slow
def test_a_missing_field_is_named() -> None:
    """Every field must be there, also those that may be null."""
    for path in LEAVES:
        if isinstance(path[-1], str) and path[0] != "schema":
            document = json.loads(GOLDEN)
            holder = document
            for step in path[:-1]:
                holder = holder[step]
            del holder[path[-1]]
            with pytest.raises(FormatError, match=rf"\.?{path[-1]}: "):
                decode(json.dumps(document).encode())


@pytest.mark.parametrize(
    "data", [b"", b"null", b"[]", b"{}", b"\xff\xfe", b"[" * 100_000, b'"durability.bench/3"']
)
def test_what_is_no_result_is_refused(data: bytes) -> None:
    """Garbage of any kind is a FormatError that says what was expected."""
    with pytest.raises(FormatError, match=r"not"):
        decode(data)


def test_a_file_that_is_too_large_is_not_parsed() -> None:
    """The limit is checked before anything is made of the bytes."""
    with pytest.raises(FormatError, match=r"too many"):
        decode(b" " * (limits.RESULT_BYTES_MAX + 1))


def test_more_rounds_than_anybody_makes_are_refused() -> None:
    """A hostile file does not keep the reader busy for ever."""
    result = simulate(Device(), rounds=1)
    many = (replace(result.cells[0], rounds=result.cells[0].rounds * 101), *result.cells[1:])
    with pytest.raises(FormatError, match=r"rounds of one"):
        replace(result, cells=many)


def keys(kind: Any) -> set[str]:
    """Names of all fields of a dataclass and of those in it, without the facts (docs/reference/cli.md)."""
    found: set[str] = set()
    if is_dataclass(kind) and kind is not Facts:
        hints = typing.get_type_hints(kind)
        for field in fields(kind):
            found |= {field.name} | keys(hints[field.name])
    elif isinstance(kind, types.UnionType) or typing.get_origin(kind) is not None:
        for part in typing.get_args(kind):
            found |= keys(part)
    return found


def test_the_document_has_every_key() -> None:
    """docs/reference/bench-results.md describes each field of the file."""
    text = (DOCS / "reference/bench-results.md").read_text()
    assert len(keys(Result)) > 70
    assert {name for name in keys(Result) if f"`{name}`" not in text} == set()
