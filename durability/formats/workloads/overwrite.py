"""`overwrite`: each pass writes every slot of a region once, in place.

Promised: the newest acknowledged version of a slot, or one issued after it, or a mix of those by sector.
"""

from __future__ import annotations

from durability.formats.workloads.workload import Workload

OVERWRITE = Workload(name="overwrite", summary="overwrite in place", layout="region")
