"""Runs tasks: functions on threads, coroutine functions on one event loop; a moment of work is fetched ahead."""

from __future__ import annotations

import asyncio
import contextlib
import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any, Protocol

from ...core.log_lines import get_logger
from ...tasks.interrupts import TaskCancelled
from ..delivery import AckWaiter, TimeLimit
from .handoff import Handoff
from .interrupt import Interruptions
from .invoke import share_handlers

logger = get_logger(__name__)

#: When no run has ended for this time, the messages that wait for a thread are given back.
STUCK_AFTER_S = 0.5


class Runnable(Protocol):
    """One attempt at one message, see Execution, or at several, see Batch."""

    interrupted: bool
    is_async: bool
    acks_each: bool
    time_limit: TimeLimit | None
    #: On the monotonic clock; 0 while it has not begun.
    began_at: float

    @property
    def ack_waiters(self) -> list[AckWaiter]:
        """Threads that wait for an acknowledgement."""

    @property
    def was_interrupted(self) -> bool:
        """Whether an exception was raised in its thread."""

    def run(self) -> None:
        """Run the function in this thread."""

    async def arun(self) -> None:
        """Run the coroutine function in this event loop."""

    @property
    def running_now(self) -> Runnable:
        """What an interruption ends: this, or the part that runs."""

    def interrupt(self, kind: type[BaseException]) -> bool:
        """Interrupt the function on its thread; return whether it is running."""

    def abandon(self) -> None:
        """Abandon the attempts without an outcome: something other than the function failed."""


