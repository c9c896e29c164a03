"""The two machines of rig A in virtual time: a client, and a server.

All durations in a run (services of the drive, the network, the server's commits, waiting) are drawn from a
seed and skipped. The evidence is made as in the product. The writers write the plan's records in its order
through a `TargetFile`, never beyond their grant and credit. They publish a frontier only after its sync has
returned. The server's own `Run` takes in the frames as they arrive. A run of minutes takes milliseconds, and
the same seed gives the same run.

The network stays realistic: a frame never overtakes an earlier one, and a frame under way when its machine
dies is lost.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from random import Random
from statistics import NormalDist
from typing import TypeAlias

import numpy as np

from durability import limits
from durability.formats.documents import to_value
from durability.formats.facts import Facts
from durability.formats.mixing import U64, Words
from durability.formats.plan import WRITE_THROUGH_METHODS, Extent, Plan
from durability.formats.record import SECTOR_WORDS, Stamper
from durability.formats.versions import Versions
from durability_client.run.run_command import TICK_S
from durability_client.run.sender import POLL_S
from durability_client.run.writer import NAP_S
from durability_client.target.drive_reader import RETRY_S
from durability_client.target.drive_watch import LOOK_S
from durability_client.target.storage import DriveLook, Storage, TargetFile
from durability_client.target.target_files import TargetFiles
from durability_server.runs.run import Run
from durability_server.store.records import RunSnapshot, StoredRun
from durability_server.store.target_keys import TargetKeys

US, MS, S = 1_000, 1_000_000, 1_000_000_000
SERVER_BOOT = "server-boot"

_STAMPED_AHEAD = 64
# The client's pauses: of its sender, of a writer that waits for credit, and of the main loop that checks for
# failed writers.
_POLL_NS, _NAP_NS, _TICK_NS = (round(pause_s * S) for pause_s in (POLL_S, NAP_S, TICK_S))
_LOOK_NS, _LOOK_AGAIN_NS = round(LOOK_S * S), round(RETRY_S * S)  # after an error: look at the drive, retry
_COMMIT_NS = 2 * MS  # mean duration of a commit of the server's database
_Z99 = NormalDist().inv_cdf(0.99)

Action: TypeAlias = Callable[[], None]
Process: TypeAlias = Iterator["int | None"]  # yields the ns that it sleeps; None: until it is woken


class Agenda:
    """Virtual time, in ns, and the actions that are due. Actions due at the same time run in the order in
    which they were added."""

    def __init__(self) -> None:
        self.now_ns = 1000 * S
        self._heap: list[tuple[int, int, Action]] = []
        self._number = count()

    def seconds(self) -> float:
        """The time in seconds, as the clock of a drive."""
        return self.now_ns / S

    def at(self, at_ns: int, action: Action) -> None:
        """Run `action` at `at_ns`."""
        heapq.heappush(self._heap, (at_ns, next(self._number), action))

    def after(self, delay_ns: int, action: Action) -> None:
        """Run `action` in `delay_ns` from now."""
        self.at(self.now_ns + delay_ns, action)

    def run(self, *, until_ns: int) -> None:
        """Run all actions that are due by `until_ns`, and set the time to `until_ns`."""
        while self._heap and self._heap[0][0] <= until_ns:
            self.step()
        self.now_ns = until_ns

    def step(self) -> None:
        """Run the next action, at its time."""
        self.now_ns, _, action = heapq.heappop(self._heap)
        action()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTimes:
    """Durations of the drive's services, pace of the writers, and ack lag.

    The ack lag is the time from a sync's return to the server's receipt of the acknowledgement.
    """

    write_ns: int  # mean duration of a write
    sync_ns: int  # mean duration of a sync
    interval_ns: int  # time between the starts of two commits of a writer; 0: unpaced
    lag_p50_ns: int
    lag_p99_ns: int


class Chance:
    """Random durations from one seed. Only `random()` is used: its sequence is documented as stable."""

    def __init__(self, seed: str, pace: ServiceTimes) -> None:
        self.pace = pace
        self.random = Random(seed).random
        self._median_ns = pace.lag_p50_ns
        self._spread = math.log(pace.lag_p99_ns / pace.lag_p50_ns) / _Z99

    def service_ns(self, mean_ns: int) -> int:
        """A duration between half and one and a half times `mean_ns`."""
        return int(mean_ns * (0.5 + self.random()))

    def wait_ns(self, most_ns: int) -> int:
        """A duration from 0 to `most_ns`."""
        return int(most_ns * self.random())

    def lag_ns(self) -> int:
        """A lag, log-normal with the median and the 99th percentile of the pace."""
        normal = math.sqrt(-2 * math.log(1 - self.random())) * math.cos(2 * math.pi * self.random())
        return int(self._median_ns * math.exp(self._spread * normal))


class VirtualServer:
    """The server's part in one run: it takes in frames, commits in groups and grants credit. `to_client` is
    called with the grants of each `Credit` that the server sends."""

    def __init__(
        self, agenda: Agenda, plan: Plan, chance: Chance, to_client: Callable[[tuple[int, ...]], None]
    ) -> None:
        self._agenda = agenda
        self._chance = chance
        self._to_client = to_client
        self._stored = stored_run(plan, at_ns=agenda.now_ns)
        self.run = Run(self._stored, boot_id=SERVER_BOOT)
        self._deaf = False
        self._connected = True
        self._dirty = self._committing = False
        self._commit_at_ns: int | None = None
        self._not_before_ns = 0

    def arm(self, facts: Facts) -> None:
        """Arm the run: the client reports that the target is prepared."""
        self.run.heard(self._agenda.now_ns, ran_ns=self._agenda.now_ns)
        armed = to_value(facts)
        self.run.arm(self._agenda.now_ns, replace(self._stored, armed=armed))

    def acknowledge(self, frontiers: tuple[int, ...], control: int) -> None:
        """Take in an `Ack`."""
        if not self._deaf:
            self.run.heard(self._agenda.now_ns, ran_ns=self._agenda.now_ns)
            self._touch(urgent=self.run.acknowledge(self._agenda.now_ns, frontiers, control))

    def heartbeat(self) -> None:
        """Take in a `Ping` of the client."""
        if not self._deaf:
            self.run.heard(self._agenda.now_ns, ran_ns=self._agenda.now_ns)

    def answered(self, sent_ns: int) -> None:
        """Take in the `Pong` for the server's own `Ping`, which was sent at `sent_ns`."""
        if not self._deaf:
            self.run.heard(self._agenda.now_ns, ran_ns=self._agenda.now_ns)
            self.run.heartbeat_answered(self._agenda.now_ns, sent_ns=sent_ns)

    def target_failed(self, text: str) -> None:
        """Take in a `TargetFailed`."""
        if not self._deaf:
            self.run.heard(self._agenda.now_ns, ran_ns=self._agenda.now_ns)
            self.run.target_failed(self._agenda.now_ns, text)
            self._touch(urgent=True)

    def drive_seen(self, look: DriveLook, age_ns: int) -> None:
        """Take in a `DriveSeen`."""
        if not self._deaf:
            self.run.heard(self._agenda.now_ns, ran_ns=self._agenda.now_ns)
            self.run.drive_seen(self._agenda.now_ns, age_ns=age_ns, drive=look.drive, text=look.text)
            self._touch(urgent=True)

    def closed(self) -> None:
        """Take in the end of the connection."""
        if not self._deaf:
            self._connected = False
            self.run.detached(self._agenda.now_ns, "fin", "the client's system closed the connection")
            self._touch(urgent=True)

    def lose_network(self) -> None:
        """Lose the network: from now on no frame arrives here, frames under way included, and no grant is
        sent."""
        self._deaf = True

    def watch(self) -> None:
        """Check an open connection for silence."""
        if self._connected and self._agenda.now_ns - self.run.last_receipt_ns > limits.SILENCE_NS:
            self.run.silent(self._agenda.now_ns)

    def _touch(self, *, urgent: bool) -> None:
        """As the server's `Committer`: commit 50 ms after the last commit, or at once if urgent."""
        self._dirty = True
        if self._committing:
            return
        now_ns = self._agenda.now_ns
        at_ns = now_ns if urgent else max(now_ns, self._not_before_ns)
        if self._commit_at_ns is None or at_ns < self._commit_at_ns:
            self._commit_at_ns = at_ns
            self._agenda.at(at_ns, partial(self._commit, at_ns))

    def _commit(self, at_ns: int) -> None:
        if self._committing or at_ns != self._commit_at_ns:
            return  # an urgent commit came first
        self._commit_at_ns, self._dirty, self._committing = None, False, True
        snapshot = self.run.snapshot(timeline=False)
        self._agenda.after(self._chance.service_ns(_COMMIT_NS), partial(self._committed, snapshot))

    def _committed(self, snapshot: RunSnapshot) -> None:
        self._committing = False
        self._not_before_ns = self._agenda.now_ns + limits.COMMIT_INTERVAL_NS
        grants_rose = self.run.saved(snapshot, self._agenda.now_ns)
        if grants_rose and not self._deaf:
            self._to_client(self.run.frontiers.grants)
        if self._dirty:
            self._touch(urgent=False)


