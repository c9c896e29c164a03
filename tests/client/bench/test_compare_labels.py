"""What `compare` calls each result: a name short enough to read, and never that of another result."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from durability.bench.result import encode
from durability.errors import EXIT_OK
from durability_client.bench.bench_command import CompareOptions, compare_files
from tests.core.bench.results import JUDGED, Device, simulate


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (("old.json", "new.json"), ("old", "new")),
        (("ssd.A", "ssd.B"), ("ssd.A", "ssd.B")),
        (("disk.json", "disk.old"), ("disk.json", "disk.old")),
        (("samsung-870.5", "samsung-870.6"), ("samsung-870.5", "samsung-870.6")),
        (("a/x.json", "b/x.json"), ("a/x.json", "b/x.json")),
        (("a/x.json", "b/x.old", "b/y.json"), ("x.json", "x.old", "y.json")),
        (("ssd.1.json", "ssd.1", "ssd.2"), ("ssd.1.json", "ssd.1", "ssd.2")),  # one's stem is another's name
    ],
)
def test_two_results_have_two_names(
    names: tuple[str, ...], labels: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file's name without its ending if these differ, else with it, else the path as it was given."""
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(names):
        path = Path(name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(encode(simulate(Device(), cells=JUDGED[:2], seed=number)))
    out = io.StringIO()
    options = CompareOptions(paths=tuple(map(Path, names)), json=True)
    assert compare_files(options, out, io.StringIO()) == EXIT_OK
    assert tuple(json.loads(out.getvalue())["labels"]) == labels
