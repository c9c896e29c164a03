"""Whether cuts were of the stack that was measured: firmware, file system, options that guard a commit.

One serial is not one promise. Another firmware keeps it in another way, and a mount option such as
`nobarrier` sends no flush to a drive that keeps all it is told to. Refuses to compare what cannot weaken a
commit: options of access, names and times, and those that say the default.
"""

from __future__ import annotations

from durability.formats.facts import Facts

# Parts of the names of options that change what a commit is, in the file systems of Linux.
_OF_A_COMMIT = (
    "barrier",
    "data=",
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


def unlike(cut: Facts, measured: Facts) -> str:
    """In what the stack that was `cut` differs from the one that was measured, as the end of a sentence with
    "but"; "" where cuts of the one say something of the other."""
    firmwares = [" + ".join(drive.firmware for drive in one.drives) for one in (cut, measured)]
    if firmwares[0] != firmwares[1]:
        return f"of firmware {firmwares[0] or 'without a name'}, not {firmwares[1] or 'without a name'}"
    if measured.file_system is None:  # nothing lies between the benchmark and the device
        return ""
    if cut.file_system is None:
        return f"on the device, not on {measured.file_system.type}"
    if cut.file_system.type != measured.file_system.type:
        return f"on {cut.file_system.type}, not on {measured.file_system.type}"
    theirs, ours = (guarding(one) for one in (cut.file_system.options, measured.file_system.options))
    parts = [f"with {','.join(sorted(theirs - ours))}"] if theirs - ours else []
    parts += [f"not with {','.join(sorted(ours - theirs))}"] if ours - theirs else []
    return " and ".join(parts)


def guarding(options: str) -> frozenset[str]:
    """Of mount options, joined by commas, those that change what a commit is."""
    return frozenset(
        one
        for one in options.split(",")
        if one not in _DEFAULTS
        and not one.startswith(_OF_SPEED)
        and any(part in one for part in _OF_A_COMMIT)
    )
