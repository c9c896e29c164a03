"""The release: the wheel and the source package, the bill of materials, the checksums."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from contextlib import nullcontext
from importlib.metadata import files
from itertools import pairwise
from pathlib import Path

import pytest
from packaging.licenses import canonicalize_license_expression
from packaging.version import Version

from release import bill_of_materials, bundle, crate_licences, deb, make_release, sources, wheel
from release.make_release import Release
from release.sources import Sources
from tests.places import ROOT
from tests.release.conftest import require

pytestmark = pytest.mark.slow


def _only(release: Release, pattern: str) -> Path:
    (found,) = release.out.glob(pattern)
    return found


def test_two_builds_have_the_same_bytes(
    release: Release, tree: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another build of the commit, with another umask and time zone, gives the same files."""
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    before = os.umask(0o077)
    try:
        again = wheel.make(sources.check_out(tmp_path / "sources", tree), tmp_path)
    finally:
        os.umask(before)
    for file in again:
        assert file.read_bytes() == (release.out / file.name).read_bytes(), file.name


def test_the_wheel_has_pages_and_completions_and_no_scripts(release: Release) -> None:
    """A prefix gets the manual pages and the completions; what makes releases, and tests, stay at home."""
    names = zipfile.ZipFile(_only(release, "*.whl")).namelist()
    share = {name.partition(".data/data/share/")[2] for name in names} - {""}
    assert {"man/man1/durability.1", "man/man1/durability-run.1", "zsh/site-functions/_durability"} <= share
    tops = {name.partition("/")[0] for name in names}
    packages = {"durability", "durability_cli", "durability_server", "durability_client", "durability_lab"}
    assert {top for top in tops if "." not in top} == packages


def test_the_source_package_has_what_is_committed(release: Release, tree: str) -> None:
    """The source package has all files of the repository, so that a user of it can run the tests."""
    listed = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", tree], cwd=ROOT, check=True, capture_output=True, text=True
    )
    with tarfile.open(_only(release, "*.tar.gz")) as tar:
        members = tar.getmembers()
    packed = {member.name.partition("/")[2] for member in members if member.isfile()}
    assert set(listed.stdout.splitlines()) - packed == set()
    assert {(member.uid, member.uname, member.mtime) for member in members} == {
        (0, "", release.sources.committed_at_s)
    }


def test_a_bundle_has_what_is_locked(release: Release) -> None:
    """Each version of Python gets exactly the locked versions that are for it, and this wheel."""
    locked = set(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / bundle.LOCK).read_text(), re.M))
    for python in bundle.PYTHONS:
        found = {
            (re.sub(r"[-_.]+", "-", one.name).lower(), one.version)
            for one in bundle.components(release.bundle(python))
        }
        assert (release.bundle(python) / "durability-licences/README.txt").is_file()
        assert found - locked == {("durability", release.sources.version)}
        assert {name for name, _ in locked} - {name for name, _ in found} == {"colorama", "tzdata"}  # Windows


def test_each_library_within_a_package_has_its_licence() -> None:
    """Each that psycopg brings is named with its licence; so is none that came with a newer one unseen. The
    files of licences that are named are there."""
    text = (ROOT / bundle.LICENCES / "README.txt").read_text()
    libraries = [file.name for file in files("psycopg-binary") or () if ".libs" in str(file.parent)]
    assert len(libraries) > 5
    assert {re.split(r"[-.]", name)[0] for name in libraries} <= set(re.findall(r"\blib\w+", text))
    named = set(re.findall(r"[\w-]+\.txt$", text, re.MULTILINE))
    assert named == {file.name for file in (ROOT / bundle.LICENCES).iterdir()} - {"README.txt"}


LOCKED = re.findall(r"^([\w.-]+)==", (ROOT / bundle.LOCK).read_text(), re.MULTILINE)
LICENCE = re.compile(r"(?:licen[cs]e|copying|notice)", re.IGNORECASE)


