"""All workloads, by the name in plans and on the command line.

To add a workload, add a module with its object, and a line here. Other names raise `PlanError`.
"""

from __future__ import annotations

from durability.errors import PlanError
from durability.formats.workloads.append import APPEND
from durability.formats.workloads.create import CREATE
from durability.formats.workloads.overwrite import OVERWRITE
from durability.formats.workloads.rename import RENAME
from durability.formats.workloads.unlink import UNLINK
from durability.formats.workloads.workload import Workload

WORKLOADS: dict[str, Workload] = {one.name: one for one in (OVERWRITE, APPEND, CREATE, RENAME, UNLINK)}
DEFAULT = OVERWRITE.name


def workload(name: str) -> Workload:
    """The workload with this name. Raises PlanError."""
    try:
        return WORKLOADS[name]
    except KeyError:
        raise PlanError(f"workload {name!r} is not one of {', '.join(WORKLOADS)}") from None
