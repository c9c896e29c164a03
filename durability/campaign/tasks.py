"""What a machine's agent and the server tell each other: the agent its status, the server the task.

The agent has no state of its own. About once a second it says all that it is doing and has done for its task,
and the answer says what it is to do. So a message that is lost, or said twice, does no harm; after a restart
the agent asks, and is told. Refuses to carry conclusions: the server keeps what the agent found and draws
them.

    wait       nothing is to be done, and no drive is named: stop the runs, unmount
    examine    find each drive, and read what it says of itself
    run        verify the earlier run if one is named, make each drive's target ready and begin its run, which
               goes on until the task changes
    verify     mount, verify the named run, read what the drive says of itself
    shutdown   stop the runs, unmount, then shut the machine down in order
    release    stop the runs, unmount, remove the target's files if a run is named: the machine is left as it
               was found
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from durability.campaign.definition.settings import DRIVES_MAX, Arm, DriveUnderTest
from durability.formats.documents import Finite, Flag, Natural, Text, at_most

BOOT_ID_MAX = 64  # characters; Linux has 36
_AND = " + "  # between the names of several drives

TaskKind: TypeAlias = Literal["wait", "examine", "run", "verify", "shutdown", "release"]

# How far a drive's part of a task is. "armed" and "ended" are of a run: it goes on, or it is over.
WorkState: TypeAlias = Literal["working", "armed", "ended", "done", "failed"]

# Why a drive's part failed, or what is to be known of it though it is done.
Trouble: TypeAlias = Literal[
    "",
    "missing",  # the drive is not there
    "in-use",  # mounted, held or a part of something
    "system-disk",  # the machine runs from it
    "too-small",
    "wrong-drive",  # another drive than before is at its place
    "unmountable",
    "not-made",  # the file system could not be made
    "not-begun",  # the run did not begin
    "not-verified",  # verify could not be done
    "agent",  # a defect of the agent, or of what it needs on its machine
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What an agent is to do. `number`: that of the task, which its status repeats; a task with another
    number is another task, also if it is of the same kind. `ready_within_s`: how long to wait for a drive
    that is not there. `boot_id`: the boot of the machine for which a run is meant, "" for any: an agent of
    another boot does not begin it, since what an earlier boot wrote may be unverified."""

    kind: TaskKind
    number: Natural
    campaign: Text
    cycle: Natural
    drives: tuple[DriveTask, ...]
    ready_within_s: Finite
    boot_id: Text = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveTask:
    """A drive's part of a task. `arm`: what to run, None where nothing runs; in `examine` of a `drive.target`
    one that needs a file system which keeps names, None where none does, and in a check after a cut. `run`:
    the run to verify, 16 hex digits, "" for none; in `run` an earlier one that has no verdict as far as the
    log tells, which the new one would overwrite; in `release` that whose files on `drive.target` are to be
    removed, which is for the server to say, since it has the verdict. `serial`: of the drive as it was
    examined first, "" before that or if it has none. `fresh`: what the drive holds may go: a file system is
    to be made before the run, or else its signatures are erased and the run begins with --force. `cut_class`:
    what `verify` is to require. `label`: of the run. `examined`: what the drive was when it was examined
    first, None before that.
    `again`: an earlier run of the campaign was begun on it, so it carries what that left."""

    drive: DriveUnderTest
    arm: Arm | None
    run: Text
    serial: Text
    fresh: Flag
    cut_class: Text
    label: Text
    examined: Condition | None = None
    again: Flag = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What a drive is and says of itself. If a device lies on several drives, `model`, `serial` and
    `firmware` are of all of them, joined by " + " in the kernel's order, and there are no counters. Counters
    are None where it does not say. `ready_s`: from the start of the system until the drive was there; for a
    drive that was cut alone, from the beginning of `verify`. `spare_percent`, `used_percent`: as NVMe has
    them. `backup_failed`: the drive's word that its power-loss protection is broken; False only of a drive
    that shows that it has one. `capacitor_percent`: health of its capacitors (OCP log page C0h), 0 if it says
    that it has none.
    `emulated`: counters of a guest's drive. `holds`: what is recognised on the device and in its partitions
    ("gpt 1:ext4=UUID", or "#" and a digest for each word of very many), "" for nothing or if not looked for;
    of a target in a file system of the user's the type and UUID of that. `wwid`: the drive's world-wide name,
    "" for none."""

    model: Text
    serial: Text
    firmware: Text
    size_bytes: Natural
    diskseq: Natural | None
    emulated: Flag
    ready_s: Finite | None
    power_cycles: Natural | None
    unsafe_shutdowns: Natural | None
    media_errors: Natural | None
    spare_percent: Natural | None
    used_percent: Natural | None
    backup_failed: Flag | None
    capacitor_percent: Natural | None
    holds: Text = ""
    wwid: Text = ""

    @property
    def is_of_several(self) -> bool:
        """Whether the device lies on several drives."""
        return any(_AND in names for names in (self.model, self.serial, self.firmware))


def in_one_order(joined: str) -> str:
    """Names of several drives, as `Condition` joins them, as they compare: the kernel may find the drives in
    another order at each boot."""
    return _AND.join(sorted(joined.split(_AND)))


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveStatus:
    """How far a drive's part of the task is. `run`: the run that was begun or verified, "" for none.
    `exit_code`: that of `verify` or of an ended `run`, None before. `mount_s`: how long the mount with its
    replay took. `repaired`: the file system said that it had to be repaired beyond the replay. `text`: for
    people, what failed and what to do."""

    drive: Text
    state: WorkState
    trouble: Trouble
    text: Text
    run: Text
    exit_code: Natural | None
    condition: Condition | None
    mount_s: Finite | None
    repaired: Flag


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What an agent says of itself. `task`: the number of the task that `drives` is about, 0 for none, and
    `campaign` the name of its campaign.
    `virtualisation`: as in the facts of a host, "none" for a machine of metal."""

    boot_id: Annotated[str, at_most(BOOT_ID_MAX)]
    machine_id: Text
    uptime_ns: Natural
    virtualisation: Text
    software: Text
    task: Natural
    drives: Annotated[tuple[DriveStatus, ...], at_most(DRIVES_MAX)]
    campaign: Text = ""
