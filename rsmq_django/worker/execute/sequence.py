"""Messages that run one after another on one thread, in their order; each has its own outcome."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from contextvars import copy_context

from ..delivery import AckWaiter
from ..outcomes import Released
from . import pool
from .execution import Execution


class MessageSequence:
    """Messages of one group of a topic that were read together; the pool sees one runnable.

    The messages behind one that runs for long are given back, so that another process may run them.
    """

    is_async = False
    is_suspect = False
    acks_each = False
    interrupted = False

    def __init__(self, executions: Iterable[Execution]) -> None:
        self._members = [*executions]
        self._waiting = deque(self._members)
        #: The member that runs.
        self._current = self._members[0]
        #: The time limit of a member, which is that of all.
        self.time_limit = next((each.time_limit for each in self._members if each.time_limit is not None), None)
        self.was_interrupted = False
        self.began_at = 0.0
        #: When the last member began, on the monotonic clock.
        self.moved_at = time.monotonic()

    def run(self) -> None:
        """Run the messages on this thread, each in a context of its own."""
        self.began_at = time.monotonic()
        while (each := self._take()) is not None:
            now = time.monotonic()
            if not self._may_begin(each, now):
                each.sink.settle(each, Released())
                continue
            self._current, self.moved_at = each, now
            try:
                copy_context().run(each.run)
            except BaseException:
                pool.abandon(each)
            self.was_interrupted = each.was_interrupted

    def _may_begin(self, each: Execution, now: float) -> bool:
        if self.was_interrupted or each.is_worker_stopping or each.interrupted:
            return False  # after an interruption nothing else may run on this thread
        if each is self._members[0]:
            return True  # it has waited no longer than a message that is read alone
        held = each.delivery  # when its lease is over, another worker may hold it
        return not held.lease_lost and now < held.renewed_at + held.work_queue.lease_s

    async def arun(self) -> None:
        """See run(); coroutines of a group are not put into sequences."""
        raise NotImplementedError

    def _take(self) -> Execution | None:
        try:
            return self._waiting.popleft()
        except IndexError:  # also when the main thread has just given the rest back
            return None

    # -- Called by the main thread ------------------------------------------------------------------------------------

    @property
    def has_waiting(self) -> bool:
        """Return whether some messages have not begun."""
        return bool(self._waiting)

    def give_back(self) -> None:
        """Release the messages that have not begun."""
        while (each := self._take()) is not None:
            each.sink.settle(each, Released())

    def give_back_if_stuck(self, now: float) -> None:
        """Release the messages that wait behind one that has been running for a while."""
        if now - self.moved_at > pool.STUCK_AFTER_S:
            self.give_back()

    # -- Interface for the pool ---------------------------------------------------------------------------------------

    @property
    def executions(self) -> list[Execution]:
        """Return the members without an outcome."""
        return [each for each in self._members if not each.is_settled]

    @property
    def ack_waiters(self) -> list[AckWaiter]:
        """Return an empty list: no member waits for its acknowledgement."""
        return []

    @property
    def running_now(self) -> Execution:
        """Return the member that runs."""
        return self._current

    def interrupt(self, kind: type[BaseException]) -> bool:
        """Interrupt the member that runs; return whether it is running."""
        return self._current.interrupt(kind)

    def abandon(self) -> None:
        """Abandon the members without an outcome: something other than their functions failed."""
        for each in self.executions:
            each.abandon()
