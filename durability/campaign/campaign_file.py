"""The campaign file: TOML to settings.

Every key is checked: one that is not known is refused with the nearest known one, one of a wrong type with
what it should be. Refuses to read files: it takes text.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from typing import Any, TypeVar, cast, get_args

from durability.campaign.settings import (
    Arm,
    Drive,
    FileSystem,
    Moment,
    Power,
    PowerKind,
    Settings,
    StopAt,
    Subject,
    check,
    default_arms,
)
from durability.errors import UsageError
from durability.formats.plan import Pattern, SyncMethod
from durability.formats.workloads.registry import DEFAULT
from durability.limits import GROUP_MAX, WRITERS_MAX

CUTS = 59  # without a loss they bound the probability of one at 5 %
CUT_AFTER_S = (5.0, 90.0)
OFF_S = (10.0, 40.0)
BOOT_WITHIN_S = 900.0
READY_WITHIN_S = 120.0
REQUEST_TIMEOUT_S = 60.0
IDLE_S = 10.0
_SEED_MAX = (1 << 62) - 1
_SWITCHES: tuple[PowerKind, ...] = ("fence", "tasmota", "shelly")

T = TypeVar("T")


def read_campaign(text: str, *, name: str, seed: int) -> Settings:
    """The settings that a campaign file states. `name`, `seed`: those of a file that states none. Raises
    UsageError."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"the campaign file is not TOML: {error}") from error
    top = _Table("the campaign file", document)
    campaign, power, drives, arms = (
        top.table("campaign"),
        top.tables("power"),
        top.tables("drive"),
        top.tables("arm"),
    )
    top.end()
    machines = campaign.texts("machines") or (campaign.text("machine", ""),)
    cut_after_s = campaign.interval("cut_after_s", CUT_AFTER_S)
    off_s = campaign.interval("off_s", OFF_S)
    tested = tuple(_drive(table, machines, number) for number, table in enumerate(drives, 1))
    defaults = _arm(_Table("[[arm]]", {}), 0, cut_after_s, off_s)
    settings = Settings(
        name=campaign.text("name", name),
        machines=machines,
        cuts=campaign.whole("cuts", CUTS, most=1 << 31),
        stop_at=campaign.choice("stop_at", get_args(StopAt), "loss"),
        seed=campaign.whole("seed", seed, most=_SEED_MAX),
        cut_after_s=cut_after_s,
        off_s=off_s,
        boot_within_s=campaign.number("boot_within_s", BOOT_WITHIN_S),
        ready_within_s=campaign.number("ready_within_s", READY_WITHIN_S),
        subject=_agreed(power, "cuts", get_args(Subject), "machine"),
        cut_class=_agreed(power, "cut_class", ("power", "vm", "os"), ""),
        notify=campaign.text("notify", ""),
        power=tuple(_power(table) for table in power),
        drives=tested,
        arms=tuple(_arm(table, number, cut_after_s, off_s) for number, table in enumerate(arms, 1))
        or default_arms(defaults, names_too=not any(drive.is_raw for drive in tested)),
    )
    campaign.end()
    return check(settings)


def _agreed(tables: tuple[_Table, ...], key: str, choices: tuple[str, ...], default: str) -> Any:
    """A key of the switches that is one for all of them."""
    said = {table.choice(key, choices, "") for table in tables} - {""}
    if len(said) > 1:
        raise UsageError(f"[[power]] {key} differs: {', '.join(sorted(said))}; all switches cut together")
    if not said and not default and tables:
        raise UsageError(
            f'[power] {key} is missing: "power" if the drives lose their power, "vm" for a guest or a rented'
            ' machine, "os" for a reset'
        )
    return next(iter(said), default)


def _power(table: _Table) -> Power:
    kinds = [kind for kind in _SWITCHES if kind in table]
    commands = [key for key in ("on", "off", "status") if key in table]
    if len(kinds) + bool(commands) != 1:
        raise UsageError(
            f"{table.name} needs one of: fence, tasmota, shelly, or the three commands on, off and status"
        )
    kind: PowerKind = kinds[0] if kinds else "commands"
    agent = table.text(kind, "") if kinds else ""
    timeout_s, machine = table.number("timeout_s", REQUEST_TIMEOUT_S), table.text("machine", "")
    return Power(kind=kind, agent=agent, options=table.rest(), timeout_s=timeout_s, machine=machine)


def _drive(table: _Table, machines: tuple[str, ...], number: int) -> Drive:
    device, target = table.text("device", ""), table.text("target", "")
    known = (device or target).rstrip("/").rpartition("/")[2] or f"drive-{number}"
    drive = Drive(
        name=table.text("name", known[:63]),
        machine=table.text("machine", machines[0] if len(machines) == 1 else ""),
        device=device,
        file_system=table.choice("file_system", get_args(FileSystem), ""),
        mount_options=table.text("mount_options", ""),
        target=target,
        size=table.text("size", ""),
    )
    table.end()
    return drive


