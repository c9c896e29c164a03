"""Settings of a campaign: what is cut, how, how often, and the runs meanwhile.

Settings are a complete campaign file: all defaults are filled in, so two campaigns with equal settings do the
same. `check` refuses contradictions with a sentence that names the table and the key. `campaign_file` reads
the file. Settings never contain secrets, only the names of their files.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from durability.campaign.definition import plain_secrets
from durability.campaign.definition.fence_agents import GUEST_AGENTS, METAL_AGENTS, POWERLESS_AGENTS
from durability.errors import UsageError
from durability.evidence.cut import CutClass
from durability.formats.plan import WRITE_THROUGH_METHODS, Pattern, SyncMethod, is_record_size
from durability.formats.workloads.registry import WORKLOADS
from durability.limits import GROUP_MAX, WRITERS_MAX, WRITERS_OF_CLIENT_MAX
from durability.units import parse_size

CUTS_MAX = 10_000
MACHINES_MAX = 32
DRIVES_MAX = 64
ARMS_MAX = 32
SWITCHES_MAX = 16
DAY_S = 86_400.0

PowerKind: TypeAlias = Literal["fence", "tasmota", "shelly", "commands"]
CutSubject: TypeAlias = Literal["machine", "drive"]
StopAt: TypeAlias = Literal["loss", "end"]
FileSystem: TypeAlias = Literal["", "ext4", "xfs", "btrfs"]
# Least size of a device for each file system, with sectors of 4096 bytes. xfs and btrfs cannot be made on
# less; ext4 would have no journal.
LEAST_BYTES: Final[dict[FileSystem, int]] = {"": 0, "ext4": 8 << 20, "xfs": 300 << 20, "btrfs": 109 << 20}

# When the power is cut. "load": under load. "idle": after all writers have been held for `idle_s`. "prefill":
# while the target is prefilled, before anything is acknowledged. "shutdown": after the machine has stopped
# the run and shut down cleanly.
CutMoment: TypeAlias = Literal["load", "idle", "prefill", "shutdown"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """One power switch."""

    kind: PowerKind
    agent: str  # fence agent, or address (URL or host) of a Tasmota or Shelly switch; "" for commands
    # Other keys of the table, as text. A key `NAME_file` names the file that holds the secret NAME.
    options: Mapping[str, str]
    timeout_s: float  # longest time for one request
    # Names of the machines that it switches, separated by spaces; "" for all machines of the campaign. Stored
    # under this key since release 0.1.0.
    machine: str

    @property
    def machines(self) -> tuple[str, ...]:
        """The machines that the switch feeds, () for all."""
        return tuple(self.machine.split())

    def has(self, machine: str) -> bool:
        """Whether the switch feeds that machine."""
        return not self.machines or machine in self.machines

    @property
    def name(self) -> str:
        """The name for people: agent, address and plug, or the command that switches off."""
        where = self.options.get("ip") or self.options.get("ipaddr") or ""
        plug = self.options.get("plug") or self.options.get("port") or ""
        parts = {
            "fence": [self.agent, where, plug],
            "tasmota": ["Tasmota", self.agent],
            "shelly": ["Shelly", self.agent],
            "commands": ["commands", self.options.get("off", "")],
        }[self.kind]
        return " ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveUnderTest:
    """A drive under test. Either `device` or `target` is set."""

    name: str
    machine: str
    device: str  # device on which the agent makes the file system, "" if `target` is set
    file_system: FileSystem  # file system to make on the device, "" if runs write to the device itself
    mount_options: str
    target: str  # path in an existing file system, "" if `device` is set
    size: str  # size of the target, as in `run --size`; "" for the default of `run`

    @property
    def is_raw(self) -> bool:
        """Whether runs write to the device itself."""
        return bool(self.device) and not self.file_system


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One kind of cycle: the run and the cut. The options of the run are those of `durability run`. A time
    with two values is an interval in seconds; each cycle draws one value from it."""

    name: str
    workload: str
    writers: int
    sync: SyncMethod | None
    direct: bool
    group: int
    record_size: str
    pattern: Pattern
    moment: CutMoment
    cut_after_s: tuple[float, float]  # as in `Settings`, for this arm
    off_s: tuple[float, float]  # as in `Settings`, for this arm
    # Time from power on to a second off, while the machine boots. None: no second off.
    again_after_s: tuple[float, float] | None
    idle_s: float  # seconds for which writers are held before the cut, if `moment` is "idle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of a campaign. A time with two values is an interval in seconds; each cycle draws one
    value from it, with `seed`."""

    name: str
    machines: tuple[str, ...]
    cuts: int  # planned cuts per drive
    stop_at: StopAt
    seed: int
    cut_after_s: tuple[float, float]  # time from the moment at which all runs are armed to the cut
    off_s: tuple[float, float]  # time from the confirmed off to the request to go on
    boot_within_s: float  # seconds in which a machine must ask for its task after the power is on
    ready_within_s: float  # seconds in which a drive must be there after that
    subject: CutSubject
    cut_class: CutClass
    notify: str  # command that gets each message as its last argument, "" for none
    power: tuple[Power, ...]
    drives: tuple[DriveUnderTest, ...]
    arms: tuple[Arm, ...]

    def drives_of(self, machine: str) -> tuple[DriveUnderTest, ...]:
        """The drives under test on `machine`."""
        return tuple(drive for drive in self.drives if drive.machine == machine)


def default_arms(pattern: Arm, *, names_too: bool) -> tuple[Arm, ...]:
    """The arms for a campaign file without arms: one writer, four writers, one writer with O_DIRECT and
    O_DSYNC and, if `names_too`, append and rename. `pattern` has the values that they share."""
    slots = (
        replace(pattern, name="one-writer"),
        replace(pattern, name="four-writers", writers=4),
        replace(pattern, name="direct-dsync", direct=True, sync="dsync"),
    )
    names = (
        replace(pattern, name="append", workload="append"),
        replace(pattern, name="rename", workload="rename"),
    )
    return (*slots, *names) if names_too else slots


def check(settings: Settings) -> Settings:
    """Check `settings` and return them. Raises UsageError, which names the first contradiction."""
    _require(
        bool(_NAME.fullmatch(settings.name)), f"the name {settings.name!r} has other than A-Z a-z 0-9 . _ -"
    )
    _require(1 <= settings.cuts <= CUTS_MAX, f"[campaign] cuts is {settings.cuts}: 1 to {CUTS_MAX}")
    _require_interval("[campaign] cut_after_s", settings.cut_after_s, DAY_S)
    _require_interval("[campaign] off_s", settings.off_s, 365 * DAY_S)
    _require_time("[campaign] boot_within_s", settings.boot_within_s, DAY_S)
    _require_time("[campaign] ready_within_s", settings.ready_within_s, DAY_S)
    _require(
        not plain_secrets.has_secret(settings.notify),
        "[campaign] notify has a secret among its words: put the command into a script of the server's user,"
        " mode 0700, that reads the secret from a file",
    )
    _check_notify(settings.notify)
    _require_unique("machine", "[campaign] machines", settings.machines, MACHINES_MAX)
    _require_unique("drive", "[[drive]]", [drive.name for drive in settings.drives], DRIVES_MAX)
    _require_unique("arm", "[[arm]]", [arm.name for arm in settings.arms], ARMS_MAX)
    _require(1 <= len(settings.power) <= SWITCHES_MAX, f"[power] is needed, at most {SWITCHES_MAX} times")
    for switch in settings.power:
        _check_power(settings, switch)
    for drive in settings.drives:
        _check_drive(settings, drive)
    _check_places(settings)
    for machine in settings.machines:
        _require(bool(settings.drives_of(machine)), f"machine {machine!r} has no [[drive]]")
        _require(
            any(switch.has(machine) for switch in settings.power),
            f"no [[power]] switches machine {machine!r}: give one with machine = {machine!r}, or one without"
            " machine, which switches all",
        )
    for arm in settings.arms:
        _check_arm(settings, arm)
        for machine in settings.machines:  # its drives run at once, as one client of the server
            drives = len(settings.drives_of(machine))
            _require(
                drives * arm.writers <= WRITERS_OF_CLIENT_MAX,
                f"[[arm]] {arm.name}: {arm.writers} writers on each of {drives} drives of machine"
                f" {machine!r} are more than one machine may have, {WRITERS_OF_CLIENT_MAX}: give writers"
                f" at most {WRITERS_OF_CLIENT_MAX // drives}",
            )
    return settings


def _check_notify(command: str) -> None:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"[campaign] notify cannot be split into words: {error}") from error
    _require(
        bool(words and words[0]) or not command,
        "[campaign] notify names no program: write a command, or leave notify out",
    )


def _check_power(settings: Settings, switch: Power) -> None:
    _require_time("[power] timeout_s", switch.timeout_s, 3600)
    _check_secrets(switch)
    for machine in switch.machines:
        _require(
            machine in settings.machines,
            f"[power] names machine {machine!r}, which is not in [campaign] machines",
        )
    if switch.kind == "fence":
        _require(
            bool(re.fullmatch(r"fence_[a-z0-9_]+", switch.agent)),
            f"[power] fence = {switch.agent!r} is not a fence agent: names of fence agents begin with fence_",
        )
        for never in ("action", "method"):
            _require(
                never not in switch.options,
                f"[power] {never} cannot be set: a campaign always switches off, then on",
            )
        _require(
            switch.agent not in POWERLESS_AGENTS,
            f"[power] {switch.agent} takes a machine's storage or network away, and leaves it its power",
        )
        if switch.agent in GUEST_AGENTS:
            _require(
                settings.cut_class != "power",
                f"[power] {switch.agent} switches a guest or a rented machine, whose drives may keep their"
                ' power: cut_class can be "vm" at most',
            )
        _require(
            switch.agent in METAL_AGENTS or settings.cut_class != "power",
            f"[power] {switch.agent} is not known to switch a physical machine: cut_class can be"
            ' "vm" at most. If the drives do lose their power, give commands on, off and status that call it'
            " instead of fence",
        )
    if switch.kind == "commands":
        for command in ("on", "off", "status"):
            _require(
                bool(switch.options.get(command)),
                f"[power] {command} is missing: on, off and status are needed",
            )


def _check_secrets(switch: Power) -> None:
    """Refuse secrets in the settings of a switch, which are stored and shown. No message repeats a secret."""
    for key, value in switch.options.items():
        if switch.kind == "commands":
            _require(
                not plain_secrets.has_secret(value),
                f"[power] {key} has a secret among its words: put the command into a script of the server's"
                " user, mode 0700, that reads the secret from a file",
            )
            continue
        _require(
            not plain_secrets.is_secret_option(key),
            f"[power] {key} is in the campaign file: move it to a file with mode 0600, and set {key}_file",
        )
        _require(
            not plain_secrets.has_secret_in_url(value),
            f"[power] {key} has a user and a password before its host: set username and password_file"
            " instead",
        )
    _require(
        not plain_secrets.has_secret_in_url(switch.agent),
        f"[power] {switch.kind} has a user and a password before its host: set username and password_file"
        " instead",
    )


def _check_drive(settings: Settings, drive: DriveUnderTest) -> None:
    where = f"[[drive]] {drive.name}:"
    _require(
        drive.machine in settings.machines, f"{where} machine {drive.machine!r} is not in [campaign] machines"
    )
    _require(bool(drive.device) != bool(drive.target), f"{where} set either device or target")
    _require(
        not (drive.target and (drive.file_system or drive.mount_options)),
        f"{where} file_system and mount_options are for a device, on which the agent makes a file system",
    )
    _check_size(f"{where} size", drive.size)
    for path in (drive.device, drive.target):
        _require(not path or path.startswith("/"), f"{where} {path!r} is not an absolute path")
    _require(
        not drive.device or drive.device.startswith("/dev/"), f"{where} {drive.device!r} is not below /dev"
    )


def _check_places(settings: Settings) -> None:
    """Require a different path for each drive. Only the machine can know whether two paths lead to one
    drive."""
    known: dict[tuple[str, str], str] = {}
    for drive in settings.drives:
        path = "/".join(part for part in (drive.device or drive.target).split("/") if part not in ("", "."))
        first = known.setdefault((drive.machine, path), drive.name)
        _require(
            first == drive.name,
            f"[[drive]] {drive.name}: /{path} is the path of [[drive]] {first} too: name each drive once",
        )


def _check_arm(settings: Settings, arm: Arm) -> None:
    where = f"[[arm]] {arm.name}:"
    known = WORKLOADS.get(arm.workload)
    _require(known is not None, f"{where} workload {arm.workload!r} is not one of {', '.join(WORKLOADS)}")
    _require(1 <= arm.writers <= WRITERS_MAX, f"{where} writers is {arm.writers}: 1 to {WRITERS_MAX}")
    _require(1 <= arm.group <= GROUP_MAX, f"{where} group is {arm.group}: 1 to {GROUP_MAX}")
    if arm.group > 1 and arm.sync in WRITE_THROUGH_METHODS:
        raise UsageError(f"{where} sync {arm.sync} syncs each write, so it allows no group {arm.group}")
    _check_size(f"{where} record_size", arm.record_size)
    _require(
        not arm.record_size or is_record_size(parse_size(arm.record_size)),
        f"{where} record_size is {arm.record_size}: a multiple of 512 bytes, up to 1MiB",
    )
    _require_interval(f"{where} cut_after_s", arm.cut_after_s, DAY_S)
    _require_interval(f"{where} off_s", arm.off_s, 365 * DAY_S)
    if arm.again_after_s is not None:
        _require_interval(f"{where} again_after_s", arm.again_after_s, 3600)
    _require_time(f"{where} idle_s", arm.idle_s, DAY_S)
    raw = [drive.name for drive in settings.drives if drive.is_raw]
    if raw and WORKLOADS[arm.workload].needs_file:
        raise UsageError(f"{where} {arm.workload} needs a file system, and drive {raw[0]} has none")
    if settings.subject == "drive" and arm.moment == "shutdown":
        raise UsageError(f"{where} a shutdown is of a machine, and this campaign cuts the drive alone")


def _check_size(what: str, size: str) -> None:
    try:
        _require(not size or parse_size(size) > 0, f"{what} is 0")
    except UsageError as error:
        raise UsageError(f"{what}: {error}") from error


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise UsageError(otherwise)


def _require_time(what: str, seconds: float, most: float) -> None:
    _require(0 < seconds <= most, f"{what} is {seconds:g}: more than 0, at most {most:g} seconds")


def _require_interval(what: str, interval: Sequence[float], most: float) -> None:
    low, high = interval
    _require(
        0 <= low <= high <= most, f"{what} is [{low:g}, {high:g}]: shortest, then longest, of 0 to {most:g} s"
    )


def _require_unique(one: str, where: str, names: Sequence[str], most: int) -> None:
    _require(1 <= len(names) <= most, f"{where} names {len(names)}: at least 1 and at most {most} are needed")
    for name, number in Counter(names).items():
        _require(bool(_NAME.fullmatch(name)), f"{where}: the name {name!r} has other than A-Z a-z 0-9 . _ -")
        _require(number == 1, f"{where}: two have the name {name!r}: name each {one} once")
