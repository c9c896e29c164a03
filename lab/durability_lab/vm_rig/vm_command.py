"""`durability lab vm`: cuts the power of a virtual machine, and reports the verdict.

stderr reports each step when it is done; stdout has a table of the cuts, or one JSON document. The exit code
says whether each verdict is the expected one for its drive. `--keep-log` saves the console output of the
guest; if a cut gives no verdict, the error quotes its last lines.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TextIO, TypeAlias

from rich.box import SIMPLE_HEAD
from rich.table import Table

import durability_server
from durability.errors import EXIT_INTERNAL, EXIT_OK, UsageError
from durability.formats.workloads import registry
from durability.units import counted
from durability_client.system import output_files
from durability_client.system.terminal import Terminal, print_json
from durability_lab.drive import faults
from durability_lab.support.loads import Load
from durability_lab.truth.expected_verdict import AS_EXPECTED, FILTERS, NOT_AS_EXPECTED
from durability_lab.vm_rig.vm_cycle import VmCut, bus_of, cut, site

GuestFileSystem: TypeAlias = Literal["ext4", "none"]
VM_SCHEMA = "durability.lab.vm/1"
_WRONG = "  (!)"
_KEPT = "  *"


@dataclass(frozen=True, slots=True, kw_only=True)
class VmOptions:
    """The options of the command line."""

    drives: tuple[str, ...] = ("honest", "flush-ignored")  # specs of models
    file_system: GuestFileSystem = "ext4"
    workload: str = registry.DEFAULT
    cuts: int = 1  # per drive
    seed: int | None = None  # None: random
    json: bool = False
    keep_log: Path | None = None


async def vm(options: VmOptions, out: TextIO, err: TextIO) -> int:
    """Make the cuts, one after the other, and return the exit code. Raises UsageError, and SetupError if this
    machine lacks a requirement or a cut gives no verdict."""
    _check(options)
    tell = partial(print, file=err, flush=True)
    # This command itself reports that a guest is gone, so the server's warnings are not needed.
    logging.getLogger(durability_server.__name__).setLevel(logging.ERROR)
    seed = secrets.randbits(32) if options.seed is None else options.seed
    drives = [drive for drive in options.drives for _ in range(options.cuts)]
    file_system = None if options.file_system == "none" else options.file_system
    load = Load(file_system=file_system, workload=options.workload)
    cuts = []
    async with site() as place:
        tell(f"Seed {seed}. {counted(len(drives), 'cut')}; each takes half a minute or more.")
        tell(f"A server listens on {place.lab.address}, in its own network.")
        for number, drive in enumerate(drives):
            tell(f"{drive}: {load} on {bus_of(load)}, seed {seed + number}")
            one = await cut(place, drive, load, seed=seed + number, tell=tell, log=options.keep_log)
            tell(f"          {_sentence(one)}")
            cuts.append(one)
    agreed = all(one.as_expected for one in cuts)
    if options.json:
        print_json(_document(seed, cuts, agreed=agreed), out)
    else:
        _print(cuts, out, agreed=agreed)
    return EXIT_OK if agreed else EXIT_INTERNAL


def _check(options: VmOptions) -> None:
    """Check the options. Raises UsageError if they are impossible, and SetupError if the log cannot be
    written."""
    for drive in options.drives:
        if drive in FILTERS:
            raise UsageError(
                f"{drive} is a filter of nbdkit without a drive log, so a guest cannot use it;"
                f" choose one of {', '.join(faults.CATALOGUE)}"
            )
        try:
            faults.parse(drive)
        except ValueError as error:
            raise UsageError(f"{error}. `durability lab drive --list` lists the models") from error
    needs_files = registry.workload(options.workload).needs_file
    if options.file_system == "none" and needs_files:
        raise UsageError(f"--workload {options.workload} needs files: remove --file-system none")
    if options.keep_log is not None:
        output_files.to_append(options.keep_log, "the guests' log").close()


def _sentence(one: VmCut) -> str:
    """The verdict on one cut as a sentence, with a mark if it is not as expected."""
    verdict = one.document["verdict"]
    reasons = "; ".join(reason["text"] for reason in one.document["reasons"])
    text = f"{verdict}: {reasons}" if reasons else f"{verdict}, class {one.document['cut']['class']}"
    return text if one.as_expected else f"{text} (!) expected {one.expected}"


def _mark(one: VmCut) -> str:
    """The mark of a verdict that is not the expected one for the drive; "" for none."""
    if not one.as_expected:
        return _WRONG
    return "" if one.document["verdict"] == one.expected else _KEPT


def _document(seed: int, cuts: list[VmCut], *, agreed: bool) -> dict[str, Any]:
    return {
        "schema": VM_SCHEMA,
        "seed": seed,
        "as_expected": agreed,
        "cuts": [
            {
                "drive": one.drive,
                "bus": bus_of(one.load),
                "file_system": one.load.file_system,
                "workload": one.load.workload,
                "seed": one.seed,
                "cut_after": one.cut_after,
                "session_end": one.session_end,
                "mounted": one.mounted,
                "promised": one.drive_check.promised,
                "broken": len(one.drive_check.broken),
                "broken_records": one.broken_records,
                "expected": one.expected,
                "as_expected": one.as_expected,
                "exit_code": one.exit_code,
                "verify": one.document,
                "seconds": {step: round(seconds, 3) for step, seconds in one.seconds.items()},
            }
            for one in cuts
        ],
    }


def _print(cuts: list[VmCut], out: TextIO, *, agreed: bool) -> None:
    table = Table(box=SIMPLE_HEAD)
    for heading in ("drive", "acked", "at risk", "lost", "expected", "found"):
        table.add_column(heading)
    for one in cuts:
        document = one.document
        table.add_row(
            one.drive,
            str(document["acked"]),
            str(document["at_risk"]["ms1000"]),
            str(sum(document["findings"].values())),
            one.expected,
            f"{document['verdict']}{_mark(one)}",
        )
    console = Terminal(file=out, highlight=False)
    console.print(table)
    if any(_mark(one) == _KEPT for one in cuts):
        console.print("* In this cut the drive broke no promise of an acknowledged record.")
    if agreed:
        console.print(AS_EXPECTED)
    else:
        console.print(NOT_AS_EXPECTED)