class Pool:
    """Runs executions: at most `threads` functions and `async_tasks` coroutines at a time."""

    def __init__(
        self,
        *,
        threads: int,
        async_tasks: int,
        wake: Callable[[], None],
        on_interruption: Callable[[Runnable], None],
        renews_threads: bool,
    ) -> None:
        self._threads = threads
        self._interruptions = Interruptions(on_interruption)
        #: Whether a new thread replaces a thread whose function was interrupted.
        self._renews_threads = renews_threads
        self._async_tasks = async_tasks
        self._wake = wake
        self._todo: Handoff[Runnable | None] = Handoff()
        #: The runnable of each thread, and how many runs it has ended. Each slot has one writer, so there is no lock.
        self._now: list[Runnable | None] = [None] * threads
        self._ended = [0] * threads
        #: Threads that wait for the acknowledgement of their last run.
        self._awaits_ack = [False] * threads
        #: Number of runnables handed to threads, without those taken back; also of those with a time limit.
        self._handed_out = self._handed_out_limited = 0
        #: How many runs with a time limit each thread has ended.
        self._ended_limited = [0] * threads
        #: At most the shortest time limit of the runnables that were handed out and have not ended.
        self._shortest_limit_s = math.inf
        #: The task of each coroutine; None while it has not begun.
        self._coroutines: dict[Runnable, asyncio.Task[Any] | None] = {}
        self._arrived: deque[Runnable] = deque()
        self._is_begin_planned = False
        #: Number of running coroutines; the others wait in `_arrived`.
        self._begun = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread_id: int | None = None
        #: Coroutines run in copies of this context.
        self._loop_context = Context()
        self._is_closing = False
        self._is_wake_planned = False
        self._prefetch, self._async_pace = Prefetch(), Prefetch()
        #: The size of the longest message of late, and how many of that size may wait here.
        self._longest, self._most_ahead = 0.0, MOST_PREFETCHED
        #: Share of functions among the latest messages; the others were coroutine functions.
        self._sync_share = 1.0
        #: With fewer waiting messages than this, every event wakes the worker at once.
        self._few = math.inf
        #: When a run last ended, or a message began to wait behind none: of functions, and of coroutines.
        self._moved_at = self._async_moved_at = 0.0

    def start(self) -> None:
        """Start the threads and the event loop."""
        loop_is_up = threading.Event()
        self._loop_thread = threading.Thread(target=self._run_loop, args=(loop_is_up,), name="rsmq-async", daemon=True)
        self._loop_thread.start()
        for number in range(self._threads):
            self._start_thread(number)
        loop_is_up.wait()

    def stop(self) -> None:
        """Let the threads end with their current tasks, and close the event loop with its connections."""
        for _ in range(self._threads):
            self._todo.put(None)
        if self._loop is not None:
            self._is_closing = True
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop_thread.join(1)

    # -- Interface for the worker -------------------------------------------------------------------------------------

    def room(self) -> int:
        """Return how many more messages to fetch: the free slots, plus a prefetch of up to PREFETCH_S of work."""
        ahead, ahead_async = (
            self._ahead(self._prefetch, self._threads),
            self._ahead(self._async_pace, self._async_tasks),
        )
        # Short tasks are fetched in batches: again when half of a batch is done.
        self._few = ahead / 2 if ahead > self._threads else math.inf
        if self.is_ahead:
            return 0
        # Whether the next messages are functions is known only on arrival; mostly they are like the latest ones.
        for_functions = (self._threads + ahead - self.sync_count) / max(self._sync_share, 0.001)
        for_coroutines = (self._async_tasks + ahead_async - len(self._coroutines)) / max(1 - self._sync_share, 0.001)
        return max(0, int(min(for_functions, for_coroutines)))

    def _ahead(self, pace: Prefetch, places: int) -> int:
        return min(pace.ahead(places), self._most_ahead)

    def note_longest(self, size_bytes: int) -> None:
        """Note the size of the longest message of a fetch: of long messages, few are fetched ahead."""
        self._longest = max(self._longest * FORGETS_LONG, size_bytes)
        self._most_ahead = int(MOST_AHEAD_BYTES / max(1.0, self._longest))

    @property
    def portion(self) -> int:
        """Return how many messages to fetch in one exchange.

        Of short tasks half of the room, so that some run while others are being fetched.
        """
        if self._sync_share < 0.5:
            places, ahead = self._async_tasks, self._ahead(self._async_pace, self._async_tasks)
        else:
            places, ahead = self._threads, self._ahead(self._prefetch, self._threads)
        return (places + ahead) // 2 if ahead > places else places + ahead

    @property
    def is_ahead(self) -> bool:
        """Return whether enough messages wait for the threads that nothing is urgent."""
        return self._todo.qsize() > self._few and not any(self._awaits_ack)

    def wake_unless_ahead(self) -> None:
        """Wake the worker unless enough messages are prefetched. Called where tasks run."""
        if self._todo.qsize() > self._few:
            return
        if threading.get_ident() == self._loop_thread_id:
            self._plan_wake()
        else:
            self._wake()

    @property
    def sync_count(self) -> int:
        """Return the number of functions that run or wait for a thread."""
        return self._handed_out - sum(self._ended)

    @property
    def is_idle(self) -> bool:
        """Return whether nothing runs or waits."""
        return self.sync_count == 0 and not self._coroutines

    def submit(self, execution: Runnable) -> None:
        """Run an execution on the next free thread, or on the event loop."""
        self._sync_share += ((not execution.is_async) - self._sync_share) * SMOOTHING
        if execution.is_async:
            assert self._loop is not None
            if not self._arrived:
                self._async_moved_at = time.monotonic()
            self._coroutines[execution] = None  # counted before it begins
            self._arrived.append(execution)
            if not self._is_begin_planned:  # waking the loop costs a system call; later arrivals share it
                self._is_begin_planned = True
                self._loop.call_soon_threadsafe(self._begin_arrived)
        else:
            if not self._todo.qsize():
                self._moved_at = time.monotonic()
            self._handed_out += 1
            if execution.time_limit is not None:
                self._handed_out_limited += 1
                self._shortest_limit_s = min(self._shortest_limit_s, execution.time_limit.timeout_s)
            self._todo.put(execution)

    def take_back(self) -> list[Runnable]:
        """Return the runnables that wait for a thread or for a free coroutine slot, and drop them here."""
        taken: list[Runnable] = []
        with contextlib.suppress(IndexError):
            while True:
                execution = self._todo.get_nowait()
                if execution is not None:
                    taken.append(execution)
        self._handed_out -= len(taken)
        self._handed_out_limited -= sum(each.time_limit is not None for each in taken)
        with contextlib.suppress(IndexError):
            while True:
                execution = self._arrived.pop()
                del self._coroutines[execution]
                taken.append(execution)
        return taken

    def is_stuck(self) -> bool:
        """Return whether messages wait behind tasks that have all been running for a while."""
        now = time.monotonic()
        return (self._todo.qsize() > 0 and now - self._moved_at > STUCK_AFTER_S) or (
            bool(self._arrived) and now - self._async_moved_at > STUCK_AFTER_S
        )

    @property
    def moved_at(self) -> float:
        """Return when a run last ended, on the monotonic clock."""
        return max(self._moved_at, self._async_moved_at)

    def slow_down(self) -> None:
        """Stop the prefetch until short runs have been seen again."""
        self._prefetch, self._async_pace = Prefetch(), Prefetch()

    def interrupt_overdue(self) -> None:
        """Interrupt functions that exceed their time limit, and again functions that continue after an interruption."""
        self._interruptions.repeat(self._limited_functions())

    def next_interruption_at(self) -> float | None:
        """Return when to call interrupt_overdue() again; None when nothing has a limit."""
        return self._interruptions.next_at(self._deadlines())

    def _deadlines(self) -> list[float]:
        """Return the deadlines of running functions, and the earliest one of those that have not begun."""
        count = self._handed_out_limited - sum(self._ended_limited)  # first: what begins meanwhile is not missed
        if count == 0:
            self._shortest_limit_s = math.inf
            return []
        limits = [each.time_limit for each in self._limited_functions()]
        deadlines = [each.deadline for each in limits if each is not None and each.deadline < math.inf]
        if len(deadlines) < count:
            deadlines.append(time.monotonic() + self._shortest_limit_s)
        return deadlines

    def _limited_functions(self) -> list[Runnable]:
        """Return what runs with a time limit. Of a sequence only its member: the next one may begin at any moment."""
        return [each.running_now for each in self._now if each is not None and each.time_limit is not None]

    def _running_functions(self) -> list[Runnable]:
        return [execution for execution in self._now if execution is not None]

    def running(self) -> list[Runnable]:
        """Return everything that runs now, on threads and on the loop."""
        return [*self._running_functions(), *list(self._coroutines)]

    def use(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return how many functions and how many coroutines run, each with the most that can run at a time."""
        return (len(self._running_functions()), self._threads), (self._begun, self._async_tasks)

    def threads_of_functions(self) -> list[tuple[Runnable, int]]:
        """Return the functions that run, each with the id of its thread."""
        ids = {thread.name: thread.ident for thread in threading.enumerate()}
        now = [(execution, ids.get(_thread_name(number))) for number, execution in enumerate(self._now)]
        return [(each.running_now, ident) for each, ident in now if each is not None and ident is not None]

    def tasks_of_coroutines(self) -> list[tuple[Runnable, asyncio.Task[Any]]]:
        """Return the coroutines that run, each with its task."""
        return [(each, task) for each, task in list(self._coroutines.items()) if task is not None]

    @property
    def loop_thread_id(self) -> int | None:
        """Return the id of the thread on which coroutines run."""
        return self._loop_thread_id

    def cancel_coroutines(self) -> None:
        """Cancel all coroutines; they end as interrupted, not as failed."""
        assert self._loop is not None
        for execution, coroutine in list(self._coroutines.items()):
            execution.interrupted = True
            if coroutine is not None:
                self._loop.call_soon_threadsafe(coroutine.cancel)

    def cancel(self, execution: Runnable) -> None:
        """Stop a running execution as far as Python can. A waiting one checks for cancellation before it starts."""
        if not execution.is_async:
            self._interruptions.interrupt(execution, TaskCancelled)
        elif (coroutine := self._coroutines.get(execution)) is not None:
            assert self._loop is not None
            self._loop.call_soon_threadsafe(coroutine.cancel)

    # -- Threads ------------------------------------------------------------------------------------------------------

    def _start_thread(self, number: int) -> None:
        threading.Thread(target=self._work, args=(number,), name=_thread_name(number), daemon=True).start()

    def _work(self, number: int) -> None:
        share_handlers()
        get, now_running, ended = self._todo.get, self._now, self._ended
        waiter = threading.Lock()
        waiter.acquire()
        while (execution := get(waiter)) is not None:
            now_running[number] = execution
            try:
                copy_context().run(execution.run)
                if execution.acks_each:
                    self._wait_for_acks(number, execution)
            except BaseException:
                abandon(execution)
            was_interrupted = execution.was_interrupted
            now_running[number] = None
            ended[number] += 1
            if execution.time_limit is not None:
                self._ended_limited[number] += 1
            self._moved_at = now = time.monotonic()
            if execution.began_at:
                self._prefetch.note(now - execution.began_at)
            if self._todo.qsize() <= self._few or was_interrupted:
                self._wake()
            if was_interrupted:  # the state of this thread may be broken, so no other function runs on it
                if self._renews_threads:
                    self._start_thread(number)
                return

    def _wait_for_acks(self, number: int, execution: Runnable) -> None:
        self._awaits_ack[number] = True
        self._note_awaited(execution)
        for each in execution.ack_waiters:
            each.wait()
        self._awaits_ack[number] = False

    def _note_awaited(self, execution: Runnable) -> None:
        for each in execution.ack_waiters:
            each.is_awaited = True
        self._wake()

    # -- Event loop ---------------------------------------------------------------------------------------------------

    def _run_loop(self, is_up: threading.Event) -> None:
        with asyncio.Runner() as runner:
            self._loop, self._loop_thread_id = runner.get_loop(), threading.get_ident()
            share_handlers()
            self._loop_context = copy_context()
            is_up.set()
            while not self._is_closing:
                try:
                    self._loop.run_forever()
                except BaseException:
                    # asyncio lets SystemExit and KeyboardInterrupt of a task's own subtasks end the loop. The code that
                    # awaits the subtask gets it as well; all other coroutines are not to blame and continue.
                    logger.exception("a subtask of an async task tried to end the event loop; the loop continues")

    def _plan_begin(self) -> None:
        """Begin what has arrived in the next pass of the loop. Not at once: a coroutine that has just ended asks."""
        assert self._loop is not None
        if not self._is_begin_planned:
            self._is_begin_planned = True
            self._loop.call_soon(self._begin_arrived, context=self._loop_context)

    def _begin_arrived(self) -> None:
        self._is_begin_planned = False  # first: later arrivals may be missed below
        with contextlib.suppress(IndexError):
            # Later arrivals begin in the next pass: everything in the loop gets a turn.
            for _ in range(min(len(self._arrived), self._async_tasks - self._begun)):
                execution = self._arrived.popleft()
                self._begun += 1
                self._begin(execution)

    def _begin(self, execution: Runnable) -> None:
        """Begin a coroutine, from Python 3.12 on at once: one that never waits needs no further pass of the loop."""
        assert self._loop is not None
        coroutine, context = self._run_coroutine(execution), self._loop_context.copy()
        if sys.version_info >= (3, 12) and self._loop.get_task_factory() is None:
            asyncio.Task(coroutine, loop=self._loop, context=context, eager_start=True)
            return
        task = self._loop.create_task(coroutine, context=context)
        if not task.done():  # a project's factory may begin it at once, too
            self._coroutines[execution] = task

    async def _run_coroutine(self, execution: Runnable) -> None:
        if sys.version_info >= (3, 12):  # it may run before its task is known to _begin()
            self._coroutines[execution] = asyncio.current_task()
        try:
            await execution.arun()
            if execution.acks_each:
                self._note_awaited(execution)
                for each in execution.ack_waiters:
                    await each.await_release()
        except BaseException as error:
            # What a stop has cut off has its outcome already, even where that was between the function and its end.
            if not (execution.interrupted and isinstance(error, asyncio.CancelledError)):
                abandon(execution)
        finally:
            del self._coroutines[execution]
            self._begun -= 1
            self._async_moved_at = now = time.monotonic()
            if execution.began_at:
                self._async_pace.note(now - execution.began_at)
            if self._arrived:
                self._plan_begin()
            self._plan_wake()

    def _plan_wake(self) -> None:
        """Wake the worker at the end of this pass of the loop: all coroutines that end in the pass share a wake-up."""
        assert self._loop is not None
        if not self._is_wake_planned:
            self._is_wake_planned = True
            self._loop.call_soon(self._wake_as_planned)

    def _wake_as_planned(self) -> None:
        self._is_wake_planned = False
        self._wake()


def _thread_name(number: int) -> str:
    return f"rsmq-task-{number}"


def abandon(execution: Runnable) -> None:
    """Abandon a run in which something other than the function failed, and log the exception."""
    execution.abandon()
    logger.exception("a step around a task failed; its message becomes visible when its lease expires")


#: At most about this much work is prefetched, so that no message waits here while another worker is idle.
PREFETCH_S = 0.05
MOST_PREFETCHED = 200
#: Nor is more than about this much memory, by the size of the longest message of late.
MOST_AHEAD_BYTES = 16 * 1024 * 1024
#: What a fetch leaves of the size of the longest message before it.
FORGETS_LONG = 0.8
#: Weight of the latest run in the moving average of run times.
SMOOTHING = 0.05


class Prefetch:
    """Measures run times, and computes the number of messages to prefetch."""

    def __init__(self) -> None:
        self._seen = 0
        self._average_s = 0.0

    def note(self, run_s: float) -> None:
        """Learn from a run that has ended. From any thread: if two calls collide, one run has little weight."""
        self._seen += 1
        weight = SMOOTHING if self._seen * SMOOTHING > 1 else 1 / self._seen
        self._average_s += (run_s - self._average_s) * weight

    def ahead(self, threads: int) -> int:
        """Return how many messages are PREFETCH_S of work; at most as many as runs were seen: it doubles at first."""
        return min(MOST_PREFETCHED, self._seen, int(threads * PREFETCH_S / max(self._average_s, 1e-6)))
