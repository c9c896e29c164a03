"""Names that seem to be missing, because the kernel lacks the key of their directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from durability.errors import TargetError
from durability_client.system.encrypted_directories import locked_above
from durability_client.target.kernel_storage import KernelStorage
from durability_client.verify.scan.canary import presence_of
from tests.encryption import ABSENT, INCOMPLETELY_REMOVED, PRESENT, EncryptedDirectory, kernel_says


def test_a_plain_directory_is_not_locked(tmp_path: Path) -> None:
    """The kernel is asked, and says that there is no policy; so a file that is missing there is missing."""
    assert locked_above(tmp_path / "target") is None
    assert locked_above(tmp_path / "gone" / "target") is None
    (tmp_path / "file").touch()
    assert locked_above(tmp_path / "file" / "target") is None
    with pytest.raises(FileNotFoundError):
        KernelStorage(tmp_path / "target").size("")


@pytest.mark.parametrize("status", [ABSENT, INCOMPLETELY_REMOVED])
@pytest.mark.parametrize("version", [0, 2])
def test_a_file_in_a_locked_directory_is_not_missing(tmp_path: Path, version: int, status: int) -> None:
    """A file in a locked encrypted directory is not reported as missing: the error names the directory and
    says to unlock it."""
    storage = KernelStorage(tmp_path / "gone" / "target")
    with kernel_says(status, version=version):
        assert locked_above(storage.path) == tmp_path
        for look in (storage.size, storage.open):
            with pytest.raises(TargetError, match=f"{tmp_path} is encrypted and locked: .* Unlock it first"):
                look("")
        with pytest.raises(TargetError, match="is encrypted and locked"):
            presence_of(storage)
        assert not storage.exists("")


@pytest.mark.parametrize("version", [0, 2])
def test_a_file_that_is_missing_in_an_unlocked_directory_is_missing(tmp_path: Path, version: int) -> None:
    """The kernel has the key, so it would find what is there."""
    with kernel_says(PRESENT, version=version):
        assert presence_of(KernelStorage(tmp_path / "target")).main_bytes == 0


def test_a_name_that_is_missing_beside_its_target_is_missing(tmp_path: Path) -> None:
    """The key of an old policy may be in the session, which the kernel does not tell. The target shows it."""
    storage = KernelStorage(tmp_path / "target")
    storage.path.touch()
    with kernel_says(ABSENT, version=0), pytest.raises(FileNotFoundError):
        storage.open(".0.7")
    with kernel_says(ABSENT, version=2), pytest.raises(TargetError, match="is encrypted and locked"):
        storage.open(".0.7")


def test_a_directory_that_the_kernel_has_locked(make_mount: Callable[..., tuple[Path, Path]]) -> None:
    """ext4: a target in an encrypted directory, or below it, is there again once it is unlocked."""
    _, directory = make_mount("ext4", mkfs=("-b", "4096", "-O", "encrypt"))
    encrypted = EncryptedDirectory(directory / "home")
    below = encrypted.path / "tests"
    below.mkdir()
    storages = [KernelStorage(place / "target") for place in (encrypted.path, below)]
    for storage in storages:
        storage.path.write_bytes(b"kept")

    encrypted.lock()

    for storage in storages:
        assert not storage.exists("")
        assert locked_above(storage.path) == encrypted.path
        with pytest.raises(TargetError, match="is encrypted and locked"):
            presence_of(storage)
    encrypted.unlock()
    for storage in storages:
        assert presence_of(storage).main_bytes == 4
        storage.path.unlink()
        assert presence_of(storage).main_bytes == 0
    assert presence_of(KernelStorage(directory / "target")).main_bytes == 0, "beside it nothing is encrypted"