def stored_run(plan: Plan, *, at_ns: int) -> StoredRun:
    """A run that was just registered, with an open connection."""
    return StoredRun(
        number=1,
        client="",
        label="",
        plan=plan.encode(),
        secret=b"",
        keys=TargetKeys(drive="", file_system="", path=""),
        host="",
        armed=None,
        series="",
        snapshot=RunSnapshot(
            run=plan.run,
            finish="",
            session_end="live",
            frontiers=(0,) * plan.writers,
            control=0,
            last_receipt_ns=at_ns,
            receipt_boot_id=SERVER_BOOT,
            receipt_wall="",
            rtt_max_ns=0,
            gap_max_ns=0,
            tainted="",
            timeline=None,
            statistics=None,
            events=(),
        ),
    )


class VirtualClient:
    """The client's part: the writers, the sender and the heartbeat.

    `returned`: per writer, the newest operation whose sync returned success. `on_return` is called after each
    such return. `dead`: the client's machine lost its power and does nothing any more.
    """

    def __init__(
        self, agenda: Agenda, plan: Plan, storage: Storage, chance: Chance, on_return: Action
    ) -> None:
        self._agenda = agenda
        self._plan = plan
        self._storage = storage
        self._files = TargetFiles(storage, plan)
        self._stamper = Stamper(plan)
        self._pace = chance.pace
        self._chance = chance
        self._on_return = on_return
        self.server = VirtualServer(agenda, plan, chance, self._granted)
        self.returned = [0] * plan.writers
        self.control = 0
        self.dead = False
        self._resting = self._halted = self._closed = self._sending = False
        self._watch = storage.watch_drives(storage.facts())
        self._failed_ns = 0  # when the first writer failed
        self._grants = (0,) * plan.writers
        self._under_way: dict[int, tuple[memoryview, int]] = {}
        self._parked: list[Process] = []
        self._arrival_ns = 0  # arrival time of the newest frame on its way to the server

    def create(self) -> None:
        """Write the superblocks and the prefill."""
        self._files.create()

    def start(self) -> None:
        """Arm the run and start the writers."""
        self.server.arm(self._storage.facts())
        for writer in range(self._plan.writers):
            self._resume(self._write(writer))
        if self._plan.control_slots:
            self._resume(self._write_control())
        self._beat()
        self._ping()

    def rest(self) -> None:
        """Let the writers begin no more commits."""
        self._resting = True

    def under_way(self) -> list[tuple[memoryview, int]]:
        """The writes that the drive has received but not acknowledged, with their offsets."""
        return [self._under_way[writer] for writer in sorted(self._under_way)]

    # Writers.

    def _resume(self, process: Process) -> None:
        if self.dead:
            return
        delay_ns = next(process, -1)
        if delay_ns is None:
            self._parked.append(process)
        elif delay_ns >= 0:
            self._agenda.after(delay_ns, partial(self._resume, process))

    def _write(self, writer: int) -> Process:
        """One writer: per group, the writes, the sync, and the publication of the frontier."""
        plan, pace, chance = self._plan, self._pace, self._chance
        file = self._files.open_writer(writer)
        records = self._records(writer)
        synced_writes = plan.sync in WRITE_THROUGH_METHODS
        write_ns = pace.sync_ns if synced_writes else pace.write_ns
        seq = limit = 0
        due_ns = self._agenda.now_ns + chance.wait_ns(pace.interval_ns)
        while not self._halted:
            if due_ns > self._agenda.now_ns:
                yield due_ns - self._agenda.now_ns
            while seq == limit:
                limit = plan.issue_limit(self._grants[writer])
                if limit == seq:
                    yield None
            while self._resting:
                yield None
            due_ns = max(due_ns + pace.interval_ns, self._agenda.now_ns) if pace.interval_ns else 0
            for _ in range(plan.group):
                seq += 1
                yield from self._write_one(file, writer, next(records), chance.service_ns(write_ns))
                if self._halted:
                    return
            if not synced_writes:
                yield chance.service_ns(pace.sync_ns)
            self._sync(file, writer, seq)

    def _write_one(
        self, file: TargetFile, writer: int, record: tuple[memoryview, int], service_ns: int
    ) -> Process:
        """Write one record. A write takes effect when it is acknowledged. At a cut, `simulation` decides
        about the writes under way."""
        self._under_way[writer] = record
        yield service_ns
        del self._under_way[writer]
        try:
            file.pwrite(*record)
        except OSError as error:
            self._fail(writer, error)

    def _sync(self, file: TargetFile, writer: int, seq: int) -> None:
        try:
            file.sync()
        except OSError as error:
            self._fail(writer, error)
        if self._halted:
            return
        self.returned[writer] = seq
        self._on_return()
        self._publish()

    def _write_control(self) -> Process:
        """The control arm's writer: paced, never synced."""
        writer = self._plan.control_writer
        file = self._files.open_writer(writer)
        records = self._records(writer)
        while not self._halted:
            yield self._plan.control_interval_us * US
            yield from self._write_one(
                file, writer, next(records), self._chance.service_ns(self._pace.write_ns)
            )
            if self._halted:
                return
            self.control += 1
            self._publish()

    def _records(self, writer: int) -> Iterator[tuple[memoryview, int]]:
        """The bytes and offset of each operation in turn. Records are stamped in batches of 64."""
        extent, versions = self._plan.extent(writer), Versions(self._plan)
        for first in count(1, _STAMPED_AHEAD):
            seqs = np.arange(first, first + _STAMPED_AHEAD, dtype=U64)
            yield from self._stamped(extent, versions.slots_of(writer, seqs), seqs)

    def _stamped(self, extent: Extent, slots: Words, seqs: Words) -> Iterator[tuple[memoryview, int]]:
        size = extent.record_bytes
        out = np.empty((len(seqs), size // limits.SECTOR_BYTES, SECTOR_WORDS), dtype=U64)
        self._stamper.stamp_extent(out, extent, slots=slots, seqs=seqs)
        whole = out.data.cast("B")
        for number, slot in enumerate(slots.tolist()):
            yield whole[number * size : (number + 1) * size], extent.offset_of(slot)

    def _fail(self, writer: int, error: OSError) -> None:
        """Stop all writers at the first error; the main loop notices it at its next check."""
        if not self._halted:
            self._halted = True
            self._failed_ns = self._agenda.now_ns
            text = f"errno {error.errno} of writer {writer}: {error.strerror}"
            self._agenda.after(self._chance.wait_ns(_TICK_NS), partial(self._report, text))

    # Frames.

    def _publish(self) -> None:
        if not self._sending:
            self._sending = True
            self._agenda.after(self._chance.wait_ns(_POLL_NS), self._send)

    def _send(self) -> None:
        """Send one cumulative ack for all writers and the control arm."""
        if self.dead:
            return
        self._sending = False
        lag_ns = max(0, self._chance.lag_ns() - _POLL_NS // 2)
        self._deliver(partial(self.server.acknowledge, tuple(self.returned), self.control), lag_ns)

    def _deliver(self, frame: Action, delay_ns: int) -> None:
        self._arrival_ns = max(self._arrival_ns, self._agenda.now_ns + delay_ns)
        self._agenda.at(self._arrival_ns, frame)

    def _beat(self) -> None:
        if not self.dead and not self._closed:
            self._deliver(self.server.heartbeat, self._chance.lag_ns())
            self._agenda.after(limits.CLIENT_PING_NS, self._beat)

    def _ping(self) -> None:
        """The server's heartbeat and this client's answer."""
        if not self.dead and not self._closed:
            self._agenda.after(self._chance.lag_ns(), partial(self._pong, self._agenda.now_ns))
            self._agenda.after(limits.HEARTBEAT_NS, self._ping)

    def _pong(self, sent_ns: int) -> None:
        if not self.dead:
            self._deliver(partial(self.server.answered, sent_ns), self._chance.lag_ns())

    def _granted(self, grants: tuple[int, ...]) -> None:
        self._agenda.after(self._chance.lag_ns(), partial(self._take_grants, grants))

    def _take_grants(self, grants: tuple[int, ...]) -> None:
        self._grants = tuple(map(max, self._grants, grants))
        for process in self._parked:
            self._agenda.after(self._chance.wait_ns(_NAP_NS), partial(self._resume, process))
        self._parked = []

    def _report(self, text: str) -> None:
        """Send the last frontiers and the reason for the end of the run, then look at the drive."""
        if self.dead:
            return
        self._send()
        self._deliver(partial(self.server.target_failed, text), self._chance.lag_ns())
        self._look(self._agenda.now_ns + _LOOK_NS)

    def _look(self, deadline_ns: int) -> None:
        """Look at the drive until it answers or the deadline has passed; then report and disconnect.

        A drive whose read does not return is looked at until the deadline.
        """
        if self.dead:
            return
        look = self._watch.look(0.0)
        if look.drive != "answered" and self._agenda.now_ns < deadline_ns:
            self._agenda.after(_LOOK_AGAIN_NS, partial(self._look, deadline_ns))
            return
        age_ns = self._agenda.now_ns - self._failed_ns
        self._deliver(partial(self.server.drive_seen, look, age_ns), self._chance.lag_ns())
        self._deliver(self.server.closed, 0)
        self._closed = True