@pytest.mark.parametrize("name", sorted({*LOCKED} - {"colorama", "tzdata"}))  # Windows
def test_what_a_package_has_of_others_is_named(name: str) -> None:
    """A licence among a package's modules belongs to bundled code of others, such as Click within typer. The
    list of licences names it."""
    licences = [file for file in files(name) or () if LICENCE.match(file.name)]
    within = [file for file in licences if ".dist-info" not in file.parts[0]]
    rows = re.findall(
        rf"^  {name}: (\S+) .*", (ROOT / bundle.LICENCES / "README.txt").read_text(), re.MULTILINE
    )
    assert rows or not within, within
    assert name != "typer" or rows == ["Click"]


@pytest.mark.parametrize("package", crate_licences.PACKAGES)
def test_each_crate_within_a_package_has_its_licence(package: str) -> None:
    """Each crate is listed with its licence, in its version. The text is there as well, but for two that
    bring none and are not for Linux."""
    table, *texts = re.split(r"^-{80}\n", crate_licences.LIST.read_text(), flags=re.MULTILINE)
    rows = dict(re.findall(r"^  (\S+ \S+) +(.+)$", table, re.MULTILINE))
    with_text = {crate for text in texts for crate in text.partition("\n")[0].split(", ")}
    for crate in crate_licences.crates_of(package):
        assert rows[str(crate)].startswith(crate.licence)
        assert str(crate) in with_text or crate.name in ("r-efi", "wit-bindgen-rt")


def test_a_bundle_is_the_same_with_another_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launchers name the Python of the machine that builds. They are left out, and so are their checksums:
    the lists of the packages name only what is there."""
    sources = Sources(tmp_path, 1_700_000_000)
    (tmp_path / bundle.LICENCES).mkdir(parents=True)
    (tmp_path / bundle.LOCK).parent.mkdir()
    (tmp_path / bundle.LOCK).write_text("")
    wheel = tmp_path / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny.py", "def main(): pass\n")
        archive.writestr("tiny-1.0.data/data/share/man/tiny.1", "a page")
        about = "tiny-1.0.dist-info"
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/entry_points.txt", "[console_scripts]\ntiny = tiny:main\n")
        archive.writestr(f"{about}/RECORD", "")
    lists = []
    for name in ("one", "another"):
        python = tmp_path / name
        venv = [sys.executable, "-m", "venv", "--without-pip", str(python)]
        subprocess.run(venv, check=True)
        monkeypatch.setenv("VIRTUAL_ENV", str(python))
        bundle.lay_out(sources, wheel, tmp_path / f"bundle of {name}", python="3.11")
        lists.append((tmp_path / f"bundle of {name}/{about}/RECORD").read_text())
    listed = {line.partition(",")[0] for line in lists[0].splitlines()}
    assert lists[0] == lists[1] and {"tiny.py", f"{about}/METADATA"} <= listed
    assert all((tmp_path / "bundle of one" / name).is_file() for name in listed)


@pytest.mark.parametrize("name", sorted({*LOCKED} - {"colorama", "tzdata"}))  # Windows
def test_each_licence_is_in_spdx_terms(name: str) -> None:
    """The one that a locked package states, or that it is known to mean."""
    (found,) = (file for file in files(name) or () if str(file).endswith(".dist-info/METADATA"))
    licence = bundle.component(Path(str(found.locate()))).licence
    assert canonicalize_license_expression(licence) == licence


def test_a_licence_that_is_not_in_spdx_terms_ends_the_build(tmp_path: Path) -> None:
    """Each package that comes with a newer lock is seen."""
    for stated, said in (("License: BSD License\n", "'BSD License'"), ("", "''")):
        (tmp_path / "METADATA").write_text(f"Name: tiny\nVersion: 1.0\n{stated}")
        with pytest.raises(ValueError, match=rf"tiny 1\.0 .*{said}"):
            bundle.component(tmp_path / "METADATA")


def test_the_bill_names_every_package_and_its_licence(release: Release) -> None:
    """Both versions of numpy, which depends on Python's, are in it; nothing has no licence."""
    bill = json.loads(_only(release, "*.cdx.json").read_text())
    versions = {(one["name"], one["version"]) for one in bill["components"]}
    expected = {one for python in bundle.PYTHONS for one in bundle.components(release.bundle(python))}
    assert versions == {(one.name, one.version) for one in expected if one.name != "durability"}
    assert len([name for name, _ in versions if name == "numpy"]) == 2
    assert all(one["licenses"] for one in bill["components"])
    assert bill["metadata"]["component"]["version"] == release.sources.version


