"""Whether cuts were made in the stack that was measured: drives, layers, file system, options of a commit.

Cuts of a drive do not prove every stack on the same drive. Another firmware may handle flushes differently. A
drive with its write cache off has nothing to lose. A mount option such as `nobarrier` withholds flushes from
a drive that would honour them. A firmware may honour flushes and ignore FUA, or the reverse. Properties that
cannot weaken a commit are not compared: options for access, names and times, options that state the default,
and the kernel's names of devices.
"""

from __future__ import annotations

from collections.abc import Iterator

from durability.bench.hashed_serials import in_lasting_order
from durability.bench.result import Result
from durability.formats.facts import Facts

# A mount option that contains one of these words changes how Linux file systems commit. So does `data`.
_OF_A_COMMIT = (
    "barrier",
    "datacow",
    "datasum",
    "da_alloc",
    "fsync",
    "integrity",
    "journal",
    "log",
    "noload",
    "recovery",
    "sync",
)
_DEFAULTS = frozenset(
    {"async", "auto_da_alloc", "barrier", "barrier=1", "data=ordered", "datacow", "datasum", "treelog"}
    | {"fsync_mode=posix", "integrity"}
)
_OF_SPEED = ("logbufs=", "logbsize=")
_WITHHOLDING = frozenset({"nobarrier", "barrier=0", "fsync_mode=nobarrier", "sync=disabled"})
BY_FUA = "by FUA, not by a flush"
_DATA_SYNCS = frozenset({"dsync", "rwf-dsync"})  # O_SYNC also waits for the journal, which sends flushes
# Copy-on-write file systems: each commit writes a new version of their trees and sends a flush.
_COPYING = frozenset({"bcachefs", "btrfs", "zfs"})
_CACHES = {"write back": "on", "write through": "off"}


def unlike(cut: Facts, measured: Facts) -> str:
    """How the stack that was `cut` differs from the stack that was `measured`, as the end of a sentence after
    "but". "" if cuts of the first are evidence for the second."""
    return " and ".join((*_of_drives(cut, measured), *_of_layers(cut, measured)))


def withheld_flushes(cut: Facts, measured: Facts) -> bool:
    """Whether the stack that was `cut` sent no flush to the drive and the measured stack does. Then a loss in
    the first says nothing about the second."""
    return _sends_none(cut) and not _sends_none(measured) and "on" in _caches(measured)


def by_fua(facts: Facts, *, workload: str, sync: str | None, direct: bool) -> bool:
    """Whether commits of this workload reach a drive of `facts` as writes with FUA, without a flush after
    them. Linux does this if O_DIRECT and O_DSYNC overwrite data of a file, and the drive has FUA and may have
    a volatile cache."""
    file_system = facts.file_system
    if file_system is None or file_system.type in _COPYING or workload != "overwrite":
        return False
    has_fua = any(drive.fua and drive.write_cache != "write through" for drive in facts.drives)
    return direct and sync in _DATA_SYNCS and has_fua


def measures_flush(result: Result) -> bool:
    """Whether the benchmark measured commits that are not by FUA alone."""
    cells = (one.cell for one in result.cells if one.rounds and one.cell.place == "target")
    return any(
        not by_fua(result.facts, workload=cell.workload, sync=cell.sync, direct=cell.direct)
        for cell in cells
        if cell.sync != "none"
    )


def _sends_none(facts: Facts) -> bool:
    """Whether no flush reaches the drives: a mount option withholds flushes, or all write caches are off, so
    that the kernel sends none."""
    return bool(_conditions(facts) & _WITHHOLDING) or _caches(facts) == {"off"}


def _of_drives(cut: Facts, measured: Facts) -> Iterator[str]:
    pair = [in_lasting_order(one.drives) for one in (cut, measured)]
    firmwares = [" + ".join(drive.firmware or "unnamed" for drive in one) for one in pair]
    if firmwares[0] != firmwares[1]:
        yield f"of firmware {firmwares[0]}, not {firmwares[1]}"
    sizes = [[drive.size_bytes for drive in one] for one in pair]
    if all(map(all, sizes)) and sizes[0] != sizes[1]:
        theirs, ours = (f"{sum(one):,} bytes" for one in sizes)
        yield f"of {theirs}, not {ours}"
    theirs, ours = (" + ".join(sorted(_caches(one))) for one in (cut, measured))
    if theirs != ours:
        yield f"with the write cache {theirs}, not {ours}"


def _of_layers(cut: Facts, measured: Facts) -> Iterator[str]:
    theirs, ours = _conditions(cut), _conditions(measured)
    if measured.file_system is None:  # the benchmark wrote to the device directly
        theirs &= _WITHHOLDING.union(cut.layer_kinds)
    elif cut.file_system is None:
        yield f"on the device, not on {measured.file_system.type}"
        ours = frozenset(measured.layer_kinds)
    elif cut.file_system.type != measured.file_system.type:
        yield f"on {cut.file_system.type}, not on {measured.file_system.type}"
        theirs, ours = theirs & _WITHHOLDING.union(cut.layer_kinds), frozenset(measured.layer_kinds)
    if theirs - ours:
        yield f"with {','.join(sorted(theirs - ours))}"
    if ours - theirs:
        yield f"not with {','.join(sorted(ours - theirs))}"


def _caches(facts: Facts) -> frozenset[str]:
    """The states of the drives' write caches. The kernel sends no flush to a drive whose cache is off."""
    return frozenset(_CACHES.get(drive.write_cache or "", "in an unknown state") for drive in facts.drives)


def _conditions(facts: Facts) -> frozenset[str]:
    return guarding(facts.file_system.lasting_options if facts.file_system else "").union(facts.layer_kinds)


def guarding(options: str) -> frozenset[str]:
    """The mount options that change how commits work. `options`: joined by commas."""
    return frozenset(
        one
        for one in options.split(",")
        if one not in _DEFAULTS and not one.startswith(_OF_SPEED) and _is_of_a_commit(one.partition("=")[0])
    )


def _is_of_a_commit(name: str) -> bool:
    return name == "data" or any(part in name for part in _OF_A_COMMIT)
