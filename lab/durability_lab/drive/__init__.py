"""Drives that lose power and lie on purpose. Standard library only: guests and nbdkit run this code."""

from pathlib import Path

NBDKIT_PLUGIN = Path(__file__).with_name(
    "nbdkit_plugin.py"
)  # runs inside nbdkit, which has its module `nbdkit`
