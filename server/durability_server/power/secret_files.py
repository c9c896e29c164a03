"""Secrets of switches: read from private files, and removed from every text.

A file that other users may read is refused.
"""

from __future__ import annotations

import html
import json
import os
import shlex
import urllib.parse
from collections.abc import Iterable

from durability import plain_text
from durability.errors import SetupError
from durability.private_files import why_not_private

_BYTES_MAX = 16 << 10
_SHORT = 4  # a shorter secret may occur in words by chance
_PUT_FOR_SECRET = "…"


def read_secret(path: str) -> str:
    """The single line in the file `path`. Raises SetupError, which says what is wrong with the file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise SetupError(f"the file {path} of a secret cannot be read: {_reason(error)}") from None
    try:
        status = os.fstat(descriptor)
        why = why_not_private(path, mode=status.st_mode, owner=status.st_uid, user=os.geteuid())
        _require(not why, why)
        content = os.read(descriptor, _BYTES_MAX + 1)
    except OSError as error:
        raise SetupError(f"the file {path} of a secret cannot be read: {_reason(error)}") from None
    finally:
        os.close(descriptor)
    _require(len(content) <= _BYTES_MAX, f"{path} has more than {_BYTES_MAX:,} bytes: it must hold one line")
    try:
        secret = content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise SetupError(f"{path} is not text in UTF-8: it must hold the secret as one line") from None
    _require(bool(secret), f"{path} is empty: it must hold the secret as one line")
    _require(
        not any(ord(character) < 0x20 or ord(character) == 0x7F for character in secret),
        f"{path} holds several lines or a control character: it must hold the secret as one line",
    )
    return secret


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """`text` with each secret replaced, also as URLs, JSON, HTML, Python and shells write it. If a short
    secret may occur, the whole text is replaced."""
    forms = {form for secret in secrets for form in _forms(secret)}
    for form in sorted(forms, key=len, reverse=True):
        if form in text and len(form) < _SHORT:
            return f"(left out, since it may hold a secret of fewer than {_SHORT} characters)"
        text = text.replace(form, _PUT_FOR_SECRET)
    return text


def _forms(secret: str) -> set[str]:
    return {
        secret,
        urllib.parse.quote(secret),
        urllib.parse.quote(secret, safe=""),
        urllib.parse.quote_plus(secret),
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        html.escape(secret),
        repr(secret)[1:-1],
        shlex.quote(secret),
        plain_text.as_line(secret),
    }


def _reason(error: Exception) -> str:
    return (error.strerror or "") if isinstance(error, OSError) else str(error)


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise SetupError(otherwise)
