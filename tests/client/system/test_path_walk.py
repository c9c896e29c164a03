"""Symbolic links on the way to a file: whose are followed, and whose are not."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from durability.errors import SetupError
from durability_client.system.path_walk import place_of, real_path
from durability_client.target.kernel_storage import KernelStorage

MALLORY, ALICE = 1234, 4321  # users, who need no account
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="giving links to other users needs root")


def _link(path: Path, to: Path, owner: int) -> Path:
    path.symlink_to(to)
    os.lchown(path, owner, owner)
    return path


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A directory like /tmp."""
    directory = tmp_path / "shared"
    directory.mkdir()
    directory.chmod(0o1777)
    return directory


@AS_ROOT
@pytest.mark.lab
def test_a_link_that_another_user_planted_is_not_followed(shared: Path, tmp_path: Path) -> None:
    """A link planted by another user is refused by name: as the last part, on the way, behind an own link,
    and dangling."""
    (tmp_path / "theirs").mkdir()
    planted = _link(shared / "planted", tmp_path / "theirs", MALLORY)
    _link(shared / "dangling", tmp_path / "nothing", MALLORY)
    (tmp_path / "own").symlink_to(planted)
    for path in (
        planted,
        planted / "file",
        shared / "dangling",
        tmp_path / "own",
        tmp_path / "own" / "file",
        shared / ".." / "shared" / "planted" / "file",
    ):
        with pytest.raises(
            SetupError, match=rf"is a symbolic link of user {MALLORY}, expected one of this user"
        ):
            real_path(path)
        with pytest.raises(SetupError, match="so it is not followed"):
            KernelStorage(path)
    with place_of(planted) as place:  # what replaces a name need not follow it
        assert place.path == planted
    with pytest.raises(SetupError), place_of(planted / "file"):
        pass


@AS_ROOT
@pytest.mark.lab
def test_links_of_the_user_of_root_and_of_the_directorys_owner_are_followed(
    shared: Path, tmp_path: Path
) -> None:
    """In a home that root visits, in /tmp and in /dev/disk/by-id links work as ever."""
    home, disk = tmp_path / "home", tmp_path / "disk"
    home.mkdir()
    disk.mkdir()
    os.chown(home, ALICE, ALICE)
    assert real_path(_link(home / "disk", disk, ALICE) / "t") == disk / "t"
    assert real_path(_link(shared / "mine", disk, os.geteuid()) / "t") == disk / "t"
    with tempfile.TemporaryDirectory() as directory:  # pytest's own is below one that only root may enter
        os.chown(directory, ALICE, ALICE)
        by_root = _link(Path(directory, "by-root"), Path("/"), 0)
        os.seteuid(ALICE)
        try:
            assert real_path(by_root) == Path("/")
        finally:
            os.seteuid(0)


def test_paths_are_resolved_as_the_system_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chains, `..` behind links, relative and absolute links, loops, and what does not exist."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "file").touch()
    (tmp_path / "to-b").symlink_to(Path("a", "b"))
    (tmp_path / "to-file").symlink_to(tmp_path / "to-b" / ".." / "file")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("a/none/there")
    monkeypatch.chdir(tmp_path)
    for text in (
        *("to-b", "to-b/..", "to-b/../file", "to-file", "./a//b/", "a/none", "a/none/../x", "dangling", "."),
        *("..", "loop", "a/file/below", str(tmp_path / "to-b" / "new"), "/", "/..", "/dev/fd/0/x"),
    ):
        assert real_path(text) == Path(os.path.realpath(text)), text
