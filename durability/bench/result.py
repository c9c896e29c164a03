"""The result of a benchmark as a file: JSON, schema `durability.bench/3`.

docs/reference/bench-results.md describes the file. It holds the measurements of each round and no summary:
its reader derives medians, intervals and verdicts, so that a better rule also applies to old results. Reading
refuses other documents, with the name of the wrong field, and documents that contradict themselves.

History of the format:

    1   the first version
    2   adds `depth` of a cell (1 before), workload `read`, group `classic`, and `layer_blocks` (() before)
    3   adds `reserved_bytes` of `before` and `after` (None before)
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from durability import limits
from durability.bench.catalogue import Mode
from durability.bench.cells import Cell
from durability.bench.measurement import Engine, Idle, Round
from durability.errors import FormatError
from durability.formats import documents
from durability.formats.documents import Finite, Flag, Natural, Text
from durability.formats.facts import RECOGNITION, RECOGNITION_OF_DRIVES, Facts, Machine, MachineLoad
from durability.plain_text import shortened

Schema: TypeAlias = Literal["durability.bench/3"]
SCHEMA: Schema = "durability.bench/3"
FAMILY = "durability.bench/"
_FIRST, _SECOND = "durability.bench/1", "durability.bench/2"  # these versions are only read, never written
CELLS_MAX, ROUNDS_MAX = 512, 100
# Texts in `stopped` if a person ended the benchmark.
INTERRUPTED, SIGNALLED = "interrupted (Ctrl-C)", "ended by a signal"

Serials: TypeAlias = Literal["hashed", "shown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Medium:
    """Physical limits of a leaf drive: its rotation and its link."""

    name: Text
    # Rotations per minute. None: unknown, or the kernel does not report the drive as rotating. 0: the kernel
    # does, but the drive itself reports that it does not rotate.
    rpm: Natural | None
    link_bytes_per_s: Natural | None  # None if unknown
    link: Text  # the system's name for the link


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBlock:
    """The block size of a layer below the target."""

    what: Text  # the layer's name for its block size ("recordsize", "volblocksize", "cluster_size")
    of: Text  # the dataset or image
    block_bytes: Natural

    def __post_init__(self) -> None:
        """Raises FormatError for a block size of 0."""
        if not self.block_bytes:
            raise FormatError(f"{documents.shown(self.what)} of {documents.shown(self.of)}: 0 bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRounds:
    """A cell and its rounds, measured by `engine`."""

    cell: Cell
    engine: Engine
    engine_version: Text
    rounds: tuple[Round, ...]  # in the order of time
    # Why rounds are missing: the target lacks something, fio works differently, or an error ended the cell.
    # "" if no round is missing.
    note: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A complete benchmark result."""

    schema: Schema
    software: Text
    created: Text  # wall time, ISO 8601
    mode: Mode
    profile: Text
    seed: Natural
    size_bytes: Natural  # size of the file or range that the jobs of a cell divide among themselves
    complete: Flag  # every round was made of every cell that this target supports
    stopped: Text  # why the result is not complete
    duration_s: Finite
    facts: Facts
    serials: Serials  # whether the ids of the machine and its drives are hashed
    machine: Machine
    media: tuple[Medium, ...]
    layer_blocks: tuple[LayerBlock, ...]  # of layers that report it, nearest to the target first
    before: MachineLoad
    after: MachineLoad | None
    # Requests to each leaf drive while this tool was idle, before the first round and after the last one.
    idle: tuple[Idle, ...]
    order: tuple[Natural, ...]  # for each round, in the order of time, the index of its cell in `cells`
    cells: tuple[CellRounds, ...]

    def __post_init__(self) -> None:
        """Raises FormatError if the parts contradict each other."""
        if not self.cells:
            raise FormatError("a result: there are no cells")
        keys = Counter((one.cell.name, one.engine) for one in self.cells)
        if twice := [name for (name, engine), count in keys.items() if count > 1]:
            raise FormatError(f"a result: the cell '{documents.shown(twice[0])}' is there twice")
        if len(self.cells) > CELLS_MAX or any(len(one.rounds) > ROUNDS_MAX for one in self.cells):
            raise FormatError(f"a result: more than {CELLS_MAX} cells, or than {ROUNDS_MAX} rounds of one")
        if Counter(self.order) != Counter(
            {index: len(one.rounds) for index, one in enumerate(self.cells) if one.rounds}
        ):
            raise FormatError("a result: the order of rounds does not have each round once")

    def rounds_of(self, name: str, engine: Engine = "durability") -> tuple[Round, ...]:
        """The rounds of the cell `name`, () if there are none."""
        for one in self.cells:
            if one.cell.name == name and one.engine == engine:
                return one.rounds
        return ()

    def held(self) -> tuple[CellRounds, ...]:
        """The sustained loads that have their rate over time."""
        return tuple(
            one
            for one in self.cells
            if one.cell.group == "sustained" and any(each.bins for each in one.rounds)
        )


