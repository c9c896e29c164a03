"""Files that commands make: nothing is overwritten, and no link that another planted leads them elsewhere."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from durability.errors import SetupError
from durability_client.system import output_files
from tests.file_limits import files_of_at_most

MALLORY = 1234
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="giving links to other users needs root")


def _is_report(head: bytes) -> bool:
    return head.startswith(b"report")


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    """A directory like /tmp, in which nothing else is left in the end than what tests name."""
    directory = tmp_path / "shared"
    directory.mkdir()
    directory.chmod(0o1777)
    yield directory
    assert not list(directory.glob(".*"))  # temporary files


def test_a_new_file_is_made_and_no_other_is_overwritten(shared: Path) -> None:
    """A new file is made, and an existing one is not overwritten, except an empty file such as mktemp
    makes."""
    path = shared / "result.json"
    output_files.check_new(path, "a result")
    output_files.create(path, b"1", "a result")
    assert path.read_bytes() == b"1" and path.stat().st_mode & 0o777 == 0o666 & ~os.umask(os.umask(0o022))
    words = f"{path} exists, so it is not overwritten; name another file"
    with pytest.raises(SetupError, match=words):
        output_files.check_new(path, "a result")
    with pytest.raises(SetupError, match=words):
        output_files.create(path, b"2", "a result")
    assert path.read_bytes() == b"1"
    empty = shared / "tmp.1234"
    empty.touch(0o600)
    output_files.create(empty, b"3", "a result")
    assert empty.read_bytes() == b"3" and empty.stat().st_mode & 0o777 == 0o600


def test_only_a_file_of_the_same_kind_is_replaced(shared: Path, tmp_path: Path) -> None:
    """An earlier report is; a stranger's file is not; a link of one's own stays and leads to the new one."""
    report, thesis, link = shared / "report", shared / "thesis", tmp_path / "link"
    output_files.replace(report, b"report of yesterday", "a report", _is_report)
    thesis.write_bytes(b"years of work")
    link.symlink_to(report)
    output_files.replace(link, b"report of today", "a report", _is_report)
    assert report.read_bytes() == b"report of today" and link.is_symlink()
    words = "exists and is not a report of this tool, so it is not overwritten"
    with pytest.raises(SetupError, match=words):
        output_files.check_replaceable(thesis, "a report", _is_report)
    with pytest.raises(SetupError, match=words):
        output_files.replace(thesis, b"report", "a report", _is_report)
    assert thesis.read_bytes() == b"years of work"


@AS_ROOT
@pytest.mark.lab
def test_planted_links_lead_nowhere(shared: Path, tmp_path: Path) -> None:
    """To a file, to nothing and on the way: refused, and what they name is neither made nor replaced."""
    victim = tmp_path / "shadow"
    victim.write_bytes(b"report of root's")
    for name, to in (("file", victim), ("nothing", tmp_path / "cron"), ("directory", tmp_path)):
        (shared / name).symlink_to(to)
        os.lchown(shared / name, MALLORY, MALLORY)
    for path in (
        shared / "file",
        shared / "nothing",
        shared / "directory" / "shadow",
        shared / "directory/new",
    ):
        with pytest.raises(SetupError, match=r"is a symbolic link"):
            output_files.create(path, b"x", "a result")
        with pytest.raises(SetupError, match="is a symbolic link of user 1234"):
            output_files.check_replaceable(path, "a report", _is_report)
        with pytest.raises(SetupError, match="is a symbolic link of user 1234"):
            output_files.replace(path, b"x", "a report", _is_report)
    assert victim.read_bytes() == b"report of root's"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["shadow", "shared"]


def test_a_link_is_no_new_file(shared: Path, tmp_path: Path) -> None:
    """A result is not written through a symbolic link with the result's name. A link in its directory's path
    is followed."""
    (shared / "latest").symlink_to(tmp_path / "result")
    with pytest.raises(SetupError, match="is a symbolic link, expected a name that is free"):
        output_files.create(shared / "latest", b"x", "a result")
    (tmp_path / "directory").mkdir()
    (shared / "own").symlink_to(tmp_path / "directory")
    output_files.create(shared / "own" / "result", b"x", "a result")
    assert (tmp_path / "directory" / "result").read_bytes() == b"x"


@AS_ROOT
def test_a_log_is_appended_to_and_not_through_a_link(shared: Path, tmp_path: Path) -> None:
    """Lines are appended to an existing log. A link planted by another user and a device are refused."""
    log, planted, shadow = shared / "log", shared / "planted", tmp_path / "shadow"
    for line in (b"1\n", b"2\n"):
        with output_files.to_append(log, "a log") as file:
            file.write(line)
    assert log.read_bytes() == b"1\n2\n"
    shadow.write_bytes(b"")
    planted.symlink_to(shadow)
    os.chown(planted, MALLORY, MALLORY, follow_symlinks=False)
    with pytest.raises(SetupError):
        output_files.to_append(planted, "a log")
    with pytest.raises(SetupError, match="not a regular file"):
        output_files.to_append(Path("/dev/null"), "a log")
    assert shadow.read_bytes() == b""


@pytest.mark.parametrize("race", ["file", "link"])
def test_a_name_that_appears_meanwhile_is_not_overwritten(
    shared: Path, tmp_path: Path, race: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file or link made during the write is not overwritten or followed."""
    path, sync = shared / "result", os.fsync

    def appear(fd: int) -> None:
        if race == "file":
            path.write_bytes(b"theirs")
        else:
            path.symlink_to(tmp_path / "elsewhere")
        sync(fd)

    monkeypatch.setattr(os, "fsync", appear)
    with pytest.raises(SetupError, match="was made by another program meanwhile, so it is not overwritten"):
        output_files.create(path, b"mine", "a result")
    assert not (tmp_path / "elsewhere").exists()
    assert race == "link" or path.read_bytes() == b"theirs"


