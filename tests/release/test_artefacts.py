"""The release: the wheel and the source package, the bill of materials, the checksums."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from contextlib import nullcontext
from importlib.metadata import files
from pathlib import Path

import pytest

from release import bundle, crate_licences, deb, make_release, sources, wheel
from release.make_release import Release
from tests.places import ROOT

pytestmark = pytest.mark.slow


def _only(release: Release, pattern: str) -> Path:
    (found,) = release.out.glob(pattern)
    return found


def test_two_builds_have_the_same_bytes(
    release: Release, tree: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever builds the commit again, with another umask and in another time zone, gets the same files."""
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
    """All files of the repository are in it, so that whoever has it can run the tests."""
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


def test_the_bill_names_every_package_and_its_licence(release: Release) -> None:
    """Both versions of numpy, which depends on Python's, are in it; nothing has no licence."""
    bill = json.loads(_only(release, "*.cdx.json").read_text())
    versions = {(one["name"], one["version"]) for one in bill["components"]}
    expected = {one for python in bundle.PYTHONS for one in bundle.components(release.bundle(python))}
    assert versions == {(one.name, one.version) for one in expected if one.name != "durability"}
    assert len([name for name, _ in versions if name == "numpy"]) == 2
    assert all(one["licenses"] for one in bill["components"])
    assert bill["metadata"]["component"]["version"] == release.sources.version


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
