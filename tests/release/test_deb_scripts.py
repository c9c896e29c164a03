"""The Debian package without a Debian system: its scripts, its files, and how it is built."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from durability.errors import EXIT_USAGE
from durability_client.agent import service
from release import deb, gzipped
from release.sources import Sources
from tests.places import ROOT
from tests.release.conftest import require

pytestmark = pytest.mark.slow

UNIT = "durability-server.service"


@pytest.mark.parametrize("before", ["", "0.1-1"])
def test_an_upgrade_does_not_wait_for_the_services(before: str, tmp_path: Path) -> None:
    """An upgrade restarts the services without waiting, because a store migration may take an hour, and names
    the journal command. An installation starts nothing."""
    script = deb.script(ROOT, deb.RELEASES[0], "postinst").replace("/run/systemd/system", str(tmp_path))
    for name in ("systemctl", "systemd-sysusers"):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\necho "{name} $*" >>"{tmp_path}/told"\n')
        program.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = ["sh", "-c", script, "postinst", "configure", before]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    restart = f"systemctl --no-block try-restart {UNIT} {service.NAME}\n"
    assert (restart in (tmp_path / "told").read_text()) == bool(before)
    assert ("journalctl -u durability-server" in done.stderr) == bool(before)


@pytest.mark.parametrize(
    ("words", "compiles", "restarts"),
    [
        (("configure", ""), True, False),
        (("configure", "0.1-1"), True, True),
        (("abort-upgrade", "0.3-1"), True, False),
        (("abort-remove", ""), True, False),
    ],
)
def test_what_prerm_removed_is_compiled_again(
    words: tuple[str, str], compiles: bool, restarts: bool, tmp_path: Path
) -> None:
    """Bytecode that prerm removed is compiled again, also after an upgrade that dpkg gave up. It is synced,
    because a torn module after a power cut would stop the agent at each start."""
    script = deb.script(ROOT, deb.RELEASES[0], "postinst").replace("/run/systemd/system", str(tmp_path))
    told = _told(script.replace("/usr/bin/python", "python"), *words, programs=tmp_path)
    compiled = re.search(
        r"^python3\.11 -m compileall -q -f .*\nsync -f /usr/lib/durability$", told, re.MULTILINE
    )
    assert (compiled is not None) == compiles
    assert ("try-restart" in told) == restarts


@pytest.mark.parametrize("word", ["remove", "upgrade"])
def test_a_removal_without_the_environment(word: str, tmp_path: Path) -> None:
    """The package can be removed after /usr/lib/durability was deleted by hand."""
    script = deb.script(ROOT, deb.RELEASES[0], "prerm").replace("/run/systemd/system", str(tmp_path / "none"))
    _told(script.replace("/usr/lib/durability", str(tmp_path / "none")), word, programs=tmp_path)


def test_a_removal_ends_where_a_compiled_module_cannot_be_removed(tmp_path: Path) -> None:
    """The services are stopped and disabled by then, and dpkg would leave it at that, with the package still
    installed. What is left, postrm removes."""
    compiled = tmp_path / "durability/lib/__pycache__"
    compiled.mkdir(parents=True)
    (tmp_path / "rm").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "rm").chmod(0o755)
    script = deb.script(ROOT, deb.RELEASES[0], "prerm").replace("/usr/lib/durability", str(compiled.parent))
    told = _told(script.replace("/run/systemd/system", str(tmp_path)), "remove", programs=tmp_path)
    assert "systemctl stop" in told and "disable" in told and compiled.is_dir()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("prerm", ("remove",)),
        ("postrm", ("remove",)),
        ("postrm", ("purge",)),
        ("postinst", ("configure", "0.1-1")),
    ],
)
def test_a_unit_that_cannot_be_loaded(name: str, words: tuple[str, ...], tmp_path: Path) -> None:
    """After a mistake in `systemctl edit`, systemctl fails. The package can be removed and installed all the
    same."""
    script = deb.script(ROOT, deb.RELEASES[0], name).replace("/run/systemd/system", str(tmp_path))
    for place in ("/usr/lib/durability", "/var/lib/durability", "/etc/durability"):
        script = script.replace(place, str(tmp_path / "none"))
    told = _told(script, *words, programs=tmp_path, systemctl=5)
    assert "systemctl stop" in told or "daemon-reload" in told


@pytest.mark.parametrize(
    ("is_active", "populated", "runs"),
    [(True, "", True), (False, "1", True), (False, "0", False), (False, "", False)],
)
def test_a_service_that_does_not_stop_is_named(
    is_active: bool, populated: str, runs: bool, tmp_path: Path
) -> None:
    """Removal of the package continues if a service does not stop, and names the service, including one that
    systemd calls failed but that still has processes."""
    script = deb.script(ROOT, deb.RELEASES[0], "prerm").replace("/run/systemd/system", str(tmp_path))
    script = script.replace("/usr/lib/durability", str(tmp_path / "none"))
    script = script.replace("/sys/fs/cgroup", str(tmp_path / "cgroup"))
    if populated:
        events = tmp_path / "cgroup/system.slice" / UNIT / "cgroup.events"
        events.parent.mkdir(parents=True)
        events.write_text(f"populated {populated}\nfrozen 0\n")
    says = f'case "$*" in *is-active*{UNIT}) exit {0 if is_active else 3};; esac; exit 1'
    (tmp_path / "systemctl").write_text(f"#!/bin/sh\n{says}\n")
    (tmp_path / "systemctl").chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", script, "prerm", "remove"],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert (f"{UNIT} still runs" in done.stderr) == runs and f"{service.NAME} still runs" not in done.stderr


@pytest.mark.parametrize("mounted", ["", "durability", "durability/backup", "etc"])
def test_a_purge_of_a_store_on_a_drive_of_its_own(mounted: str, root: None, tmp_path: Path) -> None:
    """A mount point cannot be removed: it stays, and all that lies there goes. What is mounted below the
    store stays with its files. The credential's directory may be a mount point too."""
    require("unshare")
    store, etc = tmp_path / "durability", tmp_path / "etc"
    for directory in (store / "backup", etc):
        directory.mkdir(parents=True)
    script = _of_directories("postrm", tmp_path / "none", store, etc)
    mount = f"mount -t tmpfs none {tmp_path / mounted}; mkdir -p {store}/backup" if mounted else "true"
    fill = f"touch {store}/server.sqlite {store}/.hidden {store}/backup/copy {etc}/credential.json"
    (tmp_path / "postrm").write_text(script)
    purge = f"{mount}; {fill}; sh {tmp_path}/postrm purge >&2; find {store} {etc} || true"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-ec", purge], check=True, capture_output=True, text=True
    )
    left = {
        "": [],
        "etc": [etc],
        "durability": [store],
        "durability/backup": [store, store / "backup", store / "backup/copy"],
    }
    assert done.stdout.split() == [*map(str, left[mounted])], done.stderr
    assert not (etc / "credential.json").exists()


