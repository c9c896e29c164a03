"""Documents for a peer of an earlier release, which rejects unknown fields.

This module removes such fields. They are optional in every release that has them, so the remaining document
is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace

from durability.formats.case import NEWER_OF_CASES, NEWER_OF_VERDICTS
from durability.formats.facts import RECOGNITION, RECOGNITION_OF_DRIVES
from durability.formats.packing import Value
from durability.formats.run_statistics import NEWER_OF_STATISTICS
from durability.protocol import messages
from durability.protocol.messages import Message

_NEWER_SINCE = 4  # the first version of the protocol with these fields


def as_known(message: Message, version: int) -> Message:
    """`message` with only the document fields that a peer with this protocol version knows."""
    if version >= _NEWER_SINCE:
        return message
    match message:
        case messages.Register() | messages.ArmRun() | messages.Fetch():
            known: Message = replace(message, facts=_facts(message.facts))
        case messages.Progress() | messages.Stop():
            known = replace(message, statistics=_statistics(message.statistics))
        case messages.CaseFile():
            known = replace(message, case=_case(message.case))
        case messages.Shown():
            known = replace(message, document=_changed(message.document, "case", _case))
        case messages.Revoked():
            known = messages.Stored()
        case _:
            known = message
    return known


def _case(case: Mapping[str, Value]) -> dict[str, Value]:
    for name in ("verdicts", "series"):
        case = {**case, name: [_verdict(past) for past in _listed(case.get(name))]} if name in case else case
    known = _without(case, NEWER_OF_CASES)
    return _changed(_changed(known, "armed", _facts), "statistics", _statistics)


def _statistics(statistics: Mapping[str, Value]) -> dict[str, Value]:
    return _without(statistics, NEWER_OF_STATISTICS)


def _facts(facts: Mapping[str, Value]) -> dict[str, Value]:
    known = _without(facts, RECOGNITION)
    drives = known.get("drives")
    return {**known, "drives": [_drive(one) for one in _listed(drives)]} if "drives" in known else known


def _drive(one: Value) -> Value:
    return _without(one, RECOGNITION_OF_DRIVES) if isinstance(one, Mapping) else one


def _listed(value: Value) -> Sequence[Value]:
    return value if isinstance(value, list | tuple) else ()


def _verdict(past: Value) -> Value:
    return _without(past, NEWER_OF_VERDICTS) if isinstance(past, Mapping) else past


def _changed(
    document: Mapping[str, Value], name: str, change: Callable[[Mapping[str, Value]], dict[str, Value]]
) -> dict[str, Value]:
    """`document` with `change` applied to its part `name`, if that part is a document."""
    part = document.get(name)
    return {**document, name: change(part)} if isinstance(part, Mapping) else dict(document)


def _without(document: Mapping[str, Value], names: Container[str]) -> dict[str, Value]:
    return {name: value for name, value in document.items() if name not in names}
