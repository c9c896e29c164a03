"""The live line and the JSON lines: what is shown, where, and how often."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest

from durability_client.run.status_line import StatusLine, StatusSample

SAMPLE = StatusSample(
    elapsed_s=12.3456,
    acked=130_260,
    rate=10_855.4,
    p50_ns=91_000,
    p99_ns=130_000,
    max_ns=2_100_000,
    unconfirmed=12,
    rtt_ns=180_000,
    state="running",
    detail="",
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_json_line_per_sample_and_nothing_else_on_stdout() -> None:
    """Each sample is one document whose first key is its schema; stderr gets no lines of its own."""
    out, err = io.StringIO(), io.StringIO()
    live = StatusLine("00000000000000ff", out=out, err=err)
    live.show(SAMPLE)
    live.show(replace(SAMPLE, state="stopped"))
    first, last = map(json.loads, out.getvalue().splitlines())
    assert next(iter(first)) == "schema"
    assert first == {
        "schema": "durability.run/1",
        "run": "00000000000000ff",
        "elapsed_s": 12.346,
        "acked": 130_260,
        "rate": 10_855.4,
        "latency_us": {"p50": 91.0, "p99": 130.0, "max": 2100.0},
        "unconfirmed": 12,
        "state": "running",
        "detail": "",
    }
    assert last["state"] == "stopped"
    assert err.getvalue() == ""


def test_on_a_terminal_the_line_is_rewritten_and_text_does_not_run_into_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two samples take one line; a message between them starts on a line of its own."""
    monkeypatch.setenv("COLUMNS", "160")
    err = Terminal()
    live = StatusLine("00000000000000ff", out=None, err=err)
    live.show(SAMPLE)
    live.show(SAMPLE)
    assert "\n" not in err.getvalue() and err.getvalue().count("\r") == 2
    live.say("server: the disk is full")
    assert err.getvalue().endswith("running\nserver: the disk is full\n")


def test_json_on_a_terminal_is_not_overwritten() -> None:
    """The line that is rewritten would begin in it, and go up over its last row."""
    out, err = Terminal(), Terminal()
    live = StatusLine("00000000000000ff", out=out, err=err)
    live.show(SAMPLE)
    live.show(SAMPLE)
    assert out.getvalue().count("\n") == 2 and err.getvalue() == ""


def test_a_notice_forges_no_line() -> None:
    """A server's notice stays on one line, so no part of it looks like a line of the run."""
    err = io.StringIO()
    StatusLine("00000000000000ff", out=None, err=err).say("server: full\nverdict: durable")
    assert err.getvalue() == "server: full\\nverdict: durable\n"


@pytest.mark.parametrize("columns", [30, 40, 80, 120])
def test_a_narrow_terminal_gets_rows_that_are_rewritten(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    """No row is as wide as the terminal, which would break it, and the next second replaces all rows."""
    monkeypatch.setenv("COLUMNS", str(columns))
    err = Terminal()
    live = StatusLine("00000000000000ff", out=None, err=err)
    detail = "no answer from the server since 12:00"
    live.show(replace(SAMPLE, state="reconnecting", detail=detail))
    rows = err.getvalue().removeprefix("\r\x1b[J").split("\n")
    assert max(map(len, rows)) < columns
    assert rows[0].startswith("    12 s")
    assert " ".join(" ".join(rows).split()).endswith(f"reconnecting: {detail}")
    before = len(err.getvalue())
    live.show(SAMPLE)
    assert err.getvalue()[before:].startswith(f"\x1b[{len(rows) - 1}A\r\x1b[J    12 s")


def test_a_terminal_does_not_break_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long lines go on below the values of the facts; a log has each line whole."""
    monkeypatch.setenv("COLUMNS", "40")
    text = "layers       dm-0 (crypt) > nvme0n1p2 (partition) > nvme0n1"
    terminal, log = Terminal(), io.StringIO()
    for err in (terminal, log):
        StatusLine("00000000000000ff", out=None, err=err).say(text)
    assert log.getvalue() == f"{text}\n"
    assert terminal.getvalue().splitlines() == [
        "layers       dm-0 (crypt) > nvme0n1p2",
        "             (partition) > nvme0n1",
    ]


def test_what_has_no_value_is_a_dash() -> None:
    """While the client reconnects, no commit and no round trip took 0 ns: there are none."""
    err = io.StringIO()
    nothing = replace(SAMPLE, rate=0.0, p50_ns=0, p99_ns=0, max_ns=0, rtt_ns=0, state="reconnecting")
    StatusLine("00000000000000ff", out=None, err=err).show(nothing)
    shown = err.getvalue().replace("\N{EN DASH}", "-")
    assert "commit p50 -  p99 -  max -  " in shown
    assert "RTT -  reconnecting" in shown


def test_a_log_tells_how_far_the_prefill_is() -> None:
    """Where no bar can be drawn, the line of the prefill has bytes and no rates of nothing."""
    err = io.StringIO()
    live = StatusLine("00000000000000ff", out=None, err=err)
    live.show(replace(SAMPLE, state="prefill"))
    with live.prefill() as progress:
        progress(1 << 20, 4 << 20)
    live.show(replace(SAMPLE, state="prefill", detail="no connection"))
    filled = "prefill  1,048,576 of 4,194,304 bytes"
    assert err.getvalue() == f"    12 s  prefill\n    12 s  {filled}  no connection\n"


def test_the_prefill_has_its_bar_to_itself_on_a_terminal() -> None:
    """No line is written across the bar of the prefill."""
    err = Terminal()
    StatusLine("00000000000000ff", out=None, err=err).show(replace(SAMPLE, state="prefill"))
    assert err.getvalue() == ""


def test_without_a_terminal_a_line_comes_with_news_only() -> None:
    """A log gets a line when the state changes, not one per second, and no control characters."""
    err = io.StringIO()
    live = StatusLine("00000000000000ff", out=None, err=err)
    live.show(SAMPLE)
    live.show(SAMPLE)
    live.show(replace(SAMPLE, state="waiting for credit", detail="the server's disk is full"))
    lines = err.getvalue().splitlines()
    assert len(lines) == 2 and err.getvalue().replace("\n", "").isprintable()
    assert "10,855/s" in lines[0] and "p99 130 µs" in lines[0] and "12 unconfirmed" in lines[0]
    assert lines[1].endswith("waiting for credit: the server's disk is full")


def test_no_bar_without_a_terminal() -> None:
    """The prefill's progress writes nothing into a log, and its bar works on a terminal."""
    for err in (io.StringIO(), Terminal()):
        live = StatusLine("00000000000000ff", out=None, err=err)
        with live.prefill() as progress:
            progress(1 << 20, 4 << 20)
            progress(4 << 20, 4 << 20)
        assert bool(err.getvalue()) == err.isatty()
