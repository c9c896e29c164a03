"""The documents of `bench --json` and `compare --json`: figures and verdicts, derived from result files.

A result file holds what was measured; these hold what follows from it, for scripts that do not want to work
out medians themselves. Keys in the order that docs/reference/bench-results.md gives. They add nothing.
"""

from __future__ import annotations

from durability.bench.cautions import cautions
from durability.bench.compare import Against, Comparison, Difference, Row
from durability.bench.inflation import Inflation, inflations
from durability.bench.intervals import Ratio, Spread
from durability.bench.plausibility import Plausibility, control_times, plausibility
from durability.bench.result import Result
from durability.bench.steady import Steady
from durability.bench.summary import CellSummary, Percentiles, PerOperation, summarise, written_bytes
from durability.documents import to_value
from durability.facts import Drive, Facts
from durability.packing import Value

SUMMARY_SCHEMA = "durability.bench-summary/1"
COMPARE_SCHEMA = "durability.compare/1"


def summary_document(result: Result) -> dict[str, Value]:
    """What `bench --json` prints of `result`."""
    return {
        "schema": SUMMARY_SCHEMA,
        "software": result.software,
        "created": result.created,
        "mode": result.mode,
        "profile": result.profile,
        "seed": result.seed,
        "size_bytes": result.size_bytes,
        "complete": result.complete,
        "stopped": result.stopped,
        "duration_s": round(result.duration_s, 3),
        "written_bytes": written_bytes(result),
        "target": _target(result.facts),
        "machine": to_value(result.machine),
        "before": to_value(result.before),
        "after": None if result.after is None else to_value(result.after),
        "controls": _controls(result),
        "plausibility": _plausibility(plausibility(result)),
        "inflation": [_inflation(one) for one in inflations(result.cells)],
        "warnings": [
            {"code": one.code, "text": one.text} for one in (*result.facts.warnings, *cautions(result))
        ],
        "cells": [_cell(summarise(one)) for one in result.cells],
    }


def comparison_document(comparison: Comparison) -> dict[str, Value]:
    """What `compare --json` prints."""
    return {
        "schema": COMPARE_SCHEMA,
        "labels": list(comparison.labels),
        "refusals": list(comparison.refusals),
        "plausibility": [_plausibility(one) for one in comparison.plausibilities],
        "subject": [_difference(one) for one in comparison.subject],
        "surroundings": [_difference(one) for one in comparison.surroundings],
        "warnings": list(comparison.warnings),
        "left_out": list(comparison.left_out),
        "cells": [_row(row) for row in comparison.rows],
    }


def _target(facts: Facts) -> dict[str, Value]:
    file_system = facts.file_system
    return {
        "path": facts.path,
        "kind": facts.kind,
        "file_system": f"{file_system.type} ({file_system.options})" if file_system else None,
        "layers": list(facts.layers),
        "drives": [_drive(drive) for drive in facts.drives],
        "kernel": facts.host.kernel,
        "virtualisation": facts.host.virtualisation,
    }


def _drive(drive: Drive) -> dict[str, Value]:
    return {
        "name": drive.name,
        "model": drive.model,
        "serial": drive.serial,
        "firmware": drive.firmware,
        "write_cache": drive.write_cache,
        "fua": drive.fua,
        "rotational": drive.rotational,
    }


def _controls(result: Result) -> dict[str, Value]:
    """What the verdict rests on: of the ladder also the range of the rounds' medians."""
    times = control_times(result)
    of = {one.symbol: one.median_ns / 1000 for one in times}
    ladder: list[Value] = [
        {
            "dirty_bytes": one.dirty_bytes,
            "flush_us": one.median_ns / 1000,
            "least_us": one.least_ns / 1000,
            "most_us": one.most_ns / 1000,
        }
        for one in times
        if one.dirty_bytes is not None
    ]
    return {"write_us": of.get("W"), "flush_us": of.get("F0"), "commit_us": of.get("C"), "ladder": ladder}


