"""Other programs as /proc has them: threads of the kernel, and who wrote the most."""

from __future__ import annotations

import os
from pathlib import Path

from durability_client.system.other_programs import Program, busiest, kernel_threads, programs


def _process(proc: Path, pid: int, name: str, parent: int, written: int | None = None) -> None:
    directory = proc / str(pid)
    directory.mkdir(exist_ok=True)
    (directory / "stat").write_text(f"{pid} ({name}) S {parent} 0 0\n")
    if written is not None:
        (directory / "io").write_text(f"rchar: 1\nwrite_bytes: {written}\ncancelled_write_bytes: 9\n")


def test_threads_of_the_kernel_are_not_programs(tmp_path: Path) -> None:
    """Children of kthreadd are threads of the kernel; what has no readable counts is no program."""
    _process(tmp_path, 2, "kthreadd", 0)
    _process(tmp_path, 812, "ext4lazyinit", 2, 10)
    _process(tmp_path, 900, "a name) with (brackets", 1, 4096)
    _process(tmp_path, 901, "of another user", 1)
    (tmp_path / "77").mkdir()  # has ended meanwhile
    assert kernel_threads(proc=tmp_path) == {"ext4lazyinit"}
    found = programs(proc=tmp_path)
    assert found == {900: Program(pid=900, name="a name) with (brackets", written_bytes=4096)}


def test_who_wrote_the_most() -> None:
    """Between two readings: the growth counts, not the sum; a new program, or a new owner of a pid, whole."""

    def reading(**written: int) -> dict[int, Program]:
        return {
            number: Program(pid=number, name=name, written_bytes=count)
            for number, (name, count) in enumerate(written.items())
        }

    before = reading(old=1000, busy=10)
    most = busiest(before, reading(old=1001, busy=60))
    assert most == Program(pid=1, name="busy", written_bytes=50)
    new = busiest(before, reading(other=500, busy=60))
    assert new == Program(pid=0, name="other", written_bytes=500)
    assert busiest(before, before) is None and busiest({}, {}) is None


def test_this_machine_is_read() -> None:
    """The real tree: this process is a program with a count."""
    assert programs()[os.getpid()].written_bytes >= 0
