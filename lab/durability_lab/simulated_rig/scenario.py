"""One kind of simulated cut and its text form: drive, load, delays, and time of the cut. Data only."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from durability.formats.plan import Pattern, SyncMethod
from durability.formats.workloads import registry
from durability_lab.simulated_rig.virtual_time import MS, US, S, ServiceTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One kind of cut. `parse` reads the text that `str` writes."""

    model: str = "honest"  # the drive's spec
    workload: str = registry.DEFAULT  # a workload whose slots lie in a region
    writers: int = 1
    pattern: Pattern = "random"
    record_bytes: int = 4096
    slots: int = 128  # per writer
    credit: int = 0  # 0: the largest credit for a run of this size
    group: int = 1
    sync: SyncMethod = "fdatasync"
    rate: float = 0.0  # commits that each writer begins per second; 0: unpaced
    write_us: float = 15.0  # mean duration of a write on the drive
    sync_us: float = 85.0  # mean duration of a sync on the drive
    lag_p50_ms: float = 0.12  # from a sync's return to the server's receipt, median
    lag_p99_ms: float = 0.6  # the same, 99th percentile
    # The cut comes after the syncs of a number of operations in this range have returned, at a random time of
    # the next commit.
    operations: tuple[int, int] = (50, 400)
    seconds: tuple[float, float] = (0.0, 0.0)  # unless (0, 0): the cut comes after a time in this range
    idle_ms: float = 0.0  # the writers rest for this time before the cut
    partition_ms: float = 0.0  # the network is dead for this time before the cut
    control: bool = True
    survives: bool = False  # only the drive loses its power; otherwise the client's machine dies too
    error_ms: float = 0.0  # the drive fails one request this time before the cut

    def __str__(self) -> str:
        plain = Scenario()
        names = [one.name for one in fields(self)]
        changed = [name for name in names if getattr(self, name) != getattr(plain, name)]
        return " ".join(f"{name}={_text(getattr(self, name))}" for name in changed or names[:1])

    @classmethod
    def parse(cls, text: str) -> Scenario:
        """Parse a scenario: NAME=VALUE pairs, separated by blanks. Raises ValueError."""
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
        """Mean time from one commit of a writer to its next."""
        return int(S / self.rate) if self.rate else int((self.group * self.write_us + self.sync_us) * US)

    @property
    def pace(self) -> ServiceTimes:
        """The durations in nanoseconds, as the simulation uses them."""
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
    """Parse `text` as a value of the type of `plain`."""
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
