"""The root file system, and another one than last time: asked about at a terminal, refused elsewhere."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from durability.errors import TargetError
from durability_client.target import discovery, remembered_places
from durability_client.target.remembered_places import check
from tests.joined import credential_of_nobody

COMMAND = str(Path(sys.executable).with_name("durability"))
DEADLINE_S = 120
SMALL = ("--quick", "--only", "fdatasync-memory", "--size", "64MiB", "--wait", "0")


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment with a state directory of its own, which this process has too; its client has joined a
    server that is not there."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "credential.json"
    credential_of_nobody(path)
    return {**os.environ, "COLUMNS": "1000", "DURABILITY_CREDENTIAL": str(path)}


@pytest.fixture
def root_directory() -> Iterator[Path]:
    """A directory on the root file system."""
    home = Path("/var/tmp")
    if not discovery.is_on_root(home) or not os.access(home, os.W_OK):
        pytest.skip(f"{home} is not on the root file system")
    directory = home / f"durability-test-{os.getpid()}"
    directory.mkdir()
    try:
        yield directory
    finally:
        for entry in directory.iterdir():
            entry.unlink()
        directory.rmdir()


@contextmanager
def _disk(device: Path, directory: Path) -> Iterator[None]:
    subprocess.run(("mount", device, directory), check=True)
    try:
        yield
    finally:
        subprocess.run(("umount", directory), check=True)


def _format(device: Path) -> Path:
    subprocess.run(("mkfs.ext4", "-q", "-F", device), check=True)
    return device


def _at_terminal(environment: dict[str, str], typed: bytes, *arguments: str | Path) -> tuple[int, str]:
    """Exit code and output of a command at a terminal, at which a person types once it is asked."""
    child, terminal = pty.fork()
    if child == 0:
        os.execve(COMMAND, [COMMAND, *map(str, arguments)], environment)
    said = b""
    try:
        while True:
            ready, _, _ = select.select([terminal], [], [], DEADLINE_S)
            assert ready, said
            try:
                data = os.read(terminal, 65536)
            except OSError:  # the other end is closed
                break
            said += data
            if b"yes or no: " in said and typed:
                os.write(terminal, typed)
                typed = b""
    finally:
        _, status = os.waitpid(child, 0)
        os.close(terminal)
    return os.waitstatus_to_exitcode(status), said.decode(errors="replace")


@pytest.mark.slow
def test_the_root_file_system_takes_force(environment: dict[str, str], root_directory: Path) -> None:
    """Without a terminal `bench` and `run` say what they found, expected and want typed; nothing is made."""
    for command in (("bench", root_directory, *SMALL), ("run", root_directory / "target")):
        done = subprocess.run(
            (COMMAND, *command),
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert (done.returncode, done.stdout) == (5, "")
        assert f"{command[1]} is on the root file system (" in done.stderr
        assert "expected a file system that is mounted for the test" in done.stderr
        assert "mount the right file system, or add --force to write there" in done.stderr
        assert not list(root_directory.iterdir())
    done = subprocess.run(
        (COMMAND, "bench", root_directory, *SMALL, "--force"),
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "code"), [(b"yes\n", 0), (b"y\n", 0), (b"no\n", 5), (b"\n", 5), (b"\x04", 5), (b"\x03", 130)]
)
def test_a_person_is_asked(
    environment: dict[str, str], root_directory: Path, typed: bytes, code: int
) -> None:
    """One word is enough; no word, the end of the input and Ctrl-C write nothing."""
    got, said = _at_terminal(environment, typed, "bench", root_directory, *SMALL)
    assert got == code, said
    assert "Write there? Type yes or no:" in said
    assert "Traceback" not in said
    if code == 5:
        assert "add --force to write there" in said
    assert not list(root_directory.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(("typed", "code"), [(b"yes\n", 5), (b"\x03", 130)])
def test_run_asks_too(environment: dict[str, str], root_directory: Path, typed: bytes, code: int) -> None:
    """In its event loop; after a yes it goes on, here to a server that is not there."""
    got, said = _at_terminal(environment, typed, "run", root_directory / "t")
    assert got == code, said
    assert ("127.0.0.1" in said) == (code == 5)
    assert "Traceback" not in said


@pytest.mark.slow
def test_a_path_cannot_hide_the_question(environment: dict[str, str], root_directory: Path) -> None:
    """Its control characters do not reach the terminal."""
    target = root_directory / "\x1b[2J\u202e"
    target.touch()
    got, said = _at_terminal(environment, b"no\n", "bench", target, *SMALL)
    assert (got, "\x1b[2J" in said, "\u202e" in said) == (5, False, False)
    assert "Write there?" in said


def test_an_unmounted_mount_point_is_refused(
    environment: dict[str, str], make_loop: Callable[..., Path], tmp_path: Path
) -> None:
    """A target that was tested on a disk is refused on the root file system. A yes or --force for the root
    file system does not change the remembered disk."""
    directory = tmp_path / "mount"
    directory.mkdir()
    if not discovery.is_on_root(directory):
        pytest.skip(f"{tmp_path} is not on the root file system")
    first, second = _format(make_loop()), _format(make_loop())
    with _disk(first, directory):
        check(directory / "t", directory, force=False)
        check(directory / "t", directory, force=False)
    words = f"on the root file system .*expected ext4 on {first} .*as last time"
    for _ in range(2):
        with pytest.raises(TargetError, match=words):
            check(directory / "t", directory, force=False)
        check(directory / "t", directory, force=True)
    with _disk(first, directory):
        check(directory / "other", directory, force=False)
    with _disk(second, directory):
        words = rf"on another file system than last time \(ext4 on {second} .*\), expected ext4 on {first}"
        with pytest.raises(TargetError, match=words):
            check(directory / "t", directory, force=False)
        check(directory / "t", directory, force=True)
        check(directory / "t", directory, force=False)


def test_a_disk_with_another_name_is_the_same(
    environment: dict[str, str], make_loop: Callable[..., Path], tmp_path: Path
) -> None:
    """After a boot a drive may have another name: its file system's UUID counts."""
    directory = tmp_path / "mount"
    directory.mkdir()
    first, second, other = _format(make_loop()), make_loop(), _format(make_loop())
    with _disk(first, directory):
        check(directory, directory, force=False)
    second.write_bytes(first.read_bytes())
    with _disk(second, directory):
        check(directory, directory, force=False)
    with _disk(other, directory), pytest.raises(TargetError, match="on another file system than last time"):
        check(directory, directory, force=False)


