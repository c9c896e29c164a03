"""Facts about a machine and the target under test, gathered by the client.

Nothing here is judged; `cut` and `identity` do that. None means "this system does not report it". Sizes and
offsets are in bytes, times in nanoseconds of the machine's CLOCK_BOOTTIME.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from durability import limits
from durability.formats.documents import Finite, Name, Natural, Text, at_most
from durability.formats.plan import TargetKind

# Mount options that name a device, such as an external log, by its current kernel name.
_OF_DEVICES = ("logdev=", "rtdev=", "journal_path=", "journal_dev=", "device=")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drive:
    """A leaf block device: a disk as the kernel sees it, below partitions, md, dm and LVM."""

    name: Name
    model: Text
    # Identifies the drive: serial or WWN; for a loop device "loop:", its backing file, and "@" and its offset
    # in that file if not 0; "" if there is none.
    serial: Text
    firmware: Text
    size_bytes: Natural
    logical_block_bytes: Natural
    physical_block_bytes: Natural
    rotational: bool | None
    write_cache: Name | None
    fua: bool | None
    diskseq: Natural | None  # rises whenever the kernel enumerates a drive anew
    unsafe_shutdowns: Natural | None  # the drive's own counter of power losses without warning
    atomic_write_bytes: Natural | None
    # Flush requests completed on the drive since it was enumerated (/sys/block/*/stat).
    flushes: Natural | None
    emulated: bool  # a virtual machine's device, whose counters prove nothing
    wwid: Text = ""  # world-wide name, or the CID of a memory card; "" if there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSystem:
    """The mounted file system that holds a file target."""

    type: Name
    uuid: Name
    source: Text
    mount_point: Text
    options: Annotated[str, at_most(limits.MOUNT_OPTIONS_MAX)]
    block_bytes: Natural  # block size of the file system

    @property
    def lasting_options(self) -> str:
        """The options without those that name a device. The drives of such devices are among the drives of
        the facts."""
        return ",".join(one for one in self.options.split(",") if not one.startswith(_OF_DEVICES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A machine."""

    machine_id: Name
    boot_id: Name
    uptime_ns: Natural
    kernel: Name  # system, release and processor
    virtualisation: Name  # "none", or the hypervisor's name as far as it is known
    hostname: Name

    @property
    def release(self) -> str:
        """The release of a Linux kernel and the processor, without the system's name."""
        return self.kernel.removeprefix("Linux ")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetWarning:
    """A condition that can weaken a verdict; docs/reference/cli.md lists the values of `code`."""

    code: Name
    text: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All facts of one target on one machine at one moment."""

    host: Host
    path: Text  # absolute path
    # Relative to the mount, so that it stays the same under another mount point; "" for a device.
    path_in_file_system: Text
    kind: TargetKind
    size_bytes: Natural
    # Where the partition or device under test starts on its drive, the first of `drives`; None if layers
    # between them make that meaningless.
    offset_bytes: Natural | None
    file_system: FileSystem | None
    # Each block device, from the file system's source down to the drives.
    layers: Annotated[tuple[Text, ...], at_most(limits.FACTS_LAYERS_MAX)]
    # The drives below the target; after the first can come those of a log or realtime device of the file
    # system.
    drives: Annotated[tuple[Drive, ...], at_most(limits.FACTS_DRIVES_MAX)]
    warnings: Annotated[tuple[TargetWarning, ...], at_most(limits.FACTS_WARNINGS_MAX)]
    # Identifier that device mapper or md gives the volume, whatever its name is today; "" if there is none.
    volume: Text = ""
    # Another path, which names the target after a restart too; "" if none is known or `path` is such a path.
    named: Text = ""
    # Identifies the file in its file system, whatever its path; a copy, also in a snapshot, has another id;
    # "" if the file system is not known to keep it.
    file_id: Name = ""

    @property
    def main_drives(self) -> tuple[Drive, ...]:
        """The drives below the target, without those of a log or realtime device of its file system. If
        layers hide which these are, all drives."""
        return self.drives if self.offset_bytes is None else self.drives[:1]

    @property
    def layer_kinds(self) -> tuple[str, ...]:
        """The kinds of the layers between the target and its drives, from the top down, without the kernel's
        current names. Partitions and loop devices are left out, because they pass everything through."""
        kinds = (layer.partition(" (")[2].removesuffix(")") for layer in self.layers)
        return tuple(kind for kind in kinds if kind not in ("", "partition", "drive", "loop"))


# Fields by which `verify` recognises the target and its drives. The first release does not know and rejects
# them.
RECOGNITION = ("volume", "named", "file_id")
RECOGNITION_OF_DRIVES = ("wwid",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The processor and memory during the measurement."""

    cpu_model: Text
    cpus: Natural
    governor: Text  # CPU frequency governor; "" if there is none
    memory_bytes: Natural


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineLoad:
    """How busy the machine was right before or after a measurement."""

    load: Finite | None  # load average over one minute
    # Shares of processor time. Before: in the idle interval. After: during the run, with the tool's own work.
    busy_percent: Finite | None
    steal_percent: Finite | None
    used_bytes: Natural | None  # bytes used in the file system
    size_bytes: Natural | None  # size of the file system
    # Free bytes that the file system withholds from programs; None also if the file does not record them.
    reserved_bytes: Natural | None
