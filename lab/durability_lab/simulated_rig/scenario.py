"""One kind of simulated cut, as text and back: drive, load, delays, and when the power goes. Data only."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from durability.formats.plan import Pattern, SyncMethod
from durability.formats.workloads import registry
from durability_lab.simulated_rig.virtual_time import MS, US, S, ServiceTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One kind of cut; `str` of it and `parse` are inverse to each other.

    `model`: the drive's spec. `workload`: one whose slots lie in a region. `slots`: per writer. `credit` 0:
    as much as a run of this size takes. `rate`: commits that each writer begins per second, 0 for flat out.
    `write_us`, `sync_us`: what the drive takes, on average. `lag_p50_ms`, `lag_p99_ms`: from a sync's return
    to the server's receipt. The cut comes when a number of operations within `operations` was acknowledged,
    and then at any moment of the next commit; or after a time within `seconds`, where that is not (0, 0). For
    so long before it the writers rest (`idle_ms`), the network is dead (`partition_ms`), or the drive has
    failed one request (`error_ms`). `survives`: the drive alone loses its power; else the client's machine
    dies with it.
    """

    model: str = "honest"
    workload: str = registry.DEFAULT
    writers: int = 1
    pattern: Pattern = "random"
    record_bytes: int = 4096
    slots: int = 128
    credit: int = 0
    group: int = 1
    sync: SyncMethod = "fdatasync"
    rate: float = 0.0
    write_us: float = 15.0
    sync_us: float = 85.0
    lag_p50_ms: float = 0.12
    lag_p99_ms: float = 0.6
    operations: tuple[int, int] = (50, 400)
    seconds: tuple[float, float] = (0.0, 0.0)
    idle_ms: float = 0.0
    partition_ms: float = 0.0
    control: bool = True
    survives: bool = False
    error_ms: float = 0.0

    def __str__(self) -> str:
        plain = Scenario()
        names = [one.name for one in fields(self)]
        changed = [name for name in names if getattr(self, name) != getattr(plain, name)]
        return " ".join(f"{name}={_text(getattr(self, name))}" for name in changed or names[:1])

    @classmethod
    def parse(cls, text: str) -> Scenario:
        """The scenario that `text` says: NAME=VALUE, separated by blanks. Raises ValueError."""
        plain = {one.name: getattr(cls(), one.name) for one in fields(cls)}
        values: dict[str, Any] = {}
        for word in text.split():
            name, _, value = word.partition("=")
            if name not in plain:
                raise ValueError(f"a scenario has no {name!r}, but {', '.join(plain)}")
            values[name] = _value(plain[name], value)
        return cls(**values)

    @property
    def commit_ns(self) -> int:
        """From one commit of a writer to its next, on average."""
        return int(S / self.rate) if self.rate else int((self.group * self.write_us + self.sync_us) * US)

    @property
    def pace(self) -> ServiceTimes:
        """The same times in nanoseconds, as the writers of the simulation take them."""
        return ServiceTimes(
            write_ns=int(self.write_us * US),
            sync_ns=int(self.sync_us * US),
            interval_ns=self.commit_ns if self.rate else 0,
            lag_p50_ns=int(self.lag_p50_ms * MS),
            lag_p99_ns=int(self.lag_p99_ms * MS),
        )


def _text(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case float():
            return repr(value).removesuffix(".0")
        case (low, high):
            return f"{_text(low)}..{_text(high)}"
    return str(value)


def _value(plain: object, text: str) -> object:
    """`text` as a value of the kind that `plain` is."""
    match plain:
        case bool():
            if text not in ("true", "false"):
                raise ValueError(f"{text!r} is neither true nor false")
            return text == "true"
        case int():
            return int(text)
        case float():
            return float(text)
        case (one, _):
            low, _, high = text.partition("..")
            return _value(one, low), _value(one, high)
    return text
