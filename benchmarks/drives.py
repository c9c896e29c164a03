"""Drives with known behaviour, to check the results of `durability bench`.

nbdkit's own filters make these drives; they share no code with this project. They give a delay of each write,
a bandwidth that drops during use, pauses from time to time, and a cache that honours or ignores flushes. The
drives use the lab's other parts (nbdfuse, a loop device), so a drive is removed with its `with` block in any
case.

The drives are not models of real drives: only the injected behaviour is known and may be asserted.
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
    """A drive made of nbdkit's filters over a file in memory; `words`: the filters and their parameters.

    `write_through`: the drive declares no volatile cache, so the kernel sends no flush. `rotational`: the
    drive declares that it rotates. Both are settings of the loop device, and `close` resets them.
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
        """As in `BlockRig`, and set whether the drive rotates."""
        super().power_on()
        self._say_rotational(self._rotational)

    def close(self) -> None:
        """As in `BlockRig`, and reset whether the drive rotates."""
        if self.loop:
            self._say_rotational(False)
        super().close()

    def throttle(self, bits_per_s: int) -> None:
        """Limit writes and reads together to this rate from now on, after a burst of 2 s at this rate."""
        new = self._rate_file.with_suffix(".new")
        new.write_text(f"{bits_per_s}\n")
        new.replace(self._rate_file)

    @property
    def written_bytes(self) -> int:
        """Bytes of the drive that were written at least once, in whole blocks of its sparse media."""
        return self._media.stat().st_blocks * 512

    @contextmanager
    def stalling(self, *, every_s: float, for_s: float) -> Iterator[None]:
        """During the block, let the drive stall for `for_s`, every `every_s`."""
        over = threading.Event()

        def stall() -> None:
            with socket.socket(socket.AF_UNIX) as control:
                control.settimeout(_ANSWER_S)
                control.connect(str(self._pause_socket))
                while not over.wait(every_s - for_s):
                    control.sendall(b"p")
                    control.recv(1)  # answers once the requests under way are done
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
        """The words for nbdkit; each drive can be throttled and stalled."""
        filters = [word for word in self._words if word.startswith("--")]
        parameters = [word for word in self._words if not word.startswith("--")]
        return (
            *("--filter=pause", "--filter=rate", *filters, "file", str(self._media), *parameters),
            *(f"pause-control={self._pause_socket}", f"rate-file={self._rate_file}"),
        )


class Silent:
    """A listener of a measurement that prints nothing, and calls `when_measuring` when measuring begins."""

    def __init__(self, when_measuring: Callable[[], None] | None = None) -> None:
        self._when_measuring = when_measuring

    def say(self, text: str) -> None:
        """Does nothing."""

    def preparing(self, done: int, total: int) -> None:
        """Does nothing."""

    def measuring(self, doing: str, done_s: float, left_s: float) -> None:
        """Calls `when_measuring` the first time, which is in the first round."""
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
    """Measure `cells` on `target` in standard mode; returns the result and the error that ended it early.

    `seconds`: duration of a round, without warm-up. `rounds`: number of rounds. If None, both are the cells'
    own. `idle_s`: pause before measuring, short because these drives have no other users.
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
    """As `outcome_on`, but returns only the result, and raises the error that ended it early."""
    outcome = outcome_on(target, cells, **how)
    if outcome.ending is not None:
        raise outcome.ending
    return outcome.result