def encode(result: Result) -> bytes:
    """The bytes of the result file. The texts on errors are shortened to the length that `decode` accepts.
    The facts by which `verify` recognises a target are left out."""
    cells = tuple(replace(one, note=_shortened(one.note)) for one in result.cells)
    kept = replace(result, stopped=_shortened(result.stopped), cells=cells)
    value: dict[str, Any] = documents.to_value(kept)
    for name in RECOGNITION:
        del value["facts"][name]
    for drive in value["facts"]["drives"]:
        for name in RECOGNITION_OF_DRIVES:
            del drive[name]
    return (documents.to_json(value) + "\n").encode()


def _shortened(text: str) -> str:
    return shortened(text, documents.TEXT_CHARACTERS_MAX)


def decode(data: bytes) -> Result:
    """The result in a file. Raises FormatError."""
    if len(data) > limits.RESULT_BYTES_MAX:
        raise FormatError(
            f"{len(data):,} bytes are too many for a result; at most {limits.RESULT_BYTES_MAX:,} are read"
        )
    value = documents.from_json(data)
    schema = value.get("schema") if isinstance(value, dict) else None
    if isinstance(value, dict) and schema in (_FIRST, _SECOND):
        value = _from_second(_from_first(value) if schema == _FIRST else value)
    elif schema != SCHEMA:
        raise FormatError(_unfit(schema))
    return documents.from_value(Result, value)


def _from_first(value: dict[str, Any]) -> dict[str, Any]:
    """A document of version 1 as one of version 2. Raises FormatError for fields that 1 does not have."""
    if "layer_blocks" in value:
        raise FormatError("layer_blocks: version 1 has no such field")
    found = value.get("cells")
    cells = [_with_depth(one) for one in found] if isinstance(found, list) else found
    return {**value, "layer_blocks": [], **({} if cells is None else {"cells": cells})}


def _with_depth(one: object) -> object:
    """A cell of version 1: each of its jobs had one operation in flight."""
    cell = one.get("cell") if isinstance(one, dict) else None
    if not isinstance(one, dict) or not isinstance(cell, dict):
        return one  # the reader of the document refuses this
    if "depth" in cell:
        raise FormatError("cells: cell.depth: version 1 has no such field")
    return {**one, "cell": {**cell, "depth": 1}}


def _from_second(value: dict[str, Any]) -> dict[str, Any]:
    """A document of version 2 as one of this version. Raises FormatError for a field that 2 does not have."""
    moments = {name: value[name] for name in ("before", "after") if isinstance(value.get(name), dict)}
    for name, moment in moments.items():
        if "reserved_bytes" in moment:
            raise FormatError(f"{name}: reserved_bytes: versions before 3 have no such field")
        moments[name] = {**moment, "reserved_bytes": None}
    return {**value, "schema": SCHEMA, **moments}


def _unfit(schema: object) -> str:
    if isinstance(schema, str) and schema.startswith(FAMILY):
        return f"a result of version {schema.removeprefix(FAMILY)[:20]!r}; this program reads '1' to '3'"
    if isinstance(schema, str):
        return f"not the result of a benchmark but {schema[:60]!r}; expected {SCHEMA!r}"
    return f"not the result of a benchmark: there is no {SCHEMA!r} at its head"
