"""What histories need beside the product: libraries that only developers install.

This module imports neither of them, so that a command can say what is missing.
"""

from __future__ import annotations

from importlib.util import find_spec

from durability.errors import SetupError

NEEDED = ("greenlet", "hypothesis")


def require() -> None:
    """Raises SetupError for those that are not installed."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise SetupError(
            f"histories need {' and '.join(missing)}: type `make setup` in a copy of the repository"
            ", and use its `.venv/bin/durability`"
        )
