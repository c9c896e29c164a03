"""Messages between agent and server: the agent sends its status, the server answers with the task.

The agent keeps no state. About once a second it reports all that it does and has done for its task, and the
answer says what to do next. So a lost or repeated message does no harm, and an agent that restarts asks for
its task. A status carries findings, not conclusions: the server draws the conclusions.

    wait       stop the runs, unmount; the task names no drive
    examine    find each drive and read its identity and health
    run        verify the earlier run if one is named, make each drive's target ready and begin its run, which
               goes on until the task changes
    verify     mount, verify the named run, read the drive's identity and health
    shutdown   stop the runs, unmount, then shut the machine down cleanly
    release    stop the runs, unmount, remove the target's files if a run is named: the machine is left as it
               was before the campaign
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from durability.campaign.definition.settings import DRIVES_MAX, Arm, DriveUnderTest
from durability.formats.documents import Finite, Flag, Natural, Text, at_most

BOOT_ID_MAX = 64  # characters; Linux has 36
_AND = " + "  # joins the names of several drives

TaskKind: TypeAlias = Literal["wait", "examine", "run", "verify", "shutdown", "release"]

# Progress of a drive's part of a task. Only a run is "armed" (it writes) or "ended" (it is over).
WorkState: TypeAlias = Literal["working", "armed", "ended", "done", "failed"]

# Why a drive's part of a task failed, or a remark on a part that is done.
Trouble: TypeAlias = Literal[
    "",
    "missing",  # the drive was not found
    "in-use",  # the drive is mounted, otherwise in use, or part of another device
    "system-disk",  # the machine runs from the drive
    "too-small",
    "wrong-drive",  # another drive than before is at the path
    "unmountable",
    "not-made",  # the file system could not be made
    "not-begun",  # the run did not begin
    "not-verified",  # verify could not be done
    "agent",  # a fault of the agent, or of programs that it needs on its machine
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task for an agent. A task with another number is another task, even if it has the same kind."""

    kind: TaskKind
    number: Natural  # the agent's status repeats this number
    campaign: Text
    cycle: Natural
    drives: tuple[DriveTask, ...]
    ready_within_s: Finite  # seconds to wait for a drive that is not there
    # The boot of the machine that may begin the run, "" for any boot. An agent of another boot does not begin
    # the run, because data that an earlier boot wrote may be unverified.
    boot_id: Text = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveTask:
    """A drive's part of a task."""

    drive: DriveUnderTest
    # The arm to run, None if nothing runs. In an `examine` of a `drive.target`: an arm that needs a file
    # system which keeps names. None if no arm does, and in a check after a cycle has begun.
    arm: Arm | None
    # The run to verify, 16 hex digits, "" for none. In `run`: an earlier run without a verdict in the log,
    # which the new run would overwrite. In `release`: the run whose files on `drive.target` are to be
    # removed; the server names it, because the server has the verdict.
    run: Text
    serial: Text  # serial from the first examination, "" before that or if the drive has none
    # The content of the drive may be lost: the agent makes a file system before the run, or else erases the
    # signatures and begins the run with --force.
    fresh: Flag
    cut_class: Text  # the class of cut that `verify` requires
    label: Text  # label of the run
    examined: Condition | None = None  # result of the first examination, None before that
    again: Flag = False  # an earlier run of the campaign was begun on the drive and left its data there


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Identity, counters and health of a drive. If a device lies on several drives, the counters are None.
    `model`, `serial` and `firmware` then name all drives, joined by " + " in the kernel's order."""

    model: Text
    serial: Text
    firmware: Text
    size_bytes: Natural
    diskseq: Natural | None
    emulated: Flag  # the drive is a guest's, so its counters are the emulator's
    # Seconds from the start of the system until the drive was there. For a drive that was cut alone: from the
    # start of `verify`.
    ready_s: Finite | None
    power_cycles: Natural | None  # this and the values below are None if the drive does not report them
    unsafe_shutdowns: Natural | None
    media_errors: Natural | None
    spare_percent: Natural | None  # NVMe Available Spare
    used_percent: Natural | None  # NVMe Percentage Used
    # The drive reports that its power-loss protection is broken. False only if the drive shows that it has
    # power-loss protection.
    backup_failed: Flag | None
    capacitor_percent: Natural | None  # health of capacitors (OCP log page C0h), 0 if the drive reports none
    # Signatures recognised on the device and in its partitions ("gpt 1:ext4=UUID", or "#" and a digest for
    # each word if there are very many). "" if nothing was found or looked for. For a target in a user's file
    # system: type and UUID of that file system.
    holds: Text = ""
    wwid: Text = ""  # world-wide name of the drive, "" for none

    @property
    def is_of_several(self) -> bool:
        """Whether the device lies on several drives."""
        return any(_AND in names for names in (self.model, self.serial, self.firmware))


def in_one_order(joined: str) -> str:
    """Sort names of several drives, joined as in `Condition`, so that they can be compared: the kernel may
    find the drives in another order at each boot."""
    return _AND.join(sorted(joined.split(_AND)))


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveStatus:
    """Status of a drive's part of the task."""

    drive: Text
    state: WorkState
    trouble: Trouble
    text: Text  # what failed and what to do, for people
    run: Text  # the run that was begun or verified, "" for none
    exit_code: Natural | None  # exit code of `verify` or of an ended `run`, None before
    condition: Condition | None
    mount_s: Finite | None  # seconds that the mount took, journal replay included
    repaired: Flag  # the file system needed a repair beyond the journal replay


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Status of an agent and its drives."""

    boot_id: Annotated[str, at_most(BOOT_ID_MAX)]
    machine_id: Text
    uptime_ns: Natural
    virtualisation: Text  # as in the facts of a host, "none" on a physical machine
    software: Text
    task: Natural  # number of the task that `drives` report on, 0 for none
    drives: Annotated[tuple[DriveStatus, ...], at_most(DRIVES_MAX)]
    campaign: Text = ""  # name of the campaign of that task
