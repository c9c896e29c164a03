"""The status line of a run, one per second.

The line for people goes to stderr. On a terminal, one line is rewritten. Elsewhere, a new line follows when
the state changes and every ten seconds. Programs read JSON lines on stdout (`durability.run/1`). Output never
slows a writer down: the run does not wait for a stopped terminal, or for a program that does not read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from textwrap import wrap
from typing import Literal, TextIO, TypeAlias, cast

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from durability import plain_text
from durability.errors import EXIT_ENVIRONMENT, DurabilityError
from durability.units import duration
from durability_client.descriptions import VALUES_AT
from durability_client.system.terminal import PLAIN_LINE_S, columns_of, fitted, json_line
from durability_client.system.unhurried_output import UnhurriedOutput

RUN_SCHEMA = "durability.run/1"
_LAST_LINES_S = 30.0  # time for a program to read the last lines

State: TypeAlias = Literal["prefill", "running", "waiting for credit", "reconnecting", "stopping", "stopped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusSample:
    """The last second of a run."""

    elapsed_s: float
    acked: int  # operations acknowledged since the run's start
    rate: float
    # Latencies of whole commits; 0 if there was no commit.
    p50_ns: int
    p99_ns: int
    max_ns: int
    unconfirmed: int  # acknowledged operations that the server has not yet confirmed as durably stored
    rtt_ns: int  # 0 without a connection
    state: State
    detail: str  # explains the state


class OutputError(DurabilityError):
    """Stdout, which programs read, cannot be written. The cause holds the reason."""

    exit_code = EXIT_ENVIRONMENT


class _Drawn:
    """File object through which a progress bar is drawn on `out`, the output of the terminal `err`."""

    def __init__(self, out: UnhurriedOutput, err: TextIO) -> None:
        self._out = out
        self.encoding = err.encoding
        self.fileno = err.fileno  # gives rich the size of the terminal

    def write(self, text: str) -> int:
        self._out.write(text)
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return True


class StatusLine:
    """Shows samples of the run named `run` (16 hexadecimal digits); without `out` there are no JSON lines."""

    def __init__(self, run: str, *, out: TextIO | None, err: TextIO) -> None:
        self._run = run
        self._stdout = out
        self._out = UnhurriedOutput(out) if out is not None else None
        self._err = err
        self._said = UnhurriedOutput(err)
        # If stdout is the same terminal, a rewritten line would overwrite the JSON lines.
        self._terminal = err.isatty() and not (out is not None and out.isatty())
        self._rows = 0  # rows of the line that is being rewritten
        self._last: tuple[State, str] | None = None
        self._next_line_s = 0.0
        self._prefilled = (0, 0)

    def say(self, text: str) -> None:
        """Write a permanent line for people."""
        self.end_line()
        self._said.write(f"{fitted(plain_text.as_line(text), self._err, indent=VALUES_AT)}\n")

    def show(self, sample: StatusSample) -> None:
        """Show one second. Raises OutputError."""
        if self._stdout is not None and self._out is not None:
            self._require_written(self._out)
            self._out.write(f"{json_line(_document(self._run, sample), self._stdout)}\n")
        if self._terminal:
            if sample.state != "prefill" or sample.detail:  # prefill has a progress bar instead
                self._rewrite(_rows(sample, columns_of(self._err)))
        elif self._out is None and self._is_news(sample):
            self._said.write(f"{self._line(sample)}\n")

    def end_line(self) -> None:
        """End the line that is being rewritten, so that it stays."""
        if self._rows:
            self._said.write("\n")
            self._rows = 0

    def flush(self) -> None:
        """Wait a limited time for lines that are not written yet, because other code writes there next."""
        self.end_line()
        self._said.flush()
        if self._out is not None:
            self._out.flush()

    def close(self) -> None:
        """Like `flush`, but wait longer for the JSON lines, of which none may be lost. Raises OutputError."""
        self.flush()
        if self._out is None:
            return
        self._out.flush(_LAST_LINES_S)
        self._require_written(self._out)
        if not self._out.is_idle:
            raise OutputError(f"stdout took nothing for {_LAST_LINES_S:.0f} s: the last lines are lost")

    def _require_written(self, out: UnhurriedOutput) -> None:
        if out.failure is not None:
            raise OutputError(f"stdout cannot be written: {out.failure.strerror}") from out.failure

    def _rewrite(self, rows: list[str]) -> None:
        """Replace the rows of the last second by `rows`."""
        upwards = f"\x1b[{self._rows - 1}A" if self._rows > 1 else ""
        if self._said.is_idle:  # otherwise skip this second; a later one is shown
            self._said.write(f"{upwards}\r\x1b[J" + "\n".join(rows))
            self._rows = len(rows)

    @contextmanager
    def prefill(self) -> Iterator[Callable[[int, int], None]]:
        """Show a progress bar of the prefilled bytes, or occasional lines if stderr is not a terminal.

        Yields a function that takes bytes done and bytes in all. Any thread may call it.
        """
        if not self._terminal:
            yield self._prefilling
            return
        columns = (
            TextColumn("prefill"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        drawn = cast(TextIO, _Drawn(self._said, self._err))
        with Progress(*columns, console=Console(file=drawn, force_terminal=True), transient=True) as progress:
            task = progress.add_task("prefill", total=None)
            yield lambda done, total: progress.update(task, completed=done, total=total)

    def _prefilling(self, done: int, total: int) -> None:
        self._prefilled = (done, total)

    def _line(self, sample: StatusSample) -> str:
        if sample.state != "prefill":
            return "  ".join(_parts(sample))
        done, total = self._prefilled
        prepared = f"  {done:,} of {total:,} bytes" if total else ""
        trouble = f"  {plain_text.as_line(sample.detail)}" if sample.detail else ""
        return f"{sample.elapsed_s:6.0f} s  prefill{prepared}{trouble}"

    def _is_news(self, sample: StatusSample) -> bool:
        now_s, state = time.monotonic(), (sample.state, sample.detail)
        if state == self._last and now_s < self._next_line_s:
            return False
        self._last, self._next_line_s = state, now_s + PLAIN_LINE_S
        return True


def _document(run: str, sample: StatusSample) -> dict[str, object]:
    return {
        "schema": RUN_SCHEMA,
        "run": run,
        "elapsed_s": round(sample.elapsed_s, 3),
        "acked": sample.acked,
        "rate": round(sample.rate, 1),
        "latency_us": {
            "p50": sample.p50_ns / 1000,
            "p99": sample.p99_ns / 1000,
            "max": sample.max_ns / 1000,
        },
        "unconfirmed": sample.unconfirmed,
        "state": sample.state,
        "detail": sample.detail,
    }


def _rows(sample: StatusSample, width: int) -> list[str]:
    """Split the line into rows that fit a terminal of `width` columns, so that they can be rewritten."""
    indent = " " * 10
    room = max(width - 1, 2 * len(indent))
    first, *parts = _parts(sample)
    rows = [first]
    for piece in (piece for part in parts for piece in wrap(part, room - len(indent))):
        if len(longer := f"{rows[-1]}  {piece}") <= room:
            rows[-1] = longer
        else:
            rows.append(f"{indent}{piece}")
    return rows


def _parts(sample: StatusSample) -> list[str]:
    return [
        f"{sample.elapsed_s:6.0f} s",
        f"{sample.rate:9,.0f}/s",
        f"commit p50 {_known(sample.p50_ns)}  p99 {_known(sample.p99_ns)}  max {_known(sample.max_ns)}",
        f"acked {sample.acked:,}",
        f"server {sample.unconfirmed:,} unconfirmed, RTT {_known(sample.rtt_ns)}",
        f"{sample.state}{': ' if sample.detail else ''}{plain_text.as_line(sample.detail)}",
    ]


def _known(nanoseconds: int) -> str:
    """The duration as text, or a dash if it is 0."""
    return duration(nanoseconds) if nanoseconds else "\N{EN DASH}"
