"""The drive models inside a real nbdkit, which is killed: they are the same drives as in this process."""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from durability_lab.drive import NBDKIT_PLUGIN
from durability_lab.drive.drive import Drive
from durability_lab.drive.drive_log import DriveLog
from durability_lab.drive.faults import parse
from durability_lab.drive.media import FileMedia, SparseMedia
from tests.lab.drive.nbd_client import NbdClient
from tests.lab.drive.small_drives import DEAD, HONEST, LIARS, SIZE_BYTES
from tests.waiting import DEADLINE_S, wait_for

SECTOR = 512
# By the clock of this machine nothing of these happens before the kill, so the damage is the same every time.
TIMELESS = {
    "early-ack:delay_ms=5": "early-ack:delay_ms=6e6",
    "rollback:interval_ms=20": "rollback:interval_ms=6e6",
    "partial-rollback:interval_ms=20,share=0.5": "partial-rollback:interval_ms=6e6,share=0.5",
}
SPECS = tuple(TIMELESS.get(spec, spec) for spec in (*HONEST, *LIARS, DEAD))


@pytest.fixture(scope="module", autouse=True)
def nbdkit() -> None:
    """Skips where nbdkit or its Python plugin is missing, unless DURABILITY_LAB_REQUIRED=1 forbids that."""
    there = shutil.which("nbdkit") and not subprocess.call(
        ("nbdkit", "python", "--dump-plugin"), stdout=subprocess.DEVNULL
    )
    if not there and os.environ.get("DURABILITY_LAB_REQUIRED") != "1":
        pytest.skip("nbdkit has no Python plugin: install nbdkit nbdkit-plugin-python")
    assert there


class Served:
    """A drive that nbdkit serves: a media file and a log, and the process for as long as it lives."""

    def __init__(self, directory: Path, spec: str, sector_bytes: int = SECTOR) -> None:
        self.media, self.drive_log = directory / "media", directory / "drive_log"
        self.media.write_bytes(bytes(SIZE_BYTES))
        self._directory = directory
        self._spec = spec
        self._sector_bytes = sector_bytes
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0

    def start(self) -> None:
        """Give the power, for the first time or after a kill."""
        self.socket = self._directory / f"socket {self._starts}"
        ready = self._directory / f"ready {self._starts}"
        self._process = subprocess.Popen(
            [
                *("nbdkit", "-f", "-U", self.socket, "-P", ready, "python", NBDKIT_PLUGIN),
                *(f"media={self.media}", f"model={self._spec}", "seed=7", f"drive_log={self.drive_log}"),
                *(f"sector_bytes={self._sector_bytes}", f"cuts={self._starts}"),
            ]
        )
        self._starts += 1
        wait_for(ready.exists)

    def kill(self) -> None:
        """Take the power away."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Makes drives in nbdkit, and ends them after the test."""
    drives: list[Served] = []

    def make(spec: str, sector_bytes: int = SECTOR) -> Served:
        drives.append(Served(tmp_path, spec, sector_bytes))
        drives[-1].start()
        return drives[-1]

    yield make
    for drive in drives:
        drive.kill()


