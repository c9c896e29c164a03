"""The documents of `bench --json` and `compare --json`: figures and verdicts, derived from result files.

A result file holds the measurements. These documents hold the derived figures, for scripts that do not want
to compute medians themselves. Keys are in the order of docs/reference/bench-results.md. The documents contain
no other information.
"""

from __future__ import annotations

from durability.bench.compare import Comparison, Row
from durability.bench.decision.block_size import BestSize, best_sizes
from durability.bench.decision.bottom_line import BottomLine, Speed, bottom_line
from durability.bench.decision.classic import ClassicRow, classic_rows, sync_cost
from durability.bench.decision.proof import Proof
from durability.bench.inflation import Inflation, inflations
from durability.bench.intervals import Ratio, Spread
from durability.bench.plausibility import Plausibility, control_times, plausibility
from durability.bench.result import Result
from durability.bench.result_warnings import result_warnings
from durability.bench.steady_state import Steady
from durability.bench.summary import CellSummary, Percentiles, Rule, summarise, written_bytes
from durability.formats.documents import to_value
from durability.formats.facts import Facts
from durability.formats.packing import Value

SUMMARY_SCHEMA = "durability.bench-summary/1"
COMPARE_SCHEMA = "durability.compare/1"
_DRIVE_KEYS = ("name", "model", "serial", "firmware", "write_cache", "fua", "rotational")


def summary_document(result: Result) -> dict[str, Value]:
    """The document that `bench --json` prints for `result`."""
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
        "bottom_line": _bottom_line(bottom_line(result)),
        "classic": [_classic(row) for row in classic_rows(result)],
        "sync_cost": sync_cost(classic_rows(result)),
        "best_sizes": [_best_size(one) for one in best_sizes(result)],
        "target": _target(result.facts),
        "machine": to_value(result.machine),
        "before": to_value(result.before),
        "after": None if result.after is None else to_value(result.after),
        "controls": _controls(result),
        "plausibility": _plausibility(plausibility(result)),
        "inflation": [_inflation(one) for one in inflations(result.cells)],
        "warnings": [to_value(one) for one in (*result.facts.warnings, *result_warnings(result))],
        "cells": [_cell(summarise(one)) for one in result.cells],
    }


def comparison_document(comparison: Comparison) -> dict[str, Value]:
    """The document that `compare --json` prints."""
    return {
        "schema": COMPARE_SCHEMA,
        "labels": list(comparison.labels),
        "answers": list(comparison.answers),
        "choice": comparison.choice,
        "steadiness": list(comparison.steadiness),
        "caveat": comparison.caveat,
        "causes": list(comparison.causes),
        "proofs": [_proof(one) for one in comparison.proofs],
        "refusals": list(comparison.refusals),
        "plausibility": [_plausibility(one) for one in comparison.plausibilities],
        "subject": [to_value(one) for one in comparison.subject],
        "surroundings": [to_value(one) for one in comparison.surroundings],
        "warnings": list(comparison.warnings),
        "left_out": list(comparison.left_out),
        "cells": [_row(row) for row in comparison.rows],
    }


def _classic(row: ClassicRow) -> dict[str, Value]:
    """A row of the classic table. `rate` is in IOPS."""
    parts = {"read": row.read, "write": row.write, "synced": row.synced}
    return {
        "label": row.label,
        **{
            name: None
            if one is None
            else {"cell": one.cell.name, "rate": _plain(one.rate), "bytes_per_s": _plain(one.bytes_per_s)}
            for name, one in parts.items()
        },
        "kept": row.kept,
    }


def _best_size(one: BestSize) -> dict[str, Value]:
    return {
        "block_bytes": one.block_bytes,
        "bytes_per_s": one.bytes_per_s,
        "jobs": one.jobs,
        "synced": one.synced,
        "fits": None if not one.known else one.unfit is None,
        "text": one.text,
    }


def _target(facts: Facts) -> dict[str, Value]:
    file_system = facts.file_system
    return {
        "path": facts.path,
        "kind": facts.kind,
        "file_system": f"{file_system.type} ({file_system.options})" if file_system else None,
        "layers": list(facts.layers),
        "drives": [{name: to_value(drive)[name] for name in _DRIVE_KEYS} for drive in facts.drives],
        "kernel": facts.host.kernel,
        "virtualisation": facts.host.virtualisation,
    }


def _controls(result: Result) -> dict[str, Value]:
    """The controls that the verdict depends on. The ladder also has the range of the rounds' medians."""
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


def _bottom_line(line: BottomLine) -> dict[str, Value]:
    return {
        "lines": list(line.lines()),
        "one_writer": _speed(line.one),
        "many_writers": _speed(line.many),
        "steady": {"word": line.steady, "reason": line.steady_reason},
        "honest": {"word": line.honesty, "reason": line.honesty_reason, "command": line.command},
        "place": {"rate": line.rate, "kinds": list(line.kinds), "text": line.standing},
    }


def _speed(speed: Speed | None) -> dict[str, Value] | None:
    if speed is None:
        return None
    cell = speed.summary.cell
    return {
        "cell": cell.name,
        "jobs": cell.jobs,
        "rate": speed.rate,
        "bytes_per_s": speed.bytes_per_s,
        "p99_us": _us(speed.p99_ns),
    }


def _plausibility(verdict: Plausibility) -> dict[str, Value]:
    code, headline = verdict.code, verdict.headline
    return {"code": code, "headline": headline, **to_value(verdict)}


def _inflation(one: Inflation) -> dict[str, Value]:
    return {**to_value(one), "cell": one.cell.name}


def _cell(summary: CellSummary) -> dict[str, Value]:
    return {
        "name": summary.cell.name,
        "group": summary.cell.group,
        "engine": summary.engine,
        "note": summary.note,
        "operations": summary.operations,
        "rate": _plain(summary.rate),
        "writes_per_s": _plain(summary.writes_per_s),
        "bytes_per_s": _plain(summary.bytes_per_s),
        "commit_us": _percentiles(summary.commit),
        "sync_us": _percentiles(summary.sync),
        "read_us": _percentiles(summary.read),
        "cpu_us": summary.cpu_us,
        "disks": [to_value(disk) for disk in summary.disks],
        "steady": _steady(summary.steady),
        "rule": _plain(summary.rule),
    }


def _plain(figure: Spread | Ratio | Rule | None) -> dict[str, Value] | None:
    return None if figure is None else to_value(figure)


def _spread_us(spread: Spread | None) -> dict[str, Value] | None:
    if spread is None:
        return None
    times_ns = {name: getattr(spread, name) for name in ("median", "low", "high", "least", "most")}
    return to_value(spread) | {name: None if ns is None else ns / 1000 for name, ns in times_ns.items()}


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


def _steady(steady: Steady) -> dict[str, Value]:
    return {
        "word": steady.word,
        "reason": steady.reason,
        "range": steady.range_share,
        "slope": steady.slope_share,
        "last_third": steady.last_third,
    }


def _proof(proof: Proof | None) -> dict[str, Value] | None:
    return None if proof is None else {"word": proof.word, "text": proof.text, **to_value(proof)}


def _row(row: Row) -> dict[str, Value]:
    return {
        "name": row.cell.name,
        "engine": row.engine,
        "basis": row.basis,
        "rates": [_plain(summary.rate) for summary in row.summaries],
        "bytes_per_s": [_plain(summary.bytes_per_s) for summary in row.summaries],
        "sync_us": [_spread_us(one) for one in row.spreads] if row.basis == "sync" else None,
        "commit_us": [_percentiles(summary.commit) for summary in row.summaries],
        "against_first": [to_value(one) for one in row.against],
    }
