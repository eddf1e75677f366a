"""Event arguments of the calls that settle attempts.

The script that settles a message also writes its event (shared/events.lua). For reliable queues and topics,
write() appends the events afterwards. The fields are described in core/events.py.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...conf import EventSettings
from ...core import Client, RsmqError
from ...core.call import Argument
from ...core.events import BETWEEN_TAGS, MAX_ERROR_CHARACTERS, Kind, append
from ...core.ids import whole_sent_ms
from ...core.keys import successes_key
from ...core.log_lines import get_logger
from ...tasks.tags import tags_of
from ..execute.execution import Execution
from ..execute.outcomes import Dead, Outcome, Postponed, RetryIn, Succeeded
from .error_text import dotted_path, text_of
from .recent_successes import KEPT, RecentSuccesses

if TYPE_CHECKING:
    from ..lease.settle import Settlement
    from ..sources.reliable_queue import Settled

logger = get_logger(__name__)

#: Maximum number of tags of an event: other programs may write any number into a message.
MOST_TAGS = 50
#: The last arguments of a call, for shared/events.lua.
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

    def words(self, queue_name: str, settlements: Sequence[Settlement | Settled], *, are_apart: bool = False) -> Events:
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

    def words_of_lost(self, execution: Execution, how: str) -> Events:
        """Return the arguments for one message whose process died; `how` describes the end of the process."""
        return self._complete(execution.delivery.work_queue.name, [line_of(execution)], "ProcessDied", how)

    def write(
        self, client: Client, queue_name: str, kind: str, lines: Sequence[tuple[str, str]], error: BaseException | None
    ) -> None:
        """Write events of messages that an earlier call settled: tasks and lines. Never raises."""
        error_words = ("", "") if error is None else self._said(error)
        if kind != Kind.SUCCEEDED.value or self.records_successes:
            words = self._complete(queue_name, [line for _, line in lines], *error_words)
            self._append(client, kind, words)
        elif self.recent is not None:
            self.recent.turn(time.monotonic())
            taken: dict[str, list[str]] = {}
            for task, line in lines:
                if self.recent.takes(task):
                    taken.setdefault(task, []).append(line)
            for task, own in taken.items():
                words = self._complete(queue_name, own, "", "", most=KEPT)
                self._append(client, kind, words, log=successes_key(client.namespace, task))
            self.recent.carry_out(client)

    def _append(self, client: Client, kind: str, words: Events, *, log: str = "") -> None:
        try:
            client.run(append(client.namespace, kind, words, log=log))
        except RsmqError as error:
            logger.warning("events of queue %s are not in the log: %s", words[-5], error)

    def _complete(
        self, queue_name: str, lines: Sequence[str], error_type: str, error: str, *, most: int | None = None
    ) -> Events:
        words = f"{error_type}\n{error}"
        return *lines, queue_name, self.worker_id, words, most or self.max_length, len(lines) + 4

    def _error(self, outcome: Outcome) -> tuple[str, str]:
        if not isinstance(outcome, (RetryIn, Dead)):
            return "", ""  # a group of many; failures are settled one by one
        return self._said(outcome.error)

    def _said(self, error: BaseException) -> tuple[str, str]:
        text = text_of(error)[:MAX_ERROR_CHARACTERS] if self.error_text else ""
        return _storable(dotted_path(type(error))), _storable(text)


def line_of(execution: Execution) -> str:
    """Return eight values of an event as one argument: packing arguments is the main cost of an event here."""
    delivery, run_us = execution.delivery, execution.run_us
    message, envelope = delivery.message, execution.envelope
    wait_us = None if run_us is None else delivery.wait_us
    message_id = message.id
    if "\n" in message_id:  # only programs that are not RSMQ clients write such ids
        message_id = message_id.replace("\n", " ")
    is_reliable = delivery.work_queue.reliable is not None
    sent_ms = message_id.partition("-")[0] if is_reliable else whole_sent_ms(message_id)
    tags = "" if execution.meta is None else BETWEEN_TAGS.join(tags_of(execution.meta)[:MOST_TAGS])
    if tags:
        tags = f"\n{tags}\n"
    return (
        f"{execution.path}\n{envelope.id if envelope is not None else ''}\n{message_id}\n"
        f"{delivery.attempt}\n{sent_ms}\n{'' if wait_us is None else wait_us}\n"
        f"{'' if run_us is None else run_us}\n{delivery.body_bytes}{tags}"
    )


def _storable(text: str) -> str:
    """Return text that can be encoded as UTF-8: half of a surrogate pair cannot, and a task may raise any text."""
    return text.encode("utf-8", "backslashreplace").decode()
