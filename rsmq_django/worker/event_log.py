"""How the ends of attempts get into the event log: as words at the end of the call that settles them.

The script writes the event of a message if it settles the message (shared/events.lua), so this module does no I/O.
What the fields mean stands in core/events.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..conf import EventSettings
from ..core.call import Argument
from ..core.events import MAX_ERROR_CHARACTERS
from .error_text import dotted_path, text_of
from .execution import Execution
from .outcomes import Dead, Outcome, RetryIn, Succeeded

if TYPE_CHECKING:
    from .endings import Ending

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

    def words(self, queue_name: str, endings: Sequence[Ending]) -> Events:
        """Return the end of the arguments of a call that settles these messages; their outcomes are of one kind."""
        if not self.records_successes and isinstance(endings[0].outcome, Succeeded):
            return NO_EVENTS
        words: list[Argument] = []
        for ending in endings:
            words += _event(ending.execution, *self._error(ending.outcome))
        return self._complete(queue_name, words)

    def words_of_lost(self, execution: Execution, how: str) -> Events:
        """Return the same for one message whose process died; `how` says how."""
        return self._complete(execution.delivery.work_queue.name, _event(execution, "ProcessDied", how))

    def _complete(self, queue_name: str, words: Sequence[Argument]) -> Events:
        return *words, queue_name, self.worker_id, self.max_length, len(words) + 3

    def _error(self, outcome: Outcome) -> tuple[str, str]:
        if not isinstance(outcome, (RetryIn, Dead)):
            return "", ""
        text = text_of(outcome.error)[:MAX_ERROR_CHARACTERS] if self.error_text else ""
        return _storable(dotted_path(type(outcome.error))), _storable(text)


def _event(execution: Execution, error_type: str, error: str) -> Events:
    """Return the nine words of an event."""
    delivery, envelope, run_us = execution.delivery, execution.envelope, execution.run_us
    sent_ms, wait_us = delivery.message.sent_ms, None if run_us is None else delivery.wait_us
    return (
        execution.path,
        envelope.id if envelope is not None else "",
        delivery.attempt,
        "" if sent_ms is None else int(sent_ms),
        "" if wait_us is None else wait_us,
        "" if run_us is None else run_us,
        len(delivery.message.body),
        error_type,
        error,
    )


def _storable(text: str) -> str:
    """Return text that can be written as UTF-8: half of a surrogate pair cannot, and a task may raise anything."""
    return text.encode("utf-8", "backslashreplace").decode()
