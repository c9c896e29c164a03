"""Where things lie in the repository, for tests that read its files."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
VECTORS = TESTS / "vectors"
