"""Requests and answers between the server and its power controller, as lines of JSON.

They carry no secrets: a request has only the names of the secrets' files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the controller forks, so it loads nothing that has threads, as numpy does
    from durability.campaign.definition.settings import Power, PowerKind
    from durability.campaign.log_entries import Operation, SwitchOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchAnswer:
    """The result of a request. After "failed" it is unknown whether the switch obeyed, and it may still obey
    after `ended_ns`."""

    outcome: SwitchOutcome
    text: str  # one plain line for people, without secrets
    began_ns: int  # the request was under way from this time on the server's clock
    ended_ns: int  # until this time


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchAccess:
    """What the controller needs of a campaign's `Power`."""

    kind: PowerKind
    agent: str
    options: Mapping[str, str]
    timeout_s: float

    @classmethod
    def of(cls, power: Power) -> SwitchAccess:
        """The access to a switch of a campaign file."""
        return cls(kind=power.kind, agent=power.agent, options=dict(power.options), timeout_s=power.timeout_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchRequest:
    """One request to a switch. The answer repeats `number`."""

    number: int
    switch: SwitchAccess
    operation: Operation


def request_line(request: SwitchRequest) -> bytes:
    """The request as a line."""
    return _line(asdict(request))


def request_of(line: bytes) -> SwitchRequest:
    """The request in a line of `request_line`."""
    value = json.loads(line)
    return SwitchRequest(
        number=value["number"], switch=SwitchAccess(**value["switch"]), operation=value["operation"]
    )


def answer_line(number: int, answer: SwitchAnswer) -> bytes:
    """The answer to the request `number` as a line."""
    return _line({"number": number, "answer": asdict(answer)})


def answer_of(line: bytes) -> tuple[int, SwitchAnswer]:
    """Number and answer in a line of `answer_line`."""
    value = json.loads(line)
    return value["number"], SwitchAnswer(**value["answer"])


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"
