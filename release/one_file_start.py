"""The start of the one file: unpacks it once for this user and this Python, and runs the command from there.

The machine's power will be cut, and its drive may lie. So what was unpacked is compared with the checksums of
the one file after each boot, and unpacked anew if a byte differs. Something else may remove files meanwhile,
such as a cleaner of old ones: each start looks at the sizes of all, and writes what is missing. What other
versions unpacked is removed a month after their last start. It removes only what it wrote, never from under a
command that runs: there it writes anew, each in one step, only the files that differ. It refuses a directory
that another user could have filled. It imports nothing but the standard library.
"""

from __future__ import annotations

import ctypes
import fcntl
import grp
import os
import pwd
import shutil
import stat
import sys
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn
from zipfile import BadZipFile, ZipFile, ZipInfo

EXIT_ENVIRONMENT = 5  # as the command's own
VARIABLE = "DURABILITY_ONE_FILE"  # tells the command what to start at the next boot
SEPARATOR = "+"  # between the versions of Python that a tree of the archive is for

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_GLIBC_MIN = (2, 28)
LIBRARIES = ("libstdc++.so.6", "libgcc_s.so.1")  # of the system, which packages within need beside glibc
_PROCESSORS = Path("/proc/cpuinfo")
_PROCESSOR = ("cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3")  # x86-64-v2, as numpy needs
_PYTHON = "bin/python"  # within the tree
_BLOCK_BYTES = 4096
_KEPT_S = 30 * 86_400  # how long the tree of another version is kept after its last start
_SPARE = 1.1  # what directories and the file system's own needs add
# Writers import the program that started them, which must not start another then.
_PROGRAM = 'from durability_cli.main import main\n\nif __name__ == "__main__":\n    main()\n'


class _StartError(Exception):
    """Why the command cannot be started here, and what to do."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the tree for this archive and this Python lies, and what lies beside it."""

    tree: Path

    @property
    def new(self) -> Path:
        """The tree while it is written."""
        return self.tree.with_name(f"{self.tree.name}.new")

    @property
    def old(self) -> Path:
        """A damaged tree while it is removed."""
        return self.tree.with_name(f"{self.tree.name}.old")

    @property
    def trees(self) -> tuple[Path, ...]:
        """All that is unpacked, whole or not."""
        return self.tree, self.new, self.old

    @property
    def checked(self) -> Path:
        """Says in which boot the tree was compared."""
        return self.tree.with_name(f"{self.tree.name}.checked")

    @property
    def used(self) -> Path:
        """Locked, shared, by each command that runs from the tree; its date is that of the last start."""
        return self.tree.with_name(f"{self.tree.name}.used")

    @property
    def lock(self) -> Path:
        """Held by the process that writes here."""
        return self.tree.with_name(f"{self.tree.name}.lock")


def main(archive: Path, build: str, versions: Sequence[str]) -> NoReturn:
    """Run the command with the arguments of this process. `build` names the content of `archive`, which is
    for these `versions` of Python."""
    try:
        _require_system(archive, versions)
        place = _place(build)
        held = _hold(place)
        boot = _boot_id()
        if not _is_checked(place, boot):
            with _locked(place):
                if not _is_checked(place, boot):
                    _prepare(archive, place, boot, held)
        elif _lacking(archive, place):
            with _locked(place):
                _mend(archive, place)
    except _StartError as error:
        _end(str(error), EXIT_ENVIRONMENT)
    except KeyboardInterrupt:
        _end("stopped", 130)
    _tidy(place)
    os.environ[VARIABLE] = str(archive)
    python = str(place.tree / _PYTHON)
    os.execv(python, [python, str(place.tree / "bin/durability"), *sys.argv[1:]])


def _end(text: str, code: int) -> NoReturn:
    print(f"durability: {text}", file=sys.stderr)
    sys.exit(code)


def _require_system(archive: Path, versions: Sequence[str]) -> None:
    """Raises _StartError where the packages within cannot run."""
    machine = os.uname().machine
    if not sys.platform.startswith("linux") or machine != "x86_64":
        raise _StartError(f"this file is for Linux on x86_64, and this is {sys.platform} on {machine}")
    try:
        name, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()
    except ValueError:
        name, version = "another C library", "0"
    if name != "glibc" or tuple(map(int, version.split(".")[:2])) < _GLIBC_MIN:
        raise _StartError(f"this file needs glibc 2.28 or later, and this system has {name} {version}")
    if lacking := [name for name in LIBRARIES if not _is_loadable(name)]:
        raise _StartError(
            f"this file needs {' and '.join(lacking)}, which cannot be loaded from this system: install your"
            " distribution's package of it (Debian: apt install libstdc++6 libgcc-s1)"
        )
    if lacking := sorted({*_PROCESSOR} - _processor()):
        raise _StartError(
            "this file needs a processor with x86-64-v2, as of 2009 or later, and this one lacks"
            f" {', '.join(lacking)}: use another machine; for a virtual machine, choose another processor"
            " model (QEMU: -cpu host, or -cpu Nehalem)"
        )
    if _version() not in versions:
        raise _StartError(
            f"this file is for Python {versions[0]} to {versions[-1]}, and {sys.executable} is {_version()}:"
            f" start it with another Python, as in  python{versions[-1]} {archive}"
        )


