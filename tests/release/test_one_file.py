"""The one file: used as people use it, and started where something has gone wrong before."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from release import bundle, one_file, one_file_start
from release.make_release import Release
from release.programs import Programs
from tests.joined import credential_of_nobody
from tests.places import ROOT
from tests.release.real_cut import lose_at_a_real_cut
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
_NOBODY = 65534


@pytest.fixture(scope="module")
def archive(release: Release) -> Path:
    """The one file of the sources under test."""
    bundles = {python: release.bundle(python) for python in bundle.PYTHONS}
    return one_file.make(release.sources, bundles, release.directory)


@pytest.fixture(scope="module")
def cache(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in which it has been unpacked, for tests that leave it whole."""
    directory = tmp_path_factory.mktemp("cache")
    assert _started(archive, directory).returncode == 0
    return directory


def _environment(cache: Path, **more: str) -> dict[str, str]:
    """That of a user who has no other installation."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return kept | {"XDG_CACHE_HOME": str(cache)} | more


def _started(
    archive: Path, cache: Path, *words: str | Path, python: str | Path = sys.executable, **more: str
) -> subprocess.CompletedProcess[str]:
    """What comes of the one file with some words, by default `--version`."""
    return subprocess.run(
        [python, archive, *(words or ("--version",))],
        env=_environment(cache, **more),
        check=False,
        capture_output=True,
        text=True,
        timeout=200,
    )


def _tree(cache: Path) -> Path:
    """Where it was unpacked."""
    (tree,) = (path for path in (cache / "durability/one-file").iterdir() if path.is_dir())
    return tree


def _packages(cache: Path) -> Path:
    return _tree(cache) / f"lib/python{VERSION}/site-packages"


def _forget_the_boot(cache: Path) -> None:
    """Make the next start one in another boot."""
    (checked,) = (cache / "durability/one-file").glob("*.checked")
    checked.write_text("00000000-0000-0000-0000-000000000000")


def test_it_unpacks_once(archive: Path, tmp_path: Path) -> None:
    """The first start says what it does on stderr; the second is silent, and both print only the answer."""
    first, second = _started(archive, tmp_path), _started(archive, tmp_path)
    assert first.stdout == second.stdout and first.stdout.startswith("durability ")
    assert re.fullmatch(r"durability: unpacking \d+ MB to \S+, once\n", first.stderr)
    assert second.stderr == ""
    assert {path.stat().st_mode & 0o077 for path in tmp_path.rglob("*") if not path.is_symlink()} <= {
        0,
        0o055,
    }


def test_it_is_started_by_its_path(archive: Path, cache: Path, tmp_path: Path) -> None:
    """The file can be started by its path, because its first line finds Python. The agent's unit has its
    absolute path."""
    credential_of_nobody(tmp_path / "credential.json")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = _environment(cache, PATH=path, DURABILITY_CREDENTIAL=str(tmp_path / "credential.json"))
    said = [
        subprocess.run(
            [f"./{archive.name}", *words],
            cwd=archive.parent,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for words in (("--version",), ("agent", "install", "--print"))
    ]
    assert said[0].startswith("durability ")
    assert re.search(rf"\nExecStart=(\S+ )?{re.escape(str(archive))} agent", said[1]), said[1]


def _interpreter(version: str) -> Path:
    """A Python of that version: this one, or one of this machine. Skips without one, and says so."""
    if version == VERSION:
        return Path(sys.executable)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    places = [*pyenv.glob(f"{version}.*/bin"), *map(Path, os.get_exec_path())]
    for python in (place / f"python{version}" for place in places):
        # pyenv also has scripts of that name, which end with an error.
        if (
            python.is_file()
            and not subprocess.run([python, "-c", ""], check=False, capture_output=True).returncode
        ):
            return python
    pytest.skip(f"PYTHON {version} WAS NOT TRIED: this machine has no python{version}")


@pytest.mark.parametrize("version", bundle.PYTHONS)
def test_it_has_what_the_command_needs(version: str, archive: Path, tmp_path: Path) -> None:
    """The demo, and the lab's simulated rig with its worker processes, run from it, with each Python that it
    is for and this machine has."""
    python = _interpreter(version)
    demo = _started(archive, tmp_path, "demo", "--seed", "1", python=python)
    assert demo.returncode == 0, demo.stderr
    assert "Each verdict is the expected one for its drive." in demo.stdout
    assert (_tree(tmp_path) / f"lib/python{version}/site-packages").is_dir()
    matrix = ("lab", "matrix", "--quick", "--rig", "a", "--only", "honest", "--cuts", "1", "--seed", "1")
    lab = _started(archive, tmp_path, *matrix, python=python)
    assert lab.returncode == 0, lab.stderr


@pytest.fixture
def server(archive: Path, cache: Path, tmp_path: Path) -> Iterator[dict[str, str]]:
    """`serve` from the one file, and the environment of its user."""
    own = {"XDG_STATE_HOME": str(tmp_path / "state"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    command = [sys.executable, str(archive), "serve", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        command, env=_environment(cache, **own), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("Listening on 127.0.0.1:")
            yield own
        finally:
            process.send_signal(signal.SIGTERM)
    assert process.returncode == 0


def test_join_run_and_verify(archive: Path, cache: Path, server: dict[str, str], tmp_path: Path) -> None:
    """A machine joins by the line that the server prints, writes until it is killed, and verifies."""
    invited = _started(archive, cache, "clients", "invite", **server)
    line = re.search(r"durability (join \S+ [0-9A-Z-]+)", invited.stdout)
    assert line, invited.stderr
    client = {
        "DURABILITY_CREDENTIAL": str(tmp_path / "credential.json"),
        "XDG_STATE_HOME": str(tmp_path / "b"),
    }
    joined = _started(archive, cache, *line[1].split(), **client)
    assert joined.returncode == 0, joined.stderr

    target = tmp_path / "durability.test"
    command = [sys.executable, str(archive), "run", str(target), "--size", "1M", "--json", "--force"]
    environment = _environment(cache, **client)
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as run:
        try:
            assert run.stdout is not None
            assert any((json.loads(line).get("acked") or 0) > 0 for line in run.stdout)
        finally:
            os.killpg(run.pid, signal.SIGKILL)
    verified = _started(archive, cache, "verify", target, "--json", **client)
    verdict = json.loads(verified.stdout)
    assert (verified.returncode, verdict["verdict"]) == (4, "inconclusive"), verified.stderr  # no cut


@pytest.mark.timeout(600)
def test_a_real_cut(archive: Path, rig_machine: None, tmp_path: Path) -> None:
    """From a drive of its lab to the verdict, all commands are those of the one file."""
    lose_at_a_real_cut(Programs(None, tmp_path, starts=(sys.executable, archive)))


def test_the_agent_starts_from_the_file_at_each_boot(archive: Path, cache: Path, tmp_path: Path) -> None:
    """The unit's command is the one file, which compares what it unpacked, not what lies in the cache; it
    unpacks to the same place."""
    credential_of_nobody(tmp_path / "credential.json")
    own = {"DURABILITY_CREDENTIAL": str(tmp_path / "credential.json")}
    printed = _started(archive, cache, "agent", "install", "--print", **own)
    own_cache, one_file = re.escape(str(cache)), re.escape(str(archive))
    lines = rf"\nEnvironment=XDG_CACHE_HOME={own_cache}\nExecStart=(\S+ )?{one_file} agent"
    assert re.search(lines, printed.stdout), printed.stderr


@pytest.mark.parametrize("damage", ["changed", "short", "gone", "link"])
def test_a_damaged_cache_is_noticed_in_the_next_boot(damage: str, archive: Path, tmp_path: Path) -> None:
    """A file that a power cut left otherwise than it was written is named, and all is unpacked again."""
    _started(archive, tmp_path)
    file = _packages(tmp_path) / "durability/limits.py"
    whole = file.read_bytes()
    if damage == "changed":
        file.write_bytes(whole[:100] + b"\0" + whole[101:])
    elif damage == "short":
        file.write_bytes(whole[:100])
    else:
        file.unlink()
    if damage == "link":
        file.symlink_to("/dev/zero")
    _forget_the_boot(tmp_path)
    again = _started(archive, tmp_path)
    assert again.returncode == 0 and again.stdout.startswith("durability ")
    assert f"{file} is damaged, unpacking again" in again.stderr
    assert file.read_bytes() == whole


def test_what_python_compiled_does_not_survive_a_boot(archive: Path, tmp_path: Path) -> None:
    """A compiled file that was torn by a power cut would stop Python; it is removed before the next start."""
    _started(archive, tmp_path, PYTHONDONTWRITEBYTECODE="")
    (compiled,) = _packages(tmp_path).glob("durability/__pycache__/limits.*.pyc")
    compiled.write_bytes(compiled.read_bytes()[:16] + bytes(1000))
    assert _started(archive, tmp_path).returncode != 0
    _forget_the_boot(tmp_path)
    again = _started(archive, tmp_path, PYTHONDONTWRITEBYTECODE="1")
    assert (again.returncode, again.stderr) == (0, "")
    assert not compiled.exists()


def test_killed_while_it_unpacks(archive: Path, tmp_path: Path) -> None:
    """If the one-file tool is killed while it unpacks, the next start unpacks again and removes the partial
    tree."""
    with subprocess.Popen([sys.executable, archive, "--version"], env=_environment(tmp_path)) as process:
        wait_for(lambda: any(tmp_path.glob("durability/one-file/*.new/lib/*/*/*/*")))
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert _started(archive, tmp_path).stdout.startswith("durability ")
    left = {path.suffix for path in (tmp_path / "durability/one-file").iterdir()} - {_tree(tmp_path).suffix}
    assert left == {".lock", ".used", ".checked"}


def test_two_first_starts_at_once(archive: Path, tmp_path: Path) -> None:
    """One unpacks while the other waits, and both run."""
    starts = [
        subprocess.Popen(
            [sys.executable, archive, "--version"],
            env=_environment(tmp_path),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    said = [start.communicate() for start in starts]
    assert [start.returncode for start in starts] == [0, 0]
    assert "".join(errors for _, errors in said).count("unpacking") == 1


def test_a_home_that_cannot_be_written(archive: Path, cache: Path) -> None:
    """It says where it would unpack, why it cannot, and how to choose another directory, which then works."""
    refused = _started(archive, Path(), HOME="/proc", XDG_CACHE_HOME="")
    assert refused.returncode == one_file_start.EXIT_ENVIRONMENT
    assert refused.stderr.startswith("durability: cannot unpack to /proc/.cache/durability/one-file: ")
    assert "XDG_CACHE_HOME=/dev/shm" in refused.stderr
    assert _started(archive, cache, HOME="/proc").returncode == 0


def test_a_user_without_a_home(root: None) -> None:
    """A number that no user has, as in a container, is told what to set."""
    start = (
        "import os; from pathlib import Path; from release import one_file_start; os.setuid(54321);"
        f" one_file_start.main(Path('d.pyz'), '0', ('{VERSION}',))"
    )
    environment = {
        name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_CACHE_HOME")
    }
    done = subprocess.run(
        [sys.executable, "-c", start], cwd=ROOT, env=environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == one_file_start.EXIT_ENVIRONMENT
    assert "cannot unpack to ~/.cache: this user has no home directory. Set XDG_CACHE_HOME" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_disk_that_fills_up(archive: Path, tmp_path: Path) -> None:
    """An error midway ends with a sentence, and what was written until then is removed."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))"
    start = (
        f"{limit}; import os, sys; os.execv(sys.executable, [sys.executable, {str(archive)!r}, '--version'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", start], env=_environment(tmp_path), check=False, capture_output=True, text=True
    )
    assert done.returncode == one_file_start.EXIT_ENVIRONMENT
    assert "cannot unpack" in done.stderr and "File too large" in done.stderr
    assert {path.suffix for path in (tmp_path / "durability/one-file").iterdir()} == {".lock", ".used"}


