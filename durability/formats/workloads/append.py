"""`append`: each operation adds a record to the writer's file, and new files replace full ones.

Promise: the file has at least the length of the acknowledged records and contains all of them. A full file is
removed after the second file following it exists.
"""

from __future__ import annotations

from durability.formats.workloads.workload import EndlessWorkload

APPEND = EndlessWorkload(name="append", summary="append to logs", layout="log")
