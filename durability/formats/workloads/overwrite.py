"""`overwrite`: each pass writes every slot of a region once, in place.

Promise: a slot holds its newest acknowledged version, or one issued after it, or a mix of these by sector.
"""

from __future__ import annotations

from durability.formats.workloads.workload import Workload

OVERWRITE = Workload(name="overwrite", summary="overwrite in place", layout="region")
