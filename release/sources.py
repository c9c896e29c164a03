"""The sources of a release: what is committed, nothing else, with the files that packages install beside it.

Whatever lies in the working tree and is not committed is left out, so a release can be made again from its
commit alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]
_LAYERS = (".", "cli", "server", "client", "lab")


@dataclass(frozen=True)
class Sources:
    """The tree of one commit in `directory`, and the time of that commit in seconds since the epoch."""

    directory: Path
    committed_at_s: int

    @cached_property
    def version(self) -> str:
        """The version that the sources say they are."""
        return self.output(sys.executable, "-c", "import durability; print(durability.__version__)").strip()

    @property
    def share(self) -> Path:
        """Manual pages and completions, as they lie below `share` of a prefix."""
        return self.directory / "share"

    @property
    def environment(self) -> Mapping[str, str]:
        """For programs that build: these sources come first, and files are dated by the commit."""
        path = os.pathsep.join(str(self.directory / layer) for layer in _LAYERS)
        return os.environ | {"SOURCE_DATE_EPOCH": str(self.committed_at_s), "PYTHONPATH": path}

    def output(self, *command: str | Path) -> str:
        """What a program prints that runs in the sources. Raises CalledProcessError, which has it too."""
        return subprocess.run(
            command,
            cwd=self.directory,
            env=self.environment,
            umask=0o022,  # the rights of files are the same whoever builds
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ).stdout


def check_out(directory: Path, tree: str = "HEAD") -> Sources:
    """The sources of the commit that is checked out, or of another `tree` of files, in a new `directory`."""
    archive = directory.with_suffix(".tar")
    _git("-c", "tar.umask=0022", "archive", f"--output={archive}", tree)
    with tarfile.open(archive) as tar:
        tar.extractall(directory, filter="data")
    archive.unlink()
    sources = Sources(directory, int(_git("log", "-1", "--format=%ct")))
    sources.output(sys.executable, "-m", "release.share", "share", str(sources.committed_at_s))
    return sources


def uncommitted() -> list[str]:
    """Files of the working tree that differ from the commit, and so are not in the release."""
    return _git("status", "--porcelain").splitlines()


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