def test_a_disk_without_room(archive: Path, root: None, tmp_path: Path) -> None:
    """It says how much it needs and how much is free before it writes anything."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=50m", "durability-test", tmp_path], check=True)
    try:
        done = _started(archive, tmp_path)
        left = {path.suffix for path in (tmp_path / "durability/one-file").iterdir()}
    finally:
        subprocess.run(["umount", tmp_path], check=True)
    assert done.returncode == one_file_start.EXIT_ENVIRONMENT
    assert re.search(r"it needs \d+ MB, and (49|50|51|52) MB are free", done.stderr)
    assert left == {".lock", ".used"}


def test_a_directory_of_another_user(archive: Path, root: None, tmp_path: Path) -> None:
    """Root does not run what another user may have put there."""
    directory = tmp_path / "durability/one-file"
    directory.mkdir(parents=True)
    os.chown(directory, 65534, 65534)
    done = _started(archive, tmp_path)
    assert done.returncode == one_file_start.EXIT_ENVIRONMENT
    assert "another user can change it" in done.stderr
    assert list(directory.iterdir()) == []


def _refused(cache: Path, first: str = "pass") -> str:
    """What a start says with this cache; the archive does not exist, so it unpacks nothing anyway. `first` is
    done before."""
    start = (
        f"{first}; from pathlib import Path; from release import one_file_start;"
        f" one_file_start.main(Path('/nowhere.pyz'), '0', ('{VERSION}',))"
    )
    command, environment = [sys.executable, "-c", start], _environment(cache)
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == one_file_start.EXIT_ENVIRONMENT
    return done.stderr


def test_a_home_without_locks(tmp_path: Path) -> None:
    """A home on NFS without its lock service has none: it says where to unpack instead. The kernel that says
    so is in this process."""
    no_locks = (
        "import errno, fcntl, os\ndef flock(*_): raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))\n"
        "fcntl.flock = flock"
    )
    said = _refused(tmp_path, no_locks)
    assert f"cannot unpack to {tmp_path}/durability/one-file: No locks available. Set XDG_CACHE_HOME" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("owner", "group", "mode"),
    [(_NOBODY, 0, 0o755), (0, _NOBODY, 0o775), (0, 0, 0o777)],
    ids=["owned", "group", "all"],
)
@pytest.mark.parametrize("parent", ["shared", "shared/cache", "shared/cache/durability"])
@pytest.mark.usefixtures("root")
def test_a_parent_that_another_user_can_change(
    parent: str, owner: int, group: int, mode: int, tmp_path: Path
) -> None:
    """Who can rename a directory above the cache can put another in its place: root does not unpack there."""
    directory = tmp_path / "shared/cache/durability/one-file"
    directory.mkdir(mode=0o700, parents=True)
    os.chown(tmp_path / parent, owner, group)
    (tmp_path / parent).chmod(mode)
    assert f"another user can change {tmp_path / parent}. Set" in _refused(tmp_path / "shared/cache")
    assert list(directory.iterdir()) == []


def test_a_link_of_another_user(root: None, tmp_path: Path) -> None:
    """It says where to unpack only as long as its owner likes; nothing is made where it points to."""
    shared, own = tmp_path / "shared", tmp_path / "own"
    shared.mkdir()
    shared.chmod(0o1777)
    own.mkdir()
    (shared / "durability").symlink_to(own)
    os.chown(shared / "durability", _NOBODY, _NOBODY, follow_symlinks=False)
    assert f"another user can change {shared / 'durability'}. Set" in _refused(shared)
    assert list(own.iterdir()) == []


@pytest.mark.parametrize("mode", [0o1777, 0o775], ids=["sticky", "umask 002"])
def test_a_parent_that_only_this_user_can_replace(mode: int, root: None, tmp_path: Path) -> None:
    """Memory for all, as /dev/shm, and directories of the user's own group will do, also behind a link of
    this user."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real").chmod(mode)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    made = tmp_path / "real/durability"
    assert f"cannot unpack to {made / 'one-file'}: No such file" in _refused(tmp_path / "link")
    assert [path.stat().st_mode & 0o777 for path in (made, made / "one-file")] == [0o700, 0o700]


