"""Directories of system programs, including those that a user's PATH leaves out.

The tools that examine drives and those that switch power use this one list.
"""

from __future__ import annotations

PROGRAM_PLACES = ":".join(
    (
        *("/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/local/bin"),
        *("/run/current-system/sw/bin",),  # NixOS
        *("/run/current-system/profile/sbin", "/run/current-system/profile/bin"),  # Guix
    )
)
