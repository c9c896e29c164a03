"""The consoles of a live machine: screens, which are redrawn, and serial lines, which get only new lines.

A console that does not accept output, such as a serial line without a reader, causes no delay: its output is
dropped. A console that hangs up is closed, since the kernel would report it as readable for ever. Input is
edited by this module, so that drawing does not disturb it.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import struct
import termios
import time
import tty
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from durability_client.live import screen
from durability_client.live.screen import View

_ACTIVE = Path("/sys/class/tty/console/active")
_SCREEN = re.compile(r"tty\d+")
_FIRST_SCREEN = "tty1"
_SIZE = (24, 80)  # assumed size of a serial line, which reports none
_DRAW = "\x1b[?25l\x1b[H\x1b[2J"
_DRAWN_AGAIN_S = 30.0  # interval of redrawing, because the kernel may have overwritten the screen
_TYPED_MAX = 200
_INPUT_BYTES = 256


def names(active: Path = _ACTIVE) -> list[str]:
    """The consoles on the kernel's command line. All screens among them become the first screen, which is in
    the foreground."""
    try:
        found = active.read_text().split()
    except OSError:
        found = []
    return list(dict.fromkeys(_FIRST_SCREEN if _SCREEN.fullmatch(name) else name for name in found))


@dataclass
class Console:
    """One terminal at the non-blocking `descriptor`, which is -1 after it has hung up. `typed` gets each
    complete line of input."""

    descriptor: int
    is_screen: bool
    typed: Callable[[str], None]
    asks: bool = True
    _line: str = ""
    _shown: str = ""
    _drawn_s: float = 0.0
    _head: list[str] = field(default_factory=list)
    _verdicts: list[str] = field(default_factory=list)
    _said: int = 0

    @property
    def is_open(self) -> bool:
        """Whether the console has not hung up."""
        return self.descriptor >= 0

    def show(self, view: View, said: int) -> None:
        """Show changes. `said`: the total number of lines from the agent."""
        if not self.is_open:
            return
        if self.is_screen:
            self._draw(view)
        else:
            self._add(view, said)

    def read(self) -> None:
        """Read and handle input."""
        try:
            data = os.read(self.descriptor, _INPUT_BYTES)
        except BlockingIOError:
            return
        except OSError:  # also means that the console has hung up
            data = b""
        if not data:
            self._close()
        for one in data.decode("ascii", "ignore"):
            if one in "\r\n":
                line, self._line = self._line, ""
                self._echo("\r\n")
                if self.asks and line.strip():
                    self.typed(line)
            elif one in "\x7f\b":
                if self._line:
                    self._echo("\b \b")
                self._line = self._line[:-1]
            elif one == "\x15":
                self._line = ""
            elif one.isprintable() and len(self._line) < _TYPED_MAX and self.asks:
                self._line += one
                self._echo(one)

    def _close(self) -> None:
        asyncio.get_running_loop().remove_reader(self.descriptor)
        os.close(self.descriptor)
        self.descriptor = -1

    def _echo(self, text: str) -> None:
        if self.asks and not self.is_screen:
            self._write(text)

    def _draw(self, view: View) -> None:
        height, width = self._size()
        page = screen.page(view, width=width, height=height, typed=self._line if self.asks else None)
        now_s = time.monotonic()
        if page != self._shown or now_s - self._drawn_s > _DRAWN_AGAIN_S:
            self._shown, self._drawn_s = page, now_s
            self._write(_DRAW + page + ("\x1b[?25h" if self.asks else ""))

    def _add(self, view: View, said: int) -> None:
        width = self._size()[1]
        new: list[str] = []
        head = screen.head(view, width=width)
        still = [line.rpartition("  ")[0] if "in this boot" in line else line for line in head]
        if still != self._head:
            new += ["", *head]
            self._head = still
            if self.asks:
                new += ["", screen.HOW_TO_JOIN]
        count = min(said - self._said, len(view.said))
        if count > 0:
            new += screen.lines(view.said[-count:], width=width)
        self._said = said
        verdicts = screen.verdicts(view, width=width)
        if verdicts != self._verdicts:
            new += ["", *verdicts, ""]
            self._verdicts = verdicts
        if new:
            self._write("\r\n".join(new) + "\r\n" + (f"> {self._line}" if self.asks else ""))

    def _size(self) -> tuple[int, int]:
        try:
            rows, columns, *_ = struct.unpack(
                "HHHH", fcntl.ioctl(self.descriptor, termios.TIOCGWINSZ, bytes(8))
            )
        except OSError:
            rows = columns = 0
        return (rows, columns) if rows and columns else _SIZE

    def _write(self, text: str) -> None:
        data = text.encode("utf-8", "replace")
        with suppress(OSError):  # the console accepts no output
            os.write(self.descriptor, data)


def open_console(name: str, typed: Callable[[str], None], *, devices: Path = Path("/dev")) -> Console | None:
    """Open the console `name`, whose input lines go to `typed`. None if it cannot be opened; raises
    nothing."""
    try:
        descriptor = os.open(devices / name, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        tty.setcbreak(descriptor)
        settings = termios.tcgetattr(descriptor)
        settings[3] &= ~termios.ECHO
        termios.tcsetattr(descriptor, termios.TCSANOW, settings)
    except (OSError, termios.error):  # for example, a serial line without a port
        os.close(descriptor)
        return None
    console = Console(descriptor, bool(_SCREEN.fullmatch(name)), typed)
    asyncio.get_running_loop().add_reader(descriptor, console.read)
    return console
