"""A headless Chromium that a test talks to through a pipe, so that nothing listens (DevTools protocol).

Sees a page as people do: its width, its colours in the dark, its picture; and what it asked for and
complained of.
"""

from __future__ import annotations

import base64
import json
import os
import re
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.waiting import DEADLINE_S

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
PAPER_PX = 703  # of A4 between margins of 12 mm, at 96 pixels an inch
# What lies beyond the paper, and would be cut off: the beginning of its text.
_BEYOND = """
[...document.querySelectorAll('h1, h2, h3, p, li, pre, th, td, svg, .tile')].filter(one =>
  one.getClientRects().length && one.getBoundingClientRect().right > innerWidth + 1
).map(one => one.textContent.trim().slice(0, 60))
"""
_LAUNCH = """
import fcntl, os, sys
commands, answers = (fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3])
os.dup2(commands, 3)  # where it reads its commands, and 4 where it writes its answers
os.dup2(answers, 4)
os.execvp("chromium", ["chromium", *sys.argv[3:]])
"""


def missing() -> str:
    """What is missing for it here, or nothing."""
    return "" if shutil.which("chromium") else "chromium is not installed (package chromium)"


class Browser:
    """One page at a time. `complaints`: what its console said; `requests`: what the page asked for."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._buffer = b""
        self._number = 0
        self._session = ""
        self.complaints: list[str] = []
        self.requests: list[str] = []

    def open(self, path: Path | str, *, width: int = 1280, dark: bool = False) -> None:
        """Show the file `path`, or what a server has at an address, in a window so many pixels wide."""
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.complaints, self.requests = [], []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._ask(f"{domain}.enable")
        self._emulate("", dark=dark, width=width)
        self._ask("Page.navigate", url=path if isinstance(path, str) else path.absolute().as_uri())
        self._read_until(lambda message: message.get("method") == "Page.loadEventFired")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression on the page."""
        answer = self._ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """The whole page as a picture."""
        answer = self._ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def print_to(self, path: Path) -> int:
        """The page on A4 as PDF; the number of sheets."""
        answer = self._ask("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        printed = base64.b64decode(answer["data"])
        path.write_bytes(printed)
        return len(re.findall(rb"/Type\s*/Page\b", printed))

    def put_on_paper(self, *, dark: bool) -> list[str]:
        """Lay the page out as for A4, where the screen is `dark`, to look at it; what lies beyond the
        paper."""
        self._emulate("print", dark=dark, width=PAPER_PX)
        found: list[str] = self.evaluate(_BEYOND)
        return found

    def _emulate(self, media: str, *, dark: bool, width: int) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self._ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )

    def _ask(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters}
        if self._session and not method.startswith("Target."):
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        answer = self._read_until(lambda message: message.get("id") == number)
        assert "error" not in answer, (method, answer)
        return answer["result"]

    def _read_until(self, wanted: Any) -> dict[str, Any]:
        for message in self._messages():
            self._note(message)
            if wanted(message):
                return message
        raise AssertionError("the browser has gone")

    def _messages(self) -> Iterator[dict[str, Any]]:
        while True:
            while b"\0" not in self._buffer:
                ready, _, _ = select.select([self._answers], [], [], DEADLINE_S)
                assert ready, f"the browser did not answer for {DEADLINE_S} s"
                data = os.read(self._answers, 1 << 20)
                if not data:
                    return
                self._buffer += data
            text, _, self._buffer = self._buffer.partition(b"\0")
            yield json.loads(text)

    def _note(self, message: dict[str, Any]) -> None:
        method, found = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(found["request"]["url"])
        elif method in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled"):
            self.complaints.append(json.dumps(found))
        elif method == "Log.entryAdded":
            self.complaints.append(found["entry"]["text"])


@contextmanager
def browser(directory: Path) -> Iterator[Browser]:
    """A browser that keeps all it has in `directory`; it is gone afterwards."""
    (their_commands, commands), (answers, their_answers) = os.pipe(), os.pipe()
    ends = (str(their_commands), str(their_answers))
    with subprocess.Popen(
        [sys.executable, "-c", _LAUNCH, *ends, *FLAGS, f"--user-data-dir={directory}", "about:blank"],
        env=os.environ | {"HOME": str(directory)},
        pass_fds=(their_commands, their_answers),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        os.close(their_commands)
        os.close(their_answers)
        try:
            yield Browser(commands, answers)
        finally:
            os.close(commands)  # it ends when nobody talks to it any more
            os.close(answers)
            try:
                process.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()