def _is_loadable(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _processor() -> set[str]:
    """What the processor has, as Linux says; all that is needed if Linux does not say."""
    with suppress(OSError), _PROCESSORS.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            name, _, flags = line.partition(":")
            if name.strip() == "flags":
                return set(flags.split())
    return set(_PROCESSOR)


def _version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _place(build: str) -> _Place:
    """The place for this user. Raises _StartError if it cannot be made, or is not this user's alone."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    try:
        cache = Path(given) if given.startswith("/") else Path.home() / ".cache"
    except RuntimeError as error:  # neither HOME nor an entry among the users
        raise _unusable(Path("~/.cache"), "this user has no home directory") from error
    named = cache / "durability" / "one-file"
    try:
        _without_links(named)  # before anything is made there
        _make(named)
        directory = _without_links(named)
        status = directory.stat()
        flags = os.statvfs(directory).f_flag
    except OSError as error:
        raise _unusable(named, error.strerror) from error
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise _unusable(named, "another user can change it")
    if flags & os.ST_NOEXEC:
        raise _unusable(named, "its file system is mounted with noexec")
    seal = f"{zlib.crc32(os.fsencode(_base_python())):08x}"
    return _Place(directory / f"{build}-{_version()}-{seal}")


def _make(directory: Path) -> None:
    """Make it and what its path lacks, for this user alone. Raises OSError."""
    before = os.umask(0o077)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    finally:
        os.umask(before)


def _without_links(directory: Path) -> Path:
    """Where `directory` lies in truth. Raises _StartError if another user can put something in the place of
    any part of its path that exists, and OSError."""
    real = Path(os.path.realpath(directory))
    for path in dict.fromkeys((directory, *directory.parents, real, *real.parents)):
        with suppress(FileNotFoundError):
            if _others_can_change(path):
                why = f"another user can change {'it' if path == directory else path}"
                raise _unusable(directory, why)
    return real


def _others_can_change(path: Path) -> bool:
    """Whether somebody else than root and this user can replace the link `path` or what lies in the directory
    `path`. In a sticky directory each replaces only what is his own, and that is looked at by itself."""
    status = path.lstat()
    if status.st_uid not in (0, os.geteuid()):
        return True
    if stat.S_ISLNK(status.st_mode) or status.st_mode & stat.S_ISVTX:
        return False
    if status.st_mode & stat.S_IWOTH:
        return True
    return bool(status.st_mode & stat.S_IWGRP) and not _is_group_of_one(status.st_gid, status.st_uid)


def _is_group_of_one(group: int, user: int) -> bool:
    """Whether only this user is in the group. Where each user has a group of his own, such as in Debian, the
    umask 002 is usual, so his directories are writable by that group."""
    try:
        owner, own = pwd.getpwuid(user), grp.getgrgid(group)
    except KeyError:
        return False
    return (own.gr_gid, own.gr_name) == (owner.pw_gid, owner.pw_name) and set(own.gr_mem) <= {owner.pw_name}


def _unusable(directory: Path, why: str | None) -> _StartError:
    return _StartError(
        f"cannot unpack to {directory}: {why}. Set XDG_CACHE_HOME to a directory of yours, in memory for"
        f" example: XDG_CACHE_HOME=/dev/shm {sys.argv[0]} …"
    )


def _base_python() -> str:
    """The interpreter itself, also where it was started from a virtual environment."""
    return str(getattr(sys, "_base_executable", sys.executable))


def _boot_id() -> str:
    """Of this boot; empty, and so never that of a check, if the system does not say."""
    with suppress(OSError):
        return _BOOT_ID.read_text("ascii").strip()
    return ""


def _is_checked(place: _Place, boot: str) -> bool:
    try:
        return bool(boot) and place.checked.read_text("ascii") == boot and place.tree.is_dir()
    except (OSError, ValueError):
        return False


@contextmanager
def _locked(place: _Place) -> Iterator[None]:
    """One process writes; others wait until it has ended, however it ends. Raises _StartError where no lock
    can be had, as on NFS without its lock service."""
    try:
        descriptor = os.open(place.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:  # which ends this process, and so closes the descriptor
        raise _unusable(place.tree.parent, error.strerror) from error
    try:
        yield
    finally:
        os.close(descriptor)


def _hold(place: _Place) -> int | None:
    """From now on no other version removes the tree, until this process and the command in its place are
    over: the kernel gives the lock free with the descriptor, which the command inherits."""
    with suppress(OSError):  # where this file cannot be written, nothing can be removed either
        descriptor = os.open(place.used, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        os.utime(descriptor)
        os.set_inheritable(descriptor, True)
        return descriptor
    return None


def _is_alone(held: int | None) -> bool:
    """Whether no command runs from the tree. `held`: what `_hold` gave. What starts now finds the tree
    unchecked, and waits for the process that asks this."""
    if held is None:
        return False
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        fcntl.flock(held, fcntl.LOCK_SH)  # which also the refusal took away
    return True


def _tidy(place: _Place) -> None:
    """Remove the trees of other versions that nobody started for a month and from which nothing runs."""
    before_s = time.time() - _KEPT_S
    for used in place.tree.parent.glob("*.used"):
        with suppress(OSError):  # BlockingIOError: something runs from it
            other = _Place(used.with_suffix(""))
            is_left = any(tree.exists() for tree in other.trees)
            if other != place and is_left and used.stat().st_mtime < before_s:
                _remove(other)


def _remove(other: _Place) -> None:
    """Who starts this version meanwhile waits for the lock, and unpacks anew. Raises OSError if it runs."""
    descriptor = os.open(other.used, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        print(f"durability: removing {other.tree}, unused for a month", file=sys.stderr)
        other.checked.unlink(missing_ok=True)
        for tree in other.trees:
            shutil.rmtree(tree, ignore_errors=True)
    finally:
        os.close(descriptor)


@contextmanager
def _writing(archive: Path, place: _Place) -> Iterator[None]:
    """What is written in the block is this user's alone. Raises _StartError for what goes wrong there."""
    before = os.umask(0o077)
    try:
        yield
    except (BadZipFile, EOFError, zlib.error) as error:
        raise _StartError(
            f"{archive} is damaged ({error}): copy it again, and compare its checksum"
        ) from error
    except OSError as error:
        raise _unusable(place.tree.parent, error.strerror) from error
    finally:
        os.umask(before)


def _lacking(archive: Path, place: _Place) -> list[Path]:
    """What is not in the tree, or not in its size, by its path there: files of the archive and of this
    program."""
    packages = _packages(place.tree).relative_to(place.tree)
    with _writing(archive, place), ZipFile(archive) as opened:
        sizes_bytes = {packages / path: info.file_size for path, info in _entries(opened).items()}
    sizes_bytes |= {Path(name): len(content) for name, content in _own_files().items()}
    found = [path for path, size in sizes_bytes.items() if not _has_size(place.tree / path, size)]
    return found if os.path.lexists(place.tree / _PYTHON) else [*found, Path(_PYTHON)]


def _has_size(file: Path, size_bytes: int) -> bool:
    try:
        status = file.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size == size_bytes


def _mend(archive: Path, place: _Place) -> None:
    """Write what is missing in the tree, and leave the rest as it is: commands may run from it."""
    lacking = [place.tree / path for path in _lacking(archive, place)]
    with _writing(archive, place), ZipFile(archive) as opened:
        _write_again(lacking, opened, _entries(opened), place)


def _write_again(
    files: Sequence[Path], opened: ZipFile, entries: Mapping[Path, ZipInfo], place: _Place
) -> None:
    """Each in one step, so that a command finds the old one or the new one. Raises OSError."""
    if not files:
        return
    print(f"durability: {files[0]} is gone or damaged, writing it again", file=sys.stderr)
    packages = _packages(place.tree)
    packed = {packages / path: info for path, info in entries.items()}
    own = {place.tree / name: content for name, content in _own_files().items()}
    for file in files:
        new = file.with_name(f".{file.name}.new")
        new.unlink(missing_ok=True)
        if file in packed or file in own:
            _write(new, opened.read(packed[file]) if file in packed else own[file])
        else:
            new.parent.mkdir(parents=True, exist_ok=True)
            new.symlink_to(_base_python())
        new.replace(file)
    _sync_file_system(place.tree)


def _prepare(archive: Path, place: _Place, boot: str, held: int | None) -> None:
    """Have a whole tree in its place: the one that is there, or a new one. Where a command may run from the
    tree, only what differs is written. `held`: what `_hold` gave."""
    with _writing(archive, place):
        was_checked = place.checked.exists()
        place.checked.unlink(missing_ok=True)
        is_alone = _is_alone(held)
        for left in (place.new, place.old):
            shutil.rmtree(left, ignore_errors=True)
        with ZipFile(archive) as opened:
            entries = _entries(opened)
            wrong = list(_differing(place.tree, entries)) if place.tree.exists() else []
            # What removed `checked` in a boot that had it may also have removed the file that commands lock.
            if wrong and not (was_checked and is_alone):
                try:
                    _write_again(wrong, opened, entries, place)
                    wrong = []
                except OSError:  # such as of a directory in the place of a file
                    if not is_alone:
                        raise
            if wrong:
                print(f"durability: {wrong[0]} is damaged, unpacking again", file=sys.stderr)
                place.tree.rename(place.old)
                shutil.rmtree(place.old, ignore_errors=True)
            if not place.tree.exists():
                _unpack(opened, entries, place)
        # What Python compiled was not synced, and has no checksum here.
        for compiled in place.tree.rglob("__pycache__"):
            shutil.rmtree(compiled, ignore_errors=True)
        place.checked.write_text(boot, "ascii")


def _entries(opened: ZipFile) -> Mapping[Path, ZipInfo]:
    """The files for this Python, by their path below its site-packages."""
    found = {}
    for info in opened.infolist():
        versions, _, path = info.filename.partition("/")
        if path and _version() in versions.split(SEPARATOR):
            found[Path(path)] = info
    return found


def _own_files() -> Mapping[str, bytes]:
    """What makes the tree a virtual environment, whose children find it by their interpreter's path."""
    home = os.fsencode(str(Path(_base_python()).parent))
    return {
        "pyvenv.cfg": b"home = " + home + b"\ninclude-system-site-packages = false\n",
        "bin/durability": _PROGRAM.encode(),
    }


def _packages(tree: Path) -> Path:
    return tree / "lib" / f"python{_version()}" / "site-packages"


def _differing(tree: Path, entries: Mapping[Path, ZipInfo]) -> Iterator[Path]:
    """The files that are not as they were unpacked."""
    for name, content in _own_files().items():
        if not _is(tree / name, len(content), zlib.crc32(content)):
            yield tree / name
    python = tree / _PYTHON
    if not python.is_symlink() or str(python.readlink()) != _base_python():
        yield python
    packages = _packages(tree)
    for path, info in entries.items():
        if not _is(packages / path, info.file_size, info.CRC):
            yield packages / path


def _is(file: Path, size_bytes: int, checksum: int) -> bool:
    if not _has_size(file, size_bytes):  # nor is a directory in its place
        return False
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    with os.fdopen(descriptor, "rb") as opened:
        try:
            content = opened.read(size_bytes + 1)
        except OSError:
            return False  # unreadable, so to be written anew
    return len(content) == size_bytes and zlib.crc32(content) == checksum


def _unpack(opened: ZipFile, entries: Mapping[Path, ZipInfo], place: _Place) -> None:
    """Write a new tree, make it durable, then give it its name. Raises OSError and _StartError."""
    size_bytes = sum(-(-info.file_size // _BLOCK_BYTES) * _BLOCK_BYTES for info in entries.values()) * _SPARE
    room = os.statvfs(place.tree.parent)
    if room.f_bavail * room.f_frsize < size_bytes:
        free_mb = room.f_bavail * room.f_frsize / 1e6
        raise _unusable(
            place.tree.parent, f"it needs {size_bytes / 1e6:.0f} MB, and {free_mb:.0f} MB are free"
        )
    print(f"durability: unpacking {size_bytes / 1e6:.0f} MB to {place.tree}, once", file=sys.stderr)
    try:
        packages = _packages(place.new)
        for path, info in entries.items():
            _write(packages / path, opened.read(info))
        for name, content in _own_files().items():
            _write(place.new / name, content)
        (place.new / _PYTHON).symlink_to(_base_python())
        _sync_file_system(packages)
        place.new.rename(place.tree)
        _sync(place.tree.parent)
    except BaseException:
        shutil.rmtree(place.new, ignore_errors=True)
        raise


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)


def _sync_file_system(directory: Path) -> None:
    """Only the one that `directory` lies on: a drive under test may never end what `sync` asks of all."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
            raise OSError(number := ctypes.get_errno(), os.strerror(number))
    finally:
        os.close(descriptor)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