def test_a_damaged_archive(archive: Path, tmp_path: Path) -> None:
    """A copy with a damaged part ends with a sentence, and nothing is left of what was unpacked."""
    with zipfile.ZipFile(archive) as opened:
        own = [one for one in opened.infolist() if VERSION in one.filename.partition("/")[0].split("+")]
    largest = max(own, key=lambda one: one.compress_size)
    content = bytearray(archive.read_bytes())
    middle = largest.header_offset + largest.compress_size // 2
    content[middle : middle + 1000] = bytes(1000)
    copy = tmp_path / "copy.pyz"
    copy.write_bytes(content)
    done = _started(copy, tmp_path)
    assert done.returncode == one_file_start.EXIT_ENVIRONMENT
    assert f"{copy} is damaged" in done.stderr and "copy it again" in done.stderr
    assert {path.suffix for path in (tmp_path / "durability/one-file").iterdir()} == {".lock", ".used"}


@pytest.mark.parametrize("python", ["2.7", "3.6", "3.10"])
def test_a_python_that_is_too_old(python: str, archive: Path) -> None:
    """It says which Python it needs; no other Python is on the PATH here."""
    major, minor = python.split(".")
    start = (
        f"import sys, runpy; sys.version_info = ({major}, {minor}, 0);"
        f" sys.argv = [{str(archive)!r}]; runpy.run_path({str(archive)!r}, run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", start],
        env={"PATH": "/nonexistent"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    expected = f"durability: this file needs Python 3.11 or later, and {sys.executable} is Python {python}\n"
    assert done.stderr == expected


def test_a_python_that_is_too_new(archive: Path, tmp_path: Path) -> None:
    """It says for which versions it was made."""
    start = (
        f"import sys; sys.path.insert(0, {str(archive)!r}); import one_file_start; from pathlib import Path;"
        " one_file_start.main(Path('d.pyz'), '0', ('3.8', '3.9'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", start], env=_environment(tmp_path), check=False, capture_output=True, text=True
    )
    assert done.returncode == one_file_start.EXIT_ENVIRONMENT
    assert done.stderr.startswith("durability: this file is for Python 3.8 to 3.9, and ")
    assert done.stderr.endswith("start it with another Python, as in  python3.9 d.pyz\n")


