"""The document of a verdict, as a page shows it.

The server keeps the document that a client sent, and has checked only the parts that it counts. So each value
is checked here, and a value of a wrong type is left out. Long lists are cut to fit a page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from durability.evidence.verdict import REASONS
from durability.formats.packing import Value
from durability.units import counted, percent_at_most

_LIST_MAX = 50  # members of a list
_TEXT_MAX = 1000  # characters of a text


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingView:
    """One example of a finding. If its sentence has another form, all of it is in `found`."""

    kind: str
    place: str  # the slot or name
    found: str  # content of that place
    acknowledged: str  # content that it should have


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictView:
    """A verdict on a page."""

    word: str
    reasons: tuple[str, ...]  # sentences
    pairs: tuple[tuple[str, str], ...]  # names and texts of the other values
    examples: tuple[FindingView, ...]  # some of the findings


def verdict_view(document: Value) -> VerdictView:
    """The parts of `document`, the output of `verify --json`, that a page shows."""
    found = _map(document)
    return VerdictView(
        word=_text(found.get("verdict")),
        reasons=tuple(_reason(one) for one in _list(found.get("reasons"))),
        pairs=tuple((name, text) for name, text in _pairs(found) if text),
        examples=tuple(one for one in map(_example, _list(found.get("examples"))) if one.found),
    )


def _pairs(found: Mapping[str, Value]) -> Iterator[tuple[str, str]]:
    cut = _map(found.get("cut"))
    proof = "; ".join(filter(None, map(_text, _list(cut.get("proof")))))
    yield "class of the cut", ": ".join(filter(None, (_text(cut.get("class")), proof)))
    yield "attested", _text(cut.get("attested"))
    yield "acknowledged", _number(found.get("acked"))
    yield "checked", _number(found.get("checked"))
    at_risk = _map(found.get("at_risk"))
    within = ((_number(at_risk.get(f"ms{ms}")), ms) for ms in (1, 10, 100, 1000))
    yield "records at risk", ", ".join(f"{count} within {ms} ms" for count, ms in within if count)
    findings, counts = _findings(found.get("findings")), "findings" in map(_code, _list(found.get("reasons")))
    yield "findings" if counts or findings == "none" else "findings that do not count", findings
    window = _map(found.get("loss_window"))
    least, most, operations = (_number(window.get(name)) for name in ("ms_min", "ms_max", "operations"))
    span = f"{least} to {most} ms" if most else f"at least {least} ms"
    yield "loss window", f"{span}, {operations} operations" if least and operations else ""
    yield "series", _series(_map(found.get("strength")))


def _findings(value: Value) -> str:
    counts = {name: count for name, count in _map(value).items() if isinstance(count, int) and count}
    if not isinstance(value, dict):
        return ""
    return ", ".join(f"{count:,} {name}" for name, count in counts.items()) or "none"


def _example(value: Value) -> FindingView:
    """The parts of an example, from a sentence of `evidence.judgement.describe`."""
    kind, text = (_text(_map(value).get(name)) for name in ("class", "text"))
    place, _, said = text.partition(": ")
    acknowledged, is_known, there = said.partition(", expected ")[2].partition(", found ")
    if not is_known:
        return FindingView(kind=kind, place="", found=text, acknowledged="")
    return FindingView(kind=kind, place=place, found=there, acknowledged=acknowledged)


def _series(strength: Mapping[str, Value]) -> str:
    cuts, losses, bound = (strength.get(name) for name in ("cuts", "losses", "bound"))
    if not isinstance(cuts, int) or not isinstance(losses, int):
        return ""
    known = percent_at_most(bound) if isinstance(bound, int | float) and 0 <= bound <= 1 else ""
    most = f", at most {known} of cuts lose data" if known else ", no bound"
    return f"{counted(losses, 'loss', 'losses')} in {counted(cuts, 'cut')}{most}"


def _code(reason: Value) -> str:
    return _text(_map(reason).get("code"))


def _reason(value: Value) -> str:
    """The sentence of a reason. If an older document has none, the known sentence of its code."""
    named = _code(value)
    return _text(_map(value).get("text")) or REASONS.get(named, named)


def _map(value: Value | None) -> Mapping[str, Value]:
    return value if isinstance(value, dict) else {}


def _list(value: Value | None) -> tuple[Value, ...]:
    return tuple(value[:_LIST_MAX]) if isinstance(value, list | tuple) else ()


def _text(value: Value | None) -> str:
    return value[:_TEXT_MAX] if isinstance(value, str) else ""


def _number(value: Value | None) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
