"""Event arguments of the calls that settle attempts, and the choice of successes that are logged.

The script that settles a message also writes its event (parts/events.lua). For reliable queues and topics,
write() appends the events afterwards. The fields are described in core/stats/events.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...conf.settings import EventSettings
from ...core import Client, RsmqError, SettleResult
from ...core.ids import whole_sent_ms
from ...core.keys import successes_key, successful_tasks_key
from ...core.log_lines import get_logger
from ...core.stats.events import BETWEEN_TAGS, MAX_ERROR_CHARACTERS, EventKind, append
from ...core.stats.run_search import MOST_TASKS
from ...core.transport.call import Argument, Call
from ...tasks.tags import tags_of
from ..delivery import AttemptState
from ..outcomes import Dead, Outcome, Postponed, Released, RetryIn, Settlement, Succeeded
from .notifications import dotted_path, event_name, text_of

logger = get_logger(__name__)

#: Maximum number of tags of an event: other programs may write any number into a message.
MOST_TAGS = 50
#: The last arguments of a call, for parts/events.lua.
Events = tuple[Argument, ...]
#: The arguments when nothing is logged.
NO_EVENTS: Events = (0,)


@dataclass(frozen=True, slots=True)
class EventLog:
    """Selects the attempts that are logged, and builds their arguments."""

    worker_id: str
    records_successes: bool
    max_length: int
    error_text: bool
    #: The successes that are logged separately; None when all of them are in the log, or none.
    recent: RecentSuccesses | None

    @classmethod
    def from_settings(cls, settings: EventSettings, worker_id: str, namespace: str) -> EventLog | None:
        """Return the event log of these settings; None when nothing is logged."""
        if settings.record == "off":
            return None
        recent = RecentSuccesses(namespace) if settings.record == "recent" else None
        return cls(worker_id, settings.record == "all", settings.length, settings.error_text, recent)

    def words(self, queue_name: str, settlements: Sequence[Settlement], *, are_apart: bool = False) -> Events:
        """Return the last arguments of a call that settles these messages; their outcomes are of one kind.

        `are_apart` means that these are successes which RecentSuccesses accepted.
        """
        if not (self.records_successes or are_apart) and isinstance(settlements[0].outcome, Succeeded):
            return NO_EVENTS
        if isinstance(settlements[0].outcome, Postponed) and not settlements[0].outcome.has_run:
            return NO_EVENTS  # it is postponed again and again
        lines = [line_of(settlement.execution) for settlement in settlements]
        most = KEPT if are_apart else self.max_length
        return self._complete(queue_name, lines, *self._error(settlements[0].outcome), most=most)

    def words_of_lost(self, attempt: AttemptState, how: str) -> Events:
        """Return the arguments for one message whose process died; `how` describes the end of the process."""
        return self._complete(attempt.delivery.work_queue.name, [line_of(attempt)], "ProcessDied", how)

    def call_of_lines(
        self, namespace: str, queue_name: str, kind: str, lines: Sequence[str], error: BaseException | None
    ) -> Call[int]:
        """Return the call that writes events of messages that an earlier call settled."""
        error_words = ("", "") if error is None else self._error_words(error)
        return append(namespace, kind, self._complete(queue_name, lines, *error_words))

    def calls_afterwards(
        self, namespace: str, queue_name: str, kind: str, attempts: Sequence[AttemptState], error: BaseException | None
    ) -> list[Call[int]]:
        """Return the calls that write events of attempts that an earlier call settled."""
        if kind != EventKind.SUCCEEDED.value or self.records_successes:
            return [self.call_of_lines(namespace, queue_name, kind, [*map(line_of, attempts)], error)]
        if self.recent is None:
            return []
        self.recent.turn(time.monotonic())
        taken: dict[str, list[str]] = {}
        refused: str | None = None
        for attempt in attempts:
            task = attempt.path
            if task == refused:
                continue
            if self.recent.takes(task):
                taken.setdefault(task, []).append(line_of(attempt))
            else:
                refused = task
        return [
            append(
                namespace, kind, self._complete(queue_name, own, "", "", most=KEPT), log=successes_key(namespace, task)
            )
            for task, own in taken.items()
        ]

    def write(self, client: Client, queue_name: str, calls: Iterable[Call[int]]) -> None:
        """Write events of messages that an earlier call settled, in round trips of their own. Never raises."""
        for call in calls:
            try:
                client.run(call)
            except RsmqError as failure:
                logger.warning("events of queue %s are not in the log: %s", queue_name, failure)
        if self.recent is not None:
            self.recent.carry_out(client)

    def _complete(
        self, queue_name: str, lines: Sequence[str], error_type: str, error: str, *, most: int | None = None
    ) -> Events:
        words = f"{error_type}\n{error}"
        return *lines, queue_name, self.worker_id, words, most or self.max_length, len(lines) + 4

    def _error(self, outcome: Outcome) -> tuple[str, str]:
        if not isinstance(outcome, (RetryIn, Dead)):
            return "", ""  # a group of many; failures are settled one by one
        return self._error_words(outcome.error)

    def _error_words(self, error: BaseException) -> tuple[str, str]:
        text = text_of(error)[:MAX_ERROR_CHARACTERS] if self.error_text else ""
        return _storable(dotted_path(type(error))), _storable(text)


def settled_events(
    settlements: Sequence[Settlement], verdicts: Sequence[SettleResult]
) -> Iterator[tuple[str, list[AttemptState], BaseException | None]]:
    """Yield kind, attempts and error of the events of outcomes of one kind that an earlier call settled."""
    outcome = settlements[0].outcome
    if isinstance(outcome, Postponed) and not outcome.has_run:
        return  # it is postponed again and again
    error = outcome.error if isinstance(outcome, (RetryIn, Dead)) else None
    for is_lost in {verdict is SettleResult.LEASE_LOST for verdict in verdicts}:
        if is_lost and isinstance(outcome, Released):
            continue  # released, and another worker has it already
        attempts = [
            settled.execution
            for settled, verdict in zip(settlements, verdicts, strict=True)
            if (verdict is SettleResult.LEASE_LOST) is is_lost
        ]
        yield "lost" if is_lost else event_name(outcome), attempts, error


def line_of(attempt: AttemptState) -> str:
    """Return eight values of an event as one argument: packing arguments is the main cost of an event here."""
    delivery, run_us = attempt.delivery, attempt.run_us
    message, envelope = delivery.message, attempt.envelope
    wait_us = None if run_us is None else delivery.wait_us
    message_id = message.id
    if "\n" in message_id:  # only programs that are not RSMQ clients write such ids
        message_id = message_id.replace("\n", " ")
    is_reliable = delivery.work_queue.reliable is not None
    sent_ms = message_id.partition("-")[0] if is_reliable else whole_sent_ms(message_id)
    tags = "" if attempt.meta is None else BETWEEN_TAGS.join(tags_of(attempt.meta)[:MOST_TAGS])
    if tags:
        tags = f"\n{tags}\n"
    return (
        f"{attempt.path}\n{envelope.id if envelope is not None else ''}\n{message_id}\n"
        f"{delivery.attempt}\n{sent_ms}\n{'' if wait_us is None else wait_us}\n"
        f"{'' if run_us is None else run_us}\n{delivery.body_bytes}{tags}"
    )


def _storable(text: str) -> str:
    """Return text that can be encoded as UTF-8: half of a surrogate pair cannot, and a task may raise any text."""
    return text.encode("utf-8", "backslashreplace").decode()


# -- Recent successes -------------------------------------------------------------------------------------------------

#: Successes to keep per task. The server trims whole blocks, so there are up to some thirty more.
KEPT = 50
#: Maximum number of successes of a task that a process logs within a second; of faster tasks the rest is skipped.
MOST_A_SECOND, SECOND_S = 10, 1.0
#: A task that keeps succeeding is registered again after the first time, because a server may have lost its data; a
#: task without a success for the second time makes room for another.
ENTER_EVERY_S, GIVES_WAY_AFTER_S = 300, 7200
_AT_ONCE = 100


class RecentSuccesses:
    """Selects the successes to log in the mode "recent": the last ones of each task, in a stream per task.

    Memory is bounded twice: each stream is trimmed to KEPT entries, and the number of tasks with a stream is limited
    (core/stats/runs.py). A task is registered before readers find its stream; a task without room is refused, and its
    new entries are deleted again. Busy tasks are sampled: a script that logs nothing takes no longer than before. One
    object serves one process on one connection.
    """

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
        return Call("stats/events/enter", (successful_tasks_key(self._namespace),), args, lambda reply: reply, True)

    def _forget(self, tasks: Sequence[str]) -> Call[Any]:
        keys = (successful_tasks_key(self._namespace), *(successes_key(self._namespace, task) for task in tasks))
        return Call("stats/events/forget", keys, tuple(map(_encoded, tasks)), lambda reply: [], True)


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
