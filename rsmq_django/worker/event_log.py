"""How the ends of attempts get into the event log: as words at the end of the call that settles them.

The script writes the event of a message if it settles the message (shared/events.lua), so this module does no I/O.
What the fields mean stands in core/events.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..conf import EventSettings
from ..core.call import Argument
from ..core.events import MAX_ERROR_CHARACTERS
from .delivery import Delivery
from .error_text import dotted_path, text_of
from .execution import Execution
from .outcomes import Dead, Outcome, RetryIn, Succeeded

#: What a script reads when nothing is logged.
NO_EVENTS: tuple[Argument, ...] = (0,)


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

    def words(self, queue_name: str, ends: Sequence[tuple[Execution, Outcome]]) -> tuple[Argument, ...]:
        """Return the end of the arguments of a call that settles these messages."""
        if not self.records_successes and isinstance(ends[0][1], Succeeded):
            return NO_EVENTS
        words: list[Argument] = []
        for execution, outcome in ends:
            words += self._event(execution, outcome)
        words += (queue_name, self.worker_id, self.max_length)
        words.append(len(words))
        return tuple(words)

    def _event(self, execution: Execution, outcome: Outcome) -> tuple[Argument, ...]:
        delivery, envelope, run_us = execution.delivery, execution.envelope, execution.run_us
        error_type, error = self._error(outcome) if isinstance(outcome, (RetryIn, Dead)) else ("", "")
        has_run = run_us is not None
        return (
            execution.path,
            envelope.id if envelope is not None else "",
            delivery.attempt,
            sent_ms(delivery),
            delivery.wait_us if has_run and delivery.wait_us is not None else "",
            run_us if run_us is not None else "",
            len(delivery.message.body),
            error_type,
            error,
        )

    def _error(self, outcome: RetryIn | Dead) -> tuple[str, str]:
        text = text_of(outcome.error)[:MAX_ERROR_CHARACTERS] if self.error_text else ""
        return _storable(dotted_path(type(outcome.error))), _storable(text)


def sent_ms(delivery: Delivery) -> Argument:
    """Return when a message was sent, in epoch milliseconds; "" when its id does not tell."""
    sent = delivery.message.sent_ms
    return "" if sent is None else int(sent)


def _storable(text: str) -> str:
    """Return text that can be written as UTF-8: half of a surrogate pair cannot, and a task may raise anything."""
    return text.encode("utf-8", "backslashreplace").decode()
