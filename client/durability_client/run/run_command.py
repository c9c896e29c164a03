"""`durability run`: creates a target, arms the run, and writes until power fails or the run is stopped.

The rules of evidence require this order: path checks, facts, plan, more safety checks, connection to the
server, lock, checks of the contents, registration, prefill, writers ready, facts again, armed, and only then
the first record. `safety_checks` and `planning` refuse unsuitable targets and options. `slot_writer` and
`name_writer` define when an operation is acknowledged. This module enforces the order and reports how the run
ended.
"""

from __future__ import annotations

import asyncio
import errno
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NoReturn, TextIO

from durability import limits
from durability.errors import EXIT_OK, NOT_ACCEPTED, DurabilityError, PeerError, RefusedError, TargetError
from durability.formats.case import DriveState
from durability.formats.documents import to_value
from durability.formats.facts import Facts
from durability.formats.histogram import Histogram
from durability.formats.packing import Value
from durability.formats.plan import Plan
from durability.formats.run_statistics import statistics_to_value
from durability.protocol.messages import ClientFailed, DriveSeen, Notice, Stop, TargetFailed
from durability_client.descriptions import describe, describe_writers
from durability_client.link.run_link import Ending, RunLink
from durability_client.run.planning import RunOptions, check_options, make_plan
from durability_client.run.sender import Sender
from durability_client.run.shared_state import Order, WriterFailure, WriterState
from durability_client.run.statistics_collector import StatisticsCollector
from durability_client.run.status_line import OutputError, State, StatusLine, StatusSample
from durability_client.run.writer_processes import WriterProcesses, starting_for_run
from durability_client.target import safety_checks
from durability_client.target.discovery import is_misaligned
from durability_client.target.drive_watch import LOOK_S
from durability_client.target.kernel_storage import KernelStorage, sync_call
from durability_client.target.storage import DriveLook, DriveWatch, Storage
from durability_client.target.target_files import TargetFiles