def test_a_purge_leaves_what_is_mounted_from_the_same_file_system(root: None, tmp_path: Path) -> None:
    """A directory of the same drive is mounted below the store, also by a name that the kernel escapes and
    find takes for a pattern; a link leads to the store. All else goes, and what stays is named."""
    require("unshare")
    store, etc, odd = tmp_path / "var/durability", tmp_path / "etc", "deep/a b*[1]\\"
    (tmp_path / "data disk/durability").mkdir(parents=True)
    (tmp_path / "var").symlink_to("data disk")
    for name in ("backup", "backup2", odd, "deep/other"):
        (store / name).mkdir(parents=True)
        (store / name / "file").touch()
    for name in ("photos", "music"):
        (tmp_path / name / "album").mkdir(parents=True)
        (tmp_path / name / "album/1").touch()
    script = _of_directories("postrm", tmp_path / "none", store, etc)
    (tmp_path / "postrm").write_text(script)
    purge = 'mount --bind photos var/durability/backup; mount --bind music "$1"; sh postrm purge'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-ec", purge, "purge", store / odd],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert all((tmp_path / name / "album/1").is_file() for name in ("photos", "music")), done.stderr
    left = {str(path.relative_to(store)) for path in store.rglob("*")}
    assert left == {"backup", "backup/file", "deep", odd, f"{odd}/file"}, done.stderr
    assert "data?disk/durability/backup is mounted, and stays with its files\n" in done.stderr


@pytest.mark.parametrize("is_dangling", [False, True])
def test_a_purge_of_a_link_says_what_stays(is_dangling: bool, tmp_path: Path) -> None:
    """If the store's directory is a link, a purge removes only the link, and says where the evidence still
    lies."""
    store, kept = tmp_path / "durability", tmp_path / "srv/store"
    if not is_dangling:
        kept.mkdir(parents=True)
        (kept / "server.sqlite").touch()
    store.symlink_to("srv/store")
    script = _of_directories("postrm", tmp_path / "none", store, tmp_path / "etc")
    done = subprocess.run(["sh", "-c", script, "postrm", "purge"], check=True, capture_output=True, text=True)
    assert not store.is_symlink()
    assert f"durability: {store} was a link; what lies in {kept} stays\n" in done.stderr
    assert (kept / "server.sqlite").exists() == (not is_dangling)


def _of_directories(name: str, systemd: Path, store: Path, etc: Path) -> str:
    """A script of the package, with these in the place of the system's directories."""
    script = deb.script(ROOT, deb.RELEASES[0], name).replace("/run/systemd/system", str(systemd))
    return script.replace("/var/lib/durability", str(store)).replace("/etc/durability", str(etc))


