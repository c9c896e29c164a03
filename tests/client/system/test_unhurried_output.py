"""A run waits for no terminal that was stopped, and learns that its reader has gone."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from durability_client.run.status_line import OutputError, StatusLine
from durability_client.system.unhurried_output import WAITING_MAX, UnhurriedOutput
from tests.client.run.test_status_line import SAMPLE
from tests.waiting import wait_for

LONG = "x" * 1000


@pytest.fixture
def pipe() -> Iterator[tuple[int, UnhurriedOutput]]:
    """The end of a reader, and what writes to the other one."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w", encoding="ascii", errors="backslashreplace") as out:
        yield reader, UnhurriedOutput(out)


def test_an_output_that_takes_nothing_is_not_waited_for(pipe: tuple[int, UnhurriedOutput]) -> None:
    """All that fits comes in order once it is read; what does not is left out."""
    reader, output = pipe
    for number in range(3 * WAITING_MAX):
        output.write(f"{number} {LONG}\n")
    assert not output.is_idle
    read = bytearray()
    os.set_blocking(reader, False)

    def is_all_read() -> bool:
        idle = output.is_idle
        with suppress(BlockingIOError):
            while True:
                read.extend(os.read(reader, 1 << 16))
        return idle

    wait_for(is_all_read)
    numbers = [int(line.split()[0]) for line in read.decode().splitlines()]
    assert numbers == sorted(set(numbers)) and numbers[0] == 0 and len(numbers) >= WAITING_MAX
    assert output.failure is None


def test_a_run_ends_once_its_reader_has_gone() -> None:
    """The reason is stdout, and neither the target nor a defect."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w", encoding="ascii") as out:
        live = StatusLine("00000000000000ff", out=out, err=io.StringIO())
        os.close(reader)
        live.show(SAMPLE)
        assert live._out is not None
        wait_for(lambda: live._out is not None and live._out.failure is not None)
        with pytest.raises(OutputError, match="stdout cannot be written: Broken pipe") as raised:
            live.show(SAMPLE)
    assert isinstance(raised.value.__cause__, BrokenPipeError)


def test_the_last_lines_are_not_lost_without_a_word() -> None:
    """The disk is full at the last line, after which nothing more is shown."""
    with Path("/dev/full").open("w", encoding="utf-8") as out:
        live = StatusLine("00000000000000ff", out=out, err=io.StringIO())
        live.show(replace(SAMPLE, state="stopped"))
        with pytest.raises(OutputError, match="stdout cannot be written: No space left on device"):
            live.close()


def test_json_is_ascii_for_a_stream_that_is_not_of_utf_8() -> None:
    """Latin-1 bytes are no JSON, and a question mark is not what the text said."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w", encoding="latin-1") as out:
        live = StatusLine("00000000000000ff", out=out, err=io.StringIO())
        live.show(replace(SAMPLE, detail="Müller → \U0001f600"))
        live.close()
        line = os.read(reader, 1 << 16)
    os.close(reader)
    assert json.loads(line.decode("ascii"))["detail"] == "Müller → \U0001f600"