def test_the_bill_names_the_packages_of_debian(release: Release, tmp_path: Path) -> None:
    """Each package of the images' lists once for each version, with the file of its licence; this tool's own
    package is no part of itself."""
    bundled = bundle.components(release.bundle(bundle.PYTHONS[0]))
    lists = ["libc6:amd64\t2.36-9", "zlib1g:amd64\t1:1.2.13", "libc6:amd64\t2.36-9", "durability\t0.2.0-1"]
    bill = json.loads(bill_of_materials.make(release.sources, bundled, lists, tmp_path).read_text())
    found = {one["purl"]: one for one in bill["components"] if one["purl"].startswith("pkg:deb")}
    assert {*found} == {"pkg:deb/debian/libc6@2.36-9", "pkg:deb/debian/zlib1g@1:1.2.13"}
    (where,) = found["pkg:deb/debian/libc6@2.36-9"]["properties"]
    assert where == {"name": "durability:licence", "value": "/usr/share/doc/libc6/copyright"}


def test_the_checksums_are_of_all_files(release: Release) -> None:
    """`sha256sum --check` takes the list, which names each artefact."""
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=release.out, check=True)
    listed = {line.split()[1] for line in (release.out / "SHA256SUMS").read_text().splitlines()}
    assert listed | {"SHA256SUMS"} == {file.name for file in release.out.iterdir()}
    assert {file.name for made in release.made for file in made.files} == listed
    assert all(name in make_release.table(release.made) for name in listed)