@pytest.mark.parametrize(("word", "goes"), [("remove", True), ("upgrade", False), ("purge", False)])
def test_what_python_compiled_meanwhile_is_removed(word: str, goes: bool, tmp_path: Path) -> None:
    """A service that did not stop may compile a module after prerm removed such files, which dpkg does not
    know. An upgrade has its new files there by then."""
    compiled = tmp_path / "durability/lib/__pycache__/module.pyc"
    compiled.parent.mkdir(parents=True)
    compiled.touch()
    script = deb.script(ROOT, deb.RELEASES[0], "postrm").replace(
        "/usr/lib/durability", str(tmp_path / "durability")
    )
    for place in ("/run/systemd/system", "/var/lib/durability", "/etc/durability"):
        script = script.replace(place, str(tmp_path / "none"))
    _told(script, word, programs=tmp_path)
    assert (tmp_path / "durability").exists() == (not goes)


def test_a_mistake_in_the_servers_options_is_not_tried_again() -> None:
    """systemd restarts a server that crashed, but not one with an error in its options, which must be edited
    first."""
    text = (ROOT / deb.FILES / UNIT).read_text()
    assert "\nRestart=on-failure\n" in text and f"\nRestartPreventExitStatus={EXIT_USAGE}\n" in text


def _told(script: str, *words: str, programs: Path, systemctl: int = 0) -> str:
    """What a script of the package tells the programs of the system, which write it down here. `systemctl`:
    how systemctl ends."""
    for name in ("systemctl", "systemd-sysusers", "python3.11", "sync"):
        ends = systemctl if name == "systemctl" else 0
        (programs / name).write_text(f'#!/bin/sh\necho "{name} $*" >>"{programs}/told"\nexit {ends}\n')
        (programs / name).chmod(0o755)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-c", script, "script", *words], env=environment, check=True, capture_output=True)
    return (programs / "told").read_text() if (programs / "told").exists() else ""


def test_the_size_of_a_package(tmp_path: Path) -> None:
    """A file counts in whole KiB. A link and a directory count as 1 KiB each."""
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory" / "small").write_bytes(b"1")
    (tmp_path / "large").write_bytes(bytes(1025))
    (tmp_path / "link").symlink_to("nowhere")
    assert deb.installed_kb(tmp_path) == 1 + 1 + 1 + 2 + 1


def test_two_places_give_the_same_package(tmp_path: Path) -> None:
    """Packages built on two file systems, from clones of different dates, have the same bytes. Compressed
    files in them name no operating system. The test uses a small environment."""
    require("dpkg-deb")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        made = [_small_package(tmp_path, dated_s=1_500_000_000), _small_package(Path(memory))]
        assert made[0].read_bytes() == made[1].read_bytes()
    subprocess.run(["dpkg-deb", "--raw-extract", made[0], tmp_path / "unpacked"], check=True)
    compressed = [*(tmp_path / "unpacked/usr/share").rglob("*.gz")]
    assert compressed and {file.read_bytes()[9] for file in compressed} == {gzipped.NO_SYSTEM}
    control = subprocess.run(
        ["dpkg-deb", "--info", made[0]], check=True, capture_output=True, text=True
    ).stdout
    assert "Recommends: nvme-cli, smartmontools\n" in control
    (depends,) = re.findall(r"Depends: (.*)\n", control)
    assert {"libgcc-s1", "libstdc++6", "systemd"} <= set(depends.split(", ")), depends


def test_a_package_is_made_of_the_sources_alone(tmp_path: Path) -> None:
    """A package is made of the checked-out sources alone, including the agent's unit; later edits are not in
    it."""
    require("dpkg-deb")
    sources = Sources(tmp_path / "sources", 1_700_000_000)
    for name in ("LICENSE", "durability", "release", "client"):
        place = sources.directory / name
        place.parent.mkdir(exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, place)
    for name in ("debian/durability-server.service", "debian/postinst", "licences/README.txt"):
        with (sources.directory / "release" / name).open("a") as file:
            file.write("# as committed\n")
    unit = sources.directory / "client/durability_client/agent/service.py"
    unit.write_text(unit.read_text().replace("WatchdogSec=120\n", "WatchdogSec=120\n# as committed\n"))
    package = _small_package(tmp_path, sources=sources)
    subprocess.run(["dpkg-deb", "--raw-extract", package, tmp_path / "unpacked"], check=True)
    files = (path for path in (tmp_path / "unpacked").rglob("*") if path.is_file() and not path.is_symlink())
    assert {path.name for path in files if b"# as committed" in path.read_bytes()} == {
        UNIT,
        service.NAME,
        "postinst",
        "copyright",
    }


_SOURCES = Sources(ROOT, 1_700_000_000)


def _small_package(directory: Path, *, dated_s: int | None = None, sources: Sources = _SOURCES) -> Path:
    """The package around an environment of this tool's metadata alone, which is from now or `dated_s`."""
    about = directory / "bundle/durability-0.1.dist-info/METADATA"
    about.parent.mkdir(parents=True)
    about.write_text("Metadata-Version: 2.4\nName: durability\nVersion: 0.1\nLicense-Expression: MIT\n")
    if dated_s is not None:
        os.utime(about, (dated_s, dated_s))
    return deb.make(sources, deb.RELEASES[0], directory / "bundle", directory)