HANGING_PREFILL = (
    "the drive has not answered a write of the prefill. The run waits for it, since another run may write"
    " there as soon as this one is gone. If it never answers, detach the drive or restart the machine"
)
CLEAN_END = (
    "The run ended cleanly, so it cannot become durable.\nOnly a power cut during the run tests the drive."
)
TICK_S = 0.05  # interval between checks for failures and signals
_STOP_TICK_S = 0.005
_LINE_S = 1.0
# Interval between digests of the latencies. No ack is sent during a digest. A ring of `RING` latencies lasts
# this long for a writer with up to 60,000 commits a second.
_DIGEST_S = 0.25
_FINISH_TIMEOUT_S = 10.0  # for the server to confirm how the run ended
# System errors that are not I/O failures, so that no cut caused them (rule 12): no space, no permission, no
# descriptors or memory, or another program's file under a name that the run must create. ENOENT (a missing
# name) is not listed. Another program may have removed the name, but a drive that loses a directory entry
# causes the same error. So does the mount of a drive that went away, after it was unmounted.
_NO_IO_FAILURE = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.EEXIST,
        errno.EACCES,
        errno.EPERM,
    }
)
# Advice to the operator after an I/O error, by the state of the drives observed after the error (rule 13).
_ADVICE: Mapping[DriveState, str] = {
    "answered": "So this was not a power cut. A later cut shows nothing about this run: run again",
    "dead": "If this was the cut, run `durability verify` when the target is back",
    "silent": "So it is unknown when its power goes: after the cut, `durability verify` can prove a loss,"
    " but not durability",
    "unseen": "So it is unknown when its power went: `durability verify` can prove a loss, but not"
    " durability",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """Summary of a run that stopped cleanly, after its duration (exit code 0) or a signal (130, 143)."""

    run: int
    frontiers: tuple[int, ...]
    control: int
    elapsed_s: float
    latencies: Histogram
    exit_code: int


async def run(options: RunOptions, storage: Storage, out: TextIO) -> RunSummary:
    """Run until the duration is over or a signal arrives. With the option `json`, `out` gets JSON lines.

    Acks leave within about 100 us only in the event loop of `sender.run_in_fine_loop`. Raises DurabilityError
    if the run ends for any other reason, and TargetError after an I/O error of the target.
    """
    check_options(options)
    consent = safety_checks.Consent(
        destroy_data=options.destroy_data,
        force=options.force,
        allow_shared_blocks=options.allow_shared_blocks,
    )
    peer = options.endpoint
    if isinstance(storage, KernelStorage):
        sync_call(options.sync)  # refuses a method that this system does not have
        safety_checks.check_path(storage.path, consent)
        safety_checks.check_place(storage.path, consent)
        await asyncio.to_thread(safety_checks.check_unlocked, storage.path, storage.kind, then="run")
    facts = await asyncio.to_thread(storage.facts)
    plan = make_plan(options, facts, storage.kind)
    misaligned = isinstance(storage, KernelStorage) and await asyncio.to_thread(
        is_misaligned, storage.path, storage.kind
    )
    safety_checks.check_plan(facts, plan, consent, is_misaligned=misaligned)
    if isinstance(storage, KernelStorage):
        safety_checks.check_space(storage, facts, plan)
    live = StatusLine(f"{plan.run:016x}", out=out if options.json else None, err=sys.stderr)
    current = _Run(options, plan, storage, live)
    with _all_written(live), _signals(current.interrupt):
        with current.accepted():
            await current.link.connect(peer)
        try:
            storage.lock(create=True)
            if isinstance(storage, KernelStorage) and storage.kind == "device":
                await asyncio.to_thread(safety_checks.check_held_device, storage.path, facts, consent)
            await asyncio.to_thread(
                safety_checks.check_contents, storage
            )  # an earlier run may have left many names
            for line in describe(facts):
                live.say(line)
            return await current.run(facts)
        finally:
            live.end_line()
            await current.link.close()
            storage.unlock()


@contextmanager
def _all_written(live: StatusLine) -> Iterator[None]:
    """Write all lines before the block ends. Raises OutputError, or BrokenPipeError if the reader of stdout
    has closed it; that error ends a command in its own way."""
    try:
        try:
            yield
        except BaseException:
            live.flush()
            raise
        live.close()
    except OutputError as error:
        if isinstance(error.__cause__, BrokenPipeError):
            raise error.__cause__ from None
        raise


class _InterruptedError(DurabilityError):
    """A signal arrived before the run was armed, or a second one during a stop. `ending` is the message to
    the server."""

    def __init__(self, number: int, text: str, ending: Ending) -> None:
        super().__init__(text)
        self.exit_code = 128 + number
        self.ending = ending


class _WriterFailedError(Exception):
    """A writer failed."""

    def __init__(self, failure: WriterFailure) -> None:
        super().__init__(failure.text)
        self.failure = failure


class _Run:
    """One run, from its registration to its end."""

    def __init__(self, options: RunOptions, plan: Plan, storage: Storage, live: StatusLine) -> None:
        self._options = options
        self._plan = plan
        self._storage = storage
        self._live = live
        self._writers = WriterProcesses(plan, storage)
        self.link = RunLink(on_grants=self._writers.shared.grant, on_notice=self._notice)
        self._sender = Sender(plan, self._writers.shared, self.link.acknowledge)
        self._watch: DriveWatch | None = None
        self._signals: list[int] = []
        self._notice_text = ""  # the server's last complaint
        self._began_s = time.monotonic()
        self._collector = StatisticsCollector(plan, storage, self._writers.shared)
        self._line_s = self._digest_s = self._began_s
        self._line_acked = 0

    def interrupt(self, number: int) -> None:
        """Handle a signal. The first signal stops the run; the second abandons a stop that takes too long."""
        self._signals.append(number)

    @contextmanager
    def accepted(self) -> Iterator[None]:
        """Tell the operator if the server does not accept the run."""
        try:
            yield
        except PeerError as error:
            code = f" ({error.code})" if isinstance(error, RefusedError) else ""
            self._live.say(f"{NOT_ACCEPTED}{code}")
            raise

    async def run(self, facts: Facts) -> RunSummary:
        """Register, prepare, write and stop. Raises DurabilityError after reporting the reason to the
        server."""
        plan, options = self._plan, self._options
        with self.accepted():
            await self.link.register(
                run=plan.run,
                plan=plan.encode(),
                facts=to_value(facts),
                label=options.label,
                force=options.force,
            )
        self._live.say(f"run          {plan.run:016x}, {describe_writers(plan)}")
        try:
            with self.accepted():
                await self._prepare()
            await self._write()
            return await self._stop()
        except _WriterFailedError as error:
            await self._report(error.failure)
        except _InterruptedError as error:
            await self._end(error.ending)
            raise
        except DurabilityError as error:
            await self._end(ClientFailed(text=str(error)))
            raise
        except Exception as error:
            await self._end(ClientFailed(text=f"a defect of this tool: {type(error).__name__}: {error}"))
            raise
        finally:
            self._sender.stop()
            if not await asyncio.to_thread(self._writers.dismiss):
                self._live.say("a writer still waits for the drive; it ends when the drive answers")
            if self._watch is not None:
                await asyncio.to_thread(self._watch.close)

    # Before the first record.

    async def _prepare(self) -> None:
        """Prefill the target, start the writers, and wait until the server has armed the run."""
        files = TargetFiles(self._storage, self._plan)
        try:
            with self._live.prefill() as bar:
                await self._filled(files, bar)
            files.try_writer()
            with starting_for_run():
                await asyncio.to_thread(self._writers.start)
            while not self._writers.all_in(WriterState.READY):
                self._writers.look()
                self._check()
                if self._signals:  # a drive may keep a writer waiting for ever
                    raise self._interruption()
                self._show("prefill")
                await asyncio.sleep(TICK_S)
            facts = await asyncio.to_thread(self._storage.facts)
            self._collector.armed(facts)
            with starting_for_run():
                self._watch = await asyncio.to_thread(self._storage.watch_drives, facts)
            if facts.drives and self._watch.blind:
                self._live.say(f"the drives cannot be checked after an I/O error: {self._watch.blind}")
        except OSError as error:
            raise TargetError(f"{self._storage.path}: cannot be prepared: {error}") from error
        except _WriterFailedError as error:
            if error.failure.state == WriterState.CRASHED:
                raise
            raise TargetError(f"{self._storage.path}: cannot be prepared: {error}") from error
        if self._signals:  # a task that is cancelled before it began leaves its coroutine unawaited
            raise self._interruption()
        arming = asyncio.create_task(self._during(self.link.arm(to_value(facts)), arming=True))
        while not arming.done():
            if self._signals:
                arming.cancel()
                raise self._interruption()
            await asyncio.wait({arming}, timeout=TICK_S)
        arming.result()

    async def _filled(self, files: TargetFiles, bar: Callable[[int, int], None]) -> None:
        """Fill the target in a thread. The thread has ended when this returns or raises, because the caller
        then releases the lock and another run may write to the target."""
        given_up = threading.Event()
        filling = asyncio.ensure_future(asyncio.to_thread(self._fill, files, self._stoppable(bar, given_up)))
        try:
            await self._during(asyncio.shield(filling))
        finally:
            given_up.set()
            await asyncio.wait({filling})

    def _fill(self, files: TargetFiles, bar: Callable[[int, int], None]) -> None:
        """Create the files. With `prefill_only`, repeat for ever, so that a cut hits the prefill on the
        fastest drive, too."""
        files.create(bar)
        while self._options.prefill_only:
            files.create(bar)

    async def _during(self, work: Awaitable[None], *, arming: bool = False) -> None:
        """Wait for `work`, a step of the preparation, and show a line each second.

        `arming`: the step needs the server, so lines name connection trouble. Otherwise a second signal shows
        why the first signal has not ended the step yet.
        """
        task = asyncio.ensure_future(work)
        explained = arming
        try:
            while not task.done():
                self._show("prefill", self.link.trouble if arming else "")
                if len(self._signals) > 1 and not explained:
                    explained = True
                    self._live.say(HANGING_PREFILL)
                await asyncio.wait({task}, timeout=TICK_S)
            task.result()
        finally:
            task.cancel()

    def _stoppable(
        self, bar: Callable[[int, int], None], given_up: threading.Event
    ) -> Callable[[int, int], None]:
        """Wrap `bar` so that it ends the thread that prefills.

        The wrapper raises after a signal, after the server ended the run, or once the prefill was given up.
        """

        def progress(done: int, total: int) -> None:
            if self._signals:
                raise self._interruption()
            if self.link.final is not None:
                raise self.link.final
            if given_up.is_set():
                raise DurabilityError("the prefill was given up")
            bar(done, total)

        return progress

    def _interruption(self) -> _InterruptedError:
        nothing = Stop(frontiers=(0,) * self._plan.writers, control=0, statistics={})
        text = "interrupted before the run was armed; nothing was acknowledged"
        return _InterruptedError(self._signals[0], text, nothing)

    # While records are written.

    async def _write(self) -> None:
        """Start the writers' operations. Returns when the duration is over or a signal has arrived."""
        duration_s = self._options.duration_s or float("inf")
        self._began_s = self._line_s = time.monotonic()
        self._writers.shared.give_order(Order.GO)
        self._sender.start()
        while not self._signals:
            left_s = self._began_s + duration_s - time.monotonic()
            if left_s <= 0:
                return
            self._check()
            self._show(*self._state())
            await asyncio.sleep(min(TICK_S, left_s))

    async def _stop(self) -> RunSummary:
        """Let each writer finish its group, and wait until the server has confirmed the end of the run."""
        self._writers.shared.give_order(Order.STOP)
        while not self._writers.all_in(WriterState.DONE):
            self._writers.look()
            self._check()
            if len(self._signals) > 1:
                text = "interrupted again before the target answered: the run was not stopped cleanly"
                raise _InterruptedError(self._signals[1], text, ClientFailed(text=text))
            self._show("stopping")
            await asyncio.sleep(_STOP_TICK_S)
        self._sender.stop()
        elapsed_s = time.monotonic() - self._began_s
        self._collector.digest()
        summary = RunSummary(
            run=self._plan.run,
            frontiers=tuple(self._writers.shared.frontiers()[: self._plan.writers]),
            control=self._writers.control_completed,
            elapsed_s=elapsed_s,
            latencies=self._collector.latencies(),
            exit_code=128 + self._signals[0] if self._signals else EXIT_OK,
        )
        await self._confirmed(
            Stop(frontiers=summary.frontiers, control=summary.control, statistics=self._statistics())
        )
        self._show("stopped", due=True)
        for line in CLEAN_END.splitlines():
            self._live.say(line)
        return summary

    def _check(self) -> None:
        """Raise _WriterFailedError if a writer failed, and PeerError if the server ended the run."""
        if self._writers.shared.halted:
            failure = self._writers.shared.first_failure()
            if failure is not None:
                raise _WriterFailedError(failure)
        if self.link.final is not None:
            raise self.link.final

    def _state(self) -> tuple[State, str]:
        if self.link.trouble:
            return "reconnecting", self.link.trouble
        if self._writers.any_in(WriterState.OUT_OF_CREDIT):
            return (
                "waiting for credit",
                self._notice_text or "the server has not confirmed the acknowledgements",
            )
        return "running", self._notice_text

    def _notice(self, notice: Notice) -> None:
        self._notice_text = "" if notice.code == "store-recovered" else notice.text
        self._live.say(f"server: {notice.text}")

    # Status lines and statistics.

    def _show(self, state: State, detail: str = "", *, due: bool = False) -> None:
        """Show a status line if a second has passed or if `due`, and send the statistics with it."""
        now_s = time.monotonic()
        due = due or now_s >= self._line_s + _LINE_S
        if due or now_s >= self._digest_s:
            self._collector.digest()
            self._digest_s = now_s + _DIGEST_S
        if not due:
            return
        self._writers.look()
        frontiers = self._writers.shared.frontiers()[: self._plan.writers]
        acked, second = sum(frontiers), self._collector.second
        self._live.show(
            StatusSample(
                elapsed_s=now_s - self._began_s,
                acked=acked,
                rate=(acked - self._line_acked) / max(now_s - self._line_s, 1e-9),
                p50_ns=second.percentile(50),
                p99_ns=second.percentile(99),
                max_ns=second.max_value,
                unconfirmed=acked - sum(self._writers.shared.grants()[: self._plan.writers]),
                rtt_ns=self.link.rtt_ns,
                state=state,
                detail=detail,
            )
        )
        self._collector.next_second()
        self._line_s, self._line_acked = now_s, acked
        self.link.report(self._statistics())

    def _statistics(self) -> dict[str, Value]:
        return statistics_to_value(self._collector.statistics(time.monotonic() - self._began_s))

    # The end of the run.

    async def _report(self, failure: WriterFailure) -> NoReturn:
        """Tell the server, then the operator, why a writer ended. Raises DurabilityError."""
        who = "the control arm" if failure.writer == self._plan.control_writer else f"writer {failure.writer}"
        what = f"{who} failed at operation {failure.seq}: {failure.text}"
        if failure.state == WriterState.CRASHED:
            await self._end(ClientFailed(text=what))
            raise DurabilityError(f"a defect of this tool: {what}")
        self._collector.digest()
        self.link.report(self._statistics())
        ending: Ending = TargetFailed(
            errno=failure.errno, writer=failure.writer, seq=failure.seq, text=failure.text
        )
        if failure.killed or failure.errno in _NO_IO_FAILURE:
            told = await self._end(ClientFailed(text=what))
            seen, advice = "", "This was not an I/O error and not a cut: fix it and run again"
        else:
            looking = asyncio.create_task(self._look())
            told = await self._end(ending)
            look = await looking
            confirmed = await self._tell(look, failure)
            told = told or confirmed
            seen = f"; {look.text}"
            advice = _ADVICE[look.drive]
            if not confirmed:
                seen += ", which the server did not confirm"
                advice = _ADVICE["unseen"]
        acked = sum(self._writers.shared.frontiers()[: self._plan.writers])
        server = "the server has them all" if told else "the server did not confirm them all"
        raise TargetError(
            f"{self._storage.path}: {what}; all writers stopped after {acked} acknowledged operations,"
            f" {server}{seen}. {advice}"
        )

    async def _look(self) -> DriveLook:
        """Check whether the drives still answer."""
        assert self._watch is not None  # set before any writer gets the order `GO`
        return await asyncio.to_thread(self._watch.look, LOOK_S)

    async def _tell(self, look: DriveLook, failure: WriterFailure) -> bool:
        """Report to the server the drives' state observed after `failure`. Returns whether it confirmed."""

        def drive_seen() -> DriveSeen:
            age_us = max(0, time.monotonic_ns() - failure.at_ns) // 1000
            return DriveSeen(error_age_us=min(age_us, limits.ERROR_AGE_US_MAX), drive=look.drive, text=text)

        text = look.text.encode()[: limits.TEXT_BYTES_MAX].decode(errors="ignore")

        with suppress(PeerError, TimeoutError):
            async with asyncio.timeout(_FINISH_TIMEOUT_S):
                await self.link.tell(drive_seen)
            return True
        return False

    async def _end(self, ending: Ending) -> bool:
        """Send the last acks and the reason why the run ends. Returns whether the server confirmed both."""
        self._sender.stop()
        with suppress(PeerError):
            await self._confirmed(ending)
            return True
        return False

    async def _confirmed(self, ending: Ending) -> None:
        """Send the last acks, then `ending`, and wait for the server. Raises PeerError."""
        try:
            async with asyncio.timeout(_FINISH_TIMEOUT_S):
                # No event is set when the network accepts data again, so this polls.
                while self.link.final is None and not self._sender.flush():  # noqa: ASYNC110
                    await asyncio.sleep(_STOP_TICK_S)
                await self.link.finish(ending)
        except TimeoutError:
            why = self.link.trouble or "no answer"
            raise PeerError(f"the server did not confirm the end of the run: {why}") from None


@contextmanager
def _signals(handler: Callable[[int], None]) -> Iterator[None]:
    """Make SIGINT and SIGTERM call `handler` in the event loop, if the loop runs in the main thread."""
    loop = asyncio.get_running_loop()
    before = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        previous = signal.getsignal(number)
        with suppress(ValueError, RuntimeError, NotImplementedError):
            loop.add_signal_handler(number, handler, number)
            before[number] = previous
    try:
        yield
    finally:
        for number, previous in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, previous)
