"""Drives that lose power and lie on purpose. Standard library only, since a guest and nbdkit run it."""

from pathlib import Path

NBDKIT_PLUGIN = Path(__file__).with_name(
    "nbdkit_plugin.py"
)  # runs inside nbdkit, which has its module `nbdkit`
