"""The libraries that histories need beyond the product's own; only developers install them.

This module imports none of them, so that a command can report which are missing.
"""

from __future__ import annotations

from importlib.util import find_spec

from durability.errors import SetupError

NEEDED = ("greenlet", "hypothesis")


def require() -> None:
    """Raises SetupError if any of the libraries is not installed."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise SetupError(
            f"histories need {' and '.join(missing)}: type `make setup` in a copy of the repository"
            ", and use its `.venv/bin/durability`"
        )
