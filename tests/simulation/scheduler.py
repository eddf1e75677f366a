"""Simulated time and threads: one thread runs at a time, and a seed decides which one is next.

Each simulated thread is a real one that waits until it is resumed. It gives up control only in `block()`. Time is a
number, which jumps to the next event as soon as all threads wait.
"""

from __future__ import annotations

import heapq
import itertools
import random
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

STACK_BYTES = 512 * 1024


class Killed(BaseException):
    """The simulated process of this thread was killed: nothing that it still does has an effect."""


@dataclass(eq=False)
class Process:
    """A simulated process: what its threads share."""

    number: int
    role: str
    is_dead: bool = False
    #: It stands still until then.
    still_until: float = 0.0
    #: What its wall clock is ahead of the others.
    clock_offset_s: float = 0.0
    began_at: float = 0.0
    threads: list[Thread] = field(default_factory=list)
    #: Replaces the global caches of the package, which real processes do not share.
    caches: dict[str, dict[Any, Any]] = field(default_factory=dict)


class Thread:
    """One simulated thread."""

    def __init__(self, process: Process, run: Callable[[], object] | None) -> None:
        self.process = process
        #: The function; None for the thread that runs the simulation.
        self.run = run
        #: How often it was resumed: events for an earlier wait are void.
        self.turn = 0
        self.is_blocked = False
        self.is_over = False
        #: An exception that another thread raises in this one.
        self.raises: type[BaseException] | None = None
        #: The id of the real thread.
        self.ident = 0
        self.baton = threading.Lock()
        self.baton.acquire()


class Scheduler:
    """Time, events and threads of one simulation. The thread that creates it is the first simulated one."""

    def __init__(self, dice: random.Random, *, starts_at: float) -> None:
        self.now = starts_at
        self._dice = dice
        self._events: list[tuple[float, float, int, Callable[[], object] | None, Thread | None, int]] = []
        self._numbers = itertools.count()
        self.observer = Process(0, "observer")
        self.current = Thread(self.observer, None)
        #: Errors of the simulation itself.
        self.failures: list[str] = []

    def at(self, when: float, do: Callable[[], object]) -> None:
        """Call a function at a time; it must not block."""
        self._push(when, do, None, 0)

    def start(self, process: Process, run: Callable[[], object]) -> Thread:
        """Start a thread of a process."""
        thread = Thread(process, run)
        process.threads.append(thread)
        thread.is_blocked = True
        self._push(self.now, None, thread, 0)
        size = threading.stack_size(STACK_BYTES)
        try:
            threading.Thread(target=self._live, args=(thread,), daemon=True).start()
        finally:
            threading.stack_size(size)
        return thread

    def block(self, until: float | None = None) -> None:
        """Let others run until this time, or until wake(). May return earlier."""
        me = self.current
        if me.process.is_dead:
            raise Killed
        me.is_blocked = True
        if until is not None:
            self._push(until, None, me, me.turn)
        self._pass_on(me)
        me.is_blocked = False
        if me.process.is_dead:
            raise Killed
        if me.raises is not None:
            kind, me.raises = me.raises, None
            raise kind

    def sleep(self, seconds: float) -> None:
        """Let this time pass."""
        until = self.now + seconds
        while self.now < until:
            self.block(until)

    def wake(self, thread: Thread | None) -> None:
        """End the wait of a thread."""
        if thread is not None and thread.is_blocked:
            self._push(self.now, None, thread, thread.turn)

    def interrupt(self, ident: int, kind: type[BaseException]) -> None:
        """Raise an exception in a thread of the process that runs, as Python does; here where that thread waits."""
        thread = next((each for each in self.current.process.threads if each.ident == ident), None)
        if thread is self.current:
            thread.raises = None
            raise kind
        if thread is not None:
            thread.raises = kind
            self.wake(thread)

    def kill(self, process: Process) -> None:
        """End a process at once."""
        process.is_dead = True
        for thread in process.threads:
            self.wake(thread)

    # -- Turns --------------------------------------------------------------------------------------------------------

    def _push(self, when: float, do: Callable[[], object] | None, thread: Thread | None, turn: int) -> None:
        heapq.heappush(self._events, (max(when, self.now), self._dice.random(), next(self._numbers), do, thread, turn))

    def _pass_on(self, me: Thread | None) -> None:
        """Run events until one resumes a thread; return when it is `me`, or at once without one."""
        thread = self._next()
        self.current = thread
        if thread is me:
            return
        thread.baton.release()
        if me is not None:
            me.baton.acquire()

    def _next(self) -> Thread:
        while True:
            when, _, _, do, thread, turn = heapq.heappop(self._events)
            self.now = max(self.now, when)
            if thread is None:
                assert do is not None
                try:
                    do()
                except Exception:
                    self.failures.append(traceback.format_exc())
            elif thread.turn == turn and not thread.is_over:
                process = thread.process
                if process.still_until > self.now and not process.is_dead:
                    self._push(process.still_until, None, thread, turn)
                else:
                    thread.turn += 1
                    return thread

    def _live(self, thread: Thread) -> None:
        thread.ident = threading.get_ident()
        thread.baton.acquire()
        try:
            if not thread.process.is_dead:
                assert thread.run is not None
                thread.is_blocked = False
                thread.run()
        except Killed:
            pass
        except BaseException:
            self.failures.append(traceback.format_exc())
        finally:
            thread.is_over = True
            thread.process.threads.remove(thread)
            self._pass_on(None)


class Lock:
    """A lock of simulated threads, as far as they wait on one: it is acquired to wait, and released by another one."""

    def __init__(self, scheduler: Callable[[], Scheduler]) -> None:
        self._scheduler = scheduler
        self._is_free = True
        self._waiter: Thread | None = None

    def acquire(self) -> bool:
        scheduler = self._scheduler()
        self._waiter = scheduler.current
        while not self._is_free:
            scheduler.block()
        self._is_free = False
        return True

    def release(self) -> None:
        self._is_free = True
        self._scheduler().wake(self._waiter)
