"""`rename`: each operation writes a temporary file and renames it over the file with the name.

Promise: the name always holds one whole version, the newest acknowledged one or one issued after it, even
while an operation on it is in flight.
"""

from __future__ import annotations

from durability.formats.workloads.workload import Workload

RENAME = Workload(name="rename", summary="rename files", layout="names", whole_at_all_times=True)