def test_two_builds_of_the_file_are_alike(release: Release, archive: Path, tmp_path: Path) -> None:
    """The same bundles give the same bytes."""
    bundles = {python: release.bundle(python) for python in bundle.PYTHONS}
    (tmp_path / "out").mkdir()
    assert one_file.make(release.sources, bundles, tmp_path / "out").read_bytes() == archive.read_bytes()


def test_other_versions_are_removed_after_a_month(archive: Path, cache: Path) -> None:
    """Another version is removed a month after its last start, unless a command still runs from it."""
    directory = cache / "durability/one-file"
    ages_days = {"old": 40, "running": 40, "recent": 20}
    for name, days in ages_days.items():
        (directory / name / "bin").mkdir(parents=True)
        (directory / f"{name}.checked").write_text("a boot")
        used = directory / f"{name}.used"
        used.touch()
        os.utime(used, times=(0, time.time() - days * 86_400))
    with (directory / "running.used").open("r+b") as opened:
        fcntl.flock(opened, fcntl.LOCK_SH)
        done = _started(archive, cache)
    assert done.returncode == 0 and f"removing {directory / 'old'}," in done.stderr
    assert {name: (directory / name).exists() for name in ages_days} == {
        "old": False,
        "running": True,
        "recent": True,
    }
    assert not (directory / "old.checked").exists() and (directory / "running.checked").exists()
    for name in ("running", "recent"):
        shutil.rmtree(directory / name)
    for left in (*directory.glob("r*.checked"), *directory.glob("[or]*.used")):
        left.unlink()


@pytest.mark.parametrize("left", ["old.new", "old.old"])
def test_what_an_unpacking_left_is_removed_too(left: str, archive: Path, cache: Path) -> None:
    """Power was cut while another version unpacked, and that version never started again."""
    directory = cache / "durability/one-file"
    (directory / left / "bin").mkdir(parents=True)
    used = directory / "old.used"
    used.touch()
    os.utime(used, times=(0, time.time() - 40 * 86_400))
    done = _started(archive, cache)
    assert done.returncode == 0 and f"removing {directory / 'old'}," in done.stderr
    assert not (directory / left).exists()
    used.unlink()


def test_a_command_that_runs_keeps_its_tree(archive: Path, cache: Path) -> None:
    """The command itself, not only what started it, holds the lock that keeps its tree."""
    command = [sys.executable, str(archive), "serve", "--listen", "127.0.0.1:0"]
    environment = _environment(cache, XDG_STATE_HOME=str(cache / "state"))
    (used,) = (cache / "durability/one-file").glob("*.used")
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline().startswith("Listening on")
        with used.open("r+b") as opened:
            with pytest.raises(BlockingIOError):
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            process.terminate()
            assert process.wait(60) == 0
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
