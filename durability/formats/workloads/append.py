"""`append`: each writer's file grows by a record per operation, and full files give way to new ones.

Promised: the file is as long as what was acknowledged, and all of that is in it. A full file is removed once
the one after the next exists.
"""

from __future__ import annotations

from durability.formats.workloads.workload import EndlessWorkload

APPEND = EndlessWorkload(name="append", summary="append to logs", layout="log")
