"""Drives that behave in a known way, to check what the benchmark says of them.

nbdkit's own filters make them, which share no code with this project: a delay of each write, a bandwidth that
drops while the drive is used, a pause once in a while, a cache that honours flushes or ignores them. Below
them are the lab's parts (nbdfuse, a loop device), so a drive goes with its `with` block, whatever ends it.

Refuses to be a model of any real drive: only what is injected is known, and only that may be asserted.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from durability.bench.cells import MIB, Cell
from durability.bench.result import Result
from durability_client.bench.runner import MeasuredResult, Options, ProgressListener, measure
from durability_client.target.safety_checks import Consent
from durability_lab.kernel_rig.block_rig import SIZE_BYTES, BlockRig
from durability_lab.support.loads import FileSystemName

HONEST: Final = ("--filter=cache", "cache=writeback")
LIAR: Final = ("--filter=cache", "cache=unsafe")
NO_FLUSH: Final = ("--filter=fua", "fuamode=discard")
_ANSWER_S = 10.0


class Drive(BlockRig):
    """A drive of nbdkit's filters, `words` being them and their parameters, over a file in memory.

    `write_through`: it declares no volatile cache, so the kernel sends no flush. `rotational`: it says that
    it rotates. Both are said by the loop device, which forgets them when it goes.
    """

    def __init__(
        self,
        *words: str,
        file_system: FileSystemName | None = None,
        size_bytes: int = SIZE_BYTES,
        write_through: bool = False,
        rotational: bool = False,
    ) -> None:
        super().__init__("filter-honest", file_system, seed=0, size_bytes=size_bytes)
        self._words = words
        self._write_through = write_through
        self._rotational = rotational

    def power_on(self) -> None:
        """As any rig, and say whether it rotates."""
        super().power_on()
        self._say_rotational(self._rotational)

    def close(self) -> None:
        """As any rig."""
        if self.loop:
            self._say_rotational(False)
        super().close()

    def throttle(self, bits_per_s: int) -> None:
        """Let no more than this pass from now on, writes and reads together, after 2 seconds' worth of it."""
        new = self._rate_file.with_suffix(".new")
        new.write_text(f"{bits_per_s}\n")
        new.replace(self._rate_file)

    @contextmanager
    def stalling(self, *, every_s: float, for_s: float) -> Iterator[None]:
        """Within the block the drive answers nothing for a while, again and again, until the block ends."""
        over = threading.Event()

        def stall() -> None:
            with socket.socket(socket.AF_UNIX) as control:
                control.settimeout(_ANSWER_S)
                control.connect(str(self._pause_socket))
                while not over.wait(every_s - for_s):
                    control.sendall(b"p")
                    control.recv(1)  # once what was under way is done
                    over.wait(for_s)
                    control.sendall(b"r")
                    control.recv(1)

        thread = threading.Thread(target=stall)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    @property
    def _rate_file(self) -> Path:
        return self._directory / "rate"

    @property
    def _pause_socket(self) -> Path:
        return self._directory / "pause.sock"

    def _say_rotational(self, value: bool) -> None:
        Path("/sys/block", Path(self.loop).name, "queue/rotational").write_text(str(int(value)))

    def _drive_command(self) -> tuple[str, ...]:
        """What nbdkit is to run; each drive can be throttled and stalled."""
        filters = [word for word in self._words if word.startswith("--")]
        parameters = [word for word in self._words if not word.startswith("--")]
        return (
            *("--filter=pause", "--filter=rate", *filters, "file", str(self._media), *parameters),
            *(f"pause-control={self._pause_socket}", f"rate-file={self._rate_file}"),
        )


class Silent:
    """A listener of a measurement that says nothing, and calls `when_measuring` once it is under way."""

    def __init__(self, when_measuring: Callable[[], None] | None = None) -> None:
        self._when_measuring = when_measuring

    def say(self, text: str) -> None:
        """Nothing."""

    def preparing(self, done: int, total: int) -> None:
        """Nothing."""

    def measuring(self, doing: str, done_s: float, left_s: float) -> None:
        """The first call is that of the first round."""
        act, self._when_measuring = self._when_measuring, None
        if act is not None:
            act()


def outcome_on(
    target: Path,
    cells: Iterable[Cell],
    *,
    seed: int,
    seconds: float | None = None,
    rounds: int | None = None,
    size_bytes: int = 64 * MIB,
    idle_s: float = 0.1,
    listener: ProgressListener | None = None,
) -> MeasuredResult:
    """What measuring `cells` on `target`, as the standard mode does, gives and what ended it.

    `seconds` of a round (then without a warm-up) and `rounds` are the cells' own where None. `idle_s`: how
    long the drive is left alone before, which is short, since nobody else uses these drives.
    """
    times: dict[str, Any] = {} if seconds is None else {"seconds": seconds, "warmup_s": 0.0}
    times |= {} if rounds is None else {"rounds": rounds}
    options = Options(
        target=target,
        cells=tuple(replace(cell, **times) for cell in cells),
        mode="standard",
        profile="",
        size_bytes=size_bytes,
        seed=seed,
        consent=Consent(destroy_data=True, force=True),
        show_serials=False,
        fio=False,
        idle_s=idle_s,
    )
    return measure(options, listener or Silent())


def measured_on(target: Path, cells: Iterable[Cell], **how: Any) -> Result:
    """The same, where nothing ends it early. Raises what did."""
    outcome = outcome_on(target, cells, **how)
    if outcome.ending is not None:
        raise outcome.ending
    return outcome.result
