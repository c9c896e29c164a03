"""A machine on which the bundled packages cannot run: a sentence and an exit code, not a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from durability.errors import EXIT_ENVIRONMENT
from release import one_file_start
from tests.places import ROOT
from tests.release.conftest import COMMAND, require

pytestmark = pytest.mark.slow

# What `-cpu qemu64` has of the parts of x86-64-v2.
QEMU64 = "processor\t: 0\nflags\t\t: fpu sse sse2 cx16 lahf_lm pni\n\n"
BASELINE = (
    "NumPy was built with baseline optimizations: \\n(X86_V2) but your machine doesn't support:\\n(X86_V2)."
)
_START = (
    "from pathlib import Path; from release import one_file_start;"
    f" one_file_start.main(Path('/nowhere.pyz'), '0', ('{sys.version_info.major}.{sys.version_info.minor}',))"
)
ONE_FILE = (sys.executable, "-c", _START)
CLI = (str(COMMAND), "device", "/tmp")


def _refused(command: tuple[str, ...], *, over: str = "", by: Path = Path(), path: str = "") -> str:
    """What a command says where the file `by` lies over the file `over`, with another PYTHONPATH."""
    wrapped = ("unshare", "--mount", "sh", "-c", 'mount --bind "$0" "$1" && shift && exec "$@"', by, over)
    done = subprocess.run(
        [*(wrapped if over else ()), *command],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == EXIT_ENVIRONMENT == one_file_start.EXIT_ENVIRONMENT
    assert done.stderr.startswith("durability: ") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_a_processor_that_is_too_old_for_the_one_file(root: None, tmp_path: Path) -> None:
    """The one file says what the processor lacks before it unpacks anything."""
    require("unshare")
    (tmp_path / "cpuinfo").write_text(QEMU64)
    said = _refused(ONE_FILE, over="/proc/cpuinfo", by=tmp_path / "cpuinfo")
    assert "x86-64-v2" in said and "lacks popcnt, sse4_1, sse4_2, ssse3:" in said and "-cpu host" in said


def test_a_processor_that_is_too_old_for_a_command(tmp_path: Path) -> None:
    """A command passes on in a sentence that NumPy does not run on the processor."""
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy/__init__.py").write_text(f'raise RuntimeError("{BASELINE}")\n')
    assert "needs a processor with x86-64-v2" in _refused(CLI, path=str(tmp_path))


@pytest.mark.parametrize("command", [ONE_FILE, CLI], ids=["one file", "command"])
@pytest.mark.parametrize("library", one_file_start.LIBRARIES)
def test_a_library_that_is_missing(library: str, command: tuple[str, ...], root: None) -> None:
    """It is named, and so is the package of Debian that has it."""
    require("unshare")
    loaded = subprocess.run(["ldconfig", "-p"], check=True, capture_output=True, text=True).stdout
    (place,) = {line.split()[-1] for line in loaded.splitlines() if f"{library} (libc6,x86-64)" in line}
    said = _refused(command, over=place, by=Path("/dev/null"))
    assert library in said and "apt install libstdc++6" in said