@pytest.mark.parametrize(
    "content", [b"", *(b'{"schema": "durability.places/1", ' + rest for rest in (b"", b'"places": 5}'))]
)
def test_a_damaged_memory_refuses_nothing(
    environment: dict[str, str], memory_path: Path, content: bytes
) -> None:
    """A damaged file of remembered places counts as empty, and is written again."""
    if discovery.is_on_root(memory_path):
        pytest.skip("no memory file system here")
    places = Path(environment["XDG_STATE_HOME"], "durability", "places.json")
    places.parent.mkdir(parents=True)
    places.write_bytes(content)
    check(memory_path, memory_path, force=False)
    assert str(memory_path) in places.read_text()


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"places": {"/": 1}}', b"[" * 100_000])
@pytest.mark.parametrize("linked", [False, True])
def test_what_is_not_the_memory_is_not_replaced(
    environment: dict[str, str],
    memory_path: Path,
    capsys: pytest.CaptureFixture[str],
    content: bytes,
    linked: bool,
) -> None:
    """A file that is not the memory of places is not replaced, directly or through a link. The target is
    accepted with a warning."""
    if discovery.is_on_root(memory_path):
        pytest.skip("no memory file system here")
    places = Path(environment["XDG_STATE_HOME"], "durability", "places.json")
    places.parent.mkdir(parents=True)
    file = places.with_name("other") if linked else places
    file.write_bytes(content)
    if linked:
        places.symlink_to(file)
    check(memory_path, memory_path, force=False)
    assert "warning: the file system of the target is not remembered" in capsys.readouterr().err
    assert (file.read_bytes(), places.is_symlink()) == (content, linked)


def test_a_state_directory_that_cannot_be_written_refuses_nothing(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the target's file system cannot be remembered, the target is accepted with a warning."""
    if discovery.is_on_root(memory_path):
        pytest.skip("no memory file system here")
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/none")
    check(memory_path, memory_path, force=False)
    assert "warning: the file system of the target is not remembered" in capsys.readouterr().err


def test_the_memory_is_bounded(
    environment: dict[str, str], memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Directories that are gone are forgotten first."""
    if discovery.is_on_root(memory_path):
        pytest.skip("no memory file system here")
    monkeypatch.setattr(remembered_places, "_PLACES_MAX", 3)
    kept = memory_path / "kept"
    for name in ("kept", "a", "b", "c", "d"):
        directory = memory_path / name
        directory.mkdir()
        check(directory, directory, force=False)
        if directory != kept:
            directory.rmdir()
    places = Path(environment["XDG_STATE_HOME"], "durability", "places.json").read_text()
    assert str(kept) in places and str(memory_path / "a") not in places
