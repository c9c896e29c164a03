"""`durability lab drive`: one drive that can lose power, for any program, controlled by standard input.

The drive is a block device of this machine, with a file system if wanted. Stdin has one command per line;
each is answered by one line on stdout when it is done, so a script can wait for the answer:

    cut      remove power now                off
    on       restore power                   on DEVICE [MOUNT-POINT]
    status                                   on DEVICE [MOUNT-POINT]; off
    quit     or the end of the input

At the end everything is removed, whatever ends the command. At a terminal an unknown command is explained and
the drive stays; in a script it ends the command, because later commands would act on an unexpected state.

It does not judge: the caller must find out what a program lost, and whether it was promised.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TextIO

from durability import plain_text
from durability.campaign.definition.settings import LEAST_BYTES
from durability.errors import SetupError, UsageError
from durability.units import format_size
from durability_lab.drive import faults
from durability_lab.kernel_rig.block_rig import BlockRig, MountError
from durability_lab.support.loads import FileSystemName
from durability_lab.truth.expected_verdict import FILTERS

WORDS = "cut, on, status, quit"
_SIZE_BYTES_MAX = 1 << 43  # the media are a file, whose size is limited by its file system
_FILTER_LINES = {
    "filter-honest": "nbdkit's own cache filter: a volatile cache whose flush is honoured.",
    "filter-amnesiac": "nbdkit's own cache filter: a cut loses everything written since power-on.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveOptions:
    """The options of the command line."""

    model: str
    size_bytes: int
    file_system: FileSystemName | None
    seed: int
    directory: Path | None  # place of media and mount point; None: in memory


def list_models(out: TextIO) -> None:
    """Print each drive with its parameters, their defaults, and a line of description."""
    for name, model in faults.CATALOGUE.items():
        settings = ",".join(f"{field.name}={field.default}" for field in fields(model) if field.init)
        print(f"{name}:{settings}" if settings else name, file=out)
        print(f"    {(model.__doc__ or '').strip().splitlines()[0]}", file=out)
    for name, line in _FILTER_LINES.items():
        print(name, file=out)
        print(f"    {line}", file=out)


def check(options: DriveOptions) -> None:
    """Raises UsageError if a drive with these options is impossible."""
    check_model(options.model)
    if options.size_bytes <= 0 or options.size_bytes % 4096:
        raise UsageError(f"--size is {options.size_bytes} bytes, expected a multiple of 4096")
    if options.size_bytes > _SIZE_BYTES_MAX:
        raise UsageError(f"--size is {options.size_bytes} bytes, expected at most 8TiB")
    least = LEAST_BYTES[options.file_system or ""]
    if options.size_bytes < least:
        raise UsageError(
            f"--size {options.size_bytes} is too small for {options.file_system},"
            f" which needs at least {format_size(least)}"
        )
    if options.directory is not None and not options.directory.is_dir():
        raise UsageError(f"--directory {options.directory} is not a directory")


def check_model(spec: str) -> None:
    """Raises UsageError if `spec` is neither a model's spec nor one of nbdkit's filters."""
    name, parameters, _ = spec.partition(":")
    if name not in {*faults.CATALOGUE, *FILTERS}:
        raise UsageError(f"unknown drive model {name!r}: `durability lab drive --list` lists the models")
    if name in FILTERS:
        if parameters:
            raise UsageError(f"{name} is a filter of nbdkit and takes no parameters, found {spec!r}")
        return
    try:
        faults.parse(spec)
    except ValueError as error:
        raise UsageError(f"{error}. `durability lab drive --list` lists the parameters") from error


def drive(options: DriveOptions, *, commands: TextIO | None, out: TextIO, err: TextIO) -> None:
    """Set the drive up and obey `commands` until they end. Raises UsageError and SetupError."""
    check(options)
    if commands is None:
        raise UsageError("stdin is closed, but the commands for the drive come from there")
    interactive = commands.isatty()
    rig = BlockRig(
        options.model,
        options.file_system,
        seed=options.seed,
        size_bytes=options.size_bytes,
        parent=options.directory,
    )
    with rig:
        console = _Console(rig, out, err)
        print(f"{options.model}, seed {options.seed}. Commands: {WORDS}.", file=err, flush=True)
        console.status()
        for word in _words(commands):
            if word == "quit":
                return
            try:
                console.obey(word)
            except (UsageError, SetupError) as error:
                if not interactive:
                    raise
                print(plain_text.as_text(f"durability: {error}"), file=err, flush=True)


def _words(commands: TextIO) -> Iterable[str]:
    """The lines that are not blank. They are not read ahead, so each is obeyed when it arrives."""
    for line in iter(commands.readline, ""):
        if line.strip():
            yield line.strip()


class _Console:
    """Carries out the commands on a rig, and prints the answers."""

    def __init__(self, rig: BlockRig, out: TextIO, err: TextIO) -> None:
        self._rig = rig
        self._out = out
        self._err = err
        self._powered = True
        self._mounted = rig.file_system is not None

    def obey(self, word: str) -> None:
        """Carry out one command and answer. Raises UsageError if the command is unknown or impossible now,
        and SetupError if it fails."""
        if word == "cut":
            self._cut()
        elif word == "on":
            self._on()
        elif word != "status":
            raise UsageError(f"unknown command {word!r}; the commands are {WORDS}")
        self.status()

    def status(self) -> None:
        """Print one line: whether the drive has power, and its paths."""
        places = [str(self._rig.device)] if self._powered else []
        places += [str(self._rig.mount_point)] if self._powered and self._mounted else []
        print("on" if self._powered else "off", *places, file=self._out, flush=True)

    def _cut(self) -> None:
        if not self._powered:
            raise UsageError("cut: the drive has no power; `on` restores it")
        self._rig.cut()
        self._powered = False

    def _on(self) -> None:
        if self._powered:
            raise UsageError("on: the drive has power; `cut` removes it")
        self._rig.power_on()
        self._powered = True
        if self._rig.file_system is not None:
            self._mount()

    def _mount(self) -> None:
        """Mount again; if that fails, report it on `err`. The device exists anyway."""
        try:
            self._rig.mount()
            self._mounted = True
        except MountError as error:
            self._mounted = False
            what = plain_text.as_text(f"the file system does not mount: {error}")
            print(what, file=self._err, flush=True)
