"""What the server and its power controller tell each other, as lines of JSON: requests and answers.

Refuses to carry secrets: a request has the names of their files.
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
    """How a request ended. `text`: for people, one plain line, without secrets. The request was under way
    between `began_ns` and `ended_ns`, nanoseconds of the server's clock. After "failed" it is unknown whether
    the switch obeyed, and it may obey after `ended_ns`."""

    outcome: SwitchOutcome
    text: str
    began_ns: int
    ended_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchAccess:
    """What the controller knows of a campaign's `Power`, with its fields."""

    kind: PowerKind
    agent: str
    options: Mapping[str, str]
    timeout_s: float

    @classmethod
    def of(cls, power: Power) -> SwitchAccess:
        """The switch of a campaign file's table."""
        return cls(kind=power.kind, agent=power.agent, options=dict(power.options), timeout_s=power.timeout_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchRequest:
    """One question to a switch; `number` names it in the answer."""

    number: int
    switch: SwitchAccess
    operation: Operation


def request_line(request: SwitchRequest) -> bytes:
    """`request` as a line."""
    return _line(asdict(request))


def request_of(line: bytes) -> SwitchRequest:
    """The request that `request_line` wrote."""
    value = json.loads(line)
    return SwitchRequest(
        number=value["number"], switch=SwitchAccess(**value["switch"]), operation=value["operation"]
    )


def answer_line(number: int, answer: SwitchAnswer) -> bytes:
    """The answer to the request `number` as a line."""
    return _line({"number": number, "answer": asdict(answer)})


def answer_of(line: bytes) -> tuple[int, SwitchAnswer]:
    """Number and answer that `answer_line` wrote."""
    value = json.loads(line)
    return value["number"], SwitchAnswer(**value["answer"])


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"
