"""Which files may hold secrets: those that no other user can read or can have written.

The same rule holds for a client's credential and the passwords of switches. This module opens no file: the
caller, which did, passes the file's status.
"""

from __future__ import annotations

import shlex
import stat

_ROOT = 0


def why_not_private(path: object, *, mode: int, owner: int, user: int) -> str:
    """Why the file `path` must not be trusted with a secret, as a sentence that ends in the command to type;
    "" if it may be trusted. `mode`, `owner`: from `fstat`; `user`: the user who reads the file."""
    if not stat.S_ISREG(mode):
        return f"{path} is not a regular file: put the secret into one"
    if stat.S_IMODE(mode) & 0o077:
        return (
            f"{path} is open to others (mode {stat.S_IMODE(mode):04o}): run  chmod 600"
            f" {shlex.quote(str(path))}  and change the secret if others may have read it"
        )
    if owner not in {user, _ROOT}:
        return (
            f"{path} belongs to user {owner}, and is read by user {user}: run  chown {user}"
            f" {shlex.quote(str(path))}  if you trust what is in it"
        )
    return ""
