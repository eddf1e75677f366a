"""Fields of the running task on every log record that is written inside it: by logging, and by structlog."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any

from ..tasks.running import current_run
from ..tasks.tracing import trace_id_of
from .logs import PREFIX

__all__ = ["TaskFieldsFilter", "add_task_fields"]

NAMES = ("task", "task_id", "attempt", "queue", "trace_id")


class TaskFieldsFilter(logging.Filter):
    """Adds fields to the records of any logger: `rsmq_task`, `_task_id`, `_attempt`, `_queue` and `_trace_id`.

    For handlers: a filter of a logger does not see the records of the loggers below it. Refuses no record, and changes
    no field that a record has. `outside` is the value of the fields of records outside of a task, for formats that
    name them; None: such records get no fields. Without a trace there is no `rsmq_trace_id`, or it is `outside`.
    """

    def __init__(self, outside: str | None = None) -> None:
        super().__init__()
        self._outside = outside

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields, and return True."""
        own = vars(record)
        for name, value in task_fields().items():
            own.setdefault(PREFIX + name, value)
        if self._outside is not None:
            for name in NAMES:
                own.setdefault(PREFIX + name, self._outside)
        return True


def add_task_fields(
    _logger: object, _method_name: str, event_dict: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Add `task`, `task_id`, `attempt`, `queue` and `trace_id` to an event: a processor for structlog."""
    for name, value in task_fields().items():
        event_dict.setdefault(name, value)
    return event_dict


def task_fields() -> dict[str, Any]:
    """Return the fields of the task of the calling thread or coroutine; empty outside of a task."""
    run = current_run.get()
    if run is None:
        return {}
    fields = {
        "task": run.path,
        "task_id": run.task_id,
        "attempt": run.delivery.attempt,
        "queue": run.delivery.work_queue.name,
    }
    trace_id = trace_id_of(run.meta)
    return {**fields, "trace_id": trace_id} if trace_id else fields
