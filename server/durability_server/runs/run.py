"""One run in the server's memory: its frontiers, their receipt times and the state of its session.

Each method is a plain function of what was received and when; the caller passes the time. Receipts are the
hot path: a receipt costs a few microseconds and allocates no lasting memory. This module does not judge: it
keeps evidence, and never raises a frontier that the client did not report. It does not know connections:
`session` knows which client speaks for a run.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from operator import sub

from durability import limits
from durability.formats.case import (
    CASE_SCHEMA,
    KERNEL_ALIVE,
    LOST_SIGHT,
    REBOOT,
    Case,
    DriveState,
    Event,
    SessionEnd,
    TargetFailure,
)
from durability.formats.documents import from_value, to_value
from durability.formats.facts import Facts
from durability.formats.packing import Value, pack, unpack
from durability.formats.plan import Plan
from durability.formats.run_statistics import Statistics, statistics_from_value, statistics_to_value
from durability.protocol import messages
from durability.protocol.frontiers import Frontiers
from durability.protocol.timeline import Timeline, TimelineCopy
from durability.units import format_run
from durability_server import clock
from durability_server.runs.credits import Credits, newest_sent
from durability_server.store.records import (
    EVENTS_MAX,
    Relations,
    RunHead,
    RunSnapshot,
    RunState,
    StoredRun,
    state_of,
)

# The client itself reported one of these ends. It may connect again to repeat the report, but not to go on.
REPORTED_ENDS: frozenset[SessionEnd] = frozenset({"stop", "target-error", "client-error"})
# If no frame arrives for this many heartbeat intervals, the client stood still or its frames were delayed.
LATE_INTERVALS = 2
# A frame that may have waited longer than this in a socket raises the largest round trip. The server notes
# every 5 ms that it runs (`ConnectionManager.ran_ns`).
WAITED_NS = 10_000_000
_BEFORE_THE_REBOOT = (
    "the error came before the server's machine was restarted, or on another server's machine"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Late:
    """Frames that arrive now may have been sent at any time since `from_ns`. No frame arrived from then until
    `until_ns`. This ends with the first frontier after the answer to a heartbeat sent at `until_ns` or later.
    """

    from_ns: int
    until_ns: int
    # When the newest heartbeat was sent that the client has answered since, 0 if none. Frames behind the next
    # frontier were sent after that time.
    answered_ns: int = 0


def _after_a_frontier(late: _Late) -> _Late | None:
    """The state after a frontier has arrived; None if later frames are no longer late. A frontier that waited
    may arrive after the answer to a heartbeat. The frames after it are as new as that heartbeat."""
    if not late.answered_ns:
        return late
    if late.answered_ns >= late.until_ns:
        return None
    return _Late(from_ns=late.answered_ns, until_ns=late.until_ns)


def was_still(stored: StoredRun) -> bool:
    """Whether each writer had used up its credit when the server that holds the run last saved it. The
    frontiers saved then are not credit until that server grants them."""
    grants = newest_sent(stored.snapshot.credits)
    return bool(grants) and _is_used_up(Plan.decode(stored.plan), stored.snapshot.frontiers, grants)


def _is_used_up(plan: Plan, acked: tuple[int, ...], grants: tuple[int, ...]) -> bool:
    return all(operations == plan.credit for operations in map(sub, acked, grants))


class Run:
    """A run of the store in memory."""

    def __init__(self, stored: StoredRun, *, boot_id: str) -> None:
        snapshot = stored.snapshot
        self.id = snapshot.run
        self.stored = stored
        self.plan = Plan.decode(stored.plan)
        self.armed = None if stored.armed is None else from_value(Facts, stored.armed)
        self.finish = snapshot.finish
        self.session_end: SessionEnd = snapshot.session_end
        self.frontiers = Frontiers(self.plan, snapshot.frontiers)
        self.control = snapshot.control
        self.timeline = (
            Timeline.unpack(snapshot.timeline) if snapshot.timeline else Timeline(self.plan.writers)
        )
        # Frontiers are saved more often than timelines. Newer frontiers arrived between the two times.
        known_ns = self.timeline.last_ns
        self.timeline.add(snapshot.last_receipt_ns, snapshot.frontiers)
        if self.timeline.last_ns != known_ns:
            self.timeline.hold_up(known_ns, snapshot.last_receipt_ns)
        self.statistics: Statistics | None = None
        self._packed_statistics = snapshot.statistics
        if snapshot.statistics is not None:
            self.statistics = self._read(unpack(snapshot.statistics))
        self.last_receipt_ns = snapshot.last_receipt_ns
        self._kernel_ns = 0  # when the kernel of a silent client last acknowledged sent data, 0 for never
        # The last sign of life of a silent client may come from its kernel. No frame is known to be newer
        # than these times.
        self._framed_ns: int | None = (
            known_ns if snapshot.session_end == "silence" else snapshot.last_receipt_ns
        )
        self.receipt_boot_id = snapshot.receipt_boot_id
        self.receipt_wall = snapshot.receipt_wall
        self.rtt_max_ns = snapshot.rtt_max_ns
        self.gap_max_ns = snapshot.gap_max_ns
        self.frontiers.tainted = snapshot.tainted
        self.events = deque(snapshot.events, EVENTS_MAX)
        self._credits = Credits.unpack(snapshot.credits, newest=self.frontiers.grants)
        self.target_error = (
            None
            if snapshot.target_error is None
            else from_value(TargetFailure, unpack(snapshot.target_error))
        )
        self._interval_ns = limits.HEARTBEAT_NS
        self._late: _Late | None = None
        self.saved_ns = 0
        self.timeline_saved_ns = 0
        self.timeline_changed = False
        self.timeline_wanted = False  # whether one of the next commits must save the timeline
        # Number of the newest snapshot before the timeline was begun anew. It is at least 0 while the store
        # may have a timeline of another boot, else -1.
        self._begun_after = -1
        self.held = False  # if true, the run gets no credit, so its writers stop
        # If true, this server has given up the run, for example to another server: changes no longer count.
        self.lost = False
        self.epoch = snapshot.epoch + 1
        self._follows, self._saves = snapshot.epoch, snapshot.saves
        self._save, self._last_save = snapshot.saves, 0  # numbers of the newest and the last durable snapshot
        self._whole = False  # whether the next snapshot writes the complete run to the store
        self._durable: tuple[int, ...] = ()  # the frontiers in this server's last durable snapshot
        self._boot_id = boot_id
        self._events_saved = snapshot.events[-1][0] if snapshot.events else 0
        if snapshot.session_end == "silence" and not stored.held_at and self._was_watched:
            text = "the server ended while the machine of the silent client still took what was sent to it"
            self.note(snapshot.last_receipt_ns, LOST_SIGHT, text)

    @property
    def _was_watched(self) -> bool:
        """Whether the newest event of the connection says that the client's kernel is alive."""
        kinds = (KERNEL_ALIVE, LOST_SIGHT, "heard-again", "session", "silence", "fin", "rst")
        seen = [event.kind for _, event in self.events if event.kind in kinds]
        return seen[-1:] == [KERNEL_ALIVE]

    @property
    def state(self) -> RunState:
        """The state of the run: registered, armed, stopped or ended."""
        return state_of(self.finish, armed=self.armed is not None)

    @property
    def head(self) -> RunHead:
        """The fields that decide who may do what with the run."""
        return RunHead(
            run=self.id,
            client=self.stored.client,
            host=self.stored.host,
            secret=self.stored.secret,
            state=self.state,
            session_end=self.session_end,
        )

    @property
    def is_still(self) -> bool:
        """Whether the run is held and each writer has used up its credit."""
        return self.held and _is_used_up(self.plan, self.frontiers.acked, self.frontiers.grants)

    @property
    def credits_in_doubt(self) -> int:
        """Number of credits that may be the last one that reached the client."""
        return len(self._credits)

    # Input from the connection.

    def acknowledge(self, at_ns: int, frontiers: tuple[int, ...], control: int) -> bool:
        """Records the frontiers that arrived at `at_ns`. True if a writer has used up half of its credit.

        A frontier that falls, is no whole number of groups or exceeds the credit is not recorded. It taints
        the run. Raises ProtocolError if the number of writers is wrong.
        """
        self.control = max(self.control, control)
        if not self.frontiers.advance(frontiers):
            return False
        self.timeline.add(at_ns, self.frontiers.acked)
        if self._late is not None:
            self.timeline.hold_up(self._late.from_ns, at_ns)
            self._late = _after_a_frontier(self._late)
        self.timeline_changed = True
        ahead: int = max(map(sub, self.frontiers.acked, self.frontiers.grants))
        return ahead * 2 >= self.plan.credit

    def report(self, value: Value) -> None:
        """Records newer statistics, if any. They are saved with the timeline. Raises FormatError."""
        if value:
            statistics = self._read(value)
            # Packed now: invalid statistics must fail here, not in the commit of all runs.
            self._packed_statistics = pack(statistics_to_value(statistics))
            self.statistics = statistics
            self.timeline_changed = True

    def _read(self, value: Value) -> Statistics:
        return statistics_from_value(value, writers=self.plan.writers)

    def heard(self, at_ns: int, *, ran_ns: int) -> bool:
        """A frame of the client arrived at `at_ns`, so its machine was alive then. The server is known to
        have run at `ran_ns` before that. Returns whether this ended a silence."""
        gap_ns = at_ns - self.last_receipt_ns
        waited_ns = at_ns - max(ran_ns, self.last_receipt_ns)
        if gap_ns > LATE_INTERVALS * self._interval_ns:
            self._begin_late(self.last_receipt_ns, at_ns)
        elif waited_ns > WAITED_NS:  # the frame may have waited in a socket while the server stood still
            self.rtt_max_ns = max(self.rtt_max_ns, waited_ns)
        if self._late is not None and self._late.answered_ns < self._late.until_ns:
            # Also for a frame without a frontier. It may be the last frame, and as old as `from_ns`.
            self.timeline.hold_up(max(self._late.from_ns, self._late.answered_ns), at_ns)
            self.timeline_changed = True
        self.last_receipt_ns = at_ns
        self._kernel_ns = 0  # the next silence starts without a kernel acknowledgement
        self.gap_max_ns = max(self.gap_max_ns, gap_ns)
        if self.session_end != "silence":
            return False
        self.session_end = self._while_connected
        self.note(at_ns, "heard-again", f"after {gap_ns / 1e9:.3f} s of silence")
        return True

    @property
    def _while_connected(self) -> SessionEnd:
        """State of a session that sends frames. After a target error the client only reports its end."""
        return "live" if self.target_error is None else "target-error"

    def heartbeat(self, interval_ns: int) -> None:
        """The client's next frame may take `interval_ns` and the round trip."""
        self._interval_ns = interval_ns
        if interval_ns > limits.HEARTBEAT_NS:
            self.gap_max_ns = max(self.gap_max_ns, interval_ns + self.rtt_max_ns)

    def heartbeat_answered(self, at_ns: int, *, sent_ns: int) -> None:
        """The answer to the heartbeat sent at `sent_ns` arrived at `at_ns`. A connection keeps the order of
        frames, so all frames sent before that heartbeat have arrived too."""
        self.rtt_max_ns = max(self.rtt_max_ns, at_ns - sent_ns)
        self._credits.forget(sent_ns)
        if self._late is not None and sent_ns > max(self._late.from_ns, self._late.answered_ns):
            self._late = replace(self._late, answered_ns=sent_ns)

    def _begin_late(self, from_ns: int, at_ns: int) -> None:
        """No frame arrived from `from_ns` to `at_ns`. Frames that arrive now may have been sent at any time
        since `from_ns`, until the client answers a heartbeat sent at `at_ns` or later."""
        if self._late is not None:
            from_ns = min(from_ns, self._late.from_ns)
        self._late = _Late(from_ns=from_ns, until_ns=at_ns)

    def attached(self, at_ns: int, name: str) -> None:
        """The client on the connection named `name` speaks for the run from `at_ns` on."""
        if self.receipt_boot_id != self._boot_id and self.last_receipt_ns:
            # Receipt times of another boot cannot be compared with new ones. But all receipts of that boot
            # came before this boot began.
            self.timeline = Timeline(self.plan.writers)
            self.timeline.add(0, self.frontiers.acked)
            self._begun_after = self._save
            if self.target_error is not None:
                self.target_error = TargetFailure(at_ns=0, drive="unseen", text=_BEFORE_THE_REBOOT)
            self.note(
                at_ns,
                REBOOT,
                "the server's machine was restarted, or is another one; earlier times were dropped",
            )
        elif self.session_end == "silence":
            self.gap_max_ns = max(self.gap_max_ns, at_ns - self.last_receipt_ns)
        self._credits.begin_anew(at_ns)
        self._credits.add(at_ns, self.frontiers.grants)
        if self.armed is not None:
            from_ns = self._framed_ns if self._framed_ns is not None else self.last_receipt_ns
            self._begin_late(from_ns if self.receipt_boot_id == self._boot_id else 0, at_ns)
        self._framed_ns = None
        self.receipt_boot_id = self._boot_id
        self.last_receipt_ns = at_ns
        self._kernel_ns = 0
        if self.session_end not in REPORTED_ENDS:
            self.session_end = self._while_connected
        self.note(at_ns, "session", f"from {name}")

    def accepted(self) -> messages.Accepted:
        """The answer to a client that now speaks for the run."""
        return messages.Accepted(run=self.id, frontiers=self.frontiers.acked, grants=self.frontiers.grants)

    def silent(self, at_ns: int) -> bool:
        """No frame has arrived for `limits.SILENCE_NS` on an open connection. Returns whether that is new."""
        if self.session_end not in ("live", "target-error"):
            return False
        self.session_end = "silence"
        self.note(at_ns, "silence", "the connection is open but silent")
        return True

    def kernel_alive(self, at_ns: int) -> None:
        """The client is silent, but its kernel acknowledged sent data at `at_ns`. Its process is frozen or
        hangs, and its machine had power until then."""
        if self.session_end == "silence" and at_ns > self.sign_of_life_ns:
            if not self._kernel_ns:
                text = "the client's machine still takes what is sent to it: its process is frozen, or hangs"
                self.note(at_ns, KERNEL_ALIVE, text)
            self._kernel_ns = at_ns

    @property
    def sign_of_life_ns(self) -> int:
        """When the client's machine last showed that it had power: by a frame, or later by an acknowledgement
        of its kernel."""
        return max(self.last_receipt_ns, self._kernel_ns)

    def failed(self, at_ns: int, text: str) -> None:
        """The client reported in `text` why its session ends. The cause is not the target."""
        self.session_end = "client-error"
        self.note(at_ns, "client-error", text)

    def target_failed(self, at_ns: int, text: str) -> None:
        """The client reported an I/O error of the target in `text`. It stays connected to check the
        drives."""
        self.session_end = "target-error"
        if self.target_error is None:  # else the client repeats its report on another connection
            self.target_error = TargetFailure(at_ns=at_ns, drive="unseen", text="")
        self.note(at_ns, "target-error", text)

    def drive_seen(self, at_ns: int, *, age_ns: int, drive: DriveState, text: str) -> None:
        """The client reported the drives' state `age_ns` after the target's error. The report took time to
        arrive, so the computed time of the error may be too late, never too early."""
        error_ns = at_ns - age_ns if age_ns < at_ns else at_ns  # an error before this boot has no time here
        self.target_error = TargetFailure(at_ns=error_ns, drive=drive, text=text)
        self.note(at_ns, "drive-seen", f"{drive}: {text}")

    def detached(self, at_ns: int, end: SessionEnd, text: str) -> None:
        """The connection has ended, as `end` says. An earlier reported end of the session is kept, with two
        exceptions. A FIN after silence shows that the client's kernel was alive. Silence after a target error
        shows that the client did not close the connection."""
        if self.session_end == "silence" and end == "fin":
            self.session_end = "fin" if self.target_error is None else "target-error"
        elif self.session_end == "live" or (self.session_end == "target-error" and end == "silence"):
            self.session_end = end
        self.note(at_ns, end, text)

    def arm(self, at_ns: int, stored: StoredRun) -> None:
        """`stored` has the facts at arming, durably. Gaps and round trips of the prefill no longer matter."""
        self.stored = stored
        self.armed = None if stored.armed is None else from_value(Facts, stored.armed)
        self._last_save = stored.snapshot.save
        self.gap_max_ns = self.rtt_max_ns = 0
        self.heartbeat(self._interval_ns)
        self._late = None
        self.note(at_ns, "armed", "the target is prefilled and synced")

    def stopped(self, at_ns: int, text: str) -> None:
        """The client ended the run cleanly."""
        self.finish = "stopped"
        self.session_end = "stop"
        self.note(at_ns, "stop", text)

    def ended(self, at_ns: int) -> None:
        """`verify` has begun, so no more receipts follow."""
        if self.finish != "ended":
            self.finish = "ended"
            self.note(at_ns, "ended", "verify has begun")

    def note(self, at_ns: int, kind: str, text: str) -> None:
        """Adds an event. It replaces the oldest one if there are `EVENTS_MAX`."""
        number = self.events[-1][0] + 1 if self.events else 1
        self.events.append((number, Event(at_ns=at_ns, wall=clock.wall(), kind=kind, text=text)))

    # Exchange with the store.

    def snapshot(self, *, timeline: bool) -> RunSnapshot:
        """The run as it is now, to be saved. The caller calls `saved` once the snapshot is durable, else
        `not_saved`. The snapshot has the timeline if `timeline` is true, or if the timeline was begun anew
        and the stored one may be of another boot."""
        snapshot, copy = self.snapshot_to_pack(timeline=timeline)
        return snapshot if copy is None else replace(snapshot, timeline=copy.pack())

    def snapshot_to_pack(self, *, timeline: bool) -> tuple[RunSnapshot, TimelineCopy | None]:
        """Like `snapshot`, but returns a copy of the timeline beside it, None for no timeline. The packed
        copy replaces the b"" in the snapshot. Packing the timeline of many writers is too slow for the event
        loop."""
        timeline = timeline or self._begun_after >= 0
        if timeline:
            self.timeline_changed = self.timeline_wanted = False
        self._save += 1
        snapshot = RunSnapshot(
            run=self.id,
            finish=self.finish,
            session_end=self.session_end,
            frontiers=self.frontiers.acked,
            control=self.control,
            last_receipt_ns=self.sign_of_life_ns,
            receipt_boot_id=self.receipt_boot_id,
            receipt_wall=self._receipt_wall(),
            rtt_max_ns=self.rtt_max_ns,
            gap_max_ns=self.gap_max_ns,
            tainted=self.frontiers.tainted,
            timeline=b"" if timeline else None,
            credits=self._credits.pack(),
            statistics=self._packed_statistics if timeline else None,
            events=tuple(event for event in self.events if event[0] > self._events_saved),
            target_error=None if self.target_error is None else pack(to_value(self.target_error)),
            epoch=self.epoch,
            follows=self._follows,
            saves=self._saves,
            save=self._save,
            last_save=self._last_save,
            whole=self.stored if self._whole else None,
            durable=self._durable,
        )
        return snapshot, self.timeline.copy() if timeline else None

    def _receipt_wall(self) -> str:
        """Wall time of the last frame, for people. A frame of an earlier boot has the time noted then."""
        this_boot = self.receipt_boot_id == self._boot_id and self.last_receipt_ns
        return clock.wall(self.last_receipt_ns) if this_boot else self.receipt_wall

    def saved(self, snapshot: RunSnapshot, at_ns: int) -> bool:
        """`snapshot` is durable at `at_ns`, so its frontiers are granted. If too many credits are in doubt, a
        later snapshot grants them. Returns whether the grants rose."""
        before = self.frontiers.grants
        if not self.held and self._credits.may_grow:
            self.frontiers.granted(snapshot.frontiers)
        self._credits.add(at_ns, self.frontiers.grants)
        if snapshot.events:
            self._events_saved = snapshot.events[-1][0]
        self._last_save = max(self._last_save, snapshot.save)  # arming may have saved a newer snapshot
        self._durable = snapshot.frontiers
        if snapshot.whole is not None:
            self._whole = False
        self.saved_ns = at_ns
        if snapshot.timeline is not None:
            if snapshot.save > self._begun_after:
                self._begun_after = -1
            self.timeline_saved_ns = at_ns
        return self.frontiers.grants != before

    def not_saved(self, snapshot: RunSnapshot) -> None:
        """`snapshot` is not durable: the commit failed, and the committer tries again."""
        self.timeline_wanted = self.timeline_wanted or snapshot.timeline is not None

    def gone_back(self) -> None:
        """The store lacks data of the run that were durable. The next snapshot writes the complete run."""
        self._whole = self.timeline_wanted = True
        self._events_saved = 0
        self._durable = ()

    def case(self, *, now_ns: int, relations: Relations) -> Case:
        """All information about the run that a judge needs."""
        return Case(
            schema=CASE_SCHEMA,
            run=format_run(self.id),
            label=self.stored.label,
            plan=self.stored.plan.hex(),
            armed=self.armed,
            state=self.state,
            session_end=self.session_end,
            frontiers=self.frontiers.acked,
            grants=self.frontiers.grants,
            credits=self._credits.grants,
            control=self.control,
            timeline=self.timeline.receipts(),
            last_receipt_ns=self.sign_of_life_ns,
            now_ns=now_ns,
            server_boot_id=self._boot_id,
            receipt_boot_id=self.receipt_boot_id,
            rtt_max_ns=self.rtt_max_ns,
            gap_max_ns=self.gap_max_ns,
            heartbeat_ns=limits.HEARTBEAT_NS,
            events=tuple(event for _, event in self.events),
            tainted=self.frontiers.tainted,
            superseded_by=relations.superseded_by,
            verdicts=relations.verdicts,
            series=relations.series,
            statistics=self.statistics,
            target_error=self.target_error,
            predecessors=relations.predecessors,
            power_offs=relations.power_offs,
            held_up=self.timeline.held_up,
            attempts=tuple(plan.hex() for plan in relations.attempts),
            looks=relations.looks,
        )