def test_a_file_system_without_hard_links(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where link(2) fails as on vfat, a file is made as well, and not overwritten."""

    def no_link(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", no_link)
    output_files.create(shared / "result", b"1", "a result")
    with pytest.raises(SetupError, match="so it is not overwritten"):
        output_files.create(shared / "result", b"2", "a result")
    assert [entry.name for entry in shared.iterdir()] == ["result"]
    assert (shared / "result").read_bytes() == b"1"


def test_places_where_no_file_can_be(shared: Path) -> None:
    """Directories, FIFOs, and directories that do not exist: each with its sentence."""
    os.mkfifo(shared / "fifo")
    for path, words in (
        (shared, "is a directory; name a file in it"),
        (shared / "fifo", "a result cannot be written there"),
        (Path("/dev/null"), "a result cannot be written there"),
        (shared / "no" / "file", f"the directory {shared / 'no'} does not exist; create it first"),
        (shared / "fifo" / "file", "does not exist; create it first"),
    ):
        with pytest.raises(SetupError, match=words):
            output_files.check_new(path, "a result")
        with pytest.raises(SetupError, match=words):
            output_files.check_replaceable(path, "a result", _is_report)


def test_files_that_belong_together_are_replaced_together(shared: Path) -> None:
    """If there is no room for the last one, each is as it was."""
    paths = [shared / name for name in ("small", "large")]

    def write(*texts: str) -> None:
        output_files.replace_together(
            output_files.NewFile(
                path=path, data=b"report " + text.encode(), what="a report", is_ours=_is_report
            )
            for path, text in zip(paths, texts, strict=True)
        )

    write("1", "1")
    words = f"cannot write a report {paths[1]}: File too large"
    with pytest.raises(SetupError, match=words), files_of_at_most(100):
        write("2", "2" * 1000)
    assert [path.read_text() for path in paths] == ["report 1", "report 1"]
    write("3", "3" * 1000)
    assert [len(path.read_text()) for path in paths] == [8, 1007]
