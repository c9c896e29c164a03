"""Where an agent keeps mounts and marks: nobody else may lead it elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from durability.errors import SetupError, TargetBusyError
from durability_client.agent.agent_paths import AgentPaths, read_mark, write_mark
from tests.client.agent.task_server import Tasks, drive_on

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")


def test_the_directory_may_be_reached_by_a_link_of_roots(tmp_path: Path) -> None:
    """If the agent's directory is reached by a symbolic link, like /var/run, mount points have the resolved
    path."""
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "run")
    places = AgentPaths(tmp_path / "link" / "agent")
    task = Tasks((drive_on("/dev/sdb"),)).make("run")
    with places.held():
        assert places.mount_point(task, task.drives[0]) == tmp_path / "run/agent/mnt/nightly+d1"


def test_marks_are_of_one_store(tmp_path: Path) -> None:
    """Marks belong to one client id, so they do not count after the machine has joined a new store. The mount
    point is the same for both."""
    task = Tasks((drive_on("/dev/sdb"),)).make("run")
    (mine,) = task.drives
    old, new = (AgentPaths(tmp_path, client=client) for client in ("0a1b", "2c3d"))
    with old.held():
        write_mark(old.begun(task, mine), {"run": "00000000000000aa"})
        write_mark(old.mounted(task, mine), {"damage": ""})
    assert read_mark(old.begun(task, mine)) == {"run": "00000000000000aa"}
    assert old.ran_in_this_boot(task, mine) and not new.ran_in_this_boot(task, mine)
    assert read_mark(new.begun(task, mine)) is None and read_mark(new.mounted(task, mine)) is None
    assert old.mount_point(task, mine) == new.mount_point(task, mine)


def test_a_mark_of_release_0_1_is_found(tmp_path: Path) -> None:
    """An agent that replaces one of release 0.1 during a run finds the mark of that run, and begins no second
    run."""
    task = Tasks((drive_on("/dev/sdb"),)).make("run")
    (mine,) = task.drives
    places = AgentPaths(tmp_path, client="0a1b")
    with places.held():
        write_mark(tmp_path / "runs" / "nightly+d1+1", {"run": "00000000000000aa"})
    assert read_mark(places.begun(task, mine)) == {"run": "00000000000000aa"}
    assert places.ran_in_this_boot(task, mine)


def test_a_link_that_another_user_made_is_refused(tmp_path: Path) -> None:
    """Drives would be mounted wherever it leads."""
    (tmp_path / "link").symlink_to("/etc")
    os.chown(tmp_path / "link", 12345, 12345, follow_symlinks=False)
    with pytest.raises(SetupError, match="is a symbolic link of user 12345"):
        AgentPaths(tmp_path / "link" / "agent")


@pytest.mark.parametrize(("owner", "mode"), [(12345, 0o755), (0, 0o775), (0, 0o777)])
def test_a_directory_that_others_can_change_is_refused(tmp_path: Path, owner: int, mode: int) -> None:
    """A state directory that another user can change is refused, since that user could replace a mount point
    with a link."""
    directory = tmp_path / "agent"
    directory.mkdir()
    os.chown(directory, owner, owner)
    directory.chmod(mode)
    with pytest.raises(SetupError, match="can be changed by another user"), AgentPaths(directory).held():
        pass


def test_only_a_lock_that_is_held_shows_another_agent(tmp_path: Path) -> None:
    """Something else that would have to be waited for ends this agent under its own name."""
    busy = pytest.raises(TargetBusyError, match="another agent runs here")
    with AgentPaths(tmp_path).held(), busy, AgentPaths(tmp_path).held():
        pass
    reader, writer = os.pipe2(os.O_NONBLOCK)
    with pytest.raises(BlockingIOError), AgentPaths(tmp_path).held():
        os.read(reader, 1)
    os.close(reader)
    os.close(writer)
    with AgentPaths(tmp_path).held():
        pass


def test_a_new_directory_is_roots_whatever_the_umask(tmp_path: Path) -> None:
    """The agent makes it, after each boot."""
    before = os.umask(0)
    try:
        with AgentPaths(tmp_path / "agent").held():
            assert (tmp_path / "agent").stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(before)
