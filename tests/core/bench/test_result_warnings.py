"""Warnings about a run itself: each given where it applies, none on a quiet machine, all documented."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from durability.bench.catalogue import HEADLINE
from durability.bench.measurement import Idle
from durability.bench.result_warnings import result_warnings
from durability.formats.facts import Machine, MachineLoad
from tests.core.bench.results import Device, simulate
from tests.places import DOCS

QUIET = simulate(Device(), cells=(HEADLINE,))
IDLE = Idle(name="sda", seconds=2.0, flushes=0, writes=2, write_kib=8, reads=0)
BEFORE = QUIET.before


def machine_load(**changes: Any) -> MachineLoad:
    return replace(BEFORE, **changes)


def machine(governor: str) -> Machine:
    return replace(QUIET.machine, governor=governor)


CASES: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({"complete": False, "stopped": "Ctrl-C"}, "partial", "Ctrl-C"),
    ({"complete": False}, "partial", "the reason is unknown"),
    ({"mode": "quick"}, "quick", "few rounds"),
    ({"before": machine_load(busy_percent=35.0)}, "busy", "35 % busy"),
    ({"before": machine_load(steal_percent=5.0)}, "steal", "5.0 %"),
    ({"after": machine_load(steal_percent=7.5)}, "steal", "7.5 %"),
    ({"machine": machine("powersave")}, "governor", "'powersave'"),
    ({"before": machine_load(used_bytes=95, size_bytes=100)}, "full", "95 % full"),
    ({"idle": (IDLE, replace(IDLE, writes=80, reads=None))}, "other-io", "40 requests per second"),
    ({"cells": (replace(QUIET.cells[0], note="write: Input/output error"),)}, "cell-ended", "Input/output"),
)


def test_a_quiet_run_has_none() -> None:
    """Unknown figures are no warning either."""
    assert result_warnings(QUIET) == ()
    unknown = MachineLoad(
        load=None,
        busy_percent=None,
        steal_percent=None,
        used_bytes=None,
        size_bytes=None,
        reserved_bytes=None,
    )
    silent = replace(IDLE, seconds=0.0, flushes=None, writes=None)
    assert result_warnings(replace(QUIET, before=unknown, after=None, idle=(silent,))) == ()


@pytest.mark.parametrize(("changes", "code", "words"), CASES)
def test_each_is_given_where_it_applies(changes: dict[str, Any], code: str, words: str) -> None:
    """One warning, with the figure that caused it."""
    (found,) = result_warnings(replace(QUIET, **changes))
    assert found.code == code and words in found.text


def test_a_cell_that_was_never_measured_is_no_early_end() -> None:
    """A cell that is impossible on the target has a note but gives no warning."""
    skipped = replace(QUIET.cells[0], rounds=(), note="needs a file system")
    assert result_warnings(replace(QUIET, cells=(skipped,), order=())) == ()


def test_the_document_has_every_code() -> None:
    """docs/reference/bench-results.md lists each."""
    text = (DOCS / "reference/bench-results.md").read_text()
    assert {code for _, code, _ in CASES if f"`{code}`" not in text} == set()
