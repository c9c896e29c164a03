"""What the one file unpacked, after something else removed a part of it. The archive is a small one here."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from durability_client.agent import service
from release.one_file_start import EXIT_ENVIRONMENT
from tests.places import ROOT

pytestmark = pytest.mark.slow

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
PROGRAM = "import helper\n\ndef main():\n    print(helper.WORD)\n"
PACKAGES = f"lib/python{VERSION}/site-packages"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """The command `durability`, which prints a word."""
    path = tmp_path / "durability.pyz"
    with zipfile.ZipFile(path, "w") as packed:
        for name, text in (
            ("durability_cli/__init__.py", ""),
            ("durability_cli/main.py", PROGRAM),
            ("helper.py", 'WORD = "works"\n'),
            ("data/word.txt", "word"),
        ):
            packed.writestr(f"{VERSION}/{name}", text)
    return path


def _started(archive: Path) -> subprocess.CompletedProcess[str]:
    """What comes of a start of the one file."""
    start = (
        "from pathlib import Path; from release import one_file_start;"
        f" one_file_start.main(Path({str(archive)!r}), 'build', ('{VERSION}',))"
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment = kept | {"XDG_CACHE_HOME": str(archive.parent / "cache")}
    return subprocess.run(
        [sys.executable, "-c", start], cwd=ROOT, env=environment, check=False, capture_output=True, text=True
    )


def _tree(archive: Path) -> Path:
    """Where it was unpacked."""
    (tree,) = (path for path in (archive.parent / "cache/durability/one-file").iterdir() if path.is_dir())
    return tree


@pytest.mark.parametrize("is_short", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        f"{PACKAGES}/helper.py",
        f"{PACKAGES}/data/word.txt",
        "bin/durability",
        "bin/python",
        "pyvenv.cfg",
    ],
)
def test_what_a_cleaner_removed_is_written_again(name: str, is_short: bool, archive: Path) -> None:
    """At the next start, in the same boot: it is named once, and all else stays as it is, because commands
    may run from there."""
    assert _started(archive).stdout == "works\n"
    tree = _tree(archive)
    file, kept = tree / name, tree / PACKAGES / "durability_cli/main.py"
    before = tree.stat().st_ino, kept.stat().st_ino
    content = file.read_bytes()
    file.unlink()
    if is_short and name != "bin/python":
        file.write_bytes(content[:1])
    again, third = _started(archive), _started(archive)
    assert again.stdout == third.stdout == "works\n", again.stderr
    assert f"durability: {file} is gone or damaged, writing it again\n" in again.stderr
    assert (file.read_bytes(), third.stderr) == (content, "")
    assert (tree.stat().st_ino, kept.stat().st_ino) == before
    assert [*tree.rglob("*.new")] == []


def test_a_directory_that_was_removed_is_there_again(archive: Path) -> None:
    """With all that lay in it."""
    assert _started(archive).stdout == "works\n"
    data = _tree(archive) / PACKAGES / "data"
    (data / "word.txt").unlink()
    data.rmdir()
    assert _started(archive).stdout == "works\n"
    assert (data / "word.txt").read_text() == "word"


@pytest.mark.parametrize(
    ("removed", "is_held", "stays"),
    [
        ((), False, False),  # only after a boot
        ((), True, True),
        (("checked",), True, True),
        (("checked", "used"), True, True),
        (("checked",), False, True),
    ],
)
def test_a_tree_in_use_is_mended_in_its_place(
    removed: tuple[str, ...], is_held: bool, stays: bool, archive: Path
) -> None:
    """A damaged tree is repaired in place if a running command uses it, or if a cleaner removed its marker or
    lock file. Only an unused tree after a boot is replaced."""
    assert _started(archive).stdout == "works\n"
    tree = _tree(archive)
    checked, used = (tree.with_name(f"{tree.name}.{name}") for name in ("checked", "used"))
    same_size, gone = tree / PACKAGES / "helper.py", tree / "bin/python"
    content = same_size.read_bytes()
    (tree / "mark").touch()
    same_size.write_bytes(content.replace(b"works", b"wrong"))
    gone.unlink()
    checked.write_text("00000000-0000-0000-0000-000000000000")
    with used.open() as locked:  # as by a command that runs from there
        if is_held:
            fcntl.flock(locked, fcntl.LOCK_SH)
        for name in removed:
            tree.with_name(f"{tree.name}.{name}").unlink()
        again, third = _started(archive), _started(archive)
    assert again.stdout == third.stdout == "works\n", again.stderr
    assert same_size.read_bytes() == content and gone.is_symlink()
    assert (tree / "mark").exists() == stays
    says = "gone or damaged, writing it again" if stays else "damaged, unpacking again"
    assert again.stderr.count(says) == 1 and third.stderr == ""
    assert {path.suffix for path in tree.parent.iterdir()} == {tree.suffix, ".lock", ".used", ".checked"}


def test_what_cannot_be_mended_in_its_place_is_unpacked_again(archive: Path) -> None:
    """A directory lies in the place of a file, and nothing says when the tree was compared. While a command
    runs from there, the start says what is wrong."""
    assert _started(archive).stdout == "works\n"
    tree = _tree(archive)
    file = tree / PACKAGES / "helper.py"
    file.unlink()
    file.mkdir()
    tree.with_name(f"{tree.name}.checked").unlink()
    with tree.with_name(f"{tree.name}.used").open() as locked:
        fcntl.flock(locked, fcntl.LOCK_SH)
        refused = _started(archive)
    assert refused.returncode == EXIT_ENVIRONMENT and "cannot unpack" in refused.stderr
    assert file.is_dir()
    again = _started(archive)
    assert again.stdout == "works\n" and file.is_file(), again.stderr


def test_a_one_file_on_a_file_system_without_programs(
    root: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemd could not start it there: the agent's unit starts Python with it."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "noexec", "durability-test", tmp_path], check=True)
    try:
        file = tmp_path / "durability.pyz"
        file.touch(mode=0o755)
        monkeypatch.setenv(service.ONE_FILE_VARIABLE, str(file))
        (line,) = (one for one in service.unit([]).splitlines() if one.startswith("ExecStart="))
    finally:
        subprocess.run(["umount", tmp_path], check=True)
    assert line.endswith(f" {file} agent") and Path(line.removeprefix("ExecStart=").split()[0]).exists()
