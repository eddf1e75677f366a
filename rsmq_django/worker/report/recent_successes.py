"""The successes that the event log keeps in the mode "recent": the last ones of each task, in a stream per task.

Memory is bounded twice: each stream is trimmed to KEPT entries, and the number of tasks with a stream is limited
(core/runs.py). A task is registered before readers find its stream; a task without room is refused, and its new entries
are deleted again. Busy tasks are sampled: a script that logs nothing takes no longer than before.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...core import Client, RsmqError
from ...core.call import Argument, Call
from ...core.keys import successes_key, successful_tasks_key
from ...core.runs import MOST_TASKS

#: Successes to keep per task. The server trims whole blocks, so there are up to some thirty more.
KEPT = 50
#: Maximum number of successes of a task that a process logs within a second; of faster tasks the rest is skipped.
MOST_A_SECOND, SECOND_S = 10, 1.0
#: A task that keeps succeeding is registered again after the first time, because a server may have lost its data; a
#: task without a success for the second time makes room for another.
ENTER_EVERY_S, GIVES_WAY_AFTER_S = 300, 7200
_AT_ONCE = 100


class RecentSuccesses:
    """Selects the successes to log, for one process on one connection."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        #: Number of accepted successes of each task in this second.
        self._taken: dict[str, int] = {}
        self._next_second_at = 0.0
        #: Whether a task is registered or refused, and until when this is valid.
        self._known: dict[str, tuple[bool, float]] = {}
        #: Tasks to register, and tasks whose streams are to be deleted.
        self._new: set[str] = set()
        self._gone: set[str] = set()

    def turn(self, now: float) -> None:
        """Begin a new second if it is time. `now` is on the monotonic clock."""
        if now >= self._next_second_at:
            self._next_second_at = now + SECOND_S
            self._taken.clear()

    def takes(self, task: str) -> bool:
        """Return whether a success of the task is to be logged."""
        taken = self._taken.get(task, 0)
        if taken >= MOST_A_SECOND:
            return False
        self._taken[task] = taken + 1
        is_entered, until = self._known.get(task, (True, 0.0))
        if until < self._next_second_at:
            self._new.add(task)
            return True
        return is_entered

    def steps(self) -> list[RecentStep]:
        """Return the pending requests as steps of an exchange."""
        steps: list[RecentStep] = []
        if self._new:
            new = sorted(self._new)[:_AT_ONCE]
            self._new.difference_update(new)
            steps.append(RecentStep(self, new, [], self._enter(new)))
        if self._gone:
            gone = sorted(self._gone)[:_AT_ONCE]
            self._gone.difference_update(gone)
            steps.append(RecentStep(self, [], gone, self._forget(gone)))
        return steps

    def carry_out(self, client: Client) -> None:
        """Send the pending requests in a separate round trip. Never raises: nothing depends on them."""
        for step in self.steps():
            try:
                step.done(client.run(step.call))
            except RsmqError as error:
                step.failed(error)

    def answered(self, tasks: Sequence[str], reply: Sequence[Any]) -> None:
        """Store the reply about these tasks."""
        until = time.monotonic() + ENTER_EVERY_S
        for task, is_entered in zip(tasks, reply, strict=False):
            self._known[task] = (bool(is_entered), until)
            if not is_entered:
                self._gone.add(task)
        self._gone.update(name.decode("utf-8", "surrogateescape") for name in reply[len(tasks) :])

    def ask_again(self, tasks: Sequence[str], gone: Sequence[str]) -> None:
        """Note that a request was not answered, or that streams may still exist."""
        self._new.update(tasks)
        self._gone.update(gone)

    def _enter(self, tasks: Sequence[str]) -> Call[Any]:
        args: tuple[Argument, ...] = (MOST_TASKS, GIVES_WAY_AFTER_S * 1000, *map(_encoded, tasks))
        return Call("events/enter", (successful_tasks_key(self._namespace),), args, lambda reply: reply, True)

    def _forget(self, tasks: Sequence[str]) -> Call[Any]:
        keys = (successful_tasks_key(self._namespace), *(successes_key(self._namespace, task) for task in tasks))
        return Call("events/forget", keys, tuple(map(_encoded, tasks)), lambda reply: [], True)


@dataclass(slots=True)
class RecentStep:
    """Registers tasks, or deletes the streams of unregistered tasks."""

    recent: RecentSuccesses
    tasks: Sequence[str]
    gone: Sequence[str]
    call: Call[Any]

    def done(self, reply: Sequence[Any]) -> None:
        """Store the reply."""
        self.recent.answered(self.tasks, reply)

    def failed(self, _error: RsmqError) -> None:
        """Ask again with a later exchange."""
        self.recent.ask_again(self.tasks, self.gone)


def _encoded(task: str) -> bytes:
    return task.encode("utf-8", "surrogateescape")