def _plausibility(verdict: Plausibility) -> dict[str, Value]:
    return {
        "code": verdict.code,
        "headline": verdict.headline,
        "seen": list(verdict.seen),
        "means": list(verdict.means),
        "only_a_cut": verdict.only_a_cut,
        "commands": list(verdict.commands),
    }


def _inflation(one: Inflation) -> dict[str, Value]:
    return {
        "cell": one.cell.name,
        "inflated": one.inflated,
        "rate": _ratio(one.rate),
        "written": _ratio(one.written),
        "text": one.text,
    }


def _cell(summary: CellSummary) -> dict[str, Value]:
    rule = summary.rule
    return {
        "name": summary.cell.name,
        "group": summary.cell.group,
        "engine": summary.engine,
        "note": summary.note,
        "operations": summary.operations,
        "rate": _spread(summary.rate),
        "writes_per_s": _spread(summary.writes_per_s),
        "commit_us": _percentiles(summary.commit),
        "sync_us": _percentiles(summary.sync),
        "read_us": _percentiles(summary.read),
        "cpu_us": summary.cpu_us,
        "disks": [_disk(disk) for disk in summary.disks],
        "steady": _steady(summary.steady),
        "rule": None if rule is None else {"limit_ms": rule.limit_ms, "kept": rule.kept},
    }


def _spread(spread: Spread | None) -> dict[str, Value] | None:
    if spread is None:
        return None
    return {
        "median": spread.median,
        "low": spread.low,
        "high": spread.high,
        "least": spread.least,
        "most": spread.most,
        "rounds": spread.rounds,
    }


def _spread_us(spread: Spread | None) -> dict[str, Value] | None:
    if spread is None:
        return None
    return {
        "median": spread.median / 1000,
        "low": None if spread.low is None else spread.low / 1000,
        "high": None if spread.high is None else spread.high / 1000,
        "least": spread.least / 1000,
        "most": spread.most / 1000,
        "rounds": spread.rounds,
    }


def _ratio(ratio: Ratio | None) -> dict[str, Value] | None:
    return None if ratio is None else {"value": ratio.value, "low": ratio.low, "high": ratio.high}


def _percentiles(percentiles: Percentiles) -> dict[str, Value] | None:
    if not percentiles.samples:
        return None
    return {
        "samples": percentiles.samples,
        "p50": _us(percentiles.p50),
        "p95": _us(percentiles.p95),
        "p99": _us(percentiles.p99),
        "p99.9": _us(percentiles.p99_9),
        "max": _us(percentiles.most),
    }


def _us(time_ns: int | None) -> float | None:
    return None if time_ns is None else time_ns / 1000


def _disk(disk: PerOperation) -> dict[str, Value]:
    return {
        "name": disk.name,
        "flushes": disk.flushes,
        "writes": disk.writes,
        "write_kib": disk.write_kib,
        "reads": disk.reads,
    }


def _steady(steady: Steady) -> dict[str, Value]:
    return {
        "word": steady.word,
        "reason": steady.reason,
        "range": steady.range_share,
        "slope": steady.slope_share,
        "last_third": steady.last_third,
    }


def _difference(difference: Difference) -> dict[str, Value]:
    return {"what": difference.what, "values": list(difference.values)}


def _row(row: Row) -> dict[str, Value]:
    return {
        "name": row.cell.name,
        "engine": row.engine,
        "basis": row.basis,
        "rates": [_spread(summary.rate) for summary in row.summaries],
        "sync_us": [_spread_us(one) for one in row.spreads] if row.basis == "sync" else None,
        "commit_us": [_percentiles(summary.commit) for summary in row.summaries],
        "against_first": [_against(one) for one in row.against],
    }


def _against(one: Against) -> dict[str, Value]:
    return {"ratio": _ratio(one.ratio), "text": one.text}
