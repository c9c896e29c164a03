"""Prints what `make coverage` measured: of each package's lines the share that ran."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from coverage import Coverage

ROOT = Path(__file__).parents[1]


def main() -> None:
    """One line per package, folders sorted; what processes did that were killed is not in it."""
    coverage = Coverage()
    coverage.load()
    lines, missed = Counter[str](), Counter[str]()
    for file in coverage.get_data().measured_files():
        package = str(Path(file).parent.relative_to(ROOT))
        _, statements, _, missing, _ = coverage.analysis2(file)
        lines[package] += len(statements)
        missed[package] += len(missing)
    for package in sorted(lines):
        print(_line(package, lines[package], missed[package]))
    print(_line("all", lines.total(), missed.total()))


def _line(name: str, lines: int, missed: int) -> str:
    return f"{name:44} {lines:6,} lines {1 - missed / max(lines, 1):7.1%}"


if __name__ == "__main__":
    main()
