"""The settings of a campaign: what is cut, how, how often, and what runs meanwhile.

They are what a campaign file says, complete: each default is filled in, so that two campaigns with equal
settings do the same. Refuses what contradicts itself with a sentence that names the table and the key. Knows
nothing of files: `campaign_file` reads them. Secrets are never in settings, only the names of their files.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from durability.campaign.definition import plain_secrets
from durability.campaign.definition.fence_agents import GUEST_AGENTS, POWERLESS_AGENTS
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
# On sectors of 4096 bytes. What xfs and btrfs are made on at least; ext4 below this has no journal.
LEAST_BYTES: Final[dict[FileSystem, int]] = {"": 0, "ext4": 8 << 20, "xfs": 300 << 20, "btrfs": 109 << 20}

# When the power goes: under load; after all writers have been held for `idle_s`; while the target is
# prefilled, before anything is acknowledged; after the machine has stopped the run and shut down in order.
CutMoment: TypeAlias = Literal["load", "idle", "prefill", "shutdown"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """One switch. `agent`: the fence agent, or the address (URL or host) of a Tasmota or Shelly switch, ""
    for commands. `options`: the other keys of its table, as text; the value of a key `NAME_file` is the file
    that holds the secret NAME. `timeout_s` bounds one request. `machine`: those that it switches, by
    name, with a space between, "" for all of the campaign; servers keep this key since release 0.1.0."""

    kind: PowerKind
    agent: str
    options: Mapping[str, str]
    timeout_s: float
    machine: str

    @property
    def machines(self) -> tuple[str, ...]:
        """The machines that it switches, () for all."""
        return tuple(self.machine.split())

    def has(self, machine: str) -> bool:
        """Whether it switches that machine."""
        return not self.machines or machine in self.machines

    @property
    def name(self) -> str:
        """What people call it: agent and address, or the first words of its command."""
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
    """A drive under test on `machine`. Its runs lie on `device`, in the file system that the agent makes
    there ("": on the device itself), or else on the path `target`, in a file system that is there. `size`: of
    the target, as `run --size`; "" leaves it to `run`."""

    name: str
    machine: str
    device: str
    file_system: FileSystem
    mount_options: str
    target: str
    size: str

    @property
    def is_raw(self) -> bool:
        """Whether runs write to the device itself."""
        return bool(self.device) and not self.file_system


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One kind of cycle: what runs, and how the power goes. The options of the run are those of `durability
    run`. Times are intervals in seconds, of which each cycle draws one value. `off_s`, `cut_after_s`: as in
    `Settings`, for this arm. `again_after_s`: after the power is back on, it goes off again so much later,
    while the machine boots; None: it does not."""

    name: str
    workload: str
    writers: int
    sync: SyncMethod | None
    direct: bool
    group: int
    record_size: str
    pattern: Pattern
    moment: CutMoment
    cut_after_s: tuple[float, float]
    off_s: tuple[float, float]
    again_after_s: tuple[float, float] | None
    idle_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A whole campaign. `cuts`: planned per drive. `cut_after_s`: from the moment at which all runs are armed
    to the cut, `off_s`: from confirmed off to on; of each interval every cycle draws a value from `seed`.
    `boot_within_s`: by when a machine must ask for its task after the power is on. `ready_within_s`: by when
    a drive must be there after that. `notify`: a command that gets each news as its last argument, or ""."""

    name: str
    machines: tuple[str, ...]
    cuts: int
    stop_at: StopAt
    seed: int
    cut_after_s: tuple[float, float]
    off_s: tuple[float, float]
    boot_within_s: float
    ready_within_s: float
    subject: CutSubject
    cut_class: CutClass
    notify: str
    power: tuple[Power, ...]
    drives: tuple[DriveUnderTest, ...]
    arms: tuple[Arm, ...]

    def drives_of(self, machine: str) -> tuple[DriveUnderTest, ...]:
        """The drives under test on `machine`."""
        return tuple(drive for drive in self.drives if drive.machine == machine)


def default_arms(pattern: Arm, *, names_too: bool) -> tuple[Arm, ...]:
    """The set for a campaign file without any: one writer, four writers, one that writes past the caches with
    O_DSYNC and, if `names_too`, append and rename. `pattern` has what they share."""
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
    """`settings`, if they make sense. Raises UsageError, which says what does not."""
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
    if switch.kind == "commands":
        for command in ("on", "off", "status"):
            _require(
                bool(switch.options.get(command)),
                f"[power] {command} is missing: on, off and status are needed",
            )


def _check_secrets(switch: Power) -> None:
    """What is stored and shown has no secret; no message repeats one."""
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
    """Whether each drive has a path of its own; other paths of one drive only its machine can know."""
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
