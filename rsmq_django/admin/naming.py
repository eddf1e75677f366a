"""What questions and answers of the admin say: which operation, how many messages, and of which task and error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ..core.queue.browse import FailureRecord
from .formats import as_number, one_line, reason_of, short_list, visible

#: Tasks and errors that one sentence names.
MAX_NAMES = 3

#: The question before an operation, by its name; "%(count)s" is the number of messages.
QUESTIONS: Mapping[str, Callable[[int], str]] = {
    "run_now": lambda n: ngettext("Run %(count)s message now", "Run %(count)s messages now", n),
    "delay": lambda n: ngettext("Delay %(count)s message", "Delay %(count)s messages", n),
    "move": lambda n: ngettext("Move %(count)s message", "Move %(count)s messages", n),
    "redrive": lambda n: ngettext("Retry %(count)s dead letter", "Retry %(count)s dead letters", n),
    "delete_selected": lambda n: ngettext("Delete %(count)s message", "Delete %(count)s messages", n),
}


def question(operation: str, number: int, name: str) -> str:
    """Return "Retry 84 dead letters: shop.tasks.pay, ConnectionError"."""
    text = QUESTIONS[operation](number) % {"count": as_number(number)}
    return f"{text}: {name}" if name else text


def failure_name(failure: FailureRecord | None) -> str:
    """Return the task and the class of the exception of a dead letter: "shop.tasks.pay, ConnectionError"."""
    if failure is None:
        return _("no failure record")
    error = visible(failure.error).rpartition(".")[2] or reason_of(failure.reason)
    return ", ".join(one_line(part, 200) for part in (failure.task, error) if part)


def names_of(rows: Iterable[Any]) -> str:
    """Return the tasks and errors of rows of the list of messages, each once; their queues when none has a task."""
    listed = list(rows)
    names = dict.fromkeys(
        ", ".join(one_line(part, 200) for part in (row.task, row.error.rpartition(".")[2]) if part) for row in listed
    )
    if not any(names):
        names = dict.fromkeys(row.place.label for row in listed)
    return short_list([name or _("no task") for name in names], MAX_NAMES)


def answer(operation: str, name: str, sentence: str) -> str:
    """Return "Retry · shop.tasks.pay: 2 of 3 done, 1 no longer exists"."""
    return f"{operation} · {name}: {sentence}" if name else f"{operation}: {sentence}"
