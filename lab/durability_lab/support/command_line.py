"""The command line of the product, as the lab starts it: with this Python, whatever PATH has."""

from __future__ import annotations

import sys

COMMAND = (sys.executable, "-c", "from durability_cli.main import main; main()")