def load(drive: Drive | NbdClient, sector_bytes: int) -> bytes:
    """Writes, FUA writes and flushes, the same ones each time; what a read of everything must give then."""
    chance = random.Random(11)
    expected = bytearray(SIZE_BYTES)
    for _ in range(150):
        count = chance.randint(1, (16 << 10) // sector_bytes)
        offset = chance.randrange(SIZE_BYTES // sector_bytes - count + 1) * sector_bytes
        data = chance.randbytes(count * sector_bytes)
        drive.write(offset, data, fua=chance.random() < 0.1)
        expected[offset : offset + len(data)] = data
        if chance.random() < 0.3:
            drive.flush()
    return bytes(expected)


def readable(drive: Drive | NbdClient, size_bytes: int) -> list[bytes | None]:
    """What each sector holds; None where the answer is an I/O error."""
    found: list[bytes | None] = []
    for offset in range(0, size_bytes, SECTOR):
        try:
            found.append(drive.read(offset, SECTOR))
        except OSError as error:
            assert error.errno == errno.EIO
            found.append(None)
    return found


@pytest.mark.parametrize("sector_bytes", [512, 4096])
@pytest.mark.parametrize("spec", SPECS)
def test_killed_drive_is_as_damaged_as_one_that_was_cut_here(
    spec: str, sector_bytes: int, serve: Callable[..., Served]
) -> None:
    """Reads are right until SIGKILL; then media, size, answers and log are those of the same drive in
    this process after the same requests and a cut."""
    drive_log = DriveLog()
    here = Drive(SparseMedia(SIZE_BYTES), parse(spec), seed=7, sector_bytes=sector_bytes, drive_log=drive_log)
    load(here, sector_bytes)
    here.cut()
    media = here.media.read(0, SIZE_BYTES)
    here.power_on()

    drive = serve(spec, sector_bytes)
    client = NbdClient(drive.socket)
    assert client.size_bytes == SIZE_BYTES
    newest = load(client, sector_bytes)
    assert client.read(0, SIZE_BYTES) == newest
    drive.kill()
    client.close()
    assert FileMedia(str(drive.media)).read(0, SIZE_BYTES) == media

    drive.start()
    client = NbdClient(drive.socket)
    assert client.size_bytes == here.size_bytes
    there = DriveLog(str(drive.drive_log))
    assert there.broken(here.peek, here.size_bytes) == drive_log.broken(here.peek, here.size_bytes)
    if not spec.startswith("hanging"):
        assert readable(client, here.size_bytes) == readable(here, here.size_bytes)
    client.close()


def test_drive_does_what_is_due_without_being_asked(serve: Callable[..., Served]) -> None:
    """Data acknowledged early reach media after their delay, even without further requests."""
    drive = serve("early-ack:delay_ms=50")
    client = NbdClient(drive.socket)
    data = random.Random(3).randbytes(4096)
    client.write(8192, data, fua=True)
    wait_for(lambda: FileMedia(str(drive.media)).read(8192, 4096) == data)
    drive.kill()
    assert FileMedia(str(drive.media)).read(0, 16384) == bytes(8192) + data + bytes(4096)
    client.close()


def test_hanging_read_keeps_nobody_else_waiting_and_dies_with_the_drive(serve: Callable[..., Served]) -> None:
    """After the kill a read is never answered; other requests are, and the next kill ends it."""
    drive = serve("hanging:share=1")
    drive.kill()
    drive.start()
    hung, other = NbdClient(drive.socket), NbdClient(drive.socket)
    hung.send_read(0, 4096)
    data = random.Random(3).randbytes(4096)
    for _ in range(20):
        other.write(4096, data, fua=True)
        assert other.read(4096, 4096) == data
        other.flush()
    assert not hung.has_answer()
    drive.kill()
    with pytest.raises(ConnectionError):
        hung.finish_read(4096)
    for client in (hung, other):
        client.close()


def test_account_goes_on_after_a_kill(serve: Callable[..., Served]) -> None:
    """After a kill and a restart, the drive log still has the earlier promises, and new ones are added."""
    drive = serve("honest")
    for number in (1, 2):
        client = NbdClient(drive.socket)
        client.write(number * 4096, bytes([number]) * 4096, fua=True)
        drive.kill()
        drive.start()
        client.close()
    drive_log = DriveLog(str(drive.drive_log))
    assert drive_log.promises().sectors == 16
    assert drive_log.promises().writes == 2
    assert drive_log.broken(FileMedia(str(drive.media)).read, SIZE_BYTES) == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ((), "needs media, model, sector_bytes, seed"),
        (("model=liar",), "no drive model 'liar'"),
        (("model=early-ack:delay=1",), "has no parameter 'delay'"),
        (
            ("behaviour=honest",),
            "knows cuts, drive_log, events, media, model, sector_bytes, seed, not behaviour",
        ),
    ],
)
def test_wrong_settings_are_explained(settings: tuple[str, ...], said: str, tmp_path: Path) -> None:
    """nbdkit does not start, and says which setting is missing, unknown or wrong."""
    media = tmp_path / "media"
    media.write_bytes(bytes(4096))
    whole = (f"media={media}", "seed=1", "sector_bytes=512") if settings else ()
    socket = tmp_path / "socket"  # one of nbdkit's own choice would leave its directory behind
    command = ("nbdkit", "-f", "-U", socket, "python", NBDKIT_PLUGIN, *whole, *settings, "--run", "true")
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode != 0
    assert said in done.stderr
