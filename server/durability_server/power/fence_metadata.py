"""The XML metadata of a fence agent, and whether options fit them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from xml.etree import ElementTree

from durability.errors import SetupError

NEEDED_ACTIONS = ("on", "off", "status")
_FALSE = frozenset({"0", "no", "off", "false"})
_TRUTHS = frozenset({"1", "yes", "on", "true"}) | _FALSE

# Agents split the value of these options at commas, and answer "on" if any of several outlets is on.
_OUTLETS = frozenset({"plug", "port"})

# With these options an agent writes what it sends, including secrets, to a log or file.
_TALKATIVE = frozenset({"verbose", "verbose_level", "debug", "debug_file", "logfile"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """An option of an agent. `choices`: its possible values, () if any value is allowed."""

    name: str
    required: bool
    deprecated: bool
    replaces: str
    kind: str
    has_default: bool
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """The parts of an agent's metadata that are used here."""

    parameters: Mapping[str, Parameter]
    actions: frozenset[str]


def parse(document: str) -> Metadata:
    """Parses an agent's XML. Raises SetupError."""
    try:
        root = ElementTree.fromstring(document)
    except ElementTree.ParseError as error:
        raise SetupError(
            f"its metadata is not XML ({error}): it is not a fence agent, or is broken"
        ) from None
    parameters = [_parameter(element) for element in root.iter("parameter")]
    return Metadata(
        parameters={parameter.name: parameter for parameter in parameters},
        actions=frozenset(element.get("name", "") for element in root.iter("action")),
    )


def _parameter(element: ElementTree.Element) -> Parameter:
    content = element.find("content")
    default = None if content is None else content.get("default")
    return Parameter(
        name=element.get("name", ""),
        required=element.get("required") == "1",
        deprecated=element.get("deprecated") == "1",
        replaces=element.get("obsoletes", ""),
        kind="" if content is None else content.get("type", ""),
        has_default=default is not None,
        choices=() if content is None else tuple(o.get("value", "") for o in content.iter("option")),
    )


def secret_name(key: str, metadata: Metadata) -> str | None:
    """The option whose secret is in the file named by `key`. None if `key` does not name such a file."""
    name = key.removesuffix("_file")
    return None if name == key or key in metadata.parameters else name


def problems(options: Mapping[str, str], metadata: Metadata) -> list[str]:
    """One sentence for each problem of `options`."""
    found = [
        f"the agent cannot do {action}: choose another one for this device"
        for action in NEEDED_ACTIONS
        if action not in metadata.actions
    ]
    given: dict[str, str] = {}
    for key, value in options.items():
        secret = secret_name(key, metadata)
        name = secret or key
        if name in given:
            found.append(f"{given[name]} and {key} are two values for {name}: set only one of them")
        given[name] = key
        parameter = metadata.parameters.get(name)
        if parameter is None:
            found.append(f"the agent has no option {name}{_meant(name, metadata)}")
        elif name in _TALKATIVE:
            found.append(f"{name} would have the agent write secrets into a log: leave it out")
        elif secret is None:
            found += _value_problems(parameter, value)
    for parameter in metadata.parameters.values():
        needed = parameter.required and not parameter.deprecated and not parameter.has_default
        if needed and parameter.name not in given and parameter.replaces not in given:
            found.append(f"the agent needs the option {parameter.name}")
    return found


def _meant(name: str, metadata: Metadata) -> str:
    known = [parameter.name for parameter in metadata.parameters.values() if not parameter.deprecated]
    near = difflib.get_close_matches(name, known, n=3)
    return f": did you mean {' or '.join(near)}?" if near else f" (it has {', '.join(sorted(known))})"


def _value_problems(parameter: Parameter, value: str) -> list[str]:
    if parameter.kind == "boolean" and value.lower() not in _TRUTHS:
        return [f"{parameter.name} is {value!r}, expected true or false"]
    if parameter.kind == "boolean" and value.lower() in _FALSE and not parameter.has_default:
        # For example ssl_insecure: agents only check whether it is among their options.
        return [f"{parameter.name} is {value!r}, and agents take it for true: leave it out"]
    if parameter.name in _OUTLETS and "," in value:
        return [f"{parameter.name} is {value!r}: write a table [[power]] for each outlet"]
    if parameter.kind in {"integer", "second"} and not value.replace(".", "", 1).isdecimal():
        return [f"{parameter.name} is {value!r}, expected a number"]
    if parameter.choices and value not in parameter.choices:
        return [f"{parameter.name} is {value!r}, expected one of {', '.join(parameter.choices)}"]
    return []
