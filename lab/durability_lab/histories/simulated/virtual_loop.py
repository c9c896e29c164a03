"""An event loop in virtual time that runs the product's own code unchanged.

Waiting takes no real time: when nothing is ready, the clock jumps to the next due event. Blocking code of the
product (a writer's sync, a scan in its thread, a sleep) runs in a fiber. A fiber has its own stack, which is
left when the fiber sleeps and resumed at the due time. A history is therefore one thread, and its order of
events depends only on its seed. During a history, `virtual_time` replaces sleeping, the monotonic clocks,
threads and the product's random numbers (run ids, seeds of plans).

A loop with nothing left to do raises DeadlockError.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import os
import secrets
import selectors
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import greenlet

from durability_lab.histories.simulated.defects import Defects
from durability_lab.histories.simulated.virtual_network import VirtualNetwork
from durability_lab.histories.simulated.virtual_process import CURRENT, Process
from durability_server import clock

_START_NS = 1_000 * 10**9
_STARTED = datetime(2026, 1, 1, tzinfo=UTC)  # the wall clock at time 0 of the loop
_JOIN_S = 0.001
_RESOLUTION_S = 1e-9


class DeadlockError(RuntimeError):
    """The history is not over, but no event is ready or due."""


class _NoFiles(selectors.BaseSelector):
    """A selector that never waits: the loop's own pipe is the only file, and it is unused."""

    def __init__(self) -> None:
        self._keys: dict[int, selectors.SelectorKey] = {}

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Always empty: no file is ever ready."""
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Register the pipe."""
        key = selectors.SelectorKey(fileobj, fileobj, events, data)
        self._keys[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """Remove the pipe."""
        return self._keys.pop(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """The registered files."""
        return self._keys


class Fiber:
    """A function with a stack of its own; `result` is set when it returns or raises."""

    def __init__(self, loop: VirtualLoop, function: Callable[[], Any]) -> None:
        self.result: asyncio.Future[Any] = loop.create_future()
        self._loop = loop
        self._function = function
        self._process = CURRENT.get()
        self._greenlet = greenlet.greenlet(self._run)
        self._greenlet.gr_context = copy_context()
        loop.fibers[self] = None

    def start(self) -> None:
        """Run the fiber until it first sleeps."""
        self._resume()

    def sleep(self, seconds: float) -> None:
        """Called in the fiber: let others run for `seconds`."""
        if self._loop.over or self._ended:
            raise greenlet.GreenletExit
        self._loop.call_later(max(0.0, seconds), self._resume)
        self._greenlet.parent.switch()

    @property
    def _ended(self) -> bool:
        return self._process is not None and self._process.dead

    @property
    def alive(self) -> bool:
        """Whether the fiber has not ended."""
        return not self._greenlet.dead

    def end(self) -> None:
        """End the fiber permanently, wherever it is; it cannot sleep any more."""
        self._greenlet.parent = greenlet.getcurrent()
        self._greenlet.throw()

    def _resume(self) -> None:
        if self._ended:
            self.end()
            return
        self._greenlet.parent = greenlet.getcurrent()
        self._greenlet.fiber = self
        self._greenlet.switch()

    def _run(self) -> None:
        try:
            value = self._function()
        except (greenlet.GreenletExit, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            if not self.result.done():
                self.result.set_exception(error)
                self.result.exception()  # a waiter gets the error; without one, asyncio must not log it
        else:
            if not self.result.done():
                self.result.set_result(value)
        finally:
            self._loop.fibers.pop(self, None)


def current_fiber() -> Fiber | None:
    """The fiber that runs now, None in the loop itself."""
    fiber: Fiber | None = getattr(greenlet.getcurrent(), "fiber", None)
    return fiber


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time. `create_unix_server` and `create_unix_connection` use `network`."""

    def __init__(self, network: VirtualNetwork) -> None:
        super().__init__(_NoFiles())
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []  # a heap: when, and in which order
        self._order = itertools.count()
        self.now_ns = _START_NS  # the time, in nanoseconds from any start
        self.network = network
        self.fibers: dict[Fiber, None] = {}  # fibers that have not ended
        self.over = False  # whether no fiber may sleep any more
        # The tasks of processes that ended with an error, each with the name of its process.
        self.failed: list[tuple[str, asyncio.Task[Any]]] = []
        self.defects = Defects()
        self.set_exception_handler(lambda _, context: self.defects.of_loop(context))
        self.set_task_factory(_task)

    def time(self) -> float:
        """The time, in seconds."""
        return self.now_ns / 1e9

    # asyncio's own versions take half of a history's time, so these do only what is needed.

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        """As in asyncio."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """As in asyncio; callbacks that are due at the same time run in the order of the calls."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """As in asyncio."""
        return self.call_at(self.now_ns / 1e9 + delay, callback, *args, context=context)

    def _run_once(self) -> None:
        """Run the ready and due callbacks. If there are none, the clock jumps to the next due callback.

        Callbacks of a frozen process are kept until the process goes on.
        """
        ready: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        timers = self._timers
        if not ready:
            while timers and timers[0][2]._cancelled:
                heapq.heappop(timers)
            if not timers:
                raise DeadlockError("nothing is left to happen, and the history is not over")
            self.now_ns = max(self.now_ns, math.ceil(timers[0][0] * 1e9))
        due_s = self.now_ns / 1e9 + _RESOLUTION_S
        while timers and timers[0][0] < due_s:
            ready.append(heapq.heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            process = handle._context.get(CURRENT)  # type: ignore[attr-defined]
            if process is not None and process.frozen:
                process.keep(handle)
            else:
                handle._run()

    def end_of_play(self) -> list[str]:
        """The defects of processes so far, including those of tasks that were never awaited."""
        for name, task in self.failed:
            if task._log_traceback:
                self.defects.note(name, task.exception())
        self.failed.clear()
        return self.defects.found

    def end_fibers(self) -> None:
        """End every fiber, so that no code of the history runs later."""
        self.over = True
        for fiber in tuple(self.fibers):
            fiber.end()
        self.fibers.clear()

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run the function in a fiber."""
        fiber = Fiber(self, lambda: func(*args))
        self.call_soon(fiber.start)
        return fiber.result

    def add_signal_handler(  # type: ignore[override]
        self, sig: int, callback: Callable[..., object], *args: Any
    ) -> None:
        """Store a handler for the present process. The history calls it when it sends the signal."""
        process = CURRENT.get()
        if process is not None:
            process.handlers[sig] = lambda: callback(*args)

    def remove_signal_handler(self, sig: int) -> bool:
        """Remove a handler."""
        process = CURRENT.get()
        return process is not None and process.handlers.pop(sig, None) is not None

    async def create_unix_server(self, protocol_factory: Any, path: Any = None, **_: Any) -> Any:
        """Listen in the history's network."""
        return self.network.listen(protocol_factory, CURRENT.get())

    async def create_unix_connection(self, protocol_factory: Any, path: Any = None, **_: Any) -> Any:
        """Connect in the history's network."""
        return await self.network.connect(self, protocol_factory, CURRENT.get())


def _task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
    process = CURRENT.get()
    if process is not None:
        process.adopt(task)
    return task


class _FiberThread:
    """A thread of the product, as a fiber."""

    def __init__(self, *, target: Callable[..., Any], args: tuple[Any, ...] = (), **_: Any) -> None:
        loop = asyncio.get_event_loop()
        assert isinstance(loop, VirtualLoop)
        self._fiber = Fiber(loop, lambda: self._do(target, args))
        self._loop = loop

    def _do(self, target: Callable[..., Any], args: tuple[Any, ...]) -> None:
        try:
            target(*args)
        except Exception as error:  # as in a thread, no caller gets it
            self._loop.defects.note("a thread", error)

    def start(self) -> None:
        """Start the thread in the loop's next turn."""
        self._loop.call_soon(self._fiber.start)

    def is_alive(self) -> bool:
        """Whether the thread has not ended."""
        return self._fiber.alive

    def join(self, timeout: float | None = None) -> None:
        """Called in a fiber: wait until the thread has ended, at most `timeout` seconds."""
        caller = current_fiber()
        end_s = self._loop.time() + (timeout if timeout is not None else math.inf)
        while caller is not None and self.is_alive() and self._loop.time() < end_s:
            caller.sleep(_JOIN_S)


def _submit(_: ThreadPoolExecutor, function: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
    """Run the function at once, in the caller: with several threads, the order of reads would be random."""
    future: Future[Any] = Future()
    try:
        future.set_result(function(*args, **named))
    except Exception as error:
        future.set_exception(error)
    return future


_NOBODY = Process("the history itself")


def _current() -> Process:
    return CURRENT.get() or _NOBODY


@contextmanager
def virtual_time(loop: VirtualLoop, *, seed: int) -> Iterator[None]:
    """In the block, this process uses the clock of `loop`, sleeping works in fibers only, and secrets follow
    from `seed`. After the block no fiber is left."""
    drawn = Random(f"{seed} secrets")

    def sleep(seconds: float) -> None:
        fiber = current_fiber()
        if fiber is not None:
            fiber.sleep(seconds)

    def wall(at_ns: int | None = None) -> str:
        ago_ns = 0 if at_ns is None else clock.now_ns() - at_ns
        at = _STARTED + timedelta(microseconds=(loop.now_ns - ago_ns) // 1000)
        return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    with ExitStack() as patches:
        for owner, name, replacement in (
            (time, "monotonic", loop.time),
            (time, "monotonic_ns", lambda: loop.now_ns),
            (time, "clock_gettime_ns", lambda _: loop.now_ns + _current().ahead_ns),
            (clock, "read_boot_id", lambda: _current().boot_id),
            (clock, "wall", wall),
            (time, "sleep", sleep),
            (os, "sched_getaffinity", lambda _: {0}),  # the sender's pace depends on the processors
            (threading, "Thread", _FiberThread),
            (ThreadPoolExecutor, "submit", _submit),
            (signal, "pthread_sigmask", lambda *_: set()),  # a writer would block signals of the real process
            (secrets, "randbelow", drawn.randrange),
            (secrets, "token_bytes", drawn.randbytes),
            (secrets, "token_hex", lambda nbytes: drawn.randbytes(nbytes).hex()),
        ):
            patches.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, replacement)
        patches.callback(loop.end_fibers)
        yield
