"""What is known of a machine and of the target under test: plain facts, gathered by the client.

Nothing here is judged; `cut` and `identity` do that. None stands for "this system does not say". Sizes and
offsets in bytes, times in nanoseconds of the machine's CLOCK_BOOTTIME.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from durability import limits
from durability.formats.documents import Finite, Name, Natural, Text, at_most
from durability.formats.plan import TargetKind

# Mount options that name a device, such as an external log, by what the kernel calls it today.
_OF_DEVICES = ("logdev=", "rtdev=", "journal_path=", "journal_dev=", "device=")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drive:
    """A leaf block device: a disk as the kernel sees it, below partitions, md, dm and LVM.

    `serial` is what identifies the drive: the serial or WWN; for a loop device "loop:", its backing file, and
    "@" and its offset in that if it is not 0; "" where there is none. `diskseq` rises whenever the kernel
    enumerates a drive anew. `unsafe_shutdowns` is the drive's own counter of power losses without warning.
    `emulated`: a virtual machine's device, whose counters prove nothing. `flushes`: flush requests that
    completed on it since it was enumerated (/sys/block/*/stat). `wwid`: the drive's world-wide name, or the
    CID of a memory card, "" where there is none.
    """

    name: Name
    model: Text
    serial: Text
    firmware: Text
    size_bytes: Natural
    logical_block_bytes: Natural
    physical_block_bytes: Natural
    rotational: bool | None
    write_cache: Name | None
    fua: bool | None
    diskseq: Natural | None
    unsafe_shutdowns: Natural | None
    atomic_write_bytes: Natural | None
    flushes: Natural | None
    emulated: bool
    wwid: Text = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSystem:
    """The mounted file system that holds a file target. `block_bytes` is its block size."""

    type: Name
    uuid: Name
    source: Text
    mount_point: Text
    options: Annotated[str, at_most(limits.MOUNT_OPTIONS_MAX)]
    block_bytes: Natural

    @property
    def lasting_options(self) -> str:
        """The options without those that name a device, whose drive is among those of the facts."""
        return ",".join(one for one in self.options.split(",") if not one.startswith(_OF_DEVICES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A machine. `kernel` is its system, release and processor. `virtualisation` is "none", or the
    hypervisor's name as far as it is known."""

    machine_id: Name
    boot_id: Name
    uptime_ns: Natural
    kernel: Name
    virtualisation: Name
    hostname: Name

    @property
    def release(self) -> str:
        """The release of a Linux kernel and the processor, without the system's name."""
        return self.kernel.removeprefix("Linux ")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetWarning:
    """Something that can make a verdict mean less than it seems; docs/reference/cli.md lists `code`."""

    code: Name
    text: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All facts of one target on one machine at one moment.

    `path` is absolute; `path_in_file_system` is relative to the mount (the part that survives another mount
    point), "" for a device. `layers` names each block device from the file system's source down to the
    drives. `offset_bytes` is where the partition or device under test starts on its drive, the first of
    `drives`; None where layers between make that meaningless. `volume` is what device mapper or md calls the
    volume then, whatever its name is today, "" where nothing does. Further `drives` are those of a log or
    realtime device of the file system. `named` is a path that names the target after a restart too, "" where
    none is known that `path` is not. `file_id` is what its file system has for the file alone, whatever its
    path: a copy, also in a snapshot, has another one; "" where the file system is not known to keep it.
    """

    host: Host
    path: Text
    path_in_file_system: Text
    kind: TargetKind
    size_bytes: Natural
    offset_bytes: Natural | None
    file_system: FileSystem | None
    layers: Annotated[tuple[Text, ...], at_most(limits.FACTS_LAYERS_MAX)]
    drives: Annotated[tuple[Drive, ...], at_most(limits.FACTS_DRIVES_MAX)]
    warnings: Annotated[tuple[TargetWarning, ...], at_most(limits.FACTS_WARNINGS_MAX)]
    volume: Text = ""
    named: Text = ""
    file_id: Name = ""

    @property
    def main_drives(self) -> tuple[Drive, ...]:
        """The drives below the target, without those of a log or realtime device of its file system; all of
        them where layers hide which these are."""
        return self.drives if self.offset_bytes is None else self.drives[:1]

    @property
    def layer_kinds(self) -> tuple[str, ...]:
        """What the layers are that lie between the target and its drives, from the top down, without the
        kernel's names of today; a partition or a loop device hands all through."""
        kinds = (layer.partition(" (")[2].removesuffix(")") for layer in self.layers)
        return tuple(kind for kind in kinds if kind not in ("", "partition", "drive", "loop"))


# Fields by which `verify` knows the target and its drives again. The first release has none of them, and
# refuses them.
RECOGNITION = ("volume", "named", "file_id")
RECOGNITION_OF_DRIVES = ("wwid",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The processor under the measurement. `governor`: of the frequency, "" where there is none."""

    cpu_model: Text
    cpus: Natural
    governor: Text
    memory_bytes: Natural


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineLoad:
    """How busy the machine was right before or after. `load`: the load average of one minute. `busy_percent`
    and `steal_percent`: of the processors' time in the idle interval before, and during the run (the tool's
    own work included) after. `used_bytes` of `size_bytes` of the file system;
    `reserved_bytes`: of what is free, what it keeps from programs, None also if the file does not say."""

    load: Finite | None
    busy_percent: Finite | None
    steal_percent: Finite | None
    used_bytes: Natural | None
    size_bytes: Natural | None
    reserved_bytes: Natural | None
