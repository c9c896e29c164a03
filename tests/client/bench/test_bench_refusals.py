"""What `durability bench` refuses, as scripts see it: exit code 5 or 2, one sentence, and nothing touched."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from durability.errors import DurabilityError
from durability_client.bench import saved_results
from tests.client.bench.test_bench_command import COMMAND, DEADLINE_S

SMALL = ("--quick", "--only", "headline", "--size", "16MiB", "--wait", "0")
MakeLoop = Callable[..., Path]
MakeMount = Callable[..., tuple[Path, Path]]


# As root, but no more than any owner: files that may not be read are not.
UNPRIVILEGED = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search") if os.geteuid() == 0 else ()

pytestmark = pytest.mark.slow  # each starts the program


_OTHERS = "warning: another measurement runs in"


def _refused(*arguments: str | Path, code: int = 5, prefix: tuple[str, ...] = ()) -> str:
    """The sentence with which the command ends; before it, it may say that another test measures as well."""
    done = subprocess.run(
        (*prefix, COMMAND, *arguments), check=False, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    *warnings, sentence = done.stderr.splitlines()
    assert all(_OTHERS in warning for warning in warnings), done.stderr
    assert sentence.startswith("durability: ")
    return sentence


def test_file_systems_that_cannot_be_written(make_mount: MakeMount) -> None:
    """Too full, or read-only: what there is and what it takes, and the file system keeps what it holds."""
    _, directory = make_mount()
    (directory / "precious").write_text("theirs")
    before = sorted(directory.iterdir())
    sentence = _refused("bench", directory, "--quick", "--size", "1GiB", "--wait", "0")
    assert "MiB free" in sentence and "free some space" in sentence
    subprocess.run(("mount", "-o", "remount,ro", directory), check=True)
    assert "mounted read-only; mount it read-write" in _refused("bench", directory, *SMALL)
    assert sorted(directory.iterdir()) == before
    assert (directory / "precious").read_text() == "theirs"


def test_files_that_may_not_be_read(tmp_path: Path) -> None:
    """An unreadable file is refused as an environment error with the file's name, as TARGET, for --show and
    for `compare`."""
    secret, other = tmp_path / "secret", tmp_path / "other"
    secret.write_text("theirs")
    secret.chmod(0)
    other.write_text("{}")
    for arguments in (
        ("bench", secret, *SMALL),
        ("bench", "--show", secret),
        ("compare", secret, other),
    ):
        sentence = _refused(*arguments, prefix=UNPRIVILEGED)
        assert str(secret) in sentence and "ermission" in sentence


def test_directories_that_may_not_be_searched(tmp_path: Path) -> None:
    """No result and no page can be kept there: said before anything is measured."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    for option, what in (("-o", "a result"), ("--html", "a page")):
        sentence = _refused("bench", tmp_path, *SMALL, option, closed / "file", prefix=UNPRIVILEGED)
        assert f"{closed / 'file'}: {what} cannot be written there: Permission denied" in sentence
    assert sorted(tmp_path.iterdir()) == [closed]


def test_a_page_never_replaces_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the one file is named twice."""
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "there.json").write_text("theirs")
    monkeypatch.chdir(tmp_path)
    for output, html in (
        ("r.json", tmp_path / "r.json"),
        (tmp_path / "link" / "r.json", "./r.json"),
        ("there.json", tmp_path / "link" / "there.json"),
    ):
        sentence = _refused("bench", tmp_path, *SMALL, "-o", output, "--html", html, code=2)
        assert "-o and --html name the same file" in sentence
    assert (tmp_path / "there.json").read_text() == "theirs"


def test_devices_that_are_somebodys(make_loop: MakeLoop, tmp_path: Path) -> None:
    """Without consent 2; mounted, held by others, or with a file system on it, 5; none is written."""
    device, directory = make_loop(), tmp_path / "mount"
    directory.mkdir()
    subprocess.run(("mkfs.ext4", "-q", device), check=True)
    before = device.read_bytes()
    assert "--destroy-data" in _refused("bench", device, *SMALL, code=2)
    assert "carries ext4" in _refused("bench", device, *SMALL, "--destroy-data")
    assert device.read_bytes() == before
    subprocess.run(("mount", device, directory), check=True)
    try:
        assert "is mounted at" in _refused("bench", device, *SMALL, "--destroy-data", "--force")
    finally:
        subprocess.run(("umount", directory), check=True)
    held = make_loop()
    fd = os.open(held, os.O_RDWR | os.O_EXCL)
    try:
        assert str(held) in _refused("bench", held, *SMALL, "--destroy-data")
    finally:
        os.close(fd)
    assert not any(held.read_bytes())


def test_a_refused_run_leaves_the_output_alone(tmp_path: Path) -> None:
    """Nothing is made for -o before there is a result, and a file that exists is refused first."""
    output, theirs = tmp_path / "output.json", tmp_path / "theirs"
    theirs.write_text("precious")
    assert "exists and was not written by this tool" in _refused("bench", theirs, *SMALL, "-o", output)
    assert not output.exists()
    output.write_text("precious")
    sentence = _refused("bench", tmp_path, *SMALL, "-o", output)
    assert f"{output} exists, so it is not overwritten; name another file" in sentence
    assert output.read_text() == theirs.read_text() == "precious"


@pytest.mark.parametrize("what", ["garbage", "empty", "truncated", "newer", "deep", "directory"])
def test_files_that_are_no_results(tmp_path: Path, what: str) -> None:
    """A file that is not a result gives a sentence with its name and never a traceback, for --show and
    `compare`."""
    seed = random.SystemRandom().getrandbits(32)
    path = tmp_path / f"{what}-{seed}.json"
    contents = {
        "garbage": random.Random(seed).randbytes(10_000),
        "empty": b"",
        "truncated": b'{"schema":"durability.bench/1","software":"durab',
        "newer": b'{"schema":"durability.bench/9"}',
        "deep": b"[" * 600_000,
    }
    if what == "directory":
        path.mkdir()
    else:
        path.write_bytes(contents[what])
    with pytest.raises(DurabilityError, match=path.name) as caught:
        saved_results.load(path)
    assert caught.value.exit_code == 5
    if what == "garbage":
        for arguments in (("bench", "--show", path), ("compare", path, path)):
            assert path.name in _refused(*arguments)
