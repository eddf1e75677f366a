"""How the ends of attempts get into the event log: as words at the end of the call that settles them.

The script writes the event of a message if it settles the message (shared/events.lua), so this module does no I/O.
What the fields mean stands in core/events.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..conf import EventSettings
from ..core import Client, RsmqError
from ..core.call import Argument
from ..core.events import MAX_ERROR_CHARACTERS, append
from ..core.ids import whole_sent_ms
from ..log_lines import get_logger
from .error_text import dotted_path, text_of
from .execution import Execution
from .outcomes import Dead, Outcome, Postponed, RetryIn, Succeeded

if TYPE_CHECKING:
    from .endings import Ending
    from .reliable_work import Settled

logger = get_logger(__name__)

#: The end of the arguments of a call, for shared/events.lua.
Events = tuple[Argument, ...]
#: What a script reads when nothing is logged.
NO_EVENTS: Events = (0,)


@dataclass(frozen=True, slots=True)
class EventLog:
    """Which attempts are logged, and how."""

    worker_id: str
    records_successes: bool
    max_length: int
    error_text: bool

    @classmethod
    def from_settings(cls, settings: EventSettings, worker_id: str) -> EventLog | None:
        """Return None when nothing is to be logged."""
        if settings.record == "off":
            return None
        return cls(worker_id, settings.record == "all", settings.max_length, settings.error_text)

    def words(self, queue_name: str, endings: Sequence[Ending | Settled]) -> Events:
        """Return the end of the arguments of a call that settles these messages; their outcomes are of one kind."""
        if not self.records_successes and isinstance(endings[0].outcome, Succeeded):
            return NO_EVENTS
        if isinstance(endings[0].outcome, Postponed) and not endings[0].outcome.has_run:
            return NO_EVENTS  # it asks again and again
        lines = [_line(ending.execution) for ending in endings]
        return self._complete(queue_name, lines, *self._error(endings[0].outcome))

    def words_of_lost(self, execution: Execution, how: str) -> Events:
        """Return the same for one message whose process died; `how` says how."""
        return self._complete(execution.delivery.work_queue.name, [_line(execution)], "ProcessDied", how)

    def words_of_lines(self, queue_name: str, lines: list[str], error: BaseException | None) -> Events:
        """Return the same for messages that are no executions; `error` is what they failed with."""
        return self._complete(queue_name, lines, *("", "") if error is None else self._said(error))

    def write(self, client: Client, kind: str, words: Events) -> None:
        """Write events of what was settled by a call before this one. Nothing hangs on them: never raises."""
        if words == NO_EVENTS:
            return
        try:
            client.run(append(client.namespace, kind, words))
        except RsmqError as error:
            logger.warning("events of queue %s are not in the log: %s", words[-5], error)

    def _complete(self, queue_name: str, lines: list[str], error_type: str, error: str) -> Events:
        return *lines, queue_name, self.worker_id, f"{error_type}\n{error}", self.max_length, len(lines) + 4

    def _error(self, outcome: Outcome) -> tuple[str, str]:
        if not isinstance(outcome, (RetryIn, Dead)):
            return "", ""  # many at once; those that failed come one by one
        return self._said(outcome.error)

    def _said(self, error: BaseException) -> tuple[str, str]:
        text = text_of(error)[:MAX_ERROR_CHARACTERS] if self.error_text else ""
        return _storable(dotted_path(type(error))), _storable(text)


def _line(execution: Execution) -> str:
    """Return eight values of an event as one argument: packing it is most of what an event costs here."""
    delivery, run_us = execution.delivery, execution.run_us
    message, envelope = delivery.message, execution.envelope
    wait_us = None if run_us is None else delivery.wait_us
    message_id = message.id
    if "\n" in message_id:  # only programs that are no RSMQ client write such ids
        message_id = message_id.replace("\n", " ")
    is_reliable = delivery.work_queue.reliable is not None
    sent_ms = message_id.partition("-")[0] if is_reliable else whole_sent_ms(message_id)
    return (
        f"{execution.path}\n{envelope.id if envelope is not None else ''}\n{message_id}\n"
        f"{delivery.attempt}\n{sent_ms}\n{'' if wait_us is None else wait_us}\n"
        f"{'' if run_us is None else run_us}\n{len(message.body)}"
    )


def _storable(text: str) -> str:
    """Return text that can be written as UTF-8: half of a surrogate pair cannot, and a task may raise anything."""
    return text.encode("utf-8", "backslashreplace").decode()