def _arm(table: _Table, number: int, cut_after_s: tuple[float, float], off_s: tuple[float, float]) -> Arm:
    again = table.interval("again_after_s", (-1.0, -1.0))
    sync = table.choice("sync", get_args(SyncMethod), "")
    arm = Arm(
        name=table.text("name", f"arm-{number}"),
        workload=table.text("workload", DEFAULT),
        writers=table.whole("writers", 1, most=WRITERS_MAX),
        sync=sync or None,
        direct=table.flag("direct"),
        group=table.whole("group", 1, most=GROUP_MAX),
        record_size=table.text("record_size", ""),
        pattern=table.choice("pattern", get_args(Pattern), "random"),
        moment=table.choice("moment", get_args(Moment), "load"),
        cut_after_s=table.interval("cut_after_s", cut_after_s),
        off_s=table.interval("off_s", off_s),
        again_after_s=None if again[0] < 0 else again,
        idle_s=table.number("idle_s", IDLE_S),
    )
    table.end()
    return arm


class _Table:
    """A table of the file whose keys are taken one by one; `end` refuses those that nobody took."""

    def __init__(self, name: str, values: Mapping[str, Any]) -> None:
        self.name = name
        self._values = values
        self._known: list[str] = []

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def text(self, key: str, default: str) -> str:
        return self._take(key, default, str, "a text in quotes")

    def flag(self, key: str) -> bool:
        return self._take(key, False, bool, "true or false")

    def whole(self, key: str, default: int, *, most: int) -> int:
        value = self._take(key, default, int, "a whole number")
        if isinstance(value, bool) or not 0 <= value <= most:
            raise UsageError(f"{self.name} {key} is {value!r}: a whole number of 0 to {most} is needed")
        return value

    def number(self, key: str, default: float) -> float:
        return _as_number(self._take(key, default, (int, float), "a number"), f"{self.name} {key}")

    def interval(self, key: str, default: tuple[float, float]) -> tuple[float, float]:
        pair = self._take(key, list(default), list, "a pair such as [5, 90]")
        if len(pair) != 2:
            raise UsageError(f"{self.name} {key} has {len(pair)} values: shortest and longest are needed")
        low, high = (_as_number(value, f"{self.name} {key}") for value in pair)
        return low, high

    def texts(self, key: str) -> tuple[str, ...]:
        texts: list[Any] = self._take(key, [], list, 'a list such as ["b", "c"]')
        if not all(isinstance(text, str) for text in texts):
            raise UsageError(f'{self.name} {key} is not a list of texts such as ["b", "c"]')
        return tuple(texts)

    def choice(self, key: str, choices: tuple[str, ...], default: str) -> Any:
        value = self.text(key, default)
        if value != default and value not in choices:
            raise UsageError(f"{self.name} {key} = {value!r} is none of {', '.join(filter(None, choices))}")
        return value

    def table(self, key: str) -> _Table:
        return _Table(f"[{key}]", self._take(key, {}, dict, f"a table: [{key}]"))

    def tables(self, key: str) -> tuple[_Table, ...]:
        """One table, or an array of tables."""
        values: Any = self._take(key, [], (dict, list), f"a table: [[{key}]]")
        several = values if isinstance(values, list) else [values]
        if not all(isinstance(value, dict) for value in several):
            raise UsageError(f"{self.name} {key} is not a table: write [[{key}]]")
        return tuple(_Table(f"[[{key}]]" if isinstance(values, list) else f"[{key}]", one) for one in several)

    def rest(self) -> dict[str, str]:
        """All keys that were not taken, as text."""
        rest = {}
        for key, value in self._values.items():
            if key in self._known:
                continue
            if not isinstance(value, str | int | float | bool):
                raise UsageError(f"{self.name} {key} is neither a text, a number, nor true or false")
            rest[key] = str(value).lower() if isinstance(value, bool) else str(value)
        return rest

    def end(self) -> None:
        for key in self._values:
            if key not in self._known:
                near = difflib.get_close_matches(key, self._known, n=1)
                meant = f": is {near[0]} meant?" if near else f". It knows {', '.join(sorted(self._known))}"
                raise UsageError(f"{self.name} does not know {key}{meant}")

    def _take(self, key: str, default: T, kind: type | tuple[type, ...], what: str) -> T:
        self._known.append(key)
        value = self._values.get(key, default)
        if not isinstance(value, kind):
            raise UsageError(f"{self.name} {key} is {value!r}: {what} is needed")
        return cast(T, value)


def _as_number(value: object, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e15:
        raise UsageError(f"{what} is {value!r}: a number is needed")
    return float(value)
