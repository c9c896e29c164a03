"""What tests of the release need of the machine, and the command line as packages install it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from release.make_release import Release
from tests.places import ROOT

COMMAND = Path(sys.executable).with_name("durability")


def require(*programs: str) -> None:
    """Skips where one of these is not installed, unless DURABILITY_LAB_REQUIRED=1 says that it must be."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing and os.environ.get("DURABILITY_LAB_REQUIRED") != "1":
        pytest.skip(f"not installed: {', '.join(missing)}")
    assert missing == [], missing


@pytest.fixture(scope="session")
def shells_and_man() -> None:
    """Shells that complete commands, and programs that read manual pages."""
    require("bash", "zsh", "fish", "man", "mandoc")


@pytest.fixture(scope="session")
def root() -> None:
    """Skips without root, unless DURABILITY_LAB_REQUIRED=1 says that it must be there."""
    if os.geteuid() != 0 and os.environ.get("DURABILITY_LAB_REQUIRED") != "1":
        pytest.skip("needs root")
    assert os.geteuid() == 0


@pytest.fixture
def command_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """`durability` is the command of this environment."""
    monkeypatch.setenv("PATH", f"{COMMAND.parent}:{os.environ['PATH']}")


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """git works here: also in a checkout that belongs to another user, and in a copy without a history."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("COUNT", "1"), ("KEY_0", "safe.directory"), ("VALUE_0", "*")):
            patch.setenv(f"GIT_CONFIG_{name}", value)
        if subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=ROOT, check=False, capture_output=True
        ).returncode:
            patch.setenv("GIT_DIR", str(tmp_path_factory.mktemp("repository") / ".git"))
            patch.setenv("GIT_WORK_TREE", str(ROOT))
            who = ("-c", "user.name=test", "-c", "user.email=test@example.org")
            for command in (["init"], ["add", "--all"], [*who, "commit", "--message=all"]):
                subprocess.run(["git", *command], cwd=ROOT, check=True, capture_output=True)
        yield


@pytest.fixture(scope="session")
def tree(repository: None, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The files that are tested, committed or not, as git's name of a tree."""
    index = {"GIT_INDEX_FILE": str(tmp_path_factory.mktemp("git") / "index")}
    for command in (["read-tree", "HEAD"], ["add", "--all"], ["write-tree"]):
        done = subprocess.run(
            ["git", *command], cwd=ROOT, env=os.environ | index, check=True, capture_output=True, text=True
        )
    return done.stdout.strip()


@pytest.fixture(scope="session")
def release(tree: str, tmp_path_factory: pytest.TempPathFactory) -> Release:
    """A release of the files that are tested."""
    made = Release(tmp_path_factory.mktemp("release"), tree)
    made.make(("wheel",))
    return made