def test_an_artefact_that_is_not_known_is_refused() -> None:
    """A misspelled kind ends `make release` at once, with those that exist."""
    done = subprocess.run(
        [sys.executable, "-m", "release.make_release", "whele"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "no such artefact: whele" in done.stderr and "wheel" in done.stderr


@pytest.mark.parametrize("required", [True, False])
def test_a_package_that_nothing_checks(
    required: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without lintian a package is an error where the lab is required, and a warning elsewhere."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DURABILITY_LAB_REQUIRED", "1" if required else "0")
    with pytest.raises(FileNotFoundError, match="lintian") if required else nullcontext():
        deb.check(tmp_path / "durability.deb")
    assert ("lintian is not installed: durability.deb was not checked" in capsys.readouterr().err) != required


def _git(*words: str, cwd: Path = ROOT) -> str:
    who = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    return subprocess.run(
        ["git", *who, *words], cwd=cwd, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def commit(repository: None, tree: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A commit of the files that are tested, from 2001, in a clone that has no tag."""
    clone = tmp_path / "clone.git"
    _git(
        "clone",
        "--quiet",
        "--bare",
        "--shared",
        "--no-tags",
        _git("rev-parse", "--absolute-git-dir"),
        str(clone),
    )
    monkeypatch.setenv("GIT_DIR", str(clone))
    monkeypatch.setenv("GIT_COMMITTER_DATE", "1000000000 +0000")
    return _git("commit-tree", "-m", "all", tree)


def test_what_is_between_releases_is_below_the_next(commit: str, tmp_path: Path) -> None:
    """Without the tag of the release, packages have a version with the date of their commit: pip and Debian
    replace it by the release. `make freeze` comes before the tag and names the release."""
    release = sources.check_out(tmp_path / "freeze", commit, before_its_tag=True).version
    between = sources.check_out(tmp_path / "between", commit)
    assert (between.version, between.committed_at_s) == (f"{release}.dev1000000000", 1_000_000_000)
    assert Version("0.1.0") < Version(between.version) < Version(release)
    assert between.version in (between.share / "man/man1/durability.1").read_text()
    _git("tag", f"v{release}", commit)
    assert sources.check_out(tmp_path / "release", commit).version == release


def test_debian_sorts_what_is_between_releases() -> None:
    """Above the last release, below the next, and by date."""
    require("dpkg")
    versions = ["0.1.0", "0.2.0.dev1700000000", "0.2.0.dev1700000001", "0.2.0"]
    for older, newer in pairwise(f"{deb.upstream_version(one)}-1~bookworm1" for one in versions):
        subprocess.run(["dpkg", "--compare-versions", older, "lt", newer], check=True)


@pytest.mark.parametrize("name", ["release/deb.py", "release/new.py"])
def test_code_that_is_not_committed_makes_no_release(name: str, tmp_path: Path) -> None:
    """`make release` would run it, so what came of it could not be made again. It says what to do."""
    shutil.copytree(ROOT / "release", tmp_path / "release", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / ".gitignore", tmp_path)  # Python leaves compiled modules there
    for words in (("init", "--quiet"), ("add", "--all"), ("commit", "--quiet", "--message=all")):
        _git(*words, cwd=tmp_path)
    with (tmp_path / name).open("a") as file:
        file.write("# edited\n")
    done = subprocess.run(
        [sys.executable, "-m", "release.make_release", "wheel"],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and not (tmp_path / "dist").exists()
    assert f"make release: {name}: not committed" in done.stderr and "git stash" in done.stderr


def test_other_edits_make_no_difference() -> None:
    """Tests, pages and the program itself come from the commit, so edits of them in the working tree are not
    reported."""
    harmless = ["README.md", "tests/release/conftest.py", "cli/durability_cli/main.py", "releases.txt"]
    assert sources.run_as_they_are([*harmless, "lab/debian-packages", "setup.cfg"]) == [
        "lab/debian-packages",
        "setup.cfg",
    ]


@pytest.mark.parametrize("is_whole", [True, False])
def test_what_was_made_takes_the_place_of_what_was_there(is_whole: bool, tmp_path: Path) -> None:
    """One artefact leaves the others as they are, and the checksums are of all; everything replaces all.
    Nothing is left beside it."""
    made, dist = tmp_path / "made", tmp_path / "dist"
    for directory, texts in ((made, {"a": "new", "b": "new"}), (dist, {"b": "old", "c": "old"})):
        directory.mkdir()
        for name, text in texts.items():
            (directory / name).write_text(text)
        make_release.write_sums(directory)
    assert make_release.publish(made, dist, is_whole=is_whole) == ([] if is_whole else ["c"])
    found = {file.name: file.read_text() for file in dist.iterdir()}
    sums = found.pop("SHA256SUMS")
    assert found == {"a": "new", "b": "new"} | ({} if is_whole else {"c": "old"})
    assert {line.split()[1] for line in sums.splitlines()} == found.keys()
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=dist, check=True)
    assert [*(tmp_path / "build").iterdir()] == []


def test_a_full_disk_leaves_what_was_there(root: None, tmp_path: Path) -> None:
    """If the disk is full, the earlier release stays, because new files get their names only when they are
    complete."""
    made, dist = tmp_path / "made", tmp_path / "small/dist"
    made.mkdir()
    (made / "large").write_bytes(bytes(2 << 20))
    dist.parent.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "durability-test", dist.parent], check=True)
    try:
        dist.mkdir()
        (dist / "old").write_text("old")
        with pytest.raises((OSError, shutil.Error), match="No space left"):
            make_release.publish(made, dist, is_whole=True)
        assert [file.name for file in dist.iterdir()] == ["old"]
    finally:
        subprocess.run(["umount", dist.parent], check=True)
