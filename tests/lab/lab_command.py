"""`durability lab` as scripts use it: as a process, through its streams."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

COMMAND = str(Path(sys.executable).with_name("durability"))
DEADLINE_S = 120


def lab(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """`durability lab` with these arguments, to its end."""
    command = [COMMAND, "lab", *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=DEADLINE_S, **options)
