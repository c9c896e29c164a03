"""Writes what packages install below `share`: manual pages and completions, of the sources around it."""

from __future__ import annotations

import sys
from pathlib import Path

from release import completions, man_pages


def main() -> None:
    """`python -m release.share DIRECTORY SECONDS`; the pages are dated by the seconds since the epoch."""
    share, written_at_s = Path(sys.argv[1]), int(sys.argv[2])
    completions.write(share)
    man_pages.write(share / "man/man1", written_at_s=written_at_s)


if __name__ == "__main__":
    main()
