"""The client's load on a rig with a real kernel: file system, workload, writers, sync method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from durability.formats.plan import SyncMethod
from durability.formats.workloads import registry
from durability.formats.workloads.workload import Workload

NAMES_MIB = 2  # per writer, for workloads on names; with less, writers soon wait for credit without risk

FileSystemName: TypeAlias = Literal["ext4", "xfs", "btrfs"]
FILE_SYSTEMS: Final[tuple[FileSystemName, ...]] = get_args(FileSystemName)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The client's load on rig B or C; `file_system` None is the raw device."""

    file_system: FileSystemName | None = None
    workload: str = registry.DEFAULT
    writers: int = 1
    sync: SyncMethod = "fdatasync"
    direct: bool = False
    group: int = 1

    @property
    def contract(self) -> Workload:
        """The workload object named `workload`."""
        return registry.workload(self.workload)

    def __str__(self) -> str:
        sync = f"{self.sync}+direct" if self.direct else self.sync
        group = f" group {self.group}" if self.group > 1 else ""
        return f"{self.file_system or 'raw'} {self.workload} x{self.writers} {sync}{group}"


def run_options(load: Load, *, mib: int) -> list[str]:
    """The options of `durability run` for the load. `mib`: target size, unless the workload is on names."""
    size_mib = NAMES_MIB * load.writers if load.contract.by_name else mib
    options = ["--size", f"{size_mib}MiB", "--workload", load.workload, "--writers", str(load.writers)]
    options += ["--sync", load.sync, "--group", str(load.group)]
    options += ["--direct"] if load.direct else []
    return options if load.file_system else [*options, "--destroy-data"]
